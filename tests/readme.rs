//! What a newcomer reads: README's commands run, documented keys and codes are the program's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regex::Regex;
use serde_json::Value;
use tempfile::TempDir;

#[path = "schema/mod.rs"]
mod schema;

/// README's commands that are not run here, and why.
const NOT_RUN: [(&str, &str); 3] = [
    ("tests/all.sh", "it runs this very test"),
    (
        "cargo install --path .",
        "it changes the machine outside of the repository",
    ),
    (
        "git clone https://github.com/madler/zlib.git",
        "it needs the network: a small repository stands in",
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The contents of the fenced blocks whose first line is ```` ```LABEL ````.
fn blocks(text: &str, label: &str) -> Vec<String> {
    let start = format!("\n```{label}\n");
    let pieces = text.split(&start).skip(1);
    pieces
        .map(|piece| piece.split("\n```").next().unwrap().to_owned())
        .collect()
}

/// Files in the folder of the repository with this extension, as `folder/name`, sorted.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = names
        .filter(|name| name.ends_with(extension))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    files.sort();
    files
}

/// A folder of its own, in which `matrix` runs with a state and a lock of its own.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// A repository with the two tags that the README names.
    fn clone_of_zlib(&self) {
        let git = |words: &[&str]| {
            let output = Command::new("git")
                .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
                .args(words)
                .current_dir(self.path("zlib"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        fs::create_dir(self.path("zlib")).unwrap();
        git(&["init", "--quiet"]);
        for tag in ["v1.3", "v1.3.1"] {
            self.write("zlib/deflate.c", tag);
            git(&["add", "--all"]);
            git(&["commit", "--quiet", "--message", tag]);
            git(&["tag", tag]);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn matrix(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_matrix"))
            .args(arguments)
            .current_dir(self.0.path())
            .env("MATRIX_LOCK", self.path("lock"))
            .env("NO_COLOR", "1")
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str], status: i32) -> Value {
        let output = self.matrix(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}\n{stderr}"
        );
        schema::document(&output)
    }
}

#[test]
fn each_command_of_the_readme_runs() {
    let readme = text("README.md");
    let place = Place::new();
    for file in files("matrices", ".toml") {
        place.write(
            &file,
            &text(&file).replace("via = \"local\"", "via = \"null\""),
        );
    }
    place.clone_of_zlib();
    let first = &blocks(&readme, "toml")[0];
    place.write(
        "first.toml",
        &format!("{first}\n[machines.here]\nvia = \"null\"\n"),
    );
    let mut unused: BTreeSet<&str> = NOT_RUN.iter().map(|(command, _)| *command).collect();
    let mut ran = 0;
    for line in blocks(&readme, "sh").iter().flat_map(|block| block.lines()) {
        let command = line.split(" # ").next().unwrap().trim();
        if unused.remove(command) || command.is_empty() {
            continue;
        }
        let arguments = ["cargo run --release -- ", "matrix "]
            .iter()
            .find_map(|program| command.strip_prefix(program));
        let arguments = arguments.unwrap_or_else(|| {
            panic!("`{command}` of the README is no `matrix` command: list it in NOT_RUN")
        });
        let arguments = shlex::split(arguments).unwrap();
        let output = place.matrix(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(
            output.status.success(),
            "`{command}`: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        ran += 1;
    }
    assert!(ran >= 5, "only {ran} commands found");
    assert!(unused.is_empty(), "not in the README: {unused:?}");
}

#[test]
fn each_shipped_matrix_plans_and_has_both_presets() {
    let place = Place::new();
    place.clone_of_zlib();
    for file in files("matrices", ".toml") {
        let matrix: toml::Table = toml::from_str(&text(&file)).unwrap();
        for manager in ["apt", "dnf"] {
            let packages = matrix["requires"]["packages"].get(manager);
            let some = packages
                .and_then(|list| list.as_array())
                .is_some_and(|list| !list.is_empty());
            assert!(some, "{file}: no packages for {manager}");
        }
        // What is only built has nothing to plan without a version.
        let subject = matrix.get("subject");
        let is_only_built = subject.is_some_and(|subject| subject.get("installed").is_none());
        let version: &[&str] = match is_only_built {
            true => &["--repo", "zlib", "--version", "v1.3"],
            false => &[],
        };
        let path = root().join(&file);
        let mut cells = Vec::new();
        for preset in ["quick", "nightly"] {
            let arguments = [
                "plan",
                path.to_str().unwrap(),
                "--json",
                "--preset",
                preset,
                "--state",
                "state",
            ];
            let plan = place.json(&[&arguments[..], version].concat(), 0);
            assert_eq!(
                plan["steps"]["run"]["run"], plan["cells"],
                "{file} {preset}"
            );
            cells.push(plan["cells"].as_u64().unwrap());
        }
        assert!(0 < cells[0] && cells[0] <= cells[1], "{file}: {cells:?}");
    }
}

/// A matrix of which one cell fails: its documents have every part.
const SMALL: &str = r#"
[matrix]
name = "small"
[axes]
x = ["a", "b", "bad"]
[[setup]]
name = "folder"
run  = ["mkdir {{ dir }}/it"]
[run]
command = ["sh", "-c", "test {{ x }} != bad && echo v: 1.{{ round }}"]
parser  = { kind = "regex", pattern = "v: (?P<value>[0-9.]+)" }
repeat  = 2
[metrics.v]
from   = "value"
better = "higher"
[[compare]]
axis = "x"
"#;

/// Every key of a document as a path: `verdicts[].cell`. Of arrays the first element counts.
fn keys(value: &Value) -> BTreeSet<String> {
    fn collect(value: &Value, path: &str, keys: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    let path = format!("{path}.{key}");
                    collect(member, &path, keys);
                    keys.insert(path);
                }
            }
            Value::Array(items) => {
                if let Some(first) = items.first() {
                    collect(first, &format!("{path}[]"), keys);
                }
            }
            _ => {}
        }
    }
    let mut keys_of = BTreeSet::new();
    collect(value, "", &mut keys_of);
    keys_of
}

/// Without those of marks, and without the names of axes: whether there are marks depends on what else the machine does.
fn certain_keys(value: &Value) -> BTreeSet<String> {
    let mut keys = keys(value);
    keys.retain(|key| !key.starts_with(".marks[]") && !key.contains(".axes."));
    keys
}

/// The keys of one document without what the other cannot tell of: of lists that are empty there, and of what a
/// machine happens to be like.
fn comparable(keys: &BTreeSet<String>, other: &BTreeSet<String>) -> BTreeSet<String> {
    let is_told = |key: &&String| {
        let lists = key.match_indices("[]").map(|(at, _)| &key[..at]);
        let mut empty = lists.filter(|list| {
            let items = format!("{list}[]");
            other.contains(*list) && !other.iter().any(|key| key.starts_with(&items))
        });
        !key.starts_with(".machines[].values.") && empty.next().is_none()
    };
    keys.iter().filter(is_told).cloned().collect()
}

#[test]
fn documents_have_the_documented_keys() {
    let place = Place::new();
    place.write("small.toml", SMALL);
    place.write("old.toml", &SMALL.replace("1.{{ round }}", "2"));
    place.write("wrong.toml", "[matrx]\n");
    place.write("values.json", "{\"a\": 1}");
    place.write("empty", "");
    let plan_whole = place.json(&["plan", "small.toml", "--format", "json"], 0);
    let plan = place.json(&["plan", "small.toml", "--json"], 0);
    let run = place.json(&["run", "small.toml", "--json", "--events", "events"], 3);
    let compare = place.json(&["compare", "small.toml", "--json"], 3);
    assert_eq!(certain_keys(&run), certain_keys(&compare));
    past_of_small(&place);
    let documents = BTreeMap::from([
        (
            "changes",
            place.json(&["changes", "past.toml", "--json"], 0),
        ),
        (
            "changes-csv",
            place.json(&["changes", "--csv", "series.csv", "--json"], 0),
        ),
        (
            "history",
            place.json(&["history", "past.toml", "--json"], 0),
        ),
        (
            "accept",
            place.json(&["accept", "past.toml", "--list", "--json"], 0),
        ),
        (
            "calibrate",
            place.json(&["calibrate", "past.toml", "--machine", "x", "--json"], 0),
        ),
        ("plan", plan),
        ("compare", compare),
        (
            "explain",
            place.json(&["explain", "small.toml", "x=a", "--json"], 0),
        ),
        (
            "parse",
            place.json(&["parse", "json", "values.json", "--json"], 0),
        ),
        (
            "parse-refused",
            place.json(&["parse", "json", "empty", "--json"], 3),
        ),
        (
            "log",
            place.json(&["log", "small.toml", "x=a", "--json"], 0),
        ),
        (
            "plan-difference",
            place.json(&["plan", "small.toml", "--base", "old.toml", "--json"], 0),
        ),
        (
            "gc",
            place.json(&["gc", "small.toml", "--max-size", "1G", "--json"], 0),
        ),
        (
            "machine-status",
            place.json(&["machine", "status", "--json"], 0),
        ),
        ("errors", place.json(&["plan", "wrong.toml", "--json"], 2)),
    ]);
    let docs = text("docs/json.md");
    for (label, document) in &documents {
        let example = &blocks(&docs, &format!("json {label}"))[0];
        let example: Value = serde_json::from_str(example)
            .unwrap_or_else(|error| panic!("the example `{label}` is no JSON: {error}"));
        let (documented, found) = (certain_keys(&example), certain_keys(document));
        let known = comparable(&documented, &found);
        assert_eq!(known, comparable(&found, &documented), "{label}");
        assert_eq!(document["format"], 2, "{label}");
    }
    let todo: Value = serde_json::from_str(&blocks(&docs, "json plan-whole")[0]).unwrap();
    let missing: Vec<String> = keys(&todo)
        .difference(&with_every_todo(&plan_whole))
        .cloned()
        .collect();
    assert!(missing.is_empty(), "plan-whole: {missing:?}");
    let examples = docs.matches("\n```json ").count();
    assert_eq!(
        examples,
        documents.len() + 1,
        "an example that is not checked"
    );
    documented_events(&docs, &fs::read_to_string(place.path("events")).unwrap());
}

/// Twelve nights of another matrix, of which the last six are slower, which was accepted and taken
/// back; and the same as a file.
fn past_of_small(place: &Place) {
    let versions: Vec<String> = (0..12).map(|night| format!("n{night}/")).collect();
    let slower: Vec<String> = (6..12).map(|night| format!("n{night} = \"+9%\"")).collect();
    place.write(
        "past.toml",
        &format!(
            "[matrix]\nname = \"past\"\n[machines.x]\nvia = \"null\"\neffects = {{ {} }}\n\
             [axes]\nmachine = [\"x\"]\n[run]\ncommand = \"x\"\nparser = \"fio\"\n[metrics.v]\nbetter = \"lower\"\n",
            slower.join(", ")
        ),
    );
    let mut file = "revision,v\n".to_owned();
    let mut run = vec!["run", "past.toml", "--json"];
    for (night, version) in versions.iter().enumerate() {
        fs::create_dir(place.path(version)).unwrap();
        run.extend(["--version", version]);
        let level = if night < 6 { 100 } else { 120 };
        file.push_str(&format!("r{night},{}.{}\n", level, night % 3));
    }
    place.json(&run, 0);
    place.write("series.csv", &file);
    place.json(&["changes", "past.toml", "--json"], 0);
    let accept = [
        "accept",
        "past.toml",
        "--change",
        "1",
        "--reason",
        "r",
        "--json",
    ];
    place.json(&accept, 0);
    place.json(&["accept", "past.toml", "--undo", "1", "--json"], 0);
}

/// Keys of a whole plan: only run steps have `rounds`, so the first step does not show it.
fn with_every_todo(plan: &Value) -> BTreeSet<String> {
    let steps = plan["todo"].as_array().unwrap().iter();
    let each = steps.flat_map(|step| keys(&serde_json::json!({ "todo": [step] })));
    each.collect()
}

fn documented_events(docs: &str, events: &str) {
    let word = Regex::new("`([a-z_]+)`").unwrap();
    let words = |text: &str| -> BTreeSet<String> {
        word.captures_iter(text)
            .map(|found| found[1].to_owned())
            .collect()
    };
    let mut documented = BTreeMap::new();
    for row in docs.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').collect();
        if let [_, event, keys, _] = cells[..] {
            documented.extend(words(event).into_iter().map(|event| (event, words(keys))));
        }
    }
    let mut seen = BTreeSet::new();
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let name = event["event"].as_str().unwrap().to_owned();
        let keys: BTreeSet<String> = event.as_object().unwrap().keys().cloned().collect();
        let mut expected = documented[&name].clone();
        expected.extend(["event", "time"].map(str::to_owned));
        assert_eq!(keys, expected, "{name}");
        seen.insert(name);
    }
    for name in [
        "started",
        "setup_done",
        "undone",
        "run_done",
        "failed",
        "finished",
    ] {
        assert!(seen.contains(name), "no event `{name}`: {seen:?}");
    }
}

