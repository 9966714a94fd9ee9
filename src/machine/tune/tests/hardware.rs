//! Tests of knobs that only real hardware has, on a fake machine, and of power that goes away.

use super::*;

const CPU: &str = "/sys/devices/system/cpu";
const GOVERNOR: &str = "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor";
const FIRMWARE: &str = "/sys/class/firmware-attributes/x/attributes/Turbo/current_value";

fn outcomes(rows: &[Reverted]) -> Vec<&KnobOutcome> {
    rows.iter().map(|row| &row.outcome).collect()
}

#[test]
fn files_of_a_thread_that_is_off_are_neither_missed_nor_lost() {
    let (folder, host) = machine();
    // What a cpufreq policy of an offline CPU does.
    let host = host.quirk(GOVERNOR, Quirk::OfThread);
    let before = contents(folder.path());
    for optional in ["", " optional=#true"] {
        let text = format!("governor performance{optional}; smt #false{optional}");
        let applied = run(apply(&host, &resolve(&text), journal())).unwrap();
        assert_eq!((applied.skipped.len(), applied.rows.len()), (0, 3));
        let Status::Active { rows, changed, .. } = run(status(&host, journal())).unwrap() else {
            panic!("not active");
        };
        assert_eq!((rows.len(), changed), (3, Vec::new()));
        let rows = run(release(&host, &applied, journal())).unwrap();
        assert_eq!(outcomes(&rows), [&KnobOutcome::PutBack; 3]);
        assert_eq!(contents(folder.path()), before);
    }
    // It was off before: the other CPUs are set.
    host.put(SMT_CONTROL, "off\n").unwrap();
    let applied = run(apply(&host, &resolve("governor performance"), journal())).unwrap();
    assert_eq!(applied.rows.len(), 1);
    run(release(&host, &applied, journal())).unwrap();
}

