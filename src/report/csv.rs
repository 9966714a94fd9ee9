//! Lines of comma-separated values (RFC 4180), which spreadsheets, pandas and SQLite read.

use csv::Writer;

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
    pub fn row(&mut self, fields: &[impl AsRef<[u8]>]) {
        // It fails only where a row has another number of fields; memory takes all that is written.
        let _ = self.0.write_record(fields);
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
