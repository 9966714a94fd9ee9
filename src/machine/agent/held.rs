//! An agent that outlives its link: a process of its own, which links find by a name.

use std::io::{self, ErrorKind};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, SocketAddr};
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::resume::{Carried, Conversation};
use super::serve;
use crate::machine::host::local::{OWN_PROGRAM, blocking};
use crate::machine::host::{FileOp, FileReply, Host, HostError, HostErrorKind};

/// What a relay exits with where the agent that it was to find is not there any more.
pub const NOT_THERE: i32 = 69;
/// A link that says nothing for so long may be dead without anybody having noticed.
const LINK_SILENCE_MAX: Duration = Duration::from_secs(3600);
/// How long a living orchestrator may take to link again when it is doubted.
const DOUBT_TIME_MAX: Duration = Duration::from_secs(6);
/// How long an agent may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(30);
const START_PAUSE: Duration = Duration::from_millis(5);
/// The first byte of a connection: it carries a conversation, or doubts that anybody does.
const LINK: u8 = b'L';
const DOUBT: u8 = b'D';
/// The list of sockets on the machine.
const SOCKETS: &str = "/proc/net/unix";
const SOCKETS_BYTES_MAX: usize = 16 << 20;
/// How long a connection may take to say what it is for.
const FIRST_BYTE_TIME_MAX: Duration = Duration::from_secs(1);
const NAME_BYTES_MAX: usize = 64;

/// The name of an agent: whose it is, and which of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentName(String);

impl AgentName {
    /// Reads `OWNER.NUMBER`: letters and digits.
    pub fn parse(text: &str) -> Option<AgentName> {
        let is_word =
            |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric());
        let (owner, number) = text.split_once('.')?;
        let is_name = is_word(owner) && is_word(number) && text.len() <= NAME_BYTES_MAX;
        is_name.then(|| AgentName(text.to_owned()))
    }

    /// As it is parsed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What the sockets of all agents of this owner and user begin with.
    fn family(&self) -> String {
        let owner = self.0.split('.').next().unwrap_or_default();
        format!("{}{owner}.", prefix())
    }

    /// An abstract socket: it is gone when the process is.
    fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("{}{}", prefix(), self.0))
    }
}

fn prefix() -> String {
    format!("matrix-agent-{}-", rustix::process::geteuid().as_raw())
}

fn connect(address: &SocketAddr) -> io::Result<UnixStream> {
    let stream = net::UnixStream::connect_addr(address)?;
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    // Anybody may have taken the name.
    match is_ours(&stream) {
        true => Ok(stream),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

fn is_ours(stream: &UnixStream) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == uid)
}

/// Connects standard input and output with the agent of this name until either ends. Without `resumes` the agent is
/// started first, by these words. Ok(false): the agent is not there.
pub async fn relay(name: &AgentName, resumes: bool, words: &[String]) -> Result<bool, HostError> {
    let failed = |error: io::Error| HostError::io("cannot reach the agent of this session", &error);
    let address = name.address().map_err(failed)?;
    let mut stream = match resumes {
        true => match connect(&address) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(false),
            Err(error) => return Err(failed(error)),
        },
        false => start(&address, words).await?,
    };
    let (mut input, mut output) = serve::standard_streams()?;
    stream.write_all(&[LINK]).await.map_err(failed)?;
    serve::greet(&mut output).await?;
    let (mut from_agent, mut to_agent) = stream.split();
    // Either end is the end of the link; what it carries goes on over the next.
    tokio::select! {
        _ = tokio::io::copy(&mut from_agent, &mut output) => {}
        _ = async {
            let copied = tokio::io::copy(&mut input, &mut to_agent).await;
            let _ = to_agent.shutdown().await;
            // It closes when it has understood.
            if copied.is_ok() {
                tokio::time::sleep(DOUBT_TIME_MAX).await;
            }
        } => {}
    }
    Ok(true)
}

