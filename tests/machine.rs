//! End-to-end tests of what is around measurements: profiles, environments, marks, monitors.
//!
//! Knobs are real ones that hardly anything depends on. Only root can set them: tests that do say so
//! and return where others run them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

#[path = "schema/mod.rs"]
mod schema;

/// What the profile sets.
const KNOB: &str = "/proc/sys/vm/page_lock_unfairness";
const OURS: &str = "7";
const THEIRS: &str = "9";
const WAIT_MAX: Duration = Duration::from_secs(60);

const PROFILE: &str = r#"
sysctl "vm.page_lock_unfairness" 7
sysctl "vm.no_such_knob" 1 optional=#true
"#;

/// Prints a value that a test can tell by the cell, and the knob.
const MATRIX: &str = r#"
[matrix]
name = "around"
[machines.here]
via = "local"
profile = "p"
[axes]
x = ["a", "b"]
[run]
command = ["sh", "-c", "sleep 0.2; cat /proc/sys/vm/page_lock_unfairness >&2; echo v={{ '1' if x == 'a' else '2' }}"]
parser = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
repeat = 4
[metrics.v]
better = "higher"
[[compare]]
axis = "x"
"#;

/// One test at a time has the knob, of all test programs that run on this machine. It is as before when
/// the test ends, however it ends.
struct Knob {
    before: String,
    _lock: fs::File,
}

impl Knob {
    /// None for users that cannot set it.
    fn take() -> Option<Knob> {
        let lock = fs::File::create(std::env::temp_dir().join("matrix-test-knobs.lock")).unwrap();
        lock.lock().unwrap();
        let before = read(KNOB);
        if fs::write(KNOB, &before).is_err() {
            eprintln!("not tested: only root can set {KNOB}");
            return None;
        }
        assert_ne!(before, OURS);
        Some(Knob {
            before,
            _lock: lock,
        })
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        let _ = fs::write(KNOB, &self.before);
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap().trim().to_owned()
}

/// A folder with a matrix, `profiles/p.kdl`, a state, a lock, and beside that the journal.
struct Place(TempDir);

impl Place {
    fn new(matrix: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("profiles")).unwrap();
        fs::write(place.path("profiles/p.kdl"), PROFILE).unwrap();
        fs::write(place.path("m.toml"), matrix).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_matrix"));
        command
            .args(arguments)
            .current_dir(self.0.path())
            .env("MATRIX_LOCK", self.path("lock"))
            .env_remove("MATRIX_STATE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    #[track_caller]
    fn matrix(&self, arguments: &[&str], status: i32) -> Output {
        let output = self.command(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}\n{stderr}"
        );
        output
    }

    #[track_caller]
    fn json(&self, arguments: &[&str], status: i32) -> Value {
        schema::document(&self.matrix(arguments, status))
    }

    fn start(&self) -> Child {
        let mut command = self.command(&["run", "m.toml", "--events", "events"]);
        fs::write(self.path("events"), "").unwrap();
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.spawn().unwrap()
    }

    /// Events of a kind, whole lines only.
    fn events(&self, kind: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path("events")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        events
            .filter(|event: &Value| event["event"] == kind)
            .collect()
    }

    fn notes_of_monitors(&self) -> Vec<String> {
        let notes = self.events("note");
        let notes = notes.iter().filter_map(|note| note["what"].as_str());
        let of_monitors = notes.filter(|what| what.starts_with("monitor"));
        of_monitors.map(str::to_owned).collect()
    }

    fn store(&self) -> Connection {
        Connection::open(self.path(".matrix/matrix.db")).unwrap()
    }

