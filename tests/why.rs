//! The test that `plan --why` is exact: one input changes, and that one is named on each step that reruns.
//!
//! `MATRIX_MUTATIONS=1000` makes as many changes, 200 otherwise.

#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;
#[allow(dead_code)]
#[path = "versions/repo.rs"]
mod repo;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use lab::Lab;
use repo::Repo;

const MUTATIONS_DEFAULT: u64 = 200;

/// Splitmix64 (Steele, Lea and Flood, 2014): small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    fn word(&mut self) -> String {
        format!("r{}", self.below(1_000_000))
    }
}

/// A word of a command: one text in all cells, or another one where an axis has a value.
#[derive(Clone)]
struct Word {
    text: String,
    only: Option<(&'static str, &'static str, String)>,
}

impl Word {
    fn plain(text: &str) -> Word {
        Word {
            text: text.to_owned(),
            only: None,
        }
    }

    fn split(text: &str, axis: &'static str, value: &'static str, there: &str) -> Word {
        Word {
            text: text.to_owned(),
            only: Some((axis, value, there.to_owned())),
        }
    }

    fn toml(&self) -> String {
        match &self.only {
            None => format!("'''{}'''", self.text),
            Some((axis, value, there)) => {
                format!(
                    "'''{{{{ '{there}' if {axis} == '{value}' else '{}' }}}}'''",
                    self.text
                )
            }
        }
    }

    fn changed(&self, random: &mut Random) -> (Word, Change) {
        let mut word = self.clone();
        let new = random.word();
        let (old, cells) = match &mut word.only {
            Some((axis, value, there)) if random.below(2) == 0 => (
                std::mem::replace(there, new.clone()),
                Cells::With(axis, value),
            ),
            Some((axis, value, _)) => {
                let cells = Cells::Without(axis, value);
                (std::mem::replace(&mut word.text, new.clone()), cells)
            }
            None => (std::mem::replace(&mut word.text, new.clone()), Cells::All),
        };
        (word, Change { old, new, cells })
    }
}

struct Change {
    old: String,
    new: String,
    cells: Cells,
}

/// Cells in which a change counts.
enum Cells {
    All,
    With(&'static str, &'static str),
    Without(&'static str, &'static str),
}

const AXES: [(&str, &[&str]); 4] = [
    ("version", &["main", "installed"]),
    ("flavour", &["f1", "f2"]),
    ("x", &["x1", "x2", "x3"]),
    ("y", &["p", "q"]),
];

impl Cells {
    /// How many of all cells, with versions that are built only where `only_built`.
    fn count(&self, only_built: bool) -> u64 {
        let sizes = AXES.iter().map(|(name, values)| {
            let fits = |value: &&&str| match self {
                _ if only_built && *name == "version" && **value != "main" => false,
                Cells::With(axis, wanted) if axis == name => *value == wanted,
                Cells::Without(axis, other) if axis == name => *value != other,
                _ => true,
            };
            values.iter().filter(fits).count() as u64
        });
        sizes.product()
    }
}

