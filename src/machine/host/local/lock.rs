//! The machine's lock: one file, locked by one process at a time.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::machine::host::{Cancel, Holder, HostError, HostErrorKind};

const POLL_MIN: Duration = Duration::from_millis(100);
const POLL_MAX: Duration = Duration::from_secs(1);
/// What a holder says of itself.
const HOLDER_BYTES_MAX: u64 = 4 << 10;
const OTHERS_MAY_WRITE: u32 = 0o002;

/// One file for all users. So the choice must not depend on who asks: `/run/lock` is taken where
/// everybody may write to it, not where we may.
pub fn path_default() -> PathBuf {
    let everybody = |folder: &&str| {
        fs::metadata(folder).is_ok_and(|it| it.permissions().mode() & OTHERS_MAY_WRITE != 0)
    };
    let folder = Some("/run/lock").filter(everybody).unwrap_or("/tmp");
    Path::new(folder).join("matrix.lock")
}

/// Waits until the lock is ours. `flock` is given back by the kernel when the process dies,
/// however it dies; children do not inherit the descriptor.
pub async fn take(
    path: &Path,
    holder: Holder,
    on_wait: &dyn Fn(&str),
    mut cancel: Cancel,
) -> Result<LockedFile, HostError> {
    let mut pause = POLL_MIN;
    let mut told: Option<String> = None;
    loop {
        if cancel.is_cancelled() {
            let message = format!("stopped while waiting for the lock `{}`", path.display());
            return Err(HostError::new(HostErrorKind::Cancelled, message));
        }
        let mut file = open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, path) => {
                let failed =
                    |error| HostError::io(format!("cannot write `{}`", path.display()), &error);
                write_holder(&mut file, &holder).map_err(failed)?;
                return Ok(LockedFile(file));
            }
            // Somebody removed the file before we had it locked: the next one counts.
            Ok(()) => continue,
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => {
                return Err(HostError::io(
                    format!("cannot lock `{}`", path.display()),
                    &error.into(),
                ));
            }
        }
        let current = read_holder(&mut file);
        if told.as_ref() != Some(&current) {
            on_wait(&current);
            told = Some(current);
        }
        tokio::select! {
            () = cancel.cancelled() => {}
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(POLL_MAX);
    }
}

/// The locked file. Dropping it empties and unlocks it; it is never removed, as a waiter may have
/// it open.
#[derive(Debug)]
pub struct LockedFile(File);

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Only what a waiter is told suffers if this fails.
        let _ = self.0.set_len(0);
        // Closing alone is not enough: a child that is just being started holds the descriptor until it
        // executes its program.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens the lock file, creating it when it is missing. In a sticky folder the kernel refuses
/// O_CREAT on another user's file (fs.protected_regular): so opening comes first.
fn open(path: &Path) -> Result<File, HostError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let everybody = Mode::from_raw_mode(0o666);
    let failed = |error: Errno| match error {
        Errno::ACCESS | Errno::PERM => HostError::new(
            HostErrorKind::PermissionDenied,
            format!(
                "may not open the lock `{0}`: let its owner do `chmod 666 {0}`, or name another with MATRIX_LOCK",
                path.display()
            ),
        ),
        Errno::LOOP => HostError::new(
            HostErrorKind::Other,
            format!(
                "the lock `{}` is a symbolic link: remove it",
                path.display()
            ),
        ),
        error => HostError::io(
            format!(
                "cannot open the lock `{}` (MATRIX_LOCK names another)",
                path.display()
            ),
            &error.into(),
        ),
    };
    loop {
        let opened = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) => {
                let create = flags | OFlags::CREATE | OFlags::EXCL;
                match rustix::fs::open(path, create, everybody) {
                    // Another one was quicker.
                    Err(Errno::EXIST) => continue,
                    created => {
                        let file = created.map_err(failed)?;
                        // The umask took the others' right to write.
                        rustix::fs::fchmod(&file, everybody).map_err(failed)?;
                        Ok(file)
                    }
                }
            }
            opened => opened,
        };
        let file = File::from(opened.map_err(failed)?);
        if !file.metadata().is_ok_and(|it| it.is_file()) {
            let message = format!(
                "the lock `{}` is not a regular file: remove it",
                path.display()
            );
            return Err(HostError::new(HostErrorKind::Other, message));
        }
        return Ok(file);
    }
}

/// Whether `path` is still the open file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn write_holder(file: &mut File, holder: &Holder) -> io::Result<()> {
    let text = serde_json::to_vec(holder)?;
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&text)
}

/// Who holds it, for people.
fn read_holder(file: &mut File) -> String {
    let mut text = Vec::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_end(&mut text);
    match read
        .ok()
        .and_then(|_| serde_json::from_slice::<Holder>(&text).ok())
    {
        Some(holder) => {
            let Holder {
                pid,
                host,
                user,
                purpose,
                since,
            } = holder;
            let at = if host.is_empty() { "" } else { "@" };
            format!("held by pid {pid} ({user}{at}{host}), matrix `{purpose}`, since {since}")
        }
        None => "held by a process that does not say who it is".to_owned(),
    }
}
