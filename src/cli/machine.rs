//! `matrix machine`: a profile by hand, and what this machine is like.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::files::read_text;
use super::run::block_on;
use super::show::{self, Stop};
use super::{Exit, profiles};
use crate::base::diag::{Diagnostic, Sources, suggest};
use crate::base::key::Key;
use crate::base::units::{count, show_time};
use crate::config::decode;
use crate::config::matrix::{MachineDecl, Via};
use crate::config::profile::{Facts, Resolved};
use crate::config::ssh::SshTarget;
use crate::config::template::Engine;
use crate::machine::connect;
use crate::machine::environment::CaptureRequest;
use crate::machine::host::{Cancel, Holder, Host, JournalPlace, Lock, lock_is_free};
use crate::machine::quiet::{self, Limits};
use crate::machine::setups;
use crate::machine::tune::{self, KnobOutcome, KnobRow, Refusal, Reverted, Status, TuneError};
use crate::run::progress::say;
use crate::run::tune::{facts, odd, resolve};
use crate::verdicts::document::Document;

/// Lines about ended processes.
const ENDED_MAX: usize = 4;

#[derive(Debug, Args)]
pub struct MachineArgs {
    #[command(subcommand)]
    verb: MachineVerb,
    /// The file that declares the machine: a matrix, or one that matrices import
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        default_value = "machines.toml"
    )]
    file: PathBuf,
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum MachineVerb {
    /// Apply a profile until `matrix machine revert`
    Tune {
        /// A name in `profiles` here or in the folder above, or a path that ends with `.kdl`
        profile: String,
        /// A machine of `--file`, or `ssh://user@host`; without it the one that this program runs on
        name: Option<String>,
        /// Show what would change, without changing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Put back what a profile has changed and undo what dead runs have set up
    Revert {
        /// A machine of `--file`, or `ssh://user@host`; without it the one that this program runs on
        name: Option<String>,
        /// Forget set-ups that cannot be undone: they were put away by hand
        #[arg(long)]
        forget: bool,
    },
    /// Show the profile in force, and whether its values still hold
    Status {
        /// A machine of `--file`, or `ssh://user@host`; without it the one that this program runs on
        name: Option<String>,
    },
    /// Show what a profile's `when` can ask about this machine
    Facts {
        /// A machine of `--file`, or `ssh://user@host`; without it the one that this program runs on
        name: Option<String>,
    },
    /// Say whether the machine is quiet enough to measure
    Check {
        /// A machine of `--file`, or `ssh://user@host`; without it the one that this program runs on
        name: Option<String>,
    },
    /// Show which machines `--file` declares
    List,
}

impl MachineVerb {
    fn name(&self) -> Option<&str> {
        match self {
            MachineVerb::Tune { name, .. }
            | MachineVerb::Revert { name, .. }
            | MachineVerb::Status { name }
            | MachineVerb::Facts { name }
            | MachineVerb::Check { name } => name.as_deref(),
            MachineVerb::List => None,
        }
    }
}

/// A result in both forms.
struct Told {
    document: Value,
    lines: Vec<String>,
    exit: Exit,
}

pub fn machine(args: MachineArgs) -> Exit {
    let mut sources = Sources::default();
    match block_on(carry_out(&args, &mut sources)) {
        Ok(told) if args.json => {
            show::document(&Document::Machine(told.document));
            told.exit
        }
        Ok(told) => {
            told.lines
                .iter()
                .for_each(|line| show::out(&format!("{line}\n")));
            told.exit
        }
        Err(stop) => show::stopped(&stop, &sources, args.json),
    }
}

/// Instead of the machine's own lock file.
pub(super) fn lock_file() -> Option<PathBuf> {
    std::env::var_os("MATRIX_LOCK").map(PathBuf::from)
}

/// The machine that this program runs on.
pub(super) fn this_machine() -> Result<Rc<dyn Host>, Stop> {
    Ok(connect::local("local", lock_file())?)
}

/// The machine of this name, or at this place.
fn machine_at(name: &str, file: &Path, sources: &mut Sources) -> Result<Rc<dyn Host>, Stop> {
    let reach = |target: &SshTarget| {
        // Of nobody in particular: no other's agent makes way for it.
        let owner = Key::of(format!("{} {name}", std::process::id()).as_bytes());
        Ok(connect::ssh(name, target, owner)?)
    };
    if name.contains("://") || name.contains('@') {
        return reach(&SshTarget::parse(name).map_err(Stop::message)?);
    }
    let machines = declared(file, sources)?;
    let Some(machine) = machines.iter().find(|machine| machine.name == name) else {
        let names = machines.iter().map(|machine| machine.name.as_str());
        let problem = format!("`{}` declares no machine `{name}`", file.display());
        return Err(Diagnostic::error(problem).help(suggest(name, names)).into());
    };
    match (&machine.ssh, machine.via) {
        (Some(target), _) => reach(target),
        (None, Via::Null) => Err(Stop::message(format!(
            "`{name}` is a `null` machine: there is nothing to look at"
        ))),
        (None, _) => this_machine(),
    }
}

/// The machines that a file declares.
fn declared(file: &Path, sources: &mut Sources) -> Result<Vec<MachineDecl>, Stop> {
    let text = read_text(file).map_err(|reason| {
        let problem = format!("`{}` cannot be read: {reason}", file.display());
        let help = "`--file FILE` names the matrix that declares the machine; `ssh://user@host` needs none";
        Stop::from(Diagnostic::error(problem).help(help))
    })?;
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let source = sources.add(file.display().to_string(), text);
    let mut import = |path: &str| {
        let path = folder.join(path);
        read_text(&path).map(|text| (path.display().to_string(), text))
    };
    let (machines, problems) = decode::machines(sources, source, &mut import);
    match problems.iter().any(Diagnostic::is_error) {
        true => Err(Stop::usage(problems)),
        false => Ok(machines),
    }
}

fn list(file: &Path, sources: &mut Sources) -> Result<Told, Stop> {
    let machines = declared(file, sources)?;
    let place = |machine: &MachineDecl| match (&machine.ssh, machine.via) {
        (Some(target), _) => target.to_string(),
        (None, Via::Null) => "null".to_owned(),
        (None, _) => "local".to_owned(),
    };
    let line = |machine: &MachineDecl| {
        let profile = machine.profile.as_ref();
        let profile = profile.map_or(String::new(), |it| format!(", profile `{}`", it.value));
        let facts = machine.facts.iter();
        let facts: Vec<String> = facts
            .map(|(name, value)| format!(", {name} = {value}"))
            .collect();
        format!(
            "{}: {}{profile}{}",
            machine.name,
            place(machine),
            facts.concat()
        )
    };
    let row = |machine: &MachineDecl| {
        let profile = machine.profile.as_ref().map(|it| &it.value);
        json!({ "name": machine.name, "place": place(machine), "profile": profile, "facts": machine.facts })
    };
    Ok(Told {
        lines: machines.iter().map(line).collect(),
        document: json!({ "machines": machines.iter().map(row).collect::<Vec<_>>() }),
        exit: Exit::Fine,
    })
}

async fn carry_out(args: &MachineArgs, sources: &mut Sources) -> Result<Told, Stop> {
    let verb = &args.verb;
    if let MachineVerb::List = verb {
        return list(&args.file, sources);
    }
    let host = match verb.name() {
        Some(name) => machine_at(name, &args.file, sources)?,
        None => this_machine()?,
    };
    let host = host.as_ref();
    let place = host.facts().await?.journal;
    match verb {
        MachineVerb::Tune {
            profile, dry_run, ..
        } => {
            let resolved = resolved(host, profile, sources).await?;
            match dry_run {
                true => preview(host, &resolved).await,
                false => tune(host, &resolved, &place).await,
            }
        }
        MachineVerb::Revert { forget, .. } => revert(host, &place, *forget).await,
        MachineVerb::Status { .. } => status(host, &place).await,
        MachineVerb::Facts { .. } => {
            let facts = own_facts(host).await?;
            let lines = facts
                .iter()
                .map(|(name, value)| format!("{name} = {value}"));
            Ok(Told {
                lines: lines.collect(),
                document: json!({ "facts": facts }),
                exit: Exit::Fine,
            })
        }
        MachineVerb::Check { .. } => check(host).await,
        MachineVerb::List => list(&args.file, sources),
    }
}

async fn own_facts(host: &dyn Host) -> Result<Facts, Stop> {
    let here = std::env::current_dir().ok();
    let asked = CaptureRequest {
        path: here,
        ..CaptureRequest::default()
    };
    Ok(facts(host, &Facts::new(), &asked).await?)
}

async fn resolved(host: &dyn Host, name: &str, sources: &mut Sources) -> Result<Resolved, Stop> {
    let path = Path::new(name);
    let (stem, folders) = match (path.extension(), path.file_stem()) {
        (Some(extension), Some(stem)) if extension == "kdl" => {
            let folder = path.parent().unwrap_or(Path::new(""));
            (stem.to_string_lossy().into_owned(), vec![folder.to_owned()])
        }
        _ => (name.to_owned(), profiles::folders_near(Path::new(""))),
    };
    let chain = profiles::load(&stem, &folders, sources).map_err(Stop::usage)?;
    let facts = own_facts(host).await?;
    resolve(&chain, &Engine::default(), &facts).map_err(Stop::usage)
}

async fn lock(host: &dyn Host, purpose: &str) -> Result<Lock, Stop> {
    let waiting = |holder: &str| say(&format!("waiting for this machine: {holder}"));
    let holder = Holder::this(purpose);
    Ok(host.lock(holder, &waiting, Cancel::never()).await?)
}

async fn preview(host: &dyn Host, profile: &Resolved) -> Result<Told, Stop> {
    let found = tune::dry_run(host, profile).await?;
    let mut lines: Vec<String> = found.rows.iter().map(show_row).collect();
    lines.extend(found.services.iter().map(|unit| format!("{unit}: stopped")));
    let held = found.held.iter();
    lines.extend(held.map(|what| format!("{what}: while `matrix run` measures")));
    lines.extend(found.skipped.iter().map(|r| format!("skipped: {r}")));
    lines.extend(found.refused.iter().map(|r| format!("refused: {r}")));
    Ok(Told {
        lines,
        document: json!({
            "profile": profile.name,
            "rows": rows_json(&found.rows),
            "services": found.services,
            "held": found.held,
            "skipped": refusals_json(&found.skipped),
            "refused": refusals_json(&found.refused),
        }),
        exit: if found.refused.is_empty() {
            Exit::Fine
        } else {
            Exit::Failed
        },
    })
}

async fn tune(host: &dyn Host, profile: &Resolved, place: &JournalPlace) -> Result<Told, Stop> {
    let _lock = lock(host, "machine tune").await?;
    if let Some(what) = tune::of_root(host, place).await {
        return Err(TuneError::OfRoot(what).into());
    }
    let applied = tune::apply(host, profile, &place.own).await?;
    tune::keep(host, &place.own).await?;
    let mut lines: Vec<String> = applied.rows.iter().map(show_row).collect();
    lines.extend(
        applied
            .services
            .iter()
            .map(|unit| format!("{unit}: stopped")),
    );
    lines.extend(applied.skipped.iter().map(|r| format!("skipped: {r}")));
    lines.extend(applied.notes.iter().cloned());
    for (held, what) in [
        (applied.dma_latency.is_some(), "dma-latency-us"),
        (applied.cpus.is_some(), "cpus"),
        (applied.drop_caches, "drop-caches"),
    ] {
        if held {
            lines.push(format!(
                "`{what}` has an effect only while `matrix run` measures"
            ));
        }
    }
    lines.push("in force until `matrix machine revert`".to_owned());
    Ok(Told {
        lines,
        document: json!({
            "profile": applied.profile,
            "rows": rows_json(&applied.rows),
            "services": applied.services,
            "skipped": refusals_json(&applied.skipped),
            "notes": applied.notes,
        }),
        exit: Exit::Fine,
    })
}

async fn revert(host: &dyn Host, place: &JournalPlace, forget: bool) -> Result<Told, Stop> {
    let _lock = lock(host, "machine revert").await?;
    // What a dead run has left running would hold its cgroup.
    let mut lines = host.clean().await?;
    if lines.len() > ENDED_MAX {
        let more = lines.split_off(ENDED_MAX - 1).len();
        lines.push(format!("and {more} more processes"));
    }
    let setups = setups::undo_all(host).await?;
    lines.extend(setups.put_away.iter().cloned());
    let is_left = !setups.left.is_empty() && !forget;
    for left in &setups.left {
        lines.push(match forget {
            true => format!("forgotten: {left}"),
            false => format!("left behind: {left}"),
        });
    }
    if forget {
        setups::forget_all(host).await?;
    }
    if is_left {
        lines.push(
            "put that away by hand, then `matrix machine revert --forget` takes it out of the journal"
                .to_owned(),
        );
    }
    let rows = tune::revert(host, &place.own).await?;
    lines.extend(rows.iter().filter_map(odd));
    lines.extend(tune::of_root(host, place).await);
    lines.push(match rows.len() {
        0 if lines.is_empty() => "there is nothing to put back".to_owned(),
        0 => "no profile was in force".to_owned(),
        all => format!(
            "{} of {} back",
            all - rows.iter().filter_map(odd).count(),
            count(all, "value")
        ),
    });
    let row = |row: &Reverted| json!({ "knob": row.knob, "path": row.path, "old": row.old, "outcome": outcome(&row.outcome) });
    Ok(Told {
        lines,
        document: json!({
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
            "undone": setups.put_away,
            "left_behind": setups.left,
        }),
        exit: match is_left || rows.iter().any(Reverted::has_failed) {
            true => Exit::Failed,
            false => Exit::Fine,
        },
    })
}

fn outcome(outcome: &KnobOutcome) -> &'static str {
    match outcome {
        KnobOutcome::PutBack => "put_back",
        KnobOutcome::AlreadyBack => "already_back",
        KnobOutcome::ChangedByOthers { .. } => "changed_by_others",
        KnobOutcome::Gone => "gone",
        KnobOutcome::Rebooted => "rebooted",
        KnobOutcome::Failed { .. } => "failed",
    }
}

