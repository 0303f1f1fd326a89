//! The shared lines that an operation reports: a machine that prices lines prices just these.

use crate::support::{Host, NODE0, one_node, run_on, take, take_back};
use pagewright_frame::{FolioFlags, FolioOwner, FolioRef, FrameAllocator, NewFolio, ReleaseList, ZoneKind};
use pagewright_sync::host::{LineReport, keep_report, line_reports as lines, on_cpu};
use pagewright_sync::{FullBarrier, LineRef, LineUse};
use pagewright_types::{CpuId, DebtFloor, DebtKey, LruList, Pfn};

const NO_FLAGS: FolioFlags = FolioFlags::empty();

fn machine() -> FrameAllocator<Host> {
    run_on(0);
    one_node(&Host::new(2), 0x400, 0x1000)
}

/// The same reports, as [`lines`] returns them.
fn sorted(reports: impl IntoIterator<Item = LineReport>) -> Vec<LineReport> {
    lines(|| reports.into_iter().for_each(|(name, number, used)| keep_report(LineRef::Word(number), name, used)))
}

fn load(name: &'static str, number: u64) -> LineReport {
    (name, number, LineUse::Load)
}

fn store(name: &'static str, number: u64) -> LineReport {
    (name, number, LineUse::Store)
}

/// Stores to the links of folios and to the sizes of their node, after a look at this CPU's batch.
fn relinked<const N: usize>(folios: [&FolioRef; N]) -> Vec<LineReport> {
    let links = folios.into_iter().map(|folio| store("LRU links", u64::from(folio.pfn().raw())));
    sorted([load("LRU batch", 0), store("LRU sizes", 0)].into_iter().chain(links))
}

fn counts(folio: &FolioRef) -> LineReport {
    store("folio counts", u64::from(folio.pfn().raw()))
}

/// Folios on the inactive list of files, from the back to the front.
fn listed<const N: usize>(frames: &FrameAllocator<Host>) -> [FolioRef; N] {
    std::array::from_fn(|_| {
        let reference = frames.new_folio(take(frames, 0));
        frames.lru_add(frames.folio_of(&reference));
        reference
    })
}

fn end(frames: &FrameAllocator<Host>, folios: impl IntoIterator<Item = FolioRef>) {
    folios.into_iter().for_each(|folio| frames.free(frames.put(folio).expect("the last reference")));
}

#[test]
fn a_move_on_a_list_stores_to_the_sizes_the_links_and_those_of_the_neighbours() {
    let frames = machine();
    let [a, b, c, d] = listed::<4>(&frames);
    let view = |folio| frames.folio_of(folio);
    let e = frames.new_folio(take(&frames, 0));
    assert_eq!(lines(|| frames.lru_add(view(&e))), relinked([&e, &d]), "behind the first one");
    let mut isolated = None;
    assert_eq!(lines(|| isolated = frames.isolate(view(&c))), relinked([&b, &d]), "between these");
    let isolated = isolated.expect("it is on a list");
    let put_back = lines(|| assert!(frames.putback(isolated).is_none()));
    assert_eq!(put_back, sorted(relinked([&c, &e]).into_iter().chain([counts(&c)])));
    let rotate = || assert_eq!(frames.lru_rotate(view(&d), NO_FLAGS, NO_FLAGS), FolioFlags::LRU);
    assert_eq!(lines(rotate), relinked([&b, &e, &d, &a]), "from between two to the back");
    let activate = || assert_eq!(frames.lru_move(view(&c), FolioFlags::ACTIVE, NO_FLAGS), FolioFlags::LRU);
    assert_eq!(lines(activate), relinked([&e, &c]), "alone on its new list");
    let sizes = || assert_eq!(frames.lru_pages(NODE0, LruList::InactiveFile), 4);
    assert_eq!(lines(sizes), [load("LRU batch", 0), load("LRU batch", 1), load("LRU sizes", 0)]);
    end(&frames, [a, b, c, d, e]);
}

