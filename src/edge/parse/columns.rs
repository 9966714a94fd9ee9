//! Reading tables: a header line with names, then rows of numbers (vmstat, iostat, CSV).

use std::collections::BTreeMap;

use super::text::{NotNumber, number, shorten, strip_escapes};
use super::{Found, READINGS_MAX};
use crate::base::sample::Reading;
use crate::base::units::count;

/// Largest value of the option `skip`.
const SKIP_ROWS_MAX: usize = 1000;

/// Reads tables. Each column with numbers is a reading, its mean over the rows. Where rows begin
/// with a word (the device in iostat), there is a reading for each such word: `vda.tps`. One
/// more reading, `rows`, is the number of rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Columns {
    /// Rows left out at the start of each table: the first report of vmstat and iostat is the
    /// mean since the machine was started.
    skip: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Blanks,
    Tab,
    Comma,
}

struct Header {
    names: Vec<String>,
    separator: Separator,
    /// A row began with a word: the first column holds names, also where one is a number (as
    /// mpstat's processors are called `all`, `0`, `1`).
    is_labelled: bool,
}

#[derive(Default)]
struct Column {
    sum: f64,
    rows: usize,
    is_percent: bool,
    /// The first field that is no number, such as `NaN`.
    unreadable: Option<String>,
}

/// What stands in a row below a column's name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Number(f64),
    /// With the letter of a multiple, as `iostat -h` and `free -h` print it.
    Scaled(f64),
    /// Nothing, or a dash.
    Gap,
    /// `NaN`, `inf`.
    NotFinite,
    /// It may have a decimal comma.
    Comma,
    Word,
}

impl Field {
    fn of(text: &str) -> Field {
        let lower = text.to_ascii_lowercase();
        match percent_or_number(text) {
            Ok(value) => Field::Number(value),
            Err(NotNumber::Comma) => Field::Comma,
            Err(NotNumber::Other) if ["", "-", "--"].contains(&text) => Field::Gap,
            Err(NotNumber::Other)
                if ["nan", "inf", "infinity"].contains(&lower.trim_start_matches(['-', '+'])) =>
            {
                Field::NotFinite
            }
            Err(NotNumber::Other) => scaled(text).map_or(Field::Word, Field::Scaled),
        }
    }

    fn is_like_number(self) -> bool {
        !matches!(self, Field::Word | Field::Gap)
    }
}

