//! The vocabulary of Pagewright: addresses, frames, ranges, identifiers, counters, errors.
//!
//! Every other crate uses these types. None is an alias of an integer, so an address cannot be
//! passed for a frame number, nor a CPU for a node. Constructors have the same names everywhere:
//! `new` panics on a value that only a bug can produce, `try_new` returns an error, and
//! `containing` rounds.
//!
//! Neighbours: none below. Pure values: no atomics, no unsafe code, no allocation.
//!
//! Not guaranteed: that an address is mapped or a frame exists. Only the form of a value is
//! checked.
//!
//! # Example
//!
//! ```
//! use pagewright_types::{Access, Level, PageRange, Pfn, PhysAddr, RangeError, Rights, VirtAddr};
//!
//! let range = PageRange::from_len(VirtAddr::new(0x40_0000), 10_000)?;
//! assert_eq!(range.pages(), 3);
//! assert_eq!(Level::PMD.index_of(range.start()), 2);
//! assert_eq!(Pfn::containing(PhysAddr::new(0x5123)), Pfn::new(5));
//! assert!(!Rights::READ.allow(Access::Write));
//! # Ok::<(), RangeError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod addr;
pub mod counter;
pub mod cpumask;
pub mod errno;
pub mod gauge;
pub mod ids;
mod isa;
pub mod judge;
mod lru;
mod named_table;
mod node_mask;
pub mod order;
mod range;
pub mod rights;
pub mod snapshot;
mod swap;

pub use addr::{Misaligned, PAGE_SHIFT, PAGE_SIZE, Pfn, PhysAddr, VirtAddr};
pub use counter::Counter;
pub use cpumask::CpuMask;
pub use errno::Errno;
pub use gauge::Gauge;
pub use ids::{CpuId, DebtFloor, DebtKey, FileId, ForkNodeId, NodeId, SpaceId, Tag};
pub use isa::IsaKind;
pub use lru::LruList;
pub use node_mask::NodeMask;
pub use order::{Granule, Level, Order};
pub use range::{FrameRange, PageRange, RangeError};
pub use rights::{Access, Rights};
pub use swap::SwapEntry;
