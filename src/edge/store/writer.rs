//! Owns the thread that writes results: those that come while it is busy share one sync.
//! Does not know who waits for them.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Record, Recorded, Store, StoreError, StoreErrorKind};

/// Results that one sync makes durable.
pub const RESULTS_PER_SYNC_MAX: usize = 512;
/// Results that may wait to be written; whoever brings one more waits.
const WAITING_MAX: usize = 2 * RESULTS_PER_SYNC_MAX;
/// How long a result for which nobody waits may wait for others to share its sync with.
const GATHER: Duration = Duration::from_millis(4);

/// What became of a result.
pub type Written = Result<Recorded, StoreError>;

struct Request {
    record: Record,
    is_awaited: bool,
    tell: Box<dyn FnOnce(Written) + Send>,
}

/// Writes in the order in which it is asked. Dropping it writes what is left, and waits for that.
pub struct Writer {
    /// For errors.
    file: PathBuf,
    sender: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(mut store: Store) -> io::Result<Writer> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let file = store.file.clone();
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || while write_some(&mut store, &receiver) {})?;
        Ok(Writer {
            file,
            sender: Some(sender),
            thread: Some(thread),
        })
    }

    /// Writes a result soon, at once where somebody waits for it. `tell` is called, on another thread,
    /// when it is on the disk or cannot be written; never if the process ends before.
    pub fn write(
        &self,
        record: Record,
        is_awaited: bool,
        tell: impl FnOnce(Written) + Send + 'static,
    ) {
        let request = Request {
            record,
            is_awaited,
            tell: Box::new(tell),
        };
        if let Some(sender) = &self.sender
            && let Err(SendError(request)) = sender.send(request)
        {
            let detail = "the thread that writes has ended";
            let error = StoreError::new(&self.file, StoreErrorKind::Io, detail);
            (request.tell)(Err(error));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; nobody was told that anything is durable.
            let _ = thread.join();
        }
    }
}

/// Writes what has come by now with one sync; false when there will be no more.
fn write_some(store: &mut Store, receiver: &Receiver<Request>) -> bool {
    let Ok(first) = receiver.recv() else {
        return false;
    };
    let until = Instant::now() + GATHER;
    let mut is_awaited = first.is_awaited;
    let (mut records, mut tells) = (vec![first.record], vec![first.tell]);
    while records.len() < RESULTS_PER_SYNC_MAX {
        let wait = match is_awaited {
            true => Duration::ZERO,
            false => until.saturating_duration_since(Instant::now()),
        };
        match receiver.recv_timeout(wait) {
            Ok(request) => {
                is_awaited |= request.is_awaited;
                records.push(request.record);
                tells.push(request.tell);
            }
            // When nobody can send any more there is nothing left: what was sent comes first.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    match store.record_all(&records) {
        Ok(recorded) => tells
            .into_iter()
            .zip(recorded)
            .for_each(|(tell, recorded)| tell(Ok(recorded))),
        Err(error) => tells.into_iter().for_each(|tell| tell(Err(error.clone()))),
    }
    true
}
