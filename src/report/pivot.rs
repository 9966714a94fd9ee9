//! Tables with axes in rows and columns: plain results, and verdicts, a table a metric.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::text::{Style, arrow, in_one_unit, lines, summary, table};
use crate::base::printable::{Mark, marked, printable};
use crate::base::units::{count, show_value};
use crate::judge::verdict::Verdict;
use crate::verdicts::cells::{CellName, CellRow};
use crate::verdicts::report::{AxisRow, Report, VerdictRow};

/// Fewer samples tell little about their spread.
const SAMPLES_MIN: usize = 3;
/// Said once where it is true of each cell.
const ALL_NOISY: &str =
    "all cells are noisy: the machine was not quiet, or somebody had changed its profile";
/// Axes over one another in columns, where nobody asks for more.
const COLUMN_AXES_SHOWN_MAX: usize = 2;
/// Axes that are tried as columns; the others are rows.
const COLUMN_AXES_MAX: usize = 12;
/// Rows of one table; the rest is counted.
const ROWS_MAX: usize = 200;
/// Columns of one table where lines may be as long as they are.
const WIDTH_ELSEWHERE: u16 = 120;

/// Which axes are rows and which are columns; None: what fits the terminal in the fewest lines.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pub rows: Option<Vec<String>>,
    pub columns: Option<Vec<String>>,
}

/// What stands in one place of a table.
struct Entry {
    /// By axis.
    values: BTreeMap<String, String>,
    text: String,
    mark: Option<Mark>,
}

/// The results of all cells: median ± spread.
pub fn results(report: &Report, layout: &Layout, style: Style) -> String {
    let mut tables: Vec<(String, Vec<CellRow>)> = Vec::new();
    for row in report.cells.iter() {
        let title = format!("{} {}", row.metric, arrow(row.better));
        match tables.iter_mut().find(|known| known.0 == title) {
            Some((_, rows)) => rows.push(row),
            None => tables.push((title, vec![row])),
        }
    }
    let mut out = String::new();
    let mut legend = Legend::default();
    for (title, rows) in &tables {
        let usual = usual_count(rows);
        let all_noisy = rows.iter().all(|row| row.noisy > 0);
        if all_noisy {
            legend.0.insert("~", ALL_NOISY);
        }
        let result = |row| result(row, usual, all_noisy, &mut legend);
        let mut entries: Vec<Entry> = rows.iter().map(result).collect();
        let has = |cell: &str| rows.iter().any(|row| *row.cell == *cell);
        for failed in report.failed.iter().filter(|failed| !has(&failed.cell)) {
            entries.push(Entry {
                values: values(&CellName(failed.cell.clone())),
                text: "failed".to_owned(),
                mark: Some(Mark::Red),
            });
        }
        let of_each = format!(
            ", median ± standard deviation of {}",
            count(usual, "sample")
        );
        pivot(
            &format!("{title}{of_each}"),
            entries,
            &report.axes,
            layout,
            style,
            &mut out,
        );
        out.push('\n');
    }
    if tables.is_empty() {
        out.push_str("nothing is stored of these cells\n");
    }
    for (_, text) in legend.0 {
        let _ = writeln!(out, "{text}");
    }
    if !report.failed.is_empty() {
        let _ = writeln!(out, "{} failed", count(report.failed.len(), "cell"));
    }
    out
}

/// What each sign means, as far as it was used.
#[derive(Default)]
struct Legend(BTreeMap<&'static str, &'static str>);

/// The number of samples that most cells have.
fn usual_count(rows: &[CellRow]) -> usize {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.n).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(n, cells)| (*cells, *n));
    most.map_or(0, |(n, _)| n)
}

