//! The vocabulary of Pagewright: addresses, frame numbers, orders, levels, ranges, ids, counters,
//! errors.
//!
//! Every other crate speaks in these types; none of them is an alias of an integer, so an address
//! can't be passed for a frame number or a CPU for a node. Constructors come in three kinds, named
//! alike everywhere: `new` checks and panics on a value that a programming error alone can produce,
//! `try_new` checks and returns an error, and `containing`/`truncating` rounds.
//!
//! Neighbours: none below. Pure values; no atomics, no unsafe code, no allocation.
//!
//! Not guaranteed: that an address is mapped or a frame exists – only that the value has the right
//! form.
#![no_std]
#![forbid(unsafe_code)]

pub mod addr;
pub mod counter;
pub mod cpumask;
pub mod errno;
pub mod ids;
mod isa;
pub mod judge;
mod lru;
mod named_table;
pub mod order;
pub mod range;
pub mod rights;
pub mod snapshot;
mod swap;

pub use addr::{Misaligned, PAGE_SHIFT, PAGE_SIZE, Pfn, PhysAddr, VirtAddr};
pub use counter::Counter;
pub use cpumask::CpuMask;
pub use errno::Errno;
pub use ids::{CpuId, DebtKey, FileId, ForkNodeId, NodeId, SpaceId, Tag};
pub use isa::IsaKind;
pub use lru::LruList;
pub use order::{Level, Order};
pub use range::{FrameRange, PageRange};
pub use rights::{Access, Rights};
pub use swap::SwapEntry;
