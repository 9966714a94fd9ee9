//! Owns how the key of a step comes from what its result depends on.
//! Does not know where the digests of programs and artifacts come from.
//!
//! A key is the sum, modulo 2^128, of one digest for each input of the step: each word of its
//! command, each set-up, the artifact, the machine's tools. (An incremental hash in the sense of
//! Bellare and Micciancio, "A new paradigm for collision-free hashing", 1997; nobody is expected to
//! forge results against themselves.) A sum can be taken apart: inputs that depend on the same axes
//! are added up once for each projection, so a key costs a few additions for each cell, and a
//! changed key names the input that changed.

use super::projection::{Memo, Projection};
use super::scope::Scope;
use crate::config::matrix::{Argv, ParserDecl};
use crate::config::template::{Context, Template};
use crate::words::diag::Diagnostic;
use crate::words::key::{Key, KeyHasher};

/// Computes the digest of one input in a cell.
type Digest<'a> = Box<dyn Fn(&[u16]) -> Result<u128, Diagnostic> + 'a>;

/// One thing that a step's result depends on.
pub struct Input<'a> {
    /// As a user would say it: ``word 3 of `[run]` ``, ``set-up `nbd` ``.
    pub name: String,
    pub axes: Vec<usize>,
    digest: Digest<'a>,
}

/// All inputs of one kind of step, grouped by the axes that they depend on.
pub struct Inputs<'a> {
    scope: Scope<'a>,
    pub list: Vec<Input<'a>>,
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
            list: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// Adds an input whose digest depends on the given axes.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        axes: Vec<usize>,
        digest: impl Fn(&[u16]) -> Result<u128, Diagnostic> + 'a,
    ) {
        let index = self.list.len();
        let projection = Projection::new(
            axes.clone(),
            &self
                .scope
                .axes
                .iter()
                .map(|a| a.values.len())
                .collect::<Vec<_>>(),
        );
        match self
            .groups
            .iter_mut()
            .find(|group| group.sums.projection == projection)
        {
            Some(group) => group.members.push(index),
            None => self.groups.push(Group {
                members: vec![index],
                sums: Memo::new(projection),
            }),
        }
        self.list.push(Input {
            name: name.into(),
            axes,
            digest: Box::new(digest),
        });
    }

    /// An input that is the same in every cell.
    pub fn constant(&mut self, name: &str, digest: Key) {
        let value = number(KeyHasher::new(name).key(digest).finish());
        self.add(name, Vec::new(), move |_| Ok(value));
    }

    /// The rendered words of a command, each an input of its own. Names without a value of their own
    /// (`dir`, `bin`, `cell`, …) stand for themselves: what is behind them is an input by itself.
    pub fn words(&mut self, what: &'a str, argv: &'a Argv, builtins: &'a Context) {
        for (index, word) in argv.words.iter().enumerate() {
            self.text(
                format!("word {} of {what}", index + 1),
                what,
                index,
                word,
                builtins,
            );
        }
    }

    /// One rendered text.
    pub fn text(
        &mut self,
        name: String,
        what: &'a str,
        index: usize,
        template: &'a Template,
        builtins: &'a Context,
    ) {
        let scope = self.scope;
        let axes = scope.axes_of(&template.mentions);
        let own = axes.clone();
        self.add(name, axes, move |cell| {
            let text = render(scope, template, cell, &own, builtins)?;
            let key = KeyHasher::new(what)
                .bytes(&(index as u64).to_le_bytes())
                .str(&text)
                .finish();
            Ok(number(key))
        });
    }

    pub fn parser(&mut self, parser: &ParserDecl) {
        let mut hasher = KeyHasher::new("parser");
        hasher.str(&parser.kind.value);
        for (name, value) in &parser.options {
            hasher.str(&name.value).str(value);
        }
        self.constant("parser", hasher.finish());
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
                    sum = sum.wrapping_add((list[member].digest)(cell)?);
                }
                Ok::<_, Diagnostic>(sum)
            })?);
        }
        Ok(Key(sum.to_be_bytes()))
    }

    /// The digest of each input in a cell, by name.
    pub fn parts(&self, cell: &[u16]) -> Result<Vec<(&str, Key)>, Diagnostic> {
        self.list
            .iter()
            .map(|input| {
                Ok((
                    input.name.as_str(),
                    Key((input.digest)(cell)?.to_be_bytes()),
                ))
            })
            .collect()
    }
}

/// A key as a summand.
pub fn number(key: Key) -> u128 {
    u128::from_be_bytes(key.0)
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
