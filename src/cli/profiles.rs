//! Owns the way from a profile's name to its file.
//! Does not know what is in one.

use std::path::{Path, PathBuf};

use super::load::read;
use crate::config::profile::{self, Chain};
use crate::words::diag::{Diagnostic, Sources};

/// Where profiles are: `profiles` in a folder, and beside that folder.
pub fn folders_near(folder: &Path) -> Vec<PathBuf> {
    ["profiles", "../profiles"]
        .map(|name| folder.join(name))
        .to_vec()
}

/// Reads a profile, and those it extends, from the first folder that has each.
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
        match paths.iter().find(|path| path.exists()) {
            Some(path) => {
                let text = read(path)
                    .map_err(|reason| format!("`{}` cannot be read: {reason}", path.display()))?;
                Ok((path.display().to_string(), text))
            }
            None => {
                let paths: Vec<String> =
                    paths.iter().map(|p| format!("`{}`", p.display())).collect();
                Err(format!("there is no {}", paths.join(" and no ")))
            }
        }
    };
    match profile::load(name, sources, &mut read_one) {
        (chain, problems) if problems.is_empty() => Ok(chain),
        (_, problems) => Err(problems),
    }
}
