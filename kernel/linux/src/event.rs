//! Event counters (`eventfd`).
//!
//! A reader of a counter of 0 and a writer that would overflow it sleep as those of pipes do.

use crate::edges::Edges;
use crate::errno::Errno;
use spin::Mutex;

/// The largest value of a counter.
const MAX: u64 = u64::MAX - 1;

/// A counter (`struct eventfd_ctx`).
pub(crate) struct EventCounter {
    count: Mutex<u64>,
    /// Whether a read takes one instead of all (`EFD_SEMAPHORE`).
    is_semaphore: bool,
    edges: Edges,
}

impl EventCounter {
    pub(crate) fn new(count: u64, is_semaphore: bool) -> Self {
        Self { count: Mutex::new(count), is_semaphore, edges: Edges::default() }
    }

    /// Its wake-ups.
    pub(crate) fn edges(&self) -> &Edges {
        &self.edges
    }

    /// Takes the value of a read; `None` if the reader must wait.
    pub(crate) fn take(&self) -> Option<u64> {
        let mut count = self.count.lock();
        let taken = if self.is_semaphore { 1.min(*count) } else { *count };
        *count -= taken;
        if taken > 0 {
            self.edges.note_output();
        }
        (taken > 0).then_some(taken)
    }

    /// Adds a value; `false` if the writer must wait.
    ///
    /// # Errors
    /// `EINVAL` for a value that is too large for any counter.
    pub(crate) fn add(&self, value: u64) -> Result<bool, Errno> {
        if value > MAX {
            return Err(Errno::EINVAL);
        }
        let mut count = self.count.lock();
        let fits = MAX - *count >= value;
        if fits {
            *count += value;
            self.edges.note_input();
        }
        Ok(fits)
    }

    /// Whether a read, and a write of 1, would not wait.
    pub(crate) fn poll(&self) -> (bool, bool) {
        let count = *self.count.lock();
        (count > 0, count < MAX)
    }
}
