//! Decoding `[[monitor]]`: programs that print, and files of counters, beside a measurement.

use std::time::Duration;

use super::Decoder;
use crate::base::diag::Diagnostic;
use crate::config::matrix::{Monitor, SummaryRule};
use crate::config::read::{Table, TomlNode};

const EVERY: Duration = Duration::from_secs(1);
/// Below this a monitor would disturb what it watches.
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(3600);

impl Decoder<'_> {
    pub(super) fn monitors(&mut self, top: &mut Table) -> Vec<Monitor> {
        let tables = self.tables(top, "monitor", "[[monitor]]");
        let monitors = tables.into_iter().filter_map(|table| self.monitor(table));
        monitors.collect()
    }

    fn monitor(&mut self, mut table: Table) -> Option<Monitor> {
        let Some(file) = table.get("file") else {
            let command = match table.get("command") {
                Some(command) => self.argv(&command),
                None => {
                    self.problems.push(
                        Diagnostic::error("a `[[monitor]]` without `command` and without `file`")
                            .at(table.span, "this one")
                            .help("add the command of a program, or `file = \"/proc/vmstat\"`"),
                    );
                    // What else is missing does not matter yet.
                    return None;
                }
            };
            let parser = self.required_parser(&mut table);
            table.finish(self.problems);
            let (command, parser) = (command?, parser?);
            return Some(Monitor::Command { command, parser });
        };
        if let Some(command) = table.get("command") {
            self.problems.push(
                Diagnostic::error("a `[[monitor]]` has a `command` or a `file`, not both")
                    .at(command.span, "beside `file`")
                    .help("make two monitors of it"),
            );
            return None;
        }
        let path = file.string(self.problems).and_then(|text| {
            if !text.value.starts_with('/') && !text.value.starts_with("{{") {
                file.wrong("an absolute path, such as \"/proc/vmstat\"", self.problems);
                return None;
            }
            let template = self.engine.template(&text.value, text.span);
            self.problems.note(template)
        });
        let every = table.get("every").map_or(Some(EVERY), |n| self.every(&n));
        let summaries = [("rate", SummaryRule::Rate), ("mean", SummaryRule::Mean)];
        let summary = table.get("summary");
        let summary = summary.map_or(Some(SummaryRule::Rate), |n| self.one_of(&n, &summaries));
        table.finish(self.problems);
        Some(Monitor::File {
            path: path?,
            every: every?,
            summary: summary?,
        })
    }

    fn every(&mut self, node: &TomlNode) -> Option<Duration> {
        let every = node.duration(self.problems)?;
        if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
            node.wrong("a duration from \"100ms\" to \"1h\"", self.problems);
            return None;
        }
        Some(every)
    }
}
