//! Which CPUs still owe a debt of a given age.
//!
//! Time is an epoch that every new debt advances; its value is the debt's [`DebtKey`]. Each CPU has
//! a clock: the epoch that was current *before* its last act that settled all it owed. On x86 such
//! an act is a full flush of its TLB. On arm64 it is a completing barrier (DSB), for the
//! invalidations that this CPU had issued. A debt is settled when the clock of every CPU in its
//! mask has reached its key.
//!
//! Masks of the latest keys are kept in a ring. A mask that is overwritten there is added to a
//! bucket, and a key that is no longer in the ring is owed by the union of the buckets that may
//! hold it, which is more than it was. A merged key is owed by every CPU.
//!
//! On x86 a debt of one space also names the generation that it began. A CPU that has flushed the
//! space up to that generation owes it no more, whatever its clock says: its translations of the
//! space are gone, and no others are owed. A key whose mask is united with others, and a merged
//! key, are settled by clocks alone.
//!
//! Two epochs answer for old debts. Up to the *lowest clock* of the online CPUs, everything is
//! settled, whether it has a key or not. Up to the *floor*, every key is settled. The floor is
//! never lower, because a key is settled when the CPUs of its own mask owe it no more. The frame
//! allocator gets the floor.
//!
//! **INV-LEDGER-SAMPLE** A CPU's clock is sampled before the flush and published after it. So the
//! flush does not count for a debt that arises in between.
//!
//! **INV-LEDGER-SEEN** A CPU says that it has flushed a space up to a generation when the flush is
//! done, and of no other space. So the CPUs that have seen the generation which the debt began do
//! not owe a parked key of one space, whatever their clocks say.
//!
//! **INV-LEDGER-FULL** Only a flush that covers all debts of a CPU advances its clock; a flush of
//! one space does not.
//!
//! Not guaranteed: that a settled debt is recognised at once. The lowest clock and the floor are
//! computed again only when a key is settled, and when the allocator finds no settled frame to
//! spare while frames are parked.

use crate::batch_epochs::BatchEpochs;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_plant::plant;
use pagewright_sync::{AllocError, PerCpu, Platform, SpinLock, rank};
use pagewright_types::{CpuId, CpuMask, DebtFloor, DebtKey, SpaceId};

/// Keys whose masks are remembered.
const RING: usize = 64;
/// Keys whose masks one bucket unites.
const BUCKET: u32 = 64;
/// Buckets; the oldest unites all that do not fit.
const BUCKETS: usize = 8;

/// The flushes of one space that settle a debt: those up to this generation, or later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpaceGeneration {
    pub(crate) space: SpaceId,
    pub(crate) generation: u64,
}

#[derive(Clone, Copy)]
struct Open {
    key: DebtKey,
    mask: CpuMask,
    /// The only space that owes it, on a machine on which each CPU knows what it has flushed.
    of_space: Option<SpaceGeneration>,
}

impl Open {
    const EMPTY: Self = Self { key: DebtKey::NONE, mask: CpuMask::EMPTY, of_space: None };
}

/// The masks of keys that left the ring.
#[derive(Clone, Copy)]
struct Bucket {
    /// The youngest of its keys.
    youngest: u64,
    keys: u32,
    mask: CpuMask,
}

impl Bucket {
    const EMPTY: Self = Self { youngest: 0, keys: 0, mask: CpuMask::EMPTY };

    fn unite(&mut self, other: Self) {
        self.youngest = self.youngest.max(other.youngest);
        self.keys = self.keys.saturating_add(other.keys);
        self.mask.insert_all(&other.mask);
    }
}

/// The masks of all keys: of the latest each its own, of older ones united.
struct Masks {
    ring: [Open; RING],
    /// The oldest first.
    buckets: [Bucket; BUCKETS],
}

impl Masks {
    const EMPTY: Self = Self { ring: [Open::EMPTY; RING], buckets: [Bucket::EMPTY; BUCKETS] };

    fn add(&mut self, open: Open) {
        let slot = &mut self.ring[open.key.epoch() as usize % RING];
        let old = core::mem::replace(slot, open);
        if old.key != DebtKey::NONE {
            plant!(OldKeysForgotten => return);
            self.add_to_bucket(Bucket { youngest: old.key.epoch(), keys: 1, mask: old.mask });
        }
    }

    #[cold]
    fn add_to_bucket(&mut self, old: Bucket) {
        if self.buckets[BUCKETS - 1].keys >= BUCKET {
            let oldest = self.buckets[0];
            self.buckets[1].unite(oldest);
            self.buckets.rotate_left(1);
            self.buckets[BUCKETS - 1] = Bucket::EMPTY;
        }
        self.buckets[BUCKETS - 1].unite(old);
    }

