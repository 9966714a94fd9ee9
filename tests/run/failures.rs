//! Steps that fail: each has its reason, set-ups are undone, all other cells are measured.

use std::fs;

use super::lab::{Lab, Ran, need, repeated, shell};

#[test]
fn a_backend_that_qemu_refuses() {
    need("fio", "fio");
    need("qemu-nbd", "qemu-utils");
    let lab = Lab::new(
        r#"
        [subject]
        installed = ["qemu-nbd", "qemu-img"]
        [axes]
        aio = ["threads", "native"]
        rw  = ["randread", "randwrite"]
        [[setup]]
        name = "image"
        run  = ["{{ bin }}/qemu-img create -f raw {{ dir }}/disk.img 1M"]
        [[setup]]
        name    = "nbd"
        service = ["{{ bin }}/qemu-nbd", "--socket={{ dir }}/sock", "--persistent", "--shared=0", "--format=raw",
                   "--cache=writeback", "--aio={{ aio }}", "{{ image.dir }}/disk.img"]
        ready   = "{{ bin }}/qemu-img info nbd+unix:///?socket={{ dir }}/sock"
        scope   = "round"
        [run]
        command = ["fio", "--name={{ cell }}", "--ioengine=nbd", "--uri=nbd+unix:///?socket={{ nbd.dir }}/sock",
                   "--rw={{ rw }}", "--bs=4k", "--size=1M", "--numjobs=2", "--group_reporting", "--output-format=json"]
        parser  = "fio"
        repeat  = 2
        [metrics.iops]
        from = "{{ rw | replace('rand', '') }}.iops"
        "#,
    );
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(
        ran.cells(),
        ["aio=threads,rw=randread", "aio=threads,rw=randwrite"]
    );
    assert_eq!(ran.measured().len(), 4);
    let failed = ran.failed();
    assert_eq!(
        failed.keys().collect::<Vec<_>>(),
        ["aio=native,rw=randread", "aio=native,rw=randwrite"]
    );
    for reason in failed.values() {
        assert!(
            reason.contains("aio=native was specified, but it requires"),
            "{reason}"
        );
        assert!(reason.starts_with("set-up `nbd`: "), "{reason}");
    }
    let tried = |ran: &Ran| {
        let of_nbd = ran.events("setup_started").into_iter();
        let native = of_nbd.filter(|event| event["cell"] == "aio=native");
        native.count()
    };
    assert_eq!(tried(&ran), 1);
    lab.assert_clean();

    // What failed is tried again, once; what is stored is not.
    let again = lab.run();
    again.assert_code(3);
    assert_eq!(again.measured(), []);
    assert_eq!(tried(&again), 1);
    assert_eq!(again.failed(), failed);
    lab.assert_clean();
}

#[test]
fn services_that_fail() {
    need("python3", "python3");
    let setup = r#"
        [axes]
        kind = ["good", "never", "dies", "midway", "hangs"]
        [[setup]]
        name    = "service"
        run     = [["sh", "-c", "if test {{ kind }} = hangs; then sleep 1000; fi"]]
        service = ["sh", "-c", '''
            if test {{ kind }} = dies; then echo no such device >&2; exit 7; fi
            echo $$ > $TMPDIR/{{ kind }}.pid; exec sleep 1000
        ''']
        ready   = ["sh", "-c", "case {{ kind }} in never|dies) echo refused >&2; false;; esac"]
        undo    = [["sh", "-c", "echo /{{ kind }} >> $TMPDIR/log"]]
        scope   = "round"
        timeout = "1s"
    "#;
    // It is dead before the measurement ends, not soon after.
    let line = r#"
        if test {{ kind }} = midway; then
            while ! test -s $TMPDIR/midway.pid; do sleep 0.01; done
            pid=$(cat $TMPDIR/midway.pid); kill -9 $pid
            until grep -q ') Z ' /proc/$pid/stat; do sleep 0.01; done
        fi
        echo v=1
    "#;
    let lab = Lab::new(&(setup.to_owned() + &repeated("2", line)));
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.cells(), ["kind=good"]);
    assert_eq!(ran.measured().len(), 2);
    let failed = ran.failed();
    assert_eq!(failed.len(), 4, "{failed:?}");
    let check = |kind: &str, parts: &[&str]| {
        let reason = &failed[&format!("kind={kind}")];
        for part in parts {
            assert!(reason.contains(part), "{kind}: {reason}");
        }
    };
    check(
        "never",
        &[
            "set-up `service`: not ready after 1",
            "exit status 1: refused",
        ],
    );
    check(
        "dies",
        &["set-up `service`", "ended: exit status 7: no such device"],
    );
    check(
        "midway",
        &["set-up `service` ended meanwhile: killed (signal 9)"],
    );
    check("hangs", &["set-up `service`", "timed out"]);
    let mut undone = lab.log();
    undone.sort();
    assert_eq!(
        undone,
        ["/dies", "/good", "/good", "/hangs", "/midway", "/never"]
    );
    lab.assert_clean();
}

