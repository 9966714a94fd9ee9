//! The thread that writes results: those that come while it is busy share one sync.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Record, Recorded, Store, StoreError, StoreErrorKind};

/// Results that one sync makes durable.
pub const RESULTS_PER_SYNC_MAX: usize = 512;
/// Results that may wait to be written; whoever brings one more waits.
const WAITING_MAX: usize = 2 * RESULTS_PER_SYNC_MAX;
/// Bytes of logs and of monitors' outputs that may wait; whoever brings more waits, but for a single one.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How long a result for which nobody waits may wait for others to share its sync with.
const GATHER: Duration = Duration::from_millis(4);

/// What became of a result.
pub type Written = Result<Recorded, StoreError>;

struct Request {
    record: Record,
    is_awaited: bool,
    tell: Tell,
}

/// Somebody who is to be told, in any case: also where the thread that writes has ended or panics.
struct Tell {
    tell: Option<Box<dyn FnOnce(Written) + Send>>,
    bytes: usize,
    room: Arc<Room>,
}

impl Tell {
    fn tell(mut self, written: Written) {
        if let Some(tell) = self.tell.take() {
            tell(written);
        }
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
        if let Some(tell) = self.tell.take() {
            let detail = "the thread that writes has ended";
            let kind = StoreErrorKind::Io;
            tell(Err(StoreError::new(&self.room.file, kind, detail)));
        }
    }
}

/// The bytes that wait.
struct Room {
    /// For errors.
    file: PathBuf,
    bytes: Mutex<usize>,
    freed: Condvar,
}

impl Room {
    fn take(&self, bytes: usize) {
        let used = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |used: &mut usize| *used > 0 && *used + bytes > WAITING_BYTES_MAX;
        let used = self.freed.wait_while(used, is_full);
        *used.unwrap_or_else(PoisonError::into_inner) += bytes;
    }

    fn give_back(&self, bytes: usize) {
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) -= bytes;
        self.freed.notify_all();
    }
}

/// Writes in the order in which it is asked. Dropping it writes what is left, and waits for that.
pub struct Writer {
    room: Arc<Room>,
    sender: Option<SyncSender<Request>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(mut store: Store) -> io::Result<Writer> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let room = Arc::new(Room {
            file: store.file.clone(),
            bytes: Mutex::new(0),
            freed: Condvar::new(),
        });
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || while write_some(&mut store, &receiver) {})?;
        Ok(Writer {
            room,
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
        let bytes = record.bytes();
        self.room.take(bytes);
        let tell = Tell {
            tell: Some(Box::new(tell)),
            bytes,
            room: self.room.clone(),
        };
        let request = Request {
            record,
            is_awaited,
            tell,
        };
        if let Some(sender) = &self.sender {
            // Where the thread has ended, dropping the request tells so.
            let _ = sender.send(request);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; those who waited were told.
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
            .for_each(|(tell, recorded)| tell.tell(Ok(recorded))),
        Err(error) => {
            let error = match error.kind {
                StoreErrorKind::Lost => store.rescue(error, &records),
                _ => error,
            };
            tells
                .into_iter()
                .for_each(|tell| tell.tell(Err(error.clone())));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_wait_for_room() {
        let room = Room {
            file: PathBuf::new(),
            bytes: Mutex::new(0),
            freed: Condvar::new(),
        };
        // A single one has room, however large it is.
        room.take(2 * WAITING_BYTES_MAX);
        let (sender, taken) = sync_channel(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                room.take(1);
                sender.send(()).unwrap();
            });
            assert!(taken.recv_timeout(Duration::from_millis(50)).is_err());
            room.give_back(2 * WAITING_BYTES_MAX);
            taken.recv().unwrap();
        });
        assert_eq!(*room.bytes.lock().unwrap(), 1);
    }
}
