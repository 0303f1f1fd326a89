//! `mseal(2)`: mappings that stay as they are.
//!
//! What a sealed mapping refuses, each with `EPERM` and before anything changes: to be unmapped,
//! moved, resized, replaced by another mapping, given other rights; and, where it is anonymous and
//! can't be written, to have its contents thrown away by advice.
//!
//! Not guaranteed: that its contents stay. A file may be truncated, and a mapping that can be
//! written may be emptied by advice.

use crate::error::{MmError, bounded};
use crate::mm::Mm;
use crate::space::vma::AddressMap;
use crate::space::{Space, VmFlags};
use crate::space::{Vma, VmaBacking};
use pagewright_sync::Platform;
use pagewright_types::{PageRange, Rights, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Seals every mapping of `len` bytes at `addr`, rounded up to pages; there must be no hole.
    ///
    /// `flags` must be 0.
    ///
    /// # Errors
    /// [`MmError`]; nothing has changed.
    pub fn mseal(&self, space: &Space<P>, addr: VirtAddr, len: u64, flags: u32) -> Result<(), MmError> {
        if flags != 0 {
            return Err(MmError::BadFlags { flags });
        }
        let range = bounded(addr, len)?;
        if range.is_empty() {
            return Ok(());
        }
        self.call(|| {
            let mut map = space.map().write();
            map.no_hole(range)?;
            self.reserve_splits(&mut map, range, |vma| !vma.flags().contains(VmFlags::SEALED))?;
            map.reflag(range, |vma| vma.flags() | VmFlags::SEALED);
            Ok(())
        })
    }
}

impl<P: Platform> AddressMap<P> {
    /// Whether nothing in `range` is sealed (`can_modify_mm`).
    pub(in crate::space) fn none_sealed(&self, range: PageRange) -> Result<(), MmError> {
        let sealed = self.overlapping(range).find(|(_, vma)| vma.flags().contains(VmFlags::SEALED));
        sealed.map_or(Ok(()), |(start, _)| Err(MmError::Sealed { at: VirtAddr::from_page_index(start) }))
    }

    /// Whether all of `range` is mapped.
    pub(in crate::space) fn no_hole(&self, range: PageRange) -> Result<(), MmError> {
        let end = self.mapped_up_to(range);
        if end < range.end() { Err(MmError::NotMapped { at: end }) } else { Ok(()) }
    }
}

impl<P: Platform> Vma<P> {
    /// Whether advice may not throw its contents away (`can_modify_vma_madv`).
    pub fn refuses_discard(&self) -> bool {
        let anonymous = matches!(self.backing(), VmaBacking::Anon);
        self.flags().contains(VmFlags::SEALED) && anonymous && !self.rights().contains(Rights::WRITE)
    }
}
