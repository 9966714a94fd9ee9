//! What becomes of declared lines on one machine: `extends` and `when`.

use std::collections::HashMap;

use super::{Condition, Facts, Item, Knob, Profile, Resolved, SMT_CONTROL, Setting, parse};
use crate::base::diag::{At, Diagnostic, Sources};

const SCHEDULER: &str = "/queue/scheduler";

/// Profiles that extend one another at the most.
pub const EXTENDS_MAX: usize = 8;

/// A profile with those it extends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The one that was asked for comes last.
    pub profiles: Vec<Profile>,
}

/// Gives the shown file name and the text of a profile, or the reason why there is none.
pub type ReadProfile<'a> = dyn FnMut(&str) -> Result<(String, String), String> + 'a;

/// Tells whether an expression holds, or why it cannot be told.
pub type Evaluate<'a> = dyn Fn(&str) -> Result<bool, String> + 'a;

/// Reads a profile and those it extends.
pub fn load(name: &str, sources: &mut Sources, read: &mut ReadProfile) -> (Chain, Vec<Diagnostic>) {
    let mut profiles: Vec<Profile> = Vec::new();
    let mut problems = Vec::new();
    // The name, and where it is extended.
    let mut next = Some((name.to_owned(), None::<At<String>>));
    while let Some((name, from)) = next.take() {
        let refuse = |message: String| {
            let problem = Diagnostic::error(message);
            match &from {
                Some(from) => problem.at(from.span, "extended here"),
                None => problem,
            }
        };
        if profiles.iter().any(|profile| profile.name == name) {
            let mut ring: Vec<&str> = profiles.iter().map(|p| p.name.as_str()).collect();
            ring.push(&name);
            let ring = ring.join(" → ");
            problems.push(refuse("profiles extend one another in a ring".to_owned()).help(ring));
            break;
        }
        if profiles.len() == EXTENDS_MAX {
            let message = format!("more than {EXTENDS_MAX} profiles extend one another");
            problems.push(refuse(message).help("merge some of them"));
            break;
        }
        let (file, text) = match read(&name) {
            Ok(found) => found,
            Err(reason) => {
                let message = format!("the profile `{name}` cannot be read");
                problems.push(refuse(message).help(reason));
                break;
            }
        };
        let source = sources.add(file, text);
        let (profile, found) = parse(&name, source, sources.text(source));
        problems.extend(found);
        next = profile
            .extends
            .clone()
            .map(|at| (at.value.clone(), Some(at)));
        profiles.push(profile);
    }
    profiles.reverse();
    (Chain { profiles }, problems)
}

/// Which of two settings of the same knob wins: the later profile, then the one under more
/// conditions.
type Rank = (usize, usize);

impl Chain {
    /// What the profile asks of a machine with these facts.
    pub fn resolve(&self, facts: &Facts, evaluate: &Evaluate) -> (Resolved, Vec<Diagnostic>) {
        let mut problems = Vec::new();
        let mut chosen: Vec<(Rank, &Item)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (level, profile) in self.profiles.iter().enumerate() {
            for item in &profile.items {
                if !holds(item, facts, evaluate, &mut problems) {
                    continue;
                }
                let rank = (level, item.when.len());
                let place = places
                    .entry(item.setting.identity())
                    .or_insert(chosen.len());
                match chosen.get_mut(*place) {
                    None => chosen.push((rank, item)),
                    // Within one block the reading has refused it already.
                    Some((other, first))
                        if *other == rank
                            && first.setting != item.setting
                            && first.when != item.when =>
                    {
                        problems.push(
                            Diagnostic::error("two `when` blocks that both hold set this knob")
                                .at(item.span, "to this")
                                .also(first.span, "and to this")
                                .help("make the conditions exclude each other, or nest them"),
                        );
                    }
                    Some(kept) if kept.0 <= rank => *kept = (rank, item),
                    Some(_) => {}
                }
            }
        }
        let mut resolved = Resolved {
            name: self
                .profiles
                .last()
                .map_or(String::new(), |p| p.name.clone()),
            ..Resolved::default()
        };
        for (_, item) in chosen {
            match item.setting.clone() {
                Setting::Knob(knob) => resolved.knobs.push(knob),
                Setting::Cpus(cpus) => resolved.cpus = Some(cpus),
                Setting::DropCaches(on) => resolved.drop_caches = Some(on),
                Setting::DmaLatency(latency) => resolved.dma_latency_us = Some(latency),
                Setting::StopService(service) => resolved.services.push(service),
            }
        }
        resolved.knobs.sort_by_key(turn);
        problems.dedup();
        (resolved, problems)
    }
}

