//! INV-REPLACE: the TLB maintenance that a replacement needs.
//!
//! Row by row from Intel SDM vol. 3A §4.10.4.2–3 and Arm ARM D8.16.1, and as a property over all
//! pairs of leaves.

use crate::manual::{Manual, Seen, Walk};
use crate::strategy;
use pagewright_arch::Replacement::{self, BreakFirst, Flush, FlushIfPending, Harmless};
use pagewright_arch::{Aarch64, Entry, Isa, Leaf, LeafFlags, Pte, SoftEntry, SoftKind, TableEntry, X86_64};
use pagewright_types::{Level, Pfn, Rights};
use proptest::prelude::*;

fn encode<I: Isa>(level: Level, entry: Entry) -> Pte {
    match entry {
        Entry::Empty => Pte::EMPTY,
        Entry::Table(table) => I::table(table),
        Entry::Leaf(leaf) => I::leaf(level, leaf),
        Entry::Soft(soft) => I::soft(soft),
    }
}

fn check(level: Level, rows: &[(&str, Entry, Entry, Replacement, Replacement)]) {
    for (what, old, new, x86, arm) in rows {
        let (a, b) = (encode::<X86_64>(level, *old), encode::<X86_64>(level, *new));
        assert_eq!(X86_64::replacement(level, a, b), *x86, "{what} on x86-64");
        let (a, b) = (encode::<Aarch64>(level, *old), encode::<Aarch64>(level, *new));
        assert_eq!(Aarch64::replacement(level, a, b), *arm, "{what} on arm64");
    }
}

fn leaf(rights: Rights, flags: LeafFlags) -> Entry {
    Entry::Leaf(Leaf { pfn: Pfn::new(0x200), rights, flags })
}

fn elsewhere(rights: Rights, flags: LeafFlags) -> Entry {
    Entry::Leaf(Leaf { pfn: Pfn::new(0x400), rights, flags })
}

const SOFT: Entry = Entry::Soft(SoftEntry { kind: SoftKind::Swap, exclusive: false, payload: 7 });
const USED: LeafFlags = LeafFlags::USER.union(LeafFlags::ACCESSED).union(LeafFlags::DIRTY);
const OLD: LeafFlags = LeafFlags::USER.union(LeafFlags::DIRTY);
const CLEAN: LeafFlags = LeafFlags::USER.union(LeafFlags::ACCESSED);

#[test]
fn an_entry_that_no_tlb_can_hold_is_replaced_without_a_flush() {
    let written = leaf(Rights::RW, USED);
    check(
        Level::PTE,
        &[
            ("empty to leaf", Entry::Empty, written, Harmless, Harmless),
            ("soft to leaf", SOFT, written, Harmless, Harmless),
            ("soft to empty", SOFT, Entry::Empty, Harmless, Harmless),
        ],
    );
}

/// A TLB may hold the rights that a leaf without rights had, until that change is flushed.
#[test]
fn an_entry_without_rights_is_replaced_with_a_flush_if_one_is_pending() {
    let hidden = leaf(Rights::empty(), USED);
    let elsewhere = elsewhere(Rights::RW, USED);
    check(
        Level::PTE,
        &[
            ("PROT_NONE to another frame", hidden, elsewhere, FlushIfPending, FlushIfPending),
            ("PROT_NONE to empty", hidden, Entry::Empty, FlushIfPending, FlushIfPending),
            ("PROT_NONE to soft", hidden, SOFT, FlushIfPending, FlushIfPending),
            ("PROT_NONE to rights", hidden, leaf(Rights::READ, USED), FlushIfPending, FlushIfPending),
            ("PROT_NONE to PROT_NONE, clean", hidden, leaf(Rights::empty(), CLEAN), FlushIfPending, FlushIfPending),
            ("PROT_NONE as it was", hidden, hidden, Harmless, Harmless),
        ],
    );
}

#[test]
fn removing_rights_needs_a_flush_and_granting_them_does_not() {
    let written = leaf(Rights::RW, USED);
    check(
        Level::PTE,
        &[
            ("the same again", written, written, Harmless, Harmless),
            ("to empty", written, Entry::Empty, Flush, Flush),
            ("to soft", written, SOFT, Flush, Flush),
            ("to PROT_NONE", written, leaf(Rights::empty(), USED), Flush, Flush),
            ("to PROT_NONE elsewhere", written, elsewhere(Rights::empty(), USED), Flush, Flush),
            ("WRITE lost", written, leaf(Rights::READ, USED), Flush, Flush),
            ("WRITE gained", leaf(Rights::READ, USED), written, Harmless, Harmless),
            ("EXEC lost", leaf(Rights::RX, USED), leaf(Rights::READ, USED), Flush, Flush),
            ("EXEC gained", leaf(Rights::READ, USED), leaf(Rights::RX, USED), Harmless, Harmless),
            ("supervisor to user", leaf(Rights::READ, USED - LeafFlags::USER), leaf(Rights::READ, USED), Flush, Flush),
            ("user to supervisor", leaf(Rights::READ, USED), leaf(Rights::READ, USED - LeafFlags::USER), Flush, Flush),
        ],
    );
}

