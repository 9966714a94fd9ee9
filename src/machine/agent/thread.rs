//! An agent on a thread of this process: messages are handed over as they are.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::mpsc;

use super::client::{AgentHost, Calls, Gone};
use super::serve::serve;
use crate::machine::host::HostError;
use crate::machine::host::local::LocalHost;

/// How long blocking work, such as the hash of a large file, may go on after the end.
const END_TIME_MAX: Duration = Duration::from_millis(100);

/// Starts the thread that serves this machine. `lock` is another file to lock than the machine's.
pub fn start(name: &str, lock: Option<PathBuf>) -> Result<AgentHost, HostError> {
    let mut host = LocalHost::new(name)?;
    if let Some(lock) = lock {
        host = host.with_lock(lock);
    }
    let refused = |error| {
        HostError::io(
            format!("cannot start the thread that serves machine `{name}`"),
            &error,
        )
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(refused)?;
    let calls = Arc::new(Calls::default());
    let (to_agent, requests) = mpsc::unbounded_channel();
    let gone = Gone::new(name, &calls);
    let replies = calls.clone();
    let serving = move || {
        let _gone = gone;
        let host: Rc<LocalHost> = Rc::new(host);
        let sent = move |id, message| replies.on(id, message);
        runtime.block_on(serve(host, requests, sent));
        runtime.shutdown_timeout(END_TIME_MAX);
    };
    let thread = Builder::new().name(format!("agent {name}"));
    let thread = thread.spawn(serving).map_err(refused)?;
    Ok(AgentHost::new(name, to_agent, calls, Some(thread)))
}
