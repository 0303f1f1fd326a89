//! The memory of the program, which QEMU maps at a fixed distance from the program's addresses.

use std::ffi::{CString, OsString, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::launch::STACK_BYTES;

/// Maximum length of a string, and of a vector of strings, in bytes.
const TEXT_MAX: usize = 1 << 20;
/// Size of the blocks in which memory is read; a block never crosses a page.
const BLOCK: u64 = 256;

/// QEMU's address of the program's address 0.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Sets the distance between QEMU's addresses and those of the program.
pub(crate) fn set_base(base: u64) {
    BASE.store(base, Ordering::Relaxed);
}

/// Reads memory of the program; returns `false` if it is not mapped.
///
/// The kernel reads it, so a wrong address is no fault.
fn read(addr: u64, buffer: &mut [u8]) -> bool {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast::<c_void>(), iov_len: buffer.len() };
    let from = addr.wrapping_add(BASE.load(Ordering::Relaxed)) as *mut c_void;
    let remote = libc::iovec { iov_base: from, iov_len: buffer.len() };
    let pid = std::process::id() as libc::pid_t;
    // SAFETY: the local buffer is valid for its length, and the kernel checks the other address.
    let got = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    got == buffer.len() as isize
}

/// Reads a string up to its NUL.
pub(crate) fn text(addr: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let mut at = addr;
    while addr != 0 && text.len() < TEXT_MAX {
        let mut block = [0; BLOCK as usize];
        let block = &mut block[..(BLOCK - at % BLOCK) as usize];
        if !read(at, block) {
            return None;
        }
        match block.iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(&block[..end]);
                return Some(text);
            }
            None => text.extend_from_slice(block),
        }
        at += block.len() as u64;
    }
    None
}

/// Reads a vector of strings up to its null pointer.
pub(crate) fn texts(addr: u64) -> Option<Vec<OsString>> {
    let mut texts = Vec::new();
    let mut at = addr;
    // Linux accepts no vector.
    while addr != 0 && texts.len() < TEXT_MAX {
        let mut pointer = [0; 8];
        if !read(at, &mut pointer) {
            return None;
        }
        match u64::from_le_bytes(pointer) {
            0 => break,
            pointer => texts.push(OsString::from_vec(text(pointer)?)),
        }
        at += 8;
    }
    Some(texts)
}

/// The strings as those of C; `None` if one has a NUL.
pub(crate) fn c_strings(texts: Vec<OsString>) -> Option<Vec<CString>> {
    texts.into_iter().map(|text| CString::new(text.into_vec()).ok()).collect()
}

/// The first address above the program's stack: the lowest mapping of its size above a guard page.
pub(crate) fn stack_top() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    stack_in(&maps).map_or(0, |top| top.wrapping_sub(BASE.load(Ordering::Relaxed)))
}

fn stack_in(maps: &str) -> Option<u64> {
    let mut guard = None;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let rights = fields.next()?;
        // Other memory may follow the stack in the same line.
        if guard == Some(start) && rights.starts_with("rw") && end - start >= STACK_BYTES {
            return Some(start + STACK_BYTES);
        }
        guard = (rights.starts_with("---") && end - start == 4096).then_some(end);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_up_to_its_nul_and_a_wrong_address_is_none() {
        let long = CString::new(vec![b'x'; 1000]).unwrap();
        assert_eq!(text(long.as_ptr() as u64), Some(vec![b'x'; 1000]));
        assert_eq!((text(0), text(8)), (None, None));
        let vector = [long.as_ptr() as u64, 0];
        assert_eq!(texts(vector.as_ptr() as u64).map(|texts| texts.len()), Some(1));
    }

    #[test]
    fn the_stack_is_the_mapping_of_its_size_above_a_guard() {
        let maps = "00400000-004a0000 r--p 00000000 fe:00 1 /x\n\
                    4000000000-4000001000 ---p 00000000 00:00 0\n\
                    4000001000-4000804000 rw-p 00000000 00:00 0\n";
        assert_eq!(stack_in(maps), Some(0x40_0080_2000));
        assert_eq!(stack_in("1000-2000 ---p 0 0 0\n2000-802000 rw-p 0 0 0\n"), None, "a thread's stack is smaller");
    }
}
