//! File operations on this machine.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat, unlinkat,
};
use rustix::io::Errno;

use super::artifact;
use crate::base::key::Key;
use crate::machine::host::{FileFacts, FileOp, FileReply, HostError, HostErrorKind};

/// Names in one folder.
const NAMES_MAX: usize = 1_000_000;
/// Folders within folders that are removed: each keeps one file open.
const REMOVE_DEPTH_MAX: usize = 256;
const CHUNK_BYTES: usize = 64 << 10;
/// What is read without a thread of its own.
const READ_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Whether an operation may wait for a disk: it must not delay what else its thread has to do. What is only looked
/// at is nearly always in memory, and cheaper done than handed over.
pub fn may_take_long(op: &FileOp) -> bool {
    match op {
        FileOp::Replace { .. }
        | FileOp::Remove { .. }
        | FileOp::Digest { .. }
        | FileOp::ReadAt { .. }
        | FileOp::Rename { .. }
        | FileOp::KeepArtifact { .. } => true,
        FileOp::Read { path, bytes_max } => {
            let is_kernels = path.starts_with("/proc") || path.starts_with("/sys");
            *bytes_max > READ_AT_ONCE_BYTES_MAX && !is_kernels
        }
        FileOp::Write { .. }
        | FileOp::Append { .. }
        | FileOp::List { .. }
        | FileOp::MakeDir { .. }
        | FileOp::Link { .. }
        | FileOp::Facts { .. }
        | FileOp::Resolve { .. }
        | FileOp::Which { .. } => false,
    }
}

/// Carries out one operation. `Which` is not ours: it needs the host's PATH.
pub fn carry_out(op: FileOp) -> Result<FileReply, HostError> {
    let done = |()| FileReply::Done;
    match op {
        FileOp::Read { path, bytes_max } => read(&path, bytes_max).map(FileReply::Bytes),
        FileOp::Write { path, bytes } => write(&path, &bytes).map(done),
        FileOp::Replace { path, bytes } => replace(&path, &bytes).map(done),
        FileOp::Append { path, bytes } => append(&path, &bytes).map(done),
        FileOp::List { path } => list(&path).map(FileReply::Names),
        FileOp::MakeDir { path } => fs::create_dir_all(&path)
            .map_err(failed("create folder", &path))
            .map(done),
        FileOp::Remove { path } => remove(&path).map(done),
        FileOp::Link { path, target } => link(&path, &target).map(done),
        FileOp::Digest { path } => digest(&path).map(FileReply::Digest),
        FileOp::ReadAt {
            path,
            offset,
            bytes_max,
        } => read_at(&path, offset, bytes_max).map(FileReply::Bytes),
        FileOp::Facts { path } => facts(&path).map(FileReply::Facts),
        FileOp::Resolve { path } => fs::canonicalize(&path)
            .map_err(failed("find", &path))
            .map(FileReply::Path),
        FileOp::Rename { from, to } => rename(&from, &to).map(done),
        FileOp::KeepArtifact {
            from,
            files,
            volatile,
            into,
        } => artifact::keep(&from, &files, &volatile, &into).map(FileReply::Digest),
        FileOp::Which { program } => Err(HostError::new(
            HostErrorKind::Other,
            format!("`{program}` is looked up by the host, not among its files"),
        )),
    }
}

fn failed<'a>(what: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> HostError + 'a {
    move |error| HostError::io(format!("cannot {what} `{}`", path.display()), &error)
}

/// Does not wait for a writer of a FIFO.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)
}

fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::new();
    open(path)
        .and_then(|file| {
            file.take((bytes_max as u64).saturating_add(1))
                .read_to_end(&mut bytes)
        })
        .map_err(failed("read", path))?;
    if bytes.len() > bytes_max {
        let message = format!(
            "`{}` is larger than the {bytes_max} bytes that it may have: shorten it",
            path.display()
        );
        return Err(HostError::new(HostErrorKind::TooLarge, message));
    }
    Ok(bytes)
}

