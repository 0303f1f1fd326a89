//! What a CPU keeps for itself: blocks that it takes and gives back together, and new pages.

use crate::support::{self, Host, NODE0, one_node, run_on, take};
use pagewright_frame::{Block, FolioFlags, FolioOwner, FolioRef, FrameAllocator, NewFolio};
use pagewright_types::{DebtKey, LruList, Pfn};

/// The batch of a zone of 256 MiB (`zone_batchsize`).
const BATCH: u32 = 15;
const FRAMES: u32 = 1 << 16;

fn machine() -> FrameAllocator<Host> {
    run_on(0);
    one_node(&Host::new(1), 0, FRAMES)
}

/// The free frames of the only zone, and those on the CPU's lists.
fn kept(frames: &FrameAllocator<Host>) -> (u32, u32) {
    let zone = frames.zones().next().expect("a zone");
    (zone.free(), zone.on_pcp())
}

fn end(frames: &FrameAllocator<Host>, blocks: Vec<Block>) {
    blocks.into_iter().for_each(|block| frames.free(block));
    frames.drain();
    assert_eq!(kept(frames), (FRAMES, 0));
}

#[test]
fn the_first_block_of_an_order_comes_with_a_batch_and_the_next_ones_from_it() {
    for order in 0..=3 {
        let frames = machine();
        let batch = BATCH >> order;
        let mut blocks = Vec::new();
        for taken in 1..=batch {
            blocks.push(take(&frames, order));
            assert_eq!(kept(&frames), (FRAMES - (batch << order), (batch - taken) << order), "order {order}");
        }
        blocks.push(take(&frames, order));
        assert_eq!(kept(&frames), (FRAMES - ((2 * batch) << order), (batch - 1) << order), "order {order}");
        end(&frames, blocks);
    }
}

#[test]
fn a_batch_of_scattered_blocks_is_as_large() {
    let frames = machine();
    // Every third frame stays in use, so that free blocks have one or two frames.
    let mut blocks: Vec<_> = (0..FRAMES).map(|_| take(&frames, 0)).collect();
    let (free, used) = blocks.drain(..).partition::<Vec<_>, _>(|block| block.pfn().raw() % 3 > 0);
    let count = free.len() as u32;
    free.into_iter().for_each(|block| frames.free(block));
    frames.drain();
    assert_eq!(kept(&frames), (count, 0));
    blocks = used;
    blocks.push(take(&frames, 0));
    assert_eq!(kept(&frames), (count - BATCH, BATCH - 1));
    end(&frames, blocks);
}

#[test]
fn a_batch_has_settled_blocks_only_and_is_as_large_beside_parked_ones() {
    let frames = machine();
    let owing = take(&frames, 5);
    frames.free_with_debt(owing, DebtKey::new(3));
    let blocks = vec![take(&frames, 0)];
    assert_eq!(kept(&frames), (FRAMES - BATCH, BATCH - 1));
    assert_eq!(frames.parked(), 32);
    support::settle_everything(&frames);
    end(&frames, blocks);
}

fn new_page(frames: &FrameAllocator<Host>, order: u8) -> FolioRef {
    let new = NewFolio { block: take(frames, order), owner: FolioOwner::None, index: 0, flags: FolioFlags::empty() };
    frames.new_mapped_folio(new)
}

#[test]
fn one_cpu_sees_its_new_pages_in_the_order_in_which_it_made_them() {
    let frames = machine();
    let mut folios = Vec::new();
    // Those of even number go through the batch, the others to their list at once.
    for number in 0..8 {
        folios.push(match number {
            3 => new_page(&frames, 2),
            odd if odd % 2 == 1 => {
                let reference = frames.new_folio(take(&frames, 0));
                frames.lru_add(frames.folio_of(&reference));
                reference
            }
            _ => new_page(&frames, 0),
        });
    }
    let mut on_list = Vec::new();
    frames.for_each_listed(NODE0, LruList::InactiveFile, |pfn| on_list.push(pfn));
    on_list.reverse();
    assert_eq!(on_list, folios.iter().map(FolioRef::pfn).collect::<Vec<Pfn>>());
    for reference in folios {
        let folio = frames.folio_of(&reference);
        match folio.mapcount() {
            0 => {}
            _ if folio.is_large() => drop(folio.unmap_entire()),
            _ => assert!(folio.unmap_small()),
        }
        frames.free(frames.put(reference).expect("the last reference"));
    }
}
