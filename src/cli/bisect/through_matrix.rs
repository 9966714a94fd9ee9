//! Bisection through a matrix: its sessions build and measure the commits, in one of its cells.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;

use super::journal::{Entry, Journal};
use super::line::LineCommit;
use crate::base::diag::{Diagnostic, Sources, suggest};
use crate::base::sample::{Better, Sample};
use crate::base::units::{count, show_si};
use crate::cli::load::{Loaded, Targets, load};
use crate::cli::session::settings;
use crate::cli::show::Stop;
use crate::cli::signals::signals;
use crate::cli::{Common, Exit};
use crate::edge::store::Store;
use crate::resolve::samples::Samples;
use crate::resolve::selection::SelectionOptions;
use crate::run::event::{Event, TimedEvent};
use crate::run::progress::{Progress, say};
use crate::run::session::{Asked, PlannedWork, Session};
use crate::run::strategy::bisect::{BisectAnswer, BisectStep, Bisection};
use crate::run::strategy::commits::{CommitSearch, Commits, runs_of_labels};

/// Cells that are named where one is to be chosen.
const CELLS_TOLD_MAX: usize = 8;

/// What is measured of each commit.
pub struct Asking {
    /// Without versions.
    pub common: Common,
    pub metric: Option<String>,
    /// Texts that diagnostics point into.
    pub sources: Rc<RefCell<Sources>>,
}

/// A line of commits as versions of the matrix.
pub struct MatrixLine {
    common: Common,
    loaded: Loaded,
    looked: Targets,
    store: RefCell<Store>,
    /// Of each commit of the line.
    labels: Vec<String>,
    /// The cell, without its version.
    pub cell: String,
    machine: String,
    metric: usize,
    /// The parser's name for it.
    reading: String,
}

impl Asking {
    fn loaded(&self, common: &Common) -> Result<Loaded, Stop> {
        load(common, &mut self.sources.borrow_mut())
    }

    /// The subject's repository.
    pub fn repository(&self) -> Result<String, Stop> {
        let loaded = self.loaded(&self.common)?;
        loaded
            .repository(self.common.repo.as_deref())
            .ok_or_else(|| {
                let message = format!(
                    "the matrix `{}` has no `[subject.git]`: there are no commits to bisect",
                    loaded.matrix.name
                );
                Stop::message(message)
            })
    }

    /// What the matrix says of the smallest change that matters between versions.
    pub fn min_effect(&self) -> Result<Option<f64>, Stop> {
        let loaded = self.loaded(&self.common)?;
        let mut compares = loaded.matrix.compares.iter();
        let compare = compares.find(|compare| compare.axis.value == "version");
        Ok(compare.map(|compare| compare.min_effect))
    }

    /// Resolves the commits of a line as versions, and finds the one cell that is measured.
    pub async fn prepare(&self, commits: &[LineCommit]) -> Result<MatrixLine, Stop> {
        let ids: Vec<_> = commits
            .iter()
            .filter_map(|commit| commit.git.as_ref())
            .collect();
        let [first, .., before, last] = &ids[..] else {
            return self
                .of_versions(commits, &[commits.last().map_or("", |it| &it.id)])
                .await;
        };
        // Of a branch that was merged the merge is the bad end.
        let is_branch = last.parents.first() != Some(&before.id);
        let range = match is_branch {
            true => format!("{}..{}", last.parents[0], before.id),
            false => format!("{}..{}", first.id, last.id),
        };
        self.of_versions(
            commits,
            &[&range, last.id.as_str()][..1 + usize::from(is_branch)],
        )
        .await
    }

