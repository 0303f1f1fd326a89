//! Taking a page by a walk without locks (`gup_fast`).
//!
//! ```text
//!   read the entry ─▶ speculative reference or pin ─▶ full barrier ─▶ the entry and the pointer to its table again
//!                                                                       same: ours        else: give it up, go the slow way
//! ```
//!
//! Nothing that the walk reads is held. Its tables are not freed before its end (INV-TLB-WALKERS).
//! The frame that the entry names may be freed and become another folio before the reference is
//! had: then the second look finds that the entry says something else (INV-GUP-RECHECK), for
//! whoever frees a mapped page has cleared its entry before. A page whose entry was cleared and
//! which is not yet flushed is kept from reuse by our reference like by any other (INV-TLB-SHARED).
//!
//! Not guaranteed: success, even where nothing hinders it.

use super::{UserPage, Want};
use crate::mm::Mm;
use crate::space::Space;
use core::sync::atomic::{Ordering, fence};
use pagewright_arch::{Entry, Leaf, LeafFlags};
use pagewright_plant::plant;
use pagewright_sync::{Backend, Platform};
use pagewright_table::PeekedEntry;
use pagewright_types::{Counter, PAGE_SIZE, Pfn, Rights, VirtAddr};

/// What a walk came to.
enum Walked {
    Ours(UserPage),
    /// Something was taken and is not ours.
    ///
    /// To be given up once interrupts are open.
    NotOurs(UserPage),
}

impl<P: Platform> Mm<P> {
    /// The page at `va`, if this CPU runs `space` and nothing stands in the way.
    pub(super) fn take_without_locks(&self, space: &Space<P>, va: VirtAddr, want: Want) -> Option<UserPage> {
        let walked = self.tlb.walk_lockless(space.table().context(), || self.walk(space, va, want)).flatten();
        match walked? {
            Walked::Ours(page) => {
                self.tlb.count(Counter::PwGupFast, 1);
                if page.is_pinned() {
                    self.tlb.count(Counter::NrFollPinAcquired, 1);
                }
                Some(page)
            }
            Walked::NotOurs(page) => {
                self.tlb.count(Counter::PwGupFastDropped, 1);
                self.let_go(page);
                None
            }
        }
    }

    fn walk(&self, space: &Space<P>, va: VirtAddr, want: Want) -> Option<Walked> {
        let peek = space.table().peek(&self.tlb, va);
        let (leaf, pfn) = takable::<P>(&peek, va, want)?;
        // Another CPU may free the page, and a third one get it, before the reference is had.
        <P::Locks as Backend>::point();
        let page = UserPage::try_hold(self.frames().find_folio(pfn)?, pfn, want)?;
        // Pairs with the fence in fork between taking the exclusive bit and looking for pins: one
        // of the two sees the other.
        fence(Ordering::SeqCst);
        let still = plant!(FastNoRecheck; true, space.table().is_unchanged(&self.tlb, &peek));
        // Only now is it known whose page it is.
        let ours = still
            && page.folio().is_some_and(|head| {
                let folio = self.frames().folio(head);
                let unshare =
                    !leaf.rights.contains(Rights::WRITE) && want.must_unshare::<P>(leaf, folio.is_anon(), None);
                folio.contains(pfn) && !unshare && !self.is_long_write(want, folio.is_anon())
            });
        Some(if ours { Walked::Ours(page) } else { Walked::NotOurs(page) })
    }

    /// A long-term pin for writing of what is not anonymous: whether it is allowed depends on the
    /// mapping.
    fn is_long_write(&self, want: Want, is_anon: bool) -> bool {
        want.writes() && want.flags.contains(super::GupFlags::LONGTERM) && !is_anon
    }
}

/// The leaf and the frame for `va`, if the entry allows what is wanted without a fault and stands
/// for a page that is counted.
fn takable<P: Platform>(peek: &PeekedEntry, va: VirtAddr, want: Want) -> Option<(Leaf, Pfn)> {
    let Entry::Leaf(leaf) = peek.entry::<P::Isa>() else { return None };
    let needed = if want.writes() { Rights::WRITE } else { Rights::READ };
    let flags = leaf.flags & (LeafFlags::USER | LeafFlags::SPECIAL);
    if flags != LeafFlags::USER || !leaf.rights.contains(needed) || want.writes() && peek.is_write_protected() {
        return None;
    }
    let within = va.since(va.align_down(peek.level().span())) / PAGE_SIZE;
    Some((leaf, leaf.pfn.add(within as u32)))
}
