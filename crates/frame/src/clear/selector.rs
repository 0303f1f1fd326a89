//! The selection of the stores that clear a block.
//!
//! Key types: [`ClearSelector`], the stores of a machine and its measurements; [`Residency`] and
//! [`ClearExtent`], what is known about a block and its operation; [`ClearPolicy`].
//!
//! *Streaming* stores bypass the cache; *ordinary* stores go through it. Streaming stores are more
//! than twice as fast if the lines of the block are not cached, and five times slower if they are
//! dirty in the cache. So the residency of the block decides first, and the size of the operation
//! only if the residency is unknown:
//!
//! | residency | block | whole operation | stores |
//! | --- | --- | --- | --- |
//! | any | any | one page | ordinary, because the caller is about to touch it |
//! | hot | smaller than 2 MiB | any | ordinary |
//! | hot | 2 MiB or more | any | streaming, because clearing it would evict the working set |
//! | cold | any | two pages or more | streaming |
//! | unknown | any | smaller than the measured last-level cache | ordinary |
//! | unknown | any | not smaller | streaming, because most of it cannot be cached |
//!
//! A block of 2 MiB is as large as a CPU's second-level cache, so ordinary stores evict what the
//! CPU works with, however hot the block is. Where a program wrote the block, they clear it in 80
//! µs instead of 388, and a working set of 1 MiB then takes 409 µs more to read; where nothing
//! touched it since it was last cleared, they save nothing (`evaluate clear`).
//!
//! A calibration selects the streaming stores; `ClearMeasurements` of `tlb` makes it. Before that,
//! the selector uses the best ones that need no calibration. A CPU on the deny-list, and one whose
//! calibration vetoed all streaming stores, gets ordinary stores only, unless the policy overrides
//! this.
//!
//! Not guaranteed: that a block freed on this CPU is still in its cache, or that a block freed long
//! ago is not. The allocator knows only the volume of memory freed since.

use super::backend::ClearBackend;
use super::caps::ClearCaps;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use pagewright_sync::LinearMap;
use pagewright_types::{Order, Pfn};

/// What the allocator knows about the cache lines of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Residency {
    /// Nothing: another CPU freed the block, or it was freed not long ago.
    Unknown = 0,
    /// This CPU just freed the block, so its lines may be in the cache and dirty.
    Hot = 1,
    /// The lines are not cached.
    ///
    /// The block was never used, belongs to another node, or enough was freed since to evict it.
    Cold = 2,
}

impl Residency {
    pub(crate) const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Hot,
            2 => Self::Cold,
            _ => Self::Unknown,
        }
    }
}

/// How much a whole operation clears, such as a call, a VM's memory or a pool.
///
/// One block may be a small part of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClearExtent {
    frames: u64,
}

impl ClearExtent {
    /// One page, such as for a fault or a table.
    pub const PAGE: Self = Self::of_frames(1);

    /// An extent of this many frames.
    pub const fn of_frames(frames: u64) -> Self {
        Self { frames }
    }

    /// An extent of one block of this order.
    pub const fn of_order(order: Order) -> Self {
        Self::of_frames(order.frames() as u64)
    }

    /// The number of frames.
    pub const fn frames(self) -> u64 {
        self.frames
    }
}

/// Which stores the selector may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClearPolicy {
    /// Ordinary stores only.
    Cached,
    /// The stores of the table in the module `selector`.
    #[default]
    Auto,
    /// Streaming stores wherever the CPU has them.
    ///
    /// Ignores the residency, the deny-list and the calibration.
    Uncached,
    /// Ordinary stores, one page at a time, as in Linux before 7.0; the baseline for comparisons.
    CachedByPage,
    /// These stores if the CPU has them, else ordinary ones; for measurements.
    Only(ClearBackend),
}

impl ClearPolicy {
    const ONLY: u8 = 16;

    fn pack(self) -> u8 {
        match self {
            Self::Cached => 0,
            Self::Auto => 1,
            Self::Uncached => 2,
            Self::CachedByPage => 3,
            Self::Only(backend) => Self::ONLY + backend as u8,
        }
    }

    fn unpack(raw: u8) -> Self {
        match raw {
            0 => Self::Cached,
            2 => Self::Uncached,
            3 => Self::CachedByPage,
            only if only >= Self::ONLY => Self::Only(ClearBackend::ALL[usize::from(only - Self::ONLY)]),
            _ => Self::Auto,
        }
    }
}

