//! The memory calls of Linux, one in each file, under the names of their system calls.
//!
//! | file | calls |
//! | --- | --- |
//! | `mmap`, `munmap`, `mprotect`, `mremap`, `brk` | the calls of the same names |
//! | `madvise/` | `madvise`, `process_madvise` |
//! | `mlock` | `mlock`, `mlock2`, `munlock`, `mlockall`, `munlockall` |
//! | `mseal`, `msync`, `mincore`, `mbind` | the calls of the same names |
//! | `flags` | the flags of these calls |
//! | `splits` | what the calls that may cut a mapping reserve first |
//!
//! **INV-MM-COMMIT** A call that returns an error has changed nothing, except where Linux itself
//! has a partial effect and the call says so.

mod brk;
mod flags;
mod madvise;
mod mbind;
mod mincore;
mod mlock;
pub(in crate::space) mod mmap;
mod mprotect;
mod mremap;
mod mseal;
mod msync;
pub(in crate::space) mod munmap;
mod splits;

pub use flags::{LockAllFlags, LockFlags, MapFlags, Protection, RemapFlags, SyncFlags};
pub use madvise::{Advice, AdviceTarget};
pub use mbind::{BindFlags, BindRequest};
pub use mmap::{FileMapping, MapRequest};
pub use mremap::RemapRequest;
