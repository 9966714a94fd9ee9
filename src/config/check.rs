//! The checks between parts of a matrix: names that refer to each other, rings, axes never used.

use std::collections::{BTreeMap, BTreeSet};

use super::matrix::*;
use super::read::Problems;
use super::template::{Expr, Template};
use super::value::AxisValue;
use crate::base::diag::{At, Diagnostic, Sources, Span, suggest};

/// Names with a meaning of their own, which no axis or set-up can take.
pub const BUILTIN_NAMES: [&str; 9] = [
    "cell", "dir", "bin", "src", "jobs", "seconds", "round", "seed", "facts",
];

pub fn matrix(matrix: &mut Matrix, sources: &Sources, problems: &mut Problems) {
    order_derived(matrix, problems);
    let matrix = &*matrix;
    names(matrix, problems);
    axis_values(matrix, problems);
    let mut checker = Checker {
        matrix,
        sources,
        problems,
        used: BTreeSet::new(),
    };
    checker.rules();
    checker.templates();
    let used = checker.used;
    let used: BTreeSet<String> = used.into_iter().map(str::to_owned).collect();
    unused_axes(matrix, &used, problems);
    references(matrix, problems);
    if matrix.metrics.is_empty() {
        problems.push(
            Diagnostic::error("there are no `[metrics]`")
                .at(matrix.run.span, "this measures something")
                .help("say what is read from it: `[metrics.iops]` with `from = \"read.iops\"`"),
        );
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Names of axes, derived axes and set-ups share one space: templates use them all.
fn names(matrix: &Matrix, problems: &mut Problems) {
    let axes = matrix
        .axes
        .iter()
        .map(|axis| (axis.name.as_str(), axis.span));
    let derived = matrix
        .derived
        .iter()
        .map(|d| (d.name.value.as_str(), d.name.span));
    let setups = matrix
        .setups
        .iter()
        .map(|s| (s.name.value.as_str(), s.name.span));
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for (name, span) in axes.chain(derived).chain(setups) {
        if BUILTIN_NAMES.contains(&name) {
            problems.push(
                Diagnostic::error(format!("`{name}` has a meaning of its own"))
                    .at(span, "choose another name")
                    .help(format!(
                        "these names are taken: {}",
                        BUILTIN_NAMES.join(", ")
                    )),
            );
        } else if !is_identifier(name) {
            problems.push(
                Diagnostic::error(format!("`{name}` cannot be used in templates"))
                    .at(span, "letters, digits and `_` only")
                    .help(format!("write `{}`", as_identifier(name))),
            );
        } else if !matrix.engine.is_usable(name) {
            problems.push(
                Diagnostic::error(format!("`{name}` is a word of the template language"))
                    .at(span, "choose another name")
                    .help(format!(
                        "templates cannot use it as a name: write `{name}_`"
                    )),
            );
        }
        match seen.get(name) {
            Some(first) => problems.push(
                Diagnostic::error(format!("the name `{name}` is used twice"))
                    .at(span, "here again")
                    .also(*first, "first here")
                    .help("axes, derived axes and set-ups share one space of names: templates use them all"),
            ),
            None => {
                seen.insert(name, span);
            }
        }
    }
    if matrix.axes.len() > AXES_MAX {
        problems.push(Diagnostic::error(format!(
            "{} axes; at most {AXES_MAX} are allowed",
            matrix.axes.len()
        )));
    }
}

fn as_identifier(name: &str) -> String {
    let mut text: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    if !text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        text.insert(0, '_');
    }
    text
}

/// Each value once, zipped values with the same fields, machines that exist.
fn axis_values(matrix: &Matrix, problems: &mut Problems) {
    let preset_axes = matrix.presets.iter().flat_map(|preset| &preset.axes);
    let lists = matrix
        .axes
        .iter()
        .map(|axis| (axis.name.as_str(), &axis.values))
        .chain(preset_axes.map(|(name, values)| (name.value.as_str(), values)));
    for (name, values) in lists {
        let mut seen: BTreeMap<String, Span> = BTreeMap::new();
        for value in values {
            if let Some(first) = seen.insert(same_fields_same_label(value), value.span) {
                problems.push(
                    Diagnostic::error(format!(
                        "axis `{name}` has the value `{}` twice: the cells would be duplicates",
                        value.value.label()
                    ))
                    .at(value.span, "here again")
                    .also(first, "first here")
                    .help("write each value once"),
                );
            }
            if name == "machine" {
                machine_exists(matrix, value, problems);
            }
        }
        if let Some((first, other)) = values
            .first()
            .and_then(|first| Some((first, values.iter().find(|v| fields(v) != fields(first))?)))
        {
            problems.push(
                Diagnostic::error(format!("the values of axis `{name}` have different fields"))
                    .at(other.span, fields_in_words(other))
                    .also(first.span, fields_in_words(first))
                    .help("zipped values of one axis all have the same fields"),
            );
        }
    }
    for include in &matrix.includes {
        for (name, values) in &include.values {
            if name.value == "machine" {
                values
                    .iter()
                    .for_each(|value| machine_exists(matrix, value, problems));
            }
        }
    }
}

fn machine_exists(matrix: &Matrix, value: &At<AxisValue>, problems: &mut Problems) {
    let label = value.value.label();
    if matrix.machine(&label).is_none() {
        let names = matrix.machines.iter().map(|machine| machine.name.as_str());
        problems.push(
            Diagnostic::error(format!("there is no machine `{label}`"))
                .at(value.span, "not under `[machines]`")
                .help(suggest(&label, names)),
        );
    }
}

/// The label that a value has however its fields are ordered.
fn same_fields_same_label(value: &At<AxisValue>) -> String {
    let mut value = value.value.clone();
    if let AxisValue::Zipped(fields) = &mut value {
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    value.label()
}

fn fields(value: &At<AxisValue>) -> BTreeSet<&str> {
    match &value.value {
        AxisValue::Scalar(_) => BTreeSet::new(),
        AxisValue::Zipped(fields) => fields.iter().map(|(name, _)| name.as_str()).collect(),
    }
}

fn fields_in_words(value: &At<AxisValue>) -> String {
    let fields: Vec<&str> = fields(value).into_iter().collect();
    match fields.is_empty() {
        true => "no fields here".to_owned(),
        false => format!("fields here: {}", fields.join(", ")),
    }
}

/// Sorts derived axes so that each needs only earlier ones, or shows the ring. Axes of a ring are kept,
/// so that what uses them is not reported too.
fn order_derived(matrix: &mut Matrix, problems: &mut Problems) {
    let mut waiting = std::mem::take(&mut matrix.derived);
    let mut ordered: Vec<DerivedAxis> = Vec::new();
    while !waiting.is_empty() {
        let names: BTreeSet<String> = waiting.iter().map(|d| d.name.value.clone()).collect();
        let (ready, blocked): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|d| !d.expr.mentions.iter().any(|m| names.contains(root(m))));
        if ready.is_empty() {
            problems.push(ring_error(&blocked));
            ordered.extend(blocked);
            break;
        }
        ordered.extend(ready);
        waiting = blocked;
    }
    matrix.derived = ordered;
}

fn ring_error(blocked: &[DerivedAxis]) -> Diagnostic {
    let ring = ring(blocked);
    let place = (blocked.iter())
        .find(|derived| derived.name.value == ring[0])
        .map_or(blocked[0].name.span, |derived| derived.name.span);
    let names: Vec<String> = ring.iter().map(|name| format!("`{name}`")).collect();
    if let [name, _] = &names[..] {
        return Diagnostic::error(format!("derived axis {name} needs itself"))
            .at(place, "its own expression mentions it")
            .help("write it with other axes only");
    }
    Diagnostic::error(format!(
        "derived axes need each other: {}",
        names.join(" → ")
    ))
    .at(place, "part of the ring")
    .help("one of them must be written without the others")
}

/// One ring among axes that all need another of them: its first name stands at the end again.
fn ring(blocked: &[DerivedAxis]) -> Vec<&str> {
    let mut path: Vec<&str> = vec![&blocked[0].name.value];
    loop {
        let last = path[path.len() - 1];
        let next = blocked
            .iter()
            .find(|d| d.name.value == last)
            .and_then(|d| {
                let needs = d.expr.mentions.iter().map(|m| root(m));
                needs
                    .into_iter()
                    .find(|m| blocked.iter().any(|b| b.name.value == *m))
            })
            .unwrap_or(last);
        let seen = path.iter().position(|name| *name == next);
        path.push(next);
        if let Some(start) = seen {
            return path.split_off(start);
        }
    }
}

fn root(mention: &str) -> &str {
    mention.split('.').next().unwrap_or(mention)
}

struct Checker<'a> {
    matrix: &'a Matrix,
    sources: &'a Sources,
    problems: &'a mut Problems,
    /// Axes that some command, metric or derived axis uses.
    used: BTreeSet<&'a str>,
}

