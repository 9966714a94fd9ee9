//! Owns making the builds that a plan needs: check-out, recipe, artifacts.
//! Does not know which builds are needed, nor what is measured with them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use regex::bytes::Regex;

use super::command::{Log, command, last_words, make_dir, now_ms, one, remove};
use super::event::Event;
use super::execute::{RunError, Site};
use super::versions::{Versions, World};
use crate::config::matrix::Build;
use crate::edge::host::{Cancel, FileOp, Host, HostError};
use crate::edge::store::{Kind, NewAttempt, Outcome};
use crate::plan::dag::{Plan, Todo};
use crate::plan::projection::{Memo, Projection};
use crate::plan::resolve::show_words;
use crate::plan::steps::Subject;
use crate::words::diag::Diagnostic;
use crate::words::key::{Key, KeyHasher};
use crate::words::sample::Ended;

/// The builds of a plan that could not be made: step → reason.
pub type BrokenBuilds = BTreeMap<u32, String>;

/// What came of one build.
enum Built {
    Artifact(Key),
    Failed(Outcome, String),
}

/// Makes the builds that are to be done, in the order of the versions, so that neighbouring commits
/// build incrementally. A build that failed before is not tried again unless `again`.
/// The caller holds the machines' slots.
pub async fn build(
    site: &Site<'_>,
    plan: &Plan<'_>,
    todo: &Todo,
    world: &World<'_>,
    state: &Path,
    again: bool,
    cancel: &Cancel,
) -> Result<BrokenBuilds, RunError> {
    let mut broken = BrokenBuilds::new();
    let Some(declared) = &plan.matrix.build else {
        return Ok(broken);
    };
    let mut keys: Vec<Key> = plan
        .steps
        .builds
        .steps
        .iter()
        .map(|step| step.key)
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let failures = site.store.borrow().failures(&keys)?;
    let mut known = world.built.clone();
    for build in (0..)
        .zip(&todo.builds)
        .filter(|(_, needed)| **needed)
        .map(|(build, _)| build)
    {
        if cancel.is_cancelled() {
            break;
        }
        let builder = Builder {
            site,
            plan,
            declared,
            versions: world.versions,
            build,
        };
        let key = builder.key();
        let before = failures.iter().find(|failure| failure.key == key);
        if let Some(failure) = before.filter(|_| !again) {
            broken.insert(
                build,
                format!("{} (not tried again: `--failed` does)", failure.reason),
            );
            continue;
        }
        // The same sources were built, but stand under another key: an `[[affects]]` rule is new.
        let there = known.get(&key).copied();
        let built = match there.filter(|digest| world.artifacts.has(*digest)) {
            Some(digest) => Built::Artifact(digest),
            None => builder.make(world, state, cancel).await?,
        };
        match built {
            Built::Artifact(digest) => {
                let found = builder.stand_for(digest, &known)?;
                // What is gone from the disk must not keep its name, where another one takes it.
                let old = found.iter().filter_map(|(key, new)| {
                    let old = known.get(key).copied();
                    old.filter(|old| old != new)
                });
                let gone: HashSet<Key> = old.filter(|old| !world.artifacts.has(*old)).collect();
                known.retain(|_, digest| !gone.contains(digest));
                let store = site.store.borrow();
                store.forget_artifacts(gone)?;
                store.put_artifacts(&found, builder.version(), now_ms())?;
                for (key, digest) in found {
                    known.entry(key).or_insert(digest);
                }
            }
            Built::Failed(Outcome::Interrupted, _) => break,
            Built::Failed(_, reason) => {
                broken.insert(build, reason);
            }
        }
    }
    Ok(broken)
}

/// What programs and the system say of a full disk, in the language that steps run in.
const NO_SPACE: &str = "No space left on device";

/// A file that is there while a build folder is written to. Where it was left, a power cut, a kill
/// or a full disk may have left a half written object file that its build tool takes for whole. Build
/// tools that are asked to stop (a timeout, Ctrl-C) put such files away themselves.
struct Mark<'a> {
    host: &'a dyn Host,
    path: PathBuf,
}

impl Mark<'_> {
    async fn is_there(&self) -> bool {
        let path = self.path.clone();
        let read = FileOp::Read { path, bytes_max: 1 };
        self.host.files(vec![read]).await.iter().all(Result::is_ok)
    }

    async fn set(&self) -> Result<(), HostError> {
        let (path, bytes) = (self.path.clone(), Vec::new());
        one(self.host, FileOp::Replace { path, bytes }).await
    }

    async fn clear(&self) -> Result<(), HostError> {
        remove(self.host, &self.path.to_string_lossy()).await
    }
}