/// `15.0M` as 15 × 2^20: the programs that print such numbers for people mean multiples of 1024.
fn scaled(text: &str) -> Option<f64> {
    let letters = text.trim_start_matches(|c: char| c.is_ascii_digit() || ".,+-".contains(c));
    let value = number(&text[..text.len() - letters.len()]).ok()?;
    let letter = letters.strip_suffix('B').unwrap_or(letters);
    let power = match letter.strip_suffix('i').unwrap_or(letter) {
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    Some(value * 1024f64.powi(power))
}

impl Columns {
    /// `skip` as it is written in the matrix; Err says in one line what is wrong with it.
    pub fn new(skip: Option<&str>) -> Result<Columns, String> {
        let Some(text) = skip else {
            return Ok(Columns::default());
        };
        match text.parse() {
            Ok(skip) if skip <= SKIP_ROWS_MAX => Ok(Columns { skip }),
            _ => Err(format!(
                "`skip` is a number of rows from 0 to {SKIP_ROWS_MAX}, not `{}`",
                shorten(text)
            )),
        }
    }

    /// Reads all tables of a text. A line without any number may be a header: it is one if the
    /// next line with numbers has as many fields (so the second of vmstat's two header lines
    /// counts, and a remark between rows does no harm). Lines with numbers that fit no header
    /// are left out, with a warning. A field that may have a decimal comma refuses the output.
    pub fn parse(&self, text: &str, found: &mut Found) -> Result<(), String> {
        let text = strip_escapes(text);
        let mut header: Option<Header> = None;
        let mut candidate: Option<Header> = None;
        let mut columns: BTreeMap<String, Column> = BTreeMap::new();
        let mut rows_of: BTreeMap<String, usize> = BTreeMap::new();
        let mut rows = 0u32;
        let mut unfit = 0;
        let mut scaled_field = None;
        for line in text.lines().map(without_clock) {
            // sysstat's closing summary repeats what the rows say.
            if line.trim().is_empty() || line.starts_with("Average:") {
                continue;
            }
            let mut above = header.iter().chain(&candidate);
            if !above.any(|names| names.is_above(line))
                && let Some(names) = header_of(line)
            {
                candidate = Some(names);
                continue;
            }
            if candidate.as_ref().is_some_and(|names| names.fits(line)) {
                header = candidate.take();
            }
            let Some(names) = header.as_mut().filter(|names| names.fits(line)) else {
                unfit += 1;
                continue;
            };
            // Tables of different columns (CPU, then devices) are counted apart.
            let table = names.names.join("\0");
            let (label, fields) = names.row(line);
            let seen = rows_of.entry(format!("{label}\0{table}")).or_default();
            *seen += 1;
            if *seen <= self.skip {
                continue;
            }
            rows += 1;
            for (name, field) in fields {
                let value = match Field::of(field) {
                    Field::Number(value) => Some(value),
                    Field::Scaled(value) => {
                        scaled_field.get_or_insert_with(|| shorten(field));
                        Some(value)
                    }
                    Field::Comma => return Err(NotNumber::refusal(field)),
                    Field::NotFinite | Field::Word => None,
                    Field::Gap => continue,
                };
                let name = match label {
                    "" => name.to_owned(),
                    label => format!("{label}.{name}"),
                };
                let column = columns.entry(name).or_default();
                let Some(value) = value else {
                    column.unreadable.get_or_insert_with(|| shorten(field));
                    continue;
                };
                column.sum += value;
                column.rows += 1;
                column.is_percent |= field.ends_with('%');
            }
            if columns.len() > READINGS_MAX {
                return Err(format!("the tables have more than {READINGS_MAX} columns"));
            }
        }
        // What holds words only is no column of numbers.
        let is_words = |column: &Column| {
            let word = column.unreadable.as_deref().map(Field::of);
            column.rows == 0 && word == Some(Field::Word)
        };
        columns.retain(|_, column| !is_words(column));
        for (name, column) in columns.extract_if(.., |_, column| column.unreadable.is_some()) {
            let text = column.unreadable.unwrap_or_default();
            found.warn(format!(
                "column `{}` is left out: `{text}` is no number",
                shorten(&name)
            ));
        }
        if let Some(example) = scaled_field {
            found.warn(format!(
                "numbers like `{example}` are read as multiples of 1024"
            ));
        }
        if columns.is_empty() {
            return Err(match rows_of.is_empty() {
                true => "no table: no header line with rows of numbers below it".to_owned(),
                false => format!("no row is left after `skip = {}`", self.skip),
            });
        }
        if unfit > 0 {
            found.warn(format!(
                "{} with numbers left out: not as many fields as the header",
                count(unfit, "line")
            ));
        }
        let has_rows = columns.contains_key("rows");
        let readings = columns.into_iter().map(|(name, column)| Reading {
            name,
            value: column.sum / column.rows as f64,
            unit: if column.is_percent { "%" } else { "" }.to_owned(),
            better: None,
        });
        found
            .metrics
            .extend(readings.filter(|r| r.value.is_finite()));
        if !has_rows {
            found.metrics.push(Reading {
                name: "rows".to_owned(),
                value: f64::from(rows),
                unit: String::new(),
                better: None,
            });
        }
        Ok(())
    }
}

impl Header {
    fn fits(&self, line: &str) -> bool {
        let fields = self.separator.split(line).len();
        fields == self.names.len() || self.has_title() && fields + 1 == self.names.len()
    }

    /// Whether a line without a plain number is a row nevertheless: it is like one, and no header again.
    fn is_above(&self, line: &str) -> bool {
        let fields = self.separator.split(line);
        let numbers = fields.iter().any(|field| Field::of(field).is_like_number());
        numbers && self.fits(line) && fields.iter().zip(&self.names).any(|(a, b)| a != b)
    }

    /// `avg-cpu:  %user %nice`: a title that stands above no column.
    fn has_title(&self) -> bool {
        self.names[0].ends_with(':')
    }

    /// A row's label (empty where it begins with a number) and its fields with their names.
    fn row<'a>(&'a mut self, line: &'a str) -> (&'a str, Vec<(&'a str, &'a str)>) {
        let fields = self.separator.split(line);
        self.is_labelled |= Field::of(fields[0]) == Field::Word;
        let names = &self.names[self.names.len() - fields.len()..];
        let named = names.iter().map(String::as_str).zip(fields.iter().copied());
        match self.is_labelled {
            true => (fields[0], named.skip(1).collect()),
            false => ("", named.collect()),
        }
    }
}

