//! Changing the rights of the leaves of a range (`change_pte_range`).
//!
//! What a change makes of a word, and what it owes, does not depend on the frame, so it is worked
//! out once for neighbours that differ in their frame alone.

use super::code::publish_code;
use super::last_leaf::LastLeaf;
use crate::locked_table::LockedTable;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_tlb::{Gather, OwedFlush};
use pagewright_types::{IsaKind, PageRange, Rights};

/// What a change makes of the leaves that share all bits but their frame.
#[derive(Default)]
struct LeafChange {
    to: u64,
    owes: bool,
    /// Whether instructions may be fetched through the new leaf.
    executes: bool,
    /// Whether the new leaf gains a right to store, for which its folio may have to be settled.
    gains_write: bool,
    /// Whether a walker may set a bit of the leaf concurrently.
    touched: bool,
}

impl<P: Platform> LockedTable<'_, P> {
    /// Gives each leaf of `part` the rights that `edit` makes of its rights and flags.
    ///
    /// INV-TABLE-TOUCHED: a leaf of which a walker may still set a bit is changed by an exchange.
    /// A leaf whose folio must be settled first gets no right to store. `gather` takes the flush.
    ///
    /// # Panics
    /// In debug builds when `gather` belongs to another space.
    pub fn protect_run(&self, part: PageRange, edit: impl Fn(Rights, LeafFlags) -> Rights, gather: &mut Gather<'_, P>) {
        debug_assert!(gather.is_of(self.context()), "INV-TLB-DEBT: debt of another space");
        gather.meet(self.table());
        let mut debts = gather.run(self.level());
        let mut last = LastLeaf::default();
        for index in self.indices(part) {
            let mut old = self.load(index);
            while let Some(change) = last.of::<P::Isa>(old, || self.leaf_change(old, &edit)) {
                let mut new = Pte::from_raw(old.raw() & P::Isa::FRAME | change.to);
                if change.gains_write {
                    new = self.without_unsettled_right(new);
                }
                if new == old {
                    break;
                }
                if change.executes
                    && let Entry::Leaf(leaf) = P::Isa::decode(self.level(), new)
                {
                    publish_code(self.tables.tlb, self.level(), leaf);
                }
                if plant!(DirtyBitLost; true, !change.touched) {
                    self.store(index, new);
                } else if let Err(now) = self.compare_exchange(index, old, new) {
                    old = now;
                    continue;
                }
                if change.owes {
                    debts.owe(self.address(index));
                }
                break;
            }
        }
    }

    /// What `edit` makes of a leaf; `None` if the entry is anything else.
    fn leaf_change(&self, old: Pte, edit: impl Fn(Rights, LeafFlags) -> Rights) -> Option<LeafChange> {
        let Entry::Leaf(leaf) = P::Isa::decode(self.level(), old) else { return None };
        let rights = edit(leaf.rights, leaf.flags);
        let new = P::Isa::leaf(self.level(), Leaf { rights, ..leaf });
        let owes = old != new && plant!(ProtectNoFlush; false, self.owed(old, new) != OwedFlush::Nothing);
        let executes = P::Isa::KIND == IsaKind::Aarch64 && rights.contains(Rights::EXEC);
        // The lock of the table keeps its pages where they are, so none gets a key meanwhile.
        let gains_write = self.tables.tlb.may_have_lingered()
            && (rights - leaf.rights).contains(Rights::WRITE)
            && !leaf.flags.contains(LeafFlags::SPECIAL);
        Some(LeafChange { to: new.raw() & !P::Isa::FRAME, owes, executes, gains_write, touched: leaf.may_be_touched() })
    }
}
