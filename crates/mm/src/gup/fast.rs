//! Taking a page by a lockless walk (`gup_fast`).
//!
//! ```text
//!   read the entry ─▶ speculative reference or pin ─▶ full barrier ─▶ read the entry again, and the pointer to its table
//!                                                                       unchanged: done    changed: put the page, go the slow way
//! ```
//!
//! The walk holds nothing that it reads. Its tables are not freed before it ends (INV-TLB-WALKERS).
//! The frame that the entry names may be freed and become another folio before the walk has its
//! reference. Then the second read finds another entry (INV-GUP-RECHECK), because a mapped page is
//! freed only after its entry is cleared. If the entry was cleared but not flushed yet, the walk's
//! reference keeps the frame from reuse like any other (INV-TLB-SHARED).
//!
//! **INV-GUP-RECHECK** A lockless reference counts only if the entry, and the pointer to its table,
//! are unchanged afterwards. Otherwise the reference would be on a page with a new owner.
//!
//! Not guaranteed: success, even if nothing interferes.

use super::{GupFlags, GupRequest, UserPage};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::LeafFlags;
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};
use pagewright_table::{EntryView, LeafView};
use pagewright_types::{Counter, Pfn, Rights, VirtAddr};

/// A page taken by a lockless walk.
enum FastPage {
    /// The entry still names it and permits the request.
    Valid(UserPage),
    /// The entry has changed or does not permit the request.
    ///
    /// The page is put once interrupts are enabled.
    Stale(UserPage),
}

impl<P: Platform> Mm<P> {
    /// The page at `va`, if this CPU runs `space` and the request needs no fault.
    pub(super) fn gup_fast(&self, space: &Space<P>, va: VirtAddr, request: GupRequest) -> Option<UserPage> {
        let walked = self.tlb.walk_lockless(space.table().context(), || self.walk(space, va, request)).flatten();
        match walked? {
            FastPage::Valid(page) => {
                self.tlb.count(Counter::PwGupFast, 1);
                if page.is_pinned() {
                    self.tlb.count(Counter::NrFollPinAcquired, 1);
                }
                Some(page)
            }
            FastPage::Stale(page) => {
                self.tlb.count(Counter::PwGupFastDropped, 1);
                self.put_user_page(page);
                None
            }
        }
    }

    fn walk(&self, space: &Space<P>, va: VirtAddr, request: GupRequest) -> Option<FastPage> {
        let ((leaf, pfn, page), is_unchanged) = space.table().take_lockless(&self.tlb, va, |entry, mark_pinned| {
            let (leaf, pfn) = permitted_leaf(entry, va, request)?;
            if request.pin {
                plant!(FastPinUnmarked; (), mark_pinned());
            }
            // Another CPU may free the page, and a third may allocate it, before the reference is
            // taken.
            <P::Locks as Backend>::point();
            Some((leaf, pfn, UserPage::try_hold(self.frames().find_folio(pfn)?, pfn, request)?))
        })?;
        // The reference keeps the folio stable, so only now can its owner be read.
        let valid = plant!(FastNoRecheck; true, is_unchanged)
            && page.folio().is_some_and(|head| {
                let folio = self.frames().folio(head);
                let unshare =
                    !leaf.rights().contains(Rights::WRITE) && request.must_unshare::<P>(leaf, folio.is_anon(), None);
                folio.contains(pfn) && !unshare && !is_longterm_file_write(request, folio.is_anon())
            });
        Some(if valid { FastPage::Valid(page) } else { FastPage::Stale(page) })
    }
}

/// Whether a request is a longterm pin for writing of a page that is not anonymous.
///
/// The mapping decides whether it is allowed, and a lockless walk has no VMA.
fn is_longterm_file_write(request: GupRequest, is_anon: bool) -> bool {
    request.writes() && request.flags.contains(GupFlags::LONGTERM) && !is_anon
}

/// The leaf and frame for `va`, if the entry permits the request and maps a reference-counted page.
fn permitted_leaf(entry: EntryView, va: VirtAddr, request: GupRequest) -> Option<(LeafView, Pfn)> {
    let leaf = entry.leaf()?;
    let needed = if request.writes() { Rights::WRITE } else { Rights::READ };
    let may_take = leaf.has(LeafFlags::USER) && !leaf.is_special() && leaf.rights().contains(needed);
    may_take.then(|| (leaf, leaf.page_at(va)))
}
