//! Each folder in tests/profile has a profile that is wrong, and the whole text that a user gets.
//! `UPDATE=1 cargo test --test profile` writes the texts anew.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use matrix::base::diag::{Diagnostic, Sources, Span};
use matrix::config::profile::{Chain, Facts, Resolved, load, parse};

/// A profile of a folder with those that it extends, resolved on a machine with one NVMe disk.
fn resolve(folder: &Path, name: &str, sources: &mut Sources) -> (Chain, Resolved, Vec<Diagnostic>) {
    let mut read = |name: &str| {
        let file = format!("{name}.kdl");
        match fs::read_to_string(folder.join(&file)) {
            Ok(text) => Ok((file, text)),
            Err(_) => Err(format!("there is no {file} beside it")),
        }
    };
    let (chain, mut problems) = load(name, sources, &mut read);
    let facts = Facts::from([("disk".to_owned(), "nvme".to_owned())]);
    let environment = minijinja::Environment::new();
    let evaluate = |text: &str| {
        let holds = environment
            .compile_expression(text)
            .and_then(|e| e.eval(&facts));
        holds
            .map(|value| value.is_true())
            .map_err(|error| error.to_string())
    };
    let (resolved, more) = chain.resolve(&facts, &evaluate);
    problems.extend(more);
    (chain, resolved, problems)
}

/// `file:line:column: message`, the line with the place underlined, other places, the remedy.
fn draw(problem: &Diagnostic, sources: &Sources) -> String {
    let mut text = String::new();
    match &problem.label {
        None => writeln!(text, "{}", problem.message).unwrap(),
        Some((span, label)) => underline(&mut text, sources, *span, &problem.message, label),
    }
    for (span, label) in &problem.related {
        underline(&mut text, sources, *span, "see", label);
    }
    if let Some(help) = &problem.help {
        writeln!(text, "help: {help}").unwrap();
    }
    text
}

fn underline(text: &mut String, sources: &Sources, span: Span, message: &str, label: &str) {
    let (line, column) = sources.line_column(span);
    let source = sources.text(span.source);
    let shown = source.lines().nth(line - 1).unwrap_or("");
    let marked = &source[span.start as usize..span.end as usize];
    let width = marked.lines().next().unwrap_or("").chars().count().max(1);
    writeln!(
        text,
        "{}:{line}:{column}: {message}",
        sources.name(span.source)
    )
    .unwrap();
    writeln!(text, "  | {shown}").unwrap();
    writeln!(
        text,
        "  | {}{} {label}",
        " ".repeat(column - 1),
        "^".repeat(width)
    )
    .unwrap();
}

#[test]
fn messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profile");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    cases.sort();
    assert!(cases.len() >= 20);
    let mut wrong = Vec::new();
    for case in cases {
        let mut sources = Sources::default();
        let (_, _, problems) = resolve(&case, "profile", &mut sources);
        let drawn: Vec<String> = problems
            .iter()
            .map(|problem| draw(problem, &sources))
            .collect();
        let found = drawn.join("\n");
        let file = case.join("errors.txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, &found).unwrap();
        }
        let expected = fs::read_to_string(&file).unwrap_or_default();
        if found != expected || found.is_empty() {
            wrong.push(format!(
                "{}\n--- expected\n{expected}--- found\n{found}",
                file.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn shipped_profiles_are_valid_and_run_anywhere() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        names.push(path.file_stem().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["low-latency", "quiet", "throughput"]);
    for name in names {
        let mut sources = Sources::default();
        let (chain, resolved, problems) = resolve(&folder, &name, &mut sources);
        assert_eq!(problems, [], "{name}");
        assert!(
            chain.profiles.iter().all(|profile| profile.about.is_some()),
            "{name}"
        );
        let mandatory: Vec<&str> = resolved
            .knobs
            .iter()
            .filter(|knob| !knob.optional)
            .map(|knob| knob.name.as_str())
            .collect();
        assert_eq!(
            mandatory,
            [] as [&str; 0],
            "{name} would not run in a container"
        );
        assert!(resolved.services.iter().all(|unit| unit.optional), "{name}");
        assert!(
            resolved
                .dma_latency_us
                .is_none_or(|latency| latency.optional),
            "{name}"
        );
        assert!(
            resolved.drop_caches.is_none_or(|drop| drop.optional),
            "{name}"
        );
        assert!(resolved.cpus.is_none_or(|cpus| cpus.optional), "{name}");
    }
}

#[test]
fn the_reference_shows_only_what_is_valid() {
    let page = include_str!("../docs/profiles.md");
    let blocks = page.split("```kdl\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 1);
    for block in blocks {
        let mut sources = Sources::default();
        let source = sources.add("profiles.md", block);
        let (_, problems) = parse("reference", source, block);
        let drawn: Vec<String> = problems
            .iter()
            .map(|problem| draw(problem, &sources))
            .collect();
        assert_eq!(drawn.join("\n"), "");
    }
}
