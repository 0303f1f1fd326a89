//! A simulated SMP machine for memory managers: deterministic, with TLBs that can be stale.
//!
//! - [`Sim`] – the handle. It implements [`pagewright_arch::Effects`] and
//!   [`pagewright_sync::Platform`] for a memory manager, and makes the accesses of programs on any
//!   CPU ([`Sim::access`]).
//! - [`MachineConfig`], [`Profile`] – the parts of the machine, and the published figures of the
//!   real one.
//! - [`MachineEvent`], [`Cost`], [`Picos`] – what it counts, what takes time, and how long.
//! - [`Sim::bind_judge`] – binds a judge that sees everything cached, accessed and declared.
//! - [`explore`] – every CPU is a coroutine; schedules by seed, and replay tokens.
//! - [`sched`] – chooses, by clock, which thread runs on which CPU next.
//!
//! ```text
//!   replayer ── access ─▶ access ─▶ tlb (L1, L2, walk caches) ─▶ walk ─▶ ram ◀─ effects ◀─ memory manager
//!                                     ▲                                          │
//!                                     └── invalidate ◀── interrupt ◀─────────────┘
//! ```
//!
//! Neighbours: it uses `types`, `arch` and `sync`, and does not depend on the memory manager that
//! runs on it. Its walker reads raw words by the rules of the manuals and shares no code with
//! `arch`'s codecs.
//!
//! Not guaranteed: anything about a real clock. Modelled time adds up published costs, to compare
//! two runs. `docs/machine.md` lists what is not modelled.
#![forbid(unsafe_code)]

mod access;
mod backend;
pub mod config;
mod core;
mod cost;
mod effects;
mod event;
pub mod explore;
mod hotplug;
mod interrupt;
mod invalidate;
mod judge;
mod machine;
mod profile;
mod ram;
mod reach_counts;
pub mod sched;
mod time;
mod tlb;
mod walk;

pub use access::{PageFault, Translation};
pub use backend::SimLocks;
pub use config::{ConfigError, MachineConfig, NodeConfig};
pub use cost::Cost;
pub use event::MachineEvent;
pub use machine::{AllocationFailure, IpiHandler, MachineNode, Sim};
pub use profile::{Profile, ProfileError, ProfileFigure};
pub use time::Picos;
