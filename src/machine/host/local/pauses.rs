//! How often this process was stopped, as by Ctrl-Z: what it waited for meanwhile went on, unseen.

use std::sync::atomic::{AtomicU64, Ordering};

static PAUSES: AtomicU64 = AtomicU64::new(0);

/// This process is about to be stopped, or has just been continued.
pub fn note() {
    PAUSES.fetch_add(1, Ordering::SeqCst);
}

/// Changes with each of them.
pub fn count() -> u64 {
    PAUSES.load(Ordering::SeqCst)
}
