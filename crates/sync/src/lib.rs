//! Ranked locks, per-CPU data and what an embedder supplies.
//!
//! - [`Backend`] – how a lock waits and which CPU runs: a spin hint in a kernel, the scheduler of
//!   the simulated machine in the lab.
//! - [`Platform`] – the machine's effects and its locks together: the one type parameter of
//!   everything above.
//! - [`SpinLock`], [`RwLock`], [`BitSpinLock`] – locks that carry their place in the lock order as a
//!   type ([`rank`]); debug builds panic when the order is broken.
//! - [`Arc`] – shared ownership whose creation can fail.
//! - [`atomic`] – the atomics under all of these, which a model checker can replace.
//! - [`bomb`] – what happens to a value that must not be dropped.
//! - [`LinearMap`] – where the machine's memory is mapped, for whoever clears it.
//! - [`Mailbox`] – requests of one CPU to many, and their answers.
//! - [`PerCpu`], [`Counters`] – one value per CPU; the storage of the counters declared in `types`.
//!
//! Neighbours: uses `types` and `arch`; used by everything above.
//!
//! Not guaranteed: fairness. A waiter may starve behind others under a lock that is never free when
//! it looks.
#![no_std]

extern crate alloc;

mod arc;
pub mod atomic;
mod backend;
mod bit_spin;
pub mod bomb;
mod counters;
mod cpumask;
mod linear_map;
mod mailbox;
mod percpu;
pub mod rank;
mod rwlock;
mod spin;

pub use arc::{Arc, ReservedArc};
pub use backend::{Backend, Platform};
pub use bit_spin::{BitSpinGuard, BitSpinLock};
pub use counters::Counters;
pub use cpumask::AtomicCpuMask;
pub use linear_map::LinearMap;
pub use mailbox::Mailbox;
pub use percpu::{AllocError, PerCpu};
pub use rank::{Rank, RankSet};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use spin::{SpinGuard, SpinLock};
