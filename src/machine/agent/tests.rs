//! Tests of agents with a real host behind them: on a thread, over a stream, and as a program.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{LocalSet, spawn_local};

use super::client::{AgentHost, Calls, Gone};
use super::frames::{read_messages, write_messages};
use super::protocol::{FromAgent, ToAgent};
use super::serve::serve;
use super::thread;
use crate::base::sample::Ended;
use crate::config::matrix::SummaryRule;
use crate::machine::host::local::LocalHost;
use crate::machine::host::measurement::{CounterRequest, Measurement};
use crate::machine::host::{
    Cancel, Command, FileOp, FileReply, Holder, Host, HostErrorKind, lock_is_free,
};
use crate::machine::measure::measure;
use crate::machine::transport::pipe;

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        dir: "/".into(),
        env: Vec::new(),
        stdin: Vec::new(),
        timeout: Duration::from_secs(60),
        output_bytes_max: 8 << 20,
    }
}

fn sh(script: &str) -> Command {
    command(&["sh", "-c", script])
}

/// A host behind a stream of bytes, served by this thread.
fn over_a_stream(name: &str, host: LocalHost) -> AgentHost {
    let (ours, theirs) = tokio::io::duplex(4096);
    let (our_input, our_output) = tokio::io::split(ours);
    let (their_input, their_output) = tokio::io::split(theirs);
    let (requested, requests) = mpsc::unbounded_channel();
    let (reply, replies) = mpsc::unbounded_channel();
    spawn_local(async move {
        let read = read_messages(their_input, |id, it| requested.send((id, it)).is_ok());
        read.await.unwrap();
    });
    spawn_local(async move {
        serve(Rc::new(host), requests, move |id, it| {
            let _ = reply.send((id, it));
        })
        .await;
    });
    spawn_local(async move {
        // Fails when the test is over.
        let _ = write_messages(their_output, replies).await;
    });
    let calls = Arc::new(Calls::default());
    let (to_agent, ours) = mpsc::unbounded_channel();
    spawn_local(async move {
        let _ = write_messages(our_output, ours).await;
    });
    let (gone, answered) = (Gone::new(name, &calls), calls.clone());
    spawn_local(async move {
        let on = |id, message| {
            answered.on(id, message);
            true
        };
        let read = read_messages(our_input, on).await;
        gone.tell(&read.map_or_else(|error| error.to_string(), |()| String::new()));
    });
    AgentHost::new(name, to_agent, calls, None)
}

/// Runs a test with an agent of each kind. Both use the same lock file.
fn with_agents(test: impl AsyncFn(&AgentHost)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("lock");
    let all = async {
        test(&thread::start("here", Some(lock.clone())).unwrap()).await;
        let host = LocalHost::new("here").unwrap().with_lock(&lock);
        test(&over_a_stream("here", host)).await;
    };
    LocalSet::new().block_on(&runtime, all);
}

#[test]
fn files_and_commands_are_those_of_the_host() {
    with_agents(async |host| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let large = vec![7; 3 << 20];
        let read = |bytes_max| FileOp::Read {
            path: path.clone(),
            bytes_max,
        };
        let replace = FileOp::Replace {
            path: path.clone(),
            bytes: large.clone(),
        };
        let replies = host.files(vec![replace, read(1), read(4 << 20)]).await;
        assert_eq!(replies[0], Ok(FileReply::Done));
        let error = replies[1].clone().unwrap_err();
        assert_eq!(error.kind, HostErrorKind::TooLarge);
        assert_eq!(replies[2], Ok(FileReply::Bytes(large)));

        let mut cat = sh("cat; echo done >&2; exit 3");
        cat.stdin = vec![b'x'; 2 << 20];
        let output = host.run(cat, Cancel::never()).await.unwrap();
        assert_eq!(output.ended, Ended::Exit(3));
        assert_eq!(output.stdout, vec![b'x'; 2 << 20]);
        assert_eq!(output.stderr, b"done\n");
        let none = host.run(command(&["no-such-program"]), Cancel::never());
        assert_eq!(none.await.unwrap_err().kind, HostErrorKind::NotFound);
    });
}

