//! A table page under its lock, whose entries can be read and edited.

use crate::owned_leaf::OwnedLeaf;
use crate::page_table::PageTable;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte, PteSlot, Replacement, SoftEntry};
use pagewright_plant::plant;
use pagewright_sync::{BitSpinGuard, Platform, rank};
use pagewright_tlb::{Debt, OwedFlush, Tlb};
use pagewright_types::{Level, PageRange, Pfn, VirtAddr};

/// The lock held, by the table's level.
enum Guard<'a, P: Platform> {
    Upper { _guard: BitSpinGuard<'a, rank::TableUpperRank, P::Locks> },
    Last { _guard: BitSpinGuard<'a, rank::TableRank, P::Locks> },
}

/// A locked table page: its entries can be read and edited.
///
/// Any address under an entry names it.
#[must_use]
pub struct LockedTable<'a, P: Platform> {
    tree: &'a PageTable,
    tlb: &'a Tlb<P>,
    table: Pfn,
    level: Level,
    base: VirtAddr,
    _guard: Guard<'a, P>,
}

impl<'a, P: Platform> LockedTable<'a, P> {
    /// Locks `table`, of `level`, which holds the entry for `va`.
    ///
    /// The caller holds the space, so it stays hooked (INV-TABLE-STABLE).
    #[inline]
    pub(crate) fn new(tree: &'a PageTable, tlb: &'a Tlb<P>, table: Pfn, level: Level, va: VirtAddr) -> Self {
        let page = tlb.frames().table(table);
        let guard = match level {
            Level::PTE => Guard::Last { _guard: page.lock::<rank::TableRank>() },
            _ => Guard::Upper { _guard: page.lock::<rank::TableUpperRank>() },
        };
        Self { tree, tlb, table, level, base: va.align_down(level.table_span()), _guard: guard }
    }

    /// The level of the table: its entries span [`Level::span`] bytes.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The frame of the table.
    pub fn table(&self) -> Pfn {
        self.table
    }

    /// The addresses under the table.
    pub fn range(&self) -> PageRange {
        PageRange::new(self.base, self.base.add(self.level.table_span()))
    }

    /// The first address of `part` under each entry, in order.
    #[inline]
    pub fn entries(&self, part: PageRange) -> impl Iterator<Item = VirtAddr> + use<P> {
        let (step, end) = (self.level.span(), part.end());
        let next = move |va: &VirtAddr| Some(va.align_down(step).add(step)).filter(|next| *next < end);
        core::iter::successors((!part.is_empty()).then_some(part.start()), next)
    }

    #[inline]
    pub(crate) fn slot(&self, va: VirtAddr) -> PteSlot {
        debug_assert!(va.raw().wrapping_sub(self.base.raw()) < self.level.table_span(), "{va} is not under this table");
        PteSlot { table: self.table, index: self.level.index_of(va) as u16 }
    }

    /// The entry for `va` as a word.
    #[inline]
    pub fn pte(&self, va: VirtAddr) -> Pte {
        self.tlb.fx().load(self.slot(va))
    }

    /// The entry for `va`, decoded.
    #[inline]
    pub fn entry(&self, va: VirtAddr) -> Entry {
        P::Isa::decode(self.level, self.pte(va))
    }

    /// The leaf for `va`, or `None` if the entry is anything else.
    #[inline]
    pub fn leaf(&self, va: VirtAddr) -> Option<Leaf> {
        match self.entry(va) {
            Entry::Leaf(leaf) => Some(leaf),
            Entry::Empty | Entry::Soft(_) | Entry::Table(_) => None,
        }
    }

    /// Installs a leaf in an empty entry.
    ///
    /// Owes no flush: no TLB holds an entry that was not present. If another operation cleared it
    /// and has not flushed yet, this flushes it first (INV-TLB-CLEARED).
    ///
    /// # Panics
    /// In debug builds when the entry is not empty.
    #[inline]
    pub fn install(&self, va: VirtAddr, leaf: OwnedLeaf) {
        let slot = self.slot(va);
        debug_assert!(self.pte(va).is_empty(), "INV-TABLE-EMPTY: a leaf over {:?} at {va}", self.pte(va));
        self.flush_before_install(va);
        let plain = leaf.leaf();
        if let Some(folio) = leaf.into_folio() {
            folio.into_raw();
        }
        self.tlb.fx().store(slot, P::Isa::leaf(self.level, plain));
        self.tlb.frames().table(self.table).add_live(1);
    }

