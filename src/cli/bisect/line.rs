//! The line of commits that is bisected, and what is known of it: from a repository, or from files.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::base::units::count;
use crate::cli::show::Stop;
use crate::edge::git::{Commit, Repository};
use crate::judge::culprit::CANDIDATES_MAX;
use crate::machine::host::{FileOp, FileReply, Host};
use crate::run::progress::say;

/// Bytes of a file of commits, of values, or of the state of a bisection.
pub const FILE_BYTES_MAX: usize = 64 << 20;
/// Bytes of a name of a commit.
const ID_BYTES_MAX: usize = 200;
/// A prefix of a commit's name that stands for it.
const PREFIX_CHARS_MIN: usize = 7;
/// For one call of git.
const GIT_TIMEOUT: Duration = Duration::from_secs(600);

/// How a line is asked for.
#[derive(Clone, Copy)]
pub struct LineOptions<'a> {
    pub good: Option<&'a str>,
    pub bad: Option<&'a str>,
    pub repo: Option<&'a str>,
    /// A file with the commits.
    pub commits: Option<&'a Path>,
    /// The folder of the state that holds clones.
    pub mirrors: &'a str,
}

/// What is bisected.
pub struct Line {
    /// The good end first.
    pub commits: Vec<LineCommit>,
    pub repository: Option<Repository>,
}

#[derive(Clone)]
pub struct LineCommit {
    pub id: String,
    /// None where there is no repository.
    pub git: Option<Commit>,
}

/// Reads the commits, of a file or of the repository.
pub async fn line(
    asked: LineOptions<'_>,
    host: &dyn Host,
    here: &Path,
    state: &Path,
) -> Result<Line, Stop> {
    if let Some(path) = asked.commits {
        let text = read(host, &here.join(path)).await?;
        let ids = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        if let Some(id) = ids.iter().find(|id| !is_plain(id)) {
            return Err(Stop::message(format!(
                "`{id}` in `{}` is no name of a commit: letters, digits and `._/+~^@-` only",
                path.display()
            )));
        }
        let place = |end: Option<&str>, otherwise: usize| match end {
            None => Ok(otherwise),
            Some(end) => find(&ids, end)
                .ok_or_else(|| Stop::message(format!("`{end}` is not in `{}`", path.display()))),
        };
        let good = place(asked.good, 0)?;
        let bad = place(asked.bad, ids.len().saturating_sub(1))?;
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
    let (Some(good), Some(bad)) = (asked.good, asked.bad) else {
        return Err(Stop::message("name both ends: `--good REV --bad REV`"));
    };
    let repo = asked.repo.unwrap_or(".");
    let repository = Repository::open(repo, &state.join(asked.mirrors), GIT_TIMEOUT)?;
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

pub fn of_git(commit: Commit) -> LineCommit {
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
pub async fn read_history(
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

/// The line inside a merge: where the branch parted, its commits, and the merge; None of any other commit.
pub fn inside_of(
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
