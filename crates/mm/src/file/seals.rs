//! Seals (`F_ADD_SEALS`, `mm/memfd.c`): restrictions on shared memory that cannot be removed.
//!
//! **INV-SEAL** Once a seal is set, what it forbids no longer happens.
//!
//! A seal may forbid a smaller or larger size, or a change of contents. [`Seals::FUTURE_WRITE`]
//! still permits stores through mappings that existed before.
//!
//! Protocol: an operation that a seal could forbid holds the object's `resize` lock or is counted
//! as a writable mapping. A seal is set with both `resize` and `users` locked, and [`Seals::WRITE`]
//! only while no writable mapping is counted.
//!
//! Not guaranteed: seals on the embedder's files, which have none.

use super::cache::ExtraRef;
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
        /// Forbids further seals.
        const SEAL = 0x1;
        /// Forbids a smaller size.
        const SHRINK = 0x2;
        /// Forbids a larger size.
        const GROW = 0x4;
        /// Forbids writes.
        const WRITE = 0x8;
        /// Forbids writes except through existing mappings.
        const FUTURE_WRITE = 0x10;
        /// Forbids changes of the execute permission.
        const EXEC = 0x20;
    }
}

impl Seals {
    /// Both seals against writing.
    pub(super) const ANY_WRITE: Self = Self::WRITE.union(Self::FUTURE_WRITE);
}

/// How often a page with an extra reference is looked at: longer than a fault or read in flight.
const MAX_LOOKS: u32 = 100;

impl<P: Platform> FileObject<P> {
    /// The seals (`F_GET_SEALS`).
    ///
    /// # Errors
    /// [`MmError::NoSeals`] for a file of the embedder.
    pub fn seals(&self) -> Result<Seals, MmError> {
        match self.kind() {
            FileKind::Shmem => Ok(self.active_seals()),
            FileKind::File(_) => Err(MmError::NoSeals),
        }
    }

    /// Fails if any of `seals` is set.
    ///
    /// The caller holds `resize`.
    pub(super) fn check_unsealed(&self, seals: Seals) -> Result<(), MmError> {
        let seals = self.active_seals() & seals;
        // A file of the embedder has only `SEAL`, which no caller passes.
        if seals.is_empty() { Ok(()) } else { Err(MmError::FileSealed { seals }) }
    }

    /// The rights, out of `most`, that a new shared mapping with `rights` may ever have.
    ///
    /// Linux: `memfd_check_seals_mmap`.
    ///
    /// # Errors
    /// [`MmError::FileSealed`] if the mapping is to be writable and a seal forbids writes.
    pub(crate) fn sealed_rights(&self, rights: Rights, most: Rights) -> Result<Rights, MmError> {
        let seals = self.active_seals() & Seals::ANY_WRITE;
        if seals.is_empty() {
            return Ok(most);
        }
        if rights.contains(Rights::WRITE) { Err(MmError::FileSealed { seals }) } else { Ok(most - Rights::WRITE) }
    }
}

impl<P: Platform> Mm<P> {
    /// Adds seals through a descriptor with the rights `opened` (`F_ADD_SEALS`).
    ///
    /// The holder of a reference or pin, such as from [`Mm::get_user_pages`], might write its page.
    /// So [`Seals::WRITE`] waits briefly for extra references (`memfd_wait_for_pins`; Linux sleeps
    /// for up to 150 ms), and for as long as reclaim has a page isolated.
    ///
    /// # Errors
    /// [`MmError`]; no seal was added. [`MmError::WritablyMapped`] or [`MmError::PageHeld`] if a
    /// mapping or a reference permits writes.
    pub fn add_seals(&self, file: &FileObject<P>, opened: Rights, seals: Seals) -> Result<(), MmError> {
        if !opened.contains(Rights::WRITE) {
            return Err(MmError::FileSealed { seals: file.active_seals() });
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
            // An executable file must not change either.
            wanted |= Seals::SHRINK | Seals::GROW | Seals::ANY_WRITE;
        }
        let seals_writes = wanted.contains(Seals::WRITE) && !present.contains(Seals::WRITE);
        let mut looks = 0;
        loop {
            let users = file.users.lock();
            if seals_writes && users.writable > 0 {
                return Err(MmError::WritablyMapped { mappings: users.writable });
            }
            let Some(ExtraRef { index, isolated }) = seals_writes.then(|| file.find_extra_ref(self)).flatten() else {
                file.seals.store((present | wanted).bits(), Ordering::Relaxed);
                return Ok(());
            };
            drop(users);
            if isolated {
                self.fx().relax();
            } else if looks < MAX_LOOKS {
                looks += 1;
                // The holder may release the page, but this does not wait until it does.
                <P::Locks as Backend>::point();
            } else {
                return Err(MmError::PageHeld { index });
            }
        }
    }
}
