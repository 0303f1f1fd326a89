//! Whether pages are in use (`folio_referenced`, `shrink_active_list`, `mark_page_accessed`).
//!
//! The hardware walker sets the accessed bit of each entry that it uses. Here the bits of all
//! mappings of a page are read and cleared. Other CPUs are not flushed: a CPU with a cached
//! translation uses it without setting the bit again, so for a while the page looks less used than
//! it is. Linux does the same on x86-64. On arm64 its `ptep_clear_flush_young` issues a TLBI and
//! does not wait, so the translation is gone by the next context switch; here it stays until the
//! TLB evicts it or the space is flushed. A TLBI without a wait has no owner here: each is
//! completed by the operation that issued it.
//!
//! Protocol: the lock of a space is only tried. If it is contended, the space's tasks may be using
//! the page. The page then stays, and the remaining spaces are not visited (`contended` in
//! `folio_referenced`).
//!
//! Not guaranteed: uses other than through a mapping. The code that makes them calls
//! [`Mm::mark_accessed`].

use super::workingset::ReclaimCost;
use super::{LruType, SWAP_CLUSTER_MAX};
use crate::mm::Mm;
use crate::rmap::{FolioVisit, MappedLeaf, SpaceLock};
use crate::space::VmFlags;
use arrayvec::ArrayVec;
use core::ops::{AddAssign, ControlFlow};
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::Platform;
use pagewright_table::LeafView;
use pagewright_tlb::frames::{Folio, FolioFlags, IsolatedFolio};
use pagewright_types::{Counter, NodeId, Rights};

/// The use of a folio through its mappings since the accessed bits were last cleared.
#[derive(Clone, Copy, Default)]
pub(super) struct FolioReferences {
    /// The number of mappings with an entry whose accessed bit was set.
    pub(super) accessed: u32,
    /// Whether a mapping is mlocked.
    mlocked: bool,
    /// Whether an accessed mapping is executable.
    executable: bool,
    /// Whether the lock of a space was contended.
    contended: bool,
}

impl AddAssign for FolioReferences {
    fn add_assign(&mut self, more: Self) {
        self.accessed += more.accessed;
        self.mlocked |= more.mlocked;
        self.executable |= more.executable;
        self.contended |= more.contended;
    }
}

/// What reclaim does with a folio from the tail of an inactive list (`enum folio_references`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanDecision {
    /// Reclaim it.
    Reclaim,
    /// Return it to the head of the inactive list.
    Keep,
    /// Move it to the active list.
    Activate,
    /// Move it to the unevictable list.
    Cull,
}

impl<P: Platform> Mm<P> {
    /// Reads and clears the accessed bits of all mappings of an isolated folio.
    ///
    /// The accessed bit of a shared table's entry counts once, for all its sharers. A mapping
    /// counts as one use, however many of its pages were accessed (`folio_referenced_one`).
    pub(super) fn folio_referenced(&self, folio: Folio<'_>) -> FolioReferences {
        let mut found = FolioReferences::default();
        // The mapping whose use was counted last; its leaves are visited one after the other.
        let mut counted = None;
        self.visit_folio(folio, SpaceLock::Try, |visit| {
            let FolioVisit::Mapped(mapped) = visit else {
                found.contended = true;
                return ControlFlow::Break(());
            };
            if mapped.vma.flags().contains(VmFlags::LOCKED) {
                // It was mlocked after it was isolated; its flags name the unevictable list.
                found = FolioReferences { mlocked: true, ..FolioReferences::default() };
                return ControlFlow::Break(());
            }
            let mut used = self.leaf_referenced(&mapped);
            let mapping = (mapped.space.id(), mapped.range.start());
            if used.accessed > 0 && plant!(AgedByPiece; false, counted.replace(mapping) == Some(mapping)) {
                used.accessed = 0;
            }
            found += used;
            ControlFlow::Continue(())
        });
        if !found.mlocked && !found.contended {
            self.note_idle_tracking(folio, &mut found);
        }
        found
    }

    /// Reads and clears the accessed bit of a leaf.
    pub(super) fn leaf_referenced(&self, mapped: &MappedLeaf<'_, P>) -> FolioReferences {
        let &MappedLeaf { vma, va, leaf, table, .. } = mapped;
        if !leaf.has(LeafFlags::ACCESSED) {
            return FolioReferences::default();
        }
        let clear = |leaf: LeafView| leaf.without(LeafFlags::ACCESSED);
        if let Some(debt) = table.run(vma.mlocked()).protect(va, clear) {
            debt.settle();
        }
        // With `MADV_SEQUENTIAL` or `MADV_RANDOM` an access predicts no further one
        // (`vma_has_recency`).
        let no_recency = vma.flags().intersects(VmFlags::SEQ_READ | VmFlags::RAND_READ);
        FolioReferences {
            accessed: u32::from(!no_recency),
            executable: vma.rights().contains(Rights::EXEC),
            ..FolioReferences::default()
        }
    }