fn result(row: &CellRow, usual: usize, all_noisy: bool, legend: &mut Legend) -> Entry {
    let mut text = show_value(row.median, row.unit);
    if let Some(stddev) = row.stddev.filter(|_| row.median != 0.0) {
        let _ = write!(text, " ±{}", spread(stddev / row.median.abs()));
    }
    if row.n != usual {
        let _ = write!(text, " n={}", row.n);
        legend.0.insert("n", "n=…: of so many samples instead");
    }
    let mut mark = None;
    if row.noisy > 0 && !all_noisy {
        text.push_str(" ~");
        legend.0.insert(
            "~",
            "~ noisy: the machine was not quiet, or somebody had changed its profile",
        );
        mark = Some(Mark::Yellow);
    }
    if row.n < SAMPLES_MIN {
        text.push_str(" ?");
        legend
            .0
            .insert("?", "? fewer than 3 samples: the spread is hardly known");
        mark = Some(Mark::Yellow);
    }
    Entry {
        values: values(&row.cell),
        text,
        mark,
    }
}

/// `1.2%`, `12%`.
fn spread(relative: f64) -> String {
    let percent = relative * 100.0;
    match percent {
        p if p >= 9.95 => format!("{p:.0}%"),
        p => format!("{p:.1}%"),
    }
}

fn values(cell: &CellName) -> BTreeMap<String, String> {
    let axes = cell.axes();
    axes.map(|(axis, value)| (axis.to_owned(), value.to_owned()))
        .collect()
}

/// The verdicts: the sign of each with its change, a table for each metric and baseline.
pub fn verdicts(report: &Report, layout: &Layout, style: Style) -> String {
    let mut tables: Vec<(String, Vec<Entry>)> = Vec::new();
    for row in &report.verdicts {
        let title = format!(
            "{} {}, {} against {}",
            row.metric,
            arrow(row.better),
            row.axis,
            printable(&row.baseline)
        );
        let entry = verdict(row);
        match tables.iter_mut().find(|known| known.0 == title) {
            Some((_, entries)) => entries.push(entry),
            None => tables.push((title, vec![entry])),
        }
    }
    let mut out = String::new();
    for (title, entries) in tables {
        pivot(&title, entries, &report.axes, layout, style, &mut out);
        out.push('\n');
    }
    let signs: BTreeSet<&str> = report.verdicts.iter().map(|row| sign(row).0).collect();
    let legend = SIGNS.iter().filter(|(sign, _)| signs.contains(sign));
    let legend: Vec<String> = legend
        .map(|(sign, says)| format!("{sign} {says}"))
        .collect();
    let _ = writeln!(out, "{}", legend.join("  "));
    let _ = writeln!(out, "{}", summary(report));
    out
}

/// What each sign of a verdict says.
const SIGNS: [(&str, &str); 8] = [
    ("▼!", "worse, gates"),
    ("▼", "worse"),
    ("▲", "better"),
    ("=", "same"),
    ("~", "suspected, not confirmed"),
    ("?", "inconclusive"),
    ("✓", "accepted"),
    ("-", "nothing measured"),
];

fn sign(row: &VerdictRow) -> (&'static str, Option<Mark>) {
    match row.comparison.verdict {
        _ if row.is_accepted => ("✓", None),
        Verdict::Regression if row.gate => ("▼!", Some(Mark::Red)),
        Verdict::Regression => ("▼", Some(Mark::Red)),
        Verdict::Improvement => ("▲", Some(Mark::Green)),
        Verdict::Suspected => ("~", Some(Mark::Yellow)),
        Verdict::Same => ("=", None),
        Verdict::Inconclusive => ("?", None),
        Verdict::NothingMeasured => ("-", Some(Mark::Yellow)),
    }
}

fn verdict(row: &VerdictRow) -> Entry {
    let mut values = values(&row.cell);
    values.insert(row.axis.clone(), row.candidate.clone());
    let (change, _) = in_one_unit(row.comparison.ratio, None);
    let (sign, mark) = sign(row);
    let text = match row.comparison.verdict {
        Verdict::NothingMeasured => sign.to_owned(),
        _ => format!("{sign} {change}"),
    };
    Entry { values, text, mark }
}

