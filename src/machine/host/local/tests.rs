//! The local host's tests, with real programs that misbehave on purpose.

use std::path::Path;
use std::process::{Command as Std, Stdio};
use std::time::Instant;

use tokio::sync::watch;

use super::*;

const GRACE: Duration = Duration::from_millis(150);

/// Runs a test on a runtime like the program's, with a short grace time.
fn with_host<T>(test: impl AsyncFnOnce(&LocalHost) -> T) -> T {
    let host = LocalHost::new("here").unwrap().with_grace(GRACE);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(test(&host))
}

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        dir: "/".into(),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(60),
        output_bytes_max: 1 << 20,
    }
}

fn sh(script: &str) -> Command {
    command(&["sh", "-c", script])
}

fn python(script: &str) -> Command {
    command(&["python3", "-c", script])
}

/// A process that no host started; it goes with the test, also with a failed one.
struct Foreign(std::process::Child);

impl Foreign {
    fn start(argv: &[&str], variables: &[(&str, &str)]) -> Foreign {
        let mut command = Std::new(argv[0]);
        command.args(&argv[1..]).envs(variables.iter().copied());
        for set in [Std::stdout, Std::stderr, Std::stdin] {
            set(&mut command, Stdio::null());
        }
        Foreign(command.spawn().unwrap())
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition holds; a loaded machine needs its time.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain");
}

fn run(command: Command) -> Output {
    with_host(async |host| host.run(command, Cancel::never()).await.unwrap())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Whether a pid is a process, dead ones that nobody has reaped included.
fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

/// A number that no other test uses as the argument of `sleep`: finds a test's processes.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "{}{:04}",
        100 + std::process::id() % 100_000,
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Processes with `word` among their arguments. Zombies have no arguments: see [`zombies`].
fn having(word: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0)
            .any(|it| it == word.as_bytes())
    };
    proc::pids().into_iter().filter(has).collect()
}

#[test]
fn a_command_runs_and_its_ending_is_told() {
    let check = |command: Command, ended: Ended, stdout: &str, stderr: &str| {
        let output = run(command);
        let told = (output.ended, text(&output.stdout), text(&output.stderr));
        assert_eq!(told, (ended, stdout, stderr));
        assert_eq!((output.truncated, output.leftovers), (false, vec![]));
        assert!(output.duration < Duration::from_secs(20));
    };
    check(
        sh("echo out; echo err >&2"),
        Ended::Exit(0),
        "out\n",
        "err\n",
    );
    check(sh("exit 3"), Ended::Exit(3), "", "");
    check(sh("kill -9 $$"), Ended::Signal(9), "", "");
    check(sh("exit 137"), Ended::Signal(9), "", "");
    check(sh("cat"), Ended::Exit(0), "", "");
    check(sh("pwd"), Ended::Exit(0), "/\n", "");
    check(
        Command {
            stdin: b"in".to_vec(),
            ..sh("cat")
        },
        Ended::Exit(0),
        "in",
        "",
    );
    let large = vec![b'x'; 1 << 20];
    check(
        Command {
            stdin: large.clone(),
            ..sh("exit 0")
        },
        Ended::Exit(0),
        "",
        "",
    );
    check(
        Command {
            stdin: large.clone(),
            ..sh("cat")
        },
        Ended::Exit(0),
        text(&large),
        "",
    );
    check(
        Command {
            timeout: Duration::MAX,
            ..sh("true")
        },
        Ended::Exit(0),
        "",
        "",
    );
}

#[test]
fn the_environment_is_ours_and_no_more() {
    let variable = ("FOO".to_owned(), "bar".to_owned());
    let output = run(Command {
        env: vec![variable],
        ..command(&["env"])
    });
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    let allowed = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "TMPDIR",
        "LC_ALL",
        "FOO",
        "MATRIX_STEP",
        "MATRIX_OWNER",
    ];
    for line in &lines {
        let name = line.split('=').next().unwrap();
        assert!(allowed.contains(&name), "{line}");
    }
    assert!(
        lines.contains(&"LC_ALL=C.UTF-8") && lines.contains(&"FOO=bar"),
        "{lines:?}"
    );
    let path = lines.iter().find(|line| line.starts_with("PATH=")).unwrap();
    assert!(
        path.split(['=', ':']).any(|folder| folder == "/usr/sbin"),
        "{path}"
    );
}