    /// The CPUs that owed `key` when it arose, or more, and the space that it is of.
    fn of(&self, key: DebtKey) -> (CpuMask, Option<SpaceGeneration>) {
        let open = self.ring[key.epoch() as usize % RING];
        if open.key == key {
            return (open.mask, open.of_space);
        }
        // A key leaves the ring when its slot is needed, so the order of the buckets is not quite
        // that of the keys: any bucket with a younger key may hold it.
        let mut mask = CpuMask::EMPTY;
        for bucket in self.buckets.iter().filter(|bucket| bucket.youngest >= key.epoch()) {
            mask.insert_all(&bucket.mask);
        }
        (mask, None)
    }

    /// The keys and buckets that may be owed: the youngest epoch, the CPUs, and the space of a key.
    fn all(&self) -> impl Iterator<Item = (u64, CpuMask, Option<SpaceGeneration>)> {
        let keys = self.ring.iter().map(|open| (open.key.epoch(), open.mask, open.of_space));
        keys.chain(self.buckets.iter().map(|bucket| (bucket.youngest, bucket.mask, None)))
    }
}

/// The epoch, the CPUs' clocks, the lowest clock, the floor, and the masks of the keys.
pub struct Ledger<P: Platform> {
    epoch: AtomicU64,
    /// The lowest clock, when it was computed last: every debt up to this epoch is settled.
    lowest_clock: AtomicU64,
    /// Every key up to this epoch is settled.
    floor: AtomicU64,
    batches: BatchEpochs,
    clocks: PerCpu<AtomicU64>,
    masks: SpinLock<Masks, rank::LedgerRank, P::Locks>,
}

impl<P: Platform> Ledger<P> {
    pub(crate) fn try_new(cpus: usize) -> Result<Self, AllocError> {
        Ok(Self {
            epoch: AtomicU64::new(0),
            lowest_clock: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            batches: BatchEpochs::new(),
            clocks: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            masks: SpinLock::new(Masks::EMPTY),
        })
    }

    /// Opens a key that the CPUs in `mask` owe; allocates nothing.
    pub fn open(&self, mask: CpuMask) -> DebtKey {
        self.open_of(mask, None)
    }

    /// As [`open`](Self::open), of a debt that CPUs also settle by flushing one space.
    pub(crate) fn open_of(&self, mask: CpuMask, of_space: Option<SpaceGeneration>) -> DebtKey {
        let mut masks = self.masks.lock();
        let key = DebtKey::new(self.epoch.fetch_add(1, Ordering::SeqCst) + 1);
        masks.add(Open { key, mask, of_space });
        key
    }

