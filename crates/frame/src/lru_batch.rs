//! Batches of new folios on their way to the LRU lists, one for each CPU.
//!
//! Linux's `cpu_fbatches.lru_add`. A CPU that serves first stores would otherwise take the lock of
//! its node's lists for each page, and that line would move between all CPUs that fault.
//!
//! Key type: `LruBatches`. A batch is a set of lists like a node's, under a lock on a line of its
//! own. It holds no references and hides no folio, unlike Linux's:
//!
//! ```text
//!   new_mapped_folio ─▶ batch of the CPU ─ 31 folios, or anything that needs the lists ─▶ front of
//!                                                                              the node's lists
//! ```
//!
//! A drain links a whole batch by its ends, so its cost does not depend on the number of folios.
//! A batch has a *ticket*, its CPU and a generation, which the drain advances. The record of a
//! small folio has the ticket under which it was added. So a folio is in a batch exactly while the
//! tickets are equal, and no drain stores to the records between the ends.
//!
//! Protocol: the lock of a batch is outside that of the node's lists, both of `LruRank`. Whatever
//! looks at the lists first drains the batches that matter to it: that of the folio, that of its
//! own CPU, so that one CPU alone sees the lists as without batches, or all. The owner of the last
//! reference takes its folio out of the batch instead. The ticket advances under both locks.
//!
//! Invariants:
//! - **INV-LRU-BATCH** A folio with the flag `LRU` whose ticket is that of a CPU's batch is in that
//!   batch, and on a list of its node otherwise. So whatever takes a folio off finds it, and no
//!   operation misses the pages of a batch.
//!
//! Not guaranteed: the order of folios that several CPUs add at the same time.

use crate::folio::Folio;
use crate::folio_flags::FolioFlags;
use crate::frames::Frames;
use crate::list::FrameList;
use crate::lru::{NodeLists, use_links};
use crate::memmap::Memmap;
use crate::zone::ZoneId;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, Backend, LineRef, LineUse, PerCpu, Platform, SpinGuard, SpinLock, rank};
use pagewright_types::{CpuId, CpuMask, LruList, NodeId, Pfn};

/// The number of folios at which a batch is drained by default (`PAGEVEC_SIZE`).
const FULL: u32 = 31;

/// Bits of a generation in a ticket; the CPU is above.
const GENERATION_BITS: u32 = 56;
const _: () = assert!(CpuMask::MAX <= 1 << (u64::BITS - GENERATION_BITS), "a CPU does not fit a ticket");

/// The lists of a node, locked.
type LruGuard<'a, P> = SpinGuard<'a, [FrameList; LruList::ALL.len()], rank::LruRank, <P as Platform>::Locks>;

/// The folios of one batch; all are of one node.
struct Batch {
    lists: [FrameList; LruList::ALL.len()],
    node: NodeId,
}

/// The batch of one CPU.
struct CpuBatch<L: Backend> {
    batch: SpinLock<Batch, rank::LruRank, L>,
    /// The CPU and the generation; advanced under the locks of the batch and of the node's lists.
    ticket: AtomicU64,
    /// The number of folios; written under the lock.
    folios: AtomicU32,
}

/// The batches of all CPUs.
pub(crate) struct LruBatches<L: Backend> {
    cpus: PerCpu<CpuBatch<L>>,
    /// The number of folios at which a batch is drained.
    full: AtomicU32,
}

impl<L: Backend> LruBatches<L> {
    /// Allocates empty batches.
    pub(crate) fn try_new(cpus: usize) -> Result<Self, AllocError> {
        let batch = || Batch { lists: [FrameList::EMPTY; LruList::ALL.len()], node: NodeId::default() };
        let make = |cpu: CpuId| CpuBatch {
            batch: SpinLock::new(batch()),
            // No ticket is zero.
            ticket: AtomicU64::new(u64::from(cpu.raw()) << GENERATION_BITS | 1),
            folios: AtomicU32::new(0),
        };
        Ok(Self { cpus: PerCpu::try_new(cpus, make)?, full: AtomicU32::new(FULL) })
    }