impl<'a> Checker<'a> {
    /// `exclude`, `until` and derived expressions.
    fn rules(&mut self) {
        // That a rule speaks of an axis does not make a difference to what is measured.
        let used = self.used.clone();
        for derived in &self.matrix.derived {
            self.expr(&derived.expr);
        }
        for exclude in &self.matrix.excludes {
            self.expr(&exclude.when);
        }
        for affects in &self.matrix.affects {
            self.expr(&affects.when);
        }
        for when in self.matrix.metrics.iter().filter_map(|m| m.when.as_ref()) {
            self.expr(when);
        }
        for when in self
            .matrix
            .run
            .cases
            .iter()
            .filter_map(|it| it.when.as_ref())
        {
            self.expr(when);
        }
        let presets = self.matrix.presets.iter().filter_map(|p| p.repeat.as_ref());
        for repeat in presets.chain([&self.matrix.run.repeat]) {
            let Some(until) = &repeat.until else { continue };
            for name in &until.mentions {
                if !UNTIL_NAMES.contains(&name.as_str()) {
                    self.undeclared(name, until.span, UNTIL_NAMES.to_vec());
                }
            }
        }
        self.used = used;
    }

    fn templates(&mut self) {
        let matrix = self.matrix;
        for (_, template) in &matrix.env {
            self.template(template, &[], 0);
        }
        if let Some(build) = &matrix.build {
            let names = [
                "src",
                "jobs",
                "dir",
                "here",
                "cpus",
                "commit",
                "commit_date",
            ];
            for argv in build.commands() {
                self.argv(argv, &names, 0);
            }
            for when in build.variants.iter().filter_map(|it| it.when.as_ref()) {
                for mention in when.mentions.iter().filter(|it| *it != "has") {
                    self.undeclared(mention, when.span, vec!["has"]);
                }
            }
        }
        let in_setup = [
            "dir",
            "bin",
            "seconds",
            "here",
            "cpus",
            "commit",
            "commit_date",
            "free_port",
        ];
        for (index, setup) in matrix.setups.iter().enumerate() {
            let commands = setup
                .run
                .iter()
                .chain(&setup.undo)
                .chain(&setup.service)
                .chain(&setup.ready);
            for argv in commands {
                self.argv(argv, &in_setup, index);
            }
        }
        let all = matrix.setups.len();
        let in_run = [
            "cell",
            "dir",
            "bin",
            "seconds",
            "round",
            "seed",
            "here",
            "cpus",
            "commit",
            "commit_date",
            "free_port",
        ];
        for argv in matrix.run.commands() {
            self.argv(argv, &in_run, all);
        }
        for monitor in &matrix.monitors {
            match monitor {
                Monitor::Command { command, .. } => self.argv(command, &in_run, all),
                Monitor::File { path, .. } => self.template(path, &in_run, all),
            }
        }
        for metric in &matrix.metrics {
            self.template(&metric.from, &[], 0);
        }
    }