    /// Begins an epoch, and returns the one that ends.
    ///
    /// What is sampled from here on is younger than every debt, and everything deferred, until now.
    pub(crate) fn begin_epoch(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst)
    }

    /// Counts a batch as open, before it defers its first flush.
    pub(crate) fn open_batch(&self) {
        self.batches.open();
    }

    /// Closes a batch that has deferred flushes up to `epoch`, all of which are complete.
    pub(crate) fn close_batch(&self, epoch: u64) {
        self.batches.close(epoch, &self.epoch);
    }

    /// Whether each flush that a batch deferred up to `epoch` is known to be complete.
    pub(crate) fn batches_have_settled(&self, epoch: u64) -> bool {
        self.batches.have_settled(epoch)
    }

    /// Reads the epoch, before an act that settles everything; [`Ledger::advance`] publishes it.
    pub fn sample(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Advances the clock of `cpu`, the calling CPU, to `sampled`.
    ///
    /// The CPU has sampled it, and has settled all that it owed since.
    pub fn advance(&self, cpu: CpuId, sampled: u64) {
        let clock = self.clocks.get(cpu);
        // Only this CPU stores to its clock. If an interrupt handler advances it in between, a
        // later flush may be forgotten; then the CPU flushes once more than it owes.
        if clock.load(Ordering::Relaxed) < sampled {
            clock.store(sampled, Ordering::Release);
        }
    }

    /// Whether `cpu` has settled all that it owed up to `epoch`.
    pub(crate) fn has_reached(&self, cpu: CpuId, epoch: u64) -> bool {
        self.clocks.get(cpu).load(Ordering::SeqCst) >= epoch
    }

    /// Whether `key` is known to be settled, by one comparison with the lowest clock.
    ///
    /// `false` may mean that the lowest clock has not been computed since.
    #[inline]
    pub fn is_below_clocks(&self, key: DebtKey) -> bool {
        self.clocks_have_reached(key.epoch())
    }

    /// Whether all online CPUs are known to owe nothing up to `epoch`, by one comparison.
    #[inline]
    pub(crate) fn clocks_have_reached(&self, epoch: u64) -> bool {
        epoch <= self.lowest_clock.load(Ordering::Acquire)
    }

    /// The online CPUs that still owe `key`, and the number of its CPUs that do not any more.
    ///
    /// That number is 0 for a key below the lowest clock or the floor: its mask is not looked at.
    ///
    /// An offline CPU flushes everything before it runs anything (INV-TLB-HOTPLUG). Clocks alone
    /// decide; [`Tlb::owing`](crate::Tlb::owing) knows which CPUs have flushed the space since.
    pub fn owing(&self, key: DebtKey, online: &CpuMask) -> (CpuMask, u32) {
        self.owing_unless_seen(key, online, |_, _| false)
    }

    /// As [`owing`](Self::owing), where `has_seen` says whether a CPU has flushed a space.
    pub(crate) fn owing_unless_seen(
        &self,
        key: DebtKey,
        online: &CpuMask,
        has_seen: impl Fn(CpuId, SpaceGeneration) -> bool,
    ) -> (CpuMask, u32) {
        if self.is_below_clocks(key) || key.epoch() <= self.floor.load(Ordering::Acquire) {
            return (CpuMask::EMPTY, 0);
        }
        let (mask, of_space) = if key.is_merged() { (*online, None) } else { self.masks.lock().of(key) };
        let owing = self.owing_of(key.epoch(), mask.and(online), of_space, has_seen);
        (owing, mask.without(&owing).count())
    }

    /// The CPUs that still owe any key, and the number of other CPUs that owed one before.
    ///
    /// Once they have flushed everything, the floor covers every key that there is now. Keys below
    /// the floor are not looked at. Acquires the lock of rank `LedgerRank`.
    #[cold]
    pub(crate) fn owing_any(
        &self,
        online: &CpuMask,
        has_seen: impl Fn(CpuId, SpaceGeneration) -> bool,
    ) -> (CpuMask, u32) {
        let floor = self.floor.load(Ordering::Acquire).max(self.lowest_clock.load(Ordering::Acquire));
        let (mut owed, mut owing) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for (epoch, mask, of_space) in self.masks.lock().all().filter(|(epoch, ..)| *epoch > floor) {
            owed.insert_all(&mask);
            owing.insert_all(&self.owing_of(epoch, mask.and(online), of_space, &has_seen));
        }
        (owing, owed.without(&owing).count())
    }

    /// Those of `cpus` whose clocks are behind `epoch`, and that have not flushed the space since.
    fn owing_of(
        &self,
        epoch: u64,
        mut cpus: CpuMask,
        of_space: Option<SpaceGeneration>,
        has_seen: impl Fn(CpuId, SpaceGeneration) -> bool,
    ) -> CpuMask {
        cpus.retain(|cpu| !self.has_reached(cpu, epoch) && !of_space.is_some_and(|of_space| has_seen(cpu, of_space)));
        cpus
    }

    /// Computes the lowest clock of the online CPUs.
    pub fn raise_lowest_clock(&self, online: &CpuMask) {
        if let Some(lowest) = online.iter().map(|cpu| self.clocks.get(cpu).load(Ordering::SeqCst)).min() {
            self.lowest_clock.fetch_max(lowest, Ordering::Release);
        }
    }

    /// Computes the lowest clock and the floor, and returns the floor.
    ///
    /// For the allocator when it finds no settled frame to spare. Acquires the lock of rank
    /// `LedgerRank`.
    #[cold]
    pub(crate) fn raise_floor(&self, online: &CpuMask, has_seen: impl Fn(CpuId, SpaceGeneration) -> bool) -> DebtFloor {
        self.raise_lowest_clock(online);
        let lowest_clock = self.lowest_clock.load(Ordering::Acquire);
        let masks = self.masks.lock();
        let is_settled = |epoch: u64, mask: &CpuMask, of_space: Option<SpaceGeneration>| {
            epoch <= lowest_clock || self.owing_of(epoch, mask.and(online), of_space, &has_seen).is_empty()
        };
        // No key is younger: the lock keeps new ones out.
        let mut floor = self.sample();
        for open in masks.ring.iter().filter(|open| !is_settled(open.key.epoch(), &open.mask, open.of_space)) {
            floor = floor.min(open.key.epoch() - 1);
        }
        if !masks.buckets.iter().all(|bucket| is_settled(bucket.youngest, &bucket.mask, None)) {
            // The oldest of its keys is not known.
            floor = 0;
        }
        floor = plant!(NewestKeyIsFloor; self.sample(), floor.max(lowest_clock));
        DebtFloor::new(self.floor.fetch_max(floor, Ordering::AcqRel).max(floor))
    }

    /// Notes that every CPU has flushed everything since `sampled`.
    pub fn settle_all(&self, sampled: u64) {
        self.lowest_clock.fetch_max(sampled, Ordering::Release);
    }
}