    /// Reports a use of the number of folios and the ticket of a batch.
    #[inline]
    fn use_batch(cpu: CpuId, used: LineUse) {
        L::line(LineRef::Word(u64::from(cpu.raw())), "LRU batch", used);
    }

    /// Puts a small folio that no other CPU can reach in the batch of `cpu`, the caller's.
    ///
    /// Its flags have `LRU` and select `list` of `node`.
    #[inline]
    fn add(&self, cpu: CpuId, nodes: &[NodeLists<L>], node: NodeId, folio: Folio<'_>, list: LruList) {
        let this = self.cpus.get(cpu);
        let mut batch = this.batch.lock();
        Self::use_batch(cpu, LineUse::Store);
        if batch.node != node {
            this.drain(folio.memmap, nodes, &mut batch);
            batch.node = node;
        }
        folio.set_lru_ticket(this.ticket.load(Ordering::Relaxed));
        batch.lists[list as usize].push_front(folio.memmap, folio.head);
        let folios = this.folios.load(Ordering::Relaxed) + 1;
        this.folios.store(folios, Ordering::Relaxed);
        if folios >= self.full.load(Ordering::Relaxed) {
            this.drain(folio.memmap, nodes, &mut batch);
        }
    }

    /// The CPU whose batch has a folio with the flag `LRU`; `None` if it is in a list of its node.
    ///
    /// The answer `None` stays true while the folio lives, once the lock of the node is acquired.
    #[inline]
    pub(crate) fn holder(&self, folio: Folio<'_>) -> Option<CpuId> {
        let ticket = folio.lru_ticket();
        if ticket == 0 {
            return None;
        }
        let cpu = CpuId::new((ticket >> GENERATION_BITS) as u16);
        Self::use_batch(cpu, LineUse::Load);
        // Pairs with the Release of the drain, after which the node's lock shows the folio.
        (ticket == self.cpus.get(cpu).ticket.load(Ordering::Acquire)).then_some(cpu)
    }

    /// Takes the leading folios of `heads` that are in the batch of `cpu` out of it.
    ///
    /// They have no references, and the caller owns them, so the batch keeps its ticket: no CPU
    /// asks again where they are. Returns their number.
    pub(crate) fn remove_many(&self, memmap: &Memmap, cpu: CpuId, heads: &[Pfn]) -> usize {
        let this = self.cpus.get(cpu);
        let mut batch = this.batch.lock();
        let ticket = this.ticket.load(Ordering::Relaxed);
        let mut removed = 0;
        while let Some(head) = heads.get(removed) {
            let folio = Folio::at(memmap, *head);
            if folio.lru_ticket() != ticket {
                break;
            }
            let list = folio.flags().list();
            let (run, beside) = batch.lists[list as usize].remove_run(memmap, &heads[removed..]);
            use_links::<L>(beside);
            removed += run;
        }
        Self::use_batch(cpu, LineUse::Store);
        this.folios.store(this.folios.load(Ordering::Relaxed) - removed as u32, Ordering::Relaxed);
        removed
    }

    /// Whether the batch of a CPU may have folios.
    #[inline]
    fn has_folios(&self, cpu: CpuId) -> bool {
        Self::use_batch(cpu, LineUse::Load);
        self.cpus.get(cpu).folios.load(Ordering::Relaxed) > 0
    }

    /// Moves the folios of a CPU's batch to the lists of their node (`lru_add_drain_cpu`).
    #[cold]
    fn drain(&self, memmap: &Memmap, nodes: &[NodeLists<L>], cpu: CpuId) {
        let this = self.cpus.get(cpu);
        let mut batch = this.batch.lock();
        if this.folios.load(Ordering::Relaxed) > 0 {
            Self::use_batch(cpu, LineUse::Store);
            this.drain(memmap, nodes, &mut batch);
        }
    }

    /// Drains the batches of all CPUs (`lru_add_drain_all`).
    fn drain_all(&self, memmap: &Memmap, nodes: &[NodeLists<L>]) {
        for cpu in (0..self.cpus.cpus()).map(|cpu| CpuId::new(cpu as u16)) {
            plant!(OtherBatchMissed => if cpu != L::cpu() { continue });
            if self.has_folios(cpu) {
                self.drain(memmap, nodes, cpu);
            }
        }
    }
}

