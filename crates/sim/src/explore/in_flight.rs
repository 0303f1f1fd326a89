//! What is in flight in explore mode.
//!
//! In flight are stores, walks, broadcasts and IPIs; conflicting translations are kept here too. In
//! fast mode nothing is in flight. This file says what each operation does to the machine; the
//! scheduler ([`super::run`]) decides when. Together they reach every outcome that the manuals
//! allow and no other (INV-SIM-LITMUS).
//!
//! **Break-before-make.** On arm64 a TLB may be filled while an older translation for the same
//! address, to another frame or of another size, has not been invalidated. The older translation is
//! then kept in `conflicts`. An access may use either, or an amalgamation of the two (here: the
//! address of one and the rights of the other), or take a TLB Conflict abort (Arm ARM D8.16.1 and
//! D8.16.3, CONSTRAINED UNPREDICTABLE). The schedule chooses. If neither may be stored through and
//! their size is the same, the manual requires no break-before-make for equal contents, and only
//! one of the two is used.
//!
//! **INV-SIM-LITMUS** The machine reaches what the manuals allow and nothing that they forbid, for
//! the shapes in `docs/litmus.md`.

use super::coroutine::{self, Resume};
use super::footprint::{EVERYWHERE, Footprint, Touch, Touched, span, word};
use super::point::StopPoint;
use super::state::SeenByPrograms;
use super::stores::{Observer, Stores, WalkersView};
use super::walks::{Broadcast, Serial, WalkInFlight, WalkState, removes, tag_named};
use crate::core::{Core, Root};
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::invalidate::{drop_aarch64, drop_invlpgb};
use crate::machine::Sim;
use crate::tlb::{Depth, Side, TlbHit, Tlbs};
use crate::walk::{WalkPosition, WalkStep};
use pagewright_arch::{InvalidateTarget, Isa};
use pagewright_types::{Access, CpuId, CpuMask, IsaKind, Level, Order, PageRange, Pfn, PhysAddr, Rights, VirtAddr};
use std::cell::{Cell, RefCell};

/// The most addresses near which walks are speculated.
const RECENT: usize = 16;
/// The most conflicting translations of one CPU.
const CONFLICTS: usize = 4;

/// What is in flight on the whole machine.
#[derive(Default)]
pub(crate) struct InFlight {
    pub(crate) stores: RefCell<Stores>,
    pub(crate) broadcasts: RefCell<Vec<Broadcast>>,
    /// The pages that programs accessed last, on any CPU.
    pub(crate) recent: RefCell<Vec<VirtAddr>>,
    next: Cell<u64>,
    /// Steps taken in the current run.
    pub(crate) step: Cell<u64>,
    /// The footprint of the current step, while it is recorded.
    pub(crate) footprint: RefCell<Option<Footprint>>,
    /// Whether a judge looks at what CPUs hold at each later store.
    ///
    /// So it is once the run has stored another entry over a live one, has deferred the loss of a
    /// right, or shares tables.
    pub(crate) replaced_live: Cell<bool>,
    /// The ranges in which calls that have not returned take rights.
    pub(crate) reducing: RefCell<Vec<(CpuId, PageRange)>>,
    /// What programs have done and seen in the current run.
    pub(crate) seen: SeenByPrograms,
    /// Broadcasts issued in the current run.
    issued: Cell<u64>,
}

/// What is in flight on one CPU.
#[derive(Default)]
pub(crate) struct CpuInFlight {
    pub(crate) walks: RefCell<Vec<WalkInFlight>>,
    /// Older translations that conflict with those in the TLBs.
    pub(crate) conflicts: RefCell<Vec<TlbHit>>,
    /// Whether an IPI is pending.
    pub(crate) ipi_pending: Cell<bool>,
}

/// The result of one step of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WalkProgress {
    /// The walk has more steps.
    More,
    /// The TLBs are filled.
    Filled(TlbHit),
    /// An entry refuses the access.
    Refused { present: bool },
    /// The walk was cancelled before the step.
    Cancelled,
}

