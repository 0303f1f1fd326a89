//! What the machine tells a judge, and what a judge may ask of it.
//!
//! A [`Judge`] is bound to a machine by [`Sim::bind_judge`]. It hears of every fact declared, every
//! access made and every root that comes into use, in the order in which they happen, and sees
//! through [`Witness`] everything that any CPU remembers: translations, walk caches, and walks in
//! flight. Nothing here looks at what the memory manager believes.
//!
//! Whether something remembered can be used now ([`CachedEntryState`]): a translation if it stands
//! under the tag in use (or is global) and the CPU is not lazy; a walk-cache entry already if it
//! stands under the tag in use, because the walker of a lazy CPU still reads tables speculatively;
//! a walk in flight always, but what it has found is a translation.

use crate::access::Translation;
use crate::core::Core;
use crate::explore::{Held, WalkersView};
use crate::machine::Sim;
use crate::reach_counts::ReachCounts;
use crate::tlb::{Hit, Key, RootId};
use crate::walk::View;
use pagewright_arch::Isa;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, MemoryAccess, Witness};
use pagewright_types::{Access, CpuId, IsaKind, Order, PageRange, Pfn, PhysAddr, VirtAddr};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A judge that listens, and the counts that are kept for it.
#[derive(Clone)]
pub(crate) struct Binding {
    judge: Rc<RefCell<dyn Judge>>,
    reached: Rc<ReachCounts>,
}

/// Every root table that was ever installed.
#[derive(Default)]
pub(crate) struct Roots {
    tables: Vec<Pfn>,
    ids: HashMap<Pfn, RootId>,
}

impl Roots {
    fn id(&mut self, table: Pfn) -> RootId {
        *self.ids.entry(table).or_insert_with(|| {
            self.tables.push(table);
            RootId::new(self.tables.len() - 1)
        })
    }
}

impl<I: Isa> Sim<I> {
    /// Lets `judge` hear and see everything from now on, in place of whoever did before.
    ///
    /// The machine keeps the handle until [`Sim::unbind_judge`].
    ///
    /// The judge must not act on the machine: it is called in the middle of what it judges.
    pub fn bind_judge(&self, judge: Rc<RefCell<dyn Judge>>) {
        let reached = Rc::new(ReachCounts::new(self.0.ram.words().len() / 512));
        for core in &self.0.cores {
            core.tlbs.borrow_mut().count_in(Some(&reached));
        }
        *self.0.judge.borrow_mut() = Some(Binding { judge, reached });
        self.set_judged(true);
    }

    /// Lets go of the judge.
    pub fn unbind_judge(&self) {
        self.set_judged(false);
        *self.0.judge.borrow_mut() = None;
        for core in &self.0.cores {
            core.tlbs.borrow_mut().count_in(None);
        }
    }

    pub(crate) fn id_of_root(&self, table: Pfn) -> RootId {
        self.0.roots.borrow_mut().id(table)
    }

    fn with_judge(&self, tell: impl FnOnce(&mut dyn Judge)) {
        if let Some(binding) = &*self.0.judge.borrow() {
            tell(&mut *binding.judge.borrow_mut());
        }
    }

    /// Tells of a fact declared on the current CPU.
    #[cold]
    pub(crate) fn judge_fact(&self, fact: Fact) {
        self.with_judge(|judge| judge.fact(self, self.0.current.get(), fact));
    }

    /// Tells of an access.
    pub(crate) fn judge_access(&self, cpu: CpuId, va: VirtAddr, access: Access, found: Translation, cached: bool) {
        let Some(root) = self.core(cpu).root.get() else { return };
        let at = found.pfn.base().add(va.page_offset());
        self.with_judge(|judge| judge.access(self, MemoryAccess { cpu, root: root.table, va, access, at, cached }));
    }

    /// Tells that the current CPU is about to use the root that is loaded there.
    pub(crate) fn judge_loaded(&self) {
        if let (true, Some(root)) = (self.0.judged.get(), self.here().root.get()) {
            self.with_judge(|judge| judge.loaded(self, self.0.current.get(), root.table, root.tag));
        }
    }

