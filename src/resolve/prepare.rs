//! What must be known of the machines before planning: programs, their digests, what is missing.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::base::diag::Diagnostic;
use crate::base::key::{Key, KeyHasher};
use crate::config::matrix::{INSTALLED, Matrix, Via};
use crate::config::profile::{Facts, Resolved};
use crate::edge::artifact::Artifacts;
use crate::machine::connect;
use crate::machine::environment::{
    CaptureRequest, Environment, EnvironmentDifference, capture, is_set_by,
};
use crate::machine::host::{
    FileOp, FileReply, Host, HostError, HostErrorKind, JournalPlace, MachineIdentity, Wait,
};
use crate::plan::commands::Places;
use crate::plan::programs::named;
use crate::resolve::versions::Version;

/// Folders within folders that are looked into for what a command names.
const CONTENT_DEPTH_MAX: usize = 16;
/// Names in one such folder.
const CONTENT_FILES_MAX: usize = 10_000;
/// Bytes of the list of sockets.
const SOCKETS_BYTES_MAX: usize = 16 << 20;

/// The machines of a plan, by name.
pub struct Machines {
    looked: BTreeMap<String, Machine>,
    /// Those that could not be reached, with the reason.
    unreachable: BTreeMap<String, String>,
}

/// One machine, looked at.
pub struct Machine {
    /// None for a `null` machine: nothing runs there.
    pub host: Option<Rc<dyn Host>>,
    pub via: Via,
    /// Spread of a `null` machine's samples.
    pub noise: f64,
    /// What versions of a `null` machine's samples are multiplied by.
    pub effects: BTreeMap<String, f64>,
    /// Declared tools by content.
    pub tools: Vec<(String, Key)>,
    /// Which machine it is; two names of one have the same.
    pub identity: MachineIdentity,
    /// The process of its agent.
    pub agent_pid: u32,
    /// Where it is kept how to put the machine back.
    pub journal: JournalPlace,
    /// How long a measurement waits for the machine to be quiet.
    pub quiet_wait: Duration,
    /// Measurements at the same time.
    pub slots: usize,
    /// Builds at the same time.
    pub build_slots: usize,
    /// Installed programs of the subject by content.
    pub installed: Key,
    /// Versions that are folders, by label.
    pub folders: BTreeMap<String, Programs>,
    /// What the last look has found.
    view: RefCell<Rc<MachineView>>,
    /// Where it keeps builds, sources, artifacts and work folders.
    pub state: PathBuf,
    /// Where the subject's installed programs are.
    programs: Vec<PathBuf>,
    /// Programs that are needed and not there.
    pub missing: Vec<String>,
}

/// What of a machine may change until it is ours: somebody else's profile may be in force, or that of a dead run.
#[derive(Clone, Default)]
pub struct MachineView {
    /// What it is like, before its profile is applied; None where nothing runs.
    pub environment: Option<Environment>,
    /// What its profile asks of it, as its facts are.
    pub profile: Option<Resolved>,
    pub places: Places,
    /// Processors that steps may use.
    pub cpus: usize,
}

/// What a machine's profile asks of it, by its facts; None where it has none.
pub type ResolveProfile<'a> = &'a dyn Fn(&Facts) -> Result<Option<Resolved>, Vec<Diagnostic>>;

/// A machine could not be looked at again.
#[derive(Debug, thiserror::Error)]
pub enum LookAgainError {
    #[error(transparent)]
    Host(#[from] HostError),
    /// Its profile does not fit its facts.
    #[error("its profile does not fit what the machine is like now")]
    Profile(Vec<Diagnostic>),
}

/// Programs of the subject that are not built.
pub struct Programs {
    /// By label and content: who names two folders wants both measured, even if they hold the same.
    pub key: Key,
    paths: Vec<PathBuf>,
}

/// Where programs and locks are looked for.
pub struct PrepareOptions<'a> {
    /// The state folder, absolute.
    pub state: &'a Path,
    /// Instead of the machine's own lock file.
    pub lock: Option<PathBuf>,
}

