//! `matrix bisect` on files of commits and on real repositories.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

struct Lab {
    dir: TempDir,
}

impl Lab {
    fn new() -> Lab {
        Lab {
            dir: TempDir::new().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
        command
            .arg("bisect")
            .args(arguments)
            .current_dir(self.dir.path())
            .env("MATRIX_LOCK", self.path("lock"))
            .env("COLUMNS", "300")
            .env_remove("MATRIX_STATE");
        command
    }

    fn bisect(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.bisect(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", words(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// How often the command of [`Lab::numbered`] was run.
    fn calls(&self) -> usize {
        fs::read_to_string(self.path("calls"))
            .unwrap_or_default()
            .lines()
            .count()
    }

    /// Commits `c0000` to `c0200`, and a command that gives `lower` before the commit and `higher` from it on, with a
    /// noise that depends on the number of the call.
    fn numbered(&self, culprit: u32, lower: f64, higher: f64) -> String {
        let ids: String = (0..=200).fold(String::new(), |mut text, i| {
            let _ = writeln!(text, "c{i:04}");
            text
        });
        self.write("commits", &ids);
        self.write(
            "measure.sh",
            &format!(
                "echo $MATRIX_COMMIT >> calls\n\
                 awk -v c=${{MATRIX_COMMIT#c}} -v n=$(wc -l < calls) 'BEGIN {{\n\
                 srand(n); for (i = 0; i < 12; i++) z += rand();\n\
                 print ((c + 0 >= {culprit}) ? {higher} : {lower}) * (1 + .02 * (z - 6)) }}'\n"
            ),
        );
        "sh measure.sh".to_owned()
    }
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_file_of_commits_is_bisected() {
    let lab = Lab::new();
    let measure = lab.numbered(137, 100.0, 108.0);
    let found = lab.json(&["--commits", "commits", "--measure", &measure]);
    assert_eq!(found["culprit"], "c0137", "{found}");
    assert_eq!(found["set"], serde_json::json!(["c0137"]));
    assert!(found["probability"].as_f64().unwrap() >= 0.95);
    assert_eq!(found["runs"], lab.calls());
    assert!(found["runs"].as_u64().unwrap() <= 70, "{found}");
    let interval = &found["effect"]["ci95"];
    let (low, high) = (interval[0].as_f64().unwrap(), interval[1].as_f64().unwrap());
    assert!(1.0 < low && low < 1.08 && 1.08 < high, "{found}");
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        ["culprit", "set", "probability", "runs", "builds", "effect"]
    );
    // All is stored: nothing is measured again.
    let calls = lab.calls();
    let again = lab.json(&["--commits", "commits", "--measure", &measure]);
    assert_eq!((again, lab.calls()), (found, calls));
}

#[test]
fn equal_ends_have_no_culprit() {
    let lab = Lab::new();
    let measure = lab.numbered(137, 100.0, 100.0);
    let arguments = [
        "--commits",
        "commits",
        "--measure",
        &measure,
        "--min-effect",
        "4%",
    ];
    let found = lab.json(&arguments);
    assert_eq!(found["culprit"], Value::Null, "{found}");
    assert_eq!(found["set"], serde_json::json!([]));
    let told = words(&lab.bisect(&arguments));
    assert!(told.contains("no change found"), "{told}");
    assert!(
        told.contains("4.0 % or more would have been seen"),
        "{told}"
    );
}

#[test]
fn untestable_commits_are_answered_as_a_set() {
    let lab = Lab::new();
    let measure = lab.numbered(137, 100.0, 150.0);
    // One says so itself, one fails always, one only once, one prints no number.
    let measure = format!(
        "case {{commit}} in c0136) exit 125;; c0137) echo no main >&2; exit 1;; c0138) echo many words;; \
         c0150) [ -e once ] || {{ touch once; exit 3; }}; {measure};; *) {measure};; esac"
    );
    let arguments = [
        "--commits",
        "commits",
        "--measure",
        &measure,
        "--good",
        "c0100",
    ];
    let found = lab.json(&arguments);
    assert_eq!(found["culprit"], Value::Null, "{found}");
    assert_eq!(
        found["set"],
        serde_json::json!(["c0136", "c0137", "c0138", "c0139"])
    );
    let told = words(&lab.bisect(&arguments));
    assert!(told.contains("one of these 4"), "{told}");
    assert!(told.contains("c0137  exit status 1: no main"), "{told}");
}

#[test]
fn a_history_saves_the_measurement_of_the_ends() {
    let lab = Lab::new();
    let measure = lab.numbered(30, 100.0, 110.0);
    let rows = (0..8).map(|i| format!("c0000,{}\nc0200,{}\nother,1\n", 99 + i % 3, 109 + i % 3));
    lab.write(
        "history.csv",
        &format!("commit,value\n{}", rows.collect::<String>()),
    );
    let arguments = [
        "--commits",
        "commits",
        "--measure",
        &measure,
        "--history",
        "history.csv",
    ];
    let found = lab.json(&arguments);
    assert_eq!(found["culprit"], "c0030", "{found}");
    let ends = fs::read_to_string(lab.path("calls")).unwrap();
    let ends = ends
        .lines()
        .filter(|line| ["c0000", "c0200"].contains(line))
        .count();
    assert!(ends <= 2, "{ends} measurements of ends");
}

#[test]
fn what_is_wrong_is_told_with_its_remedy() {
    let lab = Lab::new();
    let measure = lab.numbered(30, 100.0, 110.0);
    let check = |arguments: &[&str], expected: &str| {
        let output = lab.bisect(&[&["--measure", &measure], arguments].concat());
        let told = words(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
    };
    check(
        &["--commits", "commits", "--good", "c1"],
        "`c1` is not in `commits`",
    );
    check(
        &["--commits", "commits", "--good", "c0100", "--bad", "c0050"],
        "the good end comes before the bad one",
    );
    check(&["--commits", "nowhere"], "nowhere");
    check(&["--good", "a"], "name both ends: `--good REV --bad REV`");
    check(
        &["--commits", "commits", "--min-effect", "two"],
        "`--min-effect two` is no percentage such as `2%`",
    );
    lab.write("evil", "a\nb; rm -rf x\n");
    check(&["--commits", "evil"], "is no name of a commit");
    lab.write("h.csv", "commit,value\nc0000,fast\n");
    check(
        &["--commits", "commits", "--history", "h.csv"],
        "`h.csv`, line 2: `c0000,fast` is not `commit,value`".trim_start_matches("`h.csv`, "),
    );
    let failing = lab.bisect(&[
        "--commits",
        "commits",
        "--measure",
        "echo no compiler >&2; exit 2",
    ]);
    assert_eq!(failing.status.code(), Some(3));
    let told = words(&failing);
    assert!(
        told.contains("the good end c0000 cannot be measured: exit status 2: no compiler"),
        "{told}"
    );
}

#[test]
fn a_dry_run_measures_nothing() {
    let lab = Lab::new();
    let measure = lab.numbered(30, 100.0, 110.0);
    let output = lab.bisect(&["--commits", "commits", "--measure", &measure, "--dry-run"]);
    let told = words(&output);
    assert!(
        told.contains("about 12 builds and 36 measurements"),
        "{told}"
    );
    assert_eq!(lab.calls(), 0);
}

#[test]
fn the_budget_ends_the_search() {
    let lab = Lab::new();
    let measure = lab.numbered(30, 100.0, 104.0);
    let output = lab.bisect(&[
        "--commits",
        "commits",
        "--measure",
        &measure,
        "--budget",
        "12",
    ]);
    assert_eq!(output.status.code(), Some(3), "{}", words(&output));
    assert!(words(&output).contains("not settled"), "{}", words(&output));
    assert_eq!(lab.calls(), 12);
    // A larger budget goes on.
    let found = lab.json(&["--commits", "commits", "--measure", &measure]);
    assert_eq!(found["runs"], lab.calls());
}

fn wait_for_calls(lab: &Lab, calls: usize, child: &mut Child) {
    let began = Instant::now();
    while lab.calls() < calls {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "it does not measure"
        );
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn killed_and_resumed_it_repeats_no_measurement() {
    let lab = Lab::new();
    let measure = format!("{}; sleep .03", lab.numbered(137, 100.0, 108.0));
    let arguments = ["--commits", "commits", "--measure", &measure];
    let mut kills = 0;
    for calls in [4, 13, 19] {
        let mut child = lab
            .command(&arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_calls(&lab, calls, &mut child);
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    let mut child = lab
        .command(&arguments)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_calls(&lab, 24, &mut child);
    assert!(
        Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let found = lab.json(&arguments);
    assert_eq!(found["culprit"], "c0137", "{found}");
    let runs = usize::try_from(found["runs"].as_u64().unwrap()).unwrap();
    // Only what was in flight is measured again.
    assert!(
        (runs..=runs + kills + 1).contains(&lab.calls()),
        "{runs} runs, {} calls",
        lab.calls()
    );
}

/// A small C program whose work is `WORK`; it prints the CPU time of its fastest of some repetitions.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <time.h>
#include "work.h"
int main(void) {
    double best = 1e9;
    for (int repetition = 0; repetition < 12; repetition++) {
        clock_t began = clock();
        volatile unsigned long sum = 0;
        for (unsigned long i = 0; i < WORK; i++) sum += i;
        double took = (double)(clock() - began) / CLOCKS_PER_SEC;
        if (took < best) best = took;
    }
    printf("%.6f\n", best);
    return 0;
}
"#;

/// Makes commits with `git fast-import`.
#[derive(Default)]
struct History {
    stream: String,
    marks: usize,
}

impl History {
    /// A commit on `parents` with these files changed; returns its mark.
    fn commit(&mut self, parents: &[usize], subject: &str, files: &[(&str, String)]) -> usize {
        self.marks += 1;
        let (mark, data) = (self.marks, |text: &str| {
            format!("data {}\n{text}\n", text.len())
        });
        let _ = write!(self.stream, "commit refs/heads/main\nmark :{mark}\n");
        let time = 1_700_000_000 + 3600 * mark;
        let _ = write!(
            self.stream,
            "committer Ann <ann@example.org> {time} +0000\n{}",
            data(subject)
        );
        for (i, parent) in parents.iter().enumerate() {
            let _ = writeln!(
                self.stream,
                "{} :{parent}",
                if i == 0 { "from" } else { "merge" }
            );
        }
        for (path, text) in files {
            let _ = write!(self.stream, "M 100644 inline {path}\n{}", data(text));
        }
        mark
    }
}

fn git(repo: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(repo)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        words(&output)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// 200 commits of the program: every twentieth place is a merge of a branch of three, some do not compile, and the second
/// commit of the fourth branch is 8 % slower. Returns the culprit.
fn make_repository(repo: &Path) -> String {
    let work = |loops: u32| ("work.h", format!("#define WORK {loops}ul\n"));
    let (fast, slow) = (4_000_000, 4_320_000);
    let program = ("main.c", PROGRAM.to_owned());
    let mut history = History::default();
    let mut tip = history.commit(&[], "Begin", &[program.clone(), work(fast)]);
    let (mut culprit, mut is_slow) = (0, false);
    for place in 1..140 {
        let notes = ("NOTES", format!("note {place}\n"));
        if place % 7 == 3 {
            let broken = ("main.c", "int main(void) { return nothing; }\n".to_owned());
            tip = history.commit(&[tip], &format!("Break {place}"), &[broken]);
            tip = history.commit(
                &[tip],
                &format!("Mend {place}"),
                std::slice::from_ref(&program),
            );
        }
        if place % 20 == 10 {
            let mut branch = tip;
            for step in 0..3 {
                let is_culprit = place == 70 && step == 1;
                is_slow |= is_culprit;
                let file = match is_culprit {
                    true => work(slow),
                    false => ("BRANCH", format!("{place} {step}\n")),
                };
                branch =
                    history.commit(&[branch], &format!("Branch {place}, step {step}"), &[file]);
                if is_culprit {
                    culprit = branch;
                }
            }
            let main = history.commit(
                &[tip],
                &format!("Meanwhile {place}"),
                std::slice::from_ref(&notes),
            );
            let merged = [
                work(if is_slow { slow } else { fast }),
                ("BRANCH", format!("{place}\n")),
            ];
            tip = history.commit(&[main, branch], &format!("Merge {place}"), &merged);
        } else {
            tip = history.commit(&[tip], &format!("Note {place}"), &[notes]);
        }
    }
    fs::create_dir(repo).unwrap();
    git(repo, &["init", "-q", "-b", "main"]);
    let mut import = Command::new("git")
        .arg("-C")
        .arg(repo)
        .args(["fast-import", "--quiet", "--export-marks=.git/marks"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = import.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, history.stream.as_bytes()).unwrap();
    drop(stdin);
    assert!(import.wait().unwrap().success());
    git(repo, &["reset", "-q", "--hard"]);
    let marks = fs::read_to_string(repo.join(".git/marks")).unwrap();
    let own = marks
        .lines()
        .find_map(|line| line.strip_prefix(&format!(":{culprit} ")));
    own.unwrap().to_owned()
}

#[test]
fn a_slower_commit_within_a_merge_is_found_proved_and_replayed() {
    let lab = Lab::new();
    let repo = lab.path("repo");
    let culprit = make_repository(&repo);
    let root = git(&repo, &["rev-list", "--max-parents=0", "main"]);
    lab.write(
        "measure.sh",
        "set -e\nd=bin/$MATRIX_COMMIT\nif [ ! -x $d/program ]; then\n\
         rm -rf $d; mkdir -p $d; git -C repo archive $MATRIX_COMMIT | tar -x -C $d\n\
         echo $MATRIX_COMMIT >> builds\n\
         cc -O1 -o $d/program $d/main.c || exit 125\nfi\n$d/program\n",
    );
    let arguments = [
        "--good",
        &root,
        "--bad",
        "main",
        "--repo",
        "repo",
        "--measure",
        "sh measure.sh",
        "--better",
        "lower",
    ];
    let output = lab.bisect(&arguments);
    let told = words(&output);
    assert!(output.status.success(), "{told}");
    assert!(
        told.contains(&format!("{culprit} is the culprit")),
        "{culprit}: {told}"
    );
    for expected in [
        "Branch 70, step 1",
        "Ann, 20",
        "    work.h",
        "proved:",
        "by the merge",
        "a regression",
    ] {
        assert!(told.contains(expected), "no `{expected}` in {told}");
    }
    let builds = fs::read_to_string(lab.path("builds"))
        .unwrap()
        .lines()
        .count();
    assert!(builds <= 30, "{builds} builds: {told}");
    let log = told
        .lines()
        .find_map(|line| line.strip_prefix("replay it: git bisect replay "));
    let replayed = git(&repo, &["bisect", "replay", log.unwrap()]);
    assert!(
        replayed.contains(&format!("{culprit} is the first bad commit")),
        "{replayed}"
    );
}

#[test]
fn ends_of_a_repository_are_checked() {
    let lab = Lab::new();
    let repo = lab.path("repo");
    fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    let commit = |subject: &str| {
        let who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"];
        git(
            &repo,
            &[&who[..], &["commit", "-q", "--allow-empty", "-m", subject]].concat(),
        );
        git(&repo, &["rev-parse", "HEAD"])
    };
    let (a, b) = (commit("a"), commit("b"));
    git(&repo, &["checkout", "-q", "-b", "side", &a]);
    let side = commit("side");
    let check = |good: &str, bad: &str, expected: &str| {
        let arguments = [
            "--repo",
            "repo",
            "--measure",
            "echo 1",
            "--good",
            good,
            "--bad",
            bad,
        ];
        let output = lab.bisect(&arguments);
        let told = words(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
    };
    for (name, commit) in [("first", &a), ("second", &b), ("third", &side)] {
        git(&repo, &["tag", name, commit]);
    }
    check(
        "second",
        "first",
        "did you mean `--good first --bad second`?",
    );
    check(
        "third",
        "second",
        &format!("measure where they part: `--good {}`", &a[..12]),
    );
    check("nowhere", "second", "nowhere");
}

/// A matrix that builds the program, and gives a number by its loops, with noise.
fn matrix_of(repo: &Path) -> String {
    format!(
        r#"[matrix]
name = "work"
[subject.git]
repo = "{}"
paths = ["*.c", "*.h"]
[build]
run = ["cc -O1 -o program {{{{ src }}}}/main.c", "cp {{{{ src }}}}/work.h work.h"]
artifacts = ["program", "work.h"]
[run]
command = ["sh", "-c", "tr -dc 0-9 < {{{{ bin }}}}/work.h | awk -v n=$(date +%s%N) '{{srand(n % 1000003); for (i = 0; i < 12; i++) z += rand(); print \"t=\" $1 / 1e6 * (1 + .02 * (z - 6))}}'"]
parser = {{ kind = "regex", pattern = 't=(?P<t>[0-9.]+)' }}
repeat = 2
[metrics.t]
better = "lower"
unit = "ms"
[[compare]]
axis = "version"
min_effect = "2%"
"#,
        repo.display()
    )
}

#[test]
fn a_matrix_builds_and_measures_the_commits() {
    let lab = Lab::new();
    let repo = lab.path("repo");
    let culprit = make_repository(&repo);
    lab.write("work.toml", &matrix_of(&repo));
    let good = git(&repo, &["rev-list", "--max-parents=0", "HEAD"]);
    let arguments = ["work.toml", "--good", &good, "--bad", "main"];
    let database = || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        rusqlite::Connection::open_with_flags(lab.path(".matrix/matrix.db"), flags).ok()
    };
    let measured = || {
        let count = "SELECT count(*) FROM attempt WHERE kind = 'run' AND outcome = 'ok'";
        let rows = database().and_then(|db| db.query_row(count, [], |row| row.get(0)).ok());
        rows.unwrap_or(0u32)
    };
    // Killed twice on the way.
    for goal in [3, 12] {
        let mut child = lab
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let since = Instant::now();
        while measured() < goal {
            assert!(
                since.elapsed() < Duration::from_secs(120),
                "it measures nothing"
            );
            assert!(
                child.try_wait().unwrap().is_none(),
                "it ended before it was killed"
            );
            sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let found = lab.json(&arguments);
    assert_eq!(found["culprit"], culprit.as_str(), "{found}");
    assert!(found["probability"].as_f64().unwrap() >= 0.95, "{found}");
    // At each kill the measurement in flight may have been stored, but not told yet.
    let runs = found["runs"].as_u64().unwrap();
    assert!((runs..=runs + 2).contains(&measured().into()), "{found}");
    assert!(runs <= 100, "{found}");

    // All is stored: nothing is measured again, and git accepts the log.
    let before = measured();
    let told = words(&lab.bisect(&arguments));
    assert_eq!(measured(), before, "{told}");
    assert!(told.contains("this is a regression"), "{told}");
    assert!(told.contains("It came in by the merge"), "{told}");
    let log = told
        .lines()
        .find_map(|line| line.strip_prefix("replay it: git bisect replay "));
    git(&repo, &["bisect", "replay", log.unwrap()]);
}

#[test]
fn what_a_matrix_lacks_for_a_bisection_is_told() {
    let lab = Lab::new();
    let repo = lab.path("repo");
    make_repository(&repo);
    let check = |matrix: &str, arguments: &[&str], expected: &str| {
        lab.write("work.toml", matrix);
        let ends = ["work.toml", "--good", "main~9", "--bad", "main"];
        let output = lab.bisect(&[&ends, arguments].concat());
        let told = words(&output);
        let flat = told.replace('│', " ");
        let flat = flat.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(expected), "{told}");
        let code = output.status.code();
        assert!(code == Some(2) || code == Some(4), "{told}");
    };
    let matrix = matrix_of(&repo);
    check(&matrix, &["--metric", "u"], "the cell has no metric `u`");
    let two = matrix.clone() + "[metrics.u]\nbetter = \"lower\"\n";
    check(&two, &[], "choose one of them, `--metric NAME`: `t`, `u`");
    let cells =
        matrix.replace("\"sh\",", "\"env\", \"X={{ x }}\", \"sh\",") + "[axes]\nx = [1, 2]\n";
    check(
        &cells,
        &[],
        "a bisection measures one cell, and 2 cells are chosen",
    );
    check(&cells, &["--cell", "x == 3"], "no cell");
    let unbuilt = "[matrix]\nname = \"a\"\n[run]\ncommand = \"true\"\nparser = \"time\"\n[metrics.real]\nbetter = \"lower\"\n";
    check(unbuilt, &[], "there are no commits to bisect");
}
