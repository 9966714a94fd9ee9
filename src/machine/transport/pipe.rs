//! An agent that is a child process: `matrix agent`, spoken to over its standard input and output.

use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::machine::agent::client::{AgentHost, Calls, Gone};
use crate::machine::agent::frames::{read_messages, write_messages};
use crate::machine::agent::protocol::{GREETING, PROTOCOL_VERSION};
use crate::machine::host::HostError;
use crate::machine::host::local::OwnChild;

/// What may be printed before an agent greets.
const BEFORE_GREETING_BYTES_MAX: u64 = 64 << 10;
/// How long an agent may take to greet.
const GREETING_TIME_MAX: Duration = Duration::from_secs(60);
/// What is kept of its standard error, for a message.
const STDERR_BYTES_MAX: u64 = 4 << 10;

const STDERR_TIME_MAX: Duration = Duration::from_millis(200);

/// Starts an agent by these words: a program and its arguments. Whether it serves is told by the first call. Needs a tokio
/// runtime with I/O.
pub fn start(name: &str, words: &[String]) -> Result<AgentHost, HostError> {
    let [program, arguments @ ..] = words else {
        return Err(HostError::io(
            format!("cannot start the agent of machine `{name}`"),
            &io::ErrorKind::InvalidInput.into(),
        ));
    };
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let failed = |error: io::Error| {
        HostError::io(
            format!("cannot start the agent of machine `{name}`, `{program}`"),
            &error,
        )
    };
    let mut child = child.map_err(failed)?;
    let own = child.id().map(OwnChild::new);
    let broken = || failed(io::ErrorKind::BrokenPipe.into());
    let stdin = child.stdin.take().ok_or_else(broken)?;
    let stdout = child.stdout.take().ok_or_else(broken)?;
    let stderr = child.stderr.take().ok_or_else(broken)?;

    let calls = Arc::new(Calls::default());
    let (to_agent, requests) = mpsc::unbounded_channel();
    let gone = Gone::new(name, &calls);
    let replies = calls.clone();
    tokio::spawn(write_messages(stdin, requests));
    tokio::spawn(async move {
        let said = tokio::spawn(last_of(stderr));
        let mut stdout = BufReader::new(stdout);
        let read = async {
            tokio::time::timeout(GREETING_TIME_MAX, greeting(&mut stdout))
                .await
                .map_err(|_| io::Error::other("it does not answer"))??;
            let on = |id, message| {
                replies.on(id, message);
                true
            };
            read_messages(stdout, on).await
        };
        let mut why = Vec::new();
        if let Err(error) = read.await {
            why.push(error.to_string());
            // It may speak another language: then it waits for words of that.
            let _ = child.start_kill();
        }
        let status = child.wait().await;
        drop(own);
        // What it has started may hold the stream open.
        let said = tokio::time::timeout(STDERR_TIME_MAX, said).await;
        let said = said.map_or_else(|_| String::new(), Result::unwrap_or_default);
        // A signal may be ours.
        let code = status.ok().and_then(|status| status.code());
        why.extend(
            code.filter(|it| *it != 0)
                .map(|it| format!("exit status {it}")),
        );
        why.push(said);
        why.retain(|it| !it.is_empty());
        gone.tell(&why.join("; "));
    });
    Ok(AgentHost::new(name, to_agent, calls, None))
}

/// Reads up to the greeting. Err for another version.
async fn greeting(stdout: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<()> {
    let mut before = stdout.take(BEFORE_GREETING_BYTES_MAX);
    let mut line = Vec::new();
    loop {
        line.clear();
        before.read_until(b'\n', &mut line).await?;
        let text = String::from_utf8_lossy(&line);
        let Some(text) = text.strip_suffix('\n') else {
            return Err(io::Error::other("it is no `matrix agent`"));
        };
        let version = text.strip_prefix(GREETING).map(str::trim);
        match version.map(str::parse::<u32>) {
            Some(Ok(PROTOCOL_VERSION)) => return Ok(()),
            Some(Ok(version)) => {
                return Err(io::Error::other(format!(
                    "it speaks version {version} of the protocol, and this `matrix` version {PROTOCOL_VERSION}: \
                     use the same `matrix` on both sides"
                )));
            }
            // A login shell's own words.
            Some(Err(_)) | None => {}
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
