//! Page-table trees: nodes, entries and the cursor protocol.
//!
//! A [`PageTable`] is the tree of one address space. Its nodes are frames whose memmap records
//! carry level, lock and the number of live entries. Entries come in three forms: plain
//! ([`pagewright_arch::Entry`], a description), owning ([`OwnedLeaf`], which holds a reference on
//! its folio) and borrowed (what [`LockedTable`] lets one read while the lock is held). Only the
//! owning form can give a reference back.
//!
//! ```text
//!            root (PGD) ── PUD ── PMD ── PTE ── leaf
//!   descend  load, no lock needed: a table is unhooked only by who holds the space exclusively (INV-TABLE-STABLE)
//!   lock     the table that holds the entry; a leaf above may have been split meanwhile, so look again
//!   edit     under that lock, and only under it (INV-TABLE-LOCKED)
//! ```
//!
//! Lock protocol:
//! 1. The caller holds the space: shared to add and edit entries, exclusively to unhook tables.
//! 2. An edit locks the one table page that holds the entry (rank `Table` at PTE level,
//!    `TableUpper` above). Two tables are locked at once only parent before child, a parent space's
//!    before its child's in fork, or both places' in mremap, which holds the space alone.
//! 3. Every edit that weakens an entry returns a [`pagewright_tlb::Debt`]; freeing a table does,
//!    too.
//! 4. Tables come from a [`TableReserve`], filled before anything is locked, so that no edit can
//!    fail.
//!
//! Neighbours: uses `tlb` (and `frame` through it), `arch`, `sync`, `types`; used by `mm`.
//!
//! Not guaranteed: that an entry read without its table's lock is still there.
#![no_std]
#![forbid(unsafe_code)]

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
