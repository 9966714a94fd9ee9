//! Owns monitors: side measurements that run beside the measured step and never spoil a sample.
//! Does not know what a column means.

use std::collections::BTreeMap;

use super::command::{command, last_words};
use super::execute::Executor;
use crate::edge::host::{Host, HostError, Output, ServiceId};
use crate::edge::parse::Input;
use crate::edge::store::{Beside, MONITOR_VALUES_MAX, Monitored};
use crate::plan::resolve::Words;
use crate::words::sample::{Ended, Parsed, Reading};

/// What one monitor may print in one measurement; of more, the beginning and the end are kept.
const MONITOR_BYTES_MAX: usize = 4 << 20;
/// A monitor that is stopped by us ends by this signal.
const TERM: i32 = 15;
/// The parser's count of a table's rows: that of the seconds, and no value.
const ROWS: &str = "rows";

/// A monitor that was started, or not.
pub(super) struct Watch {
    name: String,
    service: Result<ServiceId, HostError>,
}

impl Executor<'_> {
    pub(super) async fn start_monitors(
        &self,
        host: &dyn Host,
        commands: Vec<Words>,
        dir: &str,
        env: &[(String, String)],
    ) -> Vec<Watch> {
        let mut watches = Vec::new();
        for (name, argv) in names(&commands).into_iter().zip(&commands) {
            // Its time is that of the measurement.
            let mut command = command(argv, dir, env, self.job.plan.matrix.run.timeout);
            command.output_bytes_max = MONITOR_BYTES_MAX;
            let service = host.start(command).await;
            watches.push(Watch { name, service });
        }
        watches
    }

    /// Ends the monitors and keeps what they gave. What is wrong with one is told once.
    pub(super) async fn stop_monitors(
        &self,
        machine: &str,
        host: &dyn Host,
        watches: Vec<Watch>,
        beside: &mut Beside,
    ) {
        let kept = beside.monitors.iter().map(|monitor| monitor.values.len());
        let mut room = MONITOR_VALUES_MAX.saturating_sub(kept.sum());
        for (index, watch) in watches.into_iter().enumerate() {
            let name = &watch.name;
            let stopped = match watch.service {
                Ok(service) => host.stop(service).await,
                Err(error) => Err(error),
            };
            let read = match &stopped {
                Ok(output) => self.read_monitor(index, output),
                Err(error) => Err(error.message.clone()),
            };
            if let Err(reason) = &read {
                let reason = reason.lines().next().unwrap_or("");
                let what = format!("monitor `{name}` gives nothing: {reason}");
                self.job.around.tell_once(self.job.site, machine, what);
            }
            let Ok(output) = stopped else { continue };
            for event in not_supported(&output) {
                let what = format!("monitor `{name}`: `{event}` is not supported here");
                self.job.around.tell_once(self.job.site, machine, what);
            }
            let readings = read.unwrap_or_default().into_iter();
            let values: Vec<(String, f64)> = readings
                .filter(|reading| reading.name != ROWS)
                .map(|reading| (format!("{name}.{}", reading.name), reading.value))
                .take(room)
                .collect();
            room -= values.len();
            beside.monitors.push(Monitored {
                name: watch.name,
                output: output.stdout,
                values,
            });
        }
    }

    fn read_monitor(&self, index: usize, output: &Output) -> Result<Vec<Reading>, String> {
        // One that runs until it is stopped has done well.
        let ended = match output.ended {
            Ended::Signal(TERM) => Ended::Exit(0),
            ended => ended,
        };
        if !ended.is_success() {
            return Err(format!("{ended}{}", last_words(output)));
        }
        let Some(parser) = self.job.around.monitors.get(index) else {
            return Err("it has no parser".to_owned());
        };
        let parsed = parser.parse(&Input {
            stdout: &output.stdout,
            stderr: &output.stderr,
            ended,
        });
        match parsed {
            Parsed::Readings { metrics, .. } => Ok(metrics),
            Parsed::Refused { reason } => Err(reason),
        }
    }
}

/// Events that perf cannot count on this machine, as hardly any in a virtual one.
fn not_supported(output: &Output) -> Vec<String> {
    let texts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let lines = texts.iter().flat_map(|text| text.lines());
    let after = lines.filter_map(|line| Some(line.split_once("<not supported>")?.1));
    let event = |rest: &str| {
        rest.split([' ', ','])
            .find(|word| !word.is_empty())
            .map(str::to_owned)
    };
    after.filter_map(event).collect()
}

/// Names of monitors: that of the program, with a number where there are several.
fn names(commands: &[Words]) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let name = |argv: &Words| {
        let program = argv.first().map_or("", String::as_str);
        let program = program.rsplit('/').next().unwrap_or(program).to_owned();
        let count = seen.entry(program.clone()).or_default();
        *count += 1;
        match *count {
            1 => program,
            n => format!("{program}#{n}"),
        }
    };
    commands.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_are_named_by_their_programs() {
        let commands = ["/usr/bin/vmstat", "iostat", "vmstat"];
        let commands: Vec<Words> = commands.map(|c| vec![c.to_owned()]).to_vec();
        assert_eq!(names(&commands), ["vmstat", "iostat", "vmstat#2"]);
    }

    #[test]
    fn what_perf_cannot_count_is_found_in_both_of_its_forms() {
        let stderr = "   <not supported>      cycles\n     37      context-switches\n\
                      <not supported>,,instructions,0,100.00,,\n";
        let output = Output {
            stderr: stderr.into(),
            ..crate::edge::host::fake::printed("")
        };
        assert_eq!(not_supported(&output), ["cycles", "instructions"]);
    }
}