impl Machines {
    /// Looks at the machines of these names, and at what is there of the versions to be measured.
    pub async fn look(
        matrix: &Matrix,
        names: &[String],
        versions: &[Version],
        options: &PrepareOptions<'_>,
    ) -> Result<Machines, HostError> {
        let mut machines = BTreeMap::new();
        let mut unreachable = BTreeMap::new();
        for name in names {
            let Some(declared) = matrix.machine(name) else {
                continue;
            };
            let machine = match declared.via {
                Via::Null => Machine {
                    host: None,
                    via: declared.via,
                    noise: declared.noise,
                    effects: declared.effects.clone(),
                    tools: Vec::new(),
                    identity: MachineIdentity::default(),
                    agent_pid: 0,
                    journal: JournalPlace::default(),
                    quiet_wait: Duration::ZERO,
                    slots: 1,
                    build_slots: 1,
                    installed: Key::default(),
                    folders: BTreeMap::new(),
                    view: RefCell::new(Rc::new(MachineView {
                        places: places(options.state),
                        cpus: 1,
                        ..MachineView::default()
                    })),
                    state: options.state.to_owned(),
                    programs: Vec::new(),
                    missing: Vec::new(),
                },
                Via::Local | Via::Ssh => {
                    let host = match &declared.ssh {
                        Some(target) => connect::ssh(name, target, owner(options.state))?,
                        None => connect::local(name, options.lock.clone())?,
                    };
                    let looked = match look_at(host, matrix, versions, options).await {
                        Err(error) if error.kind == HostErrorKind::Lost => {
                            unreachable.insert(name.clone(), error);
                            continue;
                        }
                        looked => looked?,
                    };
                    Machine {
                        via: declared.via,
                        quiet_wait: declared.quiet_wait,
                        slots: declared.slots as usize,
                        build_slots: declared.build_slots as usize,
                        ..looked
                    }
                }
            };
            machines.insert(name.clone(), machine);
        }
        match unreachable.pop_first() {
            // There is nothing to do without any.
            Some((_, error)) if machines.is_empty() => Err(error),
            first => Ok(Machines {
                looked: machines,
                unreachable: first
                    .into_iter()
                    .chain(unreachable)
                    .map(|(name, error)| (name, error.message))
                    .collect(),
            }),
        }
    }

    /// Machines of these names through hosts that are given, instead of those that the matrix declares.
    #[cfg(test)]
    pub async fn through(
        matrix: &Matrix,
        hosts: Vec<(String, Rc<dyn Host>)>,
        options: &PrepareOptions<'_>,
    ) -> Result<Machines, HostError> {
        let mut machines = BTreeMap::new();
        for (name, host) in hosts {
            machines.insert(name, look_at(host, matrix, &[], options).await?);
        }
        Ok(Machines {
            looked: machines,
            unreachable: BTreeMap::new(),
        })
    }

    /// Makes so many measurements at the same time.
    #[cfg(test)]
    pub fn set_slots(&mut self, name: &str, slots: usize) {
        if let Some(machine) = self.looked.get_mut(name) {
            machine.slots = slots;
        }
    }

    /// Looks at which artifacts the machines keep.
    pub async fn look_at_artifacts(&self, artifacts: &Artifacts) -> Result<(), HostError> {
        for (name, machine) in self.iter() {
            machine.look_at_artifacts(name, artifacts).await?;
        }
        Ok(())
    }

    /// Gives a machine what its profile asks of it.
    pub fn set_profile(&mut self, name: &str, profile: Resolved) {
        if let Some(machine) = self.looked.get_mut(name) {
            let view = MachineView {
                profile: Some(profile),
                ..MachineView::clone(&machine.view())
            };
            machine.view = RefCell::new(Rc::new(view));
        }
    }

