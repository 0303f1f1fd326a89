//! Condemned entries: stale, but not usable yet, because another tag is loaded or the CPU is lazy.
//!
//! Each is watched until an access hits it, its tag is loaded, or it is found to be gone.

use crate::FxHashMap;
use crate::violation::{CpuStep, Reduction, ReusedBlock};
use alloc::vec::Vec;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, Witness};
use pagewright_types::{CpuId, Level, Rights, Tag, VirtAddr};

/// Why an entry is stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaleReason {
    /// Its frame was allocated again.
    Reused(ReusedBlock),
    /// It grants more than a call left.
    Reduced { reduction: Reduction, returned: CpuStep },
}

/// A stale translation, walk-cache entry or walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) held: CachedEntry,
    pub(super) reason: StaleReason,
}

impl Stale {
    /// Whether `cached`, found in the same slot, has the same tag and leads to the same frame.
    fn is(&self, cached: &CachedEntry) -> bool {
        let same = match (self.held.kind, cached.kind) {
            (CachedEntryKind::Translation { pfn: a, .. }, CachedEntryKind::Translation { pfn: b, .. }) => a == b,
            (CachedEntryKind::Table { table: a, .. }, CachedEntryKind::Table { table: b, .. })
            | (CachedEntryKind::Walk { table: a, .. }, CachedEntryKind::Walk { table: b, .. }) => a == b,
            (CachedEntryKind::Translation { .. } | CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. }, _) => {
                false
            }
        };
        same && self.held.tag == cached.tag && self.held.global == cached.global
    }
}

type CacheSlot = (CpuId, Level, VirtAddr);

fn cache_slot(cached: &CachedEntry) -> CacheSlot {
    (cached.cpu, cached.level, cached.va)
}

/// All condemned entries.
#[derive(Default)]
pub(super) struct Condemned {
    stale: FxHashMap<CacheSlot, Vec<Stale>>,
    /// Entries at each level, so that an access searches only levels that have some.
    at: [usize; Level::MOST],
    /// Number of entries from which on [`Self::prune`] looks for those that are gone.
    prune_at: usize,
}

impl Condemned {
    const FIRST_PRUNE: usize = 256;

    pub(super) fn is_empty(&self) -> bool {
        self.at == [0; Level::MOST]
    }

    fn len(&self) -> usize {
        self.at.iter().sum()
    }

    /// Watches `stale`.
    ///
    /// An entry that is stale for several reasons is kept once for each.
    pub(super) fn watch(&mut self, stale: Stale) {
        let here = self.stale.entry(cache_slot(&stale.held)).or_default();
        if !here.contains(&stale) {
            here.push(stale);
            self.at[stale.held.level.index()] += 1;
        }
    }

    /// Calls `visit` for each watched entry.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&Stale)) {
        self.stale.values().flatten().for_each(visit);
    }

    /// The watched entries on `cpu` that cover `va`, in a tree whose root has the level `top`.
    pub(super) fn at(&self, cpu: CpuId, va: VirtAddr, top: Level) -> Vec<Stale> {
        let mut found = Vec::new();
        for raw in 0..Level::MOST as u8 {
            let level = top.of_same_tree(raw);
            if self.at[level.index()] > 0
                && let Some(here) = self.stale.get(&(cpu, level, va.align_down(level.span())))
            {
                found.extend_from_slice(here);
            }
        }
        found
    }

    /// Takes the watched entries that `cpu` still holds under `tag`, or globally.
    ///
    /// Those that are gone are forgotten, too.
    pub(super) fn take(&mut self, witness: &dyn Witness, cpu: CpuId, tag: Tag) -> Vec<Stale> {
        let mut found = Vec::new();
        witness.cached(&mut |cached| {
            if cached.cpu == cpu && (cached.tag == tag || cached.global) {
                found.extend(self.watched(&cached).map(|stale| Stale { held: cached, ..*stale }));
            }
        });
        self.retain(|stale| stale.held.cpu != cpu || stale.held.tag != tag && !stale.held.global);
        found
    }

    fn watched<'a>(&'a self, cached: &CachedEntry) -> impl Iterator<Item = &'a Stale> + use<'a> {
        let wanted = *cached;
        self.stale.get(&cache_slot(cached)).into_iter().flatten().filter(move |stale| stale.is(&wanted))
    }

    /// Whether `cached` is watched because it allows stores, which a call has taken.
    pub(super) fn is_watched_for_stores(&self, cached: &CachedEntry) -> bool {
        self.watched(cached).any(|stale| match stale.reason {
            StaleReason::Reused(_) => true,
            StaleReason::Reduced { reduction, .. } => !reduction.left.contains(Rights::WRITE),
        })
    }

    pub(super) fn forget(&mut self, stale: &Stale) {
        self.retain(|other| other != stale);
    }

    /// Forgets entries that no CPU holds any more, once there are many.
    pub(super) fn prune(&mut self, witness: &dyn Witness) {
        if self.len() < self.prune_at.max(Self::FIRST_PRUNE) {
            return;
        }
        let mut alive = Vec::new();
        witness.cached(&mut |cached| alive.extend(self.watched(&cached).copied()));
        self.stale.clear();
        self.at = [0; Level::MOST];
        for stale in alive {
            self.watch(stale);
        }
        self.prune_at = self.len() * 2;
    }

    fn retain(&mut self, keep: impl Fn(&Stale) -> bool) {
        let at = &mut self.at;
        self.stale.retain(|_, here| {
            here.retain(|stale| {
                let keep = keep(stale);
                if !keep {
                    at[stale.held.level.index()] -= 1;
                }
                keep
            });
            !here.is_empty()
        });
    }
}
