//! Copying the entries of one mapping.
//!
//! The entry layer copies a table at a time ([`pagewright_table::LockedTable::copy_run`]), and says
//! how fork and lockless pins meet. This file has the tables ready before one of the parent's is
//! locked, copies pages that are pinned, and counts swap entries.

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{HeldMap, Space, Vma};
use pagewright_arch::{Leaf, LeafFlags, SoftEntry, SoftKind};
use pagewright_sync::Platform;
use pagewright_table::{
    CopyHooks, CopyStop, EntryView, ForkHooks, LeafView, Mlocked, OwnTables, OwnedLeaf, SoftCopy, TableReserve, Tables,
};
use pagewright_tlb::Gather;
use pagewright_tlb::frames::{BlockList, FolioFlags, FolioOwner, NoFrames};
use pagewright_types::{Counter, Level, Order, PageRange, Rights};

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
        let to_tables = child.tables(&self.tlb);
        for (from_tables, span) in parts {
            let mut level = from_tables.find(span.start(), Level::PTE).level;
            let Some(to_tables) = to_tables.try_own(span) else { continue };
            self.make_table(to_tables, span.start(), level)?;
            let mut hooks = ForkCopies::new(self, space, vma);
            let mut reserve = TableReserve::new(&self.tlb);
            let (mut start, mut outcome) = (span.start(), Ok(()));
            while start < span.end() {
                let part = PageRange::new(start, span.end());
                if level > Level::PTE {
                    let Some(from) = from_tables.lock_level(start, level) else { break };
                    let huge = from.huge_leaves(part);
                    drop(from);
                    outcome = self.fill(&mut reserve, huge).map_err(MmError::from);
                    if outcome.is_err() {
                        break;
                    }
                }
                let Some(from) = from_tables.lock_level(start, level) else { break };
                let Some(to) = to_tables.lock_level(start, level) else { break };
                let (copied, stop) = match level {
                    Level::PTE => from.copy_run(&to, part, &mut hooks, gather),
                    _ => from.copy_huge_run(&to, part, &mut hooks, &mut reserve, gather),
                };
                drop((to, from));
                self.tlb.count(Counter::PwForkEntries, copied);
                match stop {
                    Ok(()) => break,
                    Err(CopyStop::TooManyRefs(va)) => {
                        outcome = Err(MmError::TooManyHolders { va });
                        break;
                    }
                    Err(CopyStop::PinnedBlock(va)) => {
                        // INV-FORK-BLOCK: its pages are copied one by one, as by `copy_huge_pmd`.
                        outcome = self.make_table(to_tables, va, Level::PTE);
                        if outcome.is_err() {
                            break;
                        }
                        self.split_huge_leaf(*from_tables, va, vma.mlocked());
                        (level, start) = (Level::PTE, va);
                    }
                    Err(CopyStop::NoFrame(va)) => {
                        start = va;
                        outcome = hooks.fill_spare(vma).map_err(MmError::from);
                        if outcome.is_err() {
                            break;
                        }
                    }
                }
            }
            outcome?;
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

/// The parts of `range` that have entries of the parent's own, each with its tables.
///
/// `own` are the tables of the whole range, if all of them are known to be the parent's own.
pub(super) fn own_spans<'h, P: Platform>(
    tables: Tables<'h, P>,
    own: Option<OwnTables<'h, P>>,
    range: PageRange,
) -> impl Iterator<Item = (OwnTables<'h, P>, PageRange)> {
    tables.spans(range).filter_map(move |span| Some((own.or_else(|| tables.try_own(span))?, span)))
}

/// What fork decides about the entries that it copies.
struct ForkCopies<'m, P: Platform> {
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

impl<'m, P: Platform> ForkCopies<'m, P> {
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
}

impl<P: Platform> Drop for ForkCopies<'_, P> {
    fn drop(&mut self) {
        while let Some(unused) = self.spare.pop(self.mm.frames()) {
            self.mm.tlb.free(unused);
        }
    }
}

impl<P: Platform> CopyHooks for ForkCopies<'_, P> {
    fn copy_soft(&mut self, soft: SoftEntry) -> Option<SoftCopy> {
        self.mm.copy_soft_entry(soft)
    }

    fn discard_soft(&mut self, soft: SoftEntry) {
        self.mm.discard_soft_entry(soft);
    }
}

impl<P: Platform> ForkHooks for ForkCopies<'_, P> {
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
