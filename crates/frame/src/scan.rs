//! Looking at all memory, block by block: for reports and for whoever counts everything again.
//!
//! Neighbours: `record` says what a record means; nothing is changed here.
//!
//! Not guaranteed: a picture of one moment, unless nobody allocates or frees meanwhile. A block
//! that comes or goes may be missed.

use crate::frames::Frames;
use crate::memmap::Memmap;
use crate::record::FrameState;
use pagewright_sync::Platform;
use pagewright_types::Pfn;

impl<P: Platform> Frames<P> {
    /// The first frame of each folio, table and block that is taken, in the order of addresses.
    pub fn in_use(&self) -> impl Iterator<Item = (Pfn, FrameState)> {
        self.ranges().flat_map(|range| Blocks { memmap: &self.memmap, at: range.start(), end: range.end() }).filter(
            |(_, state)| match state {
                FrameState::Allocated | FrameState::Folio | FrameState::Table => true,
                FrameState::Interior | FrameState::Free | FrameState::Pcp | FrameState::Tail => false,
            },
        )
    }
}

/// Every block of a range of memory.
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
            // Only where a block came or went under the eyes of who looks.
            FrameState::Interior | FrameState::Tail => 1,
        };
        self.at = pfn.add(frames.min(left));
        Some((pfn, kind.state()))
    }
}
