//! Standard output and standard error: results on the one, everything else on the other.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::Exit;
use super::signals::end_if_stopped;
use crate::base::diag::{Diagnostic, Sources};
use crate::base::printable::{printable_json, styled};
use crate::base::secret::mask_secrets;
use crate::report::diagnose;
use crate::report::text::Style;
use crate::run::progress::say;
use crate::verdicts::document::{Document, ErrorRow, Errors};

/// Narrower than this nothing can be read.
const WIDTH_MIN: u16 = 60;

/// Something that ends a verb: what is wrong, and the exit code.
pub struct Stop {
    pub diagnostics: Vec<Diagnostic>,
    pub exit: Exit,
}

impl Stop {
    pub fn usage(diagnostics: Vec<Diagnostic>) -> Self {
        Stop {
            diagnostics,
            exit: Exit::Usage,
        }
    }

    pub fn message(message: impl Into<String>) -> Self {
        Stop::usage(vec![Diagnostic::error(message)])
    }

    /// As it happened on a machine.
    pub fn on(mut self, machine: &str) -> Self {
        for diagnostic in &mut self.diagnostics {
            diagnostic.message = format!("machine `{machine}`: {}", diagnostic.message);
        }
        self
    }
}

impl From<Diagnostic> for Stop {
    fn from(diagnostic: Diagnostic) -> Self {
        Stop::usage(vec![diagnostic])
    }
}

impl From<crate::edge::store::StoreError> for Stop {
    fn from(error: crate::edge::store::StoreError) -> Self {
        Stop::message(error.to_string())
    }
}

impl From<crate::machine::host::HostError> for Stop {
    fn from(error: crate::machine::host::HostError) -> Self {
        Stop::message(error.to_string())
    }
}

impl From<crate::machine::tune::TuneError> for Stop {
    fn from(error: crate::machine::tune::TuneError) -> Self {
        Stop::message(error.to_string())
    }
}

impl From<crate::resolve::lookup::LookupError> for Stop {
    fn from(error: crate::resolve::lookup::LookupError) -> Self {
        Stop::message(error.to_string())
    }
}

/// Prints what stopped a verb: for people on standard error, with `json` also on standard output.
pub fn stopped(stop: &Stop, sources: &Sources, json: bool) -> Exit {
    end_if_stopped();
    diagnostics(&stop.diagnostics, sources);
    if json {
        let errors = stop
            .diagnostics
            .iter()
            .map(|diagnostic| {
                let place = diagnostic.label.as_ref().map(|(span, _)| {
                    let (line, column) = sources.line_column(*span);
                    (sources.name(span.source).to_owned(), line, column)
                });
                ErrorRow {
                    message: diagnostic.message.clone(),
                    line: place.as_ref().map(|place| place.1),
                    column: place.as_ref().map(|place| place.2),
                    file: place.map(|place| place.0),
                    help: diagnostic.help.clone(),
                }
            })
            .collect();
        document(&Document::Errors(Errors { errors }));
    }
    stop.exit
}

/// Diagnostics on standard error.
pub fn diagnostics(list: &[Diagnostic], sources: &Sources) {
    if list.is_empty() {
        return;
    }
    let stderr = std::io::stderr();
    let color = stderr.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = diagnose::render(
        list,
        sources,
        color,
        usize::from(terminal_width(&stderr).unwrap_or(100)),
    );
    // What is not ours in it was made printable: the escape sequences are colours.
    let text = mask_secrets(text.trim_end_matches('\n'));
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// One JSON document on standard output.
pub fn document(document: &Document) {
    match serde_json::to_string_pretty(&document.printed()) {
        Ok(text) => write(&mask_secrets(&printable_json(&text)), "\n"),
        Err(error) => say(&format!("this result cannot be written as JSON: {error}")),
    }
}

/// Whether a result could not be written.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Text on standard output: marks become colours, control characters are shown. A closed pipe (`matrix … | head`) is no error; any other failure is told here
/// and by [`exit_of`].
pub fn out(text: &str) {
    write(&mask_secrets(&styled(text, style().color)), "");
}

fn write(text: &str, end: &str) {
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.write_all(end.as_bytes()))
        .and_then(|()| stdout.flush());
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
        && !IS_LOST.swap(true, Ordering::Relaxed)
    {
        say(&format!("standard output cannot be written: {error}"));
    }
}

/// The exit code of a verb: a result that nobody got is no success.
pub fn exit_of(exit: Exit) -> Exit {
    match IS_LOST.load(Ordering::Relaxed) {
        true => Exit::Usage,
        false => exit,
    }
}

/// How standard output wants its tables.
pub fn style() -> Style {
    let stdout = std::io::stdout();
    Style {
        color: stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        width: terminal_width(&stdout).map(|width| width.max(WIDTH_MIN)),
        all: false,
    }
}

fn terminal_width(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Option<u16> {
    if let Ok(columns) = std::env::var("COLUMNS")
        && let Ok(columns) = columns.parse()
    {
        return Some(columns);
    }
    if !stream.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(stream)
        .ok()
        .map(|size| size.ws_col)
        .filter(|width| *width > 0)
}

/// Whether progress can be drawn.
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal() && std::env::var("TERM").is_ok_and(|term| term != "dumb")
}
