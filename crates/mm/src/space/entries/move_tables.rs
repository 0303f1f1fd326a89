//! Moves entries to other addresses of a space (`move_page_tables`).
//!
//! **INV-REMAP-FLUSH** The old address of a page is flushed while the tables of both addresses are
//! locked. Otherwise another thread could unmap the new address and free the page while a CPU still
//! uses the old one (CVE-2018-18281). Tables that move whole are flushed before the space is
//! released.
//!
//! Every operation that unmaps pages holds the space, so these may be flushed together.
//!
//! A table moves whole if both addresses are aligned to its span and none is in its way, and if the
//! soft-dirty bits below it need not be set. Otherwise its entries move one by one.
//!
//! Neighbours: `call/mremap.rs` chooses the addresses. It holds the space's `map` lock for writing,
//! so two tables can be locked in any order. The table layer moves a table, or a run of entries.
//!
//! Not guaranteed: one flush for the whole move. As in Linux, each pair of tables takes a flush if
//! their entries move one by one, however few these are.

use crate::mm::Mm;
use crate::space::{HeldMap, Space, VmFlags, Vma};
use crate::swap::SwapPte;
use pagewright_arch::{LeafFlags, SoftEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{Mlocked, OwnTables, TableReserve, Tables};
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, Rights, VirtAddr};

/// What moves next.
enum MoveStep {
    /// The table below the entry of this level, with all that it maps.
    Table(Level),
    /// A huge leaf of this level.
    HugeLeaf(Level),
    /// The entries of this part, all of one table at the old and at the new address.
    ///
    /// The huge leaf of that level, if one maps them, is split first.
    Entries(PageRange, Option<Level>),
}

/// The steps of a move, as the tables are now.
struct MoveSteps<'h, P: Platform> {
    tables: Tables<'h, P>,
    at: VirtAddr,
    end: VirtAddr,
    to: VirtAddr,
    /// Whether tables may move whole.
    whole: bool,
}

impl<'h, P: Platform> MoveSteps<'h, P> {
    fn new(tables: Tables<'h, P>, from: PageRange, to: VirtAddr, whole: bool) -> Self {
        Self { tables, at: from.start(), end: from.end(), to, whole }
    }

    /// Continues at `at`, a later address.
    fn skip_to(&mut self, at: VirtAddr) {
        self.to = self.to.add(at.since(self.at));
        self.at = at;
    }

    /// Returns the step for a next page that a huge leaf maps.
    fn step_of_huge_leaf(&self, level: Level, piece: PageRange) -> MoveStep {
        let span = level.span();
        let aligned = self.at.is_aligned(span) && self.to.is_aligned(span) && self.end.since(self.at) >= span;
        if aligned && self.tables.has_room(self.to, level) {
            MoveStep::HugeLeaf(level)
        } else {
            MoveStep::Entries(piece, Some(level))
        }
    }
}

impl<P: Platform> Iterator for MoveSteps<'_, P> {
    type Item = (VirtAddr, VirtAddr, MoveStep);

    /// Returns the old and the new address of the next step.
    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.end {
            let (at, to, rest) = (self.at, self.to, PageRange::new(self.at, self.end));
            if self.whole
                && let Some(level) = self.tables.movable_table(rest, to)
            {
                self.skip_to(at.add(level.span()));
                return Some((at, to, MoveStep::Table(level)));
            }
            let part = self.tables.spans(rest).next()?;
            if part.start() > at {
                self.skip_to(part.start());
                continue;
            }
            let span = Level::PTE.table_span();
            let room = to.align_down(span).add(span).since(to);
            let piece = PageRange::new(at, part.end().min(at.add(room)));
            let level = self.tables.find(at, Level::PTE).level;
            let step =
                if level > Level::PTE { self.step_of_huge_leaf(level, piece) } else { MoveStep::Entries(piece, None) };
            let len = if let MoveStep::HugeLeaf(level) = step { level.span() } else { piece.len() };
            self.skip_to(at.add(len));
            return Some((at, to, step));
        }
        None
    }
}

/// A move of entries within a space.
#[derive(Clone, Copy)]
pub(in crate::space) struct EntryMove {
    /// The pages that move.
    pub(in crate::space) from: PageRange,
    /// Where they move.
    pub(in crate::space) to: VirtAddr,
    /// Whether the mapping is locked memory.
    pub(in crate::space) mlocked: Mlocked,
    /// Whether tables may move whole, because no entry of the mapping needs a soft-dirty bit.
    pub(in crate::space) whole: bool,
}

