//! INV-FRAME-LINEAR: debug builds panic when a linear value is dropped.
#![cfg(debug_assertions)]

use crate::support::{self, Host, NODE0, one_node, take};
use pagewright_frame::{BlockList, FolioRef, FrameAllocator, FrameRequest, ReleaseList};
use pagewright_types::Order;
use std::mem::ManuallyDrop;

fn machine() -> FrameAllocator<Host> {
    one_node(&Host::new(1), 0, 64)
}

/// A machine, and the only reference to a folio of this order, which may be leaked.
fn machine_with_folio(order: u8) -> (FrameAllocator<Host>, ManuallyDrop<FolioRef>) {
    let frames = machine();
    let reference = frames.new_folio(take(&frames, order));
    (frames, ManuallyDrop::new(reference))
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked block of order 2 at 0x0")]
fn a_dropped_block_panics() {
    drop(take(&machine(), 2));
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR")]
fn a_dropped_unsettled_block_panics() {
    drop(machine().alloc(FrameRequest::new(Order::ZERO, NODE0), support::nothing_settled));
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked reference")]
fn a_dropped_reference_panics() {
    let frames = machine();
    drop(frames.new_folio(take(&frames, 0)));
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked pin")]
fn a_dropped_pin_panics() {
    let (frames, reference) = machine_with_folio(0);
    drop(frames.folio_of(&reference).try_pin());
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked frozen folio")]
fn a_dropped_frozen_folio_panics() {
    let (frames, reference) = machine_with_folio(0);
    drop(frames.folio_of(&reference).freeze(1));
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked 3 parts")]
fn dropped_parts_of_a_folio_panic() {
    let (frames, reference) = machine_with_folio(2);
    let mut parts = frames.folio_of(&reference).freeze(1).expect("one reference").split(Order::ZERO);
    parts.next().expect("a first part").thaw(1);
    drop(parts);
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR")]
fn a_dropped_list_with_blocks_panics() {
    let frames = machine();
    let mut list = BlockList::new();
    list.push(&frames, take(&frames, 0));
    drop(list);
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked reference")]
fn a_dropped_isolated_folio_panics() {
    let (frames, reference) = machine_with_folio(0);
    frames.lru_add(frames.folio_of(&reference));
    drop(frames.isolate(frames.folio_of(&reference)));
}

#[test]
#[should_panic(expected = "INV-FRAME-LINEAR: leaked 1 folios")]
fn a_dropped_release_list_with_folios_panics() {
    let frames = machine();
    let mut release_list = ReleaseList::new();
    release_list.put_last(&frames, frames.new_folio(take(&frames, 0))).expect("the last reference");
    drop(release_list);
}

#[test]
#[should_panic(expected = "INV-FRAME-STATE")]
fn a_block_made_twice_of_one_frame_number_panics() {
    let frames = machine();
    let pfn = take(&frames, 0).into_raw();
    frames.free(support::block_at(&frames, pfn));
    let _ = support::block_at(&frames, pfn).into_raw();
}
