//! The CPUs of the workload: a cgroup with a cpuset where there can be one, else affinity.

use super::find::{read_op, value_of, write_op};
use super::{KnobOutcome, Refusal, Reverted, service};
use crate::config::profile::CpuList;
use crate::machine::host::{FileOp, Host, HostError, HostErrorKind};

const CPUS_ONLINE: &str = "/sys/devices/system/cpu/online";
const OWN_CGROUPS: &str = "/proc/self/cgroup";
/// Where version 1 of cgroups has its cpusets, and version 2 all, alone or beside version 1
/// (systemd's layouts).
const CPUSET_V1: &str = "/sys/fs/cgroup/cpuset";
const V2: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The CPUs that the workload may use, and what holds it to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuSet {
    pub cpus: CpuList,
    /// The folder of the cgroup: what is in it cannot leave the CPUs, whatever affinity it asks for.
    /// None: an affinity, which is inherited unless a program changes its own.
    pub cgroup: Option<String>,
}

impl CpuSet {
    /// The command, held to the CPUs.
    pub fn hold(&self, command: Vec<String>) -> Vec<String> {
        let held: Vec<String> = match &self.cgroup {
            // 0 is who writes it (cgroups(7)).
            Some(cgroup) => vec![
                "sh".to_owned(),
                "-c".to_owned(),
                "echo 0 > \"$0/cgroup.procs\" && exec \"$@\"".to_owned(),
                cgroup.clone(),
            ],
            None => vec!["taskset".to_owned(), "-c".to_owned(), self.cpus.to_string()],
        };
        held.into_iter().chain(command).collect()
    }

    /// `2-7 (cgroup)`.
    pub fn show(&self) -> String {
        let by = self.cgroup.as_ref().map_or("affinity", |_| "cgroup");
        format!("{} ({by})", self.cpus)
    }
}

/// Err where not all of these CPUs are there.
pub(super) async fn check(host: &dyn Host, wanted: &CpuList) -> Result<(), Refusal> {
    let refuse = |found: Option<String>, reason: String| Refusal {
        knob: "cpus".to_owned(),
        words: None,
        path: CPUS_ONLINE.into(),
        wanted: wanted.to_string().into(),
        found,
        reason,
    };
    let found = read(host, &[CPUS_ONLINE.to_owned()]).await.remove(0);
    let found = found.ok_or_else(|| refuse(None, "it cannot be read".to_owned()))?;
    let online = CpuList::parse(&found).map_err(|reason| refuse(Some(found.clone()), reason))?;
    match wanted.beyond(&online)[..] {
        [] => Ok(()),
        [cpu, ..] => Err(refuse(Some(found), format!("CPU {cpu} is not online"))),
    }
}

/// Where a cgroup of our own could be made; None where no group above us gives its children a cpuset.
pub(super) async fn place(host: &dyn Host) -> Option<String> {
    let text = read(host, &[OWN_CGROUPS.to_owned()]).await.remove(0)?;
    // `number:controllers:path`, one after the other; version 2 has no controllers there.
    let lines = text.split(' ').filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?.trim_end_matches('/')))
    });
    let lines: Vec<(&str, &str)> = lines.collect();
    let name = format!("matrix-{}", std::process::id());
    let has_cpuset = |controllers: &str| controllers.split(',').any(|c| c == "cpuset");
    if let Some((_, own)) = lines
        .iter()
        .find(|(controllers, _)| has_cpuset(controllers))
    {
        return Some(format!("{CPUSET_V1}{own}/{name}"));
    }
    let (_, own) = lines
        .iter()
        .find(|(controllers, _)| controllers.is_empty())?;
    let mut folders = Vec::new();
    for root in V2 {
        let mut own = *own;
        loop {
            folders.push(format!("{root}{own}"));
            match own.rsplit_once('/') {
                Some((above, _)) => own = above,
                None => break,
            }
        }
    }
    let files = folders
        .iter()
        .map(|f| format!("{f}/cgroup.subtree_control"));
    let given = read(host, &files.collect::<Vec<_>>()).await;
    let gives = |given: &Option<String>| {
        let words = given.as_deref().unwrap_or("").split(' ');
        words.into_iter().any(|controller| controller == "cpuset")
    };
    let mut found = folders.into_iter().zip(given);
    let (folder, _) = found.find(|(_, given)| gives(given))?;
    Some(format!("{folder}/{name}"))
}

/// Makes the cgroup. Err says why it cannot be; then it is not there.
pub(super) async fn make(host: &dyn Host, cgroup: &str, cpus: &CpuList) -> Result<(), String> {
    let made = fill(host, cgroup, cpus).await;
    if made.is_err() {
        // What is left is in the journal.
        let _ = remove(host, cgroup).await;
    }
    made
}

async fn fill(host: &dyn Host, cgroup: &str, cpus: &CpuList) -> Result<(), String> {
    let make = FileOp::MakeDir {
        path: cgroup.into(),
    };
    let above = cgroup.rsplit_once('/').map_or("", |(above, _)| above);
    let (own_mems, mems_above) = (
        format!("{cgroup}/cpuset.mems"),
        format!("{above}/cpuset.mems"),
    );
    let mut replies = host
        .files(vec![make, read_op(&own_mems), read_op(&mems_above)])
        .await
        .into_iter();
    let mut next = || replies.next().ok_or("no reply".to_owned());
    next()?.map_err(|error| error.message)?;
    let [mems, mems_above] = [next()?, next()?].map(|reply| value_of(reply).unwrap_or_default());
    let mut ops = Vec::new();
    // Version 1 takes no process into a group without memory.
    if mems.is_empty() && !mems_above.is_empty() {
        ops.push(write_op(&own_mems, &mems_above));
    }
    ops.push(write_op(
        &format!("{cgroup}/cpuset.cpus"),
        &cpus.to_string(),
    ));
    // Each version has one of them.
    let effective = ["cpuset.cpus.effective", "cpuset.effective_cpus"];
    let effective = effective.map(|file| read_op(&format!("{cgroup}/{file}")));
    ops.extend(effective);
    let mut written = host.files(ops).await;
    let read = written.split_off(written.len().saturating_sub(2));
    for reply in written {
        reply.map_err(|error| error.message)?;
    }
    // What is not given from above is silently left out.
    let found = read.into_iter().find_map(|reply| value_of(reply).ok());
    match found {
        Some(found) if CpuList::parse(&found).is_ok_and(|found| found == *cpus) => Ok(()),
        found => Err(format!("it has the CPUs `{}`", found.unwrap_or_default())),
    }
}

/// Removes the cgroup; None where there is none.
pub(super) async fn remove(host: &dyn Host, cgroup: &str) -> Option<Reverted> {
    let processes = host
        .files(vec![read_op(&format!("{cgroup}/cgroup.procs"))])
        .await;
    let is_gone = |error: &HostError| error.kind == HostErrorKind::NotFound;
    if processes
        .iter()
        .any(|reply| reply.as_ref().is_err_and(is_gone))
    {
        return None;
    }
    let outcome = match service::run(host, &["rmdir", cgroup]).await {
        Ok(()) => KnobOutcome::PutBack,
        Err(reason) => KnobOutcome::Failed { reason },
    };
    Some(Reverted {
        knob: "cpus".to_owned(),
        path: cgroup.to_owned(),
        old: "no cgroup".to_owned(),
        outcome,
    })
}

async fn read(host: &dyn Host, paths: &[String]) -> Vec<Option<String>> {
    let ops = paths.iter().map(|path| read_op(path));
    let replies = host.files(ops.collect()).await.into_iter();
    replies.map(|reply| value_of(reply).ok()).collect()
}
