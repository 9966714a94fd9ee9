//! The events of a run: one stream that progress, `--events` and reports read.

use serde::{Serialize, Serializer};

use crate::resolve::selection::LeftOut;

/// An event, and when it happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimedEvent {
    /// Milliseconds since 1970-01-01 UTC; RFC 3339 in JSON.
    #[serde(rename = "time", serialize_with = "as_text")]
    pub time_ms: i64,
    #[serde(flatten)]
    pub event: Event,
}

fn as_text<S: Serializer>(time_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    let time = jiff::Timestamp::from_millisecond(*time_ms);
    time.unwrap_or_default().serialize(serializer)
}

/// What happened. Each is one JSON line in an `--events` file; `event` tells its kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    Started {
        matrix: String,
        /// Cells with something to do.
        cells: usize,
        /// Measurements to take, at least.
        measurements: u64,
        estimate_s: f64,
        seed: u64,
    },
    /// A budget has no room for these.
    LeftOut(LeftOut),
    /// Measurements of a machine that are not needed after all: builds came out equal, or somebody else
    /// has taken them meanwhile.
    Spared {
        machine: String,
        measurements: u64,
    },
    /// A plan was made: at first, and whenever more is known of what builds gave or versions are added.
    Planned {
        cells: usize,
        /// Builds that the cells use, made or not.
        builds: usize,
    },
    /// The machine is ours, and what dead runs had left on it is put away.
    Entered {
        machine: String,
    },
    /// The machine's profile is in force.
    Tuned {
        machine: String,
    },
    /// The machine is put back.
    Left {
        machine: String,
    },
    /// Somebody else measures on the machine.
    Waiting {
        machine: String,
        holder: String,
    },
    /// Something that a dead run had left was put away.
    Cleaned {
        machine: String,
        what: String,
    },
    /// Something that a dead run had left cannot be put away: it stays in the machine's journal.
    LeftBehind {
        machine: String,
        what: String,
    },
    /// Something about a machine that one should know; nothing fails because of it.
    Note {
        machine: String,
        what: String,
    },
    BuildStarted {
        version: String,
        key: String,
        /// Of the builds that this machine is to make now, from 1.
        number: usize,
        of: usize,
    },
    BuildDone {
        version: String,
        duration_s: f64,
        /// A version that gave the same bytes before: both are one for measuring.
        same_as: Option<String>,
        error: Option<String>,
    },
    SetupStarted {
        setup: String,
        cell: String,
    },
    SetupDone {
        setup: String,
        cell: String,
        duration_s: f64,
        error: Option<String>,
    },
    /// A set-up was undone; an error means that something is left behind.
    Undone {
        setup: String,
        error: Option<String>,
    },
    RunStarted {
        cell: String,
        round: u32,
    },
    RunDone {
        cell: String,
        round: u32,
        duration_s: f64,
        /// Declared metrics, by name.
        metrics: Vec<(String, f64)>,
        warnings: Vec<String>,
    },
    /// Findings, or cells to calibrate, are measured in rounds of their own.
    Again {
        cells: usize,
        measurements: u64,
    },
    /// No sample was taken, and this session does not try this cell again.
    Failed {
        cell: String,
        round: u32,
        reason: String,
        /// Measurements that are given up with it.
        given_up: u64,
    },
    /// The cell needs one more round than was thought.
    Repeats {
        cell: String,
    },
    /// A hook was called and has ended.
    Hook {
        /// Such as `pre-run`.
        moment: String,
        /// Its command.
        hook: String,
        duration_s: f64,
        /// What it printed, standard error last.
        output: String,
        error: Option<String>,
    },
    /// Ctrl-C: `at_once` from the second on.
    Interrupted {
        at_once: bool,
    },
    /// All is measured: one for a session, however many parts it had. Only hooks that are about its result come after
    /// it.
    Finished {
        measured: u64,
        failed: usize,
    },
}
