//! The environment: what was true of a machine when a sample was taken, and how two differ.
//!
//! An environment is a flat table of names and texts, so that it is stored once by its content and
//! two of them are compared name by name.

mod capture;
mod mount;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::key::{Key, KeyHasher};
use crate::config::profile::{Facts, glob_matches};

pub use capture::capture;

/// An environment as JSON at the most.
pub const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;
const VERSION: u32 = 1;
/// PCI vendor of virtio devices (Virtual I/O Device specification 1.2, section 4.1.2).
const VIRTIO_VENDOR: &str = "0x1af4";

/// What the caller wants to have in an environment beside the machine itself.
#[derive(Clone, Debug, Default)]
pub struct CaptureRequest {
    /// Where the workload reads and writes: its disk and file system are described. Absolute.
    pub path: Option<PathBuf>,
    /// Names and versions of the tools used.
    pub tools: Vec<(String, String)>,
    /// Files of the applied profile, to be read back.
    pub knobs: Vec<String>,
    /// What it sets that is no file: `cpus` and the CPUs of the workload.
    pub settings: Vec<(String, String)>,
}

/// What was true of a machine. Names are dotted: `cpu.model`, `sysctl.vm.swappiness`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    version: u32,
    pub values: BTreeMap<String, String>,
}

impl Environment {
    /// Equal environments have one key and are stored once.
    pub fn key(&self) -> Key {
        let mut hasher = KeyHasher::new("environment");
        for (name, value) in &self.values {
            hasher.str(name).str(value);
        }
        hasher.finish()
    }

    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Err says why the text is not an environment that this version can read.
    pub fn from_json(text: &str) -> Result<Environment, String> {
        if text.len() > ENVIRONMENT_BYTES_MAX {
            return Err(format!(
                "the environment is above {ENVIRONMENT_BYTES_MAX} bytes"
            ));
        }
        let environment: Environment =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        match environment.version {
            VERSION => Ok(environment),
            version => Err(format!(
                "the environment has version {version}, not {VERSION}"
            )),
        }
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// What a profile's `when` and a matrix may ask about a machine: `cpus`, `sockets`, `memory_gib`,
    /// `architecture`, `vendor`, `kernel`, `virtual`, `container`, `numa_nodes`, and of the tested
    /// path `disk` (`nvme`, `ssd`, `hdd`, `virtio`) and `fs`.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        let mut put = |fact: &str, value: Option<String>| {
            facts.extend(value.map(|value| (fact.to_owned(), value)));
        };
        let own = |name: &str| self.get(name).map(str::to_owned);
        put("cpus", own("cpu.count"));
        put("sockets", own("cpu.sockets"));
        put("architecture", own("cpu.architecture"));
        put("vendor", own("cpu.vendor"));
        put("virtual", own("virtual.guest"));
        put("container", own("virtual.container"));
        put("fs", own("fs.type"));
        let first_word = |text: String| text.split(' ').next().unwrap_or("").to_owned();
        put("kernel", own("kernel").map(first_word));
        let gib = own("memory.total").and_then(|total| total.split('.').next().map(str::to_owned));
        put("memory_gib", gib);
        let nodes = self
            .values
            .keys()
            .filter(|name| name.starts_with("numa.node"));
        let nodes = nodes.filter(|name| name.ends_with(".cpus")).count();
        put("numa_nodes", (nodes > 0).then(|| nodes.to_string()));
        let is_nvme = self.get("disk.firmware").is_some();
        let is_virtio = self.get("disk.vendor") == Some(VIRTIO_VENDOR);
        let disk = match self.get("disk.rotational") {
            // What it says of itself is made up by its hypervisor.
            Some(_) if is_virtio => Some("virtio"),
            Some("1") => Some("hdd"),
            Some(_) if is_nvme => Some("nvme"),
            Some(_) => Some("ssd"),
            None => None,
        };
        put("disk", disk.map(str::to_owned));
        facts
    }

    /// The differences that may move results on their own, so that samples of before and after are not compared
    /// without need. A name that one of the two does not have tells nothing, but in [`LISTS`]: other programs record
    /// other names.
    pub fn shifts(&self, after: &Environment) -> Vec<EnvironmentDifference> {
        let has =
            |it: &Environment, list: &str| it.values.keys().any(|name| name.starts_with(list));
        let both = |list: &&str| has(self, list) && has(after, list);
        let lists: Vec<&str> = LISTS.into_iter().filter(both).collect();
        let is_told = |it: &EnvironmentDifference| {
            let whole = lists.iter().any(|list| it.name.starts_with(list));
            whole || (it.before.is_some() && it.after.is_some())
        };
        let mut differences = self.differences(after);
        differences.retain(|it| is_told(it) && shifts(&it.name));
        differences
    }

    /// What differs between two environments, by name.
    pub fn differences(&self, after: &Environment) -> Vec<EnvironmentDifference> {
        let names = self.values.keys().chain(after.values.keys());
        let mut names: Vec<&String> = names.collect();
        names.sort_unstable();
        names.dedup();
        let differing = names
            .into_iter()
            .filter(|name| self.get(name) != after.get(name));
        differing
            .map(|name| EnvironmentDifference {
                name: name.clone(),
                before: self.get(name).map(str::to_owned),
                after: after.get(name).map(str::to_owned),
                may_explain: may_explain(name),
            })
            .collect()
    }
}

