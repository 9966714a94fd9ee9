//! Links that are cut, agents and orchestrators that are killed: each sample once, and nothing is left behind.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::machines::{Machines, in_one_line, printed};

/// Each measurement leaves a line on its machine when it ends.
fn matrix(machines: usize, cells: usize, repeat: usize, sleep_s: f64) -> String {
    let mut text = "[matrix]\nname = 'lost'\n".to_owned();
    for machine in 1..=machines {
        text += &format!("[machines.lab{machine}]\nvia = 'ssh'\nhost = 'lab{machine}'\n");
    }
    let values: Vec<String> = (0..cells).map(|cell| cell.to_string()).collect();
    text + &format!(
        r#"
[axes]
n = [{}]
[[setup]]
name = "thing"
run = ["mkdir -p /root/things", "touch /root/things/{{{{ n }}}}"]
undo = ["rm -f /root/things/{{{{ n }}}}"]
[[setup]]
name = "waiter"
service = ["sh", "-c", "exec sleep 4{{{{ n }}}}00"]
[run]
command = ["sh", "-c", "sleep {sleep_s}; echo {{{{ n }}}} >> /root/done; echo v={{{{ n }}}}.5"]
parser = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
repeat = {repeat}
timeout = "20s"
[metrics.v]
better = "lower"
"#,
        values.join(", ")
    )
}

const SAMPLES: &str = "SELECT count(*) FROM sample";

fn done(machines: &Machines, machine: usize) -> usize {
    fs::read_to_string(machines.home(machine).join("done")).map_or(0, |text| text.lines().count())
}

fn start(machines: &Machines) -> Child {
    let mut command = machines.matrix(&["run", "MATRIX"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "waited in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn assert_nothing_is_left(machines: &Machines, machine: usize) {
    machines.assert_idle(machine);
    let things = fs::read_dir(machines.home(machine).join("things"));
    assert_eq!(things.map_or(0, |it| it.count()), 0);
}

/// A small generator: the tests say their seed.
struct Random(u64);

impl Random {
    fn new(test: &str) -> Random {
        let seed = std::env::var("MATRIX_SEED")
            .ok()
            .and_then(|it| it.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
        eprintln!("{test}: MATRIX_SEED={seed}");
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// The pids of programs on the orchestrator's side that have this in their words.
fn pids(words: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if pid.parse::<u32>().is_ok() && line.contains(words) {
            found.push(pid);
        }
    }
    found
}

fn kill(pids: &[String]) {
    // Some may have ended by themselves.
    let _ = Command::new("kill")
        .arg("-9")
        .args(pids)
        .stderr(Stdio::null())
        .status();
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn cut_links_are_taken_up_again() {
    let machines = Machines::start(2);
    machines.write_matrix(&matrix(2, 5, 10, 0.15));
    let mut random = Random::new("cut_links_are_taken_up_again");
    let is_over = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut cuts = 0;
            wait_until("a measurement", || {
                (1..=2).all(|it| done(&machines, it) > 0)
            });
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(300 + random.below(900)));
                let machine = (1 + random.below(2)).to_string();
                if random.below(2) == 0 {
                    machines.script("cut", &[&machine]);
                    std::thread::sleep(Duration::from_millis(random.below(900)));
                    machines.script("restore", &[&machine]);
                } else {
                    let words = format!("-- lab{machine} sh");
                    let config = machines.file("ssh_config");
                    let of_ours = pids(&words).into_iter().filter(|pid| {
                        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                        String::from_utf8_lossy(&line).contains(config.to_str().unwrap())
                    });
                    kill(&of_ours.collect::<Vec<_>>());
                }
                cuts += 1;
            }
            eprintln!("{cuts} cuts");
        });
        let ran = machines.run();
        is_over.store(true, Ordering::SeqCst);
        ran
    });
    assert!(ran.status.success(), "{}", printed(&ran));
    assert_eq!(machines.count(SAMPLES), 100);
    assert_eq!(
        machines.count("SELECT count(*) FROM attempt WHERE kind = 'run'"),
        100
    );
    for machine in 1..=2 {
        assert_eq!(done(&machines, machine), 50);
        assert_nothing_is_left(&machines, machine);
    }
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn a_killed_orchestrator_is_followed_by_another() {
    let machines = Machines::start(1);
    machines.write_matrix(&matrix(1, 4, 5, 0.3));
    let mut random = Random::new("a_killed_orchestrator_is_followed_by_another");
    for _ in 0..4 {
        let before = done(&machines, 1);
        let mut running = start(&machines);
        wait_until("a measurement", || done(&machines, 1) > before);
        std::thread::sleep(Duration::from_millis(random.below(500)));
        running.kill().unwrap();
        running.wait().unwrap();
    }
    let ran = machines.run();
    assert!(ran.status.success(), "{}", printed(&ran));
    assert_eq!(machines.count(SAMPLES), 20);
    // What was in flight at a kill may have ended there.
    assert!(
        (20..=28).contains(&done(&machines, 1)),
        "{}",
        done(&machines, 1)
    );
    assert_nothing_is_left(&machines, 1);
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn a_killed_agent_is_told_and_the_other_machine_goes_on() {
    let machines = Machines::start(2);
    machines.write_matrix(&matrix(2, 2, 5, 0.5));
    let running = start(&machines);
    wait_until("a measurement", || done(&machines, 1) > 0);
    machines.inside(1, "pkill -9 -f -- '--hol[d]'");
    let ran = running.wait_with_output().unwrap();
    let told = in_one_line(&printed(&ran));
    assert!(!ran.status.success(), "{told}");
    assert!(
        told.contains("the agent of machine `lab1` is gone"),
        "{told}"
    );
    assert_eq!(machines.count("SELECT count(*) FROM sample JOIN attempt ON attempt.id = sample.attempt WHERE machine = 'lab2'"), 10);
    assert_nothing_is_left(&machines, 2);

    let ran = machines.run();
    assert!(ran.status.success(), "{}", printed(&ran));
    assert_eq!(machines.count(SAMPLES), 20);
    assert_nothing_is_left(&machines, 1);
}

#[test]
#[ignore = "needs root: tests/all.sh runs it"]
fn a_machine_that_is_away_is_told_and_the_other_one_is_measured() {
    let machines = Machines::start(2);
    machines.write_matrix(&matrix(2, 2, 2, 0.1));
    machines.script("cut", &["1"]);
    let ran = machines.run();
    let told = in_one_line(&printed(&ran));
    assert_eq!(ran.status.code(), Some(3), "{told}");
    assert!(told.contains("cannot reach machine `lab1`"), "{told}");
    assert!(told.contains("its cells are left out"), "{told}");
    assert_eq!(machines.count(SAMPLES), 4);
    machines.script("restore", &["1"]);
    let ran = machines.run();
    assert!(ran.status.success(), "{}", printed(&ran));
    assert_eq!(machines.count(SAMPLES), 8);
}
