//! A host that runs nothing: scripted answers, files in memory, and a log of what was asked.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::undo::{NotedSetup, UndoId, UndoOp, UndoReply};
use super::{
    Cancel, Command, FileFacts, FileOp, FileReply, Holder, Host, HostError, HostErrorKind,
    HostFacts, JournalPlace, Lock, MachineIdentity, Output, ServiceId, Wait,
};
use crate::base::key::Key;
use crate::base::sample::Ended;

/// What a command answers.
type FakeAnswer = Box<dyn Fn(&Command) -> Result<Output, HostError>>;

/// What goes wrong with an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// It is not done.
    Refused(HostError),
    /// It is done, but its answer is lost.
    LostAnswer(HostError),
}

/// What an operation, by its line in the log, takes, and what goes wrong with it.
type FakeFaults = Box<dyn Fn(&str) -> (Duration, Option<HostFault>)>;

/// For tests and dry runs. Services run until they are stopped or cleaned, the lock is always free.
pub struct FakeHost {
    name: String,
    answer: FakeAnswer,
    faults: FakeFaults,
    files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    /// Folders that were made; those of files are there without.
    folders: RefCell<BTreeSet<PathBuf>>,
    /// Something is mounted there: they cannot be removed.
    mounted: RefCell<BTreeSet<PathBuf>>,
    log: RefCell<Vec<String>>,
    services: RefCell<BTreeSet<ServiceId>>,
    services_started: Cell<u64>,
    setups: RefCell<Vec<NotedSetup>>,
}

impl FakeHost {
    /// `answer` is asked what each command of [`Host::run`] prints and how it ends.
    pub fn new(
        name: impl Into<String>,
        answer: impl Fn(&Command) -> Result<Output, HostError> + 'static,
    ) -> FakeHost {
        FakeHost {
            name: name.into(),
            answer: Box::new(answer),
            faults: Box::new(|_| (Duration::ZERO, None)),
            files: RefCell::default(),
            folders: RefCell::default(),
            mounted: RefCell::default(),
            log: RefCell::default(),
            services: RefCell::default(),
            services_started: Cell::new(0),
            setups: RefCell::default(),
        }
    }

    /// Puts a file there, or replaces it.
    pub fn with_file(self, path: impl Into<PathBuf>, bytes: impl Into<Vec<u8>>) -> FakeHost {
        self.files.borrow_mut().insert(path.into(), bytes.into());
        self
    }

    /// `faults` is asked, with its line in the log, how long each operation that changes anything takes and what goes
    /// wrong with it. Time is that of the runtime.
    pub fn with_faults(
        self,
        faults: impl Fn(&str) -> (Duration, Option<HostFault>) + 'static,
    ) -> FakeHost {
        FakeHost {
            faults: Box::new(faults),
            ..self
        }
    }

    /// Mounts something on a folder, or takes it away; false where that is so already.
    pub fn mount(&self, path: &Path, is_mounted: bool) -> bool {
        let mut mounted = self.mounted.borrow_mut();
        match is_mounted {
            true => mounted.insert(path.to_owned()),
            false => mounted.remove(path),
        }
    }

    /// What is mounted, and the number of services that run.
    pub fn left(&self) -> (Vec<PathBuf>, usize) {
        let mounted = self.mounted.borrow().iter().cloned().collect();
        (mounted, self.services.borrow().len())
    }

    /// Lets an operation take its time, carries it out and answers, but for what goes wrong.
    async fn with_fault<T>(
        &self,
        line: &str,
        does: impl FnOnce() -> Result<T, HostError>,
    ) -> Result<T, HostError> {
        let (takes, fault) = (self.faults)(line);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        match fault {
            None => does(),
            Some(HostFault::Refused(error)) => Err(error),
            Some(HostFault::LostAnswer(error)) => {
                let _ = does();
                Err(error)
            }
        }
    }

