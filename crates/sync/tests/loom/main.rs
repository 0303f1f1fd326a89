//! The locks in every execution that the memory model allows for two or three threads.
//!
//! INV-LOCK-EXCL, INV-ARC-COUNT, INV-FULL-BARRIER, INV-FRAME-SPEC, INV-FRAME-MAP, and
//! INV-MAIL-READ, INV-MAIL-LOST, INV-MAIL-ABSENT and INV-TLB-BATCH-SETTLED. Built only with
//! `RUSTFLAGS="--cfg loom"`; `cargo xtask test` does so.
//!
//! A lock protects a loom cell ([`tracked::Tracked`]). Loom fails the run if the lock does not
//! order two accesses to the cell, one of them a write. That catches a missing Acquire or Release,
//! which no number of runs on x86 would.
//!
//! Not explored: more threads or rounds than a test has, and the order of sequentially consistent
//! loads and stores, of which loom has acquire and release only. It has that of fences.
#![cfg(loom)]

mod arc;
mod backend;
#[path = "../../../tlb/src/batch_epochs.rs"]
mod batch_epochs;
mod batches;
#[path = "../../../frame/src/counts.rs"]
#[expect(dead_code, reason = "the other operations on counts")]
mod counts;
mod full_barrier;
mod locks;
mod mailbox;
mod new_folio;
mod split_entire;
mod tracked;