/// A scheduler comes before the other settings of its device, some of which it sets anew. Files of a CPU
/// vanish when its core loses it: they are set while it is still there.
fn turn(knob: &Knob) -> u8 {
    match &knob.choices[0].pattern {
        pattern if pattern.ends_with(SCHEDULER) => 0,
        pattern if pattern == SMT_CONTROL => 2,
        _ => 1,
    }
}

fn holds(item: &Item, facts: &Facts, evaluate: &Evaluate, problems: &mut Vec<Diagnostic>) -> bool {
    item.when.iter().all(|condition| match &condition.value {
        Condition::Fact { name, value } => facts.get(name) == Some(value),
        Condition::Expression(text) => evaluate(text).unwrap_or_else(|reason| {
            let problem =
                Diagnostic::error("this condition cannot be evaluated").at(condition.span, reason);
            if !problems.contains(&problem) {
                problems.push(problem);
            }
            false
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resolves the last of some files with the facts `disk=nvme` and `cpus=8`; expressions are
    /// just `yes`, `no`, or an error.
    fn resolve(files: &[(&str, &str)]) -> (Resolved, Vec<String>) {
        let mut sources = Sources::default();
        let mut read = |name: &str| {
            let found = files.iter().find(|(file, _)| *file == name);
            let found = found.map(|(file, text)| (format!("{file}.kdl"), text.to_string()));
            found.ok_or_else(|| "there is no such file".to_owned())
        };
        let name = files[files.len() - 1].0;
        let (chain, mut problems) = load(name, &mut sources, &mut read);
        let facts = Facts::from([
            ("disk".to_owned(), "nvme".to_owned()),
            ("cpus".to_owned(), "8".to_owned()),
        ]);
        let evaluate = |text: &str| match text {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err("undefined".to_owned()),
        };
        let (resolved, more) = chain.resolve(&facts, &evaluate);
        problems.extend(more);
        (resolved, problems.into_iter().map(|p| p.message).collect())
    }

    fn values(resolved: &Resolved) -> String {
        let knobs = resolved.knobs.iter();
        let knobs = knobs.map(|knob| format!("{}={}", knob.name, knob.choices[0].value));
        knobs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_more_special_setting_wins() {
        let check = |files: &[(&str, &str)], expected: &str| {
            let (resolved, problems) = resolve(files);
            assert_eq!(problems, [] as [&str; 0], "{files:?}");
            assert_eq!(values(&resolved), expected, "{files:?}");
        };
        check(&[("a", "thp never")], "thp=never");
        check(
            &[
                ("a", "thp never; smt #false"),
                ("b", "extends a; thp always"),
            ],
            "thp=always smt=off",
        );
        check(
            &[("a", "when disk=nvme { thp always; }\nthp never")],
            "thp=always",
        );
        check(
            &[("a", "thp never; when disk=hdd { thp always; }")],
            "thp=never",
        );
        check(
            &[("a", "thp never; when fast=yes { thp always; }")],
            "thp=never",
        );
        check(
            &[("a", "when yes { thp always; when no { thp madvise; }; }")],
            "thp=always",
        );
        check(
            &[(
                "a",
                "when yes { thp always; when disk=nvme { thp madvise; }; }",
            )],
            "thp=madvise",
        );
        check(
            &[
                ("a", "when yes { thp always; }"),
                ("b", "extends a; thp never"),
            ],
            "thp=never",
        );
        check(
            &[("a", "smt #false; governor performance")],
            "governor=performance smt=off",
        );
    }

    #[test]
    fn what_cannot_be_resolved_is_said() {
        let check = |files: &[(&str, &str)], expected: &[&str]| {
            assert_eq!(resolve(files).1, expected, "{files:?}")
        };
        check(
            &[(
                "a",
                "when yes { thp always; }; when disk=nvme { thp never; }",
            )],
            &["two `when` blocks that both hold set this knob"],
        );
        check(
            &[(
                "a",
                "when yes { thp always; }; when disk=nvme { thp always; }",
            )],
            &[],
        );
        check(
            &[("a", "when huh { thp always; smt #true; }")],
            &["this condition cannot be evaluated"],
        );
        check(&[("a", "extends b")], &["the profile `b` cannot be read"]);
        check(
            &[("b", "extends a"), ("a", "extends b")],
            &["profiles extend one another in a ring"],
        );
        let names: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
        let texts: Vec<String> = (0..10)
            .map(|n: usize| format!("extends p{}", n.max(1) - 1))
            .collect();
        let files: Vec<(&str, &str)> = names
            .iter()
            .map(String::as_str)
            .zip(texts.iter().map(String::as_str))
            .collect();
        check(&files, &["more than 8 profiles extend one another"]);
    }
}
