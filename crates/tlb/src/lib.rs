//! TLB flushes as debts: how a flush is deferred, what waits for it, and which call settles it.
//!
//! An edit that clears or weakens a page-table entry owes a flush. Until every CPU that may have
//! cached the old entry has flushed it, the frame behind it must not be reused. The edit returns a
//! [`Debt`]: the flush that it owes, and the frames that it detached.
//!
//! # Example
//!
//! Two edits, one flush (without the lines that set up a machine and map the two pages):
//!
//! ```
//! use pagewright_arch::{Aarch64, Effects, Entry, Isa, Leaf, LeafFlags, Pte, PteSlot};
//! use pagewright_tlb::{Debt, Gather, OwedFlush, Tlb, TlbConfig};
//! # use pagewright_sim::{MachineConfig, Sim};
//! # use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
//! # use pagewright_types::{Counter, CpuId, FrameRange, Level, Order, Pfn, Rights, SpaceId, VirtAddr};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut config = MachineConfig::default_for(Aarch64::KIND)?;
//! # config.nodes[0].bytes = 4 << 20;
//! # let sim = Sim::<Aarch64>::new(config)?;
//! # sim.run_on(CpuId::new(0), || {
//! # let ranges = [FrameRange::new(Pfn::new(1), sim.nodes()[0].frames.end())];
//! # let nodes = [NodeSpec { id: sim.nodes()[0].id, ranges: &ranges, cpus: sim.nodes()[0].cpus }];
//! # let frames = FrameAllocator::try_new(sim.clone(), &MemoryLayout::new(&nodes)).expect("memory for the memmap");
//! # let tlb = Tlb::try_new(sim.clone(), frames, TlbConfig::default()).expect("memory for the engine");
//! # let new_table = |level| {
//! #     let block = tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame");
//! #     tlb.frames().new_table(block, level, SpaceId::new(1))
//! # };
//! # let (root, table) = (new_table(Level::PGD), new_table(Level::PTE));
//! # let context = tlb.open_context(root).expect("kernel memory");
//! # let slot = |va| PteSlot { table, index: Level::PTE.index_of(va) as u16 };
//! # let pages = [VirtAddr::new(0x1000), VirtAddr::new(0x2000)];
//! # for va in pages {
//! #     let block = tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame");
//! #     let pfn = tlb.frames().new_folio(block).into_raw();
//! #     let leaf = Leaf { pfn, rights: Rights::RW, flags: LeafFlags::USER };
//! #     tlb.fx().store(slot(va), Aarch64::leaf(Level::PTE, leaf));
//! # }
//! # let free_frames = || tlb.frames().available();
//! # let flushes = || tlb.frames().counters().sum(Counter::NrTlbRemoteFlush);
//! // Clears the entry for `va`. The debt owns the reference that the entry held on its page.
//! let unmap = |va: VirtAddr| {
//!     let old = tlb.fx().swap(slot(va), Pte::EMPTY);
//!     let Entry::Leaf(leaf) = Aarch64::decode(Level::PTE, old) else { panic!("{va} is not mapped") };
//!     // SAFETY: INV-FRAME-REFS – the entry held a reference, and is empty now.
//!     let page = unsafe { tlb.frames().folio_ref_from_raw(leaf.pfn) };
//!     Debt::new(&tlb, &context, va, OwedFlush::Leaf(Level::PTE), page)
//! };
//!
//! let (free, flushed) = (free_frames(), flushes());
//! let mut gather = Gather::new(&tlb, &context);
//! for va in pages {
//!     gather.absorb(unmap(va));
//! }
//! assert_eq!(free_frames(), free, "the gather owns both pages until it is settled");
//! gather.settle();
//! assert_eq!(flushes(), flushed + 1);
//! assert_eq!(free_frames(), free + 2);
//! # });
//! # Ok(())
//! # }
//! ```
//!
//! # Every deferral
//!
//! ```text
//!  edit ─▶ Debt ─┬─ settle ───────────────────▶ one flush ─▶ free    one entry
//!                ├─ absorb ─▶ Gather ── settle ─▶ one flush ─▶ free    one operation on one space
//!                ├─ absorb ─▶ Batch ─── settle ─▶ one wait ──▶ free    many pages in many spaces
//!                ├─ absorb ─▶ LazyBatch ─ settle ─▶ no wait ───▶ park  the same, of translations that may linger
//!                └─ dropped, alone or inside a Gather or a Batch (a bug: debug builds panic)
//!                      ├─▶ the space: a deferred flush, which the next operation there makes
//!                      └─▶ Ledger::open ─▶ frames parked under a DebtKey
//!                                               └─▶ Tlb::alloc settles the key, then hands them out
//! ```
//!
//! A plain gather is settled before the locks that cover its edits are released, so no other
//! operation meets one of them. Four deferrals outlive those locks:
//!
//! | deferred by | recorded in | settled by |
//! | --- | --- | --- |
//! | [`Gather::concurrent`], beside faults and other zaps | a count in the [`TlbContext`], and a mark in the record of each table that it edits | its `settle` |
//! | [`Batch`] | the entry, which is *pending*; the key of its table; the latest epoch, on arm64 with its issuer, in the [`TlbContext`] | its `settle` |
//! | [`LazyBatch`] | the may-linger key of the table; the key of the frames that the pages left, and of the copies of those that moved | an operation that meets the table; the allocation of the frame; a store to the copy |
//! | a drop | the latest epoch without a place in the [`TlbContext`], for the rights; the [`DebtKey`](pagewright_types::DebtKey) of each frame | frames by [`Tlb::alloc`], on the CPUs whose clocks are behind the key |
//!
//! # What each operation flushes
//!
//! An operation that depends on an entry which another has cleared or weakened flushes first
//! (INV-TLB-CLEARED, INV-TLB-DEFERRED). The table is [`required_cover`], which says what the
//! [operations](DependentOperation) and [states](EntryDeferral) are; *the table* is every page
//! below it. Debug builds assert it (INV-TLB-COVER).
//!
//! | operation | Settled | Pending | Lingering | Covered | Gathered | Weakened | Unplaced | Merged |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | Install | nothing | space | space | – | entry | – | space | everything |
//! | StoreMany | nothing | space | space | space | – | space | space | everything |
//! | EditProtNone | nothing | – | – | – | entry | entry | entry | entry |
//! | Gather | nothing | space | space | space | – | space | space | everything |
//! | ConcurrentGather | nothing | space | space | space | space | space | space | everything |
//! | HandOver | nothing | table | table | table | – | table | space | everything |
//! | SettleEntry | nothing | nothing | nothing | nothing | nothing | nothing | nothing | nothing |
//! | AbsorbPending | nothing | space | space | space | space | space | space | space |
//! | Widen | nothing | – | – | space | nothing | nothing | nothing | – |
//!
//! A store of a soft entry, and a zap of one, flush nothing: the mark of the entry stays.
//!
//! The [`Ledger`] keeps the time:
//!
//! - **Epoch**: one number for the machine. Each new key advances it. So does a flush of something
//!   deferred, where a flush that is deferred later could be taken for settled.
//! - **Clock** of a CPU: the epoch before its last act that settled all it owed. On x86 that is a
//!   flush of all tags, not of one space; on arm64 a DSB, for the invalidations that this CPU
//!   issued.
//! - **Lowest clock** of the online CPUs: every debt up to this epoch is settled, so one comparison
//!   answers for an old key. It is computed again when a key is settled.
//! - **Floor**: every key up to this epoch is settled. The frame allocator gets it, and frees the
//!   parked frames below it.
//!
//! A key is owed by the CPUs that could hold the space when the debt was dropped; on arm64 by the
//! CPU that issued the invalidation, because no other CPU's DSB completes it. A dropped batch with
//! several issuers has no such CPU and flushes at once.
//!
//! # Around it
//!
//! [`Tlb`] is the engine of one machine: flushes by IPI or broadcast, tags, lazy mode, CPU hotplug,
//! lockless walks, and the settling allocator, the only one that crates above use. [`TlbContext`]
//! is one space as the TLBs see it. A [`SecondaryMmu`] is told of every edit that is flushed or
//! deferred, before any CPU is waited for.
//!
//! Spaces that share page tables are a [`Family`]: an edit of a shared table owes a [`FamilyDebt`].
//!
//! **INV-TLB-ORDER** An entry is stored, the store is published, the TLBs are invalidated, the
//! invalidation is completed or acknowledged, and only then is anything freed that the entry led
//! to.
//!
//! **INV-TLB-SWITCH** A CPU joins a space's mask before it reads the generation; a sender
//! increments the generation before it reads the mask and the lazy marks. So at least one of the
//! two sees the other.
//!
//! Neighbours: uses `frame`, `sync`, `arch`, `types`; used by `table` and `mm`.
//!
//! Not guaranteed: flushes of DMA mappings. No IOMMU is driven.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod batch_epochs;
mod clear_measurements;
mod context;
mod debt;
mod defer;
mod detached;
mod engine;
mod family;
mod gather;
mod gather_run;
mod hotplug;
mod ledger;
mod region;
mod secondary;
mod settling_alloc;
mod switch;
mod tags;
mod walkers;

pub use clear_measurements::ClearMeasurements;
pub use context::TlbContext;
pub use debt::{Debt, OwedFlush};
pub use defer::cover::{DependentOperation, EntryDeferral, FlushCover, required_cover};
pub use defer::{Batch, LazyBatch};
pub use detached::{DetachedPiece, IntoDetachedPieces};
pub use engine::{BatchPolicy, FlushInfo, Tlb, TlbConfig, TlbSetupError};
pub use family::{Family, FamilyDebt, FamilyToken};
pub use gather::Gather;
pub use gather_run::GatherRun;
pub use ledger::Ledger;
pub use region::{Region, RegionSet};
pub use secondary::SecondaryMmu;

/// The frame allocator's types, for crates above, which allocate by [`Tlb::alloc`].
pub mod frames {
    pub use pagewright_frame::*;
}