/// The frames of a last-level cache that was not measured: 64 MiB.
///
/// glibc assumes as much when its probe fails.
const DEFAULT_CACHE_FRAMES: u32 = (64 << 20) >> pagewright_types::PAGE_SHIFT;

/// The smallest operation, in frames, that may use streaming stores.
///
/// No caller waits to touch all of a larger operation, and streaming stores are faster even with a
/// fence every 8 KiB.
const MIN_STREAMED_FRAMES: u64 = 2;

/// The value of `streaming` when there are no streaming stores.
const NO_STREAMING: u8 = u8::MAX;

/// Selects the stores that clear frames of one machine.
pub struct ClearSelector {
    map: Option<&'static LinearMap>,
    caps: ClearCaps,
    policy: AtomicU8,
    /// The streaming stores in use, as a number, or `NO_STREAMING`.
    streaming: AtomicU8,
    /// The effective size of the last-level cache, in frames.
    cache: AtomicU32,
}

impl ClearSelector {
    pub(crate) fn new(map: Option<&'static LinearMap>, caps: ClearCaps) -> Self {
        Self {
            map,
            caps,
            policy: AtomicU8::new(ClearPolicy::default().pack()),
            streaming: AtomicU8::new(caps.streaming().map_or(NO_STREAMING, |backend| backend as u8)),
            cache: AtomicU32::new(DEFAULT_CACHE_FRAMES),
        }
    }

    /// The stores of this CPU; only ordinary ones if the machine has no linear map.
    pub fn caps(&self) -> &ClearCaps {
        &self.caps
    }

    /// The current policy.
    pub fn policy(&self) -> ClearPolicy {
        ClearPolicy::unpack(self.policy.load(Ordering::Relaxed))
    }

