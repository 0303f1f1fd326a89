//! INV-CODEC-EXACT and INV-SOFT-UNSEEN: an encoded entry decodes to itself.
//!
//! And the walker of the manual reads it the same way.

use crate::manual::{Manual, Walk};
use crate::strategy;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pending, PendingSequence, Pte};
use pagewright_types::{Level, Rights};
use proptest::prelude::*;

fn a_leaf_decodes_to_itself<I: Isa>() {
    proptest!(|((level, leaf) in strategy::leaf())| {
        prop_assert_eq!(I::decode(level, I::leaf(level, leaf)), Entry::Leaf(leaf));
    });
}

fn a_table_decodes_to_itself<I: Manual>() {
    proptest!(|(table in strategy::table(), level in 1u8..4)| {
        let (pte, level) = (I::table(table), Level::new(level));
        prop_assert_eq!(I::decode(level, pte), Entry::Table(table));
        let next = Walk::Next { table: table.pfn.base(), write_protected: table.write_protected };
        prop_assert_eq!(I::walk(level, pte.raw()), next);
    });
}

fn a_soft_entry_decodes_to_itself_and_faults_the_walker<I: Manual>() {
    proptest!(|(soft in strategy::soft(), level in 0u8..4)| {
        let (pte, level) = (I::soft(soft), Level::new(level));
        prop_assert_eq!(I::decode(level, pte), Entry::Soft(soft));
        prop_assert!(!pte.is_empty());
        prop_assert_eq!(I::walk(level, pte.raw()), Walk::Fault);
    });
}

/// Of an empty entry and of a soft one; a leaf without rights keeps its frame and gets no mark.
fn a_pending_entry_decodes_as_without_the_mark_and_faults_the_walker<I: Manual>() {
    proptest!(|(soft in prop::option::of(strategy::soft()), (at, leaf) in strategy::leaf(), first in 0u32..4, lingers in any::<bool>(), level in 0u8..4)| {
        let (pte, level) = (soft.map_or(Pte::EMPTY, I::soft), Level::new(level));
        prop_assert_eq!(I::pending(pte), None);
        let mut marked = pte;
        for (sequence, lingers) in [(first, lingers), (first + 1, !lingers)] {
            let pending = Pending { sequence: PendingSequence::new(sequence), lingers };
            marked = I::mark_pending(marked, pending).expect("it is not present");
            prop_assert_eq!(I::pending(marked), Some(pending));
            prop_assert_eq!(I::decode(level, marked), I::decode(level, pte));
            prop_assert_eq!(I::walk(level, marked.raw()), Walk::Fault);
        }
        let leaf = I::leaf(at, leaf);
        let pending = Pending { sequence: PendingSequence::new(first), lingers };
        prop_assert_eq!((I::mark_pending(leaf, pending), I::pending(leaf)), (None, None));
    });
}

fn the_walker_reads_the_rights_and_flags_of_the_leaf<I: Manual>() {
    proptest!(|((level, leaf) in strategy::leaf())| {
        let walk = I::walk(level, I::leaf(level, leaf).raw());
        if leaf.rights.is_empty() {
            prop_assert_eq!(walk, Walk::Fault);
            return Ok(());
        }
        let Walk::Done(seen) = walk else {
            return Err(TestCaseError::fail(format!("{walk:?}")));
        };
        let user = leaf.flags.contains(LeafFlags::USER);
        let (write, exec) = (leaf.rights.contains(Rights::WRITE), leaf.rights.contains(Rights::EXEC));
        prop_assert_eq!(seen.output, leaf.pfn.base());
        prop_assert_eq!((seen.user_read, seen.user_write, seen.user_exec), (user, user && write, user && exec));
        prop_assert_eq!((seen.kernel_read, seen.kernel_write, seen.kernel_exec), (!user, !user && write, !user && exec));
        prop_assert_eq!(seen.global, leaf.flags.contains(LeafFlags::GLOBAL));
        prop_assert_eq!(seen.accessed, leaf.flags.contains(LeafFlags::ACCESSED));
        // A read-only leaf may keep DIRTY in a bit that the walker ignores (arm64).
        if write {
            prop_assert_eq!(seen.dirty, leaf.flags.contains(LeafFlags::DIRTY));
        }
    });
}

fn a_shared_and_an_old_leaf_lack_what_they_should_and_nothing_else<I: Isa>() {
    proptest!(|((level, leaf) in strategy::leaf())| {
        let shared = Leaf { rights: leaf.rights - Rights::WRITE, flags: leaf.flags - LeafFlags::EXCLUSIVE, ..leaf };
        prop_assert_eq!(I::shared(I::leaf(level, leaf)), I::leaf(level, shared));
        let old = Leaf { flags: leaf.flags - LeafFlags::ACCESSED, ..leaf };
        prop_assert_eq!(I::old(I::leaf(level, leaf)), I::leaf(level, old));
    });
}

