//! A folder with a matrix, its state and a log, and all that a test asks about a run in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

#[path = "../schema/mod.rs"]
pub mod schema;

/// A test that waits longer than this has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The path of a program, or a failure that says how to get it.
pub fn need(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(
        is_there,
        "`{program}` is missing: apt-get install {package}"
    );
}

/// The `[run]` of most tests: a shell line that prints `NAME=VALUE` words, of which `v` is declared.
pub fn shell(line: &str) -> String {
    repeated("1", line)
}

pub fn repeated(repeat: &str, line: &str) -> String {
    format!(
        r#"
        [run]
        command = ["sh", "-c", '''{line}''']
        parser  = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
        timeout = "60s"
        repeat  = {repeat}
        [metrics.v]
        better = "higher"
        "#
    )
}

/// Commands of the matrix find the folder as `$TMPDIR`, which also marks their processes.
pub struct Lab {
    folder: TempDir,
    /// The machine is served by `matrix agent`, over pipes.
    pub through_agent: bool,
}

impl Lab {
    /// A folder with `matrix.toml`; the matrix is called `e2e`.
    pub fn new(matrix: &str) -> Lab {
        let lab = Lab {
            folder: TempDir::new().unwrap(),
            through_agent: false,
        };
        lab.write(matrix);
        lab
    }

    pub fn write(&self, matrix: &str) {
        self.write_as("matrix.toml", matrix);
    }

    pub fn write_as(&self, name: &str, matrix: &str) {
        let text = format!("[matrix]\nname = \"e2e\"\n{matrix}");
        fs::write(self.path(name), text).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `matrix` with these arguments, in the folder.
    pub fn matrix(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("MATRIX_LOCK", self.path("lock"))
            .env("TMPDIR", self.folder.path())
            .env_remove("MATRIX_STATE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if self.through_agent {
            command.env(
                "MATRIX_AGENT",
                concat!(env!("CARGO_BIN_EXE_matrix"), " agent"),
            );
        }
        command
    }

    /// `matrix run matrix.toml`, to its end.
    pub fn run(&self) -> Ran {
        self.start().wait()
    }

    pub fn start(&self) -> Running {
        self.start_with("matrix.toml", "events", &[])
    }

    pub fn start_with(&self, matrix: &str, events: &str, more: &[&str]) -> Running {
        let mut arguments = vec!["run", matrix, "--json", "--events", events];
        arguments.extend(more);
        // So that nobody reads those of a run before.
        fs::write(self.path(events), "").unwrap();
        Running {
            child: self.matrix(&arguments).spawn().unwrap(),
            events: self.path(events),
        }
    }

    /// Lines that the matrix's commands have appended to `$TMPDIR/log`.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    pub fn wait_for(&self, name: &str) {
        wait_until(name, || self.path(name).exists());
    }

    pub fn store(&self) -> Connection {
        Connection::open(self.path(".matrix/matrix.db")).unwrap()
    }

    /// One number out of the store.
    pub fn count(&self, sql: &str) -> i64 {
        self.store().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// How many samples of metric `v` there are by cell and round: each should be 1.
    pub fn samples(&self) -> BTreeMap<(String, i64), i64> {
        let db = self.store();
        let mut rows = db
            .prepare(
                "SELECT cell, round, count(*) FROM samples WHERE metric = 'v' GROUP BY cell, round",
            )
            .unwrap();
        let pairs = rows.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)));
        pairs.unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// The machine is as it was found: no process, no mount, no folder of a step, an empty journal and
    /// a whole database.
    pub fn assert_clean(&self) {
        assert_eq!(self.processes(), Vec::<String>::new());
        assert_eq!(self.mounts(), Vec::<String>::new());
        let work = fs::read_dir(self.path(".matrix/work"));
        let left: Vec<PathBuf> = work
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new());
        assert_eq!(self.noted(), Vec::<PathBuf>::new());
        let check = self
            .store()
            .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
        assert_eq!(check.unwrap(), "ok");
    }

    /// Files of set-ups in the machine's journal.
    pub fn noted(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.path("lock.state/setups"));
        let files = files.into_iter().flatten();
        files.map(|entry| entry.unwrap().path()).collect()
    }

    /// Living processes that were started in this folder, as `pid: command line`.
    pub fn processes(&self) -> Vec<String> {
        let mark = format!("TMPDIR={}", self.folder.path().display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            // A zombie's environment is empty.
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ
                .split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes())
            {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                found.push(format!("{}: {line}", entry.file_name().to_string_lossy()));
            }
        }
        found
    }

    fn mounts(&self) -> Vec<String> {
        self.mounts_in(".matrix")
    }

    /// Mounts in the work folder of a state folder.
    pub fn mounts_in(&self, state: &str) -> Vec<String> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let inside =
            places.filter(|place| Path::new(place).starts_with(self.path(state).join("work")));
        inside.map(str::to_owned).collect()
    }
}

