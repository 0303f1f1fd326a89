//! Copying to and from user memory (`copy_from_user`, `copy_to_user`, `clear_user`).

use crate::error::FaultError;
use crate::fault::FaultOptions;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::{Isa, Leaf, LeafFlags};
use pagewright_sync::Platform;
use pagewright_types::{Access, Level, PAGE_SIZE, PhysAddr, Rights, VirtAddr};

/// Whether a range of user memory could exist at all (`access_ok`).
pub(super) fn is_user<P: Platform>(at: VirtAddr, len: usize) -> bool {
    at.checked_add(len as u64).is_some_and(|end| end <= P::Isa::USER_END)
}

impl<P: Platform> Mm<P> {
    /// Copies `to.len()` bytes of user memory at `from`.
    ///
    /// Returns how many bytes at the end could not be had; these are zero in `to`.
    pub fn copy_from_user(&self, space: &Space<P>, from: VirtAddr, to: &mut [u8]) -> usize {
        self.call(|| {
            let left = self.read_user(space, from, to);
            let had = to.len() - left;
            to[had..].fill(0);
            left
        })
    }

    /// Copies `from` to user memory at `to`.
    ///
    /// Returns how many bytes at the end could not be stored.
    pub fn copy_to_user(&self, space: &Space<P>, to: VirtAddr, from: &[u8]) -> usize {
        self.call(|| self.write_user(space, to, from))
    }

    /// Stores `len` zeroes to user memory at `to`.
    ///
    /// Returns how many at the end could not be stored.
    pub fn clear_user(&self, space: &Space<P>, to: VirtAddr, len: usize) -> usize {
        const ZEROES: [u8; 256] = [0; 256];
        self.call(|| {
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

    /// As [`Mm::copy_from_user`], within a call; what could not be had is left as it was.
    pub(super) fn read_user(&self, space: &Space<P>, from: VirtAddr, to: &mut [u8]) -> usize {
        let len = to.len();
        self.with_user(space, from, len, Access::Read, |at, part| self.fx().read(at, &mut to[part]))
    }

    /// As [`Mm::copy_to_user`], within a call.
    pub(super) fn write_user(&self, space: &Space<P>, to: VirtAddr, from: &[u8]) -> usize {
        self.with_user(space, to, from.len(), Access::Write, |at, part| self.fx().write(at, &from[part]))
    }

    /// Hands each part of user memory that lies in one page to `reach`: where it is, and which of
    /// the bytes it is. Returns how many bytes were not handed over, because an access would get a
    /// signal there.
    fn with_user(
        &self,
        space: &Space<P>,
        at: VirtAddr,
        len: usize,
        access: Access,
        mut reach: impl FnMut(PhysAddr, core::ops::Range<usize>),
    ) -> usize {
        if !is_user::<P>(at, len) {
            return len;
        }
        let mut done = 0;
        while done < len {
            let va = at.add(done as u64);
            let part = done..len.min(done + (PAGE_SIZE - va.page_offset()) as usize);
            if self.with_user_part(space, va, access, |at| reach(at, part.clone())).is_err() {
                return len - done;
            }
            done = part.end;
        }
        0
    }

    /// Calls `reach` with where the byte at `va` is, its page's table locked; faults as often as it
    /// takes.
    ///
    /// # Errors
    /// What signal an access gets there.
    pub(super) fn with_user_part<T>(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        access: Access,
        mut reach: impl FnMut(PhysAddr) -> T,
    ) -> Result<T, FaultError> {
        loop {
            if let Some(answer) = self.try_user_part(space, va, access, &mut reach) {
                return Ok(answer);
            }
            self.fault_counted(space, va, access, FaultOptions::default())?;
        }
    }

    /// The same, if the entry allows it now.
    ///
    /// It is marked as the processor would mark it.
    fn try_user_part<T>(
        &self,
        space: &Space<P>,
        va: VirtAddr,
        access: Access,
        reach: &mut impl FnMut(PhysAddr) -> T,
    ) -> Option<T> {
        // The space is held so that no table is unhooked, the table so that its entries stay.
        // Another's may have ended, with its tables.
        let map = space.map().read();
        if map.is_empty() {
            return None;
        }
        let locked = space.table().lock(&self.tlb, va, Level::PTE)?;
        let leaf = locked.leaf(va)?;
        let (needed, mut touched) = match access {
            Access::Write => (Rights::WRITE, LeafFlags::ACCESSED | LeafFlags::DIRTY),
            Access::Read | Access::Exec => (Rights::READ, LeafFlags::ACCESSED),
        };
        if !leaf.rights.contains(needed) {
            return None;
        }
        touched -= leaf.flags;
        if !touched.is_empty() {
            let touch = |leaf: Leaf| Leaf { flags: leaf.flags | touched, ..leaf };
            if let Some(debt) = locked.update(va, touch) {
                debt.settle();
            }
        }
        let within = va.since(va.align_down(locked.level().span()));
        Some(reach(leaf.pfn.base().add(within)))
    }
}