/// A matrix in which every kind of input occurs.
#[derive(Clone)]
struct Matrix {
    build: Vec<Word>,
    setup: Vec<Word>,
    service: Vec<Word>,
    run: Vec<Word>,
    env: Vec<(&'static str, Word)>,
    x: Vec<String>,
    parser: String,
    timeout_s: usize,
    /// Knobs of the profile, which no machine has: nothing is set.
    knobs: Vec<(&'static str, usize)>,
}

impl Matrix {
    fn new() -> Matrix {
        let shell = |line: &str| vec![Word::plain("sh"), Word::plain("-c"), Word::plain(line)];
        let with = |line: &str, more: &[Word]| [shell(line), more.to_vec()].concat();
        Matrix {
            build: with(
                "cat {{ src }}/src/a {{ src }}/src/b > prog; echo \"$@\" >> prog",
                &[
                    Word::plain("zero"),
                    Word::split("b2", "flavour", "f1", "b1"),
                    Word::plain("b3"),
                ],
            ),
            setup: with(
                "true {{ x }}",
                &[Word::plain("s1"), Word::split("s2", "y", "p", "s3")],
            ),
            service: with(
                "exec sleep 1000",
                &[Word::plain("n1"), Word::split("n2", "x", "x2", "n3")],
            ),
            run: with(
                "echo v=1 {{ flavour }} {{ x }} {{ y }}",
                &[
                    Word::plain("w1"),
                    Word::split("w2", "x", "x1", "w3"),
                    Word::split("w4", "y", "q", "w5"),
                ],
            ),
            env: vec![
                ("LAB_ONE", Word::plain("e1")),
                ("LAB_TWO", Word::split("e2", "y", "p", "e3")),
            ],
            x: ["x1", "x2", "x3"].map(str::to_owned).to_vec(),
            parser: r"(?P<name>\w+)=(?P<value>\d+)".to_owned(),
            timeout_s: 60,
            knobs: vec![("kernel.lab_one", 1), ("kernel.lab_two", 2)],
        }
    }

    fn profile(&self) -> String {
        let knobs = self.knobs.iter();
        let lines =
            knobs.map(|(name, value)| format!("sysctl \"{name}\" {value} optional=#true\n"));
        lines.collect()
    }

    fn toml(&self) -> String {
        let list = |words: &[Word]| {
            let words: Vec<String> = words.iter().map(Word::toml).collect();
            format!("[{}]", words.join(", "))
        };
        let env: Vec<String> = self
            .env
            .iter()
            .map(|(name, word)| format!("{name} = {}\n", word.toml()))
            .collect();
        format!(
            r#"
[subject]
installed = ["prog"]
[subject.git]
repo  = "nowhere"
paths = ["src/**"]
[build]
run       = [{}]
artifacts = ["prog"]
[[affects]]
paths = ["src/b"]
when  = "x == 'x2'"
[requires]
commands = ["tool-a", "tool-b"]
[machines.here]
via = "local"
profile = "lab"
[axes]
machine = ["here"]
flavour = ["f1", "f2"]
x = {:?}
y = ["p", "q"]
[env]
{}
[[setup]]
name = "data"
run  = [{}]
[[setup]]
name = "server"
service = {}
[run]
command = {}
parser  = {{ kind = "regex", pattern = '{}' }}
repeat  = 1
timeout = "{}s"
[metrics.v]
better = "higher"
"#,
            list(&self.build),
            self.x,
            env.concat(),
            list(&self.setup),
            list(&self.service),
            list(&self.run),
            self.parser,
            self.timeout_s,
        )
    }
}

/// What `plan --why` is to say: the one reason, and on how many steps.
type Expected = Option<(String, u64)>;

struct Bench {
    lab: Lab,
    repo: Repo,
    matrix: Matrix,
    random: Random,
}

impl Bench {
    fn new() -> Bench {
        let repo = Repo::new();
        repo.write("src/a", "a\n");
        repo.write("src/b", "b\n");
        repo.write("docs/c", "c\n");
        repo.commit("all");
        let matrix = Matrix::new();
        let bench = Bench {
            lab: Lab::new(&matrix.toml()),
            repo,
            matrix,
            random: Random(1),
        };
        fs::create_dir(bench.lab.path("bin")).unwrap();
        fs::create_dir(bench.lab.path("profiles")).unwrap();
        bench.write(&bench.matrix);
        for program in ["tool-a", "tool-b", "prog"] {
            bench.program(program, "first");
        }
        let ran = bench.matrix(&["run"]);
        assert_eq!(ran["failed"], Value::Array(Vec::new()));
        bench
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.lab.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n# {text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn matrix(&self, words: &[&str]) -> Value {
        let path = std::env::var_os("PATH").unwrap();
        let own = [self.lab.path("bin")].into_iter();
        let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap();
        let repo = self.repo.path();
        let rest = [
            "matrix.toml",
            "--json",
            "--repo",
            &repo,
            "--version",
            "main",
            "--version",
            "installed",
        ];
        let output = self
            .lab
            .matrix(&[words, &rest].concat())
            .env("PATH", path)
            .output()
            .unwrap();
        lab::schema::document(&output)
    }

    /// Reasons with their steps, and the steps that the plan says are to be run.
    fn told(&self) -> (Vec<(String, u64)>, u64) {
        let plan = self.matrix(&["plan", "--why"]);
        let reasons = plan["why"].as_array().unwrap().iter();
        let told = reasons.map(|reason| {
            let why = without_keys(reason["why"].as_str().unwrap());
            (why, reason["steps"].as_u64().unwrap())
        });
        (
            told.collect(),
            plan["steps"]["run"]["run"].as_u64().unwrap(),
        )
    }

    /// One word changed, added or removed in a list of them.
    fn words(
        &mut self,
        what: &str,
        only_built: bool,
        list: fn(&mut Matrix) -> &mut Vec<Word>,
    ) -> Expected {
        let random = &mut self.random;
        let mut matrix = self.matrix.clone();
        let words = list(&mut matrix);
        // The shell's own words stay.
        let at = 3 + random.below(words.len() - 3);
        let (told, cells) = match random.below(4) {
            0 => {
                let new = random.word();
                words.insert(at, Word::plain(&new));
                (format!("{what}: `(nothing)` → `{new}`"), Cells::All)
            }
            1 if words[at].only.is_none() => {
                let old = words.remove(at).text;
                (format!("{what}: `{old}` → `(nothing)`"), Cells::All)
            }
            _ => {
                let (word, Change { old, new, cells }) = words[at].changed(random);
                words[at] = word;
                (format!("{what}, word {}: `{old}` → `{new}`", at + 1), cells)
            }
        };
        self.lab.write(&matrix.toml());
        Some((told, cells.count(only_built)))
    }

    fn mutate(&mut self, kind: usize) -> Expected {
        let mut matrix = self.matrix.clone();
        match kind {
            0 => self.words("run command", false, |matrix| &mut matrix.run),
            1 => self.words("set-up data, command 1", false, |matrix| &mut matrix.setup),
            2 => self.words("set-up server, service", false, |matrix| {
                &mut matrix.service
            }),
            3 => self.words("build command 1", true, |matrix| &mut matrix.build),
            4 => {
                let at = self.random.below(matrix.env.len());
                let (name, word) = matrix.env[at].clone();
                let (word, Change { old, new, cells }) = word.changed(&mut self.random);
                matrix.env[at].1 = word;
                self.lab.write(&matrix.toml());
                Some((format!("env {name}: `{old}` → `{new}`"), cells.count(false)))
            }
            5 => {
                // x1 and x2 are named by words and rules, which would change with them.
                let new = self.random.word();
                matrix.x[2] = new.clone();
                self.lab.write(&matrix.toml());
                Some((
                    format!("axis x: x3 → {new}"),
                    Cells::With("x", "x3").count(false),
                ))
            }
            6 => {
                let (file, cells) = match self.random.below(3) {
                    0 => ("src/a", Some(Cells::All)),
                    1 => ("src/b", Some(Cells::With("x", "x2"))),
                    _ => ("docs/c", None),
                };
                self.repo.write(file, &self.random.word());
                self.repo.commit("changed");
                Some((format!("sources of main: {file}"), cells?.count(true)))
            }
            7 => {
                let tool = ["tool-a", "tool-b"][self.random.below(2)];
                let word = self.random.word();
                self.program(tool, &word);
                Some((
                    format!("tool {tool}: `KEY` → `KEY`"),
                    Cells::All.count(false),
                ))
            }
            8 => {
                let word = self.random.word();
                self.program("prog", &word);
                let cells = Cells::With("version", "installed");
                Some((
                    "subject: `installed KEY` → `installed KEY`".to_owned(),
                    cells.count(false),
                ))
            }
            9 => {
                let old =
                    std::mem::replace(&mut matrix.parser, r"(?P<name>v)=(?P<value>\d+)".to_owned());
                self.lab.write(&matrix.toml());
                let told = format!(
                    "parser: `regex pattern={old}` → `regex pattern={}`",
                    matrix.parser
                );
                Some((told, Cells::All.count(false)))
            }
            10 => {
                let at = self.random.below(matrix.knobs.len());
                let (name, old) = matrix.knobs[at];
                let new = 10 + self.random.below(1_000_000);
                matrix.knobs[at].1 = new;
                self.write(&matrix);
                let told = format!("profile sysctl {name}: `{old} optional` → `{new} optional`");
                Some((told, Cells::All.count(false)))
            }
            _ => {
                matrix.timeout_s += 1 + self.random.below(100);
                self.lab.write(&matrix.toml());
                None
            }
        }
    }

    fn write(&self, matrix: &Matrix) {
        self.lab.write(&matrix.toml());
        fs::write(self.lab.path("profiles/lab.kdl"), matrix.profile()).unwrap();
    }

    fn put_back(&self, commit: &str) {
        self.write(&self.matrix);
        self.repo.git(&["reset", "--quiet", "--hard", commit]);
        for program in ["tool-a", "tool-b", "prog"] {
            self.program(program, "first");
        }
    }
}

/// A text without the digits of keys.
fn without_keys(text: &str) -> String {
    let is_key = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut words: Vec<String> = text.split('`').map(str::to_owned).collect();
    for word in &mut words {
        let parts: Vec<&str> = word
            .split(' ')
            .map(|part| if is_key(part) { "KEY" } else { part })
            .collect();
        *word = parts.join(" ");
    }
    words.join("`")
}

#[test]
fn each_change_is_named_where_it_counts() {
    let mut bench = Bench::new();
    let first = bench.repo.git(&["rev-parse", "HEAD"]);
    let mutations = std::env::var("MATRIX_MUTATIONS")
        .ok()
        .map(|n| n.parse().unwrap());
    let mut wrong = Vec::new();
    for number in 0..mutations.unwrap_or(MUTATIONS_DEFAULT) {
        let kind = bench.random.below(12);
        let expected = bench.mutate(kind);
        let (told, reruns) = bench.told();
        let steps = expected.as_ref().map_or(0, |(_, steps)| *steps);
        if told != expected.clone().into_iter().collect::<Vec<_>>() || reruns != steps {
            wrong.push(format!(
                "{number}: kind {kind}: {expected:?}, told {told:?}, {reruns} rerun"
            ));
        }
        bench.put_back(&first);
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn what_was_told_and_run_is_not_told_again() {
    let mut bench = Bench::new();
    bench.matrix.run.remove(3);
    bench.matrix.run[3] = Word::split("w6", "y", "q", "w7");
    bench.lab.write(&bench.matrix.toml());
    assert_eq!(bench.told().1, 24);
    bench.matrix(&["run"]);
    assert_eq!(bench.told(), (Vec::new(), 0));
    bench.matrix.setup[3] = Word::plain("s9");
    bench.lab.write(&bench.matrix.toml());
    let told = "set-up data, command 1, word 4: `s1` → `s9`".to_owned();
    assert_eq!(bench.told(), (vec![(told, 24)], 24));
}

#[test]
fn a_cell_is_compared_with_what_it_was_run_with() {
    let mut bench = Bench::new();
    let told = |text: &str, steps| (vec![(text.to_owned(), steps)], steps);
    // The same input in all cells; a third of them is run with it.
    bench.matrix.run[3] = Word::plain("w9");
    bench.write(&bench.matrix);
    let first = "run command, word 4: `w1` → `w9`";
    assert_eq!(bench.told(), told(first, 24));
    bench.matrix(&["run", "--only", "x == 'x1'"]);
    assert_eq!(bench.told(), told(first, 16));
    // It is gone; one half of those that still had the old one is run without it.
    bench.matrix.run.remove(3);
    bench.write(&bench.matrix);
    bench.matrix(&["run", "--only", "x == 'x2'"]);
    let told = bench.told();
    assert_eq!(
        told,
        (
            ["w9", "w1"]
                .map(|old| (format!("run command: `{old}` → `(nothing)`"), 8))
                .to_vec(),
            16
        )
    );
    bench.matrix(&["run"]);
    assert_eq!(bench.told(), (Vec::new(), 0));
    // What was gone in between comes back.
    bench.matrix.run.insert(3, Word::plain("w9"));
    bench.write(&bench.matrix);
    let told = "run command: `(nothing)` → `w9`".to_owned();
    assert_eq!(bench.told(), (vec![(told, 16)], 16));
}
