//! Calls on a part of a large folio and on all of it, and what scans make of it.

use super::{ALL, BASE, Mapped, PAGES, end, folio, frame, holds};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::counters::Gauge;
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyRequest};
use pagewright_mm::space::{BindFlags, BindRequest, ClearRefs};
use pagewright_mm::user::{FutexAccess, FutexKey, FutexScope, IoVec};
use pagewright_mm::{Advice, MapFlags, MmSetting, RemapFlags, RemapRequest, SplitCounts};
use pagewright_types::{Access, Counter, Level, NodeId, NodeMask, PAGE_SIZE, Rights};

on_both! {
    mlock_of_all_keeps_a_folio_whole,
    mprotect_of_a_part_splits_the_leaf,
    a_call_that_changes_no_mapping_splits_no_leaf,
    a_part_is_moved_by_mremap,
    pages_are_moved_over_a_huge_page,
    mbind_moves_a_part_after_a_split,
    stores_are_told_for_each_leaf,
    a_word_in_a_tail_page_has_the_key_of_its_address,
    another_process_reads_and_writes_pages,
    a_mapping_that_used_all_pieces_counts_as_one_use: assert!(aged::<I>(0)),
    all_folios_of_the_machine_are_split_on_request,
    a_hint_scan_leaves_large_folios_out: assert!(hinted::<I>(0)),
}

const FAR: NodeId = NodeId::new(1);

/// INV-LRU-LOCKS.
fn mlock_of_all_keeps_a_folio_whole<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let len = mapped.pages() * PAGE_SIZE;
        world.on(CPU, |mm| mm.mlock(&process.space, BASE, len)).expect("mapped");
        world.recount(&[&process]);
        let seen = (world.gauge(Gauge::Unevictable), process.leaf_level(BASE), folio(&process, 7).0);
        assert_eq!(seen, (mapped.pages(), Some(mapped.level()), true), "{mapped:?}");
        world.on(CPU, |mm| mm.munlock(&process.space, at(BASE, 4), 4 * PAGE_SIZE)).expect("mapped");
        assert_eq!(process.leaf_level(BASE), Some(Level::PTE), "{mapped:?}");
        world.recount(&[&process]);
        world.on(CPU, |mm| mm.munlock(&process.space, BASE, len)).expect("mapped");
        assert_eq!(world.gauge(Gauge::Unevictable), 0, "{mapped:?}");
        assert!(holds(&process, 0..0));
        end(&world, &[&process]);
    }
}

fn mprotect_of_a_part_splits_the_leaf<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        process.protect(BASE, mapped.pages(), Rights::READ);
        assert_eq!(process.leaf_level(BASE), Some(mapped.level()), "{mapped:?}");
        process.protect(BASE, mapped.pages(), Rights::RW);
        process.protect(at(BASE, 4), 4, Rights::READ);
        assert_eq!((process.leaf_level(BASE), folio(&process, 7).0), (Some(Level::PTE), true), "{mapped:?}");
        let stores = [3, 4, 7, 8].map(|page| process.touch(OTHER, at(BASE, page), Access::Write).is_ok());
        assert_eq!(stores, [true, false, false, true], "{mapped:?}");
        assert!(holds(&process, 0..0));
        end(&world, &[&process]);
    }
}

fn a_part_is_moved_by_mremap<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let (flags, to) = (RemapFlags::MAYMOVE | RemapFlags::FIXED, at(BASE, 4 * PAGES + 3));
        let len = 4 * PAGE_SIZE;
        let request = RemapRequest { addr: at(BASE, 6), old_len: len, new_len: len, flags, new_addr: to };
        world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("nothing is in the way");
        assert_eq!([1, 2].map(|page| process.read(OTHER, at(to, page))), [8, 9], "{mapped:?}");
        assert!(holds(&process, 6..10) && process.touch(CPU, at(BASE, 7), Access::Read).is_err());
        end(&world, &[&process]);
    }
}

