//! `memfd_create(2)`: shared memory with a descriptor and no path.
//!
//! The descriptor belongs to the embedder, which calls [`Mm::close_file`] when the last one is
//! closed.
//!
//! Not guaranteed: huge pages.

use super::object::{FileKind, FileObject, ObjectOptions};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use pagewright_sync::{Arc, Platform};

bitflags::bitflags! {
    /// `MFD_*` with Linux's values (`include/uapi/linux/memfd.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MemfdFlags: u32 {
        /// `execve` closes the descriptor, which concerns only the embedder.
        const CLOEXEC = 0x1;
        /// Seals may be added.
        const ALLOW_SEALING = 0x2;
        /// Use huge pages; refused.
        const HUGETLB = 0x4;
        /// Make the memfd non-executable and seal that; more seals may be added.
        const NOEXEC_SEAL = 0x8;
        /// Allow execution, which is also the default.
        const EXEC = 0x10;
        /// With `HUGETLB`: log2 of the huge page size.
        const HUGE_MASK = 0x3f << 26;
    }
}

impl MemfdFlags {
    /// Checks what Linux checks before it reads the name (`sanitize_flags`).
    ///
    /// # Errors
    /// `EINVAL` for unknown flags, and for those that contradict each other.
    pub fn validate(self) -> Result<(), MmError> {
        let huge = self.contains(Self::HUGETLB);
        let known = if huge { Self::all() } else { Self::all() - Self::HUGE_MASK };
        if !known.contains(self) || self.contains(Self::EXEC | Self::NOEXEC_SEAL) {
            return Err(MmError::BadFlags { flags: self.bits() });
        }
        Ok(())
    }
}

/// The longest name in bytes: `NAME_MAX` less `memfd:`.
const MAX_NAME: usize = 255 - 6;

impl<P: Platform> Mm<P> {
    /// Makes an empty memfd.
    ///
    /// # Errors
    /// [`MmError`]; nothing is kept.
    pub fn memfd_create(&self, name: &str, flags: MemfdFlags) -> Result<Arc<FileObject<P>>, MmError> {
        flags.validate()?;
        if name.len() > MAX_NAME {
            return Err(MmError::NameTooLong { len: name.len() });
        }
        if flags.contains(MemfdFlags::HUGETLB) {
            return Err(MmError::NotConfigured { flags: flags.bits() });
        }
        let executable = !flags.contains(MemfdFlags::NOEXEC_SEAL);
        let seals = match (executable, flags.contains(MemfdFlags::ALLOW_SEALING)) {
            (false, _) => Seals::EXEC,
            (true, true) => Seals::empty(),
            (true, false) => Seals::SEAL,
        };
        let options = ObjectOptions { seals, executable, open: true, tmpfs: None };
        self.make_file(&["/memfd:", name, " (deleted)"], FileKind::Shmem, 0, options)
    }
}