/// One name with two values; None is a value that the machine did not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EnvironmentDifference {
    pub name: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// What it may change, in a few words.
    pub may_explain: &'static str,
}

/// The first differences, each from what to what.
pub fn in_short(differences: &[EnvironmentDifference]) -> String {
    let shown = differences.iter().take(IN_SHORT_MAX);
    let mut shown: Vec<String> = shown.map(EnvironmentDifference::change).collect();
    if differences.len() > IN_SHORT_MAX {
        shown.push(format!("and {} more", differences.len() - IN_SHORT_MAX));
    }
    shown.join(", ")
}

impl EnvironmentDifference {
    /// From what to what.
    pub fn change(&self) -> String {
        let (before, after) = (words(&self.before), words(&self.after));
        // Of long lists (CPU flags) only what came and went.
        if before.len() > LIST_WORDS_MIN && after.len() > LIST_WORDS_MIN {
            let gone = before
                .iter()
                .filter(|word| !after.contains(word))
                .map(|w| format!("-{w}"));
            let new = after
                .iter()
                .filter(|word| !before.contains(word))
                .map(|w| format!("+{w}"));
            let changes: Vec<String> = gone.chain(new).collect();
            format!("{}: {}", self.name, changes.join(" "))
        } else {
            let show = |value: &Option<String>| match value {
                Some(value) => format!("`{value}`"),
                None => "none".to_owned(),
            };
            let (before, after) = (show(&self.before), show(&self.after));
            format!("{}: {before} → {after}", self.name)
        }
    }
}

impl fmt::Display for EnvironmentDifference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} (may explain {})", self.change(), self.may_explain)
    }
}

/// Differences that are told in one line.
const IN_SHORT_MAX: usize = 3;

/// What may move results, by the beginning of its name. Not among them: the name of the distribution (programs that
/// count are in the key of a result) and the size of the memory (the kernel keeps more or less of it at each boot).
const SHIFTS: [&str; 13] = [
    "clock.",
    "cpu.",
    "disk.",
    "fs.",
    "kernel",
    "knob.",
    "machine.",
    "memory.cgroup-limit",
    "mitigation.",
    "numa.",
    "sysctl.",
    "tool.",
    "virtual.",
];

/// Names of files and mounts, which say where something is and not what it is like.
const PLACES: [&str; 5] = [
    "disk.backing-file",
    "fs.options",
    "kernel.parameter.initrd",
    "kernel.parameter.resume",
    "kernel.parameter.root",
];

/// Lists that are read whole, by the beginning of their names: where one has anything, what is not in it is absent.
const LISTS: [&str; 2] = ["kernel.parameter.", "mitigation."];

fn shifts(name: &str) -> bool {
    SHIFTS.iter().any(|prefix| name.starts_with(prefix)) && !PLACES.contains(&name)
}

