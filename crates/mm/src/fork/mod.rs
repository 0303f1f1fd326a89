//! `fork(2)`: a copy of an address space, copy-on-write (`dup_mmap`, `copy_page_range`).
//!
//! The child gets all mappings except those with `MADV_DONTFORK`. Fork first shares the page tables
//! that it may share (`share_tables`), and copies the entries of the others only where a fault
//! could not restore them (`vma_needs_copy`): in private mappings that ever had an anonymous page,
//! unless `MADV_WIPEONFORK` empties them in the child, and in mappings with guards. Each page that
//! is copied gets one reference and one mapping more. It is no longer writable or exclusive in
//! either space. A pinned page is not shared: the child gets a copy at once, so that the device and
//! the parent continue to see the same page (INV-GUP-EXCLUSIVE).
//!
//! **INV-FORK-FLUSHED** When fork returns, no CPU can store through an entry of the parent that is
//! now read-only, and the child has not run on any CPU.
//!
//! **INV-FORK-ALONE** Fork holds the parent's mappings exclusively until the parent's CPUs have
//! flushed, so that no fault replaces a page during the copy.

mod copied_tables;
mod copy_entries;
mod share_tables;

pub(crate) use share_tables::CowPageTables;

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{AddressMap, HeldMap, Space};
use copied_tables::CopiedTables;
use copy_entries::own_spans;
use pagewright_arch::Isa;
use pagewright_plant::{plant, planted};
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::Gather;
use pagewright_types::{Counter, Rights};

impl<P: Platform> Mm<P> {
    /// Copies an address space.
    ///
    /// # Errors
    /// [`MmError`] if memory is short. There is no child then, and the parent has the rights that
    /// it had before; stores to some of its pages fault once more.
    pub fn fork(&self, parent: &Space<P>) -> Result<Arc<Space<P>>, MmError> {
        self.declare_return_of(|| self.retry_with_reclaim(|| self.try_fork(parent)))
    }

    fn try_fork(&self, parent: &Space<P>) -> Result<Arc<Space<P>>, MmError> {
        let mut parent_map = parent.map().write();
        // A space that ended has left the tree of forks, and its node may have a new owner: no
        // child is hung below it.
        if parent_map.ended {
            return Err(MmError::SpaceEnded);
        }
        let child = self.make_space(Some(parent.fork_node()))?;
        let mut gather = Gather::new(&self.tlb, parent.table().context());
        let copied = self.copy_space(parent, &mut parent_map, &child, &mut gather);
        plant!(FamilyJoinedLate => join_late(&mut parent_map, &child)?);
        // INV-FORK-FLUSHED. The flush follows a copy that failed, too, because entries stay
        // read-only.
        plant!(ForkFlushLate; { drop(parent_map); gather.settle() }, { gather.settle(); drop(parent_map) });
        match copied {
            Ok(()) => {
                self.tlb.count(Counter::PwFork, 1);
                Ok(child)
            }
            Err(error) => {
                self.close_space(&child);
                Err(error)
            }
        }
    }

    fn copy_space(
        &self,
        parent: &Space<P>,
        from: &mut HeldMap<'_, P>,
        child: &Space<P>,
        gather: &mut Gather<'_, P>,
    ) -> Result<(), MmError> {
        let mut to = child.map().write();
        let copied = from.copied_totals();
        to.reserve_copy(self, from, &copied)?;
        self.charge_child(from, &mut to, &copied)?;
        self.join_files(from, child)?;
        to.copy_from(from, &copied);
        child.swap_cow_page_tables(parent.cow_page_tables());
        child.set_thp_disabled(parent.thp_disabled());
        self.await_migrations(from.tables(&self.tlb), P::Isa::USER);
        let why = self.why_none_is_shared(parent);
        let shares = why.is_none();
        if shares && self.share_tables(from, &mut to, gather)? {
            return Ok(());
        }
        let from = &*from;
        let mut tables_copied = CopiedTables::new(from, why);
        for (start, vma) in from.iter().filter(|(_, vma)| vma.is_copied_with_entries()) {
            let range = vma.range(start);
            let tables = from.tables(&self.tlb);
            // An earlier fork may have shared tables; what is copied is the parent's own.
            let own = if shares { None } else { Some(self.own_tables(tables, range)?) };
            let spans = own_spans(tables, own, range).map(|(own, span, leaves)| {
                tables_copied.note(span, leaves);
                (own, span)
            });
            if vma.is_shared() {
                self.copy_markers(spans, &to)?;
            } else {
                self.declare_reduced(parent, range, Rights::RX);
                self.copy_entries(spans, (child, &to), vma, gather)?;
            }
        }
        if !shares {
            from.note_if_none_shared(&self.tlb);
        }
        tables_copied.count(self);
        Ok(())
    }

    /// Counts the child's mappings with their files, or none of them.
    fn join_files(&self, from: &AddressMap<P>, child: &Space<P>) -> Result<(), MmError> {
        for (index, (file, vma)) in from.copied_of_files().enumerate() {
            if let Err(error) = file.join(self, child.id(), vma.may_store_to_file()) {
                plant!(FailedForkKeepsFiles => return Err(error));
                for (file, vma) in from.copied_of_files().take(index) {
                    file.leave(child.id(), vma.may_store_to_file());
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

planted! {
    /// Has the parent join the family of its child when the child may be in use already.
    fn join_late<P: Platform>(parent: &mut HeldMap<'_, P>, child: &Space<P>) -> Result<(), MmError> {
        (0..64).for_each(|_| <P::Locks as pagewright_sync::Backend>::point());
        let family = child.map().write().family().cloned();
        if let Some(family) = family.filter(|_| parent.family().is_none()) {
            parent.join_family(&family)?;
        }
        Ok(())
    }
}