    /// These names in turns that follow one another: names of one and the same machine, with another profile
    /// each, are in one turn each; the first turn has a name of every machine.
    pub fn turns(&self, names: &BTreeSet<String>) -> Vec<BTreeSet<String>> {
        let mut before: BTreeMap<&MachineIdentity, usize> = BTreeMap::new();
        let mut turns = vec![BTreeSet::new()];
        for name in names {
            let machine = self.get(name).filter(|machine| machine.host.is_some());
            let turn = machine.map_or(0, |machine| {
                let count = before.entry(&machine.identity).or_default();
                *count += 1;
                *count - 1
            });
            if turn == turns.len() {
                turns.push(BTreeSet::new());
            }
            turns[turn].insert(name.clone());
        }
        turns
    }

    /// Machines that could not be reached, with the reason.
    pub fn unreachable(&self) -> &BTreeMap<String, String> {
        &self.unreachable
    }

    pub fn get(&self, name: &str) -> Option<&Machine> {
        self.looked.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Machine)> {
        self.looked
            .iter()
            .map(|(name, machine)| (name.as_str(), machine))
    }
}

async fn look_at(
    host: Rc<dyn Host>,
    matrix: &Matrix,
    versions: &[Version],
    options: &PrepareOptions<'_>,
) -> Result<Machine, HostError> {
    let tools: Vec<&str> = matrix
        .requires
        .commands
        .iter()
        .map(|c| c.value.as_str())
        .collect();
    let programs = matrix.subject.installed.iter().map(|p| p.value.as_str());
    let programs: Vec<&str> = programs.collect();
    let subject: &[&str] = match versions.iter().any(|version| version.label == INSTALLED) {
        true => &programs,
        false => &[],
    };
    let mut missing = Vec::new();
    let here = matrix.here.as_str();
    let (mut tools, _) = digest(host.as_ref(), here, &tools, &mut missing).await;
    tools.extend(named_content(host.as_ref(), matrix, &mut missing).await?);
    let (installed, paths) = digest(host.as_ref(), here, subject, &mut missing).await;
    let mut hasher = KeyHasher::new("installed");
    for (name, key) in &installed {
        hasher.str(name).key(*key);
    }
    let installed = hasher.finish();
    let mut folders = BTreeMap::new();
    for version in versions {
        if let Some(folder) = &version.folder {
            let found = look_into(
                host.as_ref(),
                folder,
                &version.label,
                &programs,
                &mut missing,
            );
            folders.insert(version.label.clone(), found.await);
        }
    }
    let facts = host.facts().await?;
    let state = facts.state.unwrap_or_else(|| options.state.to_owned());
    let commits = versions.iter().filter_map(|version| {
        let commit = version.commit.as_ref()?;
        Some((version.label.clone(), commit.name()))
    });
    let places = Places {
        commits: commits.collect(),
        ..places(&state)
    };
    let view = view(host.as_ref(), facts.cpus, places).await?;
    Ok(Machine {
        host: Some(host),
        via: Via::Local,
        noise: 0.0,
        effects: BTreeMap::new(),
        tools,
        identity: facts.identity,
        agent_pid: facts.pid,
        journal: facts.journal,
        quiet_wait: Duration::ZERO,
        slots: 1,
        build_slots: 1,
        installed,
        folders,
        view: RefCell::new(Rc::new(view)),
        state,
        programs: paths,
        missing,
    })
}

/// Looks at what may change; the profile is not known yet.
async fn view(host: &dyn Host, cpus: usize, places: Places) -> Result<MachineView, HostError> {
    let asked = CaptureRequest {
        path: Some(PathBuf::from(&places.work)),
        ..CaptureRequest::default()
    };
    let environment = capture(host, &asked).await?;
    let facts = environment.facts();
    let online = facts.get("cpus").and_then(|cpus| cpus.parse().ok());
    Ok(MachineView {
        places: Places {
            used_ports: used_ports(host).await,
            cpus: online.unwrap_or(1),
            ..places
        },
        environment: Some(environment),
        profile: None,
        cpus,
    })
}

