//! The check-out: a folder of a machine that is made to hold exactly one commit's tree, incrementally.

use std::path::{Path, PathBuf};

use super::error::GitError;
use super::program::Call;
use super::{Oid, Sources};
use crate::machine::host::{Cancel, FileOp, FileReply, Host, file};

/// Of the file that says what is being checked out.
const PENDING_BYTES_MAX: usize = 256;

/// What a checkout could not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkout {
    /// Folders of submodules: they are there, and empty unless somebody checks them out.
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

/// A folder of a machine that is checked out into.
#[derive(Clone, Debug)]
pub struct WorkFolder {
    /// Where the files are. Nothing else may be there but what builds make.
    pub src: PathBuf,
    /// What we keep about it, beside it: a `.git` inside would change what a build believes about its version.
    pub state: PathBuf,
}

impl WorkFolder {
    /// The folder of a submodule in this one.
    pub fn submodule(&self, path: &str) -> WorkFolder {
        // A name of one part that tells paths apart.
        let name = path.replace('%', "%25").replace('/', "%2F");
        WorkFolder {
            src: self.src.join(path),
            state: self.state.join("submodules").join(name),
        }
    }

    /// Removes what was checked out of submodules, but for those that are `wanted`.
    pub async fn drop_submodules(&self, host: &dyn Host, wanted: &[&str]) -> Result<(), GitError> {
        let path = self.state.join("submodules");
        let Ok(FileReply::Names(names)) = file(host, FileOp::List { path }).await else {
            return Ok(());
        };
        for name in names {
            let path = name.replace("%2F", "/").replace("%25", "%");
            if wanted.contains(&path.as_str()) {
                continue;
            }
            let WorkFolder { src, state } = self.submodule(&path);
            for path in [src, state] {
                file(host, FileOp::Remove { path }).await?;
            }
        }
        Ok(())
    }
}

/// What is found of a work folder.
struct WorkFolderLook {
    has_git: bool,
    is_empty: bool,
    has_index: bool,
    /// The commit's tree that was being checked out when somebody died. It is finished first, so that the index
    /// knows every file that may have been written.
    pending: Option<Oid>,
}

impl WorkFolder {
    fn index(&self) -> PathBuf {
        self.state.join("index")
    }

    fn pending(&self) -> PathBuf {
        self.state.join("pending")
    }

    /// Forgets and removes all that is there.
    async fn empty(&self, host: &dyn Host) -> Result<(), GitError> {
        let remove = |path: PathBuf| FileOp::Remove { path };
        let ops = vec![
            remove(self.src.clone()),
            remove(self.index()),
            remove(self.pending()),
            FileOp::MakeDir {
                path: self.src.clone(),
            },
        ];
        for reply in host.files(ops).await {
            reply?;
        }
        Ok(())
    }

    async fn look(&self, host: &dyn Host) -> Result<WorkFolderLook, GitError> {
        let facts = |path: PathBuf| FileOp::Facts { path };
        let replies = host.files(vec![
            FileOp::MakeDir {
                path: self.src.clone(),
            },
            FileOp::MakeDir {
                path: self.state.clone(),
            },
            facts(self.src.join(".git")),
            FileOp::List {
                path: self.src.clone(),
            },
            facts(self.index()),
            FileOp::Read {
                path: self.pending(),
                bytes_max: PENDING_BYTES_MAX,
            },
        ]);
        let replies = replies.await;
        for made in replies.iter().take(2) {
            made.clone()?;
        }
        let pending = match replies.get(5) {
            Some(Ok(FileReply::Bytes(bytes))) => Oid::parse(String::from_utf8_lossy(bytes).trim()),
            _ => None,
        };
        Ok(WorkFolderLook {
            has_git: matches!(replies.get(2), Some(Ok(_))),
            is_empty: matches!(replies.get(3), Some(Ok(FileReply::Names(names))) if names.is_empty()),
            has_index: matches!(replies.get(4), Some(Ok(_))),
            pending,
        })
    }
}

impl Sources {
    /// Makes `folder` hold the sources exactly, on the machine whose repository `git_dir` has them
    /// ([`Sources::deliver`]). Files that do not differ are not touched, so that a build tool rebuilds only what
    /// changed. Other files in it (build outputs) are kept, or with `clean` removed, ignored ones too.
    ///
    /// The caller has the machine's lock, and has ended what dead runs had left: no other git works in the folder.
    pub async fn check_out(
        &self,
        host: &dyn Host,
        git_dir: &Path,
        folder: &WorkFolder,
        clean: bool,
        cancel: &Cancel,
    ) -> Result<Checkout, GitError> {
        let found = folder.look(host).await?;
        if found.has_git {
            return Err(GitError::Checkout {
                dir: folder.src.display().to_string(),
                why: "it is a work tree of its own; remove it".to_owned(),
            });
        }
        // Left by a git that was killed.
        let path = folder.state.join("index.lock");
        file(host, FileOp::Remove { path }).await?;
        let call = |name: &str| {
            Call::local(Some(git_dir), name)
                .dir(&folder.src)
                .env("GIT_WORK_TREE", &folder.src)
                .env("GIT_INDEX_FILE", folder.index())
        };
        let is_kept = found.has_index && !found.is_empty;
        let mut done = Ok(());
        if is_kept {
            for tree in found.pending.iter().chain([&self.tree]) {
                // A file that was only touched keeps its time, one that was edited is put back.
                // Its exit status tells whether files differ, which is no failure here.
                let refresh = call("update-index").args(["-q", "--refresh"]);
                refresh.output_on(host, cancel).await?;
                done = self.read_tree(tree, &call, host, folder, cancel).await;
                if done.is_err() {
                    break;
                }
            }
        }
        // An index that was torn, or sources that are gone: the folder begins anew.
        if !is_kept || done.as_ref().is_err_and(|error| !error.is_interrupted()) {
            folder.empty(host).await?;
            done = self
                .read_tree(&self.tree, &call, host, folder, cancel)
                .await;
        }
        done?;
        if clean {
            let clean = call("clean").args(["-ffdxq"]);
            clean.run_on(host, cancel).await?;
        }
        let path = folder.pending();
        file(host, FileOp::Remove { path }).await?;
        let listing = call("ls-files").args(["--stage", "-z"]);
        let listing = listing.run_on(host, cancel).await?;
        Ok(Checkout {
            submodules: submodules(&listing),
        })
    }

