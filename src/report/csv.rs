//! Lines of comma-separated values (RFC 4180), which spreadsheets, pandas and SQLite read.

use std::borrow::Cow;

use csv::Writer;

use crate::base::printable::{line, printable};

/// A table in the making.
pub struct Table(Writer<Vec<u8>>);

impl Table {
    /// With a header: these axes, then these columns.
    pub fn new(axes: &[String], columns: &[&str]) -> Table {
        let mut table = Table(Writer::from_writer(Vec::new()));
        let axes = axes.iter().map(String::as_str);
        let header: Vec<&str> = axes.chain(columns.iter().copied()).collect();
        table.row(&header);
        table
    }

    /// A line. Rows have as many fields as the header.
    pub fn row(&mut self, fields: &[impl AsRef<str>]) {
        let fields = fields.iter().map(|field| harmless(field.as_ref()));
        let fields: Vec<Cow<str>> = fields.collect();
        // It fails only where a row has another number of fields; memory takes all that is written.
        let _ = self
            .0
            .write_record(fields.iter().map(|field| field.as_bytes()));
    }

    pub fn text(self) -> String {
        let bytes = self.0.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// A table that is written as it grows.
pub struct Stream<W: std::io::Write>(Writer<W>);

impl<W: std::io::Write> Stream<W> {
    pub fn new(out: W) -> Stream<W> {
        Stream(Writer::from_writer(out))
    }

    pub fn row(&mut self, fields: &[impl AsRef<[u8]>]) -> std::io::Result<()> {
        self.0.write_record(fields).map_err(std::io::Error::from)
    }

    pub fn finish(mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Text that a spreadsheet takes for text: a formula gets an apostrophe before it, control characters are shown. A number
/// stays one.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let shown = match text.contains(['\n', '\t']) {
        true => Cow::Owned(line(text)),
        false => printable(text),
    };
    match shown.starts_with(['=', '+', '-', '@']) && shown.parse::<f64>().is_err() {
        true => Cow::Owned(format!("'{shown}")),
        false => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_text() {
        let check = |text: &str, expected: &str| assert_eq!(harmless(text), expected);
        check("4k", "4k");
        check("=1+1", "'=1+1");
        check("@sum", "'@sum");
        check("-O2", "'-O2");
        check("-5", "-5");
        check("\x1b[2J\n=x", "\\x1b[2J\\n=x");
    }
}
