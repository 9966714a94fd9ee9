//! How the key of a step comes from what its result depends on.
//!
//! A key is the sum, modulo 2^128, of one digest for each input of the step: each word of its
//! command, each set-up, the artifact, the machine's tools. (An incremental hash in the sense of
//! Bellare and Micciancio, "A new paradigm for collision-free hashing", 1997; nobody is expected to
//! forge results against themselves.) A sum can be taken apart: inputs that depend on the same axes
//! are added up once for each projection, so a key costs a few additions for each cell, and a
//! changed key names the input that changed.

use super::cell::Cells;
use super::projection::{Memo, Projection};
use super::scope::Scope;
use crate::base::diag::Diagnostic;
use crate::base::input::InputTexts;
use crate::base::key::{Key, KeyHasher};
use crate::config::matrix::Argv;
use crate::config::template::{Context, Template};

/// The value of one input in a cell, as text; None where the cell has no such input.
type KeyValue<'a> = Box<dyn Fn(&[u16]) -> Result<Option<String>, Diagnostic> + 'a>;

/// One thing that a step's result depends on. Name and value are what is hashed: a name that changes
/// makes every result of the past stale.
struct KeyInput<'a> {
    /// As a user would say it: `run command, word 3`.
    name: String,
    axes: Vec<usize>,
    value: KeyValue<'a>,
    purpose: Purpose,
}

/// What an input is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// It is in the key, and told when it changes.
    Both,
    /// It stands in the key for inputs that are told one by one.
    Key,
    /// One of those.
    Telling,
}

/// All inputs of one kind of step, grouped by the axes that they depend on.
pub struct Inputs<'a> {
    scope: Scope<'a>,
    sizes: Vec<usize>,
    list: Vec<KeyInput<'a>>,
    groups: Vec<Group>,
}

struct Group {
    members: Vec<usize>,
    sums: Memo<u128>,
}

