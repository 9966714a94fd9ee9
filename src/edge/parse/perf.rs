//! Reading what `perf stat -x,` counts, with or without `-I`.

use std::collections::{BTreeMap, BTreeSet};

use super::text::{number, shorten};
use super::{Found, READINGS_MAX};
use crate::base::sample::Reading;

/// Milliseconds of CPU time, such as `cpu-clock`.
const MILLISECONDS: &str = "msec";

#[derive(Default)]
struct PerfEvent {
    sum: f64,
    unit: String,
}

/// Lines are `value,unit,event,…`, with `-I` behind the time in seconds and once for each interval
/// (perf-stat(1), "CSV FORMAT"). A reading for each event: how often it was counted, with `-I` per
/// second; CPU time per second is a number of CPUs. Events that this machine does not count are told
/// in one warning. Other lines are those of the program that perf has started.
pub fn parse(text: &str, found: &mut Found) -> Result<(), String> {
    let mut events: BTreeMap<&str, PerfEvent> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    let mut uncounted: Vec<&str> = Vec::new();
    // Those uncounted on a CPU or another part of the machine.
    let mut lacking: BTreeSet<&str> = BTreeSet::new();
    let mut seconds = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let is_value = |field: &str| field.starts_with('<') || number(field).is_ok();
        let (time, rest) = match fields[..] {
            [time, value, ..] if is_value(value) && fields_of_part(&fields) == 0 => {
                (number(time).ok(), &fields[1..])
            }
            [time, ..] if fields_of_part(&fields[1..]) > 0 => (number(time).ok(), &fields[1..]),
            _ => (None, &fields[..]),
        };
        let of_part = fields_of_part(rest);
        let rest = &rest[of_part..];
        let [value, unit, event, _, ..] = rest[..] else {
            continue;
        };
        if !is_value(value) || !event.contains(char::is_alphabetic) || unit.starts_with('<') {
            continue;
        }
        seconds = time.or(seconds);
        let Ok(value) = number(value) else {
            if !uncounted.contains(&event) {
                uncounted.push(event);
            }
            if of_part > 0 {
                lacking.insert(event);
            }
            continue;
        };
        let counted = events.entry(event).or_insert_with(|| {
            order.push(event);
            PerfEvent::default()
        });
        counted.sum += value;
        counted.unit = unit.to_owned();
    }
    for event in &lacking {
        if events.contains_key(event) {
            let event = shorten(event);
            found.warn(format!(
                "the sum of `{event}` lacks parts of the machine that were not counted"
            ));
        }
    }
    // One that was counted in another interval is no news.
    uncounted.retain(|event| !events.contains_key(event));
    let names: Vec<String> = uncounted
        .iter()
        .map(|e| format!("`{}`", shorten(e)))
        .collect();
    let names = names.join(", ");
    if events.is_empty() {
        return Err(match uncounted.is_empty() {
            true => refusal(text).to_owned(),
            false => format!("this machine counts none of the events: {names}"),
        });
    }
    if !uncounted.is_empty() {
        found.warn(format!("this machine does not count {names}"));
    }
    for name in order.into_iter().take(READINGS_MAX) {
        let PerfEvent { sum, unit } = &events[name];
        let (value, unit) = match (seconds, unit.as_str()) {
            (Some(seconds), MILLISECONDS) => (sum / 1e3 / seconds, "CPUs".to_owned()),
            (Some(seconds), "") => (sum / seconds, "1/s".to_owned()),
            (Some(seconds), unit) => (sum / seconds, format!("{unit}/s")),
            (None, unit) => (*sum, unit.to_owned()),
        };
        if value.is_finite() {
            found.metrics.push(Reading {
                name: name.to_owned(),
                value,
                unit,
                better: None,
            });
        }
    }
    match found.metrics.is_empty() {
        true => Err("the intervals have no length".to_owned()),
        false => Ok(()),
    }
}