fn read_at(path: &Path, offset: u64, bytes_max: usize) -> Result<Vec<u8>, HostError> {
    let carry_out = || -> io::Result<Vec<u8>> {
        let mut file = open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(bytes_max as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    carry_out().map_err(failed("read", path))
}

fn facts(path: &Path) -> Result<FileFacts, HostError> {
    let facts = fs::metadata(path).map_err(failed("look at", path))?;
    let modified = facts.modified().ok();
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    Ok(FileFacts {
        is_file: facts.is_file(),
        is_folder: facts.is_dir(),
        bytes: facts.len(),
        modified_ms: since.map_or(0, |since| since.as_millis() as i64),
    })
}

fn rename(from: &Path, to: &Path) -> Result<(), HostError> {
    fs::rename(from, to)
        .and_then(|()| File::open(folder_of(to))?.sync_all())
        .map_err(failed("rename", from))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let written = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write(bytes))
        .map_err(failed("write", path))?;
    if written < bytes.len() {
        let message = format!(
            "`{}` took only {written} of {} bytes",
            path.display(),
            bytes.len()
        );
        return Err(HostError::new(HostErrorKind::Other, message));
    }
    Ok(())
}

fn append(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    OpenOptions::new()
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(failed("append to", path))
}

/// A name beside `path` that nobody else uses.
fn beside(path: &Path) -> Result<PathBuf, HostError> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().ok_or_else(|| has_no_name(path))?;
    let mut temporary = OsString::from(".");
    // A long name has to stay below the file system's limit.
    temporary.push(name.to_string_lossy().chars().take(32).collect::<String>());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{count}.tmp", std::process::id()));
    Ok(path.with_file_name(temporary))
}

fn has_no_name(path: &Path) -> HostError {
    let message = format!(
        "`{}` names no file: give a path that ends in a name",
        path.display()
    );
    HostError::new(HostErrorKind::Other, message)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    let temporary = beside(path)?;
    let carry_out = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        if let Ok(old) = fs::symlink_metadata(path)
            && old.is_file()
        {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(folder_of(path))?.sync_all()
    };
    let result = carry_out().map_err(failed("write", path));
    if result.is_err() {
        // It may not be there: then nothing is to be removed.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn list(path: &Path) -> Result<Vec<String>, HostError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed("list", path))? {
        let name = entry.map_err(failed("list", path))?.file_name();
        let name = name.into_string().map_err(|name| {
            let message = format!(
                "`{}` holds {name:?}, which is not UTF-8: rename it",
                path.display()
            );
            HostError::new(HostErrorKind::Other, message)
        })?;
        if names.len() == NAMES_MAX {
            let message = format!(
                "`{}` holds more than {NAMES_MAX} names: remove some",
                path.display()
            );
            return Err(HostError::new(HostErrorKind::TooLarge, message));
        }
        names.push(name);
    }
    names.sort_unstable();
    Ok(names)
}

fn link(path: &Path, target: &Path) -> Result<(), HostError> {
    let temporary = beside(path)?;
    let result = symlink(target, &temporary)
        .and_then(|()| fs::rename(&temporary, path))
        .map_err(failed("create link", path));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn digest(path: &Path) -> Result<Key, HostError> {
    let carry_out = || -> io::Result<Key> {
        let mut file = open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                bytes => hasher.update(&chunk[..bytes]),
            };
        }
        let mut key = [0; 16];
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Ok(Key(key))
    };
    carry_out().map_err(failed("hash", path))
}

/// Every step goes from an open folder to a name in it: nobody can put a link in the way.
fn remove(path: &Path) -> Result<(), HostError> {
    let name = path.file_name().ok_or_else(|| has_no_name(path))?;
    let folder = openat2(
        CWD,
        folder_of(path),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::empty(),
    );
    match folder {
        Ok(folder) => remove_in(&folder, name, path, REMOVE_DEPTH_MAX),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed("remove", path)(error.into())),
    }
}

