//! Carrying out a measurement on a machine, from the look at its quiet to the look at its knobs.

use std::path::Path;

use super::counters::{self, CounterFile};
use super::host::measurement::{Measurement, MeasurementResult};
use super::host::{Cancel, FileOp, FileReply, Host, HostError, ServiceId, file};
use super::quiet::{self, Limits};
use super::tune::{self, Status, TuneError, drop_caches};

/// Measures once. Where the machine has an agent, nothing is asked of it in the meantime. Err where something around the
/// measurement failed, such as its folder; what came of the program is in the result.
pub async fn measure(
    host: &dyn Host,
    measurement: Measurement,
    cancel: Cancel,
) -> Result<MeasurementResult, HostError> {
    match host.measure(&measurement, &cancel) {
        Some(result) => result.await,
        None => carry_out(host, measurement, cancel).await,
    }
}

/// Measures once, step by step.
pub async fn carry_out(
    host: &dyn Host,
    measurement: Measurement,
    cancel: Cancel,
) -> Result<MeasurementResult, HostError> {
    let dir = measurement.dir.clone();
    let journal = measurement.profile_journal.clone();
    file(host, FileOp::MakeDir { path: dir.clone() }).await?;
    let mut result = MeasurementResult::default();
    let services = measurement.services.clone();
    let measured = measure_in(host, measurement, &mut result, cancel).await;
    for (place, service) in services.into_iter().enumerate() {
        if let Some(output) = host.ended(service).await {
            result.dead_service = Some((place, output));
            break;
        }
    }
    if let Some(journal) = journal {
        let lines = knobs_of_others(host, &journal).await;
        result.knobs = Some(lines.map_err(|error| error.to_string()));
    }
    let emptied = leave_empty(host, &dir).await;
    measured.and(emptied).map(|()| result)
}

async fn measure_in(
    host: &dyn Host,
    measurement: Measurement,
    result: &mut MeasurementResult,
    cancel: Cancel,
) -> Result<(), HostError> {
    if measurement.drops_caches {
        let dropped = drop_caches(host).await;
        result.caches_kept = dropped.err().map(|refusal| refusal.to_string());
    }
    if let Some(wait) = measurement.quiet_wait {
        let ours = &measurement.ours;
        let limits = Limits::default();
        result.noise = Some(quiet::wait(host, &limits, wait, ours, &cancel).await);
    }
    for command in measurement.before {
        let output = host.run(command, cancel.clone()).await?;
        let is_success = output.ended.is_success();
        result.before.push(output);
        if !is_success {
            return Ok(());
        }
    }
    let counters = measurement.counters.into_iter();
    let counters = counters.map(|it| CounterFile::new(it.path, it.every, it.summary));
    let mut counters: Vec<CounterFile> = counters.collect();
    let mut monitors: Vec<Result<ServiceId, HostError>> = Vec::new();
    for command in measurement.monitors {
        monitors.push(host.start(command).await);
    }
    let run = host.run(measurement.command, cancel);
    let output = counters::beside(host, &mut counters, run).await;
    // They see nothing but the measurement.
    for monitor in monitors {
        result.monitors.push(match monitor {
            Ok(service) => host.stop(service).await,
            Err(error) => Err(error),
        });
    }
    result.counters = counters.into_iter().map(CounterFile::finish).collect();
    result.output = Some(output?);
    Ok(())
}

/// Making a folder and removing it costs more than many a measurement, and waits for those who sync.
async fn leave_empty(host: &dyn Host, dir: &Path) -> Result<(), HostError> {
    match file(host, FileOp::List { path: dir.into() }).await {
        Ok(FileReply::Names(names)) if names.is_empty() => Ok(()),
        _ => {
            let removed = file(host, FileOp::Remove { path: dir.into() }).await;
            removed.map(|_| ())
        }
    }
}

/// Knobs that hold neither the profile's value nor the old one, a line each: somebody else has set
/// them.
async fn knobs_of_others(host: &dyn Host, journal: &Path) -> Result<Vec<String>, TuneError> {
    let Status::Active { changed, .. } = tune::status(host, journal).await? else {
        return Ok(vec![
            "the profile is not in force any more: somebody has reverted it".to_owned(),
        ]);
    };
    let lines = changed.into_iter().map(|(row, found)| {
        let (path, new) = (row.path, row.new);
        format!("somebody has set {path} to `{found}`, where the profile had `{new}`")
    });
    Ok(lines.collect())
}
