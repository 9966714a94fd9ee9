//! The line of commits between two ends, as a bisection walks it.

use super::program::Call;
use super::{COMMITS_MAX, Commit, GitError, Oid, Repository, list_commits, parse_commits};

impl Repository {
    /// The commits after `good` up to `bad` on the first-parent line of `bad`, oldest first. Empty where `good` has all of
    /// them. At most [`COMMITS_MAX`].
    pub fn first_parent_line(&self, good: &Oid, bad: &Oid) -> Result<Vec<Commit>, GitError> {
        let output = list_commits(Call::local(Some(&self.source), "rev-list"))
            .args(["--first-parent", "--reverse"])
            .arg(format!("--max-count={}", COMMITS_MAX + 1))
            .arg(format!("{good}..{bad}"))
            .arg("--")
            .run()?;
        let commits = parse_commits(&output);
        match commits.len() {
            n if n > COMMITS_MAX => Err(GitError::TooMuch {
                what: format!("commits in `{}..{}`", good.short(), bad.short()),
                max: COMMITS_MAX as u64,
            }),
            _ => Ok(commits),
        }
    }

    /// The best common ancestor of two commits, if they have one.
    pub fn merge_base(&self, a: &Oid, b: &Oid) -> Result<Option<Oid>, GitError> {
        let output = Call::local(Some(&self.source), "merge-base")
            .args([a.as_str(), b.as_str()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().and_then(Oid::parse))
    }
}
