//! `matrix nightly`: what new commits did, found and mailed by a run that nobody watches.

mod install;
pub mod state;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::calibrate::NIGHTLY;
use super::load::{Loaded, load};
use super::machine::this_machine;
use super::run::{Extent, FailOn, Shown, block_on, exit_of, measured};
use super::session::SelectionArgs;
use super::show::{self, Stop};
use super::{Common, Exit, gc};
use crate::base::diag::Sources;
use crate::base::sample::Ended;
use crate::base::units::{count, parse_duration};
use crate::config::hook::Moment;
use crate::config::night::{MailDecl, MailTransport};
use crate::edge::git::{Commit, GitError, Oid, Repository};
use crate::machine::host::{Cancel, Command, FileOp, Host, file};
use crate::report::mail::{Mail, MailSource, issue, mail};
use crate::resolve::versions::subject_repository;
use crate::run::command::now_ms;
use crate::run::hooks::About;
use crate::run::progress::say;
use crate::verdicts::nights::{
    CauseEnd, EndKind, FoundCause, NightRecord, Nights, SuspectCommit, end_of, found,
};
use crate::verdicts::report::Report;
use crate::verdicts::time::time;
use state::StateFile;

/// Matrices of one night.
const MATRICES_MAX: usize = 1000;
/// Looks at commits between those that were picked, each at so many at the most.
const NARROWINGS_MAX: usize = 8;
const NARROW_COMMITS_MAX: usize = 7;
/// For one mail.
const MAIL_TIMEOUT: Duration = Duration::from_secs(120);
const MAIL_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Characters of an issue's name.
const ISSUE_CHARS_MAX: usize = 200;
/// How long artifacts are kept that nobody uses.
const KEEP: &str = "30d";

#[derive(Debug, Args)]
pub struct NightlyArgs {
    /// The matrix files, in their order
    #[arg(required = true, num_args = 1.., value_name = "FILE")]
    matrices: Vec<PathBuf>,
    /// The preset, instead of that of `[nightly]`, `nightly`, or the matrix's own
    #[arg(long)]
    preset: Option<String>,
    /// The subject's repository, a path (never written to) or a URL, instead of the matrix's own
    #[arg(long, value_name = "PATH|URL")]
    repo: Option<String>,
    /// Where results are kept; `.matrix` beside each matrix file otherwise
    #[arg(long, value_name = "DIR", env = "MATRIX_STATE")]
    state: Option<PathBuf>,
    /// Stop measuring a matrix after this time, instead of what it says
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,
    /// Remove artifacts that nobody uses when they are older than this
    #[arg(long, value_name = "AGE", value_parser = duration, default_value = KEEP)]
    keep: Duration,
    /// Measure, and show the mails instead of sending them; nothing is remembered of the night but what was measured
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    install: install::InstallArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration such as `6h` or `30d`".to_owned())
}

pub fn nightly(args: NightlyArgs) -> Exit {
    if args.matrices.len() > MATRICES_MAX {
        let message = format!(
            "{} matrices; at most {MATRICES_MAX} are allowed in one night",
            args.matrices.len()
        );
        return show::stopped(&Stop::message(message), &Sources::default(), false);
    }
    if args.install.is_asked() {
        return match block_on(install::install(&args.install, &args.matrices)) {
            Ok(()) => Exit::Fine,
            Err(stop) => show::stopped(&stop, &Sources::default(), false),
        };
    }
    let mut worst = Exit::Nothing;
    for path in &args.matrices {
        let (exit, line) = block_on(night(&args, path));
        show::out(&format!("{}: {line}\n", path.display()));
        worst = worse(worst, exit);
        if exit == Exit::Interrupted {
            break;
        }
    }
    worst
}

