//! Copying the entries of one mapping.
//!
//! The entry layer copies a table at a time ([`pagewright_table::LockedTable::copy_run`]), and says
//! how fork and lockless pins meet. This file has the tables ready before one of the parent's is
//! locked, copies pages that are pinned, and counts swap entries.
//!
//! **INV-FORK-HUGE** Fork splits a huge leaf that may be pinned and copies its pages, so it needs
//! no huge frame. It copies the leaves beside it as they are.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::entries::MmHooks;
use crate::space::{HeldMap, Space, Vma};
use pagewright_arch::{Leaf, LeafFlags, SoftKind};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{CopyStop, EntryView, LeafView, Mlocked, OwnTables, OwnedLeaf, TableReserve, Tables};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{BlockList, FolioFlags, FolioOwner, NoFrames};
use pagewright_types::{Counter, Level, Order, PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Copies what stands under parts of the parent, one table after the other.
    ///
    /// # Errors
    /// [`MmError::NoFrames`] or [`MmError::TooManyHolders`]; entries before that are copied.
    pub(super) fn copy_entries<'h>(
        &self,
        parts: impl Iterator<Item = (OwnTables<'h, P>, PageRange)>,
        child: (&Space<P>, &HeldMap<'_, P>),
        vma: &Vma<P>,
        gather: &mut Gather<'_, P>,
    ) -> Result<(), MmError> {
        let (space, child) = child;
        let mut copy =
            EntryCopy { mm: self, to: child.tables(&self.tlb), copies: PinnedCopies::new(self, space, vma), vma };
        for (from, span) in parts {
            // A part ends before its span where a huge page is pinned.
            let mut rest = span;
            while !rest.is_empty() {
                let end = copy.part(from, rest, gather)?;
                rest = PageRange::new(plant!(PinnedEndsRun; span.end(), end), span.end());
            }
        }
        Ok(())
    }

    /// Copies the markers under parts of a shared mapping, whose pages a fault brings back.
    pub(super) fn copy_markers<'h>(
        &self,
        parts: impl Iterator<Item = (OwnTables<'h, P>, PageRange)>,
        child: &HeldMap<'_, P>,
    ) -> Result<(), MmError> {
        let to_tables = child.tables(&self.tlb);
        for (from_tables, span) in parts {
            let Some(to_tables) = to_tables.try_own(span) else { continue };
            self.make_table(to_tables, span.start(), Level::PTE)?;
            let Some(from) = from_tables.lock(span.start()) else { continue };
            let Some(to) = to_tables.lock(span.start()) else { continue };
            let mut run = to.run(Mlocked(false));
            let mut copied = 0;
            for va in from.entries(span) {
                if let EntryView::Soft(soft) = from.entry(va)
                    && soft.kind == SoftKind::Marker
                {
                    run.map_soft(va, soft);
                    copied += 1;
                }
            }
            self.tlb.count(Counter::PwForkEntries, copied);
        }
        Ok(())
    }
}

/// The copy of the entries of one mapping.
struct EntryCopy<'a, 'h, P: Platform> {
    mm: &'a Mm<P>,
    to: Tables<'h, P>,
    copies: PinnedCopies<'a, P>,
    vma: &'a Vma<P>,
}

impl<P: Platform> EntryCopy<'_, '_, P> {
    /// Copies the entries of the table at which `rest` begins, and returns where they end.
    ///
    /// They are those of a last-level table, or neighbouring entries above the last level.
    fn part(
        &mut self,
        from: OwnTables<'_, P>,
        rest: PageRange,
        gather: &mut Gather<'_, P>,
    ) -> Result<VirtAddr, MmError> {
        let start = rest.start();
        match from.find(start, Level::PTE).level {
            Level::PTE => self.last_level(from, start, rest.end(), gather),
            level => self.huge(from, level, rest, gather),
        }
    }

    /// Copies neighbouring entries of a table above the last level, as [`part`](Self::part).
    ///
    /// Deposits for all of them are had before one is weakened.
    fn huge(
        &mut self,
        from: OwnTables<'_, P>,
        level: Level,
        rest: PageRange,
        gather: &mut Gather<'_, P>,
    ) -> Result<VirtAddr, MmError> {
        let (start, mut reserve) = (rest.start(), TableReserve::new(&self.mm.tlb));
        let Some(table) = from.lock_level(start, level) else { return Ok(start.add(level.span())) };
        let part = PageRange::new(start, table.end_of_huge(start, rest.end()));
        let huge = table.huge_leaves(part);
        drop(table);
        let Some(to) = self.to.try_own(part) else { return Ok(part.end()) };
        self.mm.make_table(to, start, level)?;
        self.mm.fill_deposits(&mut reserve, huge)?;
        let Some(table) = from.lock_level(start, level) else { return Ok(part.end()) };
        let Some(child) = to.lock_level(start, level) else { return Ok(part.end()) };
        let (copied, stop) = table.copy_huge_run(&child, part, &mut MmHooks(self.mm), &mut reserve, gather);
        drop((child, table));
        self.mm.tlb.count(Counter::PwForkEntries, copied);
        match stop {
            Ok(()) => Ok(part.end()),
            Err(CopyStop::PinnedHugeLeaf(va)) => {
                // INV-FORK-HUGE: its pages are copied one by one, as by `copy_huge_pmd`.
                let span = PageRange::new(va, va.add(level.span()));
                let Some((from, to)) = from.try_own(span).zip(self.to.try_own(span)) else { return Ok(span.end()) };
                self.mm.make_table(to, va, Level::PTE)?;
                self.mm.split_huge_leaf(*from, va, self.vma.mlocked());
                self.last_level(from, va, span.end(), gather)
            }
            Err(stop) => Err(stop.into()),
        }
    }

    /// Copies the entries of the last-level table for `start` up to `end`, as [`part`](Self::part).
    fn last_level(
        &mut self,
        from: OwnTables<'_, P>,
        mut start: VirtAddr,
        end: VirtAddr,
        gather: &mut Gather<'_, P>,
    ) -> Result<VirtAddr, MmError> {
        let part = PageRange::new(start, start.align_down(Level::PMD.span()).add(Level::PMD.span()).min(end));
        let Some(to) = self.to.try_own(part) else { return Ok(part.end()) };
        self.mm.make_table(to, start, Level::PTE)?;
        loop {
            let Some(table) = from.lock(start) else { return Ok(part.end()) };
            let Some(child) = to.lock(start) else { return Ok(part.end()) };
            let rest = PageRange::new(start, part.end());
            let copy_pinned = |leaf| self.copies.copy_pinned(leaf);
            let (copied, stop) = table.copy_run(&child, rest, &mut MmHooks(self.mm), copy_pinned, gather);
            drop((child, table));
            self.mm.tlb.count(Counter::PwForkEntries, copied);
            match stop {
                Ok(()) => return Ok(part.end()),
                Err(CopyStop::NoFrame(va)) => {
                    start = va;
                    self.copies.fill_spare(self.vma)?;
                }
                Err(stop) => return Err(stop.into()),
            }
        }
    }
}

/// The parts of `range` that have entries of the parent's own, each with its tables.
///
/// `own` are the tables of the whole range, if all of them are known to be the parent's own. The
/// number is that of the leaves above the last level that are the part.
pub(super) fn own_spans<'h, P: Platform>(
    tables: Tables<'h, P>,
    own: Option<OwnTables<'h, P>>,
    range: PageRange,
) -> impl Iterator<Item = (OwnTables<'h, P>, PageRange, u64)> {
    tables.runs(range).filter_map(move |(span, leaves)| Some((own.or_else(|| tables.try_own(span))?, span, leaves)))
}

