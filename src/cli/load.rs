//! The way from a path on the command line to a looked-up plan.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files;
use super::machine::{lock_file, this_machine};
use super::show::{self, Stop};
use super::signals::catch_signals;
use super::{Common, Exit, profiles};
use crate::base::diag::{Diagnostic, Sources, Span};
use crate::base::key::Key;
use crate::config::decode;
use crate::config::matrix::{INSTALLED, Matrix, Monitor, ParserDecl, Repeat, Via};
use crate::config::profile::Chain;
use crate::config::template::Expr;
use crate::edge::artifact::Artifacts;
use crate::edge::parse::{Parser, Reader, fail_pattern};
use crate::edge::store::{Store, StoreErrorKind};
use crate::plan::cell::{CellChoice, values_of};
use crate::plan::dag::{self, Plan};
use crate::plan::selector::slips;
use crate::plan::steps::Digests;
use crate::resolve::planner::Planner;
use crate::resolve::prepare::{Machines, PrepareOptions};
use crate::resolve::versions::{VersionRequest, Versions, World};
use crate::run::hooks::Hooks;
use crate::run::progress::say;
use crate::run::tune;

/// A matrix and what the command line says about it.
pub struct Loaded {
    pub matrix: Matrix,
    pub only: Vec<Expr>,
    /// The folder of the matrix file.
    folder: PathBuf,
    /// Absolute.
    pub state: PathBuf,
    /// How outputs are read, one for each `[[run]]`.
    pub readers: Vec<Reader>,
    /// Parsers of the monitors that are programs, in their order.
    pub monitors: Vec<Parser>,
    /// Profiles by machine.
    pub profiles: BTreeMap<String, Chain>,
    pub artifacts: Artifacts,
    /// How often cells are measured.
    pub repeat: Repeat,
}

/// What was found out about the world.
pub struct Targets {
    pub machines: Machines,
    pub versions: Versions,
    against: Option<String>,
}

impl Loaded {
    /// Looks at all machines and versions.
    pub async fn look(&self, common: &Common) -> Result<Targets, Stop> {
        // Git may run from here on.
        catch_signals()?;
        let wanted = VersionRequest {
            versions: &common.versions,
            against: common.against.as_deref(),
            repo: common.repo.as_deref(),
            first_parent: common.first_parent,
        };
        let versions = Versions::resolve(&self.matrix, &wanted, &self.folder, &self.state)
            .map_err(|error| Stop::message(error.to_string()))?;
        versions
            .warnings
            .iter()
            .for_each(|warning| say(&format!("warning: {warning}")));
        let machines = self.machines(&versions).await?;
        for reason in machines.unreachable().values() {
            say(&format!("warning: {reason}; its cells are left out"));
        }
        machines.look_at_artifacts(&self.artifacts).await?;
        Ok(Targets {
            machines,
            against: versions.against(&wanted),
            versions,
        })
    }

    /// Looks at all machines of the matrix.
    pub async fn machines(&self, versions: &Versions) -> Result<Machines, Stop> {
        let machines = self.matrix.machines.iter();
        let names: Vec<String> = machines.map(|machine| machine.name.clone()).collect();
        let options = PrepareOptions {
            state: &self.state,
            lock: lock_file(),
        };
        let mut looked = Machines::look(&self.matrix, &names, &versions.list, &options).await?;
        for (name, chain) in &self.profiles {
            let declared = self.matrix.machine(name).map(|machine| &machine.facts);
            let machine = looked.get(name).filter(|machine| machine.host.is_some());
            if let (Some(declared), Some(machine)) = (declared, machine)
                && let Some(environment) = &machine.view().environment
            {
                let mut facts = environment.facts();
                facts.extend(declared.clone());
                let resolved = tune::resolve(chain, &self.matrix.engine, &facts);
                looked.set_profile(name, resolved.map_err(Stop::usage)?);
            }
        }
        Ok(looked)
    }

    /// The subject's repository, a path or a URL; `repo` instead of the matrix's own.
    pub fn repository(&self, repo: Option<&str>) -> Option<String> {
        let declared = self.matrix.subject.git.as_ref()?.repo.value.as_str();
        Some(match repo {
            Some(repo) => repo.to_owned(),
            None if declared.contains("://") => declared.to_owned(),
            None => self.folder.join(declared).to_string_lossy().into_owned(),
        })
    }