async fn start(address: &SocketAddr, words: &[String]) -> Result<UnixStream, HostError> {
    let failed = |error: io::Error| HostError::io("cannot start the agent of this session", &error);
    let mut child = Command::new(OWN_PROGRAM)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let began = Instant::now();
    loop {
        match connect(address) {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(failed(error)),
        }
        let ended = child.try_wait().map_err(failed)?.is_some();
        if ended || began.elapsed() > START_TIME_MAX {
            let mut why = String::new();
            if let Some(mut stderr) = child.stderr.take().filter(|_| ended) {
                // Without it, it is not said why.
                let _ = stderr.read_to_string(&mut why).await;
            }
            let message = format!("the agent of this session did not start: {}", why.trim());
            return Err(HostError::new(HostErrorKind::Other, message));
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

/// Serves a host under this name until the conversation is over, or there was no link for `silence`. Then it ends
/// what runs and gives back what it holds.
pub async fn hold(
    host: Rc<dyn Host>,
    name: &AgentName,
    silence: Duration,
) -> Result<(), HostError> {
    let failed = |error: io::Error| HostError::io("cannot hold an agent", &error);
    let listener = net::UnixListener::bind_addr(&name.address().map_err(failed)?);
    let listener = listener.and_then(|it| it.set_nonblocking(true).map(|()| it));
    let listener = listener.and_then(UnixListener::from_std).map_err(failed)?;
    // The link's end is no end of ours. Fails for the leader of a group.
    let _ = rustix::process::setsid();
    doubt_others(name);
    let (conversation, stream) = Conversation::new();
    let (input, output) = tokio::io::split(stream);
    let linking = carry_over(listener, conversation, silence);
    let serving = serve::on_stream(host, input, output);
    let ((), served) = tokio::join!(linking, serving);
    // An end in the middle of a message: who asked went away.
    let _ = served;
    Ok(())
}

/// Carries a conversation over whatever links come.
async fn carry_over(listener: UnixListener, mut conversation: Conversation, silence: Duration) {
    let (accepted, mut links) = mpsc::channel(1);
    let accepting = tokio::spawn(accept(listener, accepted));
    let mut link: Option<UnixStream> = None;
    let mut end = Instant::now() + silence;
    loop {
        let is_linked = link.is_some();
        let carried = async {
            match link.take() {
                Some(stream) => {
                    let (input, output) = stream.into_split();
                    conversation
                        .carry(input, output, || Some(LINK_SILENCE_MAX))
                        .await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            carried = carried => match carried {
                Carried::All => break,
                Carried::Cut(_) | Carried::Stranger => end = Instant::now() + silence,
            },
            // A new link takes the place of an old one, which may be dead without anybody having noticed.
            Some((stream, kind)) = links.recv() => match kind {
                LINK => link = Some(stream),
                _ => end = end.min(Instant::now() + DOUBT_TIME_MAX),
            },
            () = tokio::time::sleep_until(end), if !is_linked => break,
        }
    }
    accepting.abort();
    conversation.hang_up();
}

/// Hands over each connection of ours with its first byte.
async fn accept(listener: UnixListener, accepted: mpsc::Sender<(UnixStream, u8)>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        if !is_ours(&stream) {
            continue;
        }
        let kind = tokio::time::timeout(FIRST_BYTE_TIME_MAX, stream.read_u8()).await;
        if let Ok(Ok(kind)) = kind
            && accepted.send((stream, kind)).await.is_err()
        {
            return;
        }
    }
}

/// The other agents of the same owner may be left of an orchestrator that died without a word: each is told, and ends unless it is
/// linked again soon.
fn doubt_others(name: &AgentName) {
    let read = FileOp::Read {
        path: SOCKETS.into(),
        bytes_max: SOCKETS_BYTES_MAX,
    };
    let Ok(FileReply::Bytes(bytes)) = blocking::file(read) else {
        return;
    };
    let text = String::from_utf8_lossy(&bytes);
    let family = format!("@{}", name.family());
    let mut others: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next_back())
        .filter(|path| path.starts_with(&family))
        .filter_map(|path| path.strip_prefix('@')?.strip_prefix(&prefix()))
        .filter(|other| *other != name.0)
        .collect();
    others.sort_unstable();
    others.dedup();
    for other in others.into_iter().filter_map(AgentName::parse) {
        let doubt = other.address().and_then(|address| connect(&address));
        if let Ok(mut stream) = doubt {
            tokio::spawn(async move {
                // Fails where it is just ending.
                let _ = stream.write_all(&[DOUBT]).await;
            });
        }
    }
}
