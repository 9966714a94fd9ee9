//! When a machine's host profile is resolved, applied and put back, also after a dead run.

use super::event::Event;
use super::execute::{RunError, Site};
use super::setup::run_folders;
use crate::base::diag::{Diagnostic, SourceId, Span};
use crate::base::units::{count, show_time};
use crate::config::profile::{Chain, Facts, Resolved};
use crate::config::template::{Context, Engine};
use crate::machine::environment::{self, CaptureRequest};
use crate::machine::host::{Host, lock_is_free};
use crate::machine::setups;
use crate::machine::tune::{self, Applied, KnobOutcome, Reverted, Status, TuneError};
use crate::resolve::prepare::Machine;

/// Knobs that are named in one line.
const SHOWN_MAX: usize = 8;

/// What is known of a machine for a profile's `when`: what was found, then what is declared.
pub async fn facts(
    host: &dyn Host,
    declared: &Facts,
    asked: &CaptureRequest,
) -> Result<Facts, Diagnostic> {
    let environment = environment::capture(host, asked).await;
    let environment = environment.map_err(|error| Diagnostic::error(error.message))?;
    let mut facts = environment.facts();
    facts.extend(declared.clone());
    Ok(facts)
}

/// What a profile asks of a machine with these facts. Err has all that is wrong.
pub fn resolve(chain: &Chain, engine: &Engine, facts: &Facts) -> Result<Resolved, Vec<Diagnostic>> {
    let mut context = Context::default();
    for (name, value) in facts {
        // So that `cpus > 8` compares numbers.
        match value.parse::<i64>() {
            Ok(number) => context.set(name, number),
            Err(_) => context.set(name, value.clone()),
        }
    }
    let evaluate = |text: &str| {
        // Only the message is used: the place is that of the `when`.
        let nowhere = Span::new(SourceId(0), 0..text.len());
        let expr = engine.expr(text, nowhere).map_err(|error| error.message)?;
        engine.test(&expr, &context)
    };
    match chain.resolve(facts, &evaluate) {
        (resolved, problems) if problems.is_empty() => Ok(resolved),
        (_, problems) => Err(problems),
    }
}

/// Whether a dead run has left a machine other than it was: with its profile, with set-ups, or in the middle of a
/// measurement. Nobody has its lock then.
pub async fn is_left(machine: &Machine) -> bool {
    let Some(host) = &machine.host else {
        return false;
    };
    let status = tune::status(host.as_ref(), &machine.journal.own).await;
    let is_tuned = matches!(status, Ok(Status::Active { by_hand: false, .. }));
    // What cannot be read is told when the machine is entered.
    let has_setups = setups::noted(host.as_ref()).await;
    let has_setups = has_setups.map_or(true, |noted| !noted.is_empty());
    if !is_tuned && !has_setups && run_folders(machine).await.is_empty() {
        return false;
    }
    lock_is_free(host.as_ref(), "looking for what dead runs have left").await
}

/// Puts back what a dead run has left of its profile. One that was applied by hand stays where this
/// run has none of its own, and stops it where it has one.
pub(super) async fn recover(
    site: &Site<'_>,
    name: &str,
    host: &dyn Host,
    machine: &Machine,
) -> Result<(), RunError> {
    if let Some(what) = tune::of_root(host, &machine.journal).await {
        if machine.view().profile.is_some() {
            return Err(TuneError::OfRoot(what).into());
        }
        site.note(name, what);
    }
    let (profile, since) = match tune::status(host, &machine.journal.own).await? {
        Status::None => return Ok(()),
        Status::Active {
            profile,
            since,
            by_hand: true,
            ..
        } => {
            if machine.view().profile.is_some() {
                return Err(TuneError::Active { profile, since }.into());
            }
            let since = show_time(&since);
            let what = format!("the profile `{profile}`, applied by hand since {since}, stays");
            site.note(name, what);
            return Ok(());
        }
        Status::Active { profile, since, .. } | Status::Rebooted { profile, since } => {
            (profile, since)
        }
    };
    let rows = tune::revert(host, &machine.journal.own).await?;
    site.tell(Event::Cleaned {
        machine: name.to_owned(),
        what: format!("the profile `{profile}` of {}", show_time(&since)),
    });
    tell_odd(site, name, &rows);
    Ok(())
}

/// Applies a machine's profile, where it has one.
pub(super) async fn apply(
    site: &Site<'_>,
    name: &str,
    machine: &Machine,
) -> Result<Option<Applied>, RunError> {
    let view = machine.view();
    let (Some(host), Some(profile)) = (&machine.host, &view.profile) else {
        return Ok(None);
    };
    let applied = tune::apply(host.as_ref(), profile, &machine.journal.own).await?;
    let changed = applied.rows.iter().filter(|row| row.old != row.new);
    let mut names: Vec<&str> = changed.map(|row| row.knob.as_str()).collect();
    names.dedup();
    let settings = applied.settings();
    let settings = settings.iter().map(|(name, _)| name.as_str());
    names.extend(settings.filter(|name| *name != "cpus"));
    let mut what = format!("profile `{}` ", applied.profile);
    what += &match names.is_empty() {
        true => "finds all as it wants it".to_owned(),
        false => format!(
            "changes {} until the end: {}",
            count(names.len(), "knob"),
            shown(&names)
        ),
    };
    let mut skipped: Vec<&str> = applied.skipped.iter().map(|s| s.knob.as_str()).collect();
    skipped.dedup();
    if !skipped.is_empty() {
        let count = count(skipped.len(), "knob");
        what += &format!("; {count} skipped: {}", shown(&skipped));
    }
    if let Some(cpus) = &applied.cpus {
        what += &format!("; workload on CPUs {}", cpus.show());
    }
    site.note(name, what);
    applied
        .notes
        .iter()
        .for_each(|note| site.note(name, note.clone()));
    Ok(Some(applied))
}

/// The first names.
fn shown(names: &[&str]) -> String {
    let dots = if names.len() > SHOWN_MAX { ", …" } else { "" };
    names[..names.len().min(SHOWN_MAX)].join(", ") + dots
}

/// Puts a machine back.
pub(super) async fn release(
    site: &Site<'_>,
    name: &str,
    machine: &Machine,
    applied: &Applied,
) -> Result<(), RunError> {
    let Some(host) = &machine.host else {
        return Ok(());
    };
    let rows = tune::release(host.as_ref(), applied, &machine.journal.own).await?;
    tell_odd(site, name, &rows);
    Ok(())
}

/// Tells of what was not simply put back.
fn tell_odd(site: &Site<'_>, name: &str, rows: &[Reverted]) {
    rows.iter()
        .filter_map(odd)
        .for_each(|line| site.note(name, line));
}

/// A line about a row that was not simply put back.
pub fn odd(row: &Reverted) -> Option<String> {
    let Reverted { path, old, .. } = row;
    match &row.outcome {
        KnobOutcome::PutBack | KnobOutcome::AlreadyBack | KnobOutcome::Rebooted => None,
        KnobOutcome::Gone => Some(format!("{path} is not there any more (it held `{old}`)")),
        KnobOutcome::ChangedByOthers { found } => Some(format!(
            "{path} is left at `{found}`, which somebody else has set (it held `{old}`)"
        )),
        KnobOutcome::Failed { reason } => Some(format!(
            "{path} could not be put back to `{old}`: {reason}; try `matrix machine revert`"
        )),
    }
}
