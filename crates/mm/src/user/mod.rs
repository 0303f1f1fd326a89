//! User memory as the kernel uses it: copies, words, strings, other processes' memory, and the
//! names of words that are slept on.
//!
//! - `copy` – `Mm::copy_from_user`, `Mm::copy_to_user`, `Mm::clear_user`: how many bytes were left,
//!   as in Linux.
//! - `word` – `Mm::get_user`, `Mm::put_user`: one aligned word at once.
//! - `string` – `Mm::strncpy_from_user`.
//! - `remote` – `Mm::process_vm_readv`, `Mm::process_vm_writev`.
//! - `futex` – [`FutexKey`]: when two addresses are one word.
//!
//! The kernel has no mapping of user memory here: it finds the entry that the program would use,
//! faults in what is missing as the program would – with the mapping's rights, and with a stack
//! that grows – and reaches the bytes by their frame.
//!
//! INV-USER-COPY: bytes are read and written only with the lock of the table held whose entry leads
//! to them, or on a page that is held by a pin. A racing `munmap`, `mprotect` or copy-on-write
//! needs that lock, so what it took away is not touched after it.
//!
//! Neighbours: uses `fault`, `gup`, `space`.
//!
//! Not guaranteed: that a copy of several pages is of one moment.

mod copy;
mod futex;
mod remote;
mod string;
mod word;

pub use futex::{FutexAccess, FutexKey, FutexScope};
pub use remote::IoVec;
pub use word::UserWord;