/// The programs of a folder; what is not there is added to `missing`.
async fn look_into(
    host: &dyn Host,
    folder: &Path,
    label: &str,
    programs: &[&str],
    missing: &mut Vec<String>,
) -> Programs {
    let paths: Vec<String> = programs
        .iter()
        .map(|program| folder.join(program).to_string_lossy().into_owned())
        .collect();
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let (found, paths) = digest(host, "", &names, missing).await;
    let mut hasher = KeyHasher::new("folder");
    hasher.str(label);
    for ((_, key), path) in found.iter().zip(&paths) {
        let name = path.file_name().map(|name| name.to_string_lossy());
        hasher.str(&name.unwrap_or_default()).key(*key);
    }
    Programs {
        key: hasher.finish(),
        paths,
    }
}

/// Programs by name with the key of their content, and where they are; what is not there is added to
/// `missing`. A name with a `/` in it is a path, relative to the folder of the matrix.
async fn digest(
    host: &dyn Host,
    here: &str,
    programs: &[&str],
    missing: &mut Vec<String>,
) -> (Vec<(String, Key)>, Vec<PathBuf>) {
    let which = programs.iter().map(|program| FileOp::Which {
        program: (*program).to_owned(),
    });
    let found = host.files(which.collect()).await;
    let (mut known, mut paths) = (Vec::new(), Vec::new());
    for (program, reply) in programs.iter().zip(found) {
        let path = match reply {
            _ if program.contains('/') => {
                Path::new(here).join(program.strip_prefix("./").unwrap_or(program))
            }
            Ok(FileReply::Path(path)) => path,
            _ => {
                missing.push((*program).to_owned());
                continue;
            }
        };
        match content(host, &path, CONTENT_DEPTH_MAX).await {
            Some(key) => {
                known.push(((*program).to_owned(), key));
                paths.push(path);
            }
            None => missing.push((*program).to_owned()),
        }
    }
    (known, paths)
}

/// What a file holds, or all files of a folder but those whose names begin with a dot; None where it is
/// not there or cannot be read.
fn content<'a>(host: &'a dyn Host, path: &'a Path, depth: usize) -> Wait<'a, Option<Key>> {
    Box::pin(async move {
        let ops = [
            FileOp::Digest { path: path.into() },
            FileOp::List { path: path.into() },
        ];
        let mut replies = host.files(ops.into()).await.into_iter();
        let names = match (replies.next()?, replies.next()?) {
            (Ok(FileReply::Digest(key)), _) => return Some(key),
            (_, Ok(FileReply::Names(names))) if names.len() <= CONTENT_FILES_MAX => names,
            _ => return None,
        };
        let mut hasher = KeyHasher::new("folder of files");
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let key = content(host, &path.join(name), depth.checked_sub(1)?).await?;
            hasher.str(name).key(key);
        }
        Some(hasher.finish())
    })
}

/// The programs and files that commands name, with the key of their content. A program that is not there is
/// told by the step that needs it; a file below `{{ here }}` is needed before anything starts.
async fn named_content(
    host: &dyn Host,
    matrix: &Matrix,
    missing: &mut Vec<String>,
) -> Result<Vec<(String, Key)>, HostError> {
    let names =
        named(matrix).map_err(|problem| HostError::new(HostErrorKind::Other, problem.message))?;
    let is_required = |name: &&str| matrix.requires.commands.iter().any(|it| it.value == *name);
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !is_required(name))
        .collect();
    let mut absent = Vec::new();
    let (found, _) = digest(host, &matrix.here, &names, &mut absent).await;
    absent.retain(|name| name.starts_with("./"));
    missing.extend(absent);
    Ok(found)
}

impl Machine {
    /// What the last look has found.
    pub fn view(&self) -> Rc<MachineView> {
        Rc::clone(&self.view.borrow())
    }

