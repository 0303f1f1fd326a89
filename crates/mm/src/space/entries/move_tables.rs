//! Moves entries to other addresses of a space (`move_page_tables`).
//!
//! INV-REMAP-FLUSH: the old address of a page is flushed while the tables of both addresses are
//! locked. Otherwise another CPU could unmap the page at its new address, flush only that address
//! and free the page, while a CPU still uses the old address (CVE-2018-18281).
//!
//! Neighbours: `call/mremap.rs` chooses the addresses. It holds the space's `map` lock for writing,
//! so two tables can be locked in any order.
//!
//! Not guaranteed: one flush for the whole move. As in Linux, each pair of tables takes a flush,
//! however few entries it has.

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

/// Splits `range` so that each piece is in one table at its old and at its new address.
///
/// Returns the pieces with their new addresses.
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
    /// Returns the number of tables that [`Mm::move_entries`] needs.
    pub(in crate::space) fn tables_to_move(&self, space: &Space<P>, from: PageRange, to: VirtAddr) -> usize {
        let mut wanted = 0;
        // The last table counted at each level, because neighbouring pieces share upper tables.
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

    /// Moves the entries of `from` to `to`, where there are none.
    ///
    /// The caller holds the space's `map` lock for writing. `gather` is empty before and after.
    pub(in crate::space) fn move_entries<'a>(
        &'a self,
        space: &'a Space<P>,
        from: PageRange,
        to: VirtAddr,
        reserve: &mut TableReserve<'_, P>,
        gather: &mut Gather<'a, P>,
    ) {
        self.declare_reduced(space, from, Rights::empty());
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

    /// Moves entries of one table to another, or to the same table.
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

/// Marks a moved page as soft-dirty (`move_soft_dirty_pte`).
fn mark_moved(leaf: Leaf) -> Leaf {
    Leaf { flags: leaf.flags | LeafFlags::SOFT_DIRTY, ..leaf }
}
