//! The versions of a run: which commits they are, and what of their sources counts.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::base::diag::At;
use crate::base::key::{Key, KeyHasher};
use crate::base::pattern::Pattern;
use crate::config::matrix::{BuildVariant, INSTALLED, Matrix};
use crate::config::template::{Context, Expr};
use crate::config::value::AxisValue;
use crate::edge::artifact::Artifacts;
use crate::edge::git::files;
use crate::edge::git::{
    Commit, CommitPosition, GitError, NeededSubmodule, Oid, Repository, SubmoduleSources,
    VersionSource, VersionSpec, parse_version,
};
use crate::edge::store::{Position, Store, StoreError};
use crate::plan::steps::Digests;

use crate::resolve::prepare::Machines;

/// Versions of one run.
pub const VERSIONS_MAX: usize = 10_000;
/// For one network operation of git.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(1800);

/// One state of the subject.
#[derive(Clone, Debug)]
pub struct Version {
    pub label: String,
    /// None: programs that are there.
    pub commit: Option<Commit>,
    /// Where those are; None: where the machine has them installed.
    pub folder: Option<PathBuf>,
}

impl Version {
    /// The label in cell names: `feature%2Fx` of the branch `feature/x`.
    pub fn cell_label(&self) -> String {
        AxisValue::text(&self.label).label()
    }

    fn installed() -> Version {
        Version {
            label: INSTALLED.to_owned(),
            commit: None,
            folder: None,
        }
    }
}

/// The versions that are asked for, in order.
pub struct Versions {
    pub list: Vec<Version>,
    repository: Option<RefCell<Repository>>,
    /// Digests of parts of the sources, by label in cell names.
    sources: HashMap<(String, Option<usize>), Key>,
    /// The variant of the build for each version that has one, by label in cell names.
    variants: HashMap<String, usize>,
    /// Of ranges.
    first_parent: bool,
    submodules: SubmoduleSources,
    /// Odd things that do not stop anything.
    pub warnings: Vec<String>,
}

/// How versions are asked for on the command line.
#[derive(Debug, Default)]
pub struct VersionRequest<'a> {
    /// `[NAME=]REV`, `A..B`, `[NAME=]REV+series.mbox`, `[NAME=]folder/` or `installed`.
    pub versions: &'a [String],
    /// One more, which the others are compared with.
    pub against: Option<&'a str>,
    /// Instead of the matrix's own repository.
    pub repo: Option<&'a str>,
    /// Of a range, only the commits on the first-parent line of its end.
    pub first_parent: bool,
}

/// Why a version cannot be resolved. Each message names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Asked(String),
}

impl Versions {
    /// Resolves what is asked for. Without `--version` there is what the machine has installed.
    /// `folder`: of the matrix file; `state`: where mirrors are kept.
    pub fn resolve(
        matrix: &Matrix,
        wanted: &VersionRequest,
        folder: &Path,
        state: &Path,
    ) -> Result<Versions, VersionError> {
        let mut versions = Versions {
            list: Vec::new(),
            repository: None,
            sources: HashMap::new(),
            variants: HashMap::new(),
            first_parent: wanted.first_parent,
            submodules: SubmoduleSources {
                folder: folder.to_owned(),
                mirrors: state.join("mirrors"),
                timeout: NETWORK_TIMEOUT,
            },
            warnings: Vec::new(),
        };
        for text in wanted
            .against
            .into_iter()
            .chain(wanted.versions.iter().map(String::as_str))
        {
            versions.add(matrix, text, wanted.repo, folder, state)?;
        }
        if versions.list.is_empty() {
            versions.list.push(Version::installed());
        }
        if versions.list.len() > VERSIONS_MAX {
            return Err(VersionError::Asked(format!(
                "{} versions; at most {VERSIONS_MAX} are allowed in one run",
                versions.list.len()
            )));
        }
        versions.digest(matrix)?;
        versions.choose_variants(matrix)?;
        Ok(versions)
    }

    pub fn labels(&self) -> Vec<String> {
        self.list
            .iter()
            .map(|version| version.label.clone())
            .collect()
    }

    /// The label of a version given by `--against`: it stands first.
    pub fn against(&self, wanted: &VersionRequest) -> Option<String> {
        let first = self.list.first().filter(|_| wanted.against.is_some());
        first.map(|version| version.label.clone())
    }