/// Removes `name` in `folder`; `path` is what to call it.
fn remove_in(
    folder: &OwnedFd,
    name: &OsStr,
    path: &Path,
    depth_left: usize,
) -> Result<(), HostError> {
    let refuse = |why: &str| {
        let message = format!("did not remove `{}`: {why}", path.display());
        HostError::new(HostErrorKind::Other, message)
    };
    let unmount = || {
        refuse(&format!(
            "something is mounted there; `umount {}` first",
            path.display()
        ))
    };
    let carry_out = || -> rustix::io::Result<Option<OwnedFd>> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            unlinkat(folder, name, AtFlags::empty())?;
            return Ok(None);
        }
        let open = |flags| {
            openat2(
                folder,
                name,
                flags | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH,
            )
        };
        // Programs make folders read-only, such as caches. Who may change that may remove them.
        let mode = Mode::from_raw_mode(stat.st_mode);
        if !mode.contains(Mode::RWXU) && stat.st_uid == rustix::process::geteuid().as_raw() {
            // Held without its permission, and changed by what holds it: nobody can put a link in the way.
            let folder = open(OFlags::PATH)?;
            let held = format!("/proc/self/fd/{}", folder.as_raw_fd());
            rustix::fs::chmod(held, mode | Mode::RWXU)?;
        }
        open(OFlags::RDONLY).map(Some)
    };
    let inner = match carry_out() {
        Ok(None) | Err(Errno::NOENT) => return Ok(()),
        Ok(Some(inner)) => inner,
        Err(Errno::XDEV | Errno::BUSY) => return Err(unmount()),
        Err(Errno::PERM) => {
            return Err(refuse(
                "the file system does not allow it; `lsattr -d` shows whether it is immutable, \
                 `chattr -i -a` makes it removable",
            ));
        }
        Err(error) => return Err(failed("remove", path)(error.into())),
    };
    let Some(depth_left) = depth_left.checked_sub(1) else {
        return Err(refuse(&format!(
            "more than {REMOVE_DEPTH_MAX} folders within each other"
        )));
    };
    for name in names_in(&inner).map_err(|error| failed("remove", path)(error.into()))? {
        remove_in(&inner, &name, &path.join(&name), depth_left)?;
    }
    match unlinkat(folder, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => Err(unmount()),
        Err(error) => Err(failed("remove", path)(error.into())),
    }
}

