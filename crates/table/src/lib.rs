//! Page tables: the tree of one address space, its entries, and how they are locked and edited.
//!
//! A [`PageTable`] is the tree of one space. Its nodes are frames whose memmap records carry the
//! level, the lock, the number of live entries and what these count as. [`MmapLock`] holds the tree
//! together with the mappings that decide about it.
//!
//! # Example
//!
//! Map a page, look it up, unmap it, and flush (without the lines that set up a machine):
//!
//! ```
//! use pagewright_arch::{Leaf, LeafFlags};
//! use pagewright_table::{Mlocked, MmapLock, OwnedLeaf, TableReserve};
//! use pagewright_types::{Level, Order, PageRange, Rights, VirtAddr};
//! # use pagewright_arch::{Isa, X86_64};
//! # use pagewright_sim::{MachineConfig, Sim};
//! # use pagewright_tlb::frames::{FrameAllocator, MemoryLayout, NodeSpec};
//! # use pagewright_tlb::{FlushInfo, Gather, Tlb, TlbConfig};
//! # use pagewright_types::{CpuId, FrameRange, Pfn};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut config = MachineConfig::default_for(X86_64::KIND)?;
//! # config.nodes[0].bytes = 4 << 20;
//! # let sim = Sim::<X86_64>::new(config)?;
//! # sim.run_on(CpuId::new(0), || {
//! # let ranges = [FrameRange::new(Pfn::new(1), sim.nodes()[0].frames.end())];
//! # let nodes = [NodeSpec { id: sim.nodes()[0].id, ranges: &ranges, cpus: sim.nodes()[0].cpus }];
//! # let frames = FrameAllocator::try_new(sim.clone(), &MemoryLayout::new(&nodes)).expect("memory for the memmap");
//! # let tlb = Tlb::try_new(sim.clone(), frames, TlbConfig::default()).expect("memory for the engine");
//! # let free = tlb.frames().available();
//! // Tables are allocated before anything is locked, so that no edit can fail.
//! let mut reserve = TableReserve::new(&tlb);
//! reserve.fill(1).expect("a free frame for the root");
//! let space = MmapLock::try_new(&mut reserve, |_id| ()).expect("kernel memory");
//! let va = VirtAddr::new(0x7000_0000);
//! {
//!     let held = space.read();
//!     let tables = held.tables(&tlb).owned(PageRange::page(va));
//!     reserve.fill(tables.missing(va, Level::PTE)).expect("free frames");
//!     tables.ensure(va, Level::PTE, &mut reserve);
//!
//!     let page = tlb.frames().new_folio(tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame"));
//!     let leaf = Leaf { pfn: page.pfn(), rights: Rights::RW, flags: LeafFlags::USER };
//!     let locked = tables.lock(va).expect("a table of the last level");
//!     locked.run(Mlocked(false)).map(va, OwnedLeaf::new(leaf, page));
//!     assert_eq!(locked.leaf(va).map(|leaf| leaf.rights()), Some(Rights::RW));
//!     assert_eq!(space.table().rss().pages(), 1);
//!
//!     let debt = locked.run(Mlocked(false)).unmap(va).expect("a leaf");
//!     assert_eq!(locked.leaf(va), None);
//!     debt.settle();
//! }
//! # let all = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 47));
//! # let held = space.write();
//! # let mut gather = Gather::full_space(&tlb, space.table().context());
//! # held.free_tables(held.tables(&tlb).owned(all), PageRange::page(va), all, &mut gather);
//! # gather.settle();
//! # held.close(&tlb);
//! # assert_eq!(tlb.frames().available(), free);
//! # });
//! # Ok(())
//! # }
//! ```
//!
//! # Types
//!
//! | of a space | is for |
//! | --- | --- |
//! | [`MmapLock`] | the tree of a space, and the mappings that decide about it, under one lock |
//! | [`MmapRead`] | the space held to look up, add and edit entries |
//! | [`MmapWrite`] | the space held alone: to unhook and move tables, to share them, to end the space |
//! | [`PageTable`] | what can be known, and taken, without a hold |
//! | [`Rss`] | the resident set of the space |
//! | [`TableReserve`] | frames for tables, allocated before anything is locked |
//!
//! | of its tables | is for |
//! | --- | --- |
//! | [`Tables`] | descents, while the space is held |
//! | [`FoundEntry`] | the entry at which a descent ended; locks its table if the entry is still the same |
//! | [`OwnTables`] | a range of which no other space shares a table: the way to edits for this space |
//! | [`LockedTable`] | a table under its lock, to read its entries and to begin edits |
//! | [`EditOwn`], [`EditForAll`], [`ReadOnly`] | the right by which it is locked, its type parameter |
//!
//! | of an entry | is for |
//! | --- | --- |
//! | [`EntryRun`] | edits of entries of a locked table, accounted for together |
//! | [`Mlocked`] | whether their mapping is locked memory, which a run counts |
//! | [`EntryView`] | what an entry says, as the path to it allows |
//! | [`LeafView`] | the same of a leaf: its frame, rights and flags |
//! | [`OwnedLeaf`] | a leaf on its way into or out of an entry, with the reference that it holds |
//! | [`EntryHooks`] | what an edit asks of the memory manager, which knows what soft entries hold |
//! | [`CopyStop`] | why a copy of entries stopped |
//!
//! # Protocol
//!
//! 1. The caller holds the space by its [`MmapLock`]: for reading to add and edit entries, for
//!    writing to unhook tables. [`Tables`] is the proof of the hold.
//! 2. [`Tables::find`] says whether the path to a table is the space's own. Edits for one space
//!    need an own table.
//! 3. An edit locks the one table that holds the entry (rank `Table` at PTE level, `TableUpper`
//!    above). Two tables are locked at once only parent before child; in fork, the parent space's
//!    before its child's; in mremap, under an exclusive hold, both places'.
//! 4. An [`EntryRun`] edits, and accounts for what it edits ([`entry`]). An edit that clears or
//!    weakens an entry returns a [`pagewright_tlb::Debt`]; unhooking a table does, too.
//! 5. Tables come from a [`TableReserve`] that was filled before anything is locked.
//!
//! An entry has three forms: a description ([`pagewright_arch::Entry`]), an owner
//! ([`OwnedLeaf`], which holds a reference on its folio), and a view ([`EntryView`]: what the entry
//! and the path to it allow). Only an owner can release the reference.
//!
//! Neighbours: uses `tlb` (and `frame` through it), `arch`, `sync`, `types`; used by `mm`.
//!
//! Unsafe code takes back what an entry owned: the reference of a leaf, the frame of a table
//! (INV-TABLE-OWNS). An entry is a word, so the compiler cannot tell that it held one.
//!
//! Not guaranteed: that an entry that was read without its table's lock is unchanged.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

