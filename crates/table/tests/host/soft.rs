//! SoftEntry entries above the last level.

use crate::space::Space;
use crate::support::Delivery;
use pagewright_arch::on_both;
use pagewright_arch::{Effects, Isa, PteSlot, SoftEntry, SoftKind};
use pagewright_table::TableReserve;
use pagewright_types::{Level, VirtAddr};

on_both! {
    ensure_tables_does_not_replace_a_soft_entry,
}

const VA: VirtAddr = VirtAddr::new(0x1234_5678_9000);

/// INV-TABLE-EMPTY: what stands there would be forgotten.
fn ensure_tables_does_not_replace_a_soft_entry<I: Isa>() {
    let space = Space::<I>::new(1, Delivery::AtOnce);
    space.ensure_tables(VA, Level::PMD);
    let table = space.table_at(VA, Level::PMD).expect("just made");
    let slot = PteSlot { table, index: Level::PMD.index_of(VA) as u16 };
    let soft = I::soft(SoftEntry { kind: SoftKind::Marker, exclusive: false, payload: 1 });
    space.host.store(slot, soft);
    assert_eq!(space.mmap.read().tables(&space.tlb).missing(VA, Level::PTE), 0);
    let mut reserve = TableReserve::new(&space.tlb);
    reserve.fill(1).expect("memory is left");
    let bytes = space.table().bytes();
    space.ensure_from(VA, Level::PTE, &mut reserve);
    assert_eq!((space.host.load(slot), reserve.len(), space.table().bytes()), (soft, 1, bytes));
    assert!(space.table_at(VA, Level::PTE).is_none(), "there is no such table");
}
