//! Folios whose last reference is gone and that are freed together (Linux's `folios_put`).
//!
//! Key type: [`ReleaseList`], for a caller that gives up many references at a time. It takes the
//! LRU lock of a node and the lock of the CPU's free list once for 31 folios.
//!
//! Not guaranteed: any order but last in, first out.

use crate::block::Block;
use crate::chain::{Chain, chained};
use crate::folio::{FOLIO_COUNTS, Folio};
use crate::folio_ref::{FolioRef, FolioRefs};
use crate::frames::Frames;
use crate::memmap::Memmap;
use crate::record::FrameState;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, LineRef, LineUse, Platform, bomb};
use pagewright_types::{DebtKey, Pfn};

/// The number of folios that leave their LRU lists under one lock (`PAGEVEC_SIZE`).
const AT_ONCE: usize = 31;

/// Folios without references, chained through their records.
///
/// The list owns the folios. The owner must empty it before dropping it.
#[must_use = "dropping a list leaks its folios"]
#[derive(Debug, Default)]
pub struct ReleaseList(Chain);

impl ReleaseList {
    chained!("folios");

    /// Gives up references if they are the last ones, and keeps the folio on this list.
    ///
    /// # Errors
    /// The references, when there are others.
    ///
    /// # Panics
    /// In debug builds when the folio is mapped, pinned, locked, reserved, in the swap cache or
    /// under writeback.
    #[inline]
    pub fn put_last<P: Platform>(&mut self, frames: &Frames<P>, refs: impl Into<FolioRefs>) -> Result<(), FolioRefs> {
        let refs = refs.into();
        let record = frames.memmap.at(refs.pfn());
        P::Locks::line(LineRef::Record(refs.pfn()), FOLIO_COUNTS, LineUse::Store);
        if record.counts.exchange_refs(refs.count(), 0).is_err() {
            return Err(refs);
        }
        let head = refs.into_raw();
        Folio::at(&frames.memmap, head).assert_released();
        record.owner_or_space.store(u64::from(self.0.push(head).raw()), Ordering::Relaxed);
        Ok(())
    }

    /// Gives up the reference of a cleared entry with its mapping, if the folio has no others.
    ///
    /// For a small folio: both counts are in one word, so that one exchange gives up both. The
    /// caller has cleared the entry, under its table's lock, and has not uncounted the mapping.
    ///
    /// # Errors
    /// The reference, when the folio is large, or has other references or mappings; nothing has
    /// changed.
    ///
    /// # Panics
    /// As [`put_last`](Self::put_last).
    #[inline]
    pub fn put_last_entry<P: Platform>(&mut self, frames: &Frames<P>, reference: FolioRef) -> Result<(), FolioRef> {
        let folio = frames.folio_of(&reference);
        let record = folio.record();
        if folio.is_large() || !record.counts.take_last_entry() {
            return Err(reference);
        }
        let head = reference.into_raw();
        folio.assert_released();
        record.owner_or_space.store(u64::from(self.0.push(head).raw()), Ordering::Relaxed);
        Ok(())
    }

    /// Takes a folio as a block, off its LRU list; `None` if the list is empty.
    pub fn pop<P: Platform>(&mut self, frames: &Frames<P>) -> Option<Block> {
        let folio = self.unchain(&frames.memmap)?;
        Some(frames.folio_into_block(folio.head))
    }

    /// Frees all folios.
    ///
    /// The frames owe the debts that [`Folio::add_debt`] recorded. Takes locks of ranks `LruRank`,
    /// `PerCpuPagesRank` and `ZoneRank`.
    pub fn free<P: Platform>(&mut self, frames: &Frames<P>) {
        self.free_with_debt(frames, DebtKey::NONE);
    }

    /// As [`free`](Self::free), and parks the frames under a debt.
    ///
    /// It takes the lock of a zone once for 31 folios.
    pub fn free_with_debt<P: Platform>(&mut self, frames: &Frames<P>, key: DebtKey) {
        while !self.is_empty() {
            let mut some = [Pfn::new(0); AT_ONCE];
            let mut count = 0;
            while count < AT_ONCE
                && let Some(folio) = self.unchain(&frames.memmap)
            {
                frames.undefer(folio);
                some[count] = folio.head;
                count += 1;
            }
            let heads = &some[..count];
            frames.lru_remove_all(heads);
            for head in heads {
                frames.memmap.transition(*head, FrameState::Folio, FrameState::Allocated);
            }
            frames.free_many(heads, key);
        }
    }

    fn unchain<'m>(&mut self, memmap: &'m Memmap) -> Option<Folio<'m>> {
        let head = self.0.pop(|head| Pfn::new(memmap.at(head).owner_or_space.load(Ordering::Relaxed) as u32))?;
        Some(Folio::at(memmap, head))
    }
}

impl Drop for ReleaseList {
    fn drop(&mut self) {
        if !self.is_empty() {
            bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked {} folios without references", self.len()));
        }
    }
}
