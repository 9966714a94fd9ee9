//! Tests of versions: what a commit builds and measures, and what is said of bad versions.

#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;
#[path = "versions/repo.rs"]
mod repo;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use lab::{Lab, Ran};
use repo::{MATRIX, Repo};

/// What one commit of the history changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Docs,
    /// Files beside `paths`.
    Elsewhere,
    /// The program that both backends share.
    Core,
    A,
    B,
    /// Other text of the shared program, the same bytes.
    Whitespace,
    WhitespaceA,
    Broken,
    Slow,
    /// Back to the text of the commit before the last.
    Revert,
}

/// Sixty commits: a broken one that is put right, a slow one that stays.
fn history() -> Vec<Change> {
    use Change::*;
    let ten = [
        Docs,
        A,
        Docs,
        Whitespace,
        B,
        Elsewhere,
        Core,
        WhitespaceA,
        Docs,
        Elsewhere,
    ];
    let mut all = ten.repeat(6);
    all[32] = Broken;
    all[33] = Revert;
    all[44] = Slow;
    all[51] = A;
    all[52] = Revert;
    all
}

/// What decides over a build: texts, and what they mean.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sources {
    /// Meaning and white space of each.
    core: (u32, u32),
    a: (u32, u32),
    b: (u32, u32),
    is_broken: bool,
}

impl Sources {
    fn new(a: u32, b: u32) -> Sources {
        Sources {
            core: (1, 0),
            a: (a, 0),
            b: (b, 0),
            is_broken: false,
        }
    }

    /// Returns the hash of the commit.
    fn commit(&self, repo: &Repo, message: &str) -> String {
        for (name, text) in self.texts() {
            repo.write(name, &text);
        }
        repo.commit(message)
    }

