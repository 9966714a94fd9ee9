//! Submodules of a commit: their pins, where they are had from, and their sources.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::GitError;
use super::pack::{Sources, aside};
use super::{Oid, Repository, is_url};

/// Submodules of one commit.
pub const SUBMODULES_MAX: usize = 1000;

/// A submodule as a commit has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submodule {
    pub path: String,
    /// The commit of the submodule's own repository.
    pub pin: Oid,
    /// What `.gitmodules` of the commit says, which may be relative to the repository that the commit is of.
    pub url: Option<String>,
}

/// A submodule that a build needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NeededSubmodule {
    pub path: String,
    pub pin: Oid,
    /// A path or a URL.
    pub address: String,
}

/// Where the repositories of submodules are had from.
#[derive(Clone, Debug)]
pub struct SubmoduleSources {
    /// What relative paths of the matrix are relative to.
    pub folder: PathBuf,
    pub mirrors: PathBuf,
    /// For one network operation.
    pub timeout: Duration,
}

impl Repository {
    /// The submodules of a commit, by path. At most [`SUBMODULES_MAX`].
    pub fn submodules(&self, commit: &Oid) -> Result<Vec<Submodule>, GitError> {
        let listing = self.own.reading("ls-tree");
        let listing = listing.args(["-r", "-z", "--full-tree", commit.as_str()]);
        let pins = pins(&listing.run()?);
        if pins.len() > SUBMODULES_MAX {
            return Err(GitError::TooMuch {
                what: format!("submodules in {}", commit.short()),
                max: SUBMODULES_MAX as u64,
            });
        }
        if pins.is_empty() {
            return Ok(Vec::new());
        }
        let config = self.own.reading("config");
        let config = config.arg(format!("--blob={commit}:.gitmodules")).args([
            "-z",
            "--get-regexp",
            r"^submodule\..*\.(path|url)$",
        ]);
        // Where there is no such file, or nothing in it, no submodule has an address.
        let urls = urls(&config.output()?.stdout);
        let of_commit = pins.into_iter().map(|(path, pin)| Submodule {
            url: urls.get(&path).cloned(),
            path,
            pin,
        });
        Ok(of_commit.collect())
    }

    /// The address of a submodule: `../x.git` is beside this repository.
    pub fn address_of(&self, submodule: &Submodule) -> Result<String, GitError> {
        let Some(url) = &submodule.url else {
            return Err(GitError::Submodule {
                path: submodule.path.clone(),
                pin: submodule.pin.short().to_owned(),
                words: "`.gitmodules` of the commit does not say where it is".to_owned(),
            });
        };
        let base = match &self.mirror {
            Some(mirror) => mirror.url.clone(),
            None => {
                let folder = self.source.display().to_string();
                folder.strip_suffix("/.git").unwrap_or(&folder).to_owned()
            }
        };
        Ok(beside(&base, url))
    }
}

impl SubmoduleSources {
    /// A repository as the matrix names it: a path is relative to the matrix file.
    pub fn place(&self, repo: &str) -> String {
        match is_url(repo) {
            true => repo.to_owned(),
            false => self.folder.join(repo).to_string_lossy().into_owned(),
        }
    }

    /// What a machine needs of a submodule to build with it. Clones or fetches what is not there yet, on a thread of
    /// its own.
    pub async fn fetch(&self, needed: &NeededSubmodule) -> Result<Sources, GitError> {
        let (own, wanted) = (self.clone(), needed.clone());
        let fetched = aside(move || {
            let mut repository = Repository::open(&wanted.address, &own.mirrors, own.timeout)?;
            if repository.resolve(wanted.pin.as_str()).is_err() {
                repository.update()?;
                repository.resolve(wanted.pin.as_str())?;
            }
            repository.sources(&wanted.pin)
        });
        fetched.await.map_err(|error| match error {
            error if error.is_interrupted() => error,
            error => GitError::Submodule {
                path: needed.path.clone(),
                pin: needed.pin.short().to_owned(),
                words: error.to_string(),
            },
        })
    }
}

/// Paths and commits of `160000 commit ID\tPATH\0`.
fn pins(listing: &[u8]) -> Vec<(String, Oid)> {
    let lines = listing.split(|byte| *byte == 0);
    let links = lines.filter_map(|line| line.strip_prefix(b"160000 commit "));
    links
        .filter_map(|link| {
            let link = String::from_utf8_lossy(link);
            let (id, path) = link.split_once('\t')?;
            Some((path.to_owned(), Oid::parse(id)?))
        })
        .collect()
}

/// Path → URL, of `submodule.NAME.KEY\nVALUE\0`.
fn urls(config: &[u8]) -> HashMap<String, String> {
    let mut paths = HashMap::new();
    let mut urls = HashMap::new();
    for entry in config.split(|byte| *byte == 0) {
        let entry = String::from_utf8_lossy(entry);
        let Some((key, value)) = entry.split_once('\n') else {
            continue;
        };
        let Some((name, key)) = key.rsplit_once('.') else {
            continue;
        };
        let list = if key == "path" { &mut paths } else { &mut urls };
        list.insert(name.to_owned(), value.to_owned());
    }
    let by_path = paths.into_iter();
    by_path
        .filter_map(|(name, path)| Some((path, urls.get(&name)?.clone())))
        .collect()
}

/// A URL that begins with `./` or `../`, as git understands it: relative to a repository.
fn beside(base: &str, url: &str) -> String {
    if !url.starts_with("./") && !url.starts_with("../") {
        return url.to_owned();
    }
    let mut base = base.trim_end_matches('/');
    let mut rest = url;
    loop {
        if let Some(next) = rest.strip_prefix("./") {
            rest = next;
        } else if let Some(next) = rest.strip_prefix("../") {
            rest = next;
            let end = base.rfind(['/', ':']).unwrap_or(0);
            base = &base[..end];
        } else {
            return Path::new(base).join(rest).to_string_lossy().into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_addresses_are_beside_the_repository() {
        let check = |base: &str, url: &str, expected: &str| assert_eq!(beside(base, url), expected);
        check("https://a/b/c.git", "../d.git", "https://a/b/d.git");
        check("https://a/b/c.git", "../../d.git", "https://a/d.git");
        check("/x/y", "./d", "/x/y/d");
        check("/x/y/", "../d", "/x/d");
        check("/x/y", "https://b/d", "https://b/d");
    }

    #[test]
    fn addresses_are_found_by_path() {
        let config = b"submodule.a.b.path\nui/k\0submodule.a.b.url\n../k.git\0submodule.c.url\nx\0";
        let found = urls(config);
        assert_eq!(found.get("ui/k").map(String::as_str), Some("../k.git"));
        assert_eq!(found.len(), 1);
    }
}