/// The answer of the TLBs of a CPU to a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TlbAnswer {
    /// The translation to use; `None` if the tables must be walked.
    Translation(Option<TlbHit>),
    /// Conflicting translations were found, and the access is aborted (arm64).
    ConflictAbort,
}

impl CpuInFlight {
    /// Whether a speculative walk for `va` is in flight.
    pub(crate) fn speculates(&self, va: VirtAddr) -> bool {
        self.walks.borrow().iter().any(|walk| !walk.demanded && walk.va == va)
    }
}

impl InFlight {
    fn serial(&self) -> Serial {
        self.next.set(self.next.get() + 1);
        Serial(self.next.get())
    }

    /// Records that a program accesses `page`.
    pub(crate) fn note_access(&self, page: VirtAddr) {
        let mut recent = self.recent.borrow_mut();
        if !recent.contains(&page) {
            if recent.len() == RECENT {
                recent.remove(0);
            }
            recent.push(page);
        }
    }
}

impl<I: Isa> Sim<I> {
    /// Stops the CPU before `point` in explore mode; does nothing in fast mode.
    #[inline]
    pub(crate) fn stop_before(&self, point: StopPoint) {
        if self.0.exploring.get() {
            coroutine::stop_at(point);
        }
    }

    /// Records a value that the current CPU's program sees.
    #[inline]
    pub(crate) fn seen(&self, value: u64) {
        if self.0.exploring.get() {
            self.0.in_flight.seen.add(self.0.current.get(), value);
        }
    }

    /// Returns one of `ways` numbers, as the schedule chooses.
    fn choose(&self, ways: usize) -> usize {
        match coroutine::stop_at(StopPoint::Choose(ways as u32)) {
            Resume::Choice(way) => way as usize,
            Resume::Proceed | Resume::TakeInterrupt | Resume::Finish => 0,
        }
    }

    /// Starts a walk for `va` on `core`, from the lowest table that its walk caches name.
    pub(crate) fn start_walk(&self, core: &Core, root: Root, va: VirtAddr, access: Access, demanded: bool) -> Serial {
        self.touch_walk_start(va);
        let start = core.tlbs.borrow_mut().walk_start(root.tag, va);
        let state = WalkState::Table(start.unwrap_or_else(|| WalkPosition::from_root(root.table, self.0.config.top())));
        let serial = self.0.in_flight.serial();
        let walk = WalkInFlight { serial, va, access, root, state, demanded, doomed_by: Vec::new() };
        core.in_flight.walks.borrow_mut().push(walk);
        core.events.add(MachineEvent::PageWalks, 1);
        serial
    }

    /// The point before the next step of walk `serial`, or `None` if it was cancelled.
    pub(crate) fn walk_point(&self, core: &Core, serial: Serial) -> Option<StopPoint> {
        let walks = core.in_flight.walks.borrow();
        let walk = walks.iter().find(|walk| walk.serial == serial)?;
        Some(match walk.state {
            WalkState::Table(position) => StopPoint::Walk(walk.va, position.slot(walk.va)),
            WalkState::Leaf(found) => StopPoint::Fill(walk.va, found.pfn),
        })
    }