#[test]
fn a_new_large_folio_stores_to_its_links_and_those_of_its_neighbour() {
    let frames = machine();
    let new = || NewFolio { block: take(&frames, 3), owner: FolioOwner::None, index: 0, flags: NO_FLAGS };
    let first = frames.new_mapped_folio(new());
    let (new, mut second) = (new(), None);
    let reported = lines(|| second = Some(frames.new_mapped_folio(new)));
    let second = second.expect("just made");
    for folio in [&first, &second] {
        assert!(reported.contains(&store("LRU links", u64::from(folio.pfn().raw()))), "{reported:?}");
        frames.folio_of(folio).unmap_entire();
    }
    end(&frames, [first, second]);
}

#[test]
fn only_the_first_mlock_and_the_last_munlock_move_a_folio() {
    let frames = machine();
    let [a, b, c] = listed::<3>(&frames);
    let view = frames.folio_of(&b);
    let still = [load("LRU batch", 0)];
    assert_eq!(lines(|| assert!(frames.mlock(view, 1))), relinked([&a, &b, &c]));
    assert_eq!(lines(|| assert!(!frames.mlock(view, 1))), still);
    assert_eq!(lines(|| assert!(!frames.munlock(view, 1))), still);
    assert_eq!(lines(|| assert!(frames.munlock(view, 1))), relinked([&b, &c]));
    end(&frames, [a, b, c]);
}

#[test]
fn a_new_page_stores_to_its_own_cpus_batch_until_the_batch_is_full() {
    let frames = machine();
    frames.set_lru_batch(3);
    let [before] = listed::<1>(&frames);
    let mut folios = Vec::new();
    let mut new_page = || {
        let new = NewFolio { block: take(&frames, 0), owner: FolioOwner::None, index: 0, flags: NO_FLAGS };
        let pfn = u64::from(new.pfn().raw());
        (pfn, lines(|| folios.push(frames.new_mapped_folio(new))))
    };
    let (first, reported) = new_page();
    assert_eq!(reported, [store("LRU batch", 0), store("folio counts", first)]);
    let (second, reported) = new_page();
    assert_eq!(reported, [store("LRU batch", 0), store("folio counts", second)]);
    let (third, reported) = new_page();
    let [last, old] = [first, u64::from(before.pfn().raw())].map(|pfn| store("LRU links", pfn));
    let drained = vec![store("LRU batch", 0), store("LRU sizes", 0), last, old, store("folio counts", third)];
    assert_eq!(reported, sorted(drained), "the ends of the batch and of the list");
    let (fourth, reported) = new_page();
    assert_eq!(reported, [store("LRU batch", 0), store("folio counts", fourth)], "an empty batch");
    let elsewhere = || {
        on_cpu(CpuId::new(1), || frames.lru_rotate(frames.folio(Pfn::new(fourth as u32)), NO_FLAGS, NO_FLAGS));
    };
    let used = [load("LRU batch", 0), store("LRU batch", 0), load("LRU batch", 1)];
    assert_eq!(lines(elsewhere)[..3], used, "another CPU drains it");
    let (fifth, _) = new_page();
    let (sixth, _) = new_page();
    let mut going = ReleaseList::default();
    let stays = folios.remove(4);
    for folio in folios {
        assert!(frames.folio_of(&folio).unmap_small());
        let count = counts(&folio);
        assert_eq!(lines(|| going.put_last(&frames, folio).expect("the last reference")), [count]);
    }
    // One leaves the batch, the others their list.
    let free = lines(|| going.free(&frames));
    assert!(free.contains(&store("LRU batch", 0)) && free.contains(&store("LRU sizes", 0)), "{free:?}");
    let links = |pfn| free.contains(&store("LRU links", pfn));
    assert!(links(u64::from(before.pfn().raw())) && links(fifth), "the neighbours that stay: {free:?}");
    assert!(![first, second, third, fourth, sixth].into_iter().any(links), "those that go: {free:?}");
    assert!(frames.folio_of(&stays).unmap_small());
    let last = lines(|| end(&frames, [stays]));
    assert!(last.contains(&store("LRU batch", 0)) && !last.contains(&store("LRU sizes", 0)), "{last:?}");
    let empty = lines(|| assert_eq!(frames.lru_pages(NODE0, LruList::InactiveFile), 1));
    assert_eq!(empty, [load("LRU batch", 0), load("LRU batch", 1), load("LRU sizes", 0)], "nothing is left in it");
    end(&frames, [before]);
}

