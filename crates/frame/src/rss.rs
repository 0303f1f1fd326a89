//! The kinds of page that resident sets and tables count (`MM_FILEPAGES` … `MM_SHMEMPAGES`).

use crate::folio::{Folio, FolioOwner};
use crate::folio_flags::FolioFlags;

/// What a resident page counts as in the resident set of its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RssKind {
    /// A page of a file (`MM_FILEPAGES`).
    File,
    /// An anonymous page (`MM_ANONPAGES`).
    Anon,
    /// A page of shared memory (`MM_SHMEMPAGES`).
    Shmem,
}

impl RssKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::File, Self::Anon, Self::Shmem];
}

/// A number for each [`RssKind`], in their order, and one for swap entries (`MM_SWAPENTS`).
pub type EntryCounts<T> = [T; RssKind::ALL.len() + 1];

/// The place of the swap entries in [`EntryCounts`].
pub const SWAP_ENTRIES: usize = RssKind::ALL.len();

impl Folio<'_> {
    /// The kind of resident page that the folio's pages are (`mm_counter`).
    #[inline]
    pub fn rss_kind(self) -> RssKind {
        match self.owner() {
            FolioOwner::Anon(_) => RssKind::Anon,
            FolioOwner::File(_) | FolioOwner::None if self.flags().contains(FolioFlags::SWAPBACKED) => RssKind::Shmem,
            FolioOwner::File(_) | FolioOwner::None => RssKind::File,
        }
    }
}
