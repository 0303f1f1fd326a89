//! The locks in every execution that the memory model allows for two or three threads.
//!
//! INV-LOCK-EXCL, INV-ARC-COUNT, INV-FRAME-SPEC, and INV-MAIL-READ, INV-MAIL-LOST and
//! INV-MAIL-ABSENT. Built only with `RUSTFLAGS="--cfg loom"`; `cargo xtask test` does so.
//!
//! A lock protects a loom cell ([`tracked::Tracked`]). Loom fails the run if the lock does not
//! order two accesses to the cell, one of them a write. That catches a missing Acquire or Release,
//! which no number of runs on x86 would.
//!
//! Not explored: more threads or rounds than a test has, and sequential consistency, because loom
//! has acquire and release only.
#![cfg(loom)]

mod arc;
mod backend;
mod locks;
mod mailbox;
mod new_folio;
mod tracked;
