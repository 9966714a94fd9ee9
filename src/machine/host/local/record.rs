//! The record of what a `matrix` has started, kept where a kill leaves it: a cgroup where one can be made, else a list of processes.
//!
//! A process can drop or overwrite its environment, leave its group and session, and lose its parent. It cannot leave
//! its cgroup unless it may write there, and a list names it by its number and its start.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::proc::{self, Children, Stat};
use super::tree::Owner;

/// In a machine's state folder: a file for each `matrix` that has the machine, or died with it.
const FOLDER: &str = "running";
/// What is read of a record: the list of some hundred thousand processes.
const RECORD_BYTES_MAX: u64 = 8 << 20;
/// Records that are read.
const RECORDS_MAX: usize = 1000;
/// A list is written anew when it has grown to this.
const LIST_BYTES_MAX: u64 = 256 << 10;
/// Before the owner's name. That of a profile's cpuset has a number alone.
const CGROUP_PREFIX: &str = "matrix-";
const LINE_BYTES_MAX: u64 = 64;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Processes of one cgroup that are read.
const PROCS_BYTES_MAX: u64 = 8 << 20;
/// Cgroups within a cgroup that are looked into: what is started may make some.
const CGROUP_DEPTH_MAX: usize = 8;
/// Version 1 has a hierarchy for each controller; all do as well. The first that lets us is taken.
const HIERARCHIES: [&str; 4] = ["", "pids", "freezer", "name=systemd"];

/// What this process keeps, however many of its hosts have a lock.
struct Recordings {
    /// How often each file was asked for.
    files: BTreeMap<PathBuf, u32>,
    /// Where all that we start is from its first moment on.
    cgroup: Option<PathBuf>,
}

fn recordings() -> MutexGuard<'static, Recordings> {
    static RECORDINGS: Mutex<Recordings> = Mutex::new(Recordings {
        files: BTreeMap::new(),
        cgroup: None,
    });
    RECORDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it is kept, what this process starts is recorded.
#[derive(Debug)]
pub struct Recording(PathBuf);

impl Recording {
    /// Begins the record in a machine's state folder. Where nothing can be written there, processes are known
    /// by their environment alone, as without a record.
    pub fn begin(state: &Path, owner: &Owner) -> Recording {
        let file = state.join(FOLDER).join(owner.file_name());
        let mut all = recordings();
        if all.files.is_empty() {
            all.cgroup = make_cgroup(&format!("{CGROUP_PREFIX}{}", owner.file_name()));
        }
        let count = all.files.entry(file.clone()).or_default();
        *count += 1;
        if *count == 1 {
            let text = Record::head(owner, all.cgroup.as_deref());
            // See above.
            let _ = write_new(&file, &text);
        }
        Recording(file)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut all = recordings();
        let is_last = all.files.get_mut(&self.0).is_none_or(|count| {
            *count -= 1;
            *count == 0
        });
        if !is_last {
            return;
        }
        all.files.remove(&self.0);
        let is_empty = match all.files.is_empty() {
            true => all.cgroup.take().is_none_or(|cgroup| leave(&cgroup)),
            false => true,
        };
        // What could not be ended stays on record.
        if is_empty {
            let _ = fs::remove_file(&self.0);
        }
    }
}

/// Notes a process that was just started, where no cgroup holds it; and with it orphans that have come to us
/// since the last one.
pub fn started(pid: u32) {
    let all = recordings();
    if all.files.is_empty() || all.cgroup.is_some() {
        return;
    }
    let mut pids = Children::now().of(std::process::id() as i32);
    pids.push(pid as i32);
    pids.dedup();
    let lines: String = pids.iter().filter_map(|pid| line_of(*pid)).collect();
    for file in all.files.keys() {
        // Fails where the record could not be begun.
        let _ = append(file, &lines);
    }
}

fn line_of(pid: i32) -> Option<String> {
    let stat = Stat::of(pid)?;
    Some(format!("process {pid} {}\n", stat.start))
}

/// Of a list that has grown, only the living stay.
fn append(file: &Path, lines: &str) -> io::Result<()> {
    let mut open = OpenOptions::new().append(true).open(file)?;
    if open.metadata()?.len() < LIST_BYTES_MAX {
        return open.write_all(lines.as_bytes());
    }
    let text = read(file, RECORD_BYTES_MAX)?;
    let lives = |line: &&str| match process_of(line) {
        Some((pid, start)) => Stat::of(pid).is_some_and(|stat| stat.start == start),
        None => true,
    };
    let left: Vec<&str> = text.lines().filter(lives).collect();
    write_new(file, &format!("{}\n{lines}", left.join("\n")))
}

/// What a `matrix` that is gone has left on record.
pub struct Record {
    /// None where only its cgroup was found.
    file: Option<PathBuf>,
    pub owner: Owner,
    cgroup: Option<PathBuf>,
    /// Number and start.
    processes: Vec<(i32, u64)>,
}

