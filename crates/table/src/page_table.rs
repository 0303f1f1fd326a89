//! The tree of one address space.
//!
//! **INV-TABLE-CLOSE** A space ends without tables below its root, and with no CPU on it.

use crate::reserve::TableReserve;
use crate::rss::Rss;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pagewright_sync::{AllocError, Arc, Backend, LineRef, LineUse, Platform};
use pagewright_tlb::frames::EntryCounts;
use pagewright_tlb::{FlushInfo, Tlb, TlbContext};
use pagewright_types::{CpuId, Gauge, Level, PAGE_SIZE, Pfn};

/// The page tables of one address space, as far as they can be known without holding the space.
///
/// [`Tables`](crate::Tables) descends and edits.
pub struct PageTable {
    context: Arc<TlbContext>,
    rss: Rss,
    /// Tables that the space reaches, the root included, whether others share them or not.
    ///
    /// Those that were made for all sharers are left out while they are shared: [`SharedSum`] has
    /// them. [`PageTable::bytes`] leaves the root out, as `pgtables_bytes` of Linux does on most
    /// machines.
    ///
    /// [`SharedSum`]: crate::share::SharedSum
    tables: AtomicU64,
    /// Deposited tables, which are in `tables`, too: one for each leaf of the PMD level.
    deposits: AtomicU64,
    /// Whether a pointer of the space may be shared.
    shared: AtomicBool,
    /// Whether a pointer of the space was ever shared.
    ever_shared: AtomicBool,
}

impl PageTable {
    /// Creates an empty tree with its context; its root comes out of `reserve`.
    ///
    /// # Errors
    /// [`AllocError`]; the reserve keeps what it has.
    pub(crate) fn try_new<P: Platform>(reserve: &mut TableReserve<'_, P>) -> Result<Self, AllocError> {
        let tlb = reserve.tlb();
        let rss = Rss::try_new(tlb.frames().cpus())?;
        let root = reserve.take_frame();
        let context = match tlb.open_context(root.pfn()) {
            Ok(context) => context,
            Err(error) => {
                reserve.put_back(root);
                return Err(error);
            }
        };
        tlb.frames().new_table(root, Level::PGD, context.id());
        tlb.frames().adjust(Gauge::PageTablePages, 1);
        Ok(Self {
            context,
            rss,
            tables: AtomicU64::new(1),
            deposits: AtomicU64::new(0),
            shared: AtomicBool::new(false),
            ever_shared: AtomicBool::new(false),
        })
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
        let tables = self.reached() + self.rss.shared.tables();
        (tables - 1).max(0) as u64 * PAGE_SIZE
    }

    /// The resident set of the space.
    pub fn rss(&self) -> &Rss {
        &self.rss
    }

    /// Changes the resident set of the space, on `cpu`, the caller's.
    #[inline]
    pub(crate) fn adjust_rss<B: Backend>(&self, cpu: CpuId, change: EntryCounts<i32>, pages: i64) {
        let report = |used| B::line(LineRef::Word(self.context.id().raw()), "resident set", used);
        self.rss.adjust::<B>(cpu, change, pages, report);
    }

    /// Counts tables that were made for the space, or freed.
    pub(crate) fn adjust_tables<P: Platform>(&self, tlb: &Tlb<P>, n: i64) {
        P::Locks::line(LineRef::Word(self.context.id().raw()), "number of tables", LineUse::Store);
        self.add_reached(n);
        tlb.frames().adjust(Gauge::PageTablePages, n);
    }

    /// Counts tables that the space shares from now on, or has left.
    ///
    /// The caller holds the space for writing.
    pub(crate) fn add_reached(&self, n: i64) {
        self.tables.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// The tables that the space reaches, the root included, without those made for all.
    pub(crate) fn reached(&self) -> i64 {
        self.tables.load(Ordering::Relaxed) as i64
    }

    /// Counts deposited tables.
    pub(crate) fn adjust_deposits(&self, n: i64) {
        self.deposits.fetch_add(n as u64, Ordering::Relaxed);
    }

    /// The number of leaves of the PMD level, each of which has a deposited table.
    ///
    /// An operation that holds the space for reading may miss those that come meanwhile.
    #[inline]
    pub fn deposits(&self) -> u64 {
        self.deposits.load(Ordering::Relaxed)
    }

    /// Notes that pointers of the space may be shared from now on.
    ///
    /// The caller holds the space for writing.
    pub(crate) fn note_shared(&self) {
        self.shared.store(true, Ordering::Relaxed);
        self.ever_shared.store(true, Ordering::Relaxed);
    }

    /// Notes that no pointer of the space is shared.
    ///
    /// The caller holds the space for writing, and has looked at every pointer.
    pub(crate) fn note_none_shared(&self) {
        self.shared.store(false, Ordering::Relaxed);
    }

    /// Whether the space may share a table with another.
    #[inline]
    pub fn has_shared(&self) -> bool {
        self.shared.load(Ordering::Relaxed)
    }

    /// Whether the space ever shared a table with another.
    ///
    /// Then walk caches may have a pointer that is write-protected, because taking a table back
    /// flushes nothing.
    #[inline]
    pub fn ever_shared(&self) -> bool {
        self.ever_shared.load(Ordering::Relaxed)
    }

    /// Whether the space has ended, and its root with it.
    ///
    /// The caller holds the space.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.tables.load(Ordering::Relaxed) == 0
    }

    /// Flushes the space and frees the root; the caller holds the space exclusively.
    #[allow(unsafe_code)]
    pub(crate) fn close<P: Platform>(&self, tlb: &Tlb<P>) {
        debug_assert_eq!(self.reached(), 1, "INV-TABLE-CLOSE: tables left in a space that ends");
        debug_assert_eq!(self.rss.own(), EntryCounts::default(), "INV-TABLE-CLOSE: entries left in a space that ends");
        // What a space shared until its end is not counted out (`leave_shared_at_exit`).
        self.tables.store(1, Ordering::Relaxed);
        self.rss.clear();
        // Lazy CPUs leave the root when they are told that tables went.
        tlb.flush(&self.context, FlushInfo { range: None, level: Level::PGD, freed_tables: true });
        debug_assert!(self.context.cpus().is_empty(), "INV-TABLE-CLOSE: {:?} still run the space", self.context.cpus());
        self.adjust_tables(tlb, -1);
        // SAFETY: INV-TABLE-CLOSE – no CPU runs the space, and it is closed once.
        tlb.free(unsafe { tlb.frames().retire(self.root()) });
    }
}
