//! Cells: the product of the axes without what is excluded, with what is included; their names.

use std::collections::HashSet;

use super::pairwise::{self, Forbidden};
use super::projection::{Memo, Projection};
use super::scope::Scope;
use crate::base::diag::{At, Diagnostic, Span, suggest};
use crate::base::units::count;
use crate::config::matrix::{Matrix, Preset, Sampling};
use crate::config::template::Expr;
use crate::config::value::AxisValue;

/// Cells of one plan, and of the product before `exclude` rules.
pub const CELLS_MAX: usize = 2_000_000;

/// What the user asks for on the command line.
#[derive(Debug, Default)]
pub struct CellChoice<'a> {
    /// Name of a preset; the matrix's own default otherwise.
    pub preset: Option<&'a str>,
    /// Labels for the `version` axis.
    pub versions: Vec<String>,
    /// Label of the version that others are compared with.
    pub against: Option<String>,
    /// Cells for which all of these hold.
    pub only: Vec<Expr>,
    /// For the covering array.
    pub seed: u64,
}

/// Where an axis's values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Axis,
    Preset,
    CommandLine,
    Default,
}

/// An axis as this plan uses it.
#[derive(Clone, Debug)]
pub struct PlanAxis {
    pub name: String,
    pub values: Vec<AxisValue>,
    pub labels: Vec<String>,
    pub origin: Origin,
    /// Left out of names: not declared and with one value only.
    pub silent: bool,
}

/// All cells of a plan, each a tuple of value numbers.
#[derive(Clone, Debug)]
pub struct Cells {
    pub axes: Vec<PlanAxis>,
    data: Vec<u16>,
    /// Cells that `exclude` rules took out of the product, by rule.
    pub excluded: Vec<usize>,
}

impl Cells {
    pub fn len(&self) -> usize {
        self.data.len() / self.axes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub fn cell(&self, index: usize) -> &[u16] {
        &self.data[index * self.axes.len()..(index + 1) * self.axes.len()]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u16]> {
        self.data.chunks_exact(self.axes.len())
    }

    pub fn sizes(&self) -> Vec<usize> {
        sizes(&self.axes)
    }

    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes.iter().position(|axis| axis.name == name)
    }

    /// `machine=here,bs=4k`: parses back by [`Cells::parse`]. Never empty: a cell of undeclared axes is
    /// named after its machine.
    pub fn name(&self, cell: &[u16]) -> String {
        let name = self.name_without(cell, &[]);
        match (name.is_empty(), self.axis("machine")) {
            (true, Some(axis)) => format!("machine={}", self.label(cell, axis)),
            _ => name,
        }
    }

    /// The name without some axes.
    pub fn name_without(&self, cell: &[u16], left_out: &[usize]) -> String {
        let mut name = String::new();
        for (index, axis) in self.axes.iter().enumerate() {
            if axis.silent || left_out.contains(&index) {
                continue;
            }
            if !name.is_empty() {
                name.push(',');
            }
            name.push_str(&axis.name);
            name.push('=');
            name.push_str(&axis.labels[usize::from(cell[index])]);
        }
        name
    }

    /// The value of one axis in a cell.
    pub fn label(&self, cell: &[u16], axis: usize) -> &str {
        &self.axes[axis].labels[usize::from(cell[axis])]
    }