    /// Installs a soft entry in an empty entry.
    ///
    /// Owes no flush, since no TLB caches one (INV-SOFT-UNSEEN). If an operation cleared the entry
    /// and has not flushed yet, that flush stays pending: the caller waits for it before it returns
    /// (INV-TLB-CLEARED), and the leaf that follows the soft entry flushes it first.
    ///
    /// # Panics
    /// In debug builds when the entry is not empty.
    pub fn install_soft(&self, va: VirtAddr, soft: SoftEntry) {
        debug_assert!(self.pte(va).is_empty(), "INV-TABLE-EMPTY: {soft:?} over {:?} at {va}", self.pte(va));
        self.tlb.fx().store(self.slot(va), P::Isa::soft(soft));
        self.tlb.frames().table(self.table).add_live(1);
    }

    /// Clears a soft entry and returns it.
    ///
    /// Owes no flush, since no TLB caches one (INV-SOFT-UNSEEN). `None` if the entry is not a soft
    /// one; then nothing changed.
    pub fn take_soft(&self, va: VirtAddr) -> Option<SoftEntry> {
        let Entry::Soft(soft) = self.entry(va) else { return None };
        self.tlb.fx().store(self.slot(va), Pte::EMPTY);
        self.tlb.frames().table(self.table).sub_live(1);
        Some(soft)
    }

    #[inline]
    fn flush_before_install(&self, va: VirtAddr) {
        let start = va.align_down(self.level.span());
        let range = PageRange::new(start, start.add(self.level.span()));
        self.tlb.flush_before_install(self.tree.context(), range, self.level);
    }

