//! Reading series and comparisons from CSV files.

use std::collections::HashMap;
use std::io::Read;

use crate::base::sample::Sample;
use crate::base::units::count;

/// Bytes of one file.
pub const FILE_BYTES_MAX: u64 = 1 << 30;
/// Columns of one file.
pub const COLUMNS_MAX: usize = 100_000;
/// Rows of one file.
pub const ROWS_MAX: usize = 10_000_000;

/// The side of a comparison that is the baseline, whatever the order of rows; else the first one is.
const BASELINE: &str = "baseline";
const COLUMNS: [&str; 5] = ["cell", "metric", "side", "round", "value"];

/// A file cannot be read. Lines and columns count from 1.
#[derive(Debug, thiserror::Error)]
#[error("`{file}`{place}: {problem}")]
pub struct CsvError {
    file: String,
    place: String,
    problem: String,
}

/// A table of series: first column a revision, each other column a series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesTable {
    pub revisions: Vec<String>,
    /// Name and points; None is a gap.
    pub series: Vec<(String, Vec<Option<f64>>)>,
}

/// Two sides of a metric of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct CsvSides {
    pub cell: String,
    pub metric: String,
    pub baseline: Vec<Sample>,
    pub candidate: Vec<Sample>,
}

/// A table of comparisons.
#[derive(Clone, Debug, PartialEq)]
pub struct SidesTable {
    /// What the file calls its two sides.
    pub names: [String; 2],
    /// In the order of the file.
    pub sides: Vec<CsvSides>,
}

/// Reads a table of series; `file` is its name for errors, `bytes` its size.
pub fn read_series(file: &str, bytes: u64, text: impl Read) -> Result<SeriesTable, CsvError> {
    CsvReader::sized(file, bytes, text)?.series()
}

/// Reads a table with the columns `cell,metric,side,round,value`.
pub fn read_sides(file: &str, bytes: u64, text: impl Read) -> Result<SidesTable, CsvError> {
    CsvReader::sized(file, bytes, text)?.sides()
}

struct CsvReader<R> {
    file: String,
    csv: csv::Reader<R>,
    header: Vec<String>,
}

impl<R: Read> CsvReader<R> {
    fn sized(file: &str, bytes: u64, text: R) -> Result<Self, CsvError> {
        if bytes > FILE_BYTES_MAX {
            return Err(CsvError {
                file: file.to_owned(),
                place: String::new(),
                problem: format!(
                    "it has {bytes} bytes; at most {FILE_BYTES_MAX} are read: split it"
                ),
            });
        }
        CsvReader::new(file, text)
    }

    fn new(file: &str, text: R) -> Result<Self, CsvError> {
        let mut reader = CsvReader {
            file: file.to_owned(),
            csv: csv::ReaderBuilder::new()
                .has_headers(true)
                .from_reader(text),
            header: Vec::new(),
        };
        let header = reader.csv.headers().cloned();
        let header = header.map_err(|error| reader.broken(&error))?;
        if header.len() > COLUMNS_MAX {
            let columns = header.len();
            return Err(reader.at(
                1,
                1,
                format!("{columns} columns; the limit is {COLUMNS_MAX}"),
            ));
        }
        let plain = |name: &str| name.trim_start_matches('\u{feff}').to_owned();
        reader.header = header.iter().map(plain).collect();
        Ok(reader)
    }

    /// Calls `on_row` with the line and the fields of each row.
    fn rows(
        &mut self,
        mut on_row: impl FnMut(&Self, u64, &csv::StringRecord) -> Result<(), CsvError>,
    ) -> Result<usize, CsvError> {
        let mut record = csv::StringRecord::new();
        let mut rows = 0;
        loop {
            match self.csv.read_record(&mut record) {
                Ok(true) => rows += 1,
                Ok(false) => return Ok(rows),
                Err(error) => return Err(self.broken(&error)),
            }
            let line = record.position().map_or(0, csv::Position::line);
            if rows > ROWS_MAX {
                return Err(self.at(line, 1, format!("more than {ROWS_MAX} rows: split it")));
            }
            on_row(self, line, &record)?;
        }
    }

