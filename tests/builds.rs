//! Builds beside each other, and those cut short: by a kill, a full disk, another run of the same matrix.

#[allow(dead_code)]
#[path = "run/lab.rs"]
mod lab;
#[allow(dead_code)]
#[path = "versions/repo.rs"]
mod repo;

use std::collections::HashSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use lab::{Lab, Ran, need, shell};
use repo::Repo;

const KILLS: u64 = 30;
const VERSIONS: usize = 4;
/// Of an artifact: enough that a kill or a full disk meets its copy.
const ARTIFACT_MIB: usize = 24;

/// A build that is slow and not atomic, as that of a careless makefile: it makes what is not there.
fn matrix(artifact_mib: usize) -> String {
    format!(
        r#"
        [subject.git]
        repo  = "nowhere"
        paths = ["src"]
        [build]
        run = [
          ["sh", "-c", "echo build >> $TMPDIR/log; cmp -s $0 src || {{ rm -f blob prog; cp $0 src; }}", "{{{{ src }}}}/src"],
          ["sh", "-c", "test -e blob || {{ for i in $(seq 20); do printf '%0256d' $i >> blob; sleep 0.01; done; }}"],
          ["sh", "-c", "test -e prog || {{ cat $0 blob > prog; head -c {artifact_mib}M /dev/zero >> prog; }}", "{{{{ src }}}}/src"],
        ]
        artifacts = ["prog"]
        [run]
        command = ["sh", "-c", "sleep 0.01; echo v=$(wc -c < $0) w=$(head -c 2 $0)", "{{{{ bin }}}}/prog"]
        parser  = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
        repeat  = 2
        [metrics.v]
        better = "higher"
        [metrics.w]
        better = "higher"
        "#
    )
}

fn repo() -> Repo {
    let repo = Repo::new();
    for number in 0..=VERSIONS {
        repo.write("src", &format!("{}\n", 10 + number));
        repo.commit("next");
    }
    repo
}

fn words(repository: &str) -> Vec<String> {
    let range = format!("main~{VERSIONS}..main");
    ["--repo", repository, "--version", &range]
        .map(str::to_owned)
        .to_vec()
}

fn run(lab: &Lab, words: &[String]) -> Ran {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    lab.start_with("matrix.toml", "events", &words).wait()
}

