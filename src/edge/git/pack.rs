//! How the sources of a commit come to a machine: as a pack of what its own repository lacks.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::GitError;
use super::program::Call;
use super::{Oid, Own, files, lock};
use crate::machine::host::local::blocking::{self, FileLock};
use crate::machine::host::{Cancel, FileOp, FileReply, Host, file};

/// Bytes of a pack that are sent at once.
const CHUNK_BYTES: usize = 4 << 20;
/// Trees on the machine that are looked at for what it has.
const KNOWN_TREES_MAX: usize = 1000;
/// A reference to each tree that is whole on the machine.
const TREES: &str = "refs/matrix/trees/";

/// What a machine needs of a commit to build it.
#[derive(Clone)]
pub struct Sources {
    pub(super) tree: Oid,
    pub(super) own: Own,
    /// What the repository is called on a machine.
    pub(super) name: String,
    pub(super) object_format: String,
    /// For the lock that another process holds.
    pub(super) timeout: Duration,
}

/// A pack on the orchestrator. Nobody else makes one while it is held.
struct Pack {
    folder: PathBuf,
    file: PathBuf,
    _lock: FileLock,
}

impl Sources {
    /// Makes the machine have the sources, in a repository below `folder`, whose path is returned.
    pub async fn deliver(
        &self,
        host: &dyn Host,
        folder: &Path,
        cancel: &Cancel,
    ) -> Result<PathBuf, GitError> {
        let git_dir = folder.join(format!("{}.git", self.name));
        let (own, timeout) = (self.own.clone(), self.timeout);
        // One build at a time: it may have brought what the next one needs.
        let lock = aside(move || {
            let path = own.git_dir.join("outgoing.lock");
            lock::take(&path, timeout)
        });
        let lock = lock.await?;
        let known = self.trees(host, &git_dir, cancel).await?;
        if !known.contains(&self.tree) {
            let sources = self.clone();
            let pack = aside(move || sources.pack(&known, lock)).await?;
            let sent = self.send(&pack, host, &git_dir, cancel).await;
            // What is left is removed before the next pack is made.
            let _ = files::remove(&pack.folder);
            sent?;
        }
        Ok(git_dir)
    }

    /// The trees that are whole in the machine's repository, which is made where it is missing.
    async fn trees(
        &self,
        host: &dyn Host,
        git_dir: &Path,
        cancel: &Cancel,
    ) -> Result<BTreeSet<Oid>, GitError> {
        let path = git_dir.to_owned();
        if file(host, FileOp::Facts { path }).await.is_err() {
            // Renamed when it is whole.
            let partial = git_dir.with_added_extension("partial");
            let path = partial.clone();
            file(host, FileOp::Remove { path }).await?;
            let path = partial.clone();
            file(host, FileOp::MakeDir { path }).await?;
            let init = Call::local(None, "init")
                .args(["--quiet", "--bare", "--template="])
                .arg(format!("--object-format={}", self.object_format))
                .arg(&partial);
            init.run_on(host, cancel).await?;
            let (from, to) = (partial, git_dir.to_owned());
            file(host, FileOp::Rename { from, to }).await?;
        }
        let list = Call::local(Some(git_dir), "for-each-ref")
            .arg(format!("--count={KNOWN_TREES_MAX}"))
            .args(["--format=%(objectname)", TREES]);
        let listing = list.run_on(host, cancel).await?;
        let listing = String::from_utf8_lossy(&listing);
        Ok(listing.lines().filter_map(Oid::parse).collect())
    }

