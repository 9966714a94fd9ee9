//! Applying a profile to a host and putting the host back as it was found.
//!
//! The order that makes a crash harmless: read the old values, write them into the journal durably,
//! write the new ones, read those back. Whoever starts next finds the journal and reverts.

mod cpus;
pub mod fake;
mod find;
mod journal;
mod resets;
mod revert;
mod service;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::base::key::Key;
use crate::base::units::show_time;
use crate::config::profile::{Knob, Resolved, WantedProfile};
use crate::machine::host::{FileOp, Host, HostError, HostErrorKind, JournalPlace, ServiceId};
use find::{FoundFiles, find, read_op, same, value_of, write_op};
use journal::{Journal, JournalEntry, JournalState};
use revert::{finish, put_back, revert_this, split_entries};

pub use cpus::CpuSet;
pub use find::FILES_MAX;
pub(in crate::machine) use find::value_in;
pub use revert::revert;

const SMT_CONTROL: &str = "/sys/devices/system/cpu/smt/control";
const INTERRUPTS: &str = "/proc/irq/";
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// A profile that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub profile: String,
    /// As in the journal: RFC 3339, UTC, to the nanosecond. It tells this journal from later ones.
    pub since: String,
    pub key: Key,
    /// All files of the profile that hold what was wanted.
    pub rows: Vec<KnobRow>,
    /// Optional knobs that the machine lacks, refuses or clamps; they are as they were.
    pub skipped: Vec<Refusal>,
    /// The CPUs that the workload may use; None is all.
    pub cpus: Option<CpuSet>,
    /// Call [`drop_caches`] before each run.
    pub drop_caches: bool,
    /// Microseconds, and the process that holds /dev/cpu_dma_latency to them; it must live as long as
    /// the profile.
    pub dma_latency: Option<(u32, ServiceId)>,
    /// Units that were stopped.
    pub services: Vec<String>,
    /// What a user should know, such as a journal of an earlier boot that was dropped.
    pub notes: Vec<String>,
}

impl Applied {
    /// What is set that is no file that holds a value, each with a name as in the profile.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        let mut put = |name: &str, value: String| settings.push((name.to_owned(), value));
        if let Some(cpus) = &self.cpus {
            put("cpus", cpus.show());
        }
        if self.drop_caches {
            put("drop-caches", "true".to_owned());
        }
        if let Some((us, _)) = self.dma_latency {
            put("dma-latency-us", us.to_string());
        }
        for unit in &self.services {
            put(&format!("stop-service {unit}"), "stopped".to_owned());
        }
        settings
    }
}

/// One file of a profile: what it held and what it shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobRow {
    pub knob: String,
    pub path: String,
    pub old: String,
    pub new: String,
}

/// A knob that cannot be set, or does not stick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub knob: String,
    /// See [`Knob::words`].
    pub words: Option<&'static str>,
    pub path: Box<str>,
    pub wanted: Box<str>,
    /// What the file holds instead, where it could be read.
    pub found: Option<String>,
    pub reason: String,
}

impl Refusal {
    fn of(knob: &Knob, path: &str, wanted: &str, reason: String) -> Refusal {
        Refusal {
            knob: knob.name.clone(),
            words: knob.words,
            path: path.into(),
            wanted: wanted.into(),
            found: None,
            reason,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.words {
            Some(words) => write!(f, "`{} {words}`: {}: ", self.knob, self.path)?,
            None => write!(f, "`{}`: {}: ", self.knob, self.path)?,
        }
        match &self.found {
            Some(found) => write!(f, "wanted `{}`, found `{found}`: ", self.wanted)?,
            // Which of its files there is decides what would be wanted there.
            None if self.words.is_some() => {}
            None => write!(f, "wanted `{}`: ", self.wanted)?,
        }
        f.write_str(&self.reason)
    }
}

/// What became of one file or unit when a profile was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverted {
    pub knob: String,
    /// The file, or `systemctl start UNIT`.
    pub path: String,
    /// What it held before the profile.
    pub old: String,
    pub outcome: KnobOutcome,
}

