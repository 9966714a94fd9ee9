//! All samples as CSV or JSON lines, written one at a time.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::csv::{Stream, harmless};
use crate::base::printable::printable_json;

/// The columns after those of the axes.
const COLUMNS: [&str; 10] = [
    "version",
    "commit",
    "date",
    "session",
    "round",
    "metric",
    "unit",
    "value",
    "environment",
    "marks",
];

/// One sample. What is not known is empty.
#[derive(Clone, Debug, Serialize)]
pub struct SampleLine<'a> {
    /// The value of each axis but `version`.
    pub axes: BTreeMap<&'a str, &'a str>,
    pub version: &'a str,
    pub commit: &'a str,
    pub date: &'a str,
    pub session: i64,
    pub round: u32,
    pub metric: &'a str,
    pub unit: &'a str,
    /// Finite.
    pub value: f64,
    pub environment: &'a str,
    pub marks: &'a str,
}

/// Where samples go.
pub enum Export<W: Write> {
    Csv {
        table: Box<Stream<W>>,
        axes: Vec<String>,
    },
    Lines(W),
}

impl<W: Write> Export<W> {
    /// A column for each axis; one that is called like another column is `axis.NAME`.
    pub fn csv(out: W, axes: Vec<String>) -> io::Result<Export<W>> {
        let mut table = Stream::new(out);
        let column = |axis: &String| match COLUMNS.contains(&axis.as_str()) {
            true => format!("axis.{axis}"),
            false => harmless(axis).into_owned(),
        };
        let header = axes.iter().map(column);
        let header: Vec<String> = header.chain(COLUMNS.map(str::to_owned)).collect();
        table.row(&header)?;
        Ok(Export::Csv {
            table: Box::new(table),
            axes,
        })
    }

    pub fn sample(&mut self, line: &SampleLine) -> io::Result<()> {
        match self {
            Export::Csv { table, axes } => {
                let value = |axis: &String| line.axes.get(axis.as_str()).copied().unwrap_or("");
                let mut row: Vec<Cow<str>> =
                    axes.iter().map(|axis| harmless(value(axis))).collect();
                row.extend([
                    harmless(line.version),
                    harmless(line.commit),
                    harmless(line.date),
                    line.session.to_string().into(),
                    line.round.to_string().into(),
                    harmless(line.metric),
                    harmless(line.unit),
                    line.value.to_string().into(),
                    harmless(line.environment),
                    harmless(line.marks),
                ]);
                let row: Vec<&[u8]> = row.iter().map(|field| field.as_bytes()).collect();
                table.row(&row)
            }
            Export::Lines(out) => {
                let json = serde_json::to_string(line)?;
                out.write_all(printable_json(&json).as_bytes())?;
                out.write_all(b"\n")
            }
        }
    }

    pub fn finish(self) -> io::Result<()> {
        match self {
            Export::Csv { table, .. } => table.finish(),
            Export::Lines(mut out) => out.flush(),
        }
    }
}
