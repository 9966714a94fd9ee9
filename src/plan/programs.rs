//! Programs that commands begin with, and files that they name below `{{ here }}`: their content is in keys.

use std::collections::BTreeSet;

use super::cell::{Origin, PlanAxis};
use super::key::render;
use super::projection::Projection;
use super::scope::Scope;
use super::steps::placeholders;
use crate::base::diag::Diagnostic;
use crate::config::matrix::{Argv, Matrix};
use crate::config::template::{Context, Template};

/// Different values of the axes of one word that are looked through for names of programs.
const VALUES_MAX: u64 = 10_000;

/// What `{{ here }}` stands for in keys: results stay where the folder is moved.
pub const HERE: &str = "\u{1}here";

/// Which word of a command it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordPlace {
    /// The program.
    First,
    Later,
}

/// The programs and files of a word, as [`placeholders`] render it: `fio`, `/opt/x/bench`, and relative to
/// the matrix file `./bench.sh`.
pub fn names_in(word: &str, place: WordPlace) -> Vec<String> {
    let ends = |c: char| c.is_whitespace() || "'\"`;|&<>()$,:".contains(c);
    let mut names: Vec<String> = word
        .match_indices(HERE)
        .filter_map(|(at, _)| {
            let rest = &word[at + HERE.len()..];
            let path = &rest[..rest.find(ends).unwrap_or(rest.len())];
            let path = path.strip_prefix('/')?.trim_end_matches('/');
            (!path.is_empty()).then(|| format!("./{path}"))
        })
        .collect();
    // What is behind another name is an input by itself.
    let is_plain = !word.contains('\u{1}') && !word.is_empty();
    if place == WordPlace::First && is_plain && (word.starts_with('/') || !word.contains('/')) {
        names.push(word.to_owned());
    }
    names
}

/// Whether a word names something whose content counts.
pub fn has_names(word: &Template, place: WordPlace) -> bool {
    place == WordPlace::First || word.mentions.iter().any(|mention| mention == "here")
}

/// All names in the commands of a matrix, whatever values its axes take. Err where `{{ here }}` stands
/// for the whole folder.
pub fn named(matrix: &Matrix) -> Result<BTreeSet<String>, Diagnostic> {
    let axes = axes(matrix);
    let scope = Scope {
        matrix,
        axes: &axes,
    };
    let builtins = placeholders(matrix, matrix.run.seconds);
    let mut names = BTreeSet::new();
    for (argv, is_measured) in commands(matrix) {
        for (index, word) in argv.words.iter().enumerate() {
            let place = match index == 0 && is_measured {
                true => WordPlace::First,
                false => WordPlace::Later,
            };
            if has_names(word, place) {
                add(scope, word, place, &builtins, &mut names)?;
            }
        }
    }
    Ok(names)
}

/// Each command, and whether its program counts: that of a build does not, as its compiler is found by it.
fn commands(matrix: &Matrix) -> impl Iterator<Item = (&Argv, bool)> {
    let setups = matrix.setups.iter();
    let of_setups = setups.flat_map(|setup| setup.run.iter().chain(&setup.service));
    let measured = matrix.run.commands().chain(of_setups);
    let builds = matrix.build.iter().flat_map(|build| build.commands());
    measured
        .map(|argv| (argv, true))
        .chain(builds.map(|argv| (argv, false)))
}

fn add(
    scope: Scope,
    word: &Template,
    place: WordPlace,
    builtins: &Context,
    names: &mut BTreeSet<String>,
) -> Result<(), Diagnostic> {
    let axes = scope.axes_of(&word.mentions);
    let sizes: Vec<usize> = scope.axes.iter().map(|axis| axis.values.len()).collect();
    let projection = Projection::new(axes.clone(), &sizes);
    if projection.size > VALUES_MAX {
        return Err(Diagnostic::error(format!(
            "this word has {} different values, each of which may name a file; at most {VALUES_MAX} are looked at",
            projection.size
        ))
        .at(word.span, "here")
        .help("name the program in a word of its own that mentions fewer axes"));
    }
    let mut result = Ok(());
    projection.for_each(&sizes, |cell| {
        // What cannot be rendered is told for the cell that has it.
        let Ok(text) = render(scope, word, cell, &axes, builtins) else {
            return;
        };
        let found = names_in(&text, place);
        if text.contains(HERE) && !found.iter().any(|name| name.starts_with("./")) {
            result = Err(Diagnostic::error("`{{ here }}` names the whole folder of the matrix")
                .at(word.span, "no file is named")
                .help("name what is used of it, `{{ here }}/FILE` or `{{ here }}/FOLDER`: its content is part of the key"));
        }
        names.extend(found);
    });
    result
}

/// The axes with all values that a preset or an include may give them.
fn axes(matrix: &Matrix) -> Vec<PlanAxis> {
    let of_axis = |axis: &crate::config::matrix::Axis| {
        let presets = matrix.presets.iter().flat_map(|preset| &preset.axes);
        let includes = matrix.includes.iter().flat_map(|include| &include.values);
        let others = presets
            .chain(includes)
            .filter(|(name, _)| name.value == axis.name);
        let mut values = Vec::new();
        for value in axis
            .values
            .iter()
            .chain(others.flat_map(|(_, values)| values))
        {
            if !values.contains(&value.value) {
                values.push(value.value.clone());
            }
        }
        PlanAxis {
            name: axis.name.clone(),
            labels: values.iter().map(|value| value.label()).collect(),
            values,
            origin: Origin::Axis,
            silent: false,
        }
    };
    matrix.axes.iter().map(of_axis).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::decode::tests::read;

    #[test]
    fn files_of_the_folder_and_programs_are_found() {
        let check = |command: &str, expected: &[&str]| {
            let matrix = read(&format!(
                "[matrix]\nname = 'x'\n[axes]\ntool = ['a', 'b']\n[run]\ncommand = {command}\nparser = 'json'\n[metrics.m]\n"
            ));
            let names: Vec<String> = named(&matrix).unwrap().into_iter().collect();
            assert_eq!(names, expected, "{command}");
        };
        check("['fio', '{{ tool }}']", &["fio"]);
        check("['/opt/{{ tool }}/x']", &["/opt/a/x", "/opt/b/x"]);
        check("['{{ bin }}/x', '{{ tool }}']", &[]);
        check("['./x', '{{ tool }}']", &[]);
        check("['{{ here }}/{{ tool }}.sh']", &["./a.sh", "./b.sh"]);
        check(
            "['sh', '-c', 'cat {{ here }}/a/b.txt | {{ here }}/c \"{{ here }}/d\" {{ tool }}']",
            &["./a/b.txt", "./c", "./d", "sh"],
        );
        check(
            "['x', '--in={{ here }}/jobs/{{ tool }}.fio,rw']",
            &["./jobs/a.fio", "./jobs/b.fio", "x"],
        );
    }

    #[test]
    fn the_whole_folder_is_refused() {
        let matrix = read(
            "[matrix]\nname = 'x'\n[run]\ncommand = ['x', '{{ here }}']\nparser = 'json'\n[metrics.m]\n",
        );
        assert!(named(&matrix).is_err());
    }
}