/// A CPU that comes has the governor that the kernel gives to new ones.
#[test]
fn hyperthreads_that_are_switched_on_are_tuned_too() {
    let (folder, host) = machine();
    let host = host.quirk(GOVERNOR, Quirk::OfThread);
    host.put(SMT_CONTROL, "off\n").unwrap();
    let before = contents(folder.path());
    let profile = resolve("governor performance; smt #true");
    let apply_and_release = || {
        let applied = run(apply(&host, &profile, journal()))?;
        assert_eq!(applied.rows.len(), 3);
        assert_eq!(host.get(SMT_CONTROL).unwrap(), "on\n");
        assert_eq!(host.get(GOVERNOR).unwrap(), "performance\n");
        run(release(&host, &applied, journal()))
    };
    host.ops_left.set(Some(u32::MAX));
    let rows = apply_and_release().unwrap();
    assert_eq!(outcomes(&rows), [&KnobOutcome::PutBack; 3]);
    assert_eq!(contents(folder.path()), before);
    let operations = u32::MAX - host.ops_left.get().unwrap();
    for dies_after in 0..operations {
        host.ops_left.set(Some(dies_after));
        let _ = apply_and_release();
        host.ops_left.set(None);
        let rows = run(revert(&host, journal())).unwrap();
        assert!(!rows.iter().any(Reverted::has_failed), "{rows:?}");
        assert_eq!(contents(folder.path()), before, "died after {dies_after}");
    }
    // What refuses once they are on is an error after which they are off again.
    let refusing = FakeRoot::new(folder.path()).quirk(GOVERNOR, Quirk::OfThread);
    let policy0 = GOVERNOR.replace("policy1", "policy0");
    let refusing = refusing.quirk(&policy0, Quirk::Refuses(HostErrorKind::Other));
    let error = run(apply(&refusing, &profile, journal())).unwrap_err();
    assert!(
        matches!(&error, TuneError::Refused { left, .. } if left.is_empty()),
        "{error}"
    );
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn without_hyperthreads_there_is_nothing_to_switch_off() {
    for found in ["forceoff", "notsupported", "notimplemented"] {
        let (_folder, host) = machine();
        let host = host.quirk(SMT_CONTROL, Quirk::Refuses(HostErrorKind::Other));
        host.put(SMT_CONTROL, &format!("{found}\n")).unwrap();
        let applied = run(apply(&host, &resolve("smt #false"), journal())).unwrap();
        assert_eq!(applied.rows[0].new, found);
        let rows = run(release(&host, &applied, journal())).unwrap();
        assert_eq!(outcomes(&rows), [&KnobOutcome::AlreadyBack]);
        let error = run(apply(&host, &resolve("smt #true"), journal())).unwrap_err();
        let expected = format!(
            "the profile cannot be applied\n  `smt #true`: {SMT_CONTROL}: wanted `on`, found \
             `{found}`: {SMT_CONTROL}: the knob refuses\nthe machine is as it was; add \
             `optional=#true` to knobs that it may lack"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn on_and_off_are_written_as_each_file_has_it() {
    let no_turbo = &format!("{CPU}/intel_pstate/no_turbo");
    let boost = &format!("{CPU}/cpufreq/boost");
    let c6 = &format!("{CPU}/cpu0/cpuidle/state1/disable");
    let check = |text: &str, files: &[(&str, &str)], expected: &[(&str, &str)]| {
        let (folder, host) = machine();
        for (path, value) in files {
            host.put(path, value).unwrap();
        }
        let before = contents(folder.path());
        let applied = run(apply(&host, &resolve(text), journal())).unwrap();
        for (path, value) in expected {
            assert_eq!(host.get(path).unwrap().trim(), *value, "{text}: {path}");
        }
        run(release(&host, &applied, journal())).unwrap();
        assert_eq!(contents(folder.path()), before, "{text}");
    };
    check("turbo #false", &[], &[(boost, "0")]);
    check("turbo #true", &[(boost, "0\n")], &[(boost, "1")]);
    // Where intel_pstate is, its file counts; the other one may be there too.
    let intel = [(no_turbo.as_str(), "0\n")];
    check("turbo #false", &intel, &[(no_turbo, "1"), (boost, "1")]);
    check("turbo #true", &[(no_turbo, "1\n")], &[(no_turbo, "0")]);
    check("idle-state C6 #false", &[], &[(c6, "1")]);
    check("idle-state C6 #true", &[(c6, "1\n")], &[(c6, "0")]);
    check(
        "smt #true",
        &[(SMT_CONTROL, "off\n")],
        &[(SMT_CONTROL, "on")],
    );
}

#[test]
fn a_refused_switch_is_named_as_the_profile_has_it() {
    let boost = &format!("{CPU}/cpufreq/boost");
    let (folder, host) = machine();
    let error = |host: &FakeRoot| {
        let error = run(apply(host, &resolve("turbo #false"), journal())).unwrap_err();
        error.to_string().lines().nth(1).unwrap().to_owned()
    };
    let stuck = FakeRoot::new(folder.path()).quirk(boost, Quirk::Refuses(HostErrorKind::Other));
    assert_eq!(
        error(&stuck),
        format!("  `turbo #false`: {boost}: wanted `0`, found `1`: {boost}: the knob refuses")
    );
    fs::remove_file(folder.path().join(&boost[1..])).unwrap();
    assert_eq!(
        error(&host),
        format!(
            "  `turbo #false`: {CPU}/intel_pstate/no_turbo or {boost}: this machine has no such file"
        )
    );
}

#[test]
fn interrupts_that_the_kernel_places_are_told_as_such() {
    let path = "/proc/irq/24/smp_affinity_list";
    let (_folder, host) = machine();
    let host = host.quirk(path, Quirk::Refuses(HostErrorKind::PermissionDenied));
    let profile = resolve("irq-affinity \"nvme*\" \"0\"");
    let error = run(apply(&host, &profile, journal())).unwrap_err();
    assert_eq!(
        error.to_string().lines().nth(1).unwrap(),
        format!(
            "  `irq-affinity nvme*`: {path}: wanted `0`, found `0-3`: {path}: the knob refuses; the kernel \
             places those itself that a driver has left to it (NVMe)"
        )
    );
    // Not where the value itself is wrong.
    let host = host.quirk(path, Quirk::Refuses(HostErrorKind::Other));
    let error = run(apply(&host, &profile, journal())).unwrap_err();
    assert!(!error.to_string().contains("NVMe"), "{error}");
}

/// The journal is durable before the first knob is written; that all were set need not be. After a power
/// loss the knobs are those of a new boot, but for persistent ones.
#[test]
fn after_a_power_loss_no_value_of_the_new_boot_is_overwritten() {
    let text = format!("thp never; sysfs \"{FIRMWARE}\" Disabled persistent=#true");
    // What the persistent knob holds then, what becomes of it, what it holds in the end.
    let left = KnobOutcome::ChangedByOthers {
        found: "Auto".to_owned(),
    };
    let cases = [
        ("Disabled", KnobOutcome::PutBack, "Enabled"),
        ("Enabled", KnobOutcome::AlreadyBack, "Enabled"),
        ("Auto", left, "Auto"),
    ];
    for has_mark in [true, false] {
        for (found, outcome, finally) in &cases {
            let (_folder, host) = machine();
            host.put(FIRMWARE, "Enabled\n").unwrap();
            run(apply(&host, &resolve(&text), journal())).unwrap();
            if !has_mark {
                let whole = host.get(JOURNAL).unwrap();
                let (first, _) = whole.split_once('\n').unwrap();
                host.put(JOURNAL, &format!("{first}\n")).unwrap();
            }
            host.put(BOOT_ID, "boot-2\n").unwrap();
            host.put(THP, "[always] madvise never\n").unwrap();
            host.put(FIRMWARE, &format!("{found}\n")).unwrap();
            // Nothing is stacked on what may still be there.
            let stacked = run(apply(&host, &resolve(&text), journal()));
            assert!(matches!(stacked, Err(TuneError::Active { .. })));
            let rows = run(revert(&host, journal())).unwrap();
            assert_eq!(outcomes(&rows), [&KnobOutcome::Rebooted, outcome]);
            assert_eq!(host.get(FIRMWARE).unwrap().trim(), *finally);
            assert_eq!(host.get(THP).unwrap(), "[always] madvise never\n");
            assert_eq!(run(status(&host, journal())).unwrap(), Status::None);
        }
    }
}

#[test]
fn what_a_scheduler_sets_anew_is_put_back_with_it() {
    let queue = "/sys/block/nvme1n1/queue";
    let scheduler = &format!("{queue}/scheduler");
    let requests = &format!("{queue}/nr_requests");
    let expire = &format!("{queue}/iosched/read_expire");
    let resets = vec![(requests.clone(), "256"), (expire.clone(), "500")];
    let set_anew = |host: FakeRoot| host.quirk(scheduler, Quirk::Resets(resets.clone()));
    let text = "block \"nvme1n1\" { nr_requests 32; scheduler \"kyber\"; }";
    for text in [text, &text.replace("nr_requests 32; ", "")] {
        let (folder, host) = machine();
        host.put(expire, "77\n").unwrap();
        let host = set_anew(host);
        let before = contents(folder.path());
        host.ops_left.set(Some(u32::MAX));
        let applied = run(apply(&host, &resolve(text), journal())).unwrap();
        let applying = u32::MAX - host.ops_left.get().unwrap();
        run(release(&host, &applied, journal())).unwrap();
        assert_eq!(contents(folder.path()), before);
        let all = u32::MAX - host.ops_left.get().unwrap();
        // Also where the first try to put it back dies anywhere.
        for dies_after in applying..all {
            host.ops_left.set(None);
            let applied = run(apply(&host, &resolve(text), journal())).unwrap();
            host.ops_left.set(Some(dies_after - applying));
            let _ = run(release(&host, &applied, journal()));
            host.ops_left.set(None);
            let rows = run(revert(&host, journal())).unwrap();
            let fine = [KnobOutcome::PutBack, KnobOutcome::AlreadyBack];
            assert!(
                rows.iter().all(|row| fine.contains(&row.outcome)),
                "{rows:?}"
            );
            assert_eq!(contents(folder.path()), before, "died after {dies_after}");
        }
    }
}

#[test]
fn the_energy_preference_that_a_governor_sets_is_put_back_with_it() {
    let preference = GOVERNOR.replace("scaling_governor", "energy_performance_preference");
    let (folder, host) = machine();
    host.put(&preference, "balance_power\n").unwrap();
    // As amd-pstate does.
    let host = host.quirk(
        GOVERNOR,
        Quirk::Resets(vec![(preference.clone(), "performance")]),
    );
    let before = contents(folder.path());
    let applied = run(apply(&host, &resolve("governor performance"), journal())).unwrap();
    assert_eq!(host.get(&preference).unwrap(), "performance\n");
    run(release(&host, &applied, journal())).unwrap();
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn what_somebody_else_set_beside_a_knob_is_left() {
    let queue = "/sys/block/nvme1n1/queue";
    let scheduler = &format!("{queue}/scheduler");
    let requests = &format!("{queue}/nr_requests");
    let preference = &GOVERNOR.replace("scaling_governor", "energy_performance_preference");
    // After the profile: what others write, what each file holds in the end, what is told as theirs.
    let check = |text: &str, written: &[(&str, &str)], finally: &[(&str, &str)], told: &[&str]| {
        let (folder, host) = machine();
        host.put(preference, "balance_power\n").unwrap();
        let host = host.quirk(scheduler, Quirk::Resets(vec![(requests.clone(), "100")]));
        let host = host.quirk(
            GOVERNOR,
            Quirk::Resets(vec![(preference.clone(), "performance")]),
        );
        let set_up = || {
            let host = FakeRoot::new(folder.path());
            for (path, value) in MACHINE {
                host.put(path, value).unwrap();
            }
            host.put(preference, "balance_power\n").unwrap();
        };
        let apply_and_change = || {
            set_up();
            host.ops_left.set(None);
            let applied = run(apply(&host, &resolve(text), journal())).unwrap();
            let other = FakeRoot::new(folder.path());
            for (path, value) in written {
                other.put(path, &format!("{value}\n")).unwrap();
            }
            host.ops_left.set(Some(u32::MAX));
            applied
        };
        let holds = |when: &str, but: &[&str]| {
            for (path, value) in finally.iter().filter(|(path, _)| !but.contains(path)) {
                assert_eq!(
                    host.get(path).unwrap().trim(),
                    *value,
                    "{text}, {when}: {path}"
                );
            }
        };
        let applied = apply_and_change();
        let rows = run(release(&host, &applied, journal())).unwrap();
        let operations = u32::MAX - host.ops_left.get().unwrap();
        holds("at once", &[]);
        let theirs = rows
            .iter()
            .filter(|row| matches!(row.outcome, KnobOutcome::ChangedByOthers { .. }));
        assert_eq!(
            theirs.map(|row| row.path.as_str()).collect::<Vec<_>>(),
            told,
            "{text}"
        );
        for dies_after in 0..operations {
            let applied = apply_and_change();
            host.ops_left.set(Some(dies_after));
            let _ = run(release(&host, &applied, journal()));
            host.ops_left.set(None);
            run(revert(&host, journal())).unwrap();
            // Their value may be what the kernel makes of it then.
            holds(&format!("died after {dies_after}"), told);
        }
    };
    let was = "none [mq-deadline] kyber bfq";
    let block = "block \"nvme1n1\" { scheduler kyber; nr_requests 256; }";
    check(
        block,
        &[(requests, "64")],
        &[(scheduler, was), (requests, "64")],
        &[requests],
    );
    check(
        block,
        &[(scheduler, was)],
        &[(scheduler, was), (requests, "1023")],
        &[],
    );
    let alone = "block \"nvme1n1\" { scheduler kyber; }";
    check(
        alone,
        &[(requests, "64")],
        &[(scheduler, was), (requests, "64")],
        &[requests],
    );
    check(alone, &[], &[(scheduler, was), (requests, "1023")], &[]);
    let back = (GOVERNOR, "schedutil");
    check(
        "governor performance",
        &[back],
        &[back, (preference, "balance_power")],
        &[],
    );
    let power = (preference.as_str(), "power");
    check(
        "governor performance",
        &[back, power],
        &[back, power],
        &[preference],
    );
}

#[test]
fn an_optional_setting_of_a_new_scheduler_that_is_refused_is_skipped() {
    let queue = "/sys/block/nvme1n1/queue";
    let requests = &format!("{queue}/nr_requests");
    let (folder, host) = machine();
    let before = contents(folder.path());
    // What the new one holds at most is less than what the old one held.
    let resets = Quirk::Resets(vec![(requests.clone(), "256")]);
    let host = host.quirk(&format!("{queue}/scheduler"), resets);
    let host = host.quirk(requests, Quirk::AtMost(256));
    let text = "block \"nvme1n1\" { scheduler none; nr_requests 2048 optional=#true; }";
    let applied = run(apply(&host, &resolve(text), journal())).unwrap();
    assert_eq!((applied.rows.len(), applied.skipped.len()), (1, 1));
    assert_eq!(host.get(requests).unwrap(), "256\n");
    // The old scheduler again.
    let host = FakeRoot::new(folder.path());
    run(release(&host, &applied, journal())).unwrap();
    assert_eq!(contents(folder.path()), before);
}

#[test]
fn settings_that_change_one_another_are_put_back_and_one_that_cannot_be_is_named() {
    let queue = "/sys/block/nvme1n1/queue";
    let idle = &format!("{queue}/iosched/slice_ms");
    let idle_us = &format!("{queue}/iosched/slice_in_us");
    let (folder, host) = machine();
    host.put(idle, "4\n").unwrap();
    host.put(idle_us, "4500\n").unwrap();
    let before = contents(folder.path());
    // As those of bfq do, with names by which the finer one is written first.
    let resets = vec![(idle.clone(), "8"), (idle_us.clone(), "8000")];
    let host = host.quirk(&format!("{queue}/scheduler"), Quirk::Resets(resets));
    let host = host.quirk(idle_us, Quirk::Resets(vec![(idle.clone(), "4")]));
    let host = host.quirk(idle, Quirk::Resets(vec![(idle_us.clone(), "4000")]));
    let profile = resolve("block \"nvme1n1\" { scheduler kyber; }");
    let applied = run(apply(&host, &profile, journal())).unwrap();
    run(release(&host, &applied, journal())).unwrap();
    assert_eq!(contents(folder.path()), before);
    // Unchanged ones are not written.
    let host = host.quirk(idle, Quirk::Refuses(HostErrorKind::Other));
    let host = host.quirk(&format!("{queue}/scheduler"), Quirk::Resets(Vec::new()));
    let applied = run(apply(&host, &profile, journal())).unwrap();
    let rows = run(release(&host, &applied, journal())).unwrap();
    assert_eq!(outcomes(&rows), [&KnobOutcome::PutBack]);
    assert_eq!(contents(folder.path()), before);
    let resets = Quirk::Resets(vec![(idle.clone(), "8")]);
    let host = host.quirk(&format!("{queue}/scheduler"), resets);
    let applied = run(apply(&host, &profile, journal())).unwrap();
    let rows = run(release(&host, &applied, journal())).unwrap();
    let reason = format!("{idle} was reset with it: {idle}: the knob refuses");
    assert_eq!(outcomes(&rows), [&KnobOutcome::Failed { reason }]);
}

#[test]
fn a_journal_that_could_not_be_read_again_is_refused_before_anything_is_set() {
    let (folder, host) = machine();
    for file in 0..40 {
        host.put(&format!("/sys/x/{file}"), &"v".repeat(60_000))
            .unwrap();
    }
    let before = contents(folder.path());
    let error = run(apply(&host, &resolve("sysfs \"/sys/x/*\" 1"), journal())).unwrap_err();
    assert!(
        error.to_string().contains("let it reach fewer files"),
        "{error}"
    );
    assert_eq!(contents(folder.path()), before);
}
