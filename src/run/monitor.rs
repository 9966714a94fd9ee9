//! Monitors: side measurements that run beside the measured step and never spoil a sample.

use std::collections::BTreeMap;
use std::time::Duration;

use super::command::{command, last_words};
use super::execute::Executor;
use crate::base::sample::{Ended, Parsed};
use crate::edge::parse::{Input, Parser};
use crate::edge::store::{MONITOR_VALUES_MAX, Monitored, SampleContext};
use crate::machine::host::measurement::{CounterRequest, CountersRead};
use crate::machine::host::{Command, HostError, Output};
use crate::plan::commands::MonitorWords;

/// What one monitor may print in one measurement; of more, the beginning and the end are kept.
const MONITOR_BYTES_MAX: usize = 4 << 20;
/// A monitor that is stopped by us ends by this signal.
const TERM: i32 = 15;
/// The parser's count of a table's rows: that of the seconds, and no value.
const ROWS: &str = "rows";

/// All monitors of one measurement, as they are asked of the machine, and their names.
#[derive(Default)]
pub(super) struct Monitors {
    names: Vec<String>,
    pub(super) commands: Vec<Command>,
    counter_names: Vec<String>,
    pub(super) counters: Vec<CounterRequest>,
}

impl Monitors {
    /// `timeout` is that of the measurement.
    pub(super) fn new(
        monitors: Vec<MonitorWords>,
        dir: &str,
        env: &[(String, String)],
        timeout: Duration,
    ) -> Monitors {
        let mut all = Monitors::default();
        let mut names = Names::default();
        for monitor in monitors {
            match monitor {
                MonitorWords::Command(argv) => {
                    let mut command = command(&argv, dir, env, timeout);
                    command.output_bytes_max = MONITOR_BYTES_MAX;
                    let program = argv.first().map_or("", String::as_str);
                    let program = program.rsplit('/').next().unwrap_or(program);
                    all.names.push(names.of(program));
                    all.commands.push(command);
                }
                MonitorWords::File {
                    path,
                    every,
                    summary,
                } => {
                    all.counter_names.push(names.of(&path));
                    all.counters.push(CounterRequest {
                        path,
                        every,
                        summary,
                    });
                }
            }
        }
        all
    }
}

impl Executor<'_> {
    /// Keeps what monitors gave. What is wrong with one is told once.
    pub(super) fn keep_monitors(
        &self,
        machine: &str,
        monitors: Monitors,
        outputs: Vec<Result<Output, HostError>>,
        counters: Vec<CountersRead>,
        beside: &mut SampleContext,
    ) {
        let kept = beside.monitors.iter().map(|monitor| monitor.values.len());
        let mut room = MONITOR_VALUES_MAX.saturating_sub(kept.sum());
        let mut keep = |name: String, output: Vec<u8>, values: Vec<(String, f64)>| {
            let values = values.into_iter().take(room);
            let values = values.map(|(own, value)| (format!("{name}.{own}"), value));
            let values: Vec<(String, f64)> = values.collect();
            room -= values.len();
            beside.monitors.push(Monitored {
                name,
                output,
                values,
            });
        };
        let tell = |name: &str, about: &str, what: String| {
            let about = format!("monitor {name}: {about}");
            let what = format!("monitor `{name}`{what}");
            let around = self.job.around;
            around.tell_once_about(self.job.site, machine, &about, what);
        };
        let nothing = |reason: &str| {
            let reason = reason.lines().next().unwrap_or("");
            format!(" gives nothing: {reason}")
        };
        let parsers = self.job.around.monitors.iter();
        for ((name, output), parser) in monitors.names.into_iter().zip(outputs).zip(parsers) {
            let output = match output {
                Ok(output) => output,
                Err(error) => {
                    tell(&name, "error", nothing(&error.message));
                    continue;
                }
            };
            let values = match read_output(parser, &output) {
                Parsed::Readings { metrics, warnings } => {
                    if !warnings.is_empty() {
                        tell(&name, "warning", format!(": {}", warnings.join("; ")));
                    }
                    let readings = metrics.into_iter().filter(|reading| reading.name != ROWS);
                    readings
                        .map(|reading| (reading.name, reading.value))
                        .collect()
                }
                Parsed::Refused { reason } => {
                    tell(&name, "error", nothing(&reason));
                    Vec::new()
                }
            };
            // perf prints on the other one.
            let said = match output.stdout.is_empty() {
                true => output.stderr,
                false => output.stdout,
            };
            keep(name, said, values);
        }
        for (name, read) in monitors.counter_names.into_iter().zip(counters) {
            match read {
                Ok((texts, values)) => keep(name, texts, values),
                Err(reason) => tell(&name, "error", nothing(&reason)),
            }
        }
    }
}

fn read_output(parser: &Parser, output: &Output) -> Parsed {
    // One that runs until it is stopped has done well.
    let ended = match output.ended {
        Ended::Signal(TERM) => Ended::Exit(0),
        ended => ended,
    };
    if !ended.is_success() {
        return Parsed::refused(format!("{ended}{}", last_words(output)));
    }
    parser.parse(&Input {
        stdout: &output.stdout,
        stderr: &output.stderr,
        ended,
        duration: None,
    })
}

/// Names of monitors: that of the program or file, with a number where there are several.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn of(&mut self, what: &str) -> String {
        let count = self.0.entry(what.to_owned()).or_default();
        *count += 1;
        match *count {
            1 => what.to_owned(),
            n => format!("{what}#{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_monitors_have_one_name() {
        let mut names = Names::default();
        let found = ["vmstat", "iostat", "vmstat", "/proc/vmstat"].map(|what| names.of(what));
        assert_eq!(found, ["vmstat", "iostat", "vmstat#2", "/proc/vmstat"]);
    }
}
