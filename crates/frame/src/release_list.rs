//! Folios whose last reference is gone: nobody can get another, and they are freed together
//! (`folios_put`).
//!
//! For whoever gives up many at a time: the lock of the lists by use and that of the CPU's free
//! list are then taken once for 31 of them.
//!
//! Not guaranteed: any order but last in, first out.

use crate::block::Block;
use crate::chain::Chain;
use crate::folio::{Folio, FolioRef};
use crate::frames::Frames;
use crate::memmap::Memmap;
use crate::record::FrameState;
use core::sync::atomic::Ordering;
use pagewright_sync::{Platform, bomb};
use pagewright_types::Pfn;

/// Folios that leave their lists under one lock (Linux's `PAGEVEC_SIZE` in `folios_put`).
const AT_ONCE: usize = 31;

/// Folios without references, chained through their records.
///
/// It owns them: empty it before it is dropped.
#[must_use = "dropping a list leaks its folios"]
#[derive(Debug, Default)]
pub struct ReleaseList(Chain);

impl ReleaseList {
    /// The empty list.
    pub const fn new() -> Self {
        Self(Chain::new())
    }

    /// Folios in it.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives up a reference if it is the last one, and keeps the folio here.
    ///
    /// # Errors
    /// The reference; others exist.
    #[inline]
    pub fn put_last<P: Platform>(&mut self, frames: &Frames<P>, reference: FolioRef) -> Result<(), FolioRef> {
        let record = frames.memmap.at(reference.pfn());
        if record.refs.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(reference);
        }
        let head = reference.into_raw();
        Folio { memmap: &frames.memmap, head }.assert_dead();
        record.owner_or_space.store(u64::from(self.0.push(head).raw()), Ordering::Relaxed);
        Ok(())
    }

    /// Takes one of them as a block.
    pub fn pop<P: Platform>(&mut self, frames: &Frames<P>) -> Option<Block> {
        let folio = self.unchain(&frames.memmap)?;
        Some(frames.dissolve(folio.head))
    }

    /// Frees all of them.
    ///
    /// What they owe is what they [owed](Folio::add_debt).
    pub fn free<P: Platform>(&mut self, frames: &Frames<P>) {
        while !self.is_empty() {
            let mut some = [Pfn::new(0); AT_ONCE];
            let mut count = 0;
            while count < AT_ONCE
                && let Some(folio) = self.unchain(&frames.memmap)
            {
                some[count] = folio.head;
                count += 1;
            }
            let heads = &some[..count];
            frames.lru_remove_all(heads);
            for head in heads {
                frames.memmap.transition(*head, FrameState::Folio, FrameState::Allocated);
            }
            frames.free_many(heads);
        }
    }

    fn unchain<'m>(&mut self, memmap: &'m Memmap) -> Option<Folio<'m>> {
        let head = self.0.pop(|head| Pfn::new(memmap.at(head).owner_or_space.load(Ordering::Relaxed) as u32))?;
        Some(Folio { memmap, head })
    }
}

impl Drop for ReleaseList {
    fn drop(&mut self) {
        if !self.is_empty() {
            bomb::dropped(format_args!("INV-FRAME-LINEAR: leaked {} folios without references", self.len()));
        }
    }
}