/// The names of a line that may be a header: it holds no number, and no name is there twice.
fn header_of(line: &str) -> Option<Header> {
    // df has a name of two words.
    let line = line.replace("Mounted on", "Mounted_on");
    let separator = Separator::of(&line);
    let names = separator.split(&line);
    let is_header = names.iter().enumerate().all(|(i, name)| {
        percent_or_number(name) == Err(NotNumber::Other) && !names[..i].contains(name)
    });
    is_header.then(|| Header {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        separator,
        is_labelled: false,
    })
}

impl Separator {
    fn of(line: &str) -> Separator {
        match line {
            line if line.contains('\t') => Separator::Tab,
            line if line.contains(',') => Separator::Comma,
            _ => Separator::Blanks,
        }
    }

    /// The fields of a line that is not blank: at least one.
    fn split(self, line: &str) -> Vec<&str> {
        match self {
            Separator::Blanks => line.split_whitespace().collect(),
            Separator::Tab => line.split('\t').map(str::trim).collect(),
            Separator::Comma => split_commas(line),
        }
    }
}

/// Fields between commas; quotes keep commas together (RFC 4180, doubled quotes are not undone).
fn split_commas(line: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let fields = line.split(|c| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    fields.map(|field| field.trim().trim_matches('"')).collect()
}

/// A line without the time of day that sysstat's tools put first (`09:57:38 AM`), trimmed.
fn without_clock(line: &str) -> &str {
    // Tabs may stand for empty fields.
    let line = line.trim_matches([' ', '\r']);
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    let is_clock = first.len() == 8
        && first.bytes().enumerate().all(|(i, b)| match i {
            2 | 5 => b == b':',
            _ => b.is_ascii_digit(),
        });
    if !is_clock {
        return line;
    }
    let rest = rest.trim_start();
    let half = rest.strip_prefix("AM ").or(rest.strip_prefix("PM "));
    half.unwrap_or(rest).trim_start()
}

fn percent_or_number(field: &str) -> Result<f64, NotNumber> {
    number(field.strip_suffix('%').unwrap_or(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    type SeenColumns = (Result<(), String>, Vec<(String, f64)>, Vec<String>);

    fn read(skip: usize, text: &str) -> SeenColumns {
        let mut found = Found::default();
        let result = Columns { skip }.parse(text, &mut found);
        let metrics = found.metrics.into_iter().map(|m| (m.name, m.value));
        (result, metrics.collect(), found.warnings)
    }

    const VMSTAT: &str = "\
procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free  us
 5  0      0   100   90
 1  0      0   300   10
procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----
 r  b   swpd   free  us
 3  0      0   500   20
";

    const IOSTAT: &str = "\
Linux 6.18.44 (vm) \t11/30/26 \t_x86_64_\t(2 CPU)

avg-cpu:  %user   %nice   %idle
          14.12    0.00   78.00

Device             tps    kB_read/s
vda              80.00      10.00
vdb               1.00       0.00


avg-cpu:  %user   %nice   %idle
          10.12    0.00   90.00

Device             tps    kB_read/s
vda              82.00      20.00
vdb               3.00       0.00

";

    #[test]
    fn columns_are_means_over_rows() {
        let check = |skip, text: &str, expected: &[(&str, f64)]| {
            let (result, metrics, warnings) = read(skip, text);
            let metrics: Vec<_> = metrics.iter().map(|(n, v)| (n.as_str(), *v)).collect();
            let mut expected = expected.to_vec();
            // Readings are sorted by name, but for `rows`.
            let columns = expected.len() - 1;
            expected[..columns].sort_by_key(|(name, _)| *name);
            assert_eq!((result, metrics), (Ok(()), expected), "{text}");
            assert_eq!(warnings, Vec::<String>::new(), "{text}");
        };
        let vmstat = |r, free, us, rows| {
            let zero = ("b", 0.0);
            [
                ("r", r),
                zero,
                ("swpd", 0.0),
                ("free", free),
                ("us", us),
                ("rows", rows),
            ]
        };
        check(0, VMSTAT, &vmstat(3.0, 300.0, 40.0, 3.0));
        check(1, VMSTAT, &vmstat(2.0, 400.0, 15.0, 2.0));
        check(
            0,
            IOSTAT,
            &[
                ("%user", 12.12),
                ("%nice", 0.0),
                ("%idle", 84.0),
                ("vda.tps", 81.0),
                ("vda.kB_read/s", 15.0),
                ("vdb.tps", 2.0),
                ("vdb.kB_read/s", 0.0),
                ("rows", 6.0),
            ],
        );
        check(
            1,
            IOSTAT,
            &[
                ("%user", 10.12),
                ("%nice", 0.0),
                ("%idle", 90.0),
                ("vda.tps", 82.0),
                ("vda.kB_read/s", 20.0),
                ("vdb.tps", 3.0),
                ("vdb.kB_read/s", 0.0),
                ("rows", 3.0),
            ],
        );
        check(
            0,
            "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/vda 200 50 150 25% /\n",
            &[
                ("/dev/vda.1K-blocks", 200.0),
                ("/dev/vda.Used", 50.0),
                ("/dev/vda.Available", 150.0),
                ("/dev/vda.Use%", 25.0),
                ("rows", 1.0),
            ],
        );
        check(
            0,
            "a\tb\n1\t\n3\t4\n",
            &[("a", 2.0), ("b", 4.0), ("rows", 2.0)],
        );
        check(
            0,
            "command,mean,\"n\"\n\"sleep 1, again\",1.5,3\n",
            &[
                ("sleep 1, again.mean", 1.5),
                ("sleep 1, again.n", 3.0),
                ("rows", 1.0),
            ],
        );
        check(
            0,
            "09:58:01 AM  CPU  %usr\n09:58:02 AM  all  10\n09:58:02 AM  0  20\nAverage:  all  15\n",
            &[("all.%usr", 10.0), ("0.%usr", 20.0), ("rows", 2.0)],
        );
    }

    #[test]
    fn what_is_no_plain_number_is_read_or_told() {
        let check = |text: &str, expected: &[(&str, f64)], warnings: &[&str]| {
            let (result, metrics, warned) = read(0, text);
            let metrics: Vec<_> = metrics.iter().map(|(n, v)| (n.as_str(), *v)).collect();
            assert_eq!((result, &metrics[..]), (Ok(()), expected), "{text}");
            assert_eq!(warned, warnings, "{text}");
        };
        let mib = 1048576.0;
        check(
            "t bw\n1 15.0M\n2 0\n3 12.0M\n",
            &[("bw", 9.0 * mib), ("t", 2.0), ("rows", 3.0)],
            &["numbers like `15.0M` are read as multiples of 1024"],
        );
        check(
            "Device read\nvda 1.5G\nvdb 512Ki\n",
            &[
                ("vda.read", 1536.0 * mib),
                ("vdb.read", 0.5 * mib),
                ("rows", 2.0),
            ],
            &["numbers like `1.5G` are read as multiples of 1024"],
        );
        check(
            "time,lat\n1,5.0\n2,NaN\n3,inf\n",
            &[("time", 2.0), ("rows", 3.0)],
            &["column `lat` is left out: `NaN` is no number"],
        );
        check(
            "a,b\nn/a,1\n2,3\n",
            &[("2.b", 3.0), ("n/a.b", 1.0), ("rows", 2.0)],
            &[],
        );
        check(
            "t x\n1 4\n2 busy\n",
            &[("t", 1.5), ("rows", 2.0)],
            &["column `x` is left out: `busy` is no number"],
        );
        check(
            "t x\n1 -\n2 6\n",
            &[("t", 1.5), ("x", 6.0), ("rows", 2.0)],
            &[],
        );
        check("t state\n1 on\n2 off\n", &[("t", 1.5), ("rows", 2.0)], &[]);
    }

    #[test]
    fn lines_between_rows_do_no_harm() {
        let (result, metrics, warnings) = read(0, "a b\n1 2\nhalf done\n3 4\ntook 5 s\n");
        assert_eq!(result, Ok(()));
        assert_eq!(metrics[0], ("a".to_owned(), 1.0));
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let check = |skip, text, reason: &str| {
            assert_eq!(read(skip, text).0, Err(reason.to_owned()), "{text}");
        };
        let no_table = "no table: no header line with rows of numbers below it";
        check(0, "hello\n", no_table);
        check(0, "1 2\n3 4\n", no_table);
        check(0, "a a\n1 2\n", no_table);
        check(1, "a b\n1 2\n", "no row is left after `skip = 1`");
        check(
            0,
            "a b\n1 3,5\n",
            "`3,5` may have a decimal comma, which is not guessed: run the program with LC_ALL=C",
        );
    }
}
