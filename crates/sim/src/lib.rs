//! A simulated SMP machine for memory managers: deterministic, with TLBs that can be stale.
//!
//! # Example
//!
//! A page is unmapped without a flush, and the TLB still translates it.
//!
//! ```
//! use pagewright_arch::{Effects, Isa, Leaf, LeafFlags, Pte, PteSlot, TableEntry, X86_64};
//! use pagewright_sim::{MachineConfig, MachineEvent, Sim};
//! use pagewright_types::{Access, CpuId, Level, Pfn, Rights, Tag, VirtAddr};
//!
//! let sim = Sim::<X86_64>::new(MachineConfig::default_for(X86_64::KIND)?)?;
//! let (cpu, va) = (CpuId::new(0), VirtAddr::new(0x40_0000));
//! // Frames 1 to 4 are the page tables, and frame 5 is the page.
//! let slot = |level: Level| PteSlot {
//!     table: Pfn::new(4 - level.raw() as u32),
//!     index: level.index_of(va) as u16,
//! };
//! for level in [Level::PGD, Level::PUD, Level::PMD] {
//!     let pfn = slot(level).table.add(1);
//!     sim.store(slot(level), X86_64::table(TableEntry::own(pfn)));
//! }
//! let leaf = Leaf { pfn: Pfn::new(5), rights: Rights::RW, flags: LeafFlags::USER };
//! sim.store(slot(Level::PTE), X86_64::leaf(Level::PTE, leaf));
//! sim.run_on(cpu, || sim.install_root(Pfn::new(1), Tag::new(1), false));
//!
//! assert_eq!(sim.access(cpu, va, Access::Write, 1).map(|hit| hit.pfn), Ok(Pfn::new(5)));
//! sim.store(slot(Level::PTE), Pte::EMPTY);
//! assert!(sim.access(cpu, va, Access::Write, 1).is_ok(), "the stale translation is in the TLB");
//! assert_eq!(sim.count(cpu, MachineEvent::PageWalks), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//!
//! - [`Sim`] – the handle. It implements [`pagewright_arch::Effects`] and
//!   [`pagewright_sync::Platform`] for a memory manager, and makes the accesses of programs on any
//!   CPU ([`Sim::access`]).
//! - [`MachineConfig`], [`Profile`] – the parts of the machine, and the published figures of the
//!   real one.
//! - [`MachineEvent`], [`Cost`], [`Picos`] – what it counts, what takes time, and how long.
//! - [`NodeAccesses`] – the loads and stores of each node's memory, and their latency.
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
mod lines;
mod machine;
mod node_memory;
mod pointer_stores;
mod profile;
mod ram;
mod reach_counts;
pub mod sched;
mod time;
mod tlb;
mod walk;
mod walked;

pub use access::{PageFault, Translation};
pub use backend::SimLocks;
pub use config::{ConfigError, MachineConfig, NodeConfig, NodeDistance};
pub use cost::{Cost, FlushShare};
pub use event::MachineEvent;
pub use lines::{LineCosts, SimLine};
pub use machine::{AllocationFailure, IpiHandler, MachineNode, Sim};
pub use node_memory::NodeAccesses;
pub use pointer_stores::{PointerStores, TrapFrame};
pub use profile::{BandEnd, Profile, ProfileError, ProfileFigure};
pub use time::Picos;