pub mod entry;
mod free_tables;
mod huge;
mod leaf_view;
mod locked_table;
mod mmap_lock;
mod move_table;
mod occupied;
mod own_tables;
mod owned_leaf;
mod page_table;
mod peek;
mod reserve;
mod rss;
pub mod share;
mod split;
mod tables;

pub use entry::{CopyStop, EntryHooks, EntryRun, Mlocked, restore_migrated, restore_migrated_by_page};
pub use leaf_view::{EntryView, LeafView};
pub use locked_table::{EditOwn, LockedTable};
pub use mmap_lock::{MmapLock, MmapRead, MmapWrite};
pub use own_tables::OwnTables;
pub use owned_leaf::OwnedLeaf;
pub use page_table::PageTable;
pub use reserve::TableReserve;
pub use rss::Rss;
pub use share::{EditForAll, ReadOnly};
pub use tables::{FoundEntry, Tables};

use pagewright_arch::{SoftEntry, SoftKind};
use pagewright_types::Level;

/// An entry above the last level that is being replaced.
///
/// Descents wait, and lockless walks give up.
pub(crate) const IN_TRANSITION: SoftEntry = SoftEntry { kind: SoftKind::InTransition, exclusive: false, payload: 0 };

/// The level of the tables to which entries of `level` point.
#[inline]
fn below(level: Level) -> Level {
    Level::new(level.raw() - 1)
}