    /// Takes one step of walk `serial`.
    pub(crate) fn step_walk(&self, cpu: CpuId, core: &Core, serial: Serial) -> WalkProgress {
        let mut walks = core.in_flight.walks.borrow_mut();
        let Some(at) = walks.iter().position(|walk| walk.serial == serial) else { return WalkProgress::Cancelled };
        let walk = &mut walks[at];
        let position = match walk.state {
            WalkState::Table(position) => position,
            WalkState::Leaf(found) => {
                let walk = walks.remove(at);
                self.touch(|| Touch::writes(Touched::Translations(cpu), span(walk.va, found.level)));
                self.record_late_fill(cpu, &walk);
                let mut tlbs = core.tlbs.borrow_mut();
                let side = Side::of(walk.access);
                self.keep_conflict(core, &mut tlbs, side, walk.root, walk.va, (found.pfn, found.level));
                return WalkProgress::Filled(tlbs.fill_from_walk(side, walk.root, walk.va, found));
            }
        };
        core.events.add(MachineEvent::WalkReads, 1);
        core.pay(&self.profile().costs, Cost::WalkRead);
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        let mode = (I::KIND, self.0.config.privilege_at(walk.va));
        let step = position.step(mode, &memory, walk.va, walk.access);
        self.touch_walk_read(cpu, position, walk.va, step);
        self.record_walked(walk.root, walk.va, position, step);
        match step {
            WalkStep::Down { next, .. } => {
                walk.state = WalkState::Table(next);
                if !walk.doomed_by.is_empty() {
                    self.record_late_fill(cpu, walk);
                }
                core.tlbs.borrow_mut().fill_walk_cache(walk.root, walk.va, position.level, next);
                WalkProgress::More
            }
            WalkStep::Again => WalkProgress::More,
            WalkStep::Arrived { found, .. } => {
                walk.state = WalkState::Leaf(found);
                WalkProgress::More
            }
            WalkStep::Refused { present } => {
                walks.remove(at);
                WalkProgress::Refused { present }
            }
        }
    }

    /// Records that a doomed walk fills; the DSB of the issuer will remove what it filled.
    fn record_late_fill(&self, cpu: CpuId, walk: &WalkInFlight) {
        for broadcast in self.0.in_flight.broadcasts.borrow_mut().iter_mut() {
            if walk.doomed_by.contains(&broadcast.serial) {
                broadcast.late_fills.insert(cpu);
            }
        }
    }

    /// Before a fill on arm64, moves an older, conflicting translation to `conflicts`.
    fn keep_conflict(&self, core: &Core, tlbs: &mut Tlbs, side: Side, root: Root, va: VirtAddr, found: (Pfn, Level)) {
        if I::KIND != IsaKind::Aarch64 {
            return;
        }
        let held = tlbs.find(Depth::First, side, root.tag, va).or_else(|| tlbs.find(Depth::Second, side, root.tag, va));
        let Some(old) = held.filter(|hit| (hit.entry.pfn(), hit.key.level()) != found) else { return };
        tlbs.drop_page(root.tag, va, Some(old.key.level()), old.key.is_global());
        let frame = |pfn: Pfn, level: Level| pfn.add((va.page_index() & (level.pages() - 1)) as u32);
        let resized = frame(old.entry.pfn(), old.key.level()) == frame(found.0, found.1);
        if resized && self.0.config.bbm_level_2 {
            return;
        }
        let mut conflicts = core.in_flight.conflicts.borrow_mut();
        if conflicts.len() == CONFLICTS {
            conflicts.remove(0);
        }
        conflicts.push(old);
    }

