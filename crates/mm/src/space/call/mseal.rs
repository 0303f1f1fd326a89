//! `mseal(2)`: forbids changes of mappings.
//!
//! A sealed mapping cannot be unmapped, moved, resized, replaced or given other rights. If it is
//! anonymous and not writable, advice cannot discard its contents either. Such calls fail with
//! `EPERM`, before anything changes.
//!
//! Not guaranteed: that the contents stay. A file can be truncated, and advice can discard the
//! contents of a writable mapping.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::Vma;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags};
use pagewright_sync::Platform;
use pagewright_types::{PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Seals the mappings of `len` bytes at `addr`, rounded up to pages.
    ///
    /// `flags` must be 0.
    ///
    /// # Errors
    /// [`MmError::BadFlags`], [`MmError::NotMapped`] if a page of the range is not mapped,
    /// [`MmError::TooManyMappings`], or the range or memory for splits; nothing has changed.
    pub fn mseal(&self, space: &Space<P>, addr: VirtAddr, len: u64, flags: u32) -> Result<(), MmError> {
        if flags != 0 {
            return Err(MmError::BadFlags { flags });
        }
        let range = bounded(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.declare_return_of(|| {
            let mut map = space.map().write();
            map.check_all_mapped(range)?;
            self.reserve_splits(&mut map, range, |vma| !vma.flags().contains(VmFlags::SEALED))?;
            map.update_flags(range, |vma| vma.flags() | VmFlags::SEALED);
            Ok(())
        })
    }
}

impl<P: Platform> AddressMap<P> {
    /// Checks that no mapping in `range` is sealed (`can_modify_mm`).
    pub(in crate::space) fn check_none_sealed(&self, range: PageRange) -> Result<(), MmError> {
        let sealed = self.overlapping(range).find(|(_, vma)| vma.flags().contains(VmFlags::SEALED));
        sealed.map_or(Ok(()), |(start, _)| Err(MmError::Sealed { at: VirtAddr::from_page_index(start) }))
    }

    /// Checks that all of `range` is mapped.
    pub(in crate::space) fn check_all_mapped(&self, range: PageRange) -> Result<(), MmError> {
        let end = self.mapped_up_to(range);
        if end < range.end() { Err(MmError::NotMapped { at: end }) } else { Ok(()) }
    }
}

impl<P: Platform> Vma<P> {
    /// Returns whether advice may not discard its contents (`can_modify_vma_madv`).
    pub fn refuses_discard(&self) -> bool {
        let anonymous = self.file().is_none();
        self.flags().contains(VmFlags::SEALED) && anonymous && !self.rights().contains(Rights::WRITE)
    }
}
