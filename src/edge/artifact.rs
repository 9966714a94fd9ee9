//! Which artifacts machines keep: a folder `DIGEST` with the files of each.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use crate::base::key::Key;
use crate::machine::host::{FileOp, FileReply, Host, HostError, HostErrorKind, file};

/// What machines keep, as they were last looked at.
#[derive(Debug, Default)]
pub struct Artifacts {
    by_machine: RefCell<BTreeMap<String, HashSet<Key>>>,
}

/// An artifact of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptArtifact {
    pub digest: Key,
    pub bytes: u64,
    /// When it was built, in milliseconds since 1970-01-01 UTC.
    pub built_ms: i64,
}

impl Artifacts {
    /// Looks at what a machine keeps in a folder.
    pub async fn look(
        &self,
        machine: &str,
        host: &dyn Host,
        folder: &Path,
    ) -> Result<(), HostError> {
        let kept = digests(host, folder).await?.into_iter().collect();
        self.by_machine
            .borrow_mut()
            .insert(machine.to_owned(), kept);
        Ok(())
    }

    /// Notes what was just kept.
    pub fn add(&self, machine: &str, digest: Key) {
        let mut all = self.by_machine.borrow_mut();
        all.entry(machine.to_owned()).or_default().insert(digest);
    }

    /// Whether a machine keeps it.
    pub fn has_on(&self, machine: &str, digest: Key) -> bool {
        let all = self.by_machine.borrow();
        all.get(machine).is_some_and(|kept| kept.contains(&digest))
    }

    /// Whether some machine keeps it.
    pub fn has(&self, digest: Key) -> bool {
        let all = self.by_machine.borrow();
        all.values().any(|kept| kept.contains(&digest))
    }
}

/// The artifacts in a folder of a host. One that is being copied has another name.
async fn digests(host: &dyn Host, folder: &Path) -> Result<Vec<Key>, HostError> {
    let path = folder.to_owned();
    match file(host, FileOp::List { path }).await {
        Ok(FileReply::Names(names)) => {
            Ok(names.iter().filter_map(|name| Key::parse(name)).collect())
        }
        Err(error) if error.kind != HostErrorKind::NotFound => Err(error),
        _ => Ok(Vec::new()),
    }
}

/// All artifacts in a folder of a host, with their sizes and times.
pub async fn list(host: &dyn Host, folder: &Path) -> Result<Vec<KeptArtifact>, HostError> {
    let mut list = Vec::new();
    for digest in digests(host, folder).await? {
        let place = folder.join(digest.to_string());
        let path = place.clone();
        let names = match file(host, FileOp::List { path }).await? {
            FileReply::Names(names) => names,
            _ => Vec::new(),
        };
        let facts = |path: PathBuf| FileOp::Facts { path };
        let own = facts(place.clone());
        let files = names.iter().map(|name| facts(place.join(name)));
        let replies = host
            .files(std::iter::once(own).chain(files).collect())
            .await;
        let mut kept = KeptArtifact {
            digest,
            bytes: 0,
            built_ms: 0,
        };
        for (i, reply) in replies.into_iter().enumerate() {
            match (i, reply?) {
                (0, FileReply::Facts(facts)) => kept.built_ms = facts.modified_ms,
                (_, FileReply::Facts(facts)) => kept.bytes += facts.bytes,
                _ => {}
            }
        }
        list.push(kept);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::host::fake::{FakeHost, printed};

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_machine_keeps_is_listed() {
        let [one, other] = [1, 2].map(|n| Key([n; 16]));
        let host = FakeHost::new("fake", |_| Ok(printed("")))
            .with_file(format!("/a/{one}/prog"), "12345")
            .with_file(format!("/a/{one}/tool"), "1")
            .with_file(format!("/a/{other}.half-0-1:2:3/prog"), "1");
        let folder = Path::new("/a");
        let artifacts = Artifacts::default();
        artifacts.look("here", &host, folder).await.unwrap();
        assert!(artifacts.has(one) && artifacts.has_on("here", one));
        assert!(!artifacts.has(other) && !artifacts.has_on("there", one));
        artifacts.add("there", other);
        assert!(artifacts.has(other) && !artifacts.has_on("here", other));
        let list = list(&host, folder).await.unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].digest, list[0].bytes), (one, 6));
    }
}
