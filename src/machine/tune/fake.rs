//! A fake machine: a folder that stands for the real `sys`, `proc` and `dev`.
//!
//! Its knobs refuse, clamp, or show their choices in brackets as the kernel's do. Being files, its
//! state survives the process that uses it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SMT_CONTROL;
use crate::base::key::Key;
use crate::base::sample::Ended;
use crate::machine::host::undo::{UndoOp, UndoReply};
use crate::machine::host::{
    Cancel, Command, FileOp, FileReply, Holder, Host, HostError, HostErrorKind, HostFacts, Lock,
    Output, ServiceId, Wait,
};

/// In the root folder, while a file is replaced.
pub const TEMPORARY: &str = ".replacing";
const CGROUP_PROCS: &str = "cgroup.procs";
const CPUS_EFFECTIVE: &str = "cpuset.cpus.effective";

/// How a file differs from one that just holds what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// Writing fails with this kind.
    Refuses(HostErrorKind),
    /// A larger number becomes this one, silently.
    Clamps(i64),
    /// Writing it sets another file to 0, as vm.dirty_bytes does with vm.dirty_ratio; 0 is refused.
    Clears(String),
    /// Larger numbers are invalid.
    AtMost(i64),
    /// Writing it gives other files these values, as choosing an I/O scheduler does with nr_requests.
    Resets(Vec<(String, &'static str)>),
    /// Belongs to the second thread of a core: busy while there is no SMT.
    OfThread,
}

/// A host over a folder. With the folder `/` it is the real machine's files.
pub struct FakeRoot {
    root: PathBuf,
    quirks: BTreeMap<String, Quirk>,
    /// Units that run; `systemctl` works on them.
    units: RefCell<BTreeSet<String>>,
    /// Calls of [`Host::files`] so far: round trips, if it were far away.
    pub batches: Cell<u32>,
    /// All commands that were run or started.
    pub commands: RefCell<Vec<String>>,
    /// Operations until the machine dies: all later ones do nothing and fail.
    pub ops_left: Cell<Option<u32>>,
    /// Operations until one fails because the disk is full; those after it work again.
    pub fails_once: Cell<Option<u32>>,
    services: Cell<u64>,
}

impl FakeRoot {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        FakeRoot {
            root: root.into(),
            quirks: BTreeMap::new(),
            units: RefCell::new(BTreeSet::new()),
            batches: Cell::new(0),
            commands: RefCell::new(Vec::new()),
            ops_left: Cell::new(None),
            fails_once: Cell::new(None),
            services: Cell::new(0),
        }
    }

    pub fn quirk(mut self, path: &str, quirk: Quirk) -> Self {
        self.quirks.insert(path.to_owned(), quirk);
        self
    }

    pub fn unit(self, name: &str) -> Self {
        self.units.borrow_mut().insert(name.to_owned());
        self
    }

    pub fn is_running(&self, unit: &str) -> bool {
        self.units.borrow().contains(unit)
    }

    /// Makes a file with its folders.
    pub fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let real = self.real(Path::new(path));
        if let Some(folder) = real.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(real, text)
    }

    pub fn get(&self, path: &str) -> io::Result<String> {
        fs::read_to_string(self.real(Path::new(path)))
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn file(&self, op: FileOp) -> Result<FileReply, HostError> {
        match self.ops_left.get() {
            Some(0) => return Err(error("the machine is dead", HostErrorKind::Other)),
            left => self.ops_left.set(left.map(|left| left - 1)),
        }
        let fails = self.fails_once.get();
        self.fails_once
            .set(fails.and_then(|left| left.checked_sub(1)));
        if fails == Some(0) {
            return Err(error("No space left on device", HostErrorKind::NoSpace));
        }
        let failed = |path: &Path, error: io::Error| HostError {
            message: format!("{}: {error}", path.display()),
            kind: match error.kind() {
                io::ErrorKind::NotFound => HostErrorKind::NotFound,
                io::ErrorKind::PermissionDenied => HostErrorKind::PermissionDenied,
                _ => HostErrorKind::Other,
            },
        };
        if let FileOp::Read { path, .. } | FileOp::Write { path, .. } = &op {
            self.is_online(path)?;
        }
        match op {
            FileOp::Read { path, bytes_max } => {
                let bytes = read(&self.real(&path), bytes_max).map_err(|e| failed(&path, e))?;
                match bytes.len() > bytes_max {
                    true => Err(error("the file is too large", HostErrorKind::TooLarge)),
                    false => Ok(FileReply::Bytes(bytes)),
                }
            }
            FileOp::Write { path, bytes } => self.write(&path, &bytes).map_err(|error| HostError {
                message: format!("{}: {}", path.display(), error.message),
                ..error
            }),
            FileOp::Replace { path, bytes } => self
                .replace(&self.real(&path), &bytes)
                .map(|()| FileReply::Done)
                .map_err(|e| failed(&path, e)),
            FileOp::Append { path, bytes } => fs::OpenOptions::new()
                .append(true)
                .open(self.real(&path))
                .and_then(|mut file| file.write_all(&bytes))
                .map(|()| FileReply::Done)
                .map_err(|e| failed(&path, e)),
            FileOp::List { path } => names(&self.real(&path)).map_err(|e| failed(&path, e)),
            FileOp::MakeDir { path } => self
                .make_dir(&self.real(&path))
                .map(|()| FileReply::Done)
                .map_err(|e| failed(&path, e)),
            FileOp::Remove { path } => match fs::remove_file(self.real(&path)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&path, e)),
                _ => Ok(FileReply::Done),
            },
            FileOp::Digest { path } => fs::read(self.real(&path))
                .map(|bytes| FileReply::Digest(Key::of(&bytes)))
                .map_err(|e| failed(&path, e)),
            _ => Err(error("the fake cannot do this", HostErrorKind::Other)),
        }
    }

    fn is_online(&self, path: &Path) -> Result<(), HostError> {
        let of_thread = self.quirks.get(&path.display().to_string()) == Some(&Quirk::OfThread);
        match of_thread && self.get(SMT_CONTROL).is_ok_and(|it| it.trim() == "off") {
            true => Err(error("Device or resource busy", HostErrorKind::Busy)),
            false => Ok(()),
        }
    }

    /// Only without processes.
    fn remove_cgroup(&self, real: &Path) -> io::Result<()> {
        match fs::read(real.join(CGROUP_PROCS))?.is_empty() {
            true => fs::remove_dir_all(real),
            false => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }

    /// A folder in a cgroup is a cgroup.
    fn make_dir(&self, real: &Path) -> io::Result<()> {
        fs::create_dir_all(real)?;
        let is_cgroup = |folder: &Path| folder.join(CGROUP_PROCS).exists();
        if !self.is_real() && real.parent().is_some_and(is_cgroup) {
            for file in [CGROUP_PROCS, "cpuset.cpus", CPUS_EFFECTIVE, "cpuset.mems"] {
                fs::write(real.join(file), "")?;
            }
        }
        Ok(())
    }

    /// Writes as the kernel does: only what is there, and in its own way.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<FileReply, HostError> {
        let real = self.real(path);
        let before = read(&real, usize::MAX - 1).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => error("no such file", HostErrorKind::NotFound),
            _ => error(&e.to_string(), HostErrorKind::Other),
        })?;
        let before = String::from_utf8_lossy(&before).into_owned();
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        let quirk = self.quirks.get(&path.display().to_string());
        let invalid = || error("Invalid argument (os error 22)", HostErrorKind::Other);
        // Other files, and what they hold then.
        let others: Vec<(&String, &str)> = match quirk {
            _ if self.is_real() => Vec::new(),
            Some(Quirk::Resets(files)) => {
                files.iter().map(|(path, value)| (path, *value)).collect()
            }
            Some(Quirk::Clears(path)) => vec![(path, "0")],
            _ => Vec::new(),
        };
        let after = match quirk {
            // What its knobs do, the kernel itself does.
            _ if self.is_real() => text,
            Some(Quirk::Refuses(kind)) => return Err(error("the knob refuses", *kind)),
            Some(Quirk::Clamps(max)) => {
                let number: i64 = text.parse().map_err(|_| invalid())?;
                number.min(*max).to_string()
            }
            Some(Quirk::Clears(_)) if text == "0" => return Err(invalid()),
            Some(Quirk::AtMost(max)) if text.parse().is_ok_and(|number: i64| number > *max) => {
                return Err(invalid());
            }
            _ if before.contains('[') => select(&before, &text).ok_or_else(invalid)?,
            _ => text,
        };
        let text = format!("{after}\n");
        let written = match self.is_real() {
            true => fs::OpenOptions::new()
                .write(true)
                .open(&real)
                .and_then(|mut file| file.write_all(text.as_bytes())),
            false => self.replace(&real, text.as_bytes()),
        };
        let of_others = others.into_iter().try_for_each(|(path, value)| {
            self.replace(&self.real(Path::new(path)), format!("{value}\n").as_bytes())
        });
        if path.ends_with("cpuset.cpus") && !self.is_real() {
            let effective = real.with_file_name(CPUS_EFFECTIVE);
            self.replace(&effective, text.as_bytes())
                .map_err(|e| error(&e.to_string(), HostErrorKind::Other))?;
        }
        let done = written.and(of_others).map(|()| FileReply::Done);
        done.map_err(|e| error(&e.to_string(), HostErrorKind::Other))
    }

    /// Whether this is no fake: the kernel itself then does what its knobs do.
    fn is_real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Nobody sees a half-written file, not even after `kill -9`: a knob is never half-written.
    fn replace(&self, real: &Path, bytes: &[u8]) -> io::Result<()> {
        let beside = match self.is_real() {
            true => real.with_extension("new"),
            false => self.root.join(TEMPORARY),
        };
        fs::write(&beside, bytes)?;
        fs::rename(&beside, real)
    }

    fn command(&self, command: &Command) -> Result<Output, HostError> {
        let line = command.argv.join(" ");
        if self.ops_left.get() == Some(0) {
            return Err(error("the machine is dead", HostErrorKind::Other));
        }
        self.commands.borrow_mut().push(line.clone());
        let mut units = self.units.borrow_mut();
        let argv: Vec<&str> = command.argv.iter().map(String::as_str).collect();
        let status = match argv[..] {
            ["sync"] => 0,
            ["rmdir", path] if self.is_real() => i32::from(fs::remove_dir(path).is_err()),
            ["rmdir", path] => i32::from(self.remove_cgroup(&self.real(Path::new(path))).is_err()),
            ["systemctl", "is-active", "--quiet", unit] if units.contains(unit) => 0,
            ["systemctl", "is-active", "--quiet", unit] if unit.starts_with("unknown") => 4,
            ["systemctl", "is-active", ..] => 3,
            ["systemctl", "stop", unit] if unit.starts_with("unstoppable") => 1,
            ["systemctl", "stop", unit] => i32::from(!units.remove(unit)),
            ["systemctl", "start", unit] => i32::from(!units.insert(unit.to_owned())),
            _ => {
                let message = format!("`{line}`: no such program");
                return Err(error(&message, HostErrorKind::NotFound));
            }
        };
        Ok(output(Ended::Exit(status)))
    }
}

