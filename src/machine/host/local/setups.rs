//! This machine's journal of set-ups: a file for each that is up or in the making.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::record;
use crate::machine::host::undo::{
    NotedSetup, SetupUndo, UNDO_BYTES_MAX, UndoId, UndoOp, UndoReply, UndoStep,
};
use crate::machine::host::{HostError, HostErrorKind};

/// In a machine's state folder.
const FOLDER: &str = "setups";
/// Changes when a field changes its meaning: an older or newer `matrix` then refuses the file.
const VERSION: u32 = 1;
/// Entries of one machine.
const SETUPS_MAX: usize = 10_000;
/// What is noted of one entry's undoing.
const STEPS_BYTES_MAX: usize = 1 << 20;
/// Digits of a file's name, so that names sort as numbers do.
const DIGITS: usize = 12;
const OTHERS_MAY_WRITE: u32 = 0o022;

/// The first line of a file. Lines with an [`UndoStep`] each follow.
#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
    boot_id: String,
    undo: SetupUndo,
}

/// Carries out one operation on the journal in a machine's state folder.
pub fn carry_out(state: &Path, op: UndoOp) -> Result<UndoReply, HostError> {
    let folder = state.join(FOLDER);
    match op {
        UndoOp::Begin(undo) => begin(&folder, undo).map(UndoReply::Begun),
        UndoOp::Note(id, step) => note(&folder, id, step).map(|()| UndoReply::Done),
        UndoOp::End(id) => end(&folder, id).map(|()| UndoReply::Done),
        UndoOp::List => list(&folder).map(UndoReply::Setups),
    }
}

fn failed<'a>(what: &'a str, path: &'a Path) -> impl Fn(io::Error) -> HostError + 'a {
    move |error| {
        let what = format!(
            "cannot {what} `{}`, the machine's journal of set-ups (MATRIX_LOCK=FILE puts it beside that file)",
            path.display()
        );
        HostError::io(what, &error)
    }
}

fn file_of(folder: &Path, id: UndoId) -> PathBuf {
    folder.join(format!("{:0DIGITS$}.json", id.0))
}

/// The numbers in the journal, ascending; the folder may be missing.
fn ids(folder: &Path) -> Result<Vec<UndoId>, HostError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", folder)(error)),
    };
    // Commands are run from what is read here.
    let facts = fs::metadata(folder).map_err(failed("read", folder))?;
    let ours = [0, rustix::process::geteuid().as_raw()];
    if !ours.contains(&facts.uid()) || facts.mode() & OTHERS_MAY_WRITE != 0 {
        let message = format!(
            "`{}`, the machine's journal of set-ups, can be written by others: remove it, or name another place \
             with MATRIX_LOCK=FILE",
            folder.display()
        );
        return Err(HostError::new(HostErrorKind::PermissionDenied, message));
    }
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let id = |name: String| name.strip_suffix(".json")?.parse().ok().map(UndoId);
    let mut ids: Vec<UndoId> = names.filter_map(id).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn begin(folder: &Path, undo: SetupUndo) -> Result<UndoId, HostError> {
    let head = Head {
        version: VERSION,
        boot_id: record::boot_id(),
        undo,
    };
    let line = serde_json::to_string(&head);
    let line = line.map_err(|error| HostError::new(HostErrorKind::Other, error.to_string()))?;
    let too_many = |what: String| HostError::new(HostErrorKind::TooLarge, what);
    if line.len() > UNDO_BYTES_MAX {
        let bytes = line.len();
        return Err(too_many(format!(
            "{bytes} bytes to undo a set-up; the limit is {UNDO_BYTES_MAX}: shorten its `undo`, or its environment"
        )));
    }
    let mut make = DirBuilder::new();
    let made = make.recursive(true).mode(0o700).create(folder);
    made.map_err(failed("create", folder))?;
    let ids = ids(folder)?;
    if ids.len() >= SETUPS_MAX {
        return Err(too_many(format!(
            "{SETUPS_MAX} set-ups are noted in `{}`: `matrix machine revert` undoes them",
            folder.display()
        )));
    }
    let mut id = UndoId(ids.last().map_or(0, |last| last.0 + 1));
    loop {
        let path = file_of(folder, id);
        let mut open = OpenOptions::new();
        let opened = open.write(true).create_new(true).mode(0o600).open(&path);
        let mut file = match opened {
            // Another one was quicker.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                id.0 += 1;
                continue;
            }
            opened => opened.map_err(failed("create", &path))?,
        };
        // What is torn was never begun.
        let written = file
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| file.sync_all())
            .and_then(|()| File::open(folder)?.sync_all());
        if let Err(error) = written {
            // Else the next one takes it for torn.
            let _ = fs::remove_file(&path);
            return Err(failed("write", &path)(error));
        }
        return Ok(id);
    }
}

