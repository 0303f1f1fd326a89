//! The interface between the machine and a judge.
//!
//! [`Sim::bind_judge`] binds a [`Judge`]. The machine tells it, in order, every declared fact,
//! every access, and every root that is loaded. Through [`Witness`] the judge sees everything that
//! any CPU has cached: translations, walk caches, and walks in flight. Nothing here depends on the
//! state of the memory manager.
//!
//! A cached entry is usable now ([`CachedEntryState`]) as follows:
//! - a translation, if its tag is loaded or it is global, and the CPU is not in lazy TLB mode or
//!   the kernel accesses the address;
//! - a walk-cache entry, if its tag is loaded; on a lazy CPU only by speculative walks;
//! - a walk in flight that is about to read a table, if its tag is loaded; otherwise, and on a lazy
//!   CPU, it is speculative. One that has found a leaf counts as a translation.

use crate::access::Translation;
use crate::core::{Core, Root};
use crate::explore::footprint::{Touch, Touched, word};
use crate::explore::{StateHash, WalkState, WalkersView};
use crate::machine::Sim;
use crate::reach_counts::ReachCounts;
use crate::tlb::{Key, RootId, TlbHit};
use crate::walk::{Privilege, WalkPosition, WalkStep, WalkerMemory};
use pagewright_arch::{Isa, Pte, PteSlot};
use pagewright_types::judge::{
    CachedEntry, CachedEntryKind, CachedEntryState, Fact, Judge, MemoryAccess, WalkedPlace, Witness,
};
use pagewright_types::{Access, CpuId, CpuMask, FrameRange, IsaKind, Order, PageRange, Pfn, PhysAddr, VirtAddr};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A bound judge, and the counts that are kept for it.
#[derive(Clone)]
pub(crate) struct BoundJudge {
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

    /// The table of a root.
    pub(crate) fn table(&self, id: RootId) -> Pfn {
        self.tables[id.index()]
    }

    /// Whether one of `frames` was ever a root.
    fn is_any(&self, frames: FrameRange) -> bool {
        (frames.start().raw()..frames.end().raw()).any(|pfn| self.ids.contains_key(&Pfn::new(pfn)))
    }
}

impl<I: Isa> Sim<I> {
    /// Binds `judge` in place of the judge that was bound before.
    ///
    /// The machine owns the handle until [`Sim::unbind_judge`]. The judge must not act on the
    /// machine: it is called in the middle of the operation that it judges.
    pub fn bind_judge(&self, judge: Rc<RefCell<dyn Judge>>) {
        let reached = Rc::new(ReachCounts::new(self.0.ram.words().len() / 512, self.0.config.last_level()));
        for core in self.0.cores.iter() {
            core.tlbs.borrow_mut().count_in(Some(&reached));
        }
        *self.0.judge.borrow_mut() = Some(BoundJudge { judge, reached });
        self.set_judged(true);
    }

