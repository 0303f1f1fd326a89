//! Diverged calls by the addresses that they concern.
//!
//! An access that the memory manager refuses is explained by the latest call that concerned its
//! address and had another result than on Linux. That call may be long ago, and thousands of calls
//! may have diverged since, so [`DivergedRanges`] remembers them by address. Calls follow the
//! memory that `mremap` moves, and are forgotten when Linux unmaps or replaces the memory. So no
//! more calls are remembered than Linux has pages mapped.
//!
//! Not guaranteed: that the call is the cause.

use super::error::DivergedCall;
use crate::trace::MemOp;
use pagewright_mm::RemapFlags;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The latest diverged call at each address of a space.
#[derive(Clone, Default)]
pub(super) struct DivergedRanges(BTreeMap<u64, DivergedRange>);

/// The end of a range of addresses, and its call.
#[derive(Clone)]
struct DivergedRange {
    end: u64,
    call: Rc<DivergedCall>,
}

impl DivergedRanges {
    /// The latest diverged call that concerns the address.
    pub(super) fn at(&self, address: u64) -> Option<&DivergedCall> {
        let (_, range) = self.0.range(..=address).next_back()?;
        (address < range.end).then_some(&*range.call)
    }

    /// Follows a call that returned `linux`: what it moves, replaces and unmaps on Linux.
    pub(super) fn follow(&mut self, op: &MemOp, linux: u64) {
        match *op {
            MemOp::Mmap { .. } | MemOp::Inferred { .. } | MemOp::Munmap { .. } => {
                self.take(op.range(linux));
            }
            MemOp::Mremap { addr, old_len, new_len, flags, .. } => {
                let moved = self.take(addr.0..addr.0.saturating_add(old_len));
                if RemapFlags::from_bits_truncate(flags).contains(RemapFlags::DONTUNMAP) {
                    moved.iter().for_each(|(range, call)| self.insert(range.clone(), call));
                }
                self.take(op.range(linux));
                let place = |at: u64| linux.saturating_add((at - addr.0).min(new_len));
                for (range, call) in moved {
                    self.insert(place(range.start)..place(range.end), &call);
                }
            }
            MemOp::Mprotect { .. }
            | MemOp::Madvise { .. }
            | MemOp::Brk { .. }
            | MemOp::Mlock { .. }
            | MemOp::Munlock { .. }
            | MemOp::Mlockall { .. }
            | MemOp::Munlockall {}
            | MemOp::Msync { .. }
            | MemOp::Mincore { .. }
            | MemOp::Membarrier { .. }
            | MemOp::Other { .. } => {}
        }
    }

    /// Remembers a diverged call, after [`follow`](Self::follow).
    ///
    /// `munmap` is not remembered: a program does not access what Linux has unmapped.
    pub(super) fn remember(&mut self, call: &Rc<DivergedCall>) {
        if !matches!(call.op, MemOp::Munmap { .. }) {
            self.insert(call.op.range(call.linux), call);
        }
    }

    fn insert(&mut self, range: Range<u64>, call: &Rc<DivergedCall>) {
        if !range.is_empty() {
            self.take(range.clone());
            self.0.insert(range.start, DivergedRange { end: range.end, call: Rc::clone(call) });
        }
    }

    /// Forgets the calls that concern `range`, and returns them with the parts that they concern.
    fn take(&mut self, range: Range<u64>) -> Vec<(Range<u64>, Rc<DivergedCall>)> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.0.range(..range.start).next_back().filter(|(_, before)| before.end > range.start);
        let first = before.map_or(range.start, |(start, _)| *start);
        let starts: Vec<u64> = self.0.range(first..range.end).map(|(start, _)| *start).collect();
        let mut taken = Vec::new();
        for start in starts {
            let Some(DivergedRange { end, call }) = self.0.remove(&start) else { continue };
            if start < range.start {
                self.0.insert(start, DivergedRange { end: range.start, call: Rc::clone(&call) });
            }
            if end > range.end {
                self.0.insert(range.end, DivergedRange { end, call: Rc::clone(&call) });
            }
            taken.push((start.max(range.start)..end.min(range.end), call));
        }
        taken
    }
}