    /// The version with this label, as a person writes it or as cell names have it.
    pub fn get(&self, label: &str) -> Option<&Version> {
        let is_escaped = label.contains('%');
        let mut all = self.list.iter();
        all.find(|it| it.label == label || is_escaped && it.cell_label() == label)
    }

    pub fn repository(&self) -> Option<&RefCell<Repository>> {
        self.repository.as_ref()
    }

    /// Notes which commits these versions are in a session of the matrix, what they say, and where they stand in the
    /// subject's history: in that order results are told, whenever they were measured.
    pub fn note(&self, store: &Store, matrix: &str, session: i64) -> Result<(), VersionError> {
        let commits = self
            .list
            .iter()
            .filter_map(|it| Some((it, it.commit.as_ref()?)));
        let named: Vec<(String, &Oid)> = commits
            .map(|(version, commit)| (version.cell_label(), &commit.id))
            .collect();
        let Some(repository) = self.repository.as_ref().filter(|_| !named.is_empty()) else {
            return Ok(());
        };
        let known = store.commits(matrix)?.into_iter().filter_map(|known| {
            let Position { ms, depth } = known.position;
            let time_s = ms.div_euclid(1000);
            Some((Oid::parse(&known.commit)?, CommitPosition { time_s, depth }))
        });
        let mut standings: HashMap<Oid, CommitPosition> = known.collect();
        let ids: Vec<Oid> = named.iter().map(|(_, id)| (*id).clone()).collect();
        // Where they stand can be noted later, which commits they are only now.
        let placed = repository.borrow().standings(&ids, &mut standings);
        let position = |(id, standing): (Oid, CommitPosition)| {
            let CommitPosition { time_s, depth } = standing;
            let ms = time_s.saturating_mul(1000);
            (id.to_string(), Position { ms, depth })
        };
        let positions = standings.into_iter().map(position).collect();
        let named: Vec<(&str, &str)> = named
            .iter()
            .map(|(label, id)| (label.as_str(), id.as_str()))
            .collect();
        store.put_commits(session, &named, &positions)?;
        // Those of older sessions too, where nobody has noted it.
        let unknown = store.commits_without_text(matrix)?;
        let unknown: Vec<Oid> = unknown.iter().filter_map(|id| Oid::parse(id)).collect();
        store.put_commit_texts(&repository.borrow().describe(&unknown)?)?;
        Ok(placed?)
    }

    fn add(
        &mut self,
        matrix: &Matrix,
        text: &str,
        repo: Option<&str>,
        folder: &Path,
        state: &Path,
    ) -> Result<(), VersionError> {
        if text == INSTALLED {
            return self.push(Version::installed());
        }
        if text.ends_with('/') {
            return self.push(folder_version(text)?);
        }
        let mut find = || -> Result<_, VersionError> {
            let spec = parse_version(text)?;
            self.open(matrix, repo, folder, state)?;
            Ok(self.commits(&spec, text)?)
        };
        let (_, path) = split_folder(text);
        let found = find().map_err(|error| match error {
            VersionError::Asked(_)
            | VersionError::Git(GitError::UnknownRevision { .. } | GitError::BadVersion { .. })
                if Path::new(path).is_dir() =>
            {
                VersionError::Asked(format!(
                    "`--version {text}`: `{path}` is a folder; one with programs has a `/` at its end, \
                     `--version {text}/`"
                ))
            }
            error => error,
        })?;
        found.into_iter().try_for_each(|(label, commit)| {
            self.push(Version {
                label,
                commit: Some(commit),
                folder: None,
            })
        })
    }

    /// The commits that are asked for, each with its label.
    fn commits(&self, spec: &VersionSpec, text: &str) -> Result<Vec<(String, Commit)>, GitError> {
        let Some(repository) = &self.repository else {
            return Ok(Vec::new());
        };
        let repository = repository.borrow();
        let label = || own_label(spec, text);
        Ok(match &spec.source {
            VersionSource::Revision(revision) => vec![(label(), repository.resolve(revision)?)],
            VersionSource::Range(range) => {
                let commits = repository.range(range, self.first_parent)?;
                commits
                    .into_iter()
                    .map(|c| (c.id.short().to_owned(), c))
                    .collect()
            }
            VersionSource::Patched { revision, mbox } => {
                let commit = repository.apply(&repository.resolve(revision)?, mbox)?;
                vec![(label(), commit)]
            }
        })
    }

