//! Owns reading `/proc`: who a process is, whose child it is, which environment it was given.
//! Does not know which processes belong to a step.

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
    /// It has a program, which is not known to have an empty environment.
    may_have_environment: bool,
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
            may_have_environment: match (fields.get(20), fields.get(47..49)) {
                // No memory: a kernel thread, or one that has ended.
                (None | Some(&"0"), _) | (_, None) => false,
                // Both ends are 0 while the process is becoming another program.
                (_, Some(ends)) => ends[0] != ends[1] || ends[1] == "0",
            },
        })
    }
}

/// The value of a variable in the environment that a process was started with. None when it has
/// none, has ended, overwrote its environment, or belongs to another user.
///
/// While a process becomes another program it seems to have no environment. Whoever takes it for a stranger
/// then leaves it behind: so this waits for it.
pub fn environment_of(pid: i32, variable: &str) -> Option<String> {
    let path = format!("/proc/{pid}/environ");
    let give_up = Instant::now() + EXEC_TIME_MAX;
    let mut environ = read(&path, ENVIRON_BYTES_MAX).ok()?;
    while environ.is_empty()
        && Stat::of(pid).is_some_and(|stat| stat.may_have_environment)
        && Instant::now() < give_up
    {
        std::thread::sleep(EXEC_PAUSE);
        environ = read(&path, ENVIRON_BYTES_MAX).ok()?;
    }
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry
            .strip_prefix(variable.as_bytes())?
            .strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
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
        let check = |name: &str, state: &str, memory: &str, expected: (bool, bool)| {
            let (zombie, may_have_environment) = expected;
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
                may_have_environment,
            };
            assert_eq!(Stat::parse(&line), Some(expected), "{line}");
        };
        let with_ends = |size: &str, ends: &str| format!("{size} 9{} {ends} 0", " 0".repeat(25));
        check("fio", "S", &with_ends("100", "5 8"), (false, true));
        check("emptied", "S", &with_ends("100", "8 8"), (false, false));
        check("becoming", "S", &with_ends("100", "0 0"), (false, true));
        check("kernel", "S", &with_ends("0", "0 0"), (false, false));
        check("old", "S", "100 9", (false, false));
        check("a) R 9 9 (b", "Z", &with_ends("0", "0 0"), (true, false));
        check("", "X", &with_ends("0", "0 0"), (true, false));
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
    fn the_environment_of_a_program_that_is_just_being_started() {
        for _ in 0..300 {
            // Returns when the kernel has let go of our memory, before the new program is in place.
            let mut child = std::process::Command::new("/bin/sleep")
                .arg("60")
                .env("WHOSE", "ours")
                .spawn()
                .unwrap();
            let found = environment_of(child.id() as i32, "WHOSE");
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
