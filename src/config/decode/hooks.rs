//! Decoding `[[hook]]`: programs that are called at named moments.

use std::time::Duration;

use super::Decoder;
use crate::base::diag::Diagnostic;
use crate::config::hook::{HOOK_TIMEOUT, HookDecl, Moment};
use crate::config::read::Table;

const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl Decoder<'_> {
    pub(super) fn hooks(&mut self, top: &mut Table) -> Vec<HookDecl> {
        let tables = self.tables(top, "hook", "[[hook]]");
        let hooks = tables.into_iter().filter_map(|table| self.hook(table));
        hooks.collect()
    }

    fn hook(&mut self, mut table: Table) -> Option<HookDecl> {
        let span = table.span;
        let names = Moment::ALL.map(|moment| (moment.name(), moment));
        let at = table.require("at", self.problems);
        let at = at.and_then(|node| self.one_of(&node, &names));
        let command = table.require("command", self.problems);
        let command = command.and_then(|node| self.argv(&node));
        let timeout = match table.get("timeout") {
            None => Some(HOOK_TIMEOUT),
            Some(node) => {
                let timeout = node.duration(self.problems);
                let fits = timeout.is_none_or(|it| !it.is_zero() && it <= TIMEOUT_MAX);
                if !fits {
                    node.wrong("a duration of at most \"24h\", and not 0", self.problems);
                }
                timeout.filter(|_| fits)
            }
        };
        let required = match table.get("required") {
            None => Some(false),
            Some(node) => node.boolean(self.problems),
        };
        table.finish(self.problems);
        let command = command?;
        if let Some(word) = command.words.iter().find(|word| !word.is_literal()) {
            self.problems.push(
                Diagnostic::error("the command of a hook has no variables")
                    .at(word.span, "here")
                    .help("the hook reads on standard input what it is called for, as JSON: see docs/hooks.md"),
            );
            return None;
        }
        Some(HookDecl {
            at: at?,
            command: command.words.into_iter().map(|word| word.text).collect(),
            timeout: timeout?,
            required: required?,
            span,
        })
    }
}
