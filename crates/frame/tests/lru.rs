//! The LRU lists: which folios are on which list, their sizes, and folios that are freed from them.

use crate::support::{self, Host, NODE0, cpus, one_node, range, run_on, shape, take};
use pagewright_frame::{
    Block, FolioFlags, FolioOwner, FolioRef, FolioRefs, FrameAllocator, FrameRequest, IsolatedFolio, LruScan,
    MemoryLayout, NewFolio, NodeSpec, ReleaseList,
};
use pagewright_sync::host::on_cpu;
use pagewright_types::{Counter, CpuId, LruList, NodeId, NodeMask, Order, Pfn};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const FAR: NodeId = NodeId::new(1);
const NO_FLAGS: FolioFlags = FolioFlags::empty();

fn machine() -> FrameAllocator<Host> {
    one_node(&Host::new(1), 0x400, 0x1000)
}

fn two_nodes() -> FrameAllocator<Host> {
    let (near, far) = ([range(0, 64)], [range(64, 128)]);
    let nodes =
        [NodeSpec { id: NODE0, ranges: &near, cpus: cpus([0]) }, NodeSpec { id: FAR, ranges: &far, cpus: cpus([1]) }];
    let layout = MemoryLayout { min_free_kbytes: Some(0), watermark_scale_factor: 0, ..MemoryLayout::new(&nodes) };
    FrameAllocator::try_new(Host::new(2), &layout).expect("a valid layout")
}

/// A folio on the list that `flags` select.
fn listed(frames: &FrameAllocator<Host>, order: u8, flags: FolioFlags) -> FolioRef {
    let reference = frames.new_folio(take(frames, order));
    let folio = frames.folio_of(&reference);
    folio.set_flags(flags);
    frames.lru_add(folio);
    reference
}

fn on(frames: &FrameAllocator<Host>, list: LruList) -> Vec<Pfn> {
    let mut all = Vec::new();
    frames.for_each_listed(NODE0, list, |pfn| all.push(pfn));
    all
}

/// INV-LRU-PLACE, INV-LRU-SIZE.
fn check(frames: &FrameAllocator<Host>) {
    for node in (0..frames.nodes()).map(|node| NodeId::new(node as u8)) {
        for &list in LruList::ALL {
            let mut pages = 0;
            frames.for_each_listed(node, list, |pfn| {
                let folio = frames.folio(pfn);
                pages += folio.pages();
                assert!(folio.flags().contains(FolioFlags::LRU), "INV-LRU-PLACE: {folio:?}");
                assert_eq!(folio.flags().list(), list, "INV-LRU-PLACE: {folio:?}");
                assert_eq!(frames.node_of(pfn), Some(node), "INV-LRU-PLACE: {folio:?}");
            });
            assert_eq!(frames.lru_pages(node, list), pages, "INV-LRU-SIZE: {list:?} of node {node}");
        }
    }
}

fn drop_all(frames: &FrameAllocator<Host>, folios: Vec<FolioRef>) {
    for folio in folios {
        frames.free(frames.put(folio).expect("the last reference"));
    }
    check(frames);
    assert!(LruList::ALL.iter().all(|list| on(frames, *list).is_empty()));
}

#[test]
fn a_folio_is_on_the_list_that_its_flags_select() {
    let frames = machine();
    let (swapped, active) = (FolioFlags::SWAPBACKED, FolioFlags::ACTIVE);
    let all = [
        (LruList::InactiveAnon, swapped),
        (LruList::ActiveAnon, swapped | active),
        (LruList::InactiveFile, NO_FLAGS),
        (LruList::ActiveFile, active),
        (LruList::Unevictable, FolioFlags::UNEVICTABLE),
        (LruList::Unevictable, FolioFlags::UNEVICTABLE | swapped),
    ];
    let mut folios = Vec::new();
    for (list, flags) in all {
        for order in [0, 3] {
            let folio = listed(&frames, order, flags | FolioFlags::UPTODATE);
            assert_eq!(on(&frames, list).first(), Some(&folio.pfn()), "a new folio is not at the front");
            folios.push(folio);
        }
        check(&frames);
    }
    assert_eq!(frames.lru_pages(NODE0, LruList::Unevictable), 18);
    drop_all(&frames, folios);
}