impl Reverted {
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, KnobOutcome::Failed { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KnobOutcome {
    /// The old value was written and read back.
    PutBack,
    /// It held the old value already.
    AlreadyBack,
    /// Somebody else set it meanwhile: their value is left.
    ChangedByOthers { found: String },
    /// The file is not there any more: its device went away.
    Gone,
    /// A reboot has put it back.
    Rebooted,
    /// It could not be put back; the journal keeps it for the next try.
    Failed { reason: String },
}

/// Whether a profile is in force, and whether its knobs still hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    None,
    /// Applied before the last reboot, which has put all back but the persistent knobs.
    Rebooted {
        profile: String,
        since: String,
    },
    Active {
        profile: String,
        /// RFC 3339, UTC.
        since: String,
        /// The program died before all was set.
        unfinished: bool,
        /// It stays until somebody reverts it: see [`keep`].
        by_hand: bool,
        rows: Vec<KnobRow>,
        /// Rows whose file holds a third value, with what it holds. The samples taken meanwhile are
        /// not what their profile says.
        changed: Vec<(KnobRow, String)>,
    },
}

/// A profile cannot be applied or put back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TuneError {
    #[error(
        "the profile `{profile}` is applied since {}; profiles are not stacked: \
         put it back first with `matrix machine revert`",
        show_time(.since)
    )]
    Active { profile: String, since: String },
    #[error("{0}; profiles are not stacked")]
    OfRoot(String),
    #[error(
        "the profile `{profile}`, applied since {}, is somebody else's and stays: they had the machine \
         while this run measured there",
        show_time(.since)
    )]
    Foreign { profile: String, since: String },
    #[error(
        "the journal {path} cannot be used: {reason}; it says how to put the machine back: \
         look at it before you remove it"
    )]
    Journal { path: String, reason: String },
    /// All that was set before has been put back, or is listed in `left`.
    #[error("{}", show_refused(.refused, .left))]
    Refused {
        refused: Vec<Refusal>,
        left: Vec<Reverted>,
    },
    #[error("{0}")]
    Host(HostError),
}

fn show_refused(refused: &[Refusal], left: &[Reverted]) -> String {
    let mut lines = vec!["the profile cannot be applied".to_owned()];
    lines.extend(refused.iter().map(|refusal| format!("  {refusal}")));
    match left.is_empty() {
        true => lines.push(
            "the machine is as it was; add `optional=#true` to knobs that it may lack".to_owned(),
        ),
        false => lines.push("not put back, try `matrix machine revert`:".to_owned()),
    }
    let left = left.iter();
    lines.extend(left.map(|row| format!("  {} (was `{}`)", row.path, row.old)));
    lines.join("\n")
}

/// What applying would change, without changing anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRun {
    pub rows: Vec<KnobRow>,
    /// Knobs that would be skipped.
    pub skipped: Vec<Refusal>,
    /// Knobs because of which the profile could not be applied.
    pub refused: Vec<Refusal>,
    /// Units that would be stopped.
    pub services: Vec<String>,
    /// What would hold only while cells are measured: `cpus 2-7`.
    pub held: Vec<String>,
}

/// Reads what a profile would set. A knob that is there can still refuse its value.
pub async fn dry_run(host: &dyn Host, profile: &Resolved) -> Result<DryRun, TuneError> {
    let mut prepared = prepare(host, profile).await?;
    let mut held = Vec::new();
    if let Some(wanted) = &profile.cpus {
        match cpus::check(host, &wanted.value).await {
            Ok(()) => held.push(format!("cpus {}", wanted.value)),
            Err(refusal) => prepared.gate.refuse(wanted.optional, refusal),
        }
    }
    if profile
        .drop_caches
        .as_ref()
        .is_some_and(|wanted| wanted.value)
    {
        held.push("drop-caches".to_owned());
    }
    if let Some(wanted) = &profile.dma_latency_us {
        match service::dma_latency(host, wanted.value).await {
            Ok(_) => held.push(format!("dma-latency-us {}", wanted.value)),
            Err(refusal) => prepared.gate.refuse(wanted.optional, refusal),
        }
    }
    let rows = prepared.found.iter().map(|file| row(file, profile));
    let running = prepared.running.into_iter();
    Ok(DryRun {
        rows: rows.collect(),
        skipped: prepared.gate.skipped,
        refused: prepared.gate.refused,
        services: running.map(|unit| unit.value).collect(),
        held,
    })
}

