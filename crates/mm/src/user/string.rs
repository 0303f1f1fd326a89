//! Strings in user memory (`strncpy_from_user`).

use super::copy::is_user;
use crate::error::MmError;
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_types::{Access, PAGE_SIZE, VirtAddr};

impl<P: Platform> Mm<P> {
    /// Copies a string with its terminating zero byte to `to` (`strncpy_from_user`).
    ///
    /// Returns its length without the zero byte, or `to.len()` if none of the first `to.len()`
    /// bytes is zero. The call does not access pages after the end of the string.
    ///
    /// # Errors
    /// [`MmError::Inaccessible`] at the first address that cannot be read before the string ends;
    /// `to` has the bytes before it.
    pub fn strncpy_from_user(&self, space: &Space<P>, from: VirtAddr, to: &mut [u8]) -> Result<usize, MmError> {
        self.declare_return_of(|| self.copy_string(space, from, to))
    }

    fn copy_string(&self, space: &Space<P>, from: VirtAddr, to: &mut [u8]) -> Result<usize, MmError> {
        let len = to.len();
        let mut done = 0;
        while done < len {
            let refused = |va| MmError::Inaccessible { va };
            let va = from.checked_add(done as u64).ok_or(refused(P::Isa::USER_END))?;
            // User memory may end before the buffer does, and the string before that.
            let part = (PAGE_SIZE - va.page_offset()).min((len - done) as u64) as usize;
            if !is_user::<P>(va, part) {
                return Err(refused(va));
            }
            let room = &mut to[done..done + part];
            let copied = self.with_user_part(space, va, Access::Read, |at| {
                self.fx().read(at, room);
                room.iter().position(|byte| *byte == 0)
            });
            if let Some(end) = copied.map_err(|_| refused(va))? {
                return Ok(done + end);
            }
            done += part;
        }
        Ok(len)
    }
}