#[test]
fn what_cannot_be_started_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let check = |command: Command, kind: HostErrorKind, parts: &[&str]| {
        let error = with_host(async |host| host.run(command, Cancel::never()).await.unwrap_err());
        assert_eq!(error.kind, kind, "{error}");
        for part in parts {
            assert!(error.message.contains(part), "{part:?} in {error}");
        }
    };
    use HostErrorKind::*;
    check(command(&[]), Other, &["without words"]);
    check(
        command(&["no-such-tool"]),
        NotFound,
        &["`no-such-tool`", "install it"],
    );
    check(command(&[""]), NotFound, &["``"]);
    check(
        command(&["/no/such"]),
        NotFound,
        &["`/no/such`", "install or build it"],
    );
    check(
        Command {
            dir: "/no".into(),
            ..sh("")
        },
        NotFound,
        &["`/no`", "create it"],
    );
    check(
        command(&[&file("data", "x", 0o644)]),
        PermissionDenied,
        &["data`", "chmod +x"],
    );
    check(
        command(&[&file("text", "echo", 0o755)]),
        Other,
        &["text`", "#!"],
    );
    check(
        command(&[&file("lost", "#!/no/sh\n", 0o755)]),
        NotFound,
        &["lost`", "interpreter"],
    );
    let own_path = ("PATH".to_owned(), "/no".to_owned());
    check(
        Command {
            env: vec![own_path],
            ..sh("")
        },
        NotFound,
        &["`sh`", "(/no)"],
    );
}

#[test]
fn a_relative_program_is_relative_to_the_working_folder() {
    let output = run(Command {
        dir: "/bin".into(),
        ..command(&["./echo", "hi"])
    });
    assert_eq!(text(&output.stdout), "hi\n");
}

#[test]
fn both_streams_are_drained_beyond_the_limit() {
    let script = "import sys\nfor i in range(100): sys.stderr.write('e'*10000); sys.stdout.write('o'*10000)\nsys.stderr.write('END')";
    let output = run(Command {
        output_bytes_max: 1000,
        ..python(script)
    });
    assert_eq!((output.ended, output.truncated), (Ended::Exit(0), true));
    assert_eq!((output.stdout.len(), output.stderr.len()), (1000, 1000));
    assert!(text(&output.stderr).starts_with("eee") && text(&output.stderr).ends_with("eEND"));
}

#[test]
fn a_daemon_does_not_outlive_its_step() {
    let check = |script: &str, takes_max: Duration| {
        let word = unique();
        let began = Instant::now();
        let output = run(sh(&script.replace("SLEEP", &format!("sleep {word}"))));
        assert_eq!(output.ended, Ended::Exit(0));
        assert!(!output.leftovers.is_empty(), "{script}");
        assert!(
            began.elapsed() < takes_max,
            "{script}: {:?}",
            began.elapsed()
        );
        assert!(having(&word).is_empty(), "{script}");
        for leftover in output.leftovers {
            let pid = leftover
                .split("(pid ")
                .nth(1)
                .unwrap()
                .trim_end_matches(')');
            assert!(!exists(pid), "{leftover} of {script}");
        }
    };
    let quick = Duration::from_secs(5);
    // It holds the pipe; it does not; it ignores TERM; it has a session of its own.
    check("SLEEP &", quick);
    check("SLEEP >/dev/null 2>&1 &", quick);
    check("(trap '' TERM; SLEEP; SLEEP) &", quick);
    check("setsid SLEEP &", quick);
    check(
        "setsid sh -c \"trap '' TERM; SLEEP; SLEEP\" >/dev/null 2>&1 &",
        quick,
    );
    // A step of a `matrix` that runs within the step.
    check("MATRIX_STEP=$MATRIX_STEP/1-2-3 setsid SLEEP &", quick);
    // Without our environment, but in the step's group.
    check("env -i SLEEP &", quick);
    // Without our environment and group, but below one of ours.
    check("(setsid env -i SLEEP; :) & sleep 0.1", quick);
}

#[test]
fn the_last_words_of_a_grandchild_are_kept() {
    // On a loaded machine it may miss the grace time: it gets some chances.
    let is_kept = |_| {
        let output = run(sh("(sleep 0.01; echo late) & echo early"));
        assert!(text(&output.stdout).starts_with("early\n"));
        output.leftovers.is_empty() && text(&output.stdout) == "early\nlate\n"
    };
    assert!((0..10).any(is_kept));
}

