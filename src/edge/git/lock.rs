//! The lock files that keep two processes out of one folder of ours.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::error::GitError;

/// Held until dropped, or until the process ends in any way.
pub struct RepositoryLock(#[allow(dead_code)] File);

impl RepositoryLock {
    /// Waits at most `wait` for whoever has it.
    pub fn take(path: &Path, wait: Duration) -> Result<RepositoryLock, GitError> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| GitError::io(path, &error))?;
        let deadline = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(RepositoryLock(file)),
                Err(TryLockError::Error(error)) => return Err(GitError::io(path, &error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    return Err(GitError::Busy {
                        path: path.display().to_string(),
                        waited: wait,
                    });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}
