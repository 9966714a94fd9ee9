//! What is asked of git: revisions, ranges, tree digests, patches of a subject, and check-outs on machines.
//!
//! Git is the program. What planning asks runs on the orchestrator, and the calling thread waits; a check-out runs
//! on the machine that builds, which gets the sources as a pack of what it lacks. A local repository is used in
//! place and never written to: commits made of patches go to a bare repository of our own that borrows the other's
//! objects for reading.

mod checkout;
mod describe;
mod error;
pub mod files;
mod line;
mod lock;
mod pack;
mod patches;
mod program;
mod submodule;
mod tree;
mod version;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use checkout::{Checkout, WorkFolder};
pub use describe::{CommitText, DESCRIBED_MAX, MESSAGE_BYTES_MAX};
pub use error::GitError;
pub use pack::Sources;
pub use patches::{MBOX_BYTES_MAX, PATCHES_MAX};
pub use submodule::{NeededSubmodule, Submodule, SubmoduleSources};
pub use tree::TreeDigest;
pub use version::{VersionSource, VersionSpec, parse_version};

use crate::base::diag::nearest;
use crate::base::key::Key;
use crate::base::pattern::Pattern;
use crate::base::secret::mask_secrets;
use crate::plan::commands::CommitName;
use program::Call;
use tree::Trees;

/// Commits in a range.
pub const COMMITS_MAX: usize = 20_000;
/// Commits of a first-parent line that are read.
pub const COMMITS_OF_LINE_MAX: usize = 1_000_000;
/// So many are read at first: as a rule one of them is known.
const LINE_COMMITS_FIRST: usize = 64;
/// References that are looked through for a near name.
pub const REFS_MAX: usize = 100_000;
/// Characters of a commit's subject that are kept.
const SUBJECT_CHARS_MAX: usize = 200;

/// The name of an object: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(String);