/// The files that a profile reaches, sorted.
pub async fn files(host: &dyn Host, profile: &Resolved) -> Result<Vec<String>, TuneError> {
    let (found, _) = find(host, &profile.knobs).await.map_err(TuneError::Host)?;
    let mut files: Vec<String> = found.into_iter().map(|file| file.path).collect();
    files.sort_unstable();
    Ok(files)
}

/// What a profile meets on a machine, before anything is changed.
struct Prepared {
    found: Vec<FoundFiles>,
    /// Units that would have to be stopped.
    running: Vec<WantedProfile<String>>,
    /// Where a cgroup for the workload's CPUs could be made.
    cgroup: Option<String>,
    gate: Gate,
}

/// Sorts refusals into those that end the applying and those that an optional knob allows.
#[derive(Default)]
struct Gate {
    refused: Vec<Refusal>,
    skipped: Vec<Refusal>,
}

impl Gate {
    fn refuse(&mut self, optional: bool, refusal: Refusal) {
        match optional {
            true => self.skipped.push(refusal),
            false => self.refused.push(refusal),
        }
    }

    fn check(&mut self) -> Result<(), TuneError> {
        match std::mem::take(&mut self.refused) {
            refused if refused.is_empty() => Ok(()),
            refused => Err(TuneError::Refused {
                refused,
                left: Vec::new(),
            }),
        }
    }
}

async fn prepare(host: &dyn Host, profile: &Resolved) -> Result<Prepared, TuneError> {
    let (found, missing) = find(host, &profile.knobs).await.map_err(TuneError::Host)?;
    let mut gate = Gate::default();
    for (knob, refusal) in missing {
        gate.refuse(profile.knobs[knob].optional, refusal);
    }
    let mut running = Vec::new();
    for wanted in &profile.services {
        match service::is_active(host, &wanted.value).await {
            Ok(true) => running.push(wanted.clone()),
            Ok(false) => {}
            Err(refusal) => gate.refuse(wanted.optional, refusal),
        }
    }
    let cgroup = match &profile.cpus {
        Some(_) => cpus::place(host).await,
        None => None,
    };
    Ok(Prepared {
        found,
        running,
        cgroup,
        gate,
    })
}

fn row(file: &FoundFiles, profile: &Resolved) -> KnobRow {
    KnobRow {
        knob: profile.knobs[file.knob].name.clone(),
        path: file.path.clone(),
        old: file.old.clone(),
        new: file.wanted.clone(),
    }
}

/// Applies a profile: all of it, or nothing. The caller holds the machine's slot, and passes the
/// result to [`release`] at the end.
pub async fn apply(
    host: &dyn Host,
    profile: &Resolved,
    journal_path: &Path,
) -> Result<Applied, TuneError> {
    let (boot_id, notes) = refuse_stacking(host, journal_path).await?;
    let mut prepared = prepare(host, profile).await?;
    prepared.gate.check()?;
    let since = jiff::Timestamp::now().to_string();
    let mut journal = journal_of(profile, &prepared, &boot_id, &since);
    let sleeping = prepared
        .found
        .iter()
        .find(|file| file.path == SMT_CONTROL && wakes_threads(&file.old, &file.wanted));
    if let Some(smt) = sleeping.cloned() {
        let mut first = journal.clone();
        first.entries.retain(|entry| entry.path == smt.path);
        first.services.clear();
        first.cgroup = None;
        journal::write(host, journal_path, &first).await?;
        match wake_threads(host, profile, &smt).await {
            Ok(found) => prepared = found,
            Err(error) => {
                return Err(undo(host, journal_path, first, Held::default(), error).await);
            }
        }
        journal = journal_of(profile, &prepared, &boot_id, &since);
        if let Err(error) = journal::write(host, journal_path, &journal).await {
            return Err(undo(host, journal_path, first, Held::default(), error).await);
        }
    } else {
        journal::write(host, journal_path, &journal).await?;
    }
    let Prepared {
        found,
        running,
        mut gate,
        ..
    } = prepared;

    let mut stopped = Vec::new();
    for unit in &running {
        match service::stop(host, &unit.value).await {
            Ok(()) => stopped.push(unit.value.clone()),
            Err(refusal) => gate.refuse(unit.optional, refusal),
        }
    }
    let failed = set(host, profile, &found, &mut gate).await;
    let held = hold(host, profile, journal.cgroup.as_deref(), &mut gate).await;
    let confirmed = match gate.check() {
        Ok(()) => confirm(host, journal_path, &mut journal, &failed).await,
        refused => refused,
    };
    if let Err(error) = confirmed {
        return Err(undo(host, journal_path, journal, held, error).await);
    }
    let in_force = found.iter().filter(|file| !failed.contains(&file.path));
    Ok(Applied {
        profile: profile.name.clone(),
        since: journal.since,
        key: profile.key(),
        rows: in_force.map(|file| row(file, profile)).collect(),
        skipped: gate.skipped,
        cpus: held.cpus,
        drop_caches: held.drop_caches,
        dma_latency: held.dma_latency,
        services: stopped,
        notes,
    })
}