async fn status(host: &dyn Host, place: &JournalPlace) -> Result<Told, Stop> {
    let (mut lines, mut document) = match tune::status(host, &place.own).await? {
        Status::None => (
            vec!["no profile is in force".to_owned()],
            json!({ "profile": null }),
        ),
        Status::Rebooted { profile, since } => (
            vec![format!(
                "`{profile}` of {} was put back by a reboot",
                show_time(&since)
            )],
            json!({ "profile": null, "rebooted": profile, "since": since }),
        ),
        Status::Active {
            profile,
            since,
            unfinished,
            by_hand,
            rows,
            changed,
        } => {
            let mut lines = vec![format!("`{profile}` since {}", show_time(&since))];
            // A run holds the lock for as long as its profile is in force.
            let is_left = !by_hand && lock_is_free(host, "machine status").await;
            if is_left {
                lines.push(
                    "left by a run that is gone: the next one, or `matrix machine revert`, puts it back"
                        .to_owned(),
                );
            } else if unfinished {
                lines.push("it is being applied, or the program died in the middle".to_owned());
            }
            lines.extend(rows.iter().map(show_row));
            lines.extend(changed.iter().map(|(row, found)| {
                format!(
                    "{}: holds `{found}`: somebody else has set it",
                    show_row(row)
                )
            }));
            let others: Vec<Value> = changed
                .iter()
                .map(|(row, found)| json!({ "path": row.path, "wanted": row.new, "found": found }))
                .collect();
            let document = json!({
                    "profile": profile,
                "since": since,
                "unfinished": unfinished,
                "by_hand": by_hand,
                "left": is_left,
                "rows": rows_json(&rows),
                "changed": others,
            });
            (lines, document)
        }
    };
    if let Some(what) = tune::of_root(host, place).await {
        document["of_root"] = what.clone().into();
        lines.push(what);
    }
    Ok(Told {
        lines,
        document,
        exit: Exit::Fine,
    })
}