/// That of several matrices which says most.
fn worse(a: Exit, b: Exit) -> Exit {
    let rank = |exit: Exit| match exit {
        Exit::Nothing => 0,
        Exit::Fine => 1,
        Exit::Regression => 2,
        Exit::Failed => 3,
        Exit::Usage => 4,
        Exit::Interrupted => 5,
    };
    if rank(b) > rank(a) { b } else { a }
}

/// The night of one matrix: its exit code, and what came of it in one line.
async fn night(args: &NightlyArgs, path: &Path) -> (Exit, String) {
    let began = time(now_ms());
    let told = |stop: Stop| {
        let first = stop.diagnostics.first();
        let line = first.map_or(String::new(), |it| match &it.help {
            Some(help) => format!("{}; {help}", it.message),
            None => it.message.clone(),
        });
        (stop.exit, line.replace('\n', " "))
    };
    let mut sources = Sources::default();
    let loaded = match load(&common(args, path), &mut sources) {
        Ok(loaded) => loaded,
        Err(stop) => {
            // Where in the file it is.
            show::diagnostics(&stop.diagnostics, &sources);
            return told(stop);
        }
    };
    let state = match StateFile::open(&loaded.state, &loaded.matrix.name).await {
        Ok(Some(state)) => state,
        Ok(None) => {
            let line = "the night before it still runs; this one is left out".to_owned();
            return (Exit::Nothing, line);
        }
        Err(stop) => return told(stop),
    };
    let mut night = Night {
        args,
        path,
        loaded: &loaded,
        now: began.clone(),
        lines: Vec::new(),
        exit: Exit::Nothing,
        has_measured: false,
        nights: state.nights.clone(),
    };
    let done = night.pass(&state).await;
    if let Err(stop) = done {
        let (exit, line) = told(stop);
        night.ends_with(exit);
        night.lines.push(line);
    }
    let line = night.lines.join("; ");
    let record = NightRecord {
        began,
        ended: time(now_ms()),
        exit: night.exit as u8,
        line: line.clone(),
    };
    night.nights.add_night(record);
    if args.dry_run {
        return (night.exit, line);
    }
    match state.save(&night.nights).await {
        Ok(()) => (night.exit, line),
        Err(stop) => {
            let (exit, reason) = told(stop);
            (worse(night.exit, exit), format!("{line}; {reason}"))
        }
    }
}

fn common(args: &NightlyArgs, path: &Path) -> Common {
    Common {
        preset: args.preset.clone(),
        repo: args.repo.clone(),
        ..Common::of(path, args.state.as_deref())
    }
}

/// A night under way.
struct Night<'a> {
    args: &'a NightlyArgs,
    path: &'a Path,
    loaded: &'a Loaded,
    /// When it began: ISO 8601, UTC.
    now: String,
    /// What came of it so far.
    lines: Vec<String>,
    exit: Exit,
    /// Versions were measured that had not been.
    has_measured: bool,
    nights: Nights,
}

/// Which samples of the two sides are compared. Nights differ: what is new is measured in one session with what it is
/// compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NightSides {
    /// Those that there are; what is missing is measured.
    Stored,
    /// Both are measured again.
    Fresh,
    /// Both are measured again where anything is missing.
    WithNew,
}