    fn texts(&self) -> [(&'static str, String); 3] {
        let header = |name: char, (value, space): (u32, u32)| {
            format!(
                "{}#define {} {value}\n",
                "\n".repeat(space as usize),
                name.to_ascii_uppercase()
            )
        };
        let oops = if self.is_broken { "#error oops\n" } else { "" };
        let main = format!(
            "{}{oops}#include <stdio.h>\n#include <string.h>\n#include \"a.h\"\n#include \"b.h\"\n\
             int main(int argc, char **argv) {{\n\
             \tint cost = strcmp(argv[1], \"a\") ? B : A;\n\
             \tprintf(\"v=%d\\n\", argc * 100000 + {} * 1000 + cost);\n}}\n",
            "// why\n".repeat(self.core.1 as usize),
            self.core.0
        );
        [
            ("main.c", main),
            ("a.h", header('a', self.a)),
            ("b.h", header('b', self.b)),
        ]
    }

    /// What a cell of a backend can see of the texts and of their meaning.
    fn seen(&self, backend: &str) -> ((u32, u32), (u32, u32), bool) {
        let own = if backend == "a" { self.a } else { self.b };
        (self.core, own, self.is_broken)
    }
}

/// Label, change and sources of each commit, the first one without a change.
fn commit_all(repo: &Repo) -> Vec<(String, Change, Sources)> {
    let mut now = Sources::new(10, 20);
    let mut past = vec![now.clone()];
    let mut commits = Vec::new();
    for (number, change) in (0..).zip([Change::Core].into_iter().chain(history())) {
        match change {
            Change::Docs => repo.write("docs/notes.txt", &format!("{number}\n")),
            Change::Elsewhere => repo.write("tests/check.sh", &format!("# {number}\n")),
            Change::Core => now.core.0 += 1,
            Change::A => now.a.0 += 1,
            Change::B => now.b.0 += 1,
            Change::Slow => now.a.0 += 90_000,
            Change::Whitespace => now.core.1 += 1,
            Change::WhitespaceA => now.a.1 += 1,
            Change::Broken => now.is_broken = true,
            Change::Revert => now = past[past.len() - 2].clone(),
        }
        past.push(now.clone());
        let id = now.commit(repo, &format!("{number}: {change:?}"));
        commits.push((id[..12].to_owned(), change, now.clone()));
    }
    commits
}

/// Labels of the builds that were tried.
fn built(ran: &Ran) -> Vec<String> {
    let events = ran.events("build_started").into_iter();
    events
        .map(|event| event["version"].as_str().unwrap().to_owned())
        .collect()
}

/// `plan --why --json`.
fn plan(lab: &Lab, more: &[&str]) -> Value {
    let words = ["plan", "matrix.toml", "--why", "--json"];
    let output = lab.matrix(&[&words, more].concat()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    lab::schema::document(&output)
}

/// Steps by reason.
fn reasons(plan: &Value) -> BTreeMap<String, u64> {
    let list = plan["why"].as_array().unwrap().iter();
    list.map(|reason| {
        (
            reason["why"].as_str().unwrap().to_owned(),
            reason["steps"].as_u64().unwrap(),
        )
    })
    .collect()
}

#[test]
fn sixty_commits_build_and_measure_what_they_can_have_changed() {
    let repo = Repo::new();
    let commits = commit_all(&repo);
    let lab = Lab::new(MATRIX);
    let repository = repo.path();
    let range = ["--repo", &repository, "--version", "main~60..main"];

    // The plan: by sources alone, without a build.
    let planned = plan(&lab, &range);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    let mut texts = BTreeSet::new();
    for (index, (label, change, now)) in commits.iter().enumerate().skip(1) {
        for backend in ["a", "b"] {
            if !texts.insert((backend, now.seen(backend))) {
                continue;
            }
            let before = &commits[index - 1];
            let files: Vec<&str> = (before.2.texts().into_iter().zip(now.texts()))
                .filter(|(old, new)| old != new)
                .map(|(_, (name, _))| name)
                .collect();
            let why = match index {
                1 => "new: nothing of this matrix was measured yet".to_owned(),
                _ => format!(
                    "sources of {label} \"{index}: {change:?}\" since {}: {}",
                    before.0,
                    files.join(", ")
                ),
            };
            *expected.entry(why).or_default() += 2;
        }
    }
    assert_eq!(reasons(&planned), expected);
    assert_eq!(planned["steps"]["run"]["run"], 2 * texts.len());

    // The run: the same bytes are measured once.
    let ran = lab.start_with("matrix.toml", "events", &range).wait();
    ran.assert_code(3);
    let (mut seen, mut meant) = (BTreeSet::new(), BTreeSet::new());
    let (mut builds, mut cells, mut failed) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (label, _, now) in &commits[1..] {
        let is_new = ["a", "b"].map(|backend| seen.insert((backend, now.seen(backend))));
        if is_new.contains(&true) {
            builds.push(label.clone());
        }
        for (backend, own) in [("a", now.a.0), ("b", now.b.0)] {
            let names =
                ["1", "2"].map(|size| format!("version={label},backend={backend},size={size}"));
            match now.is_broken {
                true => failed.extend(names),
                false if meant.insert((backend, now.core.0, own)) => cells.extend(names),
                false => {}
            }
        }
    }
    assert_eq!(built(&ran), builds);
    assert_eq!(ran.cells().into_iter().collect::<BTreeSet<_>>(), cells);
    assert_eq!(
        ran.failed().keys().cloned().collect::<BTreeSet<_>>(),
        failed
    );
    for reason in ran.failed().values() {
        assert!(
            reason.contains("its build failed") && reason.contains("oops"),
            "{reason}"
        );
    }

    // Again: nothing, and the broken one is said to be broken.
    let again = lab.start_with("matrix.toml", "events", &range).wait();
    again.assert_code(3);
    assert_eq!((built(&again), again.measured()), (Vec::new(), Vec::new()));
    let planned = plan(&lab, &range);
    let left = reasons(&planned);
    let (why, steps) = left.first_key_value().unwrap();
    assert_eq!((left.len(), *steps), (1, 4), "{left:?}");
    assert!(why.starts_with("its build failed: "), "{why}");
    assert!(why.ends_with("(`--failed` tries again)"), "{why}");

    // What it printed is found by the cell.
    let cell = failed.first().unwrap().as_str();
    let log = [&["log", "matrix.toml", cell], &range[..]].concat();
    let output = lab.matrix(&log).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.starts_with("$ cc ") && text.contains("oops"), "{text}");

    // The slow commit shows, beside the one before it.
    let slow = commits
        .iter()
        .position(|(_, change, _)| *change == Change::Slow)
        .unwrap();
    let pair = [
        "--repo",
        &repository,
        "--against",
        &commits[slow - 1].0,
        "--version",
        &commits[slow].0,
    ];
    let compared = lab.start_with("matrix.toml", "events", &pair).wait();
    compared.assert_code(1);
    assert_eq!(compared.measured(), []);
    let verdicts = compared.document["verdicts"].as_array().unwrap();
    let worse: Vec<&str> = verdicts
        .iter()
        .filter(|verdict| verdict["verdict"] == "regression")
        .map(|verdict| verdict["cell"].as_str().unwrap())
        .collect();
    assert_eq!(worse.len(), 2, "{verdicts:?}");
    assert!(
        worse.iter().all(|cell| cell.contains("backend=a")),
        "{worse:?}"
    );
    lab.assert_clean();
}

/// What a `matrix plan` that cannot be made says, with folders by name.
fn error_of(lab: &Lab, repository: &str, version: &str) -> String {
    let words = [
        "plan",
        "matrix.toml",
        "--repo",
        repository,
        "--version",
        version,
    ];
    let output = lab.matrix(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{version}");
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = text
        .split_whitespace()
        .filter(|word| *word != "│")
        .collect();
    let lab = lab.path("").display().to_string();
    lines
        .join(" ")
        .replace(repository, "REPO")
        .replace(&lab, "LAB/")
}

#[test]
fn errors_of_versions_are_one_line_with_a_remedy() {
    let repo = Repo::new();
    let first = Sources::new(1, 1).commit(&repo, "first");
    repo.write("a.h", "#define A 2\n");
    let second = repo.commit("second");
    repo.git(&["tag", "v1.0"]);
    let lab = Lab::new(MATRIX);
    let path = repo.path();
    let check =
        |version: &str, expected: &str| assert_eq!(error_of(&lab, &path, version), expected);
    check(
        "v1.00",
        "× `v1.00` is not a revision of `REPO`; did you mean `v1.0`?",
    );
    check(
        "main..main",
        "× no commits in `main..main`: both ends are the same commit",
    );
    check(
        "x=main~1..main",
        "× `x=main~1..main` does not name a version: a range is many versions and cannot have a label",
    );
    check(
        "main+no.mbox",
        "× cannot read the patches in no.mbox: there is no such file",
    );
    let patch = repo.git(&["format-patch", "--stdout", "main~1..main"]);
    fs::write(lab.path("series.mbox"), patch + "\n").unwrap();
    let base = &second[..12];
    check(
        "main+series.mbox",
        &format!(
            "× patch 1 of series.mbox, \"second\", does not apply to {base}: a.h at the hunk for line 1: \
             patch failed: a.h:1; a.h: patch does not apply; \
             rebase the series, or name the commit that it was made for"
        ),
    );
    let gone = lab.path("gone").display().to_string();
    assert_eq!(
        error_of(&lab, &gone, "main"),
        "× no repository at `REPO`: there is no such folder; check `repo` or `--repo`"
    );

    let shallow = lab.path("shallow").display().to_string();
    repo.git(&[
        "clone",
        "--quiet",
        "--depth=1",
        &format!("file://{path}"),
        &shallow,
    ]);
    let expected = format!(
        "× `{first}` is not a revision of `REPO`; the clone is shallow and may lack it: run `git fetch \
         --unshallow` there"
    );
    assert_eq!(error_of(&lab, &shallow, &first), expected);
    assert_eq!(
        fs::read_dir(lab.path(".matrix")).unwrap().count(),
        1,
        "only the mirrors"
    );
}

#[test]
fn names_of_branches_and_tags_are_versions_and_baselines() {
    let repo = Repo::new();
    let mut sources = Sources::new(50, 1);
    sources.commit(&repo, "first");
    repo.git(&["branch", "feature/x"]);
    repo.git(&["tag", "v1.0+dfsg"]);
    sources.a.0 += 80_000;
    sources.commit(&repo, "a is slower");
    let lab = Lab::new(MATRIX);
    let path = repo.path();
    for (at, against) in [
        "feature/x",
        "v1.0+dfsg",
        "main^",
        "main@{0}^",
        "heads/feature/x",
    ]
    .into_iter()
    .enumerate()
    {
        let words = ["--repo", &path, "--version", "main", "--against", against];
        let ran = lab.start_with("matrix.toml", "events", &words).wait();
        ran.assert_code(1);
        let verdicts = ran.document["verdicts"].as_array().unwrap();
        assert_eq!(verdicts.len(), 4, "{against}: {verdicts:?}");
        // The commit is the same each time: nothing is built again.
        assert_eq!(built(&ran).is_empty(), at > 0, "{against}");
    }
}

#[test]
fn patches_names_and_against() {
    let repo = Repo::new();
    let mut sources = Sources::new(50, 1);
    sources.commit(&repo, "first");
    repo.git(&["branch", "topic"]);
    sources.a.0 += 80_000;
    sources.commit(&repo, "a is slower");
    let lab = Lab::new(MATRIX);
    fs::write(
        lab.path("s.mbox"),
        repo.git(&["format-patch", "--stdout", "topic..main"]) + "\n",
    )
    .unwrap();
    let path = repo.path();
    let words = [
        "--repo",
        &path,
        "--version",
        "new=topic+s.mbox",
        "--against",
        "old=topic",
    ];
    let ran = lab.start_with("matrix.toml", "events", &words).wait();
    ran.assert_code(1);
    assert_eq!(built(&ran), ["old", "new"]);
    let cells = |version: &str, backends: &[&str]| -> Vec<String> {
        let pairs = backends
            .iter()
            .flat_map(|backend| ["1", "2"].map(|size| (backend, size)));
        pairs
            .map(|(backend, size)| format!("version={version},backend={backend},size={size}"))
            .collect()
    };
    // `b` cannot have changed: what was measured of the old version holds for the new one.
    assert_eq!(
        ran.cells(),
        [cells("new", &["a"]), cells("old", &["a", "b"])].concat()
    );
    let verdicts = ran.document["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4, "{verdicts:?}");
    for verdict in verdicts {
        assert_eq!(
            (&verdict["baseline"], &verdict["candidate"]),
            (&"old".into(), &"new".into())
        );
        let is_a = verdict["cell"].as_str().unwrap().contains("backend=a");
        assert_eq!(
            verdict["verdict"],
            if is_a { "regression" } else { "same" },
            "{verdict}"
        );
    }
    // The commit that the patch became has the tree of `main`: nothing is built or measured for it.
    let main = ["--repo", &path, "--version", "main"];
    let again = lab.start_with("matrix.toml", "events", &main).wait();
    again.assert_code(0);
    assert_eq!((built(&again), again.measured()), (Vec::new(), Vec::new()));
}

#[test]
fn a_subject_that_is_only_built_needs_a_version() {
    let lab = Lab::new(MATRIX);
    let ran = lab.run();
    ran.assert_code(2);
    let errors = ran.errors().join("\n");
    assert!(
        errors.contains("say what to build, `--version REV`"),
        "{errors}"
    );
    let planned = lab.matrix(&["plan", "matrix.toml"]).output().unwrap();
    assert_eq!(planned.status.code(), Some(2));
    let told = String::from_utf8_lossy(&planned.stderr).replace("\n         ", " ");
    assert!(told.contains("`[subject] installed`"), "{told}");
}

#[test]
fn an_artifact_that_is_gone_is_built_again() {
    let repo = Repo::new();
    let mut sources = Sources::new(50, 1);
    sources.commit(&repo, "first");
    let lab = Lab::new(MATRIX);
    let path = repo.path();
    let main = ["--repo", &path, "--version", "main"];
    lab.start_with("matrix.toml", "events", &main)
        .wait()
        .assert_code(0);
    let artifacts = fs::read_dir(lab.path(".matrix/artifacts")).unwrap();
    let folders = artifacts
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir());
    let first: Vec<_> = folders.collect();
    assert_eq!(first.len(), 1);
    // In cells of `b` the first artifact goes on standing for the second.
    sources.a.0 += 1;
    sources.commit(&repo, "next");
    lab.start_with("matrix.toml", "events", &main)
        .wait()
        .assert_code(0);
    fs::remove_dir_all(&first[0]).unwrap();
    lab.write(&MATRIX.replace("[1, 2]", "[1, 2, 3]"));
    let ran = lab.start_with("matrix.toml", "events", &main).wait();
    ran.assert_code(0);
    assert_eq!(ran.document["failed"], Value::Array(Vec::new()));
    let cells = ran.cells();
    assert!(
        cells.iter().any(|cell| cell.contains("backend=b,size=3")),
        "{cells:?}"
    );
    let again = lab.start_with("matrix.toml", "events", &main).wait();
    assert_eq!((built(&again), again.measured()), (Vec::new(), Vec::new()));
}
