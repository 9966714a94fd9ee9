//! Makes the builds that a plan needs: check-out, recipe, artifacts, all on the machine that measures them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::command::{Log, command, last_words, make_dir, now_ms, one, remove};
use super::event::Event;
use super::execute::{RunError, Site};
use super::pool::Pool;
use crate::base::diag::{At, Diagnostic};
use crate::base::file_name::file_name;
use crate::base::key::{Key, KeyHasher};
use crate::base::sample::Ended;
use crate::config::hook::Moment;
use crate::config::matrix::Build;
use crate::edge::git::{Commit, GitError, NeededSubmodule, Sources, WorkFolder};
use crate::edge::store::{AttemptOutcome, NewAttempt, StepKind};
use crate::machine::host::{
    Cancel, FileOp, FileReply, Host, HostError, HostErrorKind, Output, file,
};
use crate::plan::commands::{BuildPlace, Words, show_words};
use crate::plan::dag::{Plan, Todo, build_weights};
use crate::plan::order::{Order, Weight};
use crate::plan::projection::{Memo, Projection};
use crate::plan::steps::Subject;
use crate::resolve::lookup::StepTimes;
use crate::resolve::prepare::Machine;
use crate::resolve::versions::World;

/// The builds of a plan that could not be made: step → reason.
pub type BrokenBuilds = BTreeMap<u32, String>;

/// What came of one build.
enum Built {
    Artifact(Key),
    Failed(String),
    /// It was stopped: nothing more is to be built.
    Stopped,
}

/// Why a build gave nothing.
enum BuildFailure {
    /// The recipe failed: so it will the next time.
    Recipe(AttemptOutcome, String),
    /// Something around it: it says nothing about the version, and the next run tries again.
    Surroundings(String),
    NoSpace(String),
    Stopped,
}

impl From<HostError> for BuildFailure {
    fn from(error: HostError) -> Self {
        match error.kind {
            HostErrorKind::NoSpace => BuildFailure::NoSpace(error.message),
            HostErrorKind::Cancelled => BuildFailure::Stopped,
            _ => BuildFailure::Surroundings(error.message),
        }
    }
}

impl From<GitError> for BuildFailure {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Host(error) => error.into(),
            error if error.is_interrupted() => BuildFailure::Stopped,
            error => match error.to_string() {
                told if told.contains(NO_SPACE) => BuildFailure::NoSpace(told),
                told => BuildFailure::Surroundings(told),
            },
        }
    }
}