/// The destination loses its huge leaf and has no table then; entries move one by one.
///
/// INV-TABLE-RESERVE.
fn pages_are_moved_over_a_huge_page<I: Isa>() {
    let (world, process) = Mapped::Whole.process::<I>();
    let from = at(BASE, 4 * PAGES + 5);
    process.map_at(from, PAGES, Rights::RW, ANON | MapFlags::FIXED);
    process.write(CPU, at(from, 7), 70);
    let (flags, len) = (RemapFlags::MAYMOVE | RemapFlags::FIXED, PAGES * PAGE_SIZE);
    let request = RemapRequest { addr: from, old_len: len, new_len: len, flags, new_addr: BASE };
    world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("memory");
    assert_eq!([1, 7].map(|page| process.read(OTHER, at(BASE, page))), [0, 70]);
    end(&world, &[&process]);
}

/// The part is on the other node, and the rest where it was.
fn mbind_moves_a_part_after_a_split<I: Isa>() {
    for mapped in ALL {
        let world = TestWorld::<I>::two_nodes(4, 16 << 20);
        let process = mapped.process_of(&world);
        let nodes = NodeMask::of(FAR);
        let policy = PolicyRequest { mode: PolicyMode::Bind, flags: PolicyFlags::empty(), nodes };
        let request = BindRequest { addr: at(BASE, 4), len: 4 * PAGE_SIZE, policy, flags: BindFlags::MOVE };
        world.on(CPU, |mm| mm.mbind(&process.space, request, false)).expect("memory");
        let node = |page| world.on(CPU, |mm| mm.tlb().frames().node_of(frame(&process, page)));
        assert_eq!([3, 4, 7, 8].map(|page| node(page) == Some(FAR)), [false, true, true, false], "{mapped:?}");
        assert_eq!(world.count(Counter::ThpSplitPage), 1);
        assert!(holds(&process, 0..0));
        world.recount(&[&process]);
        process.end();
    }
}

/// INV-SOFT-DIRTY: a store to a huge leaf is told of all its pages, as in Linux.
fn stores_are_told_for_each_leaf<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
        let told = || super::views::words(&process, 16).iter().map(|word| word.raw() >> 55 & 1).sum::<u64>();
        assert_eq!((told(), process.leaf_level(BASE)), (0, Some(mapped.level())), "{mapped:?}");
        process.write(OTHER, at(BASE, 7), 8);
        let expected = if mapped == Mapped::Whole { 16 } else { 1 };
        assert_eq!((told(), process.leaf_level(BASE)), (expected, Some(mapped.level())), "{mapped:?}");
        assert!(holds(&process, 0..0));
        end(&world, &[&process]);
    }
}

/// INV-FUTEX-KEY.
fn a_word_in_a_tail_page_has_the_key_of_its_address<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        world.lab.run(CPU, &process.space);
        let word = at(BASE, 7).add(8);
        let key = || {
            let key =
                |mm: &pagewright_mm::Mm<_>| mm.futex_key(&process.space, word, FutexScope::Shared, FutexAccess::Write);
            world.on(CPU, key).expect("a key")
        };
        let (before, level) = (key(), process.leaf_level(BASE));
        assert_eq!(before, FutexKey::Anon { space: process.space.id(), at: word }, "{mapped:?}");
        process.protect(at(BASE, 3), 1, Rights::READ);
        assert_eq!((key(), level), (before, Some(mapped.level())), "{mapped:?}");
        end(&world, &[&process]);
    }
}