impl Record {
    fn head(owner: &Owner, cgroup: Option<&Path>) -> String {
        let mut text = format!("owner {owner}\nboot {}\n", boot_id());
        if let Some(cgroup) = cgroup {
            text += &format!("cgroup {}\n", cgroup.display());
        }
        text
    }

    /// None of one that is damaged, or written before the last boot.
    fn parse(file: &Path, text: &str, boot: &str) -> Option<Record> {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        };
        if value("boot")? != boot {
            return None;
        }
        Some(Record {
            file: Some(file.to_owned()),
            owner: Owner::parse(value("owner")?)?,
            cgroup: value("cgroup").map(PathBuf::from),
            processes: text.lines().filter_map(process_of).collect(),
        })
    }

    /// Those in the cgroup; else the listed ones, and what is in a group or session that one of them has made.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = match &self.cgroup {
            Some(cgroup) => pids_in(cgroup, CGROUP_DEPTH_MAX),
            None => Vec::new(),
        };
        if self.processes.is_empty() {
            return pids;
        }
        let started: BTreeMap<i32, u64> = self.processes.iter().copied().collect();
        let stats: Vec<Stat> = proc::pids().into_iter().filter_map(Stat::of).collect();
        // While a number names a group or a session, no new process gets it. So a living leader that began
        // at another time says that the group is a later one.
        let is_of_them = |leader: i32, start: u64| match started.get(&leader) {
            None => false,
            Some(began) => stats
                .iter()
                .find(|stat| stat.pid == leader)
                .map_or(start >= *began, |stat| stat.start == *began),
        };
        let found = stats.iter().filter(|stat| {
            self.processes.contains(&(stat.pid, stat.start))
                || [stat.group, stat.session]
                    .iter()
                    .any(|leader| is_of_them(*leader, stat.start))
        });
        pids.extend(found.map(|stat| stat.pid));
        pids
    }

    /// All is ended: the record goes, and its cgroup.
    pub fn remove(self) {
        if let Some(cgroup) = &self.cgroup {
            remove_cgroup(cgroup, CGROUP_DEPTH_MAX);
        }
        if let Some(file) = &self.file {
            // Tried again by the next one.
            let _ = fs::remove_file(file);
        }
    }
}

fn process_of(line: &str) -> Option<(i32, u64)> {
    let (pid, start) = line.strip_prefix("process ")?.split_once(' ')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// The records of this pid namespace whose `matrix` is gone: those in the folder, and the cgroups beside ours, whose
/// records may be gone with their folder.
pub fn dead(state: &Path, namespace: &str) -> Vec<Record> {
    let boot = boot_id();
    let mut records = Vec::new();
    let entries = fs::read_dir(state.join(FOLDER)).into_iter().flatten();
    for entry in entries.filter_map(Result::ok).take(RECORDS_MAX) {
        let file = entry.path();
        let text = read(&file, RECORD_BYTES_MAX).unwrap_or_default();
        match Record::parse(&file, &text, &boot) {
            Some(record) => records.push(record),
            // Nothing of it can be found again.
            None => drop(fs::remove_file(&file)),
        }
    }
    let own = recordings().cgroup.clone();
    let beside = own.as_deref().and_then(Path::parent).map(cgroups_in);
    for cgroup in beside.into_iter().flatten().take(RECORDS_MAX) {
        let name = cgroup.file_name().and_then(|name| name.to_str());
        let owner = name.and_then(|name| name.strip_prefix(CGROUP_PREFIX));
        records.extend(owner.and_then(Owner::parse_file_name).map(|owner| Record {
            file: None,
            owner,
            cgroup: Some(cgroup),
            processes: Vec::new(),
        }));
    }
    records.retain(|record| record.owner.namespace == namespace && !record.owner.is_alive());
    records
}

/// Makes a cgroup below our own and goes there. None where that is not allowed.
fn make_cgroup(name: &str) -> Option<PathBuf> {
    let own = read(Path::new("/proc/self/cgroup"), 64 << 10).ok()?;
    let mounts = read(Path::new("/proc/self/mountinfo"), 1 << 20).ok()?;
    HIERARCHIES.into_iter().find_map(|hierarchy| {
        let folder = own_folder(hierarchy, &own, &mounts)?.join(name);
        // One of this name is of a process that had our number and start: of another boot, or namespace.
        fs::create_dir(&folder).ok()?;
        let entered = enter(&folder);
        if entered.is_err() {
            // Empty: we could not go there.
            let _ = fs::remove_dir(&folder);
        }
        entered.ok().map(|()| folder)
    })
}

/// The folder of our cgroup in a hierarchy, `""` for that of version 2 (cgroups(7)).
fn own_folder(hierarchy: &str, own: &str, mounts: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        (controllers == hierarchy).then_some(path)
    })?;
    let mount = mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let is_it = match hierarchy {
            "" => kind == "cgroup2",
            _ => kind == "cgroup" && options.split(',').any(|it| it == hierarchy),
        };
        is_it.then_some((root, point))
    })?;
    let (root, point) = mount;
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

