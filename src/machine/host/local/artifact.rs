//! The content key of artifacts on this machine, and the folders that keep them by it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use regex::bytes::Regex;

use super::elf;
use super::tree::Owner;
use crate::base::key::{Key, KeyHasher};
use crate::machine::host::{HostError, HostErrorKind};

/// Bytes of one artifact.
const ARTIFACT_BYTES_MAX: u64 = 2 << 30;
/// Between an artifact's digest and the process that copies it.
const HALF: &str = ".half-";

/// Keeps files (paths below `from`), each under its own name, in the folder `into/DIGEST`; returns the digest of
/// their content. A crash leaves all of them or none. What matches `volatile` is no content.
pub fn keep(
    from: &Path,
    files: &[String],
    volatile: &[String],
    into: &Path,
) -> Result<Key, HostError> {
    let volatile = volatile.iter().map(|text| Regex::new(text));
    let volatile: Vec<Regex> = volatile
        .collect::<Result<_, _>>()
        .map_err(|error| HostError::new(HostErrorKind::Other, error.to_string()))?;
    let mut hasher = KeyHasher::new("artifact");
    let mut contents = Vec::new();
    let mut files: Vec<&String> = files.iter().collect();
    files.sort();
    for file in files {
        let path = from.join(file);
        let bytes = read(&path)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        hasher.bytes(name.as_encoded_bytes());
        hasher.key(content(&bytes, &volatile));
        contents.push((name, path, bytes));
    }
    let digest = hasher.finish();
    let place = into.join(digest.to_string());
    if place.is_dir() {
        return Ok(digest);
    }
    let owner = Owner::this()?;
    remove_halves(into, &owner);
    let half = into.join(half_name(digest, &owner));
    write(&half, &place, &contents).map_err(|error| {
        // What cannot be removed is removed by whoever keeps the next artifact.
        let _ = fs::remove_dir_all(&half);
        HostError::io(format!("cannot write `{}`", place.display()), &error)
    })?;
    Ok(digest)
}

/// Copies into `half`, then gives it its name.
fn write(half: &Path, place: &Path, contents: &[(OsString, PathBuf, Vec<u8>)]) -> io::Result<()> {
    fs::create_dir_all(half)?;
    for (name, path, bytes) in contents {
        let target = half.join(name);
        fs::write(&target, bytes)?;
        fs::set_permissions(&target, fs::metadata(path)?.permissions())?;
        File::open(&target)?.sync_all()?;
    }
    File::open(half)?.sync_all()?;
    match fs::rename(half, place) {
        // Another build gave the same meanwhile.
        Err(_) if place.is_dir() => fs::remove_dir_all(half)?,
        renamed => renamed?,
    }
    match place.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// A name that no other copy has.
fn half_name(digest: Key, owner: &Owner) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{digest}{HALF}{count}-{owner}")
}

/// Removes what processes that are gone have left half copied; it may have filled the disk.
fn remove_halves(folder: &Path, us: &Owner) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.split_once(HALF));
        let of = of.and_then(|(_, of)| of.split_once('-'));
        let owner = of.and_then(|(_, owner)| Owner::parse(owner));
        // Of another pid namespace it cannot be seen whether it lives.
        let is_dead = |owner: Owner| owner.namespace == us.namespace && !owner.is_alive();
        if owner.is_some_and(is_dead) {
            // Tried again by the next one.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, HostError> {
    let failed = |error: io::Error| {
        let what = format!("artifact `{}`", path.display());
        let mut failed = HostError::io(what, &error);
        if error.kind() == io::ErrorKind::NotFound {
            failed.message += ": the build did not make it; check `[build] artifacts`";
        }
        failed
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > ARTIFACT_BYTES_MAX {
        let message = format!(
            "artifact `{}` has {size} bytes; at most {ARTIFACT_BYTES_MAX} are kept",
            path.display()
        );
        return Err(HostError::new(HostErrorKind::TooLarge, message));
    }
    fs::read(path).map_err(failed)
}

/// The key of what counts in a file: of a program what is loaded, else all bytes.
fn content(bytes: &[u8], volatile: &[Regex]) -> Key {
    let of_program = elf::loaded(bytes, volatile);
    of_program.unwrap_or_else(|| Key::of(&elf::without(bytes, volatile)))
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
        let volatile: Vec<String> = volatile.iter().map(|text| text.to_string()).collect();
        let into = dir.path().join("artifacts");
        let digest = keep(dir.path(), &names, &volatile, &into).unwrap();
        for (name, bytes) in files {
            let place = into.join(digest.to_string());
            assert_eq!(fs::read(place.join(name)).unwrap(), *bytes);
        }
        assert_eq!(fs::read_dir(&into).unwrap().count(), 1);
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
        let us = Owner::this().unwrap();
        let namespace = &us.namespace;
        // No process has the highest number: Linux gives at most 2^22.
        let check = |owner: String, is_kept: bool| {
            let half = dir.path().join(format!("{}{HALF}0-{owner}", Key([1; 16])));
            fs::create_dir_all(&half).unwrap();
            remove_halves(dir.path(), &us);
            assert_eq!(half.exists(), is_kept, "{owner}");
        };
        check(us.to_string(), true);
        check(format!("{}:1:{namespace}", i32::MAX), false);
        check(format!("{}:1:of a container", i32::MAX), true);
    }

    #[test]
    fn what_a_build_did_not_make_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = keep(dir.path(), &["prog".to_owned()], &[], dir.path()).unwrap_err();
        assert_eq!(error.kind, HostErrorKind::NotFound);
        assert!(
            error.message.contains("check `[build] artifacts`"),
            "{error}"
        );
    }
}
