//! What each operation must flush: each cell of the table, compared with what the machine flushes.
//!
//! INV-TLB-COVER, INV-LINGER-COVERS.

use super::space::{Space, machine, page};
use crate::support::{Host, on};
use pagewright_arch::{Effects, Entry, Isa, Leaf, LeafFlags, Pte, PteSlot, on_both};
use pagewright_tlb::{Batch, Debt, DependentOperation, EntryDeferral, FlushCover, Gather, OwedFlush, required_cover};
use pagewright_types::{Access, IsaKind, Level, Pfn, Rights, VirtAddr};

on_both! { each_cell_flushes_what_the_table_says }

/// The CPU of the operation; on arm64 it is not the one that issued what is deferred.
const RELIES: u16 = 3;

/// The entry of a huge leaf that the first space has, beside its last-level table.
fn block<I: Isa>(space: &Space<I>) -> (PteSlot, VirtAddr) {
    (PteSlot { table: space.pmd, index: 7 }, page(0).align_down(1 << 30).add(7 << 21))
}

/// CPU 1 uses pages 0 and 1 and the huge leaf of `space`, and CPU 2 page 0 of `other`.
fn use_both<I: Isa>(host: &Host<I>, space: &Space<I>, other: &Space<I>) {
    let leaf = Leaf { pfn: Pfn::new(512), rights: Rights::RW, flags: LeafFlags::USER | LeafFlags::ACCESSED };
    let fx = space.tlb.fx();
    fx.store(block(space).0, I::leaf(Level::PMD, leaf));
    (_, _, _) = (space.map_new(0), space.map_new(1), other.map_new(0));
    for (cpu, va) in [(1, page(0)), (1, page(1)), (1, block(space).1), (2, page(0))] {
        assert!(on(cpu, || host.access(va, Access::Read)).is_some());
    }
    // From here on only a TLB leads to them.
    [space.slot(1), block(space).0, other.slot(0)].into_iter().for_each(|slot| fx.store(slot, Pte::EMPTY));
}

/// The leaf of entry 0, if it is one.
fn leaf_of<I: Isa>(space: &Space<I>) -> Option<Leaf> {
    match I::decode(Level::PTE, space.tlb.fx().load(space.slot(0))) {
        Entry::Leaf(leaf) => Some(leaf),
        Entry::Empty | Entry::Soft(_) | Entry::Table(_) => None,
    }
}

/// What has been flushed since.
fn flushed<I: Isa>(host: &Host<I>, space: &Space<I>) -> FlushCover {
    let reaches = |cpu, va| on(cpu, || host.access(va, Access::Read)).is_some();
    if !reaches(2, page(0)) {
        FlushCover::Everything
    } else if !reaches(1, block(space).1) {
        FlushCover::Space
    } else if !reaches(1, page(1)) {
        FlushCover::Table
    } else if !reaches(1, page(0)) {
        FlushCover::Entry
    } else {
        FlushCover::Nothing
    }
}

/// Brings entry 0 into a state.
fn defer<'t, I: Isa>(
    space: &'t Space<I>,
    deferral: EntryDeferral,
    batch: &mut Batch<'t, Host<I>>,
) -> Option<Gather<'t, Host<I>>> {
    let tlb = &*space.tlb;
    match deferral {
        EntryDeferral::Settled => tlb.fx().store(space.slot(0), Pte::EMPTY),
        EntryDeferral::Pending => batch.absorb(&space.context, space.clear(0)),
        EntryDeferral::Lingering => drop(space.linger(0)),
        EntryDeferral::Covered => {
            let key = space.linger(0);
            space.map_new(0);
            space.tlb.frames().folio(leaf_of(space).expect("a leaf").pfn).add_debt(key);
        }
        EntryDeferral::Gathered => {
            let mut open = Gather::concurrent(tlb, &space.context);
            open.absorb(space.clear(0));
            open.publish(space.last());
            return Some(open);
        }
        EntryDeferral::Weakened => {
            let debt = space.clear(0);
            let leaf = Leaf { pfn: Pfn::new(600), rights: Rights::empty(), flags: LeafFlags::USER };
            tlb.fx().store(space.slot(0), I::leaf(Level::PTE, leaf));
            batch.absorb(&space.context, debt);
        }
        EntryDeferral::Unplaced => {
            tlb.fx().store(space.slot(0), Pte::EMPTY);
            batch.absorb(&space.context, Debt::new(tlb, &space.context, page(0), OwedFlush::Leaf(Level::PTE), ()));
        }
        EntryDeferral::Merged => space.clear_for_all(&[&space.context], batch, 0),
    }
    None
}