    fn series(mut self) -> Result<SeriesTable, CsvError> {
        if self.header.len() < 2 {
            let problem =
                "the first column is a revision, each other one a series: there is no series";
            return Err(self.at(1, 1, problem.to_owned()));
        }
        self.names_differ()?;
        let mut revisions = Vec::new();
        let mut columns: Vec<Vec<Option<f64>>> = vec![Vec::new(); self.header.len() - 1];
        self.rows(|reader, line, record| {
            revisions.push(record[0].to_owned());
            for (column, points) in columns.iter_mut().enumerate() {
                let text = record[column + 1].trim();
                points.push(match text {
                    "" => None,
                    text => Some(reader.number(line, column + 1, text)?),
                });
            }
            Ok(())
        })?;
        let names = self.header.into_iter().skip(1);
        Ok(SeriesTable {
            revisions,
            series: names.zip(columns).collect(),
        })
    }

    fn sides(mut self) -> Result<SidesTable, CsvError> {
        if self.header != COLUMNS {
            let problem = format!(
                "the columns are `{}`, not `{}`",
                self.header.join(","),
                COLUMNS.join(",")
            );
            return Err(self.at(1, 1, problem));
        }
        let mut names: Vec<String> = Vec::new();
        let mut index: HashMap<(String, String), usize> = HashMap::new();
        let mut found: Vec<(String, String, [Vec<Sample>; 2])> = Vec::new();
        self.rows(|reader, line, record| {
            let side = record[2].trim();
            let side = match names.iter().position(|name| name == side) {
                Some(side) => side,
                None if names.len() == 2 => {
                    let problem = format!(
                        "`{side}` is a third side beside `{}` and `{}`",
                        names[0], names[1]
                    );
                    return Err(reader.at(line, 3, problem));
                }
                None => {
                    names.push(side.to_owned());
                    names.len() - 1
                }
            };
            let round = record[3].trim().parse().map_err(|_| {
                let text = &record[3];
                reader.at(
                    line,
                    4,
                    format!("`{text}` is no round: a whole number from 0"),
                )
            })?;
            let value = match record[4].trim() {
                "" => None,
                text => Some(reader.number(line, 4, text)?),
            };
            let place = (record[0].to_owned(), record[1].to_owned());
            let at = *index.entry(place.clone()).or_insert_with(|| {
                found.push((place.0, place.1, Default::default()));
                found.len() - 1
            });
            found[at].2[side].extend(value.map(|value| Sample {
                round,
                session: 0,
                value,
            }));
            Ok(())
        })?;
        if names.len() != 2 {
            let sides = count(names.len(), "side");
            let problem = format!("{sides} named in the column `side`; a comparison has two");
            return Err(self.at(1, 3, problem));
        }
        for (cell, metric, sides) in &found {
            for (side, samples) in names.iter().zip(sides) {
                let mut rounds: Vec<u32> = samples.iter().map(|sample| sample.round).collect();
                rounds.sort_unstable();
                if let Some(twice) = rounds.windows(2).find(|pair| pair[0] == pair[1]) {
                    let round = twice[0];
                    return Err(CsvError {
                        file: self.file,
                        place: String::new(),
                        problem: format!(
                            "round {round} of `{metric}` in the cell `{cell}`, side `{side}`, is there twice: \
                             number the rounds of a side"
                        ),
                    });
                }
            }
        }
        let turned = names[1] == BASELINE;
        if turned {
            names.swap(0, 1);
        }
        let sides = found.into_iter().map(|(cell, metric, mut sides)| {
            if turned {
                sides.swap(0, 1);
            }
            let [baseline, candidate] = sides;
            CsvSides {
                cell,
                metric,
                baseline,
                candidate,
            }
        });
        Ok(SidesTable {
            sides: sides.collect(),
            names: names.try_into().unwrap_or_default(),
        })
    }