    /// The hooks of the matrix, called on this machine.
    pub async fn hooks(&self) -> Result<Hooks, Stop> {
        let folder = Path::new(&self.matrix.here);
        let host = this_machine()?;
        let (name, declared) = (&self.matrix.name, &self.matrix.hooks);
        Ok(Hooks::find(name, declared, folder, host).await?)
    }

    /// A subject that is only built has nothing to measure without a version.
    pub fn has_something_to_measure(&self, looked: &Targets) -> Result<(), Stop> {
        let subject = &self.matrix.subject;
        let is_only_built = subject.git.is_some() && subject.installed.is_empty();
        let mut machines = looked.machines.iter();
        let measures = machines.any(|(_, machine)| machine.host.is_some());
        match is_only_built && measures && looked.versions.get(INSTALLED).is_some() {
            true => Err(Stop::message(
                "the matrix names no installed programs (`[subject] installed`): say what to build, \
                 `--version REV`",
            )),
            false => Ok(()),
        }
    }

    /// The digests that a plan is made from, as they stand now.
    pub fn world<'a>(
        &'a self,
        looked: &'a Targets,
        store: Option<&Store>,
    ) -> Result<World<'a>, Stop> {
        Ok(World {
            machines: &looked.machines,
            versions: &looked.versions,
            built: store.map(Store::artifacts).transpose()?.unwrap_or_default(),
            artifacts: &self.artifacts,
        })
    }

    /// The plan; a plan without cells stops the verb.
    pub fn plan(&self, common: &Common, looked: &Targets, world: &World) -> Result<Plan<'_>, Stop> {
        self.planned(&self.choice(common, looked), world)
    }

    fn choice<'a>(&self, common: &'a Common, looked: &Targets) -> CellChoice<'a> {
        // Nothing is known of a machine that is away: neither what is stored holds, nor what is to be done.
        let unreachable: Vec<&String> = looked.machines.unreachable().keys().collect();
        let place = self
            .matrix
            .axis("machine")
            .map(|axis| self.matrix.axes[axis].span);
        let reachable = place.filter(|_| !unreachable.is_empty()).and_then(|place| {
            let text = format!("machine not in {unreachable:?}");
            self.matrix.engine.expr(&text, place).ok()
        });
        CellChoice {
            preset: common.preset.as_deref(),
            versions: match common.versions.is_empty() && common.against.is_none() {
                true => Vec::new(),
                false => looked.versions.labels(),
            },
            against: looked.against.clone(),
            only: self.only.iter().cloned().chain(reachable).collect(),
            seed: common.seed,
        }
    }

    /// What makes the plans of a session.
    pub fn planner<'a>(&'a self, common: &'a Common, looked: &'a Targets) -> Planner<'a> {
        let choice = self.choice(common, looked);
        let (machines, versions) = (&looked.machines, &looked.versions);
        Planner::new(&self.matrix, machines, versions, &self.artifacts, choice)
    }

    /// The plan as far as names go: of versions by their labels, on machines that nobody has looked at.
    pub fn plan_of_names(&self, common: &Common, versions: Vec<String>) -> Result<Plan<'_>, Stop> {
        let choice = CellChoice {
            preset: common.preset.as_deref(),
            versions,
            against: None,
            only: self.only.clone(),
            seed: common.seed,
        };
        self.planned(&choice, &Unlooked)
    }

    fn planned(&self, choice: &CellChoice, digests: &dyn Digests) -> Result<Plan<'_>, Stop> {
        let plan = dag::plan(&self.matrix, choice, digests).map_err(Stop::usage)?;
        self.has_cells(&plan)?;
        Ok(plan)
    }

    /// A plan without cells stops the verb.
    pub fn has_cells(&self, plan: &Plan) -> Result<(), Stop> {
        match plan.cells.is_empty() {
            true => Err(self.nothing_selected(plan)),
            false => Ok(()),
        }
    }

    fn nothing_selected(&self, plan: &Plan) -> Stop {
        let diagnostic = Diagnostic::error("no cell is selected");
        let texts: Vec<&str> = self.only.iter().map(|only| only.text.as_str()).collect();
        let slips = slips(&self.matrix, &self.only).into_iter();
        let mut slips = slips.map(|slip| match slip.help {
            Some(help) => format!("{}: {help}", slip.message),
            None => slip.message,
        });
        let mentions: Vec<String> = self.only.iter().flat_map(|o| o.mentions.clone()).collect();
        let axes = plan.scope().axes_of(&mentions);
        let help = match (texts.is_empty(), slips.next()) {
            (true, _) => "the `exclude` rules leave nothing of the product".to_owned(),
            (false, Some(slip)) => slip,
            (false, None) => {
                let values = values_of(&plan.cells.axes, &axes);
                format!("no cell satisfies `{}`; {values}", texts.join("` and `"))
            }
        };
        Stop {
            diagnostics: vec![diagnostic.help(help)],
            exit: Exit::Nothing,
        }
    }

    /// Leaves only cells for which this holds too.
    pub fn narrow(&mut self, only: &str, sources: &mut Sources) -> Result<(), Stop> {
        let expr = expression(&self.matrix, only, sources)?;
        self.only.push(expr);
        Ok(())
    }

    /// The store, if there is one.
    pub fn store(&self) -> Result<Option<Store>, Stop> {
        match Store::open_existing(&self.state) {
            Ok(store) => Ok(Some(store)),
            Err(error) if error.kind == StoreErrorKind::Missing => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Digests of a world that nobody has looked at.
struct Unlooked;

impl Digests for Unlooked {
    fn tools(&self, _machine: &str) -> Vec<(String, Key)> {
        Vec::new()
    }

    fn installed(&self, _machine: &str) -> Key {
        Key::default()
    }

    fn source(&self, _version: &str, _affects: Option<usize>) -> Key {
        Key::default()
    }

    fn artifact(&self, _build: Key) -> Option<Key> {
        None
    }
}

/// Reads the matrix; warnings are shown.
pub fn load(common: &Common, sources: &mut Sources) -> Result<Loaded, Stop> {
    let name = common.matrix.display().to_string();
    if common.matrix.extension().is_some_and(|it| it == "csv") {
        let problem = Diagnostic::error(format!("`{name}` is not a matrix file"));
        let help =
            format!("`matrix changes` and `matrix compare` read a plain file as `--csv {name}`");
        return Err(problem.help(help).into());
    }
    let text = files::read_text(&common.matrix).map_err(|reason| {
        let problem = Diagnostic::error(format!("`{name}` cannot be read: {reason}"));
        Stop::from(match common.matrix.is_file() {
            true => problem,
            false => {
                problem.help("give the path of a matrix file, such as `matrices/qemu-block.toml`")
            }
        })
    })?;
    let file = sources.add(name, text);
    let folder = common.matrix.parent().unwrap_or(Path::new("")).to_owned();
    let mut import = |path: &str| {
        let path = folder.join(path);
        files::read_text(&path).map(|text| (path.display().to_string(), text))
    };
    let (matrix, diagnostics) = decode::matrix(sources, file, &mut import);
    let Some(mut matrix) = matrix else {
        return Err(Stop::usage(diagnostics));
    };
    show::diagnostics(&diagnostics, sources);
    matrix.here = here(&folder)?;
    let (readers, monitors) = readers(&matrix)?;
    directions(&mut matrix, &readers)?;
    common.overrule(&mut matrix);
    let profiles = profiles(&matrix, &folder, sources)?;
    let mut only = Vec::new();
    for text in &common.only {
        only.push(expression(&matrix, text, sources)?);
    }
    let slips = slips(&matrix, &only);
    show::diagnostics(&slips, sources);
    let state = common
        .state
        .clone()
        .unwrap_or_else(|| folder.join(".matrix"));
    let state = std::path::absolute(&state).map_err(|error| {
        Stop::message(format!(
            "the state folder `{}` has no absolute path: {}",
            state.display(),
            files::in_words(error)
        ))
    })?;
    Ok(Loaded {
        repeat: matrix.repeat(common.preset.as_deref()).clone(),
        matrix,
        only,
        folder,
        artifacts: Artifacts::default(),
        state,
        readers,
        monitors,
        profiles,
    })
}

/// The absolute path of the matrix's folder, as commands get it.
fn here(folder: &Path) -> Result<String, Stop> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let absolute = std::path::absolute(folder).map_err(|error| {
        Stop::message(format!(
            "the folder `{}` has no absolute path: {}",
            folder.display(),
            files::in_words(error)
        ))
    })?;
    Ok(absolute
        .components()
        .as_path()
        .to_string_lossy()
        .into_owned())
}

/// An expression as `--only` takes it.
fn expression(matrix: &Matrix, text: &str, sources: &mut Sources) -> Result<Expr, Diagnostic> {
    let source = sources.add("--only", text.to_owned());
    matrix.engine.expr(text, Span::new(source, 0..text.len()))
}

/// The profiles of machines on which anything runs.
fn profiles(
    matrix: &Matrix,
    folder: &Path,
    sources: &mut Sources,
) -> Result<BTreeMap<String, Chain>, Stop> {
    let mut chains = BTreeMap::new();
    let real = matrix.machines.iter().filter(|m| m.via != Via::Null);
    for machine in real {
        let Some(profile) = &machine.profile else {
            continue;
        };
        let loaded = profiles::load(&profile.value, &profiles::folders_near(folder), sources);
        let chain = loaded.map_err(|problems| {
            // One about the profile as a whole has no place of its own.
            let at = |problem: Diagnostic| match problem.label {
                None => problem.at(profile.span, "named here"),
                Some(_) => problem,
            };
            Stop::usage(problems.into_iter().map(at).collect())
        })?;
        chains.insert(machine.name.clone(), chain);
    }
    Ok(chains)
}

/// How the output of each `[[run]]` is read, and those of the monitors that are programs.
fn readers(matrix: &Matrix) -> Result<(Vec<Reader>, Vec<Parser>), Stop> {
    let (mut readers, mut monitors, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for case in &matrix.run.cases {
        let mut reader = Reader {
            parsers: Vec::new(),
            fail_pattern: None,
            fail_when: case.fail.when.clone(),
        };
        for declared in &case.parsers {
            match parser(declared) {
                Ok(parser) => reader.parsers.push(parser),
                Err(found) => problems.extend(found),
            }
        }
        if let Some(pattern) = &case.fail.pattern {
            match fail_pattern(&pattern.value) {
                Ok(regex) => reader.fail_pattern = Some(regex),
                Err(why) => problems.push(Diagnostic::error(why).at(pattern.span, "declared here")),
            }
        }
        readers.push(reader);
    }
    for monitor in &matrix.monitors {
        match monitor {
            // Ended by us: how long it took says nothing.
            Monitor::Command { parser: own, .. } if own.kind.value == "time" => problems.push(
                Diagnostic::error("a `[[monitor]]` runs as long as the measurement does: there is nothing to time")
                    .at(own.kind.span, "declared here")
                    .help("`time` is a parser of `[run]`"),
            ),
            Monitor::Command { parser: own, .. } => match parser(own) {
                Ok(parser) => monitors.push(parser),
                Err(found) => problems.extend(found),
            },
            Monitor::File { .. } => {}
        }
    }
    match problems.is_empty() {
        true => Ok((readers, monitors)),
        false => Err(Stop::usage(problems)),
    }
}

/// Settles which direction of each metric is better: what the matrix says, else what its parser knows.
fn directions(matrix: &mut Matrix, readers: &[Reader]) -> Result<(), Stop> {
    let mut problems = Vec::new();
    for metric in &mut matrix.metrics {
        let mut known = readers.iter();
        let known = || known.find_map(|reader| reader.better(&metric.from.text));
        metric.better = metric.better.or_else(known);
        if metric.better.is_none() {
            let name = &metric.name;
            let problem = format!("metric `{name}` does not say whether higher or lower is better");
            problems.push(
                Diagnostic::error(problem)
                    .at(metric.span, "the parser does not know it")
                    .help(format!(
                        "add `better = \"higher\"` or `better = \"lower\"` to `[metrics.{name}]`"
                    )),
            );
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Stop::usage(problems)),
    }
}

fn parser(declared: &ParserDecl) -> Result<Parser, Vec<Diagnostic>> {
    let options: Vec<(String, String)> = declared
        .options
        .iter()
        .map(|(name, value)| (name.value.clone(), value.clone()))
        .collect();
    // A problem names the option that it is about.
    let at = |problem: String| {
        let mut options = declared.options.iter();
        let option = options.find(|(name, _)| problem.contains(&format!("`{}`", name.value)));
        let place = option.map_or(declared.kind.span, |(name, _)| name.span);
        Diagnostic::error(problem).at(place, "declared here")
    };
    Parser::new(&declared.kind.value, &options)
        .map_err(|problems| problems.into_iter().map(at).collect())
}