impl Night<'_> {
    fn ends_with(&mut self, exit: Exit) {
        self.exit = worse(self.exit, exit);
    }

    async fn pass(&mut self, state: &StateFile) -> Result<(), Stop> {
        let matrix = &self.loaded.matrix;
        self.nights.matrix.clone_from(&matrix.name);
        let here = Path::new(&matrix.here);
        let repo = self.args.repo.as_deref();
        let repository = subject_repository(matrix, repo, here, &self.loaded.state);
        let mut repository = repository.map_err(|error| Stop {
            exit: Exit::Failed,
            ..Stop::message(error.to_string())
        })?;
        let looked = match repository.update() {
            Ok(()) => self.look(&repository).await,
            Err(error) => {
                // What is there was measured the night before.
                self.ends_with(Exit::Failed);
                self.lines.push(format!("nothing new: {error}"));
                Ok(())
            }
        };
        // What nights before could not send has its turn in any case.
        self.mail(&repository, state).await?;
        self.track(&repository, state).await?;
        self.trim().await;
        looked
    }

    /// Measures what is new, and looks after what stands.
    async fn look(&mut self, repository: &Repository) -> Result<(), Stop> {
        let nightly = &self.loaded.matrix.nightly;
        let tip = repository.resolve(&nightly.branch)?;
        let hash = tip.id.to_string();
        let before = self.nights.tip.clone();
        let news = match &before {
            Some(before) if *before == hash => Some(Vec::new()),
            Some(before) => new_commits(repository, before, &hash)?,
            None => None,
        };
        let mut line: Vec<Oid> = before.iter().filter_map(|it| Oid::parse(it)).collect();
        let found = match news {
            Some(commits) if commits.is_empty() => {
                self.ends_with(Exit::Fine);
                self.lines.push("no new commits".to_owned());
                Vec::new()
            }
            Some(commits) => {
                line.extend(commits.iter().map(|commit| commit.id.clone()));
                self.compare(&line).await?
            }
            None => {
                self.run(&[tip.id.short()], None, NightSides::Stored)
                    .await?;
                let short = tip.id.short();
                self.lines.push(format!(
                    "`{short}` is measured, which the commits after it are compared with"
                ));
                self.nights.tip = Some(hash.clone());
                Vec::new()
            }
        };
        if self.exit == Exit::Interrupted {
            return Ok(());
        }
        self.look_after(&tip).await?;
        let hashes: Vec<String> = line.iter().map(Oid::to_string).collect();
        let new = self.nights.take_up(found, &hashes, &self.now);
        if new > 0 {
            let causes = self.nights.causes.iter().rev().take(new);
            let effects: Vec<bool> = causes
                .flat_map(|cause| cause.effects.iter().map(|it| it.is_regression))
                .collect();
            if effects.contains(&true) {
                self.ends_with(Exit::Regression);
            }
            self.lines
                .push(format!("{} found", count(new, "new change")));
        }
        Ok(())
    }

    /// Measures what is picked of a line of commits against its first one, then what lies between where something changed.
    async fn compare(&mut self, line: &[Oid]) -> Result<Vec<FoundCause>, Stop> {
        let labels: Vec<String> = line.iter().map(|id| id.short().to_owned()).collect();
        let picks = self.loaded.matrix.nightly.pick.of(line.len() - 1);
        let mut picked: BTreeSet<usize> = picks.into_iter().map(|at| at + 1).collect();
        let mut causes = Vec::new();
        for _ in 0..=NARROWINGS_MAX {
            let versions: Vec<&str> = picked.iter().map(|at| labels[*at].as_str()).collect();
            let report = self
                .run(&versions, Some(&labels[0]), NightSides::WithNew)
                .await?;
            causes = found(&report, &labels);
            let is_over = report.left_out.is_some_and(|left| left.cells > 0);
            if is_over || self.exit == Exit::Interrupted {
                // What there was no time for is new the next night again.
                break;
            }
            self.nights.tip = line.last().map(Oid::to_string);
            let between = between(&causes, &picked);
            if between.is_empty() {
                break;
            }
            picked.extend(between);
        }
        self.lines.push(format!(
            "{} of {} measured",
            picked.len(),
            count(line.len() - 1, "new commit")
        ));
        Ok(causes)
    }

    /// Compares the tip with the commit before each cause that stands.
    async fn look_after(&mut self, tip: &Commit) -> Result<(), Stop> {
        let befores: BTreeSet<String> = self
            .nights
            .open()
            .map(|cause| cause.before.clone())
            .collect();
        for before in befores.iter().filter_map(|it| Oid::parse(it)) {
            if before == tip.id {
                continue;
            }
            let sides = match self.has_measured {
                true => NightSides::Fresh,
                false => NightSides::Stored,
            };
            let report = self
                .run(&[tip.id.short()], Some(before.short()), sides)
                .await?;
            if self.exit == Exit::Interrupted {
                return Ok(());
            }
            let before = before.to_string();
            let mut ended = Vec::new();
            for cause in &mut self.nights.causes {
                if cause.closed.is_some() || cause.before != before {
                    continue;
                }
                if let Some(how) = end_of(cause, &report) {
                    cause.closed = Some(CauseEnd {
                        how,
                        commit: tip.id.to_string(),
                        at: self.now.clone(),
                    });
                    // Who was told of nothing is not told of its end.
                    cause.has_news = cause.thread.is_some();
                    cause.is_untracked = cause.issue.is_some();
                    ended.push(how);
                }
            }
            for (kind, word) in [
                (EndKind::Recovered, "gone"),
                (EndKind::Accepted, "accepted"),
            ] {
                let many = ended.iter().filter(|it| **it == kind).count();
                if many > 0 {
                    self.lines.push(format!("{} {word}", count(many, "change")));
                }
            }
        }
        Ok(())
    }

    /// Measures versions, and judges them.
    async fn run(
        &mut self,
        versions: &[&str],
        against: Option<&str>,
        sides: NightSides,
    ) -> Result<Report, Stop> {
        let nightly = &self.loaded.matrix.nightly;
        let mut common = common(self.args, self.path);
        common.preset = self.preset();
        common.versions = versions.iter().map(|it| (*it).to_owned()).collect();
        common.against = against.map(str::to_owned);
        let choosing = SelectionArgs {
            budget: self.args.budget.or(nightly.budget),
            fresh: sides == NightSides::Fresh,
            side_by_side: sides == NightSides::WithNew,
            ..SelectionArgs::default()
        };
        let mut sources = Sources::default();
        let shown: Shown = measured(
            &common,
            &choosing,
            false,
            None,
            Extent::default(),
            &mut sources,
        )
        .await?;
        match exit_of(&shown, FailOn::Any) {
            // Whether it is new is not said by it.
            Exit::Regression => self.ends_with(Exit::Fine),
            exit => self.ends_with(exit),
        }
        self.has_measured |= shown.ran && sides != NightSides::Fresh;
        if shown.interrupted {
            self.lines
                .push("interrupted: the next night goes on".to_owned());
        }
        if let Some(failed) = shown.report.failed.first() {
            let reason = failed.reason.lines().next().unwrap_or("");
            self.lines.push(format!(
                "{} failed, such as {}: {reason}",
                count(shown.report.failed.len(), "cell"),
                failed.cell
            ));
        }
        Ok(shown.report)
    }

    fn preset(&self) -> Option<String> {
        let matrix = &self.loaded.matrix;
        let own = || {
            let mut presets = matrix.presets.iter();
            let is_there = presets.any(|preset| preset.name.value == NIGHTLY);
            is_there.then(|| NIGHTLY.to_owned())
        };
        let declared = || matrix.nightly.preset.clone();
        self.args.preset.clone().or_else(declared).or_else(own)
    }

    /// Mails what nobody was told of yet. What cannot be sent is tried again the next night.
    async fn mail(&mut self, repository: &Repository, state: &StateFile) -> Result<(), Stop> {
        let Some(policy) = &self.loaded.matrix.mail else {
            self.nights
                .causes
                .iter_mut()
                .for_each(|it| it.has_news = false);
            return Ok(());
        };
        let host = this_machine()?;
        let preset = self.preset().unwrap_or_default();
        let file = self.path.display().to_string();
        let (mut sent, mut unsent) = (0, Vec::new());
        for at in 0..self.nights.causes.len() {
            let cause = &self.nights.causes[at];
            if !cause.has_news {
                continue;
            }
            let commits = suspects(repository, &cause.commits)?;
            let source = MailSource {
                matrix: &self.loaded.matrix.name,
                file: &file,
                preset: &preset,
                cause,
                commits: &commits,
            };
            let made = mail(policy, &source);
            let mail = match made {
                Ok(Some(mail)) => mail,
                Ok(None) => {
                    self.nights.causes[at].has_news = false;
                    continue;
                }
                Err(reason) => {
                    unsent.push(reason);
                    continue;
                }
            };
            if self.args.dry_run {
                show::out(&String::from_utf8_lossy(&mail.bytes));
                show::out("\n");
            } else if let Err(reason) = self.send(host.as_ref(), policy, &mail).await {
                unsent.push(reason);
                continue;
            }
            sent += 1;
            let cause = &mut self.nights.causes[at];
            cause.has_news = false;
            cause.thread = Some(mail.thread);
            if !self.args.dry_run {
                // Before the next one is sent: nobody gets the same mail twice.
                state.save(&self.nights).await?;
            }
        }
        if sent > 0 {
            let word = if self.args.dry_run { "shown" } else { "sent" };
            self.lines.push(format!("{} {word}", count(sent, "mail")));
        }
        if let Some(reason) = unsent.first() {
            self.ends_with(Exit::Failed);
            self.lines.push(format!(
                "{} not sent: {reason}; the next night tries again",
                count(unsent.len(), "mail")
            ));
        }
        Ok(())
    }

    /// Tells the tracker's hook what it was not told of yet; what fails is tried again the next night.
    async fn track(&mut self, repository: &Repository, state: &StateFile) -> Result<(), Stop> {
        let hooks = self.loaded.hooks().await?;
        if !hooks.has(Moment::OnCause) || self.args.dry_run {
            return Ok(());
        }
        let preset = self.preset().unwrap_or_default();
        let file = self.path.display().to_string();
        for at in 0..self.nights.causes.len() {
            let cause = &self.nights.causes[at];
            if !cause.is_untracked {
                continue;
            }
            let commits = suspects(repository, &cause.commits)?;
            let news = issue(&MailSource {
                matrix: &self.loaded.matrix.name,
                file: &file,
                preset: &preset,
                cause,
                commits: &commits,
            });
            let told = hooks.ask(Moment::OnCause, About::Cause(&news)).await;
            match told {
                Some(Err(reason)) => {
                    self.ends_with(Exit::Failed);
                    self.lines
                        .push(format!("{reason}; the next night tries again"));
                    break;
                }
                Some(Ok(printed)) => {
                    let cause = &mut self.nights.causes[at];
                    cause.is_untracked = false;
                    let name = printed.lines().next().unwrap_or("").trim();
                    if cause.issue.is_none() && !name.is_empty() {
                        cause.issue = Some(name.chars().take(ISSUE_CHARS_MAX).collect());
                    }
                    // Before the next one is told: no cause has two issues.
                    state.save(&self.nights).await?;
                }
                None => {}
            }
        }
        Ok(())
    }

    async fn send(&self, host: &dyn Host, policy: &MailDecl, mail: &Mail) -> Result<(), String> {
        let here = Path::new(&self.loaded.matrix.here);
        match &policy.transport {
            MailTransport::Folder(folder) => {
                let folder = here.join(folder);
                let id = mail.thread.ids.last().map_or("", String::as_str);
                let name: String = id.chars().filter(|c| !"<>/".contains(*c)).collect();
                let path = folder.join(format!("{name}.eml"));
                let bytes = mail.bytes.clone();
                for op in [
                    FileOp::MakeDir { path: folder },
                    FileOp::Replace { path, bytes },
                ] {
                    file(host, op).await.map_err(|error| error.message)?;
                }
                Ok(())
            }
            MailTransport::Sendmail(line) => {
                let words = shlex::split(line).filter(|words| !words.is_empty());
                let mut argv = words.ok_or_else(|| format!("`{line}` is no command"))?;
                argv.extend(["-i", "-f", &policy.from, "--"].map(str::to_owned));
                argv.extend(mail.recipients.iter().cloned());
                let command = Command {
                    argv,
                    dir: here.to_owned(),
                    env: Vec::new(),
                    stdin: mail.bytes.clone(),
                    timeout: MAIL_TIMEOUT,
                    output_bytes_max: MAIL_OUTPUT_BYTES_MAX,
                };
                let output = host.run(command, Cancel::never()).await;
                let output = output.map_err(|error| error.message)?;
                let words = String::from_utf8_lossy(&output.stderr);
                match output.ended {
                    Ended::Exit(0) => Ok(()),
                    ended => Err(format!("`{line}`: {ended} {}", words.trim())),
                }
            }
        }
    }

    /// Removes old artifacts.
    async fn trim(&mut self) {
        if self.args.dry_run || self.exit == Exit::Interrupted {
            return;
        }
        let removed = gc::remove(&self.loaded.state, Some(self.args.keep), None, false).await;
        if let Err(stop) = removed {
            show::diagnostics(&stop.diagnostics, &Sources::default());
        }
    }
}

