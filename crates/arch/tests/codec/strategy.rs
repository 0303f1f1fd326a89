//! Random entries.

use pagewright_arch::{Leaf, LeafFlags, SoftEntry, SoftKind, TableEntry};
use pagewright_types::{Level, Order, Pfn, Rights};
use proptest::prelude::*;
use proptest::sample::select;

/// A level that can hold leaves.
pub(crate) fn leaf_level() -> impl Strategy<Value = Level> {
    select(vec![Level::PTE, Level::PMD, Level::PUD])
}

fn rights() -> impl Strategy<Value = Rights> {
    // Canonical rights: any right implies READ.
    (0u8..8).prop_map(|bits| match Rights::from_bits_truncate(bits) {
        none if none.is_empty() => none,
        some => some | Rights::READ,
    })
}

/// A leaf for `level`, with canonical rights, any flags and any aligned frame.
pub(crate) fn leaf_at(level: Level) -> impl Strategy<Value = Leaf> {
    let frames = level.order().map_or(1, Order::frames);
    (any::<u32>(), rights(), any::<u8>()).prop_map(move |(pfn, rights, flags)| Leaf {
        pfn: Pfn::new(pfn & !(frames - 1)),
        rights,
        flags: LeafFlags::from_bits_truncate(flags),
    })
}

/// A level and a leaf for it.
pub(crate) fn leaf() -> impl Strategy<Value = (Level, Leaf)> {
    leaf_level().prop_flat_map(|level| (Just(level), leaf_at(level)))
}

/// A pointer to a table.
pub(crate) fn table() -> impl Strategy<Value = TableEntry> {
    (any::<u32>(), any::<bool>(), any::<bool>()).prop_map(|(pfn, write_protected, origin)| TableEntry {
        pfn: Pfn::new(pfn),
        write_protected,
        origin,
    })
}

/// A soft entry of any kind with any payload.
pub(crate) fn soft() -> impl Strategy<Value = SoftEntry> {
    let kinds = [SoftKind::Swap, SoftKind::Migration, SoftKind::Marker, SoftKind::InTransition];
    for kind in kinds {
        // A new kind belongs into the list, too.
        match kind {
            SoftKind::Swap | SoftKind::Migration | SoftKind::Marker | SoftKind::InTransition => {}
        }
    }
    (select(kinds.to_vec()), any::<bool>(), 0..1u64 << SoftEntry::PAYLOAD_BITS)
        .prop_map(|(kind, exclusive, payload)| SoftEntry { kind, exclusive, payload })
}