fn error(message: &str, kind: HostErrorKind) -> HostError {
    HostError {
        message: message.to_owned(),
        kind,
    }
}

fn output(ended: Ended) -> Output {
    Output {
        ended,
        stdout: Vec::new(),
        stderr: Vec::new(),
        truncated: false,
        duration: Duration::ZERO,
        leftovers: Vec::new(),
        was_paused: false,
    }
}

/// One byte more than the limit where there is more.
fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limited = fs::File::open(path)?.take(bytes_max as u64 + 1);
    { limited }.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn names(path: &Path) -> io::Result<FileReply> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(FileReply::Names(names))
}

/// `always [madvise] never` with the brackets at another word; None where there is no such word.
fn select(choices: &str, wanted: &str) -> Option<String> {
    let words = choices.split_whitespace();
    let words: Vec<&str> = words.map(|word| word.trim_matches(['[', ']'])).collect();
    words.contains(&wanted).then(|| {
        let words = words.iter().map(|word| match *word == wanted {
            true => format!("[{word}]"),
            false => word.to_string(),
        });
        words.collect::<Vec<_>>().join(" ")
    })
}

impl Host for FakeRoot {
    fn name(&self) -> &str {
        "fake"
    }

    fn facts(&self) -> Wait<'_, Result<HostFacts, HostError>> {
        Box::pin(async {
            Ok(HostFacts {
                cpus: 1,
                is_root: true,
                ..HostFacts::default()
            })
        })
    }

    fn files(&self, ops: Vec<FileOp>) -> Wait<'_, Vec<Result<FileReply, HostError>>> {
        self.batches.set(self.batches.get() + 1);
        Box::pin(async move { ops.into_iter().map(|op| self.file(op)).collect() })
    }

    fn run(&self, command: Command, _: Cancel) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move { self.command(&command) })
    }

    /// Carries out the holding of /dev/cpu_dma_latency; the number written is what it reads as.
    fn start(&self, command: Command) -> Wait<'_, Result<ServiceId, HostError>> {
        Box::pin(async move {
            self.commands.borrow_mut().push(command.argv.join(" "));
            if let [.., path, us] = &command.argv[..] {
                let us: i32 = us.parse().unwrap_or(0);
                fs::write(self.real(Path::new(path)), us.to_le_bytes())
                    .map_err(|e| error(&e.to_string(), HostErrorKind::Other))?;
            }
            self.services.set(self.services.get() + 1);
            Ok(ServiceId(self.services.get()))
        })
    }

    fn ended(&self, _: ServiceId) -> Wait<'_, Option<Output>> {
        Box::pin(async { None })
    }

    fn stop(&self, service: ServiceId) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move {
            self.commands
                .borrow_mut()
                .push(format!("stop {}", service.0));
            Ok(output(Ended::Signal(15)))
        })
    }

    fn lock<'a>(
        &'a self,
        _: Holder,
        _: &'a dyn Fn(&str),
        _: Cancel,
    ) -> Wait<'a, Result<Lock, HostError>> {
        Box::pin(async { Ok(Lock(Box::new(()))) })
    }

    fn clean(&self) -> Wait<'_, Result<Vec<String>, HostError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn undo(&self, _: UndoOp) -> Wait<'_, Result<UndoReply, HostError>> {
        Box::pin(async { Ok(UndoReply::Setups(Vec::new())) })
    }
}