fn names_in(folder: &OwnedFd) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder.as_fd())? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        (folder, path)
    }

    fn names(path: &Path) -> Vec<String> {
        list(path).unwrap()
    }

    #[test]
    fn reading_has_a_limit() {
        let (_kept, dir) = folder();
        let path = dir.join("f");
        fs::write(&path, "12345").unwrap();
        let check = |path: &Path, bytes_max: usize, expected: Result<&str, HostErrorKind>| {
            let read = read(path, bytes_max).map_err(|error| error.kind);
            assert_eq!(read, expected.map(|text| text.as_bytes().to_vec()));
        };
        check(&path, 5, Ok("12345"));
        check(&path, usize::MAX, Ok("12345"));
        check(&path, 4, Err(HostErrorKind::TooLarge));
        check(&dir.join("none"), 4, Err(HostErrorKind::NotFound));
        check(&dir, 4, Err(HostErrorKind::Other));
        check(Path::new("/proc/sys/kernel/ostype"), 10, Ok("Linux\n"));
    }

    #[test]
    fn a_fifo_does_not_hold_us_up() {
        let (_kept, dir) = folder();
        let path = dir.join("fifo");
        let made = std::process::Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap();
        assert!(made.success());
        assert_eq!(read(&path, 10), Ok(vec![]));
        assert!(
            digest(&path)
                .unwrap_err()
                .message
                .contains("not a regular file")
        );
    }

    #[test]
    fn writing_in_place() {
        let (_kept, dir) = folder();
        let path = dir.join("f");
        assert_eq!(
            write(&path, b"x").unwrap_err().kind,
            HostErrorKind::NotFound
        );
        fs::write(&path, "long old content").unwrap();
        write(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            write(Path::new("/dev/full"), b"x").unwrap_err().kind,
            HostErrorKind::NoSpace
        );
    }

    #[test]
    fn appending_needs_a_file() {
        let (_kept, dir) = folder();
        let path = dir.join("f");
        let refused = append(&path, b"x").unwrap_err();
        assert_eq!(refused.kind, HostErrorKind::NotFound);
        fs::write(&path, "one\n").unwrap();
        append(&path, b"two\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
    }

    #[test]
    fn replacing_is_whole_or_not_at_all() {
        let (_kept, dir) = folder();
        let path = dir.join("f");
        replace(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o640
        );
        fs::create_dir(dir.join("folder")).unwrap();
        assert!(replace(&dir.join("folder"), b"x").is_err());
        let long = dir.join("n".repeat(255));
        replace(&long, b"x").unwrap();
        fs::remove_file(long).unwrap();
        assert_eq!(names(&dir), ["f", "folder"]);
        assert_eq!(
            replace(&dir.join("no/f"), b"x").unwrap_err().kind,
            HostErrorKind::NotFound
        );
        assert!(
            replace(Path::new("/"), b"x")
                .unwrap_err()
                .message
                .contains("names no file")
        );
    }

    #[test]
    fn links_are_replaced() {
        let (_kept, dir) = folder();
        let path = dir.join("current");
        for target in ["a", "b"] {
            link(&path, Path::new(target)).unwrap();
            assert_eq!(fs::read_link(&path).unwrap(), Path::new(target));
        }
        assert_eq!(names(&dir), ["current"]);
    }

    #[test]
    fn a_digest_is_of_the_content() {
        let (_kept, dir) = folder();
        let path = dir.join("f");
        let content = vec![7; 3 * CHUNK_BYTES + 1];
        fs::write(&path, &content).unwrap();
        let expected = blake3::hash(&content);
        assert_eq!(digest(&path).unwrap().0, expected.as_bytes()[..16]);
    }

    #[test]
    fn removing_does_not_follow_links() {
        let (_kept, dir) = folder();
        let kept = dir.join("kept");
        fs::create_dir_all(kept.join("inner")).unwrap();
        let tree = dir.join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/file"), "").unwrap();
        symlink(&kept, tree.join("a/link")).unwrap();
        symlink(&kept, dir.join("link")).unwrap();
        remove(&tree).unwrap();
        remove(&dir.join("link")).unwrap();
        remove(&dir.join("none")).unwrap();
        remove(&dir.join("none/deeper")).unwrap();
        assert_eq!(names(&dir), ["kept"]);
        assert_eq!(names(&kept), ["inner"]);
        for odd in ["/", "..", ""] {
            assert!(
                remove(Path::new(odd))
                    .unwrap_err()
                    .message
                    .contains("names no file")
            );
        }
    }

    #[test]
    fn removing_has_a_depth() {
        let (_kept, dir) = folder();
        let deep = |levels: usize| {
            let inner: PathBuf = std::iter::repeat_n("d", levels).collect();
            fs::create_dir_all(dir.join(inner)).unwrap();
            remove(&dir.join("d"))
        };
        assert_eq!(deep(REMOVE_DEPTH_MAX), Ok(()));
        let error = deep(REMOVE_DEPTH_MAX + 1).unwrap_err();
        assert!(error.message.contains("within each other"), "{error}");
    }

    /// Needs root, or user namespaces; says nothing where there are neither.
    #[test]
    fn removing_stops_at_a_mount() {
        let (_kept, dir) = folder();
        let mount = dir.join("tree/mounted");
        fs::create_dir_all(&mount).unwrap();
        fs::create_dir_all(dir.join("other/precious")).unwrap();
        let run = |argv: &[&std::ffi::OsStr]| {
            std::process::Command::new(argv[0])
                .args(&argv[1..])
                .output()
                .unwrap()
                .status
                .success()
        };
        let other = dir.join("other");
        // A bind mount: the device number is the same on both sides.
        if !run(&[
            "mount".as_ref(),
            "--bind".as_ref(),
            other.as_ref(),
            mount.as_ref(),
        ]) {
            return;
        }
        let of_tree = remove(&dir.join("tree"));
        let of_mount = remove(&mount);
        assert!(run(&["umount".as_ref(), mount.as_ref()]));
        for error in [of_tree.unwrap_err(), of_mount.unwrap_err()] {
            assert!(
                error.message.contains("something is mounted there"),
                "{error}"
            );
            assert!(error.message.contains("tree/mounted"), "{error}");
        }
        assert_eq!(names(&other), ["precious"]);
    }
}
