//! The memory manager of Pagewright: address spaces, faults, files, swap and reclaim.
//!
//! [`Mm`] is the memory of one machine; [`Space`] is one address space. Calls and faults are
//! methods of [`Mm`] that take a space. They have the names and the effects of Linux's calls.
//!
//! # Example
//!
//! A machine, a space, a mapping and a fault (without the lines that describe the machine's
//! memory):
//!
//! ```
//! use pagewright_mm::{FaultError, MapRequest, Mm, MmSettings};
//! use pagewright_types::{Access, PAGE_SIZE};
//! # use pagewright_arch::X86_64;
//! # use pagewright_sim::{MachineConfig, Sim};
//! # use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
//! # use pagewright_types::{CpuId, IsaKind};
//! # let machine = Sim::<X86_64>::new(MachineConfig::default_for(IsaKind::X86_64)?)?;
//! # let node = machine.nodes()[0];
//! # let nodes = [NodeSpec { id: node.id, ranges: &[node.frames], cpus: node.cpus }];
//! # let layout = MemoryLayout::new(&nodes);
//! # machine.run_on(CpuId::new(0), || {
//! let mm = Mm::try_new(machine.clone(), &layout, MmSettings::default())?;
//! let space = mm.new_space()?;
//! mm.tlb().switch_to(space.table().context());
//!
//! let len = 4 * PAGE_SIZE;
//! let start = mm.mmap(&space, &MapRequest::anonymous(len))?;
//! assert_eq!(space.rss().pages(), 0);
//!
//! // The page-fault handler of a kernel calls this with the address and the access.
//! mm.fault(&space, start, Access::Write)?;
//! assert_eq!(space.rss().pages(), 1);
//!
//! mm.munmap(&space, start, len)?;
//! let error = mm.fault(&space, start, Access::Read).expect_err("the page is not mapped");
//! assert_eq!(error, FaultError::NotMapped { va: start, access: Access::Read });
//!
//! // No CPU may run a space that ends.
//! mm.tlb().enter_lazy();
//! mm.end_space(&space);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!   space/    VMAs, and the calls that change them: mmap, munmap, mprotect, brk, …
//!   fault/    one table that classifies a fault, and a file for each way to handle one
//!   fork/     copies a space, copy-on-write
//!   gup/      pages of user memory for users of their frames: references and pins
//!   user/     accesses of the kernel to user memory: copies, strings, other processes, futex keys
//!   migrate/  moves pages to other nodes
//!   rmap/     the reverse map: the fork tree, and the entries that map a page
//!   file/     files and shared memory: page caches over a trait
//!   tier/     slower memory: demotion
//!   thp/      transparent huge pages: which sizes a mapping gets
//!   swap/     swap devices, compressed memory among them, and the swap cache
//!   reclaim/  chooses pages to evict, and evicts them
//!   oom       the process that ends when nothing can be evicted
//!   policy/   on which nodes pages are allocated
//!   pool      huge folios that are reserved and cleared ahead, for the memory of a VM
//!   counters/ gauges and resident sets
//!   view/     texts of /proc
//!   settings  settings, as Linux's sysctls
//!   declare, snapshot   facts and counts for a judge
//! ```
//!
//! Neighbours: uses `table`, `tlb` (and `frame` through it), `btree`, `sync`, `arch` and `types`.
//! An embedder supplies a [`Platform`](pagewright_sync::Platform), and calls [`Mm::tlb`] to switch
//! spaces and to handle shootdown IPIs.
//!
//! Protocol of every call: *validate, reserve, commit* (INV-MM-COMMIT). A call that returns an
//! error has changed nothing, unless its documentation says that it has a partial effect, as in
//! Linux.
//!
//! The order of locks is in `pagewright_sync::rank`.
//!
//! Not guaranteed: anything about memory that other code maps.
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
pub mod migrate;
mod mm;
mod numa;
pub mod oom;
pub mod policy;
mod pool;
mod reclaim;
pub mod rmap;
mod settings;
mod snapshot;
pub mod space;
pub mod swap;
mod thp;
mod tier;
pub mod user;
pub mod view;

pub use error::{FaultError, MmError};
pub use mm::{Mm, MmSetupError};
pub use pool::{HugePool, PoolFill};
pub use settings::{MmSetting, MmSettingError, MmSettings, SettingValues};
pub use space::{
    Advice, LockAllFlags, LockFlags, MapFlags, MapRequest, Protection, RemapFlags, RemapRequest, Space, Vma,
};
pub use thp::{SplitCounts, SplitRequest, ThpDisabled};
