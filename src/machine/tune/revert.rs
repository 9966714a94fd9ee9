//! Putting files back from a journal, but for what somebody else has set since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::find::{read_op, same, value_of, write_op};
use super::journal::{self, Journal, JournalEntry, JournalState};
use super::{KnobOutcome, Reverted, SMT_CONTROL, TuneError, cpus, service, wakes_threads};
use crate::machine::host::{FileOp, Host, HostErrorKind};

/// Puts back what the journal says, whoever wrote it. Nothing to do where there is no journal. The
/// caller holds the machine's slot.
pub async fn revert(host: &dyn Host, journal_path: &Path) -> Result<Vec<Reverted>, TuneError> {
    match journal::read(host, journal_path).await? {
        (Some(journal), boot_id) => revert_this(host, journal_path, journal, &boot_id).await,
        (None, _) => Ok(Vec::new()),
    }
}

pub(super) async fn revert_this(
    host: &dyn Host,
    journal_path: &Path,
    journal: Journal,
    boot_id: &str,
) -> Result<Vec<Reverted>, TuneError> {
    let mut rows = Vec::new();
    let mut current = journal.clone();
    if journal.boot_id != boot_id {
        let (persistent, rebooted) = split_entries(&journal, |entry| entry.persistent);
        rows.extend(
            rebooted
                .entries
                .iter()
                .map(|e| reverted(e, KnobOutcome::Rebooted)),
        );
        current = persistent;
        current.services.clear();
        current.cgroup = None;
        // Whatever the state was: nothing of this boot was set by the program that wrote the journal.
        current.state = JournalState::Applied;
    }
    let theirs = leave_theirs(host, journal_path, &mut current).await?;
    let put_back = put_back(host, &current).await;
    // Choosing a scheduler has reset these; the old one may not take their value.
    let again = theirs.iter().filter_map(|row| match &row.outcome {
        KnobOutcome::ChangedByOthers { found }
            if current.made.iter().any(|(path, _)| *path == row.path) =>
        {
            Some(write_op(&row.path, found))
        }
        _ => None,
    });
    let again: Vec<FileOp> = again.collect();
    if !again.is_empty() {
        host.files(again).await;
    }
    rows.extend(theirs);
    rows.extend(put_back);
    finish(host, journal_path, current, &rows).await?;
    Ok(rows)
}

/// Takes out of the journal of an applied profile what somebody else has set since, and returns that.
/// What is left may be overwritten.
async fn leave_theirs(
    host: &dyn Host,
    journal_path: &Path,
    journal: &mut Journal,
) -> Result<Vec<Reverted>, TuneError> {
    if journal.state == JournalState::Applying {
        return Ok(Vec::new());
    }
    // What each file may hold that nobody else has set.
    let mut ours: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in &journal.entries {
        ours.entry(&entry.path)
            .or_default()
            .extend([entry.old.as_str(), &entry.new]);
        for (path, old) in &entry.resets {
            ours.entry(path).or_default().push(old);
        }
    }
    let reset: BTreeSet<&String> = journal.reset_paths().collect();
    // A reset file of which nobody knows what was made of it may hold anything.
    ours.retain(|path, values| {
        let mut made = journal
            .made
            .iter()
            .filter(|(file, _)| file == path)
            .peekable();
        let is_known = made.peek().is_some();
        values.extend(made.map(|(_, value)| value.as_str()));
        is_known || !reset.contains(&path.to_string())
    });
    let reads = ours.keys().map(|path| read_op(path)).collect();
    let mut theirs: BTreeMap<String, String> = BTreeMap::new();
    for ((path, values), reply) in ours.iter().zip(host.files(reads).await) {
        // What cannot be read is met again when it is put back.
        if let Ok(found) = value_of(reply)
            && !values.iter().any(|value| same(value, &found))
        {
            theirs.insert(path.to_string(), found);
        }
    }
    let has_resets = !reset.is_empty();
    let mut rows = Vec::new();
    let mut leave = |knob: &str, path: &str, old: &str| {
        let Some(found) = theirs.get(path) else {
            return false;
        };
        if rows.iter().all(|row: &Reverted| row.path != path) {
            rows.push(Reverted {
                knob: knob.to_owned(),
                path: path.to_owned(),
                old: old.to_owned(),
                outcome: KnobOutcome::ChangedByOthers {
                    found: found.clone(),
                },
            });
        }
        true
    };
    journal
        .entries
        .retain(|entry| !leave(&entry.knob, &entry.path, &entry.old));
    for entry in &mut journal.entries {
        entry
            .resets
            .retain(|(path, old)| !leave(&entry.knob, path, old));
    }
    if has_resets {
        // From here on a third value is what the kernel makes of them.
        journal.state = JournalState::Applying;
        journal::write(host, journal_path, journal).await?;
    }
    Ok(rows)
}

fn reverted(entry: &JournalEntry, outcome: KnobOutcome) -> Reverted {
    Reverted {
        knob: entry.knob.clone(),
        path: entry.path.clone(),
        old: entry.old.clone(),
        outcome,
    }
}

/// The journal with the entries that fit, and with those that do not.
pub(super) fn split_entries(
    journal: &Journal,
    fits: impl Fn(&JournalEntry) -> bool,
) -> (Journal, Journal) {
    let (yes, no) = journal.entries.iter().cloned().partition(fits);
    let with = |entries: Vec<JournalEntry>| Journal {
        entries,
        ..journal.clone()
    };
    (with(yes), with(no))
}

