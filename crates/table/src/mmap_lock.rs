//! The lock of an address space, and the proof that it is held (`mmap_lock`).
//!
//! A table stays hooked while its space is held, and only an exclusive holder unhooks one
//! (INV-TABLE-STABLE). The guards of [`MmapLock`] are that hold as a value: [`Tables`] borrows from
//! a guard, and everything that a descent finds borrows from it in turn. So a table cannot be used
//! after its space was released: such code does not compile.
//!
//! ```compile_fail,E0597
//! # use pagewright_table::MmapLock;
//! # use pagewright_types::{Level, VirtAddr};
//! # fn late<P: pagewright_sync::Platform>(space: &MmapLock<P, ()>, tlb: &pagewright_tlb::Tlb<P>) {
//! let table = {
//!     let held = space.read();
//!     held.tables(tlb).find(VirtAddr::ZERO, Level::PTE) // `held` does not live long enough
//! };
//! # }
//! ```
//!
//! Nor can a space that is held for reading lose a table:
//!
//! ```compile_fail,E0599
//! # use pagewright_table::MmapLock;
//! # use pagewright_types::{Level, VirtAddr};
//! # fn shared<P: pagewright_sync::Platform>(
//! #     space: &MmapLock<P, ()>,
//! #     own: pagewright_table::OwnTables<'_, P>,
//! #     gather: &mut pagewright_tlb::Gather<'_, P>,
//! # ) {
//! let held = space.read();
//! held.move_table(own, VirtAddr::ZERO, VirtAddr::new(1 << 30), Level::PUD, gather); // no method found
//! # }
//! ```
//!
//! **INV-TABLE-STABLE** A table is unhooked only by an exclusive holder of its space, and
//! everything that a descent finds borrows from the hold. A space that has ended has no tables, and
//! descents find none. Examples of `MmapLock` that must not compile show it.

use crate::page_table::PageTable;
use crate::reserve::TableReserve;
use crate::share::Membership;
use crate::tables::Tables;
use core::ops::{Deref, DerefMut};
use pagewright_sync::rank::SpaceRank;
use pagewright_sync::{AllocError, Arc, Platform, ReadGuard, RwLock, WriteGuard};
use pagewright_tlb::{Family, Tlb};
use pagewright_types::SpaceId;

/// The page tables of one space and `M`, what decides about them: its mappings.
///
/// Both are under one lock, of rank `SpaceRank`. End it with [`MmapWrite::close`]; dropping it
/// before leaks the root table.
pub struct MmapLock<P: Platform, M> {
    tree: PageTable,
    held: RwLock<Held<P, M>, SpaceRank, P::Locks>,
}

/// What only a holder of the space may see.
struct Held<P: Platform, M> {
    map: M,
    /// The spaces with which it may share tables; none before its first fork.
    member: Option<Membership<P>>,
}

impl<P: Platform, M> MmapLock<P, M> {
    /// Creates a space without tables below its root, with the mappings that `map` makes.
    ///
    /// The root comes out of `reserve`.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted; the reserve keeps what it has.
    ///
    /// # Panics
    /// When the reserve is empty.
    pub fn try_new(reserve: &mut TableReserve<'_, P>, map: impl FnOnce(SpaceId) -> M) -> Result<Self, AllocError> {
        let tree = PageTable::try_new(reserve)?;
        let held = RwLock::new(Held { map: map(tree.context().id()), member: None });
        Ok(Self { tree, held })
    }

    /// What can be known of the tree without holding the space.
    #[inline]
    pub fn table(&self) -> &PageTable {
        &self.tree
    }

    /// Waits until no writer holds the space, and holds it for reading (`mmap_read_lock`).
    ///
    /// # Panics
    /// In debug builds when the caller breaks the lock order.
    #[inline]
    pub fn read(&self) -> MmapRead<'_, P, M> {
        MmapRead { tree: &self.tree, guard: self.held.read() }
    }

    /// Holds the space for reading, unless a writer holds it (`mmap_read_trylock`).
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    pub fn try_read(&self) -> Option<MmapRead<'_, P, M>> {
        Some(MmapRead { tree: &self.tree, guard: self.held.try_read()? })
    }

    /// Waits until the space is free, and holds it for writing (`mmap_write_lock`).
    ///
    /// # Panics
    /// As [`read`](Self::read).
    #[inline]
    pub fn write(&self) -> MmapWrite<'_, P, M> {
        MmapWrite { tree: &self.tree, guard: self.held.write() }
    }
}

/// A space held for reading (`mmap_read_lock`): its entries may change, its tables stay.
#[must_use]
pub struct MmapRead<'a, P: Platform, M> {
    tree: &'a PageTable,
    guard: ReadGuard<'a, Held<P, M>, SpaceRank, P::Locks>,
}

impl<P: Platform, M> MmapRead<'_, P, M> {
    /// The tables of the space while it is held.
    #[inline]
    pub fn tables<'h>(&'h self, tlb: &'h Tlb<P>) -> Tables<'h, P> {
        Tables::new(self.tree, tlb, self.guard.member.as_ref())
    }
}

impl<P: Platform, M> Deref for MmapRead<'_, P, M> {
    type Target = M;

    #[inline]
    fn deref(&self) -> &M {
        &self.guard.map
    }
}

/// A space held for writing (`mmap_write_lock`).
///
/// No other CPU adds, edits or looks up anything, except without locks.
#[must_use]
pub struct MmapWrite<'a, P: Platform, M> {
    tree: &'a PageTable,
    guard: WriteGuard<'a, Held<P, M>, SpaceRank, P::Locks>,
}

impl<P: Platform, M> MmapWrite<'_, P, M> {
    /// The tables of the space while it is held.
    #[inline]
    pub fn tables<'h>(&'h self, tlb: &'h Tlb<P>) -> Tables<'h, P> {
        Tables::new(self.tree, tlb, self.guard.member.as_ref())
    }

    /// The spaces with which this one may share tables.
    pub fn family(&self) -> Option<&Arc<Family<P>>> {
        self.guard.member.as_ref().map(Membership::family)
    }

    /// Makes the space a member of a family, of which it was none.
    ///
    /// # Errors
    /// [`AllocError`], if the kernel heap is exhausted; nothing has changed.
    pub fn join_family(&mut self, family: &Arc<Family<P>>) -> Result<(), AllocError> {
        debug_assert!(self.guard.member.is_none(), "INV-FAMILY-FLUSH: a space joins a second family");
        let member = Membership::try_new(family)?;
        family.join(self.tree.context())?;
        self.guard.member = Some(member);
        Ok(())
    }

    /// Flushes the space, frees the root and releases the hold; call it once.
    ///
    /// Every range was unmapped and its tables freed. Later descents find no tables
    /// (INV-TABLE-STABLE).
    ///
    /// # Panics
    /// In debug builds when tables are left, or a CPU still runs the space.
    pub fn close(self, tlb: &Tlb<P>) {
        if let Some(family) = self.family() {
            family.leave(self.tree.context().id());
        }
        self.tree.close(tlb);
    }
}

impl<P: Platform, M> Deref for MmapWrite<'_, P, M> {
    type Target = M;

    #[inline]
    fn deref(&self) -> &M {
        &self.guard.map
    }
}

impl<P: Platform, M> DerefMut for MmapWrite<'_, P, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut M {
        &mut self.guard.map
    }
}