    async fn read_tree(
        &self,
        tree: &Oid,
        call: &dyn Fn(&str) -> Call,
        host: &dyn Host,
        folder: &WorkFolder,
        cancel: &Cancel,
    ) -> Result<(), GitError> {
        let (path, bytes) = (folder.pending(), tree.as_str().as_bytes().to_vec());
        file(host, FileOp::Replace { path, bytes }).await?;
        let read = call("read-tree").args(["--reset", "-u", tree.as_str()]);
        read.run_on(host, cancel).await?;
        Ok(())
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

    use super::super::tests::{TestRepo, age};
    use super::*;

    fn mtime(path: &Path) -> SystemTime {
        path.metadata().unwrap().modified().unwrap()
    }

    #[test]
    fn a_checkout_touches_only_what_differs_and_keeps_outputs() {
        let repo = TestRepo::with_history();
        let mut opened = repo.open();
        let [old, new] = ["v9.0.1", "main"].map(|it| opened.resolve(it).unwrap().id);
        let src = repo.dir.path().join("src");
        let read = |path: &str| std::fs::read_to_string(src.join(path)).unwrap();
        assert_eq!(repo.check_out(&mut opened, &old, false).warning(), None);
        assert_eq!(read("block/nbd.c"), "one\ntwo\nthree\n");
        assert!(!src.join(".git").exists());

        std::fs::write(src.join("block/nbd.o"), "object").unwrap();
        let kept = ["meson.build", "block/export/fuse.c"].map(|path| (path, age(&src.join(path))));
        let changed = age(&src.join("block/nbd.c"));
        repo.check_out(&mut opened, &new, false);
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
        repo.check_out(&mut opened, &new, true);
        assert_eq!(read("meson.build"), "project()\n");
        assert_eq!(read("docs/readme.txt"), "read me again\n");
        assert!(!src.join("block/nbd.o").exists(), "clean removes outputs");

        // The whole folder went away; or what is known of it, or the machine's repository.
        for gone in ["src", "checkout", "machine"] {
            std::fs::remove_dir_all(repo.dir.path().join(gone)).unwrap();
            for (id, text) in [(&new, "one\n2\nthree\n"), (&old, "one\ntwo\nthree\n")] {
                repo.check_out(&mut opened, id, false);
                assert_eq!(read("block/nbd.c"), text, "{gone}");
            }
        }
    }

    #[test]
    fn an_interrupted_checkout_leaves_no_foreign_file() {
        let repo = TestRepo::with_history();
        repo.write("block/new.c", "new\n");
        repo.commit("new file");
        let mut opened = repo.open();
        let [old, new] = ["main~1", "main"].map(|it| opened.resolve(it).unwrap().id);
        let src = repo.dir.path().join("src");
        repo.check_out(&mut opened, &new, false);
        repo.check_out(&mut opened, &old, false);
        // Killed on the way to main: the file is written, the index is not.
        let state = repo.dir.path().join("checkout");
        let tree = opened.sources(&new).unwrap().tree;
        let die = || {
            std::fs::write(state.join("pending"), tree.as_str()).unwrap();
            std::fs::write(state.join("index.lock"), "").unwrap();
            std::fs::write(src.join("block/new.c"), "ne").unwrap();
        };
        die();
        repo.check_out(&mut opened, &old, false);
        assert!(!src.join("block/new.c").exists());
        repo.check_out(&mut opened, &new, false);
        let read = || std::fs::read_to_string(src.join("block/new.c")).unwrap();
        assert_eq!(read(), "new\n");
        // A power loss has torn the index too.
        die();
        std::fs::write(state.join("index"), "torn").unwrap();
        repo.check_out(&mut opened, &old, false);
        assert!(!src.join("block/new.c").exists());
    }

    #[test]
    fn a_checkout_refuses_a_work_tree() {
        let repo = TestRepo::with_history();
        let mut opened = repo.open();
        let id = opened.resolve("main").unwrap().id;
        std::fs::create_dir_all(repo.dir.path().join("src/.git")).unwrap();
        std::fs::write(repo.dir.path().join("src/mine"), "mine").unwrap();
        let error = repo.try_check_out(&mut opened, &id, true).unwrap_err();
        assert!(
            error.to_string().contains("a work tree of its own"),
            "{error}"
        );
        let mine = std::fs::read_to_string(repo.dir.path().join("src/mine"));
        assert_eq!(mine.unwrap(), "mine");
    }
}
