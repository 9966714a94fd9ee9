//! The lock that keeps two processes out of one folder of ours.

use std::path::Path;
use std::time::Duration;

use super::error::GitError;
use crate::machine::host::local::blocking::FileLock;

/// Waits at most `wait` for whoever has it. The lock is held until it is dropped, or the process ends in any way.
pub fn take(path: &Path, wait: Duration) -> Result<FileLock, GitError> {
    FileLock::take(path, wait)?.ok_or_else(|| GitError::Busy {
        path: path.display().to_string(),
        waited: wait,
    })
}
