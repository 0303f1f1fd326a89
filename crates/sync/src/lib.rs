//! Ranked locks, per-CPU data, and the traits that an embedder implements.
//!
//! - [`Backend`] – how a lock waits, and which CPU runs: a spin hint in a kernel, the scheduler of
//!   the simulated machine in the lab.
//! - [`Platform`] – the machine's effects and its locks: the one type parameter of every crate
//!   above.
//! - [`SpinLock`], [`RwLock`], [`WordLock`] – locks whose type names their rank in the lock
//!   order ([`rank`]). Debug builds panic on a violation of the order.
//! - [`OnThisCpu`] – the mark of a value, such as a guard, that stays on its CPU.
//! - [`Arc`] – shared ownership with fallible allocation.
//! - [`atomic`] – the atomics under all of these, which a model checker can replace.
//! - `host` (feature `std`) – threads of the host as CPUs.
//! - [`bomb`] – the panic of a value that must not be dropped.
//! - [`LinearMap`] – where the machine's memory is mapped, for code that clears frames.
//! - [`HeldRanks`] – the ranks that a CPU holds, in an atomic. [`OneCpuLocks`] – the locks of a
//!   machine with one CPU.
//! - [`FrameWords`] – frames that are memory of the embedder's.
//! - [`FrameSet`] – the frames that a machine may access by their addresses.
//! - [`FullBarrier`] – the proof that a CPU has ordered a store before a load.
//! - [`Mailbox`] – requests of one CPU to many, and their acknowledgements.
//! - [`LineRef`], [`LineUse`] – the accesses to cache lines that CPUs share, for machines that
//!   price them.
//! - [`PerCpu`], [`Counters`], [`Gauges`] – one value per CPU; the storage of the counters and
//!   gauges of `types`.
//!
//! Neighbours: uses `types`, `arch` and `plant`; used by every crate above.
//!
//! Not guaranteed: fairness. A CPU that waits for a contended lock may starve.
//!
//! # Example
//!
//! ```
//! use pagewright_sync::rank::{SpaceRank, TableRank};
//! use pagewright_sync::{Backend, HeldRanks, RankSet, SpinLock};
//! use pagewright_types::CpuId;
//!
//! /// The locks of a machine with four CPUs.
//! struct Locks;
//!
//! static HELD: [HeldRanks; 4] = [const { HeldRanks::new() }; 4];
//! # fn cpu_number() -> u16 { 0 }
//!
//! impl Backend for Locks {
//!     type Line = ();
//!
//!     fn pause() {
//!         core::hint::spin_loop();
//!     }
//!     fn cpu() -> CpuId {
//!         CpuId::new(cpu_number())
//!     }
//!     fn held() -> RankSet {
//!         HELD[Self::cpu().index()].get()
//!     }
//!     fn set_held(held: RankSet) {
//!         HELD[Self::cpu().index()].set(held);
//!     }
//! }
//!
//! let space = SpinLock::<_, SpaceRank, Locks>::new("VMAs");
//! let table = SpinLock::<_, TableRank, Locks>::new([0; 512]);
//! let vmas = space.lock();
//! table.lock()[7] = 1; // In order: `Table` is inside `Space`.
//! assert_eq!(*vmas, "VMAs");
//! ```
#![no_std]

extern crate alloc;

mod arc;
pub mod atomic;
mod backend;
pub mod bomb;
mod boxed;
mod counters;
mod cpumask;
mod frame_set;
mod frame_words;
mod full_barrier;
mod guard;
mod held;
#[cfg(feature = "std")]
pub mod host;
mod line;
mod linear_map;
mod mailbox;
mod on_this_cpu;
mod percpu;
pub mod rank;
mod rwlock;
mod spin;
mod word_lock;

pub use arc::{Arc, ReservedArc};
pub use backend::{Backend, Platform};
pub use boxed::{AllocError, try_boxed, try_boxed_each};
pub use counters::{Counters, Gauges, PerCpuSums};
pub use cpumask::AtomicCpuMask;
pub use frame_set::FrameSet;
pub use frame_words::FrameWords;
pub use full_barrier::FullBarrier;
pub use held::{HeldRanks, OneCpuLocks};
pub use line::{LineRef, LineState, LineUse};
pub use linear_map::LinearMap;
pub use mailbox::Mailbox;
pub use on_this_cpu::OnThisCpu;
pub use percpu::PerCpu;
pub use rank::{Rank, RankSet};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use spin::{SpinGuard, SpinLock};
pub use word_lock::{WordGuard, WordLock};
