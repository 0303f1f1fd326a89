//! Copying entries to a child's table (`copy_present_pte`, `copy_nonpresent_pte`).
//!
//! ```text
//!   1  every entry of the parent loses the right to store, and the exclusive bit
//!   2  one full barrier
//!   3  every page: pinned meanwhile? the parent's entry is restored and the child gets a copy
//!                  else the child's entry, with one reference and one mapping more
//! ```
//!
//! Fork and a lockless pin each store first and read after a full barrier: fork clears the
//! exclusive bit and then reads the pins, `gup_fast` pins and then reads the entry again. So at
//! least one of them sees the other and steps back. Linux reads the pins before it write-protects,
//! and must therefore keep lockless walks out of a space that forks (`write_protect_seq`). Here one
//! barrier serves all entries of a table.

use super::hooks::EntryHooks;
use super::last_leaf::LastLeaf;
use super::piece_run::counts_of;
use super::{EntryRun, Mlocked};
use crate::leaf_view::LeafView;
use crate::locked_table::{CountedIn, LockedTable};
use crate::owned_leaf::OwnedLeaf;
use crate::reserve::TableReserve;
use core::ops::Range;
use pagewright_arch::{Entry, Isa, Leaf, LeafFlags, Pte};
use pagewright_plant::{plant, planted};
use pagewright_sync::{Backend, FullBarrier, Platform};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::Folio;
use pagewright_types::{Level, PageRange, Pfn, Rights, VirtAddr};

/// Why a copy stopped; nothing from the address on has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStop {
    /// There was no frame for the copy of a pinned page.
    NoFrame(VirtAddr),
    /// The references of the page exceed the limit for entries.
    TooManyRefs(VirtAddr),
    /// A leaf above the last level may be pinned, and must be split first.
    PinnedHugeLeaf(VirtAddr),
}

impl CopyStop {
    /// The address of the first entry that was not copied.
    fn at(self) -> VirtAddr {
        match self {
            Self::NoFrame(va) | Self::TooManyRefs(va) | Self::PinnedHugeLeaf(va) => va,
        }
    }
}

bitflags::bitflags! {
    /// What a leaf of the parent lost.
    #[derive(Clone, Copy, Default)]
    struct LostRights: u8 {
        const WRITE = 1;
        const EXCLUSIVE = 1 << 1;
    }
}

/// What the copy makes of the parent's leaves that share all bits but their frame.
#[derive(Default)]
struct WeakenedLeaf {
    to: u64,
    lost: LostRights,
    /// Whether a walker may set a bit of the leaf concurrently.
    touched: bool,
}

impl WeakenedLeaf {
    /// `None` for a special leaf, and for an entry that is no leaf.
    fn new<I: Isa>(level: Level, pte: Pte) -> Option<Self> {
        let leaf = plain_leaf::<I>(level, pte)?;
        let mut lost = LostRights::empty();
        lost.set(LostRights::WRITE, leaf.rights.contains(Rights::WRITE));
        lost.set(LostRights::EXCLUSIVE, leaf.flags.contains(LeafFlags::EXCLUSIVE));
        Some(Self { to: I::shared(pte).raw() & !I::FRAME, lost, touched: leaf.may_be_touched() })
    }
}

/// The leaf of a folio; `None` for any other entry.
fn plain_leaf<I: Isa>(level: Level, pte: Pte) -> Option<Leaf> {
    match I::decode(level, pte) {
        Entry::Leaf(leaf) => (!leaf.flags.contains(LeafFlags::SPECIAL)).then_some(leaf),
        Entry::Empty | Entry::Soft(_) | Entry::Table(_) => None,
    }
}

/// The entries of the parent that the copy weakened, and which rights they had.
struct Weakened {
    lost: [LostRights; Level::ENTRIES],
    /// All entries outside of it are empty.
    present: Range<usize>,
}

impl Weakened {
    /// The first and the last entry that lost the right to store.
    fn bounds(&self) -> Option<(usize, usize)> {
        let lost_write = |index: &usize| self.lost[*index].contains(LostRights::WRITE);
        Some((self.present.clone().find(lost_write)?, self.present.clone().rfind(lost_write)?))
    }

    /// A leaf as it was before, with what the walker noted since.
    fn restored(&self, index: usize, now: Leaf) -> Leaf {
        let (mut leaf, lost) = (now, self.lost[index]);
        leaf.rights.set(Rights::WRITE, now.rights.contains(Rights::WRITE) || lost.contains(LostRights::WRITE));
        leaf.flags.set(LeafFlags::EXCLUSIVE, lost.contains(LostRights::EXCLUSIVE));
        leaf
    }
}