/// 0 is who writes it. Err where the folder is none of a cgroup.
fn enter(cgroup: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .open(cgroup.join("cgroup.procs"))?;
    file.write_all(b"0")
}

/// Goes back to the cgroup above and removes this one. Returns whether nothing was left in it.
fn leave(cgroup: &Path) -> bool {
    // Where we may not go back, the next `matrix` removes it.
    let _ = cgroup.parent().map(enter);
    remove_cgroup(cgroup, CGROUP_DEPTH_MAX);
    !cgroup.exists()
}

fn cgroups_in(cgroup: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(cgroup) else {
        return Vec::new();
    };
    let entries = entries.filter_map(Result::ok);
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn pids_in(cgroup: &Path, depth_left: usize) -> Vec<i32> {
    let text = read(&cgroup.join("cgroup.procs"), PROCS_BYTES_MAX).unwrap_or_default();
    let mut pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    if depth_left > 0 {
        for below in cgroups_in(cgroup) {
            pids.extend(pids_in(&below, depth_left - 1));
        }
    }
    pids
}

fn remove_cgroup(cgroup: &Path, depth_left: usize) {
    if depth_left > 0 {
        for below in cgroups_in(cgroup) {
            remove_cgroup(&below, depth_left - 1);
        }
    }
    // Fails while there are processes in it.
    let _ = fs::remove_dir(cgroup);
}

/// A file that only its owner reads; the folder is made.
fn write_new(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        let mut make = DirBuilder::new();
        make.recursive(true).mode(0o700).create(folder)?;
    }
    let mut open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?;
    open.write_all(text.as_bytes())
}

/// The kernel's id of this boot.
pub fn boot_id() -> String {
    one_line(Path::new(BOOT_ID))
}

/// A short file's text without its end of line; empty where there is none.
pub fn one_line(file: &Path) -> String {
    let text = read(file, LINE_BYTES_MAX).unwrap_or_default();
    text.trim().to_owned()
}

fn read(file: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?
        .take(bytes_max)
        .read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_our_cgroup_is() {
        let own = "8:pids:/a\n5:cpu,cpuacct:/\n1:name=systemd:/user/b\n0::/user.slice/c\n";
        let mounts = "31 24 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
             32 24 0:28 /a /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             33 24 0:29 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd\n";
        let check = |hierarchy: &str, expected: Option<&str>| {
            let found = own_folder(hierarchy, own, mounts);
            assert_eq!(found, expected.map(PathBuf::from), "{hierarchy}");
        };
        check("", Some("/sys/fs/cgroup/unified/user.slice/c"));
        check("pids", Some("/sys/fs/cgroup/pids/"));
        check("name=systemd", Some("/sys/fs/cgroup/systemd/user/b"));
        check("freezer", None);
        assert_eq!(own_folder("", "0::/", ""), None);
    }

    #[test]
    fn records_of_this_boot_are_read() {
        type Read<'a> = (&'a str, Option<&'a str>, Vec<(i32, u64)>);
        let check = |text: &str, expected: Option<Read>| {
            let found = Record::parse(Path::new("/r"), text, "b-1");
            let found = found.map(|it| (it.owner.to_string(), it.cgroup, it.processes));
            let expected = expected.map(|(owner, cgroup, processes)| {
                (owner.to_owned(), cgroup.map(PathBuf::from), processes)
            });
            assert_eq!(found, expected, "{text}");
        };
        check(
            "owner 7:8:9\nboot b-1\ncgroup /c g\n",
            Some(("7:8:9", Some("/c g"), vec![])),
        );
        check(
            "owner 7:8:9\nboot b-1\nprocess 1 2\nprocess 3 4\nprocess 5",
            Some(("7:8:9", None, vec![(1, 2), (3, 4)])),
        );
        check("owner 7:8:9\nboot b-2\n", None);
        check("owner 7\nboot b-1\n", None);
        check("", None);
    }

    #[test]
    fn a_list_finds_what_its_processes_have_started() {
        let mut child = std::process::Command::new("setsid")
            .args(["-f", "env", "-i", "sh", "-c", "echo $$; exec sleep 600"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = io::BufReader::new(child.stdout.take().unwrap());
        io::BufRead::read_line(&mut said, &mut line).unwrap();
        child.wait().unwrap();
        let pid: i32 = line.trim().parse().unwrap();
        let stat = Stat::of(pid).unwrap();
        let record = |processes| Record {
            file: None,
            owner: Owner::this().unwrap(),
            cgroup: None,
            processes,
        };
        let finds = |processes| record(processes).pids().contains(&pid);
        assert!(finds(vec![(pid, stat.start)]));
        assert!(!finds(vec![(pid, stat.start + 1)]));
        assert!(!finds(vec![]));
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
