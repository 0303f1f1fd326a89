//! What differs between instruction sets, and the one door through which hardware is touched.
//!
//! Two traits:
//! - [`Isa`] – a *pure* codec: page-table entries to words and back, geometry, and the rules by
//!   which one entry may replace another. Both implementations ([`X86_64`], [`Aarch64`]) compile on
//!   every host, so that one test run covers both and nothing is compiled out under test.
//! - [`Effects`] – everything that hardware, or another CPU, could notice: entry loads and stores,
//!   barriers, TLB operations, interrupts to other CPUs, clearing and copying of frames. The lab
//!   implements it with a simulated machine, a kernel with instructions; the memory manager cannot
//!   tell which.
//!
//! Neighbours: uses `types`; used by `sync` and everything above.
//!
//! Not guaranteed: that a caller issues the right effects in the right order. That is the debt
//! types' business in `tlb`, and the oracle's.
#![no_std]
#![forbid(unsafe_code)]

pub mod aarch64;
pub mod effects;
pub mod entry;
pub mod isa;
pub mod x86_64;

pub use aarch64::Aarch64;
pub use effects::{Caps, Effects, Invalidate, InvalidateScope, InvalidateTarget, PteSlot, ShootdownKind};
pub use entry::{Entry, Leaf, LeafFlags, Pte, SoftEntry, SoftKind, TableEntry};
pub use isa::{Isa, Replacement};
pub use x86_64::X86_64;
