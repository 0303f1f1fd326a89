//! The places of the machine that a step reads and writes: which steps commute.
//!
//! Two steps commute if neither writes a place that the other touches. A search that takes every
//! order of conflicting steps, and one order of those that commute, sees every result
//! ([`Footprint::conflicts`]). The machine records the footprint of each step of a CPU while it is
//! taken ([`Sim::touch`]), and predicts those of the other agents ([`super::acts`]).
//!
//! Footprints are conservative: they name whole ranges, and every step of a CPU reads all of memory
//! once the code under test has pointers to it. Steps of two CPUs are never compared, because
//! programs share memory that the machine cannot see.
//!
//! Not in a footprint, because no program and no rule of the oracle can observe it: clocks, counts
//! of events, and the order in which full sets replace entries.
//!
//! **INV-CHECK-FACTS** An act commutes with a declared fact only if the fact speaks of nothing that
//! the act changes: the return of a call, of what CPUs hold where the call takes rights; the
//! release and the reuse of a frame, of what leads to it. Otherwise a schedule with a finding is
//! left out.

use super::stores::Stores;
use crate::machine::Sim;
use crate::pointer_stores::PointerStores;
use crate::walk::{WalkPosition, WalkStep};
use pagewright_arch::{InvalidateTarget, Isa, Pte, PteSlot};
use pagewright_types::judge::Fact;
use pagewright_types::{Access, CpuId, IsaKind, Level, Pfn, PhysAddr, VirtAddr};

/// What a [`Touch`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// Words of memory, by physical address.
    Memory,
    /// The same words as walkers see them.
    WalkersView,
    /// The store buffer of a CPU.
    StoreBuffer(CpuId),
    /// Translations that a CPU caches, by virtual address.
    Translations(CpuId),
    /// Walk-cache entries of a CPU for entries of one level, by virtual address.
    Paths(CpuId, u8),
    /// Walks in flight on a CPU: their steps read, what cancels or dooms them writes.
    Walks(CpuId),
    /// The root that a CPU has loaded.
    Root(CpuId),
    /// Broadcasts that are not complete: their arrivals read, their completion writes.
    Broadcasts,
    /// What CPUs hold that a call's return may object to, by virtual address.
    ///
    /// Acts write it, and the return of a call reads the ranges in which the call takes rights.
    Held,
    /// What CPUs hold that leads to a frame, by physical address.
    ///
    /// Acts write it, and the release and the reuse of a frame read it.
    Reached,
}

/// Addresses of one kind of place that a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touch {
    pub(crate) what: Touched,
    pub(crate) start: u64,
    /// The last address; ranges may reach the end of the address space.
    pub(crate) last: u64,
    pub(crate) writes: bool,
}

impl Touch {
    pub(crate) fn reads(what: Touched, (start, last): (u64, u64)) -> Self {
        Self { what, start, last, writes: false }
    }

    pub(crate) fn writes(what: Touched, (start, last): (u64, u64)) -> Self {
        Self { what, start, last, writes: true }
    }

    fn meets(&self, other: &Self) -> bool {
        self.what == other.what && self.start <= other.last && other.start <= self.last
    }

    /// Whether a judge can observe that it was written.
    fn is_judged(&self) -> bool {
        match self.what {
            Touched::WalkersView
            | Touched::Translations(_)
            | Touched::Paths(..)
            | Touched::Walks(_)
            | Touched::Root(_)
            | Touched::Broadcasts => true,
            // These two go together with a touch of what is held.
            Touched::Held | Touched::Reached => false,
            Touched::Memory | Touched::StoreBuffer(_) => false,
        }
    }
}

/// The whole address space.
pub(crate) const EVERYWHERE: (u64, u64) = (0, u64::MAX);

/// The word at `at`.
pub(crate) fn word(at: PhysAddr) -> (u64, u64) {
    (at.raw(), at.raw() + 7)
}

/// The bytes of a leaf of `level` that begins at `pfn`; of a table, with [`Level::PTE`].
pub(crate) fn frames(pfn: Pfn, level: Level) -> (u64, u64) {
    (pfn.base().raw(), pfn.base().raw() + (level.span() - 1))
}