    /// Looks `va` up in the TLBs of `core`; the schedule chooses among conflicting translations.
    pub(crate) fn tlb_lookup(&self, core: &Core, side: Side, root: Root, va: VirtAddr) -> TlbAnswer {
        self.touch(|| Touch::reads(Touched::Translations(self.0.current.get()), span(va, self.0.config.last_level())));
        self.touch(|| Touch::reads(Touched::Root(self.0.current.get()), EVERYWHERE));
        let mut answers: Vec<TlbHit> = Vec::new();
        {
            let mut tlbs = core.tlbs.borrow_mut();
            let found = match tlbs.find(Depth::First, side, root.tag, va) {
                Some(hit) => Some(hit),
                None => {
                    let hit = tlbs.find(Depth::Second, side, root.tag, va);
                    hit.into_iter().for_each(|hit| tlbs.fill(Depth::First, side, hit));
                    hit
                }
            };
            let conflicts = core.in_flight.conflicts.borrow();
            if conflicts.is_empty() {
                return TlbAnswer::Translation(found);
            }
            answers.extend(found);
            let covers = |hit: &&TlbHit| {
                let key = hit.key;
                key.is_valid_under(root.tag) && key.start() == va.align_down(key.level().span())
            };
            answers.extend(conflicts.iter().filter(covers));
        }
        if answers.len() < 2 {
            return TlbAnswer::Translation(answers.pop());
        }
        // The access uses the translation that was looked up, whatever the TLBs hold afterwards.
        let harmless = answers
            .iter()
            .all(|hit| !hit.entry.rights().contains(Rights::WRITE) && hit.key.level() == answers[0].key.level());
        if harmless {
            return TlbAnswer::Translation(answers.get(self.choose(answers.len())).copied());
        }
        let pairs = answers.iter().flat_map(|one| answers.iter().map(move |other| one.with_rights_of(other)));
        let amalgamations: Vec<TlbHit> = pairs.filter(|hit| !answers.contains(hit)).collect();
        answers.extend(amalgamations);
        match answers.get(self.choose(answers.len() + 1)) {
            Some(hit) => TlbAnswer::Translation(Some(*hit)),
            None => TlbAnswer::ConflictAbort,
        }
    }

    /// Applies a broadcast invalidation to `cpu` (arm64).
    ///
    /// It dooms the walks that hold an entry which `target` names.
    pub(crate) fn apply_broadcast(&self, serial: Serial, target: InvalidateTarget, cpu: CpuId) {
        self.touch_invalidated(cpu, target);
        let core = self.core(cpu);
        match I::KIND {
            IsaKind::X86_64 => drop_invlpgb(core, target),
            IsaKind::Aarch64 => drop_aarch64(core, target),
        }
        core.in_flight.conflicts.borrow_mut().retain(|hit| !removes(target, hit.key));
        let mut walks = core.in_flight.walks.borrow_mut();
        walks.iter_mut().filter(|walk| walk.concerned_by(target)).for_each(|walk| walk.doomed_by.push(serial));
    }

    /// Issues a broadcast invalidation from the current CPU.
    pub(crate) fn issue_broadcast(&self, target: InvalidateTarget) {
        let serial = self.0.in_flight.serial();
        let number = self.0.in_flight.issued.get();
        self.0.in_flight.issued.set(number + 1);
        let broadcast = Broadcast {
            serial,
            number,
            issuer: self.0.current.get(),
            target,
            undelivered: self.0.online.get(),
            late_fills: CpuMask::EMPTY,
        };
        self.0.in_flight.broadcasts.borrow_mut().push(broadcast);
    }

    /// Delivers one of the broadcasts that have not reached `cpu`; returns its target.
    pub(crate) fn deliver_broadcast(&self, cpu: CpuId, way: u32) -> Option<InvalidateTarget> {
        let (serial, target) = {
            let mut broadcasts = self.0.in_flight.broadcasts.borrow_mut();
            let mut coming = broadcasts.iter_mut().filter(|broadcast| broadcast.undelivered.contains(cpu));
            let broadcast = coming.nth(way as usize)?;
            broadcast.undelivered.remove(cpu);
            (broadcast.serial, broadcast.target)
        };
        self.apply_broadcast(serial, target, cpu);
        Some(target)
    }

    /// Completes the broadcasts of `issuer`, as its DSB does.
    ///
    /// Every CPU has applied them when this returns, and the walks that they doomed are cancelled.
    pub(crate) fn complete_broadcasts(&self, issuer: CpuId) {
        let mut done = Vec::new();
        self.0.in_flight.broadcasts.borrow_mut().retain_mut(|broadcast| {
            let own = broadcast.issuer == issuer;
            if own {
                done.push((broadcast.serial, broadcast.target, broadcast.undelivered, broadcast.late_fills));
            }
            !own
        });
        if !done.is_empty() {
            self.touch(|| Touch::writes(Touched::Broadcasts, EVERYWHERE));
        }
        for (serial, target, undelivered, late_fills) in done {
            for cpu in self.0.online.get().iter() {
                if undelivered.contains(cpu) || late_fills.contains(cpu) {
                    self.apply_broadcast(serial, target, cpu);
                }
                let walks = &self.core(cpu).in_flight.walks;
                for walk in walks.borrow().iter().filter(|walk| walk.doomed_by.contains(&serial)) {
                    self.touch(|| Touch::writes(Touched::Walks(cpu), span(walk.va, self.0.config.last_level())));
                }
                walks.borrow_mut().retain(|walk| !walk.doomed_by.contains(&serial));
            }
        }
    }