/// Monitors, counters, the look before and the knobs after it cost no message of their own.
#[test]
fn a_measurement_is_one_question_and_one_answer() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let test = async {
        let calls = Arc::new(Calls::default());
        let (to_agent, mut asked) = mpsc::unbounded_channel::<(u64, ToAgent)>();
        let (forward, requests) = mpsc::unbounded_channel();
        let (count, counted) = watch::channel((0, 0));
        let count = Rc::new(count);
        let (questions, answers, answered) = (count.clone(), count, calls.clone());
        spawn_local(async move {
            while let Some(message) = asked.recv().await {
                questions.send_modify(|(asked, _)| *asked += 1);
                forward.send(message).unwrap();
            }
        });
        let host = Rc::new(LocalHost::new("here").unwrap());
        spawn_local(serve(host, requests, move |id, message: FromAgent| {
            answers.send_modify(|(_, answered)| *answered += 1);
            answered.on(id, message);
        }));
        let host = AgentHost::new("here", to_agent, calls, None);
        let dir = folder.path().join("run");
        let in_dir = |script: &str| Command {
            dir: dir.clone(),
            ..sh(script)
        };
        let measurement = Measurement {
            dir: dir.clone(),
            drops_caches: false,
            quiet_wait: Some(Duration::ZERO),
            ours: vec![std::process::id()],
            before: vec![in_dir("echo before > file")],
            monitors: vec![in_dir("while :; do echo tick; sleep 0.01; done")],
            counters: vec![CounterRequest {
                path: "/proc/vmstat".to_owned(),
                every: Duration::from_millis(20),
                summary: SummaryRule::Rate,
            }],
            command: in_dir("sleep 0.2; cat file"),
            services: Vec::new(),
            profile_journal: None,
        };
        let result = measure(&host, measurement.clone(), Cancel::never()).await;
        let result = result.unwrap();
        assert_eq!(*counted.borrow(), (1, 1));
        let output = result.output.unwrap();
        assert_eq!(output.stdout, b"before\n");
        assert!(result.noise.unwrap().unwrap().busy_cpus >= 0.0);
        let ticks = result.monitors[0].as_ref().unwrap().stdout.len() / "tick\n".len();
        assert!(ticks >= 2, "{ticks}");
        let (texts, values) = result.counters[0].as_ref().unwrap();
        assert!(texts.len() > 100 && !values.is_empty());
        assert_eq!(std::fs::read_dir(&dir).map_or(0, Iterator::count), 0);
        // What fails before it ends it.
        let broken = Measurement {
            before: vec![in_dir("exit 3"), in_dir("touch later")],
            ..measurement
        };
        let result = measure(&host, broken, Cancel::never()).await.unwrap();
        assert_eq!((result.before.len(), result.output), (1, None));
        assert_eq!(result.before[0].ended, Ended::Exit(3));
    };
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn several_requests_are_in_flight_and_one_can_be_cancelled() {
    with_agents(async |host| {
        let (stop, cancel) = watch::channel(false);
        let began = Instant::now();
        let long = host.run(sh("exec sleep 300"), Cancel::new(cancel));
        let short = async {
            let output = host.run(sh("sleep 0.1; echo short"), Cancel::never()).await;
            assert_eq!(output.unwrap().stdout, b"short\n");
            stop.send(true).unwrap();
        };
        let (long, ()) = tokio::join!(long, short);
        assert_eq!(long.unwrap().ended, Ended::Interrupted);
        assert!(began.elapsed() < Duration::from_secs(60));
    });
}

#[test]
fn what_nobody_waits_for_any_more_ends() {
    with_agents(async |host| {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 300", pid_file.display());
        let given_up = host.run(sh(&script), Cancel::never());
        let pid = async {
            loop {
                match std::fs::read_to_string(&pid_file) {
                    Ok(pid) if pid.ends_with('\n') => break pid.trim().to_owned(),
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let pid = tokio::select! {
            _ = given_up => panic!("it ended"),
            pid = pid => pid,
        };
        for _ in 0..2000 {
            if !std::path::Path::new("/proc").join(&pid).exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{pid} still runs");
    });
}

#[test]
fn services_stay_until_they_are_stopped() {
    with_agents(async |host| {
        let service = host.start(sh("echo up; exec sleep 300")).await.unwrap();
        assert_eq!(host.ended(service).await, None);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let output = host.stop(service).await.unwrap();
        assert_eq!(
            (output.ended, &output.stdout[..]),
            (Ended::Signal(15), &b"up\n"[..])
        );
        let error = host.stop(service).await.unwrap_err();
        assert_eq!(error.kind, HostErrorKind::NotFound);
        assert_eq!(host.ended(service).await, None);
    });
}

#[test]
fn a_lock_is_held_until_it_is_given_back() {
    with_agents(async |host| {
        let take = async |purpose: &str, cancel| {
            let (tell, mut told) = mpsc::unbounded_channel();
            let on_wait = |holder: &str| tell.send(holder.to_owned()).unwrap();
            let lock = host.lock(Holder::this(purpose), &on_wait, cancel).await;
            (lock, told.try_recv().unwrap_or_default())
        };
        let (lock, _) = take("first", Cancel::never()).await;
        let lock = lock.unwrap();
        assert!(!lock_is_free(host, "looking").await);
        let (stop, cancel) = watch::channel(false);
        let ending = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stop.send(true).unwrap();
        };
        let ((refused, told), ()) = tokio::join!(take("second", cancel.into()), ending);
        assert_eq!(refused.err().unwrap().kind, HostErrorKind::Cancelled);
        assert!(told.contains("matrix `first`"), "{told}");
        lock.release().await;
        assert!(lock_is_free(host, "looking").await);
        drop(take("third", Cancel::never()).await.0.unwrap());
        // Given back a moment later.
        take("fourth", Cancel::never())
            .await
            .0
            .unwrap()
            .release()
            .await;
    });
}

#[test]
fn an_agent_that_is_gone_says_why() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let check = |script: &str, expected: &str| {
        let words = ["sh", "-c", script].map(str::to_owned);
        runtime.block_on(async {
            let host = pipe::start("far", &words).unwrap();
            for _ in 0..2 {
                let error = host
                    .run(command(&["true"]), Cancel::never())
                    .await
                    .unwrap_err();
                assert_eq!(error.message, expected, "{script}");
            }
        });
    };
    check(
        "echo no route to it >&2; exit 7",
        "the agent of machine `far` is gone: it is no `matrix agent`; exit status 7; no route to it",
    );
    check(
        "echo Welcome; echo matrix-agent 999; exec sleep 60",
        "the agent of machine `far` is gone: it speaks version 999 of the protocol, and this `matrix` version 4: \
         use the same `matrix` on both sides",
    );
    check(
        "echo matrix-agent 4; echo something else entirely; exec sleep 60",
        "the agent of machine `far` is gone: no frame: 1701670771 bytes, flag 115",
    );
    let error = pipe::start("far", &["/no/such/program".to_owned()])
        .err()
        .unwrap();
    assert!(
        error
            .message
            .contains("cannot start the agent of machine `far`"),
        "{error}"
    );
}
