//! Which files of a machine say what about it.

use std::collections::BTreeMap;

use super::mount::Mount;
use super::{CaptureRequest, Environment, VERSION};
use crate::machine::host::{FileOp, FileReply, Host, HostError};

/// /proc/cpuinfo of a machine with 4096 CPUs is below.
const FILE_BYTES_MAX: usize = 16 << 20;
/// A value that is stored at the most; longer ones are cut.
const VALUE_BYTES_MAX: usize = 8192;

/// Files with one value each.
const FILES: [(&str, &str); 17] = [
    (
        "clock.source",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    ("cpu.architecture", "/proc/sys/kernel/arch"),
    (
        "cpu.frequency-driver",
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
    ),
    (
        "cpu.idle-driver",
        "/sys/devices/system/cpu/cpuidle/current_driver",
    ),
    (
        "cpu.idle-governor",
        "/sys/devices/system/cpu/cpuidle/current_governor",
    ),
    ("cpu.isolated", "/sys/devices/system/cpu/isolated"),
    (
        "cpu.l2-size",
        "/sys/devices/system/cpu/cpu0/cache/index2/size",
    ),
    (
        "cpu.l3-size",
        "/sys/devices/system/cpu/cpu0/cache/index3/size",
    ),
    ("cpu.online", "/sys/devices/system/cpu/online"),
    ("cpu.smt", "/sys/devices/system/cpu/smt/active"),
    ("machine.bios", "/sys/class/dmi/id/bios_version"),
    ("machine.model", "/sys/class/dmi/id/product_name"),
    ("machine.vendor", "/sys/class/dmi/id/sys_vendor"),
    ("memory.cgroup-limit", "/sys/fs/cgroup/memory.max"),
    ("cpu.cgroup-limit", "/sys/fs/cgroup/cpu.max"),
    ("numa.nodes", "/sys/devices/system/node/online"),
    ("virtual.hypervisor", "/sys/hypervisor/type"),
];

/// Knobs that move results and that anybody may have changed, read with or without a profile.
const KNOBS: [&str; 24] = [
    "/proc/sys/kernel/nmi_watchdog",
    "/proc/sys/kernel/numa_balancing",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/proc/sys/kernel/sched_rt_runtime_us",
    "/proc/sys/kernel/timer_migration",
    "/proc/sys/vm/compaction_proactiveness",
    "/proc/sys/vm/dirty_background_bytes",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_expire_centisecs",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_writeback_centisecs",
    "/proc/sys/vm/nr_hugepages",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/vfs_cache_pressure",
    "/proc/sys/vm/zone_reclaim_mode",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/kernel/mm/ksm/run",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

/// Files of a disk, below its folder in /sys.
const DISK: [(&str, &str); 13] = [
    ("disk.model", "device/model"),
    ("disk.firmware", "device/firmware_rev"),
    ("disk.vendor", "device/vendor"),
    ("disk.sectors", "size"),
    ("disk.backing-file", "loop/backing_file"),
    ("disk.scheduler", "queue/scheduler"),
    ("disk.rotational", "queue/rotational"),
    ("disk.write-cache", "queue/write_cache"),
    ("disk.requests", "queue/nr_requests"),
    ("disk.read-ahead-kb", "queue/read_ahead_kb"),
    ("disk.logical-block-size", "queue/logical_block_size"),
    ("disk.write-back-throttling-us", "queue/wbt_lat_usec"),
    ("disk.merges-off", "queue/nomerges"),
];

const FOLDER_CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";
const FOLDER_MITIGATIONS: &str = "/sys/devices/system/cpu/vulnerabilities";
const FOLDER_NODES: &str = "/sys/devices/system/node";

/// Reads an environment in two round trips. What a machine does not have is not in it.
///
/// Err only where the machine cannot be reached at all: the kernel's release cannot be read.
pub async fn capture(host: &dyn Host, asked: &CaptureRequest) -> Result<Environment, HostError> {
    let mut batch = Batch::default();
    let texts = [
        "/proc/sys/kernel/osrelease",
        "/proc/sys/kernel/version",
        "/proc/cmdline",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/self/mountinfo",
        "/etc/os-release",
        "/run/systemd/container",
        "/.dockerenv",
        "/run/.containerenv",
    ];
    let knobs = KNOBS
        .iter()
        .copied()
        .chain(asked.knobs.iter().map(String::as_str));
    let paths = texts
        .into_iter()
        .chain(FILES.iter().map(|(_, path)| *path))
        .chain(knobs.clone());
    paths.for_each(|path| batch.read(path));
    for folder in [FOLDER_CPUFREQ, FOLDER_MITIGATIONS, FOLDER_NODES] {
        batch.list(folder);
    }
    let machine = batch.run(host).await;
    if let Some(error) = machine.error("/proc/sys/kernel/osrelease") {
        return Err(error.clone());
    }

    let mut values = CapturedValues::default();
    for (name, path) in FILES {
        values.put(name, machine.value(path));
    }
    for path in knobs {
        values.put(&name_of_knob(path), machine.value(path));
    }
    let release = machine.text("/proc/sys/kernel/osrelease").trim();
    let version = machine.text("/proc/sys/kernel/version").trim();
    values.put("kernel", Some(format!("{release} {version}")));
    values.parameters(machine.text("/proc/cmdline"));
    values.cpus(machine.text("/proc/cpuinfo"));
    values.memory(machine.text("/proc/meminfo"));
    values.put("os", os_name(machine.text("/etc/os-release")));
    values.put("virtual.container", container(&machine));
    for (name, value) in &asked.settings {
        values.put(&format!("knob.{name}"), Some(value.clone()));
    }
    for (name, version) in &asked.tools {
        values.put(&format!("tool.{name}"), Some(version.clone()));
    }
    let details = Details::of(&machine, asked);
    details.read(host, &mut values).await;
    Ok(Environment {
        version: VERSION,
        values: values.0,
    })
}

/// `sysctl.vm.swappiness`, or `knob./sys/…`.
pub(super) fn name_of_knob(path: &str) -> String {
    match path.strip_prefix("/proc/sys/") {
        Some(name) => format!("sysctl.{}", name.replace('/', ".")),
        None => format!("knob.{path}"),
    }
}

/// What is read only when it is known what there is.
struct Details {
    policies: Vec<String>,
    mitigations: Vec<String>,
    nodes: Vec<String>,
    mount: Option<Mount>,
}

impl Details {
    fn of(machine: &Replies, asked: &CaptureRequest) -> Details {
        let numbered = |name: &&String, prefix: &str| {
            let number = name.strip_prefix(prefix).unwrap_or("");
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        };
        let names = |folder: &str, prefix: &str| -> Vec<String> {
            let names = machine.names(folder).iter();
            names
                .filter(|name| numbered(name, prefix))
                .cloned()
                .collect()
        };
        let mounts = machine.text("/proc/self/mountinfo");
        Details {
            policies: names(FOLDER_CPUFREQ, "policy"),
            mitigations: machine.names(FOLDER_MITIGATIONS).to_vec(),
            nodes: names(FOLDER_NODES, "node"),
            mount: asked
                .path
                .as_deref()
                .and_then(|path| Mount::of(path, mounts)),
        }
    }

    async fn read(&self, host: &dyn Host, values: &mut CapturedValues) {
        let mut batch = Batch::default();
        let governor = |name: &String| format!("{FOLDER_CPUFREQ}/{name}/scaling_governor");
        let mitigation = |name: &String| format!("{FOLDER_MITIGATIONS}/{name}");
        let cpus_of = |name: &String| format!("{FOLDER_NODES}/{name}/cpulist");
        self.policies
            .iter()
            .for_each(|name| batch.read(&governor(name)));
        self.mitigations
            .iter()
            .for_each(|name| batch.read(&mitigation(name)));
        self.nodes
            .iter()
            .for_each(|name| batch.read(&cpus_of(name)));
        let folders = self.mount.iter().flat_map(Mount::disk_folders);
        let folders: Vec<String> = folders.collect();
        for folder in &folders {
            DISK.iter()
                .for_each(|(_, file)| batch.read(&format!("{folder}/{file}")));
        }
        let found = batch.run(host).await;
        let governors = self
            .policies
            .iter()
            .filter_map(|name| found.value(&governor(name)));
        values.put("cpu.governor", distinct(governors.collect()));
        for name in &self.mitigations {
            values.put(
                &format!("mitigation.{name}"),
                found.value(&mitigation(name)),
            );
        }
        for name in &self.nodes {
            values.put(&format!("numa.{name}.cpus"), found.value(&cpus_of(name)));
        }
        if let Some(mount) = &self.mount {
            values.put("fs.type", Some(mount.fs.clone()));
            values.put("fs.options", Some(mount.options.clone()));
        }
        for (name, file) in DISK {
            let value = folders
                .iter()
                .find_map(|folder| found.value(&format!("{folder}/{file}")));
            values.put(name, value);
        }
    }
}

/// The values of an environment that is being captured.
#[derive(Default)]
struct CapturedValues(BTreeMap<String, String>);

impl CapturedValues {
    fn put(&mut self, name: &str, value: Option<String>) {
        let Some(mut value) = value.filter(|value| !value.is_empty()) else {
            return;
        };
        let mut end = VALUE_BYTES_MAX.min(value.len());
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
        self.0.insert(name.to_owned(), value);
    }

    /// Each parameter is a value of its own, so that a difference names it. The image's name follows
    /// the kernel; what follows `--` is for init.
    fn parameters(&mut self, cmdline: &str) {
        let mut parameters: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for word in cmdline.split_whitespace().take_while(|word| *word != "--") {
            let (name, value) = word.split_once('=').unwrap_or((word, "set"));
            parameters.entry(name).or_default().push(value);
        }
        parameters.remove("BOOT_IMAGE");
        for (name, values) in parameters {
            self.put(&format!("kernel.parameter.{name}"), Some(values.join(" ")));
        }
    }

    /// x86 describes each CPU in full; Arm names implementer and part instead of a model.
    fn cpus(&mut self, cpuinfo: &str) {
        let all = |field: &str| -> Vec<&str> {
            let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            let ours = lines.filter(|(name, _)| name.trim() == field);
            ours.map(|(_, value)| value.trim()).collect()
        };
        let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
        let logical = all("processor").len();
        let mut sockets = all("physical id");
        sockets.sort_unstable();
        sockets.dedup();
        self.put("cpu.count", Some(logical.to_string()));
        self.put("cpu.sockets", Some(sockets.len().max(1).to_string()));
        self.put(
            "cpu.cores-per-socket",
            all("cpu cores").first().map(|n| n.to_string()),
        );
        self.put(
            "cpu.threads-per-socket",
            all("siblings").first().map(|n| n.to_string()),
        );
        for (name, field) in [
            ("cpu.vendor", "vendor_id"),
            ("cpu.model", "model name"),
            ("cpu.family", "cpu family"),
            ("cpu.stepping", "stepping"),
            ("cpu.microcode", "microcode"),
            ("cpu.implementer", "CPU implementer"),
            ("cpu.part", "CPU part"),
        ] {
            self.put(name, distinct(owned(all(field))));
        }
        let mut flags = all("flags");
        flags.extend(all("Features"));
        flags.dedup();
        if let Some(flags) = flags.first() {
            let mut words: Vec<&str> = flags.split_whitespace().collect();
            words.sort_unstable();
            let guest = words.contains(&"hypervisor") || self.0.contains_key("virtual.hypervisor");
            self.put("cpu.flags", Some(words.join(" ")));
            self.put(
                "virtual.guest",
                Some(if guest { "yes" } else { "no" }.to_owned()),
            );
        }
    }

    /// In tenths of GiB: the kernel keeps some of it, more or less with each version.
    fn memory(&mut self, meminfo: &str) {
        for (name, field) in [("memory.total", "MemTotal:"), ("memory.swap", "SwapTotal:")] {
            let line = meminfo.lines().find(|line| line.starts_with(field));
            let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
            self.put(
                name,
                kib.map(|kib| format!("{:.1} GiB", kib / f64::from(1 << 20))),
            );
        }
    }
}

fn os_name(os_release: &str) -> Option<String> {
    let mut lines = os_release.lines();
    let name = lines.find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn container(machine: &Replies) -> Option<String> {
    let is_there = |path: &str| machine.error(path).is_none();
    Some(match machine.value("/run/systemd/container") {
        Some(kind) => kind,
        None if is_there("/.dockerenv") => "docker".to_owned(),
        None if is_there("/run/.containerenv") => "podman".to_owned(),
        None => "no".to_owned(),
    })
}

/// One value where all are the same, else how often there is which: `a (3), b (1)`.
fn distinct(values: Vec<String>) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    match counts.len() {
        0 => None,
        1 => counts.into_keys().next(),
        _ => {
            let counts = counts
                .iter()
                .map(|(value, count)| format!("{value} ({count})"));
            Some(counts.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Operations of one round trip, by path.
#[derive(Default)]
struct Batch {
    paths: Vec<String>,
    ops: Vec<FileOp>,
}

impl Batch {
    fn read(&mut self, path: &str) {
        self.paths.push(path.to_owned());
        self.ops.push(FileOp::Read {
            path: path.into(),
            bytes_max: FILE_BYTES_MAX,
        });
    }

    fn list(&mut self, path: &str) {
        self.paths.push(path.to_owned());
        self.ops.push(FileOp::List { path: path.into() });
    }

    async fn run(self, host: &dyn Host) -> Replies {
        let mut replies = Replies::default();
        if self.ops.is_empty() {
            return replies;
        }
        for (path, reply) in self.paths.into_iter().zip(host.files(self.ops).await) {
            match reply {
                Ok(FileReply::Bytes(bytes)) => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    replies.texts.insert(path, text);
                }
                Ok(FileReply::Names(names)) => {
                    replies.names.insert(path, names);
                }
                Ok(_) => {}
                Err(error) => {
                    replies.errors.insert(path, error);
                }
            }
        }
        replies
    }
}

/// What one round trip has brought, by path.
#[derive(Default)]
struct Replies {
    texts: BTreeMap<String, String>,
    names: BTreeMap<String, Vec<String>>,
    errors: BTreeMap<String, HostError>,
}

impl Replies {
    fn text(&self, path: &str) -> &str {
        self.texts.get(path).map_or("", String::as_str)
    }

    /// As edge/tune reads it: the selected word of several, single blanks.
    fn value(&self, path: &str) -> Option<String> {
        let text = self.texts.get(path)?;
        Some(crate::machine::tune::value_in(text)).filter(|value| !value.is_empty())
    }

    fn names(&self, path: &str) -> &[String] {
        self.names.get(path).map_or(&[], Vec::as_slice)
    }

    fn error(&self, path: &str) -> Option<&HostError> {
        self.errors.get(path)
    }
}