    /// Cancels the walks in flight that an invalidation of the current CPU's own TLBs names.
    pub(crate) fn cancel_local_walks(&self, target: InvalidateTarget) {
        self.touch_invalidated(self.0.current.get(), target);
        let here = &self.here().in_flight;
        match I::KIND {
            IsaKind::X86_64 => {
                let tag = tag_named(target);
                here.walks.borrow_mut().retain(|walk| tag.is_some_and(|tag| walk.root.tag != tag));
            }
            IsaKind::Aarch64 => {
                here.conflicts.borrow_mut().retain(|hit| !removes(target, hit.key));
                here.walks.borrow_mut().retain(|walk| !walk.concerned_by(target));
            }
        }
    }

    /// Drains the store buffer of the current CPU, so that walkers see its stores.
    pub(crate) fn drain_local_stores(&self) {
        if self.0.exploring.get() {
            self.draining(|stores| stores.drain_all(self.0.current.get()));
        }
    }

    /// Drains what must be visible before the current CPU writes `bytes` past its store buffer.
    pub(crate) fn before_write(&self, at: PhysAddr, bytes: u64) {
        if self.0.exploring.get() {
            self.draining(|stores| stores.drain_observed(I::KIND, Observer::Writer, at, at.add(bytes)));
            self.touch(|| Touch::writes(Touched::Memory, (at.raw(), at.raw() + bytes - 1)));
            self.touch(|| Touch::writes(Touched::WalkersView, (at.raw(), at.raw() + bytes - 1)));
            self.touch_if_replaced();
        }
    }

    /// Like [`Self::before_write`], for a block of frames.
    pub(crate) fn before_write_of(&self, pfn: Pfn, order: Order) {
        self.before_write(pfn.base(), order.bytes());
    }

    /// Drains what must be visible before the current CPU loads the word at `at` (x86-64).
    pub(crate) fn before_load(&self, at: PhysAddr) {
        self.touch(|| Touch::reads(Touched::Memory, word(at)));
        if self.0.exploring.get() && I::KIND == IsaKind::X86_64 {
            let reader = Observer::Reader(self.0.current.get());
            self.draining(|stores| stores.drain_observed(I::KIND, reader, at, at.add(8)));
        }
    }

    /// Brings the machine to rest.
    ///
    /// Stores and broadcasts arrive, and walks in flight are cancelled.
    pub(crate) fn quiesce(&self) {
        let in_flight = &self.0.in_flight;
        in_flight.stores.borrow_mut().drain_before(u64::MAX);
        for cpu in (0..self.0.cores.len() as u16).map(CpuId::new) {
            self.complete_broadcasts(cpu);
            let core = self.core(cpu);
            core.incomplete_tlbis.set(0);
            core.interrupts_off.set(0);
            core.lockless_walk.borrow_mut().clear();
            core.in_flight.walks.borrow_mut().clear();
            core.in_flight.conflicts.borrow_mut().clear();
            core.in_flight.ipi_pending.set(false);
        }
        in_flight.recent.borrow_mut().clear();
        in_flight.step.set(0);
        in_flight.issued.set(0);
        in_flight.replaced_live.set(false);
        in_flight.reducing.borrow_mut().clear();
        in_flight.footprint.take();
        in_flight.seen.clear();
    }
}