#[test]
fn an_isolated_folio_is_on_no_list_until_it_is_put_back() {
    let frames = machine();
    let reference = listed(&frames, 1, FolioFlags::SWAPBACKED);
    let folio = frames.folio_of(&reference);
    let isolated = frames.isolate(folio).expect("it is on a list");
    assert_eq!((isolated.pfn(), folio.refs()), (folio.pfn(), 2));
    assert!(frames.isolate(folio).is_none(), "INV-LRU-PLACE: a folio is isolated twice");
    let before = frames.lru_move(folio, FolioFlags::ACTIVE, NO_FLAGS);
    assert_eq!(before, FolioFlags::SWAPBACKED, "a folio on no list has the flag `LRU`");
    check(&frames);
    assert!(frames.putback(isolated).is_none());
    assert_eq!(on(&frames, LruList::ActiveAnon), [folio.pfn()]);
    // The reference of the isolated folio may be the last.
    let isolated = frames.isolate(folio).expect("it is on a list");
    assert!(frames.put(reference).is_none());
    frames.free(frames.putback(isolated).expect("the last reference"));
    drop_all(&frames, Vec::new());
}

#[test]
fn folios_move_between_lists_and_are_scanned_from_the_back() {
    let frames = machine();
    let folios: Vec<_> = (0..4).map(|_| listed(&frames, 0, NO_FLAGS)).collect();
    let pfns: Vec<_> = folios.iter().map(FolioRef::pfn).collect();
    let view = |index: usize| frames.folio(pfns[index]);
    let before = frames.lru_move(view(0), FolioFlags::ACTIVE, NO_FLAGS);
    assert_eq!(before, FolioFlags::LRU);
    frames.lru_rotate(view(3), NO_FLAGS, NO_FLAGS);
    check(&frames);
    assert_eq!(on(&frames, LruList::ActiveFile), [pfns[0]]);
    assert_eq!(on(&frames, LruList::InactiveFile), [pfns[2], pfns[1], pfns[3]]);
    let mut taken: Vec<IsolatedFolio> = Vec::new();
    let scan = frames.isolate_tail(NODE0, LruList::InactiveFile, 2, |isolated| {
        taken.push(isolated);
        true
    });
    assert_eq!(scan, LruScan { scanned: 2, taken: 2 });
    assert_eq!(taken.iter().map(IsolatedFolio::pfn).collect::<Vec<_>>(), [pfns[3], pfns[1]]);
    check(&frames);
    let scan = frames.isolate_tail(NODE0, LruList::InactiveFile, 9, |isolated| {
        taken.push(isolated);
        false
    });
    assert_eq!(scan, LruScan { scanned: 1, taken: 1 }, "the scan exceeds the list");
    taken.into_iter().for_each(|isolated| assert!(frames.putback(isolated).is_none()));
    frames.lru_move(view(0), NO_FLAGS, FolioFlags::ACTIVE);
    assert_eq!(frames.lru_pages(NODE0, LruList::InactiveFile), 4);
    drop_all(&frames, folios);
}

