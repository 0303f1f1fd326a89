//! `fork(2)`: a copy of an address space, copy-on-write (`dup_mmap`, `copy_page_range`).
//!
//! Mappings are copied, but for those that the program keeps to itself (`MADV_DONTFORK`); entries
//! only where a fault could not bring them back (`vma_needs_copy`): private mappings that ever had
//! an anonymous page, unless the child is to find them empty (`MADV_WIPEONFORK`), and whatever has
//! guards. There each page gets one reference and one mapping more, and neither space may store to
//! it or call it its own any longer. A page that is pinned is not shared: the child gets a copy at
//! once, so that whoever pinned it and the parent go on seeing the same (INV-GUP-EXCLUSIVE).
//!
//! INV-FORK-FLUSHED: no CPU can store through an entry of the parent that fork made read-only once
//! fork returns, and the child runs on none before. INV-FORK-ALONE: the parent's map is held for
//! writing throughout, so that no fault replaces a page under the copy while a stale writable entry
//! is about.

mod copy_entries;

use crate::error::MmError;
use crate::mm::Mm;
use crate::space::{AddressMap, HeldMap, Space};
use pagewright_plant::plant;
use pagewright_sync::{Arc, Platform};
use pagewright_tlb::Gather;
use pagewright_types::{Counter, Rights};

impl<P: Platform> Mm<P> {
    /// Copies an address space.
    ///
    /// # Errors
    /// [`MmError`] for want of memory. No child exists then, and the parent can do what it could
    /// before; some of its pages may fault once more on a store.
    pub fn fork(&self, parent: &Space<P>) -> Result<Arc<Space<P>>, MmError> {
        self.call(|| self.retry_with_reclaim(|| self.try_fork(parent)))
    }

    fn try_fork(&self, parent: &Space<P>) -> Result<Arc<Space<P>>, MmError> {
        let parent_map = parent.map().write();
        // A space that ended has left the tree of forks: nothing may be hung below its node, which
        // may be somebody else's by now.
        if parent_map.ended {
            return Err(MmError::SpaceEnded);
        }
        let child = self.make_space(Some(parent.fork_node()))?;
        let mut gather = Gather::new(&self.tlb, parent.table().context());
        let copied = self.copy_space(parent, &parent_map, &child, &mut gather);
        // INV-FORK-FLUSHED. Paid whether the copy went well or not: what was made read-only stays
        // so.
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
        from: &HeldMap<'_, P>,
        child: &Space<P>,
        gather: &mut Gather<'_, P>,
    ) -> Result<(), MmError> {
        let mut to = child.map().write();
        let copied = from.copied_totals();
        to.reserve_copy(self, from, &copied)?;
        self.charge_child(from, &mut to, &copied)?;
        self.join_files(from, child)?;
        to.copy_from(from, &copied);
        let mut outcome = Ok(());
        for (start, vma) in from.iter().filter(|(_, vma)| vma.is_copied_with_entries()) {
            let range = vma.range(start);
            outcome = if vma.is_shared() {
                self.copy_markers(from, &to, range)
            } else {
                self.declare_reduced(parent, range, Rights::RX);
                self.copy_entries(from, (child, &to), range, vma.rights(), gather)
            };
            if outcome.is_err() {
                break;
            }
        }
        outcome
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
