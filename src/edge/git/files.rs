//! The few file operations that our own repositories on this machine need.

use std::path::{Path, PathBuf};

use super::error::GitError;
use crate::machine::host::local::blocking::file;
use crate::machine::host::{FileFacts, FileOp, FileReply, HostErrorKind};

pub fn make_dir(path: &Path) -> Result<(), GitError> {
    file(FileOp::MakeDir { path: path.into() })?;
    Ok(())
}

/// Fine when it is not there.
pub fn remove(path: &Path) -> Result<(), GitError> {
    file(FileOp::Remove { path: path.into() })?;
    Ok(())
}

pub fn rename(from: &Path, to: &Path) -> Result<(), GitError> {
    let (from, to) = (from.into(), to.into());
    file(FileOp::Rename { from, to })?;
    Ok(())
}

pub fn read(path: &Path, bytes_max: usize) -> Result<Vec<u8>, GitError> {
    let path = path.into();
    match file(FileOp::Read { path, bytes_max })? {
        FileReply::Bytes(bytes) => Ok(bytes),
        _ => Ok(Vec::new()),
    }
}

/// The absolute path without links; None where there is nothing.
pub fn resolve(path: &Path) -> Result<Option<PathBuf>, GitError> {
    match file(FileOp::Resolve { path: path.into() }) {
        Ok(FileReply::Path(path)) => Ok(Some(path)),
        Err(error) if error.kind != HostErrorKind::NotFound => Err(error.into()),
        _ => Ok(None),
    }
}

/// None where there is nothing, or nothing that we may look at.
pub fn facts(path: &Path) -> Option<FileFacts> {
    match file(FileOp::Facts { path: path.into() }) {
        Ok(FileReply::Facts(facts)) => Some(facts),
        _ => None,
    }
}

pub fn is_folder(path: &Path) -> bool {
    facts(path).is_some_and(|facts| facts.is_folder)
}
