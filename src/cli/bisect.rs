//! `matrix bisect`: from a range of commits to the one that moved a number.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::run::block_on;
use super::show::{self, Stop};
use super::{Exit, SEED};
use crate::base::diag::{Diagnostic, Sources};
use crate::base::key::Key;
use crate::base::sample::{Better, Ended};
use crate::base::units::{count, parse_duration, parse_percent, show_duration, show_si};
use crate::edge::git::{Commit, GitError, Repository};
use crate::judge::culprit::CANDIDATES_MAX;
use crate::machine::connect;
use crate::machine::host::{Cancel, Command, FileOp, FileReply, Holder, Host, HostErrorKind};
use crate::report::bisect::{BisectCommit, BisectReport, CurvePoint, replay_log, text};
use crate::run::progress::say;
use crate::run::strategy::bisect::{BisectAnswer, BisectSettings, BisectStep, Bisection, expected};

/// The exit status with which a command says that this commit cannot be measured; git's.
const UNTESTABLE_STATUS: i32 = 125;
/// Bytes of a file of commits, of values, or of the state of a bisection.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Bytes of each stream of the command that are kept.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a name of a commit.
const ID_BYTES_MAX: usize = 200;
/// A prefix of a commit's name that stands for it.
const PREFIX_CHARS_MIN: usize = 7;
/// For one call of git.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);
/// Merges within merges that are gone into.
const MERGES_MAX: usize = 10;
/// Measurements beyond which a search is given up, where no budget is given.
const BUDGET: usize = 1000;

/// Find the commit that moved a number, in place of `git bisect run`.
#[derive(Debug, Args)]
pub struct BisectArgs {
    /// A revision that is as it should be
    #[arg(long, value_name = "REV")]
    good: Option<String>,
    /// A later revision that is not
    #[arg(long, value_name = "REV")]
    bad: Option<String>,
    /// A shell command that prints one number for the commit MATRIX_COMMIT (`{commit}` in its text too). It exits with
    /// 125 where the commit cannot be measured; anything else but 0 is a failure, and tried once more
    #[arg(long, value_name = "CMD")]
    measure: String,
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
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    min_effect: String,
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
    /// Where the state is kept, so that an interrupted bisection goes on
    #[arg(
        long,
        value_name = "DIR",
        env = "MATRIX_STATE",
        default_value = ".matrix"
    )]
    state: PathBuf,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BetterArg {
    Lower,
    Higher,
}

impl From<GitError> for Stop {
    fn from(error: GitError) -> Stop {
        Stop::message(error.to_string())
    }
}