    /// Drops the judge.
    pub fn unbind_judge(&self) {
        self.set_judged(false);
        *self.0.judge.borrow_mut() = None;
        for core in self.0.cores.iter() {
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

    /// Adds the state of the judge to `state`; returns whether that is all of it.
    pub(crate) fn hash_judge(&self, state: &mut StateHash) -> bool {
        let judge = self.0.judge.borrow();
        judge.as_ref().is_none_or(|binding| binding.judge.borrow().state(&mut |part| state.add_part(part)))
    }

    /// Tells the judge of a fact declared on the current CPU.
    #[cold]
    pub(crate) fn judge_fact(&self, fact: Fact) {
        self.with_judge(|judge| judge.fact(self, self.0.current.get(), fact));
        if let Fact::FrameFreed { pfn, order } | Fact::FrameReleased { pfn, order } | Fact::FrameReused { pfn, order } =
            fact
        {
            let frames = FrameRange::new(pfn, pfn.add(order.frames()));
            self.0.walked.borrow_mut().forget_tables(frames);
            self.0.pointer_stores.forget(frames);
            if self.0.roots.borrow().is_any(frames) {
                self.0.walked.borrow_mut().forget_roots(frames);
            }
        }
    }

    /// Records that a walk has read an entry, if a judge is bound.
    #[inline]
    pub(crate) fn record_walked(&self, root: Root, va: VirtAddr, at: WalkPosition, step: WalkStep) {
        if !self.0.judged.get() {
            return;
        }
        let (pfn, is_leaf) = match step {
            WalkStep::Down { next, .. } => (next.table, false),
            WalkStep::Arrived { found, .. } => (found.pfn, true),
            WalkStep::Again | WalkStep::Refused { .. } => return,
        };
        let va = va.align_down(at.level.span());
        let place = WalkedPlace { root: root.table, tag: root.tag, va, level: at.level, pfn, is_leaf };
        self.0.walked.borrow_mut().record(at.slot(va), place);
    }

    /// Records that the kernel reads an entry of `table`, if it does so in a lockless walk.
    #[inline]
    pub(crate) fn record_lockless(&self, table: Pfn) {
        if self.0.judged.get() && self.here().interrupts_off.get() > 0 {
            self.here().lockless_walk.borrow_mut().push(table);
        }
    }

    /// Tells the judge that the current CPU has stored an entry.
    #[inline]
    pub(crate) fn judge_stored(&self, slot: PteSlot, old: Pte, new: Pte) {
        if self.0.judged.get() && old != new {
            self.with_judge(|judge| {
                judge.entry_stored(self, self.0.current.get(), slot.addr(), old.raw(), new.raw());
            });
            self.0.pointer_stores.seen(I::KIND, &self.0.ram, slot, new.raw());
            self.forget_walked(slot, new);
        }
    }

    /// Tells the judge that the current CPU has stored an entry through a pointer.
    pub(crate) fn judge_pointer_stored(&self, slot: PteSlot, old: Pte, new: Pte) {
        self.touch_stored(slot, new, old);
        self.touch(|| Touch::writes(Touched::WalkersView, word(slot.addr())));
        self.with_judge(|judge| {
            judge.pointer_stored(self, self.0.current.get(), slot.addr(), old.raw(), new.raw());
        });
        self.forget_walked(slot, new);
    }

    /// Forgets what walks have translated by an entry, if it leads elsewhere now.
    ///
    /// A word that is not present leads nowhere, so what it led to before stays of interest.
    fn forget_walked(&self, slot: PteSlot, new: Pte) {
        if new.raw() & 1 != 0 {
            self.0.walked.borrow_mut().forget(slot);
        }
    }

    /// Tells the judge that the kernel on the current CPU has written to frames.
    pub(crate) fn judge_written(&self, frames: FrameRange) {
        if self.0.judged.get() {
            self.with_judge(|judge| judge.written(self, self.0.current.get(), frames));
        }
    }

    /// Notes that the kernel has filled a block, which instruction fetches of arm64 may not see.
    pub(crate) fn note_filled(&self, pfn: Pfn, order: Order) {
        if self.0.judged.get() && I::KIND == IsaKind::Aarch64 {
            self.0.unfetchable.borrow_mut().extend((0..order.frames()).map(|frame| pfn.add(frame)));
        }
    }

    /// Tells the judge of an access.
    ///
    /// # Panics
    /// INV-CODE-VISIBLE: when an instruction is fetched from a frame that the kernel has zeroed or
    /// copied to, and not made visible to fetches.
    pub(crate) fn judge_access(&self, cpu: CpuId, va: VirtAddr, access: Access, found: Translation, cached: bool) {
        let Some(root) = self.core(cpu).root_for(I::KIND, va) else { return };
        let unseen = access == Access::Exec && self.0.unfetchable.borrow().contains(&found.pfn);
        assert!(!unseen, "INV-CODE-VISIBLE: CPU {cpu} fetches from {va}, whose frame {} it may not see", found.pfn);
        let at = found.pfn.base().add(va.page_offset());
        self.with_judge(|judge| judge.access(self, MemoryAccess { cpu, root: root.table, va, access, at, cached }));
    }

    /// Tells the judge that the current CPU starts to use its loaded root.
    pub(crate) fn judge_loaded(&self) {
        if let (true, Some(root)) = (self.0.judged.get(), self.here().root.get()) {
            self.with_judge(|judge| judge.loaded(self, self.0.current.get(), root.table, root.tag));
        }
    }

    /// Tells the judge that the current CPU starts to use a root for the upper half.
    pub(crate) fn judge_kernel_loaded(&self, root: Pfn) {
        if self.0.judged.get() {
            self.with_judge(|judge| judge.kernel_loaded(self, self.0.current.get(), root));
        }
    }

    /// Calls `tell` for the entries that one CPU has cached, or for those of `range`.
    fn tell_cached(&self, cpu: CpuId, core: &Core, range: Option<PageRange>, tell: &mut dyn FnMut(CachedEntry)) {
        let wanted = |key: Key| {
            range.is_none_or(|range| {
                let start = key.start();
                start < range.end() && range.start() < start.add(key.level().span())
            })
        };
        let roots = self.0.roots.borrow();
        let in_use = |key: Key| core.root.get().is_some_and(|root| key.is_valid_under(root.tag));
        // A lazy CPU runs a kernel thread, which uses the kernel's addresses.
        let lazy_at = |va: VirtAddr| core.lazy.get() && self.0.config.privilege_at(va) == Privilege::User;
        let translates = |usable, va| match usable && !lazy_at(va) {
            true => CachedEntryState::Usable,
            false => CachedEntryState::Condemned,
        };
        let cached = |key: Key, root: RootId, kind, state| CachedEntry {
            cpu,
            kind,
            tag: key.tag(),
            root: roots.tables[root.index()],
            va: key.start(),
            level: key.level(),
            global: key.is_global(),
            state,
        };
        let tlbs = core.tlbs.borrow();
        let mut translation = |hit: TlbHit| {
            if wanted(hit.key) {
                let kind = CachedEntryKind::Translation { pfn: hit.entry.pfn(), rights: hit.entry.rights() };
                tell(cached(hit.key, hit.entry.root(), kind, translates(in_use(hit.key), hit.key.start())));
            }
        };
        tlbs.translations(range, &mut translation);
        core.in_flight.conflicts.borrow().iter().copied().for_each(translation);
        tlbs.walk_caches(range, |key, upper| {
            if wanted(key) {
                let kind = CachedEntryKind::Table { table: upper.table, allows: upper.allows };
                let state = match (in_use(key), lazy_at(key.start())) {
                    (true, false) => CachedEntryState::Usable,
                    (true, true) => CachedEntryState::Speculative,
                    (false, _) => CachedEntryState::Condemned,
                };
                tell(cached(key, upper.root, kind, state));
            }
        });
        for walk in core.in_flight.walks.borrow().iter() {
            let (kind, level, global) = match walk.state {
                WalkState::Table(next) => {
                    (CachedEntryKind::Walk { table: next.table, allows: next.allows }, next.level, false)
                }
                WalkState::Leaf(found) => {
                    (CachedEntryKind::Translation { pfn: found.pfn, rights: found.rights }, found.level, found.global)
                }
            };
            let (tag, root) = (walk.root.tag, walk.root.table);
            let va = walk.va.align_down(level.span());
            let key = Key::new(tag, level, va);
            let state = match walk.state {
                WalkState::Table(_) if in_use(key) && !lazy_at(va) => CachedEntryState::Usable,
                WalkState::Table(_) => CachedEntryState::Speculative,
                WalkState::Leaf(_) => translates(in_use(key) || global, va),
            };
            if wanted(key) {
                tell(CachedEntry { cpu, kind, tag, root, va, level, global, state });
            }
        }
    }
}

impl<I: Isa> Witness for Sim<I> {
    fn cached(&self, tell: &mut dyn FnMut(CachedEntry)) {
        for (index, core) in self.0.cores.iter().enumerate() {
            self.tell_cached(CpuId::new(index as u16), core, None, tell);
        }
    }

    fn cached_in(&self, range: PageRange, tell: &mut dyn FnMut(CachedEntry)) {
        for (index, core) in self.0.cores.iter().enumerate() {
            self.tell_cached(CpuId::new(index as u16), core, Some(range), tell);
        }
    }

    fn might_reach(&self, pfn: Pfn, order: Order) -> bool {
        // Walks in flight and conflicts are few and not counted, so the judge looks at each of
        // them.
        let in_flight =
            self.0.exploring.get()
                && self.0.cores.iter().any(|core| {
                    !core.in_flight.walks.borrow().is_empty() || !core.in_flight.conflicts.borrow().is_empty()
                });
        in_flight || self.0.judge.borrow().as_ref().is_none_or(|binding| binding.reached.any(pfn, order))
    }

    fn walked_at(&self, at: PhysAddr, visit: &mut dyn FnMut(WalkedPlace)) {
        let slot = PteSlot::containing(at, self.0.config.granule);
        self.0.walked.borrow().of(slot).iter().copied().for_each(visit);
    }

    fn is_walked_table(&self, pfn: Pfn) -> bool {
        self.0.walked.borrow().has_table(pfn)
    }

    fn uninterruptible(&self) -> CpuMask {
        let cores = self.0.cores.iter().enumerate().filter(|(_, core)| core.interrupts_off.get() > 0);
        cores.map(|(index, _)| CpuId::new(index as u16)).collect()
    }

    fn lockless_walks(&self, visit: &mut dyn FnMut(CpuId, &[Pfn])) {
        for (index, core) in self.0.cores.iter().enumerate() {
            let tables = core.lockless_walk.borrow();
            if !tables.is_empty() {
                visit(CpuId::new(index as u16), &tables);
            }
        }
    }

    fn word(&self, at: PhysAddr) -> u64 {
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        if self.0.ram.has(at) { memory.load_entry(at.align_down(8)) } else { 0 }
    }

    fn stored(&self, at: PhysAddr) -> u64 {
        if self.0.ram.has(at) { self.0.ram.load_entry(at.align_down(8)) } else { 0 }
    }

    fn stores_wait(&self) -> bool {
        !self.0.in_flight.stores.borrow().is_empty()
    }

    fn store_waits(&self, cpu: CpuId, at: PhysAddr) -> bool {
        self.0.in_flight.stores.borrow().holds(cpu, at.align_down(8))
    }
}
