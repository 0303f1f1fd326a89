//! A scan of all memory, block by block, for reports and for checks that recount everything.
//!
//! Neighbours: `record` defines what a record means. The scan changes nothing.
//!
//! Not guaranteed: a snapshot. The scan may miss a block that is allocated or freed concurrently.

use crate::frames::Frames;
use crate::memmap::Memmap;
use crate::record::FrameState;
use pagewright_sync::Platform;
use pagewright_types::Pfn;

impl<P: Platform> Frames<P> {
    /// The first frame of each folio, table and block that has an owner, by ascending address.
    pub fn in_use(&self) -> impl Iterator<Item = (Pfn, FrameState)> {
        self.ranges().flat_map(|range| Blocks { memmap: &self.memmap, at: range.start(), end: range.end() }).filter(
            |(_, state)| match state {
                FrameState::Allocated | FrameState::Folio | FrameState::Table => true,
                FrameState::Interior | FrameState::Free | FrameState::Pcp | FrameState::Tail => false,
            },
        )
    }
}

/// Iterates over the blocks of a range of memory.
struct Blocks<'a> {
    memmap: &'a Memmap,
    at: Pfn,
    end: Pfn,
}

impl Iterator for Blocks<'_> {
    type Item = (Pfn, FrameState);

    fn next(&mut self) -> Option<(Pfn, FrameState)> {
        let left = self.end.raw() - self.at.raw();
        if left == 0 {
            return None;
        }
        let pfn = self.at;
        let kind = self.memmap.at(pfn).kind();
        let frames = match kind.state() {
            FrameState::Free | FrameState::Pcp | FrameState::Allocated | FrameState::Folio | FrameState::Table => {
                kind.order().frames()
            }
            // Only where a block was allocated or freed concurrently.
            FrameState::Interior | FrameState::Tail => 1,
        };
        self.at = pfn.add(frames.min(left));
        Some((pfn, kind.state()))
    }
}
