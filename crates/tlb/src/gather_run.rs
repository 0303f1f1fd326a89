//! The debts of a run of entries of one table, told to a gather together.
//!
//! Key type: [`GatherRun`]. An operation that edits up to 512 entries under one lock adds one range
//! to its gather, and gives up most pages by one exchange each.
//!
//! Protocol: entries are edited in ascending order. The range reaches the gather when the run ends,
//! and before that if the gather has no room for a reference and flushes early.
//!
//! Not guaranteed: a range without gaps. Pages between two edited entries are flushed, too.

use crate::detached::{DetachedHolder, DetachedPiece};
use crate::gather::Gather;
use pagewright_frame::{FolioRef, FolioRefs};
use pagewright_sync::Platform;
use pagewright_types::{Level, PageRange, VirtAddr};

/// What the edits of one table owe, until it is added to a [`Gather`].
///
/// The run adds it when it is dropped.
pub struct GatherRun<'g, 't, P: Platform> {
    gather: &'g mut Gather<'t, P>,
    level: Level,
    /// The first addresses of the first and the last entry that owe a flush.
    owing: Option<(VirtAddr, VirtAddr)>,
}

impl<'t, P: Platform> Gather<'t, P> {
    /// Begins a run of edits of entries of `level`.
    #[inline]
    pub fn run(&mut self, level: Level) -> GatherRun<'_, 't, P> {
        GatherRun { gather: self, level, owing: None }
    }
}

impl<P: Platform> GatherRun<'_, '_, P> {
    /// Notes that the entry for `va` was cleared or weakened, and owes a flush.
    #[inline]
    pub fn owe(&mut self, va: VirtAddr) {
        self.owing = Some((self.owing.map_or(va, |(first, _)| first), va));
    }

    /// Takes over the reference of a cleared entry with its mapping, if the folio has no others.
    ///
    /// # Errors
    /// The reference, as [`ReleaseList::put_last_entry`](pagewright_frame::ReleaseList) refuses it.
    #[inline]
    pub fn detach_last_entry(&mut self, folio: FolioRef) -> Result<(), FolioRef> {
        self.gather.detach_last_entry(folio)
    }

    /// Takes over the references of cleared entries of a folio, whose mappings are uncounted.
    ///
    /// Flushes and frees early if there is no room for them.
    #[inline]
    pub fn detach(&mut self, refs: FolioRefs) {
        if let Err(refused) = self.gather.try_keep(DetachedPiece::Folio(refs)) {
            self.tell();
            self.gather.keep(refused);
        }
    }

    /// As [`detach`](Self::detach), for a folio that had other references a moment ago.
    #[inline]
    pub fn detach_shared(&mut self, folio: FolioRef) {
        if let Err(refused) = self.gather.try_keep_shared(folio.into()) {
            self.tell();
            self.gather.keep(DetachedPiece::Folio(refused));
        }
    }

    /// Adds the range to the gather.
    fn tell(&mut self) {
        if let Some((first, last)) = self.owing.take() {
            let (start, span) = (first.align_down(self.level.span()), self.level.span());
            self.gather.extend(PageRange::new(start, last.align_down(span).add(span)), self.level);
        }
    }
}

impl<P: Platform> Drop for GatherRun<'_, '_, P> {
    #[inline]
    fn drop(&mut self) {
        self.tell();
    }
}