    /// Looks again, now that the machine is ours and put back. Whether plans that were made before do not hold any more.
    pub async fn look_again(&self, resolve: ResolveProfile<'_>) -> Result<bool, LookAgainError> {
        let before = self.view();
        let (Some(host), Some(old)) = (self.host.as_deref(), &before.environment) else {
            return Ok(false);
        };
        let cpus = host.facts().await?.cpus;
        let mut now = view(host, cpus, before.places.clone()).await?;
        let facts = now.environment.as_ref().map(Environment::facts);
        let resolved = resolve(&facts.unwrap_or_default()).map_err(LookAgainError::Profile)?;
        now.profile = resolved.or_else(|| before.profile.clone());
        let key = |view: &MachineView| view.profile.as_ref().map(Resolved::key);
        let is_other = key(&now) != key(&before)
            || now
                .environment
                .as_ref()
                .is_some_and(|new| !shifts(old, new, now.profile.as_ref()).is_empty());
        *self.view.borrow_mut() = Rc::new(now);
        Ok(is_other)
    }

    /// Looks at which artifacts it keeps.
    pub async fn look_at_artifacts(
        &self,
        name: &str,
        artifacts: &Artifacts,
    ) -> Result<(), HostError> {
        match self.host.as_deref() {
            Some(host) => {
                let view = self.view();
                let folder = Path::new(&view.places.artifacts);
                artifacts.look(name, host, folder).await
            }
            None => Ok(()),
        }
    }

    /// How it differs from what it was, in what may move results. What its profile sets is part of each key and
    /// read back when it is applied.
    pub fn shifts_since(&self, before: &Environment) -> Vec<EnvironmentDifference> {
        let view = self.view();
        let now = view.environment.as_ref();
        now.map_or(Vec::new(), |now| shifts(before, now, view.profile.as_ref()))
    }

    /// Whether what was measured must be on the disk before the next measurement: writing it would
    /// disturb that one.
    pub fn waits_for_writes(&self) -> bool {
        self.host.is_some() && self.slots == 1
    }

    /// Makes the folders in which `{{ bin }}/program` is a program that was not built.
    pub async fn link_programs(&self) -> Result<(), HostError> {
        let Some(host) = &self.host else {
            return Ok(());
        };
        let own = (self.installed, &self.programs);
        let folders = self
            .folders
            .values()
            .map(|folder| (folder.key, &folder.paths));
        let view = self.view();
        let mut ops = Vec::new();
        for (key, programs) in std::iter::once(own).chain(folders) {
            if programs.is_empty() {
                continue;
            }
            let bin = Path::new(&view.places.installed).join(key.short());
            ops.push(FileOp::MakeDir { path: bin.clone() });
            ops.extend(programs.iter().filter_map(|target| {
                Some(FileOp::Link {
                    path: bin.join(target.file_name()?),
                    target: target.clone(),
                })
            }));
        }
        host.files(ops)
            .await
            .into_iter()
            .try_for_each(|reply| reply.map(|_| ()))
    }
}

/// How two environments differ in what may move results and is not set by a profile.
fn shifts(
    before: &Environment,
    now: &Environment,
    profile: Option<&Resolved>,
) -> Vec<EnvironmentDifference> {
    let knobs = profile.into_iter().flat_map(|it| &it.knobs);
    let choices = knobs.flat_map(|knob| &knob.choices);
    let patterns: Vec<&str> = choices.map(|choice| choice.pattern.as_str()).collect();
    let mut shifts = before.shifts(now);
    shifts.retain(|shift| !patterns.iter().any(|it| is_set_by(&shift.name, it)));
    shifts
}

/// Whose sessions use this state folder: one at a time.
fn owner(state: &Path) -> Key {
    let node = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut hasher = KeyHasher::new("owner");
    hasher.str(&node).str(&state.to_string_lossy());
    hasher.finish()
}

