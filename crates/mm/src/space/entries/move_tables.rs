//! Moving entries from one place of a space to another (`move_page_tables`).
//!
//! INV-REMAP-FLUSH: the old place of a page is flushed while the tables of both places are locked.
//! Whoever finds the page at its new place may unmap it, flush that place only, and free the page;
//! a CPU that still reached it by the old one would go on using it (CVE-2018-18281).
//!
//! Neighbours: `remap` decides what goes where, and holds the space alone, so that two tables may
//! be locked in any order.
//!
//! Not guaranteed: what a move costs. It is a flush for each pair of tables, as in Linux, however
//! few entries stand there.

use crate::counters::Gauge;
use crate::mm::Mm;
use crate::space::Space;
use crate::swap::SwapPte;
use pagewright_arch::{Entry, Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::TableReserve;
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, Rights, VirtAddr};

/// The pieces of `range` that lie in one table each at the new place, too, with their new
/// addresses.
fn pieces(range: PageRange, to: VirtAddr) -> impl Iterator<Item = (PageRange, VirtAddr)> {
    let span = Level::PTE.table_span();
    let mut at = range.start();
    core::iter::from_fn(move || {
        let new = to.add(at.since(range.start()));
        let room = new.align_down(span).add(span).since(new);
        let end = at.align_down(span).add(span).min(range.end()).min(at.add(room));
        let piece = PageRange::new(at, end);
        at = end;
        (!piece.is_empty()).then_some((piece, new))
    })
}

impl<P: Platform> Mm<P> {
    /// Tables that [`Mm::move_entries`] will make.
    pub(in crate::space) fn tables_to_move(&self, space: &Space<P>, from: PageRange, to: VirtAddr) -> usize {
        let mut wanted = 0;
        // The last table that was counted at each level: neighbours share those above the last.
        let mut counted = [None; Level::PGD.raw() as usize];
        for span in space.table().table_spans(&self.tlb, from) {
            for (_, new) in pieces(span, to.add(span.start().since(from.start()))) {
                let missing = space.table().missing_tables(&self.tlb, new, Level::PTE);
                for (level, last) in counted.iter_mut().enumerate().take(missing) {
                    let table = new.align_down(Level::new(level as u8 + Level::PTE.raw()).table_span());
                    wanted += usize::from(last.replace(table) != Some(table));
                }
            }
        }
        wanted
    }

    /// Moves what stands under `from` to `to`, where nothing stands.
    ///
    /// The caller holds the space alone; `gather` is empty before and after.
    pub(in crate::space) fn move_entries<'a>(
        &'a self,
        space: &'a Space<P>,
        from: PageRange,
        to: VirtAddr,
        reserve: &mut TableReserve<'_, P>,
        gather: &mut Gather<'a, P>,
    ) {
        self.reduce(space, from, Rights::empty());
        for span in space.table().table_spans(&self.tlb, from) {
            for (piece, new) in pieces(span, to.add(span.start().since(from.start()))) {
                self.make_tables(space, new, reserve);
                self.move_piece(space, piece, new, gather);
            }
        }
    }

    fn make_tables(&self, space: &Space<P>, va: VirtAddr, reserve: &mut TableReserve<'_, P>) {
        let before = reserve.len();
        space.table().ensure_tables(&self.tlb, va, Level::PTE, reserve);
        self.gauges.add(Gauge::PageTablePages, (before - reserve.len()) as u64);
    }

    /// Moves the entries of one table to one table, which may be the same.
    fn move_piece<'a>(&'a self, space: &'a Space<P>, piece: PageRange, new: VirtAddr, gather: &mut Gather<'a, P>) {
        let Some(from) = space.table().lock(&self.tlb, piece.start(), Level::PTE) else { return };
        let other = (!from.range().contains(new)).then(|| space.table().lock(&self.tlb, new, Level::PTE)).flatten();
        let to = other.as_ref().unwrap_or(&from);
        for va in piece.iter() {
            let to_va = new.add(va.since(piece.start()));
            let debt = from.move_entry(va, to, to_va, mark_moved);
            if let Some(debt) = debt {
                gather.absorb(debt);
                if let Entry::Soft(soft) = to.entry(to_va)
                    && let Some(page) = SwapPte::decode(soft)
                {
                    to.change_soft(to_va, SwapPte { soft_dirty: true, ..page }.encode());
                }
            }
        }
        plant!(RemapFlushLate => return);
        gather.settle_so_far();
    }
}

/// A page that was moved counts as written to (`move_soft_dirty_pte`).
fn mark_moved(leaf: Leaf) -> Leaf {
    Leaf { flags: leaf.flags | LeafFlags::SOFT_DIRTY, ..leaf }
}