    /// Packs what the tree has beyond `known` trees.
    fn pack(&self, known: &BTreeSet<Oid>, lock: FileLock) -> Result<Pack, GitError> {
        let folder = self.own.git_dir.join("outgoing");
        files::remove(&folder)?;
        files::make_dir(&folder)?;
        let names = known.iter().map(|id| format!("{id}\n"));
        let here = self.own.reading("cat-file").arg("--batch-check");
        let here = here.stdin(names.collect::<String>().into_bytes()).run()?;
        let here = String::from_utf8_lossy(&here);
        let here = here.lines().filter_map(|line| {
            let (id, rest) = line.split_once(' ')?;
            rest.starts_with("tree ").then_some(id)
        });
        let mut wanted = format!("{}\n", self.tree);
        here.for_each(|id| wanted += &format!("^{id}\n"));
        let call = self
            .own
            .reading("pack-objects")
            .args(["--revs", "--quiet"])
            .arg(folder.join("pack"))
            .stdin(wanted.into_bytes());
        let hash = call.run()?;
        let hash = String::from_utf8_lossy(&hash);
        let file = folder.join(format!("pack-{}.pack", hash.trim()));
        Ok(Pack {
            folder,
            file,
            _lock: lock,
        })
    }

    async fn send(
        &self,
        pack: &Pack,
        host: &dyn Host,
        git_dir: &Path,
        cancel: &Cancel,
    ) -> Result<(), GitError> {
        let place = git_dir.join(format!("objects/pack/pack-{}.pack", self.tree));
        // Where one that was cut short had an index, that one is of another pack.
        let path = place.with_extension("idx");
        file(host, FileOp::Remove { path }).await?;
        let (path, bytes) = (place.clone(), Vec::new());
        file(host, FileOp::Replace { path, bytes }).await?;
        let mut offset = 0;
        loop {
            if cancel.is_cancelled() {
                let command = "index-pack".to_owned();
                return Err(GitError::Interrupted { command });
            }
            let read = FileOp::ReadAt {
                path: pack.file.clone(),
                offset,
                bytes_max: CHUNK_BYTES,
            };
            let FileReply::Bytes(bytes) = aside(move || Ok(blocking::file(read)?)).await? else {
                break;
            };
            if bytes.is_empty() {
                break;
            }
            offset += bytes.len() as u64;
            let path = place.clone();
            file(host, FileOp::Append { path, bytes }).await?;
        }
        let call = |name: &str| Call::local(Some(git_dir), name);
        call("index-pack").arg(&place).run_on(host, cancel).await?;
        call("update-ref")
            .arg(format!("{TREES}{}", self.tree))
            .arg(self.tree.as_str())
            .run_on(host, cancel)
            .await?;
        Ok(())
    }
}

/// Does what blocks on a thread of its own.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, GitError> + Send + 'static,
) -> Result<T, GitError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(GitError::Failed {
            command: "pack-objects".to_owned(),
            words: format!("its thread ended before it did: {error}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::TestRepo;

    fn packs(machine: &Path) -> Vec<u64> {
        let folders = std::fs::read_dir(machine).unwrap();
        let folder = folders.map(|it| it.unwrap().path()).next().unwrap();
        let packs = std::fs::read_dir(folder.join("objects/pack")).unwrap();
        let packs = packs.map(|it| it.unwrap().path());
        let packs = packs.filter(|path| path.extension().is_some_and(|it| it == "pack"));
        packs.map(|path| path.metadata().unwrap().len()).collect()
    }

    /// The second commit changes one of many files.
    #[test]
    fn only_what_a_machine_lacks_is_sent() {
        let repo = TestRepo::with_history();
        for n in 0..200u32 {
            let text: String = (0..200).map(|i| format!("{}\n", i * n * 7919)).collect();
            repo.write(&format!("many/{n}.c"), &text);
        }
        repo.commit("many files");
        repo.write("many/7.c", "another\n");
        repo.commit("one file");
        let mut opened = repo.open();
        let [old, new] = ["main~1", "main"].map(|it| opened.resolve(it).unwrap().id);
        let machine = repo.dir.path().join("machine");
        repo.check_out(&mut opened, &old, false);
        let whole: u64 = packs(&machine).iter().sum();
        repo.check_out(&mut opened, &new, false);
        let both: u64 = packs(&machine).iter().sum();
        assert_eq!(packs(&machine).len(), 2);
        assert!((both - whole) * 10 < whole, "{whole}, then {both} bytes");
        repo.check_out(&mut opened, &old, false);
        assert_eq!(packs(&machine).len(), 2, "nothing is sent twice");
        assert!(!opened.own.git_dir.join("outgoing").exists());
    }
}