/// The addresses that an entry of `level` for `va` translates.
pub(crate) fn span(va: VirtAddr, level: Level) -> (u64, u64) {
    let start = va.align_down(level.span());
    (start.raw(), start.raw() + (level.span() - 1))
}

/// The addresses whose translations `target` removes.
pub(crate) fn named(target: InvalidateTarget) -> (u64, u64) {
    match target {
        InvalidateTarget::Page { va, level, .. } | InvalidateTarget::PageOfAllTags { va, level, .. } => {
            span(va, level.of_same_tree(Level::PTE.raw()))
        }
        InvalidateTarget::Range { range, .. } => (range.start().raw(), range.end().raw().wrapping_sub(1)),
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags | InvalidateTarget::Everything => EVERYWHERE,
    }
}

/// The places that one step, or a sequence of steps, reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    touches: Vec<Touch>,
    /// Whether a judge looks at what CPUs cache, or at what walkers see.
    judged: bool,
    /// Whether a walk in flight begins, goes on or ends: a judge can observe that.
    walks: bool,
}

impl Footprint {
    /// Whether the order of the two steps may matter.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.judges(other)
            || other.judges(self)
            || self.touches.iter().any(|own| {
                let meets = |touch: &Touch| (own.writes || touch.writes) && own.meets(touch);
                other.touches.iter().any(meets)
            })
    }

    /// Whether a judge, in this step, can observe what `other` does.
    fn judges(&self, other: &Self) -> bool {
        self.judged && (other.walks || other.touches.iter().any(|touch| touch.writes && touch.is_judged()))
    }

    /// Adds what `other` touches.
    pub fn add(&mut self, other: &Self) {
        self.judged |= other.judged;
        self.walks |= other.walks;
        other.touches.iter().for_each(|touch| self.touch(*touch));
    }

    pub(crate) fn touch(&mut self, touch: Touch) {
        if !self.touches.contains(&touch) {
            self.touches.push(touch);
        }
    }

    pub(crate) fn walks(&mut self) {
        self.walks = true;
    }

    /// The same footprint without a part, by which a test breaks the relation.
    #[doc(hidden)]
    #[must_use]
    pub fn without(&self, part: FootprintPart) -> Self {
        let keep = |touch: &&Touch| match (part, touch.what) {
            (FootprintPart::Translations, Touched::Translations(_))
            | (FootprintPart::Held, Touched::Held)
            | (FootprintPart::Reached, Touched::Reached) => false,
            (FootprintPart::Translations | FootprintPart::Held | FootprintPart::Reached, _) => true,
        };
        Self { touches: self.touches.iter().filter(keep).copied().collect(), ..*self }
    }
}

/// A part of a [`Footprint`] that a test leaves out.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FootprintPart {
    Translations,
    Held,
    Reached,
}

impl<I: Isa> Sim<I> {
    /// Begins to record the footprint of a step, or forgets the last one.
    pub(crate) fn begin_footprint(&self) {
        let mut footprint = Footprint::default();
        if self.pointer_stores() != PointerStores::Unseen {
            footprint.touch(Touch::reads(Touched::Memory, EVERYWHERE));
        }
        *self.0.in_flight.footprint.borrow_mut() = Some(footprint);
    }

    /// Ends the recording.
    pub(crate) fn take_footprint(&self) -> Footprint {
        self.0.in_flight.footprint.take().unwrap_or_default()
    }

    /// Records a touch of the current step, if its footprint is recorded.
    #[inline]
    pub(crate) fn touch(&self, touch: impl FnOnce() -> Touch) {
        if let Some(footprint) = &mut *self.0.in_flight.footprint.borrow_mut() {
            footprint.touch(touch());
        }
    }

    /// Records that a judge looks at what CPUs cache in the current step.
    pub(crate) fn touch_all_judged(&self) {
        if let Some(footprint) = &mut *self.0.in_flight.footprint.borrow_mut() {
            footprint.judged = true;
        }
    }

