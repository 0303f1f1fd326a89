//! The end of an address space (`exit_mmap`).

use crate::mm::Mm;
use crate::space::call::munmap::top_of_tables;
use crate::space::entries::zap::Zap;
use crate::space::{HeldMap, Space};
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_table::OwnTables;
use pagewright_tlb::Gather;
use pagewright_types::{Level, PageRange, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Unmaps everything, frees the tables and removes the space from its [`Mm`] (`exit_mmap`).
    ///
    /// No CPU may run the space. CPUs that are lazily on its root get an IPI and leave it. A second
    /// call does nothing.
    ///
    /// # Panics
    /// In debug builds, if a CPU runs the space.
    pub fn end_space(&self, space: &Space<P>) {
        self.declare_return_of(|| self.close_space(space));
    }

    /// Does the same as [`Mm::end_space`], within a call.
    pub(crate) fn close_space(&self, space: &Space<P>) {
        let mut map = space.map().write();
        if core::mem::replace(&mut map.ended, true) {
            return;
        }
        let all = PageRange::new(VirtAddr::ZERO, top_of_tables::<P>());
        let own = map.leave_shared_at_exit(&self.tlb, all, map.iter().map(|(start, vma)| vma.range(start)));
        let mut gather = Gather::full_space(&self.tlb, space.table().context());
        for (start, vma) in map.iter() {
            self.zap(space, own, (vma, Zap::SpaceEnd), vma.range(start), &mut gather);
        }
        self.free_all_tables(&map, own, &mut gather);
        gather.settle();
        while let Some(vma) = map.take_first_in(P::Isa::USER) {
            if let Some(shmem) = map.release(&vma) {
                self.drop_file(&shmem);
            }
        }
        self.settle_charge(&mut map);
        map.close(&self.tlb);
        self.fork_tree.remove_space(space.id(), space.fork_node());
    }

    /// Frees the tables of a space whose mappings have no leaves any more (`free_pgtables`).
    ///
    /// It looks only where mappings are. As in Linux, neighbours are one range if they are no
    /// further apart than what a last-level table maps, so that each table is looked at once.
    fn free_all_tables(&self, map: &HeldMap<'_, P>, own: OwnTables<'_, P>, gather: &mut Gather<'_, P>) {
        let top = top_of_tables::<P>();
        let mut mapped = map.iter().map(|(start, vma)| vma.range(start)).peekable();
        while let Some(mut range) = mapped.next() {
            while let Some(next) = mapped.next_if(|next| next.start().raw() - range.end().raw() <= Level::PMD.span()) {
                range = PageRange::new(range.start(), next.end());
            }
            let end = mapped.peek().map_or(top, |next| next.start());
            map.free_tables(own, range, PageRange::new(VirtAddr::ZERO, end), gather);
        }
    }
}