    fn count(&self, sql: &str) -> i64 {
        self.store().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// How many values of a monitor's there are for which the condition holds.
    fn monitored(&self, name: &str, condition: &str) -> i64 {
        self.count(&format!(
            "SELECT count(*) FROM monitor_value JOIN monitor ON monitor.id = monitor \
             WHERE name = '{name}' AND value {condition}"
        ))
    }

    fn has_journal(&self) -> bool {
        self.path("lock.profile.json").exists()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAIT_MAX, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_run_sets_the_profile_and_puts_it_back() {
    let Some(knob) = Knob::take() else { return };
    let place = Place::new(MATRIX);
    place.matrix(&["run", "m.toml", "--events", "events"], 0);
    assert_eq!(read(KNOB), knob.before);
    assert!(!place.has_journal());
    let log = place.matrix(&["log", "m.toml", "x=a"], 0);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains(&format!("\n{OURS}\n")), "{log}");
    let notes = place.events("note");
    let note = notes[0]["what"].as_str().unwrap();
    let expected = "profile `p` changes 1 knob until the end: sysctl vm.page_lock_unfairness; \
                    1 knob skipped: sysctl vm.no_such_knob";
    assert_eq!(note, expected);
    // What the profile sets is part of the key, what it is called is not.
    fs::write(
        place.path("profiles/p.kdl"),
        format!("about \"x\"\n{PROFILE}"),
    )
    .unwrap();
    let plan = place.json(&["plan", "m.toml", "--json"], 0);
    assert_eq!(plan["steps"]["run"]["run"], 0);
    fs::write(place.path("profiles/p.kdl"), PROFILE.replace(" 7", " 8")).unwrap();
    let plan = place.matrix(&["plan", "m.toml", "--why"], 0);
    let plan = String::from_utf8(plan.stdout).unwrap();
    assert!(plan.contains("profile"), "{plan}");
}

#[test]
fn only_machines_that_are_measured_are_tuned() {
    let Some(knob) = Knob::take() else { return };
    let other = "[machines.there]\nvia = \"local\"\nprofile = \"p\"\n[axes]";
    let place = Place::new(&MATRIX.replace("[axes]", other));
    let only = ["--only", "machine == 'here'"];
    let run = [&["run", "m.toml", "--events", "events"], &only[..]].concat();
    place.matrix(&run, 0);
    assert_eq!(read(KNOB), knob.before);
    let notes = place.events("note");
    let machines: Vec<&Value> = notes.iter().map(|note| &note["machine"]).collect();
    assert_eq!(machines, ["here"]);
}

#[test]
fn one_machine_with_two_profiles_is_two_machines() {
    let Some(knob) = Knob::take() else { return };
    let other = "[machines.there]\nvia = \"local\"\nprofile = \"q\"\n[axes]";
    let compare = "[[compare]]\naxis = \"machine\"\n";
    let place = Place::new(&(MATRIX.replace("[axes]", other) + compare));
    let other = PROFILE.replace(" 7", " 8") + "drop-caches #true\ncpus \"0\"\n";
    fs::write(place.path("profiles/q.kdl"), other).unwrap();
    place.matrix(&["run", "m.toml"], 0);
    assert_eq!(read(KNOB), knob.before);
    for (cell, expected) in [("machine=here,x=a", OURS), ("machine=there,x=a", "8")] {
        let log = place.matrix(&["log", "m.toml", cell], 0);
        let log = String::from_utf8(log.stdout).unwrap();
        assert!(log.contains(&format!("\n{expected}\n")), "{log}");
    }
    let report = place.json(&["compare", "m.toml", "--json"], 0);
    let [row] = &report["environments"].as_array().unwrap()[..] else {
        panic!("{}", report["environments"]);
    };
    let differences = row["differences"].as_array().unwrap().iter();
    let named: Vec<[&str; 3]> = differences
        .map(|d| ["name", "before", "after"].map(|key| d[key].as_str().unwrap_or("none")))
        .collect();
    let [cpus, drop_caches, sysctl] = named[..] else {
        panic!("{named:?}");
    };
    assert!(
        ["0 (cgroup)", "0 (affinity)"].contains(&cpus[2]),
        "{cpus:?}"
    );
    assert_eq!(cpus[..2], ["knob.cpus", "none"]);
    assert_eq!(drop_caches, ["knob.drop-caches", "none", "true"]);
    assert_eq!(sysctl, ["sysctl.vm.page_lock_unfairness", OURS, "8"]);
}

/// Cgroups of profiles, `matrix-PID`, at any depth: one is made below the group that the run itself is in. Those of what
/// runs of other tests have started have longer names.
fn cgroups() -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        // Others make and remove groups meanwhile.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix("matrix-"));
            if pid.is_some_and(|pid| pid.parse::<u32>().is_ok()) {
                found.push(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), &mut found);
    found
}

#[test]
fn the_workload_is_held_to_its_cpus_and_its_cgroup_does_not_stay() {
    let Some(_knob) = Knob::take() else { return };
    // It asks for the other CPU too, in vain.
    let matrix = MATRIX.replace(
        "sleep 0.2;",
        "grep Cpus_allowed_list /proc/self/status >&2; taskset -cp 0-1 $$ >&2; \
         grep Cpus_allowed_list /proc/self/status | sed 's/^/then /' >&2; sleep 0.2;",
    );
    let place = Place::new(&matrix);
    fs::write(place.path("profiles/p.kdl"), "cpus \"0\"").unwrap();
    let before = cgroups();
    place.matrix(&["run", "m.toml", "--events", "events"], 0);
    assert_eq!(cgroups(), before);
    let note = place.events("note")[0]["what"].as_str().unwrap().to_owned();
    let log = place.matrix(&["log", "m.toml", "x=a"], 0);
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(log.contains("\nCpus_allowed_list:\t0\n"), "{log}");
    match note.ends_with("workload on CPUs 0 (cgroup)") {
        true => assert!(log.contains("then Cpus_allowed_list:\t0\n"), "{log}"),
        false => assert!(note.ends_with("workload on CPUs 0 (affinity)"), "{note}"),
    }
    // Killed with the workload at work, which holds the group.
    let slow = matrix.replace("sleep 0.2;", "sleep 60;");
    for next in [&["machine", "revert"][..], &["run", "m.toml"][..]] {
        fs::write(place.path("m.toml"), &slow).unwrap();
        let mut child = place.start();
        wait_until("the journal", || place.has_journal());
        std::thread::sleep(Duration::from_millis(800));
        signal(&child, rustix::process::Signal::KILL);
        child.wait().unwrap();
        fs::write(place.path("m.toml"), &matrix).unwrap();
        place.matrix(next, 0);
        assert_eq!(cgroups(), before, "{next:?}");
        assert!(!place.has_journal());
    }
}

#[test]
fn a_killed_run_is_put_back_by_whoever_comes_next() {
    let Some(knob) = Knob::take() else { return };
    let mut was_set = 0;
    for n in 0..12u64 {
        let place = Place::new(MATRIX);
        let mut child = place.start();
        // From before the profile is applied to after the first measurements.
        std::thread::sleep(Duration::from_millis(20 + 60 * n));
        signal(&child, rustix::process::Signal::KILL);
        child.wait().unwrap();
        if read(KNOB) == OURS {
            was_set += 1;
            let status = place.matrix(&["machine", "status", "--json"], 0);
            let status: Value = schema::document(&status);
            assert_eq!(status["left"], true, "{status}");
        }
        match n % 2 {
            0 => place.matrix(&["machine", "revert"], 0),
            _ => place.matrix(&["run", "m.toml"], 0),
        };
        assert_eq!(read(KNOB), knob.before, "kill {n}");
        assert!(!place.has_journal());
    }
    assert!(was_set > 0, "no kill came while the profile was in force");
}

/// Real knobs of each kind that a plain virtual machine has. What is asked for is not what is there.
const KNOBS: [&str; 9] = [
    KNOB,
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_ratio",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
    "/sys/block/loop0/queue/scheduler",
    "/sys/block/loop0/queue/read_ahead_kb",
    REQUESTS,
];
/// Choosing a scheduler sets it anew.
const REQUESTS: &str = "/sys/block/loop0/queue/nr_requests";

/// A file that holds another value until the test ends.
struct Held(&'static str, String);

impl Held {
    fn set(path: &'static str, value: &str) -> Held {
        let before = read(path);
        fs::write(path, value).unwrap();
        Held(path, before)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = fs::write(self.0, &self.1);
    }
}

fn profile_of_knobs() -> String {
    let other = |path: &str, values: [&'static str; 2]| {
        let is_first = read(path).contains(&format!("[{}]", values[0]));
        values[usize::from(is_first)]
    };
    format!(
        r#"
sysctl "vm.page_lock_unfairness" 7
sysctl "vm.dirty_bytes" 104857600
thp "{}"
thp-defrag "{}"
huge-pages 3 node=0
block "loop0" {{ scheduler "{}"; nr_requests 32; read_ahead_kb 4; }}
cpus "0"
dma-latency-us 77 optional=#true
"#,
        other(KNOBS[3], ["never", "always"]),
        other(KNOBS[4], ["defer", "never"]),
        other(KNOBS[6], ["mq-deadline", "none"]),
    )
}

/// All that a profile can leave behind: knobs, cgroups, the held latency.
fn all_knobs() -> Vec<String> {
    let files = KNOBS.iter().map(|path| read(path));
    let groups = cgroups().into_iter().map(|path| path.display().to_string());
    // Reads as a number of the machine's own order.
    let latency = fs::read("/dev/cpu_dma_latency").unwrap_or_default();
    let latency = latency.iter().map(u8::to_string);
    files.chain(groups).chain(latency).collect()
}

/// `MATRIX_KILLS` says how many.
#[test]
fn killed_at_any_moment_one_revert_puts_all_back() {
    let Some(_knob) = Knob::take() else { return };
    let _requests = Held::set(REQUESTS, "64");
    let kills = std::env::var("MATRIX_KILLS").map_or(30, |kills| kills.parse().unwrap());
    let place = Place::new(MATRIX);
    fs::write(place.path("profiles/p.kdl"), profile_of_knobs()).unwrap();
    let verbs: [&[&str]; 3] = [
        &["machine", "tune", "p"],
        &["run", "m.toml", "--fresh"],
        &["machine", "revert"],
    ];
    let before = all_knobs();
    // How long each takes where nobody kills it.
    let lasts = verbs.map(|verb| {
        if verb[1] == "revert" {
            place.matrix(verbs[0], 0);
        }
        let clock = Instant::now();
        place.matrix(verb, 0);
        let lasts = clock.elapsed();
        if verb[1] != "tune" {
            assert_eq!(all_knobs(), before, "{verb:?}");
        } else {
            let tuned = all_knobs();
            let all = KNOBS.iter().zip(tuned.iter().zip(&before));
            let same = all.filter(|(_, (now, then))| now == then);
            assert_eq!(same.map(|(path, _)| *path).collect::<Vec<_>>(), [""; 0]);
            place.matrix(&["machine", "revert"], 0);
        }
        lasts
    });
    let mut changed = 0;
    for kill in 0..kills {
        let verb = verbs[kill % verbs.len()];
        if verb[1] == "revert" {
            place.matrix(verbs[0], 0);
        }
        // Multiples of an irrational number spread evenly (Weyl 1916).
        let moment = lasts[kill % verbs.len()].mul_f64((kill as f64 * 0.618_034).fract());
        let mut child = place
            .command(verb)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
        changed += usize::from(all_knobs() != before);
        place.matrix(&["machine", "revert"], 0);
        assert_eq!(
            all_knobs(),
            before,
            "kill {kill}: {verb:?} after {moment:?}"
        );
        assert!(!place.has_journal());
    }
    println!("{kills} kills, {changed} while the machine was another one: identical each time");
    assert!(
        changed > kills / 6,
        "only {changed} of {kills} kills came in time"
    );
}

#[test]
fn nobody_else_has_the_machine_before_it_is_put_back() {
    let Some(knob) = Knob::take() else { return };
    // The other one has work for seconds.
    let ys: Vec<String> = (0..3000).map(|y| y.to_string()).collect();
    let more = format!(
        "[machines.null]\nvia = \"null\"\n\
         [[exclude]]\nwhen = \"machine == 'here' and y > 0\"\nreason = \"few\"\n\
         [axes]\nmachine = [\"here\", \"null\"]\ny = [{}]\n",
        ys.join(", ")
    );
    let matrix = MATRIX.replace("[axes]\n", &more);
    let place = Place::new(&matrix.replace("echo v=", "echo {{ y }} >&2; echo v="));
    place.matrix(&["run", "m.toml", "--only", "machine == 'here'"], 0);
    // The first result of this one ends its part of the next run with an error.
    let sql = "CREATE TRIGGER refuse BEFORE INSERT ON attempt WHEN NEW.cell LIKE 'machine=here%' \
               BEGIN SELECT RAISE(FAIL, 'refused'); END";
    place.store().execute_batch(sql).unwrap();
    let mut child = place
        .command(&["run", "m.toml", "--fresh"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("the journal", || place.has_journal());
    let lock = fs::File::open(place.path("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(read(KNOB), knob.before);
    assert!(!place.has_journal());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn an_interrupted_run_puts_the_machine_back() {
    let Some(knob) = Knob::take() else { return };
    let place = Place::new(MATRIX);
    let mut child = place.start();
    wait_until("the first sample", || !place.events("run_done").is_empty());
    assert_eq!(read(KNOB), OURS);
    signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(read(KNOB), knob.before);
}

#[test]
fn what_somebody_changes_meanwhile_is_said_left_and_marked() {
    let Some(_knob) = Knob::take() else { return };
    let place = Place::new(MATRIX);
    let mut child = place.start();
    wait_until("the first sample", || !place.events("run_done").is_empty());
    fs::write(KNOB, THEIRS).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(read(KNOB), THEIRS);
    assert!(!place.has_journal());
    let told = format!("somebody has set {KNOB} to `{THEIRS}`, where the profile had `{OURS}`");
    let notes = place.events("note");
    let about = |what: &str| {
        let about = notes
            .iter()
            .filter(|note| note["what"].as_str().unwrap().contains(what));
        about.count()
    };
    assert_eq!(about(&told), 1, "{notes:?}");
    assert_eq!(about("is left at `9`"), 1, "{notes:?}");
    let marked = place.count("SELECT count(*) FROM mark WHERE kind = 'knob'");
    assert!(
        (6..=7).contains(&marked),
        "{marked} of 8 samples are marked"
    );
    let report = place.json(&["compare", "m.toml", "--json"], 0);
    let marks = report["marks"].as_array().unwrap();
    let knob = marks.iter().find(|mark| mark["kind"] == "knob").unwrap();
    assert_eq!(knob["samples"], marked);
    assert_eq!(knob["example"], told);
}

#[test]
fn a_profile_applied_by_hand_stays_until_it_is_reverted() {
    let Some(knob) = Knob::take() else { return };
    let place = Place::new(&MATRIX.replace("profile = \"p\"", ""));
    let dry = place.json(&["machine", "tune", "p", "--dry-run", "--json"], 0);
    let (old, new) = (&dry["rows"][0]["old"], &dry["rows"][0]["new"]);
    assert_eq!(
        (old.as_str(), new.as_str()),
        (Some(&*knob.before), Some(OURS))
    );
    assert_eq!(read(KNOB), knob.before);
    place.matrix(&["machine", "tune", "p"], 0);
    assert_eq!(read(KNOB), OURS);
    place.matrix(&["run", "m.toml"], 0);
    assert_eq!(read(KNOB), OURS);
    fs::write(place.path("m.toml"), MATRIX).unwrap();
    let refused = place.matrix(&["run", "m.toml"], 2);
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("matrix machine revert"), "{stderr}");
    let status = place.json(&["machine", "status", "--json"], 0);
    assert_eq!(
        (&status["profile"], &status["by_hand"]),
        (&"p".into(), &true.into())
    );
    let reverted = place.json(&["machine", "revert", "--json"], 0);
    assert_eq!(reverted["rows"][0]["outcome"], "put_back");
    assert_eq!(read(KNOB), knob.before);
    let status = place.json(&["machine", "status", "--json"], 0);
    assert_eq!(status["profile"], Value::Null);
}

#[test]
fn a_profile_that_cannot_be_read_is_shown_at_its_place() {
    let place = Place::new(MATRIX);
    let check = |profile: Option<&str>, expected: [&str; 3]| {
        let path = place.path("profiles/p.kdl");
        match profile {
            Some(text) => fs::write(path, text).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        let document = place.json(&["plan", "m.toml", "--json"], 2);
        let error = &document["errors"][0];
        let place = format!("{}:{}:{}", error["file"], error["line"], error["column"]);
        let found = [&error["message"], &error["help"]].map(|text| text.as_str().unwrap_or(""));
        assert_eq!([found[0], found[1], &place.replace('"', "")], expected);
    };
    check(
        Some("governor \"performance\"\nextends \"base\"\n"),
        [
            "the profile `base` cannot be read",
            "there is no `profiles/base.kdl` and no `../profiles/base.kdl`; there are: \
             `low-latency`, `p`, `quiet`, `throughput`",
            "profiles/p.kdl:2:9",
        ],
    );
    check(
        None,
        [
            "the profile `p` cannot be read",
            "there is no `profiles/p.kdl` and no `../profiles/p.kdl`; there are: `low-latency`, \
             `quiet`, `throughput`",
            "m.toml:6:11",
        ],
    );
}

#[test]
fn shipped_profiles_are_found_anywhere() {
    let place = Place::new(&MATRIX.replace("\"p\"", "\"throughput\""));
    let of =
        |place: &Place| place.json(&["plan", "m.toml", "--json"], 0)["steps"]["run"]["run"].clone();
    assert_eq!(of(&place), 2);
    let dry_run = ["machine", "tune", "throughput", "--dry-run", "--json"];
    assert_eq!(place.json(&dry_run, 0)["profile"], "throughput");
    // One that is there goes before; what it extends may be built in.
    fs::write(
        place.path("profiles/throughput.kdl"),
        "extends \"quiet\"\nnonsense 1",
    )
    .unwrap();
    let document = place.json(&dry_run, 2);
    assert_eq!(
        document["errors"][0]["message"],
        "`nonsense` is not a node of a profile"
    );
    let document = place.json(&["machine", "tune", "quite", "--json"], 2);
    let help =
        "there is no `profiles/quite.kdl` and no `../profiles/quite.kdl`; did you mean `quiet`?";
    assert_eq!(document["errors"][0]["help"], help);
}

#[test]
fn environments_that_differ_are_named() {
    let place = Place::new(&MATRIX.replace("profile = \"p\"", ""));
    place.matrix(&["run", "m.toml"], 0);
    let same = place.json(&["compare", "m.toml", "--json"], 0);
    assert_eq!(same["environments"], Value::Array(Vec::new()));
    // What was recorded of `b`, as another kernel, tool and setting would have given it.
    let db = place.store();
    let json: String = db
        .query_row("SELECT json FROM environment", [], |row| row.get(0))
        .unwrap();
    let mut environment: Value = serde_json::from_str(&json).unwrap();
    let values = environment["values"].as_object_mut().unwrap();
    let others = [
        ("kernel", "5.10.0 #1 SMP"),
        ("sysctl.vm.swappiness", "99"),
        ("tool.fio", "fio-9.99"),
    ];
    for (name, value) in others {
        values.insert(name.to_owned(), value.into());
    }
    let id = [7u8; 16];
    db.execute(
        "INSERT INTO environment (id, json) VALUES (?1, ?2)",
        rusqlite::params![id, environment.to_string()],
    )
    .unwrap();
    db.execute(
        "UPDATE attempt SET environment = ?1 WHERE cell LIKE '%x=b%'",
        [id],
    )
    .unwrap();
    let report = place.json(&["compare", "m.toml", "--json"], 0);
    let [row] = &report["environments"].as_array().unwrap()[..] else {
        panic!("{}", report["environments"]);
    };
    assert_eq!(row["between"], serde_json::json!(["x=a", "x=b"]));
    let differences = row["differences"].as_array().unwrap().iter();
    let named: Vec<(&str, &str)> = differences
        .map(|d| (d["name"].as_str().unwrap(), d["after"].as_str().unwrap()))
        .collect();
    assert_eq!(named, others);
    let text = place.matrix(&["compare", "m.toml"], 0);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("the machine differed between x=a and x=b"),
        "{text}"
    );
    assert!(
        text.contains("(may explain caching, write-back and reclaim)"),
        "{text}"
    );
}

#[test]
fn monitors_that_moved_are_listed_and_one_that_fails_spoils_nothing() {
    let monitor = |script: &str| {
        format!(
            "[[monitor]]\ncommand = [\"sh\", \"-c\", '''{script}''']\nparser = {{ kind = \"columns\" }}\n"
        )
    };
    // The first column is the cell's own, the second is the same in all.
    let moving = "echo 'moves stays'; i=0; while :; do i=$((i + 1)); \
                  echo {{ '10' if x == 'a' else '30' }}$((i % 3)) 5; sleep 0.02; done";
    // Four rounds a side cannot show a change of one monitor among five.
    let matrix = MATRIX
        .replace("profile = \"p\"", "")
        .replace("repeat = 4", "repeat = 8");
    let place = Place::new(&(matrix + &monitor(moving) + &monitor("exit 3")));
    place.matrix(&["run", "m.toml", "--events", "events"], 0);
    let failing = place.notes_of_monitors();
    assert_eq!(failing, ["monitor `sh#2` gives nothing: exit status 3"]);
    assert_eq!(place.count("SELECT count(*) FROM sample"), 16);
    assert!(place.count("SELECT min(length(gzip)) FROM monitor_output WHERE name = 'sh'") > 30);
    let report = place.json(&["compare", "m.toml", "--json", "--monitors"], 0);
    let [row] = &report["monitors"].as_array().unwrap()[..] else {
        panic!("{}", report["monitors"]);
    };
    let moved = row["moved"].as_array().unwrap();
    assert_eq!(
        (row["monitors"].as_u64(), moved.len()),
        (Some(5), 1),
        "{row}"
    );
    assert_eq!(moved[0]["monitor"], "sh.moves");
    assert!(
        (2.5..3.5).contains(&moved[0]["ratio"].as_f64().unwrap()),
        "{row}"
    );
    // A document is whole; in the text they are asked for.
    let always = place.json(&["compare", "m.toml", "--json"], 0);
    assert_eq!(always["monitors"], report["monitors"]);
}

#[test]
fn counters_of_the_kernel_are_read_beside_a_measurement() {
    let monitors = r#"
[[monitor]]
file = "/proc/{{ 'vmstat' if x else '' }}"
every = "100ms"
[[monitor]]
file = "/proc/interrupts"
[[monitor]]
file = "/proc/meminfo"
summary = "mean"
[[monitor]]
file = "/proc/no_such_file"
"#;
    // Each turn of the loop is a new process, and its pages.
    let forks =
        "i=0; while [ $i -lt {{ '20' if x == 'a' else '400' }} ]; do /bin/true; i=$((i + 1)); done";
    let matrix = MATRIX.replace("profile = \"p\"", "");
    let place = Place::new(&(matrix.replace("sleep 0.2", forks) + monitors));
    place.matrix(&["run", "m.toml", "--events", "events"], 0);
    let failing = place.notes_of_monitors();
    let expected = "monitor `/proc/no_such_file` gives nothing: cannot read `/proc/no_such_file`: \
                    No such file or directory (os error 2)";
    assert_eq!(failing, [expected]);
    // A rate and no count since boot; a level and no rate.
    assert_eq!(
        place.monitored("/proc/vmstat.pgfault", "BETWEEN 1 AND 1e8"),
        8
    );
    assert_eq!(place.monitored("/proc/meminfo.MemTotal", "> 1000"), 8);
    let interrupts = "SELECT count(*) FROM monitor WHERE name LIKE '/proc/interrupts.%'";
    assert!(place.count(interrupts) > 3);
    let report = place.json(&["compare", "m.toml", "--json", "--monitors"], 0);
    assert!(report["monitors"][0]["monitors"].as_u64().unwrap() > 100);
    let gzip: Vec<u8> = place
        .store()
        .query_row(
            "SELECT gzip FROM monitor_output JOIN attempt ON attempt.id = attempt \
             WHERE name = '/proc/vmstat' AND cell LIKE '%x=b%'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let mut texts = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut texts)
        .unwrap();
    let times = texts.lines().filter_map(|line| line.strip_prefix("# "));
    assert!(times.count() > 3, "{texts}");
}

#[test]
fn what_perf_cannot_count_is_told_once() {
    let perf = r#"
[[monitor]]
command = ["perf", "stat", "-a", "-x,", "-I", "50", "-e", "cpu-clock,context-switches,cycles"]
parser = "perf"
"#;
    // Long enough for perf to begin on a busy machine.
    let matrix = MATRIX
        .replace("profile = \"p\"", "")
        .replace("sleep 0.2;", "sleep 1.5;");
    let place = Place::new(&(matrix + perf));
    place.matrix(&["run", "m.toml", "--events", "events"], 0);
    let told = place.notes_of_monitors();
    assert!(
        !told.iter().any(|what| what.contains("No such file")),
        "perf is missing: apt-get install linux-perf"
    );
    let of = |event: &str| place.monitored(&format!("perf.{event}"), "> 0");
    // It may have been late for a step, which is told too.
    let (late, told): (Vec<String>, Vec<String>) = told
        .into_iter()
        .partition(|what| what.ends_with(": no output"));
    let counted = of("cpu-clock");
    assert!(
        counted == 8 || counted >= 6 && !late.is_empty(),
        "{counted}: {late:?}"
    );
    match of("cycles") {
        0 => assert_eq!(
            told,
            ["monitor `perf`: this machine does not count `cycles`"]
        ),
        cycles => assert_eq!((cycles, told.len()), (counted, 0), "{told:?}"),
    }
}

#[test]
fn a_noisy_machine_marks_samples() {
    let place = Place::new(&MATRIX.replace("profile = \"p\"", ""));
    let spin = |seconds: u32| {
        let script =
            format!("end=$(($(date +%s) + {seconds})); while [ $(date +%s) -lt $end ]; do :; done");
        Command::new("sh").args(["-c", &script]).spawn().unwrap()
    };
    let mut busy = [spin(60), spin(60)];
    place.matrix(&["run", "m.toml"], 0);
    for child in &mut busy {
        signal(child, rustix::process::Signal::KILL);
        child.wait().unwrap();
    }
    assert!(place.count("SELECT count(*) FROM mark WHERE kind = 'noisy'") >= 6);
    let report = place.json(&["compare", "m.toml", "--json"], 0);
    assert_eq!(report["marks"][0]["kind"], "noisy");
}

#[test]
fn the_journal_is_found_whatever_the_state_folder_is() {
    let Some(knob) = Knob::take() else { return };
    let place = Place::new(MATRIX);
    let mut child = place.start();
    wait_until("the first sample", || !place.events("run_done").is_empty());
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    assert_eq!(read(KNOB), OURS);
    let other = Place::new(&MATRIX.replace("profile = \"p\"", ""));
    let mut command = other.command(&["run", "m.toml"]);
    command.env("MATRIX_LOCK", place.path("lock"));
    assert!(command.status().unwrap().success());
    assert_eq!(read(KNOB), knob.before);
    assert!(!Path::new(&place.path("lock.profile.json")).exists());
}