    /// Decides about a folio from the tail of an inactive list (`folio_check_references`).
    ///
    /// The folio is then marked as referenced if it was accessed.
    pub(super) fn check_references(&self, folio: Folio<'_>) -> ScanDecision {
        let used = self.folio_referenced(folio);
        let decision = decide_by_uses(used, folio.flags());
        if !used.mlocked && !used.contended {
            folio.clear_flags(FolioFlags::REFERENCED);
            if used.accessed > 0 {
                folio.set_flags(FolioFlags::REFERENCED);
            }
        }
        decision
    }

    /// Deactivates folios from the tail of an active list, except accessed executable file pages.
    ///
    /// Returns the pages scanned, which are more than `most` where the last folio is large.
    pub(super) fn shrink_active(&self, node: NodeId, lru: LruType, most: u32) -> u32 {
        let mut folios = ArrayVec::<IsolatedFolio, SWAP_CLUSTER_MAX>::new();
        let scanned = self.isolate_lru_folios(node, lru.active(), most, &mut folios).scanned;
        let (mut rotated, mut deactivated) = (0, 0);
        for isolated in folios {
            let folio = self.frames().folio(isolated.pfn());
            let used = self.folio_referenced(folio);
            if used.mlocked {
                // Returned to the unevictable list.
            } else if lru == LruType::File && used.accessed > 0 && used.executable {
                rotated += folio.pages();
            } else {
                folio.clear_flags(FolioFlags::ACTIVE);
                folio.set_flags(FolioFlags::WORKINGSET);
                deactivated += folio.pages();
            }
            self.putback(isolated);
        }
        self.note_cost(node, lru, ReclaimCost::Rotated(rotated));
        self.tlb.count(Counter::PgRefill, u64::from(scanned));
        self.tlb.count(Counter::PgDeactivate, u64::from(deactivated));
        scanned
    }

    /// Records a use of a folio other than through a mapping (`mark_page_accessed`).
    ///
    /// The caller holds a reference.
    pub(crate) fn mark_accessed(&self, folio: Folio<'_>) {
        let before = folio.set_flags(FolioFlags::REFERENCED);
        let placed = FolioFlags::ACTIVE | FolioFlags::UNEVICTABLE;
        if before.contains(FolioFlags::REFERENCED) && !before.intersects(placed) {
            self.frames().lru_move(folio, FolioFlags::ACTIVE, FolioFlags::REFERENCED);
            self.note_activation(folio);
        }
        if before.contains(FolioFlags::IDLE) {
            folio.clear_flags(FolioFlags::IDLE);
        }
    }
}

/// What becomes of an inactive folio with these uses, which had these flags.
///
/// A folio that was accessed only once stays inactive, so that memory that is read once does not
/// evict the workingset. Executable file pages are activated at their first access.
fn decide_by_uses(used: FolioReferences, flags: FolioFlags) -> ScanDecision {
    if used.mlocked {
        return ScanDecision::Cull;
    }
    if used.contended {
        return ScanDecision::Keep;
    }
    if used.accessed == 0 {
        return ScanDecision::Reclaim;
    }
    let executable = used.executable && !flags.contains(FolioFlags::SWAPBACKED);
    let again = flags.contains(FolioFlags::REFERENCED) || used.accessed > 1;
    if again || executable { ScanDecision::Activate } else { ScanDecision::Keep }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's `folio_check_references`, case by case.
    #[test]
    fn a_folio_is_activated_by_its_second_use_or_as_executable_file_page() {
        use ScanDecision::{Activate, Cull, Keep, Reclaim};
        let (none, referenced, anon) = (FolioFlags::empty(), FolioFlags::REFERENCED, FolioFlags::SWAPBACKED);
        let used = |accessed| FolioReferences { accessed, ..FolioReferences::default() };
        let executed = |accessed| FolioReferences { executable: true, ..used(accessed) };
        let contended = |accessed| FolioReferences { contended: true, ..used(accessed) };
        let mlocked = FolioReferences { mlocked: true, ..contended(2) };
        for (used, flags, decision) in [
            (used(0), none, Reclaim),
            (used(0), referenced, Reclaim),
            (used(1), none, Keep),
            (used(1), anon, Keep),
            (used(1), referenced, Activate),
            (used(1), referenced | anon, Activate),
            (used(2), none, Activate),
            (executed(0), none, Reclaim),
            (executed(1), none, Activate),
            (executed(1), anon, Keep),
            (contended(0), referenced, Keep),
            (contended(2), referenced, Keep),
            (mlocked, referenced, Cull),
        ] {
            assert_eq!(decide_by_uses(used, flags), decision, "{} accessed, {flags:?}", used.accessed);
        }
    }

    #[test]
    fn uses_of_several_mappings_add_up() {
        let one =
            |bit: u32| FolioReferences { accessed: 1, mlocked: bit == 0, executable: bit == 1, contended: bit == 2 };
        for bit in 0..3 {
            for (mut sum, more) in [(one(bit), one(3)), (one(3), one(bit)), (one(bit), one(bit))] {
                sum += more;
                let found = (sum.accessed, sum.mlocked, sum.executable, sum.contended);
                assert_eq!(found, (2, bit == 0, bit == 1, bit == 2));
            }
        }
    }
}
