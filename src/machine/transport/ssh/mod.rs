//! An agent on another machine, reached by the user's own `ssh`: this program is copied there once, and serves.

mod bootstrap;
mod explain;

use std::io;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use self::bootstrap::{Bootstrap, Told};
use self::explain::LinkEnd;
use super::child::{ANSWER_TIME_MAX, ChildStreams};
use crate::base::key::Key;
use crate::config::ssh::SshTarget;
use crate::machine::agent::client::{AgentHost, Calls, Gone};
use crate::machine::agent::frames::{read_messages, write_messages};
use crate::machine::host::local::{OWN_PROGRAM, blocking};
use crate::machine::host::{FileOp, FileReply, HostError, HostErrorKind};

/// Names another ssh than the one on PATH, with arguments if need be: words, split as a shell splits them.
pub const SSH_VARIABLE: &str = "MATRIX_SSH";

/// What is asked of ssh beside the user's own configuration: nothing is asked at the terminal, nothing else is forwarded, no
/// packet is sent while nobody speaks. An open control connection of the user's is used; none is left behind.
const OPTIONS: [&str; 10] = [
    "BatchMode=yes",
    "ControlMaster=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "PermitLocalCommand=no",
    "ServerAliveInterval=0",
    "LogLevel=ERROR",
];
/// A host that swallows packets is told after this time, in seconds.
const CONNECT_TIMEOUT_S: u32 = 20;
/// Bytes of the program that are sent at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Starts an agent on another machine. Whether it serves is told by the first call. Needs a tokio runtime with
/// I/O.
pub fn start(name: &str, target: &SshTarget) -> Result<AgentHost, HostError> {
    let words = words(target)?;
    let calls = Arc::new(Calls::default());
    let (to_agent, requests) = mpsc::unbounded_channel();
    let gone = Gone::new(name, &calls);
    let (name, target) = (name.to_owned(), target.clone());
    let host = AgentHost::new(&name, to_agent, calls.clone(), None);
    tokio::spawn(async move {
        let mut streams = match ChildStreams::spawn(&words[0], &words[1..]) {
            Ok(streams) => streams,
            Err(error) => {
                let why = format!("cannot start `{}`: {error}", words[0]);
                return gone.because(format!("cannot reach machine `{name}`: {why}"));
            }
        };
        let opened = open(&mut streams, &target).await;
        let (stdin, stdout, ending) = streams.split();
        let is_open = opened.is_ok();
        let read = match opened {
            Ok(()) => {
                tokio::spawn(write_messages(stdin, requests));
                let on = |id, message| {
                    calls.on(id, message);
                    true
                };
                read_messages(stdout, on).await
            }
            Err(error) => {
                // Nobody waits for the program any more.
                drop(stdin);
                Err(error)
            }
        };
        let error = read.err();
        let end = ending.wait(error.is_some()).await;
        let end = LinkEnd {
            error: error.map(|error| error.to_string()),
            end,
        };
        gone.because(match is_open {
            true => format!("the link to machine `{name}` is lost: {}", end.why(&target)),
            false => format!("cannot reach machine `{name}`: {}", end.why(&target)),
        });
    });
    Ok(host)
}

/// The words that start ssh.
fn words(target: &SshTarget) -> Result<Vec<String>, HostError> {
    let own = std::env::var(SSH_VARIABLE).unwrap_or_else(|_| "ssh".to_owned());
    let mut words = shlex::split(&own).unwrap_or_default();
    if words.is_empty() {
        return Err(HostError::new(
            HostErrorKind::Other,
            format!("{SSH_VARIABLE} is no command: `{own}`; give words such as `ssh -F lab.conf`"),
        ));
    }
    words.push("-T".to_owned());
    for option in OPTIONS {
        words.extend(["-o".to_owned(), option.to_owned()]);
    }
    words.extend([
        "-o".to_owned(),
        format!("ConnectTimeout={CONNECT_TIMEOUT_S}"),
    ]);
    if let Some(port) = target.port {
        words.extend(["-p".to_owned(), port.to_string()]);
    }
    // A login shell of any kind understands this one word; what is to be done comes on standard input.
    words.extend(["--", &target.host, "sh"].map(str::to_owned));
    Ok(words)
}

/// From a started ssh to an agent that has greeted.
async fn open(streams: &mut ChildStreams, target: &SshTarget) -> io::Result<()> {
    let program = match &target.agent {
        Some(_) => None,
        None => Some(own_program().await?),
    };
    let script = Bootstrap {
        target,
        program: program.as_ref(),
    };
    // Fails where ssh has ended, which says why.
    let _ = streams.stdin.write_all(script.text().as_bytes()).await;
    let _ = streams.stdin.flush().await;
    loop {
        let line = streams
            .line()
            .await
            .map_err(|_| io::Error::other(explain::NO_SHELL.to_owned()))?;
        match Told::parse(&line) {
            None => {}
            Some(Told::Machine { system, processor }) if program.is_some() => {
                bootstrap::check_machine(&system, &processor).map_err(io::Error::other)?;
            }
            Some(Told::Machine { .. }) => {}
            Some(Told::Wanted) => {
                if let Some(program) = &program {
                    // What goes wrong on the other side is told by its next line.
                    let _ = send(streams, program).await;
                }
            }
            Some(Told::Failed(what)) => return Err(io::Error::other(what)),
            Some(Told::Found) => break,
        }
    }
    streams.greeting().await
}

/// This program as a file.
pub struct OwnProgram {
    digest: Key,
    bytes: u64,
}

/// Off the thread that others wait for: it is some megabytes to hash.
async fn own_program() -> io::Result<OwnProgram> {
    let ask = |op: FileOp| blocking::file(op).map_err(|error| io::Error::other(error.message));
    let look = move || {
        let path = || OWN_PROGRAM.into();
        match (
            ask(FileOp::Digest { path: path() })?,
            ask(FileOp::Facts { path: path() })?,
        ) {
            (FileReply::Digest(digest), FileReply::Facts(facts)) => Ok(OwnProgram {
                digest,
                bytes: facts.bytes,
            }),
            _ => Err(io::Error::other("this program cannot be read")),
        }
    };
    let looked = tokio::task::spawn_blocking(look).await;
    looked.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Sends the program, as many bytes as were told.
async fn send(streams: &mut ChildStreams, program: &OwnProgram) -> io::Result<()> {
    let mut offset = 0;
    while offset < program.bytes {
        let read = FileOp::ReadAt {
            path: OWN_PROGRAM.into(),
            offset,
            bytes_max: CHUNK_BYTES,
        };
        let chunk = match blocking::file(read) {
            Ok(FileReply::Bytes(chunk)) if !chunk.is_empty() => chunk,
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let sent = streams.stdin.write_all(&chunk);
        let sent = tokio::time::timeout(ANSWER_TIME_MAX, sent).await;
        sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        offset += chunk.len() as u64;
    }
    streams.stdin.flush().await
}
