//! The tests of environments: a recorded machine, this machine, and two that differ.

use std::path::Path;

use super::mount::Mount;
use super::*;
use crate::machine::tune::fake::FakeRoot;

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Fast CPU\nmicrocode\t: 0x1\n\
    physical id\t: 0\nsiblings\t: 2\ncpu cores\t: 1\nflags\t\t: vmx fpu\n\n\
    processor\t: 1\nvendor_id\t: GenuineIntel\nmodel name\t: Fast CPU\nmicrocode\t: 0x2\n\
    physical id\t: 1\nsiblings\t: 2\ncpu cores\t: 1\nflags\t\t: vmx fpu\n";

const MOUNTS: &str = "22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,discard\n\
    23 22 0:30 /vol /data rw,noatime - btrfs /dev/nvme1n1 rw,ssd\n\
    24 22 0:31 / /data/with\\040blank rw - tmpfs none rw,size=4k\n";

fn machine() -> (tempfile::TempDir, FakeRoot) {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeRoot::new(folder.path());
    for (path, text) in [
        ("/proc/sys/kernel/osrelease", "6.12.1\n"),
        ("/proc/sys/kernel/version", "#1 SMP\n"),
        (
            "/proc/cmdline",
            "BOOT_IMAGE=/boot/x quiet isolcpus=2 console=a console=b -- x\n",
        ),
        ("/proc/cpuinfo", CPUINFO),
        (
            "/proc/meminfo",
            "MemTotal:       16384000 kB\nSwapTotal:  0 kB\n",
        ),
        ("/proc/self/mountinfo", MOUNTS),
        ("/etc/os-release", "NAME=x\nPRETTY_NAME=\"An OS 3\"\n"),
        ("/proc/sys/vm/swappiness", "60\n"),
        (
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        ),
        (
            "/sys/devices/system/cpu/vulnerabilities/meltdown",
            "Mitigation: PTI\n",
        ),
        (
            "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
            "performance\n",
        ),
        (
            "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
            "powersave\n",
        ),
        ("/sys/devices/system/node/node0/cpulist", "0-1\n"),
        ("/sys/dev/block/259:2/partition", "2\n"),
        ("/sys/dev/block/queue/scheduler", "[none] mq-deadline\n"),
        ("/sys/dev/block/queue/rotational", "0\n"),
        ("/sys/dev/block/device/model", "Disk 9000  \n"),
        ("/sys/dev/block/device/firmware_rev", "1.0\n"),
        ("/sys/class/block/nvme1n1/device/model", "Disk 1\n"),
    ] {
        host.put(path, text).unwrap();
    }
    (folder, host)
}

fn asked(path: &str) -> CaptureRequest {
    CaptureRequest {
        path: Some(path.into()),
        tools: vec![("fio".to_owned(), "fio-3.36".to_owned())],
        knobs: vec!["/proc/sys/vm/swappiness".to_owned()],
        settings: vec![("cpus".to_owned(), "1 (cgroup)".to_owned())],
    }
}

#[test]
fn a_recorded_machine() {
    let (_folder, host) = machine();
    let environment = run(capture(&host, &asked("/home/x"))).unwrap();
    let lines: Vec<String> = environment
        .values
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    let expected = "cpu.cores-per-socket = 1
cpu.count = 2
cpu.flags = fpu vmx
cpu.governor = performance (1), powersave (1)
cpu.microcode = 0x1 (1), 0x2 (1)
cpu.model = Fast CPU
cpu.sockets = 2
cpu.threads-per-socket = 2
cpu.vendor = GenuineIntel
disk.firmware = 1.0
disk.model = Disk 9000
disk.rotational = 0
disk.scheduler = none
fs.options = discard,relatime,rw
fs.type = ext4
kernel = 6.12.1 #1 SMP
kernel.parameter.console = a b
kernel.parameter.isolcpus = 2
kernel.parameter.quiet = set
knob./sys/kernel/mm/transparent_hugepage/enabled = madvise
knob.cpus = 1 (cgroup)
memory.swap = 0.0 GiB
memory.total = 15.6 GiB
mitigation.meltdown = Mitigation: PTI
numa.node0.cpus = 0-1
os = An OS 3
sysctl.vm.swappiness = 60
tool.fio = fio-3.36
virtual.container = no
virtual.guest = no";
    assert_eq!(lines.join("\n"), expected);
    assert_eq!(host.batches.get(), 2);
    let facts = environment.facts();
    let check = |fact: &str, value: &str| assert_eq!(facts[fact], value);
    check("disk", "nvme");
    check("cpus", "2");
    check("kernel", "6.12.1");
    check("memory_gib", "15");
    check("numa_nodes", "1");
}