impl<'h, P: Platform> LockedTable<'h, P> {
    /// Copies the entries of `part` to a child's table, and returns their number.
    ///
    /// `to` is of the same level, and no CPU runs the child. Afterwards no copied leaf is writable
    /// or exclusive in either space. `gather` takes the flush of the parent's entries. Special
    /// leaves are copied and not counted.
    ///
    /// `copy_pinned` copies the page of a last-level leaf that may be pinned, and returns the
    /// child's leaf; or `None` if there is no frame for it, and the copy stops.
    ///
    /// # Errors
    /// [`CopyStop`], with the number of entries copied before it.
    ///
    /// # Panics
    /// In debug builds when an entry of the child is not empty.
    pub fn copy_run(
        &self,
        to: &LockedTable<'_, P>,
        part: PageRange,
        hooks: &mut impl EntryHooks,
        copy_pinned: impl FnMut(LeafView) -> Option<OwnedLeaf>,
        gather: &mut Gather<'_, P>,
    ) -> (u64, Result<(), CopyStop>) {
        gather.meet(self.table());
        let owe = |weakened| gather.extend(weakened, self.level());
        self.copy_part(to.run(Mlocked(false)), part, hooks, Some(copy_pinned), owe)
    }

    /// As [`copy_run`](Self::copy_run), for entries above the last level.
    ///
    /// Huge leaves take their deposits from `reserve`, which has as many as
    /// [`huge_leaves`](Self::huge_leaves) said.
    ///
    /// # Errors
    /// As `copy_run`.
    ///
    /// # Panics
    /// As `copy_run`; when the reserve has fewer.
    pub fn copy_huge_run(
        &self,
        to: &LockedTable<'_, P>,
        part: PageRange,
        hooks: &mut impl EntryHooks,
        reserve: &mut TableReserve<'_, P>,
        gather: &mut Gather<'_, P>,
    ) -> (u64, Result<(), CopyStop>) {
        to.prepare_huge(plant!(ForkDepositsNothing; 0, self.huge_leaves(part)), reserve);
        // A leaf that may be pinned stops the copy before its page is copied.
        let (copied, outcome) = self.copy_run(to, part, hooks, |_| None, gather);
        if let Err(stop) = outcome {
            let rest = self.huge_leaves(PageRange::new(stop.at(), part.end()));
            plant!(StoppedForkKeepsDeposits; (), to.free_deposits(rest));
        }
        (copied, outcome)
    }

    /// Copies all entries for a space that stops to share this table, into a table of its own.
    ///
    /// No store was allowed through the shared path, so nothing is owed. And no pin was taken
    /// through it (INV-SHARE-PIN), so no page is judged: one with many plain references, or one of
    /// a folio that is pinned through another table, is shared like any other.
    ///
    /// # Errors
    /// [`CopyStop::TooManyRefs`].
    pub(crate) fn copy_shared(&self, to: &LockedTable<'_, P>, hooks: &mut impl EntryHooks) -> Result<(), CopyStop> {
        let run = EntryRun::new(to, Mlocked(false), CountedIn::Nowhere);
        let copy_pinned: Option<fn(LeafView) -> Option<OwnedLeaf>> = plant!(BreakJudgesPins; Some(|_| None), None);
        self.copy_part(run, self.range(), hooks, copy_pinned, |_| {}).1
    }

    fn copy_part(
        &self,
        mut child: EntryRun<'_, '_, P>,
        part: PageRange,
        hooks: &mut impl EntryHooks,
        mut copy_pinned: Option<impl FnMut(LeafView) -> Option<OwnedLeaf>>,
        owe: impl FnOnce(PageRange),
    ) -> (u64, Result<(), CopyStop>) {
        let to = child.table;
        debug_assert_eq!(self.level(), to.level(), "the tables of a copy are of one level");
        let mut weakened = Weakened { lost: [LostRights::empty(); Level::ENTRIES], present: self.indices(part) };
        self.weaken(&mut weakened);
        if let Some((first, last)) = weakened.bounds() {
            owe(PageRange::new(self.address(first), self.address(last + 1)));
        }
        // Pairs with the barrier between the pin and the second read of the entry in `gup_fast`.
        let barrier = FullBarrier::execute();
        <P::Locks as Backend>::point();
        // No CPU has walked the child's table, so no flush of its entries can be pending.
        let mut last = LastLeaf::default();
        let mut left = weakened.present.clone();
        loop {
            left.start = self.copy_small(&mut child, left.clone(), &mut last, barrier);
            if left.is_empty() {
                break;
            }
            match self.copy_entry(&mut child, left.clone(), (&weakened, barrier), hooks, copy_pinned.as_mut()) {
                Ok(copied) => left.start += copied,
                Err(stop) => {
                    self.restore(PageRange::new(self.address(left.start), part.end()), &weakened);
                    return (child.change.live as u64, Err(stop));
                }
            }
        }
        let copied = child.change.live as u64;
        plant!(CopyUncounted => end_uncounted(child));
        (copied, Ok(()))
    }

