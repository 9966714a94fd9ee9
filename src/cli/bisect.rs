//! `matrix bisect`: from a range of commits to the one that moved a number.

mod journal;
mod line;
mod through_matrix;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use journal::{Entry, Journal, write};
use line::{Line, LineCommit, LineOptions, inside_of, line, of_git, read_history};

use through_matrix::{Asking, MatrixLine};

use super::run::block_on;
use super::show::{self, Stop};
use super::{Common, Exit, SEED};
use crate::base::diag::{Diagnostic, Sources};
use crate::base::sample::{Better, Ended};
use crate::base::units::{count, parse_duration, parse_percent, show_duration, show_si};
use crate::edge::git::{Commit, GitError, Repository};
use crate::machine::connect;
use crate::machine::host::{Cancel, Command, Holder, Host};
use crate::report::bisect::{BisectCommit, BisectReport, CurvePoint, replay_log, text};
use crate::run::progress::say;
use crate::run::strategy::bisect::{BisectAnswer, BisectSettings, BisectStep, Bisection, expected};

/// The exit status with which a command says that this commit cannot be measured; git's.
const UNTESTABLE_STATUS: i32 = 125;
/// Bytes of each stream of the command that are kept.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Merges within merges that are gone into.
const MERGES_MAX: usize = 10;
/// The smallest change that matters, unless `--min-effect` gives another one.
const MIN_EFFECT: f64 = 0.01;
/// Measurements beyond which a search is given up, where no budget is given.
const BUDGET: usize = 1000;

/// Find the commit that moved a number, in place of `git bisect run`.
#[derive(Debug, Args)]
pub struct BisectArgs {
    /// A matrix that builds and measures the commits, instead of `--measure`
    #[arg(value_name = "MATRIX", required_unless_present = "measure")]
    matrix: Option<PathBuf>,
    /// The cell of the matrix that is measured, such as `bs == '4k' and cache == 'none'`; may be repeated
    #[arg(long, value_name = "EXPR", requires = "matrix")]
    cell: Vec<String>,
    /// The metric of the matrix that is followed
    #[arg(long, value_name = "NAME", requires = "matrix")]
    metric: Option<String>,
    /// A preset of the matrix, instead of its own default
    #[arg(long, requires = "matrix")]
    preset: Option<String>,
    /// A revision that is as it should be
    #[arg(long, value_name = "REV")]
    good: Option<String>,
    /// A later revision that is not
    #[arg(long, value_name = "REV")]
    bad: Option<String>,
    /// A shell command that prints one number for the commit MATRIX_COMMIT (`{commit}` in its text too). It exits with
    /// 125 where the commit cannot be measured; anything else but 0 is a failure, and tried once more
    #[arg(long, value_name = "CMD", conflicts_with = "matrix")]
    measure: Option<String>,
    /// The repository; the current folder otherwise
    #[arg(long, value_name = "PATH|URL", conflicts_with = "commits")]
    repo: Option<String>,
    /// A file with one commit a line, oldest first, instead of a repository. Its first and last line are the ends where
    /// `--good` and `--bad` are not given
    #[arg(long, value_name = "FILE")]
    commits: Option<PathBuf>,
    /// Which direction is better: says whether the culprit is a regression or an improvement
    #[arg(long, value_enum)]
    better: Option<BetterArg>,
    /// A smaller change of the number is none
    ///
    /// [default: what the matrix says of versions, else 1%]
    #[arg(long, value_name = "PERCENT")]
    min_effect: Option<String>,
    /// Values that are known: a CSV file with lines `commit,value`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// At most so many measurements
    #[arg(long, value_name = "N", default_value_t = BUDGET)]
    budget: usize,
    /// A measurement that takes longer has failed
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    timeout: String,
    /// Say how many builds and measurements to expect, and measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Seed for what is drawn
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Where the state is kept, so that an interrupted bisection goes on; `.matrix` beside the matrix, or here
    #[arg(long, value_name = "DIR", env = "MATRIX_STATE")]
    state: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BetterArg {
    Lower,
    Higher,
}

impl BisectArgs {
    fn asking(&self, matrix: &Path, sources: &Rc<RefCell<Sources>>) -> Asking {
        Asking {
            common: Common {
                matrix: matrix.to_owned(),
                preset: self.preset.clone(),
                only: self.cell.clone(),
                versions: Vec::new(),
                against: None,
                repo: self.repo.clone(),
                state: self.state.clone(),
                repeat: None,
                seconds: None,
                machines: Vec::new(),
                first_parent: true,
                seed: self.seed,
                json: self.json,
            },
            metric: self.metric.clone(),
            sources: Rc::clone(sources),
        }
    }
}

impl From<GitError> for Stop {
    fn from(error: GitError) -> Stop {
        Stop::message(error.to_string())
    }
}

pub fn bisect(args: BisectArgs) -> Exit {
    let sources = Rc::new(RefCell::new(Sources::default()));
    let result = block_on(async {
        let (sender, cancel) = watch::channel(false);
        if args.matrix.is_some() {
            // Its sessions are told of signals.
            return carry_out(&args, Cancel::new(cancel), &sources).await;
        }
        let interrupted = interrupts()?;
        tokio::pin!(interrupted);
        let work = carry_out(&args, Cancel::new(cancel), &sources);
        tokio::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = &mut interrupted, if !*sender.borrow() => {
                    // Fails only when nobody works any more.
                    let _ = sender.send(true);
                }
            }
        }
    });
    match result {
        Ok(exit) => exit,
        Err(stop) => show::stopped(&stop, &sources.borrow(), args.json),
    }
}

