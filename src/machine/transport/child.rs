//! A child process whose standard streams lead to an agent.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::machine::agent::protocol::{GREETING, PROTOCOL_VERSION};
use crate::machine::host::local::OwnChild;

/// What may be printed before an agent greets.
const BEFORE_GREETING_BYTES_MAX: usize = 64 << 10;
/// How long an agent may take to greet, or to say the next line before that.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// What is kept of its standard error, for a message.
const STDERR_BYTES_MAX: u64 = 4 << 10;
const STDERR_TIME_MAX: Duration = Duration::from_millis(200);
/// How long a child whose streams are closed may take to end by itself.
const END_TIME_MAX: Duration = Duration::from_millis(500);
/// What is said of a child that ends without a greeting.
pub const NO_AGENT: &str = "it is no `matrix agent`";

/// A child process with all three streams.
pub struct ChildStreams {
    child: Child,
    own: Option<OwnChild>,
    pub stdin: ChildStdin,
    pub stdout: BufReader<ChildStdout>,
    said: JoinHandle<String>,
    /// Bytes that were printed before the agent greeted.
    printed: usize,
}

/// How such a child ended.
#[derive(Default)]
pub struct ChildEnd {
    /// None for a signal, which may be ours.
    pub code: Option<i32>,
    /// The last lines of its standard error, in one.
    pub said: String,
}

impl ChildStreams {
    /// Needs a tokio runtime with I/O. Ctrl-C at a terminal does not reach the child.
    pub fn spawn(program: &str, arguments: &[String]) -> io::Result<ChildStreams> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let own = child.id().map(OwnChild::new);
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let stdin = child.stdin.take().ok_or_else(broken)?;
        let stdout = child.stdout.take().ok_or_else(broken)?;
        let stderr = child.stderr.take().ok_or_else(broken)?;
        Ok(ChildStreams {
            child,
            own,
            stdin,
            stdout: BufReader::new(stdout),
            said: tokio::spawn(last_of(stderr)),
            printed: 0,
        })
    }

    /// The next line, without its end. Err at the end of the stream, when nothing comes for a minute, or for
    /// too much before the greeting.
    pub async fn line(&mut self) -> io::Result<String> {
        let rest = BEFORE_GREETING_BYTES_MAX - self.printed;
        let mut line = Vec::new();
        let mut before = (&mut self.stdout).take(rest as u64);
        let read = before.read_until(b'\n', &mut line);
        let read = tokio::time::timeout(ANSWER_TIME_MAX, read).await;
        self.printed += read.map_err(|_| io::Error::other("it does not answer"))??;
        let text = String::from_utf8_lossy(&line);
        match text.strip_suffix('\n') {
            Some(text) => Ok(text.trim_end_matches('\r').to_owned()),
            None => Err(io::Error::other(NO_AGENT)),
        }
    }

    /// Reads up to the greeting. Err for another version.
    pub async fn greeting(&mut self) -> io::Result<()> {
        loop {
            // What is no greeting are a login shell's own words.
            let line = self.line().await?;
            let version = line.strip_prefix(GREETING).map(str::trim);
            match version.and_then(|version| version.parse::<u32>().ok()) {
                Some(PROTOCOL_VERSION) => return Ok(()),
                Some(version) => {
                    return Err(io::Error::other(format!(
                        "it speaks version {version} of the protocol, and this `matrix` version {PROTOCOL_VERSION}: \
                         use the same `matrix` on both sides"
                    )));
                }
                None => {}
            }
        }
    }

    /// Its streams, and what waits for its end.
    pub fn split(self) -> (ChildStdin, BufReader<ChildStdout>, ChildEnding) {
        let ending = ChildEnding {
            child: self.child,
            own: self.own,
            said: self.said,
        };
        (self.stdin, self.stdout, ending)
    }
}

/// A child that is about to end.
pub struct ChildEnding {
    child: Child,
    own: Option<OwnChild>,
    said: JoinHandle<String>,
}

impl ChildEnding {
    /// Waits for its end; `kill` is for one that does not understand us, and waits for other words.
    pub async fn wait(mut self, kill: bool) -> ChildEnd {
        if kill
            && let ends = tokio::time::timeout(END_TIME_MAX, self.child.wait()).await
            && ends.is_err()
        {
            // Fails if it has ended.
            let _ = self.child.start_kill();
        }
        let status = self.child.wait().await;
        drop(self.own);
        // What it has started may hold the stream open.
        let said = tokio::time::timeout(STDERR_TIME_MAX, self.said).await;
        ChildEnd {
            code: status.ok().and_then(|status| status.code()),
            said: said.map_or_else(|_| String::new(), Result::unwrap_or_default),
        }
    }
}

/// The last lines of a stream, in one.
async fn last_of(mut stream: impl AsyncRead + Unpin) -> String {
    let mut kept: Vec<u8> = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(bytes) = stream.read(&mut chunk).await
        && bytes > 0
    {
        kept.extend(&chunk[..bytes]);
        let surplus = kept.len().saturating_sub(STDERR_BYTES_MAX as usize);
        kept.drain(..surplus);
    }
    let text = String::from_utf8_lossy(&kept);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}
