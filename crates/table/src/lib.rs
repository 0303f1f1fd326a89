//! Page tables: the tree of one address space, its entries, and how they are locked and edited.
//!
//! A [`PageTable`] is the tree of one space. Its nodes are frames whose memmap records carry the
//! level, the lock and the number of live entries.
//!
//! # Example
//!
//! Map a page, look it up, unmap it, and flush (without the lines that set up a machine):
//!
//! ```
//! use pagewright_arch::{Leaf, LeafFlags};
//! use pagewright_table::{OwnedLeaf, PageTable, TableReserve};
//! use pagewright_types::{Level, Order, Rights, VirtAddr};
//! # use pagewright_arch::{Isa, X86_64};
//! # use pagewright_sim::{MachineConfig, Sim};
//! # use pagewright_tlb::frames::{Frames, MemoryLayout, NodeSpec};
//! # use pagewright_tlb::{FlushInfo, Gather, Tlb, TlbConfig};
//! # use pagewright_types::{CpuId, FrameRange, PageRange, Pfn};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut config = MachineConfig::default_for(X86_64::KIND)?;
//! # config.nodes[0].bytes = 4 << 20;
//! # let sim = Sim::<X86_64>::new(config)?;
//! # sim.run_on(CpuId::new(0), || {
//! # let ranges = [FrameRange::new(Pfn::new(1), sim.nodes()[0].frames.end())];
//! # let nodes = [NodeSpec { id: sim.nodes()[0].id, ranges: &ranges, cpus: sim.nodes()[0].cpus }];
//! # let frames = Frames::try_new(sim.clone(), &MemoryLayout::new(&nodes)).expect("memory for the memmap");
//! # let tlb = Tlb::try_new(sim.clone(), frames, TlbConfig::default()).expect("memory for the engine");
//! # let free = tlb.frames().available();
//! let table = PageTable::try_new(&tlb).expect("a free frame");
//! let va = VirtAddr::new(0x7000_0000);
//!
//! // Tables are allocated before anything is locked, so that no edit can fail.
//! let mut reserve = TableReserve::new(&tlb);
//! reserve.fill(table.missing_tables(&tlb, va, Level::PTE)).expect("free frames");
//! table.ensure_tables(&tlb, va, Level::PTE, &mut reserve);
//!
//! let page = tlb.frames().new_folio(tlb.alloc(tlb.request(Order::ZERO)).expect("a free frame"));
//! let leaf = Leaf { pfn: page.pfn(), rights: Rights::RW, flags: LeafFlags::USER };
//! let locked = table.lock(&tlb, va, Level::PTE).expect("a table of the last level");
//! locked.install(va, OwnedLeaf::new(leaf, page));
//! assert_eq!(locked.leaf(va), Some(leaf));
//!
//! let debt = locked.take(va).expect("a leaf");
//! assert_eq!(locked.leaf(va), None);
//! debt.settle();
//! # drop(locked);
//! # let all = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 47));
//! # let mut gather = Gather::full_space(&tlb, table.context());
//! # table.free_tables(&tlb, PageRange::page(va), all, &mut gather);
//! # gather.settle();
//! # table.close(&tlb);
//! # assert_eq!(tlb.frames().available(), free);
//! # });
//! # Ok(())
//! # }
//! ```
//!
//! # The cursor protocol
//!
//! ```text
//!            root (PGD) ── PUD ── PMD ── PTE ── leaf
//!   descend  without a lock: only an exclusive holder of the space unhooks a table (INV-TABLE-STABLE)
//!   lock     the table that holds the entry, then read it again: a leaf above may have been split
//!   edit     under that lock, and only under it (INV-TABLE-LOCKED)
//! ```
//!
//! 1. The caller holds the space: shared to add and edit entries, exclusively to unhook tables.
//! 2. An edit locks the one table page that holds the entry (rank `Table` at PTE level,
//!    `TableUpper` above). Two tables are locked at once only parent before child; in fork, the
//!    parent space's before its child's; in mremap, under an exclusive hold, both places'.
//! 3. An edit that clears or weakens an entry returns a [`pagewright_tlb::Debt`]; unhooking a table
//!    does, too.
//! 4. Tables come from a [`TableReserve`] that was filled before anything is locked.
//!
//! An entry has three forms: a description ([`pagewright_arch::Entry`]), an owner
//! ([`OwnedLeaf`], which holds a reference on its folio), and a borrow (what [`LockedTable`] reads
//! under the lock). Only an owner can release the reference. [`FoundEntry`] and [`PeekedEntry`] are
//! reads without a lock.
//!
//! Neighbours: uses `tlb` (and `frame` through it), `arch`, `sync`, `types`; used by `mm`.
//!
//! Unsafe code takes back what an entry owned: the reference of a leaf, the frame of a table
//! (INV-TABLE-OWNS). An entry is a word, so the compiler cannot tell that it held one.
//!
//! Not guaranteed: that an entry that was read without its table's lock is unchanged.
#![no_std]
#![deny(unsafe_code)]

mod free_tables;
mod locked_table;
mod owned_leaf;
mod page_table;
mod peek;
mod reserve;
mod split;
mod walk;

pub use locked_table::LockedTable;
pub use owned_leaf::OwnedLeaf;
pub use page_table::{PageTable, TableAllocError};
pub use peek::PeekedEntry;
pub use reserve::TableReserve;
pub use walk::{FoundEntry, TableSpans};