/// Returns at the first signal to stop.
fn interrupts() -> Result<impl Future<Output = ()>, Stop> {
    let of = |kind| {
        signal(kind).map_err(|error| Stop::message(format!("signals cannot be caught: {error}")))
    };
    let mut interrupt = of(SignalKind::interrupt())?;
    let mut terminate = of(SignalKind::terminate())?;
    let mut hang_up = of(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
    })
}

async fn carry_out(
    args: &BisectArgs,
    cancel: Cancel,
    sources: &Rc<RefCell<Sources>>,
) -> Result<Exit, Stop> {
    let lock = std::env::var_os("MATRIX_LOCK").map(PathBuf::from);
    let host = connect::local("local", lock)?;
    let host = host.as_ref();
    let percent = |text: &str| parse_percent(text).filter(|share| (0.0..1.0).contains(share));
    let asking = args
        .matrix
        .as_ref()
        .map(|matrix| args.asking(matrix, sources));
    let declared = asking.as_ref().map(Asking::min_effect).transpose()?;
    let min_effect = match &args.min_effect {
        Some(text) => percent(text).ok_or_else(|| {
            let message = format!("`--min-effect {text}` is no percentage such as `2%`");
            Stop::message(message)
        })?,
        None => declared.flatten().unwrap_or(MIN_EFFECT),
    };
    let Some(timeout) = parse_duration(&args.timeout) else {
        let message = format!("`--timeout {}` is no duration such as `10m`", args.timeout);
        return Err(Stop::message(message));
    };
    let here = std::env::current_dir()
        .map_err(|error| Stop::message(format!("the current folder cannot be read: {error}")))?;
    let beside = args.matrix.as_ref().and_then(|matrix| matrix.parent());
    let state = match &args.state {
        Some(state) => here.join(state),
        None => here.join(beside.unwrap_or(Path::new(""))).join(".matrix"),
    };
    let repo = match &asking {
        Some(asking) => Some(asking.repository()?),
        None => args.repo.clone(),
    };
    let asked = LineOptions {
        good: args.good.as_deref(),
        bad: args.bad.as_deref(),
        repo: repo.as_deref(),
        commits: args.commits.as_deref(),
        mirrors: if asking.is_some() { "mirrors" } else { "git" },
    };
    let line = line(asked, host, &here, &state).await?;
    let prepared = match &asking {
        Some(asking) => Some(asking.prepare(&line.commits).await?),
        None => None,
    };
    let mut history = match &args.history {
        Some(path) => read_history(host, &here.join(path), &line.commits).await?,
        None => Vec::new(),
    };
    let question = match (&prepared, &args.measure) {
        (Some(prepared), _) => prepared.question(),
        (None, measure) => measure.clone().unwrap_or_default(),
    };
    let mut journal = Journal::open(host, &state, &question, args.seed, &line.commits).await?;
    let mut known_until = i64::MAX;
    if let Some(prepared) = &prepared {
        if !args.dry_run {
            known_until = journal.known_until(prepared.latest()?)?;
        }
        history.extend(prepared.past(known_until)?);
    }
    let settings = BisectSettings {
        min_effect,
        seed: args.seed,
        runs_max: args.budget,
    };
    let mut work = Work {
        host,
        args,
        dir: here,
        timeout,
        cancel,
        journal,
        settings,
        log: Marks::default(),
        runs: 0,
        builds: 0,
        asking,
        prepared,
        known_until,
    };
    if args.dry_run {
        return Ok(work.dry_run(&line.commits, &history));
    }
    if work.asking.is_some() {
        // Its sessions take the machine.
        return work.find(line, &history).await;
    }
    let waiting = |holder: &str| say(&format!("waiting for this machine: {holder}"));
    let lock = host
        .lock(Holder::this("bisect"), &waiting, work.cancel.clone())
        .await?;
    let result = work.find(line, &history).await;
    lock.release().await;
    result
}