async fn check(host: &dyn Host) -> Result<Told, Stop> {
    let own = [std::process::id(), host.facts().await?.pid];
    let noise = quiet::look(host, &own, quiet::LOOK).await?;
    let complaints = noise.complaints(&Limits::default());
    let exit = if complaints.is_empty() {
        Exit::Fine
    } else {
        Exit::Failed
    };
    Ok(Told {
        document: json!({
            "quiet": complaints.is_empty(),
            "complaints": complaints,
            "noise": noise,
        }),
        lines: match complaints.is_empty() {
            true => vec!["quiet".to_owned()],
            false => complaints,
        },
        exit,
    })
}

fn show_row(row: &KnobRow) -> String {
    match row.old == row.new {
        true => format!("{}: `{}` already", row.path, row.new),
        false => format!("{}: `{}` → `{}`", row.path, row.old, row.new),
    }
}

fn rows_json(rows: &[KnobRow]) -> Vec<Value> {
    rows.iter()
        .map(|row| json!({ "knob": row.knob, "path": row.path, "old": row.old, "new": row.new }))
        .collect()
}

fn refusals_json(refusals: &[Refusal]) -> Vec<Value> {
    refusals
        .iter()
        .map(|r| {
            json!({
                "knob": r.knob, "path": r.path, "wanted": r.wanted, "found": r.found, "reason": r.reason,
            })
        })
        .collect()
}
