//! The locks under every order in which the memory model lets two or three threads see each other
//! (INV-LOCK-EXCL, INV-ARC-COUNT). Built only with `RUSTFLAGS="--cfg loom"`; `cargo xtask test`
//! does so.
//!
//! What a lock protects is a loom cell ([`tracked::Tracked`]): loom fails the run if two accesses
//! to it, one of them a write, are not ordered by the lock. That catches a missing Acquire or
//! Release, which no number of runs on x86 would.
//!
//! Not explored: more threads or rounds than a test says, and sequential consistency (loom has
//! acquire and release only).
#![cfg(loom)]

mod arc;
mod backend;
mod locks;
mod mailbox;
mod tracked;