fn note(folder: &Path, id: UndoId, step: UndoStep) -> Result<(), HostError> {
    let path = file_of(folder, id);
    let line = serde_json::to_string(&step).map_err(io::Error::from);
    let append = |line: String| {
        let mut file = OpenOptions::new().append(true).open(&path)?;
        file.write_all(format!("{line}\n").as_bytes())
    };
    line.and_then(append).map_err(failed("write", &path))
}

/// Not durable: whoever finds it after a power loss undoes what is undone already.
fn end(folder: &Path, id: UndoId) -> Result<(), HostError> {
    let path = file_of(folder, id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", &path)(error)),
        _ => Ok(()),
    }
}

fn list(folder: &Path) -> Result<Vec<NotedSetup>, HostError> {
    let boot_id = record::boot_id();
    let mut setups = Vec::new();
    for id in ids(folder)?.into_iter().rev().take(SETUPS_MAX) {
        let path = file_of(folder, id);
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| {
            let limit = UNDO_BYTES_MAX + STEPS_BYTES_MAX;
            file.take(limit as u64).read_to_string(&mut text)
        });
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.map_err(failed("read", &path))?,
        };
        let Some((head, rest)) = text.split_once('\n') else {
            // Torn, so what it tells of was not begun.
            end(folder, id)?;
            continue;
        };
        let head: Head = match serde_json::from_str(head) {
            Ok(Head { version, .. }) if version != VERSION => {
                return Err(broken(
                    &path,
                    &format!("it has version {version}, not {VERSION}"),
                ));
            }
            head => head.map_err(|error| broken(&path, &error.to_string()))?,
        };
        setups.push(NotedSetup {
            id,
            undo: head.undo,
            is_of_this_boot: head.boot_id == boot_id,
            // A torn one is not known.
            steps: rest
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
        });
    }
    Ok(setups)
}

fn broken(path: &Path, reason: &str) -> HostError {
    let message = format!(
        "`{}`, which says how to undo a set-up, cannot be read: {reason}; use the `matrix` that wrote it, or undo \
         the set-up by hand and remove the file",
        path.display()
    );
    HostError::new(HostErrorKind::Other, message)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn undo(dir: &str) -> SetupUndo {
        SetupUndo {
            matrix: "m".to_owned(),
            setup: "disk".to_owned(),
            dir: dir.to_owned(),
            commands: vec![vec!["umount".to_owned(), dir.to_owned()]],
            env: vec![("A".to_owned(), "b".to_owned())],
            timeout: Duration::from_secs(5),
        }
    }

    fn begin(state: &Path, dir: &str) -> UndoId {
        match carry_out(state, UndoOp::Begin(undo(dir))).unwrap() {
            UndoReply::Begun(id) => id,
            other => panic!("{other:?}"),
        }
    }

    fn listed(state: &Path) -> Result<Vec<(UndoId, String, Vec<UndoStep>)>, String> {
        match carry_out(state, UndoOp::List).map_err(|error| error.message)? {
            UndoReply::Setups(all) => {
                let row = |it: NotedSetup| (it.id, it.undo.dir, it.steps);
                Ok(all.into_iter().map(row).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_come_back_latest_first_with_what_was_noted() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        assert_eq!(listed(state), Ok(vec![]));
        let (first, second) = (begin(state, "/a"), begin(state, "/b"));
        let steps = vec![UndoStep::Made, UndoStep::Undoing(0), UndoStep::Failed(0)];
        for step in &steps {
            carry_out(state, UndoOp::Note(first, *step)).unwrap();
        }
        let expected = vec![
            (second, "/b".to_owned(), vec![]),
            (first, "/a".to_owned(), steps.clone()),
        ];
        assert_eq!(listed(state), Ok(expected));
        carry_out(state, UndoOp::End(second)).unwrap();
        carry_out(state, UndoOp::End(second)).unwrap();
        // A number is not given again while a later entry is there.
        assert!(begin(state, "/c") > first);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = file_of(&state.join(FOLDER), first);
        assert_eq!((mode(&state.join(FOLDER)), mode(&file)), (0o700, 0o600));
    }

    #[test]
    fn torn_files_go_and_foreign_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path();
        let (torn, whole) = (begin(state, "/torn"), begin(state, "/whole"));
        let path = |id| file_of(&state.join(FOLDER), id);
        let text = fs::read_to_string(path(torn)).unwrap();
        fs::write(path(torn), text.trim_end()).unwrap();
        let expected = || Ok(vec![(whole, "/whole".to_owned(), vec![])]);
        assert_eq!(listed(state), expected());
        assert!(!path(torn).exists());
        // A line that was not written to its end.
        let text = fs::read_to_string(path(whole)).unwrap();
        fs::write(path(whole), text.clone() + "{\"Undo").unwrap();
        assert_eq!(listed(state), expected());
        fs::write(path(whole), text.replace("\"version\":1", "\"version\":2")).unwrap();
        assert!(
            listed(state)
                .unwrap_err()
                .contains("it has version 2, not 1")
        );
        fs::set_permissions(state.join(FOLDER), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            listed(state)
                .unwrap_err()
                .contains("can be written by others")
        );
    }
}
