//! The tree of one address space.

use crate::reserve::TableReserve;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Entry, Isa, PteSlot, TableEntry};
use pagewright_sync::{Arc, Platform, rank};
use pagewright_tlb::frames::NoFrames;
use pagewright_tlb::{FlushInfo, Tlb, TlbContext};
use pagewright_types::{Level, PAGE_SIZE, Pfn, VirtAddr};
use thiserror::Error;

/// Why a page table could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TableAllocError {
    /// There is no frame for the root.
    #[error(transparent)]
    Frames(NoFrames),
    /// There is no kernel memory for the context.
    #[error(transparent)]
    Kernel(pagewright_sync::AllocError),
}

/// The page tables of one address space.
///
/// End it with [`PageTable::close`]; dropping it before leaks its root.
pub struct PageTable {
    context: Arc<TlbContext>,
    /// TableEntry pages, the root included (Linux's `pgtables_bytes` leaves the root out on most
    /// machines; so does [`PageTable::bytes`]).
    tables: AtomicU64,
}

impl PageTable {
    /// Creates an empty tree with its context.
    ///
    /// # Errors
    /// [`TableAllocError`]; nothing stays allocated.
    pub fn try_new<P: Platform>(tlb: &Tlb<P>) -> Result<Self, TableAllocError> {
        let mut reserve = TableReserve::new(tlb);
        reserve.fill(1).map_err(TableAllocError::Frames)?;
        let root = reserve.take_frame();
        let context = tlb.open_context(root.pfn()).map_err(TableAllocError::Kernel);
        let context = match context {
            Ok(context) => context,
            Err(error) => {
                reserve.put_back(root);
                return Err(error);
            }
        };
        tlb.frames().new_table(root, Level::PGD, context.id());
        Ok(Self { context, tables: AtomicU64::new(1) })
    }

    /// The space as the TLBs see it.
    pub fn context(&self) -> &Arc<TlbContext> {
        &self.context
    }

    /// The frame of the root.
    pub fn root(&self) -> Pfn {
        self.context.root()
    }

    /// Bytes of tables below the root (`VmPTE`).
    pub fn bytes(&self) -> u64 {
        (self.tables.load(Ordering::Relaxed) - 1) * PAGE_SIZE
    }

    pub(crate) fn add_tables(&self, n: u64) {
        self.tables.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub_tables(&self, n: u64) {
        self.tables.fetch_sub(n, Ordering::Relaxed);
    }

    /// The number of tables that [`PageTable::ensure_tables`] would take from its reserve.
    ///
    /// Other CPUs may add tables concurrently, but remove none while the caller holds the space.
    pub fn missing_tables<P: Platform>(&self, tlb: &Tlb<P>, va: VirtAddr, level: Level) -> usize {
        let mut table = self.root();
        let mut at = Level::PGD;
        while at > level {
            let slot = PteSlot { table, index: at.index_of(va) as u16 };
            match P::Isa::decode(at, tlb.fx().load(slot)) {
                Entry::Table(next) => table = next.pfn,
                Entry::Leaf(_) | Entry::Soft(_) => return 0,
                Entry::Empty => return usize::from(at.raw() - level.raw()),
            }
            at = Level::new(at.raw() - 1);
        }
        0
    }

    /// Hooks the missing tables for `va` down to one of `level`, out of `reserve`.
    ///
    /// Stops at a leaf above `level`, and at a soft entry, which a table would overwrite.
    ///
    /// # Panics
    /// When the reserve holds fewer tables than [`PageTable::missing_tables`] returned.
    pub fn ensure_tables<P: Platform>(
        &self,
        tlb: &Tlb<P>,
        va: VirtAddr,
        level: Level,
        reserve: &mut TableReserve<'_, P>,
    ) {
        let mut table = self.root();
        let mut at = Level::PGD;
        while at > level {
            let slot = PteSlot { table, index: at.index_of(va) as u16 };
            table = match P::Isa::decode(at, tlb.fx().load(slot)) {
                Entry::Table(next) => next.pfn,
                Entry::Leaf(_) | Entry::Soft(_) => return,
                Entry::Empty => match self.hook(tlb, slot, at, reserve) {
                    Some(next) => next,
                    None => return,
                },
            };
            at = Level::new(at.raw() - 1);
        }
    }

    /// Hooks a new table into an empty slot, unless somebody did it first.
    ///
    /// `None`: a leaf or a soft entry came to stand there.
    fn hook<P: Platform>(
        &self,
        tlb: &Tlb<P>,
        slot: PteSlot,
        at: Level,
        reserve: &mut TableReserve<'_, P>,
    ) -> Option<Pfn> {
        let parent = tlb.frames().table(slot.table);
        let _guard = parent.lock::<rank::TableUpperRank>();
        match P::Isa::decode(at, tlb.fx().load(slot)) {
            Entry::Table(next) => Some(next.pfn),
            Entry::Leaf(_) | Entry::Soft(_) => None,
            Entry::Empty => {
                let child = reserve.take_table(Level::new(at.raw() - 1), self.context.id());
                // INV-TABLE-ZERO: the child's zeroes are visible to walkers before the pointer to
                // it is.
                tlb.fx().publish();
                tlb.fx().store(slot, P::Isa::table(TableEntry { pfn: child, write_protected: false }));
                tlb.fx().publish();
                parent.add_live(1);
                self.add_tables(1);
                Some(child)
            }
        }
    }

    /// Flushes the space and frees the root; call it once.
    ///
    /// Every range must have been unmapped and its tables freed.
    ///
    /// # Panics
    /// In debug builds when tables are left, or a CPU still runs the space.
    #[allow(unsafe_code)]
    pub fn close<P: Platform>(&self, tlb: &Tlb<P>) {
        debug_assert_eq!(self.bytes(), 0, "INV-TABLE-CLOSE: tables left in a space that ends");
        // Lazy CPUs leave the root when they are told that tables went.
        tlb.flush(&self.context, FlushInfo { range: None, level: Level::PGD, freed_tables: true });
        debug_assert!(self.context.cpus().is_empty(), "INV-TABLE-CLOSE: {:?} still run the space", self.context.cpus());
        // SAFETY: INV-TABLE-CLOSE – no CPU runs the space, and it is closed once.
        tlb.free(unsafe { tlb.frames().retire(self.root()) });
    }
}
