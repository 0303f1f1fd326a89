//! The memory manager of Pagewright.
//!
//! [`Mm`] is one machine's memory; [`Space`] is one address space in it. Calls and faults are
//! methods of [`Mm`] that take the space they act on, and do what the Linux calls of the same names
//! do.
//!
//! ```text
//!   space/   VMAs and the calls that change them: map, unmap, protect, brk
//!   fault/   one table that classifies a fault, and a file for each way of serving one
//!   fork/    a copy of a space, copy-on-write
//!   gup/     pages of user memory for whoever reaches them by their frames: references and pins
//!   user/    user memory as the kernel uses it: copies, strings, other processes' memory, futex keys
//!   rmap/    who maps a page: the tree of forks, and the mappers of a file
//!   file/    files and shared memory: the page cache over a trait
//!   swap/    devices that pages go to, memory that is compressed among them, and the cache between them and page tables
//!   reclaim/ which pages go, and how
//!   pool     huge folios kept and cleared ahead, for a VM's memory
//!   counters/ gauges and RSS          view/   /proc-like texts          settings   settings
//!   declare, snapshot   what is told to whoever judges translations, and counts again
//! ```
//!
//! Neighbours: uses `table`, `tlb` (and `frame` through it), `btree` (the ordered map of VMAs,
//! caches and mappers), `sync`, `arch`, `types`. An embedder supplies a
//! [`Platform`](pagewright_sync::Platform) and calls [`Mm::tlb`] when it switches spaces and when a
//! shootdown interrupt arrives.
//!
//! Protocol, everywhere: *validate, reserve, commit* (INV-MM-COMMIT). A call that returns an error
//! has changed nothing, except where its documentation says that Linux, too, leaves part of the
//! work done.
//!
//! Locks, outermost first: a file's `resize` → a space's `map` → fork tree → mappers → table pages
//! → a file's pages → swap devices → a device's slots → compressed pages → lists by use → the
//! allocator's (all of them in `pagewright_sync::rank`).
//!
//! Not guaranteed: anything about memory that was mapped by other means than these calls.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counters;
mod declare;
mod error;
pub mod fault;
pub mod file;
mod fork;
pub mod gup;
mod mm;
mod pool;
mod reclaim;
pub mod rmap;
mod settings;
mod snapshot;
pub mod space;
pub mod swap;
pub mod user;
pub mod view;

pub use error::{FaultError, MmError};
pub use mm::{Mm, MmSetupError};
pub use pool::{HugePool, PoolFill};
pub use settings::{MmSetting, MmSettingError, MmSettings};
pub use space::{
    Advice, LockAllFlags, LockFlags, MapFlags, MapRequest, Protection, RemapFlags, RemapRequest, Space, Vma,
};