fn journal_of(profile: &Resolved, prepared: &Prepared, boot_id: &str, since: &str) -> Journal {
    let entries = prepared.found.iter().map(|file| JournalEntry {
        knob: profile.knobs[file.knob].name.clone(),
        path: file.path.clone(),
        old: file.old.clone(),
        new: file.wanted.clone(),
        persistent: profile.knobs[file.knob].persistent,
        restore_by: file.restore_by.clone(),
        resets: file.resets.clone(),
    });
    let (boot_id, since) = (boot_id.to_owned(), since.to_owned());
    let mut journal = Journal::new(boot_id, profile.name.clone(), since, entries.collect());
    let running = prepared.running.iter();
    journal.services = running.map(|unit| unit.value.clone()).collect();
    journal.cgroup = prepared.cgroup.clone();
    journal
}

/// Switches hyperthreads on, and finds the profile's files again: those of their CPUs come with them.
async fn wake_threads(
    host: &dyn Host,
    profile: &Resolved,
    smt: &FoundFiles,
) -> Result<Prepared, TuneError> {
    // Where it is refused, `set` meets that again and tells.
    host.files(vec![write_op(&smt.path, &smt.wanted)]).await;
    let mut prepared = prepare(host, profile).await?;
    prepared.gate.check()?;
    for file in &mut prepared.found {
        if file.path == smt.path {
            file.old = smt.old.clone();
        }
    }
    Ok(prepared)
}

/// Err where a profile is in force. Returns the id of the boot, and what to say about a journal that
/// an earlier boot has made void.
async fn refuse_stacking(
    host: &dyn Host,
    journal_path: &Path,
) -> Result<(String, Vec<String>), TuneError> {
    let (earlier, boot_id) = journal::read(host, journal_path).await?;
    let Some(Journal { profile, since, .. }) = &earlier else {
        return Ok((boot_id, Vec::new()));
    };
    let is_in_force = |journal: &Journal| {
        journal.boot_id == boot_id || journal.entries.iter().any(|entry| entry.persistent)
    };
    if earlier.as_ref().is_some_and(is_in_force) {
        return Err(TuneError::Active {
            profile: profile.clone(),
            since: since.clone(),
        });
    }
    let since = show_time(since);
    let note = format!("the profile `{profile}` of {since} was put back by a reboot");
    Ok((boot_id, vec![note]))
}

/// Undoes what optional knobs have made of their value, while it is known to be ours, and notes in
/// the journal that all others hold.
async fn confirm(
    host: &dyn Host,
    journal_path: &Path,
    journal: &mut Journal,
    without: &[String],
) -> Result<(), TuneError> {
    let (mut failed, kept) = split_entries(journal, |entry| without.contains(&entry.path));
    failed.services.clear();
    failed.cgroup = None;
    // What a new scheduler has set anew may not take the old value before the old scheduler is back.
    let reset: BTreeSet<&String> = kept.reset_paths().collect();
    failed.entries.retain(|entry| !reset.contains(&entry.path));
    let rows = put_back(host, &failed).await;
    let left: Vec<Reverted> = rows.into_iter().filter(Reverted::has_failed).collect();
    if !left.is_empty() {
        let refused = Vec::new();
        return Err(TuneError::Refused { refused, left });
    }
    journal.entries = kept.entries;
    journal.state = JournalState::Applied;
    journal.made = resets::made(host, &journal.entries).await;
    journal::confirm(host, journal_path, without, &journal.made).await
}

