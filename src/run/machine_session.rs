//! What is around measurements: profiles in force, environments, marks of doubtful samples.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::execute::{Executor, RunError, Site};
use super::tune;
use crate::base::key::Key;
use crate::edge::parse::Parser;
use crate::edge::store::{MARK_SEPARATOR, MarkKind, Monitored, SampleContext, SampleMark};
use crate::machine::environment::{CaptureRequest, capture};
use crate::machine::host::measurement::MeasurementResult;
use crate::machine::host::{Cancel, Command, Host, Lock};
use crate::machine::quiet::Limits;
use crate::machine::tune::{Applied, files};
use crate::plan::commands::Words;
use crate::resolve::prepare::Machine;

/// For a tool to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(2);
const VERSION_BYTES_MAX: usize = 4096;

/// What is around the measurements of a session.
#[derive(Default)]
pub struct MachineSessions {
    /// Of all machines, until they are put back: nobody else may have them before.
    locks: RefCell<Vec<Lock>>,
    machines: RefCell<BTreeMap<String, MachineSession>>,
    /// Of the monitors that are programs, in the order of the matrix.
    pub(super) monitors: Vec<Parser>,
    /// What has been told, so that it is told once.
    told: RefCell<BTreeSet<String>>,
}

#[derive(Default)]
struct MachineSession {
    applied: Option<Rc<Applied>>,
    environment: Option<Key>,
}

impl MachineSessions {
    /// Of no machine yet.
    pub fn new(monitors: &[Parser]) -> MachineSessions {
        MachineSessions {
            monitors: monitors.to_vec(),
            ..MachineSessions::default()
        }
    }

    /// Keeps a machine's lock until [`MachineSessions::leave`].
    pub fn keep(&self, lock: Option<Lock>) {
        self.locks.borrow_mut().extend(lock);
    }

    /// Applies a machine's profile and looks at its environment. Its lock was given to
    /// [`MachineSessions::keep`]; the caller calls [`MachineSessions::leave`] whatever happens then, also on
    /// an error.
    pub async fn enter(&self, site: &Site<'_>, name: &str) -> Result<(), RunError> {
        match site.machines.get(name) {
            Some(machine) => self.add(site, name, machine).await,
            None => Ok(()),
        }
    }

    async fn add(&self, site: &Site<'_>, name: &str, machine: &Machine) -> Result<(), RunError> {
        let Some(host) = &machine.host else {
            return Ok(());
        };
        let applied = tune::apply(site, name, machine).await?.map(Rc::new);
        let own = MachineSession {
            applied: applied.clone(),
            environment: None,
        };
        self.machines.borrow_mut().insert(name.to_owned(), own);
        let mut knobs = BTreeSet::new();
        // Those of its other profiles too: where they differ, both values are known.
        let others = site.machines.iter().map(|(_, other)| other);
        let others =
            others.filter(|other| other.host.is_some() && other.identity == machine.identity);
        for other in others.map(Machine::view) {
            if let Some(profile) = &other.profile {
                knobs.extend(files(host.as_ref(), profile).await?);
            }
        }
        let settings = applied.iter().flat_map(|applied| applied.settings());
        let asked = CaptureRequest {
            path: Some(PathBuf::from(&machine.view().places.work)),
            knobs: knobs.into_iter().collect(),
            settings: settings.collect(),
            tools: versions(host.as_ref(), &machine.tools).await,
        };
        let environment = capture(host.as_ref(), &asked).await?;
        let key = site
            .store
            .borrow()
            .put_environment(&environment.to_json())?;
        if let Some(own) = self.machines.borrow_mut().get_mut(name) {
            own.environment = Some(key);
        }
        Ok(())
    }

    /// Puts all machines back, then lets others have them. All are tried; the first error is returned.
    pub async fn leave(&self, site: &Site<'_>) -> Result<(), RunError> {
        let mut result = Ok(());
        for (name, own) in self.machines.take() {
            if let (Some(applied), Some(machine)) = (own.applied, site.machines.get(&name)) {
                let released = tune::release(site, &name, machine, &applied).await;
                result = result.and(released);
            }
        }
        for lock in self.locks.take() {
            lock.release().await;
        }
        result
    }