    fn argv(&mut self, argv: &'a Argv, builtins: &[&'static str], setups: usize) {
        for word in &argv.words {
            self.template(word, builtins, setups);
        }
    }

    /// `setups`: how many of the set-ups come before, whose folders may be named.
    fn template(&mut self, template: &'a Template, builtins: &[&'static str], setups: usize) {
        for mention in &template.mentions {
            if self.axis_or_builtin(mention, template.span, builtins) {
                continue;
            }
            if BUILTIN_NAMES.contains(&root(mention)) && !builtins.contains(&root(mention)) {
                self.not_here(mention, template.span, builtins);
                continue;
            }
            let before = &self.matrix.setups[..setups];
            let name = mention.strip_suffix(".dir");
            if let Some(name) = name.or_else(|| mention.strip_suffix(".port"))
                && before.iter().any(|setup| setup.name.value == name)
            {
                continue;
            }
            let mut names: Vec<&str> = before.iter().map(|s| s.name.value.as_str()).collect();
            names.extend(builtins);
            if names.contains(&root(mention)) || self.is_later_setup(mention) {
                self.wrong_use(mention, template.span);
            } else {
                names.extend(self.axis_names());
                self.undeclared(mention, template.span, names);
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        for mention in &expr.mentions {
            if !self.axis_or_builtin(mention, expr.span, &[]) {
                let mut names = self.axis_names();
                names.push("facts");
                self.undeclared(mention, expr.span, names);
            }
        }
    }

    /// True when the name is taken care of, be it by noting what is wrong with its field.
    fn axis_or_builtin(&mut self, mention: &'a str, span: Span, builtins: &[&'static str]) -> bool {
        let name = root(mention);
        if let Some(derived) = self.matrix.derived.iter().find(|d| d.name.value == name) {
            self.use_derived(&derived.name.value);
            return true;
        }
        let Some(axis) = self.matrix.axes.iter().find(|axis| axis.name == name) else {
            if name == "facts" {
                self.fact(mention, span);
            }
            return name == "facts" || (builtins.contains(&name) && mention == name);
        };
        self.used.insert(&axis.name);
        let fields = axis.values.first().map(fields).unwrap_or_default();
        if let Some(field) = mention
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('.'))
            && !fields.contains(field)
        {
            let names: Vec<&str> = fields.into_iter().collect();
            let help = match names.is_empty() {
                true => format!("they are plain values: write `{name}`"),
                false => suggest(field, names),
            };
            let place = self.place_of(mention, span);
            self.problems.push(
                Diagnostic::error(format!(
                    "the values of axis `{name}` have no field `{field}`"
                ))
                .at(place, "not declared")
                .help(help),
            );
        }
        true
    }

    /// `facts.NAME`: a fact that some machine has.
    fn fact(&mut self, mention: &str, span: Span) {
        let machines = self.matrix.machines.iter();
        let facts: BTreeSet<&str> = machines
            .flat_map(|machine| machine.facts.keys().map(String::as_str))
            .collect();
        let wanted = mention.strip_prefix("facts.").unwrap_or("");
        if !facts.contains(wanted) {
            let place = self.place_of(mention, span);
            self.problems.push(
                Diagnostic::error(format!("no machine has the fact `{wanted}`"))
                    .at(place, "not under the `facts` of a machine")
                    .help(suggest(wanted, facts)),
            );
        }
    }

    /// What a derived axis needs is used where the derived axis is.
    fn use_derived(&mut self, name: &'a str) {
        let derived = self.matrix.derived.iter().find(|d| d.name.value == name);
        if self.used.insert(name)
            && let Some(derived) = derived
        {
            derived
                .expr
                .mentions
                .iter()
                .for_each(|mention| self.use_derived(root(mention)));
        }
    }

    fn axis_names(&self) -> Vec<&'a str> {
        let derived = self.matrix.derived.iter().map(|d| d.name.value.as_str());
        self.matrix
            .axes
            .iter()
            .map(|a| a.name.as_str())
            .chain(derived)
            .collect()
    }

    fn is_later_setup(&self, mention: &str) -> bool {
        self.matrix
            .setups
            .iter()
            .any(|s| s.name.value == root(mention))
    }

    /// A variable that other steps have.
    fn not_here(&mut self, mention: &str, span: Span, builtins: &[&'static str]) {
        let place = self.place_of(mention, span);
        let help = match builtins.is_empty() {
            true => "axes, derived axes and `facts` can be used here".to_owned(),
            false => format!("beside axes there are: `{}`", builtins.join("`, `")),
        };
        self.problems.push(
            Diagnostic::error(format!("`{mention}` cannot be used here"))
                .at(place, "other steps have it")
                .help(help),
        );
    }

    fn wrong_use(&mut self, mention: &str, span: Span) {
        let place = self.place_of(mention, span);
        let name = root(mention);
        let help = match self.matrix.setups.iter().any(|s| s.name.value == name) {
            true => {
                format!(
                    "`{name}.dir` is known to steps after the set-up `{name}`; in the set-up itself it is `dir`"
                )
            }
            false => format!("`{name}` has no fields: write `{{{{ {name} }}}}`"),
        };
        self.problems.push(
            Diagnostic::error(format!("`{mention}` cannot be used here"))
                .at(place, "not known at this point")
                .help(help),
        );
    }

    fn undeclared(&mut self, mention: &str, span: Span, names: Vec<&str>) {
        let place = self.place_of(mention, span);
        self.problems.push(
            Diagnostic::error(format!("`{mention}` is not declared"))
                .at(place, "no axis, set-up or variable of this name")
                .help(suggest(root(mention), names)),
        );
    }

    /// Where a name stands in the text at `span`.
    fn place_of(&self, mention: &str, span: Span) -> Span {
        let text = self.sources.text(span.source);
        let Some(text) = text.get(span.start as usize..span.end as usize) else {
            return span;
        };
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        text.match_indices(mention)
            .find(|(at, found)| {
                !text[..*at].ends_with(is_word) && !text[at + found.len()..].starts_with(is_word)
            })
            .map_or(span, |(at, found)| span.slice(at..at + found.len()))
    }
}

