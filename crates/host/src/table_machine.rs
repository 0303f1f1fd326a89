//! A machine that stores page tables, and no contents of pages.
//!
//! Key type: [`TableMachine`], of one CPU. The memory manager that runs on it has a record of each
//! frame, with its references and mappings, and real page tables. Clearing a page, or copying one,
//! does nothing. So a machine of 64 GiB takes about 1 GiB of the host's memory, nearly all of it
//! records. On demand, the machine [counts](TableMachine::count_accesses) accesses to entries.
//!
//! ```text
//!   access to an entry of a frame  ─▶  the frame is noted as a table
//!   a frame is cleared             ─▶  noted as a table: fill it with zeroes, forget the note
//!                                      otherwise: it still has the zeroes of the host
//! ```
//!
//! Not guaranteed: a realistic time of what clears or copies pages. An access to an entry costs a
//! look at the note in addition.

use crate::memory::{HostMemory, HostMemoryError};
use pagewright_arch::{Caps, Effects, Isa, Pte, PteSlot, TableWords};
use pagewright_sync::Platform;
use pagewright_sync::host::HostLocks;
use pagewright_types::{CpuId, IsaKind, Order, Pfn};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const CPU: CpuId = CpuId::new(0);

/// A machine of one CPU that stores page tables, and no contents of pages.
///
/// A copy is a handle to the same machine.
#[derive(Clone)]
pub struct TableMachine<I> {
    memory: HostMemory,
    notes: Arc<Notes>,
    isa: PhantomData<fn() -> I>,
}

/// What the machine notes about accesses to entries.
struct Notes {
    /// A bit for each frame that was accessed as a table since it was last cleared.
    tables: Box<[AtomicU64]>,
    is_counting: AtomicBool,
    accesses: AtomicU64,
}

impl<I: Isa> TableMachine<I> {
    /// A machine of this many frames.
    ///
    /// # Errors
    /// [`HostMemoryError`] when the host cannot map the address range of the frames.
    pub fn try_new(frames: u32) -> Result<Self, HostMemoryError> {
        let memory = HostMemory::try_new_sparse(frames)?;
        let tables = (0..frames.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        let notes = Notes { tables, is_counting: AtomicBool::new(false), accesses: AtomicU64::new(0) };
        Ok(Self { memory, notes: Arc::new(notes), isa: PhantomData })
    }

    /// Runs `work`, and returns how often it loaded, stored or exchanged an entry of a page table.
    ///
    /// Meanwhile the machine offers no tables as words, so that it sees each access.
    pub fn count_accesses(&self, work: impl FnOnce()) -> u64 {
        self.notes.accesses.store(0, Ordering::Relaxed);
        self.notes.is_counting.store(true, Ordering::Relaxed);
        work();
        self.notes.is_counting.store(false, Ordering::Relaxed);
        self.notes.accesses.load(Ordering::Relaxed)
    }

    fn is_counting(&self) -> bool {
        self.notes.is_counting.load(Ordering::Relaxed)
    }

    fn note(&self, table: Pfn) -> (&AtomicU64, u64) {
        (&self.notes.tables[table.index() / u64::BITS as usize], 1 << (table.raw() % u64::BITS))
    }

    /// The words of a table, which is noted as one.
    fn table(&self, table: Pfn) -> TableWords<'_> {
        let (notes, bit) = self.note(table);
        if notes.load(Ordering::Relaxed) & bit == 0 {
            notes.fetch_or(bit, Ordering::Relaxed);
        }
        self.memory.words().table(table)
    }

    /// The table of an entry that is accessed.
    fn accessed(&self, slot: PteSlot) -> TableWords<'_> {
        if self.is_counting() {
            self.notes.accesses.fetch_add(1, Ordering::Relaxed);
        }
        self.table(slot.table)
    }
}

impl<I: Isa> Effects for TableMachine<I> {
    type Isa = I;

    fn caps(&self) -> &Caps {
        match I::KIND {
            IsaKind::X86_64 => const { &Caps::baseline(IsaKind::X86_64) },
            IsaKind::Aarch64 => const { &Caps::baseline(IsaKind::Aarch64) },
        }
    }

    pagewright_arch::one_cpu!(CPU);

    #[inline]
    fn table_words(&self, table: Pfn) -> Option<TableWords<'_>> {
        (!self.is_counting()).then(|| self.table(table))
    }

    #[inline]
    fn load(&self, slot: PteSlot) -> Pte {
        self.accessed(slot).load(slot.index as usize)
    }

    #[inline]
    fn store(&self, slot: PteSlot, pte: Pte) {
        self.accessed(slot).store(slot.index as usize, pte);
    }

    #[inline]
    fn swap(&self, slot: PteSlot, pte: Pte) -> Pte {
        self.accessed(slot).swap(slot.index as usize, pte)
    }

    fn compare_exchange(&self, slot: PteSlot, current: Pte, new: Pte) -> Result<(), Pte> {
        self.accessed(slot).compare_exchange(slot.index as usize, current, new)
    }

    pagewright_arch::no_tlb_and_no_interrupts!();

    /// Clears tables; a page has no contents.
    fn zero(&self, pfn: Pfn, order: Order) {
        for frame in (0..order.frames()).map(|index| pfn.add(index)) {
            let (notes, bit) = self.note(frame);
            if notes.load(Ordering::Relaxed) & bit != 0 {
                self.memory.fill(frame, Order::ZERO, 0);
                notes.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// Does nothing, because pages have no contents.
    fn copy(&self, _: Pfn, _: Pfn, _: Order) {}

    pagewright_arch::no_access_to_bytes!();
}

impl<I: Isa> Platform for TableMachine<I> {
    type Locks = HostLocks;
}