    async fn of_versions(
        &self,
        commits: &[LineCommit],
        versions: &[&str],
    ) -> Result<MatrixLine, Stop> {
        let common = Common {
            versions: versions.iter().map(|it| (*it).to_owned()).collect(),
            against: commits.first().map(|commit| {
                let short: String = commit.id.chars().take(12).collect();
                format!("{short}={}", commit.id)
            }),
            ..self.common.clone()
        };
        let loaded = self.loaded(&common)?;
        let looked = loaded.look(&common).await?;
        let label = |commit: &LineCommit| {
            let id = commit.git.as_ref().map(|git| &git.id);
            let mut all = looked.versions.list.iter();
            let version = all.find(|version| version.commit.as_ref().map(|it| &it.id) == id);
            version.map(|version| version.cell_label())
        };
        let labels: Option<Vec<String>> = commits.iter().map(label).collect();
        let labels = labels
            .ok_or_else(|| Stop::message("a commit of the range is no version of the matrix"))?;
        let store = Store::open(&loaded.state)?;
        let planner = loaded.planner(&common, &looked);
        let plan = planner
            .plan(Some(&store))
            .map_err(crate::run::execute::RunError::from)?;
        loaded.has_cells(&plan)?;
        let version: Vec<usize> = plan.cells.axis("version").into_iter().collect();
        let names: BTreeSet<String> = plan
            .cells
            .iter()
            .map(|cell| plan.cells.name_without(cell, &version))
            .collect();
        let cell = match names.len() {
            1 => names.into_iter().next().unwrap_or_default(),
            cells => return Err(several_cells(cells, names)),
        };
        let machine = crate::resolve::lookup::machine_of(&plan, 0)
            .unwrap_or_default()
            .to_owned();
        let readings = plan
            .metric_names(0)
            .map_err(|problem| Stop::usage(vec![problem]))?;
        let metric = self.metric(&loaded, &readings)?;
        let reading = readings[metric].clone();
        drop(plan);
        Ok(MatrixLine {
            store: RefCell::new(store),
            common,
            labels,
            cell,
            machine,
            metric,
            reading,
            looked,
            loaded,
        })
    }

    /// Which of the matrix's metrics is meant: by `--metric`, or the only one that the cell has.
    fn metric(&self, loaded: &Loaded, readings: &[String]) -> Result<usize, Stop> {
        let metrics = loaded.matrix.metrics.iter().enumerate();
        let known: Vec<(usize, &str)> = metrics
            .filter(|(at, _)| readings.get(*at).is_some_and(|reading| !reading.is_empty()))
            .map(|(at, metric)| (at, metric.name.as_str()))
            .collect();
        let names = || known.iter().map(|(_, name)| *name);
        match (&self.metric, &known[..]) {
            (Some(wanted), _) => match known.iter().find(|(_, name)| name == wanted) {
                Some((at, _)) => Ok(*at),
                None => Err(Stop::message(format!(
                    "the cell has no metric `{wanted}`; {}",
                    suggest(wanted, names())
                ))),
            },
            (None, [(at, _)]) => Ok(*at),
            (None, _) => {
                let names = names().collect::<Vec<_>>().join("`, `");
                let problem = "a bisection follows one metric, and the cell has several";
                let help = format!("choose one of them, `--metric NAME`: `{names}`");
                Err(Diagnostic::error(problem).help(help).into())
            }
        }
    }
}

fn several_cells(cells: usize, names: BTreeSet<String>) -> Stop {
    let mut told: Vec<String> = names.into_iter().take(CELLS_TOLD_MAX).collect();
    if cells > told.len() {
        told.push(format!("and {} more", cells - told.len()));
    }
    let problem = format!(
        "a bisection measures one cell, and {} are chosen",
        count(cells, "cell")
    );
    let help = format!(
        "choose one with `--cell EXPR`, such as `--cell \"bs == '4k'\"`; there are\n{}",
        told.join("\n")
    );
    Diagnostic::error(problem).help(help).into()
}

impl MatrixLine {
    /// Which direction of the metric is better.
    pub fn better(&self) -> Option<Better> {
        self.loaded.matrix.metrics[self.metric].better.or_else(|| {
            let mut readers = self.loaded.readers.iter();
            readers.find_map(|reader| reader.better(&self.reading))
        })
    }

    /// The question, for the name of the file that holds the log.
    pub fn question(&self) -> String {
        let matrix = &self.loaded.matrix;
        let metric = &matrix.metrics[self.metric].name;
        format!("{} {} {metric}", matrix.name, self.cell)
    }

    /// The latest session that has samples of the line; 0 where none has.
    pub fn latest(&self) -> Result<i64, Stop> {
        let sessions = self.stored()?.into_iter().map(|(_, sample)| sample.session);
        Ok(sessions.max().unwrap_or(0))
    }

    /// What was stored up to a session: commits of the line with their values.
    pub fn past(&self, until: i64) -> Result<Vec<(usize, f64)>, Stop> {
        let stored = self.stored()?.into_iter();
        let past = stored.filter(|(_, sample)| sample.session <= until);
        Ok(past.map(|(at, sample)| (at, sample.value)).collect())
    }

    /// Samples of commits of the line. Those of a run step that commits share are the first one's.
    fn stored(&self) -> Result<Vec<(usize, Sample)>, Stop> {
        let store = self.store.borrow();
        let planner = self.loaded.planner(&self.common, &self.looked);
        let plan = planner
            .plan(Some(&store))
            .map_err(crate::run::execute::RunError::from)?;
        let samples = Samples::of(&plan, &store)?;
        let metric = &self.loaded.matrix.metrics[self.metric].name;
        let (mut stored, mut seen) = (Vec::new(), BTreeSet::new());
        for (at, run) in runs_of_labels(&plan, &self.labels).into_iter().enumerate() {
            if let Some(run) = run.filter(|run| seen.insert(*run)) {
                let series = samples.get(run, metric);
                stored.extend(series.samples.iter().map(|sample| (at, *sample)));
            }
        }
        Ok(stored)
    }

