//! Copies between the kernel and the user memory of the space that this CPU runs.
//!
//! A copy uses the program's own addresses and therefore its page tables and rights. At an access
//! that faults, the copy stops and reports where. The caller has the fault served and continues.
//!
//! Not guaranteed: a consistent snapshot, since other threads may store meanwhile.

use crate::arch::mmu;
use crate::user_asm;
use pagewright_arch::Isa;
use pagewright_types::{Access, VirtAddr};

/// An access of the kernel that the user's page tables do not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFault {
    /// The address.
    pub va: VirtAddr,
    /// Load or store.
    pub access: Access,
    /// Bytes copied before the fault.
    pub done: usize,
}

/// Whether all `len` bytes at `va` are in user space.
fn is_user(va: VirtAddr, len: usize) -> bool {
    va.checked_add(len as u64).is_some_and(|end| end <= mmu::Isa::USER_END)
}

/// The fault of a range that leaves user space: at its first address outside, which no page has.
///
/// INV-KERNEL-CALLS: a fault at its start could be served, and the same copy would fault again
/// without end.
fn outside(start: VirtAddr, access: Access) -> UserFault {
    UserFault { va: start.max(mmu::Isa::USER_END), access, done: 0 }
}

/// Copies from user memory at `from`.
///
/// # Errors
/// [`UserFault`]; the bytes before it have been copied. Of a range that leaves user space, none are
/// (`access_ok`).
pub fn read(from: VirtAddr, to: &mut [u8]) -> Result<(), UserFault> {
    let fault =
        |done: usize| UserFault { va: from.checked_add(done as u64).unwrap_or(from), access: Access::Read, done };
    if !is_user(from, to.len()) {
        return Err(outside(from, Access::Read));
    }
    // SAFETY: `to` is borrowed; `from` is in user space, where faults are handled.
    let left = unsafe { user_asm::copy_user(to.as_mut_ptr(), from.raw() as *const u8, to.len()) };
    if left == 0 { Ok(()) } else { Err(fault(to.len() - left)) }
}

/// Copies to user memory at `to`.
///
/// # Errors
/// As [`read`].
pub fn write(to: VirtAddr, from: &[u8]) -> Result<(), UserFault> {
    let fault = |done: usize| UserFault { va: to.checked_add(done as u64).unwrap_or(to), access: Access::Write, done };
    if !is_user(to, from.len()) {
        return Err(outside(to, Access::Write));
    }
    // SAFETY: `from` is borrowed; `to` is in user space, where faults are handled.
    let left = unsafe { user_asm::copy_user(to.raw() as *mut u8, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(fault(from.len() - left)) }
}

/// Loads an aligned word in one access, as a futex needs.
///
/// # Errors
/// As [`read`].
///
/// # Panics
/// If `from` is not a multiple of 4.
pub fn load_u32(from: VirtAddr) -> Result<u32, UserFault> {
    assert!(from.is_aligned(4), "{from} is not aligned to 4 bytes");
    let mut value = 0;
    // SAFETY: as for `read`.
    if is_user(from, 4) && unsafe { user_asm::load_user_u32(from.raw() as *const u32, &raw mut value) } == 0 {
        return Ok(value);
    }
    Err(UserFault { va: from, access: Access::Read, done: 0 })
}

/// Stores `new` in an aligned word if it holds `old`, atomically, and returns what it held.
///
/// # Errors
/// As [`write`].
///
/// # Panics
/// If `at` is not a multiple of 4.
pub fn compare_exchange_u32(at: VirtAddr, old: u32, new: u32) -> Result<u32, UserFault> {
    assert!(at.is_aligned(4), "{at} is not aligned to 4 bytes");
    let mut found = 0;
    // SAFETY: as for `write`.
    if is_user(at, 4)
        && unsafe { user_asm::compare_exchange_user_u32(at.raw() as *mut u32, old, new, &raw mut found) } == 0
    {
        return Ok(found);
    }
    Err(UserFault { va: at, access: Access::Write, done: 0 })
}