/// INV-LRU-LOCKS.
///
/// The old contents of the records do not matter.
#[test]
fn a_folio_is_unevictable_until_its_last_locked_entry_goes() {
    let frames = machine();
    for order in [3, 0, 1] {
        let all: Vec<_> = (0..8).map(|_| listed(&frames, order, FolioFlags::SWAPBACKED | FolioFlags::ACTIVE)).collect();
        let folio = frames.folio_of(&all[5]);
        for _ in 0..2 {
            assert_eq!(
                (folio.mlocks(), frames.mlock(folio, 1), frames.mlock(folio, 1), folio.mlocks()),
                (0, true, false, 2)
            );
            assert_eq!(on(&frames, LruList::Unevictable), [folio.pfn()]);
            let isolated = frames.isolate(folio).expect("it is on a list");
            assert_eq!(
                (frames.mlock(folio, 1), frames.munlock(folio, 1), frames.munlock(folio, 1)),
                (false, false, false)
            );
            assert!(frames.putback(isolated).is_none());
            assert_eq!((on(&frames, LruList::Unevictable), folio.mlocks()), (vec![folio.pfn()], 1));
            check(&frames);
            assert_eq!((frames.munlock(folio, 1), folio.mlocks()), (true, 0));
            assert_eq!(on(&frames, LruList::InactiveAnon), [folio.pfn()], "an unlocked folio is inactive");
            assert_eq!((folio.mapcount(), folio.entire_mapcount(), folio.refs()), (0, 0, 1));
        }
        // Locked and unlocked while it is isolated.
        let isolated = frames.isolate(folio).expect("it is on a list");
        assert!(frames.mlock(folio, 1));
        assert!(frames.putback(isolated).is_none());
        assert_eq!(on(&frames, LruList::Unevictable), [folio.pfn()]);
        let isolated = frames.isolate(folio).expect("it is on a list");
        assert!(frames.munlock(folio, 1));
        assert!(frames.putback(isolated).is_none());
        assert_eq!(on(&frames, LruList::InactiveAnon), [folio.pfn()]);
        drop_all(&frames, all);
    }
}

#[test]
fn a_scan_skips_folios_without_references() {
    let frames = machine();
    let (frozen, released, alive) =
        (listed(&frames, 2, NO_FLAGS), listed(&frames, 0, NO_FLAGS), listed(&frames, 0, NO_FLAGS));
    let folio = frames.folio_of(&frozen);
    let held = folio.freeze(1).expect("one reference");
    let mut release_list = ReleaseList::new();
    release_list.put_last(&frames, released).expect("the last reference");
    let mut taken = Vec::new();
    let scan = frames.isolate_tail(NODE0, LruList::InactiveFile, 32, |isolated| {
        taken.push(isolated);
        true
    });
    assert_eq!(scan, LruScan { scanned: 6, taken: 1 });
    assert_eq!(taken.pop().map(|isolated| frames.putback(isolated)), Some(None));
    held.thaw(1);
    release_list.free(&frames);
    check(&frames);
    assert_eq!(frames.lru_pages(NODE0, LruList::InactiveFile), 5);
    drop_all(&frames, vec![frozen, alive]);
}

#[test]
fn released_folios_leave_their_lists_together() {
    let frames = two_nodes();
    let initial = shape(&frames);
    let mut release_list = ReleaseList::new();
    let mut shared = Vec::new();
    for index in 0..100_u32 {
        let node = if index % 7 < 3 { NODE0 } else { FAR };
        let Ok(unsettled) = frames.alloc(FrameRequest::new(Order::ZERO, node), support::nothing_settled) else { break };
        let reference = frames.new_folio(unsettled.settle(|_| {}));
        let folio = frames.folio_of(&reference);
        folio.set_flags(if index % 2 == 0 { FolioFlags::SWAPBACKED } else { FolioFlags::ACTIVE });
        // Some folios are on no list, as pages of pools are.
        if index % 5 > 0 {
            frames.lru_add(folio);
        }
        if index % 11 == 0 {
            shared.push(FolioRefs::from(folio.get()));
        }
        match release_list.put_last(&frames, reference) {
            Ok(()) => assert!(index % 11 > 0, "a shared folio is released"),
            Err(reference) => shared.push(reference),
        }
    }
    assert_eq!(release_list.len() + shared.len() / 2, 100);
    check(&frames);
    frames.free(release_list.pop(&frames).expect("a released folio"));
    release_list.free(&frames);
    assert!(release_list.is_empty());
    check(&frames);
    shared.into_iter().filter_map(|refs| frames.put_refs(refs)).for_each(|block| frames.free(block));
    check(&frames);
    frames.drain();
    assert_eq!(shape(&frames), initial);
    let count = |counter| frames.counters().sum(counter);
    assert_eq!(count(Counter::PgFree), count(Counter::PgAlloc), "released frames are not counted as freed");
}

