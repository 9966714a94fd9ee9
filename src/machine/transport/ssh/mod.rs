//! An agent on another machine, reached by the user's own `ssh`: this program is copied there once, and serves.

mod bootstrap;
mod explain;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};

use self::bootstrap::{Bootstrap, ShellSays};
use self::explain::LinkEnd;
use super::child::{ANSWER_TIME_MAX, ChildEnd, ChildEnding, ChildStreams};
use crate::base::key::Key;
use crate::config::ssh::SshTarget;
use crate::machine::agent::client::{AgentHost, Calls, Gone};
use crate::machine::agent::frames::{read_messages, write_messages};
use crate::machine::agent::held;
use crate::machine::agent::protocol::{CallId, ToAgent};
use crate::machine::agent::resume::{Carried, Conversation};
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

/// How long a lost link is tried again, and how long an agent waits for that.
const SILENCE_MAX: Duration = Duration::from_secs(300);
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long the end may take, until the other side is left to find out by itself.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// Starts an agent on another machine. Whether it serves is told by the first call. `owner` stands for whoever asks, across
/// sessions: what is left of their last one there makes way.
pub fn start(name: &str, target: &SshTarget, owner: Key) -> Result<AgentHost, HostError> {
    let refused = |error| {
        let what = format!("cannot start the thread that links to machine `{name}`");
        HostError::io(what, &error)
    };
    let words = words(target)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    let calls = Arc::new(Calls::default());
    let (to_agent, requests) = mpsc::unbounded_channel();
    let gone = Gone::new(name, &calls);
    let time = jiff::Timestamp::now().as_nanosecond();
    let number = Key::of(format!("{} {time} {name}", std::process::id()).as_bytes());
    let link = Link {
        name: name.to_owned(),
        target: target.clone(),
        words,
        agent: format!("{}.{}", owner.short(), number.short()),
        calls: calls.clone(),
    };
    let serving = move || {
        runtime.block_on(link.serve(requests, &gone));
        runtime.shutdown_timeout(Duration::ZERO);
    };
    let thread = thread::Builder::new().name(format!("link {name}"));
    let thread = thread.spawn(serving).map_err(refused)?;
    Ok(AgentHost::new(name, to_agent, calls, Some(thread)))
}

/// The way to one agent, over as many connections as it takes.
struct Link {
    name: String,
    target: SshTarget,
    /// That start ssh.
    words: Vec<String>,
    /// The name under which it can be found again.
    agent: String,
    calls: Arc<Calls>,
}

impl Link {
    /// Carries requests there and replies back until nobody asks any more, or the agent is lost.
    async fn serve(&self, requests: mpsc::UnboundedReceiver<(CallId, ToAgent)>, gone: &Gone) {
        let (mut conversation, stream) = Conversation::new();
        let (input, output) = tokio::io::split(stream);
        let (ended, mut asked_all) = watch::channel(false);
        tokio::spawn(async move {
            // Fails where the conversation is given up.
            let _ = write_messages(output, requests).await;
            let _ = ended.send(true);
        });
        let calls = self.calls.clone();
        tokio::spawn(read_messages(input, move |id, message| {
            calls.on(id, message);
            true
        }));
        let ending = async {
            // Err: it has ended.
            let _ = asked_all.wait_for(|it| *it).await;
            tokio::time::sleep(END_TIME_MAX).await;
        };
        tokio::select! {
            why = self.carry(&mut conversation) => if let Some(why) = why {
                gone.because(why);
            },
            () = ending => {}
        }
    }

    /// None when all is said; else why it cannot go on.
    async fn carry(&self, conversation: &mut Conversation) -> Option<String> {
        let name = &self.name;
        let mut lost: Option<(Instant, String)> = None;
        loop {
            let began = Instant::now();
            let opened = self.open(lost.is_some()).await;
            let why = match (opened, &lost) {
                (Ok((input, output, ending)), _) => {
                    let calls = &self.calls;
                    let carried = conversation.carry(output, input, || calls.patience());
                    let carried = carried.await;
                    let end = ending.wait(true).await;
                    match carried {
                        Carried::All => return None,
                        Carried::Cut(why) => {
                            lost = None;
                            let error = Some(why);
                            LinkEnd { error, end }.why(&self.target)
                        }
                        Carried::Stranger => {
                            return Some(format!(
                                "the agent of machine `{name}` is gone: another answers"
                            ));
                        }
                    }
                }
                (Err(end), None) => {
                    return Some(format!(
                        "cannot reach machine `{name}`: {}",
                        end.why(&self.target)
                    ));
                }
                (Err(end), Some(_)) if end.end.code == Some(held::NOT_THERE) => {
                    return Some(format!(
                        "the agent of machine `{name}` is gone: it was killed, or the machine was started anew"
                    ));
                }
                (Err(end), Some(_)) => end.why(&self.target),
            };
            let (since, why) = lost.get_or_insert((Instant::now(), why));
            if since.elapsed() > SILENCE_MAX {
                return Some(format!("the link to machine `{name}` is lost: {why}"));
            }
            tokio::time::sleep(RETRY_PAUSE.saturating_sub(began.elapsed())).await;
        }
    }

    /// A connection to the agent, which is started unless it is there already.
    async fn open(
        &self,
        resumes: bool,
    ) -> Result<(ChildStdin, BufReader<ChildStdout>, ChildEnding), LinkEnd> {
        let not_started = |error: io::Error| LinkEnd {
            error: Some(format!("cannot start `{}`: {error}", self.words[0])),
            end: ChildEnd::default(),
        };
        let streams = ChildStreams::spawn(&self.words[0], &self.words[1..]);
        let mut streams = streams.map_err(not_started)?;
        let arguments = format!(
            "--name {} --silence {}{}",
            self.agent,
            SILENCE_MAX.as_secs(),
            if resumes { " --resume" } else { "" }
        );
        let opened = open(&mut streams, &self.target, &arguments).await;
        let (stdin, stdout, ending) = streams.split();
        match opened {
            Ok(()) => Ok((stdin, stdout, ending)),
            Err(error) => {
                // Nobody waits for anything more of ours.
                drop(stdin);
                Err(LinkEnd {
                    error: Some(error.to_string()),
                    end: ending.wait(true).await,
                })
            }
        }
    }
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
async fn open(streams: &mut ChildStreams, target: &SshTarget, arguments: &str) -> io::Result<()> {
    let program = match &target.agent {
        Some(_) => None,
        None => Some(own_program().await?),
    };
    let script = Bootstrap {
        target,
        program: program.as_ref(),
        arguments,
    };
    // Fails where ssh has ended, which says why.
    let _ = streams.stdin.write_all(script.text().as_bytes()).await;
    let _ = streams.stdin.flush().await;
    loop {
        let line = streams
            .line()
            .await
            .map_err(|_| io::Error::other(explain::NO_SHELL.to_owned()))?;
        match ShellSays::parse(&line) {
            None => {}
            Some(ShellSays::Machine { system, processor }) if program.is_some() => {
                bootstrap::check_machine(&system, &processor).map_err(io::Error::other)?;
            }
            Some(ShellSays::Machine { .. }) => {}
            Some(ShellSays::Wanted) => {
                if let Some(program) = &program {
                    // What goes wrong on the other side is told by its next line.
                    let _ = send(streams, program).await;
                }
            }
            Some(ShellSays::Failed(what)) => return Err(io::Error::other(what)),
            Some(ShellSays::Found) => break,
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
