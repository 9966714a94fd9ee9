//! The parts of a profile that are processes: stopped units, the held DMA latency.

use std::path::PathBuf;
use std::time::Duration;

use super::{KnobOutcome, Refusal, Reverted};
use crate::base::sample::Ended;
use crate::machine::host::{Cancel, Command, FileOp, FileReply, Host, HostError, ServiceId};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(90);
const OUTPUT_BYTES_MAX: usize = 64 * 1024;
const DMA_LATENCY: &str = "/dev/cpu_dma_latency";
/// How often, and how long apart, the kernel is asked whether the latency holds.
const HOLD_TRIES: u32 = 100;
const HOLD_PAUSE: Duration = Duration::from_millis(10);
/// Longer than any matrix runs.
const HOLD_TIME_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// systemctl's status for a unit that it does not know (LSB: program or service status is unknown).
const UNKNOWN_UNIT: i32 = 4;

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|&arg| arg.to_owned()).collect(),
        dir: PathBuf::from("/"),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: COMMAND_TIMEOUT,
        output_bytes_max: OUTPUT_BYTES_MAX,
    }
}

/// Runs a command that must succeed. Err is the reason in one line.
pub(super) async fn run(host: &dyn Host, argv: &[&str]) -> Result<(), String> {
    let output = host.run(command(argv), Cancel::never()).await;
    let output = output.map_err(|error| error.message)?;
    if output.ended.is_success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().next().unwrap_or("it said nothing");
    Err(format!("`{}`: {}: {line}", argv.join(" "), output.ended))
}

fn refusal(unit: &str, reason: String) -> Refusal {
    Refusal {
        knob: "stop-service".to_owned(),
        words: None,
        path: unit.into(),
        wanted: "stopped".into(),
        found: None,
        reason,
    }
}

/// Whether a unit runs. Err where there is no systemd or no such unit.
pub(super) async fn is_active(host: &dyn Host, unit: &str) -> Result<bool, Refusal> {
    let argv = ["systemctl", "is-active", "--quiet", unit];
    match host.run(command(&argv), Cancel::never()).await {
        Ok(output) => match output.ended {
            Ended::Exit(0) => Ok(true),
            Ended::Exit(UNKNOWN_UNIT) => Err(refusal(unit, "there is no such unit".to_owned())),
            // 3 is "not running"; 1 is a machine on which systemd is installed but does not run.
            Ended::Exit(3) => Ok(false),
            ended => Err(refusal(unit, format!("`{}`: {ended}", argv.join(" ")))),
        },
        Err(HostError { message, .. }) => Err(refusal(unit, message)),
    }
}

pub(super) async fn stop(host: &dyn Host, unit: &str) -> Result<(), Refusal> {
    let stopped = run(host, &["systemctl", "stop", unit]).await;
    stopped.map_err(|reason| refusal(unit, reason))
}

/// How a unit is started again; also its name in what was reverted.
pub(super) fn start_command(unit: &str) -> String {
    format!("systemctl start {unit}")
}

/// Starts a unit that ran before the profile.
pub(super) async fn start(host: &dyn Host, unit: &str) -> Reverted {
    let outcome = match is_active(host, unit).await {
        Ok(true) => KnobOutcome::AlreadyBack,
        _ => match run(host, &["systemctl", "start", unit]).await {
            Ok(()) => KnobOutcome::PutBack,
            Err(reason) => KnobOutcome::Failed { reason },
        },
    };
    Reverted {
        knob: "stop-service".to_owned(),
        path: start_command(unit),
        old: "running".to_owned(),
        outcome,
    }
}

fn refuse_latency(us: u32, found: Option<i32>, reason: String) -> Refusal {
    Refusal {
        knob: "dma-latency-us".to_owned(),
        words: None,
        path: DMA_LATENCY.into(),
        wanted: us.to_string().into(),
        found: found.map(|us| us.to_string()),
        reason,
    }
}

/// The latency in force, in microseconds, where `us` is wanted.
pub(super) async fn dma_latency(host: &dyn Host, us: u32) -> Result<i32, Refusal> {
    let found = latency(host).await;
    found.map_err(|reason| refuse_latency(us, None, reason))
}

/// Starts a process that holds the file open with the wanted latency, which is in force for just as
/// long (Documentation/power/pm_qos_interface.rst), and waits until the kernel says so.
pub(super) async fn hold_dma_latency(host: &dyn Host, us: u32) -> Result<ServiceId, Refusal> {
    let refuse = |found: Option<i32>, reason: String| refuse_latency(us, found, reason);
    // Without this a machine that lacks the file would get an ordinary one.
    dma_latency(host, us).await?;
    // The file takes ten hexadecimal characters; descriptor 3 stays open in `sleep`.
    let script = "exec 3>\"$1\"; printf '0x%08x' \"$2\" >&3; exec sleep infinity";
    let us_text = us.to_string();
    let argv = [
        "sh",
        "-ec",
        script,
        "hold-dma-latency",
        DMA_LATENCY,
        &us_text,
    ];
    let command = Command {
        timeout: HOLD_TIME_MAX,
        ..command(&argv)
    };
    let service = host.start(command).await;
    let service = service.map_err(|error| refuse(None, error.message))?;
    let mut found = None;
    for _ in 0..HOLD_TRIES {
        found = latency(host).await.ok();
        if found.is_some_and(|found| i64::from(found) <= i64::from(us)) {
            return Ok(service);
        }
        if host.ended(service).await.is_some() {
            break;
        }
        tokio::time::sleep(HOLD_PAUSE).await;
    }
    let said = host.stop(service).await;
    let said = said.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
    let reason = format!("it does not hold: {}", said.unwrap_or_default());
    Err(refuse(found, reason))
}

/// The latency in force, in microseconds: the file reads as four bytes in the machine's own order,
/// which is little-endian on all that Linux has C-states for.
async fn latency(host: &dyn Host) -> Result<i32, String> {
    let ops = vec![FileOp::Read {
        path: DMA_LATENCY.into(),
        bytes_max: 64,
    }];
    match host.files(ops).await.pop() {
        Some(Ok(FileReply::Bytes(bytes))) => match <[u8; 4]>::try_from(&bytes[..]) {
            Ok(bytes) => Ok(i32::from_le_bytes(bytes)),
            Err(_) => Err(format!("it has {} bytes, not 4", bytes.len())),
        },
        Some(Err(error)) => Err(error.message),
        _ => Err("it cannot be read".to_owned()),
    }
}
