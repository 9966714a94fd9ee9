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

/// A matrix whose measurements log what the program holds.
fn told(git: &str, build: &str) -> String {
    format!(
        r#"
        [subject.git]
        repo  = "nowhere"
        {git}
        [build]
        artifacts = ["prog"]
        {build}
        [run]
        command = ["sh", "-c", "cat $0 >> $TMPDIR/log; echo v=1", "{{{{ bin }}}}/prog"]
        parser  = {{ kind = "regex", pattern = '(?P<name>\w+)=(?P<value>\S+)' }}
        [metrics.v]
        better = "higher"
        "#
    )
}

/// Measures versions once each; what their programs hold, sorted.
fn programs(lab: &Lab, repo: &Repo, versions: &[&str]) -> (Ran, Vec<String>) {
    let mut words = vec!["--repo".to_owned(), repo.path()];
    for version in versions {
        words.extend(["--version".to_owned(), (*version).to_owned()]);
    }
    words.extend(["--repeat", "1"].map(str::to_owned));
    let _ = fs::remove_file(lab.path("log"));
    let ran = run(lab, &words);
    let mut log = lab.log();
    log.sort_unstable();
    (ran, log)
}

#[test]
fn a_recipe_knows_its_commit_and_no_repository_around_it() {
    let repo = Repo::new();
    repo.write("src", "x");
    let id = repo.commit("one");
    let lab = Lab::new(&told(
        "",
        r#"run = [["sh", "-c", "{ echo $0 $1; git rev-parse --show-toplevel 2>&1 || true; } > prog", "{{ commit }}", "{{ commit_date }}"]]"#,
    ));
    // The state folder is inside a repository of its own.
    let mut init = Command::new("git");
    let init = init.args(["init", "-q"]).arg(lab.path(".")).status();
    assert!(init.unwrap().success());
    let (ran, log) = programs(&lab, &repo, &["main"]);
    ran.assert_code(0);
    assert_eq!(log[0], format!("{id} 2024-01-01T00:00:00Z"));
    assert!(log[1].contains("not a git repository"), "{log:?}");
}