/// The TCP ports on which somebody listens on the machine, ascending (proc(5), `/proc/net/tcp`).
async fn used_ports(host: &dyn Host) -> Vec<u16> {
    const LISTENS: &str = "0A";
    let ops = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| FileOp::Read {
        path: path.into(),
        bytes_max: SOCKETS_BYTES_MAX,
    });
    let mut ports = Vec::new();
    for reply in host.files(ops.into()).await {
        let Ok(FileReply::Bytes(bytes)) = reply else {
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        ports.extend(text.lines().filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (_, port) = fields.next()?.rsplit_once(':')?;
            let is_listening = fields.nth(1)? == LISTENS;
            u16::from_str_radix(port, 16).ok().filter(|_| is_listening)
        }));
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn places(state: &Path) -> Places {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Places {
        work: text(state.join("work")),
        installed: text(state.join("bin")),
        artifacts: text(state.join("artifacts")),
        ..Places::default()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::base::diag::Sources;
    use crate::config::profile::load;

    #[test]
    fn what_a_shipped_profile_does_to_a_machine_is_no_other_machine() {
        let mut read = |name: &str| {
            let text = fs::read_to_string(format!("profiles/{name}.kdl"));
            let text = text.map_err(|error| error.to_string())?;
            Ok((name.to_owned(), text))
        };
        let (chain, problems) = load("low-latency", &mut Sources::default(), &mut read);
        assert!(problems.is_empty(), "{problems:?}");
        let (profile, _) = chain.resolve(&Facts::new(), &|_| Ok(true));
        let environment = |values: [(&str, &str); 5]| {
            let values: BTreeMap<&str, &str> = values.into();
            let text = json!({ "version": 1, "values": values }).to_string();
            Environment::from_json(&text).unwrap()
        };
        // With the profile, as of a sample; and without it, as of a plan.
        let tuned = environment([
            ("cpu.governor", "performance"),
            ("cpu.smt", "0"),
            ("kernel", "6.1"),
            (
                "mitigation.mds",
                "Mitigation: Clear CPU buffers; SMT disabled",
            ),
            ("numa.node0.cpus", "0-3"),
        ]);
        let check = |kernel: &str, profile: Option<&Resolved>, expected: &[&str]| {
            let now = environment([
                ("cpu.governor", "schedutil"),
                ("cpu.smt", "1"),
                ("kernel", kernel),
                (
                    "mitigation.mds",
                    "Mitigation: Clear CPU buffers; SMT vulnerable",
                ),
                ("numa.node0.cpus", "0-7"),
            ]);
            let found = shifts(&tuned, &now, profile);
            let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, expected);
        };
        check("6.1", Some(&profile), &[]);
        check("6.5", Some(&profile), &["kernel"]);
        let all = [
            "cpu.governor",
            "cpu.smt",
            "mitigation.mds",
            "numa.node0.cpus",
        ];
        check("6.1", None, &all);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_machine_that_has_changed_meanwhile_is_told() {
        use crate::machine::host::fake::{FakeHost, printed};
        const RELEASE: &str = "/proc/sys/kernel/osrelease";
        let matrix = crate::config::decode::tests::read(
            "[matrix]\nname = \"m\"\n[run]\ncommand = \"x\"\nparser = \"json\"\n[metrics.v]\nbetter = \"lower\"\n",
        );
        let host = FakeHost::new("local", |_| Ok(printed(""))).with_file(RELEASE, "6.1\n");
        let host = Rc::new(host);
        let options = PrepareOptions {
            state: Path::new("/state"),
            lock: None,
        };
        let hosts: Vec<(String, Rc<dyn Host>)> = vec![("local".to_owned(), host.clone())];
        let machines = Machines::through(&matrix, hosts, &options).await.unwrap();
        let machine = machines.get("local").unwrap();
        let none = |_: &Facts| Ok(None);
        assert!(!machine.look_again(&none).await.unwrap());
        host.files(vec![FileOp::Write {
            path: RELEASE.into(),
            bytes: b"6.5\n".to_vec(),
        }])
        .await;
        assert!(machine.look_again(&none).await.unwrap());
        assert!(!machine.look_again(&none).await.unwrap());
        // Another profile fits it now.
        let mut read =
            |name: &str| Ok((name.to_owned(), "sysctl \"vm.swappiness\" 10\n".to_owned()));
        let (chain, _) = load("quiet", &mut Sources::default(), &mut read);
        let other = |facts: &Facts| Ok(Some(chain.resolve(facts, &|_| Ok(true)).0));
        assert!(machine.look_again(&other).await.unwrap());
        assert!(machine.view().profile.is_some());
        assert!(!machine.look_again(&other).await.unwrap());
    }
}
