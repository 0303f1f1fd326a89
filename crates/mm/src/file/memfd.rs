//! `memfd_create(2)`: shared memory with a descriptor and no path.
//!
//! The descriptor is the embedder's; when the last one is closed, it calls [`Mm::close_file`].
//!
//! Not guaranteed: huge pages.

use super::object::{Birth, FileKind, FileObject};
use super::seals::Seals;
use crate::error::MmError;
use crate::mm::Mm;
use pagewright_sync::{Arc, Platform};

bitflags::bitflags! {
    /// `MFD_*` with Linux's values (`include/uapi/linux/memfd.h`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct MemfdFlags: u32 {
        /// The descriptor is closed by `execve`; nothing to the memory.
        const CLOEXEC = 0x1;
        /// Seals may be added.
        const ALLOW_SEALING = 0x2;
        /// Of huge pages; refused.
        const HUGETLB = 0x4;
        /// Not to be run, for good; seals may be added.
        const NOEXEC_SEAL = 0x8;
        /// May be run, as it may without.
        const EXEC = 0x10;
        /// With `HUGETLB`: log2 of the size of the huge pages.
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

/// Bytes that a name may have: `NAME_MAX` less `memfd:`.
const LONGEST_NAME: usize = 255 - 6;

impl<P: Platform> Mm<P> {
    /// Makes an empty piece of shared memory.
    ///
    /// # Errors
    /// [`MmError`]; nothing is kept.
    pub fn memfd_create(&self, name: &str, flags: MemfdFlags) -> Result<Arc<FileObject<P>>, MmError> {
        flags.validate()?;
        if name.len() > LONGEST_NAME {
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
        let birth = Birth { seals, executable, held: true, tmpfs: None };
        self.make_file(&["/memfd:", name, " (deleted)"], FileKind::Shmem, 0, birth)
    }
}
