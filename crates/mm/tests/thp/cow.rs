//! The cases of Linux's `cow` selftest on large folios (`gup/cow_cases.rs`).
//!
//! Each runs on a folio of 64 KiB and on one of 2 MiB, with page tables that fork copies, and with
//! such that it shares.
//!
//! | `enum thp_run` of `cow.c` | modules here |
//! | --- | --- |
//! | `THP_RUN_PMD`, `THP_RUN_PMD_SWAPOUT` | [`whole`], [`whole_swapped_out`] |
//! | `THP_RUN_PTE`, `THP_RUN_PTE_SWAPOUT` | [`pieces`], [`pieces_swapped_out`] |
//! | `THP_RUN_SINGLE_PTE`, `THP_RUN_SINGLE_PTE_SWAPOUT` | [`single`], [`single_swapped_out`] |
//! | `THP_RUN_PARTIAL_MREMAP` | [`half_moved`] |
//! | `THP_RUN_PARTIAL_SHARED` | [`partly_shared`] |
//!
//! Not covered: the four cases of collapsing, and the other sizes.

use super::{BASE, PAGES};
use crate::gup::cow_cases::{Memory, SHARES, cow_cases};
use pagewright_arch::Isa;
use pagewright_lab::harness::{ANON, CPU, TestProcess, TestWorld, at};
use pagewright_mm::{Advice, MapFlags, MmSetting, RemapFlags, RemapRequest};
use pagewright_types::{Access, Level, PAGE_SIZE, Rights};

/// What of a folio is mapped, and how, when a case begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolioMapping {
    /// All of it by one leaf.
    Whole,
    /// All of it by a leaf for each page.
    Pieces,
    /// Its first page; the others were discarded.
    Single,
    /// Its first half; the other half is mapped elsewhere.
    HalfMoved,
    /// All of it; a child that has ended had its first page.
    PartlyShared,
}

/// Runs the cases on the folios of each module.
macro_rules! on_folios {
    ($($name:ident: $mapping:expr, $swapped_out:expr;)*) => { $(
        mod $name {
            use super::*;
            fn on_each<I: Isa>(case: &dyn Fn(Memory<I>)) {
                on_each_folio($mapping, $swapped_out, case);
            }
            cow_cases!();
        }
    )* };
}

on_folios! {
    whole: FolioMapping::Whole, false;
    whole_swapped_out: FolioMapping::Whole, true;
    pieces: FolioMapping::Pieces, false;
    pieces_swapped_out: FolioMapping::Pieces, true;
    single: FolioMapping::Single, false;
    single_swapped_out: FolioMapping::Single, true;
    half_moved: FolioMapping::HalfMoved, false;
    partly_shared: FolioMapping::PartlyShared, false;
}

fn on_each_folio<I: Isa>(mapping: FolioMapping, swapped_out: bool, case: &dyn Fn(Memory<I>)) {
    for (size, pages) in [(MmSetting::ThpEnabled64k, 16), (MmSetting::ThpEnabled2048k, PAGES)] {
        // A folio of 64 KiB is never mapped whole.
        if mapping == FolioMapping::Whole && pages < PAGES {
            continue;
        }
        for shares in SHARES {
            let memory = mapping.of(folio(size, pages, shares));
            if swapped_out {
                memory.swap_out();
            }
            case(memory);
        }
    }
}

/// A folio, all of which is mapped.
fn folio<I: Isa>(size: MmSetting, pages: u64, shares: &str) -> Memory<I> {
    let world = TestWorld::sized(2, 8 << 20);
    world.set(MmSetting::CowPageTables, shares);
    world.set(size, "always");
    let parent = TestProcess::new(&world);
    parent.map_at(BASE, 2 * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    let first = parent.frame(CPU, BASE, Access::Write);
    assert_eq!(world.on(CPU, |mm| mm.tlb().frames().folio(first).pages()), pages as u32);
    Memory::new(parent, BASE, pages)
}

impl FolioMapping {
    /// Maps a folio in this way, which is mapped as it was allocated.
    fn of<I: Isa>(self, memory: Memory<I>) -> Memory<I> {
        let (parent, pages) = (&memory.parent, memory.pages);
        let rest = at(BASE, 1);
        match self {
            Self::Whole => {
                assert_eq!(parent.leaf_level(BASE), Some(Level::PMD));
                return memory;
            }
            Self::Pieces => {
                parent.protect(rest, 1, Rights::READ);
                parent.protect(rest, 1, Rights::RW);
            }
            Self::Single => parent.advise(rest, pages - 1, Advice::DontNeed),
            Self::HalfMoved => return half_moved(memory),
            Self::PartlyShared => {
                parent.advise(rest, pages - 1, Advice::DontFork);
                parent.fork().end();
                parent.advise(rest, pages - 1, Advice::DoFork);
            }
        }
        assert_eq!(parent.leaf_level(BASE), Some(Level::PTE));
        let mapped = parent.space.rss().pages();
        Memory { pages: mapped, ..memory }
    }
}

fn half_moved<I: Isa>(memory: Memory<I>) -> Memory<I> {
    let (parent, pages) = (&memory.parent, memory.pages / 2);
    let (len, new_addr) = (pages * PAGE_SIZE, at(BASE, 4 * PAGES));
    let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
    let request = RemapRequest { addr: at(BASE, pages), old_len: len, new_len: len, flags, new_addr };
    parent.world.on(CPU, |mm| mm.mremap(&parent.space, &request)).expect("nothing is in the way");
    assert_eq!(parent.leaf_level(new_addr), Some(Level::PTE));
    Memory { pages, untouched: Some(new_addr), ..memory }
}
