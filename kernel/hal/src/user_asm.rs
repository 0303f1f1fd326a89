//! The assembly that accesses user memory, and its fault fixups.

unsafe extern "C" {
    /// Copies `bytes` bytes; returns the number left when an access faulted, else 0.
    pub(crate) fn copy_user(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    /// Loads a word; returns 0 on success.
    pub(crate) fn load_user_u32(from: *const u32, to: *mut u32) -> usize;
    /// Stores `new` if the word is `old`, and the word in `found`; returns 0 on success.
    pub(crate) fn compare_exchange_user_u32(at: *mut u32, old: u32, new: u32, found: *mut u32) -> usize;

    safe fn copy_user_end();
    safe fn copy_user_fault();
    safe fn load_user_u32_end();
    safe fn load_user_u32_fault();
    safe fn compare_exchange_user_u32_end();
    safe fn compare_exchange_user_u32_fault();
}

type Label = unsafe extern "C" fn();

/// The address at which the kernel continues after a fault at `pc` in one of these functions.
pub(crate) fn fixup(pc: u64) -> Option<u64> {
    let copy: unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize = copy_user;
    let load: unsafe extern "C" fn(*const u32, *mut u32) -> usize = load_user_u32;
    let exchange: unsafe extern "C" fn(*mut u32, u32, u32, *mut u32) -> usize = compare_exchange_user_u32;
    let ranges: [(u64, Label, Label); 3] = [
        (copy as usize as u64, copy_user_end, copy_user_fault),
        (load as usize as u64, load_user_u32_end, load_user_u32_fault),
        (exchange as usize as u64, compare_exchange_user_u32_end, compare_exchange_user_u32_fault),
    ];
    ranges
        .iter()
        .find(|(start, end, _)| (*start..*end as usize as u64).contains(&pc))
        .map(|(_, _, fault)| *fault as usize as u64)
}