    /// Reads a cell name. Axes with one value need not be named; the order does not matter.
    pub fn parse(&self, name: &str) -> Result<Vec<u16>, Diagnostic> {
        let mut cell: Vec<Option<u16>> = self
            .axes
            .iter()
            .map(|axis| (axis.values.len() == 1).then_some(0))
            .collect();
        let mut named = HashSet::new();
        for part in name.split(',').filter(|part| !part.is_empty()) {
            let Some((axis_name, label)) = part.split_once('=') else {
                return Err(Diagnostic::error(format!("`{part}` is not `axis=value`"))
                    .help(format!("cells are named like {}", self.example())));
            };
            let Some(axis) = self.axis(axis_name) else {
                return Err(
                    Diagnostic::error(format!("there is no axis `{axis_name}`")).help(suggest(
                        axis_name,
                        self.axes.iter().map(|a| a.name.as_str()),
                    )),
                );
            };
            let labels = &self.axes[axis].labels;
            match labels.iter().position(|known| known == label) {
                Some(_) if !named.insert(axis) => {
                    return Err(Diagnostic::error(format!(
                        "the cell `{name}` says `{axis_name}` twice"
                    )));
                }
                Some(value) => cell[axis] = Some(value as u16),
                None => {
                    return Err(Diagnostic::error(format!(
                        "axis `{axis_name}` has no value `{label}`"
                    ))
                    .help(match self.axes[axis].origin {
                        Origin::Preset => format!(
                            "the preset gives it: {}; `--preset` chooses another",
                            labels.join(" ")
                        ),
                        _ => suggest(label, labels.iter().map(String::as_str)),
                    }));
                }
            }
        }
        let missing: Vec<&str> = self
            .axes
            .iter()
            .zip(&cell)
            .filter(|(_, value)| value.is_none())
            .map(|(axis, _)| axis.name.as_str())
            .collect();
        if !missing.is_empty() {
            return Err(Diagnostic::error(format!(
                "the cell `{name}` does not say: {}",
                missing.join(", ")
            ))
            .help(format!("cells are named like {}", self.example())));
        }
        Ok(cell.into_iter().flatten().collect())
    }

    /// The number of a cell.
    pub fn find(&self, cell: &[u16]) -> Option<usize> {
        self.iter().position(|known| known == cell)
    }

    fn example(&self) -> String {
        let first: Vec<u16> = match self.is_empty() {
            true => vec![0; self.axes.len()],
            false => self.cell(0).to_vec(),
        };
        format!("`{}`", self.name(&first))
    }
}

fn sizes(axes: &[PlanAxis]) -> Vec<usize> {
    axes.iter().map(|axis| axis.values.len()).collect()
}

/// The preset that a choice means.
pub fn preset<'a>(
    matrix: &'a Matrix,
    choice: &CellChoice,
) -> Result<Option<&'a Preset>, Diagnostic> {
    let own = matrix.preset.as_ref().map(|preset| preset.value.as_str());
    let Some(name) = choice.preset.or(own) else {
        return Ok(None);
    };
    match matrix
        .presets
        .iter()
        .find(|preset| preset.name.value == name)
    {
        Some(preset) => Ok(Some(preset)),
        None => {
            let names = matrix
                .presets
                .iter()
                .map(|preset| preset.name.value.as_str());
            Err(Diagnostic::error(format!("there is no preset `{name}`"))
                .help(suggest(name, names)))
        }
    }
}

