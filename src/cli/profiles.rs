//! The way from a profile's name to its text: a file, else one that is built in.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::files::{self, read_text};
use crate::base::diag::{Diagnostic, Sources, suggest};
use crate::config::profile::{self, Chain};

/// What is shipped, for matrices that are elsewhere.
const BUILT_IN: [(&str, &str); 3] = [
    (
        "low-latency",
        include_str!("../../profiles/low-latency.kdl"),
    ),
    ("quiet", include_str!("../../profiles/quiet.kdl")),
    ("throughput", include_str!("../../profiles/throughput.kdl")),
];

/// Where profiles are: `profiles` in a folder, and beside that folder.
pub fn folders_near(folder: &Path) -> Vec<PathBuf> {
    ["profiles", "../profiles"]
        .map(|name| folder.join(name))
        .to_vec()
}

/// Reads a profile, and those it extends, each from the first folder that has it; those that no folder
/// has are built in.
pub fn load(
    name: &str,
    folders: &[PathBuf],
    sources: &mut Sources,
) -> Result<Chain, Vec<Diagnostic>> {
    let mut read_one = |name: &str| {
        let paths: Vec<PathBuf> = folders
            .iter()
            .map(|folder| folder.join(format!("{name}.kdl")))
            .collect();
        if let Some(path) = paths.iter().find(|path| path.exists()) {
            let text = read_text(path)
                .map_err(|reason| format!("`{}` cannot be read: {reason}", path.display()))?;
            return Ok((path.display().to_string(), text));
        }
        if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
            return Ok((format!("{name}.kdl (built in)"), text.to_string()));
        }
        let paths: Vec<String> = paths.iter().map(|p| format!("`{}`", p.display())).collect();
        let names = names(folders);
        let hint = suggest(name, names.iter().map(String::as_str));
        Err(format!("there is no {}; {hint}", paths.join(" and no ")))
    };
    match profile::load(name, sources, &mut read_one) {
        (chain, problems) if problems.is_empty() => Ok(chain),
        (_, problems) => Err(problems),
    }
}

/// All profiles that could be meant.
fn names(folders: &[PathBuf]) -> BTreeSet<String> {
    let files = folders.iter().flat_map(|folder| files::names_in(folder));
    let names = files.filter_map(|name| Some(name.strip_suffix(".kdl")?.to_owned()));
    let built_in = BUILT_IN.iter().map(|(name, _)| name.to_string());
    names.chain(built_in).collect()
}