/// Puts everything back after an error, and returns it with what could not be.
async fn undo(
    host: &dyn Host,
    journal_path: &Path,
    mut journal: Journal,
    held: Held,
    error: TuneError,
) -> TuneError {
    if let Some((_, service)) = held.dma_latency {
        // Where this fails, the files are put back all the same, and the host's cleaning ends it.
        let _ = host.stop(service).await;
    }
    journal.state = JournalState::Applying;
    let rows = put_back(host, &journal).await;
    match (finish(host, journal_path, journal, &rows).await, error) {
        (Ok(left), TuneError::Refused { refused, .. }) => TuneError::Refused { refused, left },
        (_, error) => error,
    }
}

/// Writes all values, then reads all back: in one batch, because a later write can undo an earlier
/// one. Returns the files that do not hold what was wanted.
async fn set(
    host: &dyn Host,
    profile: &Resolved,
    found: &[FoundFiles],
    gate: &mut Gate,
) -> Vec<String> {
    let changed: Vec<&FoundFiles> = found
        .iter()
        .filter(|file| !same(&file.wanted, &file.old))
        .collect();
    let mut ops: Vec<FileOp> = Vec::new();
    ops.extend(
        changed
            .iter()
            .map(|file| write_op(&file.path, &file.wanted)),
    );
    ops.extend(changed.iter().map(|file| read_op(&file.path)));
    let mut written = host.files(ops).await;
    let read = written.split_off(changed.len().min(written.len()));
    let mut failed = Vec::new();
    for ((file, written), read) in changed.into_iter().zip(written).zip(read) {
        let found = value_of(read);
        let reason = match (written, &found) {
            // "Input/output error" is what the kernel says of those.
            (Err(error), _)
                if file.path.starts_with(INTERRUPTS)
                    && (error.kind == HostErrorKind::PermissionDenied
                        || error.message.contains("(os error 5)")) =>
            {
                let hint = "the kernel places those itself that a driver has left to it (NVMe)";
                format!("{}; {hint}", error.message)
            }
            (Err(error), _) => error.message,
            (Ok(_), Ok(found)) if same(&file.wanted, found) => continue,
            (Ok(_), Ok(_)) => "it was written, but does not stick".to_owned(),
            // A core has lost its hyperthread.
            (Ok(_), Err(error)) if is_away(error) => continue,
            (Ok(_), Err(error)) => error.message.clone(),
        };
        failed.push(file.path.clone());
        let knob = &profile.knobs[file.knob];
        let refusal = Refusal {
            found: found.ok(),
            ..Refusal::of(knob, &file.path, &file.wanted, reason)
        };
        gate.refuse(knob.optional, refusal);
    }
    failed
}

/// Whether this value of [`SMT_CONTROL`] brings CPUs that were not there.
fn wakes_threads(old: &str, new: &str) -> bool {
    (old, new) == ("off", "on")
}

/// Whether a file cannot be read because its CPU is offline or its device has gone: that of a cpufreq
/// policy stays, but answers "busy" (drivers/cpufreq/cpufreq.c, `show`). No such file can be set by
/// anybody.
fn is_away(error: &HostError) -> bool {
    matches!(error.kind, HostErrorKind::NotFound | HostErrorKind::Busy)
}

/// What a profile has beside files that hold a value.
#[derive(Default)]
struct Held {
    cpus: Option<CpuSet>,
    drop_caches: bool,
    dma_latency: Option<(u32, ServiceId)>,
}

/// Comes after the knobs: without hyperthreads there are fewer CPUs.
async fn hold(host: &dyn Host, profile: &Resolved, cgroup: Option<&str>, gate: &mut Gate) -> Held {
    let mut held = Held::default();
    if let Some(wanted) = &profile.cpus {
        match cpus::check(host, &wanted.value).await {
            Ok(()) => {
                let cpus = wanted.value.clone();
                let cgroup = match cgroup {
                    // Where it cannot be made, as in most containers, affinity does nearly as well.
                    Some(place) => cpus::make(host, place, &cpus).await.ok().map(|()| place),
                    None => None,
                };
                let cgroup = cgroup.map(str::to_owned);
                held.cpus = Some(CpuSet { cpus, cgroup });
            }
            Err(refusal) => gate.refuse(wanted.optional, refusal),
        }
    }
    if let Some(wanted) = profile.drop_caches.as_ref().filter(|wanted| wanted.value) {
        match drop_caches(host).await {
            Ok(()) => held.drop_caches = true,
            Err(refusal) => gate.refuse(wanted.optional, refusal),
        }
    }
    if let Some(wanted) = &profile.dma_latency_us {
        match service::hold_dma_latency(host, wanted.value).await {
            Ok(service) => held.dma_latency = Some((wanted.value, service)),
            Err(refusal) => gate.refuse(wanted.optional, refusal),
        }
    }
    held
}

