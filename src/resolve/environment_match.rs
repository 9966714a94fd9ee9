//! Which environments are one and the same to samples, and what of two sides can be compared.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::base::key::Key;
use crate::base::sample::Sample;
use crate::edge::store::{Store, StoreError};
use crate::machine::environment::{Environment, in_short};
use crate::resolve::samples::Series;

/// The environments that a report's samples were taken in.
#[derive(Debug, Default)]
pub struct EnvironmentMatch {
    /// Those that differ in something that moves results; each has the values of all that do not differ.
    kinds: Vec<Environment>,
    /// Index into them. Empty where there is one kind only.
    of_key: HashMap<Key, usize>,
}

/// Two sides, as far as they can be compared.
pub struct MatchedSides<'a> {
    pub samples: [Cow<'a, [Sample]>; 2],
    /// The latest environments in which they differ.
    pub differing: Option<[Key; 2]>,
    /// How it differs between the sides, where they have nothing in common.
    pub differ: Option<String>,
}

impl EnvironmentMatch {
    pub fn read(
        store: &Store,
        all: impl Iterator<Item = Key>,
    ) -> Result<EnvironmentMatch, StoreError> {
        let keys: BTreeSet<Key> = all.collect();
        let mut known = Vec::new();
        for key in keys.iter().filter(|_| keys.len() > 1) {
            // One of a newer program cannot be compared.
            let text = store.environment(*key)?;
            let own = text.and_then(|text| Environment::from_json(&text).ok());
            known.extend(own.map(|own| (*key, own)));
        }
        Ok(EnvironmentMatch::of(known))
    }

    /// One that lacks names may be like two that differ from each other: those with most names come first, and what
    /// is like a kind differs from none of it.
    fn of(mut known: Vec<(Key, Environment)>) -> EnvironmentMatch {
        known.sort_by_key(|(key, own)| (Reverse(own.values.len()), *key));
        let mut alike = EnvironmentMatch::default();
        for (key, own) in known {
            let mut kinds = alike.kinds.iter();
            let kind = kinds.position(|kind| kind.shifts(&own).is_empty());
            match kind {
                Some(kind) => {
                    let values = &mut alike.kinds[kind].values;
                    for (name, value) in own.values {
                        values.entry(name).or_insert(value);
                    }
                }
                None => alike.kinds.push(own),
            }
            let kind = kind.unwrap_or(alike.kinds.len() - 1);
            alike.of_key.insert(key, kind);
        }
        alike
    }

    /// Whether both sides were measured, as far as is known, and never in one environment.
    pub fn is_apart(&self, a: &[Key], b: &[Key]) -> bool {
        let kinds = |side: &[Key]| -> BTreeSet<usize> {
            let kinds = side.iter().filter_map(|key| self.of_key.get(key));
            kinds.copied().collect()
        };
        let (a, b) = (kinds(a), kinds(b));
        !a.is_empty() && !b.is_empty() && a.is_disjoint(&b)
    }

    /// Where a side was measured again in the environment of the other one, only that is compared: what was
    /// measured before would be told as a difference of the sides.
    pub fn sides<'a>(&self, base: Series<'a>, cand: Series<'a>) -> MatchedSides<'a> {
        let kind = |key: &Key| self.of_key.get(key).copied();
        let kinds = [base, cand].map(|side| -> BTreeSet<usize> {
            let keys = side.environments.iter().map(|(_, key)| key);
            keys.filter_map(kind).collect()
        });
        let common: BTreeSet<usize> = kinds[0].intersection(&kinds[1]).copied().collect();
        let is_apart = common.is_empty() && kinds.iter().all(|kinds| !kinds.is_empty());
        let differ = || {
            let [a, b] = [base, cand].map(|side| {
                let last = side
                    .environments
                    .iter()
                    .rev()
                    .find_map(|(_, key)| kind(key));
                last.and_then(|kind| self.kinds.get(kind))
            });
            let text = in_short(&a?.shifts(b?));
            Some(format!(
                "the sides were measured in different environments: {text}"
            ))
        };
        let is_wanted = |key: &Key| kind(key).is_none_or(|kind| common.contains(&kind));
        let whole = common.is_empty() || kinds[0] == kinds[1];
        let samples = [base, cand].map(|side| match whole {
            true => Cow::Borrowed(side.samples),
            false => {
                let own = side.samples.iter().copied();
                let is_wanted = |sample: &Sample| {
                    let key = side.environment(sample.session);
                    key.is_none_or(|key| is_wanted(&key))
                };
                Cow::Owned(own.filter(is_wanted).collect())
            }
        });
        let [of_base, of_cand] = [base, cand].map(|side| {
            let mut keys: Vec<Key> = Vec::new();
            for (_, key) in side
                .environments
                .iter()
                .filter(|it| whole || is_wanted(&it.1))
            {
                keys.retain(|known| known != key);
                keys.push(*key);
            }
            keys
        });
        MatchedSides {
            samples,
            differing: differing(&of_base, &of_cand),
            differ: is_apart.then(differ).flatten(),
        }
    }
}

/// The latest environments in which two sides differ; None where they have all in common, as rounds
/// that were taken together have.
fn differing(a: &[Key], b: &[Key]) -> Option<[Key; 2]> {
    let only = |side: &[Key], other: &[Key]| {
        let own = side.iter().rev().find(|key| !other.contains(key));
        own.copied()
    };
    match (only(a, b), only(b, a)) {
        (None, None) => None,
        (of_a, of_b) => Some([of_a.or(a.last().copied())?, of_b.or(b.last().copied())?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_never_alike_whatever_stands_between() {
        let environment = |values: &[(&str, &str)]| {
            let mut environment = Environment::default();
            let values = values
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            environment.values = values.collect();
            environment
        };
        let all = [
            environment(&[("cpu.model", "x")]),
            environment(&[("cpu.model", "x"), ("kernel", "5"), ("tool.a", "1")]),
            environment(&[("cpu.model", "x"), ("kernel", "6"), ("tool.a", "1")]),
            environment(&[("kernel", "5"), ("cpu.microcode", "1")]),
            environment(&[("kernel", "5"), ("cpu.microcode", "2")]),
        ];
        // Whichever hashes they have.
        for shift in 0..all.len() as u8 {
            let known = (shift..)
                .zip(&all)
                .map(|(n, own)| (Key([n % 5; 16]), own.clone()));
            let known: Vec<_> = known.collect();
            let alike = EnvironmentMatch::of(known.clone());
            for (a, of_a) in &known {
                for (b, of_b) in &known {
                    let is_alike = alike.of_key[a] == alike.of_key[b];
                    assert!(
                        !is_alike || of_a.shifts(of_b).is_empty(),
                        "{of_a:?} {of_b:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn only_what_the_sides_do_not_share_differs() {
        let key = |n: u8| Key([n; 16]);
        let check = |a: &[u8], b: &[u8], expected: Option<[u8; 2]>| {
            let side = |side: &[u8]| side.iter().map(|n| key(*n)).collect::<Vec<_>>();
            let expected = expected.map(|pair| pair.map(key));
            assert_eq!(differing(&side(a), &side(b)), expected, "{a:?} {b:?}");
        };
        check(&[1], &[1], None);
        check(&[1, 2], &[2, 1], None);
        check(&[1], &[2], Some([1, 2]));
        check(&[1, 2], &[2], Some([1, 2]));
        check(&[1, 2], &[1, 3], Some([2, 3]));
        check(&[], &[1], None);
    }
}