/// Makes folios, adds them to lists, moves and frees them, while other threads scan the lists.
fn live(frames: &FrameAllocator<Host>, seen: &AtomicU32, cpu: u16) {
    run_on(cpu);
    let mut state = u64::from(cpu) + 1;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut mine: Vec<FolioRef> = Vec::new();
    let mut left = 40_000_u32;
    // Until the other threads have isolated folios, however the host schedules them.
    while left > 0 || seen.load(Ordering::Relaxed) < 100 {
        left = left.saturating_sub(1);
        if mine.len() < 32 && below(2) == 0 {
            if below(2) == 0 {
                if let Ok(unsettled) = frames.alloc(FrameRequest::new(Order::ZERO, NODE0), support::nothing_settled) {
                    mine.push(in_a_batch(frames, unsettled.settle(|_| {})));
                }
                continue;
            }
            let Ok(unsettled) =
                frames.alloc(FrameRequest::new(Order::new(below(3) as u8), NODE0), support::nothing_settled)
            else {
                continue;
            };
            let reference = frames.new_folio(unsettled.settle(|_| {}));
            let folio = frames.folio_of(&reference);
            folio.set_flags(if below(2) == 0 { FolioFlags::SWAPBACKED } else { NO_FLAGS });
            frames.lru_add(folio);
            mine.push(reference);
            continue;
        }
        if mine.is_empty() {
            continue;
        }
        let at = below(mine.len() as u64) as usize;
        match below(3) {
            0 => {
                frames.lru_move(frames.folio_of(&mine[at]), FolioFlags::ACTIVE, NO_FLAGS);
            }
            1 => give_up(frames, mine.swap_remove(at)),
            _ => {
                let mut release_list = ReleaseList::new();
                while let Some(reference) = mine.pop() {
                    if let Err(shared) = release_list.put_last(frames, reference) {
                        give_up(frames, shared);
                    }
                }
                release_list.free(frames);
            }
        }
    }
    mine.into_iter().for_each(|reference| give_up(frames, reference));
}

fn give_up(frames: &FrameAllocator<Host>, refs: impl Into<FolioRefs>) {
    if let Some(block) = frames.put_refs(refs.into()) {
        frames.free(block);
    }
}

/// INV-LRU-PLACE, INV-LRU-SIZE.
#[test]
fn lists_are_consistent_while_other_threads_make_and_free_folios() {
    const SMALL: u32 = 512;
    let frames = one_node(&Host::new(4), 0, SMALL);
    let initial = shape(&frames);
    let (done, seen) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..2)
            .map(|cpu| {
                scope.spawn({
                    let (frames, seen) = (&frames, &seen);
                    move || live(frames, seen, cpu)
                })
            })
            .collect();
        for cpu in 2..4 {
            let (frames, done, seen) = (&frames, &done, &seen);
            scope.spawn(move || {
                run_on(cpu);
                while !done.load(Ordering::Acquire) {
                    for &list in LruList::ALL {
                        let mut taken = Vec::new();
                        frames.isolate_tail(NODE0, list, 8, |isolated| {
                            taken.push(isolated);
                            true
                        });
                        seen.fetch_add(taken.len() as u32, Ordering::Relaxed);
                        for isolated in taken {
                            if let Some(block) = frames.putback(isolated) {
                                frames.free(block);
                            }
                        }
                        frames.for_each_listed(NODE0, list, |pfn| {
                            let flags = frames.folio(pfn).flags();
                            assert!(flags.contains(FolioFlags::LRU) && flags.list() == list);
                        });
                    }
                }
            });
        }
        for maker in makers {
            maker.join().expect("no panic");
        }
        done.store(true, Ordering::Release);
    });
    check(&frames);
    assert!(LruList::ALL.iter().all(|list| on(&frames, *list).is_empty()));
    frames.drain();
    assert_eq!(shape(&frames), initial);
}

/// Makes a page of this CPU's batch, mapped once.
fn batched(frames: &FrameAllocator<Host>) -> FolioRef {
    let new = NewFolio { block: take(frames, 0), owner: FolioOwner::None, index: 0, flags: FolioFlags::SWAPBACKED };
    frames.new_mapped_folio(new)
}