    /// Records what draining does to the walkers' view, in `drain`.
    pub(crate) fn draining(&self, drain: impl FnOnce(&mut Stores)) {
        let stores = &self.0.in_flight.stores;
        if self.0.in_flight.footprint.borrow().is_none() || stores.borrow().is_empty() {
            return drain(&mut stores.borrow_mut());
        }
        let before = stores.borrow().words();
        drain(&mut stores.borrow_mut());
        let after = stores.borrow().words();
        for (cpu, at) in before.into_iter().filter(|store| !after.contains(store)) {
            self.touch(|| Touch::writes(Touched::WalkersView, word(at)));
            self.touch(|| Touch::writes(Touched::StoreBuffer(cpu), word(at)));
        }
    }

    /// The levels above that of base pages.
    pub(super) fn upper_levels(&self) -> impl Iterator<Item = Level> + use<I> {
        let last = self.0.config.last_level();
        (Level::PTE.raw() + 1..=self.0.config.top().raw()).map(move |raw| last.of_same_tree(raw))
    }

    /// Records that the current CPU begins a walk for `va`.
    pub(crate) fn touch_walk_start(&self, va: VirtAddr) {
        let cpu = self.0.current.get();
        self.touch(|| Touch::reads(Touched::Walks(cpu), span(va, self.0.config.last_level())));
        for level in self.upper_levels() {
            self.touch(|| Touch::reads(Touched::Paths(cpu, level.raw()), span(va, level)));
        }
    }

    /// Records that a walk for `va` on `cpu` has read the entry at `position`.
    pub(crate) fn touch_walk_read(&self, cpu: CpuId, position: WalkPosition, va: VirtAddr, step: WalkStep) {
        let at = word(position.slot(va).addr());
        self.touch(|| Touch::reads(Touched::Walks(cpu), span(va, self.0.config.last_level())));
        self.touch(|| Touch::reads(Touched::WalkersView, at));
        let updates = match step {
            WalkStep::Down { updated, .. } => {
                self.touch(|| Touch::writes(Touched::Paths(cpu, position.level.raw()), span(va, position.level)));
                updated
            }
            WalkStep::Arrived { updated, .. } => updated,
            WalkStep::Again => true,
            WalkStep::Refused { .. } => false,
        };
        if updates {
            self.walk_stored(position.slot(va).addr());
            self.touch(|| Touch::writes(Touched::WalkersView, at));
            self.touch(|| Touch::writes(Touched::Memory, at));
        }
    }

    /// Records what a fault at `va` drops on the current CPU.
    pub(crate) fn touch_dropped_on_fault(&self, va: VirtAddr) {
        if I::KIND == IsaKind::X86_64 {
            let cpu = self.0.current.get();
            self.touch(|| Touch::writes(Touched::Translations(cpu), span(va, self.0.config.last_level())));
            for level in self.upper_levels() {
                self.touch(|| Touch::writes(Touched::Paths(cpu, level.raw()), span(va, level)));
            }
        }
    }

    /// Records that a program accesses the word at `at`, which may be in a page table.
    pub(crate) fn touch_accessed(&self, at: PhysAddr, access: Access) {
        let at = word(at.align_down(8));
        if access == Access::Write {
            self.touch(|| Touch::writes(Touched::WalkersView, at));
            self.touch(|| Touch::writes(Touched::Memory, at));
        }
        self.touch(|| Touch::reads(Touched::Memory, at));
        self.touch_if_replaced();
    }

    /// Records a store of an entry in place of `old`.
    ///
    /// On arm64 a judge looks for break-before-make at each store of a valid entry.
    pub(crate) fn touch_stored(&self, slot: PteSlot, new: Pte, old: Pte) {
        self.touch(|| Touch::writes(Touched::Memory, word(slot.addr())));
        self.touch(|| Touch::writes(Touched::StoreBuffer(self.0.current.get()), word(slot.addr())));
        if I::KIND == IsaKind::Aarch64 && new.raw() & 1 != 0 {
            self.touch_all_judged();
            if old.raw() & 1 != 0 {
                self.0.in_flight.replaced_live.set(true);
            }
        }
        self.touch_if_replaced();
    }

