//! What can go wrong with git, each in one line with a remedy.

use std::time::Duration;

use crate::base::units::show_duration;
use crate::machine::host::{HostError, HostErrorKind};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GitError {
    #[error("git is not installed; `apt-get install git`")]
    NoGit,
    #[error("no repository at `{repo}`: there is no such folder; check `repo` or `--repo`")]
    Missing { repo: String },
    #[error("`{repo}` is not a git repository; name the folder that holds `.git`, or a URL")]
    NotARepository { repo: String },
    #[error(
        "cannot reach the repository `{repo}`: {words}; check the address and the network, or give a local clone by `--repo PATH`"
    )]
    Unreachable { repo: String, words: String },
    #[error("`git {command}` was stopped")]
    Interrupted { command: String },
    #[error("`git {command}` did not end within {} and was stopped; try again, or allow more time", show_duration(*timeout))]
    TimedOut { command: String, timeout: Duration },
    #[error("another process has been using {path} for {}; wait for it, then try again", show_duration(*waited))]
    Busy { path: String, waited: Duration },
    #[error("`{revision}` is not a revision of `{repo}`; {hint}")]
    UnknownRevision {
        revision: String,
        repo: String,
        /// A near name, or what else to do.
        hint: String,
    },
    #[error("`{text}` does not name a version: {why}")]
    BadVersion { text: String, why: String },
    #[error(
        "`{repo}` is a shallow clone and its history ends before `{wanted}`; run `git fetch --unshallow` there"
    )]
    Shallow { repo: String, wanted: String },
    #[error("no commits in `{range}`: {why}")]
    EmptyRange { range: String, why: String },
    #[error("more than {max} {what}; take less at a time")]
    TooMuch { what: String, max: u64 },
    #[error("cannot read the patches in {path}: {why}")]
    BadPatches { path: String, why: String },
    #[error(
        "patch {number} of {path}, \"{subject}\", does not apply to {base}: {words}; rebase the series, or name the commit that it was made for"
    )]
    PatchFails {
        /// Counted from 1.
        number: usize,
        path: String,
        subject: String,
        /// The commit below the whole series, short.
        base: String,
        /// Where, then git's own words.
        words: String,
    },
    #[error(
        "the submodule `{path}` (at {pin}) cannot be fetched: {words}; \
         name a repository that has it, `[subject.git] submodules = {{ \"{path}\" = \"REPO\" }}`"
    )]
    Submodule {
        path: String,
        /// The commit, short.
        pin: String,
        words: String,
    },
    #[error("will not check out into {dir}: {why}")]
    Checkout { dir: String, why: String },
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{path}: {words}; free some space, or check its permissions")]
    Io { path: String, words: String },
    #[error(
        "`git {command}` failed: {words}; `git fsck` in the repository tells whether it is whole (a partial clone never is)"
    )]
    Failed { command: String, words: String },
}

impl GitError {
    /// Whether it was stopped from outside: nothing is wrong.
    pub fn is_interrupted(&self) -> bool {
        match self {
            GitError::Interrupted { .. } => true,
            GitError::Host(error) => error.kind == HostErrorKind::Cancelled,
            _ => false,
        }
    }
}