    /// Takes the right to store and the exclusive bit from every leaf of those present.
    ///
    /// The result is the caller's, because it is too large to be copied for each table.
    /// INV-TABLE-TOUCHED: a leaf of which a walker may still set a bit is changed by an exchange.
    #[inline(never)]
    fn weaken(&self, weakened: &mut Weakened) {
        let mut present = weakened.present.clone();
        // Only this CPU changes the table, but for what a walker notes. With words, empty entries
        // are skipped below.
        if self.words.is_none() {
            while !present.is_empty() && self.load(present.start).is_empty() {
                present.start += 1;
            }
            while !present.is_empty() && self.load(present.end - 1).is_empty() {
                present.end -= 1;
            }
        }
        weakened.present = present.clone();
        let mut last = LastLeaf::default();
        for occupied in self.occupied(present) {
            for index in occupied {
                let mut old = self.load(index);
                while let Some(leaf) = last.of::<P::Isa>(old, || WeakenedLeaf::new::<P::Isa>(self.level(), old)) {
                    let new = Pte::from_raw(old.raw() & P::Isa::FRAME | leaf.to);
                    if new == old {
                        break;
                    }
                    if plant!(DirtyBitLost; true, !leaf.touched) {
                        self.store(index, new);
                    } else if let Err(now) = self.compare_exchange(index, old, new) {
                        old = now;
                        continue;
                    }
                    weakened.lost[index] = leaf.lost;
                    break;
                }
            }
        }
    }

    /// Undoes [`Self::weaken`] for the leaves of `part`.
    #[cold]
    fn restore(&self, part: PageRange, weakened: &Weakened) {
        for va in self.entries(part) {
            self.restore_one(va, weakened);
        }
    }