#[test]
fn the_table_of_exit_codes_is_that_of_the_program() {
    let source = text("src/cli.rs");
    let code = Regex::new(r"(?m)^((?:    /// .*\n)+)    ([A-Z][a-z]+) = (\d+),$").unwrap();
    let declared: Vec<[String; 3]> = code
        .captures_iter(&source)
        .map(|found| {
            [
                found[3].to_owned(),
                found[2].to_lowercase(),
                found[1]
                    .replace("    /// ", "")
                    .trim_end()
                    .replace('\n', " "),
            ]
        })
        .collect();
    let docs = text("docs/exit-codes.md");
    let row = Regex::new(r"(?m)^\| (\d+) \| ([a-z]+) \| (.*) \|$").unwrap();
    let documented: Vec<[String; 3]> = row
        .captures_iter(&docs)
        .map(|found| {
            [
                found[1].to_owned(),
                found[2].to_owned(),
                found[3].to_owned(),
            ]
        })
        .collect();
    assert_eq!(documented, declared);
    assert_eq!(declared.len(), 6);
}

#[test]
fn each_key_of_a_matrix_file_is_documented() {
    let docs = text("docs/matrix-file.md");
    let source = text("src/config/decode.rs") + &text("src/config/decode/judging.rs");
    let key = Regex::new(r#"(?:\.(?:get|require)\(|&mut \w+, )"([a-z_]+)""#).unwrap();
    let keys: BTreeSet<&str> = key
        .captures_iter(&source)
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    assert!(keys.len() > 30, "{keys:?}");
    let is_documented = |key: &str| {
        // As a key of its own, as part of a dotted one, or as a table.
        let form = Regex::new(&format!(r"`(\w+\.)?{key}(\.\w+)*`|\[{key}[\].]|\.{key}\]")).unwrap();
        form.is_match(&docs)
    };
    let missing: Vec<&str> = keys.into_iter().filter(|key| !is_documented(key)).collect();
    assert!(
        missing.is_empty(),
        "not in docs/matrix-file.md: {missing:?}"
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let link = Regex::new(r"\]\(([^)#:]+)(#[^)]*)?\)").unwrap();
    let mut documents = files("docs", ".md");
    documents.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned));
    for document in documents {
        let text = text(&document);
        let folder = root().join(&document).parent().unwrap().to_owned();
        for found in link.captures_iter(&text) {
            assert!(folder.join(&found[1]).exists(), "{document}: {}", &found[1]);
        }
    }
}
