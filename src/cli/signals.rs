//! Ctrl-C, SIGTERM and hang-ups end the git that runs, and a session or the process; Ctrl-Z spoils what is measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::{Signal, getpid, kill_process};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Exit;
use crate::machine::host::HostError;
use crate::machine::host::local::{blocking, pauses};
use crate::run::session::Signals;

/// The session that is told of each request to stop; None while nothing is measured.
static LISTENER: Mutex<Option<mpsc::UnboundedSender<()>>> = Mutex::new(None);

/// The process is being ended.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Waits for the end where the process is being ended: what was stopped has nothing to say.
pub fn end_if_stopped() {
    while IS_ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Tells a session of each Ctrl-C, SIGTERM and hang-up from now on. With the receiver dropped they end the process as they
/// would have.
pub fn signals() -> Result<Signals, HostError> {
    catch_signals()?;
    let (sender, receiver) = mpsc::unbounded_channel();
    *LISTENER.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    Ok(receiver)
}

/// Catches Ctrl-C, SIGTERM and hang-ups, on a thread of its own: whoever computes does not look at messages. Each ends the
/// git that runs at the moment, and the process where no session listens. Ctrl-Z stops the process as ever, and is noted.
pub fn catch_signals() -> Result<(), HostError> {
    static IS_CAUGHT: AtomicBool = AtomicBool::new(false);
    if IS_CAUGHT.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let refused = |error: std::io::Error| HostError::io("cannot catch signals", &error);
    let runtime = Builder::new_current_thread().enable_io().build();
    let runtime = runtime.map_err(refused)?;
    let of = |kind| {
        let _in_runtime = runtime.enter();
        signal(kind).map_err(refused)
    };
    let mut interrupt = of(SignalKind::interrupt())?;
    let mut terminate = of(SignalKind::terminate())?;
    let mut hang_up = of(SignalKind::hangup())?;
    let mut stop = of(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut go_on = of(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    let forward = async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
                _ = stop.recv() => {
                    // Noted before it happens: whatever ends meanwhile is seen too late.
                    pauses::note();
                    // Fails never: it is ourselves.
                    let _ = kill_process(getpid(), Signal::STOP);
                    continue;
                }
                _ = go_on.recv() => {
                    pauses::note();
                    continue;
                }
            }
            let listener = LISTENER.lock().unwrap_or_else(PoisonError::into_inner);
            let is_heard = (listener.as_ref()).is_some_and(|session| session.send(()).is_ok());
            drop(listener);
            IS_ENDING.fetch_or(!is_heard, Ordering::SeqCst);
            blocking::interrupt();
            if !is_heard {
                std::process::exit(Exit::Interrupted as i32);
            }
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    let started = thread.spawn(move || runtime.block_on(forward));
    started.map(drop).map_err(refused)
}