/// One table. Axes with one value are said above it.
fn pivot(
    title: &str,
    entries: Vec<Entry>,
    known: &[AxisRow],
    layout: &Layout,
    style: Style,
    out: &mut String,
) {
    let axes = axes(&entries, known);
    let fixed = axes.iter().filter(|axis| axis.values.len() == 1);
    let fixed: Vec<String> = fixed
        .map(|axis| format!("{}={}", axis.name, printable(&axis.values[0])))
        .collect();
    let _ = writeln!(out, "{}", marked(Mark::Bold, &printable(title)));
    if !fixed.is_empty() {
        let _ = writeln!(out, "all cells: {}", fixed.join(","));
    }
    out.push('\n');
    let varying: Vec<&AxisRow> = axes.iter().filter(|axis| axis.values.len() > 1).collect();
    let (rows, columns) = arrange(&entries, &varying, layout, style);
    let grid = Grid::of(&entries, &rows, &columns);
    out.push_str(&grid.text(&rows, style));
}

/// The axes of the entries, with the values that they have there.
fn axes(entries: &[Entry], known: &[AxisRow]) -> Vec<AxisRow> {
    let mut axes: Vec<AxisRow> = known
        .iter()
        .map(|axis| AxisRow {
            name: axis.name.clone(),
            values: Vec::new(),
        })
        .collect();
    for entry in entries {
        for (name, value) in &entry.values {
            let at = axes.iter().position(|axis| axis.name == *name);
            let at = at.unwrap_or_else(|| {
                let (name, values) = (name.clone(), Vec::new());
                axes.push(AxisRow { name, values });
                axes.len() - 1
            });
            if !axes[at].values.contains(value) {
                axes[at].values.push(value.clone());
            }
        }
    }
    for (axis, known) in axes.iter_mut().zip(known) {
        let place = |value: &String| known.values.iter().position(|it| it == value);
        axis.values
            .sort_by_key(|value| place(value).unwrap_or(usize::MAX));
    }
    axes.retain(|axis| !axis.values.is_empty());
    axes
}

/// Which of the varying axes are rows, and which are columns.
fn arrange<'a>(
    entries: &[Entry],
    varying: &[&'a AxisRow],
    layout: &Layout,
    style: Style,
) -> (Vec<&'a AxisRow>, Vec<&'a AxisRow>) {
    let named = |names: &[String]| -> Vec<&'a AxisRow> {
        let find = |name: &String| varying.iter().find(|axis| axis.name == *name).copied();
        names.iter().filter_map(find).collect()
    };
    let without = |taken: &[&AxisRow]| -> Vec<&'a AxisRow> {
        let free = |axis: &&&AxisRow| !taken.iter().any(|it| it.name == axis.name);
        varying.iter().filter(free).copied().collect()
    };
    match (&layout.rows, &layout.columns) {
        (Some(rows), columns) => {
            let rows = named(rows);
            let mut rest = without(&rows);
            let columns = columns.as_deref().map_or_else(|| rest.clone(), named);
            // What nobody placed is a row too.
            rest.retain(|axis| !columns.iter().any(|it| it.name == axis.name));
            ([rows, rest].concat(), columns)
        }
        (None, Some(columns)) => {
            let columns = named(columns);
            (without(&columns), columns)
        }
        (None, None) => {
            let tried = varying.len().min(COLUMN_AXES_MAX);
            // A table has rows and, over them, no more names than can be read at a glance.
            let columns_max = COLUMN_AXES_SHOWN_MAX.min(varying.len().saturating_sub(1)) as u32;
            let choices = (0..1u32 << tried).filter(|choice| choice.count_ones() <= columns_max);
            let choices = choices.map(|choice| {
                let is_column = |at: usize| at < tried && choice & (1 << at) != 0;
                let columns: Vec<&AxisRow> = (0..varying.len())
                    .filter(|at| is_column(*at))
                    .map(|at| varying[at])
                    .collect();
                let rows = without(&columns);
                (rows, columns)
            });
            let width = usize::from(style.width.unwrap_or(WIDTH_ELSEWHERE));
            let fitting = choices.filter_map(|(rows, columns)| {
                let many: usize = columns.iter().map(|axis| axis.values.len()).product();
                let grid = (many * 4 <= width).then(|| Grid::of(entries, &rows, &columns))?;
                let fits = grid.width(&rows) <= width;
                let header = grid.columns.iter().map(|label| label.lines().count()).max();
                let lines = grid.rows.len() + header.unwrap_or(0);
                fits.then_some((lines, columns.len(), rows, columns))
            });
            let best = fitting.min_by_key(|(lines, columns, ..)| (*lines, *columns));
            best.map_or_else(
                || (varying.to_vec(), Vec::new()),
                |(_, _, rows, columns)| (rows, columns),
            )
        }
    }
}