/// A write through a child breaks copy-on-write for the page alone.
fn another_process_reads_and_writes_pages<I: Isa>() {
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let child = process.fork();
        let reader = TestProcess::new(&world);
        let buffer = reader.anon(1);
        let ours = [IoVec { base: buffer, len: 16 }];
        let theirs = [7, 8].map(|page| IoVec { base: at(BASE, page), len: 8 });
        world.on(CPU, |mm| mm.process_vm_readv((&reader.space, &ours), (&child.space, &theirs), 0)).expect("mapped");
        assert_eq!([buffer, buffer.add(8)].map(|va| reader.read(CPU, va)), [8, 9], "{mapped:?}");
        reader.write(CPU, buffer, 70);
        world.on(CPU, |mm| mm.process_vm_writev((&reader.space, &ours), (&child.space, &theirs), 0)).expect("mapped");
        assert_eq!([7, 8].map(|page| child.read(CPU, at(BASE, page))), [70, 9], "{mapped:?}");
        assert!(holds(&process, 0..0) && holds(&child, 7..8));
        end(&world, &[&process, &child, &reader]);
    }
}

/// As in Linux, whose `mlock_fixup` and `mprotect_fixup` return before they split a mapping.
fn a_call_that_changes_no_mapping_splits_no_leaf<I: Isa>() {
    let (world, process) = Mapped::Whole.process::<I>();
    let (at, len) = (at(BASE, 3), 3 * PAGE_SIZE);
    world.on(CPU, |mm| mm.munlock(&process.space, at, len)).expect("mapped");
    world.on(CPU, |mm| mm.mprotect(&process.space, at, len, Rights::RW)).expect("mapped");
    world.on(CPU, |mm| mm.madvise(&process.space, at, len, Advice::Normal)).expect("mapped");
    assert_eq!(process.leaf_level(BASE), Some(Level::PMD));
    end(&world, &[&process]);
}

/// Reclaim looks at a folio all of whose pieces were used since its last look.
fn aged<I: Isa>(_seed: u64) -> bool {
    let mut sound = true;
    for mapped in ALL {
        let (world, process) = mapped.process::<I>();
        let _device = world.swap_to(2 * PAGES as u32);
        world.on(CPU, |mm| mm.reclaim(NodeId::new(0), 4));
        sound &= world.count(Counter::PgActivate) == 0;
        assert!(holds(&process, 0..0));
        TestProcess::end_all_at_rest(&[&process]);
    }
    sound
}

fn all_folios_of_the_machine_are_split_on_request<I: Isa>() {
    let world = TestWorld::<I>::sized(4, 16 << 20);
    let processes = ALL.map(|mapped| mapped.process_of(&world));
    let child = processes[0].fork();
    let counts = world.on(CPU, |mm| mm.split_all_huge_pages());
    assert_eq!(counts, SplitCounts { found: 3, split: 3 }, "a folio that two processes map counts once");
    assert!(processes.iter().chain([&child]).all(|process| holds(process, 0..0) && !folio(process, 7).0));
    let [one, two, three] = &processes;
    end(&world, &[one, two, three, &child]);
}

fn hinted<I: Isa>(_seed: u64) -> bool {
    let mut sound = true;
    for mapped in ALL {
        let world = TestWorld::<I>::two_nodes(4, 16 << 20);
        let process = mapped.process_of(&world);
        world.set(MmSetting::NumaBalancing, "1");
        world.set(MmSetting::NumaScanDelayMs, "0");
        [CPU, OTHER].iter().for_each(|cpu| world.lab.run(*cpu, &process.space));
        [1, 100_000, 200_000].iter().for_each(|now| world.on(CPU, |mm| mm.numa_tick(&process.space, *now)));
        let skipped = world.count(Counter::PwNumaLargeSkipped);
        sound &= world.count(Counter::NumaPteUpdates) == 0 && skipped > 0;
        let entries = if mapped == Mapped::Whole { 1 } else { mapped.pages() };
        assert!(!sound || skipped.is_multiple_of(entries), "{mapped:?}: {skipped}");
        world.set(MmSetting::NumaBalancing, "0");
        assert!(holds(&process, 0..0));
        process.end();
    }
    sound
}

planted_bugs_are_found! {
    1;
    AgedByPiece => aged,
    HintOnLarge => hinted,
}
