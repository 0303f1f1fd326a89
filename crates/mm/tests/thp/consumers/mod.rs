//! What the rest of the memory manager does with a large folio, mapped whole and in pieces.
//!
//! `docs/huge-pages.md` has a row for each consumer, which names its test.

mod advice;
mod calls;
mod gup;
mod idle;
mod refused;
pub(super) mod views;

use super::{BASE, PAGES, end};
use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Level, Pfn, Rights};
use std::rc::Rc;

/// How a process maps a large folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mapped {
    /// By a leaf of the PMD level.
    Whole,
    /// By the 512 leaves into which that was split.
    Pieces,
    /// By 16 leaves.
    Pieces16,
}

const ALL: [Mapped; 3] = [Mapped::Whole, Mapped::Pieces, Mapped::Pieces16];
/// Pages with contents: each has its number and 1.
const WRITTEN: [u64; 6] = [0, 1, 7, 8, 14, 15];

impl Mapped {
    fn pages(self) -> u64 {
        if self == Self::Pieces16 { 16 } else { PAGES }
    }

    fn level(self) -> Level {
        if self == Self::Whole { Level::PMD } else { Level::PTE }
    }

    /// A process with such a folio at `BASE`, and no other.
    fn process<I: Isa>(self) -> (Rc<TestWorld<I>>, TestProcess<I>) {
        let world = TestWorld::sized(4, 16 << 20);
        let process = self.process_of(&world);
        (world, process)
    }

    fn process_of<I: Isa>(self, world: &Rc<TestWorld<I>>) -> TestProcess<I> {
        world.set(MmSetting::CowPageTables, "never");
        let process = TestProcess::new(world);
        process.map_at(BASE, PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
        let size = if self == Self::Pieces16 { MmSetting::ThpEnabled64k } else { MmSetting::ThpEnabled2048k };
        world.set(size, "always");
        WRITTEN.iter().for_each(|page| process.write(CPU, at(BASE, *page), page + 1));
        world.set(size, "never");
        if self == Self::Pieces {
            process.protect(at(BASE, 100), 1, Rights::READ);
            process.protect(at(BASE, 100), 1, Rights::RW);
        }
        assert_eq!((process.leaf_level(BASE), process.space.rss().pages()), (Some(self.level()), self.pages()));
        process
    }
}

/// Whether the pages outside `lost` have their contents.
fn holds<I: Isa>(process: &TestProcess<I>, lost: std::ops::Range<u64>) -> bool {
    WRITTEN.iter().filter(|page| !lost.contains(page)).all(|page| process.read(OTHER, at(BASE, *page)) == page + 1)
}

fn frame<I: Isa>(process: &TestProcess<I>, page: u64) -> Pfn {
    process.frame(CPU, at(BASE, page), Access::Read)
}

/// Whether a page is in a large folio, and the flags of its folio.
fn folio<I: Isa>(process: &TestProcess<I>, page: u64) -> (bool, FolioFlags) {
    let pfn = frame(process, page);
    process.world.on(CPU, |mm| {
        let folio = mm.tlb().frames().folio(pfn);
        (folio.is_large(), folio.flags())
    })
}