#[test]
fn a_whole_tree_ends_at_the_time_limit() {
    let check = |script: &str, wanted: Ended, timeout: Duration| {
        let word = unique();
        let script = script.replace("WORD", &word);
        let output = with_host(async |host| {
            let (sender, receiver) = watch::channel(false);
            let command = Command {
                timeout,
                ..python(&script)
            };
            let run = host.run(command, Cancel::new(receiver));
            let cancel = async {
                while wanted == Ended::Interrupted && having(&word).is_empty() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                sender.send(wanted == Ended::Interrupted).unwrap();
            };
            let output = tokio::join!(run, cancel).0.unwrap();
            assert!(having(&word).is_empty());
            output
        });
        assert_eq!(output.ended, wanted);
        assert_eq!(text(&output.stdout), "begun\n");
        let duration = output.duration;
        assert!(duration < Duration::from_secs(15), "{duration:?}");
    };
    // 2^5 processes, each with sleeping children, that all ignore TERM.
    let stubborn = "
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('begun', flush=True)
for i in range(5):
    subprocess.Popen(['sleep', 'WORD'], start_new_session=True)
    if os.fork() == 0: os.setsid()
time.sleep(60)";
    // Python may take a second to start.
    check(stubborn, Ended::TimedOut, Duration::from_secs(3));
    check(stubborn, Ended::Interrupted, Duration::from_secs(60));
    // Forks while it is being ended: each child replaces its parent, 2000 times.
    let hydra = "
import os, subprocess, time
if os.fork() != 0: os.wait(); time.sleep(60)
print('begun', flush=True)
subprocess.Popen(['sleep', 'WORD'])
for i in range(2000):
    if os.fork() != 0: time.sleep(0.001); os._exit(0)
    if i % 10 == 0: os.setsid()
time.sleep(60)";
    check(hydra, Ended::Interrupted, Duration::from_secs(60));
}

#[test]
#[ignore = "measures: run it alone"]
fn the_cost_of_a_step() {
    const ROUNDS: u32 = 200;
    let mean = |began: Instant| began.elapsed() / ROUNDS;
    let began = Instant::now();
    for _ in 0..ROUNDS {
        Std::new("/bin/true").output().unwrap();
    }
    let bare = mean(began);
    let (alone, beside) = with_host(async |host| {
        let began = Instant::now();
        for _ in 0..ROUNDS {
            host.run(command(&["true"]), Cancel::never()).await.unwrap();
        }
        let alone = mean(began);
        host.start(command(&["sleep", "60"])).await.unwrap();
        let began = Instant::now();
        for _ in 0..ROUNDS {
            host.run(command(&["true"]), Cancel::never()).await.unwrap();
        }
        (alone, mean(began))
    });
    eprintln!("bare {bare:?}, as a step {alone:?}, beside a service {beside:?}");
    assert!(beside < bare * 4, "{beside:?}, bare {bare:?}");
}

#[test]
fn an_interrupted_host_starts_nothing() {
    let (sender, receiver) = watch::channel(true);
    let output =
        with_host(async |host| host.run(sh("echo x"), Cancel::new(receiver)).await.unwrap());
    assert_eq!((output.ended, output.stdout), (Ended::Interrupted, vec![]));
    drop(sender);
}

#[test]
fn a_dropped_run_leaves_nothing() {
    let word = unique();
    let script = format!("setsid sleep {word} & sleep {word}");
    with_host(async |host| {
        tokio::select! {
            output = host.run(sh(&script), Cancel::never()) => panic!("{output:?}"),
            () = until(|| having(&word).len() == 2) => {}
        }
        assert!(having(&word).is_empty());
    });
}