    pub fn file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.files.borrow().get(path.as_ref()).cloned()
    }

    /// What was asked, in order: `run …`, `start 0 …`, `stop 0`, `write PATH`, `remove PATH`,
    /// `lock PURPOSE`, `clean`. Reading is not noted.
    pub fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    fn note(&self, line: String) {
        self.log.borrow_mut().push(line);
    }

    fn undo_at_once(&self, op: UndoOp) -> Result<UndoReply, HostError> {
        let mut setups = self.setups.borrow_mut();
        match op {
            UndoOp::Begin(undo) => {
                let id = UndoId(setups.last().map_or(0, |last| last.id.0 + 1));
                setups.push(NotedSetup {
                    id,
                    undo,
                    is_of_this_boot: true,
                    steps: Vec::new(),
                });
                return Ok(UndoReply::Begun(id));
            }
            UndoOp::Note(id, step) => {
                let setup = setups.iter_mut().find(|setup| setup.id == id);
                setup.into_iter().for_each(|setup| setup.steps.push(step));
            }
            UndoOp::End(id) => setups.retain(|setup| setup.id != id),
            UndoOp::List => return Ok(UndoReply::Setups(setups.iter().rev().cloned().collect())),
        }
        Ok(UndoReply::Done)
    }

    fn carry_out(&self, op: FileOp) -> Result<FileReply, HostError> {
        let mut files = self.files.borrow_mut();
        let missing = |path: &Path| {
            let message = format!("cannot read `{}`: no such file", path.display());
            HostError::new(HostErrorKind::NotFound, message)
        };
        match op {
            FileOp::Read { path, bytes_max } => {
                let bytes = files.get(&path).ok_or_else(|| missing(&path))?;
                if bytes.len() > bytes_max {
                    let message = format!("`{}` is larger than {bytes_max} bytes", path.display());
                    return Err(HostError::new(HostErrorKind::TooLarge, message));
                }
                Ok(FileReply::Bytes(bytes.clone()))
            }
            FileOp::Write { path, .. } if !files.contains_key(&path) => Err(missing(&path)),
            FileOp::Write { path, bytes } | FileOp::Replace { path, bytes } => {
                self.note(format!("write {}", path.display()));
                files.insert(path, bytes);
                Ok(FileReply::Done)
            }
            FileOp::Append { path, bytes } => {
                let file = files.get_mut(&path).ok_or_else(|| missing(&path))?;
                file.extend(bytes);
                Ok(FileReply::Done)
            }
            FileOp::List { path } => {
                let is_there = self.folders.borrow().contains(&path)
                    || files.keys().any(|file| file.starts_with(&path));
                if !is_there {
                    return Err(missing(&path));
                }
                let below = files
                    .keys()
                    .filter_map(|file| file.strip_prefix(&path).ok());
                let first = below.filter_map(|rest| rest.components().next());
                let folders = self.folders.borrow();
                let folders = folders.iter().filter_map(|it| it.strip_prefix(&path).ok());
                let first = first.chain(folders.filter_map(|rest| rest.components().next()));
                let names: BTreeSet<String> = first
                    .map(|name| name.as_os_str().to_string_lossy().into_owned())
                    .collect();
                Ok(FileReply::Names(names.into_iter().collect()))
            }
            FileOp::Remove { path } => {
                self.note(format!("remove {}", path.display()));
                let mut mounted = self.mounted.borrow().clone().into_iter();
                if let Some(busy) = mounted.find(|mounted| mounted.starts_with(&path)) {
                    let message = format!("cannot remove `{}`: busy", busy.display());
                    return Err(HostError::new(HostErrorKind::Busy, message));
                }
                let mut folders = self.folders.borrow_mut();
                folders.retain(|folder| !folder.starts_with(&path));
                files.retain(|file, _| !file.starts_with(&path));
                Ok(FileReply::Done)
            }
            FileOp::MakeDir { path } => {
                self.folders.borrow_mut().insert(path);
                Ok(FileReply::Done)
            }
            FileOp::Link { path, target } => {
                self.note(format!("link {} {}", path.display(), target.display()));
                Ok(FileReply::Done)
            }
            FileOp::Which { program } => Ok(FileReply::Path(Path::new("/usr/bin").join(program))),
            FileOp::ReadAt {
                path,
                offset,
                bytes_max,
            } => {
                let bytes = files.get(&path).ok_or_else(|| missing(&path))?;
                let rest = bytes.get(offset as usize..).unwrap_or_default();
                Ok(FileReply::Bytes(rest[..rest.len().min(bytes_max)].to_vec()))
            }
            FileOp::Facts { path } => {
                let bytes = files.get(&path).map(Vec::len);
                let is_folder = files
                    .keys()
                    .any(|file| file != &path && file.starts_with(&path));
                if bytes.is_none() && !is_folder {
                    return Err(missing(&path));
                }
                Ok(FileReply::Facts(FileFacts {
                    is_file: bytes.is_some(),
                    is_folder,
                    bytes: bytes.unwrap_or(0) as u64,
                    modified_ms: 0,
                }))
            }
            FileOp::Resolve { path } => Ok(FileReply::Path(path)),
            FileOp::Rename { from, to } => {
                self.note(format!("rename {} {}", from.display(), to.display()));
                let moved: Vec<PathBuf> = files
                    .keys()
                    .filter(|file| file.starts_with(&from))
                    .cloned()
                    .collect();
                if moved.is_empty() {
                    return Err(missing(&from));
                }
                for path in moved {
                    let rest = path.strip_prefix(&from).unwrap_or(Path::new("")).to_owned();
                    let new = match rest.as_os_str().is_empty() {
                        true => to.clone(),
                        false => to.join(rest),
                    };
                    if let Some(bytes) = files.remove(&path) {
                        files.insert(new, bytes);
                    }
                }
                Ok(FileReply::Done)
            }
            FileOp::KeepArtifact {
                from,
                files: names,
                into,
                ..
            } => {
                let mut hasher = blake3::Hasher::new();
                let mut contents = Vec::new();
                for name in names {
                    let path = from.join(&name);
                    let bytes = files.get(&path).ok_or_else(|| missing(&path))?.clone();
                    hasher.update(name.as_bytes());
                    hasher.update(&bytes);
                    contents.push((path.file_name().unwrap_or_default().to_owned(), bytes));
                }
                let mut key = [0; 16];
                key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
                let folder = into.join(Key(key).to_string());
                self.note(format!("keep {}", folder.display()));
                files.extend(
                    contents
                        .into_iter()
                        .map(|(name, bytes)| (folder.join(name), bytes)),
                );
                Ok(FileReply::Digest(Key(key)))
            }
            FileOp::Digest { path } => {
                let bytes = files.get(&path).ok_or_else(|| missing(&path))?;
                let mut key = [0; 16];
                key.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
                Ok(FileReply::Digest(Key(key)))
            }
        }
    }
}

