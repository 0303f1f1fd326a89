//! Who has paid a debt of a given age.
//!
//! Time is an epoch that every new debt advances; its value is the debt's [`DebtKey`]. Each CPU has
//! a clock: the epoch that was current *before* its last act that pays everything – on x86 a full
//! flush of its TLB, on arm64 a completing barrier (DSB) for the invalidations that this CPU had
//! issued. A debt is settled when the clock of every CPU in its mask has reached its key.
//!
//! The clock is sampled before the act and published after it (INV-LEDGER-SAMPLE): a debt that
//! arises in between is younger than the sample, so the act never counts for it. Only an act that
//! covers *all* debts of its CPU advances the clock (INV-LEDGER-FULL); a flush of one space does
//! not.
//!
//! Masks of the latest debts are kept in a ring; a debt whose mask was overwritten, and a key that
//! stands for several debts, is owed by everyone, which is more than it was.
//!
//! Not guaranteed: that a settled debt is recognised at once; the floor is recomputed only when
//! someone settles.

use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_sync::{AllocError, PerCpu, Platform, SpinLock, rank};
use pagewright_types::{CpuId, CpuMask, DebtKey};

/// Debts whose masks are remembered.
const RING: usize = 64;

#[derive(Clone, Copy)]
struct Open {
    key: DebtKey,
    mask: CpuMask,
}

/// The epoch, the CPUs' clocks, the floor, and the masks of the latest keys.
pub struct Ledger<P: Platform> {
    epoch: AtomicU64,
    /// Every debt up to this epoch is settled.
    floor: AtomicU64,
    clocks: PerCpu<AtomicU64>,
    ring: SpinLock<[Open; RING], rank::LedgerRank, P::Locks>,
}

impl<P: Platform> Ledger<P> {
    pub(crate) fn try_new(cpus: usize) -> Result<Self, AllocError> {
        Ok(Self {
            epoch: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            clocks: PerCpu::try_new(cpus, |_| AtomicU64::new(0))?,
            ring: SpinLock::new([Open { key: DebtKey::NONE, mask: CpuMask::EMPTY }; RING]),
        })
    }

    /// Opens a key that the CPUs in `mask` owe; allocates nothing.
    pub fn open(&self, mask: CpuMask) -> DebtKey {
        let mut ring = self.ring.lock();
        let key = DebtKey::new(self.epoch.fetch_add(1, Ordering::SeqCst) + 1);
        ring[key.epoch() as usize % RING] = Open { key, mask };
        key
    }

    /// What is sampled from here on is younger than every debt until now, and everything that was
    /// put off.
    pub(crate) fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
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
    /// An offline CPU flushes everything before it runs anything (INV-TLB-HOTPLUG).
    pub fn unpaid(&self, key: DebtKey, online: &CpuMask) -> (CpuMask, u32) {
        if self.below_floor(key) {
            return (CpuMask::EMPTY, 0);
        }
        let open = self.ring.lock()[key.epoch() as usize % RING];
        let mask = if open.key == key { open.mask } else { *online };
        let mut owing = mask.and(online);
        owing.retain(|cpu| !self.has_reached(cpu, key.epoch()));
        (owing, mask.without(&owing).count())
    }

    /// Raises the floor to the lowest clock of the online CPUs.
    pub fn raise_floor(&self, online: &CpuMask) {
        if let Some(floor) = online.iter().map(|cpu| self.clocks.get(cpu).load(Ordering::SeqCst)).min() {
            self.floor.fetch_max(floor, Ordering::Release);
        }
    }

    /// Raises the floor to `sampled`, when every CPU has flushed everything since.
    pub fn settle_all(&self, sampled: u64) {
        self.floor.fetch_max(sampled, Ordering::Release);
    }
}