#[test]
fn recipes_by_era() {
    let repo = Repo::new();
    for (tag, file) in [
        ("v1", "Makefile"),
        ("v2", "configure"),
        ("v3", "meson.build"),
        ("v4", "Cargo.toml"),
    ] {
        repo.write(file, tag);
        repo.commit(tag);
        repo.git(&["tag", tag]);
        if tag == "v1" {
            repo.git(&["branch", "stable-1"]);
        }
    }
    // A commit of the old era that is younger than all.
    repo.git(&["checkout", "-q", "stable-1"]);
    repo.write("fix", "fix");
    repo.commit("v1.1");
    repo.git(&["tag", "v1.1"]);
    let recipe = |name: &str| format!(r#"run = ["sh -c 'echo {name} > prog'"]"#);
    let variants = format!(
        r#"
        {}
        [[build.variant]]
        until = "v1"
        {}
        [[build.variant]]
        when = "has('meson.build') and not has('Cargo.*')"
        {}
        [[build.variant]]
        since = "v4"
        {}
        "#,
        recipe("other"),
        recipe("make"),
        recipe("meson"),
        recipe("cargo")
    );
    let lab = Lab::new(&told("", &variants));
    let versions = ["v1", "v1.1", "v2", "v3", "v4"];
    let (ran, log) = programs(&lab, &repo, &versions);
    ran.assert_code(0);
    // `v1` and `v1.1` have the same bytes, and are measured once.
    assert_eq!(log, ["cargo", "make", "meson", "other"]);
    assert_eq!(ran.events("build_done").len(), 5);

    // Another recipe for one era builds that one anew.
    lab.write(&told("", &variants.replace("echo meson", "echo ninja")));
    let (ran, log) = programs(&lab, &repo, &versions);
    ran.assert_code(0);
    assert_eq!(log, ["ninja"]);
    assert_eq!(ran.events("build_done").len(), 1);

    let (ran, _) = {
        lab.write(&told(
            "",
            &variants.replace("has('meson.build')", "had('x')"),
        ));
        programs(&lab, &repo, &["v1"])
    };
    ran.assert_code(2);
    assert!(
        ran.stderr.contains("`had` is not declared"),
        "{}",
        ran.stderr
    );
}

#[test]
fn submodules_are_checked_out_at_the_pins_of_the_commit() {
    let (repo, keymaps, other) = (Repo::new(), Repo::new(), Repo::new());
    keymaps.write("map", "old\n");
    let old = keymaps.commit("old");
    keymaps.write("map", "new\n");
    let new = keymaps.commit("new");
    other.write("x", "x\n");
    let gone = other.commit("x");
    let pin = |path: &str, id: &str| {
        let entry = format!("160000,{id},{path}");
        repo.git(&["update-index", "--add", "--cacheinfo", &entry]);
    };
    let commit = |tag: &str| {
        repo.git(&["commit", "-q", "--allow-empty", "-m", tag]);
        repo.git(&["tag", tag]);
    };
    let modules = |url: &str| {
        let module = |path: &str, url: &str| {
            format!("[submodule \"{path}\"]\n\tpath = {path}\n\turl = {url}\n")
        };
        repo.write(
            ".gitmodules",
            &(module("ui/keymaps", url) + &module("roms/big", "https://nowhere.invalid/x")),
        );
        repo.write("ui/main", "main");
        repo.git(&["add", ".gitmodules", "ui/main"]);
    };
    modules(&keymaps.path());
    pin("ui/keymaps", &old);
    pin("roms/big", &gone);
    commit("old");
    pin("ui/keymaps", &new);
    commit("new");
    repo.write("docs", "docs");
    repo.git(&["add", "docs"]);
    commit("docs");
    // A pin that is nowhere.
    pin("ui/keymaps", &gone);
    commit("lost");
    // It became a part of the sources.
    repo.git(&["rm", "-q", "--cached", "ui/keymaps"]);
    repo.write("ui/maps", "own\n");
    repo.git(&["add", "ui/maps"]);
    commit("own");

    let recipe = r#"run = [["sh", "-c", "cd $0; { cat ui/keymaps/* || cat ui/maps; ls roms/big ui/keymaps; } 2>/dev/null | xargs echo > $OLDPWD/prog", "{{ src }}"]]"#;
    let lab = Lab::new(&told("paths = [\"ui/**\"]", recipe));
    let (ran, log) = programs(&lab, &repo, &["old", "new", "docs", "lost", "own"]);
    ran.assert_code(3);
    // What is outside of `paths` is left alone; one that is gone leaves nothing.
    assert_eq!(
        log,
        [
            "new roms/big: ui/keymaps: map",
            "old roms/big: ui/keymaps: map",
            "own roms/big:"
        ]
    );
    let built = ran.events("build_done");
    // Before anything is built, by its name.
    assert_eq!(built[0]["version"], "lost", "{built:?}");
    let error = built[0]["error"].as_str().unwrap();
    assert!(
        error.starts_with("the submodule `ui/keymaps` (at ")
            && error.contains("[subject.git] submodules"),
        "{error}"
    );
    let versions: Vec<_> = built[1..]
        .iter()
        .map(|it| it["version"].as_str().unwrap())
        .collect();
    assert_eq!(versions, ["old", "new", "own"]);

    // A mirror is named: it has what was lost.
    let named = format!(
        "paths = [\"ui/main\"]\nsubmodules = {{ \"ui/keymaps\" = \"{}\" }}",
        other.path()
    );
    lab.write(&told(&named, recipe));
    let (ran, log) = programs(&lab, &repo, &["lost", "old"]);
    assert_eq!(log, ["x roms/big: ui/keymaps: x"], "{}", ran.stderr);
    let old = ran.events("build_done");
    assert!(
        old[0]["error"].as_str().unwrap().contains("`ui/keymaps`"),
        "{old:?}"
    );
}

#[test]
fn what_is_not_loaded_is_not_measured_again() {
    need("cc", "gcc");
    let repo = Repo::new();
    let program = |code: &str| format!("int main(void) {{ return {code}; }}\n");
    for (tag, text) in [
        ("base", program("0")),
        (
            "comment",
            format!("/* Nothing\n * new. */\n{}", program("0")),
        ),
        ("code", program("1 - 1 + (sizeof(int) == 2)")),
        (
            "bytes",
            "int twice(int x) { return 2 * x; }\n".to_owned() + &program("0"),
        ),
    ] {
        repo.write("main.c", &text);
        repo.commit(tag);
        repo.git(&["tag", tag]);
    }
    let lab = Lab::new(
        &told("", r#"run = ["cc -g -O2 -o prog {{ src }}/main.c"]"#).replace("cat $0", "$0; echo"),
    );
    let (ran, log) = programs(&lab, &repo, &["base", "comment", "code", "bytes"]);
    ran.assert_code(0);
    assert_eq!(log.len(), 2, "{log:?}");
    let same: Vec<Option<String>> = ran
        .events("build_done")
        .iter()
        .map(|done| done["same_as"].as_str().map(str::to_owned))
        .collect();
    let base = Some("base".to_owned());
    assert_eq!(same, [None, base.clone(), base, None]);
    for said in [
        "building `comment` (2 of 4)",
        "same bytes as `base`, nothing to measure",
    ] {
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
}