/// The copies of pages that the parent has pinned.
struct PinnedCopies<'m, P: Platform> {
    mm: &'m Mm<P>,
    child: &'m Space<P>,
    /// The rights of the mapping.
    rights: Rights,
    /// Frames for the copies of pages that are pinned, allocated without locks.
    spare: BlockList,
    /// The number of frames that were allocated at last.
    wanted: usize,
}

/// Limit of the frames for copies that are allocated at once.
const MAX_SPARE: usize = 32;

impl<'m, P: Platform> PinnedCopies<'m, P> {
    fn new(mm: &'m Mm<P>, child: &'m Space<P>, vma: &Vma<P>) -> Self {
        Self { mm, child, rights: vma.rights(), spare: BlockList::new(), wanted: 0 }
    }

    /// Allocates frames for copies: one at first, and each time twice as many.
    ///
    /// Each time the copy of the rest of the table starts over, so one frame for each page of a
    /// large folio that is pinned would make the work quadratic.
    ///
    /// # Errors
    /// [`NoFrames`], if there is none at all.
    fn fill_spare(&mut self, vma: &Vma<P>) -> Result<(), NoFrames> {
        self.wanted = (self.wanted * 2).clamp(1, MAX_SPARE);
        for count in 0..self.wanted {
            match self.mm.alloc(self.mm.request(Order::ZERO, vma.policy())) {
                Ok(block) => self.spare.push(self.mm.frames(), block),
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// A page of the child's own, in place of one that the parent has pinned (`copy_present_page`).
    fn copy_pinned(&mut self, leaf: LeafView) -> Option<OwnedLeaf> {
        let (mm, frames) = (self.mm, self.mm.frames());
        let block = self.spare.pop(frames)?;
        mm.fx().copy(leaf.pfn(), block.pfn(), Order::ZERO);
        mm.tlb.count(Counter::PwCowCopy, 1);
        let theirs = frames.folio(leaf.pfn());
        let folio = frames.new_folio(block);
        let ours = frames.folio_of(&folio);
        let index = theirs.index() + u64::from(theirs.page_of(leaf.pfn()));
        ours.set_owner(FolioOwner::Anon(self.child.fork_node()), index);
        ours.set_flags(FolioFlags::UPTODATE | FolioFlags::SWAPBACKED);
        frames.lru_add(ours);
        let rights = self.rights.readable();
        let flags = LeafFlags::USER | LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY | LeafFlags::EXCLUSIVE;
        Some(OwnedLeaf::new(Leaf { pfn: folio.pfn(), rights, flags }, folio))
    }
}

impl<P: Platform> Drop for PinnedCopies<'_, P> {
    fn drop(&mut self) {
        while let Some(unused) = self.spare.pop(self.mm.frames()) {
            self.mm.tlb.free(unused);
        }
    }
}