/// Marks for `git bisect replay`, in the order that git accepts.
#[derive(Default)]
struct Marks {
    bad: Vec<BisectCommit>,
    good: Vec<BisectCommit>,
    skipped: Vec<BisectCommit>,
}

/// A bisection at work.
struct Work<'a> {
    host: &'a dyn Host,
    args: &'a BisectArgs,
    dir: PathBuf,
    timeout: Duration,
    cancel: Cancel,
    journal: Journal,
    settings: BisectSettings,
    log: Marks,
    /// Of searches that are over.
    runs: usize,
    builds: usize,
    /// Where a matrix measures: what is asked of it, and the line of commits as its versions.
    asking: Option<Asking>,
    prepared: Option<MatrixLine>,
    /// The last session whose samples were known before.
    known_until: i64,
}

/// How a search of one line ended.
enum Searched {
    Answer(Box<BisectAnswer>),
    Interrupted,
}

impl Work<'_> {
    fn dry_run(&self, line: &[LineCommit], history: &[(usize, f64)]) -> Exit {
        let commits = line.len() - 1;
        let stored = self.journal.stored.len();
        let of = |sigma: f64| expected(commits, sigma);
        let ((likely, builds), (more, _)) = (of(3.0), of(2.0));
        let values = history.len();
        let mut text = format!(
            "{}; {} and {} of the history are known\nexpected: about {builds} builds and {likely} measurements for a change of 3 \
             times the noise, {more} for 2 times\n",
            count(commits, "commit"),
            count(stored, "measurement"),
            count(values, "value")
        );
        let seconds: f64 = self.journal.stored.iter().map(|entry| entry.seconds).sum();
        text += &match stored {
            0 => "time: not known before the first measurement\n".to_owned(),
            _ => {
                let each = seconds / stored as f64;
                let rest = likely.saturating_sub(stored) as f64 * each;
                format!(
                    "time: about {} more, at {} a measurement with its build\n",
                    show_duration(Duration::from_secs_f64(rest)),
                    show_duration(Duration::from_secs_f64(each))
                )
            }
        };
        if self.args.json {
            let document = json!({
                "commits": commits, "measured": stored, "builds": builds, "runs": likely,
                "seconds": if stored > 0 { Some(seconds / stored as f64 * likely as f64) } else { None },
            });
            show::out(&format!("{document}\n"));
        } else {
            show::out(&text);
        }
        Exit::Fine
    }

    /// Searches the line, then inside the merge that was found, and shows the answer.
    async fn find(&mut self, line: Line, history: &[(usize, f64)]) -> Result<Exit, Stop> {
        let Line {
            mut commits,
            repository,
        } = line;
        let mut past = history.to_vec();
        let (mut merge, mut outer): (Option<Commit>, Option<(BisectAnswer, Vec<CurvePoint>)>) =
            (None, None);
        let (mut skipped, mut notes) = (Vec::new(), Vec::new());
        for _ in 0..=MERGES_MAX {
            let mut search = Bisection::new(commits.len() - 1, self.settings, &past);
            let mut reasons = BTreeMap::new();
            let answer = match self.search(&mut search, &commits, &mut reasons).await? {
                Searched::Answer(answer) => answer,
                Searched::Interrupted => {
                    say("interrupted: the same command goes on where it stopped");
                    return Ok(Exit::Interrupted);
                }
            };
            self.runs += search.runs();
            self.builds += search.builds();
            self.settings.runs_max = self.settings.runs_max.saturating_sub(search.runs());
            for (at, reason) in reasons {
                skipped.push((self.told(&commits[at], repository.as_ref(), false), reason));
            }
            let curve = self.curve(&search, &answer, &commits, repository.as_ref());
            if let (Some((before, points)), [], true) = (&outer, &answer.set[..], answer.is_settled)
            {
                // Nothing on the branch moved the level: it was the merge itself.
                notes.push(
                    "no commit of the branch moves the level alone: it is the merge itself"
                        .to_owned(),
                );
                let (answer, points) = (before.clone(), points.clone());
                let merged = merge.take().map(of_git);
                let set = merged.iter().collect::<Vec<_>>();
                return self
                    .show(
                        &answer,
                        &set,
                        points,
                        skipped,
                        None,
                        notes,
                        repository.as_ref(),
                    )
                    .await;
            }
            let inside = match (&answer.set[..], answer.is_settled, &repository) {
                ([at], true, Some(repository)) => inside_of(&commits[*at], repository)?,
                _ => None,
            };
            let Some(inside) = inside else {
                let set: Vec<&LineCommit> = answer.set.iter().map(|at| &commits[*at]).collect();
                let merge = merge.map(|commit| self.told(&of_git(commit), None, false));
                return self
                    .show(
                        &answer,
                        &set,
                        curve,
                        skipped,
                        merge,
                        notes,
                        repository.as_ref(),
                    )
                    .await;
            };
            let at = answer.set[0];
            // The merge is the bad end of the branch as well.
            past = (search.curve().remove(&at).unwrap_or_default().into_iter())
                .map(|value| (inside.len() - 1, value))
                .collect();
            merge = commits[at].git.clone();
            say(&format!(
                "the culprit is the merge {}: going on with its {}",
                commits[at].id,
                count(inside.len() - 2, "commit")
            ));
            outer = Some((*answer, curve));
            commits = inside;
            if let Some(asking) = &self.asking {
                let prepared = asking.prepare(&commits).await?;
                past = prepared.past(self.known_until)?;
                self.prepared = Some(prepared);
            }
        }
        Err(Stop::message(format!(
            "merges within merges are gone into {MERGES_MAX} deep at most"
        )))
    }

    /// Measures until the search of one line is over.
    async fn search(
        &mut self,
        search: &mut Bisection,
        commits: &[LineCommit],
        reasons: &mut BTreeMap<usize, String>,
    ) -> Result<Searched, Stop> {
        if let Some(prepared) = &self.prepared {
            let own = std::mem::replace(search, Bisection::new(1, self.settings, &[]));
            let journal = &mut self.journal;
            let (own, why, answer) = prepared.search(own, commits, journal, self.runs).await?;
            *search = own;
            *reasons = why;
            return Ok(answer.map_or(Searched::Interrupted, Searched::Answer));
        }
        loop {
            let at = match search.next_step() {
                BisectStep::Measure(at) => at,
                BisectStep::Answer(answer) => return Ok(Searched::Answer(answer)),
                BisectStep::Stuck(end) => {
                    let which = if end == 0 { "good" } else { "bad" };
                    let why = reasons.get(&end).map_or("", String::as_str);
                    return Err(Stop {
                        diagnostics: vec![Diagnostic::error(format!(
                            "the {which} end {} cannot be measured: {why}",
                            commits[end].id
                        ))],
                        exit: Exit::Failed,
                    });
                }
            };
            let commit = &commits[at].id;
            let is_stored = self
                .journal
                .stored
                .front()
                .is_some_and(|entry| entry.commit == *commit);
            let stored = if is_stored {
                self.journal.stored.pop_front()
            } else {
                None
            };
            let is_new = stored.is_none();
            let entry = match stored {
                Some(entry) => entry,
                None => {
                    if let Some(other) = self.journal.stored.front() {
                        let message = format!(
                            "`{}` goes on with {}, where {commit} was to be measured",
                            self.journal.path.display(),
                            other.commit
                        );
                        let help = "another version of this program wrote it: remove the file to begin anew";
                        return Err(Diagnostic::error(message).help(help).into());
                    }
                    let Some(entry) = self.measure(commit).await? else {
                        return Ok(Searched::Interrupted);
                    };
                    self.journal.add(self.host, &entry).await?;
                    entry
                }
            };
            let told = match (entry.value, entry.is_untestable) {
                (Some(value), _) => {
                    search.on_value(at, value, entry.seconds);
                    show_si(value)
                }
                (None, true) => {
                    search.on_untestable(at);
                    reasons.insert(at, format!("exit status {UNTESTABLE_STATUS}"));
                    "cannot be measured".to_owned()
                }
                (None, false) => {
                    let reason = entry.failed.unwrap_or_default();
                    let again = search.on_failure(at);
                    reasons.insert(at, reason.clone());
                    format!(
                        "{reason}{}",
                        if again { "; tried again" } else { "; left out" }
                    )
                }
            };
            if is_new {
                let subject = commits[at]
                    .git
                    .as_ref()
                    .map_or("", |commit| &commit.subject);
                let short: String = commit.chars().take(12).collect();
                say(&format!(
                    "{:>4}  {short} {told:<10} {subject}",
                    self.runs + search.runs()
                ));
            }
        }
    }

    /// One measurement; None where it was interrupted.
    async fn measure(&self, commit: &str) -> Result<Option<Entry>, Stop> {
        let mut env: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        env.retain(|(name, _)| name != "MATRIX_COMMIT");
        env.push(("MATRIX_COMMIT".to_owned(), commit.to_owned()));
        let measure = self.args.measure.as_deref().unwrap_or_default();
        let command = Command {
            argv: vec![
                "sh".into(),
                "-c".into(),
                measure.replace("{commit}", commit),
            ],
            dir: self.dir.clone(),
            env,
            stdin: Vec::new(),
            timeout: self.timeout,
            output_bytes_max: OUTPUT_BYTES_MAX,
        };
        let output = self.host.run(command, self.cancel.clone()).await?;
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        let mut entry = Entry {
            commit: commit.to_owned(),
            seconds: output.duration.as_secs_f64(),
            ..Entry::default()
        };
        let last_words = || {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let last = text
                .lines()
                .rev()
                .map(str::trim)
                .find(|line| !line.is_empty());
            last.map(|line| format!(": {}", line.chars().take(200).collect::<String>()))
                .unwrap_or_default()
        };
        match output.ended {
            Ended::Interrupted => return Ok(None),
            Ended::Exit(0) => match number(&output.stdout) {
                Some(value) => entry.value = Some(value),
                None => {
                    entry.failed = Some(
                        "it did not print one number, and nothing else, on standard output"
                            .to_owned(),
                    )
                }
            },
            Ended::Exit(UNTESTABLE_STATUS) => entry.is_untestable = true,
            Ended::Exit(status) => {
                entry.failed = Some(format!("exit status {status}{}", last_words()))
            }
            Ended::Signal(signal) => {
                entry.failed = Some(format!("ended by signal {signal}{}", last_words()))
            }
            Ended::TimedOut => {
                entry.failed = Some(format!("took longer than {}", show_duration(self.timeout)))
            }
        }
        Ok(Some(entry))
    }

    /// A commit with all that is known of it; `with_files` asks git for its files.
    fn told(
        &self,
        commit: &LineCommit,
        repository: Option<&Repository>,
        with_files: bool,
    ) -> BisectCommit {
        let Some(git) = &commit.git else {
            return BisectCommit {
                id: commit.id.clone(),
                ..BisectCommit::default()
            };
        };
        let files = match (repository, git.parents.first()) {
            (Some(repository), Some(parent)) if with_files => repository
                .changed_paths(parent, &git.id)
                .unwrap_or_default(),
            _ => Vec::new(),
        };
        let date = jiff::Timestamp::from_second(git.author_time_s).map(|time| time.to_string());
        BisectCommit {
            id: commit.id.clone(),
            subject: git.subject.clone(),
            author: git.author.clone(),
            date: date.unwrap_or_default(),
            files,
        }
    }

    /// The measured commits of a search; also notes their marks.
    fn curve(
        &mut self,
        search: &Bisection,
        answer: &BisectAnswer,
        commits: &[LineCommit],
        repository: Option<&Repository>,
    ) -> Vec<CurvePoint> {
        let (first, last) = match (answer.set.first(), answer.set.last()) {
            (Some(first), Some(last)) => (*first, *last),
            _ => (commits.len(), commits.len()),
        };
        let (mut points, mut bad) = (Vec::new(), Vec::new());
        for (at, values) in search.curve() {
            let commit = self.told(&commits[at], repository, false);
            if at < first {
                self.log.good.push(commit.clone());
            } else if at >= last {
                bad.push(commit.clone());
            }
            points.push(CurvePoint {
                commit,
                median: crate::judge::stats::median(&values).unwrap_or(f64::NAN),
                n: values.len(),
                at,
                is_good: at < first,
            });
        }
        // The last mark is the one that git goes on with.
        self.log.bad.extend(bad.into_iter().rev());
        for at in search.untestable() {
            if (first..last).contains(at) {
                let commit = self.told(&commits[*at], repository, false);
                self.log.skipped.push(commit);
            }
        }
        points
    }

    #[allow(clippy::too_many_arguments)]
    async fn show(
        &self,
        answer: &BisectAnswer,
        set: &[&LineCommit],
        curve: Vec<CurvePoint>,
        skipped: Vec<(BisectCommit, String)>,
        merge: Option<BisectCommit>,
        mut notes: Vec<String>,
        repository: Option<&Repository>,
    ) -> Result<Exit, Stop> {
        let exit = if answer.is_settled {
            Exit::Fine
        } else {
            Exit::Failed
        };
        if self.args.json {
            let culprit = match set {
                [one] if answer.is_settled => Some(&one.id),
                _ => None,
            };
            let ids: Vec<&str> = set.iter().map(|commit| commit.id.as_str()).collect();
            let document = json!({
                "culprit": culprit,
                "set": ids,
                "probability": answer.probability,
                "runs": self.runs,
                "builds": self.builds,
                "effect": { "ratio": answer.ratio, "ci95": answer.ci95 },
            });
            show::out(&format!("{document}\n"));
            return Ok(exit);
        }
        let better = match self.args.better {
            Some(BetterArg::Lower) => Some(Better::Lower),
            Some(BetterArg::Higher) => Some(Better::Higher),
            None => self.prepared.as_ref().and_then(MatrixLine::better),
        };
        if let (Some(better), Some(ratio), false) = (better, answer.ratio, set.is_empty()) {
            let is_worse = (ratio > 1.0) == (better == Better::Lower);
            notes.push(format!(
                "this is {}",
                if is_worse {
                    "a regression"
                } else {
                    "an improvement"
                }
            ));
        }
        let log = match repository {
            Some(_) if !set.is_empty() => Some(self.write_log(set).await?),
            _ => None,
        };
        let report = BisectReport {
            commits: curve.last().map_or(0, |point| point.at),
            set: set
                .iter()
                .map(|commit| self.told(commit, repository, set.len() == 1))
                .collect(),
            probability: answer.probability,
            is_settled: answer.is_settled,
            ratio: answer.ratio,
            ci95: answer.ci95,
            proof: answer
                .proof
                .as_ref()
                .map(|proof| (proof.n[0], answer.is_proved())),
            min_effect: self.settings.min_effect,
            drift: answer.drift,
            runs: self.runs,
            builds: self.builds,
            curve,
            skipped,
            merge,
            notes,
            log,
        };
        show::out(&text(&report));
        Ok(exit)
    }

    /// Writes the log for `git bisect replay` beside the state; returns its path.
    async fn write_log(&self, set: &[&LineCommit]) -> Result<String, Stop> {
        let is_merge = set
            .iter()
            .any(|commit| commit.git.as_ref().is_some_and(|git| git.parents.len() > 1));
        let mut all: Vec<(&str, &BisectCommit)> = Vec::new();
        all.extend(self.log.bad.iter().map(|commit| ("bad", commit)));
        all.extend(self.log.good.iter().map(|commit| ("good", commit)));
        all.extend(self.log.skipped.iter().map(|commit| ("skip", commit)));
        let path = self.journal.path.with_extension("log");
        write(self.host, &path, &replay_log(&all, is_merge)).await?;
        Ok(path.display().to_string())
    }
}

/// The one number of an output.
fn number(stdout: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(stdout).ok()?;
    text.trim()
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
}
