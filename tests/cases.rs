//! The scenario runner: each folder below `tests/cases` is a scenario, each `.txt` in it a transcript.
//!
//! A transcript is a list of commands, each a line `$ matrix …`, followed by what it printed. They run in
//! a copy of the folder. To write one, put down the `$` lines alone and run with `MATRIX_UPDATE=1`; to
//! run some folders only, name a part of their names in `MATRIX_CASE`.
//!
//! - Compared is the whole of standard output; where that is empty, of standard error.
//! - `[exit N]` is the last line of a command that does not end with 0.
//! - `$ cells …` takes the arguments of `matrix plan` and prints the names of the cells, sorted.
//! - Numbers of many digits are cut to four: the last ones are not the same on every machine.
//! - The folder's path, keys and tiny durations are replaced: `[DIR]`, `[KEY]`, `[TIME]`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use regex::{Captures, Regex};
use snapbox::Data;
use snapbox::report::{self, Palette};
use tempfile::TempDir;

#[path = "schema/mod.rs"]
mod schema;

/// A copy of a scenario's folder, in which commands run.
struct Copy {
    folder: TempDir,
}

impl Copy {
    fn of(case: &Path) -> Copy {
        let folder = TempDir::new().unwrap();
        for file in files(case) {
            fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
        }
        Copy { folder }
    }

    /// Runs `matrix` with a terminal of 100 columns without colours, and nothing of the user's.
    fn matrix(&self, arguments: &[String]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_matrix"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("NO_COLOR", "1")
            .env("COLUMNS", "100")
            .env("MATRIX_LOCK", self.folder.path().join("lock"))
            .output()
            .unwrap()
    }

    /// What a `$` line prints, as it stands in a transcript.
    fn answer(&self, line: &str) -> String {
        let mut words = shlex::split(line).unwrap_or_default().into_iter();
        let program = words.next();
        let mut arguments: Vec<String> = words.collect();
        let lists_cells = program.as_deref() == Some("cells");
        if lists_cells {
            arguments.insert(0, "plan".into());
            arguments.extend(["--format".into(), "json".into()]);
        } else {
            assert_eq!(program.as_deref(), Some("matrix"), "in `$ {line}`");
        }
        let output = self.matrix(&arguments);
        if output.stdout.starts_with(b"{") {
            schema::document(&output);
        }
        let mut text = match (lists_cells && output.status.success(), &output.stdout[..]) {
            (true, _) => cells(&output),
            (false, []) => String::from_utf8(output.stderr).unwrap(),
            (false, stdout) => String::from_utf8(stdout.to_vec()).unwrap(),
        };
        text = self.without_the_unstable(&text);
        if !output.status.success() {
            let _ = writeln!(text, "[exit {}]", output.status.code().unwrap());
        }
        text
    }

