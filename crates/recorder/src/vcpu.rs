//! The runs of a thread of the program.
//!
//! Fetches and data accesses have an open run each, in a queue in the order of their first
//! accesses. A flush closes both and writes the queue to the log.

use crate::log::{DATA, FLAG_BITS, LoggedRun, WRITE_FIRST};

/// Maximum number of runs in the queue.
const QUEUE: usize = 4096;
/// A page number that no access has.
const NONE: u64 = u64::MAX;
/// Index of the fetches.
pub(crate) const FETCH: usize = 0;
/// Index of the loads and stores.
pub(crate) const ACCESS: usize = 1;

/// Whether a thread holds the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Not yet.
    Missing,
    /// Yes.
    Held,
    /// No; it runs without, because it could not wait any longer.
    Without,
}

/// A CPU of QEMU, which runs one thread of the program.
pub(crate) struct Vcpu {
    pub(crate) slot: u32,
    pub(crate) turn: Turn,
    /// Number of blocks executed in the present turn.
    pub(crate) blocks: u32,
    /// The page of each stream's open run, and the index of the run in the queue.
    open: [(u64, usize); 2],
    len: usize,
    queue: [LoggedRun; QUEUE],
}

impl Vcpu {
    pub(crate) fn new(slot: u32) -> Box<Self> {
        let queue = [LoggedRun::default(); QUEUE];
        Box::new(Self { slot, turn: Turn::Missing, blocks: 0, open: [(NONE, 0); 2], len: 0, queue })
    }

    /// Adds accesses to a page; returns `false` if the queue is full, and adds none.
    #[inline(always)]
    pub(crate) fn touch(&mut self, stream: usize, page: u64, reads: u32, writes: u32) -> bool {
        let (open, at) = self.open[stream & 1];
        if open == page {
            // The queue has the run, so the index is less than its length.
            let run = &mut self.queue[at & (QUEUE - 1)];
            let (more_reads, more_writes) = (run.reads.wrapping_add(reads), run.writes.wrapping_add(writes));
            if more_reads >= run.reads && more_writes >= run.writes {
                (run.reads, run.writes) = (more_reads, more_writes);
                return true;
            }
        }
        self.start(stream, page, reads, writes)
    }

    fn start(&mut self, stream: usize, page: u64, reads: u32, writes: u32) -> bool {
        if self.len == QUEUE {
            return false;
        }
        let mut page_and_flags = page << FLAG_BITS;
        if stream == ACCESS {
            page_and_flags |= DATA;
        }
        if reads == 0 {
            page_and_flags |= WRITE_FIRST;
        }
        self.open[stream] = (page, self.len);
        self.queue[self.len] = LoggedRun { page_and_flags, reads, writes };
        self.len += 1;
        true
    }

    /// The runs in the queue and the number of their accesses.
    pub(crate) fn runs(&self) -> (&[LoggedRun], u64) {
        let runs = &self.queue[..self.len];
        (runs, runs.iter().map(|run| u64::from(run.reads) + u64::from(run.writes)).sum())
    }

    /// Empties the queue.
    pub(crate) fn clear(&mut self) {
        self.open = [(NONE, 0); 2];
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_to_one_page_are_a_run_until_the_stream_leaves_it() {
        let mut vcpu = Vcpu::new(0);
        for (stream, page, reads, writes) in
            [(FETCH, 1, 3, 0), (ACCESS, 2, 0, 1), (FETCH, 1, 2, 0), (ACCESS, 3, 1, 1), (ACCESS, 2, 1, 0)]
        {
            assert!(vcpu.touch(stream, page, reads, writes));
        }
        let (runs, accesses) = vcpu.runs();
        let seen: Vec<_> = runs.iter().map(|run| (run.page(), run.page_and_flags & 3, run.reads, run.writes)).collect();
        assert_eq!(seen, [(1, 0, 5, 0), (2, DATA | WRITE_FIRST, 0, 1), (3, DATA, 1, 1), (2, DATA, 1, 0)]);
        assert_eq!(accesses, 9);
        vcpu.clear();
        assert_eq!(vcpu.runs().1, 0);
    }

    #[test]
    fn a_full_queue_and_a_full_counter_start_no_wrong_run() {
        let mut vcpu = Vcpu::new(0);
        assert!(vcpu.touch(ACCESS, 1, u32::MAX, 0) && vcpu.touch(ACCESS, 1, 1, 0));
        assert_eq!(vcpu.runs().0.len(), 2, "the counter of a run does not wrap");
        let full = (0..=QUEUE as u64).find(|page| !vcpu.touch(ACCESS, 100 + page, 1, 0));
        assert_eq!(full, Some(QUEUE as u64 - 2));
    }
}