/// Every sample is there once and comes from a whole artifact of its own version.
fn assert_whole(lab: &Lab, artifact_mib: usize) {
    let samples = lab.samples();
    assert_eq!(samples.len(), VERSIONS * 2, "{samples:?}");
    assert!(samples.values().all(|count| *count == 1), "{samples:?}");
    let size = 3 + 20 * 256 + (artifact_mib << 20);
    let wrong = format!("SELECT count(*) FROM samples WHERE metric = 'v' AND value <> {size}");
    assert_eq!(lab.count(&wrong), 0);
    let artifacts: HashSet<String> = fs::read_dir(lab.path(".matrix/artifacts"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(artifacts.len(), VERSIONS, "{artifacts:?}");
    assert!(
        artifacts.iter().all(|name| !name.contains("half")),
        "{artifacts:?}"
    );
    assert_eq!(
        lab.count("SELECT count(DISTINCT value) FROM samples WHERE metric = 'w'"),
        VERSIONS as i64
    );
    lab.assert_clean();
}

#[test]
fn kill_at_any_moment_of_a_build() {
    let repo = repo();
    let lab = Lab::new(&matrix(ARTIFACT_MIB));
    let words = words(&repo.path());
    let list: Vec<&str> = words.iter().map(String::as_str).collect();
    for kill in 0..KILLS {
        let random = RandomState::new().hash_one(kill);
        let running = lab.start_with("matrix.toml", "events", &list);
        std::thread::sleep(Duration::from_millis(60 + random % 900));
        running.kill();
    }
    let ran = run(&lab, &words);
    ran.assert_code(0);
    assert_eq!(ran.failed(), Default::default());
    assert_whole(&lab, ARTIFACT_MIB);
}

/// Kills in the copy itself, which a random moment seldom meets.
#[test]
fn kill_while_an_artifact_is_copied() {
    let repo = repo();
    let lab = Lab::new(&matrix(ARTIFACT_MIB));
    let words = words(&repo.path());
    let list: Vec<&str> = words.iter().map(String::as_str).collect();
    let halves = || {
        let entries = fs::read_dir(lab.path(".matrix/artifacts"))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().contains(".half-"))
            .count()
    };
    let running = lab.start_with("matrix.toml", "events", &list);
    lab::wait_until("a half copied artifact", || halves() > 0);
    running.kill();
    // Where the copy was faster than the kill there is nothing to put away, which is fine too.
    println!("{} half copied", halves());
    run(&lab, &words).assert_code(0);
    assert_whole(&lab, ARTIFACT_MIB);
}

fn mount(lab: &Lab, options: &str) {
    need("mount", "mount");
    let state = lab.path(".matrix");
    fs::create_dir_all(&state).unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", options, "none"])
        .arg(&state)
        .status();
    assert!(mount.unwrap().success(), "mounting needs root");
}

/// The artifact has 4 MiB and is there twice, in the build folder and where it is kept.
#[test]
fn a_disk_that_is_full_while_building_and_copying() {
    let repo = repo();
    let words = words(&repo.path());
    for (size, when) in [
        ("2M", "the build of"),
        ("6M", "the build of"),
        ("11M", "the build of"),
    ] {
        let lab = Lab::new(&matrix(4));
        mount(&lab, &format!("size={size}"));
        let full = run(&lab, &words);
        full.assert_code(2);
        let errors = full.errors().join("\n");
        assert!(
            errors.contains(when) && errors.contains("the disk is full"),
            "{size}: {errors}"
        );
        assert!(
            errors.contains("make space there and run again"),
            "{size}: {errors}"
        );

        mount(&lab, "remount,size=128M");
        let rest = run(&lab, &words);
        rest.assert_code(0);
        assert_eq!(rest.failed(), Default::default(), "{size}");
        assert_whole(&lab, 4);
    }
}

#[test]
fn two_runs_at_once_do_each_step_once() {
    let repo = repo();
    let lab = Lab::new(&matrix(1));
    let words = words(&repo.path());
    let list: Vec<&str> = words.iter().map(String::as_str).collect();
    let pair = ["events", "events-2"].map(|events| lab.start_with("matrix.toml", events, &list));
    for running in pair {
        let ran = running.wait();
        ran.assert_code(0);
        assert_eq!(ran.failed(), Default::default());
    }
    assert_eq!(lab.log().len(), VERSIONS, "each version is built once");
    for (kind, count) in [("build", VERSIONS), ("run", VERSIONS * 2)] {
        let attempts = format!("SELECT count(*) FROM attempt WHERE kind = '{kind}'");
        assert_eq!(lab.count(&attempts), count as i64, "{kind}");
    }
    assert_whole(&lab, 1);
}

#[test]
fn gc_stays_away_from_a_run() {
    let lab = Lab::new(&shell(
        "touch $TMPDIR/started; until test -e $TMPDIR/go; do sleep 0.02; done; echo v=1",
    ));
    let gc = || {
        let words = ["gc", "matrix.toml", "--max-size", "1k"];
        lab.matrix(&words).output().unwrap()
    };
    let running = lab.start();
    lab.wait_for("started");
    let refused = gc();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains("in use by a run"), "{told}");
    lab.touch("go");
    running.wait().assert_code(0);
    assert_eq!(gc().status.code(), Some(0));
}

