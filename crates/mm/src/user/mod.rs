//! Accesses of the kernel to user memory: copies, words, strings, other processes, futex keys.
//!
//! - `copy`: `Mm::copy_from_user`, `Mm::copy_to_user`, `Mm::clear_user`, which return the number of
//!   bytes not copied, as in Linux.
//! - `word`: `Mm::get_user`, `Mm::put_user`, for one word, an aligned one in one access.
//! - `string`: `Mm::strncpy_from_user`.
//! - `remote`: `Mm::process_vm_readv`, `Mm::process_vm_writev`, `Mm::read_remote`,
//!   `Mm::write_remote`.
//! - `futex`: [`FutexKey`], which is equal for two addresses of the same word.
//!
//! The kernel has no mapping of user memory. It finds the entry that the program would use, faults
//! missing pages in as the program would, with the mapping's rights and growth of stacks, and
//! accesses the bytes through their frame.
//!
//! **INV-USER-COPY** The kernel accesses user memory only where the program itself could, through
//! an entry whose table it has locked or a page on which it has a reference. So it neither reads
//! nor writes memory that a concurrent call has freed.
//!
//! A concurrent `munmap`, `mprotect` or copy-on-write needs the lock of that table, so the kernel
//! does not access a page after they have removed it.
//!
//! Neighbours: uses `fault`, `gup`, `space`.
//!
//! Not guaranteed: that a copy of several pages is atomic.

mod copy;
mod futex;
mod remote;
mod string;
mod word;

pub use futex::{FutexAccess, FutexKey, FutexScope};
pub use remote::IoVec;
pub use word::UserWord;
