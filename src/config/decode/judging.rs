//! Decoding what bears on verdicts: comparisons, their confirmation, made-up effects.

use std::collections::BTreeMap;

use super::Decoder;
use crate::base::units::parse_percent;
use crate::config::matrix::{Compare, Confirm};
use crate::config::read::Table;
use crate::config::value;

const MIN_EFFECT: f64 = 0.02;

/// Fresh rounds of a finding at the most; judge/confirm goes no further.
const CONFIRM_ROUNDS_MAX: u64 = 32;

impl Decoder<'_> {
    pub(super) fn compares(&mut self, top: &mut Table) -> Vec<Compare> {
        let mut compares = Vec::new();
        for mut table in self.tables(top, "compare", "[[compare]]") {
            let axis = table
                .require("axis", self.problems)
                .and_then(|n| n.string(self.problems));
            let baseline = table
                .get("baseline")
                .and_then(|n| value::read(&n, self.problems));
            let min_effect = table
                .get("min_effect")
                .and_then(|n| n.percent(self.problems))
                .unwrap_or(MIN_EFFECT);
            let gate = table
                .get("gate")
                .and_then(|n| n.boolean(self.problems))
                .unwrap_or(true);
            let confirm = table
                .get("confirm")
                .and_then(|n| n.boolean(self.problems))
                .unwrap_or_else(|| axis.as_ref().is_some_and(|axis| axis.value == "version"));
            let span = table.span;
            table.finish(self.problems);
            compares.extend(axis.map(|axis| Compare {
                axis,
                baseline,
                min_effect,
                gate,
                confirm,
                span,
            }));
        }
        compares
    }

    /// `false`, or `{ rounds = 32, max = "10%" }`.
    pub(super) fn confirm(&mut self, table: &mut Table) -> Confirm {
        let own = Confirm::default();
        let Some(node) = table.get("confirm") else {
            return own;
        };
        if node.value.as_bool() == Some(false) {
            return Confirm { rounds: 0, ..own };
        }
        if !node.value.is_table() {
            let wanted = "`false`, or a table such as { rounds = 32, max = \"10%\" }";
            node.wrong(wanted, self.problems);
            return own;
        }
        let Some(mut table) = node.table("confirm", self.problems) else {
            return own;
        };
        let rounds = table
            .get("rounds")
            .and_then(|n| n.integer(2, CONFIRM_ROUNDS_MAX, self.problems));
        let max = table.get("max").and_then(|n| n.percent(self.problems));
        table.finish(self.problems);
        Confirm {
            rounds: rounds.map_or(own.rounds, |rounds| rounds as u32),
            max: max.unwrap_or(own.max),
        }
    }

    /// By how much versions differ on a `null` machine: label → factor.
    pub(super) fn effects(&mut self, table: &mut Table) -> BTreeMap<String, f64> {
        let mut effects = BTreeMap::new();
        let Some(list) = self.table(table, "effects", "effects") else {
            return effects;
        };
        for (version, node) in list.all() {
            let text = node.string(self.problems);
            match text.as_ref().and_then(|text| parse_percent(&text.value)) {
                Some(change) if change > -1.0 => {
                    effects.insert(version.value.to_owned(), 1.0 + change);
                }
                _ if text.is_some() => {
                    node.wrong("a change above -100%, such as \"+5%\"", self.problems);
                }
                _ => {}
            }
        }
        effects
    }
}
