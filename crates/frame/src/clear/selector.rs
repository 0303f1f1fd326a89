//! Which stores clear a block.
//!
//! Key types: [`ClearSelector`], what a machine has and has measured; [`Residency`] and [`ClearExtent`], what
//! is known of one clear; [`ClearPolicy`], the knob.
//!
//! Stores that go past the cache are more than twice as fast where the target is not cached, and
//! five times slower where its lines are dirty in the cache. So the state of the target decides
//! first, and the size only where that is not known:
//!
//! | target | whole operation | stores |
//! | --- | --- | --- |
//! | any | one page | ordinary: it is for who is about to touch it |
//! | hot | any | ordinary |
//! | cold | from two pages | streaming |
//! | unknown | below the measured last-level cache | ordinary |
//! | unknown | from there | streaming: most of it can't be cached |
//!
//! Which stores stream is what a calibration found, and before that the best that need no proof. A
//! CPU on the deny-list, and one whose calibration found none that are worth it, has ordinary
//! stores only, unless the policy overrules it.
//!
//! Not guaranteed: that a block freed on this CPU is still in its cache, or that one freed long ago
//! is not. The allocator remembers volumes.

use super::backend::ClearBackend;
use super::caps::ClearCaps;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use pagewright_sync::LinearMap;
use pagewright_types::{Order, Pfn};

/// What the allocator knows of a block's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Residency {
    /// Nothing: freed elsewhere, or not long ago.
    Unknown = 0,
    /// Freed on this CPU just now, so that they may be in its cache, and dirty.
    Hot = 1,
    /// Never used, or so much was freed since that they have left the cache; or another node's.
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

/// How much a whole operation clears – a call, a VM's memory, a pool –, of which one block may be a
/// small part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClearExtent {
    frames: u64,
}

impl ClearExtent {
    /// One page: a fault, a table.
    pub const PAGE: Self = Self::of_frames(1);

    /// This many frames.
    pub const fn of_frames(frames: u64) -> Self {
        Self { frames }
    }

    /// One block of this order.
    pub const fn of_order(order: Order) -> Self {
        Self::of_frames(order.frames() as u64)
    }

    /// Frames.
    pub const fn frames(self) -> u64 {
        self.frames
    }
}

/// The knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClearPolicy {
    /// Ordinary stores.
    Cached,
    /// By the table of this module.
    #[default]
    Auto,
    /// Streaming stores wherever the CPU has them: whatever the target, the deny-list and the
    /// calibration.
    Uncached,
    /// Ordinary stores, each page by itself, as Linux did before 7.0: what the rest is compared
    /// with.
    CachedByPage,
    /// These stores, if the CPU has them: for measuring.
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

/// Frames of a last-level cache that nobody has measured: 64 MiB, as glibc takes where its probe
/// fails.
const UNMEASURED: u32 = (64 << 20) >> pagewright_types::PAGE_SHIFT;

/// From this many frames on an operation is more than a fault: nobody waits to touch all of it, and
/// stores past the cache are faster even with a fence every 8 KiB.
const MORE_THAN_A_FAULT: u64 = 2;

/// No stores that stream.
const NONE: u8 = u8::MAX;

/// The choice of stores on one machine.
pub struct ClearSelector {
    map: Option<LinearMap>,
    caps: ClearCaps,
    policy: AtomicU8,
    /// The stores past the cache, as a number, or `NONE`.
    streaming: AtomicU8,
    /// Frames of the effective last-level cache.
    cache: AtomicU32,
}

impl ClearSelector {
    pub(crate) fn new(map: Option<LinearMap>, caps: ClearCaps) -> Self {
        Self {
            map,
            caps,
            policy: AtomicU8::new(ClearPolicy::default().pack()),
            streaming: AtomicU8::new(caps.streaming().map_or(NONE, |backend| backend as u8)),
            cache: AtomicU32::new(UNMEASURED),
        }
    }

    /// The stores of this CPU; ordinary ones only where there is no map.
    pub fn caps(&self) -> &ClearCaps {
        &self.caps
    }

    /// The policy in force.
    pub fn policy(&self) -> ClearPolicy {
        ClearPolicy::unpack(self.policy.load(Ordering::Relaxed))
    }

    /// Changes the policy, for clears that begin from now on.
    pub fn set_policy(&self, policy: ClearPolicy) {
        self.policy.store(policy.pack(), Ordering::Relaxed);
    }

    /// The stores past the cache that are used; `None` if there are none, or a calibration found
    /// them slow.
    pub fn streaming(&self) -> Option<ClearBackend> {
        ClearBackend::ALL.get(usize::from(self.streaming.load(Ordering::Relaxed))).copied()
    }

    pub(super) fn set_streaming(&self, backend: Option<ClearBackend>) {
        self.streaming.store(backend.map_or(NONE, |backend| backend as u8), Ordering::Relaxed);
    }