#[test]
fn clearing_dirty_needs_a_flush_only_if_the_leaf_is_writable() {
    let soft_bits = LeafFlags::EXCLUSIVE | LeafFlags::SPECIAL | LeafFlags::SOFT_DIRTY;
    let written = leaf(Rights::RW, USED);
    check(
        Level::PTE,
        &[
            ("DIRTY lost, writable", written, leaf(Rights::RW, CLEAN), Flush, Flush),
            ("DIRTY lost, read-only", leaf(Rights::READ, USED), leaf(Rights::READ, CLEAN), Harmless, Harmless),
            ("ACCESSED lost", written, leaf(Rights::RW, OLD), Harmless, Harmless),
            ("both gained", leaf(Rights::RW, LeafFlags::USER), written, Harmless, Harmless),
            ("software bits lost", leaf(Rights::RW, USED | soft_bits), written, Harmless, Harmless),
        ],
    );
}

#[test]
fn a_change_of_frame_or_to_global_breaks_first_on_arm64() {
    let global = USED | LeafFlags::GLOBAL;
    check(
        Level::PTE,
        &[
            ("frame, writable", leaf(Rights::RW, USED), elsewhere(Rights::RW, USED), Flush, BreakFirst),
            (
                "frame, to writable (copy on write)",
                leaf(Rights::READ, USED),
                elsewhere(Rights::RW, USED),
                Flush,
                BreakFirst,
            ),
            ("frame, read-only", leaf(Rights::READ, USED), elsewhere(Rights::READ, USED), Flush, BreakFirst),
            ("global made", leaf(Rights::READ, USED), leaf(Rights::READ, global), Flush, BreakFirst),
            ("global unmade", leaf(Rights::READ, global), leaf(Rights::READ, USED), Flush, Flush),
        ],
    );
}

#[test]
fn a_change_of_size_breaks_first_and_a_change_of_table_only_on_arm64() {
    let table = |pfn, write_protected| Entry::Table(TableEntry { pfn: Pfn::new(pfn), write_protected, origin: false });
    let (open, closed, other) = (table(0x200, false), table(0x200, true), table(0x201, false));
    let block = leaf(Rights::RW, USED);
    for level in [Level::PMD, Level::PUD] {
        let block = if level == Level::PMD {
            block
        } else {
            Entry::Leaf(Leaf { pfn: Pfn::new(0x4_0000), rights: Rights::RW, flags: USED })
        };
        let Entry::Leaf(hidden) = block else { unreachable!() };
        let hidden = Entry::Leaf(Leaf { rights: Rights::empty(), ..hidden });
        check(
            level,
            &[
                ("empty to table", Entry::Empty, open, Harmless, Harmless),
                ("block to table", block, open, BreakFirst, BreakFirst),
                ("table to block", open, block, BreakFirst, BreakFirst),
                ("PROT_NONE block to table", hidden, open, FlushIfPending, FlushIfPending),
                ("table to PROT_NONE block", open, hidden, Flush, Flush),
                ("table to empty", open, Entry::Empty, Flush, Flush),
                ("table to soft", open, SOFT, Flush, Flush),
                ("the same table", open, open, Harmless, Harmless),
                ("write protection set", open, closed, Flush, Flush),
                ("write protection cleared", closed, open, Harmless, Harmless),
                ("another table", open, other, Flush, BreakFirst),
            ],
        );
    }
}

/// Whether a CPU that uses `stale` can make an access that `fresh` forbids.
fn exceeds(stale: Seen, fresh: Seen) -> bool {
    let rights = |s: Seen| [s.user_read, s.user_write, s.user_exec, s.kernel_read, s.kernel_write, s.kernel_exec];
    let more = rights(stale).into_iter().zip(rights(fresh)).any(|(stale, fresh)| stale && !fresh);
    let store_unseen = (stale.kernel_write || stale.user_write) && stale.dirty && !fresh.dirty;
    more || store_unseen || stale.output != fresh.output || stale.global != fresh.global
}

fn a_harmless_replacement_leaves_no_excess_right_in_a_stale_leaf<I: Manual>() {
    let pair = strategy::leaf_level()
        .prop_flat_map(|level| (Just(level), strategy::leaf_at(level), strategy::leaf_at(level), any::<bool>()));
    proptest!(|((level, old, mut new, same_frame) in pair)| {
        if same_frame {
            new.pfn = old.pfn;
        }
        let (old, new) = (I::leaf(level, old), I::leaf(level, new));
        let due = I::replacement(level, old, new);
        match (I::walk(level, old.raw()), I::walk(level, new.raw())) {
            (Walk::Done(stale), Walk::Done(fresh)) => prop_assert_eq!(due != Harmless, exceeds(stale, fresh)),
            (Walk::Done(_), _) => prop_assert_eq!(due, Flush),
            _ => prop_assert_eq!(due, if old == new { Harmless } else { FlushIfPending }),
        }
    });
}

for_each_isa! {
    [X86_64 in x86_64, Aarch64 in aarch64] {
        a_harmless_replacement_leaves_no_excess_right_in_a_stale_leaf,
    }
}