impl<'a> Inputs<'a> {
    pub fn new(scope: Scope<'a>) -> Self {
        Inputs {
            scope,
            sizes: scope.axes.iter().map(|axis| axis.values.len()).collect(),
            list: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Adds an input whose value depends on the given axes.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        axes: Vec<usize>,
        value: impl Fn(&[u16]) -> Result<String, Diagnostic> + 'a,
    ) {
        let some = move |cell: &[u16]| value(cell).map(Some);
        self.push(name.into(), axes, Box::new(some), Purpose::Both);
    }

    /// Adds an input that some cells may lack.
    pub fn add_optional(
        &mut self,
        name: impl Into<String>,
        axes: Vec<usize>,
        value: impl Fn(&[u16]) -> Result<Option<String>, Diagnostic> + 'a,
    ) {
        self.push(name.into(), axes, Box::new(value), Purpose::Both);
    }

    /// Adds the key of another step, whose own inputs are told by themselves.
    pub fn step(&mut self, name: String, axes: Vec<usize>, key: impl Fn(&[u16]) -> Key + 'a) {
        self.push(
            name,
            axes,
            Box::new(move |cell| Ok(Some(key(cell).to_string()))),
            Purpose::Key,
        );
    }

    /// Adds the digest of what is told by [`Inputs::part`].
    pub fn whole(&mut self, name: &str, axes: Vec<usize>, value: impl Fn(&[u16]) -> String + 'a) {
        self.push(
            name.to_owned(),
            axes,
            Box::new(move |cell| Ok(Some(value(cell)))),
            Purpose::Key,
        );
    }

    /// Adds a part of what is in the key by [`Inputs::whole`]; cells may lack it.
    pub fn part(&mut self, name: String, axes: Vec<usize>, value: impl Fn(&[u16]) -> String + 'a) {
        self.push(
            name,
            axes,
            Box::new(move |cell| Ok(Some(value(cell)).filter(|value| !value.is_empty()))),
            Purpose::Telling,
        );
    }

    /// An input that is the same in every cell.
    pub fn constant(&mut self, name: &str, value: String) {
        self.add(name, Vec::new(), move |_| Ok(value.clone()));
    }

    /// The rendered words of a command, each an input of its own. Names without a value of their own
    /// (`dir`, `bin`, `cell`, …) stand for themselves: what is behind them is an input by itself.
    pub fn words(&mut self, what: &str, argv: &'a Argv, builtins: &'a Context) {
        for (index, word) in argv.words.iter().enumerate() {
            self.text(format!("{what}, word {}", index + 1), word, builtins);
        }
    }

    /// One rendered text.
    pub fn text(&mut self, name: String, template: &'a Template, builtins: &'a Context) {
        let scope = self.scope;
        let axes = scope.axes_of(&template.mentions);
        let own = axes.clone();
        self.add(name, axes, move |cell| {
            render(scope, template, cell, &own, builtins)
        });
    }

    /// As [`Inputs::words`], in the cells for which `is_of` holds, which depends on `more` axes.
    pub fn words_where(
        &mut self,
        what: &str,
        argv: &'a Argv,
        builtins: &'a Context,
        more: &[usize],
        is_of: impl Fn(&[u16]) -> Result<bool, Diagnostic> + Copy + 'a,
    ) {
        let scope = self.scope;
        for (index, word) in argv.words.iter().enumerate() {
            let own = scope.axes_of(&word.mentions);
            let axes = own.iter().chain(more).copied().collect();
            self.add_optional(
                format!("{what}, word {}", index + 1),
                axes,
                move |cell| match is_of(cell)? {
                    true => render(scope, word, cell, &own, builtins).map(Some),
                    false => Ok(None),
                },
            );
        }
    }

    fn push(&mut self, name: String, axes: Vec<usize>, value: KeyValue<'a>, purpose: Purpose) {
        let index = self.list.len();
        let projection = Projection::new(axes.clone(), &self.sizes);
        let same = |group: &&mut Group| group.sums.projection == projection;
        match self.groups.iter_mut().find(same) {
            _ if purpose == Purpose::Telling => {}
            Some(group) => group.members.push(index),
            None => self.groups.push(Group {
                members: vec![index],
                sums: Memo::new(projection),
            }),
        }
        self.list.push(KeyInput {
            name,
            axes,
            value,
            purpose,
        });
    }

    /// Ascending axes that any input depends on.
    pub fn axes(&self) -> Vec<usize> {
        let mut axes: Vec<usize> = self
            .list
            .iter()
            .flat_map(|input| input.axes.clone())
            .collect();
        axes.sort_unstable();
        axes.dedup();
        axes
    }

    pub fn key(&mut self, cell: &[u16]) -> Result<Key, Diagnostic> {
        let list = &self.list;
        let mut sum = 0u128;
        for group in &mut self.groups {
            let members = &group.members;
            sum = sum.wrapping_add(group.sums.get(cell, || {
                let mut sum = 0u128;
                for &member in members {
                    let input = &list[member];
                    let Some(value) = (input.value)(cell)? else {
                        continue;
                    };
                    let digest = KeyHasher::new("input")
                        .str(&input.name)
                        .str(&value)
                        .finish();
                    sum = sum.wrapping_add(u128::from_be_bytes(digest.0));
                }
                Ok::<_, Diagnostic>(sum)
            })?);
        }
        Ok(Key(sum.to_be_bytes()))
    }

    /// Adds the inputs of all cells for which `wanted` holds.
    pub fn tell(
        &self,
        cells: &Cells,
        wanted: &dyn Fn(usize) -> bool,
        texts: &mut InputTexts,
    ) -> Result<(), Diagnostic> {
        let told = |input: &&KeyInput| input.purpose != Purpose::Key;
        for input in self.list.iter().filter(told) {
            let mut seen = Memo::new(Projection::new(input.axes.clone(), &self.sizes));
            for (index, cell) in cells.iter().enumerate().filter(|(index, _)| wanted(*index)) {
                let mut is_new = false;
                seen.get(cell, || {
                    is_new = true;
                    Ok::<_, Diagnostic>(index)
                })?;
                if is_new {
                    let place = self.scope.name_of(cell, &input.axes);
                    if let Some(value) = (input.value)(cell)? {
                        texts.insert((place, input.name.clone()), value);
                    }
                }
            }
        }
        Ok(())
    }

    /// The part of a cell's name that an input depends on; None for an input that is not here.
    pub fn place_of(&self, name: &str, cell: &[u16]) -> Option<String> {
        let input = self.list.iter().find(|input| input.name == name)?;
        Some(self.scope.name_of(cell, &input.axes))
    }
}

/// Renders a template in a cell; the error names both.
pub fn render(
    scope: Scope,
    template: &Template,
    cell: &[u16],
    axes: &[usize],
    builtins: &Context,
) -> Result<String, Diagnostic> {
    if template.is_literal() {
        return Ok(template.text.clone());
    }
    let mut context = builtins.clone();
    context.extend(scope.context(cell, axes)?);
    scope
        .matrix
        .engine
        .render(template, &context)
        .map_err(|reason| {
            Diagnostic::error(format!("this template cannot be filled in: {reason}"))
                .at(template.span, "here")
                .help(format!("in the cell {}", scope.name_of(cell, axes)))
        })
}
