//! The checkout: a folder that is made to hold exactly one commit's tree, incrementally.

use std::path::{Path, PathBuf};

use super::error::GitError;
use super::lock::RepositoryLock;
use super::{Oid, Repository};
use crate::base::key::Key;

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
struct CheckoutState {
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
        let is_empty = is_empty_or_ours(&dir, &state_dir)?;
        std::fs::create_dir_all(&state_dir).map_err(|e| GitError::io(&state_dir, &e))?;
        let _lock = RepositoryLock::take(&state_dir.join("lock"), self.timeout)?;
        let state = CheckoutState {
            index: state_dir.join("index"),
            pending: state_dir.join("pending"),
        };
        // We hold the lock: this one was left by a git that was killed.
        remove_if_there(&state_dir.join("index.lock"))?;
        if is_empty {
            // Removing a folder is how to start afresh, whatever became of its state.
            remove_if_there(&state.index)?;
            remove_if_there(&state.pending)?;
        }

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

/// Whether the folder is empty; an error where it holds files that are not of our making.
fn is_empty_or_ours(dir: &Path, state_dir: &Path) -> Result<bool, GitError> {
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
    let is_empty = entries.next().is_none();
    if !is_empty && !state_dir.is_dir() {
        return refuse("it holds files that were not checked out by us; empty it, or name another");
    }
    Ok(is_empty)
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

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::tests::{TestRepo, age, assert_unchanged, listing};
    use super::*;

    fn mtime(path: &Path) -> SystemTime {
        path.metadata().unwrap().modified().unwrap()
    }

    #[test]
    fn a_checkout_touches_only_what_differs_and_keeps_outputs() {
        let repo = TestRepo::with_history();
        let opened = repo.open();
        let id = |revision: &str| opened.resolve(revision).unwrap().id;
        let src = repo.dir.path().join("src");
        let read = |path: &str| std::fs::read_to_string(src.join(path)).unwrap();
        assert_eq!(
            opened
                .checkout(&id("v9.0.1"), &src, false)
                .unwrap()
                .warning(),
            None
        );
        assert_eq!(read("block/nbd.c"), "one\ntwo\nthree\n");
        assert!(!src.join(".git").exists());

        std::fs::write(src.join("block/nbd.o"), "object").unwrap();
        let kept = ["meson.build", "block/export/fuse.c"].map(|path| (path, age(&src.join(path))));
        let changed = age(&src.join("block/nbd.c"));
        opened.checkout(&id("main"), &src, false).unwrap();
        assert_eq!(read("block/nbd.c"), "one\n2\nthree\n");
        assert_ne!(mtime(&src.join("block/nbd.c")), changed);
        for (path, time) in kept {
            assert_eq!(
                mtime(&src.join(path)),
                time,
                "{path} was only touched and is not rewritten"
            );
        }
        assert_eq!(read("block/nbd.o"), "object");

        // An edited and a removed file are put back.
        std::fs::write(src.join("meson.build"), "edited").unwrap();
        std::fs::remove_file(src.join("docs/readme.txt")).unwrap();
        opened.checkout(&id("main"), &src, true).unwrap();
        assert_eq!(read("meson.build"), "project()\n");
        assert_eq!(read("docs/readme.txt"), "read me again\n");
        assert!(!src.join("block/nbd.o").exists(), "clean removes outputs");

        // The whole folder went away.
        std::fs::remove_dir_all(&src).unwrap();
        opened.checkout(&id("main"), &src, false).unwrap();
        assert_eq!(read("block/nbd.c"), "one\n2\nthree\n");
    }

    #[test]
    fn an_interrupted_checkout_leaves_no_foreign_file() {
        let repo = TestRepo::with_history();
        repo.write("block/new.c", "new\n");
        repo.commit("new file");
        let opened = repo.open();
        let id = |revision: &str| opened.resolve(revision).unwrap().id;
        let src = repo.dir.path().join("src");
        opened.checkout(&id("main~1"), &src, false).unwrap();
        // Killed on the way to main: the file is written, the index is not.
        let state = std::fs::read_dir(opened.own.git_dir.join("checkouts"))
            .unwrap()
            .next();
        let state = state.unwrap().unwrap().path();
        std::fs::write(state.join("pending"), id("main").as_str()).unwrap();
        std::fs::write(state.join("index.lock"), "").unwrap();
        std::fs::write(src.join("block/new.c"), "ne").unwrap();
        opened.checkout(&id("main~1"), &src, false).unwrap();
        assert!(!src.join("block/new.c").exists());
        opened.checkout(&id("main"), &src, false).unwrap();
        assert_eq!(
            std::fs::read_to_string(src.join("block/new.c")).unwrap(),
            "new\n"
        );
    }

    #[test]
    fn a_checkout_refuses_what_is_not_its_own() {
        let repo = TestRepo::with_history();
        let opened = repo.open();
        let id = opened.resolve("main").unwrap().id;
        let before = listing(&repo.path());
        let error = opened
            .checkout(&id, &repo.path(), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("a work tree of its own"), "{error}");
        let error = opened.checkout(&id, &repo.path().join("docs"), true);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("not checked out by us"), "{error}");
        assert_unchanged(&before, &listing(&repo.path()));
    }
}