#[test]
fn the_file_system_of_a_path() {
    let check = |path: &str, fs: &str, folder: Option<&str>| {
        let mount = Mount::of(Path::new(path), MOUNTS).unwrap();
        let folders = mount.disk_folders();
        assert_eq!(
            (mount.fs.as_str(), folders.first().map(String::as_str)),
            (fs, folder),
            "{path}"
        );
    };
    check("/home", "ext4", Some("/sys/dev/block/259:2"));
    check("/data/x", "btrfs", Some("/sys/class/block/nvme1n1"));
    check("/database", "ext4", Some("/sys/dev/block/259:2"));
    check("/data/with blank/x", "tmpfs", None);
    assert_eq!(Mount::of(Path::new("/x"), "nonsense\n1 2 - 3"), None);
}

#[test]
fn what_differs_is_named_exactly() {
    let (_folder, host) = machine();
    let before = run(capture(&host, &asked("/home"))).unwrap();
    host.put("/proc/sys/vm/swappiness", "10\n").unwrap();
    host.put("/proc/sys/kernel/osrelease", "6.13.0\n").unwrap();
    host.put(
        "/proc/cmdline",
        "BOOT_IMAGE=/boot/y quiet isolcpus=2 console=a console=b -- x\n",
    )
    .unwrap();
    host.put(
        "/proc/meminfo",
        "MemTotal:       16384512 kB\nSwapTotal:  0 kB\n",
    )
    .unwrap();
    let mut newer = asked("/home");
    newer.tools[0].1 = "fio-3.37".to_owned();
    let after = run(capture(&host, &newer)).unwrap();
    let shown: Vec<String> = before
        .differences(&after)
        .iter()
        .map(|d| d.to_string())
        .collect();
    assert_eq!(
        shown,
        [
            "kernel: `6.12.1 #1 SMP` → `6.13.0 #1 SMP` (may explain anything that enters the kernel)",
            "sysctl.vm.swappiness: `60` → `10` (may explain caching, write-back and reclaim)",
            "tool.fio: `fio-3.36` → `fio-3.37` (may explain how the load was made and measured)",
        ]
    );
    assert_eq!(before.differences(&before), []);
    assert_ne!(before.key(), after.key());
}

#[test]
fn what_may_move_results_by_itself() {
    let environment = |name: &str, value: &str| {
        let mut environment = Environment::default();
        environment.values.insert(name.to_owned(), value.to_owned());
        environment
    };
    let check = |name: &str, counts: bool| {
        let (before, after) = (environment(name, "a"), environment(name, "b"));
        let expected: &[&str] = if counts { &[name] } else { &[] };
        let shifts = before.shifts(&after);
        let names: Vec<&str> = shifts.iter().map(|shift| shift.name.as_str()).collect();
        assert_eq!(names, expected);
        // What only one of them has tells nothing.
        assert_eq!(before.shifts(&Environment::default()), []);
        assert_eq!(Environment::default().shifts(&after), []);
    };
    for name in [
        "kernel",
        "cpu.model",
        "cpu.microcode",
        "mitigation.srso",
        "disk.model",
        "tool.fio",
        "cpu.governor",
        "cpu.smt",
        "disk.scheduler",
        "sysctl.vm.swappiness",
        "knob.cpus",
    ] {
        check(name, true);
    }
    for name in [
        "os",
        "memory.total",
        "memory.swap",
        "fs.options",
        "kernel.parameter.initrd",
        "kernel.parameter.resume",
        "kernel.parameter.root",
    ] {
        check(name, false);
    }
}

#[test]
fn what_came_to_a_list_or_went_from_it_counts() {
    let check = |before: &[&str], after: &[&str], expected: &[&str]| {
        let of = |names: &[&str]| {
            let mut environment = Environment::default();
            let values = names
                .iter()
                .map(|name| ((*name).to_owned(), "set".to_owned()));
            environment.values.extend(values);
            environment
        };
        for (before, after) in [(before, after), (after, before)] {
            let shifts = of(before).shifts(&of(after));
            let names: Vec<&str> = shifts.iter().map(|shift| shift.name.as_str()).collect();
            assert_eq!(names, expected);
        }
    };
    let (quiet, full) = ("kernel.parameter.quiet", "kernel.parameter.nohz_full");
    check(&[quiet], &[quiet, full], &[full]);
    check(
        &["mitigation.srso"],
        &["mitigation.srso", "mitigation.tsa"],
        &["mitigation.tsa"],
    );
    check(&[quiet], &[quiet, "kernel.parameter.initrd"], &[]);
    // The list could not be read.
    check(&[], &[full], &[]);
    check(&[quiet], &[quiet, "mitigation.tsa"], &[]);
    check(&["tool.fio"], &["tool.fio", "tool.dd"], &[]);
}