pub fn bisect(args: BisectArgs) -> Exit {
    let result = block_on(async {
        let (sender, cancel) = watch::channel(false);
        let interrupted = interrupts()?;
        tokio::pin!(interrupted);
        let work = carry_out(&args, Cancel::new(cancel));
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
        Err(stop) => show::stopped(&stop, &Sources::default(), args.json),
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

/// What is bisected.
struct Line {
    /// The good end first.
    commits: Vec<LineCommit>,
    repository: Option<Repository>,
}

#[derive(Clone)]
struct LineCommit {
    id: String,
    /// None where there is no repository.
    git: Option<Commit>,
}

/// A line of the state: how one measurement ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    commit: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    /// The command said that this commit cannot be measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_untestable: bool,
    seconds: f64,
}

async fn carry_out(args: &BisectArgs, cancel: Cancel) -> Result<Exit, Stop> {
    let lock = std::env::var_os("MATRIX_LOCK").map(PathBuf::from);
    let host = connect::local("local", lock)?;
    let host = host.as_ref();
    let percent = |text: &str| parse_percent(text).filter(|share| (0.0..1.0).contains(share));
    let Some(min_effect) = percent(&args.min_effect) else {
        let message = format!(
            "`--min-effect {}` is no percentage such as `2%`",
            args.min_effect
        );
        return Err(Stop::message(message));
    };
    let Some(timeout) = parse_duration(&args.timeout) else {
        let message = format!("`--timeout {}` is no duration such as `10m`", args.timeout);
        return Err(Stop::message(message));
    };
    let here = std::env::current_dir()
        .map_err(|error| Stop::message(format!("the current folder cannot be read: {error}")))?;
    let state = here.join(&args.state);
    let line = line(args, host, &here, &state).await?;
    let history = match &args.history {
        Some(path) => read_history(host, &here.join(path), &line.commits).await?,
        None => Vec::new(),
    };
    let journal = Journal::open(host, &state, args, &line.commits).await?;
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
    };
    if args.dry_run {
        return Ok(work.dry_run(&line.commits, &history));
    }
    let waiting = |holder: &str| say(&format!("waiting for this machine: {holder}"));
    let lock = host
        .lock(Holder::this("bisect"), &waiting, work.cancel.clone())
        .await?;
    let result = work.find(line, &history).await;
    lock.release().await;
    result
}

/// Reads the commits, of a file or of the repository.
async fn line(args: &BisectArgs, host: &dyn Host, here: &Path, state: &Path) -> Result<Line, Stop> {
    if let Some(path) = &args.commits {
        let text = read(host, &here.join(path)).await?;
        let ids = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        if let Some(id) = ids.iter().find(|id| !is_plain(id)) {
            return Err(Stop::message(format!(
                "`{id}` in `{}` is no name of a commit: letters, digits and `._/+~^@-` only",
                path.display()
            )));
        }
        let place = |end: &Option<String>, otherwise: usize| match end {
            None => Ok(otherwise),
            Some(end) => find(&ids, end)
                .ok_or_else(|| Stop::message(format!("`{end}` is not in `{}`", path.display()))),
        };
        let good = place(&args.good, 0)?;
        let bad = place(&args.bad, ids.len().saturating_sub(1))?;
        if good >= bad {
            return Err(Stop::message(format!(
                "the good end comes before the bad one: `{}` holds one commit a line, oldest first",
                path.display()
            )));
        }
        let commits = ids[good..=bad].iter().map(|id| LineCommit {
            id: id.clone(),
            git: None,
        });
        return limited(Line {
            commits: commits.collect(),
            repository: None,
        });
    }
    let (Some(good), Some(bad)) = (&args.good, &args.bad) else {
        return Err(Stop::message("name both ends: `--good REV --bad REV`"));
    };
    let repo = args.repo.as_deref().unwrap_or(".");
    let repository = Repository::open(repo, &state.join("git"), GIT_TIMEOUT)?;
    let (good_commit, bad_commit) = (repository.resolve(good)?, repository.resolve(bad)?);
    let base = repository.merge_base(&good_commit.id, &bad_commit.id)?;
    if base.as_ref() != Some(&good_commit.id) || good_commit.id == bad_commit.id {
        let remedy = match base {
            Some(base) if base == bad_commit.id => {
                format!("did you mean `--good {bad} --bad {good}`?")
            }
            Some(base) => format!("measure where they part: `--good {}`", base.short()),
            None => "they have no commit in common".to_owned(),
        };
        return Err(Stop::message(format!(
            "`{good}` does not come before `{bad}`; {remedy}"
        )));
    }
    let mut commits = vec![good_commit];
    commits.extend(repository.first_parent_line(&commits[0].id, &bad_commit.id)?);
    limited(Line {
        commits: commits.into_iter().map(of_git).collect(),
        repository: Some(repository),
    })
}

fn limited(line: Line) -> Result<Line, Stop> {
    match line.commits.len() > CANDIDATES_MAX {
        true => Err(Stop::message(format!(
            "{} are more than {CANDIDATES_MAX}: give ends that are closer",
            count(line.commits.len(), "commit")
        ))),
        false => Ok(line),
    }
}

fn of_git(commit: Commit) -> LineCommit {
    LineCommit {
        id: commit.id.to_string(),
        git: Some(commit),
    }
}

/// Names go into a command of a shell.
fn is_plain(id: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "._/+~^@-".contains(c);
    id.len() <= ID_BYTES_MAX && !id.starts_with('-') && id.chars().all(is_fine)
}

/// The place of a commit by its name, or by a prefix that fits no other.
fn find<T: AsRef<str>>(ids: &[T], name: &str) -> Option<usize> {
    if let Some(place) = ids.iter().position(|id| id.as_ref() == name) {
        return Some(place);
    }
    let fits = |(_, id): &(usize, &T)| id.as_ref().starts_with(name);
    let mut found = ids.iter().enumerate().filter(fits);
    match (found.next(), found.next()) {
        (Some((place, _)), None) if name.len() >= PREFIX_CHARS_MIN => Some(place),
        _ => None,
    }
}

async fn read(host: &dyn Host, path: &Path) -> Result<String, Stop> {
    let op = FileOp::Read {
        path: path.to_owned(),
        bytes_max: FILE_BYTES_MAX,
    };
    let reply = host.files(vec![op]).await.pop();
    match reply {
        Some(Ok(FileReply::Bytes(bytes))) => String::from_utf8(bytes)
            .map_err(|_| Stop::message(format!("`{}` is not UTF-8", path.display()))),
        Some(Err(error)) => Err(error.into()),
        _ => Err(Stop::message(format!(
            "`{}` cannot be read",
            path.display()
        ))),
    }
}

/// The values of commits of the line. Other commits are told and left out.
async fn read_history(
    host: &dyn Host,
    path: &Path,
    line: &[LineCommit],
) -> Result<Vec<(usize, f64)>, Stop> {
    let text = read(host, path).await?;
    let ids: Vec<&str> = line.iter().map(|commit| commit.id.as_str()).collect();
    let exact: BTreeMap<&str, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let (mut values, mut others) = (Vec::new(), 0);
    for (number, row) in (1..).zip(text.lines()) {
        let row = row.trim();
        let fields = row.rsplit_once(',');
        let value = fields.and_then(|(commit, value)| {
            let value: f64 = value
                .trim()
                .parse()
                .ok()
                .filter(|value: &f64| value.is_finite())?;
            Some((commit.trim(), value))
        });
        match value {
            Some((commit, value)) => {
                match exact.get(commit).copied().or_else(|| find(&ids, commit)) {
                    Some(at) => values.push((at, value)),
                    None => others += 1,
                }
            }
            None if number == 1 || row.is_empty() => {}
            None => {
                return Err(Stop::message(format!(
                    "`{}`, line {number}: `{row}` is not `commit,value`",
                    path.display()
                )));
            }
        }
    }
    if others > 0 {
        say(&format!(
            "note: {} of other commits in `{}` left out",
            count(others, "value"),
            path.display()
        ));
    }
    Ok(values)
}

/// What was measured so far, in a file of its own for each question.
struct Journal {
    path: PathBuf,
    text: String,
    /// What is not told to the search yet.
    stored: VecDeque<Entry>,
}

impl Journal {
    async fn open(
        host: &dyn Host,
        state: &Path,
        args: &BisectArgs,
        line: &[LineCommit],
    ) -> Result<Journal, Stop> {
        let ids: Vec<&str> = line.iter().map(|commit| commit.id.as_str()).collect();
        let question = format!("{}\0{}\0{}", args.measure, args.seed, ids.join("\0"));
        let name = format!("bisect-{}.jsonl", Key::of(question.as_bytes()).short());
        let path = state.join(name);
        let ops = vec![
            FileOp::MakeDir {
                path: state.to_owned(),
            },
            FileOp::Read {
                path: path.clone(),
                bytes_max: FILE_BYTES_MAX,
            },
        ];
        let mut replies = host.files(ops).await.into_iter();
        if let Some(Err(error)) = replies.next() {
            return Err(error.into());
        }
        let text = match replies.next() {
            Some(Ok(FileReply::Bytes(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Err(error)) if error.kind != HostErrorKind::NotFound => return Err(error.into()),
            _ => String::new(),
        };
        let mut stored = VecDeque::new();
        for (number, line) in (1..).zip(text.lines()) {
            let entry = serde_json::from_str(line).map_err(|error| {
                Diagnostic::error(format!("`{}`, line {number}: {error}", path.display()))
                    .help("remove the file to begin anew")
            })?;
            stored.push_back(entry);
        }
        Ok(Journal { path, text, stored })
    }

    /// Durable before it is believed.
    async fn add(&mut self, host: &dyn Host, entry: &Entry) -> Result<(), Stop> {
        let line = serde_json::to_string(entry)
            .map_err(|error| Stop::message(format!("a measurement cannot be kept: {error}")))?;
        self.text.push_str(&line);
        self.text.push('\n');
        write(host, &self.path, &self.text).await
    }
}

async fn write(host: &dyn Host, path: &Path, text: &str) -> Result<(), Stop> {
    let op = FileOp::Replace {
        path: path.to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    match host.files(vec![op]).await.pop() {
        Some(Err(error)) => Err(error.into()),
        _ => Ok(()),
    }
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
}

/// How a search of one line ended.
enum Searched {
    Answer(BisectAnswer),
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
            "{}; {} and {} are known\nexpected: about {builds} builds and {likely} measurements for a change of 3 \
             times the noise, {more} for 2 times\n",
            count(commits, "commit"),
            count(stored, "measurement"),
            count(values, "value of the history")
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
            outer = Some((answer, curve));
            commits = inside;
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
        loop {
            let at = match search.next() {
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
        let command = Command {
            argv: vec![
                "sh".into(),
                "-c".into(),
                self.args.measure.replace("{commit}", commit),
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
            value: None,
            failed: None,
            is_untestable: false,
            seconds: output.duration.as_secs_f64(),
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
        if let (Some(better), Some(ratio), false) = (self.args.better, answer.ratio, set.is_empty())
        {
            let better = match better {
                BetterArg::Lower => Better::Lower,
                BetterArg::Higher => Better::Higher,
            };
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

/// The line inside a merge: where the branch parted, its commits, and the merge; None of any other commit.
fn inside_of(
    commit: &LineCommit,
    repository: &Repository,
) -> Result<Option<Vec<LineCommit>>, Stop> {
    let Some(git) = &commit.git else {
        return Ok(None);
    };
    let [main, branch] = &git.parents[..] else {
        return Ok(None);
    };
    let Some(base) = repository.merge_base(main, branch)? else {
        return Ok(None);
    };
    let side = repository.first_parent_line(main, branch)?;
    if side.is_empty() {
        return Ok(None);
    }
    let mut line = vec![of_git(repository.resolve(base.as_str())?)];
    line.extend(side.into_iter().map(of_git));
    line.push(commit.clone());
    Ok(Some(line))
}

/// The one number of an output.
fn number(stdout: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(stdout).ok()?;
    text.trim()
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
}
