//! An agent that is a child process: `matrix agent`, spoken to over its standard input and output.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::child::ChildStreams;
use crate::machine::agent::client::{AgentHost, Calls, Gone};
use crate::machine::agent::frames::{read_messages, write_messages};
use crate::machine::host::HostError;

/// Starts an agent by these words: a program and its arguments. Whether it serves is told by the first call. Needs a tokio
/// runtime with I/O.
pub fn start(name: &str, words: &[String]) -> Result<AgentHost, HostError> {
    let [program, arguments @ ..] = words else {
        return Err(HostError::io(
            format!("cannot start the agent of machine `{name}`"),
            &io::ErrorKind::InvalidInput.into(),
        ));
    };
    let mut streams = ChildStreams::spawn(program, arguments).map_err(|error| {
        HostError::io(
            format!("cannot start the agent of machine `{name}`, `{program}`"),
            &error,
        )
    })?;
    let calls = Arc::new(Calls::default());
    let (to_agent, requests) = mpsc::unbounded_channel();
    let gone = Gone::new(name, &calls);
    let replies = calls.clone();
    tokio::spawn(async move {
        let greeted = streams.greeting().await;
        let (stdin, stdout, ending) = streams.split();
        let mut why = Vec::new();
        let read = match greeted {
            Ok(()) => {
                tokio::spawn(write_messages(stdin, requests));
                let on = |id, message| {
                    replies.on(id, message);
                    true
                };
                read_messages(stdout, on).await
            }
            Err(error) => Err(error),
        };
        why.extend(read.as_ref().err().map(ToString::to_string));
        let end = ending.wait(read.is_err()).await;
        let code = end.code.filter(|code| *code != 0);
        why.extend(code.map(|code| format!("exit status {code}")));
        why.push(end.said);
        why.retain(|it| !it.is_empty());
        gone.tell(&why.join("; "));
    });
    Ok(AgentHost::new(name, to_agent, calls, None))
}
