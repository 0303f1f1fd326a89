//! Splitting an anonymous folio into its pages (`split_huge_page_to_list_to_order`).
//!
//! ```text
//!   lock the folio; room for the places                                     nothing has changed
//!   clear every leaf that maps it, by try: migration entries                accesses fault and wait
//!   one flush for all of them
//!   freeze from exactly the entries' references and the caller's            none can be taken
//!   a folio of each page, with the entries and the locks of its own
//!   put the leaves back, by place; a huge leaf becomes a table of leaves    accesses go on
//!   pages without an entry are freed
//! ```
//!
//! A *place* is a run of leaves: neighbouring entries of one table that map neighbouring pages. A
//! huge leaf becomes a huge migration entry, whose deposit is hooked at the end.
//!
//! **INV-SPLIT-ALL** A folio is split only if all entries of its mapcount were found, and it has no
//! reference but theirs and the caller's. Each page then has the entries, references and locks that
//! it had in the folio. Otherwise every leaf is put back as it was.
//!
//! Neighbours: `migrate` has the rules for migration entries, and waits for them; `rmap` finds the
//! leaves.
//!
//! Not guaranteed: that a folio is split. A caller tries again, or leaves it.

use crate::mm::Mm;
use crate::rmap::{FolioVisit, MappedLeaf, SpaceLock};
use crate::space::Space;
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};
use pagewright_arch::PteSlot;
use pagewright_plant::plant;
use pagewright_sync::atomic::Ordering;
use pagewright_sync::{Arc, Platform};
use pagewright_table::{restore_migrated, restore_migrated_by_page};
use pagewright_tlb::Batch;
use pagewright_tlb::frames::{Folio, FolioRef, FrozenFolio, IsolatedFolio};
use pagewright_types::{Counter, Gauge, Level, Order, PageRange, Pfn, Rights};

/// The most places that a folio may have.
const MOST_PLACES: usize = 512;

/// A folio is not split: an entry or a reference was not accounted for, or there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SplitStop;

/// A run of leaves of a folio in one table.
struct Place<P: Platform> {
    /// The first entry.
    slot: PteSlot,
    /// The pages of the folio.
    pages: Range<u32>,
    /// Whether their mapping is locked memory.
    mlocked: bool,
    /// The space with a huge leaf; `None` if the entries are of the last level.
    huge_in: Option<Arc<Space<P>>>,
}

impl<P: Platform> Place<P> {
    /// The number of entries.
    fn entries(&self) -> u32 {
        if self.huge_in.is_some() { 1 } else { self.pages.len() as u32 }
    }

    /// Whether an entry at `slot` for page `page` goes on with the run.
    fn goes_on_with(&self, slot: PteSlot, page: u32, mlocked: bool) -> bool {
        let next = PteSlot { index: self.slot.index + self.pages.len() as u16, ..self.slot };
        self.huge_in.is_none() && next == slot && self.pages.end == page && self.mlocked == mlocked
    }
}

impl<P: Platform> Mm<P> {
    /// Splits a large folio, which is off its list, and puts its pages on their lists.
    ///
    /// # Errors
    /// The folio, off its list, if it stays whole.
    ///
    /// # Locks
    /// The caller holds none but locks of spaces, and not the folio's.
    pub(crate) fn split_folio(&self, isolated: IsolatedFolio) -> Result<(), IsolatedFolio> {
        let frames = self.frames();
        let folio = frames.folio(isolated.pfn());
        let Some(lock) = folio.try_lock() else { return self.not_split(isolated) };
        let mut places = Vec::new();
        let wanted = (folio.mapcount() as usize).min(MOST_PLACES);
        if !folio.is_anon() || !self.permit() || places.try_reserve_exact(wanted).is_err() {
            drop(lock);
            return self.not_split(isolated);
        }
        // Before the first space is tried: its next holder sees that entries may be there.
        self.migrators.fetch_add(1, Ordering::AcqRel);
        let cleared = self.clear_leaves(folio, &mut places);
        let frozen = cleared.and_then(|()| freeze(folio, &places));
        let outcome = match frozen {
            Ok(frozen) => {
                // Frozen from the caller's reference, too.
                isolated.into_folio().into_raw();
                Ok(self.split_frozen(frozen, &places))
            }
            Err(SplitStop) => {
                self.put_leaves_back(folio.pfn(), &places);
                Err(isolated)
            }
        };
        self.migrators.fetch_sub(1, Ordering::AcqRel);
        drop(lock);
        match outcome {
            Ok(first) => {
                first.into_iter().for_each(|page| self.put_folio(page));
                self.tlb.count(Counter::ThpSplitPage, 1);
                Ok(())
            }
            Err(isolated) => self.not_split(isolated),
        }
    }

    /// As [`split_folio`](Self::split_folio), and puts a folio that stays whole back on its list.
    ///
    /// Returns whether it was split.
    pub(crate) fn split_or_putback(&self, isolated: IsolatedFolio) -> bool {
        let stays = self.split_folio(isolated).err();
        let split = stays.is_none();
        stays.into_iter().for_each(|isolated| self.putback(isolated));
        split
    }

    /// As [`split_or_putback`](Self::split_or_putback), of a folio whose pages are to be paged out.
    pub(crate) fn split_for_page_out(&self, isolated: IsolatedFolio) -> bool {
        let is_huge = self.frames().folio(isolated.pfn()).pages() == Order::PMD.frames();
        let split = self.split_or_putback(isolated);
        if split && is_huge {
            self.tlb.count(Counter::ThpSwpOutFallback, 1);
        }
        split
    }

    fn not_split(&self, isolated: IsolatedFolio) -> Result<(), IsolatedFolio> {
        self.tlb.count(Counter::ThpSplitPageFailed, 1);
        Err(isolated)
    }

