//! What differs between instruction sets, and the one interface to hardware.
//!
//! Two traits:
//! - [`Isa`] – a *pure* codec: it converts page-table entries to words and back, and says how one
//!   entry may replace another. Both implementations ([`X86_64`], [`Aarch64`]) compile on every
//!   host, so one test run covers both and no code is compiled out under test.
//! - [`Effects`] – every effect that hardware or another CPU can observe: loads and stores of
//!   entries, barriers, TLB invalidations, IPIs, clearing and copying of frames. The lab implements
//!   it with a simulated machine, a kernel with instructions. The memory manager cannot tell them
//!   apart.
//!
//! [`on_both!`] makes a test of a function for each instruction set.
//!
//! [`entries_are_words!`], [`pages_are_words!`], [`no_tlb_and_no_interrupts!`], [`one_cpu!`] and
//! [`no_access_to_bytes!`] implement [`Effects`] on plain memory.
//!
//! Neighbours: uses `types`; used by `sync` and everything above.
//!
//! Not guaranteed: that a caller issues the right effects in the right order. The debt types of
//! `tlb` enforce that, and the oracle checks it.
//!
//! # Example
//!
//! ```
//! use pagewright_arch::{Aarch64, Entry, Isa, Leaf, LeafFlags, Replacement, X86_64};
//! use pagewright_types::{Level, Pfn, Rights};
//!
//! let leaf = Leaf { pfn: Pfn::new(7), rights: Rights::RW, flags: LeafFlags::USER };
//! let entry = X86_64::leaf(Level::PTE, leaf);
//! assert_eq!(X86_64::decode(Level::PTE, entry), Entry::Leaf(leaf));
//!
//! // Another frame: x86-64 flushes afterwards, arm64 needs break-before-make.
//! let moved = Leaf { pfn: Pfn::new(8), ..leaf };
//! let (old, new) = (entry, X86_64::leaf(Level::PTE, moved));
//! assert_eq!(X86_64::replacement(Level::PTE, old, new), Replacement::Flush);
//! let (old, new) = (Aarch64::leaf(Level::PTE, leaf), Aarch64::leaf(Level::PTE, moved));
//! assert_eq!(Aarch64::replacement(Level::PTE, old, new), Replacement::BreakFirst);
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod aarch64;
pub mod effects;
pub mod entry;
pub mod isa;
mod on_both;
mod plain_memory;
mod table_words;
pub mod x86_64;

pub use aarch64::Aarch64;
pub use effects::{Caps, Effects, Invalidate, InvalidateScope, InvalidateTarget, PteSlot, ShootdownKind};
pub use entry::{Entry, Leaf, LeafFlags, Pending, PendingSequence, Pte, SoftEntry, SoftKind, TableEntry};
pub use isa::{Isa, Replacement};
pub use table_words::TableWords;
pub use x86_64::X86_64;