impl EntryMove {
    pub(in crate::space) fn new<P: Platform>(vma: &Vma<P>, from: PageRange, to: VirtAddr) -> Self {
        // INV-SOFT-DIRTY: while all of a mapping counts as soft-dirty, the bits of its entries say
        // nothing.
        Self { from, to, mlocked: vma.mlocked(), whole: vma.flags().contains(VmFlags::SOFTDIRTY) }
    }
}

impl<P: Platform> Mm<P> {
    /// Returns the number of tables that [`Mm::move_entries`] needs.
    ///
    /// What is mapped at the new addresses is unmapped in between.
    pub(in crate::space) fn tables_to_move(&self, tables: Tables<'_, P>, entries: EntryMove) -> usize {
        let EntryMove { from, to, whole, .. } = entries;
        let mut wanted = 0;
        // The last table counted at each level, because neighbouring steps share upper tables.
        let mut counted = [None; Level::PGD.raw() as usize];
        for (_, new, step) in MoveSteps::new(tables, from, to, whole) {
            let level = match step {
                MoveStep::Table(level) | MoveStep::HugeLeaf(level) => level,
                MoveStep::Entries(..) => Level::PTE,
            };
            let missing = level.raw()..level.raw() + tables.missing_once_unmapped(new, level) as u8;
            for level in missing.map(Level::new) {
                let table = new.align_down(level.table_span());
                let last = &mut counted[usize::from(level.raw() - Level::PTE.raw())];
                wanted += usize::from(last.replace(table) != Some(table));
            }
        }
        wanted
    }

    /// Moves the entries of a range to addresses where there are none.
    ///
    /// `gather` is empty before and after.
    pub(in crate::space) fn move_entries(
        &self,
        space: &Space<P>,
        (map, tables): (&HeldMap<'_, P>, OwnTables<'_, P>),
        entries: EntryMove,
        reserve: &mut TableReserve<'_, P>,
        gather: &mut Gather<'_, P>,
    ) {
        let EntryMove { from, to, mlocked, whole } = entries;
        self.declare_reduced(space, from, Rights::empty());
        for (at, new, step) in MoveSteps::new(*tables, from, to, whole) {
            match step {
                MoveStep::Table(level) => {
                    tables.ensure(new, level, reserve);
                    map.move_table(tables, at, new, level, gather);
                }
                MoveStep::HugeLeaf(level) => {
                    tables.ensure(new, level, reserve);
                    self.move_piece(tables, PageRange::new(at, at.add(level.span())), new, level, gather);
                }
                MoveStep::Entries(piece, huge) => {
                    if let Some(level) = huge {
                        debug_assert_eq!(level, Level::PMD, "INV-HUGE-DEPOSIT: a leaf of {level} is split");
                        self.split_huge_leaf(*tables, at, mlocked);
                    }
                    tables.ensure(new, Level::PTE, reserve);
                    self.move_piece(tables, piece, new, Level::PTE, gather);
                }
            }
        }
        // One flush for all tables that moved whole.
        plant!(RemapFlushLate => return);
        gather.settle_so_far();
    }

    /// Moves entries of one table of `level` to another, or to the same table.
    fn move_piece(
        &self,
        tables: OwnTables<'_, P>,
        piece: PageRange,
        new: VirtAddr,
        level: Level,
        gather: &mut Gather<'_, P>,
    ) {
        let Some(from) = tables.lock_level(piece.start(), level) else { return };
        let other = (!from.range().contains(new)).then(|| tables.lock_level(new, level)).flatten();
        let to = other.as_ref().unwrap_or(&from);
        from.move_run(piece, to, new, |leaf| leaf.with(LeafFlags::SOFT_DIRTY), mark_moved, gather);
        plant!(RemapFlushLate => return);
        gather.settle_so_far();
    }
}

/// Marks a swap entry that moves as soft-dirty (`move_soft_dirty_pte`).
fn mark_moved(soft: SoftEntry) -> SoftEntry {
    SwapPte::decode(soft).map_or(soft, |page| SwapPte { soft_dirty: true, ..page }.encode())
}