    fn push(&mut self, version: Version) -> Result<(), VersionError> {
        let id = |version: &Version| version.commit.as_ref().map(|commit| commit.id.clone());
        match self.get(&version.label) {
            None => {
                self.list.push(version);
                Ok(())
            }
            Some(known) if id(known) == id(&version) && known.folder == version.folder => Ok(()),
            Some(_) => Err(VersionError::Asked(format!(
                "two versions would both be called `{0}`: give one a name, `--version NAME={0}`",
                version.label
            ))),
        }
    }

    fn open(
        &mut self,
        matrix: &Matrix,
        repo: Option<&str>,
        folder: &Path,
        state: &Path,
    ) -> Result<(), VersionError> {
        if self.repository.is_some() {
            return Ok(());
        }
        let mut repository = subject_repository(matrix, repo, folder, state)?;
        if let Err(error) = repository.update() {
            self.warnings
                .push(format!("going on with what was fetched before: {error}"));
        }
        self.repository = Some(RefCell::new(repository));
        Ok(())
    }

    fn digest(&mut self, matrix: &Matrix) -> Result<(), VersionError> {
        let (Some(repository), Some(git)) = (&self.repository, &matrix.subject.git) else {
            return Ok(());
        };
        let mut repository = repository.borrow_mut();
        // The pins of submodules that are named count, wherever these are.
        let named = git.submodules.keys().map(|path| Pattern::parse(path));
        let named: Vec<Pattern> = named.filter_map(Result::ok).collect();
        let counting = match git.paths.is_empty() {
            true => Vec::new(),
            false => [git.paths.clone(), named].concat(),
        };
        let ruled: Vec<Pattern> = matrix
            .affects
            .iter()
            .flat_map(|rule| rule.paths.clone())
            .collect();
        let mut unmatched: BTreeMap<usize, usize> = BTreeMap::new();
        let commits = self
            .list
            .iter()
            .filter_map(|it| Some((&it.label, it.commit.as_ref()?)));
        let commits: Vec<(&String, &Commit)> = commits.collect();
        for &(label, commit) in &commits {
            let cell_label = AxisValue::text(label).label();
            let rest = repository.tree_digest_without(&commit.id, &counting, &ruled)?;
            // A submodule that a commit does not have yet is no slip.
            for at in rest.unmatched.iter().filter(|at| **at < git.paths.len()) {
                *unmatched.entry(*at).or_default() += 1;
            }
            self.sources.insert((cell_label.clone(), None), rest.key);
            for (index, rule) in matrix.affects.iter().enumerate() {
                let part = repository.tree_digest(&commit.id, &rule.paths)?;
                self.sources
                    .insert((cell_label.clone(), Some(index)), part.key);
            }
        }
        // Sources come and go in a history; what is in none of the versions is most likely a slip.
        let nowhere = unmatched
            .iter()
            .filter(|(_, count)| **count == commits.len());
        for (at, _) in nowhere {
            let place = match commits.as_slice() {
                [(label, _)] => format!("in `{label}`"),
                _ => format!("in any of the {} versions", commits.len()),
            };
            let pattern = &git.paths[*at];
            self.warnings.push(format!(
                "`{pattern}` in `[subject.git] paths` names nothing {place}"
            ));
        }
        self.warnings.sort();
        self.warnings.dedup();
        Ok(())
    }
}

/// The repository of a matrix's subject as it was fetched last; `repo` is another one than the matrix names.
pub fn subject_repository(
    matrix: &Matrix,
    repo: Option<&str>,
    folder: &Path,
    state: &Path,
) -> Result<Repository, VersionError> {
    let Some(git) = &matrix.subject.git else {
        return Err(VersionError::Asked(format!(
            "the matrix `{}` has no `[subject.git]`: it can only measure what is installed",
            matrix.name
        )));
    };
    let declared = git.repo.value.as_str();
    let source = match repo {
        Some(repo) => repo.to_owned(),
        None if declared.contains("://") => declared.to_owned(),
        None => folder.join(declared).to_string_lossy().into_owned(),
    };
    let mirrors = state.join("mirrors");
    Ok(Repository::open(&source, &mirrors, NETWORK_TIMEOUT)?)
}