    #[cold]
    fn restore_one(&self, va: VirtAddr, weakened: &Weakened) {
        let (index, level) = (self.index(va), self.level());
        let mut old = self.load(index);
        while !weakened.lost[index].is_empty()
            && let Entry::Leaf(leaf) = P::Isa::decode(level, old)
        {
            match self.compare_exchange(index, old, P::Isa::leaf(level, weakened.restored(index, leaf))) {
                Ok(()) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Copies the leading entries of `entries` that map small folios with few references.
    ///
    /// It skips empty ones. Returns the index of the first other entry, or the end. A function of
    /// its own, because the registers of the caller are not enough for this loop, in which fork
    /// spends its time.
    #[inline(never)]
    fn copy_small(
        &self,
        child: &mut EntryRun<'_, '_, P>,
        entries: Range<usize>,
        last: &mut LastLeaf<()>,
        barrier: FullBarrier,
    ) -> usize {
        let (to, end, keeps_age) = (child.table, entries.end, child.counted == CountedIn::Nowhere);
        if self.level() > Level::PTE {
            return entries.start;
        }
        let frames = self.tables.tlb.frames();
        for occupied in self.occupied(entries) {
            for index in occupied {
                let pte = self.load(index);
                if last.of::<P::Isa>(pte, || plain_leaf::<P::Isa>(Level::PTE, pte).map(drop)).is_none() {
                    if pte.is_empty() {
                        continue;
                    }
                    return index;
                }
                let Some((kind, first)) = frames.get_and_map_small(P::Isa::frame(pte), barrier) else { return index };
                debug_assert!(to.is_empty(to.address(index)), "INV-TABLE-EMPTY: a copy over entry {index}");
                // A child's mapping is not locked memory (`mlock(2)`).
                child.change.add(kind, 1, u32::from(first));
                child.change.live += 1;
                // Whatever the walker noted in the parent's entry is noted in the copy. A child has
                // not accessed the page; a space that breaks a table may have.
                to.store(index, if keeps_age { pte } else { P::Isa::old(pte) });
            }
        }
        end
    }

    /// Copies the first of `entries`, and with it those that map the next pages of its folio.
    ///
    /// Returns their number.
    #[cold]
    fn copy_entry(
        &self,
        child: &mut EntryRun<'_, '_, P>,
        entries: Range<usize>,
        weakened: (&Weakened, FullBarrier),
        hooks: &mut impl EntryHooks,
        copy_pinned: Option<impl FnMut(LeafView) -> Option<OwnedLeaf>>,
    ) -> Result<usize, CopyStop> {
        let index = entries.start;
        let pte = self.load(index);
        if let Some(Leaf { pfn, .. }) = plain_leaf::<P::Isa>(self.level(), pte) {
            let folio = self.tables.tlb.frames().folio(pfn);
            if !self.copy_watched(child, index, folio, weakened, copy_pinned)? {
                return Ok(match folio.is_large() && self.level() == Level::PTE {
                    true => self.share_pieces(child, entries, (pfn, folio), weakened.0),
                    false => {
                        child.share(index, pfn, folio, child.copied::<P::Isa>(pte));
                        1
                    }
                });
            }
            return Ok(1);
        }
        match P::Isa::decode(self.level(), pte) {
            Entry::Empty | Entry::Table(_) => {}
            Entry::Soft(soft) => {
                if let Some(copy) = hooks.copy_soft(soft) {
                    if copy != soft {
                        self.store_not_present(self.address(index), P::Isa::soft(copy));
                    }
                    child.map_soft(self.address(index), copy);
                }
            }
            Entry::Leaf(leaf) => {
                debug_assert!(leaf.flags.contains(LeafFlags::SPECIAL), "a plain leaf at entry {index}");
                child.install(self.address(index), OwnedLeaf::special(leaf));
            }
        }
        Ok(1)
    }

    /// Copies the first of `entries`, and those behind it that map the next pages of its folio.
    ///
    /// The first one maps `pfn`. Their references and mappings are one addition. Returns their
    /// number.
    fn share_pieces(
        &self,
        child: &mut EntryRun<'_, '_, P>,
        entries: Range<usize>,
        (pfn, folio): (Pfn, Folio<'_>),
        weakened: &Weakened,
    ) -> usize {
        let exclusive = |index: usize| weakened.lost[index].contains(LostRights::EXCLUSIVE);
        let first = entries.start;
        let page = folio.page_of(pfn);
        let most = entries.len().min((folio.pages() - page) as usize);
        let goes_on = |offset: &usize| {
            let index = first + offset;
            let next = plain_leaf::<P::Isa>(Level::PTE, self.load(index)).map(|leaf| leaf.pfn);
            next == Some(pfn.add(*offset as u32)) && exclusive(index) == exclusive(first)
        };
        let run = (0..most).take_while(goes_on).count();
        child.use_counts(folio);
        let change = folio.get_and_map_pages(page..page + run as u32, counts_of(exclusive(first)));
        child.change.add_run(folio.rss_kind(), run as i32, change.pages as i32);
        for index in first..first + run {
            debug_assert!(child.table.is_empty(self.address(index)), "INV-TABLE-EMPTY: a copy over entry {index}");
            child.table.store(index, child.copied::<P::Isa>(self.load(index)));
        }
        child.change.live += run as i32;
        run
    }

    /// Copies the page of a leaf by `copy` if it is pinned, and returns whether it was.
    #[cold]
    fn copy_watched(
        &self,
        child: &mut EntryRun<'_, '_, P>,
        index: usize,
        folio: Folio<'_>,
        (weakened, barrier): (&Weakened, FullBarrier),
        copy: Option<impl FnOnce(LeafView) -> Option<OwnedLeaf>>,
    ) -> Result<bool, CopyStop> {
        let va = self.address(index);
        if let Some(copy) = copy
            && weakened.lost[index].contains(LostRights::EXCLUSIVE)
            && plant!(ForkIgnoresPin; false, folio.maybe_pinned_after(barrier))
            && let Some(leaf) = self.leaf(va)
        {
            if self.level() > Level::PTE {
                return Err(CopyStop::PinnedHugeLeaf(va));
            }
            self.restore_one(va, weakened);
            child.map(va, copy(leaf).ok_or(CopyStop::NoFrame(va))?);
            return Ok(true);
        }
        if folio.has_room_for_entry() { Ok(false) } else { Err(CopyStop::TooManyRefs(va)) }
    }
}

impl<P: Platform> EntryRun<'_, '_, P> {
    /// The entry of the child for an entry of the parent.
    ///
    /// A child has not accessed the page; a space that breaks a table may have.
    #[inline]
    fn copied<I: Isa>(&self, pte: Pte) -> Pte {
        if self.counted == CountedIn::Nowhere { pte } else { I::old(pte) }
    }

    /// Maps in a child's empty entry what its parent maps, with a reference and a mapping more.
    #[inline]
    fn share(&mut self, index: usize, pfn: Pfn, folio: Folio<'_>, pte: Pte) {
        let kind = folio.rss_kind();
        debug_assert!(self.table.is_empty(self.table.address(index)), "INV-TABLE-EMPTY: a copy over entry {index}");
        self.use_counts(folio);
        let change = match self.table.level() {
            Level::PTE => folio.get_and_map_page(folio.page_of(pfn)),
            _ => folio.get_and_map_entire(),
        };
        // A child's mapping is not locked memory (`mlock(2)`).
        self.change.add_change(kind, 1, change);
        self.table.store(index, pte);
        self.change.live += 1;
    }
}

planted! {
    /// Ends a run whose entries the record of its table does not count.
    fn end_uncounted<P: Platform>(run: EntryRun<'_, '_, P>) {
        let (table, entries) = (run.table, run.change.entries);
        drop(run);
        table.page().adjust_counts(entries.map(|entries| -entries));
    }
}