    /// The effective last-level cache, as measured or assumed.
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

    /// Whether the machine gave a map of its memory.
    pub fn has_map(&self) -> bool {
        self.map.is_some()
    }

    /// Where a block lies, if the machine gave a map.
    pub(super) fn at(&self, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
        self.map.as_ref()?.block(pfn, order)
    }

    /// What clears a target of which this is known: the table of this module.
    pub fn select(&self, target: Residency, whole: ClearExtent) -> ClearBackend {
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
        if self.caps.is_denied() || whole.frames < MORE_THAN_A_FAULT {
            return ordinary;
        }
        match target {
            Residency::Hot => ordinary,
            Residency::Cold => streaming,
            Residency::Unknown if whole >= self.cache() => streaming,
            Residency::Unknown => ordinary,
        }
    }

    /// Whether blocks of an operation like this are worth clearing ahead, in batches with one
    /// fence: there are stores that want one.
    pub fn benefits_from_batch(&self, whole: ClearExtent) -> bool {
        self.select(Residency::Cold, whole).is_weak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use core::sync::atomic::AtomicU64;

    fn map() -> LinearMap {
        let words: Vec<AtomicU64> = (0..1024).map(|_| AtomicU64::new(0)).collect();
        let words: &'static [AtomicU64] = Box::leak(words.into_boxed_slice());
        let skip = words.as_ptr().align_offset(4096);
        LinearMap::over(&words[skip..skip + 512], Pfn::new(0)).expect("a page")
    }

    const KIB64: ClearExtent = ClearExtent::of_frames(16);
    const ALL: [Residency; 3] = [Residency::Hot, Residency::Cold, Residency::Unknown];

    #[test]
    fn the_table_is_what_is_chosen() {
        let clearing = ClearSelector::new(Some(map()), ClearCaps::detect());
        let ordinary = clearing.caps.ordinary();
        // Where there are none, everything is ordinary.
        let streaming = clearing.caps.streaming().unwrap_or(ordinary);
        if clearing.caps.is_denied() {
            return;
        }
        for residency in ALL {
            assert_eq!(clearing.select(residency, ClearExtent::PAGE), ordinary);
        }
        for frames in [2, 16, 512, 1 << 18, 1 << 30] {
            let whole = ClearExtent::of_frames(frames);
            assert_eq!(clearing.select(Residency::Hot, whole), ordinary);
            assert_eq!(clearing.select(Residency::Cold, whole), streaming);
            let unknown = if whole >= clearing.cache() { streaming } else { ordinary };
            assert_eq!(clearing.select(Residency::Unknown, whole), unknown);
        }
        clearing.set_cache(16);
        assert_eq!(clearing.select(Residency::Unknown, KIB64), streaming);
        clearing.set_streaming(None);
        assert_eq!(clearing.select(Residency::Cold, KIB64), ordinary);
        clearing.set_policy(ClearPolicy::Uncached);
        let first = clearing.caps.candidates().next().unwrap_or(ordinary);
        assert_eq!(clearing.select(Residency::Hot, ClearExtent::PAGE), first, "the knob overrules");
    }

    #[test]
    fn a_denied_cpu_streams_only_if_it_is_told_to() {
        let clearing = ClearSelector::new(Some(map()), ClearCaps::denied_for_test());
        let whole = ClearExtent::of_frames(1 << 20);
        for residency in ALL {
            assert_eq!(clearing.select(residency, whole), ClearBackend::Cached);
        }
        clearing.set_policy(ClearPolicy::Uncached);
        let told = clearing.streaming().or(clearing.caps.candidates().next()).unwrap_or(ClearBackend::Cached);
        assert_eq!(clearing.select(Residency::Cold, whole), told);
    }

    #[test]
    fn a_machine_without_a_map_clears_by_itself() {
        let clearing = ClearSelector::new(None, ClearCaps::detect());
        clearing.set_policy(ClearPolicy::Uncached);
        assert_eq!(clearing.select(Residency::Cold, ClearExtent::of_frames(1 << 20)), ClearBackend::Machine);
        assert!(!clearing.benefits_from_batch(ClearExtent::of_frames(1 << 20)));
    }

    #[test]
    fn a_policy_comes_back_as_it_was_set() {
        let clearing = ClearSelector::new(None, ClearCaps::detect());
        let only = ClearBackend::ALL.iter().map(|backend| ClearPolicy::Only(*backend));
        let plain = [ClearPolicy::Cached, ClearPolicy::Auto, ClearPolicy::Uncached, ClearPolicy::CachedByPage];
        for policy in plain.into_iter().chain(only) {
            clearing.set_policy(policy);
            assert_eq!(clearing.policy(), policy);
        }
    }
}