/// Removes the journal, or keeps in it what could not be put back; returns that.
pub(super) async fn finish(
    host: &dyn Host,
    path: &Path,
    mut journal: Journal,
    rows: &[Reverted],
) -> Result<Vec<Reverted>, TuneError> {
    let failed = rows.iter().filter(|row| row.has_failed());
    let failed: Vec<Reverted> = failed.cloned().collect();
    if failed.is_empty() {
        journal::remove(host, path).await?;
        return Ok(failed);
    }
    let is_left = |path: &str| failed.iter().any(|row| row.path == path);
    journal.entries.retain(|entry| is_left(&entry.path));
    journal
        .services
        .retain(|unit| is_left(&service::start_command(unit)));
    journal.cgroup = journal.cgroup.filter(|cgroup| is_left(cgroup));
    journal::write(host, path, &journal).await?;
    Ok(failed)
}

/// Puts files back in reverse order, whatever they hold, then starts units and removes the cgroup. The
/// files of a hyperthread's CPU can be written only while it is on.
pub(super) async fn put_back(host: &dyn Host, journal: &Journal) -> Vec<Reverted> {
    let (smt, others) = split_entries(journal, |entry| entry.path == SMT_CONTROL);
    let woken = smt
        .entries
        .iter()
        .find(|entry| wakes_threads(&entry.old, &entry.new));
    if let Some(woken) = woken.filter(|_| !others.entries.is_empty()) {
        // Where it fails, so do those files, and say why.
        host.files(vec![write_op(SMT_CONTROL, &woken.new)]).await;
    }
    let halves = match woken {
        Some(_) => [others.entries, smt.entries],
        None => [smt.entries, others.entries],
    };
    let mut rows = Vec::new();
    for entries in halves {
        rows.extend(put_files_back(host, &entries).await);
    }
    for unit in journal.services.iter().rev() {
        rows.push(service::start(host, unit).await);
    }
    if let Some(cgroup) = &journal.cgroup {
        rows.extend(cpus::remove(host, cgroup).await);
    }
    rows
}

/// A file that must hold a value in the end.
struct Owed<'e> {
    /// Index of the row that tells of it.
    row: usize,
    path: &'e str,
    value: &'e str,
    /// What to write, to which file.
    write: (&'e str, &'e str),
    /// Not the knob itself: the kernel may have set it anew.
    is_reset: bool,
    /// What came of the last writing, where there was one.
    error: Option<String>,
    held: Result<String, String>,
}

impl Owed<'_> {
    fn is_paid(&self) -> bool {
        self.held.as_ref().is_ok_and(|held| same(self.value, held))
    }
}

async fn put_files_back(host: &dyn Host, entries: &[JournalEntry]) -> Vec<Reverted> {
    if entries.is_empty() {
        return Vec::new();
    }
    let reads = entries.iter().rev().map(|entry| read_op(&entry.path));
    let replies = host.files(reads.collect()).await;
    let mut rows = Vec::new();
    let (mut owed, mut reset) = (Vec::new(), Vec::new());
    for (entry, reply) in entries.iter().rev().zip(replies) {
        let row = rows.len();
        let owe = |path, value, write, is_reset| Owed {
            row,
            path,
            value,
            write,
            is_reset,
            error: None,
            held: Err(String::new()),
        };
        let outcome = match value_of(reply) {
            Err(error) if error.kind == HostErrorKind::NotFound => KnobOutcome::Gone,
            Err(error) => KnobOutcome::Failed {
                reason: error.message,
            },
            Ok(found) if same(&entry.old, &found) => KnobOutcome::AlreadyBack,
            Ok(_) => {
                let write = match &entry.restore_by {
                    Some((path, value)) => (path.as_str(), value.as_str()),
                    None => (entry.path.as_str(), entry.old.as_str()),
                };
                owed.push(owe(entry.path.as_str(), entry.old.as_str(), write, false));
                KnobOutcome::PutBack
            }
        };
        // Also where an earlier try has died between the two.
        if matches!(outcome, KnobOutcome::PutBack | KnobOutcome::AlreadyBack) {
            let files = entry.resets.iter();
            reset.extend(files.map(|(path, value)| owe(path, value, (path, value), true)));
        }
        rows.push(reverted(entry, outcome));
    }
    owed.append(&mut reset);
    pay(host, &mut owed).await;
    for owed in owed.iter().filter(|owed| !owed.is_paid()) {
        let reason = match (&owed.error, &owed.held) {
            (Some(error), _) | (None, Err(error)) => error.clone(),
            (None, Ok(found)) => format!("it still holds `{found}`"),
        };
        let reason = match owed.is_reset {
            true => format!("{} was reset with it: {reason}", owed.path),
            false => reason,
        };
        let outcome = &mut rows[owed.row].outcome;
        if !matches!(outcome, KnobOutcome::Failed { .. }) {
            *outcome = KnobOutcome::Failed { reason };
        }
    }
    rows
}

/// Writes the knobs, then what they have reset where it differs: twice at the most, as one such file can
/// change another (slice_idle of bfq, slice_idle_us).
async fn pay(host: &dyn Host, owed: &mut [Owed<'_>]) {
    for pass in 0..3 {
        let is_due = |owed: &Owed| match pass {
            0 => !owed.is_reset,
            _ => owed.is_reset && !owed.is_paid(),
        };
        let due: Vec<usize> = (0..owed.len()).filter(|&at| is_due(&owed[at])).collect();
        if owed.is_empty() || (pass > 0 && due.is_empty()) {
            return;
        }
        let writes = due
            .iter()
            .map(|&at| write_op(owed[at].write.0, owed[at].write.1));
        let reads = owed.iter().map(|owed| read_op(owed.path));
        let mut replies = host.files(writes.chain(reads).collect()).await.into_iter();
        for at in due {
            owed[at].error = replies
                .next()
                .and_then(Result::err)
                .map(|error| error.message);
        }
        for (owed, reply) in owed.iter_mut().zip(replies) {
            owed.held = value_of(reply).map_err(|error| error.message);
        }
    }
}
