//! The user's own files, read and written here and nowhere else: matrices, profiles, templates, CSV, events.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// A text file that a user names, of the size that a matrix file may have; else why it cannot be read.
pub fn read_text(path: &Path) -> Result<String, String> {
    let limit = crate::config::FILE_BYTES_MAX as u64 + 1;
    let bytes = read(path, limit).map_err(in_words)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("line {line} is not UTF-8")
    })?;
    // A byte-order mark says nothing in UTF-8, and would shift columns.
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// The first bytes of a file.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // An empty vector would be filled 32 bytes at a time at first.
    let mut bytes = Vec::with_capacity(16 << 10);
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file to be read piece by piece, and its size in bytes.
pub fn open(path: &Path) -> io::Result<(impl Read + use<>, u64)> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

/// A new or emptied file to be written.
pub fn create(path: &Path) -> io::Result<impl io::Write + use<>> {
    File::create(path)
}

/// Writes a file whole or not at all: an older one stays as it is where that fails. What is no file, such as a pipe, is
/// written as it is. Returns false where the very same is there already: then nothing is touched.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let known = fs::symlink_metadata(path);
    if known.as_ref().is_ok_and(|known| !known.is_file()) {
        return fs::write(path, bytes).map(|()| true);
    }
    if known.is_ok() && fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = File::create(&beside)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map(|()| true)
}

/// Makes a folder, with those above it.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Names in a folder; none where it cannot be read.
pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.collect()
}

/// Without the number, which tells a person nothing.
pub fn in_words(error: io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