/// Makes the builds of a machine that are to be done. Those that share a folder are made one after the
/// other in the order of the versions, so that neighbouring commits build incrementally; beyond that the one
/// with the longest way to the end goes first, as many side by side as the machine declares. A build that
/// failed before is not tried again unless `again`. The caller holds the machine's lock.
pub async fn build(
    place: &Workplace<'_>,
    machine: &str,
    todo: &Todo,
    again: bool,
    cancel: &Cancel,
) -> Result<BrokenBuilds, RunError> {
    let Workplace { site, plan, .. } = *place;
    let Some(declared) = &plan.matrix.build else {
        return Ok(BrokenBuilds::new());
    };
    let number = Cell::new(0);
    let needed = (0..).zip(&todo.builds).filter(|(_, needed)| **needed);
    let builders = needed.map(|(build, _)| Builder {
        place,
        declared,
        build,
        jobs: 1,
        submodules: Vec::new(),
        number: &number,
        of: 1,
    });
    let mut builders: Vec<Builder> = builders
        .filter(|it| it.label("machine") == machine)
        .collect();
    let mut broken = BrokenBuilds::new();
    find_submodules(&mut builders, &mut broken).await?;
    builders.retain(|it| !broken.contains_key(&it.build));
    if builders.is_empty() {
        return Ok(broken);
    }
    let mut keys: Vec<Key> = builders.iter().map(Builder::key).collect();
    keys.sort_unstable();
    keys.dedup();
    let failures = site.store.borrow().failures(&keys)?;
    let past = StepTimes::of(plan, Some(&site.store.borrow()), &|run| {
        todo.rounds[run] > 0
    })?;
    let weights = past.with(|durations| build_weights(plan, todo, durations));
    let weights: Vec<Weight> = builders
        .iter()
        .map(|it| weights[it.build as usize])
        .collect();
    let mut last_in: HashMap<PathBuf, u32> = HashMap::new();
    let mut edges = Vec::new();
    for (index, builder) in (0..).zip(&builders) {
        let before = last_in.insert(builder.folder(), index);
        edges.extend(before.map(|before| (before, index)));
    }
    let slots = site.machines.get(machine).map_or(1, |it| it.build_slots);
    let slots = slots.min(last_in.len());
    let cpus = site.machines.get(machine).map_or(1, |it| it.view().cpus);
    let is_tried = |it: &&Builder| again || failures.iter().all(|failure| failure.key != it.key());
    let of = builders.iter().filter(is_tried).count();
    for builder in &mut builders {
        builder.of = of;
        builder.jobs = (cpus / slots).max(1);
    }
    // Edges follow the order of the builds: there is no ring.
    let Some(mut order) = Order::new(&weights, &edges) else {
        return Ok(broken);
    };
    let known = RefCell::new(place.world.built.clone());
    let mut pool = Pool::default();
    let mut is_interrupted = false;
    loop {
        while pool.len() < slots && !is_interrupted && !cancel.is_cancelled() {
            let Some(index) = order.pick() else { break };
            let builder = &builders[index as usize];
            let before = failures.iter().find(|failure| failure.key == builder.key());
            if let Some(failure) = before.filter(|_| !again) {
                let reason = format!("{} (not tried again: `--failed` does)", failure.reason);
                broken.insert(builder.build, reason);
                order.done(index);
                continue;
            }
            let known = &known;
            pool.push(async move { (index, builder.give(known, cancel).await) });
        }
        if pool.is_empty() {
            return Ok(broken);
        }
        let (index, built) = pool.next().await;
        match built? {
            Built::Artifact(_) => {}
            Built::Stopped => is_interrupted = true,
            Built::Failed(reason) => {
                broken.insert(builders[index as usize].build, reason);
            }
        }
        order.done(index);
    }
}

/// Gets the sources of all submodules that builds need, before anything is built. Where one cannot be fetched, that is
/// told, and not held against the version.
async fn find_submodules(
    builders: &mut [Builder<'_>],
    broken: &mut BrokenBuilds,
) -> Result<(), RunError> {
    let mut known: HashMap<NeededSubmodule, Result<Sources, String>> = HashMap::new();
    for builder in builders {
        let versions = builder.place.world.versions;
        let found = builder.submodules_needed();
        let mut wrong = found.as_ref().err().map(GitError::to_string);
        for needed in found.unwrap_or_default() {
            if !known.contains_key(&needed) {
                let fetched = versions.submodule_sources().fetch(&needed).await;
                known.insert(needed.clone(), fetched.map_err(|error| error.to_string()));
            }
            match known.get(&needed) {
                Some(Ok(sources)) => builder.submodules.push((needed.path, sources.clone())),
                Some(Err(reason)) => wrong = wrong.or(Some(reason.clone())),
                None => {}
            }
        }
        if let Some(reason) = wrong {
            builder.place.site.tell(Event::BuildDone {
                version: builder.version().to_owned(),
                duration_s: 0.0,
                same_as: None,
                error: Some(reason.clone()),
            });
            broken.insert(builder.build, reason);
        }
    }
    Ok(())
}

/// Where and of what builds are made.
pub struct Workplace<'a> {
    pub site: &'a Site<'a>,
    pub plan: &'a Plan<'a>,
    pub world: &'a World<'a>,
}