/// Makes a page of this CPU's batch, mapped no more.
fn in_a_batch(frames: &FrameAllocator<Host>, block: Block) -> FolioRef {
    let new = NewFolio { block, owner: FolioOwner::None, index: 0, flags: FolioFlags::SWAPBACKED };
    let reference = frames.new_mapped_folio(new);
    frames.folio_of(&reference).unmap_page(0);
    reference
}

fn free_mapped(frames: &FrameAllocator<Host>, folio: FolioRef) {
    frames.folio_of(&folio).unmap_page(0);
    frames.free(frames.put(folio).expect("the last reference"));
}

/// INV-LRU-BATCH: a page leaves its batch by its last reference, by isolation, or with the batch.
#[test]
fn a_page_in_a_batch_is_found_by_whatever_needs_it() {
    let frames = machine();
    let before = frames.available();
    // Several batches, and a part of one; some pages are freed while they are in a batch.
    let mut kept = Vec::new();
    for page in 0..200 {
        let folio = batched(&frames);
        if page % 7 == 3 { free_mapped(&frames, folio) } else { kept.push(folio) }
    }
    let heads: Vec<Pfn> = kept.iter().rev().map(FolioRef::pfn).collect();
    assert_eq!(frames.lru_pages(NODE0, LruList::InactiveAnon), kept.len() as u32, "INV-LRU-SIZE");
    assert_eq!(on(&frames, LruList::InactiveAnon), heads, "the latest is in front, as without batches");
    check(&frames);
    // The latest page is in a batch again when it is isolated.
    let latest = batched(&frames);
    let isolated = frames.isolate(frames.folio_of(&latest)).expect("a page in a batch is on its way to a list");
    assert!(frames.putback(isolated).is_none());
    kept.push(latest);
    check(&frames);
    kept.drain(..).for_each(|folio| free_mapped(&frames, folio));
    assert_eq!(frames.available(), before);
    assert_eq!(on(&frames, LruList::InactiveAnon), []);
}

/// INV-LRU-BATCH: another CPU moves, isolates, counts and frees pages of this CPU's batch.
#[test]
fn a_page_in_a_batch_of_another_cpu_is_found() {
    let frames = two_nodes();
    let folios: Vec<FolioRef> = (0..40).map(|_| batched(&frames)).collect();
    on_cpu(CpuId::new(1), || {
        let newest = frames.folio_of(folios.last().expect("a folio"));
        assert!(newest.flags().contains(FolioFlags::LRU));
        frames.lru_move(newest, FolioFlags::ACTIVE, NO_FLAGS);
        assert_eq!(on(&frames, LruList::ActiveAnon), [newest.pfn()]);
    });
    let latest = batched(&frames);
    on_cpu(CpuId::new(1), || {
        assert_eq!(frames.lru_pages(NODE0, LruList::InactiveAnon), 40, "INV-LRU-BATCH: all pages count");
        let isolated = frames.isolate(frames.folio_of(&latest)).expect("the page is on its way to a list");
        assert!(frames.putback(isolated).is_none());
    });
    check(&frames);
    on_cpu(CpuId::new(1), || folios.into_iter().for_each(|folio| free_mapped(&frames, folio)));
    free_mapped(&frames, latest);
    check(&frames);
}

/// INV-LRU-BATCH: a scan on another CPU visits the pages of this CPU's batch.
#[test]
fn a_scan_visits_the_batches_of_all_cpus() {
    let frames = two_nodes();
    let folios: Vec<FolioRef> = (0..5).map(|_| batched(&frames)).collect();
    let mut taken = Vec::new();
    on_cpu(CpuId::new(1), || {
        frames.isolate_tail(NODE0, LruList::InactiveAnon, 3, |isolated| {
            taken.push(isolated);
            true
        })
    });
    let pfns: Vec<Pfn> = taken.iter().map(IsolatedFolio::pfn).collect();
    let oldest: Vec<Pfn> = folios[..3].iter().map(FolioRef::pfn).collect();
    assert_eq!(pfns, oldest, "INV-LRU-BATCH: the oldest pages are isolated first");
    for isolated in taken {
        assert!(frames.putback(isolated).is_none());
    }
    folios.into_iter().for_each(|folio| free_mapped(&frames, folio));
    check(&frames);
}

