//! Copies to and from user memory (`copy_from_user`, `copy_to_user`, `clear_user`).

use crate::error::FaultError;
use crate::fault::FaultRequest;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::{Isa, LeafFlags};
use pagewright_sync::Platform;
use pagewright_table::Mlocked;
use pagewright_types::{Access, PAGE_SIZE, PageRange, PhysAddr, Rights, VirtAddr};

/// Returns whether `len` bytes at `at` are user addresses (`access_ok`).
pub(super) fn is_user<P: Platform>(at: VirtAddr, len: usize) -> bool {
    at.checked_add(len as u64).is_some_and(|end| end <= P::Isa::USER_END)
}

impl<P: Platform> Mm<P> {
    /// Copies `to.len()` bytes of user memory at `from` to `to`.
    ///
    /// Returns the number of bytes at the end that could not be read; they are 0 in `to`.
    pub fn copy_from_user(&self, space: &Space<P>, from: VirtAddr, to: &mut [u8]) -> usize {
        self.declare_return_of(|| {
            let left = self.read_user(space, from, to);
            let copied = to.len() - left;
            to[copied..].fill(0);
            left
        })
    }

    /// Copies `from` to user memory at `to`.
    ///
    /// Returns the number of bytes at the end that could not be written.
    pub fn copy_to_user(&self, space: &Space<P>, to: VirtAddr, from: &[u8]) -> usize {
        self.declare_return_of(|| self.write_user(space, to, from))
    }

    /// Clears `len` bytes of user memory at `to`.
    ///
    /// Returns the number of bytes at the end that could not be written.
    pub fn clear_user(&self, space: &Space<P>, to: VirtAddr, len: usize) -> usize {
        const ZEROES: [u8; 256] = [0; 256];
        self.declare_return_of(|| {
            self.with_user(space, to, len, Access::Write, |at, part| {
                let mut done = 0;
                while done < part.len() {
                    let piece = ZEROES.len().min(part.len() - done);
                    self.fx().write(at.add(done as u64), &ZEROES[..piece]);
                    done += piece;
                }
            })
        })
    }

    /// Does the same as [`Mm::copy_from_user`], within a call; bytes not read stay as they were.
    pub(super) fn read_user(&self, space: &Space<P>, from: VirtAddr, to: &mut [u8]) -> usize {
        let len = to.len();
        self.with_user(space, from, len, Access::Read, |at, part| self.fx().read(at, &mut to[part]))
    }

    /// Does the same as [`Mm::copy_to_user`], within a call.
    pub(super) fn write_user(&self, space: &Space<P>, to: VirtAddr, from: &[u8]) -> usize {
        self.with_user(space, to, from.len(), Access::Write, |at, part| self.fx().write(at, &from[part]))
    }

    /// Calls `access_bytes` with the physical address and the byte range of each page of the range.
    ///
    /// Returns the number of bytes at the end that an access of the program could not reach.
    fn with_user(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        len: usize,
        access: Access,
        mut access_bytes: impl FnMut(PhysAddr, core::ops::Range<usize>),
    ) -> usize {
        if !is_user::<P>(at, len) {
            return len;
        }
        let mut done = 0;
        while done < len {
            let va = at.add(done as u64);
            let part = done..len.min(done + (PAGE_SIZE - va.page_offset()) as usize);
            if self.with_user_part(space, va, access, |at| access_bytes(at, part.clone())).is_err() {
                return len - done;
            }
            done = part.end;
        }
        0
    }

    /// Calls `access_bytes` with the physical address of `va`, with the table of its entry locked.
    ///
    /// Faults until the entry allows the access.
    ///
    /// # Errors
    /// [`FaultError`] of a fault of the program there.
    pub(super) fn with_user_part<T>(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        access: Access,
        mut access_bytes: impl FnMut(PhysAddr) -> T,
    ) -> Result<T, FaultError> {
        loop {
            if let Some(result) = self.try_user_part(space, va, access, &mut access_bytes) {
                return Ok(result);
            }
            self.fault_counted(space, FaultRequest::touch(va, access))?;
        }
    }

    /// Calls `access_bytes` as [`Mm::with_user_part`] does, if the entry allows the access now.
    ///
    /// Sets the accessed and dirty bits of the entry as the CPU would.
    fn try_user_part<T>(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        access: Access,
        access_bytes: &mut impl FnMut(PhysAddr) -> T,
    ) -> Option<T> {
        let map = space.map().read();
        let tables = map.tables(&self.tlb);
        let Some(own) = tables.try_own(PageRange::page(va.align_down(PAGE_SIZE))) else {
            // The lock of a shared table keeps the page, too. A store breaks the table first.
            let locked = tables.read_lock(va)?;
            let leaf =
                locked.leaf(va).filter(|leaf| access != Access::Write && leaf.rights().contains(Rights::READ))?;
            return Some(access_bytes(leaf.page_at(va).base().add(va.page_offset())));
        };
        let locked = own.lock(va)?;
        let leaf = locked.leaf(va)?;
        let (needed, mut touched) = match access {
            Access::Write => (Rights::WRITE, LeafFlags::ACCESSED | LeafFlags::DIRTY),
            Access::Read | Access::Exec => (Rights::READ, LeafFlags::ACCESSED),
        };
        if !leaf.rights().contains(needed) {
            return None;
        }
        touched -= leaf.flags();
        if !touched.is_empty() {
            // Of a page that is accessed, nothing is counted.
            if let Some(debt) = locked.run(Mlocked(false)).protect(va, |leaf| leaf.with(touched)) {
                debt.settle();
            }
        }
        Some(access_bytes(leaf.page_at(va).base().add(va.page_offset())))
    }
}
