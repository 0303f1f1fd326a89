//! Copies between the kernel and the user memory of the space that this CPU runs.
//!
//! They go through the program's own addresses, so that they see and obey its tables as it does.
//! Where an access faults the copy stops and says where; the caller has the fault served and goes
//! on.
//!
//! Not guaranteed: that what was copied is of one moment; other threads store meanwhile.

use crate::arch::mmu;
use crate::arch::user;
use pagewright_arch::Isa;
use pagewright_types::{Access, VirtAddr};

/// An access of the kernel that the user's tables do not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFault {
    /// Where.
    pub va: VirtAddr,
    /// What was tried.
    pub access: Access,
    /// Bytes copied before.
    pub done: usize,
}

/// Whether all of `len` bytes at `va` are user addresses.
fn is_user(va: VirtAddr, len: usize) -> bool {
    va.checked_add(len as u64).is_some_and(|end| end <= mmu::Isa::USER_END)
}

/// Copies user memory from `from`.
///
/// # Errors
/// [`UserFault`]; the bytes before it have been copied. An address past user memory faults at once.
pub fn read(from: VirtAddr, to: &mut [u8]) -> Result<(), UserFault> {
    let fault =
        |done: usize| UserFault { va: from.checked_add(done as u64).unwrap_or(from), access: Access::Read, done };
    if !is_user(from, to.len()) {
        return Err(fault(0));
    }
    // SAFETY: `to` is ours; `from` is below the kernel's half, and faults there are handled.
    let left = unsafe { user::copy_user(to.as_mut_ptr(), from.raw() as *const u8, to.len()) };
    if left == 0 { Ok(()) } else { Err(fault(to.len() - left)) }
}

/// Copies to user memory at `to`.
///
/// # Errors
/// As [`read`].
pub fn write(to: VirtAddr, from: &[u8]) -> Result<(), UserFault> {
    let fault = |done: usize| UserFault { va: to.checked_add(done as u64).unwrap_or(to), access: Access::Write, done };
    if !is_user(to, from.len()) {
        return Err(fault(0));
    }
    // SAFETY: `from` is ours; `to` is below the kernel's half, and faults there are handled.
    let left = unsafe { user::copy_user(to.raw() as *mut u8, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(fault(from.len() - left)) }
}

/// Loads an aligned word in one access, as a futex needs.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// When `from` is not a multiple of 4.
pub fn load_u32(from: VirtAddr) -> Result<u32, UserFault> {
    assert!(from.is_aligned(4), "{from} is no place for a word");
    let mut value = 0;
    // SAFETY: as for `read`.
    if is_user(from, 4) && unsafe { user::load_user_u32(from.raw() as *const u32, &raw mut value) } == 0 {
        return Ok(value);
    }
    Err(UserFault { va: from, access: Access::Read, done: 0 })
}
