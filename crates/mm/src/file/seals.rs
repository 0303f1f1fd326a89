//! Seals (`F_ADD_SEALS`, `mm/memfd.c`): promises about a piece of shared memory that nobody can
//! take back.
//!
//! INV-SEAL: once a seal is set, what it forbids does not happen any more: no smaller or larger
//! size, no change of contents – for [`Seals::FUTURE_WRITE`], but through mappings that there were.
//!
//! Protocol: whoever is about to do what a seal forbids holds the object's `resize` lock, or counts
//! as a writable mapping; the seal is set with both the lock held and no such mapping.
//!
//! Not guaranteed: anything about a file of an embedder's. It has no seals.

use super::cache::HeldPage;
use super::object::{FileKind, FileObject};
use crate::error::MmError;
use crate::mm::Mm;
use core::sync::atomic::Ordering;
use pagewright_sync::{Backend, Platform};
use pagewright_types::Rights;

bitflags::bitflags! {
    /// `F_SEAL_*` with Linux's values (`include/uapi/linux/fcntl.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Seals: u32 {
        /// No more seals.
        const SEAL = 0x1;
        /// No smaller size.
        const SHRINK = 0x2;
        /// No larger size.
        const GROW = 0x4;
        /// No writes.
        const WRITE = 0x8;
        /// No writes but through mappings that exist.
        const FUTURE_WRITE = 0x10;
        /// No change of whether it may be run.
        const EXEC = 0x20;
    }
}

impl Seals {
    /// Either of those against writing.
    pub(super) const ANY_WRITE: Self = Self::WRITE.union(Self::FUTURE_WRITE);
}

/// How often it is looked whether somebody who has a page has given it back: longer than a fault or
/// a read takes.
const LOOKS: u32 = 100;

impl<P: Platform> FileObject<P> {
    /// Its seals (`F_GET_SEALS`).
    ///
    /// # Errors
    /// [`MmError::NoSeals`] for a file of an embedder's.
    pub fn seals(&self) -> Result<Seals, MmError> {
        match self.kind() {
            FileKind::Shmem => Ok(self.sealed()),
            FileKind::File(_) => Err(MmError::NoSeals),
        }
    }

    /// Fails if any of `seals` is set.
    ///
    /// The caller holds `resize`.
    pub(super) fn unsealed(&self, seals: Seals) -> Result<(), MmError> {
        let seals = self.sealed() & seals;
        // An embedder's file has the seal against seals, and no other.
        if seals.is_empty() { Ok(()) } else { Err(MmError::FileSealed { seals }) }
    }

    /// Whether a new shared mapping may have `rights`, and what it may ever have, out of `most`
    /// (`memfd_check_seals_mmap`).
    pub(crate) fn sealed_rights(&self, rights: Rights, most: Rights) -> Result<Rights, MmError> {
        let seals = self.sealed() & Seals::ANY_WRITE;
        if seals.is_empty() {
            return Ok(most);
        }
        if rights.contains(Rights::WRITE) { Err(MmError::FileSealed { seals }) } else { Ok(most - Rights::WRITE) }
    }
}

impl<P: Platform> Mm<P> {
    /// Adds seals through a descriptor that was `opened` so (`F_ADD_SEALS`).
    ///
    /// Whoever has a page of it, by [`Mm::get_user_pages`] or a pin, might write it, so it is not
    /// sealed against writing until they have given it back. They are given a moment for that
    /// (`memfd_wait_for_pins`; Linux sleeps for up to 150 ms), and reclaim as long as it takes.
    ///
    /// # Errors
    /// [`MmError`]; no seal was added.
    pub fn add_seals(&self, file: &FileObject<P>, opened: Rights, seals: Seals) -> Result<(), MmError> {
        if !opened.contains(Rights::WRITE) {
            return Err(MmError::FileSealed { seals: file.sealed() });
        }
        if !Seals::all().contains(seals) {
            return Err(MmError::BadFlags { flags: seals.bits() });
        }
        let _resize = file.resize.write();
        let present = file.seals()?;
        if present.contains(Seals::SEAL) {
            return Err(MmError::FileSealed { seals: present });
        }
        let mut wanted = seals;
        if seals.contains(Seals::EXEC) && file.is_executable() {
            // What can be run must not change.
            wanted |= Seals::SHRINK | Seals::GROW | Seals::ANY_WRITE;
        }
        let ends_writing = wanted.contains(Seals::WRITE) && !present.contains(Seals::WRITE);
        let mut looks = 0;
        loop {
            let holders = file.holders.lock();
            if ends_writing && holders.writable > 0 {
                return Err(MmError::WritablyMapped { mappings: holders.writable });
            }
            let Some(HeldPage { index, isolated }) = ends_writing.then(|| file.held_page(self)).flatten() else {
                file.seals.store((present | wanted).bits(), Ordering::Relaxed);
                return Ok(());
            };
            drop(holders);
            if isolated {
                self.fx().relax();
            } else if looks < LOOKS {
                looks += 1;
                // Whether it is given back, nobody knows; that it is, is not waited for.
                <P::Locks as Backend>::point();
            } else {
                return Err(MmError::PageHeld { index });
            }
        }
    }
}
