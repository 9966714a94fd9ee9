//! Comparisons in the columns of LKP and mmtests, each row with our own verdict beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::judge::table::{LKP_HEADING, Side, lkp_row, mmtests_cell, mmtests_percent};
use crate::judge::verdict::LEVEL;
use crate::judge::verdict::Summary;
use crate::verdicts::report::{Report, VerdictRow};

/// Decimals of an mmtests value.
const DECIMALS: usize = 2;

/// Rows that compare the same two sides of the same cell stand together.
fn blocks(report: &Report) -> BTreeMap<(&str, &str, &str, &str), Vec<&VerdictRow>> {
    let mut blocks: BTreeMap<_, Vec<&VerdictRow>> = BTreeMap::new();
    for row in &report.verdicts {
        let block = (&*row.cell, &*row.axis, &*row.baseline, &*row.candidate);
        blocks.entry(block).or_default().push(row);
    }
    blocks
}

/// As LKP's `compare` prints it: a mean ± relative standard deviation, change, the same of the other side.
pub fn lkp(report: &Report) -> String {
    let mut out = String::new();
    for ((cell, axis, baseline, candidate), rows) in blocks(report) {
        let _ = writeln!(out, "{cell}\n\n{baseline:>16} {candidate:>27}   ({axis})");
        let _ = writeln!(out, "{:-<16} {:-<27}", "", "");
        let _ = writeln!(out, "{LKP_HEADING}");
        for row in rows {
            let verdict = row.words();
            match row.sides.map(|side| side.map(lkp_side)) {
                [Some(base), Some(new)] => {
                    let _ = writeln!(out, "{}   # {verdict}", lkp_row(&row.metric, base, new));
                }
                _ => {
                    let _ = writeln!(out, "{:>54}  {}   # {verdict}", "", row.metric);
                }
            }
        }
        out.push('\n');
    }
    out
}

fn lkp_side(summary: Summary) -> Side {
    let relative = summary.stddev / summary.mean.abs();
    Side {
        mean: summary.mean,
        relative_stddev: (summary.n > 1 && relative.is_finite()).then_some(relative),
    }
}

/// As mmtests' `compare-mmtests.pl` prints it: means, the change with "positive is better" in brackets, or between
/// stars where it is significant.
pub fn mmtests(report: &Report) -> String {
    let mut out = String::new();
    for ((cell, axis, baseline, candidate), rows) in blocks(report) {
        let _ = writeln!(out, "{cell}   ({axis})\n");
        let _ = writeln!(out, "{:<24} {baseline:>24} {candidate:>24}", "");
        for row in rows {
            let verdict = row.words();
            let [Some(base), Some(new)] = row.sides else {
                let _ = writeln!(
                    out,
                    "{:<24} {:>24} {:>24}   # {verdict}",
                    row.metric, "-", "-"
                );
                continue;
            };
            let percent = mmtests_percent(row.better, base.mean, new.mean);
            let is_significant = row.comparison.q.is_some_and(|q| q <= LEVEL);
            let base = mmtests_cell(base.mean, 0.0, false, DECIMALS);
            let new = mmtests_cell(new.mean, percent, is_significant, DECIMALS);
            let _ = writeln!(out, "{:<24} {base:>24} {new:>24}   # {verdict}", row.metric);
        }
        out.push('\n');
    }
    out
}
