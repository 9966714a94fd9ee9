//! The past of the matrix that the command line names.

use super::load::{Loaded, load};
use super::show::Stop;
use super::{Common, Exit};
use crate::base::diag::{Diagnostic, Sources};
use crate::edge::store::Store;
use crate::resolve::versions::{VERSIONS_MAX, VersionError, label_of};
use crate::verdicts::records::{Records, RecordsError};

impl From<RecordsError> for Stop {
    fn from(error: RecordsError) -> Stop {
        match error {
            RecordsError::Store(error) => Stop::from(error),
            RecordsError::Matrix(diagnostic) => Stop::from(diagnostic),
        }
    }
}

/// Neither machines nor versions are looked at. `is_kept`: what is told is noted.
pub fn read(common: &Common, is_kept: bool, sources: &mut Sources) -> Result<Records, Stop> {
    let loaded = load(common, sources)?;
    let store = loaded.store()?.ok_or_else(|| nothing_stored(&loaded))?;
    let labels = versions(common, &loaded, &store)?;
    let are_asked = labels.is_some();
    let plan = loaded.plan_of_names(common, labels.unwrap_or_default())?;
    let preset = common.preset.as_deref();
    Ok(Records::read(&plan, store, preset, is_kept, are_asked)?)
}

/// As [`read`], for a verb that tells of all versions.
pub fn of_all_versions(
    common: &Common,
    is_kept: bool,
    sources: &mut Sources,
) -> Result<Records, Stop> {
    let records = read(common, is_kept, sources)?;
    match records.versions {
        None => Ok(records),
        Some(_) => Err(Stop::message(
            "a series goes over all versions: leave `--version` out, and `version` in `--only`",
        )),
    }
}

/// The versions that `--version` names, or all that are stored where `--only` asks for some.
fn versions(common: &Common, loaded: &Loaded, store: &Store) -> Result<Option<Vec<String>>, Stop> {
    if common.against.is_some() {
        return Err(Stop::message(
            "nothing is compared here: leave `--against` out",
        ));
    }
    let labels = common.versions.iter().map(|text| label_of(text));
    let labels: Result<Vec<String>, VersionError> = labels.collect();
    let labels = labels.map_err(|error| Stop::message(error.to_string()))?;
    let mut mentions = loaded.only.iter().flat_map(|only| &only.mentions);
    Ok(match labels.is_empty() {
        false => Some(labels),
        true if mentions.any(|name| name == "version") => {
            Some(store.versions(&loaded.matrix.name, VERSIONS_MAX as u32)?)
        }
        true => None,
    })
}

fn nothing_stored(loaded: &Loaded) -> Stop {
    let message = format!("nothing of `{}` is stored", loaded.matrix.name);
    Stop {
        diagnostics: vec![
            Diagnostic::error(message).help("`matrix run` measures; `--state` names its store"),
        ],
        exit: Exit::Nothing,
    }
}
