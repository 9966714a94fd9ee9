//! `matrix compare --csv`: a comparison of a plain file.

use std::path::Path;

use super::files;
use super::show::Stop;
use crate::base::sample::Better;
use crate::edge::csv::{CsvSides, read_sides};
use crate::judge::verdict::{Comparison, Question, compare, decide};
use crate::plan::steps::NONE;
use crate::verdicts::cells::SampleRow;
use crate::verdicts::comparisons::{level, summary};
use crate::verdicts::report::{Report, VerdictRow};

/// Judges the two sides of each metric of each cell of a file as one family.
pub fn report(file: &Path, better: Better, min_effect: f64) -> Result<Report, Stop> {
    let name = file.display().to_string();
    let (text, bytes) = files::open(file)
        .map_err(|error| Stop::message(format!("`{name}`: {}", files::in_words(error))))?;
    let table = read_sides(&name, bytes, text).map_err(|error| Stop::message(error.to_string()))?;
    let question = Question::new(better, min_effect);
    let answer = |sides: &CsvSides| {
        (
            question,
            compare(&sides.baseline, &sides.candidate, &question),
        )
    };
    let mut family: Vec<(Question, Comparison)> = table.sides.iter().map(answer).collect();
    decide(&mut family);
    let [baseline, candidate] = &table.names;
    let row = |(sides, (_, comparison)): (CsvSides, (Question, Comparison))| VerdictRow {
        runs: [NONE; 2],
        differing: None,
        baseline_median: level(&sides.baseline),
        candidate_median: level(&sides.candidate),
        commits: [None, None],
        standing: None,
        since: None,
        samples: [&sides.baseline, &sides.candidate]
            .map(|side| side.iter().map(SampleRow::of).collect()),
        sides: [summary(&sides.baseline), summary(&sides.candidate)],
        cell: sides.cell.into(),
        metric: sides.metric,
        unit: String::new(),
        better,
        axis: "side".to_owned(),
        gate: true,
        axis_gates: true,
        baseline: baseline.clone(),
        candidate: candidate.clone(),
        comparison,
        confirmed: None,
        accepted: None,
        is_accepted: false,
    };
    let rows = table.sides.into_iter().zip(family).map(row).collect();
    Ok(Report::of(&file.display().to_string(), "", rows))
}