    /// One session: builds and measures until the search of this line is over. `runs`: of searches before.
    /// None where it was interrupted.
    pub async fn search(
        &self,
        search: Bisection,
        commits: &[LineCommit],
        journal: &mut Journal,
        runs: usize,
    ) -> Result<
        (
            Bisection,
            BTreeMap<usize, String>,
            Option<Box<BisectAnswer>>,
        ),
        Stop,
    > {
        let tell = |commit: &LineCommit| {
            let short: String = commit.id.chars().take(12).collect();
            let subject = commit.git.as_ref().map_or("", |git| &git.subject);
            (short, subject.to_owned())
        };
        let driver = Rc::new(RefCell::new(Driver {
            search,
            metric: self.metric,
            ids: commits.iter().map(|commit| commit.id.clone()).collect(),
            told: commits.iter().map(tell).collect(),
            journal: std::mem::take(journal),
            alike: Vec::new(),
            noted: BTreeSet::new(),
            lost: None,
            runs,
            began: Instant::now(),
            reasons: BTreeMap::new(),
            answer: None,
            stuck: None,
        }));
        let planner = self.loaded.planner(&self.common, &self.looked);
        let hooks = self.loaded.hooks().await?;
        let progress: RefCell<Builds> = RefCell::new(Builds);
        let selection = SelectionOptions::default();
        let session = Session {
            planner: &planner,
            store: &self.store,
            progress: &progress,
            settings: &settings(&self.common, &selection, &self.loaded, &hooks),
        };
        let strategy = Commits::new(driver.clone(), self.machine.clone(), self.labels.clone());
        let names = BTreeSet::from([self.machine.clone()]);
        let mut signals = signals()?;
        let asked = vec![Asked::new(strategy, &planner)];
        let done = session
            .run(&names, asked, PlannedWork::new(), None, &mut signals)
            .await;
        drop(signals);
        let tally = done?.tally;
        let driver =
            Rc::try_unwrap(driver).map_err(|_| Stop::message("the search is still under way"))?;
        let mut driver = driver.into_inner();
        *journal = std::mem::take(&mut driver.journal);
        let Driver {
            search,
            reasons,
            answer,
            stuck,
            lost,
            ..
        } = driver;
        if let Some(stop) = lost {
            return Err(stop);
        }
        if let (Some(end), false) = (stuck, tally.interrupted) {
            let which = if end == 0 { "good" } else { "bad" };
            let why = reasons.get(&end).map_or("", String::as_str);
            let problem = format!(
                "the {which} end {} cannot be measured: {why}",
                commits[end].id
            );
            return Err(Stop {
                diagnostics: vec![Diagnostic::error(problem)],
                exit: Exit::Failed,
            });
        }
        if answer.is_none() && !tally.interrupted {
            return Err(Stop::message(
                "the machine was lost before the search was over: the same command goes on",
            ));
        }
        Ok((search, reasons, answer))
    }
}

/// Says what is built; measurements are told by the search.
struct Builds;

impl Progress for Builds {
    fn event(&mut self, event: &TimedEvent) {
        match &event.event {
            Event::BuildStarted { version, .. } => say(&format!("      building {version}")),
            Event::BuildDone {
                version,
                error: Some(error),
                ..
            } => {
                say(&format!("      build of {version} failed: {error}"));
            }
            Event::Waiting { machine, holder } => {
                say(&format!("waiting for `{machine}`: {holder}"))
            }
            Event::Cleaned { machine, what } => say(&format!("put away on `{machine}`: {what}")),
            _ => {}
        }
    }
}

/// Passes results to the search, keeps and says them.
struct Driver {
    search: Bisection,
    metric: usize,
    ids: Vec<String>,
    /// The short id and the subject of each commit.
    told: Vec<(String, String)>,
    journal: Journal,
    /// Commits that are the same bytes, found while the journal still tells what was known when.
    alike: Vec<(usize, usize)>,
    /// Those that were told.
    noted: BTreeSet<(usize, usize)>,
    runs: usize,
    /// When the commit was asked for.
    began: Instant,
    /// Why commits could not be measured.
    reasons: BTreeMap<usize, String>,
    answer: Option<Box<BisectAnswer>>,
    /// The end that cannot be measured.
    stuck: Option<usize>,
    /// A result could not be kept: the search ends.
    lost: Option<Stop>,
}