/// What an `until` expression can use.
const UNTIL_NAMES: [&str; 2] = ["ci95", "n"];

fn unused_axes(matrix: &Matrix, used: &BTreeSet<String>, problems: &mut Problems) {
    for axis in &matrix.axes {
        let always = ["machine", "version"].contains(&axis.name.as_str());
        // A name that cannot be used was reported as such.
        let usable = is_identifier(&axis.name)
            && !BUILTIN_NAMES.contains(&axis.name.as_str())
            && matrix.engine.is_usable(&axis.name);
        if usable && !always && !used.contains(axis.name.as_str()) {
            problems.push(
                Diagnostic::error(format!("axis `{}` is never used", axis.name))
                    .at(axis.span, "no command mentions it")
                    .help(format!(
                        "use it in a command: `{{{{ {} }}}}`, or delete it: its cells would all measure the same",
                        axis.name
                    )),
            );
        }
    }
}

/// Presets, includes and compares name axes and values that exist.
fn references(matrix: &Matrix, problems: &mut Problems) {
    let axis_names: Vec<&str> = matrix.axes.iter().map(|axis| axis.name.as_str()).collect();
    let known_axis = |name: &At<String>, problems: &mut Problems| {
        if matrix.axis(&name.value).is_none() {
            let help = match matrix.derived.iter().any(|d| d.name.value == name.value) {
                true => "a derived axis follows from others and cannot be set".to_owned(),
                false => suggest(&name.value, axis_names.iter().copied()),
            };
            problems.push(
                Diagnostic::error(format!("there is no axis `{}`", name.value))
                    .at(name.span, "not under `[axes]`")
                    .help(help),
            );
        }
    };
    for preset in &matrix.presets {
        preset
            .axes
            .iter()
            .for_each(|(name, _)| known_axis(name, problems));
    }
    for include in &matrix.includes {
        include
            .values
            .iter()
            .for_each(|(name, _)| known_axis(name, problems));
    }
    for compare in &matrix.compares {
        known_axis(&compare.axis, problems);
        baseline_exists(matrix, compare, problems);
    }
    if let Some(preset) = &matrix.preset
        && !matrix.presets.iter().any(|p| p.name.value == preset.value)
    {
        let names = matrix.presets.iter().map(|p| p.name.value.as_str());
        problems.push(
            Diagnostic::error(format!("there is no preset `{}`", preset.value))
                .at(preset.span, "not under `[presets]`")
                .help(suggest(&preset.value, names)),
        );
    }
}

fn baseline_exists(matrix: &Matrix, compare: &Compare, problems: &mut Problems) {
    let (Some(baseline), Some(axis)) = (&compare.baseline, matrix.axis(&compare.axis.value)) else {
        return;
    };
    let axis = &matrix.axes[axis];
    // Versions come from the command line.
    if axis.name == "version" {
        return;
    }
    let in_presets = matrix.presets.iter().flat_map(|p| &p.axes);
    let in_includes = matrix.includes.iter().flat_map(|i| &i.values);
    let labels: BTreeSet<String> = in_presets
        .chain(in_includes)
        .filter(|(name, _)| name.value == axis.name)
        .flat_map(|(_, values)| values)
        .chain(&axis.values)
        .map(|value| value.value.label())
        .collect();
    let wanted = baseline.value.label();
    if !labels.contains(&wanted) {
        problems.push(
            Diagnostic::error(format!("axis `{}` has no value `{wanted}`", axis.name))
                .at(baseline.span, "cannot be the baseline")
                .help(suggest(&wanted, labels.iter().map(String::as_str))),
        );
    }
}
