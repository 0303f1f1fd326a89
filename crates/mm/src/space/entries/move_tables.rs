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

use crate::mm::Mm;
use crate::space::Space;
use crate::swap::SwapPte;
use pagewright_arch::{LeafFlags, SoftEntry};
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::{ExclusiveTables, TableReserve, Tables};
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
    pub(in crate::space) fn tables_to_move(&self, tables: Tables<'_, P>, from: PageRange, to: VirtAddr) -> usize {
        let mut wanted = 0;
        // The last table counted at each level, because neighbouring pieces share upper tables.
        let mut counted = [None; Level::PGD.raw() as usize];
        for span in tables.spans(from) {
            for (_, new) in pieces(span, to.add(span.start().since(from.start()))) {
                let missing = tables.missing(new, Level::PTE);
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
    /// `gather` is empty before and after.
    pub(in crate::space) fn move_entries(
        &self,
        space: &Space<P>,
        tables: ExclusiveTables<'_, P>,
        from: PageRange,
        to: VirtAddr,
        reserve: &mut TableReserve<'_, P>,
        gather: &mut Gather<'_, P>,
    ) {
        self.declare_reduced(space, from, Rights::empty());
        for span in tables.spans(from) {
            for (piece, new) in pieces(span, to.add(span.start().since(from.start()))) {
                tables.ensure(new, Level::PTE, reserve);
                self.move_piece(tables, piece, new, gather);
            }
        }
    }

    /// Moves entries of one table to another, or to the same table.
    fn move_piece(&self, tables: ExclusiveTables<'_, P>, piece: PageRange, new: VirtAddr, gather: &mut Gather<'_, P>) {
        let Some(from) = tables.lock(piece.start()) else { return };
        let other = (!from.range().contains(new)).then(|| tables.lock(new)).flatten();
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