#[test]
fn what_a_profile_sets_is_not_what_somebody_else_changed() {
    let check = |pattern: &str, names: &[&str]| {
        let all = [
            "clock.source",
            "cpu.governor",
            "cpu.online",
            "cpu.smt",
            "disk.read-ahead-kb",
            "disk.requests",
            "disk.scheduler",
            "knob./sys/kernel/mm/transparent_hugepage/defrag",
            "knob./sys/kernel/mm/transparent_hugepage/enabled",
            "mitigation.mds",
            "numa.node0.cpus",
            "numa.nodes",
            "sysctl.vm.dirty_bytes",
            "sysctl.vm.dirty_ratio",
            "sysctl.vm.nr_hugepages",
            "sysctl.vm.swappiness",
        ];
        let set: Vec<&str> = all
            .into_iter()
            .filter(|name| is_set_by(name, pattern))
            .collect();
        assert_eq!(set, names, "{pattern}");
    };
    let cpu = "/sys/devices/system/cpu";
    check(
        &format!("{cpu}/cpufreq/policy*/scaling_governor"),
        &["cpu.governor"],
    );
    check(
        &format!("{cpu}/smt/control"),
        &["cpu.online", "cpu.smt", "mitigation.mds", "numa.node0.cpus"],
    );
    check(&format!("{cpu}/intel_pstate/no_turbo"), &[]);
    check(
        "/sys/block/*/queue/scheduler",
        &["disk.requests", "disk.scheduler"],
    );
    check("/proc/sys/vm/swappiness", &["sysctl.vm.swappiness"]);
    check(
        "/proc/sys/vm/dirty_bytes",
        &["sysctl.vm.dirty_bytes", "sysctl.vm.dirty_ratio"],
    );
    let huge = "/sys/kernel/mm";
    check(
        &format!("{huge}/transparent_hugepage/enabled"),
        &["knob./sys/kernel/mm/transparent_hugepage/enabled"],
    );
    check(
        &format!("{huge}/hugepages/hugepages-2048kB/nr_hugepages"),
        &["sysctl.vm.nr_hugepages"],
    );
}

#[test]
fn of_long_lists_only_the_changed_words_are_shown() {
    let list = |more: &str| {
        let words: Vec<String> = (0..30).map(|n| format!("f{n}")).collect();
        Some(format!("{} {more}", words.join(" ")))
    };
    let difference = EnvironmentDifference {
        name: "cpu.flags".to_owned(),
        before: list("rtm"),
        after: list("avx"),
        may_explain: "x",
    };
    assert_eq!(
        difference.to_string(),
        "cpu.flags: -rtm +avx (may explain x)"
    );
}

#[test]
fn json_reads_back() {
    let (_folder, host) = machine();
    let environment = run(capture(&host, &asked("/data"))).unwrap();
    assert_eq!(
        Environment::from_json(&environment.to_json()),
        Ok(environment.clone())
    );
    let newer = environment
        .to_json()
        .replace("\"version\":1", "\"version\":2");
    let error = "the environment has version 2, not 1".to_owned();
    assert_eq!(Environment::from_json(&newer), Err(error));
    assert!(Environment::from_json("{").is_err());
}

#[test]
fn this_machine_twice_is_one_environment() {
    let host = FakeRoot::new("/");
    let asked = CaptureRequest {
        path: std::env::current_dir().ok(),
        ..CaptureRequest::default()
    };
    let first = run(capture(&host, &asked)).unwrap();
    let second = run(capture(&host, &asked)).unwrap();
    for name in ["kernel", "cpu.count", "memory.total", "fs.type"] {
        assert!(first.get(name).is_some(), "{name}: {:?}", first.values);
    }
    // Other tests may change knobs of this machine meanwhile.
    let differences = first.differences(&second);
    assert!(
        differences
            .iter()
            .all(|d| d.name.contains("knob.") || d.name.contains("sysctl."))
    );
}
