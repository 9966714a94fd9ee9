//! Reading `/proc`: who a process is, whose child it is, which environment it was given.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// What `/proc/PID/stat` says of a process, see proc_pid_stat(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub pid: i32,
    /// At most 15 bytes of the program's name.
    pub name: String,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// In clock ticks since boot. With `pid` it names a process for as long as the machine is up.
    pub start: u64,
    /// It has ended and waits for its parent to take the status.
    pub zombie: bool,
    /// None of a kernel thread, or of one that has ended.
    program: Option<Program>,
}

/// Where the kernel has put a program: another one's addresses are others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Program {
    /// Known last: until then it is being put in place.
    code: u64,
    environment: [u64; 2],
}

/// A real one is below 1 KiB: numbers, and a name of 15 bytes.
const STAT_BYTES_MAX: u64 = 4 << 10;
/// The kernel's own limit for arguments and environment is 6 MiB at the usual stack size.
const ENVIRON_BYTES_MAX: u64 = 6 << 20;
/// How long a process may take to become another program: it reads that from the disk.
const EXEC_TIME_MAX: Duration = Duration::from_secs(1);
const EXEC_PAUSE: Duration = Duration::from_micros(100);
/// 10^6 children of one thread.
const CHILDREN_BYTES_MAX: u64 = 8 << 20;

impl Stat {
    /// None when there is no such process.
    pub fn of(pid: i32) -> Option<Stat> {
        let bytes = read(&format!("/proc/{pid}/stat"), STAT_BYTES_MAX).ok()?;
        Stat::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name may hold blanks and brackets: it ends at the last one.
        let (pid, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<i32>().ok();
        Some(Stat {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            zombie: matches!(fields.first()?, &"Z" | &"X"),
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            start: fields.get(19)?.parse().ok()?,
            program: fields.get(20).filter(|size| **size != "0").and_then(|_| {
                let address = |field: usize| fields.get(field)?.parse().ok();
                Some(Program {
                    code: address(24)?,
                    environment: [address(47)?, address(48)?],
                })
            }),
        })
    }
}

/// The value of a variable in the environment that a process was started with. None when it has
/// none, has ended, overwrote its environment, or belongs to another user.
///
/// While a process becomes another program it seems to have no environment, or only a part of it. Whoever
/// takes it for a stranger then leaves it behind: so only what was read of one program counts.
pub fn environment_of(pid: i32, variable: &str) -> Option<String> {
    let give_up = Instant::now() + EXEC_TIME_MAX;
    loop {
        let before = Stat::of(pid)?.program?;
        let environ = read(&format!("/proc/{pid}/environ"), ENVIRON_BYTES_MAX).ok()?;
        let found = environ.split(|byte| *byte == 0).find_map(|entry| {
            let value = entry
                .strip_prefix(variable.as_bytes())?
                .strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        });
        let is_of_one =
            || before.code != 0 && Stat::of(pid).and_then(|it| it.program) == Some(before);
        if found.is_some() || is_of_one() || Instant::now() >= give_up {
            return found;
        }
        std::thread::sleep(EXEC_PAUSE);
    }
}

/// All processes that can be seen, in no particular order.
pub fn pids() -> Vec<i32> {
    numbers_in("/proc")
}

/// The pid namespace: process ids of another one mean nothing here. "0" when it cannot be read.
pub fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits: String = link
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    if digits.is_empty() {
        "0".to_owned()
    } else {
        digits
    }
}

/// Who is whose child.
pub enum Children {
    /// The kernel lists a process's children (CONFIG_PROC_CHILDREN, which distributions set):
    /// read only where asked.
    Listed,
    /// It does not: parent to children, of all processes.
    Scanned(HashMap<i32, Vec<i32>>),
}

impl Children {
    pub fn now() -> Children {
        if fs::exists("/proc/thread-self/children").unwrap_or(false) {
            Children::Listed
        } else {
            Children::scan()
        }
    }