    fn names_differ(&self) -> Result<(), CsvError> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (column, name) in self.header.iter().enumerate().skip(1) {
            if let Some(first) = seen.insert(name, column) {
                let problem = format!(
                    "the series `{name}` is there twice: also column {}",
                    first + 1
                );
                return Err(self.at(1, column + 1, problem));
            }
        }
        Ok(())
    }

    /// `column` from 0.
    fn number(&self, line: u64, column: usize, text: &str) -> Result<f64, CsvError> {
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => {
                let name = &self.header[column];
                let problem =
                    format!("`{text}` in `{name}` is no finite number; a gap is an empty cell");
                Err(self.at(line, column + 1, problem))
            }
        }
    }

    /// `column` from 1.
    fn at(&self, line: u64, column: usize, problem: String) -> CsvError {
        CsvError {
            file: self.file.clone(),
            place: format!(", line {line}, column {column}"),
            problem,
        }
    }

    fn broken(&self, error: &csv::Error) -> CsvError {
        let line = error.position().map_or(1, csv::Position::line);
        let problem = match error.kind() {
            csv::ErrorKind::UnequalLengths {
                expected_len, len, ..
            } => format!(
                "{} where the header has {expected_len}",
                count(*len as usize, "field")
            ),
            csv::ErrorKind::Utf8 { err, .. } => format!("this is not UTF-8: {err}"),
            _ => error.to_string(),
        };
        self.at(line, 1, problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(text: &str) -> Result<SeriesTable, String> {
        let reader = CsvReader::new("f.csv", text.as_bytes());
        reader
            .and_then(CsvReader::series)
            .map_err(|error| error.to_string())
    }

    fn sides(text: &str) -> Result<SidesTable, String> {
        let reader = CsvReader::new("f.csv", text.as_bytes());
        reader
            .and_then(CsvReader::sides)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_cell_is_a_gap() {
        let table = series("\u{feff}revision,a,b\r\nr1,1,\r\nr2,,2e3\r\n").unwrap();
        assert_eq!(table.revisions, ["r1", "r2"]);
        assert_eq!(table.series[0], ("a".into(), vec![Some(1.0), None]));
        assert_eq!(table.series[1], ("b".into(), vec![None, Some(2000.0)]));
        assert_eq!(series("revision,a\n").unwrap().series[0].1, []);
    }

    #[test]
    fn the_baseline_is_named_so_or_comes_first() {
        let text = "cell,metric,side,round,value\nc,m,new,0,2\nc,m,baseline,0,1\n";
        let table = sides(text).unwrap();
        assert_eq!(table.names, ["baseline", "new"]);
        assert_eq!(table.sides[0].baseline[0].value, 1.0);
        let table = sides(&text.replace("baseline", "old")).unwrap();
        assert_eq!(table.names, ["new", "old"]);
    }

    #[test]
    fn errors_name_line_and_column() {
        let check = |got: Result<(), String>, expected: &str| {
            assert_eq!(got.unwrap_err(), format!("`f.csv`, {expected}"));
        };
        let of_series = |text: &str| series(text).map(|_| ());
        let of_sides = |text: &str| sides(text).map(|_| ());
        check(
            of_series("r,a\nr1,x\n"),
            "line 2, column 2: `x` in `a` is no finite number; a gap is an empty cell",
        );
        check(
            of_series("r,a\nr1,1\nr2,nan\n"),
            "line 3, column 2: `nan` in `a` is no finite number; a gap is an empty cell",
        );
        check(
            of_series("r,a\nr1,1,2\n"),
            "line 2, column 1: 3 fields where the header has 2",
        );
        check(
            of_series("r,a,a\n"),
            "line 1, column 3: the series `a` is there twice: also column 2",
        );
        check(
            of_series("r\n"),
            "line 1, column 1: the first column is a revision, each other one a series: there is no series",
        );
        check(
            of_sides("cell,metric\n"),
            "line 1, column 1: the columns are `cell,metric`, not `cell,metric,side,round,value`",
        );
        let head = "cell,metric,side,round,value\n";
        check(
            of_sides(&format!("{head}c,m,a,0,1\n")),
            "line 1, column 3: 1 side named in the column `side`; a comparison has two",
        );
        check(
            of_sides(&format!("{head}c,m,a,0,1\nc,m,b,0,1\nc,m,c,0,1\n")),
            "line 4, column 3: `c` is a third side beside `a` and `b`",
        );
        check(
            of_sides(&format!("{head}c,m,a,-1,1\n")),
            "line 2, column 4: `-1` is no round: a whole number from 0",
        );
    }

    #[test]
    fn a_round_of_a_side_is_there_once() {
        let text = "cell,metric,side,round,value\na,m,x,0,1\na,m,x,1,\na,m,y,0,2\n";
        let read = sides(text).unwrap();
        assert_eq!(read.sides[0].baseline.len(), 1, "an empty value is a gap");
        let error = sides(&format!("{text}a,m,y,0,3\n")).unwrap_err();
        assert!(
            error.contains("round 0 of `m` in the cell `a`, side `y`, is there twice"),
            "{error}"
        );
    }
}
