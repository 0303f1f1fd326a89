//! Store buffers: entry stores that walkers cannot see yet.
//!
//! A kernel load sees a store at once; a walker sees it when it drains. So memory holds the newest
//! value of every word. For each word with buffered stores, this module has the value that walkers
//! see.
//!
//! ```text
//!   store ──▶ memory (kernel loads)           x86-64: the stores of a CPU drain in order (TSO)
//!     └─ buffer ──drain──▶ what walkers see   arm64: in any order, except to the same word
//! ```
//!
//! A walker sets accessed and dirty bits in memory, so a buffered store never overwrites them
//! (INV-SIM-UPDATE). On x86-64 an exchange bypasses the buffers. Two stores to one word reach
//! walkers in the order in which they reached memory, or the older one never does.
//!
//! Not modelled: buffering of anything but entry stores. Walkers see at once what clears, copies or
//! writes whole pages.

use crate::ram::Ram;
use crate::walk::WalkerMemory;
use pagewright_types::{CpuId, IsaKind, PhysAddr};
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// A store that walkers cannot see yet.
#[derive(Clone, Copy, Debug)]
struct BufferedStore {
    cpu: CpuId,
    at: PhysAddr,
    value: u64,
    /// The step in which it was issued.
    since: u64,
}

/// The store buffers of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// In the order in which they reached memory.
    buffered: Vec<BufferedStore>,
    /// The values that walkers see, of the words with buffered stores.
    seen: Vec<(PhysAddr, u64)>,
}

impl Stores {
    pub(crate) fn is_empty(&self) -> bool {
        self.buffered.is_empty()
    }

    /// Stores `value` to memory, and buffers the store for walkers.
    pub(crate) fn store(&mut self, ram: &Ram, cpu: CpuId, at: PhysAddr, value: u64, since: u64) {
        let before = ram.word(at).swap(value, Ordering::AcqRel);
        self.hold_back(cpu, at, (before, value), since);
    }

    /// Buffers a store of `value` that is in memory already, in place of `before`.
    pub(crate) fn hold_back(&mut self, cpu: CpuId, at: PhysAddr, (before, value): (u64, u64), since: u64) {
        if self.seen_at(at).is_none() {
            self.seen.push((at, before));
        }
        self.buffered.push(BufferedStore { cpu, at, value, since });
    }

    fn seen_at(&self, at: PhysAddr) -> Option<u64> {
        self.seen.iter().find(|(addr, _)| *addr == at).map(|(_, value)| *value)
    }

    /// Drains the store at `index`.
    ///
    /// Older stores to the same word are dropped: no walker sees them.
    fn drain(&mut self, index: usize) {
        let BufferedStore { at, value, .. } = self.buffered.remove(index);
        let mut position = 0;
        self.buffered.retain(|store| {
            position += 1;
            store.at != at || position > index
        });
        if self.buffered.iter().any(|store| store.at == at) {
            self.seen.iter_mut().filter(|(addr, _)| *addr == at).for_each(|(_, seen)| *seen = value);
        } else {
            self.seen.retain(|(addr, _)| *addr != at);
        }
    }

    /// The indices of the stores of `cpu` that may drain next.
    fn next_of(&self, isa: IsaKind, cpu: CpuId) -> impl Iterator<Item = usize> {
        let own = self.buffered.iter().enumerate().filter(move |(_, store)| store.cpu == cpu);
        let first_of_its_word = move |(index, store): (usize, &BufferedStore)| {
            let earlier = &self.buffered[..index];
            let first = !earlier.iter().any(|before| before.cpu == cpu && before.at == store.at);
            first.then_some(index)
        };
        let limit = match isa {
            IsaKind::X86_64 => 1,
            IsaKind::Aarch64 => usize::MAX,
        };
        own.filter_map(first_of_its_word).take(limit)
    }

    /// The number of stores of `cpu` that may drain next.
    pub(crate) fn ways(&self, isa: IsaKind, cpu: CpuId) -> u32 {
        if self.buffered.is_empty() { 0 } else { self.next_of(isa, cpu).count() as u32 }
    }

