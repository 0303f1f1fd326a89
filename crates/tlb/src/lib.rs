//! TLB debts and how they are paid.
//!
//! Clearing or weakening a page-table entry leaves a *debt*: until every CPU that may have cached
//! the old entry has forgotten it, the frame behind it must not be reused and the caller must not
//! say that the right is gone. This crate makes that debt a value.
//!
//! ```text
//!   table edit ──▶ Debt ──absorb──▶ Gather ──settle──▶ engine: ipi | broadcast ──▶ frames freed
//!                   │                 │
//!                   └──── dropped ────┴──▶ Ledger (frames parked under a key) ──▶ settled when allocated
//! ```
//!
//! - [`Debt`] – what one edit owes, and what it detached. `#[must_use]`; dropping it panics in
//!   debug builds and parks in release.
//! - [`Gather`] – the debts of one operation on one address space: *unhook → invalidate → free*,
//!   tables included (Linux's `mmu_gather`).
//! - [`Batch`] – the debts of many spaces, whose flush is put off and paid once for all (Linux's
//!   `tlbflush_unmap_batch`).
//! - [`TlbContext`] – what a space is to the TLBs: its root, its generation, the CPUs that may hold
//!   its translations.
//! - [`SecondaryMmu`] – whoever walks the tables besides CPUs, and is told with them.
//! - [`Ledger`] – per-CPU clocks of full flushes; who has paid a debt of a given age.
//! - [`Tlb`] – all of it for one machine, and the **only allocator of frames** that crates above
//!   can name: it settles what a frame owes before it hands it out.
//! - [`frames`] – what crates above may use of `frame`.
//!
//! Neighbours: uses `frame`, `sync`, `arch`, `types`; used by `table` and `mm`.
//!
//! Protocol: INV-TLB-ORDER – *store → publish → invalidate → complete → free*. INV-TLB-SWITCH – a
//! CPU joins a context's mask before it reads the generation, and a sender bumps the generation
//! before it reads the mask, so that one of them sees the other.
//!
//! Not guaranteed: anything about translations held outside CPUs but that their holders are told;
//! nothing maps frames for devices yet.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch;
mod context;
mod debt;
mod deferred_flush;
mod detached;
mod engine;
mod gather;
mod hotplug;
mod ledger;
mod secondary;
mod settling_alloc;
mod switch;
mod tags;
mod walkers;

pub use batch::Batch;
pub use context::TlbContext;
pub use debt::{Debt, OwedFlush};
pub use detached::{DetachedPiece, IntoDetachedPieces};
pub use engine::{BatchPolicy, FlushInfo, Tlb, TlbConfig, TlbSetupError};
pub use gather::Gather;
pub use ledger::Ledger;
pub use secondary::SecondaryMmu;

/// What crates above `tlb` may use of `frame`: everything but its raw allocator.
pub mod frames {
    pub use pagewright_frame::*;
}