    pub fn scan() -> Children {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for stat in pids().into_iter().filter_map(Stat::of) {
            children.entry(stat.parent).or_default().push(stat.pid);
        }
        Children::Scanned(children)
    }

    pub fn of(&self, pid: i32) -> Vec<i32> {
        let threads = match self {
            Children::Scanned(children) => return children.get(&pid).cloned().unwrap_or_default(),
            Children::Listed => numbers_in(&format!("/proc/{pid}/task")),
        };
        let mut all = Vec::new();
        for thread in threads {
            let list = format!("/proc/{pid}/task/{thread}/children");
            let bytes = read(&list, CHILDREN_BYTES_MAX).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            all.extend(
                text.split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            );
        }
        all
    }
}

/// Processes come and go while we look: a folder that is gone holds nothing.
fn numbers_in(folder: &str) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

fn read(path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(bytes_max)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn stat_lines() {
        let check = |name: &str, state: &str, memory: &str, expected: (bool, Option<Program>)| {
            let (zombie, program) = expected;
            let line = format!(
                "7 ({name}) {state} 1 2 3 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 {memory}\n"
            );
            let expected = Stat {
                pid: 7,
                name: name.to_owned(),
                parent: 1,
                group: 2,
                session: 3,
                start: 12345,
                zombie,
                program,
            };
            assert_eq!(Stat::parse(&line), Some(expected), "{line}");
        };
        let with = |size: &str, code: u64, [begin, end]: [u64; 2]| {
            let between = " 0".repeat(21);
            format!("{size} 9 9 1 {code} 1{between} {begin} {end} 0")
        };
        let program = |code, environment| Some(Program { code, environment });
        check(
            "fio",
            "S",
            &with("100", 7, [5, 8]),
            (false, program(7, [5, 8])),
        );
        check(
            "becoming",
            "S",
            &with("100", 0, [0, 0]),
            (false, program(0, [0, 0])),
        );
        check("kernel", "S", &with("0", 0, [0, 0]), (false, None));
        check("a) R 9 9 (b", "Z", &with("0", 0, [0, 0]), (true, None));
        check("", "X", "0 0", (true, None));
        for broken in [
            "",
            "7",
            "7 (x",
            "7 (x) S",
            "7 (x) S 1 2 3",
            "seven (x) S 1 2 3",
        ] {
            assert_eq!(Stat::parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn this_process() {
        let stat = Stat::of(me()).unwrap();
        assert_eq!((stat.pid, stat.zombie), (me(), false));
        assert!(pids().contains(&me()));
        assert_eq!(Stat::of(i32::MAX), None);
        assert_ne!(pid_namespace(), "0");
        let path = std::env::var("PATH").unwrap();
        assert_eq!(environment_of(me(), "PATH"), Some(path));
        assert_eq!(environment_of(me(), "PAT"), None);
    }

    #[test]
    fn a_process_has_its_environment_while_it_becomes_another_program() {
        for _ in 0..200 {
            let mut child = std::process::Command::new("/bin/sh")
                .args(["-c", "read go; exec sleep 60"])
                .env("WHOSE", "ours")
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id() as i32;
            let has_become = |name: &str| Stat::of(pid).is_some_and(|stat| stat.name == name);
            while !has_become("sh") || environment_of(pid, "WHOSE").is_none() {}
            // The pipe's end is the line that it waits for.
            drop(child.stdin.take());
            let mut found = Some("ours".to_owned());
            while found.as_deref() == Some("ours") && !has_become("sleep") {
                found = environment_of(pid, "WHOSE");
            }
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found.as_deref(), Some("ours"));
        }
    }

    #[test]
    fn both_ways_to_find_children_agree() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        for children in [Children::Listed, Children::scan(), Children::now()] {
            assert!(children.of(me()).contains(&pid));
            assert!(children.of(pid).is_empty());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