    /// The word of one of the stores that may drain next.
    pub(crate) fn next_way(&self, isa: IsaKind, cpu: CpuId, way: u32) -> Option<PhysAddr> {
        self.next_of(isa, cpu).nth(way as usize).map(|index| self.buffered[index].at)
    }

    /// Calls `visit` for each buffered store, in order, and each word that walkers see otherwise.
    pub(crate) fn each(&self, mut visit: impl FnMut(Option<CpuId>, PhysAddr, u64)) {
        self.buffered.iter().for_each(|store| visit(Some(store.cpu), store.at, store.value));
        self.seen.iter().for_each(|(at, value)| visit(None, *at, *value));
    }

    /// Whether a store of `cpu` to the word at `at` is buffered.
    pub(crate) fn holds(&self, cpu: CpuId, at: PhysAddr) -> bool {
        self.buffered.iter().any(|store| (store.cpu, store.at) == (cpu, at))
    }

    /// The CPU and the word of each buffered store.
    pub(crate) fn words(&self) -> Vec<(CpuId, PhysAddr)> {
        self.buffered.iter().map(|store| (store.cpu, store.at)).collect()
    }

    /// Drains one of the stores that may drain next; returns the address of its word.
    pub(crate) fn drain_way(&mut self, isa: IsaKind, cpu: CpuId, way: u32) -> Option<PhysAddr> {
        let index = self.next_of(isa, cpu).nth(way as usize)?;
        let at = self.buffered[index].at;
        self.drain(index);
        Some(at)
    }

    /// Drains all stores of `cpu`.
    pub(crate) fn drain_all(&mut self, cpu: CpuId) {
        while let Some(index) = self.buffered.iter().position(|store| store.cpu == cpu) {
            self.drain(index);
        }
    }

    /// Drains the stores issued before `step`, so that no store is buffered for ever.
    pub(crate) fn drain_before(&mut self, step: u64) {
        while self.buffered.first().is_some_and(|store| store.since < step) {
            self.drain(0);
        }
    }

    /// Drains the stores that become visible when `by` accesses the words from `start` to `end`.
    ///
    /// A write bypasses the buffers; a read happens on x86-64 only. There, a CPU that sees a store
    /// of another CPU also sees all earlier stores of that CPU (TSO). On arm64, it proves nothing
    /// about other words.
    pub(crate) fn drain_observed(&mut self, isa: IsaKind, by: Observer, start: PhysAddr, end: PhysAddr) {
        let concerns = |store: &BufferedStore| {
            let reads_its_own = by == Observer::Reader(store.cpu);
            start <= store.at && store.at < end && !reads_its_own
        };
        while let Some(last) = self.buffered.iter().rposition(concerns) {
            match isa {
                IsaKind::X86_64 => {
                    let cpu = self.buffered[last].cpu;
                    let own = self.buffered[..=last].iter().filter(|store| store.cpu == cpu).count();
                    for _ in 0..own {
                        let first = self.buffered.iter().position(|store| store.cpu == cpu);
                        first.into_iter().for_each(|first| self.drain(first));
                    }
                }
                IsaKind::Aarch64 => self.drain(last),
            }
        }
    }
}

/// What accesses a word past the store buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observer {
    /// A load of this CPU, which sees its own buffered stores.
    Reader(CpuId),
    /// A store of any CPU.
    Writer,
}

/// Memory as walkers see it.
pub(crate) struct WalkersView<'a> {
    pub(crate) ram: &'a Ram,
    pub(crate) stores: &'a RefCell<Stores>,
}

impl WalkerMemory for WalkersView<'_> {
    fn load_entry(&self, at: PhysAddr) -> u64 {
        self.stores.borrow().seen_at(at).unwrap_or_else(|| self.ram.load_entry(at))
    }

    fn replace_entry(&self, at: PhysAddr, current: u64, new: u64) -> bool {
        let mut stores = self.stores.borrow_mut();
        if stores.seen_at(at).is_none() {
            return self.ram.replace_entry(at, current, new);
        }
        // An update acts on memory. It finds the newer value there, so the walk reads again.
        while let Some(index) = stores.buffered.iter().rposition(|store| store.at == at) {
            stores.drain(index);
        }
        false
    }
}