/// All cells: the product (or a covering array of it) in the order of the axes, without what
/// `exclude` rules name, then `include`d cells, then only those that the choice asks for.
pub fn expand(matrix: &Matrix, choice: &CellChoice) -> Result<Cells, Vec<Diagnostic>> {
    let preset = preset(matrix, choice).map_err(|problem| vec![problem])?;
    let axes = plan_axes(matrix, preset, choice);
    let mut problems = useless_excludes(matrix);
    let include_axes = with_include_values(matrix, axes.clone());
    let scope = Scope {
        matrix,
        axes: &include_axes,
    };
    let width = axes.len();
    let mut cells = Cells {
        axes: Vec::new(),
        data: Vec::new(),
        excluded: vec![0; matrix.excludes.len()],
    };
    let sampling = preset.map(|preset| preset.sampling).unwrap_or_default();
    let own_sizes = sizes(&axes);
    let result = match sampling {
        Sampling::Product => product(scope, &own_sizes, &mut cells),
        Sampling::Pairwise => covering(scope, &own_sizes, choice.seed, &mut cells),
    };
    if let Err(problem) = result {
        // A rule that cannot be computed is met in both places.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        return Err(problems);
    }
    if let Err(found) = include(matrix, scope, &own_sizes, &mut cells.data) {
        problems.extend(found);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    for only in &choice.only {
        let axes = known_axes(scope, only).map_err(|problem| vec![problem])?;
        let mut memo = Memo::new(Projection::new(axes, &sizes(scope.axes)));
        let mut kept = Vec::new();
        for cell in cells.data.chunks_exact(width) {
            let axes = memo.projection.axes.clone();
            let holds = memo.get(cell, || scope.test(only, cell, &axes));
            if holds.map_err(|problem| vec![problem])? {
                kept.extend_from_slice(cell);
            }
        }
        cells.data = kept;
    }
    cells.axes = include_axes;
    Ok(cells)
}

/// The axes of an expression from the command line; names were not checked yet.
fn known_axes(scope: Scope, expr: &Expr) -> Result<Vec<usize>, Diagnostic> {
    for mention in &expr.mentions {
        let name = mention.split('.').next().unwrap_or(mention);
        let is_derived = scope.matrix.derived.iter().any(|d| d.name.value == name);
        if name != "facts" && !is_derived && !scope.axes.iter().any(|axis| axis.name == name) {
            let derived = scope.matrix.derived.iter().map(|d| d.name.value.as_str());
            let names = scope
                .axes
                .iter()
                .map(|axis| axis.name.as_str())
                .chain(derived);
            return Err(Diagnostic::error(format!("there is no axis `{name}`"))
                .at(place_in(expr, name), "in this expression")
                .help(suggest(name, names)));
        }
    }
    Ok(scope.axes_of(&expr.mentions))
}

/// Where a name stands in an expression that is a source of its own.
fn place_in(expr: &Expr, name: &str) -> Span {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let at = expr.text.match_indices(name).find(|(at, _)| {
        !expr.text[..*at].ends_with(is_word) && !expr.text[at + name.len()..].starts_with(is_word)
    });
    at.map_or(expr.span, |(at, _)| expr.span.slice(at..at + name.len()))
}

fn plan_axes(matrix: &Matrix, preset: Option<&Preset>, choice: &CellChoice) -> Vec<PlanAxis> {
    matrix
        .axes
        .iter()
        .map(|axis| {
            let of_preset = preset.and_then(|preset| {
                let mut axes = preset.axes.iter();
                axes.find(|(name, _)| name.value == axis.name)
            });
            let plain = |values: &[At<AxisValue>]| values.iter().map(|v| v.value.clone()).collect();
            let (values, origin): (Vec<AxisValue>, Origin) = match of_preset {
                _ if axis.name == "version" && !choice.versions.is_empty() => (
                    choice.versions.iter().map(AxisValue::text).collect(),
                    Origin::CommandLine,
                ),
                Some((_, values)) => (plain(values), Origin::Preset),
                None if axis.declared => (plain(&axis.values), Origin::Axis),
                None => (plain(&axis.values), Origin::Default),
            };
            PlanAxis {
                name: axis.name.clone(),
                labels: values.iter().map(AxisValue::label).collect(),
                silent: !axis.declared && values.len() == 1,
                values,
                origin,
            }
        })
        .collect()
}

/// `include` may bring values of its own: they get numbers after the axis's own values.
fn with_include_values(matrix: &Matrix, mut axes: Vec<PlanAxis>) -> Vec<PlanAxis> {
    for include in &matrix.includes {
        for (name, values) in &include.values {
            let Some(axis) = axes.iter_mut().find(|axis| axis.name == name.value) else {
                continue;
            };
            for value in values {
                let label = value.value.label();
                if !axis.labels.contains(&label) {
                    axis.labels.push(label);
                    axis.values.push(value.value.clone());
                }
            }
        }
    }
    axes
}

/// An `exclude` that no combination of declared values satisfies is a slip.
fn useless_excludes(matrix: &Matrix) -> Vec<Diagnostic> {
    let axes = plan_axes(matrix, None, &CellChoice::default());
    let scope = Scope {
        matrix,
        axes: &axes,
    };
    let sizes = sizes(&axes);
    let mut problems = Vec::new();
    for exclude in &matrix.excludes {
        let mentioned = scope.axes_of(&exclude.when.mentions);
        let projection = Projection::new(mentioned.clone(), &sizes);
        if projection.size > CELLS_MAX as u64 {
            continue;
        }
        let mut hits = false;
        let mut failed = None;
        projection.for_each(&sizes, |cell| {
            if failed.is_none() && !hits {
                match scope.test(&exclude.when, cell, &mentioned) {
                    Ok(holds) => hits = holds,
                    Err(problem) => failed = Some(problem),
                }
            }
        });
        // Versions are chosen on the command line; a rule about them may wait for its version.
        let about_versions = mentioned.iter().any(|&axis| axes[axis].name == "version");
        match failed {
            Some(problem) => problems.push(problem),
            None if !hits && !about_versions => problems.push(
                Diagnostic::error("this rule excludes nothing")
                    .at(exclude.when.span, "no cell has such values")
                    .help(format!("the values are: {}", values_of(&axes, &mentioned))),
            ),
            None => {}
        }
    }
    problems
}

/// The values of some axes, for a hint.
pub fn values_of(axes: &[PlanAxis], which: &[usize]) -> String {
    which
        .iter()
        .map(|&axis| format!("{} = {}", axes[axis].name, axes[axis].labels.join(" ")))
        .collect::<Vec<_>>()
        .join("; ")
}

/// The excluded projections of each rule as a table.
struct Rules<'a> {
    scope: Scope<'a>,
    memos: Vec<Memo<bool>>,
}

