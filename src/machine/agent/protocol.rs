//! The messages between a machine's agent and those who ask it: requests, replies, and what is told meanwhile.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::machine::host::measurement::{Measurement, MeasurementResult};
use crate::machine::host::undo::{UndoOp, UndoReply};
use crate::machine::host::{
    Command, FileOp, FileReply, Holder, HostError, HostFacts, Output, Probed, ServiceId,
};

/// Changes when a message changes its form: both sides must have the same.
pub const PROTOCOL_VERSION: u32 = 4;
/// What an agent prints first, before its version; a login shell may print other lines before it.
pub const GREETING: &str = "matrix-agent";
/// Bytes of one frame's payload: a longer message is sent in several, between those of others.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes of one message.
pub const MESSAGE_BYTES_MAX: usize = 512 << 20;

/// How long an answer may take that waits for no program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Names a request until it is answered.
pub type CallId = u64;

/// What is sent to an agent about one call.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAgent {
    /// The call's first message.
    Request(Request),
    /// What runs for this call ends; it is answered all the same.
    Cancel,
    /// Nobody waits for the answer any more: what it would have given is put away.
    Abandon,
}

/// What an agent sends about one call.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromAgent {
    /// Who holds the lock that is waited for.
    Waiting(String),
    /// The call's last message.
    Reply(Reply),
}

/// A lock that an agent holds for somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockId(pub u64);

/// One method of [`crate::machine::host::Host`] each, but for `Unlock`.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Facts,
    Files(Vec<FileOp>),
    Run(Command),
    Measure(Box<Measurement>),
    Start(Command),
    Probe(ServiceId, Command),
    Ended(ServiceId),
    Stop(ServiceId),
    Lock(Holder),
    Unlock(LockId),
    Clean,
    Undo(UndoOp),
}

impl Request {
    /// How long its answer may take before whoever asks doubts that the other side is there.
    pub fn patience(&self) -> Duration {
        match self {
            Request::Run(command) | Request::Probe(_, command) => {
                command.timeout.saturating_add(PATIENCE)
            }
            Request::Measure(measurement) => {
                let commands = measurement.before.iter().chain([&measurement.command]);
                let timeouts = commands.map(|command| command.timeout);
                let waits = timeouts.chain(measurement.quiet_wait);
                waits.fold(PATIENCE, Duration::saturating_add)
            }
            _ => PATIENCE,
        }
    }
}

/// The answer to the request of the same name.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Facts(Result<HostFacts, HostError>),
    Files(Vec<Result<FileReply, HostError>>),
    Run(Result<Output, HostError>),
    Measure(Result<Box<MeasurementResult>, HostError>),
    Start(Result<ServiceId, HostError>),
    Probe(Result<Probed, HostError>),
    Ended(Option<Output>),
    Stop(Result<Output, HostError>),
    Lock(Result<LockId, HostError>),
    Unlock,
    Clean(Result<Vec<String>, HostError>),
    Undo(Result<UndoReply, HostError>),
}