impl Drop for Lab {
    /// A failed test leaves nothing either.
    fn drop(&mut self) {
        for process in self.processes() {
            let pid = process.split(':').next().and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid.and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for place in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if Path::new(place).starts_with(self.folder.path()) {
                let _ = Command::new("umount").args(["-l", place]).status();
            }
        }
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_MAX, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A `matrix run` under way.
pub struct Running {
    pub child: Child,
    events: PathBuf,
}

impl Running {
    pub fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the first event for which this holds.
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) {
        wait_until(what, || {
            let ended = self.child.try_wait().unwrap();
            let found = events_in(&self.events).iter().any(&is_it);
            assert!(found || ended.is_none(), "ended without {what}: {ended:?}");
            found
        });
    }

    /// Cell and round of what was told as measured until now.
    pub fn told(&self) -> Vec<(String, i64)> {
        let events = events_in(&self.events).into_iter();
        let done = events.filter(|event| event["event"] == "run_done");
        done.map(|event| (text(&event["cell"]), event["round"].as_i64().unwrap()))
            .collect()
    }

    pub fn wait(self) -> Ran {
        let output = self.child.wait_with_output().unwrap();
        Ran::of(output, events_in(&self.events))
    }

    /// Ends it as a power cut would.
    pub fn kill(mut self) {
        self.send(Signal::KILL);
        self.child.wait().unwrap();
    }
}

/// Whole lines only: the last one may be in the making.
fn events_in(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// What a `matrix run` came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    /// What standard output was: one document.
    pub document: Value,
    pub stderr: String,
    pub events: Vec<Value>,
}

impl Ran {
    fn of(output: Output, events: Vec<Value>) -> Ran {
        let document = schema::document(&output);
        let stderr = String::from_utf8(output.stderr).unwrap();
        Ran {
            code: output.status.code(),
            document,
            stderr,
            events,
        }
    }

    /// Events of a kind.
    pub fn events(&self, kind: &str) -> Vec<&Value> {
        let of_kind = self.events.iter().filter(|event| event["event"] == kind);
        of_kind.collect()
    }

    /// Cell and round of each measurement, in order.
    pub fn measured(&self) -> Vec<(String, u64)> {
        let done = self.events("run_done").into_iter();
        done.map(|event| (text(&event["cell"]), event["round"].as_u64().unwrap()))
            .collect()
    }

    /// Cells that were measured, each once, sorted.
    pub fn cells(&self) -> Vec<String> {
        let mut cells: Vec<String> = self.measured().into_iter().map(|(cell, _)| cell).collect();
        cells.sort();
        cells.dedup();
        cells
    }

    /// Reasons by cell.
    pub fn failed(&self) -> BTreeMap<String, String> {
        let failed = self.document["failed"].as_array().unwrap().iter();
        failed
            .map(|failed| (text(&failed["cell"]), text(&failed["reason"])))
            .collect()
    }

    /// The messages of what stopped it.
    pub fn errors(&self) -> Vec<String> {
        let errors = self.document["errors"].as_array().into_iter().flatten();
        errors
            .map(|error| format!("{}\n{}", text(&error["message"]), text(&error["help"])))
            .collect()
    }

    #[track_caller]
    pub fn assert_code(&self, code: i32) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stderr, self.document);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