fn operate<I: Isa>(space: &Space<I>, operation: DependentOperation) {
    let (tlb, context) = (&*space.tlb, &space.context);
    match operation {
        DependentOperation::Install => tlb.flush_before_install(context, space.slot(0), page(0), Level::PTE),
        DependentOperation::StoreMany => tlb.flush_pending_table(context, space.last()),
        DependentOperation::EditProtNone => {
            if tlb.may_owe_flush(context, space.last()) {
                Debt::new(tlb, context, page(0), OwedFlush::Leaf(Level::PTE), ()).at(space.slot(0)).settle();
            }
        }
        DependentOperation::Gather => space.depend(),
        DependentOperation::ConcurrentGather => {
            let mut gather = Gather::concurrent(tlb, context);
            gather.meet(space.last());
            gather.settle();
        }
        DependentOperation::HandOver => {
            let mut gather = Gather::new(tlb, context);
            gather.hand_over(space.last());
            gather.settle();
        }
        DependentOperation::SettleEntry => {
            Debt::new(tlb, context, page(1), OwedFlush::Nothing, ()).at(space.slot(1)).settle();
        }
        DependentOperation::AbsorbPending => {
            let mut batch = Batch::new(tlb);
            batch.absorb_pending(context, space.last());
            batch.settle();
        }
        DependentOperation::Widen => {
            if let Some(folio) = leaf_of(space).and_then(|leaf| tlb.frames().find_folio(leaf.pfn)) {
                tlb.settle_folio(folio);
            }
        }
    }
}

fn each_cell_flushes_what_the_table_says<I: Isa>() {
    for operation in DependentOperation::ALL {
        for deferral in EntryDeferral::ALL {
            let Some(required) = required_cover(operation, deferral) else { continue };
            let (host, tlb) = machine::<I>(4);
            let (space, other) = (Space::new(&tlb), Space::new(&tlb));
            on(1, || space.run());
            on(2, || other.run());
            let mut settled = Batch::new(&tlb);
            settled.absorb(&space.context, space.clear(2));
            settled.settle();
            use_both(&host, &space, &other);
            let mut batch = Batch::new(&tlb);
            let gather = defer(&space, deferral, &mut batch);
            assert!(deferral == EntryDeferral::Covered || flushed(&host, &space) == FlushCover::Nothing);
            on(RELIES, || operate(&space, operation));
            if deferral == EntryDeferral::Covered {
                // What is reached from here on is what lingers, not the leaf that covers it.
                tlb.fx().store(space.slot(0), Pte::EMPTY);
            }
            let done = flushed(&host, &space);
            // An x86 CPU that has missed the generation of the deferral flushes the whole tag, and
            // no invalidation covers a table alone. Flushes of everything settle the key of a
            // folio.
            let least = required == FlushCover::Table
                || operation == DependentOperation::Widen
                || I::KIND == IsaKind::X86_64 && required > FlushCover::Nothing;
            assert!(done >= required && (least || done == required), "{operation:?}, {deferral:?}: {done:?}");
            batch.settle();
            if let Some(gather) = gather {
                gather.settle();
            }
        }
    }
}

/// INV-TLB-COVER: the header shows the table.
#[test]
fn the_header_of_the_crate_is_the_table() {
    let header = include_str!("../../src/lib.rs");
    for operation in DependentOperation::ALL {
        let cells = EntryDeferral::ALL.map(|deferral| match required_cover(operation, deferral) {
            None => "–".to_owned(),
            Some(cover) => format!("{cover:?}").to_lowercase(),
        });
        let row = format!("//! | {operation:?} | {} |", cells.join(" | "));
        assert!(header.lines().any(|line| line == row), "{row}");
    }
    let states = EntryDeferral::ALL.map(|deferral| format!("{deferral:?}")).join(" | ");
    assert!(header.contains(&format!("//! | operation | {states} |")));
}

#[cfg(feature = "planted")]
#[test]
fn operations_that_flush_too_little_are_found() {
    use pagewright_arch::Aarch64;
    use pagewright_plant::{PlantedBug, assert_found_by};
    for bug in [
        PlantedBug::MovedOverPending,
        PlantedBug::UnplacedNotTakenAlong,
        PlantedBug::DeferredNotTakenAlong,
        PlantedBug::LingeringNotMet,
        PlantedBug::KeysNotTaken,
    ] {
        assert_found_by(bug, each_cell_flushes_what_the_table_says::<Aarch64>);
    }
}