#[test]
fn one_more_entry_of_a_page_stores_to_its_counts() {
    let frames = machine();
    let block = take(&frames, 0);
    let folio = frames.new_mapped_folio(NewFolio { block, owner: FolioOwner::None, index: 0, flags: NO_FLAGS });
    let count = counts(&folio);
    let again =
        || assert!(frames.get_and_map_small(folio.pfn(), FullBarrier::execute()).is_some_and(|(_, first)| !first));
    assert_eq!(lines(again), [count]);
    let second = take_back(&frames, folio.pfn());
    assert!(!frames.folio_of(&second).unmap_small());
    assert_eq!(lines(|| assert!(frames.put(second).is_none())), [count]);
    assert!(frames.folio_of(&folio).unmap_small());
    end(&frames, [folio]);
}

/// The number of the counts of the only zone.
const ZONE: u64 = ZoneKind::Dma32 as u64;

#[test]
fn a_block_stores_to_its_record_and_to_the_counts_of_its_zone() {
    let frames = machine();
    let counted = [load("zone counts", ZONE), store("zone counts", ZONE)];
    let mut blocks = Vec::new();
    let with = |pfns: &[u64]| {
        let blocks = pfns.iter().map(|pfn| store("free block", *pfn));
        sorted(counted.into_iter().chain(blocks))
    };
    for order in [0, 4] {
        let reported = lines(|| blocks.push(take(&frames, order)));
        let pfn = u64::from(blocks.last().expect("just taken").pfn().raw());
        assert_eq!(reported, with(&[pfn]), "order {order}");
    }
    let [small, large] = blocks.try_into().expect("two blocks");
    let (small_pfn, pfn) = (u64::from(small.pfn().raw()), u64::from(large.pfn().raw()));
    assert_eq!(lines(|| frames.free(large)), [store("free block", pfn), store("zone counts", ZONE)]);
    assert_eq!(lines(|| frames.free(small)), [], "to the list of this CPU");
    assert_eq!(lines(|| frames.drain()), [store("free block", small_pfn), store("zone counts", ZONE)]);
    let owing = take(&frames, 0);
    let parked = lines(|| frames.free_with_debt(owing, DebtKey::new(7)));
    assert_eq!(parked, [store("free block", small_pfn), store("zone counts", ZONE)]);
    assert_eq!(lines(|| assert_eq!(frames.unpark(DebtFloor::new(6)), 0)), counted, "nothing is settled");
    assert_eq!(lines(|| assert_eq!(frames.unpark(DebtFloor::new(8)), 1)), counted);
    let nothing = lines(|| assert_eq!(frames.unpark(DebtFloor::new(9)), 0));
    assert_eq!(nothing, [load("zone counts", ZONE)], "nothing is parked");
}

/// A zone of 48 MiB has batches of three.
#[test]
fn a_refill_stores_to_the_records_of_the_blocks_that_it_moves() {
    run_on(0);
    let frames = one_node(&Host::new(2), 0x400, 0x400 + (48 << 8));
    let mut blocks = Vec::new();
    let stored = [(); 4].map(|()| {
        let reported = lines(|| blocks.push(take(&frames, 0)));
        reported.into_iter().filter(|(name, _, used)| (*name, *used) == ("free block", LineUse::Store)).count()
    });
    assert_eq!(stored, [3, 1, 1, 3]);
    blocks.into_iter().for_each(|block| frames.free(block));
}
