//! How a run is followed on a terminal: bars where there is one, plain lines elsewhere.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::event::{Event, TimedEvent};
use crate::base::printable::{printable, without_long_lines};
use crate::base::secret::mask_secrets;
use crate::base::units::{count, show_duration, show_si};

/// A line on standard error. That nobody reads it any more (a closed pipe, a terminal that hung up)
/// must not end a run whose set-ups are still to be undone: `eprintln!` would.
pub fn say(line: &str) {
    let line = printable(line);
    let line = without_long_lines(&line);
    let _ = writeln!(std::io::stderr(), "{}", mask_secrets(&line));
}

/// Somebody who reads the events of a run.
pub trait Progress {
    fn event(&mut self, event: &TimedEvent);
}

/// Each of several readers, in order.
pub struct Several(pub Vec<Box<dyn Progress>>);

impl Progress for Several {
    fn event(&mut self, event: &TimedEvent) {
        self.0.iter_mut().for_each(|reader| reader.event(event));
    }
}

/// Writes each event as one JSON line.
pub struct JsonLines<W: Write>(pub W);

impl<W: Write> Progress for JsonLines<W> {
    fn event(&mut self, event: &TimedEvent) {
        // A full disk must not stop a run; the store will say so.
        if let Ok(line) = serde_json::to_string(event) {
            let _ = writeln!(self.0, "{}", mask_secrets(&line));
            let _ = self.0.flush();
        }
    }
}

/// PlainLines on standard error, at most one each few seconds for what goes well.
pub struct PlainLines {
    total: u64,
    done: u64,
    failed: u64,
    started: Instant,
    is_at_work: bool,
    last: Instant,
    last_failure: String,
}

/// Time between two lines about measurements that went well.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

impl Default for PlainLines {
    fn default() -> Self {
        PlainLines {
            total: 0,
            done: 0,
            failed: 0,
            started: Instant::now(),
            is_at_work: false,
            last: Instant::now(),
            last_failure: String::new(),
        }
    }
}

impl Progress for PlainLines {
    fn event(&mut self, TimedEvent { event, .. }: &TimedEvent) {
        if is_at_work(event) && !std::mem::replace(&mut self.is_at_work, true) {
            self.started = Instant::now();
        }
        if let Some(line) = notable(event, &mut self.last_failure) {
            say(&line);
        }
        match event {
            Event::Started { measurements, .. } | Event::Again { measurements, .. } => {
                *self = PlainLines {
                    total: *measurements,
                    ..PlainLines::default()
                };
            }
            Event::RunDone { cell, round, .. } => {
                self.done += 1;
                let first_or_last = self.done == 1 || self.done + self.failed == self.total;
                if first_or_last || self.last.elapsed() >= LINE_INTERVAL {
                    self.last = Instant::now();
                    let left = left(
                        self.started,
                        self.done,
                        self.total.saturating_sub(self.failed),
                    );
                    say(&format!(
                        "{}/{} measured, {} left: {cell} round {}",
                        self.done,
                        self.total,
                        show_duration(left),
                        round + 1
                    ));
                }
            }
            Event::Failed { given_up, .. } => self.failed += given_up,
            Event::Spared { measurements, .. } => {
                self.total = self.total.saturating_sub(*measurements)
            }
            Event::Repeats { .. } => self.total += 1,
            _ => {}
        }
    }
}

/// From here on time is spent on measuring: waiting for a machine and building say nothing of what is left.
fn is_at_work(event: &Event) -> bool {
    matches!(event, Event::SetupStarted { .. } | Event::RunStarted { .. })
}

fn left(started: Instant, done: u64, total: u64) -> Duration {
    let each = started.elapsed().as_secs_f64() / done.max(1) as f64;
    Duration::from_secs_f64(each * total.saturating_sub(done) as f64)
}

/// A bar with counts, the cell at hand and the time left.
pub struct Bars {
    bar: ProgressBar,
    is_at_work: bool,
    last_failure: String,
}

impl Default for Bars {
    fn default() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style = ProgressStyle::with_template(
            "{bar:24.cyan} {pos}/{len} {elapsed} eta {eta} {wide_msg}",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Bars {
            bar,
            is_at_work: false,
            last_failure: String::new(),
        }
    }
}

impl Bars {
    fn message(&self, text: &str) {
        self.bar.set_message(printable(text).into_owned());
    }
}