    fn without_the_unstable(&self, text: &str) -> String {
        let path = fs::canonicalize(self.folder.path()).unwrap();
        let mut text = text.replace(path.to_str().unwrap(), "[DIR]");
        for (pattern, instead) in [
            (r"\b[0-9a-f]{32}\b", "[KEY]"),
            (r"([-/(])[0-9a-f]{8}([\s/)'\x22]|$)", "${1}[KEY]${2}"),
            // What a `null` machine took is a fraction of a millisecond.
            (
                r"(\x22estimate_s\x22:) (0\.0+[1-9]\d*|\d.*e-\d+)",
                "${1} [TIME]",
            ),
            (r"\b(about) \d+ms$", "${1} [TIME]"),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[WHEN]"),
            // The program lies where it was built.
            (r"\x22\S*/(matrix run [^\x22]*\x22)", "\"${1}"),
        ] {
            let pattern = Regex::new(&format!("(?m){pattern}")).unwrap();
            text = pattern.replace_all(&text, instead).into_owned();
        }
        let long = Regex::new(r"-?\d+\.\d{5,}(e-?\d+)?").unwrap();
        let short = |number: &Captures| format!("{:.3e}", number[0].parse::<f64>().unwrap());
        long.replace_all(&text, short).into_owned()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn cells(output: &Output) -> String {
    let plan = schema::document(output);
    let steps = plan["todo"].as_array().unwrap().iter();
    let mut cells: Vec<&str> = steps
        .filter_map(|step| step["step"].as_str()?.strip_prefix("run "))
        .collect();
    cells.sort_unstable();
    cells.iter().map(|cell| format!("{cell}\n")).collect()
}

/// The commands of a transcript, each with what it prints now.
fn replay(copy: &Copy, transcript: &str) -> String {
    let mut now = String::new();
    for line in transcript
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
    {
        let _ = write!(now, "$ {line}\n{}", copy.answer(line));
    }
    now
}

fn difference(place: &Path, expected: String, now: String) -> String {
    let (expected, now) = (Data::text(expected), Data::text(now));
    let mut text = String::new();
    let (old, new) = (place.display(), "now");
    report::write_diff(
        &mut text,
        &expected,
        &now,
        Some(&old),
        Some(&new),
        Palette::plain(),
    )
    .unwrap();
    text
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

#[test]
fn scenarios_print_what_they_say() {
    let update = std::env::var_os("MATRIX_UPDATE").is_some();
    let part = std::env::var("MATRIX_CASE").unwrap_or_default();
    let mut differences = String::new();
    let mut transcripts = 0;
    for case in files(&cases()) {
        let name = case.file_name().unwrap().to_str().unwrap();
        if !name.contains(&part) {
            continue;
        }
        for file in files(&case)
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == "txt"))
        {
            let expected = fs::read_to_string(file).unwrap();
            assert!(
                expected.starts_with("$ "),
                "{}: begin with `$ matrix …`",
                file.display()
            );
            let now = replay(&Copy::of(&case), &expected);
            transcripts += 1;
            if now == expected {
                continue;
            }
            if update {
                fs::write(file, now).unwrap();
            } else {
                let place = file.strip_prefix(cases()).unwrap();
                differences += &difference(place, expected, now);
            }
        }
    }
    assert!(transcripts > 0, "no scenario has `{part}` in its name");
    assert!(
        differences.is_empty(),
        "\n{differences}\nif that is right: MATRIX_UPDATE=1 cargo test --test cases"
    );
}

/// Matrices that other projects publish, written in our grammar: how many cells each has.
#[test]
fn published_matrices_have_their_cells() {
    let published = [
        ("benchfio", 98),
        ("benchmark-operator", 8),
        ("cbt-bluestore", 66),
        ("cbt-xfs", 39),
        ("firecracker-block", 18),
        ("gha-docs", 6),
        ("kdevops-perf", 1080),
        ("kdevops-quick", 8),
        ("kdevops-xfs-all", 4320),
        ("lkp-1ssd-nvme-read", 36),
        ("lkp-2pmem-dax", 120),
        ("lkp-local-disk", 96),
        ("pbench-fio-default", 6),
        ("qemu-aio-cache", 12),
        ("qemu-simplebench", 9),
        ("run-perf-fio", 27),
        ("tp-qemu-block-performance", 40),
    ];
    for (name, cells) in published {
        let copy = Copy::of(&cases().join(format!("published-{name}")));
        let output = copy.matrix(&["plan", "matrix.toml", "--json"].map(String::from));
        let plan: serde_json::Value = schema::document(&output);
        assert_eq!((&plan["cells"], name), (&cells.into(), name));
        // No two cells of theirs measure the same.
        assert_eq!(
            (&plan["steps"]["run"]["total"], name),
            (&cells.into(), name)
        );
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let copy = Copy::of(&cases().join("product"));
    let file = copy.folder.path().join("matrix.toml");
    let mut text = fs::read_to_string(&file).unwrap();
    text.push_str(&"# much\n".repeat(4 * 1024 * 1024 / 7));
    fs::write(&file, text).unwrap();
    let answer = copy.answer("matrix plan matrix.toml");
    assert!(answer.contains("at most 4194304 are read"), "{answer}");
    assert!(answer.ends_with("[exit 2]\n"), "{answer}");
}
