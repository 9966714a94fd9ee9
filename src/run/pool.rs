//! Futures that go on side by side, of which the first to end is taken out.

use std::future::Future;
use std::task::Poll;

use crate::machine::host::Wait;

/// Meant for a few of them: each is polled when any may go on.
pub struct Pool<'a, T>(Vec<Wait<'a, T>>);

impl<T> Default for Pool<'_, T> {
    fn default() -> Self {
        Pool(Vec::new())
    }
}

impl<'a, T> Pool<'a, T> {
    pub fn push(&mut self, future: impl Future<Output = T> + 'a) {
        self.0.push(Box::pin(future));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never returns while there is none.
    pub async fn next(&mut self) -> T {
        std::future::poll_fn(|context| {
            for index in 0..self.0.len() {
                if let Poll::Ready(done) = self.0[index].as_mut().poll(context) {
                    drop(self.0.swap_remove(index));
                    return Poll::Ready(done);
                }
            }
            Poll::Pending
        })
        .await
    }
}
