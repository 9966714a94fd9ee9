//! Reading fio's JSON, versions 2.1 to 3.42: which numbers were measured, in which unit.
//!
//! Names of readings: `DIRECTION.iops`, `.bw` (bytes/s), `.io_bytes`, `.lat_mean`, `.clat_p99`,
//! `.clat_p99.9` and so on (ns; `slat`, `clat`, `lat`), where DIRECTION is `read`, `write`, `trim`
//! or `mixed`; `sync.lat_mean`, `sync.lat_p99`; `cpu.usr`, `cpu.sys` (% of one CPU, mean of the
//! jobs). The jobs of one group are added up. Jobs of several groups never are: then each name
//! begins with the group's number, as in `group1.read.iops`.

mod latency;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Found, Input, document, text};
use crate::base::sample::{Better, Reading};
use crate::base::units::parse_duration;

const DIRECTIONS: [&str; 4] = ["read", "write", "trim", "mixed"];

/// Jobs whose errors or names are listed in one message.
const LISTED_MAX: usize = 5;

/// Options by which fio is told not to take times.
const UNTIMED: [&str; 4] = ["gtod_reduce", "disable_lat", "disable_clat", "disable_slat"];

/// What the nbd engine says of each job, each time: nothing odd.
const NBD_CONNECTED: &str = "fio: connected to NBD server";

/// Reads the last complete document of fio's output. Err says in one line why there is nothing
/// to be used.
pub fn parse(text: &str, input: &Input, found: &mut Found) -> Result<(), String> {
    let document =
        document::last(text, &['{'], found).map_err(|reason| no_document(text, reason))?;
    let version = version(&document);
    let jobs = jobs(&document).ok_or(
        "JSON that is not fio's: it has no `jobs`; is the parser the right one for this command?",
    )?;
    if let Some(error) = errors(&jobs).first() {
        return Err(format!("fio's {error}"));
    }
    if let Some((major, minor)) = version.filter(|version| version.0 > 3) {
        found.warn(format!(
            "fio {major}.{minor} is newer than what is known here (3.42): read as 3.42"
        ));
    }
    for note in notes(input) {
        found.warn(note);
    }
    for incomplete in incomplete(&jobs) {
        found.warn(incomplete);
    }

    let mut groups: BTreeMap<i64, Vec<&Value>> = BTreeMap::new();
    for job in jobs {
        let id = job.get("groupid").and_then(Value::as_i64).unwrap_or(0);
        groups.entry(id).or_default().push(job);
    }
    if groups.len() > 1 {
        found.warn(several_groups(&groups));
    }
    let mut has_data = false;
    for (id, jobs) in &groups {
        let prefix = match groups.len() {
            1 => String::new(),
            _ => format!("group{id}."),
        };
        has_data |= group(&prefix, jobs, &document, version, found)?;
    }
    match has_data {
        true => Ok(()),
        false => Err("no data: fio did no I/O".to_owned()),
    }
}

/// The errors of jobs in an output of which nothing else is used.
pub fn job_errors(stdout: &[u8]) -> Vec<String> {
    let mut ignored = Found::default();
    let text = text::decode(stdout, &mut ignored);
    let document = document::last(&text, &['{'], &mut ignored);
    let document = document.unwrap_or_default();
    jobs(&document)
        .map(|jobs| errors(&jobs))
        .unwrap_or_default()
}

/// The entries of a document; None where it is not fio's.
fn jobs(document: &Value) -> Option<Vec<&Value>> {
    let entries = document.get("jobs").or(document.get("client_stats"))?;
    let mut jobs: Vec<&Value> = entries.as_array()?.iter().collect();
    // In client mode a last entry adds up the others.
    if jobs.len() > 1 && document.get("jobs").is_none() {
        jobs.retain(|job| job_name(job) != "All clients");
    }
    jobs.iter().all(|job| job.is_object()).then_some(jobs)
}