/// The texts by row and column, only those rows and columns that have any.
struct Grid {
    /// A label for each row axis.
    rows: Vec<Vec<String>>,
    /// The label of each column, over several lines.
    columns: Vec<String>,
    /// By row, then by column.
    texts: Vec<Vec<String>>,
    marks: Vec<Vec<Option<Mark>>>,
}

impl Grid {
    fn of(entries: &[Entry], rows: &[&AxisRow], columns: &[&AxisRow]) -> Grid {
        let key = |entry: &Entry, axes: &[&AxisRow]| -> Vec<usize> {
            let place = |axis: &&AxisRow| {
                let value = entry.values.get(&axis.name);
                let place = value.and_then(|value| axis.values.iter().position(|it| it == value));
                place.map_or(0, |place| place + 1)
            };
            axes.iter().map(place).collect()
        };
        let mut by_row: BTreeMap<Vec<usize>, BTreeMap<Vec<usize>, &Entry>> = BTreeMap::new();
        let mut keys: BTreeMap<Vec<usize>, ()> = BTreeMap::new();
        for entry in entries {
            let column = key(entry, columns);
            keys.insert(column.clone(), ());
            by_row
                .entry(key(entry, rows))
                .or_default()
                .insert(column, entry);
        }
        let labels = |key: &[usize], axes: &[&AxisRow]| -> Vec<String> {
            let label = |(place, axis): (&usize, &&AxisRow)| {
                let value = place.checked_sub(1).map(|place| &axis.values[place]);
                value.map_or("-".to_owned(), |value| printable(value).into_owned())
            };
            key.iter().zip(axes).map(label).collect()
        };
        let header = |key: &Vec<usize>| {
            let labels = labels(key, columns);
            // `jobs:1+iodepth:4` stands in two lines.
            labels.join("\n").replace('+', "\n+")
        };
        let mut grid = Grid {
            rows: by_row.keys().map(|key| labels(key, rows)).collect(),
            columns: keys.keys().map(header).collect(),
            texts: Vec::new(),
            marks: Vec::new(),
        };
        for of_row in by_row.values() {
            let entry = |column: &Vec<usize>| of_row.get(column);
            let text =
                |column| entry(column).map_or(String::new(), |it| printable(&it.text).into_owned());
            grid.texts.push(keys.keys().map(text).collect());
            let mark = |column| entry(column).and_then(|it| it.mark);
            grid.marks.push(keys.keys().map(mark).collect());
        }
        grid
    }

    /// Columns of a terminal that it takes.
    fn width(&self, rows: &[&AxisRow]) -> usize {
        let chars = |text: &str| text.chars().count();
        let labels = (0..rows.len()).map(|at| {
            let labels = self.rows.iter().map(|row| chars(&row[at]));
            labels.chain([chars(&rows[at].name)]).max().unwrap_or(0) + 2
        });
        let texts = (0..self.columns.len()).map(|at| {
            let header = self.columns[at].lines().map(chars);
            let texts = self.texts.iter().map(|row| chars(&row[at]));
            header.chain(texts).max().unwrap_or(0) + 2
        });
        labels.chain(texts).sum()
    }

