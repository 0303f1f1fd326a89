//! Who has paid a debt of a given age.
//!
//! Time is an epoch that every new debt advances; its value is the debt's [`DebtKey`]. Each CPU has
//! a clock: the epoch that was current *before* its last act that pays everything – on x86 a full
//! flush of its TLB, on arm64 a completing barrier (DSB) for the invalidations that this CPU had
//! issued. A debt is settled when the clock of every CPU in its mask has reached its key.
//!
//! Masks of the latest keys are kept in a ring. A mask that is overwritten there is added to a
//! bucket, and a key that is no longer in the ring is owed by the union of the buckets that may hold
//! it, which is more than it was. A merged key is owed by every CPU.
//!
//! On x86 a debt of one space also names the generation that it began. A CPU that has flushed the
//! space up to that generation has paid, whatever its clock says: its translations of the space are
//! gone, and no others are owed. A key whose mask is united with others, and a merged key, are paid
//! by clocks alone.
//!
//! There are two floors. The *floor* is the lowest clock: whatever arose up to it is paid, whether
//! it has a key or not. The *floor of the keys* is never lower, because a key is paid when the CPUs
//! of its own mask have paid. The frame allocator gets it.
//!
//! **INV-LEDGER-SAMPLE** A CPU's clock is sampled before the flush and published after it. So the
//! flush does not count for a debt that arises in between.
//!
//! **INV-LEDGER-SEEN** A CPU says that it has flushed a space up to a generation when the flush is
//! done, and of no other space. So a parked key of one space is paid by the CPUs that have seen the
//! generation which the debt began, whatever their clocks say.
//!
//! **INV-LEDGER-FULL** Only a flush that covers all debts of a CPU advances its clock; a flush of
//! one space does not.
//!
//! Not guaranteed: that a paid debt is recognised at once. The floors are recomputed only when a key
//! is settled, and when the allocator finds no settled frame to spare while frames are parked.

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

/// The flushes of one space that pay a debt: those up to this generation, or later ones.
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

/// The epoch, the CPUs' clocks, the floors, and the masks of the keys.
pub struct Ledger<P: Platform> {
    epoch: AtomicU64,
    /// Every debt up to this epoch is paid.
    floor: AtomicU64,
    /// Every key up to this epoch is paid.
    key_floor: AtomicU64,
    clocks: PerCpu<AtomicU64>,
    masks: SpinLock<Masks, rank::LedgerRank, P::Locks>,
}

impl<P: Platform> Ledger<P> {
    pub(crate) fn try_new(cpus: usize) -> Result<Self, AllocError> {
        Ok(Self {
            epoch: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            key_floor: AtomicU64::new(0),
            clocks: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            masks: SpinLock::new(Masks::EMPTY),
        })
    }

    /// Opens a key that the CPUs in `mask` owe; allocates nothing.
    pub fn open(&self, mask: CpuMask) -> DebtKey {
        self.open_of(mask, None)
    }

    /// As [`open`](Self::open), of a debt that CPUs also pay by flushing one space.
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