/// What files of host tuning set beside the value of their own name, by the ends of their paths: patterns of names.
const SETS: [(&str, &[&str]); 17] = [
    ("clocksource0/current_clocksource", &["clock.source"]),
    ("smt/control", &ONLINE),
    ("/online", &ONLINE),
    ("pstate/status", &["cpu.frequency-driver", "cpu.governor"]),
    ("/scaling_governor", &["cpu.governor"]),
    ("cpuidle/current_governor", &["cpu.idle-governor"]),
    (
        "queue/scheduler",
        &[
            "disk.scheduler",
            "disk.requests",
            "disk.write-back-throttling-us",
        ],
    ),
    ("queue/nr_requests", &["disk.requests"]),
    ("queue/read_ahead_kb", &["disk.read-ahead-kb"]),
    ("queue/nomerges", &["disk.merges-off"]),
    ("queue/write_cache", &["disk.write-cache"]),
    ("queue/wbt_lat_usec", &["disk.write-back-throttling-us"]),
    ("/nr_hugepages", &["sysctl.vm.nr_hugepages"]),
    // Of ratio and bytes the one that is set last counts; the other is 0.
    ("vm/dirty_bytes", &["sysctl.vm.dirty_ratio"]),
    ("vm/dirty_ratio", &["sysctl.vm.dirty_bytes"]),
    (
        "vm/dirty_background_bytes",
        &["sysctl.vm.dirty_background_ratio"],
    ),
    (
        "vm/dirty_background_ratio",
        &["sysctl.vm.dirty_background_bytes"],
    ),
];

/// What depends on which CPUs are online; mitigations tell of SMT.
const ONLINE: [&str; 8] = [
    "cpu.cores-per-socket",
    "cpu.count",
    "cpu.online",
    "cpu.smt",
    "cpu.sockets",
    "cpu.threads-per-socket",
    "mitigation.*",
    "numa.*.cpus",
];

/// Whether a profile that sets the files of a pattern may be what has set a value.
pub fn is_set_by(name: &str, pattern: &str) -> bool {
    let beside = SETS.iter().filter(|(file, _)| pattern.ends_with(file));
    glob_matches(&capture::name_of_knob(pattern), name)
        || beside
            .flat_map(|(_, names)| *names)
            .any(|it| glob_matches(it, name))
}

/// Values with more words are lists.
const LIST_WORDS_MIN: usize = 20;

fn words(value: &Option<String>) -> Vec<&str> {
    value.iter().flat_map(|value| value.split(' ')).collect()
}

/// What a difference may change, by the beginning of its name; the first that fits counts.
const EXPLAINS: [(&str, &str); 19] = [
    ("kernel", "anything that enters the kernel"),
    (
        "mitigation.",
        "system calls, context switches and interrupts",
    ),
    ("cpu.microcode", "system calls, branches and mitigations"),
    (
        "cpu.governor",
        "the clock, so all that computes, short runs most",
    ),
    ("cpu.smt", "all that shares cores"),
    ("cpu.", "all that computes"),
    ("clock.", "the cost of taking the time"),
    ("memory.", "caching and reclaim"),
    ("numa.", "memory latency and bandwidth"),
    ("disk.", "I/O throughput and latency"),
    ("fs.", "file I/O and fsync"),
    ("tool.", "how the load was made and measured"),
    ("sysctl.vm.", "caching, write-back and reclaim"),
    (
        "knob./sys/kernel/mm/transparent_hugepage",
        "memory latency and page faults",
    ),
    ("knob./sys/block", "I/O throughput and latency"),
    ("knob.cpus", "all that computes, most of all in parallel"),
    ("knob.drop-caches", "file I/O: what is in memory"),
    ("knob.dma-latency-us", "how long it takes to wake up"),
    ("virtual.", "anything"),
];

fn may_explain(name: &str) -> &'static str {
    let found = EXPLAINS.iter().find(|(prefix, _)| name.starts_with(prefix));
    found.map_or("anything", |(_, what)| what)
}

#[cfg(test)]
mod tests;