/// A command that printed `stdout` and ended well, at once.
pub fn printed(stdout: impl Into<Vec<u8>>) -> Output {
    Output {
        ended: Ended::Exit(0),
        stdout: stdout.into(),
        stderr: Vec::new(),
        truncated: false,
        duration: Duration::ZERO,
        leftovers: Vec::new(),
        was_paused: false,
    }
}

impl Host for FakeHost {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> Wait<'_, Result<HostFacts, HostError>> {
        Box::pin(async {
            Ok(HostFacts {
                cpus: 1,
                is_root: false,
                state: None,
                identity: MachineIdentity {
                    machine_id: self.name.clone(),
                    ..MachineIdentity::default()
                },
                journal: JournalPlace {
                    own: "/var/lib/matrix/profile.json".into(),
                    of_root: None,
                },
                pid: 1,
            })
        })
    }

    fn files(&self, ops: Vec<FileOp>) -> Wait<'_, Vec<Result<FileReply, HostError>>> {
        Box::pin(async move {
            let mut replies = Vec::new();
            for op in ops {
                let line = match &op {
                    FileOp::Write { path, .. } | FileOp::Replace { path, .. } => {
                        Some(format!("write {}", path.display()))
                    }
                    FileOp::MakeDir { path } => Some(format!("make {}", path.display())),
                    FileOp::Remove { path } => Some(format!("remove {}", path.display())),
                    _ => None,
                };
                replies.push(match line {
                    Some(line) => self.with_fault(&line, || self.carry_out(op)).await,
                    None => self.carry_out(op),
                });
            }
            replies
        })
    }

    fn run(&self, command: Command, cancel: Cancel) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move {
            let line = format!("run {}", command.argv.join(" "));
            self.note(line.clone());
            if cancel.is_cancelled() {
                let ended = Ended::Interrupted;
                return Ok(Output {
                    ended,
                    ..printed("")
                });
            }
            let mut cancel = cancel;
            tokio::select! {
                biased;
                output = self.with_fault(&line, || (self.answer)(&command)) => output,
                () = cancel.cancelled() => Ok(Output {
                    ended: Ended::Interrupted,
                    ..printed("")
                }),
            }
        })
    }

    fn start(&self, command: Command) -> Wait<'_, Result<ServiceId, HostError>> {
        Box::pin(async move {
            let id = ServiceId(self.services_started.get());
            self.services_started.set(id.0 + 1);
            let line = format!("start {} {}", id.0, command.argv.join(" "));
            self.note(line.clone());
            let start = || {
                self.services.borrow_mut().insert(id);
                Ok(id)
            };
            self.with_fault(&line, start).await
        })
    }

    fn ended(&self, _service: ServiceId) -> Wait<'_, Option<Output>> {
        Box::pin(async { None })
    }

    fn stop(&self, service: ServiceId) -> Wait<'_, Result<Output, HostError>> {
        Box::pin(async move {
            let stop = || {
                if !self.services.borrow_mut().remove(&service) {
                    let message = format!("`{}` has no service {}", self.name, service.0);
                    return Err(HostError::new(HostErrorKind::NotFound, message));
                }
                self.note(format!("stop {}", service.0));
                Ok(Output {
                    ended: Ended::Signal(15),
                    ..printed("")
                })
            };
            self.with_fault(&format!("stop {}", service.0), stop).await
        })
    }

    fn lock<'a>(
        &'a self,
        holder: Holder,
        _on_wait: &'a dyn Fn(&str),
        _cancel: Cancel,
    ) -> Wait<'a, Result<Lock, HostError>> {
        Box::pin(async move {
            self.note(format!("lock {}", holder.purpose));
            Ok(Lock(Box::new(())))
        })
    }

    fn clean(&self) -> Wait<'_, Result<Vec<String>, HostError>> {
        Box::pin(async move {
            self.note("clean".to_owned());
            let left = std::mem::take(&mut *self.services.borrow_mut());
            let ended = left.into_iter().map(|id| format!("service {}", id.0));
            Ok(ended.collect())
        })
    }

    fn undo(&self, op: UndoOp) -> Wait<'_, Result<UndoReply, HostError>> {
        Box::pin(async move {
            let line = match &op {
                UndoOp::List => return self.undo_at_once(op),
                UndoOp::Begin(_) => "begin",
                UndoOp::Note(..) => "note",
                UndoOp::End(_) => "end",
            };
            self.with_fault(line, || self.undo_at_once(op)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn files_services_and_the_log() {
        let host = FakeHost::new("fake", |command| Ok(printed(command.argv[0].clone())))
            .with_file("/sys/a/knob", "1");
        let command = |program: &str| Command {
            argv: vec![program.to_owned()],
            dir: "/".into(),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout: Duration::from_secs(1),
            output_bytes_max: 1,
        };
        let write = |path: &str| FileOp::Write {
            path: path.into(),
            bytes: b"2".to_vec(),
        };
        let list = FileOp::List {
            path: "/sys".into(),
        };
        let replies = host
            .files(vec![write("/sys/a/knob"), write("/none"), list])
            .await;
        assert_eq!(replies[0], Ok(FileReply::Done));
        assert_eq!(
            replies[1].clone().unwrap_err().kind,
            HostErrorKind::NotFound
        );
        assert_eq!(replies[2], Ok(FileReply::Names(vec!["a".to_owned()])));
        assert_eq!(host.file("/sys/a/knob"), Some(b"2".to_vec()));
        let output = host.run(command("fio"), Cancel::never()).await;
        assert_eq!(output, Ok(printed("fio")));
        let service = host.start(command("nbd")).await.unwrap();
        assert_eq!(host.stop(service).await.unwrap().ended, Ended::Signal(15));
        assert!(host.stop(service).await.is_err());
        assert_eq!(
            host.log(),
            ["write /sys/a/knob", "run fio", "start 0 nbd", "stop 0"]
        );
    }
}
