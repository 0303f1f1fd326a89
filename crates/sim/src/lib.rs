//! A simulated SMP machine for memory managers: deterministic, with TLBs that can be stale.
//!
//! - [`Sim`] – the handle. It is [`pagewright_arch::Effects`] and [`pagewright_sync::Platform`] for
//!   a memory manager, and lets a replayer make accesses on any CPU ([`Sim::access`]).
//! - [`MachineConfig`], [`Profile`] – what the machine is made of, and what is known about the real
//!   one.
//! - [`MachineEvent`], [`Cost`], [`Picos`] – what it counts, what takes time, and how long.
//! - [`Sim::bind_judge`] – who is told of everything cached, accessed and declared.
//! - [`explore`] – every CPU a coroutine, schedules by seed, replay tokens.
//! - [`sched`] – which thread runs where next, by clock.
//!
//! ```text
//!   replayer ── access ─▶ access ─▶ tlb (L1, L2, walk caches) ─▶ walk ─▶ ram ◀─ effects ◀─ memory manager
//!                                     ▲                                          │
//!                                     └── invalidate ◀── interrupt ◀─────────────┘
//! ```
//!
//! Neighbours: uses `types`, `arch` and `sync`, and knows nothing of the memory manager that runs
//! on it. Its walker reads raw words by the manuals' rules and shares no code with `arch`'s codecs.
//!
//! Modelled time is modelled: it adds up published costs and is good for comparing two runs, never
//! for a claim about a clock on a wall. What is not modelled is listed in `docs/machine.md`.
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
