//! Heaps of 256 MiB, by how a program uses their pages.
//!
//! They differ in what huge pages do for them: a dense heap gets fewer faults and TLB misses, a
//! sparse one more memory, and heaps that give parts of their memory back split them.
//!
//! The programs whose memory is dense ask for huge pages (`MADV_HUGEPAGE`), as the runtimes do that
//! have an option for it; the others leave that to the system.

use super::{HEAP, HEAP_PAGE, PAGE, Program, Script};
use crate::trace::{MemOp, UserAddr};

const PAGES: u64 = 65536;
const DONTNEED: u32 = 4;
const FREE: u32 = 8;
const HUGEPAGE: u32 = 14;
/// Loads or stores in a round.
const IN_A_ROUND: u64 = 1024;

impl Script {
    fn advise(&mut self, page: u64, pages: u64, advice: u32) {
        let (addr, len) = (UserAddr(HEAP + page * PAGE), pages * PAGE);
        self.call(MemOp::Madvise { addr, len, advice }, 0);
    }

    /// As [`fill_heap`](Self::fill_heap), with memory that is to get huge pages.
    fn fill_advised_heap(&mut self, pages: u64) {
        self.map(HEAP, pages);
        self.advise(0, pages, HUGEPAGE);
        self.store_all(pages);
    }
}

/// Fills the heap and then loads from it at random.
pub(super) const DENSE: Program = Program {
    name: "heap-dense",
    rounds: 256,
    machine: None,
    set_up: |script| script.fill_advised_heap(PAGES),
    round: |script| {
        for _ in 0..IN_A_ROUND {
            let page = script.below(PAGES);
            script.load(HEAP_PAGE + page);
        }
    },
};

/// Stores to one page in 16 at random, and loads from those.
///
/// A page is chosen in each 64 KiB, so that nearly every 2 MiB has some.
pub(super) const SPARSE: Program = Program {
    name: "heap-sparse",
    rounds: 256,
    machine: None,
    set_up: |script| {
        script.map(HEAP, PAGES);
        for chunk in 0..PAGES / 16 {
            script.store(HEAP_PAGE + sparse_page(chunk));
        }
    },
    round: |script| {
        for _ in 0..IN_A_ROUND {
            let chunk = script.below(PAGES / 16);
            script.load(HEAP_PAGE + sparse_page(chunk));
        }
    },
};

/// The page that is used of each 16.
fn sparse_page(chunk: u64) -> u64 {
    chunk * 16 + (chunk * 7 + chunk / 16) % 16
}

/// Fills the heap, then gives random runs of pages back and stores to random pages.
///
/// As allocators purge unused pages: three runs in four by `MADV_FREE`, the others by
/// `MADV_DONTNEED`.
pub(super) const PURGING: Program = Program {
    name: "heap-purging",
    rounds: 256,
    machine: None,
    set_up: |script| script.fill_heap(PAGES),
    round: |script| {
        for _ in 0..16 {
            let pages = 1 + script.below(32);
            let page = script.below(PAGES - pages);
            let advice = if script.below(4) == 0 { DONTNEED } else { FREE };
            script.advise(page, pages, advice);
        }
        for _ in 0..IN_A_ROUND / 4 {
            let page = script.below(PAGES);
            script.store(HEAP_PAGE + page);
        }
    },
};

/// A collector copies the live quarter of a space of 128 MiB to a new one and unmaps the old.
///
/// The program then fills the rest of the new space, and stores and loads at random.
pub(super) const EVACUATING: Program = {
    const SPACE: u64 = PAGES / 2;
    Program {
        name: "heap-evacuating",
        rounds: 4,
        machine: None,
        set_up: |script| script.fill_advised_heap(SPACE),
        round: |script| {
            // The two spaces take turns at the same two places.
            script.last_space = 1 - script.last_space;
            let (old, new) = ((1 - script.last_space) * SPACE, script.last_space * SPACE);
            script.map(HEAP + new * PAGE, SPACE);
            script.advise(new, SPACE, HUGEPAGE);
            for copied in 0..SPACE / 4 {
                let live = copied * 4 + script.below(4);
                script.load(HEAP_PAGE + old + live);
                script.store(HEAP_PAGE + new + copied);
            }
            script.unmap(HEAP + old * PAGE, SPACE);
            for page in SPACE / 4..SPACE {
                script.store(HEAP_PAGE + new + page);
            }
            for _ in 0..16 * IN_A_ROUND {
                let page = script.below(SPACE);
                script.load(HEAP_PAGE + new + page);
            }
        },
    }
};