    /// Clears the leaf for `va` (`ptep_get_and_clear`); its debt owns the leaf and its reference.
    ///
    /// `None` if there is no leaf; then nothing changed.
    #[inline]
    #[allow(unsafe_code)]
    pub fn take(&self, va: VirtAddr) -> Option<Debt<'a, P, OwnedLeaf>> {
        self.leaf(va)?;
        plant!(FlushBeforeClear => self.tlb.flush(
            self.tree.context(),
            pagewright_tlb::FlushInfo { range: Some(PageRange::page(va)), level: self.level, freed_tables: false },
        ));
        // The exchange is atomic against the walker, so the leaf read here has every bit that it
        // will ever set.
        let old = self.tlb.fx().swap(self.slot(va), Pte::EMPTY);
        let Entry::Leaf(leaf) = P::Isa::decode(self.level, old) else {
            unreachable!("INV-TABLE-LOCKED: the entry at {va} was edited without its table's lock")
        };
        self.tlb.frames().table(self.table).sub_live(1);
        // SAFETY: INV-TABLE-OWNS – the exchange has removed the leaf.
        let owned = unsafe { OwnedLeaf::removed(self.tlb.frames(), leaf) };
        let owed = plant!(FlushBeforeClear; OwedFlush::Nothing, self.owed(old, Pte::EMPTY));
        Some(Debt::new(self.tlb, self.tree.context(), va, owed, owned))
    }

    /// Replaces a soft entry by another.
    ///
    /// Owes no flush, since no TLB caches either (INV-SOFT-UNSEEN).
    ///
    /// # Panics
    /// In debug builds when the entry is not a soft one.
    pub fn change_soft(&self, va: VirtAddr, soft: SoftEntry) {
        debug_assert!(
            matches!(self.entry(va), Entry::Soft(_)),
            "INV-TABLE-EMPTY: the entry for {va} is not a soft one"
        );
        self.tlb.fx().store(self.slot(va), P::Isa::soft(soft));
    }

    /// Replaces the leaf for `va` by the soft entry that `soft` makes of it.
    ///
    /// The debt owns the leaf and its reference. `keep` is called when the entry no longer shows
    /// the leaf to lockless walkers. If it returns true, the leaf is restored and no flush is owed.
    /// `None` if there was no leaf, or it was restored.
    pub fn replace_by_soft(
        &self,
        va: VirtAddr,
        soft: impl FnOnce(Leaf) -> SoftEntry,
        keep: impl FnOnce(Leaf) -> bool,
    ) -> Option<Debt<'a, P, OwnedLeaf>> {
        let new = P::Isa::soft(soft(self.leaf(va)?));
        self.replace(va, new, keep)
    }

    /// Puts `new`, which no TLB ever sees, in the place of the leaf for `va`, or leaves it.
    #[allow(unsafe_code)]
    fn replace(&self, va: VirtAddr, new: Pte, keep: impl FnOnce(Leaf) -> bool) -> Option<Debt<'a, P, OwnedLeaf>> {
        self.leaf(va).filter(|leaf| !leaf.flags.contains(LeafFlags::SPECIAL))?;
        let old = self.tlb.fx().swap(self.slot(va), new);
        let Entry::Leaf(leaf) = P::Isa::decode(self.level, old) else {
            unreachable!("INV-TABLE-LOCKED: the entry at {va} was edited without its table's lock")
        };
        if keep(leaf) {
            self.tlb.fx().store(self.slot(va), old);
            return None;
        }
        // SAFETY: INV-TABLE-OWNS – the exchange has removed the leaf, and it was not restored.
        let owned = unsafe { OwnedLeaf::removed(self.tlb.frames(), leaf) };
        Some(Debt::new(self.tlb, self.tree.context(), va, self.owed(old, new), owned))
    }

    /// As [`LockedTable::take`], except that the leaf is restored if `keep` returns true.
    ///
    /// `keep` is called when the entry no longer shows the leaf to lockless walkers. `None` if
    /// there was no leaf, or it was restored; then no flush is owed.
    pub fn take_unless(&self, va: VirtAddr, keep: impl FnOnce(Leaf) -> bool) -> Option<Debt<'a, P, OwnedLeaf>> {
        let debt = self.replace(va, Pte::EMPTY, keep)?;
        self.tlb.frames().table(self.table).sub_live(1);
        Some(debt)
    }

    /// Moves the entry for `va` to the empty entry for `to_va` under `to` (`move_ptes`).
    ///
    /// `edit` changes a leaf on the way. The reference of the leaf moves with it, and the debt is
    /// the flush of the old entry. The caller flushes before it releases either table's lock,
    /// because an operation that finds the leaf at the new address may free its page. `None` if the
    /// entry is empty or points to a table.
    ///
    /// # Panics
    /// In debug builds when the entry for `to_va` is not empty.
    pub fn move_entry(
        &self,
        va: VirtAddr,
        to: &LockedTable<'_, P>,
        to_va: VirtAddr,
        edit: impl Fn(Leaf) -> Leaf,
    ) -> Option<Debt<'a, P, ()>> {
        if matches!(self.entry(va), Entry::Empty | Entry::Table(_)) {
            return None;
        }
        debug_assert!(to.pte(to_va).is_empty(), "INV-TABLE-EMPTY: {va} moved over {:?} at {to_va}", to.pte(to_va));
        let old = self.tlb.fx().swap(self.slot(va), Pte::EMPTY);
        let new = match P::Isa::decode(self.level, old) {
            Entry::Leaf(leaf) => P::Isa::leaf(to.level, edit(leaf)),
            Entry::Soft(_) | Entry::Empty | Entry::Table(_) => old,
        };
        self.tlb.fx().store(to.slot(to_va), new);
        self.tlb.frames().table(self.table).sub_live(1);
        self.tlb.frames().table(to.table).add_live(1);
        Some(Debt::new(self.tlb, self.tree.context(), va, self.owed(old, Pte::EMPTY), ()))
    }

    /// Changes the leaf for `va` by `edit`, atomically against accessed and dirty updates.
    ///
    /// The frame must stay the same. `None` if there is no leaf, or `edit` did not change it.
    #[inline]
    pub fn update(&self, va: VirtAddr, edit: impl Fn(Leaf) -> Leaf) -> Option<Debt<'a, P, ()>> {
        let slot = self.slot(va);
        let mut old = self.tlb.fx().load(slot);
        loop {
            let Entry::Leaf(leaf) = P::Isa::decode(self.level, old) else { return None };
            let edited = edit(leaf);
            debug_assert_eq!(leaf.pfn, edited.pfn, "INV-TABLE-SAME-FRAME: take and install to change the frame");
            let new = P::Isa::leaf(self.level, edited);
            if new == old {
                return None;
            }
            match self.tlb.fx().compare_exchange(slot, old, new) {
                Ok(()) => {
                    let owed = plant!(ProtectNoFlush; OwedFlush::Nothing, self.owed(old, new));
                    return Some(Debt::new(self.tlb, self.tree.context(), va, owed, ()));
                }
                Err(now) => old = now,
            }
        }
    }

    /// What putting `new` for `old` owes.
    ///
    /// Break-before-make never arises here: frames change by take and install, with the debt paid
    /// in between.
    #[inline]
    fn owed(&self, old: Pte, new: Pte) -> OwedFlush {
        match P::Isa::replacement(self.level, old, new) {
            Replacement::Harmless => OwedFlush::Nothing,
            Replacement::FlushIfPending => self.owed_if_pending(),
            Replacement::Flush => OwedFlush::Leaf(self.level),
            Replacement::BreakFirst => unreachable!("INV-TABLE-BBM: {old:?} replaced by {new:?} in one step"),
        }
    }

    /// What an edit of a leaf without rights owes.
    ///
    /// INV-TABLE-WEAKENED: if a flush is pending in the space, it may be this leaf's, and a TLB then
    /// holds the rights that it had. Whatever takes rights away has announced its flush before it
    /// released the lock of this table, so it is seen here. The caller's own concurrent gather
    /// counts, too: a zap of such leaves flushes once, as Linux's does.
    #[cold]
    fn owed_if_pending(&self) -> OwedFlush {
        let pending = self.tlb.may_owe_flush(self.tree.context());
        plant!(WeakenedTakenUnflushed => return OwedFlush::Nothing);
        if pending { OwedFlush::Leaf(self.level) } else { OwedFlush::Nothing }
    }
}
