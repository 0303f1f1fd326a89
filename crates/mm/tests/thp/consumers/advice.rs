//! `madvise` on a part of a large folio, and on all of it.

use super::{ALL, BASE, Mapped, PAGES, end, folio, holds};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::Advice;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Counter, Level, NodeId, PAGE_SIZE};

on_both! {
    every_advice_on_a_part_leaves_the_rest,
    a_guard_replaces_a_part,
    the_removal_of_guards_splits_no_huge_page,
    free_of_all_keeps_the_folio_whole_until_reclaim_discards_it,
    /// INV-LAZYFREE-WHOLE.
    free_of_a_part_splits_and_frees_that_part: assert!(freed_in_part::<I>(0)),
    free_and_cold_leave_a_folio_that_others_map_or_that_is_pinned,
    cold_deactivates_a_folio_whole_or_splits_it,
}

/// Pages that the advice is about.
const PART: std::ops::Range<u64> = 4..8;

fn reclaim<I: Isa>(world: &TestWorld<I>) {
    for _ in 0..200 {
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 32));
    }
}

/// Advice that a mapping refuses is refused, and changes nothing either.
fn every_advice_on_a_part_leaves_the_rest<I: Isa>() {
    for mapped in ALL {
        for &advice in Advice::ALL {
            let (world, process) = mapped.process::<I>();
            let _device = world.swap_to(2 * PAGES as u32);
            let part = (at(BASE, PART.start), (PART.end - PART.start) * PAGE_SIZE);
            let advised = world.on(CPU, |mm| mm.madvise(&process.space, part.0, part.1, advice));
            assert_eq!(advised.is_err(), advice == Advice::Remove, "{advice:?}, {mapped:?}");
            world.recount(&[&process]);
            let gone = matches!(advice, Advice::DontNeed | Advice::DontNeedLocked | Advice::GuardInstall);
            assert!(holds(&process, if gone { PART } else { 0..0 }), "{advice:?}, {mapped:?}");
            if gone && advice != Advice::GuardInstall {
                assert_eq!(process.read(CPU, at(BASE, 7)), 0, "{advice:?}, {mapped:?}");
            }
            world.recount(&[&process]);
            TestProcess::end_all_at_rest(&[&process]);
        }
    }
}

fn a_guard_replaces_a_part<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        process.advise(at(BASE, 4), 4, Advice::GuardInstall);
        assert!(process.touch(OTHER, at(BASE, 7), Access::Read).is_err() && holds(&process, PART), "{mapped:?}");
        assert_eq!(process.space.rss().pages(), mapped.pages() - 4, "{mapped:?}");
        process.advise(at(BASE, 4), 4, Advice::GuardRemove);
        assert_eq!(process.read(CPU, at(BASE, 7)), 0, "{mapped:?}");
        end(&world, &[&process]);
    }
}

/// `guard_remove_pmd_entry` skips a huge page, which has no guards.
fn the_removal_of_guards_splits_no_huge_page<I: Isa>() {
    let (world, process) = Mapped::Whole.process::<I>();
    process.advise(at(BASE, 4), 4, Advice::GuardRemove);
    assert_eq!(process.leaf_level(BASE), Some(Level::PMD));
    end(&world, &[&process]);
}

fn free_of_all_keeps_the_folio_whole_until_reclaim_discards_it<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let pages = mapped.pages();
        let _device = world.swap_to(2 * PAGES as u32);
        process.advise(BASE, pages, Advice::Free);
        let (large, flags) = folio(&process, 7);
        assert!(large && !flags.contains(FolioFlags::SWAPBACKED), "{mapped:?}");
        assert_eq!(process.leaf_level(BASE), Some(mapped.level()), "{mapped:?}");
        assert_eq!(world.count(Counter::PgLazyFree), pages, "{mapped:?}");
        assert!(holds(&process, 0..0), "nothing is lost before reclaim");
        reclaim(&world);
        assert_eq!((world.count(Counter::PgLazyFreed), world.count(Counter::PswpOut)), (pages, 0), "{mapped:?}");
        assert_eq!((process.read(CPU, at(BASE, 7)), process.space.rss().pages()), (0, 0), "{mapped:?}");
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// The rest is clean in all entries: a device has stored to it, which only the folio tells.
fn freed_in_part<I: Isa>(_seed: u64) -> bool {
    let mut sound = true;
    for mapped in [Mapped::Pieces, Mapped::Pieces16] {
        let (world, process) = mapped.process::<I>();
        let _device = world.swap_to(2 * PAGES as u32);
        process.advise(BASE, mapped.pages(), Advice::Free);
        let device = process.take(CPU, at(BASE, 8), 1, GupCall::Get(GupFlags::WRITE)).expect("mapped");
        device.write(0, 80);
        device.release(MakeDirty::Yes);
        process.advise(at(BASE, 4), 4, Advice::Free);
        assert!(!sound || !folio(&process, 7).0, "{mapped:?}");
        reclaim(&world);
        sound &= process.read(CPU, at(BASE, 8)) == 80;
        assert_eq!(process.read(CPU, at(BASE, 7)), 0, "{mapped:?}");
        world.recount(&[&process]);
        TestProcess::end_all_at_rest(&[&process]);
    }
    sound
}

/// INV-ADVICE-ALONE.
fn free_and_cold_leave_a_folio_that_others_map_or_that_is_pinned<I: Isa>() {
    for mapped in ALL {
        for advice in [Advice::Free, Advice::Cold] {
            for pinned in [false, true] {
                let (world, process) = mapped.process::<I>();
                let others = (!pinned).then(|| process.fork());
                let call = GupCall::Pin(GupFlags::WRITE);
                let device = pinned.then(|| process.take(CPU, at(BASE, 8), 1, call).expect("mapped"));
                process.advise(at(BASE, 4), 4, advice);
                let (large, flags) = folio(&process, 7);
                assert!(large && flags.contains(FolioFlags::SWAPBACKED), "{advice:?}, {mapped:?}, {pinned}");
                assert_eq!(world.count(Counter::ThpSplitPage), 0, "{advice:?}, {mapped:?}, {pinned}");
                assert!(holds(&process, 0..0));
                device.into_iter().for_each(|device| device.release(MakeDirty::No));
                let all: Vec<_> = [&process].into_iter().chain(others.iter()).collect();
                end(&world, &all);
            }
        }
    }
}

fn cold_deactivates_a_folio_whole_or_splits_it<I: Isa>() {
    for mapped in ALL {
        for part in [false, true] {
            let (world, process) = mapped.process::<I>();
            let pfn = super::frame(&process, 0);
            world.on(CPU, |mm| {
                let frames = mm.tlb().frames();
                frames.lru_move(frames.folio(pfn), FolioFlags::ACTIVE, FolioFlags::empty());
            });
            let (first, pages) = if part { (4, 4) } else { (0, mapped.pages()) };
            process.advise(at(BASE, first), pages, Advice::Cold);
            let deactivated = world.count(Counter::PgDeactivate);
            assert_eq!((deactivated, world.count(Counter::ThpSplitPage)), (pages, u64::from(part)), "{mapped:?}");
            let active = [0, 7].map(|page| folio(&process, page).1.contains(FolioFlags::ACTIVE));
            assert_eq!(active, [part, false], "{mapped:?}, part: {part}");
            assert!(holds(&process, 0..0));
            end(&world, &[&process]);
        }
    }
}

planted_bugs_are_found! {
    1;
    FreeCutsFolio => freed_in_part,
}