/// Writes dirty pages out and drops the page cache, dentries and inodes.
pub async fn drop_caches(host: &dyn Host) -> Result<(), Refusal> {
    let refuse = |reason: String| Refusal {
        knob: "drop-caches".to_owned(),
        words: None,
        path: DROP_CACHES.into(),
        wanted: "3".into(),
        found: None,
        reason,
    };
    // Dirty pages cannot be dropped.
    service::run(host, &["sync"]).await.map_err(refuse)?;
    let replies = host.files(vec![write_op(DROP_CACHES, "3")]).await;
    replies
        .into_iter()
        .try_for_each(|reply| reply.map(|_| ()).map_err(|error| refuse(error.message)))
}

/// Makes what [`apply`] did outlive this process: a run that finds the journal leaves it alone. A held
/// DMA latency does not stay.
pub async fn keep(host: &dyn Host, journal_path: &Path) -> Result<(), TuneError> {
    let (journal, _) = journal::read(host, journal_path).await?;
    let Some(mut journal) = journal else {
        return Ok(());
    };
    journal.by_hand = true;
    journal::write(host, journal_path, &journal).await
}

/// Ends what [`apply`] began: stops what is held, and reverts. A journal that somebody else has written
/// since is left alone, and is an error.
pub async fn release(
    host: &dyn Host,
    applied: &Applied,
    journal_path: &Path,
) -> Result<Vec<Reverted>, TuneError> {
    let stopped = match applied.dma_latency {
        Some((_, service)) => host.stop(service).await.map(|_| ()),
        None => Ok(()),
    };
    let (journal, boot_id) = journal::read(host, journal_path).await?;
    let rows = match journal {
        Some(Journal { profile, since, .. }) if since != applied.since => {
            return Err(TuneError::Foreign { profile, since });
        }
        Some(journal) => revert_this(host, journal_path, journal, &boot_id).await?,
        None => Vec::new(),
    };
    stopped.map_err(TuneError::Host)?;
    Ok(rows)
}

/// Whether a profile is in force and its knobs hold. Also called between runs, to notice that
/// somebody else has changed a knob.
pub async fn status(host: &dyn Host, journal_path: &Path) -> Result<Status, TuneError> {
    let (journal, boot_id) = journal::read(host, journal_path).await?;
    let Some(journal) = journal else {
        return Ok(Status::None);
    };
    let Journal { profile, since, .. } = journal;
    if journal.boot_id != boot_id {
        return Ok(Status::Rebooted { profile, since });
    }
    let reads = journal.entries.iter().map(|entry| read_op(&entry.path));
    let replies = host.files(reads.collect()).await;
    let (mut rows, mut changed) = (Vec::new(), Vec::new());
    for (entry, reply) in journal.entries.into_iter().zip(replies) {
        let row = KnobRow {
            knob: entry.knob,
            path: entry.path,
            old: entry.old,
            new: entry.new,
        };
        match value_of(reply) {
            Ok(found) if !same(&row.new, &found) => changed.push((row, found)),
            Err(error) if !is_away(&error) => changed.push((row, error.message)),
            Ok(_) | Err(_) => rows.push(row),
        }
    }
    Ok(Status::Active {
        profile,
        since,
        unfinished: journal.state == JournalState::Applying,
        by_hand: journal.by_hand,
        rows,
        changed,
    })
}

/// What to say of a profile of root's that is in force, to somebody else; None where there is none.
pub async fn of_root(host: &dyn Host, place: &JournalPlace) -> Option<String> {
    let journal = place.of_root.as_deref()?;
    match status(host, journal).await {
        Ok(Status::Active { profile, since, .. }) => Some(format!(
            "root's profile `{profile}` is applied since {}, and only root can put it back: \
             `sudo matrix machine revert`",
            show_time(&since)
        )),
        Ok(Status::None | Status::Rebooted { .. }) => None,
        Err(error) => Some(format!(
            "whether root has left a profile applied cannot be seen: {error}"
        )),
    }
}

#[cfg(test)]
mod tests;
