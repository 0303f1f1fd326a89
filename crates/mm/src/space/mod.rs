//! Address spaces: their mappings, and the calls that change them.
//!
//! ```text
//!   vma/      one mapping, the ordered map of a space, and the index for the reverse map
//!   call/     the Linux calls, one in each file: mmap, munmap, mprotect, mremap, madvise, mlock, …
//!   entries/  the edits of page tables by those calls: populate, zap, move, clear references
//!   limits/   resource limits and overcommit
//!   stack     growth on a fault       exec, exit   what execve sets, and the end of a space
//! ```
//!
//! Key types: [`Space`], [`Vma`], [`AddressMap`], [`Rlimits`], [`VmTotals`].
//!
//! **INV-MM-VMAS** Mappings are disjoint, page-aligned and not empty, and neighbours that can be
//! merged are merged. As in Linux, mappings of a child stay separate if in the parent they differed
//! only in their locks.
//!
//! **INV-MM-COVERED** Each leaf lies in a mapping that allows at least what the leaf allows.

mod call;
pub(crate) mod entries;
mod exec;
mod exit;
mod limits;
mod stack;
mod vma;

pub use call::{
    Advice, AdviceTarget, BindFlags, BindRequest, FileMapping, LockAllFlags, LockFlags, MapFlags, MapRequest,
    Protection, RemapFlags, RemapRequest, SyncFlags,
};
pub use entries::ClearRefs;
pub(crate) use limits::{CommittedPages, is_data};
pub use limits::{Privileges, Resource, Rlimit, Rlimits};
pub use vma::{AddressMap, VmFlags, VmTotals, Vma};

use crate::counters::Rss;
use crate::error::MmError;
use crate::fault::FaultKind;
use crate::fork::CowPageTables;
use crate::mm::Mm;
use crate::numa::NumaScan;
use crate::thp::ThpDisabled;
use core::sync::atomic::{AtomicU8, Ordering};
use pagewright_sync::{Arc, PerCpuSums, Platform};
use pagewright_table::{MmapLock, MmapWrite, PageTable, TableReserve};
use pagewright_types::{CpuId, ForkNodeId, SpaceId};

/// The mappings and tables of a space that is held for writing.
pub(crate) type HeldMap<'a, P> = MmapWrite<'a, P, AddressMap<P>>;

/// One address space (`mm_struct`).
///
/// Its [`Mm`] has a handle of it until [`Mm::end_space`].
pub struct Space<P: Platform> {
    mmap: MmapLock<P, AddressMap<P>>,
    fork_node: ForkNodeId,
    /// Faults that waited for no device, and those that did.
    faults: PerCpuSums<2>,
    cow_page_tables: AtomicU8,
    thp_disabled: AtomicU8,
    numa: NumaScan,
}

impl<P: Platform> Space<P> {
    /// Returns its id, which CPUs, files and the fork tree use.
    pub fn id(&self) -> SpaceId {
        self.mmap.table().context().id()
    }

    /// Returns what can be known of its page tables without holding it.
    pub fn table(&self) -> &PageTable {
        self.mmap.table()
    }

    /// Returns its mappings and page tables, and their lock (`mmap_lock`).
    ///
    /// Faults hold the lock for reading, calls that change mappings for writing.
    pub fn map(&self) -> &MmapLock<P, AddressMap<P>> {
        &self.mmap
    }

    /// Returns the counts of its resident pages.
    ///
    /// What other spaces have edited in tables that they share with it is as [`Mm::rss`] summed it
    /// up last.
    pub fn rss(&self) -> &Rss {
        self.mmap.table().rss()
    }

    /// Returns whether its program has asked for shared page tables.
    pub(crate) fn cow_page_tables(&self) -> CowPageTables {
        CowPageTables::from_raw(self.cow_page_tables.load(Ordering::Relaxed))
    }

    /// Changes what [`cow_page_tables`](Self::cow_page_tables) returns, and returns what it was.
    pub(crate) fn swap_cow_page_tables(&self, to: CowPageTables) -> CowPageTables {
        CowPageTables::from_raw(self.cow_page_tables.swap(to as u8, Ordering::Relaxed))
    }

    /// Returns what its program has asked for by `prctl(PR_SET_THP_DISABLE)`; children inherit it.
    #[inline]
    pub fn thp_disabled(&self) -> ThpDisabled {
        ThpDisabled::from_raw(self.thp_disabled.load(Ordering::Relaxed))
    }

    /// Changes what [`thp_disabled`](Self::thp_disabled) returns.
    pub fn set_thp_disabled(&self, disabled: ThpDisabled) {
        self.thp_disabled.store(disabled as u8, Ordering::Relaxed);
    }

    /// Returns the state of its scans for NUMA balancing.
    pub(crate) fn numa(&self) -> &NumaScan {
        &self.numa
    }

    /// Returns its node in the fork tree, which owns the anonymous pages that it allocates.
    pub(crate) fn fork_node(&self) -> ForkNodeId {
        self.fork_node
    }

    /// Returns the number of faults in it that waited for no device.
    ///
    /// It is `min_flt` of its program, unless other processes read or write its memory:
    /// [`Mm::faults_of_this_cpu`] counts by task.
    pub fn minor_faults(&self) -> u64 {
        self.faults.sum(0)
    }

    /// Returns the number of faults in it that waited for a device.
    pub fn major_faults(&self) -> u64 {
        self.faults.sum(1)
    }

    /// Counts a fault that `cpu`, the calling CPU, has served.
    #[inline]
    pub(crate) fn count_fault(&self, cpu: CpuId, kind: FaultKind) {
        self.faults.add(cpu, usize::from(kind == FaultKind::Major), 1);
    }
}

impl<P: Platform> Mm<P> {
    /// Creates an empty address space.
    ///
    /// # Errors
    /// [`MmError::NoKernelMemory`] or [`MmError::NoFrames`]; nothing has changed.
    pub fn new_space(&self) -> Result<Arc<Space<P>>, MmError> {
        self.make_space(None)
    }

    /// Creates an empty space, whose node in the fork tree is a child of `parent`.
    pub(crate) fn make_space(&self, parent: Option<ForkNodeId>) -> Result<Arc<Space<P>>, MmError> {
        if !self.permit() {
            return Err(MmError::NoKernelMemory { wanted: size_of::<Space<P>>() });
        }
        let room = Arc::reserve()?;
        let faults = PerCpuSums::try_new(self.frames().cpus())?;
        let mut root = TableReserve::new(&self.tlb);
        self.fill(&mut root, 1)?;
        let mmap = MmapLock::try_new(&mut root, AddressMap::new)?;
        let fork_node = match self.fork_tree.new_node(parent, self.permit()) {
            Ok(fork_node) => fork_node,
            Err(error) => {
                mmap.write().close(&self.tlb);
                return Err(error);
            }
        };
        let space = room.fill(Space {
            mmap,
            fork_node,
            faults,
            cow_page_tables: AtomicU8::new(CowPageTables::No as u8),
            thp_disabled: AtomicU8::new(ThpDisabled::No as u8),
            numa: NumaScan::default(),
        });
        if let Err(error) = self.fork_tree.insert_space(&space, || self.permit()) {
            self.fork_tree.remove_space(space.id(), fork_node);
            space.mmap.write().close(&self.tlb);
            return Err(error);
        }
        Ok(space)
    }
}
