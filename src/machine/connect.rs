//! The ways to a machine: a thread of this process, or another process.

use std::path::PathBuf;
use std::rc::Rc;

use super::agent::thread;
use super::host::{Host, HostError, HostErrorKind};
use super::transport::{pipe, ssh};
use crate::base::key::Key;
use crate::config::ssh::SshTarget;

/// Names a program that serves this machine instead of a thread of ours: words such as
/// `/usr/bin/matrix agent`, split as a shell splits them.
pub const AGENT_VARIABLE: &str = "MATRIX_AGENT";

/// The machine that `matrix` runs on, served by a thread, or by the program that [`AGENT_VARIABLE`] names.
/// `lock` is another file to lock than the machine's. Needs a tokio runtime with I/O.
pub fn local(name: &str, lock: Option<PathBuf>) -> Result<Rc<dyn Host>, HostError> {
    let Ok(words) = std::env::var(AGENT_VARIABLE) else {
        return Ok(Rc::new(thread::start(name, lock)?));
    };
    match shlex::split(&words).filter(|words| !words.is_empty()) {
        Some(words) => Ok(Rc::new(pipe::start(name, &words)?)),
        None => Err(HostError::new(
            HostErrorKind::Other,
            format!(
                "{AGENT_VARIABLE} is no command: `{words}`; give words such as `/usr/bin/matrix agent`"
            ),
        )),
    }
}

/// A machine that is reached over ssh. Whether it answers is told by the first call. `owner` is who asks, across sessions.
pub fn ssh(name: &str, target: &SshTarget, owner: Key) -> Result<Rc<dyn Host>, HostError> {
    Ok(Rc::new(ssh::start(name, target, owner)?))
}