#[test]
fn builds_of_different_folders_go_side_by_side_and_never_beside_a_measurement() {
    let repo = repo();
    // Each first build of a folder waits for the other one; in a folder there is one at a time.
    let matrix = r#"
        [machines.here]
        via         = "local"
        build_slots = 2
        [axes]
        machine = ["here"]
        option  = ["a", "b"]
        [subject.git]
        repo  = "nowhere"
        paths = ["src"]
        [build]
        run = [
          ["sh", "-c", "mkdir alone && touch $TMPDIR/begun-{{ option }} && echo begin >> $TMPDIR/log"],
          ["sh", "-c", "while ! test -e $TMPDIR/begun-a -a -e $TMPDIR/begun-b; do sleep 0.01; done"],
          ["sh", "-c", "cat $0 > prog; echo {{ option }} {{ jobs }} >> prog; rmdir alone; echo end >> $TMPDIR/log", "{{ src }}/src"],
        ]
        artifacts = ["prog"]
        [run]
        command = ["sh", "-c", "echo measure >> $TMPDIR/log; echo v=$(head -c 2 $0)", "{{ bin }}/prog"]
        parser  = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
        repeat  = 2
        [metrics.v]
        better = "higher"
    "#;
    let lab = Lab::new(matrix);
    let ran = run(&lab, &words(&repo.path()));
    ran.assert_code(0);
    let log = lab.log();
    let (builds, measurements) = log.split_at(2 * 2 * VERSIONS);
    assert_eq!(builds[..2], ["begin", "begin"], "{log:?}");
    assert_eq!(
        builds.iter().filter(|line| *line == "end").count(),
        2 * VERSIONS
    );
    assert_eq!(measurements.len(), 2 * 2 * VERSIONS, "{log:?}");
    assert!(measurements.iter().all(|line| line == "measure"), "{log:?}");
    lab.assert_clean();
}