/// Fields about which CPUs are counted, at the beginning of these: `CPU0` of `-A`; `S0-D0-C1`, `N0` of
/// `--per-core` and the like, with their number behind it. What is read is the sum of all.
fn fields_of_part(fields: &[&str]) -> usize {
    let is_numbered = |kind: &str| {
        let rest = fields.first().and_then(|field| field.strip_prefix(kind));
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    match () {
        () if is_numbered("CPU") => 1,
        () if is_numbered("S") || is_numbered("N") => 2.min(fields.len()),
        () => 0,
    }
}

/// What to write instead, where no line is a count.
fn refusal(text: &str) -> &'static str {
    match text
        .lines()
        .any(|line| line.trim_start().starts_with('{') && line.contains("\"event\""))
    {
        true => "these counts are JSON: write `perf stat -x,` instead of `-j`",
        false => "no event counts: print them with `perf stat -x,`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `perf stat -a -x, -I 500` (perf 6.1) in a virtual machine without performance counters.
    const INTERVALS: &str = "\
     0.500000000,1020.19,msec,cpu-clock,1020191778,100.00,2.040,CPUs utilized
     0.500000000,402,,context-switches,1020187108,100.00,394.045,/sec
     0.500000000,<not supported>,,cycles,0,100.00,,
     0.500000000,<not supported>,,branch-misses,0,100.00,,
     1.000000000,980.81,msec,cpu-clock,1047173073,100.00,2.094,CPUs utilized
     1.000000000,598,,context-switches,1047173582,100.00,560.557,/sec
     1.000000000,<not supported>,,cycles,0,100.00,,
     1.000000000,<not supported>,,branch-misses,0,100.00,,
";

    type PerfReadings = Vec<(String, f64, String)>;

    fn read(text: &str) -> Result<(PerfReadings, Vec<String>), String> {
        let mut found = Found::default();
        parse(text, &mut found)?;
        let readings = found.metrics.into_iter().map(|m| (m.name, m.value, m.unit));
        Ok((readings.collect(), found.warnings))
    }

    #[test]
    fn intervals_are_rates() {
        let (readings, warnings) = read(INTERVALS).unwrap();
        let expected = [
            ("cpu-clock".to_owned(), 2.001, "CPUs".to_owned()),
            ("context-switches".to_owned(), 1000.0, "1/s".to_owned()),
        ];
        assert_eq!(readings, expected);
        let expected = ["this machine does not count `cycles`, `branch-misses`"];
        assert_eq!(warnings, expected);
    }

    #[test]
    fn a_whole_run_is_counts() {
        let text = "the program's own, with, commas, in it\n# started on Mon\n\n\
                    3.5,msec,task-clock,3500000,100.00,0.9,CPUs utilized\n\
                    7.25,Joules,power/energy-pkg/,1000,100.00,,\n\
                    <not counted>,,cache-misses,0,0.00,,\n12,,page-faults,3500000,100.00,3.4,K/sec\n";
        let (readings, warnings) = read(text).unwrap();
        let expected = [
            ("task-clock", 3.5, "msec"),
            ("power/energy-pkg/", 7.25, "Joules"),
            ("page-faults", 12.0, ""),
        ];
        let expected =
            expected.map(|(name, value, unit)| (name.to_owned(), value, unit.to_owned()));
        assert_eq!(readings, expected);
        assert_eq!(warnings, ["this machine does not count `cache-misses`"]);
    }

    #[test]
    fn counts_of_parts_of_a_machine_are_added_up() {
        let check = |text: &str, expected: f64| {
            let (readings, _) = read(text).unwrap();
            let found: Vec<f64> = readings.into_iter().map(|(_, value, _)| value).collect();
            assert_eq!(found, [expected], "{text}");
        };
        check(
            "CPU0,12,,cycles,5,100.00,,\nCPU1,30,,cycles,5,100.00,,\n",
            42.0,
        );
        check(
            "     0.5,CPU0,12,,cycles,5,100.00,,\n     0.5,CPU1,30,,cycles,5,100.00,,\n",
            84.0,
        );
        check("S0,2,42,,cycles,5,100.00,,\n", 42.0);
        check(
            "0.5,S0-D0-C0,1,12,,cycles,5,100.00,,\n0.5,S0-D0-C1,1,30,,cycles,5,100.00,,\n",
            84.0,
        );
    }

    #[test]
    fn a_sum_that_lacks_parts_is_told() {
        let check = |text: &str, expected: &[&str]| {
            let (readings, warnings) = read(text).unwrap();
            assert_eq!(
                (readings.len(), warnings),
                (1, expected.iter().map(|w| w.to_string()).collect()),
                "{text}"
            );
        };
        let lacks = "the sum of `cycles` lacks parts of the machine that were not counted";
        let counted = "CPU0,12,,cycles,5,100.00,,\n";
        check(counted, &[]);
        check(
            &format!("{counted}CPU1,<not counted>,,cycles,0,0.00,,\n"),
            &[lacks],
        );
        check(
            "0.5,S0,1,<not counted>,,cycles,0,0.00,,\n0.5,S1,1,9,,cycles,5,100.00,,\n",
            &[lacks],
        );
        // In another interval, which is no part.
        check(
            "0.5,<not counted>,,cycles,0,0.00,,\n1.0,9,,cycles,5,100.00,,\n",
            &[],
        );
        check(
            &format!("{counted}CPU0,<not supported>,,branches,0,100.00,,\n"),
            &["this machine does not count `branches`"],
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let check = |text: &str, expected: &str| assert_eq!(read(text), Err(expected.to_owned()));
        let none = "no event counts: print them with `perf stat -x,`";
        check("", none);
        check("   1.0 12 cycles\n", none);
        check(
            "{\"interval\" : 0.5, \"counter-value\" : \"1.0\", \"event\" : \"cycles\"}\n",
            "these counts are JSON: write `perf stat -x,` instead of `-j`",
        );
        check(
            "1.0,<not supported>,,cycles,0,100.00,,\n2.0,<not supported>,,cycles,0,100.00,,\n",
            "this machine counts none of the events: `cycles`",
        );
        check("0,5,,faults,1,100.00,,\n", "the intervals have no length");
    }
}