/// `3.33` of `fio-3.33-19-ge7e53`; None where it is written in another way.
fn version(document: &Value) -> Option<(u32, u32)> {
    let text = document.get("fio version")?.as_str()?;
    let mut parts = text.strip_prefix("fio-")?.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn job_name(job: &Value) -> &str {
    job.get("jobname").and_then(Value::as_str).unwrap_or("?")
}

/// Jobs that failed, each with its error in one line.
fn errors(jobs: &[&Value]) -> Vec<String> {
    let errors = jobs.iter().filter_map(|job| {
        let get = |name: &str| job.get(name).and_then(Value::as_i64).unwrap_or(0);
        // With continue_on_error fio counts them; 32 bits, printed without their sign.
        let error = [get("error"), get("first_error"), get("total_err")];
        let error = error.into_iter().find(|error| *error != 0)? as i32;
        let name = text::shorten(job_name(job));
        if get("error") == 0 && get("first_error") == 0 {
            return Some(format!("job `{name}` had {error} errors"));
        }
        let meaning = match error {
            1.. => std::io::Error::from_raw_os_error(error).to_string(),
            _ => "unknown".to_owned(),
        };
        let meaning = meaning.split(" (os error").next().unwrap_or_default();
        Some(format!("job `{name}` failed: error {error} ({meaning})"))
    });
    errors.take(LISTED_MAX).collect()
}

/// I/Os that fio counts as less than what was asked for.
fn incomplete(jobs: &[&Value]) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in DIRECTIONS {
        let total = |key| {
            let counts = jobs.iter().filter_map(|job| positive(job.get(name)?, key));
            counts.sum::<f64>()
        };
        let kinds = [
            ("short_ios", "transferred less than was asked for"),
            ("drop_ios", "were dropped"),
        ];
        for (key, what) in kinds {
            let count = total(key);
            if count > 0.0 {
                warnings.push(format!("{count} of the {name} I/Os {what} ({key})"));
            }
        }
    }
    warnings
}

/// What to say where there is no JSON document.
fn no_document(text: &str, reason: String) -> String {
    let is_terse = |line: &str| {
        let mut fields = line.split(';');
        fields
            .next()
            .is_some_and(|field| field.parse::<u8>().is_ok())
            && fields.next().is_some_and(|field| field.starts_with("fio-"))
    };
    let is_human = |line: &str| line.contains("(groupid=") || line.starts_with("Run status group");
    if text.lines().any(is_terse) {
        "terse output: ask for --output-format=json".to_owned()
    } else if text.lines().any(is_human) && reason.starts_with("no JSON") {
        "output for people: ask for --output-format=json".to_owned()
    } else {
        reason
    }
}

/// What fio says beside its result, as warnings.
fn notes(input: &Input) -> Vec<String> {
    let is_note = |line: &str| {
        (line.starts_with("fio: ") || line.starts_with("note: ")) && line != NBD_CONNECTED
    };
    let mut notes = text::last_lines(text::before_json(input.stdout), is_note);
    notes.extend(text::last_lines(input.stderr, is_note));
    notes
}

fn several_groups(groups: &BTreeMap<i64, Vec<&Value>>) -> String {
    let mut listed: Vec<String> = groups
        .iter()
        .take(LISTED_MAX)
        .map(|(id, jobs)| format!("group{id} is `{}`", text::shorten(job_name(jobs[0]))))
        .collect();
    if groups.len() > LISTED_MAX {
        listed.push("…".to_owned());
    }
    let first = groups.keys().next().copied().unwrap_or_default();
    format!(
        "{} groups of jobs, which are not added up: names begin with the group, as in \
         `group{first}.read.iops` ({})",
        groups.len(),
        listed.join(", ")
    )
}

/// Reads one group. False when it did no I/O; Err when what should be there is not.
fn group(
    prefix: &str,
    jobs: &[&Value],
    document: &Value,
    version: Option<(u32, u32)>,
    found: &mut Found,
) -> Result<bool, String> {
    let mut has_data = false;
    let mut has_latency = false;
    for name in DIRECTIONS {
        let used: Vec<&Value> = jobs
            .iter()
            .filter_map(|job| job.get(name))
            .filter(|direction| did_io(direction))
            .collect();
        if used.is_empty() {
            continue;
        }
        has_data = true;
        let name = format!("{prefix}{name}");
        rates(&name, &used, version, found)?;
        for kind in ["slat", "clat", "lat"] {
            has_latency |= latency::read(&name, &used, kind, found);
        }
    }
    let synced: Vec<&Value> = jobs
        .iter()
        .filter_map(|job| job.get("sync"))
        .filter(|sync| latency::is_measured(sync, "lat"))
        .collect();
    latency::read(&format!("{prefix}sync"), &synced, "lat", found);
    if has_data {
        cpu(prefix, jobs, found);
    }
    for job in jobs {
        let name = text::shorten(job_name(job));
        if has_data && !has_latency && ended_in_ramp(job, document) {
            found.warn(format!(
                "job `{name}` ended within its ramp_time: its numbers are of the ramp"
            ));
        }
        let steady = job
            .get("steadystate")
            .and_then(|state| state.get("attained"));
        if steady.and_then(Value::as_i64) == Some(0) {
            found.warn(format!("job `{name}` did not attain its steady state"));
        }
    }
    Ok(has_data)
}

/// True when I/O was done. `total_ios` does not tell: the cpuio engine counts one.
fn did_io(direction: &Value) -> bool {
    let is_some = |key| positive(direction, key).is_some();
    is_some("iops") || is_some("io_bytes")
}