impl Versions {
    /// The variant of the build that is for each version: the first one of the file.
    fn choose_variants(&mut self, matrix: &Matrix) -> Result<(), VersionError> {
        let variants = matrix.build.iter().flat_map(|build| &build.variants);
        let variants: Vec<&BuildVariant> = variants.collect();
        let (Some(repository), false) = (&self.repository, variants.is_empty()) else {
            return Ok(());
        };
        let mut repository = repository.borrow_mut();
        let commits = self.list.iter().filter_map(|it| it.commit.as_ref());
        let ids: Vec<Oid> = commits.map(|commit| commit.id.clone()).collect();
        let mut ends: HashMap<&str, (Oid, HashSet<Oid>)> = HashMap::new();
        for end in variants
            .iter()
            .flat_map(|it| it.since.iter().chain(&it.until))
        {
            let revision = end.value.as_str();
            if !ends.contains_key(revision) {
                let id = repository.resolve(revision)?.id;
                let containing = repository.containing(&id, &ids)?;
                ends.insert(revision, (id, containing));
            }
        }
        for version in &self.list {
            let Some(Commit { id, .. }) = &version.commit else {
                continue;
            };
            // Whether a commit is of an end's own side: it contains it, or does not.
            let holds = |end: &Option<At<String>>, contains: bool| {
                let end = end.as_ref().and_then(|end| ends.get(end.value.as_str()));
                end.is_none_or(|(end, containing)| end == id || containing.contains(id) == contains)
            };
            for (index, variant) in variants.iter().enumerate() {
                let is_of_era = holds(&variant.since, true) && holds(&variant.until, false);
                let is_for = is_of_era
                    && match &variant.when {
                        Some(when) => holds_of_files(matrix, when, &mut repository, id)?,
                        None => true,
                    };
                if is_for {
                    self.variants.insert(version.cell_label(), index);
                    break;
                }
            }
        }
        Ok(())
    }

    /// The number of the `[[build.variant]]` that is for a version, by its label in cell names.
    pub fn variant(&self, label: &str) -> Option<usize> {
        self.variants.get(label).copied()
    }

    /// The submodules that a build of a commit needs: named ones, and those under `paths`.
    pub fn submodules(
        &self,
        matrix: &Matrix,
        commit: &Oid,
    ) -> Result<Vec<NeededSubmodule>, GitError> {
        let (Some(repository), Some(git)) = (&self.repository, &matrix.subject.git) else {
            return Ok(Vec::new());
        };
        let repository = repository.borrow();
        let is_under = |path: &str| {
            let mut paths = git.paths.iter();
            paths.any(|pattern| pattern.matches(path) || pattern.matches(&format!("{path}/x")))
        };
        let mut needed = Vec::new();
        for submodule in repository.submodules(commit)? {
            let address = match git.submodules.get(&submodule.path) {
                Some(own) => self.submodules.place(&own.value),
                None if is_under(&submodule.path) => repository.address_of(&submodule)?,
                None => continue,
            };
            needed.push(NeededSubmodule {
                path: submodule.path,
                pin: submodule.pin,
                address,
            });
        }
        Ok(needed)
    }

    /// Where repositories of submodules are had from.
    pub fn submodule_sources(&self) -> &SubmoduleSources {
        &self.submodules
    }
}

/// Whether an expression over the files of a commit holds. What it asks for is looked up between evaluations, as
/// each answer can lead to another question.
fn holds_of_files(
    matrix: &Matrix,
    when: &Expr,
    repository: &mut Repository,
    commit: &Oid,
) -> Result<bool, VersionError> {
    let bad = |why: String| {
        VersionError::Asked(format!(
            "`when = \"{}\"` of a [[build.variant]]: {why}",
            when.text
        ))
    };
    let known: Arc<Mutex<HashMap<String, Option<bool>>>> = Arc::default();
    loop {
        let asked = Arc::clone(&known);
        let mut context = Context::default();
        context.set_question("has", move |pattern| {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked
                .entry(pattern.to_owned())
                .or_default()
                .unwrap_or(false)
        });
        let holds = matrix.engine.test(when, &context).map_err(bad)?;
        let mut asked = known.lock().unwrap_or_else(PoisonError::into_inner);
        let open = asked.iter_mut().filter(|(_, answer)| answer.is_none());
        let open: Vec<_> = open.collect();
        if open.is_empty() {
            return Ok(holds);
        }
        for (text, answer) in open {
            let pattern = Pattern::parse(text).map_err(bad)?;
            let found = repository.tree_digest(commit, &[pattern])?;
            *answer = Some(found.unmatched.is_empty());
        }
    }
}