impl Progress for Bars {
    fn event(&mut self, TimedEvent { event, .. }: &TimedEvent) {
        if is_at_work(event) && !std::mem::replace(&mut self.is_at_work, true) {
            self.bar.reset_eta();
        }
        if let Some(line) = notable(event, &mut self.last_failure) {
            self.bar.println(printable(&line));
        }
        match event {
            Event::Started { measurements, .. } | Event::Again { measurements, .. } => {
                self.bar.reset();
                self.is_at_work = false;
                self.bar.set_length(*measurements);
                self.bar.enable_steady_tick(Duration::from_millis(200));
            }
            Event::SetupStarted { setup, cell } => self.message(&format!("{setup} {cell}")),
            Event::RunStarted { cell, round } => {
                self.message(&format!("{cell} round {}", round + 1))
            }
            Event::RunDone { metrics, cell, .. } => {
                self.bar.inc(1);
                if let Some((name, value)) = metrics.first() {
                    self.message(&format!("{cell} {name} {}", show_si(*value)));
                }
            }
            Event::Failed { given_up, .. }
            | Event::Spared {
                measurements: given_up,
                ..
            } => {
                let length = self.bar.length().unwrap_or(0);
                self.bar.set_length(length.saturating_sub(*given_up));
            }
            Event::Repeats { .. } => self.bar.inc_length(1),
            Event::Finished { .. } => self.bar.finish_and_clear(),
            _ => {}
        }
    }
}

/// The line for what a person wants to see in any case. `last` is the failure that was told last: it is
/// not told for each cell that it has.
fn notable(event: &Event, last: &mut String) -> Option<String> {
    let failure = match event {
        Event::Failed { reason, .. } => Some(reason.clone()),
        Event::SetupDone {
            setup,
            error: Some(error),
            ..
        } => Some(format!("set-up `{setup}`: {error}")),
        Event::Hook {
            hook,
            error: Some(error),
            ..
        } => Some(format!("hook {hook}: {error}")),
        _ => None,
    };
    if let Some(failure) = failure
        && std::mem::replace(last, failure.clone()) == failure
    {
        return None;
    }
    Some(match event {
        Event::Started {
            matrix,
            cells,
            measurements,
            estimate_s,
            ..
        } => format!(
            "{matrix}: {}, {}, about {}",
            count(*cells, "cell"),
            count(*measurements as usize, "measurement"),
            show_duration(Duration::try_from_secs_f64(*estimate_s).unwrap_or_default())
        ),
        Event::LeftOut(left_out) => left_out.to_string(),
        Event::Again {
            cells,
            measurements,
        } => format!(
            "confirming what looks changed: {} again, {}",
            count(*cells, "cell"),
            count(*measurements as usize, "measurement")
        ),
        Event::Waiting { machine, holder } => format!("waiting for `{machine}`: {holder}"),
        Event::Cleaned { what, .. } => format!("put away what a dead run had left: {what}"),
        Event::LeftBehind { machine, what } => format!(
            "left behind on `{machine}` by a dead run: {what}; put it away by hand, then `matrix machine revert --forget`"
        ),
        Event::Note { machine, what } => format!("note: {machine}: {what}"),
        Event::BuildStarted {
            version,
            number,
            of,
            ..
        } => match of {
            1 => format!("building `{version}`"),
            of => format!("building `{version}` ({number} of {of})"),
        },
        Event::BuildDone {
            version,
            duration_s,
            same_as,
            error: None,
        } => {
            let took = show_duration(Duration::try_from_secs_f64(*duration_s).unwrap_or_default());
            match same_as {
                Some(other) => format!(
                    "built `{version}` in {took}: same bytes as `{other}`, nothing to measure"
                ),
                None => format!("built `{version}` in {took}"),
            }
        }
        Event::BuildDone {
            version,
            error: Some(error),
            ..
        } => format!("failed: build of `{version}`: {error}"),
        Event::SetupDone {
            setup,
            cell,
            error: Some(error),
            ..
        } => match cell.as_str() {
            // It is for all cells.
            "" => format!("failed: set-up `{setup}`: {error}"),
            cell => format!("failed: set-up `{setup}` of {cell}: {error}"),
        },
        Event::Undone {
            setup,
            error: Some(error),
        } => format!("left behind by set-up `{setup}`: {error}"),
        Event::Failed { cell, reason, .. } => format!("failed: {cell}: {}", first_line(reason)),
        Event::RunDone { cell, warnings, .. } if !warnings.is_empty() => {
            format!("note: {cell}: {}", warnings.join("; "))
        }
        Event::Hook {
            moment,
            hook,
            error: Some(error),
            ..
        } => format!("hook `{moment}` ({hook}): {error}"),
        Event::Interrupted { at_once: false } => {
            "interrupted: stopping after the measurements under way (once more: at once)".to_owned()
        }
        Event::Interrupted { at_once: true } => {
            "stopping at once; set-ups are still undone".to_owned()
        }
        _ => return None,
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}