    pub(super) fn environment(&self, machine: &str) -> Option<Key> {
        self.machines.borrow().get(machine)?.environment
    }

    pub(super) fn applied(&self, machine: &str) -> Option<Rc<Applied>> {
        self.machines.borrow().get(machine)?.applied.clone()
    }

    /// The command, held to the profile's CPUs.
    pub(super) fn on_cpus(&self, machine: &str, command: Words) -> Words {
        let applied = self.applied(machine);
        match applied.as_ref().and_then(|it| it.cpus.as_ref()) {
            Some(cpus) => cpus.hold(command),
            None => command,
        }
    }

    pub(super) fn tell_once(&self, site: &Site<'_>, machine: &str, what: String) {
        self.tell_once_about(site, machine, &what.clone(), what);
    }

    /// Tells the first time that there is anything to tell about this.
    pub(super) fn tell_once_about(
        &self,
        site: &Site<'_>,
        machine: &str,
        about: &str,
        what: String,
    ) {
        if self.told.borrow_mut().insert(format!("{machine}: {about}")) {
            site.note(machine, what);
        }
    }
}

impl Executor<'_> {
    /// What the machine did just before a measurement.
    pub(super) fn note_before(
        &self,
        name: &str,
        result: &MeasurementResult,
        beside: &mut SampleContext,
    ) {
        let around = self.job.around;
        if let Some(refusal) = &result.caches_kept {
            around.tell_once(self.job.site, name, refusal.clone());
        }
        match &result.noise {
            None => {}
            Some(Ok(noise)) => {
                // Kept as a monitor's values, so that a difference shows beside a verdict.
                let values = [
                    ("before.load_1min", noise.load_1min),
                    ("before.busy_cpus", noise.busy_cpus),
                    ("before.steal", noise.steal),
                ];
                beside.monitors.push(Monitored {
                    name: "before".to_owned(),
                    output: Vec::new(),
                    values: values.map(|(name, v)| (name.to_owned(), v)).to_vec(),
                });
                let complaints = noise.complaints(&Limits::default());
                if !complaints.is_empty() {
                    beside.marks.push(SampleMark {
                        kind: MarkKind::Noisy,
                        what: complaints.join(MARK_SEPARATOR),
                    });
                }
            }
            Some(Err(error)) => around.tell_once(self.job.site, name, error.message.clone()),
        }
    }

    /// Whether the profile has held all the time.
    pub(super) fn note_after(
        &self,
        name: &str,
        result: &MeasurementResult,
        beside: &mut SampleContext,
    ) {
        let lines = match &result.knobs {
            None => return,
            Some(Ok(lines)) => lines.clone(),
            Some(Err(error)) => vec![error.clone()],
        };
        if !lines.is_empty() {
            beside.marks.push(SampleMark {
                kind: MarkKind::Knob,
                what: lines.join(MARK_SEPARATOR),
            });
        }
        for line in lines {
            let what = format!("{line}; it is left so, and the samples are marked");
            self.job.around.tell_once(self.job.site, name, what);
        }
    }
}

/// What tools say of their version, and the key of their content: a rebuilt one says the same.
async fn versions(host: &dyn Host, tools: &[(String, Key)]) -> Vec<(String, String)> {
    let mut versions = Vec::new();
    for (tool, key) in tools {
        let command = Command {
            argv: vec![tool.clone(), "--version".to_owned()],
            dir: PathBuf::from("/"),
            env: Vec::new(),
            stdin: Vec::new(),
            timeout: VERSION_TIMEOUT,
            output_bytes_max: VERSION_BYTES_MAX,
        };
        let output = host.run(command, Cancel::never()).await.ok();
        let said = output.filter(|output| output.ended.is_success());
        let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let first = said.as_deref().and_then(|text| text.lines().next());
        let first = first.map(str::trim).filter(|line| !line.is_empty());
        versions.push((
            tool.clone(),
            match first {
                Some(line) => format!("{line} ({})", key.short()),
                None => key.short().to_string(),
            },
        ));
    }
    versions
}