impl<'a> Rules<'a> {
    fn new(scope: Scope<'a>) -> Self {
        let sizes = sizes(scope.axes);
        let memos = scope
            .matrix
            .excludes
            .iter()
            .map(|rule| Memo::new(Projection::new(scope.axes_of(&rule.when.mentions), &sizes)))
            .collect();
        Rules { scope, memos }
    }

    /// The first rule that excludes a cell.
    fn excluding(&mut self, cell: &[u16]) -> Result<Option<usize>, Diagnostic> {
        let scope = self.scope;
        for (index, memo) in self.memos.iter_mut().enumerate() {
            let rule = &scope.matrix.excludes[index];
            let holds = memo.get(cell, || {
                scope.test(&rule.when, cell, &scope.axes_of(&rule.when.mentions))
            })?;
            if holds {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }
}

/// The rule that excludes a cell, if one does.
pub fn excluded_by(matrix: &Matrix, axes: &[PlanAxis], cell: &[u16]) -> Option<usize> {
    Rules::new(Scope { matrix, axes })
        .excluding(cell)
        .ok()
        .flatten()
}

fn product(scope: Scope, sizes: &[usize], cells: &mut Cells) -> Result<(), Diagnostic> {
    let all = Projection::new((0..sizes.len()).collect(), sizes);
    if all.size > CELLS_MAX as u64 {
        let axes: Vec<String> = scope
            .axes
            .iter()
            .zip(sizes)
            .filter(|(_, size)| **size > 1)
            .map(|(axis, size)| format!("{} {size}", axis.name))
            .collect();
        return Err(Diagnostic::error(format!(
            "the product of the axes has {} cells; at most {CELLS_MAX} are allowed",
            all.size
        ))
        .at(widest_axis(scope, sizes), "the axis with the most values")
        .help(format!(
            "{}; take fewer values, or `sample = \"pairwise\"` in a preset",
            axes.join(" × ")
        )));
    }
    let mut rules = Rules::new(scope);
    let (data, excluded) = (&mut cells.data, &mut cells.excluded);
    data.reserve(all.size as usize * sizes.len());
    let mut failed = None;
    all.for_each(sizes, |cell| match rules.excluding(cell) {
        Ok(None) => data.extend_from_slice(cell),
        Ok(Some(rule)) => excluded[rule] += 1,
        Err(problem) => failed = failed.take().or(Some(problem)),
    });
    failed.map_or(Ok(()), Err)
}

fn widest_axis(scope: Scope, sizes: &[usize]) -> Span {
    let axes = &scope.matrix.axes;
    let widest = (0..sizes.len()).max_by_key(|&axis| sizes[axis]);
    widest.map_or(scope.matrix.run.span, |axis| axes[axis].span)
}

/// A covering array: every pair of values that some cell of the product has is in some cell here.
/// Compared axes are crossed with each row, so that every comparison has both of its sides.
fn covering(scope: Scope, sizes: &[usize], seed: u64, cells: &mut Cells) -> Result<(), Diagnostic> {
    let compares = scope.matrix.compares.iter();
    let compared = compares.filter_map(|compare| axis_named(scope, &compare.axis.value));
    let crossed = Projection::new(compared.collect(), sizes);
    let excludes = scope.matrix.excludes.iter();
    let rules: Vec<Forbidden> = excludes
        .map(|exclude| {
            let axes = scope.axes_of(&exclude.when.mentions);
            Forbidden {
                axes: axes.clone(),
                is_forbidden: Box::new(move |values| {
                    let mut cell = vec![0; scope.axes.len()];
                    for (&axis, &value) in axes.iter().zip(values) {
                        cell[axis] = value;
                    }
                    // An expression that cannot be computed is reported when cells are made.
                    scope.test(&exclude.when, &cell, &axes).unwrap_or(false)
                }),
            }
        })
        .collect();
    let mut rows = pairwise::pairwise(sizes, &rules, seed).map_err(|error| {
        Diagnostic::error(format!("no covering array: {error}"))
            .at(widest_axis(scope, sizes), "the axis with the most values")
    })?;
    for row in &mut rows {
        crossed.axes.iter().for_each(|&axis| row[axis] = 0);
    }
    rows.sort_unstable();
    rows.dedup();
    if (rows.len() as u64).saturating_mul(crossed.size) > CELLS_MAX as u64 {
        return Err(Diagnostic::error(format!(
            "{} rows of a covering array × {} compared values; at most {CELLS_MAX} cells are allowed",
            rows.len(),
            crossed.size
        )));
    }
    let mut rules = Rules::new(scope);
    for row in rows {
        let mut failed = None;
        crossed.for_each(sizes, |values| {
            let mut cell = row.clone();
            crossed
                .axes
                .iter()
                .for_each(|&axis| cell[axis] = values[axis]);
            match rules.excluding(&cell) {
                Ok(None) => cells.data.extend_from_slice(&cell),
                Ok(Some(rule)) => cells.excluded[rule] += 1,
                Err(problem) => failed = failed.take().or(Some(problem)),
            }
        });
        if let Some(problem) = failed {
            return Err(problem);
        }
    }
    Ok(())
}

fn axis_named(scope: Scope, name: &str) -> Option<usize> {
    scope.axes.iter().position(|axis| axis.name == name)
}

/// Adds the cells of `[[include]]`; a cell that is there already is an error.
fn include(
    matrix: &Matrix,
    scope: Scope,
    own_sizes: &[usize],
    data: &mut Vec<u16>,
) -> Result<(), Vec<Diagnostic>> {
    let width = scope.axes.len();
    if matrix.includes.is_empty() {
        return Ok(());
    }
    let mut problems = Vec::new();
    let mut seen: HashSet<Vec<u16>> = data.chunks_exact(width).map(<[u16]>::to_vec).collect();
    for include in &matrix.includes {
        // For each axis the numbers it takes here: the named ones, or all of its own.
        let choices: Vec<Vec<u16>> = (0..width)
            .map(|axis| {
                let axis_of = &scope.axes[axis];
                let named = include
                    .values
                    .iter()
                    .find(|(name, _)| name.value == axis_of.name);
                match named {
                    Some((_, values)) => values
                        .iter()
                        .filter_map(|value| {
                            let label = value.value.label();
                            axis_of.labels.iter().position(|known| *known == label)
                        })
                        .map(|value| value as u16)
                        .collect(),
                    None => (0..own_sizes[axis] as u16).collect(),
                }
            })
            .collect();
        let numbers: Vec<usize> = choices.iter().map(Vec::len).collect();
        let all = Projection::new((0..width).collect(), &numbers);
        if seen.len() as u64 + all.size > CELLS_MAX as u64 {
            problems.push(
                Diagnostic::error(format!(
                    "with these {} there would be more than {CELLS_MAX} cells",
                    count(all.size as usize, "cell")
                ))
                .at(include.span, "this include"),
            );
            continue;
        }
        let mut duplicate = None;
        all.for_each(&numbers, |numbers| {
            let cell: Vec<u16> = (0..width)
                .map(|axis| choices[axis][usize::from(numbers[axis])])
                .collect();
            match seen.contains(&cell) {
                true => duplicate = duplicate.take().or(Some(cell)),
                false => {
                    data.extend_from_slice(&cell);
                    seen.insert(cell);
                }
            }
        });
        if let Some(cell) = duplicate {
            let visible: Vec<usize> = (0..width)
                .filter(|&axis| !scope.axes[axis].silent)
                .collect();
            problems.push(
                Diagnostic::error("this include repeats a cell that is there already")
                    .at(include.span, format!("cell {}", scope.name_of(&cell, &visible)))
                    .help("`include` adds cells beside the product; an axis that it does not name takes all its values"),
            );
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests;
