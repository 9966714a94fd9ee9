//! The file in which the nights of a matrix are remembered, and the lock that lets one night at a time have it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::diag::Diagnostic;
use crate::base::file_name::file_name;
use crate::cli::machine::this_machine;
use crate::cli::show::Stop;
use crate::machine::host::local::blocking::FileLock;
use crate::machine::host::{FileOp, FileReply, HostErrorKind, file};
use crate::verdicts::nights::Nights;

/// Bytes of the file.
const STATE_BYTES_MAX: usize = 64 << 20;

/// The file of a matrix, while we have it.
pub struct StateFile {
    path: PathBuf,
    _lock: FileLock,
    /// As they were when it was opened.
    pub nights: Nights,
}

/// `STATE/nights/MATRIX.json`.
fn path_of(state: &Path, matrix: &str) -> PathBuf {
    let name = file_name(matrix);
    state.join("nights").join(format!("{name}.json"))
}

/// What is remembered; None where there was no night yet.
pub async fn read(state: &Path, matrix: &str) -> Result<Option<Nights>, Stop> {
    let path = path_of(state, matrix);
    let host = this_machine()?;
    let op = FileOp::Read {
        path: path.clone(),
        bytes_max: STATE_BYTES_MAX,
    };
    let bytes = match file(host.as_ref(), op).await {
        Ok(FileReply::Bytes(bytes)) => bytes,
        Err(error) if error.kind != HostErrorKind::NotFound => return Err(error.into()),
        _ => return Ok(None),
    };
    let nights = serde_json::from_slice(&bytes).map_err(|error| {
        Diagnostic::error(format!("`{}`: {error}", path.display())).help(
            "move the file away to begin anew: open changes are forgotten then, results are not",
        )
    })?;
    Ok(Some(nights))
}

/// Whether a night of the matrix runs now.
pub fn is_running(state: &Path, matrix: &str) -> bool {
    let path = path_of(state, matrix).with_extension("lock");
    matches!(FileLock::take(&path, Duration::ZERO), Ok(None))
}

impl StateFile {
    /// None where another night has it.
    pub async fn open(state: &Path, matrix: &str) -> Result<Option<StateFile>, Stop> {
        let path = path_of(state, matrix);
        let host = this_machine()?;
        let folder = state.join("nights");
        file(host.as_ref(), FileOp::MakeDir { path: folder }).await?;
        let lock = FileLock::take(&path.with_extension("lock"), Duration::ZERO)?;
        let Some(lock) = lock else { return Ok(None) };
        Ok(Some(StateFile {
            nights: read(state, matrix).await?.unwrap_or_default(),
            path,
            _lock: lock,
        }))
    }

    /// Durable when it returns.
    pub async fn save(&self, nights: &Nights) -> Result<(), Stop> {
        let bytes = serde_json::to_vec_pretty(nights)
            .map_err(|error| Stop::message(format!("the night cannot be kept: {error}")))?;
        let op = FileOp::Replace {
            path: self.path.clone(),
            bytes,
        };
        file(this_machine()?.as_ref(), op).await?;
        Ok(())
    }
}
