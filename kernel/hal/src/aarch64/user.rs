//! The assembly that touches user memory, and where a fault of it goes on.

unsafe extern "C" {
    /// Copies and returns how many bytes were left when an access faulted.
    pub(crate) fn copy_user(to: *mut u8, from: *const u8, bytes: usize) -> usize;
    /// Loads one word; 0 when it could.
    pub(crate) fn load_user_u32(from: *const u32, to: *mut u32) -> usize;

    safe fn copy_user_end();
    safe fn copy_user_fault();
    safe fn load_user_u32_end();
    safe fn load_user_u32_fault();
}

type Label = unsafe extern "C" fn();

/// Where the kernel goes on after a fault at `pc`, if that is in one of these functions.
pub(crate) fn fixup(pc: u64) -> Option<u64> {
    let copy: unsafe extern "C" fn(*mut u8, *const u8, usize) -> usize = copy_user;
    let load: unsafe extern "C" fn(*const u32, *mut u32) -> usize = load_user_u32;
    let places: [(u64, Label, Label); 2] = [
        (copy as usize as u64, copy_user_end, copy_user_fault),
        (load as usize as u64, load_user_u32_end, load_user_u32_fault),
    ];
    places
        .iter()
        .find(|(start, end, _)| (*start..*end as usize as u64).contains(&pc))
        .map(|place| place.2 as usize as u64)
}