/// INV-LRU-BATCH: pages that are freed together leave the batches of two CPUs, and the lists.
#[test]
fn pages_of_two_batches_and_of_a_list_are_freed_together() {
    let frames = two_nodes();
    let before = frames.available();
    let mut kept = Vec::new();
    let mut release_list = ReleaseList::new();
    for page in 0..60 {
        let cpu = CpuId::new(page % 3 / 2);
        let reference = on_cpu(cpu, || in_a_batch(&frames, take(&frames, 0)));
        if page % 5 == 0 {
            kept.push(reference);
        } else {
            release_list.put_last(&frames, reference).expect("the last reference");
        }
    }
    release_list.free(&frames);
    check(&frames);
    assert_eq!(frames.lru_pages(NODE0, LruList::InactiveAnon), kept.len() as u32, "INV-LRU-SIZE");
    drop_all(&frames, kept);
    assert_eq!(frames.available(), before);
}

/// INV-LRU-PLACE: a CPU that takes frames of two nodes in turn has a batch for one at a time.
#[test]
fn pages_of_two_nodes_come_to_the_lists_of_their_own() {
    let frames = two_nodes();
    let mut folios = Vec::new();
    for page in 0..40_u32 {
        let node = if page.is_multiple_of(3) { FAR } else { NODE0 };
        let request = FrameRequest { permitted: NodeMask::of(node), ..FrameRequest::new(Order::ZERO, node) };
        let block = frames.alloc(request, support::nothing_settled).expect("memory is left");
        folios.push((node, in_a_batch(&frames, block.settle(|_| {}))));
        if page.is_multiple_of(5) {
            check(&frames);
        }
    }
    check(&frames);
    for node in [NODE0, FAR] {
        let own = folios.iter().filter(|(of, _)| *of == node).count() as u32;
        assert_eq!(frames.lru_pages(node, LruList::InactiveAnon), own, "INV-LRU-SIZE: node {node}");
    }
    for (_, folio) in folios {
        frames.free(frames.put(folio).expect("the last reference"));
    }
    check(&frames);
}

/// INV-LRU-BATCH: without batches each page is on its list at once.
#[test]
fn a_batch_of_one_page_is_no_batch() {
    let frames = machine();
    frames.set_lru_batch(1);
    let folios: Vec<FolioRef> = (0..3).map(|_| batched(&frames)).collect();
    let heads: Vec<Pfn> = folios.iter().rev().map(FolioRef::pfn).collect();
    assert_eq!(on(&frames, LruList::InactiveAnon), heads);
    folios.into_iter().for_each(|folio| free_mapped(&frames, folio));
    check(&frames);
}

// One test for each: a test that fails leaves its thread on the other CPU.
#[cfg(feature = "planted")]
#[test]
fn an_operation_that_leaves_its_page_in_the_batch_of_another_cpu_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::OtherBatchMissed, a_page_in_a_batch_of_another_cpu_is_found);
}

#[cfg(feature = "planted")]
#[test]
fn a_scan_that_leaves_the_batches_of_other_cpus_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::OtherBatchMissed, a_scan_visits_the_batches_of_all_cpus);
}

/// The count is in a record of the folio itself, also if it has two pages only.
#[test]
fn the_locks_of_a_folio_of_two_pages_are_not_in_its_neighbour() {
    let frames = machine();
    let folios: Vec<FolioRef> = (0..8).map(|_| listed(&frames, 1, FolioFlags::SWAPBACKED)).collect();
    let views = || folios.iter().map(|folio| frames.folio_of(folio));
    let neighbours = views().filter(|view| views().any(|other| view.pfn().add(2) == other.pfn()));
    assert_ne!(neighbours.count(), 0);
    for view in views() {
        assert!(frames.mlock(view, 1));
        assert_eq!(view.mlocks(), 1);
        assert!(views().all(|other| !other.is_mapped()), "INV-FRAME-MAP: beside {view:?}");
        assert!(frames.munlock(view, 1));
    }
    drop_all(&frames, folios);
}
