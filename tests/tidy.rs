//! The rules of the repository that the compiler does not check: layers, homes of crates, form.
//! It reads lines, and takes what follows `mod tests {` for tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file at the most.
const LINES_MAX: usize = 900;

/// Lines of `judge/` in all at the most, without its tests: what verdicts rest on can be read in one go.
const JUDGE_LINES_MAX: usize = 4300;

/// The layers from the lowest to the highest: each may use those before it. Those of one line are peers, which do
/// not use each other.
const LAYERS: [&[&str]; 10] = [
    &["base"],
    &["config"],
    &["plan", "judge"],
    &["machine"],
    &["edge"],
    &["resolve"],
    &["verdicts"],
    &["run"],
    &["report"],
    &["cli"],
];

/// The layers that a layer may use; None of what is no layer.
fn layers_below(layer: &str) -> Option<Vec<&'static str>> {
    let at = match layer {
        "main" => LAYERS.len(),
        _ => LAYERS.iter().position(|peers| peers.contains(&layer))?,
    };
    Some(
        LAYERS[..at]
            .iter()
            .flat_map(|peers| peers.iter().copied())
            .collect(),
    )
}

/// Places that touch no runtime, file system, process, clock or database.
const PURE: [&str; 5] = ["base/", "config/", "plan/", "judge/", "run/dispatch"];
const IMPURE: [&str; 9] = [
    "tokio::",
    "rusqlite::",
    "rustix::",
    "std::fs",
    "std::process",
    "std::net",
    "std::env",
    "SystemTime::now",
    "Instant::now",
];

/// Where files are opened and processes started: on a machine, in the store, and the user's own files.
const OUTSIDE_WORLD: [&str; 3] = ["machine/", "edge/store", "cli/files"];
const OUTSIDE: [&str; 3] = ["std::fs", "std::process::Command", "std::process::Stdio"];

/// What a face must not use, though it is below: it renders a report and asks nobody.
const NOT_FOR_FACES: [&str; 5] = ["plan", "machine", "edge", "resolve", "run"];

/// Outside crates that have one home each.
const HOMES: &[(&str, &[&str])] = &[
    ("lettre", &["report/mail"]),
    ("object", &["machine/host/local/elf"]),
    ("postcard", &["machine/"]),
    ("toml", &["config/"]),
    ("kdl", &["config/profile"]),
    ("petgraph", &["plan/"]),
    ("rusqlite", &["edge/store"]),
    ("indicatif", &["run/progress"]),
    ("minijinja", &["config/", "report/"]),
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("miette", &["report/"]),
    ("comfy_table", &["report/"]),
    ("quick_junit", &["report/junit"]),
    ("blake3", &["base/key", "machine/host"]),
    ("csv", &["edge/csv", "report/csv"]),
    (
        "tokio",
        &[
            "run/execute",
            "run/measure",
            "run/monitor",
            "run/session",
            "run/setup",
            "run/tune",
            "edge/",
            "machine/",
            "cli",
            "main",
        ],
    ),
];

const PRINT_MACROS: [&str; 5] = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];
const PRINTERS: [&str; 4] = ["report/", "run/progress", "cli", "main"];

/// `path` is relative to `src/`. Each breach is `src/PATH:LINE: WHAT`.
fn breaches_of(path: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut breach =
        |line: usize, what: String| breaches.push(format!("src/{path}:{line}: {what}"));
    let lines: Vec<&str> = text.lines().collect();
    let is_headed = lines.first().is_some_and(|line| line.starts_with("//! "));
    if !is_headed {
        breach(1, "the first line says (`//! `) what is in the file".into());
    }
    if lines.len() > LINES_MAX {
        breach(
            lines.len(),
            format!("more than {LINES_MAX} lines: split it by concern"),
        );
    }
    let in_any = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
    let layer = path.split(['/', '.']).next().unwrap_or("");
    let may_use = layers_below(layer);
    if may_use.is_none() && path != "lib.rs" {
        breach(1, format!("`{layer}` is no layer"));
    }
    for (number, line) in code_lines(path, &lines) {
        for used in ["crate::", "matrix::"]
            .iter()
            .flat_map(|root| heads(line, root))
        {
            let known = layers_below(used).is_some();
            let below = may_use.as_ref();
            let allowed = below.is_none_or(|below| layer == used || below.contains(&used));
            if used.is_empty() {
                breach(number, "name each layer in a `use` of its own".into());
            } else if known && (!allowed || layer == "report" && NOT_FOR_FACES.contains(&used)) {
                breach(number, format!("`{layer}` must not use `{used}`"));
            }
        }
        for word in IMPURE {
            if in_any(&PURE) && finds(line, word) {
                breach(number, format!("`{word}` in a pure layer"));
            }
        }
        for word in OUTSIDE {
            if finds(line, word) && !in_any(&OUTSIDE_WORLD) {
                breach(
                    number,
                    format!("`{word}` outside a machine, the store and `cli/files.rs`"),
                );
            }
        }
        for (name, homes) in HOMES.iter().copied() {
            let named = finds(line, &format!("{name}::")) || line.contains(&format!("use {name};"));
            if named && !in_any(homes) {
                breach(
                    number,
                    format!("`{name}` outside its home ({})", homes.join(", ")),
                );
            }
        }
        for name in PRINT_MACROS {
            if finds(line, name) && !in_any(&PRINTERS) {
                breach(number, format!("`{name}` outside the reporters"));
            }
        }
        if line.contains(".unwrap()") {
            breach(number, "`.unwrap()` outside tests: return an error".into());
        }
    }
    breaches
}

