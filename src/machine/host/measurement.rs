//! One measurement as a machine's agent carries it out: what is asked, and all that came of it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Command, HostError, Output, ServiceId, serial};
use crate::config::matrix::SummaryRule;

/// A measurement. Nothing is told of it until it is over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// The working folder: made before, and emptied afterwards.
    #[serde(with = "serial::path")]
    pub dir: PathBuf,
    /// Empties the page cache first.
    pub drops_caches: bool,
    /// How long it waits for the machine to be quiet; None: nobody looks.
    pub quiet_wait: Option<Duration>,
    /// Processes that are no noise, with all below them.
    pub ours: Vec<u32>,
    /// Run before the monitors start; each must end well.
    pub before: Vec<Command>,
    /// Run beside the command, and stopped with it.
    pub monitors: Vec<Command>,
    pub counters: Vec<CounterRequest>,
    pub command: Command,
    /// Services that must be there still when it has ended.
    pub services: Vec<ServiceId>,
    /// The journal of the profile in force, whose knobs are read afterwards.
    pub profile_journal: Option<PathBuf>,
}

/// A file of counters, read beside a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CounterRequest {
    pub path: String,
    pub every: Duration,
    pub summary: SummaryRule,
}

/// Texts as they were read, and a value by name; Err says in one line why there is none.
pub type CountersRead = Result<(Vec<u8>, Vec<(String, f64)>), String>;

/// What came of a measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MeasurementResult {
    /// Why the page cache could not be emptied.
    pub caches_kept: Option<String>,
    /// None where nobody looked.
    pub noise: Option<Result<MachineNoise, HostError>>,
    /// Of the commands before it, up to the first that failed.
    pub before: Vec<Output>,
    /// None where one of those before has failed.
    pub output: Option<Output>,
    /// In the order of the request; none where nothing was measured.
    pub monitors: Vec<Result<Output, HostError>>,
    pub counters: Vec<CountersRead>,
    /// The first of the services that was not there any more, by its place in the request.
    pub dead_service: Option<(usize, Output)>,
    /// A line about each knob that somebody else has set; Err: they could not be read.
    pub knobs: Option<Result<Vec<String>, String>>,
}

/// What a machine did during one look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineNoise {
    /// Load average over one minute.
    pub load_1min: f64,
    pub busy_cpus: f64,
    /// Fraction of the time.
    pub steal: f64,
    /// Thermal throttling events of all CPUs.
    pub throttled: u64,
    /// The heaviest processes, of each name one: name and fraction of one CPU.
    pub heavy: Vec<(String, f64)>,
}