#[test]
fn the_jobs_of_fio_end_with_it() {
    assert!(
        Std::new("fio").arg("--version").output().is_ok(),
        "this test needs fio: `apt-get install fio` or `dnf install fio`"
    );
    let word = format!("--name=matrix{}", unique());
    let argv = [
        "fio",
        &word,
        "--ioengine=null",
        "--rw=read",
        "--size=1G",
        "--rate=1m",
        "--numjobs=4",
    ];
    let fio = [&argv[..], &["--time_based", "--runtime=60"]].concat();
    with_host(async |host| {
        let (sender, receiver) = watch::channel(false);
        let run = host.run(command(&fio), Cancel::new(receiver));
        let cancel = async {
            // The main process and its four jobs.
            until(|| having(&word).len() >= 5).await;
            sender.send(true).unwrap();
        };
        let output = tokio::join!(run, cancel).0.unwrap();
        assert_eq!(output.ended, Ended::Interrupted);
        assert!(having(&word).is_empty());
    });
    // Killed by somebody else: its jobs live on.
    let script = format!(
        "{} & while set -- $(cat /proc/$!/task/$!/children); [ $# -lt 4 ]; do sleep 0.05; done
        kill -9 $!; exit 5",
        fio.join(" ")
    );
    let output = run(sh(&script));
    assert_eq!(output.ended, Ended::Exit(5));
    assert!(
        output.leftovers.iter().any(|left| left.contains("fio")),
        "{:?}",
        output.leftovers
    );
    assert!(having(&word).is_empty());
}

#[test]
fn no_zombies_stay() {
    let zombies = || {
        let us = std::process::id() as i32;
        let all = proc::pids().into_iter().filter_map(proc::Stat::of);
        let of_ours = all.filter(|stat| stat.parent == us && stat.zombie);
        of_ours.filter(|stat| stat.name == "zombie-test").count()
    };
    // The name tells this test's processes from those of the others.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("zombie-test");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let program = program.display();
    with_host(async |host| {
        for script in [
            format!("{program} 0.01 & {program} 0.02 & sleep 0.1"),
            format!("setsid {program} 0.01 & exec sleep 0.2"),
            format!("setsid {program} 60 & {program} 60 & :"),
        ] {
            host.run(sh(&script), Cancel::never()).await.unwrap();
            assert_eq!(zombies(), 0, "{script}");
        }
    });
}

#[test]
fn foreign_processes_are_left_alone() {
    let sleeper = |variables: &[(&str, &str)]| Foreign::start(&["sleep", "60"], variables);
    let mut foreign = [
        sleeper(&[]),
        sleeper(&[("MATRIX_STEP", "another"), ("MATRIX_OWNER", "x")]),
    ];
    // Ended, but not waited for yet: its status is another's to take.
    let mut done = Std::new("true").spawn().unwrap();
    let word = unique();
    with_host(async |host| {
        let service = host.start(command(&["sleep", &word])).await.unwrap();
        let output = host
            .run(sh("setsid sleep 60 & :"), Cancel::never())
            .await
            .unwrap();
        assert_eq!(output.leftovers.len(), 1, "{:?}", output.leftovers);
        assert_eq!(host.ended(service).await, None);
        host.stop(service).await.unwrap();
    });
    assert!(done.wait().unwrap().success());
    assert!(foreign.iter_mut().all(Foreign::is_alive));
}

