//! Artifacts: their content as a key, and the folder that keeps them by content.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};
use regex::bytes::Regex;

use crate::base::key::{Key, KeyHasher};

/// Bytes of one artifact.
pub const ARTIFACT_BYTES_MAX: u64 = 2 << 30;
/// Sections that tell builds apart and change nothing: they are left out of the content.
const SECTIONS_IGNORED: [&str; 2] = [".note.gnu.build-id", ".gnu_debuglink"];

/// An artifact could not be kept. The message names the file and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ArtifactError(String);

/// The folder `artifacts` of a state folder: `DIGEST/NAME`.
pub struct Artifacts {
    folder: PathBuf,
}

impl Artifacts {
    pub fn new(state: &Path) -> Self {
        Artifacts {
            folder: state.join("artifacts"),
        }
    }

    /// Keeps all artifacts in place while the file is held: others that hold them may go on,
    /// whoever wants to remove some may not. Waits for one who does.
    pub fn hold(&self) -> io::Result<fs::File> {
        let file = self.lock_file()?;
        file.lock_shared()?;
        Ok(file)
    }

    /// Lets nobody hold artifacts while the file is held; None where somebody does.
    pub fn hold_alone(&self) -> io::Result<Option<fs::File>> {
        let file = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock_file(&self) -> io::Result<fs::File> {
        fs::create_dir_all(&self.folder)?;
        let mut options = fs::OpenOptions::new();
        options.create(true).truncate(false).write(true);
        options.open(self.folder.with_extension("lock"))
    }

    /// Where the files of an artifact are.
    pub fn place(&self, digest: Key) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    pub fn has(&self, digest: Key) -> bool {
        self.place(digest).is_dir()
    }

    /// Keeps files (paths below `from`), each under its own name; returns their content's key.
    /// They are copied, synced and renamed into place: a crash leaves all of them or none.
    /// What matches `volatile`, the build id and the debug link are no content.
    pub fn keep(
        &self,
        from: &Path,
        files: &[String],
        volatile: &[Regex],
    ) -> Result<Key, ArtifactError> {
        let mut hasher = KeyHasher::new("artifact");
        let mut contents = Vec::new();
        let mut files: Vec<&String> = files.iter().collect();
        files.sort();
        for file in files {
            let path = from.join(file);
            let bytes = read(&path)?;
            let name = path.file_name().unwrap_or_default().to_owned();
            hasher.bytes(name.as_encoded_bytes());
            hasher.key(content(&bytes, volatile));
            contents.push((name, path, bytes));
        }
        let digest = hasher.finish();
        if self.has(digest) {
            return Ok(digest);
        }
        self.remove_halves();
        let place = self.place(digest);
        let half = self
            .folder
            .join(format!("{digest}.half-{}", std::process::id()));
        let write = || -> io::Result<()> {
            fs::create_dir_all(&half)?;
            for (name, path, bytes) in &contents {
                let target = half.join(name);
                fs::write(&target, bytes)?;
                fs::set_permissions(&target, fs::metadata(path)?.permissions())?;
                fs::File::open(&target)?.sync_all()?;
            }
            fs::File::open(&half)?.sync_all()?;
            fs::rename(&half, &place)?;
            fs::File::open(&self.folder)?.sync_all()
        };
        write().map_err(|error| {
            let _ = fs::remove_dir_all(&half);
            let remedy = match error.kind() {
                io::ErrorKind::StorageFull => ": make space there, or `matrix gc`",
                _ => "",
            };
            ArtifactError(format!(
                "`{}` cannot be written: {error}{remedy}",
                place.display()
            ))
        })?;
        Ok(digest)
    }

    /// Removes what processes that are gone have left half copied; they may have filled the disk.
    pub fn remove_halves(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let process = name.to_str().and_then(|name| name.split_once(".half-"));
            if process.is_some_and(|(_, id)| !Path::new("/proc").join(id).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// All artifacts with their size in bytes and the time they were last changed.
    pub fn list(&self) -> io::Result<Vec<(Key, u64, std::time::SystemTime)>> {
        let mut list = Vec::new();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(list),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            // A half is somebody's who copies at the moment, or for `remove_halves`.
            if let Some(digest) = entry.file_name().to_str().and_then(Key::parse) {
                let mut size = 0;
                for file in fs::read_dir(entry.path())? {
                    size += file?.metadata()?.len();
                }
                list.push((digest, size, entry.metadata()?.modified()?));
            }
        }
        Ok(list)
    }

    pub fn remove(&self, digest: Key) -> io::Result<()> {
        fs::remove_dir_all(self.place(digest))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ArtifactError> {
    let failed = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => ": the build did not make it; check `[build] artifacts`",
            _ => "",
        };
        ArtifactError(format!("artifact `{}`: {error}{remedy}", path.display()))
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > ARTIFACT_BYTES_MAX {
        return Err(ArtifactError(format!(
            "artifact `{}` has {size} bytes; at most {ARTIFACT_BYTES_MAX} are kept",
            path.display()
        )));
    }
    fs::read(path).map_err(failed)
}

/// The key of what counts in a file.
fn content(bytes: &[u8], volatile: &[Regex]) -> Key {
    let mut bytes = bytes.to_vec();
    let ignored: Vec<(u64, u64)> = match object::File::parse(bytes.as_slice()) {
        Ok(file) => file
            .sections()
            .filter(|section| {
                section
                    .name()
                    .is_ok_and(|name| SECTIONS_IGNORED.contains(&name))
            })
            .filter_map(|section| section.file_range())
            .collect(),
        // Not an object file: all of it counts.
        Err(_) => Vec::new(),
    };
    for (start, size) in ignored {
        let end = start.saturating_add(size).min(bytes.len() as u64) as usize;
        if let Some(range) = bytes.get_mut(start as usize..end) {
            range.fill(0);
        }
    }
    for regex in volatile {
        bytes = regex.replace_all(&bytes, &b""[..]).into_owned();
    }
    Key::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(files: &[(&str, &[u8])], volatile: &[&str]) -> Key {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = files.iter().map(|(name, _)| name.to_string()).collect();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let volatile: Vec<Regex> = volatile
            .iter()
            .map(|text| Regex::new(text).unwrap())
            .collect();
        let artifacts = Artifacts::new(dir.path());
        let digest = artifacts.keep(dir.path(), &names, &volatile).unwrap();
        for (name, bytes) in files {
            assert_eq!(
                fs::read(artifacts.place(digest).join(name)).unwrap(),
                *bytes
            );
        }
        digest
    }

    #[test]
    fn content_decides() {
        assert_eq!(
            kept(&[("a", b"1"), ("b", b"2")], &[]),
            kept(&[("b", b"2"), ("a", b"1")], &[])
        );
        assert_ne!(kept(&[("a", b"1")], &[]), kept(&[("a", b"2")], &[]));
        assert_ne!(kept(&[("a", b"1")], &[]), kept(&[("b", b"1")], &[]));
    }

    #[test]
    fn volatile_text_is_no_content() {
        let volatile = ["v[0-9.]+-g[0-9a-f]+"];
        let (old, new) = (b"x v1.2-gabc y".as_slice(), b"x v1.2-gdef0 y".as_slice());
        assert_eq!(
            kept(&[("a", old)], &volatile),
            kept(&[("a", new)], &volatile)
        );
        assert_ne!(kept(&[("a", old)], &[]), kept(&[("a", new)], &[]));
    }

    #[test]
    fn only_halves_of_dead_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(dir.path());
        // No process has the highest number: Linux gives at most 2^22.
        let [alive, dead] = [std::process::id(), u32::MAX].map(|id| format!("x.half-{id}"));
        let folder = dir.path().join("artifacts");
        fs::create_dir_all(folder.join(&alive)).unwrap();
        fs::create_dir_all(folder.join(&dead)).unwrap();
        assert_eq!(artifacts.list().unwrap(), []);
        let are_there = || [&alive, &dead].map(|name| folder.join(name).exists());
        assert_eq!(are_there(), [true, true]);
        artifacts.remove_halves();
        assert_eq!(are_there(), [true, false]);
    }

    #[test]
    fn a_build_id_is_no_content() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("a.c");
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let build = |name: &str, id: &str| {
            let out = dir.path().join(name);
            let done = std::process::Command::new("cc")
                .args(["-o", out.to_str().unwrap(), source.to_str().unwrap()])
                .arg(format!("-Wl,--build-id=0x{id}"))
                .status()
                .expect("a C compiler: apt-get install gcc");
            assert!(done.success());
            fs::read(out).unwrap()
        };
        let (one, two) = (
            build("one", "1234567890abcdef"),
            build("two", "fedcba0987654321"),
        );
        assert_ne!(one, two);
        assert_eq!(content(&one, &[]), content(&two, &[]));
    }
}