    /// First address of an entry, with the sign that its half of the address space has.
    fn address(key: Key) -> VirtAddr {
        match I::KIND {
            IsaKind::X86_64 => VirtAddr::new(((key.start().raw() << 16) as i64 >> 16) as u64),
            IsaKind::Aarch64 => key.start(),
        }
    }

    /// Tells what one CPU remembers, or what of that is for addresses of `range`.
    fn tell_of(&self, cpu: CpuId, core: &Core, range: Option<PageRange>, tell: &mut dyn FnMut(CachedEntry)) {
        let wanted = |key: Key| {
            range.is_none_or(|range| {
                let start = Self::address(key);
                start < range.end() && range.start() < start.add(key.level().span())
            })
        };
        let roots = self.0.roots.borrow();
        let in_use = |key: Key| core.root.get().is_some_and(|root| key.answers(root.tag));
        let state = |usable| if usable { CachedEntryState::Usable } else { CachedEntryState::Condemned };
        let cached = |key: Key, root: RootId, kind, usable| CachedEntry {
            cpu,
            kind,
            tag: key.tag(),
            root: roots.tables[root.index()],
            va: Self::address(key),
            level: key.level(),
            global: key.is_global(),
            state: state(usable),
        };
        let tlbs = core.tlbs.borrow();
        let mut translation = |hit: Hit| {
            if wanted(hit.key) {
                let kind = CachedEntryKind::Translation { pfn: hit.entry.pfn(), rights: hit.entry.rights() };
                tell(cached(hit.key, hit.entry.root(), kind, in_use(hit.key) && !core.lazy.get()));
            }
        };
        tlbs.translations(range, &mut translation);
        core.in_flight.conflicts.borrow().iter().copied().for_each(translation);
        tlbs.uppers(range, |key, upper| {
            if wanted(key) {
                tell(cached(key, upper.root, CachedEntryKind::Table { table: upper.table }, in_use(key)));
            }
        });
        for flight in core.in_flight.walks.borrow().iter() {
            let (kind, level, global) = match flight.held {
                Held::Table(walk) => (CachedEntryKind::Walk { table: walk.table }, walk.level, false),
                Held::Leaf(found) => {
                    (CachedEntryKind::Translation { pfn: found.pfn, rights: found.rights }, found.level, found.global)
                }
            };
            let (tag, root) = (flight.root.tag, flight.root.table);
            let va = flight.va.align_down(level.span());
            let key = Key::new(tag, level, va);
            let reads = matches!(flight.held, Held::Table(_));
            let state = state(reads || (in_use(key) || global) && !core.lazy.get());
            if wanted(key) {
                tell(CachedEntry { cpu, kind, tag, root, va, level, global, state });
            }
        }
    }
}

impl<I: Isa> Witness for Sim<I> {
    fn cached(&self, tell: &mut dyn FnMut(CachedEntry)) {
        for (index, core) in self.0.cores.iter().enumerate() {
            self.tell_of(CpuId::new(index as u16), core, None, tell);
        }
    }

    fn cached_in(&self, range: PageRange, tell: &mut dyn FnMut(CachedEntry)) {
        for (index, core) in self.0.cores.iter().enumerate() {
            self.tell_of(CpuId::new(index as u16), core, Some(range), tell);
        }
    }

    fn might_reach(&self, pfn: Pfn, order: Order) -> bool {
        // Few enough to be told one by one, and not counted.
        let under_way =
            self.0.exploring.get()
                && self.0.cores.iter().any(|core| {
                    !core.in_flight.walks.borrow().is_empty() || !core.in_flight.conflicts.borrow().is_empty()
                });
        under_way || self.0.judge.borrow().as_ref().is_none_or(|binding| binding.reached.any(pfn, order))
    }

    fn word(&self, at: PhysAddr) -> u64 {
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        memory.load_entry(at.align_down(8))
    }

    fn stored(&self, at: PhysAddr) -> u64 {
        self.0.ram.load_entry(at.align_down(8))
    }

    fn stores_wait(&self) -> bool {
        !self.0.in_flight.stores.borrow().is_empty()
    }
}