    fn text(&self, rows: &[&AxisRow], style: Style) -> String {
        let names = rows.iter().map(|axis| axis.name.as_str());
        let header: Vec<&str> = names
            .chain(self.columns.iter().map(String::as_str))
            .collect();
        // It was made to fit; where somebody asked for more columns, lines are longer.
        let style = Style {
            width: None,
            ..style
        };
        let mut table = table(style, &header, rows.len());
        let mut last: &[String] = &[];
        for ((labels, texts), marks) in self
            .rows
            .iter()
            .zip(&self.texts)
            .zip(&self.marks)
            .take(ROWS_MAX)
        {
            // A label that the row above has is not said again.
            let same = last.iter().zip(labels).take_while(|(a, b)| a == b).count();
            let same = same.min(labels.len().saturating_sub(1));
            let labels_shown = labels
                .iter()
                .enumerate()
                .map(|(at, label)| match at < same {
                    true => String::new(),
                    false => label.clone(),
                });
            let texts = texts.iter().zip(marks).map(|(text, mark)| match mark {
                Some(mark) => marked(*mark, text),
                None => text.clone(),
            });
            table.add_row(labels_shown.chain(texts));
            last = labels;
        }
        let mut out = lines(&table);
        if self.rows.len() > ROWS_MAX {
            let _ = writeln!(
                out,
                "… and {} more rows (`--only` chooses some)",
                self.rows.len() - ROWS_MAX
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(values: &[(&str, &str)], text: &str) -> Entry {
        Entry {
            values: values
                .iter()
                .map(|(a, v)| (a.to_string(), v.to_string()))
                .collect(),
            text: text.to_owned(),
            mark: None,
        }
    }

    fn shown(layout: &Layout, width: u16) -> String {
        let mut entries = Vec::new();
        for cache in ["none", "back"] {
            for aio in ["threads", "native", "uring"] {
                for rw in ["read", "write"] {
                    if aio == "native" && cache == "back" {
                        continue;
                    }
                    entries.push(entry(
                        &[
                            ("machine", "here"),
                            ("cache", cache),
                            ("aio", aio),
                            ("rw", rw),
                        ],
                        "10.5k ±1.2%",
                    ));
                }
            }
        }
        let known = [
            ("machine", vec!["here"]),
            ("cache", vec!["back", "none"]),
            ("aio", vec!["threads", "native", "uring"]),
            ("rw", vec!["read", "write"]),
        ];
        let known = known.map(|(name, values)| AxisRow {
            name: name.to_owned(),
            values: values.into_iter().map(str::to_owned).collect(),
        });
        let mut out = String::new();
        let style = Style {
            color: false,
            width: Some(width),
            all: false,
        };
        pivot("iops ↑", entries, &known, layout, style, &mut out);
        crate::base::printable::styled(&out, false).into_owned()
    }

    #[test]
    fn the_fewest_rows_that_fit_are_the_default() {
        assert_eq!(
            shown(&Layout::default(), 50),
            "iops ↑\nall cells: machine=here\n\n\
             cache  aio             read        write\n\
             back   threads  10.5k ±1.2%  10.5k ±1.2%\n       uring    10.5k ±1.2%  10.5k ±1.2%\n\
             none   threads  10.5k ±1.2%  10.5k ±1.2%\n       native   10.5k ±1.2%  10.5k ±1.2%\n       uring    10.5k ±1.2%  10.5k ±1.2%\n"
        );
        assert_eq!(shown(&Layout::default(), 80).lines().count(), 7);
    }

    #[test]
    fn rows_and_columns_are_as_asked_for() {
        let names = |names: &[&str]| Some(names.iter().map(|it| it.to_string()).collect());
        let layout = Layout {
            rows: names(&["rw"]),
            columns: names(&["cache"]),
        };
        let text = shown(&layout, 80);
        let rows: Vec<&str> = text.lines().skip(3).collect();
        // `aio` was placed nowhere: it is a row.
        assert_eq!(rows.len(), 1 + 6, "{text}");
        assert!(rows[0].starts_with("rw     aio"), "{text}");
        // There is no such cell.
        assert!(
            rows[2].trim_end().ends_with("10.5k ±1.2%") && rows[2].contains("native"),
            "{text}"
        );
    }

    #[test]
    fn a_spread_has_two_digits() {
        assert_eq!([0.0123, 0.0995, 0.2].map(spread), ["1.2%", "10%", "20%"]);
    }
}