#[test]
fn a_calibration_builds_what_is_gone_and_leaves_out_what_is_broken() {
    need("git", "git");
    let repo = repo();
    let lab = Lab::new(
        &("[machines.here]\nvia = \"local\"\n[axes]\nmachine = [\"here\"]\n".to_owned()
            + &matrix(1)),
    );
    let words = words(&repo.path());
    run(&lab, &words).assert_code(0);
    fs::remove_dir_all(lab.path(".matrix/artifacts")).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let calibrate = |code: i32| {
        let own = [
            "calibrate",
            "matrix.toml",
            "--json",
            "--machine",
            "here",
            "--rounds",
            "4",
        ];
        let output = lab.matrix(&[&own, &words[..]].concat()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        stderr
    };
    calibrate(0);
    let all = VERSIONS as i64 * (2 + 4);
    let count = "SELECT count(*) FROM samples WHERE metric = 'v'";
    assert_eq!(lab.count(count), all);
    // One that cannot be built any more.
    fs::remove_dir_all(lab.path(".matrix/artifacts")).unwrap();
    let broken = matrix(1).replace(
        "test -e prog ||",
        "grep -q 14 $0 && exit 1; test -e prog ||",
    );
    lab.write(
        &("[machines.here]\nvia = \"local\"\n[axes]\nmachine = [\"here\"]\n".to_owned() + &broken),
    );
    let stderr = calibrate(3);
    assert!(
        stderr.contains("not measured, its build failed"),
        "{stderr}"
    );
    assert_eq!(lab.count(count), all + (VERSIONS as i64 - 1) * 4);
    lab.assert_clean();
}

/// A build that waits for the file `go`, and versions that are compared.
const AWAITED: &str = r#"
    [subject.git]
    repo  = "nowhere"
    paths = ["src"]
    [build]
    run = [
      ["sh", "-c", "touch $TMPDIR/building; while ! test -e $TMPDIR/go; do sleep 0.01; done; cat $0 > prog", "{{ src }}/src"],
    ]
    artifacts = ["prog"]
    [run]
    command = ["sh", "-c", "echo v=$(head -c 2 $0)", "{{ bin }}/prog"]
    parser  = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
    repeat  = 2
    [metrics.v]
    better = "higher"
    [[compare]]
    axis = "version"
"#;

#[test]
fn an_interrupted_build_is_no_failure() {
    let repo = repo();
    let words = words(&repo.path());
    let list: Vec<&str> = words.iter().map(String::as_str).collect();
    for signal in [Signal::INT, Signal::TERM] {
        let lab = Lab::new(AWAITED);
        let running = lab.start_with("matrix.toml", "events", &list);
        lab.wait_for("building");
        running.send(signal);
        let ran = running.wait();
        ran.assert_code(130);
        assert!(!ran.stderr.contains("failed"), "{}", ran.stderr);
        assert_eq!(ran.failed(), Default::default());
        assert_eq!(ran.document["verdicts"].as_array().unwrap().len(), 0);
        assert_eq!(ran.document["counts"]["nothing_measured"], 0);
        assert_eq!(ran.events("build_done").len(), 0);
        assert_eq!(
            lab.count("SELECT count(*) FROM attempt WHERE outcome <> 'interrupted'"),
            0
        );
        // Nothing is remembered against it.
        lab.touch("go");
        let ran = run(&lab, &words);
        ran.assert_code(0);
        assert_eq!(ran.events("build_done").len(), VERSIONS);
        assert_eq!(ran.measured().len(), VERSIONS * 2);
        lab.assert_clean();
    }
}

#[test]
fn each_machine_makes_its_own_builds_before_it_measures() {
    let repo = repo();
    let machines = r#"
        [machines.here]
        via = "local"
        [machines.there]
        via = "local"
        [axes]
        machine = ["there", "here"]
    "#;
    let matrix = AWAITED
        .replace("touch $TMPDIR/building;", "echo build >> $TMPDIR/log;")
        .replace("echo v=", "echo measure >> $TMPDIR/log; echo v=");
    let lab = Lab::new(&(machines.to_owned() + &matrix));
    lab.touch("go");
    run(&lab, &words(&repo.path())).assert_code(0);
    let turn = [vec!["build"; VERSIONS], vec!["measure"; VERSIONS * 2]].concat();
    assert_eq!(lab.log(), [turn.clone(), turn].concat());
}

/// A build whose kept folder goes bad when another branch was built in it: nothing puts the stale file away.
const STALE: &str = r#"
    [subject.git]
    repo  = "nowhere"
    paths = ["src"]
    [build]
    run = [
      ["sh", "-c", """
        echo build >> $TMPDIR/log
        if test -e stale; then echo "stale.h:1:1: error: from another branch" >&2; exit 1; fi
        case $(cat $0) in
          poison) touch stale;;
          broken) echo "src.c:3:9: error: expected ';'" >&2; exit 1;;
          killed) test -e $TMPDIR/memory || { echo "cc1: out of memory allocating 65536 bytes" >&2; exit 1; };;
        esac
        cat $0 > prog""", "{{ src }}/src"],
    ]
    artifacts = ["prog"]
    [run]
    command = ["sh", "-c", "test -s $0; echo v=1", "{{ bin }}/prog"]
    parser  = { kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }
    [metrics.v]
    better = "higher"
"#;

#[test]
fn a_kept_folder_is_not_a_version_s_fault() {
    let repo = Repo::new();
    for text in ["good", "poison", "fine", "broken", "killed", "last"] {
        repo.write("src", text);
        repo.commit(text);
        repo.git(&["tag", text]);
    }
    let lab = Lab::new(STALE);
    let repository = repo.path();
    let run = |versions: &[&str]| {
        let mut words = vec!["--repo".to_owned(), repository.clone()];
        for version in versions {
            words.extend(["--version".to_owned(), (*version).to_owned()]);
        }
        run(&lab, &words)
    };
    let all = ["good", "poison", "fine", "broken", "killed", "last"];
    let ran = run(&all);
    ran.assert_code(3);
    let failed: Vec<String> = ran
        .events("build_done")
        .iter()
        .filter(|done| !done["error"].is_null())
        .map(|done| format!("{}: {}", done["version"], done["error"]))
        .collect();
    // The compiler's line comes first, and a folder that went bad is nobody's.
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert!(
        failed[0].starts_with("\"broken\": \"src.c:3:9: error: expected ';' (`sh -c "),
        "{failed:?}"
    );
    assert!(failed[1].contains("out of memory"), "{failed:?}");
    // `fine` and `broken` were tried twice.
    assert_eq!(lab.log().len(), 6 + 1 + 1, "{:?}", lab.log());
    let outcome = |outcome: &str| {
        let attempts =
            format!("SELECT count(*) FROM attempt WHERE kind = 'build' AND outcome = '{outcome}'");
        lab.count(&attempts)
    };
    assert_eq!((outcome("failed"), outcome("interrupted")), (1, 1));

    // What its surroundings did to a build is not remembered; what the commit itself does is.
    lab.touch("memory");
    let again = run(&all);
    let built = again.events("build_done");
    assert_eq!(built.len(), 1, "{built:?}");
    assert_eq!(built[0]["version"], "killed");
    assert!(built[0]["error"].is_null(), "{built:?}");
}