#[test]
fn services_run_until_they_are_stopped() {
    let word = unique();
    let script = format!("echo up; setsid sleep {word} & sleep {word}");
    with_host(async |host| {
        let service = host.start(sh(&script)).await.unwrap();
        until(|| having(&word).len() == 2).await;
        assert_eq!(host.ended(service).await, None);
        let output = host.stop(service).await.unwrap();
        assert_eq!(
            (output.ended, text(&output.stdout)),
            (Ended::Signal(15), "up\n")
        );
        assert!(
            host.stop(service)
                .await
                .unwrap_err()
                .message
                .contains("no service")
        );
        assert_eq!(host.ended(service).await, None);

        let brief = host.start(sh("echo no >&2; exit 4")).await.unwrap();
        let ended = loop {
            match host.ended(brief).await {
                Some(output) => break output,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        assert_eq!((ended.ended, text(&ended.stderr)), (Ended::Exit(4), "no\n"));
        assert_eq!(host.ended(brief).await, Some(ended.clone()));
        assert_eq!(host.stop(brief).await, Ok(ended));
    });
    assert!(having(&word).is_empty());
}

#[test]
fn services_go_with_their_host() {
    let word = unique();
    let script = format!("trap '' TERM; setsid sleep {word} & sleep {word}; sleep {word}");
    with_host(async |host| {
        host.start(sh(&script)).await.unwrap();
        until(|| having(&word).len() == 2).await;
    });
    assert!(having(&word).is_empty());
}

#[test]
fn what_a_dead_matrix_left_is_cleaned() {
    let mut dead = Std::new("true").spawn().unwrap();
    dead.wait().unwrap();
    // A namespace of our own, or another run of this test would clean up for us.
    let (pid, namespace) = (dead.id(), format!("test{}", unique()));
    let (word, kept) = (unique(), unique());
    let owner = format!("{pid}:7:{namespace}");
    let script = format!("trap '' TERM; setsid sleep {word} & env -i sleep {word}; sleep {word}");
    let mut left = Foreign::start(&["sh", "-c", &script], &[("MATRIX_OWNER", &owner)]);
    // An owner in another pid namespace cannot be judged; a living one is not to be.
    let elsewhere = format!("{pid}:7:1");
    let mut container = Foreign::start(&["sleep", "60"], &[("MATRIX_OWNER", &elsewhere)]);
    with_host(async |_| {
        let mut host = LocalHost::new("here").unwrap().with_grace(GRACE);
        host.owner.namespace = namespace;
        until(|| having(&word).len() == 2).await;
        let alive = host.start(command(&["sleep", &kept])).await.unwrap();
        let lines = host.clean().await.unwrap();
        // The shell and its two, and perhaps the third that it starts meanwhile.
        assert!(lines.len() >= 3, "{lines:?}");
        for line in &lines {
            let end = format!("), left by a matrix that is gone (pid {pid})");
            assert!(line.starts_with('`') && line.ends_with(&end), "{lines:?}");
        }
        assert_eq!(host.ended(alive).await, None);
        assert!(having(&word).is_empty());
    });
    assert!(!left.is_alive());
    assert!(container.is_alive());
}

fn holder(purpose: &str) -> Holder {
    let (user, since) = ("root".to_owned(), "2026-01-02T03:04:05Z".to_owned());
    Holder {
        pid: 123,
        host: "lab1".to_owned(),
        user,
        purpose: purpose.to_owned(),
        since,
    }
}

#[test]
fn the_lock_is_exclusive_and_its_holder_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    with_host(async |_| {
        let host = LocalHost::new("here").unwrap().with_lock(&path);
        let nobody = |message: &str| panic!("waited: {message}");
        let slot = host
            .lock(holder("first"), &nobody, Cancel::never())
            .await
            .unwrap();
        let heard = RefCell::new(Vec::new());
        let on_wait = |message: &str| heard.borrow_mut().push(message.to_owned());
        let (sender, receiver) = watch::channel(false);
        let second = host.lock(holder("second"), &on_wait, Cancel::new(receiver));
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            sender.send(true).unwrap();
        };
        let (refused, ()) = tokio::join!(second, cancel);
        assert_eq!(refused.err().unwrap().kind, HostErrorKind::Cancelled);
        let expected = "held by pid 123 (root@lab1), matrix `first`, since 2026-01-02T03:04:05Z";
        assert_eq!(heard.take(), [expected]);
        drop(slot);
        host.lock(holder("third"), &nobody, Cancel::never())
            .await
            .unwrap();
    });
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[test]
fn the_lock_is_free_when_its_holder_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    std::fs::write(&path, "not json").unwrap();
    let mut other = Std::new("flock")
        .arg(&path)
        .args(["-c", "echo; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let other = RefCell::new(other);
    with_host(async |_| {
        let host = LocalHost::new("here").unwrap().with_lock(&path);
        let on_wait = |message: &str| {
            assert_eq!(message, "held by a process that does not say who it is");
            // `flock` and the shell both hold it.
            let script = format!(
                "kill -9 $(cat /proc/{0}/task/{0}/children) {0}",
                other.borrow().id()
            );
            Std::new("sh").args(["-c", &script]).status().unwrap();
        };
        host.lock(holder("next"), &on_wait, Cancel::never())
            .await
            .unwrap();
    });
    other.borrow_mut().wait().unwrap();
}

#[test]
fn a_lock_that_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let check = |path: &Path, part: &str| {
        with_host(async |_| {
            let host = LocalHost::new("here").unwrap().with_lock(path);
            let error = host
                .lock(holder("x"), &|_| (), Cancel::never())
                .await
                .err()
                .unwrap();
            assert!(error.message.contains(part), "{error}");
        });
    };
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    check(&link, "symbolic link");
    check(Path::new("/dev/null"), "not a regular file");
    check(Path::new("/no/lock"), "MATRIX_LOCK");
}