    /// Reads the epoch, before an act that pays everything; [`Ledger::advance`] publishes it.
    pub fn sample(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Advances the clock of `cpu`, the calling CPU, to `sampled`, after an act that paid
    /// everything.
    pub fn advance(&self, cpu: CpuId, sampled: u64) {
        let clock = self.clocks.get(cpu);
        // Nobody else moves it. A handler that does in between has its act forgotten, which is more
        // than is owed.
        if clock.load(Ordering::Relaxed) < sampled {
            clock.store(sampled, Ordering::Release);
        }
    }

    /// Whether `cpu` has paid everything up to `epoch`.
    pub(crate) fn has_reached(&self, cpu: CpuId, epoch: u64) -> bool {
        self.clocks.get(cpu).load(Ordering::SeqCst) >= epoch
    }

    /// Whether `key` is known to be settled, by one comparison with the floor.
    ///
    /// `false` may mean that the floor has not been raised yet.
    #[inline]
    pub fn below_floor(&self, key: DebtKey) -> bool {
        self.has_passed(key.epoch())
    }

    /// Whether everybody is known to have paid everything up to `epoch`, by one comparison.
    #[inline]
    pub(crate) fn has_passed(&self, epoch: u64) -> bool {
        epoch <= self.floor.load(Ordering::Acquire)
    }

    /// The online CPUs that still owe `key`, and the number of its CPUs that have paid.
    ///
    /// That number is 0 for a key below a floor, whose mask is not looked at.
    ///
    /// An offline CPU flushes everything before it runs anything (INV-TLB-HOTPLUG). Clocks alone
    /// decide; [`Tlb::owing`](crate::Tlb::owing) knows which CPUs have flushed the space since.
    pub fn unpaid(&self, key: DebtKey, online: &CpuMask) -> (CpuMask, u32) {
        self.unpaid_by(key, online, |_, _| false)
    }

    /// As [`unpaid`](Self::unpaid), where `has_seen` says whether a CPU has flushed a space.
    pub(crate) fn unpaid_by(
        &self,
        key: DebtKey,
        online: &CpuMask,
        has_seen: impl Fn(CpuId, SpaceGeneration) -> bool,
    ) -> (CpuMask, u32) {
        if self.below_floor(key) || key.epoch() <= self.key_floor.load(Ordering::Acquire) {
            return (CpuMask::EMPTY, 0);
        }
        let (mask, of_space) = if key.is_merged() { (*online, None) } else { self.masks.lock().of(key) };
        let owing = self.owing_of(key.epoch(), mask.and(online), of_space, has_seen);
        (owing, mask.without(&owing).count())
    }

    /// The CPUs that still owe any key, and the number of other CPUs that owed one and have paid.
    ///
    /// Once they have flushed everything, the floor of the keys covers every key that there is now.
    /// Keys below that floor are not looked at. Acquires the lock of rank `LedgerRank`.
    #[cold]
    pub(crate) fn unpaid_of_all(
        &self,
        online: &CpuMask,
        has_seen: impl Fn(CpuId, SpaceGeneration) -> bool,
    ) -> (CpuMask, u32) {
        let floor = self.key_floor.load(Ordering::Acquire).max(self.floor.load(Ordering::Acquire));
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

    /// Raises the floor to the lowest clock of the online CPUs.
    pub fn raise_floor(&self, online: &CpuMask) {
        if let Some(floor) = online.iter().map(|cpu| self.clocks.get(cpu).load(Ordering::SeqCst)).min() {
            self.floor.fetch_max(floor, Ordering::Release);
        }
    }

    /// Raises both floors, and returns that of the keys.
    ///
    /// For the allocator when it finds no settled frame to spare. Acquires the lock of rank `LedgerRank`.
    #[cold]
    pub(crate) fn floor_now(&self, online: &CpuMask, has_seen: impl Fn(CpuId, SpaceGeneration) -> bool) -> DebtFloor {
        self.raise_floor(online);
        let floor = self.floor.load(Ordering::Acquire);
        let masks = self.masks.lock();
        let is_paid = |epoch: u64, mask: &CpuMask, of_space: Option<SpaceGeneration>| {
            epoch <= floor || self.owing_of(epoch, mask.and(online), of_space, &has_seen).is_empty()
        };
        // No key is younger: the lock keeps new ones out.
        let mut key_floor = self.sample();
        for open in masks.ring.iter().filter(|open| !is_paid(open.key.epoch(), &open.mask, open.of_space)) {
            key_floor = key_floor.min(open.key.epoch() - 1);
        }
        if !masks.buckets.iter().all(|bucket| is_paid(bucket.youngest, &bucket.mask, None)) {
            // The oldest of its keys is not known.
            key_floor = 0;
        }
        key_floor = plant!(NewestKeyIsFloor; self.sample(), key_floor.max(floor));
        DebtFloor::new(self.key_floor.fetch_max(key_floor, Ordering::AcqRel).max(key_floor))
    }

    /// Raises the floor to `sampled`, when every CPU has flushed everything since.
    pub fn settle_all(&self, sampled: u64) {
        self.floor.fetch_max(sampled, Ordering::Release);
    }
}