impl<L: Backend> CpuBatch<L> {
    #[cold]
    fn drain(&self, memmap: &Memmap, nodes: &[NodeLists<L>], batch: &mut Batch) {
        let node = &nodes[batch.node.index()];
        let mut lists = node.lists.lock();
        for list in LruList::ALL {
            node.prepend(memmap, &mut lists, *list, &mut batch.lists[*list as usize]);
        }
        self.folios.store(0, Ordering::Relaxed);
        self.ticket.store(self.ticket.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

impl<P: Platform> Frames<P> {
    /// Sets the number of new folios that a CPU collects before it links them into the lists.
    ///
    /// With 1, it links each at once.
    pub fn set_lru_batch(&self, folios: u32) {
        self.lru.batches.full.store(folios, Ordering::Relaxed);
    }

    /// Puts a small folio without references in the batch before its list.
    ///
    /// Its flags are `flags` and `LRU` already, and its frame is in `zone`. Takes locks of rank
    /// `LruRank`.
    #[inline]
    pub(crate) fn lru_add_new(&self, folio: Folio<'_>, zone: ZoneId, flags: FolioFlags) {
        let node = self.zones[zone.index()].node;
        self.lru.batches.add(self.machine.cpu(), &self.lru.nodes, node, folio, flags.list());
    }

    /// Puts a large folio without references at the front of its list.
    ///
    /// Its flags are `flags` and `LRU` already. Takes locks of rank `LruRank`.
    pub(crate) fn lru_add_new_large(&self, folio: Folio<'_>, flags: FolioFlags) {
        self.lru_drain_here();
        self.lru_of(folio).add_front(folio, flags.list());
    }

    /// Locks the lists of a folio's node, where the folio is if it has the flag `LRU`.
    ///
    /// Drains the batch that has the folio, and that of the running CPU.
    #[inline]
    pub(crate) fn lru_lock(&self, folio: Folio<'_>) -> (&NodeLists<P::Locks>, LruGuard<'_, P>) {
        // The flag precedes the ticket, which never becomes that of a later batch.
        if folio.flags().contains(FolioFlags::LRU) {
            self.lru_drain_batch_of(folio);
        }
        self.lru_drain_here();
        let node = self.lru_of(folio);
        (node, node.lists.lock())
    }

    /// Drains the batch that has a folio with the flag `LRU`, if one has it.
    #[inline]
    fn lru_drain_batch_of(&self, folio: Folio<'_>) {
        if let Some(cpu) = self.lru.batches.holder(folio) {
            plant!(OtherBatchMissed => if cpu != self.machine.cpu() { return });
            self.lru.batches.drain(&self.memmap, &self.lru.nodes, cpu);
        }
    }

    /// Drains the batch of the running CPU (`lru_add_drain`).
    #[inline]
    fn lru_drain_here(&self) {
        let here = self.machine.cpu();
        if self.lru.batches.has_folios(here) {
            self.lru.batches.drain(&self.memmap, &self.lru.nodes, here);
        }
    }

    /// Moves the folios of all batches to their lists (`lru_add_drain_all`).
    ///
    /// Takes locks of rank `LruRank`.
    pub(crate) fn lru_drain_all(&self) {
        self.lru.batches.drain_all(&self.memmap, &self.lru.nodes);
    }
}

impl Folio<'_> {
    /// Sets the ticket of a small folio, in the word that says how a large one is mapped.
    #[inline]
    fn set_lru_ticket(self, ticket: u64) {
        self.record().mapped_or_shares.store(ticket, Ordering::Relaxed);
    }

    /// The ticket of the batch in which the folio began; 0 if it began on a list.
    ///
    /// The folio has had the flag `LRU` since before the caller could reach it, or the caller is
    /// the one that published it.
    #[inline]
    fn lru_ticket(self) -> u64 {
        if self.is_large() { 0 } else { self.record().mapped_or_shares.load(Ordering::Relaxed) }
    }
}