struct Builder<'a> {
    site: &'a Site<'a>,
    plan: &'a Plan<'a>,
    declared: &'a Build,
    versions: &'a Versions,
    build: u32,
}

impl Builder<'_> {
    fn key(&self) -> Key {
        self.plan.steps.builds.steps[self.build as usize].key
    }

    fn cell(&self) -> &[u16] {
        let cell = self.plan.steps.builds.steps[self.build as usize].cell;
        self.plan.cells.cell(cell as usize)
    }

    fn label(&self, axis: &str) -> &str {
        let axis = self.plan.cells.axis(axis);
        axis.map_or("", |axis| self.plan.cells.label(self.cell(), axis))
    }

    fn version(&self) -> &str {
        self.label("version")
    }

    /// What the artifact is found by, and what stands for it there: by all inputs of the build, and
    /// by the part of them that each cell can see.
    ///
    /// Where a cell had an artifact already, because nothing that it can see has changed, that one
    /// goes on standing for this one in cells of its class: so a later build that gives these bytes
    /// again brings nothing new to them.
    fn stand_for(
        &self,
        digest: Key,
        known: &HashMap<Key, Key>,
    ) -> Result<Vec<(Key, Key)>, RunError> {
        let mut found = HashSet::from([(self.key(), digest)]);
        let mut classes = Classes::new(self.plan);
        let mut last = None;
        for cell in 0..self.plan.cells.len() {
            if self.plan.build_of(cell) != Some(self.build) {
                continue;
            }
            let class = classes.of(self.plan.cells.cell(cell))?;
            let subject = self.plan.subject_of(cell);
            // Neighbours see the same more often than not.
            if last.replace((class, subject)) == Some((class, subject)) {
                continue;
            }
            let alias = KeyHasher::new("stands for").key(class).key(digest).finish();
            let stands = known.get(&alias).copied().unwrap_or(digest);
            match subject {
                Subject::Unbuilt(key) => {
                    let before = known.get(&key).copied();
                    found.insert((key, before.unwrap_or(stands)));
                    found.extend(before.map(|before| (alias, before)));
                }
                Subject::Artifact(before) => {
                    found.insert((alias, before));
                }
                Subject::Installed(_) => {}
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The folder that is kept from build to build: one for each machine and value of the axes that
    /// the recipe mentions.
    fn folder(&self, state: &Path) -> PathBuf {
        let version = self.plan.cells.axis("version");
        let axes = self.plan.steps.builds.axes.iter().copied();
        let axes: Vec<usize> = axes.filter(|axis| Some(*axis) != version).collect();
        let name = self.plan.scope().name_of(self.cell(), &axes);
        state.join("build").join(&self.plan.matrix.name).join(name)
    }

    async fn make(
        &self,
        world: &World<'_>,
        state: &Path,
        cancel: &Cancel,
    ) -> Result<Built, RunError> {
        let Some(machine) = self.site.machines.get(self.label("machine")) else {
            return Ok(Built::Failed(
                Outcome::Failed,
                "the machine is not known".to_owned(),
            ));
        };
        let Some(host) = machine.host.as_deref() else {
            // Nothing runs on a `null` machine: the inputs are all there is to an artifact.
            return Ok(Built::Artifact(self.key()));
        };
        self.site.tell(Event::BuildStarted {
            version: self.version().to_owned(),
            key: self.key().to_string(),
        });
        let clock = Instant::now();
        let started_ms = now_ms();
        let mut log = Log::default();
        let built = self.try_make(host, world, state, cancel, &mut log).await;
        let built = built.unwrap_or_else(|reason| Built::Failed(Outcome::Failed, reason));
        if let Built::Failed(_, reason) = &built
            && (reason.contains(NO_SPACE) || log.contains(NO_SPACE))
        {
            // It says nothing about the version: it is not remembered, and tried again.
            return Err(RunError::NoSpace {
                what: format!("the build of `{}`", self.version()),
                reason: reason.clone(),
            });
        }
        let duration = clock.elapsed();
        let (outcome, reason) = match &built {
            Built::Artifact(_) => (Outcome::Ok, ""),
            Built::Failed(outcome, reason) => (*outcome, reason.as_str()),
        };
        self.record(started_ms, duration, outcome, reason, &log)?;
        self.site.tell(Event::BuildDone {
            version: self.version().to_owned(),
            duration_s: duration.as_secs_f64(),
            error: (!reason.is_empty()).then(|| reason.to_owned()),
        });
        Ok(built)
    }

    async fn try_make(
        &self,
        host: &dyn Host,
        world: &World<'_>,
        state: &Path,
        cancel: &Cancel,
        log: &mut Log,
    ) -> Result<Built, String> {
        let folder = self.folder(state);
        let (src, dir) = (folder.join("src"), folder.join("build"));
        let mark = Mark {
            host,
            path: folder.join("unfinished"),
        };
        let clean = self.declared.clean || mark.is_there().await;
        let failed = |error: HostError| error.message;
        if clean {
            remove(host, &dir.to_string_lossy()).await.map_err(failed)?;
        }
        make_dir(host, &folder.to_string_lossy())
            .await
            .map_err(failed)?;
        mark.set().await.map_err(failed)?;
        let commit = self
            .versions
            .get(self.version())
            .and_then(|version| version.commit.as_ref());
        if let (Some(commit), Some(repository)) = (commit, self.versions.repository()) {
            let checkout = repository.borrow().checkout(&commit.id, &src, clean);
            let checkout = checkout.map_err(|error| error.to_string())?;
            if let Some(warning) = checkout.warning() {
                log.note(&warning);
            }
        }
        let dir = dir.to_string_lossy();
        make_dir(host, &dir).await.map_err(failed)?;
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let commands = self
            .plan
            .build_commands(self.build, &src.to_string_lossy(), &dir, jobs);
        let cell = self.plan.steps.builds.steps[self.build as usize].cell;
        let env = self
            .plan
            .environment(cell)
            .map_err(|diagnostic| diagnostic.message)?;
        for argv in commands.map_err(|diagnostic| diagnostic.message)? {
            log.command(&argv);
            let output = host
                .run(
                    command(&argv, &dir, &env, self.declared.timeout),
                    cancel.clone(),
                )
                .await;
            let output = output.map_err(failed)?;
            log.output(&output);
            let outcome = match output.ended {
                Ended::Exit(0) => continue,
                Ended::Interrupted => Outcome::Interrupted,
                Ended::TimedOut => Outcome::Timeout,
                _ => Outcome::Failed,
            };
            let reason = format!(
                "`{}`: {}{}",
                show_words(&argv),
                output.ended,
                last_words(&output)
            );
            if !log.contains(NO_SPACE) {
                mark.clear().await.map_err(failed)?;
            }
            return Ok(Built::Failed(outcome, reason));
        }
        mark.clear().await.map_err(failed)?;
        let files: Vec<String> = self
            .declared
            .artifacts
            .iter()
            .map(|a| a.value.clone())
            .collect();
        let volatile = self
            .declared
            .volatile
            .iter()
            .map(|text| Regex::new(&text.value));
        let volatile: Vec<Regex> = volatile
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let kept = world
            .artifacts
            .keep(Path::new(dir.as_ref()), &files, &volatile);
        kept.map(Built::Artifact).map_err(|error| error.to_string())
    }

    fn record(
        &self,
        started_ms: i64,
        duration: Duration,
        outcome: Outcome,
        reason: &str,
        log: &Log,
    ) -> Result<(), RunError> {
        let attempt = NewAttempt {
            session: self.site.session,
            kind: Kind::Build,
            key: self.key(),
            round: 0,
            cell: &self
                .plan
                .scope()
                .name_of(self.cell(), &self.plan.steps.builds.axes),
            machine: self.label("machine"),
            version: self.version(),
            started_ms,
            duration,
            outcome,
            reason,
            environment: None,
            log: Some(log.0.as_slice()),
        };
        self.site.store.borrow_mut().record(&attempt, &[])?;
        Ok(())
    }
}

/// The classes of cells that the same `[[affects]]` rules hold for.
struct Classes<'a> {
    plan: &'a Plan<'a>,
    classes: Memo<Key>,
}

impl<'a> Classes<'a> {
    fn new(plan: &'a Plan<'a>) -> Self {
        let rules = plan.matrix.affects.iter();
        let axes = rules.flat_map(|rule| plan.scope().axes_of(&rule.when.mentions));
        Classes {
            plan,
            classes: Memo::new(Projection::new(axes.collect(), &plan.cells.sizes())),
        }
    }

    fn of(&mut self, cell: &[u16]) -> Result<Key, RunError> {
        let plan = self.plan;
        let class = self.classes.get(cell, || {
            let mut hasher = KeyHasher::new("class");
            for rule in &plan.matrix.affects {
                let axes = plan.scope().axes_of(&rule.when.mentions);
                let holds = plan.scope().test(&rule.when, cell, &axes)?;
                hasher.str(if holds { "holds" } else { "does not" });
                for path in &rule.paths {
                    hasher.str(&path.to_string());
                }
            }
            Ok(hasher.finish())
        });
        class.map_err(|problem: Diagnostic| RunError::Template(problem.message))
    }
}