impl Driver {
    fn place(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|own| own == id)
    }

    /// Tells the search of what the journal has next; false where it has no more.
    fn replay(&mut self) -> bool {
        let Some(entry) = self.journal.stored.pop_front() else {
            return false;
        };
        let Some(at) = self.place(&entry.commit) else {
            return true;
        };
        match entry.alike.as_deref().map(|other| self.place(other)) {
            Some(Some(other)) => {
                self.noted.insert((at, other));
                self.search.set_alike(at, other);
            }
            Some(None) => {}
            None => {
                self.feed(at, &entry);
            }
        }
        true
    }

    /// Whether the journal has a pair of alike commits of this line next: others are of a branch that comes later.
    fn is_alike_next(&self) -> bool {
        let Some(entry) = self.journal.stored.front() else {
            return false;
        };
        let is_here = |id: &str| self.place(id).is_some();
        entry.alike.as_deref().is_some_and(is_here) && is_here(&entry.commit)
    }

    /// Returns how the measurement ended, in words.
    fn feed(&mut self, at: usize, entry: &Entry) -> String {
        match (entry.value, entry.is_untestable) {
            (Some(value), _) => {
                self.search.on_value(at, value, entry.seconds);
                show_si(value)
            }
            (None, true) => {
                let reason = entry.failed.clone().unwrap_or_default();
                self.search.on_untestable(at);
                self.reasons.insert(at, reason.clone());
                reason
            }
            (None, false) => {
                let reason = entry.failed.clone().unwrap_or_default();
                let end = match self.search.on_failure(at) {
                    true => "; tried again",
                    false => "; left out",
                };
                self.reasons.insert(at, reason.clone());
                reason + end
            }
        }
    }

    fn note(&mut self, at: usize, entry: Entry) {
        let entry = Entry {
            commit: self.ids[at].clone(),
            seconds: self.began.elapsed().as_secs_f64(),
            ..entry
        };
        self.keep(&entry);
        let what = self.feed(at, &entry);
        let (short, subject) = &self.told[at];
        let runs = self.runs + self.search.runs();
        say(&format!("{runs:>4}  {short} {what:<10} {subject}"));
    }

    fn keep(&mut self, entry: &Entry) {
        if let Err(stop) = self.journal.add_here(entry) {
            self.lost.get_or_insert(stop);
        }
    }

    fn note_alike(&mut self, a: usize, b: usize) {
        if !self.noted.insert((a, b)) {
            return;
        }
        self.keep(&Entry {
            commit: self.ids[a].clone(),
            alike: Some(self.ids[b].clone()),
            ..Entry::default()
        });
        self.search.set_alike(a, b);
    }
}

impl CommitSearch for Driver {
    fn next(&mut self) -> Option<usize> {
        if self.answer.is_some() || self.stuck.is_some() || self.lost.is_some() {
            return None;
        }
        loop {
            let is_replayed = self.journal.stored.is_empty();
            if is_replayed {
                for (a, b) in std::mem::take(&mut self.alike) {
                    self.note_alike(a, b);
                }
            } else if self.is_alike_next() {
                self.replay();
                continue;
            }
            self.began = Instant::now();
            match self.search.next_step() {
                BisectStep::Measure(at) if is_replayed => return Some(at),
                // What was measured then is known, whether it is what would be asked for now or not.
                BisectStep::Measure(_) => self.replay(),
                BisectStep::Answer(answer) => {
                    self.answer = Some(answer);
                    return None;
                }
                BisectStep::Stuck(end) => {
                    self.stuck = Some(end);
                    return None;
                }
            };
        }
    }

    fn set_alike(&mut self, a: usize, b: usize) {
        match self.journal.stored.is_empty() {
            true => self.note_alike(a, b),
            false => self.alike.push((a, b)),
        }
    }

    fn on(&mut self, at: usize, sample: &Result<Vec<Option<f64>>, String>) {
        let (value, failed) = match sample {
            Ok(values) => match values.get(self.metric).copied().flatten() {
                Some(value) => (Some(value), None),
                None => (None, Some("the metric was not in the output".to_owned())),
            },
            Err(reason) => (None, Some(reason.clone())),
        };
        self.note(
            at,
            Entry {
                value,
                failed,
                ..Entry::default()
            },
        );
    }

    fn on_build_failure(&mut self, at: usize, of_version: bool) {
        self.note(
            at,
            Entry {
                failed: Some("its build failed".to_owned()),
                is_untestable: of_version,
                ..Entry::default()
            },
        );
    }
}
