//! The flags, the lock and the age of a folio, which share one word.
//!
//! Key types: [`FolioFlags`]; [`FolioLock`], which holds the flag `LOCKED`.
//!
//! Protocol: the flags that select an LRU list change as the module `lru` says. The module `folio`
//! says when a view of a folio may be used.
//!
//! Not guaranteed: that flags stay as read, unless the caller holds the lock that protects them.

use crate::folio::Folio;
use core::sync::atomic::Ordering;

bitflags::bitflags! {
    /// Flags of a folio (Linux's page flags).
    ///
    /// The age is in the bits above them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct FolioFlags: u32 {
        /// Locked by one user: see [`Folio::try_lock`] (`PG_locked`).
        const LOCKED = 1;
        /// The contents are newer than those of the backing store (`PG_dirty`).
        const DIRTY = 1 << 1;
        /// The contents are valid (`PG_uptodate`).
        const UPTODATE = 1 << 2;
        /// Backed by swap, or by nothing, but not by a file (`PG_swapbacked`).
        const SWAPBACKED = 1 << 3;
        /// Used since the last scan of reclaim (`PG_referenced`).
        const REFERENCED = 1 << 4;
        /// On the active list (`PG_active`).
        const ACTIVE = 1 << 5;
        /// On an LRU list (`PG_lru`).
        const LRU = 1 << 6;
        /// Never freed or moved, like the zero page (`PG_reserved`).
        const RESERVED = 1 << 7;
        /// Not reclaimable, because locked memory maps it (`PG_unevictable`).
        const UNEVICTABLE = 1 << 8;
        /// In the swap cache, for the slot [`Folio::swap_entry`] (`PG_swapcache`).
        const SWAPCACHE = 1 << 9;
        /// Under writeback (`PG_writeback`).
        const WRITEBACK = 1 << 10;
        /// On the active list before (`PG_workingset`).
        const WORKINGSET = 1 << 11;
        /// Instruction fetches see the contents (arm64's `PG_dcache_clean`).
        const CODE_VISIBLE = 1 << 12;
        /// On a node's queue of folios to be split (`PG_partially_mapped`).
        const DEFERRED = 1 << 13;
        /// Marked as idle, and not seen in use since (`PG_idle`).
        const IDLE = 1 << 14;
        /// In use when idle tracking cleared its accessed bits (`PG_young`).
        const YOUNG = 1 << 15;
    }
}

/// The position of the age in the word of the flags.
const AGE_SHIFT: u32 = 16;
const AGE_MASK: u32 = 0xff << AGE_SHIFT;

impl<'a> Folio<'a> {
    /// The flags.
    #[inline]
    pub fn flags(self) -> FolioFlags {
        FolioFlags::from_bits_truncate(self.record().flags.load(Ordering::Acquire))
    }

    /// Sets flags, and returns the flags before.
    #[inline]
    pub fn set_flags(self, flags: FolioFlags) -> FolioFlags {
        FolioFlags::from_bits_truncate(self.record().flags.fetch_or(flags.bits(), Ordering::AcqRel))
    }

    /// Clears flags, and returns the flags before.
    #[inline]
    pub fn clear_flags(self, flags: FolioFlags) -> FolioFlags {
        FolioFlags::from_bits_truncate(self.record().flags.fetch_and(!flags.bits(), Ordering::AcqRel))
    }

    /// Locks the folio; `None` if it is locked already (`folio_trylock`).
    ///
    /// No call waits for the lock. A caller that must wait releases its ranked locks and retries.
    #[inline]
    pub fn try_lock(self) -> Option<FolioLock<'a>> {
        let before = self.set_flags(FolioFlags::LOCKED);
        (!before.contains(FolioFlags::LOCKED)).then(|| FolioLock(self))
    }

    /// The age: the number of aging scans since the folio was last seen in use.
    pub fn age(self) -> u8 {
        (self.record().flags.load(Ordering::Relaxed) >> AGE_SHIFT) as u8
    }

    /// Sets the age, in aging scans since the folio was last seen in use.
    pub fn set_age(self, age: u8) {
        let flags = &self.record().flags;
        let aged = |flags: u32| Some(flags & !AGE_MASK | u32::from(age) << AGE_SHIFT);
        let _ = flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, aged);
    }
}

/// The lock of a folio; dropping it unlocks.
#[must_use]
pub struct FolioLock<'a>(Folio<'a>);

impl Drop for FolioLock<'_> {
    fn drop(&mut self) {
        self.0.clear_flags(FolioFlags::LOCKED);
    }
}
