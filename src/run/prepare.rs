//! Owns what must be known of the machines before planning: programs, their digests, what is missing.
//! Does not know which steps there are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::config::matrix::{INSTALLED, Matrix, Via};
use crate::config::profile::Resolved;
use crate::edge::host::local::LocalHost;
use crate::edge::host::{FileOp, FileReply, Host, HostError};
use crate::edge::tune;
use crate::plan::resolve::Places;
use crate::words::key::{Key, KeyHasher};

/// The machines of a plan, by name.
pub struct Machines(BTreeMap<String, Machine>);

/// One machine, looked at.
pub struct Machine {
    /// None for a `null` machine: nothing runs there.
    pub host: Option<Rc<dyn Host>>,
    /// Spread of a `null` machine's samples.
    pub noise: f64,
    /// Declared tools by content.
    pub tools: Vec<(String, Key)>,
    /// What its profile asks of it, as its facts are now.
    pub profile: Option<Resolved>,
    /// Where it is kept how to put the machine back.
    pub journal: PathBuf,
    /// How long a measurement waits for the machine to be quiet.
    pub quiet_wait: Duration,
    /// Installed programs of the subject by content.
    pub installed: Key,
    pub places: Places,
    /// Where the subject's installed programs are.
    programs: Vec<PathBuf>,
    /// Programs that are needed and not there.
    pub missing: Vec<String>,
}

/// Where programs and locks are looked for.
pub struct Options<'a> {
    /// The state folder, absolute.
    pub state: &'a Path,
    /// Instead of the machine's own lock file.
    pub lock: Option<PathBuf>,
}

impl Machines {
    /// Looks at the machines of these names. `versions`: the labels of the versions to be measured.
    pub async fn look(
        matrix: &Matrix,
        names: &[String],
        versions: &[String],
        options: &Options<'_>,
    ) -> Result<Machines, HostError> {
        let mut machines = BTreeMap::new();
        for name in names {
            let Some(declared) = matrix.machine(name) else {
                continue;
            };
            let machine = match declared.via {
                Via::Null => Machine {
                    host: None,
                    noise: declared.noise,
                    tools: Vec::new(),
                    profile: None,
                    journal: PathBuf::new(),
                    quiet_wait: Duration::ZERO,
                    installed: Key::default(),
                    places: places(options.state, &Key::default()),
                    programs: Vec::new(),
                    missing: Vec::new(),
                },
                Via::Local => {
                    let mut host = LocalHost::new(name.clone())?;
                    if let Some(lock) = &options.lock {
                        host = host.with_lock(lock);
                    }
                    let needs_installed = versions.iter().any(|version| version == INSTALLED);
                    let looked = look_at(Rc::new(host), matrix, needs_installed, options).await?;
                    Machine {
                        quiet_wait: declared.quiet_wait,
                        ..looked
                    }
                }
            };
            machines.insert(name.clone(), machine);
        }
        Ok(Machines(machines))
    }

    /// Gives a machine what its profile asks of it.
    pub fn set_profile(&mut self, name: &str, profile: Resolved) {
        if let Some(machine) = self.0.get_mut(name) {
            machine.profile = Some(profile);
        }
    }

    pub fn get(&self, name: &str) -> Option<&Machine> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Machine)> {
        self.0
            .iter()
            .map(|(name, machine)| (name.as_str(), machine))
    }
}

async fn look_at(
    host: Rc<dyn Host>,
    matrix: &Matrix,
    needs_installed: bool,
    options: &Options<'_>,
) -> Result<Machine, HostError> {
    let tools: Vec<&str> = matrix
        .requires
        .commands
        .iter()
        .map(|c| c.value.as_str())
        .collect();
    let subject: Vec<&str> = match needs_installed {
        true => matrix
            .subject
            .installed
            .iter()
            .map(|p| p.value.as_str())
            .collect(),
        false => Vec::new(),
    };
    let mut missing = Vec::new();
    let (tools, _) = digest(host.as_ref(), &tools, &mut missing).await;
    let (installed, paths) = digest(host.as_ref(), &subject, &mut missing).await;
    let mut hasher = KeyHasher::new("installed");
    for (name, key) in &installed {
        hasher.str(name).key(*key);
    }
    let installed = hasher.finish();
    let places = places(options.state, &installed);
    Ok(Machine {
        host: Some(host),
        noise: 0.0,
        tools,
        profile: None,
        journal: tune::place(options.lock.as_deref()),
        quiet_wait: Duration::ZERO,
        installed,
        places,
        programs: paths,
        missing,
    })
}

/// Programs by name with the key of their content, and where they are; what is not there is added to
/// `missing`.
async fn digest(
    host: &dyn Host,
    programs: &[&str],
    missing: &mut Vec<String>,
) -> (Vec<(String, Key)>, Vec<PathBuf>) {
    let which = programs.iter().map(|program| FileOp::Which {
        program: (*program).to_owned(),
    });
    let found = host.files(which.collect()).await;
    let mut known = Vec::new();
    let mut paths = Vec::new();
    for (program, reply) in programs.iter().zip(found) {
        match reply {
            Ok(FileReply::Path(path)) => {
                known.push((*program).to_owned());
                paths.push(path);
            }
            _ => missing.push((*program).to_owned()),
        }
    }
    let digests = paths
        .iter()
        .map(|path| FileOp::Digest { path: path.clone() });
    let digests = host.files(digests.collect()).await;
    let keys = digests.into_iter().map(|reply| match reply {
        Ok(FileReply::Digest(key)) => key,
        _ => Key::default(),
    });
    (known.into_iter().zip(keys).collect(), paths)
}

impl Machine {
    /// Makes the folder in which `{{ bin }}/program` is the installed program.
    pub async fn link_programs(&self) -> Result<(), HostError> {
        let (Some(host), false) = (&self.host, self.programs.is_empty()) else {
            return Ok(());
        };
        let bin = Path::new(&self.places.installed);
        let mut ops = vec![FileOp::MakeDir { path: bin.into() }];
        ops.extend(self.programs.iter().filter_map(|target| {
            Some(FileOp::Link {
                path: bin.join(target.file_name()?),
                target: target.clone(),
            })
        }));
        host.files(ops)
            .await
            .into_iter()
            .try_for_each(|reply| reply.map(|_| ()))
    }
}

fn places(state: &Path, installed: &Key) -> Places {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Places {
        work: text(state.join("work")),
        installed: text(state.join("bin").join(installed.short())),
        artifacts: text(state.join("artifacts")),
    }
}