    /// Sets the policy for clears that begin from now on.
    pub fn set_policy(&self, policy: ClearPolicy) {
        self.policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// The streaming stores in use; `None` if there are none, or a calibration vetoed them.
    pub fn streaming(&self) -> Option<ClearBackend> {
        ClearBackend::ALL.get(usize::from(self.streaming.load(Ordering::Relaxed))).copied()
    }

    pub(super) fn set_streaming(&self, backend: Option<ClearBackend>) {
        self.streaming.store(backend.map_or(NO_STREAMING, |backend| backend as u8), Ordering::Relaxed);
    }

    /// The effective size of the last-level cache, as measured or assumed.
    pub fn cache(&self) -> ClearExtent {
        ClearExtent::of_frames(u64::from(self.cache_frames()))
    }

    #[inline]
    pub(crate) fn cache_frames(&self) -> u32 {
        self.cache.load(Ordering::Relaxed)
    }

    pub(super) fn set_cache(&self, frames: u32) {
        self.cache.store(frames, Ordering::Relaxed);
    }

    /// The address of a block in the linear map; `None` if there is no map.
    pub(super) fn at(&self, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
        self.map?.block(pfn, order)
    }

    /// Selects the stores for a block in an operation of this extent, by the table of the module.
    pub fn select(&self, target: Residency, order: Order, extent: ClearExtent) -> ClearBackend {
        if self.map.is_none() {
            return ClearBackend::Machine;
        }
        let ordinary = self.caps.ordinary();
        match self.policy() {
            ClearPolicy::Cached | ClearPolicy::CachedByPage => return ordinary,
            ClearPolicy::Uncached => return self.streaming().or(self.caps.candidates().next()).unwrap_or(ordinary),
            ClearPolicy::Only(backend) => return if self.caps.has(backend) { backend } else { ordinary },
            ClearPolicy::Auto => {}
        }
        let Some(streaming) = self.streaming() else { return ordinary };
        if self.caps.is_denied() || extent.frames < MIN_STREAMED_FRAMES {
            return ordinary;
        }
        match target {
            Residency::Hot if order < Order::PMD => ordinary,
            Residency::Hot | Residency::Cold => streaming,
            Residency::Unknown if extent >= self.cache() => streaming,
            Residency::Unknown => ordinary,
        }
    }

    /// Whether clearing such an operation in batches, with one fence for each, is worthwhile.
    ///
    /// It is if the stores need a fence.
    pub fn benefits_from_batch(&self, extent: ClearExtent) -> bool {
        self.select(Residency::Cold, Order::ZERO, extent).is_weak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;

    fn map() -> &'static LinearMap {
        let bytes: &'static mut [u8] = Box::leak(vec![0; 8192].into_boxed_slice());
        let skip = bytes.as_ptr().align_offset(4096);
        let (map, _words) = LinearMap::over(&mut bytes[skip..skip + 4096], Pfn::new(0)).expect("a page");
        Box::leak(Box::new(map))
    }

    const KIB64: ClearExtent = ClearExtent::of_frames(16);
    const ALL: [Residency; 3] = [Residency::Hot, Residency::Cold, Residency::Unknown];

    #[test]
    fn the_selection_follows_the_table() {
        let selector = ClearSelector::new(Some(map()), ClearCaps::detect());
        let ordinary = selector.caps.ordinary();
        // Without streaming stores, all stores are ordinary.
        let streaming = selector.caps.streaming().unwrap_or(ordinary);
        if selector.caps.is_denied() {
            return;
        }
        for residency in ALL {
            assert_eq!(selector.select(residency, Order::ZERO, ClearExtent::PAGE), ordinary);
        }
        for frames in [2, 16, 512, 1 << 18, 1 << 30] {
            let extent = ClearExtent::of_frames(frames);
            let unknown = if extent >= selector.cache() { streaming } else { ordinary };
            for (order, hot) in [(0, ordinary), (8, ordinary), (9, streaming), (18, streaming)] {
                let order = Order::new(order);
                assert_eq!(selector.select(Residency::Hot, order, extent), hot, "order {order}");
                assert_eq!(selector.select(Residency::Cold, order, extent), streaming);
                assert_eq!(selector.select(Residency::Unknown, order, extent), unknown);
            }
        }
        let base = Order::ZERO;
        selector.set_cache(16);
        assert_eq!(selector.select(Residency::Unknown, base, KIB64), streaming);
        selector.set_streaming(None);
        assert_eq!(selector.select(Residency::Cold, base, KIB64), ordinary);
        selector.set_policy(ClearPolicy::Uncached);
        let first = selector.caps.candidates().next().unwrap_or(ordinary);
        assert_eq!(selector.select(Residency::Hot, base, ClearExtent::PAGE), first, "the policy overrides the table");
    }

    #[test]
    fn a_denied_cpu_streams_only_under_the_policy_uncached() {
        let selector = ClearSelector::new(Some(map()), ClearCaps::denied_for_test());
        let extent = ClearExtent::of_frames(1 << 20);
        for residency in ALL {
            assert_eq!(selector.select(residency, Order::PMD, extent), ClearBackend::Cached);
        }
        selector.set_policy(ClearPolicy::Uncached);
        let told = selector.streaming().or(selector.caps.candidates().next()).unwrap_or(ClearBackend::Cached);
        assert_eq!(selector.select(Residency::Cold, Order::PMD, extent), told);
    }

    #[test]
    fn the_only_backend_is_used_wherever_the_cpu_has_it() {
        for &backend in ClearBackend::ALL {
            for caps in [ClearCaps::detect(), ClearCaps::detect().without(backend)] {
                let selector = ClearSelector::new(Some(map()), caps);
                selector.set_policy(ClearPolicy::Only(backend));
                let used = if caps.has(backend) { backend } else { caps.ordinary() };
                assert!(caps.has(used), "{backend:?}");
                for (residency, frames) in ALL.into_iter().flat_map(|one| [1, 16, 1 << 20].map(|frames| (one, frames)))
                {
                    let extent = ClearExtent::of_frames(frames);
                    assert_eq!(selector.select(residency, Order::ZERO, extent), used, "{backend:?}");
                    assert_eq!(selector.select(residency, Order::PMD, extent), used, "{backend:?}");
                }
            }
        }
    }

    #[test]
    fn a_machine_without_a_linear_map_clears_by_itself() {
        let selector = ClearSelector::new(None, ClearCaps::detect());
        selector.set_policy(ClearPolicy::Uncached);
        let extent = ClearExtent::of_frames(1 << 20);
        assert_eq!(selector.select(Residency::Cold, Order::PMD, extent), ClearBackend::Machine);
        assert!(!selector.benefits_from_batch(ClearExtent::of_frames(1 << 20)));
    }

    #[test]
    fn every_policy_reads_back_as_it_was_set() {
        let selector = ClearSelector::new(None, ClearCaps::detect());
        let only = ClearBackend::ALL.iter().map(|backend| ClearPolicy::Only(*backend));
        let plain = [ClearPolicy::Cached, ClearPolicy::Auto, ClearPolicy::Uncached, ClearPolicy::CachedByPage];
        for policy in plain.into_iter().chain(only) {
            selector.set_policy(policy);
            assert_eq!(selector.policy(), policy);
        }
    }
}
