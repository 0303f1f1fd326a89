//! Entry stores that walkers cannot see yet.
//!
//! A kernel load sees a store at once; a walker sees it when it drains. So memory holds the newest
//! value of every word, and this module remembers, for words with stores waiting, what walkers
//! still see.
//!
//! ```text
//!   store ──▶ memory (kernel loads)          x86-64: one CPU's stores drain in their order (TSO)
//!     └─ waits ──drain──▶ what walkers see   arm64: any order, but for one word
//! ```
//!
//! A walker's own update of accessed and dirty acts on memory, so it is never lost to a store that
//! waits (INV-SIM-UPDATE). On x86-64 an exchange goes past the buffers. Two stores to one word
//! reach walkers in the order in which memory took them, or the older one never.
//!
//! Not modelled: clearing, copying and writing of whole pages wait for nobody, and neither does
//! anything that is not an entry.

use crate::ram::Ram;
use crate::walk::View;
use pagewright_types::{CpuId, IsaKind, PhysAddr};
use std::cell::RefCell;
use std::sync::atomic::Ordering;

/// A store on its way to the walkers.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    cpu: CpuId,
    at: PhysAddr,
    value: u64,
    /// The step at which it was issued.
    since: u64,
}

/// The store buffers of all CPUs.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    /// In the order in which memory took them.
    waiting: Vec<Waiting>,
    /// What walkers see of the words above.
    seen: Vec<(PhysAddr, u64)>,
}

impl Stores {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// `cpu` stores `value`.
    pub(crate) fn store(&mut self, ram: &Ram, cpu: CpuId, at: PhysAddr, value: u64, since: u64) {
        let before = ram.word(at).swap(value, Ordering::AcqRel);
        if self.seen_at(at).is_none() {
            self.seen.push((at, before));
        }
        self.waiting.push(Waiting { cpu, at, value, since });
    }

    fn seen_at(&self, at: PhysAddr) -> Option<u64> {
        self.seen.iter().find(|(addr, _)| *addr == at).map(|(_, value)| *value)
    }

    /// The store at `index` drains; older ones to the same word are overwritten before any walker
    /// saw them.
    fn drain(&mut self, index: usize) {
        let Waiting { at, value, .. } = self.waiting.remove(index);
        let mut position = 0;
        self.waiting.retain(|waiting| {
            position += 1;
            waiting.at != at || position > index
        });
        if self.waiting.iter().any(|waiting| waiting.at == at) {
            self.seen.iter_mut().filter(|(addr, _)| *addr == at).for_each(|(_, seen)| *seen = value);
        } else {
            self.seen.retain(|(addr, _)| *addr != at);
        }
    }

    /// Places of the stores of `cpu` that may drain next.
    fn next_of(&self, isa: IsaKind, cpu: CpuId) -> impl Iterator<Item = usize> {
        let own = self.waiting.iter().enumerate().filter(move |(_, waiting)| waiting.cpu == cpu);
        let first_of_its_word = move |(index, waiting): (usize, &Waiting)| {
            let earlier = &self.waiting[..index];
            let first = !earlier.iter().any(|before| before.cpu == cpu && before.at == waiting.at);
            first.then_some(index)
        };
        let limit = match isa {
            IsaKind::X86_64 => 1,
            IsaKind::Aarch64 => usize::MAX,
        };
        own.filter_map(first_of_its_word).take(limit)
    }

    /// In how many ways the buffer of `cpu` can drain next.
    pub(crate) fn ways(&self, isa: IsaKind, cpu: CpuId) -> u32 {
        if self.waiting.is_empty() { 0 } else { self.next_of(isa, cpu).count() as u32 }
    }

    /// Drains in one of these ways; returns which word.
    pub(crate) fn drain_way(&mut self, isa: IsaKind, cpu: CpuId, way: u32) -> Option<PhysAddr> {
        let index = self.next_of(isa, cpu).nth(way as usize)?;
        let at = self.waiting[index].at;
        self.drain(index);
        Some(at)
    }

    /// Drains everything that `cpu` stored.
    pub(crate) fn drain_all(&mut self, cpu: CpuId) {
        while let Some(index) = self.waiting.iter().position(|waiting| waiting.cpu == cpu) {
            self.drain(index);
        }
    }

    /// Drains what waits since before `step`: no store waits for ever.
    pub(crate) fn drain_before(&mut self, step: u64) {
        while self.waiting.first().is_some_and(|waiting| waiting.since < step) {
            self.drain(0);
        }
    }

    /// `by` writes the words from `start` to `end` past the buffers, or, on x86-64, reads them.
    ///
    /// What it sees of another CPU's stores drags with it all that this CPU stored before (TSO); on
    /// arm64 it proves nothing about other words.
    pub(crate) fn observe(&mut self, isa: IsaKind, by: Observer, start: PhysAddr, end: PhysAddr) {
        let concerns = |waiting: &Waiting| {
            let reads_its_own = by == Observer::Reader(waiting.cpu);
            start <= waiting.at && waiting.at < end && !reads_its_own
        };
        while let Some(last) = self.waiting.iter().rposition(concerns) {
            match isa {
                IsaKind::X86_64 => {
                    let cpu = self.waiting[last].cpu;
                    let own = self.waiting[..=last].iter().filter(|waiting| waiting.cpu == cpu).count();
                    for _ in 0..own {
                        let first = self.waiting.iter().position(|waiting| waiting.cpu == cpu);
                        first.into_iter().for_each(|first| self.drain(first));
                    }
                }
                IsaKind::Aarch64 => self.drain(last),
            }
        }
    }
}

/// Who looks at a word past the store buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observer {
    /// A load of this CPU, which sees its own stores anyway.
    Reader(CpuId),
    /// Whoever stores there.
    Writer,
}

/// Memory as walkers see it.
pub(crate) struct WalkersView<'a> {
    pub(crate) ram: &'a Ram,
    pub(crate) stores: &'a RefCell<Stores>,
}

impl View for WalkersView<'_> {
    fn load_entry(&self, at: PhysAddr) -> u64 {
        self.stores.borrow().seen_at(at).unwrap_or_else(|| self.ram.load_entry(at))
    }

    fn replace_entry(&self, at: PhysAddr, current: u64, new: u64) -> bool {
        let mut stores = self.stores.borrow_mut();
        if stores.seen_at(at).is_none() {
            return self.ram.replace_entry(at, current, new);
        }
        // An update is made in memory, whatever a read saw: it finds the newer value, and the walk
        // reads again.
        while let Some(index) = stores.waiting.iter().rposition(|waiting| waiting.at == at) {
            stores.drain(index);
        }
        false
    }
}
