//! Accesses, gathered into runs.
//!
//! Fetches and data accesses have an open run each. The position of a run is that of its first
//! access, so a closed run waits while an older run is open. If [`QUEUE`] runs wait, all are
//! closed.

use crate::trace::{AccessOrigin, AccessRun, AccessStream, PageNo};

/// Maximum number of runs that wait.
///
/// Without a limit, a loop within one code page would hold back all runs of its data.
const QUEUE: usize = 4096;
/// A page number that no access has.
const NONE: u64 = u64::MAX;

/// Collects the runs of the current thread.
#[derive(Debug)]
pub(super) struct Runs {
    queue: Vec<AccessRun>,
    /// The captured page of each stream's open run, and the index of the run in the queue.
    open: [(u64, usize); 2],
}

impl Runs {
    pub(super) fn new() -> Self {
        Self { queue: Vec::new(), open: [(NONE, 0); 2] }
    }

    /// Adds an access to the open run of its stream; returns `false` if that is of another page.
    pub(super) fn extend(&mut self, stream: AccessStream, page: u64, reads: u32, writes: u32) -> bool {
        let (open, at) = self.open[stream as usize];
        if open != page {
            return false;
        }
        let run = &mut self.queue[at];
        match (run.reads.checked_add(reads), run.writes.checked_add(writes)) {
            (Some(reads), Some(writes)) => {
                (run.reads, run.writes) = (reads, writes);
                true
            }
            // The counter is full; the caller starts another run.
            (None, _) | (_, None) => false,
        }
    }

    /// Starts a run of the page `captured`, which is `page` in the trace.
    pub(super) fn start(&mut self, stream: AccessStream, captured: u64, page: PageNo, reads: u32, writes: u32) {
        self.open[stream as usize] = (captured, self.queue.len());
        self.queue.push(AccessRun { page, reads, writes, stream, origin: AccessOrigin::User, write_first: reads == 0 });
    }

    /// Starts a run that the log has as a whole.
    pub(super) fn start_logged(&mut self, captured: u64, run: AccessRun) {
        self.open[run.stream as usize] = (captured, self.queue.len());
        self.queue.push(run);
    }

    /// Whether the maximum number of runs waits.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= QUEUE
    }

    /// Closes all runs and removes them, in order.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, AccessRun> {
        self.open = [(NONE, 0); 2];
        self.queue.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(runs: &mut Runs, stream: AccessStream, page: u64, reads: u32, writes: u32) {
        if !runs.extend(stream, page, reads, writes) {
            runs.start(stream, page, PageNo(page + 100), reads, writes);
        }
    }

    #[test]
    fn runs_are_in_the_order_of_their_first_accesses() {
        let mut runs = Runs::new();
        for (stream, page, reads, writes) in [
            (AccessStream::Fetch, 1, 1, 0),
            (AccessStream::Data, 2, 0, 1),
            (AccessStream::Fetch, 1, 1, 0),
            (AccessStream::Data, 3, 1, 1),
            (AccessStream::Data, 3, 1, 0),
            (AccessStream::Fetch, 1, 1, 0),
            (AccessStream::Data, 2, 1, 0),
        ] {
            touch(&mut runs, stream, page, reads, writes);
        }
        let seen: Vec<_> =
            runs.take().map(|run| (run.stream, run.page.0, run.reads, run.writes, run.write_first)).collect();
        assert_eq!(
            seen,
            [
                (AccessStream::Fetch, 101, 3, 0, false),
                (AccessStream::Data, 102, 0, 1, true),
                (AccessStream::Data, 103, 2, 1, false),
                (AccessStream::Data, 102, 1, 0, false),
            ]
        );
        assert!(!runs.extend(AccessStream::Fetch, 1, 1, 0), "a run is closed when it is taken");
    }

    #[test]
    fn counts_do_not_wrap() {
        let mut runs = Runs::new();
        runs.start(AccessStream::Data, 1, PageNo(1), u32::MAX, 0);
        assert!(!runs.extend(AccessStream::Data, 1, 1, 0));
        assert!(runs.extend(AccessStream::Data, 1, 0, 1));
    }
}
