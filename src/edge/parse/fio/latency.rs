//! Fio's latencies: units by version, means and percentiles over several jobs.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Found, positive};
use crate::base::sample::Reading;

/// Nanoseconds, from 2.99 on (`clat_ns`), before that microseconds (`clat`).
const UNITS: [(&str, f64); 2] = [("_ns", 1.0), ("", 1000.0)];

/// One latency of one job.
struct Latency<'a> {
    value: &'a Value,
    /// Nanoseconds of its unit.
    unit_ns: f64,
    /// In nanoseconds.
    mean: f64,
    /// I/Os that it is the mean of; None where no version-independent count is there.
    count: Option<f64>,
}

/// Adds the mean and the percentiles of the latency `kind` (`slat`, `clat` or `lat`) over the
/// given sections of jobs. False when none of them measured it.
///
/// The mean is weighted by I/Os. Percentiles of several jobs come from their histograms, which
/// json+ has; they cannot be derived from percentiles, and are left out with a warning.
pub fn read(name: &str, sections: &[&Value], kind: &str, found: &mut Found) -> bool {
    let latencies: Vec<Latency> = sections
        .iter()
        .filter_map(|section| measured(section, kind))
        .collect();
    if latencies.is_empty() {
        return false;
    }
    if latencies.len() < sections.len() {
        found.warn(format!(
            "{name}.{kind} was measured by some of the jobs only: left out"
        ));
        return true;
    }
    let mut push = |metric: String, value: f64| {
        found.metrics.push(Reading {
            better: super::better(&metric),
            name: format!("{name}.{metric}"),
            value,
            unit: "ns".to_owned(),
        });
    };
    let mut warning = None;
    match weighted_mean(&latencies) {
        Some(mean) => push(format!("{kind}_mean"), mean),
        None => {
            warning = Some(format!(
                "{name}.{kind}_mean left out: fio does not tell the number of I/Os of each job"
            ));
        }
    }
    match percentiles(&latencies) {
        Some(percentiles) => {
            for (percent, value) in percentiles {
                push(format!("{kind}_p{percent}"), value);
            }
        }
        None => {
            warning = Some(format!(
                "{name}.{kind} percentiles left out: those of {} jobs cannot be joined; add \
                 --group_reporting or ask for --output-format=json+",
                latencies.len()
            ));
        }
    }
    found.warnings.extend(warning);
    true
}

/// True when the section holds this latency, and it was measured.
pub fn is_measured(section: &Value, kind: &str) -> bool {
    measured(section, kind).is_some()
}

fn measured<'a>(section: &'a Value, kind: &str) -> Option<Latency<'a>> {
    let (value, unit_ns) = UNITS.into_iter().find_map(|(suffix, unit_ns)| {
        let value = section.get(format!("{kind}{suffix}"))?;
        Some((value, unit_ns))
    })?;
    let rate = || Some(positive(section, "iops")? * positive(section, "runtime")? / 1000.0);
    Some(Latency {
        value,
        unit_ns,
        // Without measuring (gtod_reduce) it is 0, and so is the count in versions that have it.
        mean: positive(value, "mean")? * unit_ns,
        count: positive(value, "N")
            .or_else(|| positive(section, "total_ios"))
            .or_else(rate),
    })
}

fn weighted_mean(latencies: &[Latency]) -> Option<f64> {
    if let [one] = latencies {
        return Some(one.mean);
    }
    let counts: Option<Vec<f64>> = latencies.iter().map(|latency| latency.count).collect();
    let counts = counts?;
    let weighted = latencies.iter().zip(&counts).map(|(l, n)| l.mean * n);
    Some(weighted.sum::<f64>() / counts.iter().sum::<f64>())
}

/// Percentiles in nanoseconds, by percent as it is written in a name (`99`, `99.9`), in rising
/// order. None when there are some that cannot be joined.
fn percentiles(latencies: &[Latency]) -> Option<Vec<(String, f64)>> {
    let listed: Vec<Vec<(f64, f64)>> = latencies.iter().map(listed).collect();
    if let [one] = listed.as_slice() {
        return Some(named(one.iter().copied()));
    }
    if listed.iter().all(Vec::is_empty) {
        return Some(Vec::new());
    }
    let mut bins = BTreeMap::new();
    for latency in latencies {
        add_bins(latency, &mut bins)?;
    }
    let in_all = |percent: &f64| {
        let mut others = listed.iter();
        others.all(|list| list.iter().any(|(p, _)| p == percent))
    };
    let percents = listed[0].iter().map(|(p, _)| *p).filter(in_all);
    let joined = percents.filter_map(|percent| Some((percent, percentile(&bins, percent)?)));
    Some(named(joined))
}

fn named(percentiles: impl Iterator<Item = (f64, f64)>) -> Vec<(String, f64)> {
    percentiles
        .map(|(p, value)| (p.to_string(), value))
        .collect()
}

/// The percentiles that fio gives. Old versions fill unused places of the list with `0.00`, and
/// print 0 for what is shorter than a microsecond.
fn listed(latency: &Latency) -> Vec<(f64, f64)> {
    let Some(list) = latency.value.get("percentile").and_then(Value::as_object) else {
        return Vec::new();
    };
    let mut percentiles: Vec<(f64, f64)> = list
        .iter()
        .filter_map(|(percent, value)| {
            let percent: f64 = percent.parse().ok()?;
            let value = value.as_f64()?;
            let is_used = value > 0.0 && percent > 0.0 && percent <= 100.0;
            is_used.then_some((percent, value * latency.unit_ns))
        })
        .collect();
    percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
    percentiles.dedup_by(|a, b| a.0 == b.0);
    percentiles
}

/// Adds a json+ histogram (latency → I/Os). None where there is none that can be read: early
/// versions wrote places in fio's own table instead of latencies, and its constants among them.
fn add_bins(latency: &Latency, bins: &mut BTreeMap<u64, f64>) -> Option<()> {
    let histogram = latency.value.get("bins")?.as_object()?;
    for (value, count) in histogram {
        let value: u64 = value.parse().ok()?;
        // Exact: the unit is 1 or 1000.
        let value = value.checked_mul(latency.unit_ns as u64)?;
        *bins.entry(value).or_default() += count.as_f64()?;
    }
    Some(())
}

/// The smallest latency below or at which `percent` of the I/Os are: as fio's
/// `calc_clat_percentiles` has it (stat.c), so one job's histogram gives fio's own percentiles.
fn percentile(bins: &BTreeMap<u64, f64>, percent: f64) -> Option<f64> {
    let wanted = percent / 100.0 * bins.values().sum::<f64>();
    let mut sum = 0.0;
    bins.iter()
        .find_map(|(value, count)| {
            sum += count;
            (sum >= wanted).then_some(*value as f64)
        })
        .filter(|value| *value > 0.0)
}