/// What programs and the system say of a full disk, in the language that steps run in.
const NO_SPACE: &str = "No space left on device";
/// What compilers, linkers and shells say when the machine fails them: killed, most often because memory ran out; no
/// memory, no process, no file descriptor to be had; a disk that cannot be read or written.
const SURROUNDINGS: [&str; 8] = [
    "Killed signal terminated program",
    "virtual memory exhausted",
    "Cannot allocate memory",
    "out of memory allocating",
    "Resource temporarily unavailable",
    "Too many open files",
    "Input/output error",
    "Read-only file system",
];
/// Characters of a command that a reason shows.
const COMMAND_CHARS_MAX: usize = 60;
/// Signals by which somebody else ends a program: HUP, INT, KILL, TERM.
const SIGNALS_FROM_OUTSIDE: [i32; 4] = [1, 2, 9, 15];

/// A file that is there while a build folder is written to. Where it was left, a power cut, a kill
/// or a full disk may have left a half written object file that its build tool takes for whole. Build
/// tools that are asked to stop (a timeout, Ctrl-C) put such files away themselves.
struct UnfinishedMark<'a> {
    host: &'a dyn Host,
    path: PathBuf,
}

async fn exists(host: &dyn Host, path: PathBuf) -> bool {
    file(host, FileOp::Facts { path }).await.is_ok()
}

impl UnfinishedMark<'_> {
    async fn is_there(&self) -> bool {
        exists(self.host, self.path.clone()).await
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
    place: &'a Workplace<'a>,
    declared: &'a Build,
    build: u32,
    /// What `{{ jobs }}` stands for.
    jobs: usize,
    /// By path.
    submodules: Vec<(String, Sources)>,
    /// Builds that were begun.
    number: &'a Cell<usize>,
    /// Builds that are to be made.
    of: usize,
}

