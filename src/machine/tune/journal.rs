//! The journal: what was on the machine before a profile was applied, kept through any crash.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TuneError;
use crate::machine::host::{FileOp, FileReply, Host, HostError, HostErrorKind};

/// Changes when a field changes its meaning: an older or newer `matrix` then refuses the file.
const VERSION: u32 = 1;
/// More is refused before anything is set.
const LINE_BYTES_MAX: usize = 2 << 20;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The first line of the file. A second one may follow: [`Confirmed`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub version: u32,
    /// The kernel's id of the boot in which it was written: a reboot puts all but persistent knobs
    /// back by itself.
    pub boot_id: String,
    pub profile: String,
    /// RFC 3339, UTC.
    pub since: String,
    pub state: JournalState,
    /// Applied to stay: no run takes it for what a dead one has left.
    #[serde(default)]
    pub by_hand: bool,
    pub entries: Vec<JournalEntry>,
    /// What the kernel has made of the files in [`JournalEntry::resets`]: another value is somebody else's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<(String, String)>,
    /// Units that ran and were stopped.
    pub services: Vec<String>,
    /// The folder of the workload's cgroup, made or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum JournalState {
    /// Any of the knobs may hold its old value, the new one, or what the kernel made of it.
    Applying,
    /// All were read back: a third value is somebody else's.
    Applied,
}

/// All was set and read back.
#[derive(Debug, Serialize, Deserialize)]
struct Confirmed {
    /// Files that are as before: their optional knobs refused.
    without: Vec<String>,
    /// See [`Journal::made`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    made: Vec<(String, String)>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct JournalEntry {
    pub knob: String,
    pub path: String,
    pub old: String,
    pub new: String,
    #[serde(default)]
    pub persistent: bool,
    /// Where the old value cannot be written back, this file and value bring it back: writing
    /// vm.dirty_bytes clears vm.dirty_ratio, and only writing vm.dirty_ratio undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_by: Option<(String, String)>,
    /// Files that the kernel sets anew when this one is written, with what they held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resets: Vec<(String, String)>,
}

/// The journal, where there is one, and the id of the current boot.
pub(super) async fn read(
    host: &dyn Host,
    path: &Path,
) -> Result<(Option<Journal>, String), TuneError> {
    let ops = vec![
        FileOp::Read {
            path: BOOT_ID.into(),
            bytes_max: 64,
        },
        FileOp::Read {
            path: path.into(),
            bytes_max: 2 * LINE_BYTES_MAX,
        },
    ];
    let mut replies = host.files(ops).await.into_iter();
    let boot_id = match replies.next() {
        Some(Ok(FileReply::Bytes(bytes))) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Some(Err(error)) => return Err(TuneError::Host(error)),
        _ => String::new(),
    };
    let bytes = match replies.next() {
        Some(Ok(FileReply::Bytes(bytes))) => bytes,
        Some(Err(error)) if error.kind != HostErrorKind::NotFound => {
            return Err(TuneError::Host(error));
        }
        _ => return Ok((None, boot_id)),
    };
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let mut journal: Journal =
        serde_json::from_slice(first).map_err(|error| broken(path, error.to_string()))?;
    if journal.version != VERSION {
        let version = journal.version;
        let reason = format!("it has version {version}, not {VERSION}");
        return Err(broken(path, reason));
    }
    // A torn one was never confirmed.
    if let Some(Ok(confirmed)) = lines.next().map(serde_json::from_slice::<Confirmed>) {
        let without = confirmed.without;
        journal
            .entries
            .retain(|entry| !without.contains(&entry.path));
        journal.made = confirmed.made;
        journal.state = JournalState::Applied;
    }
    Ok((Some(journal), boot_id))
}

/// Durable when this returns.
pub(super) async fn write(
    host: &dyn Host,
    path: &Path,
    journal: &Journal,
) -> Result<(), TuneError> {
    let mut ops = Vec::new();
    if let Some(folder) = path.parent() {
        ops.push(FileOp::MakeDir {
            path: folder.into(),
        });
    }
    ops.push(FileOp::Replace {
        path: path.into(),
        bytes: line(path, journal)?,
    });
    carry_out(host, path, ops).await
}

/// Notes that all but these files hold what was wanted, and what the kernel made of others. After a power
/// loss the file may lack it, and then the first line counts: a third value of a persistent knob is left
/// all the same.
pub(super) async fn confirm(
    host: &dyn Host,
    path: &Path,
    without: &[String],
    made: &[(String, String)],
) -> Result<(), TuneError> {
    let (without, made) = (without.to_vec(), made.to_vec());
    let ops = vec![FileOp::Append {
        path: path.into(),
        bytes: line(path, &Confirmed { without, made })?,
    }];
    carry_out(host, path, ops).await
}

fn line(path: &Path, value: &impl Serialize) -> Result<Vec<u8>, TuneError> {
    let mut bytes = serde_json::to_vec(value).map_err(|error| broken(path, error.to_string()))?;
    bytes.push(b'\n');
    match bytes.len() {
        0..=LINE_BYTES_MAX => Ok(bytes),
        n => Err(TuneError::Host(HostError::new(
            HostErrorKind::TooLarge,
            format!(
                "the files of the profile hold too much for its journal ({n} bytes, {LINE_BYTES_MAX} at the \
                 most): let it reach fewer files"
            ),
        ))),
    }
}

async fn carry_out(host: &dyn Host, path: &Path, ops: Vec<FileOp>) -> Result<(), TuneError> {
    let mut replies = host.files(ops).await.into_iter();
    replies.try_for_each(|reply| {
        reply
            .map(|_| ())
            .map_err(|error| broken(path, error.message))
    })
}

fn broken(path: &Path, reason: String) -> TuneError {
    TuneError::Journal {
        path: path.display().to_string(),
        reason,
    }
}

/// Not durable: whoever finds it after a power loss puts back again what is back already.
pub(super) async fn remove(host: &dyn Host, path: &Path) -> Result<(), TuneError> {
    let ops = vec![FileOp::Remove { path: path.into() }];
    for reply in host.files(ops).await {
        reply.map_err(TuneError::Host)?;
    }
    Ok(())
}

impl Journal {
    /// The files in [`JournalEntry::resets`].
    pub fn reset_paths(&self) -> impl Iterator<Item = &String> {
        let resets = self.entries.iter().flat_map(|entry| &entry.resets);
        resets.map(|(path, _)| path)
    }

    pub fn new(
        boot_id: String,
        profile: String,
        since: String,
        entries: Vec<JournalEntry>,
    ) -> Self {
        Journal {
            version: VERSION,
            boot_id,
            profile,
            since,
            state: JournalState::Applying,
            by_hand: false,
            entries,
            made: Vec::new(),
            services: Vec::new(),
            cgroup: None,
        }
    }
}