#[test]
fn measurements_that_fail() {
    need("python3", "python3");
    // Some leave group and session, some forget their environment. (One that does both escapes.)
    let helper = r#"
import os, sys, time
def sleeper(leaves):
    with open(sys.argv[1], "a") as pids:
        pids.write(f"{os.getpid()}\n")
    if leaves:
        os.setsid()
    os.execve("/bin/sleep", ["sleep", "1000"], os.environ if leaves else {})
open(sys.argv[1], "w").close()
for leaves in [True, False, True, False]:
    if os.fork() == 0:
        sleeper(leaves)
while len(open(sys.argv[1]).readlines()) < 4:
    time.sleep(0.01)
"#;
    let axes = r#"
        [axes]
        kind = ["good", "slow", "silent", "status", "signal", "nan", "words", "long", "forks", "missing"]
    "#;
    let line = r#"
        case {{ kind }} in
        good)   echo v=1;;
        slow)   echo v=1; sleep 1000;;
        silent) ;;
        status) echo v=1; echo no space left >&2; exit 4;;
        signal) echo v=1; kill -9 $$;;
        nan)    echo v=nan;;
        words)  echo hello world;;
        long)   echo v=1; head -c 70000000 /dev/zero | tr '\0' ' '; echo v=2;;
        forks)  python3 $TMPDIR/helper.py $TMPDIR/pids >/dev/null 2>&1; echo v=1;;
        missing) echo w=1;;
        esac
    "#;
    let matrix = axes.to_owned() + &shell(line);
    let lab = Lab::new(&matrix.replace("\"60s\"", "\"5s\""));
    fs::write(lab.path("helper.py"), helper).unwrap();
    let ran = lab.run();
    ran.assert_code(3);
    let failed = ran.failed();
    let check = |kind: &str, parts: &[&str]| {
        let reason = failed.get(&format!("kind={kind}"));
        let reason = reason.unwrap_or_else(|| panic!("{kind} did not fail"));
        for part in parts {
            assert!(reason.contains(part), "{kind}: {reason}");
        }
    };
    check("slow", &["timed out"]);
    check("silent", &["no output"]);
    check("status", &["exit status 4", "no space left"]);
    check("signal", &["killed (signal 9)"]);
    check("nan", &["nothing that is a number"]);
    check("words", &["match"]);
    check("long", &["64 MiB", "print less"]);
    check("missing", &["no `v` in the output"]);
    assert_eq!(ran.cells(), ["kind=forks", "kind=good"]);
    let outcomes = "SELECT group_concat(cell || ' ' || outcome, ', ') FROM
        (SELECT cell, outcome FROM attempt WHERE outcome IN ('timeout', 'failed') ORDER BY cell)";
    let outcomes: String = lab
        .store()
        .query_row(outcomes, [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        outcomes,
        "kind=signal failed, kind=slow timeout, kind=status failed"
    );

    let done = ran.events("run_done");
    let forks = done
        .iter()
        .find(|event| event["cell"] == "kind=forks")
        .unwrap();
    let warnings = forks["warnings"].to_string();
    assert!(warnings.contains("left processes behind"), "{warnings}");
    let pids = fs::read_to_string(lab.path("pids")).unwrap();
    assert_eq!(pids.lines().count(), 4);
    for pid in pids.lines() {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!line.starts_with(b"sleep"), "{pid} is still there");
    }
    lab.assert_clean();
}

#[test]
fn fio_jobs_end_with_their_step() {
    need("fio", "fio");
    let lab = Lab::new(
        r#"
        [axes]
        runtime = [0, 1000]
        [run]
        command = ["fio", "--name=x", "--ioengine=null", "--size=1M", "--rw=read", "--numjobs=4", "--group_reporting",
                   "--time_based={{ 1 if runtime else 0 }}", "--runtime={{ runtime }}", "--output-format=json"]
        parser  = "fio"
        timeout = "2s"
        [metrics.iops]
        from = "read.iops"
        "#,
    );
    let ran = lab.run();
    ran.assert_code(3);
    assert_eq!(ran.cells(), ["runtime=0"]);
    assert!(
        ran.failed()["runtime=1000"].starts_with("timed out"),
        "{:?}",
        ran.failed()
    );
    lab.assert_clean();
}

#[test]
fn no_input_or_output_is_no_sample() {
    need("fio", "fio");
    let lab = Lab::new(
        r#"
        [run]
        command = ["fio", "--name=x", "--ioengine=null", "--size=1M", "--rw=read", "--create_only=1", "--output-format=json"]
        parser  = "fio"
        [metrics.iops]
        from = "read.iops"
        "#,
    );
    let ran = lab.run();
    ran.assert_code(3);
    let failed = ran.failed();
    let reason = failed.values().next().unwrap();
    assert!(reason.contains("I/O"), "{reason}");
    assert_eq!(lab.count("SELECT count(*) FROM sample"), 0);
}

#[test]
fn an_undo_that_fails_is_told() {
    let setup = r#"
        [[setup]]
        name = "place"
        run  = ["true"]
        undo = [["sh", "-c", "echo target is busy >&2; exit 32"], ["sh", "-c", "echo second >> $TMPDIR/log"]]
    "#;
    let lab = Lab::new(&(setup.to_owned() + &shell("echo v=1")));
    let ran = lab.run();
    // It is left behind.
    ran.assert_code(3);
    let undone = ran.events("undone");
    let error = undone[0]["error"].as_str().unwrap_or_default();
    assert!(
        error.contains("exit status 32: target is busy"),
        "{:?}",
        ran.events
    );
    assert!(ran.stderr.contains("target is busy"), "{}", ran.stderr);
    assert_eq!(lab.log(), ["second"]);
}