fn a_reused_leaf_allows_stores_and_has_seen_one<I: Isa>() {
    proptest!(|((level, leaf) in strategy::leaf())| {
        prop_assume!(!leaf.rights.is_empty());
        let reused = Leaf { rights: leaf.rights | Rights::WRITE, flags: leaf.flags | LeafFlags::STORED, ..leaf };
        prop_assert_eq!(I::reused(I::leaf(level, leaf)), I::leaf(level, reused));
    });
}

fn leaves_are_the_same_but_touched_if_only_the_walker_has_changed_them<I: Isa>() {
    proptest!(|((level, leaf) in strategy::leaf(), other in any::<u8>(), drop_write in any::<bool>())| {
        let flags = LeafFlags::from_bits_truncate(other);
        let other = Leaf { flags, ..leaf };
        let noted = LeafFlags::ACCESSED | LeafFlags::DIRTY;
        // A read-only leaf of arm64 keeps DIRTY in a bit of software, which no walker changes.
        let is_kept = |leaf: Leaf| !leaf.rights.contains(Rights::WRITE) && leaf.flags.contains(LeafFlags::DIRTY);
        prop_assume!(is_kept(leaf) == is_kept(other));
        let same = (leaf.flags ^ flags) - noted == LeafFlags::empty();
        prop_assert_eq!(I::same_but_touched(I::leaf(level, leaf), I::leaf(level, other)), same);
        let less = Leaf { rights: leaf.rights - Rights::WRITE, ..leaf };
        if drop_write && leaf.rights.contains(Rights::WRITE) {
            prop_assert!(!I::same_but_touched(I::leaf(level, leaf), I::leaf(level, less)));
        }
    });
}

fn an_access_changes_only_the_bits_that_the_walker_manages<I: Manual>() {
    proptest!(|((level, leaf) in strategy::leaf(), store in any::<bool>())| {
        // Every leaf that a walker uses is readable.
        let leaf = Leaf { rights: leaf.rights | Rights::READ, ..leaf };
        let store = store && leaf.rights.contains(Rights::WRITE);
        let before = I::leaf(level, leaf);
        let after = I::touched(before, store);
        let (access, set, cleared) = I::UPDATES;
        let by_hand = if store { (before.raw() | access | set) & !cleared } else { before.raw() | access };
        prop_assert_eq!(after, Pte::from_raw(by_hand));
        let mut touched = leaf;
        touched.flags |= LeafFlags::ACCESSED;
        touched.flags.set(LeafFlags::DIRTY, store || leaf.flags.contains(LeafFlags::DIRTY));
        prop_assert_eq!(I::decode(level, after), Entry::Leaf(touched));
    });
}

/// `decode` reports every right that a walker grants, also for words of another kernel.
fn any_present_word_decodes_to_the_rights_that_the_walker_grants<I: Manual>() {
    proptest!(|(raw in any::<u64>(), level in strategy::leaf_level())| {
        // A frame number cannot name a frame past 16 TiB.
        let raw = raw & !0x000f_f000_0000_0000;
        let Walk::Done(seen) = I::walk(level, raw) else { return Ok(()) };
        let Entry::Leaf(leaf) = I::decode(level, Pte::from_raw(raw)) else {
            return Err(TestCaseError::fail("the walker sees a leaf"));
        };
        prop_assert_eq!(leaf.rights.contains(Rights::WRITE), seen.kernel_write || seen.user_write);
        prop_assert_eq!(leaf.flags.contains(LeafFlags::USER), seen.user_read);
        prop_assert!(!seen.user_exec || !seen.user_read || leaf.rights.contains(Rights::EXEC));
    });
}

/// INV-CODEC-EXACT: as the whole entry says, also for words of another kernel.
fn an_own_table_is_one_that_decodes_without_protection<I: Isa>() {
    proptest!(|(raw in any::<u64>(), table in strategy::table(), level in 1u8..4)| {
        let raw = raw & !0x000f_f000_0000_0000;
        for pte in [Pte::from_raw(raw), I::table(table)] {
            let own = match I::decode(Level::new(level), pte) {
                Entry::Table(table) if !table.write_protected => Some(table.pfn),
                _ => None,
            };
            prop_assert_eq!(I::own_table(pte), own);
        }
    });
}

for_each_isa! {
    [X86_64 in x86_64, Aarch64 in aarch64] {
        a_leaf_decodes_to_itself,
        a_table_decodes_to_itself,
        a_soft_entry_decodes_to_itself_and_faults_the_walker,
        a_pending_entry_decodes_as_without_the_mark_and_faults_the_walker,
        the_walker_reads_the_rights_and_flags_of_the_leaf,
        leaves_are_the_same_but_touched_if_only_the_walker_has_changed_them,
        a_shared_and_an_old_leaf_lack_what_they_should_and_nothing_else,
        a_reused_leaf_allows_stores_and_has_seen_one,
        an_access_changes_only_the_bits_that_the_walker_manages,
        any_present_word_decodes_to_the_rights_that_the_walker_grants,
        an_own_table_is_one_that_decodes_without_protection,
    }
}
