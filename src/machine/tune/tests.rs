//! The tests of applying and reverting profiles, on a fake machine and on this one.

mod hardware;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::fake::{FakeRoot, Quirk, TEMPORARY};
use super::*;
use crate::base::diag::Sources;
use crate::config::profile::{Facts, load};

const JOURNAL: &str = "/var/lib/matrix/tune.journal";
const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const HUGE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const SWAPPINESS: &str = "/proc/sys/vm/swappiness";

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(future)
}

fn resolve(text: &str) -> Resolved {
    let mut sources = Sources::default();
    let mut read = |_: &str| Ok(("test.kdl".to_owned(), text.to_owned()));
    let (chain, problems) = load("test", &mut sources, &mut read);
    assert_eq!(problems, [], "{text}");
    chain.resolve(&Facts::new(), &|_| Ok(true)).0
}

/// A machine with every knob that a profile can name.
const MACHINE: [(&str, &str); 34] = [
    (BOOT_ID, "boot-1\n"),
    (THP, "always [madvise] never\n"),
    (
        "/sys/kernel/mm/transparent_hugepage/defrag",
        "always defer defer+madvise [madvise] never\n",
    ),
    (HUGE, "0\n"),
    (
        "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages",
        "0\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "schedutil\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
        "schedutil\n",
    ),
    ("/sys/devices/system/cpu/cpufreq/boost", "1\n"),
    ("/sys/devices/system/cpu/smt/control", "on\n"),
    ("/sys/devices/system/cpu/online", "0-3\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state1/name", "C6\n"),
    ("/sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/name", "C6\n"),
    ("/sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
    (SWAPPINESS, "60\n"),
    ("/proc/sys/vm/dirty_bytes", "0\n"),
    ("/proc/sys/vm/dirty_ratio", "20\n"),
    ("/proc/sys/vm/drop_caches", "0\n"),
    ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    (
        "/sys/block/nvme0n1/queue/scheduler",
        "[none] mq-deadline kyber bfq\n",
    ),
    ("/sys/block/nvme0n1/queue/nr_requests", "1023\n"),
    (
        "/sys/block/nvme1n1/queue/scheduler",
        "none [mq-deadline] kyber bfq\n",
    ),
    ("/sys/block/nvme1n1/queue/nr_requests", "1023\n"),
    ("/sys/block/sda/queue/scheduler", "[mq-deadline] none\n"),
    ("/proc/irq/24/smp_affinity_list", "0-3\n"),
    ("/proc/irq/24/nvme0q1/x", ""),
    ("/proc/irq/25/smp_affinity_list", "0-3\n"),
    ("/dev/cpu_dma_latency", "\u{0}\u{5}\u{0}\u{0}"),
    ("/proc/self/cgroup", "0::/user.slice/user-1.slice\n"),
    ("/sys/fs/cgroup/cgroup.procs", ""),
    ("/sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu io\n"),
    (
        "/sys/fs/cgroup/user.slice/cgroup.subtree_control",
        "cpu io\n",
    ),
];

/// One of each kind; 15 files change.
const EVERYTHING: &str = r#"
governor "performance"
turbo #false
smt #false
idle-state "C6" #false
thp "never"
thp-defrag "never"
huge-pages 64
huge-pages 2 size="1G" node=0
sysctl "vm.swappiness" 10
sysctl "vm.dirty_bytes" 1048576
sysctl "net.ipv4.tcp_rmem" 4096 131072 8388608
sysfs "/sys/block/nvme*/queue/nr_requests" 64
block "nvme*" { scheduler "kyber"; }
irq-affinity "nvme*" "0,1"
cpus "1-2"
"#;

fn machine() -> (TempDir, FakeRoot) {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeRoot::new(folder.path());
    for (path, text) in MACHINE {
        host.put(path, text).unwrap();
    }
    (folder, quirky(host))
}

/// Two knobs that clear each other, as the kernel's do.
fn quirky(host: FakeRoot) -> FakeRoot {
    let clears = |path: &str| Quirk::Clears(path.to_owned());
    host.quirk(
        "/proc/sys/vm/dirty_bytes",
        clears("/proc/sys/vm/dirty_ratio"),
    )
    .quirk(
        "/proc/sys/vm/dirty_ratio",
        clears("/proc/sys/vm/dirty_bytes"),
    )
}

/// All files of a fake machine with blanks made even.
fn contents(folder: &Path) -> BTreeMap<String, String> {
    fn walk(folder: &Path, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, found),
                false => {
                    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                    let words: Vec<&str> = text.split_whitespace().collect();
                    found.insert(path.display().to_string(), words.join(" "));
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(folder, &mut found);
    found.retain(|path, _| !path.ends_with(TEMPORARY));
    found
}

fn journal() -> &'static Path {
    Path::new(JOURNAL)
}

#[test]
fn every_kind_of_knob_is_set_and_put_back() {
    let (folder, host) = machine();
    let before = contents(folder.path());
    let applied = run(apply(&host, &resolve(EVERYTHING), journal())).unwrap();
    assert_eq!(applied.skipped, []);
    let check =
        |path: &str, expected: &str| assert_eq!(host.get(path).unwrap().trim(), expected, "{path}");
    check(THP, "always madvise [never]");
    check(HUGE, "64");
    check(
        "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages",
        "2",
    );
    check(
        "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
        "performance",
    );
    check("/sys/devices/system/cpu/cpufreq/boost", "0");
    check("/sys/devices/system/cpu/smt/control", "off");
    check("/sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0");
    check("/sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "1");
    check(SWAPPINESS, "10");
    check("/proc/sys/vm/dirty_ratio", "0");
    check("/proc/sys/net/ipv4/tcp_rmem", "4096 131072 8388608");
    check(
        "/sys/block/nvme1n1/queue/scheduler",
        "none mq-deadline [kyber] bfq",
    );
    check("/sys/block/sda/queue/scheduler", "[mq-deadline] none");
    check("/proc/irq/24/smp_affinity_list", "0-1");
    check("/proc/irq/25/smp_affinity_list", "0-3");
    let cgroup = format!("/sys/fs/cgroup/matrix-{}", std::process::id());
    check(&format!("{cgroup}/cpuset.cpus"), "1-2");
    let cpus = applied.cpus.clone().unwrap();
    assert_eq!(cpus.show(), "1-2 (cgroup)");
    let held = cpus.hold(vec!["fio".to_owned()]);
    assert_eq!(
        held[2..],
        [
            "echo 0 > \"$0/cgroup.procs\" && exec \"$@\"",
            &cgroup,
            "fio"
        ]
    );

    let rows = run(release(&host, &applied, journal())).unwrap();
    assert!(
        rows.iter().all(|row| row.outcome == KnobOutcome::PutBack),
        "{rows:?}"
    );
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_journal_of_somebody_else_is_left_alone() {
    let (folder, host) = machine();
    let profile = resolve(EVERYTHING);
    let ours = run(apply(&host, &profile, journal())).unwrap();
    run(revert(&host, journal())).unwrap();
    let theirs = run(apply(&host, &profile, journal())).unwrap();
    let tuned = contents(folder.path());
    let error = run(release(&host, &ours, journal())).unwrap_err();
    assert!(matches!(error, TuneError::Foreign { .. }), "{error}");
    assert_eq!(contents(folder.path()), tuned);
    run(release(&host, &theirs, journal())).unwrap();
}

#[test]
fn a_profile_takes_few_round_trips() {
    let (_folder, host) = machine();
    let applied = run(apply(&host, &resolve(EVERYTHING), journal())).unwrap();
    // Journal and boot; two levels of patterns; read; settings of schedulers, their values; the own
    // cgroup, those above; journal; write and read back; the CPUs; the new cgroup, its CPUs; settings of
    // schedulers again; journal.
    assert_eq!(host.batches.replace(0), 15);
    run(release(&host, &applied, journal())).unwrap();
    // Journal and boot; what others have set; journal; hyperthreads: read, write; the others: read, write;
    // the cgroup; journal.
    assert_eq!(host.batches.get(), 9);
}

#[test]
fn after_a_crash_at_any_operation_the_journal_puts_all_back() {
    let profile = resolve(EVERYTHING);
    let (folder, host) = machine();
    let before = contents(folder.path());
    let apply_and_release = || {
        if let Ok(applied) = run(apply(&host, &profile, journal())) {
            let _ = run(release(&host, &applied, journal()));
        }
    };
    host.ops_left.set(Some(u32::MAX));
    apply_and_release();
    let operations = u32::MAX - host.ops_left.get().unwrap();
    assert!(operations > 100, "{operations}");
    for dies_after in 0..operations {
        host.ops_left.set(Some(dies_after));
        apply_and_release();
        host.ops_left.set(None);
        let rows = run(revert(&host, journal())).unwrap();
        let fine = [KnobOutcome::PutBack, KnobOutcome::AlreadyBack];
        assert!(
            rows.iter().all(|row| fine.contains(&row.outcome)),
            "{dies_after}: {rows:?}"
        );
        assert_eq!(
            contents(folder.path()),
            before,
            "died after {dies_after} operations"
        );
    }
}

#[test]
fn a_knob_that_cannot_be_set_is_an_error_and_all_is_put_back() {
    let check = |text: &str, path: &str, quirk: Option<Quirk>, expected: &str| {
        let (folder, mut host) = machine();
        if let Some(quirk) = quirk {
            host = host.quirk(path, quirk);
        }
        let before = contents(folder.path());
        let error = run(apply(&host, &resolve(text), journal())).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(contents(folder.path()), before, "{text}");
    };
    let hint = "the machine is as it was; add `optional=#true` to knobs that it may lack";
    check(
        "thp never; huge-pages 64",
        HUGE,
        Some(Quirk::Clamps(40)),
        &format!(
            "the profile cannot be applied\n  `huge-pages`: {HUGE}: wanted `64`, found `40`: it was \
             written, but does not stick\n{hint}"
        ),
    );
    check(
        "thp never; sysctl vm.swappiness 10",
        SWAPPINESS,
        Some(Quirk::Refuses(HostErrorKind::PermissionDenied)),
        &format!(
            "the profile cannot be applied\n  `sysctl vm.swappiness`: {SWAPPINESS}: wanted `10`, \
             found `60`: {SWAPPINESS}: the knob refuses\n{hint}"
        ),
    );
    check(
        "thp never; block \"nvme0*\" { scheduler \"cfq\"; }",
        "",
        None,
        &format!(
            "the profile cannot be applied\n  `block nvme0* scheduler`: \
             /sys/block/nvme0n1/queue/scheduler: wanted `cfq`, found `none`: \
             /sys/block/nvme0n1/queue/scheduler: Invalid argument (os error 22)\n{hint}"
        ),
    );
    check(
        "thp never; sysctl vm.nonsense 1; sysfs \"/sys/class/x*/y\" 2",
        "",
        None,
        &format!(
            "the profile cannot be applied\n  `sysctl vm.nonsense`: /proc/sys/vm/nonsense: wanted \
             `1`: this machine has no such file\n  `sysfs /sys/class/x*/y`: /sys/class/x*/y: wanted \
             `2`: this machine has no such file\n{hint}"
        ),
    );
    check(
        "thp never; cpus \"2-5\"",
        "",
        None,
        &format!(
            "the profile cannot be applied\n  `cpus`: /sys/devices/system/cpu/online: wanted `2-5`, \
             found `0-3`: CPU 4 is not online\n{hint}"
        ),
    );
    check(
        "block \"nvme*\" { scheduler none; }; block \"nvme1*\" { scheduler bfq; }",
        "",
        None,
        &format!(
            "the profile cannot be applied\n  `block nvme1* scheduler`: \
             /sys/block/nvme1n1/queue/scheduler: wanted `bfq`: `block nvme* scheduler` wants `none` \
             there\n{hint}"
        ),
    );
    check(
        "thp never; stop-service unknown-unit",
        "",
        None,
        &format!(
            "the profile cannot be applied\n  `stop-service`: unknown-unit: wanted `stopped`: there \
             is no such unit\n{hint}"
        ),
    );
}

#[test]
fn an_optional_knob_is_skipped_and_left_as_it_was() {
    let (folder, host) = machine();
    let host = host.quirk(HUGE, Quirk::Clamps(40));
    let host = host.quirk(SWAPPINESS, Quirk::Refuses(HostErrorKind::Other));
    let before = contents(folder.path());
    let profile = resolve(
        "thp never\nhuge-pages 64 optional=#true\nsysctl vm.swappiness 1 optional=#true\n\
         sysctl vm.nonsense 1 optional=#true\ncpus \"0-9\" optional=#true\n\
         stop-service unknown-unit optional=#true",
    );
    let applied = run(apply(&host, &profile, journal())).unwrap();
    let skipped: Vec<&str> = applied.skipped.iter().map(|r| r.knob.as_str()).collect();
    let expected = [
        "sysctl vm.nonsense",
        "stop-service",
        "huge-pages",
        "sysctl vm.swappiness",
        "cpus",
    ];
    assert_eq!(skipped, expected);
    assert_eq!(applied.rows.len(), 1);
    assert_eq!(host.get(HUGE).unwrap(), "0\n");
    assert_eq!(applied.cpus, None);
    assert_eq!(run(release(&host, &applied, journal())).unwrap().len(), 1);
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn nothing_is_left_where_the_journal_cannot_be_confirmed() {
    let (folder, host) = machine();
    let before = contents(folder.path());
    let profile = resolve("thp never; dma-latency-us 3");
    host.ops_left.set(Some(u32::MAX));
    let applied = run(apply(&host, &profile, journal())).unwrap();
    let operations = u32::MAX - host.ops_left.get().unwrap();
    host.ops_left.set(None);
    run(release(&host, &applied, journal())).unwrap();
    host.put("/dev/cpu_dma_latency", "\u{0}\u{5}\u{0}\u{0}")
        .unwrap();
    assert_eq!(contents(folder.path()), before);

    // The last operation writes the journal: the disk is full for just this one.
    host.fails_once.set(Some(operations - 1));
    let error = run(apply(&host, &profile, journal())).unwrap_err();
    assert!(matches!(error, TuneError::Journal { .. }), "{error}");
    assert_eq!(host.commands.borrow().last().unwrap(), "stop 2");
    host.put("/dev/cpu_dma_latency", "\u{0}\u{5}\u{0}\u{0}")
        .unwrap();
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn what_somebody_else_changed_is_reported_and_left() {
    let (_folder, host) = machine();
    let applied = run(apply(
        &host,
        &resolve("thp never; sysctl vm.swappiness 10"),
        journal(),
    ));
    host.put(SWAPPINESS, "35\n").unwrap();
    let Status::Active {
        rows,
        changed,
        unfinished,
        ..
    } = run(status(&host, journal())).unwrap()
    else {
        panic!("it is applied");
    };
    assert_eq!((rows.len(), unfinished), (1, false));
    assert_eq!(
        (changed[0].0.path.as_str(), changed[0].1.as_str()),
        (SWAPPINESS, "35")
    );
    let rows = run(release(&host, &applied.unwrap(), journal())).unwrap();
    assert_eq!(
        rows[0].outcome,
        KnobOutcome::ChangedByOthers {
            found: "35".to_owned()
        }
    );
    assert_eq!(rows[1].outcome, KnobOutcome::PutBack);
    assert_eq!(host.get(SWAPPINESS).unwrap(), "35\n");
    assert_eq!(run(status(&host, journal())).unwrap(), Status::None);
}

#[test]
fn profiles_are_not_stacked() {
    let (_folder, host) = machine();
    let profile = resolve("thp never");
    run(apply(&host, &profile, journal())).unwrap();
    let error = run(apply(&host, &profile, journal())).unwrap_err();
    assert!(matches!(error, TuneError::Active { .. }), "{error}");
    run(revert(&host, journal())).unwrap();
    run(apply(&host, &profile, journal())).unwrap();
}

#[test]
fn others_are_told_of_a_profile_of_roots() {
    let (_folder, host) = machine();
    let place = JournalPlace {
        own: "/home/x/profile.json".into(),
        of_root: Some(JOURNAL.into()),
    };
    assert_eq!(run(of_root(&host, &place)), None);
    run(apply(&host, &resolve("thp never"), journal())).unwrap();
    let told = run(of_root(&host, &place)).unwrap();
    assert!(
        told.starts_with("root's profile `test` is applied since "),
        "{told}"
    );
    assert!(
        told.ends_with("only root can put it back: `sudo matrix machine revert`"),
        "{told}"
    );
    host.put(JOURNAL, "?").unwrap();
    let told = run(of_root(&host, &place)).unwrap();
    assert!(
        told.starts_with("whether root has left a profile applied cannot be seen: "),
        "{told}"
    );
    host.put(BOOT_ID, "boot-2\n").unwrap();
    run(journal::remove(&host, journal())).unwrap();
    assert_eq!(run(of_root(&host, &place)), None);
}

#[test]
fn after_a_reboot_only_what_outlives_it_is_put_back() {
    let (_folder, host) = machine();
    let firmware = "/sys/class/firmware-attributes/x/attributes/Turbo/current_value";
    host.put(firmware, "Enabled\n").unwrap();
    let profile = resolve(&format!(
        "thp never; sysfs \"{firmware}\" Disabled persistent=#true"
    ));
    run(apply(&host, &profile, journal())).unwrap();
    host.put(BOOT_ID, "boot-2\n").unwrap();
    host.put(THP, "[always] madvise never\n").unwrap();
    assert!(matches!(
        run(status(&host, journal())).unwrap(),
        Status::Rebooted { .. }
    ));
    assert!(matches!(
        run(apply(&host, &profile, journal())),
        Err(TuneError::Active { .. })
    ));
    let rows = run(revert(&host, journal())).unwrap();
    let outcomes: Vec<&KnobOutcome> = rows.iter().map(|row| &row.outcome).collect();
    assert_eq!(outcomes, [&KnobOutcome::Rebooted, &KnobOutcome::PutBack]);
    assert_eq!(host.get(THP).unwrap(), "[always] madvise never\n");
    assert_eq!(host.get(firmware).unwrap(), "Enabled\n");

    // Without persistent knobs the next profile just says it.
    run(apply(&host, &resolve("thp never"), journal())).unwrap();
    host.put(BOOT_ID, "boot-3\n").unwrap();
    let applied = run(apply(&host, &resolve("thp never"), journal())).unwrap();
    assert!(
        applied.notes[0].contains("was put back by a reboot"),
        "{:?}",
        applied.notes
    );
}

#[test]
fn a_unit_that_does_not_stop_is_not_told_as_stopped() {
    let (_folder, host) = machine();
    let host = host.unit("irqbalance").unit("unstoppable");
    let profile = resolve("stop-service irqbalance; stop-service unstoppable optional=#true");
    let applied = run(apply(&host, &profile, journal())).unwrap();
    assert_eq!(applied.services, ["irqbalance"]);
    run(revert(&host, journal())).unwrap();
    assert!(host.is_running("irqbalance") && host.is_running("unstoppable"));
}

#[test]
fn units_are_stopped_and_started_again_if_they_ran() {
    let (_folder, host) = machine();
    let host = host.unit("irqbalance").unit("cron");
    let profile = resolve("stop-service irqbalance; stop-service tuned; thp never");
    let applied = run(apply(&host, &profile, journal())).unwrap();
    assert_eq!(applied.services, ["irqbalance"]);
    assert!(!host.is_running("irqbalance") && host.is_running("cron"));
    let rows = run(revert(&host, journal())).unwrap();
    assert!(host.is_running("irqbalance") && !host.is_running("tuned"));
    assert_eq!(rows.last().unwrap().path, "systemctl start irqbalance");
}

#[test]
fn the_dma_latency_is_held_by_a_service() {
    let (_folder, host) = machine();
    let profile = resolve("dma-latency-us 3; drop-caches #true; cpus \"1-2\"");
    let applied = run(apply(&host, &profile, journal())).unwrap();
    assert_eq!(applied.cpus.as_ref().unwrap().cpus.cpus(), [1, 2]);
    assert!(applied.drop_caches && applied.dma_latency.is_some());
    assert_eq!(host.get("/proc/sys/vm/drop_caches").unwrap(), "3\n");
    run(release(&host, &applied, journal())).unwrap();
    assert!(host.commands.borrow().contains(&"stop 1".to_owned()));
}

#[test]
fn a_journal_that_cannot_be_read_is_never_overwritten() {
    let check = |text: &str, expected: &str| {
        let (_folder, host) = machine();
        host.put(JOURNAL, text).unwrap();
        for error in [
            run(apply(&host, &resolve("thp never"), journal())).err(),
            run(revert(&host, journal())).err(),
        ] {
            assert!(error.unwrap().to_string().contains(expected), "{text}");
        }
        assert_eq!(host.get(JOURNAL).unwrap(), text);
    };
    check("{", "EOF while parsing");
    check(
        r#"{"version":9,"boot_id":"","profile":"","since":"","state":"applied","entries":[],"services":[]}"#,
        "it has version 9, not 1",
    );
}

#[test]
fn a_confirmation_that_is_not_whole_is_none() {
    let (_folder, host) = machine();
    let profile = resolve("thp never; sysctl vm.swappiness 10");
    run(apply(&host, &profile, journal())).unwrap();
    let whole = host.get(JOURNAL).unwrap();
    let (first, second) = whole.split_once('\n').unwrap();
    assert_eq!(second, "{\"without\":[]}\n");
    for torn in [format!("{first}\n"), format!("{first}\n{{\"with")] {
        host.put(JOURNAL, &torn).unwrap();
        let found = run(status(&host, journal())).unwrap();
        let Status::Active { unfinished, .. } = found else {
            panic!("{found:?}");
        };
        assert!(unfinished);
        // What the kernel made of our value is not taken for somebody else's.
        host.put(SWAPPINESS, "11\n").unwrap();
        run(revert(&host, journal())).unwrap();
        assert_eq!(host.get(SWAPPINESS).unwrap(), "60\n");
        run(apply(&host, &profile, journal())).unwrap();
    }
}

#[test]
fn a_knob_that_cannot_be_put_back_stays_in_the_journal() {
    let (folder, host) = machine();
    run(apply(
        &host,
        &resolve("thp never; sysctl vm.swappiness 10"),
        journal(),
    ))
    .unwrap();
    let stuck =
        FakeRoot::new(folder.path()).quirk(SWAPPINESS, Quirk::Refuses(HostErrorKind::Other));
    let rows = run(revert(&stuck, journal())).unwrap();
    assert!(
        matches!(rows[0].outcome, KnobOutcome::Failed { .. }),
        "{rows:?}"
    );
    let rows = run(revert(&host, journal())).unwrap();
    assert_eq!((rows.len(), &rows[0].outcome), (1, &KnobOutcome::PutBack));
    assert_eq!(host.get(SWAPPINESS).unwrap(), "60\n");
}

#[test]
fn the_workload_has_a_cgroup_where_one_can_be() {
    let check = |files: &[(&str, &str)], expected: Option<&str>| {
        let folder = tempfile::tempdir().unwrap();
        let host = FakeRoot::new(folder.path());
        host.put("/sys/devices/system/cpu/online", "0-3\n").unwrap();
        host.put(BOOT_ID, "boot-1\n").unwrap();
        for (path, text) in files {
            host.put(path, text).unwrap();
        }
        let before = contents(folder.path());
        let applied = run(apply(&host, &resolve("cpus \"1-2\""), journal())).unwrap();
        let cpus = applied.cpus.clone().unwrap();
        let expected = expected.map(|above| format!("{above}/matrix-{}", std::process::id()));
        assert_eq!(cpus.cgroup, expected, "{files:?}");
        if expected.is_none() {
            assert_eq!(
                cpus.hold(vec!["fio".to_owned()]),
                ["taskset", "-c", "1-2", "fio"]
            );
        }
        run(release(&host, &applied, journal())).unwrap();
        assert_eq!(contents(folder.path()), before);
    };
    const OWN: &str = "/proc/self/cgroup";
    check(&[], None);
    check(&[(OWN, "0::/\n")], None);
    let own = (OWN, "0::/a/b\n");
    check(
        &[own, ("/sys/fs/cgroup/a/cgroup.subtree_control", "cpu\n")],
        None,
    );
    // Nothing can be made there, as in a container: the fake makes an ordinary folder.
    check(
        &[own, ("/sys/fs/cgroup/a/cgroup.subtree_control", "cpuset\n")],
        None,
    );
    check(
        &[
            own,
            ("/sys/fs/cgroup/a/cgroup.procs", ""),
            ("/sys/fs/cgroup/a/cgroup.subtree_control", "cpuset\n"),
            ("/sys/fs/cgroup/cgroup.subtree_control", "cpuset\n"),
        ],
        Some("/sys/fs/cgroup/a"),
    );
    check(
        &[
            (OWN, "3:cpuset:/\n1:name=systemd:/x\n0::/x\n"),
            ("/sys/fs/cgroup/cpuset/cgroup.procs", ""),
            ("/sys/fs/cgroup/cpuset/cpuset.mems", "0\n"),
        ],
        Some("/sys/fs/cgroup/cpuset"),
    );
    check(
        &[
            (OWN, "1:name=systemd:/x\n0::/x\n"),
            ("/sys/fs/cgroup/unified/cgroup.procs", ""),
            ("/sys/fs/cgroup/unified/cgroup.subtree_control", "cpuset\n"),
        ],
        Some("/sys/fs/cgroup/unified"),
    );
}

#[test]
fn a_cgroup_in_use_stays_in_the_journal() {
    let (folder, host) = machine();
    let before = contents(folder.path());
    run(apply(&host, &resolve("cpus \"1-2\""), journal())).unwrap();
    let procs = format!("/sys/fs/cgroup/matrix-{}/cgroup.procs", std::process::id());
    host.put(&procs, "77\n").unwrap();
    let rows = run(revert(&host, journal())).unwrap();
    assert!(rows[0].has_failed(), "{rows:?}");
    host.put(&procs, "").unwrap();
    let rows = run(revert(&host, journal())).unwrap();
    assert_eq!((rows.len(), &rows[0].outcome), (1, &KnobOutcome::PutBack));
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn a_dry_run_changes_nothing() {
    let (folder, host) = machine();
    let before = contents(folder.path());
    let profile = resolve("thp never; smt #true; sysctl vm.x 1; sysctl vm.y 1 optional=#true");
    let dry = run(dry_run(&host, &profile)).unwrap();
    let rows: Vec<String> = dry
        .rows
        .iter()
        .map(|r| format!("{} {}→{}", r.knob, r.old, r.new))
        .collect();
    assert_eq!(rows, ["thp madvise→never", "smt on→on"]);
    assert_eq!(dry.refused[0].knob, "sysctl vm.x");
    assert_eq!(dry.skipped[0].knob, "sysctl vm.y");
    let profile = resolve("cpus \"0\"; dma-latency-us 3; drop-caches #true");
    let dry = run(dry_run(&host, &profile)).unwrap();
    assert_eq!(dry.held, ["cpus 0", "drop-caches", "dma-latency-us 3"]);
    let dry = run(dry_run(&host, &resolve("cpus \"9\""))).unwrap();
    assert_eq!((dry.refused[0].knob.as_str(), dry.held.len()), ("cpus", 0));
    assert_eq!(contents(folder.path()), before);
}

/// Knobs of a plain virtual machine, and what they held before.
const REAL_KNOBS: [&str; 8] = [
    THP,
    "/sys/kernel/mm/transparent_hugepage/defrag",
    HUGE,
    SWAPPINESS,
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_ratio",
    "/sys/block/loop0/queue/scheduler",
    "/sys/block/loop0/queue/nr_requests",
];
const REAL_PROFILE: &str = r#"
thp "always"
thp-defrag "never"
huge-pages 4 optional=#true
sysctl "vm.swappiness" 11
sysctl "vm.dirty_bytes" 104857600
block "loop0" optional=#true { scheduler "mq-deadline"; }
cpus "0"
"#;

/// Values, and cgroups that are ours.
fn real_knobs() -> Vec<String> {
    let host = FakeRoot::new("/");
    let mut found = REAL_KNOBS
        .map(|path| host.get(path).unwrap_or_default())
        .to_vec();
    if let Some(cgroup) = run(cpus::place(&host)) {
        let above = Path::new(&cgroup).parent().unwrap();
        let names = fs::read_dir(above)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        found.extend(names.filter(|name| name.starts_with("matrix-")));
    }
    found
}

/// The knobs of this machine for one test program at a time.
fn real_machine() -> fs::File {
    if fs::OpenOptions::new().write(true).open(THP).is_err() {
        panic!(
            "{THP} cannot be written: this test changes knobs of the machine and puts them back; \
             run it as root, and not in a container"
        );
    }
    let lock = fs::File::create(std::env::temp_dir().join("matrix-test-knobs.lock")).unwrap();
    lock.lock().unwrap();
    lock
}

#[test]
fn the_knobs_of_this_machine() {
    let _lock = real_machine();
    let host = FakeRoot::new("/");
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("tune.journal");
    let before = real_knobs();
    let applied = run(apply(&host, &resolve(REAL_PROFILE), &journal));
    let during = real_knobs();
    let rows = run(revert(&host, &journal)).unwrap();
    assert_eq!(real_knobs(), before, "{rows:?}");
    let applied = applied.unwrap();
    assert_eq!(during[0], "[always] madvise never\n");
    assert_eq!(during[3], "11\n");
    assert_eq!(during[5], "0\n");
    assert_eq!(applied.rows.len() + applied.skipped.len(), 6);
    assert_eq!(
        during.len() - before.len(),
        usize::from(applied.cpus.unwrap().cgroup.is_some())
    );
}

/// Which folder the victim works on.
const VICTIM_ROOT: &str = "MATRIX_TEST_VICTIM_ROOT";

/// Not a test but the program that is killed: applies and puts back without end.
#[test]
fn victim() {
    let Some(root) = std::env::var_os(VICTIM_ROOT) else {
        return;
    };
    let (profile, journal) = match root == "/" {
        true => (
            REAL_PROFILE,
            std::env::temp_dir().join("matrix-test-victim.journal"),
        ),
        false => (EVERYTHING, PathBuf::from(JOURNAL)),
    };
    let host = quirky(FakeRoot::new(root));
    let profile = resolve(profile);
    loop {
        let applied = run(apply(&host, &profile, &journal)).unwrap();
        run(release(&host, &applied, &journal)).unwrap();
    }
}

/// Kills the victim at random moments; `revert` must put back what `state` tells, each time.
fn kill_and_revert<T: PartialEq + fmt::Debug>(root: &Path, journal: &Path, state: impl Fn() -> T) {
    const KILLS: u64 = 100;
    let before = state();
    let mut killed_inside = 0;
    for kill in 0..KILLS {
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "machine::tune::tests::victim"])
            .env(VICTIM_ROOT, root)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let host = FakeRoot::new(root);
        let started = std::time::Instant::now();
        while host.get(&journal.display().to_string()).is_err() {
            assert!(
                started.elapsed().as_secs() < 60,
                "the victim does not start"
            );
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // Multiples of an irrational number spread evenly (Weyl 1916).
        let wait_ms = 20.0 * (kill as f64 * 0.618_034).fract();
        std::thread::sleep(std::time::Duration::from_secs_f64(wait_ms / 1e3));
        victim.kill().unwrap();
        victim.wait().unwrap();
        killed_inside += usize::from(state() != before);
        let rows = run(revert(&quirky(FakeRoot::new(root)), journal)).unwrap();
        assert_eq!(state(), before, "after kill {kill}: {rows:?}");
    }
    assert!(
        killed_inside > 10,
        "only {killed_inside} kills hit an applied profile"
    );
}

#[test]
fn kill_9_at_any_moment_leaves_a_machine_that_can_be_put_back() {
    let (folder, _host) = machine();
    kill_and_revert(folder.path(), journal(), || contents(folder.path()));
}

#[test]
fn kill_9_at_any_moment_leaves_this_machine_as_it_was_after_revert() {
    let _lock = real_machine();
    let journal = std::env::temp_dir().join("matrix-test-victim.journal");
    run(revert(&FakeRoot::new("/"), &journal)).unwrap();
    kill_and_revert(Path::new("/"), &journal, real_knobs);
}