    /// A live entry was replaced: a judge looks at each later store, for what CPUs still hold.
    pub(crate) fn touch_if_replaced(&self) {
        if self.0.in_flight.replaced_live.get() {
            self.touch_all_judged();
        }
    }

    /// Records that the current CPU loads a root, and whether that flushes.
    pub(crate) fn touch_root_installed(&self, flushes: bool) {
        let cpu = self.0.current.get();
        self.touch(|| Touch::writes(Touched::Root(cpu), EVERYWHERE));
        if flushes {
            self.touch_invalidated(cpu, InvalidateTarget::Everything);
        }
        if I::KIND == IsaKind::X86_64 {
            self.touch(|| Touch::writes(Touched::Walks(cpu), EVERYWHERE));
        }
        self.touch_all_judged();
    }

    /// Records that `fact` is declared on the current CPU.
    ///
    /// The return of a call looks at what CPUs hold where it takes rights, and at the tables that
    /// lead there. The release and the reuse of frames look at what leads to them and, if they were
    /// parked, at their contents. Other facts are taken to look at everything (INV-CHECK-FACTS).
    pub(crate) fn touch_declared(&self, fact: Fact) {
        let (cpu, reducing) = (self.0.current.get(), &self.0.in_flight.reducing);
        match fact {
            // The judge looks at what CPUs cache when the call returns; here it only counts.
            Fact::RightReduced { range, .. } => {
                if self.0.judged.get() {
                    reducing.borrow_mut().push((cpu, range));
                }
            }
            Fact::CallReturned => {
                let mut taken = Vec::new();
                reducing.borrow_mut().retain(|(by, range)| {
                    taken.extend((*by == cpu).then_some(*range));
                    *by != cpu
                });
                for range in &taken {
                    let held = (range.start().raw(), range.end().raw().wrapping_sub(1));
                    self.touch(|| Touch::reads(Touched::Held, held));
                    self.touch(|| Touch::reads(Touched::WalkersView, EVERYWHERE));
                    self.touch(|| Touch::reads(Touched::Memory, EVERYWHERE));
                }
                self.touch_if_replaced();
            }
            Fact::FrameReleased { pfn, order } | Fact::FrameReused { pfn, order } => {
                let bytes = (pfn.base().raw(), pfn.base().raw() + (order.bytes() - 1));
                self.touch(|| Touch::reads(Touched::Reached, bytes));
                self.touch(|| Touch::reads(Touched::Memory, bytes));
                self.touch_if_replaced();
            }
            Fact::RightDeferred { .. } | Fact::TableShared { .. } => {
                self.0.in_flight.replaced_live.set(true);
                self.touch_all_judged();
            }
            Fact::FrameFreed { .. }
            | Fact::PageMoved { .. }
            | Fact::PageFilled { .. }
            | Fact::PagesRemoved { .. }
            | Fact::PageReplaced { .. }
            | Fact::EditInPlace { .. } => self.touch_all_judged(),
        }
    }

    /// Records that everything that `target` may name is removed from `cpu`.
    pub(crate) fn touch_invalidated(&self, cpu: CpuId, target: InvalidateTarget) {
        if let Some(footprint) = &mut *self.0.in_flight.footprint.borrow_mut() {
            invalidated(footprint, cpu, target);
        }
    }
}

/// Adds to `footprint` that everything that `target` may name is removed from `cpu`.
pub(crate) fn invalidated(footprint: &mut Footprint, cpu: CpuId, target: InvalidateTarget) {
    footprint.touch(Touch::writes(Touched::Translations(cpu), named(target)));
    for raw in 0..Level::MOST as u8 {
        footprint.touch(Touch::writes(Touched::Paths(cpu, raw), EVERYWHERE));
    }
    footprint.touch(Touch::writes(Touched::Walks(cpu), EVERYWHERE));
}