/// IOPS, bandwidth and bytes of one direction, summed over jobs. `iops`, not `iops_mean`: that is
/// the mean of samples, and wrong with an unaveraged log (axboe/fio issue 448).
fn rates(
    name: &str,
    used: &[&Value],
    version: Option<(u32, u32)>,
    found: &mut Found,
) -> Result<(), String> {
    let sum = |value: &dyn Fn(&Value) -> Option<f64>| {
        let values = used.iter().map(|direction| value(direction));
        values.sum::<Option<f64>>()
    };
    let iops = sum(&|direction| positive(direction, "iops")).ok_or_else(|| {
        format!(
            "fio gives bytes but no IOPS for {name}: it ran shorter than its clock counts, or is \
             of an unknown version"
        )
    })?;
    // `bw_bytes` is there from 3.2 on; `bw` is in KiB/s in all versions.
    let bw = sum(&|direction| {
        let kib = || positive(direction, "bw").map(|kib| kib * 1024.0);
        positive(direction, "bw_bytes").or_else(kib)
    });
    // `io_bytes` was in KiB up to 2.20; `io_kbytes` came with the change.
    let io_bytes = sum(&|direction| {
        let io_bytes = positive(direction, "io_bytes")?;
        match version {
            _ if direction.get("io_kbytes").is_some() => Some(io_bytes),
            Some(version) if version < (2, 21) => Some(io_bytes * 1024.0),
            Some(_) => Some(io_bytes),
            None => None,
        }
    });
    let readings = [
        ("iops", Some(iops), "1/s"),
        ("bw", bw, "bytes/s"),
        ("io_bytes", io_bytes, "bytes"),
    ];
    for (metric, value, unit) in readings {
        found.metrics.extend(value.map(|value| Reading {
            better: better(metric),
            name: format!("{name}.{metric}"),
            value,
            unit: unit.to_owned(),
        }));
    }
    Ok(())
}

/// Which direction is better, by the end of a reading's name: `read.iops`, `clat_p99.9`, `cpu.usr`.
pub(super) fn better(name: &str) -> Option<Better> {
    let mut parts = name.rsplit('.');
    let is_latency = |part: &str| {
        let kind = part.split_once('_').map_or("", |(kind, _)| kind);
        ["slat", "clat", "lat"].contains(&kind)
    };
    match (parts.next()?, parts.next()) {
        ("iops" | "bw", _) => Some(Better::Higher),
        ("usr" | "sys", Some("cpu")) => Some(Better::Lower),
        // A percentile may have a dot of its own.
        (last, before) if is_latency(last) || before.is_some_and(is_latency) => Some(Better::Lower),
        _ => None,
    }
}

/// The mean of the jobs, weighted by how long they ran; left out when that is not known of several
/// jobs (`job_runtime` is there from 3.8 on).
fn cpu(prefix: &str, jobs: &[&Value], found: &mut Found) {
    let runtimes: Option<Vec<f64>> = match jobs {
        [job] if job.get("job_runtime").is_none() => Some(vec![1.0]),
        jobs => jobs
            .iter()
            .map(|job| positive(job, "job_runtime"))
            .collect(),
    };
    let Some(runtimes) = runtimes else { return };
    for (metric, key) in [("cpu.usr", "usr_cpu"), ("cpu.sys", "sys_cpu")] {
        let shares = jobs.iter().map(|job| job.get(key).and_then(Value::as_f64));
        let Some(shares) = shares.collect::<Option<Vec<f64>>>() else {
            continue;
        };
        let weighted = shares
            .iter()
            .zip(&runtimes)
            .map(|(share, time)| share * time);
        found.metrics.push(Reading {
            name: format!("{prefix}{metric}"),
            value: weighted.sum::<f64>() / runtimes.iter().sum::<f64>(),
            unit: "%".to_owned(),
            better: better(metric),
        });
    }
}

/// fio takes no latencies before the ramp is over, and then sets the counters back. So I/O without
/// latencies, although they were not switched off, is of the ramp.
fn ended_in_ramp(job: &Value, document: &Value) -> bool {
    let option = |name: &str| {
        let of = |options: Option<&Value>| options?.get(name)?.as_str().map(str::to_owned);
        of(job.get("job options")).or_else(|| of(document.get("global options")))
    };
    let ramp = option("ramp_time").and_then(|text| parse_duration(&text));
    ramp.is_some_and(|ramp| !ramp.is_zero()) && UNTIMED.iter().all(|name| option(name).is_none())
}

/// A number above 0; what is 0 was not measured.
fn positive(value: &Value, key: &str) -> Option<f64> {
    value.get(key)?.as_f64().filter(|number| *number > 0.0)
}