impl Builder<'_> {
    /// Makes the build, or finds what it gave before, and notes what stands for it.
    async fn give(
        &self,
        known: &RefCell<HashMap<Key, Key>>,
        cancel: &Cancel,
    ) -> Result<Built, RunError> {
        let artifacts = self.place.world.artifacts;
        // The same sources were built, but stand under another key: an `[[affects]]` rule is new.
        let there = known.borrow().get(&self.key()).copied();
        let machine = self.label("machine");
        let built = match there.filter(|digest| artifacts.has_on(machine, *digest)) {
            Some(digest) => Built::Artifact(digest),
            None => self.make(cancel).await?,
        };
        if let Built::Artifact(digest) = built {
            let mut known = known.borrow_mut();
            let found = self.stand_for(digest, &known)?;
            // What is gone from the disk must not keep its name, where another one takes it.
            let old = found.iter().filter_map(|(key, new)| {
                let old = known.get(key).copied();
                old.filter(|old| old != new)
            });
            let gone: HashSet<Key> = old.filter(|old| !artifacts.has(*old)).collect();
            known.retain(|_, digest| !gone.contains(digest));
            let store = self.place.site.store.borrow();
            store.forget_artifacts(gone)?;
            store.put_artifacts(&found, self.version(), now_ms())?;
            for (key, digest) in found {
                known.entry(key).or_insert(digest);
            }
        }
        Ok(built)
    }

    fn key(&self) -> Key {
        self.place.plan.steps.builds.steps[self.build as usize].key
    }

    fn cell(&self) -> &[u16] {
        let cell = self.place.plan.steps.builds.steps[self.build as usize].cell;
        self.place.plan.cells.cell(cell as usize)
    }

    fn label(&self, axis: &str) -> &str {
        let axis = self.place.plan.cells.axis(axis);
        axis.map_or("", |axis| self.place.plan.cells.label(self.cell(), axis))
    }

    /// None where the artifact is there.
    fn submodules_needed(&self) -> Result<Vec<NeededSubmodule>, GitError> {
        let World {
            versions,
            artifacts,
            built,
            ..
        } = self.place.world;
        let there = built.get(&self.key());
        let is_there = there.is_some_and(|it| artifacts.has_on(self.label("machine"), *it));
        let version = versions.get(self.version()).filter(|_| !is_there);
        match version.and_then(|version| version.commit.as_ref()) {
            Some(commit) => versions.submodules(self.place.plan.matrix, &commit.id),
            None => Ok(Vec::new()),
        }
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
        let mut classes = Classes::new(self.place.plan);
        let mut last = None;
        for cell in 0..self.place.plan.cells.len() {
            if self.place.plan.build_of(cell) != Some(self.build) {
                continue;
            }
            let class = classes.of(self.place.plan.cells.cell(cell))?;
            let subject = self.place.plan.subject_of(cell);
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
    fn folder(&self) -> PathBuf {
        let version = self.place.plan.cells.axis("version");
        let axes = self.place.plan.steps.builds.axes.iter().copied();
        let axes: Vec<usize> = axes.filter(|axis| Some(*axis) != version).collect();
        let name = self.place.plan.scope().name_of(self.cell(), &axes);
        let machine = self.place.site.machines.get(self.label("machine"));
        let state = machine.map_or(PathBuf::new(), |machine| machine.state.clone());
        let matrix = &self.place.plan.matrix.name;
        state
            .join("build")
            .join(file_name(matrix))
            .join(file_name(&name))
    }

    async fn make(&self, cancel: &Cancel) -> Result<Built, RunError> {
        let name = self.label("machine");
        let Some(machine) = self.place.site.machines.get(name) else {
            return Ok(Built::Failed(format!("there is no machine `{name}`")));
        };
        let Some(host) = machine.host.as_deref() else {
            // Nothing runs on a `null` machine: the inputs are all there is to an artifact.
            return Ok(Built::Artifact(self.key()));
        };
        let site = self.place.site;
        let started = Event::BuildStarted {
            version: self.version().to_owned(),
            key: self.key().to_string(),
            number: self.number.get() + 1,
            of: self.of,
        };
        self.number.set(self.number.get() + 1);
        let allowed = site.call(Moment::PreBuild, &started, cancel).await;
        site.tell(started);
        let clock = Instant::now();
        let started_ms = now_ms();
        let mut log = Log::default();
        let mut built = match allowed {
            Ok(()) => self.try_make(machine, host, cancel, &mut log).await,
            Err(reason) => Err(BuildFailure::Surroundings(reason)),
        };
        let duration = clock.elapsed();
        let same_as = match &built {
            Ok(digest) => site.store.borrow().version_of_artifact(*digest)?,
            Err(_) => None,
        };
        let same_as = same_as.filter(|other| other != self.version());
        if let Ok(_) | Err(BuildFailure::Recipe(..)) = &built {
            let done = Event::BuildDone {
                version: self.version().to_owned(),
                duration_s: duration.as_secs_f64(),
                same_as: same_as.clone(),
                error: match &built {
                    Err(BuildFailure::Recipe(_, reason)) => Some(reason.clone()),
                    _ => None,
                },
            };
            let called = site.call(Moment::PostBuild, &done, cancel).await;
            built = called.map_err(BuildFailure::Surroundings).and(built);
        }
        let (outcome, reason) = match &built {
            Ok(_) => (AttemptOutcome::Ok, ""),
            Err(BuildFailure::Recipe(outcome, reason)) => (*outcome, reason.as_str()),
            Err(BuildFailure::Surroundings(reason)) => {
                (AttemptOutcome::Interrupted, reason.as_str())
            }
            Err(BuildFailure::Stopped) => (AttemptOutcome::Interrupted, ""),
            Err(BuildFailure::NoSpace(reason)) => {
                return Err(RunError::NoSpace {
                    what: format!("the build of `{}`", self.version()),
                    reason: reason.clone(),
                });
            }
        };
        self.record(started_ms, duration, outcome, reason, &log)?;
        // Stopping is no failure of the build.
        if !matches!(built, Err(BuildFailure::Stopped)) {
            site.tell(Event::BuildDone {
                version: self.version().to_owned(),
                duration_s: duration.as_secs_f64(),
                same_as,
                error: (!reason.is_empty()).then(|| reason.to_owned()),
            });
        }
        Ok(match built {
            Ok(digest) => {
                self.place.world.artifacts.add(name, digest);
                Built::Artifact(digest)
            }
            Err(BuildFailure::Stopped) => Built::Stopped,
            Err(_) => Built::Failed(reason.to_owned()),
        })
    }

    /// Makes the build in the kept folder. A recipe that fails there is tried once more in a clean one: what other
    /// versions have left must not count against this one.
    async fn try_make(
        &self,
        machine: &Machine,
        host: &dyn Host,
        cancel: &Cancel,
        log: &mut Log,
    ) -> Result<Key, BuildFailure> {
        let folder = self.folder();
        let mark = UnfinishedMark {
            host,
            path: folder.join("unfinished"),
        };
        let is_clean = self.declared.clean || mark.is_there().await;
        let is_kept = !is_clean && exists(host, folder.join("build")).await;
        let made = self.make_in(machine, host, &mark, is_clean, cancel, log);
        match made.await {
            Err(BuildFailure::Recipe(_, reason)) if is_kept => {
                log.note(&format!(
                    "failed in the kept folder ({reason}): tried once more in a clean one"
                ));
                self.make_in(machine, host, &mark, true, cancel, log).await
            }
            made => made,
        }
    }

    async fn make_in(
        &self,
        machine: &Machine,
        host: &dyn Host,
        mark: &UnfinishedMark<'_>,
        is_clean: bool,
        cancel: &Cancel,
        log: &mut Log,
    ) -> Result<Key, BuildFailure> {
        let folder = self.folder();
        let dir = folder.join("build");
        if is_clean {
            remove(host, &dir.to_string_lossy()).await?;
        }
        make_dir(host, &folder.to_string_lossy()).await?;
        mark.set().await?;
        self.check_out(machine, host, &folder, is_clean, cancel, log)
            .await?;
        make_dir(host, &dir.to_string_lossy()).await?;
        if let Err(failure) = self.follow_recipe(host, &folder, cancel, log).await {
            // The tools of the recipe have put away what they had begun.
            if matches!(failure, BuildFailure::Recipe(..) | BuildFailure::Stopped) {
                mark.clear().await?;
            }
            return Err(failure);
        }
        mark.clear().await?;
        let texts = |list: &[At<String>]| list.iter().map(|it| it.value.clone()).collect();
        let keep = FileOp::KeepArtifact {
            from: dir,
            files: texts(&self.declared.artifacts),
            volatile: texts(&self.declared.volatile),
            into: machine.view().places.artifacts.clone().into(),
        };
        match file(host, keep).await {
            Ok(FileReply::Digest(digest)) => Ok(digest),
            Ok(_) => Err(BuildFailure::Surroundings(
                "the artifact was not kept".to_owned(),
            )),
            Err(error) => match error.kind {
                HostErrorKind::NotFound | HostErrorKind::TooLarge => {
                    Err(BuildFailure::Recipe(AttemptOutcome::Failed, error.message))
                }
                _ => Err(error.into()),
            },
        }
    }

    /// Makes the sources be there as they are in the commit.
    async fn check_out(
        &self,
        machine: &Machine,
        host: &dyn Host,
        folder: &Path,
        clean: bool,
        cancel: &Cancel,
        log: &mut Log,
    ) -> Result<(), BuildFailure> {
        let versions = self.place.world.versions;
        let version = versions.get(self.version());
        let commit = version.and_then(|version| version.commit.as_ref());
        let (Some(commit), Some(repository)) = (commit, versions.repository()) else {
            return Err(BuildFailure::Surroundings(format!(
                "the sources of `{}` are not known",
                self.version()
            )));
        };
        let sources = repository.borrow_mut().sources(&commit.id)?;
        let own = machine.state.join("sources");
        let git_dir = sources.deliver(host, &own, cancel).await?;
        let place = WorkFolder {
            src: folder.join("src"),
            state: folder.join("checkout"),
        };
        let paths: Vec<&str> = self.submodules.iter().map(|(path, _)| &**path).collect();
        place.drop_submodules(host, &paths).await?;
        let mut checkout = sources
            .check_out(host, &git_dir, &place, clean, cancel)
            .await?;
        checkout.submodules.retain(|path| !paths.contains(&&**path));
        if let Some(warning) = checkout.warning() {
            log.note(&warning);
        }
        for (path, sources) in &self.submodules {
            let git_dir = sources.deliver(host, &own, cancel).await?;
            let place = place.submodule(path);
            sources
                .check_out(host, &git_dir, &place, clean, cancel)
                .await?;
        }
        Ok(())
    }

    async fn follow_recipe(
        &self,
        host: &dyn Host,
        folder: &Path,
        cancel: &Cancel,
        log: &mut Log,
    ) -> Result<(), BuildFailure> {
        let plan = self.place.plan;
        let bad =
            |problem: Diagnostic| BuildFailure::Recipe(AttemptOutcome::Failed, problem.message);
        let [src, dir] = ["src", "build"].map(|name| folder.join(name).display().to_string());
        let versions = self.place.world.versions;
        let commit = versions
            .get(self.version())
            .and_then(|it| it.commit.as_ref());
        let place = BuildPlace {
            src: &src,
            dir: &dir,
            jobs: self.jobs,
            commit: &commit.map(Commit::name).unwrap_or_default(),
            variant: versions.variant(self.version()),
        };
        let commands = plan.build_commands(self.build, &place).map_err(bad)?;
        let cell = plan.steps.builds.steps[self.build as usize].cell;
        // The sources have no `.git`: a recipe that asks git must not be told of a repository around them.
        let ceiling = ("GIT_CEILING_DIRECTORIES", folder.display().to_string());
        let mut env = vec![(ceiling.0.to_owned(), ceiling.1)];
        env.extend(plan.environment(cell).map_err(bad)?);
        for argv in commands {
            log.command(&argv);
            let command = command(&argv, &dir, &env, self.declared.timeout);
            let output = host.run(command, cancel.clone()).await?;
            log.output(&output);
            let outcome = match output.ended {
                Ended::Exit(0) => continue,
                Ended::Interrupted => return Err(BuildFailure::Stopped),
                Ended::TimedOut => AttemptOutcome::Timeout,
                _ => AttemptOutcome::Failed,
            };
            let reason = reason(&argv, &output);
            let was_killed = matches!(output.ended, Ended::Signal(signal) if SIGNALS_FROM_OUTSIDE.contains(&signal));
            let is_of_machine = SURROUNDINGS.iter().any(|words| says(&output, words));
            return Err(match () {
                () if says(&output, NO_SPACE) => BuildFailure::NoSpace(reason),
                () if was_killed || is_of_machine => BuildFailure::Surroundings(reason),
                () => BuildFailure::Recipe(outcome, reason),
            });
        }
        Ok(())
    }

    fn record(
        &self,
        started_ms: i64,
        duration: Duration,
        outcome: AttemptOutcome,
        reason: &str,
        log: &Log,
    ) -> Result<(), RunError> {
        let attempt = NewAttempt {
            session: self.place.site.session,
            kind: StepKind::Build,
            key: self.key(),
            round: 0,
            cell: &self
                .place
                .plan
                .scope()
                .name_of(self.cell(), &self.place.plan.steps.builds.axes),
            machine: self.label("machine"),
            version: self.version(),
            started_ms,
            duration,
            outcome,
            reason,
            environment: None,
            log: Some(log.0.as_slice()),
        };
        self.place.site.store.borrow_mut().record(&attempt, &[])?;
        Ok(())
    }
}

/// Whether a program printed these words. (A command may hold them too.)
fn says(output: &Output, words: &str) -> bool {
    let words = words.as_bytes();
    let is_in = |text: &[u8]| text.windows(words.len()).any(|window| window == words);
    is_in(&output.stdout) || is_in(&output.stderr)
}

/// Why a recipe failed: the line that names the error, then the command and how it ended.
fn reason(argv: &Words, output: &Output) -> String {
    let shown = show_words(argv);
    let shown = match shown.char_indices().nth(COMMAND_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    };
    match last_words(output).trim_start_matches(": ") {
        "" => format!("`{shown}`: {}", output.ended),
        words => format!("{words} (`{shown}`: {})", output.ended),
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