/// The lines that are neither comments nor tests, counted from 1.
fn code_lines<'a>(path: &str, lines: &[&'a str]) -> Vec<(usize, &'a str)> {
    let tests = lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{'));
    let end = match path.ends_with("tests.rs") || path.contains("/tests/") {
        true => 0,
        false => tests.unwrap_or(lines.len()),
    };
    (1..)
        .zip(lines[..end].iter().copied())
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .collect()
}

/// Whether `word` stands in the line as a path or macro of its own, not as the end of a longer one.
fn finds(line: &str, word: &str) -> bool {
    starts(line, word).next().is_some()
}

fn starts<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

/// The names that follow `root` in the line; an empty one for a `{`.
fn heads<'a>(line: &'a str, root: &'a str) -> impl Iterator<Item = &'a str> + 'a {
    starts(line, root).map(move |at| {
        let rest = &line[at + root.len()..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

#[test]
fn the_sources_keep_the_rules() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut breaches = Vec::new();
    for file in files_below(&src) {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let path = file.strip_prefix(&src).unwrap().to_str().unwrap();
            breaches.extend(breaches_of(path, &fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn judging_can_be_read_in_one_go() {
    let judge = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/judge");
    let files = files_below(&judge).into_iter();
    let lines = files
        .filter(|file| !file.ends_with("tests.rs"))
        .map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]\n").next().unwrap_or_default();
            code.lines().count()
        });
    let lines: usize = lines.sum();
    assert!(
        (1000..=JUDGE_LINES_MAX).contains(&lines),
        "src/judge has {lines} lines without its tests: at most {JUDGE_LINES_MAX}"
    );
}

#[test]
fn each_case_says_what_it_expects() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut breaches = Vec::new();
    for entry in fs::read_dir(&cases).into_iter().flatten() {
        let case = entry.unwrap().path();
        if !case.join("matrix.toml").is_file() {
            breaches.push(format!("{}: no matrix.toml", case.display()));
        }
        let is_expectation = |file: &PathBuf| file.extension().is_some_and(|ext| ext == "txt");
        if !case.is_dir() || !files_below(&case).iter().any(is_expectation) {
            breaches.push(format!("{}: no .txt with what is expected", case.display()));
        }
    }
    assert!(breaches.is_empty(), "\n{}\n", breaches.join("\n"));
}

#[test]
fn breaches_are_found() {
    let check = |path: &str, line: &str, expected: &[&str]| {
        let text = format!("//! a.\n//! b.\n{line}\n");
        let expected: Vec<String> = (expected.iter())
            .map(|what| format!("src/{path}:3: {what}"))
            .collect();
        assert_eq!(breaches_of(path, &text), expected, "{line}");
    };
    check("plan/cell.rs", "use crate::config::matrix::Matrix;", &[]);
    check("plan/cell.rs", "use crate::plan::dag::Dag;", &[]);
    check(
        "plan/cell.rs",
        "use crate::judge::stats;",
        &["`plan` must not use `judge`"],
    );
    check(
        "base/key.rs",
        "    let x = crate::edge::git::Git;",
        &["`base` must not use `edge`"],
    );
    check(
        "edge/git.rs",
        "use crate::run::Event;",
        &["`edge` must not use `run`"],
    );
    check(
        "run/mod.rs",
        "use crate::{plan, judge};",
        &["name each layer in a `use` of its own"],
    );
    check(
        "report/text.rs",
        "use crate::edge::store::Store;",
        &["`report` must not use `edge`"],
    );
    check("lib.rs", "pub use crate::run::Event;", &[]);
    check("cli.rs", "use clap::Parser;", &[]);
    check("main.rs", "use matrix::cli;", &[]);
    check(
        "run/mod.rs",
        "use clap::Parser;",
        &["`clap` outside its home (cli)"],
    );
    check(
        "config/hook.rs",
        "use kdl::KdlNode;",
        &["`kdl` outside its home (config/profile)"],
    );
    check("config/profile/knob.rs", "use kdl::KdlNode;", &[]);
    check("run/mod.rs", "// toml::Table is not for us", &[]);
    check("run/mod.rs", "use my_toml::Table;", &[]);
    let outside = "outside a machine, the store and `cli/files.rs`";
    check(
        "edge/git.rs",
        "use std::fs;",
        &[&format!("`std::fs` {outside}")],
    );
    check(
        "judge/stats.rs",
        "use std::fs;",
        &["`std::fs` in a pure layer", &format!("`std::fs` {outside}")],
    );
    check("cli/files.rs", "use std::fs;", &[]);
    check(
        "run/dispatch.rs",
        "Instant::now()",
        &["`Instant::now` in a pure layer"],
    );
    check(
        "plan/dag.rs",
        "println!();",
        &["`println!` outside the reporters"],
    );
    check("report/text.rs", "println!();", &[]);
    check(
        "report/text.rs",
        "x.unwrap();",
        &["`.unwrap()` outside tests: return an error"],
    );
    check(
        "report/text.rs",
        "#[cfg(test)]\nmod tests {\n    x.unwrap();\n}",
        &[],
    );
    check("report/tests.rs", "x.unwrap();", &[]);
    let headless = breaches_of("cli/a.rs", "use std::fmt;\n");
    assert_eq!(
        headless,
        ["src/cli/a.rs:1: the first line says (`//! `) what is in the file"]
    );
    let long = format!("//! a\n//! b\n{}", "\n".repeat(LINES_MAX - 1));
    assert_eq!(breaches_of("lib.rs", &long).len(), 1);
    assert_eq!(
        breaches_of("other/x.rs", "//! a.\n"),
        ["src/other/x.rs:1: `other` is no layer"]
    );
}
