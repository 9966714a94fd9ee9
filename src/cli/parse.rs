//! `matrix parse`.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;

use super::Exit;
use super::files::{self, in_words};
use super::show::{self, Stop};
use crate::base::diag::{Diagnostic, Sources};
use crate::base::sample::{Ended, Parsed};
use crate::base::units::show_value;
use crate::edge::parse::{Input, OUTPUT_BYTES_MAX, Parser};
use crate::report::text;
use crate::run::progress::say;
use crate::verdicts::document::{Document, Readings};

#[derive(Debug, Args)]
pub struct ParseArgs {
    /// `fio`, `json`, `regex`, `columns` or `perf`; not `time`, which reads no text
    parser: String,
    /// What the program printed on standard output; standard input where none is given
    file: Option<PathBuf>,
    /// What the program printed on standard error
    #[arg(long, value_name = "FILE")]
    stderr: Option<PathBuf>,
    /// How the program ended
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true
    )]
    exit_status: i32,
    /// An option of the parser, such as `pattern=…`; may be repeated
    #[arg(long = "option", value_name = "NAME=VALUE")]
    options: Vec<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn parse(args: ParseArgs) -> Exit {
    match parsed(&args) {
        Ok(parsed) => show(&args, parsed),
        Err(stop) => show::stopped(&stop, &Sources::default(), args.json),
    }
}

fn parsed(args: &ParseArgs) -> Result<Parsed, Stop> {
    let mut options = Vec::new();
    for option in &args.options {
        match option.split_once('=') {
            Some((name, value)) => options.push((name.to_owned(), value.to_owned())),
            None => {
                return Err(Stop::message(format!(
                    "`--option {option}` is not NAME=VALUE"
                )));
            }
        }
    }
    let parser = Parser::new(&args.parser, &options)
        .map_err(|problems| Stop::usage(problems.into_iter().map(Diagnostic::error).collect()))?;
    let stdout = read(args.file.as_ref())?;
    let stderr = match &args.stderr {
        Some(path) => read(Some(path))?,
        None => Vec::new(),
    };
    Ok(parser.parse(&Input {
        stdout: &stdout,
        stderr: &stderr,
        ended: Ended::from_status(args.exit_status),
        duration: None,
    }))
}

fn read(path: Option<&PathBuf>) -> Result<Vec<u8>, Stop> {
    let limit = OUTPUT_BYTES_MAX as u64 + 1;
    let result = match path {
        Some(path) => files::read(path, limit),
        None => {
            let mut bytes = Vec::new();
            let read = std::io::stdin().take(limit).read_to_end(&mut bytes);
            read.map(|_| bytes)
        }
    };
    let name = path.map_or("standard input".to_owned(), |path| {
        format!("`{}`", path.display())
    });
    result.map_err(|error| {
        let problem = format!("{name} cannot be read: {}", in_words(error));
        Diagnostic::error(problem)
            .help("give a file with what the program printed, or pipe it in")
            .into()
    })
}

fn show(args: &ParseArgs, parsed: Parsed) -> Exit {
    match parsed {
        Parsed::Readings { metrics, warnings } => {
            if args.json {
                show::document(&Document::Readings(Readings { metrics, warnings }));
                return Exit::Fine;
            }
            let mut table = text::table(
                show::style(),
                &["metric", "value", "exactly", "unit", "better"],
                1,
            );
            for reading in &metrics {
                let better = reading.better.map_or("", |better| better.name());
                table.add_row(vec![
                    reading.name.clone(),
                    show_value(reading.value, &reading.unit),
                    reading.value.to_string(),
                    reading.unit.clone(),
                    better.to_owned(),
                ]);
            }
            show::out(&text::lines(&table));
            warnings
                .iter()
                .for_each(|warning| say(&format!("warning: {warning}")));
            Exit::Fine
        }
        Parsed::Refused { reason } => {
            if args.json {
                show::document(&Document::Refused { refused: reason });
            } else {
                say(&format!("refused: {reason}"));
            }
            Exit::Failed
        }
    }
}