/// The label under which results of a version are kept, as its text tells it: nobody looks whether there is
/// such a version.
pub fn label_of(text: &str) -> Result<String, VersionError> {
    if text.ends_with('/') {
        let (label, path) = split_folder(text);
        let own = || {
            Path::new(path)
                .file_name()
                .map(|name| name.to_string_lossy())
        };
        return Ok(label.map_or_else(|| own().unwrap_or_default().into_owned(), str::to_owned));
    }
    let spec = parse_version(text)?;
    match spec.source {
        VersionSource::Range(_) => Err(VersionError::Asked(format!(
            "`--version {text}` is many versions: name them one by one, as `matrix history` shows them"
        ))),
        _ => Ok(own_label(&spec, text)),
    }
}

fn own_label(spec: &VersionSpec, text: &str) -> String {
    spec.label.clone().unwrap_or_else(|| text.to_owned())
}

/// `[NAME=]path/to/folder/`.
fn split_folder(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((label, path)) if !label.contains('/') => (Some(label), path),
        _ => (None, text),
    }
}

/// Reads `[NAME=]path/to/folder/`: programs from there instead of the machine's own.
fn folder_version(text: &str) -> Result<Version, VersionError> {
    let bad = |why: String| VersionError::Asked(format!("`--version {text}`: {why}"));
    let (label, path) = split_folder(text);
    let folder = files::resolve(Path::new(path))
        .ok()
        .flatten()
        .filter(|folder| files::is_folder(folder))
        .ok_or_else(|| {
            bad(format!(
                "there is no folder `{path}`; what ends with `/` is a folder with programs"
            ))
        })?;
    let own = folder.file_name().map(|name| name.to_string_lossy());
    let label = match label {
        Some(label) => label.to_owned(),
        None => own.map_or(String::new(), |name| name.into_owned()),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if label.is_empty() || label == INSTALLED || !label.chars().all(is_plain) {
        return Err(bad(format!(
            "`{label}` is no name for a version: give it one of letters, digits, `.`, `_` and `-`, \
             `--version NAME={path}`"
        )));
    }
    Ok(Version {
        label,
        commit: None,
        folder: Some(folder),
    })
}

/// All digests that a plan is made from.
pub struct World<'a> {
    pub machines: &'a Machines,
    pub versions: &'a Versions,
    /// Build inputs → what they gave.
    pub built: HashMap<Key, Key>,
    pub artifacts: &'a Artifacts,
}

impl Digests for World<'_> {
    fn tools(&self, machine: &str) -> Vec<(String, Key)> {
        let Some(machine) = self.machines.get(machine) else {
            return Vec::new();
        };
        let view = machine.view();
        let profile = view.profile.iter();
        let profile = profile.map(|profile| ("profile".to_owned(), profile.key()));
        machine.tools.iter().cloned().chain(profile).collect()
    }

    fn settings(&self, machine: &str) -> Vec<(String, String)> {
        let machine = self.machines.get(machine);
        let view = machine.map(|machine| machine.view());
        let profile = view.as_ref().and_then(|view| view.profile.as_ref());
        profile.map_or(Vec::new(), |profile| profile.settings())
    }

    fn installed(&self, machine: &str) -> Key {
        self.machines
            .get(machine)
            .map_or(Key::default(), |m| m.installed)
    }

    fn folder(&self, machine: &str, version: &str) -> Option<Key> {
        self.versions.get(version)?.folder.as_ref()?;
        let programs = self.machines.get(machine)?.folders.get(version);
        // Where nothing runs there are no programs to look at.
        let by_label = || KeyHasher::new("folder").str(version).finish();
        Some(programs.map_or_else(by_label, |programs| programs.key))
    }

    fn source(&self, version: &str, affects: Option<usize>) -> Key {
        let key = (version.to_owned(), affects);
        self.versions.sources.get(&key).copied().unwrap_or_default()
    }

    fn variant(&self, version: &str) -> Option<usize> {
        self.versions.variant(version)
    }

    fn artifact(&self, build: Key) -> Option<Key> {
        self.built.get(&build).copied()
    }
}
