//! Owns the checkout: a folder that is made to hold exactly one commit's tree, incrementally.
//! Does not know what is built in it.

use std::path::{Path, PathBuf};

use super::error::GitError;
use super::lock::Lock;
use super::{Oid, Repository};
use crate::words::key::Key;

/// What a checkout could not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkout {
    /// Folders of submodules: they are there and empty.
    pub submodules: Vec<String>,
}

impl Checkout {
    /// One line for the user, if there is something to say.
    pub fn warning(&self) -> Option<String> {
        let first = self.submodules.first()?;
        let others = match self.submodules.len() - 1 {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Some(format!(
            "submodule `{first}`{others} is not fetched and stays empty; \
             let the build fetch it, or turn off what needs it"
        ))
    }
}

/// What we keep about one folder that is checked out into, beside the objects and not inside the
/// folder: a `.git` there would change what a build believes about its version.
struct State {
    index: PathBuf,
    /// Holds the commit while it is being checked out. Where it is still there the next checkout
    /// finishes it first, so that the index knows every file that may have been written.
    pending: PathBuf,
}

impl Repository {
    /// Makes `dir` hold the commit's files exactly. Files that do not differ are not touched, so
    /// that a build tool rebuilds only what changed. Other files in `dir` (build outputs) are
    /// kept, or with `clean` removed, ignored ones too.
    ///
    /// The folder must be new, empty, or one that this repository was checked out into before:
    /// a user's own files are never overwritten.
    pub fn checkout(&self, commit: &Oid, dir: &Path, clean: bool) -> Result<Checkout, GitError> {
        std::fs::create_dir_all(dir).map_err(|e| GitError::io(dir, &e))?;
        let dir = std::fs::canonicalize(dir).map_err(|e| GitError::io(dir, &e))?;
        let folder_key = Key::of(dir.as_os_str().as_encoded_bytes());
        let state_dir = self
            .own
            .git_dir
            .join("checkouts")
            .join(folder_key.to_string());
        refuse_foreign(&dir, &state_dir)?;
        std::fs::create_dir_all(&state_dir).map_err(|e| GitError::io(&state_dir, &e))?;
        let _lock = Lock::take(&state_dir.join("lock"), self.timeout)?;
        let state = State {
            index: state_dir.join("index"),
            pending: state_dir.join("pending"),
        };
        // We hold the lock: this one was left by a git that was killed.
        remove_if_there(&state_dir.join("index.lock"))?;

        let call = |name| {
            self.own
                .reading(name)
                .dir(&dir)
                .env("GIT_WORK_TREE", &dir)
                .env("GIT_INDEX_FILE", &state.index)
        };
        let interrupted = std::fs::read_to_string(&state.pending).ok();
        let interrupted = interrupted.as_deref().and_then(|id| Oid::parse(id.trim()));
        for target in interrupted.iter().chain([commit]) {
            if state.index.exists() {
                // A file that was only touched keeps its time, one that was edited is put back.
                // Its exit status tells whether files differ, which is no failure here.
                call("update-index").args(["-q", "--refresh"]).output()?;
            }
            std::fs::write(&state.pending, target.as_str())
                .map_err(|e| GitError::io(&state.pending, &e))?;
            call("read-tree")
                .args(["--reset", "-u", target.as_str()])
                .run()?;
        }
        if clean {
            call("clean").args(["-ffdxq"]).run()?;
        }
        remove_if_there(&state.pending)?;
        let listing = call("ls-files").args(["--stage", "-z"]).run()?;
        Ok(Checkout {
            submodules: submodules(&listing),
        })
    }
}

fn refuse_foreign(dir: &Path, state_dir: &Path) -> Result<(), GitError> {
    let refuse = |why: &str| {
        Err(GitError::Checkout {
            dir: dir.display().to_string(),
            why: why.to_owned(),
        })
    };
    if dir.join(".git").symlink_metadata().is_ok() {
        return refuse("it is a work tree of its own; name another folder");
    }
    let mut entries = std::fs::read_dir(dir).map_err(|e| GitError::io(dir, &e))?;
    if entries.next().is_some() && !state_dir.is_dir() {
        return refuse("it holds files that were not checked out by us; empty it, or name another");
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> Result<(), GitError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(GitError::io(path, &error))
        }
        _ => Ok(()),
    }
}

/// Paths with mode 160000 of `MODE ID STAGE\tPATH\0`.
fn submodules(listing: &[u8]) -> Vec<String> {
    listing
        .split(|b| *b == 0)
        .filter(|line| line.starts_with(b"160000 "))
        .filter_map(|line| {
            let text = String::from_utf8_lossy(line).into_owned();
            text.split_once('\t').map(|(_, path)| path.to_owned())
        })
        .collect()
}