    /// Replaces the leaves of a locked folio by migration entries, and flushes them.
    ///
    /// Their places go to `places`, which does not grow. Locks of spaces are only tried.
    fn clear_leaves(&self, folio: Folio<'_>, places: &mut Vec<Place<P>>) -> Result<(), SplitStop> {
        let (mut stop, mut found) = (Ok(()), 0);
        let mut batch = Batch::new(&self.tlb);
        self.visit_folio(folio, SpaceLock::Try, |visit| {
            let cleared = match visit {
                FolioVisit::Mapped(mapped) => self.clear_leaf(folio, &mapped, places, &mut batch),
                FolioVisit::Contended => Err(SplitStop),
            };
            stop = cleared;
            found += u32::from(cleared.is_ok());
            // An entry keeps its mapping, so the visit does not see that no other is left.
            let goes_on = cleared.is_ok() && found < folio.mapcount();
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        plant!(FolioSplitNotFlushed; core::mem::forget(batch), batch.settle());
        stop
    }

    fn clear_leaf(
        &self,
        folio: Folio<'_>,
        mapped: &MappedLeaf<'_, P>,
        places: &mut Vec<Place<P>>,
        batch: &mut Batch<'_, P>,
    ) -> Result<(), SplitStop> {
        let &MappedLeaf { space, vma, va, leaf, table, .. } = mapped;
        let (slot, page, mlocked) = (table.slot_of(va), folio.page_of(leaf.page_at(va)), vma.mlocked());
        let is_huge = table.level() > Level::PTE;
        let goes_on = !is_huge && places.last().is_some_and(|last| last.goes_on_with(slot, page, mlocked.0));
        if !goes_on && places.len() == places.capacity() {
            return Err(SplitStop);
        }
        let span = table.level().span();
        let start = va.align_down(span);
        self.declare_reduced(space, PageRange::new(start, start.add(span)), Rights::empty());
        // A pin holds a reference of its own, with which the folio is not frozen.
        let debt = table.run(mlocked).unmap_for_migration(va, |_| false).ok_or(SplitStop)?;
        debt.absorb_into(batch, space.table().context());
        match places.last_mut().filter(|_| goes_on) {
            Some(last) => last.pages.end += 1,
            None => {
                let pages = if is_huge { 0..folio.pages() } else { page..page + 1 };
                let huge_in = is_huge.then(|| Arc::clone(space));
                places.push(Place { slot, pages, mlocked: mlocked.0, huge_in });
            }
        }
        Ok(())
    }

    /// Makes a folio of each page, and gives the entries their leaves back.
    ///
    /// Returns a reference to the first page, which has the lock of the folio.
    fn split_frozen(&self, frozen: FrozenFolio<'_>, places: &[Place<P>]) -> Option<FolioRef> {
        let (head, whole) = (frozen.folio().pfn(), frozen.folio().entire_mapcount() > 0);
        self.frames().undefer(frozen.folio());
        let locked = places.iter().any(|place| place.mlocked);
        let mlocks = |page: u32| match locked {
            true => places.iter().filter(|place| place.mlocked && place.pages.contains(&page)).count() as u32,
            false => 0,
        };
        if whole {
            self.frames().adjust(Gauge::AnonThps, -i64::from(frozen.folio().pages()));
        }
        let mut parts = frozen.split_mapped(mlocks);
        let first = parts.next().map(|part| self.put_on_list(part));
        for part in parts {
            // One that nothing maps is freed with this reference.
            self.put_folio(self.put_on_list(part));
        }
        for place in places {
            match &place.huge_in {
                Some(space) => restore_migrated_by_page(&self.tlb, space.table(), place.slot),
                None => restore_run(self, place, |page| head.add(page)),
            }
        }
        first
    }

    /// Puts a page that was split off on its list, if something maps it.
    fn put_on_list(&self, part: FrozenFolio<'_>) -> FolioRef {
        let page = part.thaw_mapped();
        let folio = self.frames().folio_of(&page);
        if folio.is_mapped() {
            self.frames().lru_add(folio);
        }
        page
    }

    /// Undoes [`clear_leaves`](Self::clear_leaves).
    fn put_leaves_back(&self, head: Pfn, places: &[Place<P>]) {
        for place in places {
            match place.huge_in {
                Some(_) => restore_migrated(&self.tlb, place.slot, head),
                None => restore_run(self, place, |page| plant!(SplitUndoneToFirst; head, head.add(page))),
            }
        }
    }
}

/// Puts the leaves of a run back; `frame_of` has the frame of each page.
fn restore_run<P: Platform>(mm: &Mm<P>, place: &Place<P>, frame_of: impl Fn(u32) -> Pfn) {
    for (offset, page) in place.pages.clone().enumerate() {
        let slot = PteSlot { index: place.slot.index + offset as u16, ..place.slot };
        restore_migrated(&mm.tlb, slot, frame_of(page));
    }
}

/// Freezes a folio whose only references are those of the entries at `places` and the caller's.
fn freeze<'a, P: Platform>(folio: Folio<'a>, places: &[Place<P>]) -> Result<FrozenFolio<'a>, SplitStop> {
    // An entry that was not found has a reference, too, with which the folio is not frozen.
    let entries: u32 = places.iter().map(Place::entries).sum();
    let expected = plant!(SplitIgnoresRef; folio.refs(), entries + 1);
    let frozen = folio.freeze(expected).map_err(|_| SplitStop)?;
    debug_assert_eq!(folio.mapcount(), entries, "INV-SPLIT-ALL: entries of {folio:?} were not found");
    Ok(frozen)
}