/// The commits after one up to another, oldest first. None where the one is not before the other any more.
fn new_commits(
    repository: &Repository,
    from: &str,
    to: &str,
) -> Result<Option<Vec<Commit>>, GitError> {
    match repository.range(&format!("{from}..{to}"), true) {
        Ok(commits) => {
            let parent = commits.first().and_then(|first| first.parents.first());
            let follows = parent.is_some_and(|parent| parent.as_str() == from);
            if !follows {
                say("note: the branch was rewritten: its tip is measured anew");
            }
            Ok(Some(commits).filter(|_| follows))
        }
        Err(GitError::EmptyRange { .. } | GitError::UnknownRevision { .. }) => {
            say("note: the branch was rewritten: its tip is measured anew");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Commits that were not picked, where something may have changed at them: of each cause as many as divide it evenly.
fn between(causes: &[FoundCause], picked: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for cause in causes {
        let open = cause.commits.iter().filter(|at| !picked.contains(at));
        let open: Vec<usize> = open.copied().collect();
        let step = open.len().div_ceil(NARROW_COMMITS_MAX).max(1);
        all.extend(open.iter().skip(step / 2).step_by(step));
    }
    all
}

fn suspects(repository: &Repository, commits: &[String]) -> Result<Vec<SuspectCommit>, GitError> {
    let ids: Vec<Oid> = commits.iter().filter_map(|it| Oid::parse(it)).collect();
    let texts = repository.describe(&ids)?.into_iter();
    let suspect = |text: crate::edge::git::CommitText| SuspectCommit {
        hash: text.id.to_string(),
        author: text.author,
        author_email: text.author_email,
        committer_email: text.committer_email,
        authored: time(text.authored_s.saturating_mul(1000)),
        message: text.message,
    };
    Ok(texts.map(suspect).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_is_divided() {
        let check =
            |commits: std::ops::RangeInclusive<usize>, picked: &[usize], expected: &[usize]| {
                let cause = FoundCause {
                    before: 0,
                    commits: commits.collect(),
                    effects: Vec::new(),
                };
                let picked = picked.iter().copied().collect();
                let found: Vec<usize> = between(&[cause], &picked).into_iter().collect();
                assert_eq!(found, expected);
            };
        check(1..=1, &[1], &[]);
        check(1..=4, &[4], &[1, 2, 3]);
        check(1..=15, &[15], &[2, 4, 6, 8, 10, 12, 14]);
    }

    #[test]
    fn the_exit_code_says_most() {
        assert_eq!(worse(Exit::Nothing, Exit::Fine), Exit::Fine);
        assert_eq!(worse(Exit::Regression, Exit::Fine), Exit::Regression);
        assert_eq!(worse(Exit::Regression, Exit::Failed), Exit::Failed);
    }
}