impl Oid {
    /// None for anything but a whole name.
    pub fn parse(text: &str) -> Option<Oid> {
        let is_hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (is_hex && matches!(text.len(), 40 | 64)).then(|| Oid(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Twelve digits: unique in practice in the largest repositories.
    pub fn short(&self) -> &str {
        &self.0[..12]
    }

    fn from_bytes(bytes: &[u8]) -> Oid {
        Oid(bytes.iter().map(|b| format!("{b:02x}")).collect())
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    pub id: Oid,
    /// The first parent first; empty for a root and where a shallow clone ends.
    pub parents: Vec<Oid>,
    /// The first line of the message, at most 200 characters.
    pub subject: String,
    pub author: String,
    /// Seconds since 1970, UTC.
    pub author_time_s: i64,
    /// The committer's, likewise.
    pub commit_time_s: i64,
}

impl Commit {
    /// What commands can say of it.
    pub fn name(&self) -> CommitName {
        let date = jiff::Timestamp::from_second(self.commit_time_s);
        CommitName {
            id: self.id.to_string(),
            date: date.map_or(String::new(), |date| date.to_string()),
        }
    }
}

/// Where a commit stands in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitPosition {
    /// Seconds since 1970, UTC.
    pub time_s: i64,
    /// Commits on its first-parent line.
    pub depth: i64,
}

/// The git repository of a subject.
pub struct Repository {
    /// As messages show it: what the user wrote, without a password.
    name: String,
    /// The repository with the references: the user's own (read only), or a mirror of ours.
    source: PathBuf,
    /// Set where `source` is a mirror: the URL and the mirror's lock file.
    mirror: Option<Mirror>,
    own: Own,
    is_shallow: bool,
    /// `sha1` or `sha256`.
    object_format: String,
    /// What its folders are called.
    stem: String,
    /// For one network operation, and for a lock that another process holds.
    timeout: Duration,
    trees: Trees,
}

struct Mirror {
    url: String,
    lock: PathBuf,
}

/// Our bare repository, which takes all that we write.
#[derive(Clone)]
struct Own {
    git_dir: PathBuf,
    /// The source's object folder, in the form of `GIT_ALTERNATE_OBJECT_DIRECTORIES`.
    borrowed: String,
}

impl Own {
    /// A call that sees the source's objects and ours. It must not write objects.
    fn reading(&self, name: &str) -> Call {
        self.writing(name)
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &self.borrowed)
    }

    /// A call that sees our objects only. Git does not write an object that it can see; it sets
    /// the time of the file that holds it, and that file would be the source's.
    fn writing(&self, name: &str) -> Call {
        Call::local(Some(&self.git_dir), name)
    }
}

/// What a first call of git tells of a repository.
struct RepositoryFacts {
    git_dir: PathBuf,
    objects: PathBuf,
    /// `sha1` or `sha256`.
    object_format: String,
    is_shallow: bool,
}

impl Repository {
    /// Opens the repository at a path, in place, or the mirror of a URL below the folder
    /// `mirrors`, which is cloned if it is not there yet. `timeout` is for one network operation.
    ///
    /// A repository that belongs to another user is fine; a folder inside another repository is
    /// not taken for that one.
    pub fn open(source: &str, mirrors: &Path, timeout: Duration) -> Result<Repository, GitError> {
        files::make_dir(mirrors)?;
        let mirrors = files::resolve(mirrors)?.unwrap_or_else(|| mirrors.to_owned());
        let name = mask_secrets(source).into_owned();
        let (path, mirror) = if is_url(source) {
            let stem = mirrors.join(folder_name(source));
            let mirror = Mirror {
                url: source.to_owned(),
                lock: stem.with_added_extension("lock"),
            };
            let path = stem.with_added_extension("git");
            if !files::is_folder(&path) {
                clone(&mirror, &path, &name, timeout)?;
            }
            (path, Some(mirror))
        } else {
            let missing = || GitError::Missing { repo: name.clone() };
            let path = files::resolve(Path::new(source))?.ok_or_else(missing)?;
            (path, None)
        };
        let facts = RepositoryFacts::of(&path, &name)?;
        let stem = folder_name(&facts.git_dir.to_string_lossy());
        let own = open_own(mirrors.join(format!("{stem}.own.git")), &facts, timeout)?;
        Ok(Repository {
            name,
            source: facts.git_dir,
            mirror,
            trees: Trees::new(own.clone()),
            own,
            is_shallow: facts.is_shallow,
            object_format: facts.object_format,
            stem,
            timeout,
        })
    }

    /// Fetches branches and tags into a mirror; does nothing for a repository used in place.
    /// Commits that a force-push took away stay: older results refer to them.
    pub fn update(&mut self) -> Result<(), GitError> {
        let Some(mirror) = &self.mirror else {
            return Ok(());
        };
        let _lock = lock::take(&mirror.lock, self.timeout)?;
        Call::network(Some(&self.source), "fetch", self.timeout)
            .args(["--quiet", "--prune", "--no-write-fetch-head", "--"])
            .arg(&mirror.url)
            .args(["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
            .run()
            .map_err(|error| unreachable_error(error, &self.name))?;
        Ok(())
    }

    /// The commit that a branch, tag, hash or any other revision of git's (`HEAD~3`) names.
    /// Also finds the commits that [`Repository::apply`] made, by their whole hash.
    pub fn resolve(&self, revision: &str) -> Result<Commit, GitError> {
        version::check_revision(revision)?;
        let call = match Oid::parse(revision) {
            Some(id) if self.is_own(&id)? => self.own.writing("rev-list"),
            _ => Call::local(Some(&self.source), "rev-list"),
        };
        let commit = format!("{revision}^{{commit}}");
        let output = list_commits(call)
            .args(["--no-walk", "--end-of-options", &commit, "--"])
            .output()?;
        if output.is_success()
            && let Some(commit) = parse_commits(&output.stdout).pop()
        {
            return Ok(commit);
        }
        let words = output.words();
        let is_unknown = [
            "unknown revision",
            "bad revision",
            "bad object",
            "ambiguous",
        ]
        .iter()
        .any(|word| words.contains(word));
        if !is_unknown {
            return Err(output.error());
        }
        Err(GitError::UnknownRevision {
            revision: revision.to_owned(),
            repo: self.name.clone(),
            hint: self.near(revision, output.stderr())?,
        })
    }

    /// The commits of `A..B`, oldest first, no commit before one of its parents: those that can be reached from B
    /// and not from A, as in git; with `first_parent` only those on the first-parent line of B. A itself is not
    /// among them. Never empty.
    pub fn range(&self, range: &str, first_parent: bool) -> Result<Vec<Commit>, GitError> {
        let (from, to) = version::split_range(range)?;
        let (from_id, to_id) = (self.resolve(from)?.id, self.resolve(to)?.id);
        let empty = |why: String| GitError::EmptyRange {
            range: range.to_owned(),
            why,
        };
        if from_id == to_id {
            return Err(empty("both ends are the same commit".to_owned()));
        }
        let output = list_commits(Call::local(Some(&self.source), "rev-list"))
            .args(first_parent.then_some("--first-parent"))
            .args(["--topo-order", "--reverse"])
            .arg(format!("--max-count={}", COMMITS_MAX + 1))
            .arg(format!("{from_id}..{to_id}"))
            .arg("--")
            .run()?;
        let commits = parse_commits(&output);
        // A shallow clone shows its oldest commits without parents.
        if self.is_shallow && commits.iter().any(|commit| commit.parents.is_empty()) {
            return Err(GitError::Shallow {
                repo: self.name.clone(),
                wanted: from.to_owned(),
            });
        }
        match commits.len() {
            0 => Err(empty(format!(
                "`{to}` comes before `{from}`; did you mean `{to}..{from}`?"
            ))),
            n if n > COMMITS_MAX => Err(GitError::TooMuch {
                what: format!("commits in `{range}`"),
                max: COMMITS_MAX as u64,
            }),
            _ => Ok(commits),
        }
    }

    /// Those of some commits that contain another one, which itself is not among them.
    pub fn containing(&self, wanted: &Oid, commits: &[Oid]) -> Result<HashSet<Oid>, GitError> {
        let mut starts = format!("^{wanted}\n");
        commits.iter().for_each(|id| starts += &format!("{id}\n"));
        // Of what is not reached from `wanted`, that which reaches it.
        let call = self.own.reading("rev-list");
        let call = call.args(["--ancestry-path", "--stdin"]);
        let output = call.stdin(starts.into_bytes()).run()?;
        let text = String::from_utf8_lossy(&output);
        let of_path: HashSet<Oid> = text.lines().filter_map(Oid::parse).collect();
        let mut containing: HashSet<Oid> = commits.iter().cloned().collect();
        containing.retain(|id| of_path.contains(id));
        Ok(containing)
    }

    /// Adds to `known` where commits stand in the history, with all on their first-parent lines as far as these are
    /// not known.
    ///
    /// Time is the committer's, but never before that of the first parent, as in git's corrected commit dates; so
    /// (time, depth) ascends along a line, and lines that have parted are side by side in time.
    pub fn standings(
        &self,
        commits: &[Oid],
        known: &mut HashMap<Oid, CommitPosition>,
    ) -> Result<(), GitError> {
        for commit in commits {
            // Our own repository does not know where a shallow clone ends.
            if known.contains_key(commit) || self.is_shallow && self.is_own(commit)? {
                continue;
            }
            for max in [LINE_COMMITS_FIRST, COMMITS_OF_LINE_MAX] {
                let line = self.first_parents(commit, max)?;
                let is_known = |(id, _): &(Oid, i64)| known.contains_key(id);
                let met = line.iter().position(is_known);
                if met.is_none() && line.len() == max && max < COMMITS_OF_LINE_MAX {
                    continue;
                }
                let met = met.unwrap_or(line.len());
                let first = line.get(met).and_then(|(id, _)| known.get(id)).copied();
                let mut standing = first.unwrap_or(CommitPosition {
                    time_s: i64::MIN,
                    depth: 0,
                });
                for (id, time_s) in line[..met].iter().rev() {
                    standing.time_s = standing.time_s.max(*time_s);
                    standing.depth += 1;
                    known.insert(id.clone(), standing);
                }
                break;
            }
        }
        Ok(())
    }

    /// A commit and its first parents with the committer's time, the latest first.
    fn first_parents(&self, commit: &Oid, max: usize) -> Result<Vec<(Oid, i64)>, GitError> {
        let call = match self.is_own(commit)? {
            true => self.own.reading("rev-list"),
            false => Call::local(Some(&self.source), "rev-list"),
        };
        let output = call
            .args(["--first-parent", "--timestamp"])
            .arg(format!("--max-count={max}"))
            .args([commit.as_str(), "--"])
            .run()?;
        let output = String::from_utf8_lossy(&output);
        let lines = output.lines().filter_map(|line| {
            let (time_s, id) = line.split_once(' ')?;
            Some((Oid::parse(id)?, time_s.parse().ok()?))
        });
        Ok(lines.collect())
    }

    /// What a machine needs of a commit to build it.
    pub fn sources(&mut self, commit: &Oid) -> Result<Sources, GitError> {
        Ok(Sources {
            tree: self.trees.root(commit)?,
            own: self.own.clone(),
            name: self.stem.clone(),
            object_format: self.object_format.clone(),
            timeout: self.timeout,
        })
    }

    /// The content key of what the patterns mean in a commit's tree, and the patterns that mean
    /// nothing there. No patterns mean the whole tree. One process serves all look-ups.
    pub fn tree_digest(&mut self, commit: &Oid, paths: &[Pattern]) -> Result<TreeDigest, GitError> {
        self.trees.digest(commit, paths, &[])
    }

    /// [`Repository::tree_digest`] of what `paths` mean and `without` do not.
    pub fn tree_digest_without(
        &mut self,
        commit: &Oid,
        paths: &[Pattern],
        without: &[Pattern],
    ) -> Result<TreeDigest, GitError> {
        self.trees.digest(commit, paths, without)
    }

    /// The paths of files that differ between two commits, sorted; a renamed file counts under
    /// both names.
    pub fn changed_paths(&self, from: &Oid, to: &Oid) -> Result<Vec<String>, GitError> {
        let pair = [(from.clone(), to.clone())];
        Ok(self.changed_paths_of(&pair)?.pop().unwrap_or_default())
    }

    /// [`Repository::changed_paths`] of many pairs by one process, in their order.
    pub fn changed_paths_of(&self, pairs: &[(Oid, Oid)]) -> Result<Vec<Vec<String>>, GitError> {
        if pairs.len() > COMMITS_MAX {
            return Err(GitError::TooMuch {
                what: "commits to compare".to_owned(),
                max: COMMITS_MAX as u64,
            });
        }
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        // `COMMIT PARENT`: the commit is compared with this parent only.
        let lines = pairs.iter().map(|(from, to)| format!("{to} {from}\n"));
        let output = self
            .own
            .reading("diff-tree")
            .args([
                "--stdin",
                "--always",
                "-r",
                "-z",
                "--name-only",
                "--no-renames",
            ])
            .stdin(lines.collect::<String>().into_bytes())
            .run()
            .map_err(|error| self.cut_short(error, pairs))?;
        let mut all: Vec<Vec<String>> = Vec::with_capacity(pairs.len());
        for field in output.split(|b| *b == 0).filter(|field| !field.is_empty()) {
            let text = String::from_utf8_lossy(field);
            match (pairs.get(all.len()), all.last_mut()) {
                (Some((_, to)), _) if text == to.as_str() => all.push(Vec::new()),
                (_, Some(paths)) => paths.push(text.into_owned()),
                (_, None) => break,
            }
        }
        if all.len() == pairs.len() {
            return Ok(all);
        }
        Err(GitError::Failed {
            command: "diff-tree".to_owned(),
            words: format!("{} of {} commits were compared", all.len(), pairs.len()),
        })
    }

    /// The error of a comparison, told as what it is where a shallow clone lacks a parent.
    fn cut_short(&self, error: GitError, pairs: &[(Oid, Oid)]) -> GitError {
        let GitError::Failed { words, .. } = &error else {
            return error;
        };
        let missing = pairs.iter().find(|(from, _)| words.contains(from.as_str()));
        match missing {
            Some((from, _)) if self.is_shallow => GitError::Shallow {
                repo: self.name.clone(),
                wanted: from.short().to_owned(),
            },
            _ => error,
        }
    }

    /// Whether a commit was made by us and is not in the source.
    fn is_own(&self, id: &Oid) -> Result<bool, GitError> {
        let output = self
            .own
            .writing("show-ref")
            .args(["--verify", "--quiet", &patches::applied_ref(id)])
            .output()?;
        Ok(output.is_success())
    }

    /// What to say when a revision is unknown.
    fn near(&self, revision: &str, stderr: &str) -> Result<String, GitError> {
        if stderr.contains("is ambiguous:") || stderr.contains("short object ID") {
            return Ok("the short hash fits several objects; write more digits".to_owned());
        }
        let output = Call::local(Some(&self.source), "for-each-ref")
            .arg(format!("--count={REFS_MAX}"))
            .args([
                "--format=%(refname:lstrip=2)",
                "refs/heads",
                "refs/tags",
                "refs/remotes",
            ])
            .run()?;
        let output = String::from_utf8_lossy(&output);
        let names: Vec<&str> = output.lines().collect();
        if names.is_empty() {
            return Ok("the repository has no commits yet".to_owned());
        }
        // `main` where only `origin/main` is there.
        let remote = names.iter().find(|name| {
            name.split_once('/')
                .is_some_and(|(_, rest)| rest == revision)
        });
        Ok(match remote.copied().or_else(|| nearest(revision, names)) {
            Some(name) => format!("did you mean `{name}`?"),
            None if self.is_shallow => {
                "the clone is shallow and may lack it: run `git fetch --unshallow` there".to_owned()
            }
            None => "`git branch -a` and `git tag` list its names".to_owned(),
        })
    }
}

impl RepositoryFacts {
    fn of(path: &Path, name: &str) -> Result<RepositoryFacts, GitError> {
        let not_a_repository = || GitError::NotARepository {
            repo: name.to_owned(),
        };
        if !files::is_folder(path) {
            return Err(not_a_repository());
        }
        let output = Call::local(None, "rev-parse")
            .dir(path)
            // Not the repository that this folder happens to lie in.
            .env("GIT_CEILING_DIRECTORIES", path.parent().unwrap_or(path))
            .args([
                "--path-format=absolute",
                "--absolute-git-dir",
                "--git-path",
                "objects",
            ])
            .args(["--show-object-format", "--is-shallow-repository"])
            .output()?;
        if !output.is_success() {
            return Err(match output.words() {
                words if words.contains("not a git repository") => not_a_repository(),
                _ => output.error(),
            });
        }
        // Paths that are not UTF-8 or hold a line break are refused here.
        let text = String::from_utf8(output.stdout).map_err(|_| not_a_repository())?;
        match text.lines().collect::<Vec<_>>()[..] {
            [git_dir, objects, object_format, is_shallow] => Ok(RepositoryFacts {
                git_dir: PathBuf::from(git_dir),
                objects: PathBuf::from(objects),
                object_format: object_format.to_owned(),
                is_shallow: is_shallow == "true",
            }),
            _ => Err(not_a_repository()),
        }
    }
}

/// Git's `user.name`, as the user's configuration and the folder in which we work say; None where they do not.
pub fn user_name(folder: &Path) -> Option<String> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    let call = Call::network(None, "config", TIMEOUT).in_folder(folder);
    let output = call.args(["user.name"]).output().ok()?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.is_success().then_some(name)
}

/// Our own repository beside the mirrors, made where it is missing.
fn open_own(git_dir: PathBuf, facts: &RepositoryFacts, timeout: Duration) -> Result<Own, GitError> {
    if !files::is_folder(&git_dir) {
        let _lock = lock::take(&git_dir.with_added_extension("lock"), timeout)?;
        // Another run may have made it while we waited.
        if !files::is_folder(&git_dir) {
            let partial = git_dir.with_added_extension("partial");
            // Harmless on what a killed run left.
            Call::local(None, "init")
                .args(["--quiet", "--bare", "--template="])
                .arg(format!("--object-format={}", facts.object_format))
                .arg(&partial)
                .run()?;
            files::rename(&partial, &git_dir)?;
        }
    }
    let objects = facts.objects.display().to_string();
    let escaped = objects.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(Own {
        git_dir,
        // Quoted, because a bare `:` would end it.
        borrowed: format!("\"{escaped}\""),
    })
}

/// Clones into a folder beside, then renames: a mirror that is there is whole.
fn clone(mirror: &Mirror, path: &Path, name: &str, timeout: Duration) -> Result<(), GitError> {
    let _lock = lock::take(&mirror.lock, timeout)?;
    if files::is_folder(path) {
        return Ok(());
    }
    let partial = path.with_added_extension("partial");
    files::remove(&partial)?;
    Call::network(None, "clone", timeout)
        .args(["--quiet", "--bare", "--template=", "--"])
        .arg(&mirror.url)
        .arg(&partial)
        .run()
        .map_err(|error| unreachable_error(error, name))?;
    if name != mirror.url {
        // Each fetch names the address itself: the password need not stay here.
        Call::local(Some(&partial), "config")
            .args(["remote.origin.url", name])
            .run()?;
    }
    files::rename(&partial, path)
}

fn unreachable_error(error: GitError, name: &str) -> GitError {
    match error {
        GitError::Failed { words, .. } => GitError::Unreachable {
            repo: name.to_owned(),
            words,
        },
        other => other,
    }
}

/// Completes a call of `rev-list`, the plumbing beneath `git log`, which no `log.*` setting changes.
fn list_commits(call: Call) -> Call {
    call.args([
        "--no-commit-header",
        "--encoding=UTF-8",
        "--format=%H%x00%P%x00%at%x00%ct%x00%an%x00%s",
    ])
}

/// One line a commit: id, parents, author's time, committer's time, author, subject.
fn parse_commits(output: &[u8]) -> Vec<Commit> {
    String::from_utf8_lossy(output)
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(6, '\0');
            let id = Oid::parse(fields.next()?)?;
            let parents = fields.next()?.split_whitespace();
            let parents = parents.filter_map(Oid::parse).collect();
            // A commit may hold a broken date.
            let author_time_s = fields.next()?.parse().unwrap_or(0);
            let commit_time_s = fields.next()?.parse().unwrap_or(0);
            Some(Commit {
                id,
                parents,
                author_time_s,
                commit_time_s,
                author: fields.next()?.to_owned(),
                subject: fields.next()?.chars().take(SUBJECT_CHARS_MAX).collect(),
            })
        })
        .collect()
}

/// `https://…`, `ssh://…`, `file://…` or `host:path`, as git tells them from paths.
fn is_url(source: &str) -> bool {
    let before_slash = source.split('/').next().unwrap_or("");
    source.contains("://")
        || (before_slash.contains(':') && files::facts(Path::new(source)).is_none())
}

/// A readable name that is different for each source: `qemu-1a2b3c4d`.
fn folder_name(source: &str) -> String {
    const READABLE_CHARS_MAX: usize = 40;
    let last = source
        .trim_end_matches('/')
        .trim_end_matches(".git")
        .trim_end_matches('/')
        .rsplit(['/', ':'])
        .next()
        .unwrap_or("");
    let readable: String = last
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' {
                c
            } else {
                '_'
            }
        })
        .take(READABLE_CHARS_MAX)
        .collect();
    format!("{readable}-{}", Key::of(source.as_bytes()).short())
}
