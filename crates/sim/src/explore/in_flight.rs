//! What is under way on a machine that explores: stores, walks, broadcasts, interrupts, and
//! translations that contradict each other.
//!
//! In fast mode all of it is empty. Here is what each of them does to the machine; when, the
//! scheduler decides ([`super::run`]). Together they reach what the manuals allow and nothing else
//! (INV-SIM-LITMUS).
//!
//! **Break before make.** On arm64 a translation may be filled while an older one for the same
//! address, to another frame or of another size, has not been invalidated. Then a TLB may answer
//! with either (Arm ARM D8.16.1, CONSTRAINED UNPREDICTABLE): the older is kept aside and each
//! access chooses. Amalgamations of the two, and conflict aborts, are not modelled.

use super::coroutine::{self, Go};
use super::point::StopPoint;
use super::stores::{Observer, Stores, WalkersView};
use super::walks::{Broadcast, Held, Serial, WalkInFlight, removes, tag_named};
use crate::core::{Core, Root};
use crate::cost::Cost;
use crate::event::MachineEvent;
use crate::invalidate::drop_aarch64;
use crate::machine::Sim;
use crate::tlb::{Depth, Hit, Side, Tlbs};
use crate::walk::{Walk, WalkStep};
use pagewright_arch::{InvalidateTarget, Isa};
use pagewright_types::{Access, CpuId, CpuMask, IsaKind, Order, PAGE_SIZE, Pfn, PhysAddr, VirtAddr};
use std::cell::{Cell, RefCell};

/// Addresses near which walks may be speculated.
const RECENT: usize = 16;
/// Translations kept aside on one CPU.
const CONFLICTS: usize = 4;

/// What is under way on the whole machine.
#[derive(Default)]
pub(crate) struct InFlight {
    pub(crate) stores: RefCell<Stores>,
    pub(crate) broadcasts: RefCell<Vec<Broadcast>>,
    /// Pages that programs accessed last, on any CPU.
    pub(crate) recent: RefCell<Vec<VirtAddr>>,
    next: Cell<u64>,
    /// Steps taken in this run.
    pub(crate) step: Cell<u64>,
}

/// What is under way on one CPU.
#[derive(Default)]
pub(crate) struct CpuInFlight {
    pub(crate) walks: RefCell<Vec<WalkInFlight>>,
    /// Older translations that contradict what the TLBs hold.
    pub(crate) conflicts: RefCell<Vec<Hit>>,
    /// Whether an interrupt waits to be taken.
    pub(crate) interrupted: Cell<bool>,
}

/// What one step of a walk came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    /// There is more to read.
    More,
    /// The TLBs are filled.
    Filled(Hit),
    /// The walk ended at an entry that refuses.
    Refused { present: bool },
    /// It was cancelled before.
    Cancelled,
}

impl InFlight {
    fn serial(&self) -> Serial {
        self.next.set(self.next.get() + 1);
        Serial(self.next.get())
    }

    /// Remembers that a program touched the page of `va`.
    pub(crate) fn touched(&self, va: VirtAddr) {
        let page = va.align_down(PAGE_SIZE);
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
    /// Stops before `point` while schedules are explored; else nothing.
    #[inline]
    pub(crate) fn point(&self, point: StopPoint) {
        if self.0.exploring.get() {
            coroutine::stop_at(point);
        }
    }

    /// Takes one of `ways` ways as the schedule says.
    fn choose(&self, ways: usize) -> usize {
        match coroutine::stop_at(StopPoint::Choose(ways as u32)) {
            Go::Way(way) => way as usize,
            Go::On | Go::Interrupt | Go::Home => 0,
        }
    }

    /// `core` has a walk for `va` from now on.
    pub(crate) fn launch(&self, core: &Core, root: Root, va: VirtAddr, access: Access, demanded: bool) -> Serial {
        let start = core.tlbs.borrow_mut().start(root.tag, va);
        let held = Held::Table(start.unwrap_or_else(|| Walk::from_root(root.table)));
        let serial = self.0.in_flight.serial();
        let flight = WalkInFlight { serial, va, access, root, held, demanded, doomed_by: Vec::new() };
        core.in_flight.walks.borrow_mut().push(flight);
        core.events.add(MachineEvent::PageWalks, 1);
        serial
    }

    /// What a CPU that demanded walk `serial` waits for.
    pub(crate) fn point_of(&self, core: &Core, serial: Serial) -> Option<StopPoint> {
        let walks = core.in_flight.walks.borrow();
        let flight = walks.iter().find(|flight| flight.serial == serial)?;
        Some(match flight.held {
            Held::Table(walk) => StopPoint::Walk(flight.va, walk.slot(flight.va)),
            Held::Leaf(found) => StopPoint::Fill(flight.va, found.pfn),
        })
    }

    /// Takes one step of walk `serial`.
    pub(crate) fn advance(&self, cpu: CpuId, core: &Core, serial: Serial) -> Progress {
        let mut walks = core.in_flight.walks.borrow_mut();
        let Some(at) = walks.iter().position(|flight| flight.serial == serial) else { return Progress::Cancelled };
        let flight = &mut walks[at];
        let walk = match flight.held {
            Held::Table(walk) => walk,
            Held::Leaf(found) => {
                let flight = walks.remove(at);
                self.note_late_fill(cpu, &flight);
                let mut tlbs = core.tlbs.borrow_mut();
                let side = Side::of(flight.access);
                self.set_aside(core, &mut tlbs, side, flight.root, flight.va, (found.pfn, found.level));
                return Progress::Filled(tlbs.remember(side, flight.root, flight.va, found));
            }
        };
        core.events.add(MachineEvent::WalkReads, 1);
        core.pay(&self.profile().costs, Cost::WalkRead);
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        match walk.step(I::KIND, &memory, flight.va, flight.access) {
            WalkStep::Down { next, .. } => {
                flight.held = Held::Table(next);
                if !flight.doomed_by.is_empty() {
                    self.note_late_fill(cpu, flight);
                }
                core.tlbs.borrow_mut().remember_upper(flight.root, flight.va, walk.level, next);
                Progress::More
            }
            WalkStep::Again => Progress::More,
            WalkStep::Arrived { found, .. } => {
                flight.held = Held::Leaf(found);
                Progress::More
            }
            WalkStep::Refused { present } => {
                walks.remove(at);
                Progress::Refused { present }
            }
        }
    }

    /// A walk fills although invalidations had found it here; their issuers' barriers will remove
    /// what it filled.
    fn note_late_fill(&self, cpu: CpuId, flight: &WalkInFlight) {
        for broadcast in self.0.in_flight.broadcasts.borrow_mut().iter_mut() {
            if flight.doomed_by.contains(&broadcast.serial) {
                broadcast.filled_since.insert(cpu);
            }
        }
    }

    /// Before a fill on arm64: an older translation that contradicts it is kept aside.
    fn set_aside(
        &self,
        core: &Core,
        tlbs: &mut Tlbs,
        side: Side,
        root: Root,
        va: VirtAddr,
        found: (Pfn, pagewright_types::Level),
    ) {
        if I::KIND != IsaKind::Aarch64 {
            return;
        }
        let held = tlbs.find(Depth::First, side, root.tag, va).or_else(|| tlbs.find(Depth::Second, side, root.tag, va));
        let Some(old) = held.filter(|hit| (hit.entry.pfn(), hit.key.level()) != found) else { return };
        tlbs.drop_page(root.tag, va, Some(old.key.level()), old.key.is_global());
        let mut conflicts = core.in_flight.conflicts.borrow_mut();
        if conflicts.len() == CONFLICTS {
            conflicts.remove(0);
        }
        conflicts.push(old);
    }

    /// The translation that the TLBs of `core` answer with: one of several if they contradict each
    /// other.
    pub(crate) fn answer(&self, core: &Core, side: Side, root: Root, va: VirtAddr) -> Option<Hit> {
        let mut answers: Vec<Hit> = Vec::new();
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
                return found;
            }
            answers.extend(found);
            let covers = |hit: &&Hit| {
                let key = hit.key;
                key.answers(root.tag) && key.start() == va.align_down(key.level().span())
            };
            answers.extend(conflicts.iter().filter(covers));
        }
        match answers.len() {
            0 | 1 => answers.pop(),
            // Whatever happens to the TLBs meanwhile, the access was answered before.
            ways => answers.get(self.choose(ways)).copied(),
        }
    }

    /// `target` reaches the TLBs of `cpu` (arm64).
    ///
    /// Walks that hold what it names are doomed.
    pub(crate) fn arrive(&self, serial: Serial, target: InvalidateTarget, cpu: CpuId) {
        let core = self.core(cpu);
        drop_aarch64(core, target);
        core.in_flight.conflicts.borrow_mut().retain(|hit| !removes(target, hit.key));
        let mut walks = core.in_flight.walks.borrow_mut();
        walks.iter_mut().filter(|flight| flight.concerned_by(target)).for_each(|flight| flight.doomed_by.push(serial));
    }

    /// A broadcast sets out from the current CPU.
    pub(crate) fn broadcast(&self, target: InvalidateTarget) {
        let serial = self.0.in_flight.serial();
        let broadcast = Broadcast {
            serial,
            issuer: self.0.current.get(),
            target,
            on_its_way: self.0.online.get(),
            filled_since: CpuMask::EMPTY,
        };
        self.0.in_flight.broadcasts.borrow_mut().push(broadcast);
    }

    /// Which broadcasts have still to reach `cpu`.
    pub(crate) fn deliver(&self, cpu: CpuId, way: u32) -> Option<InvalidateTarget> {
        let (serial, target) = {
            let mut broadcasts = self.0.in_flight.broadcasts.borrow_mut();
            let mut coming = broadcasts.iter_mut().filter(|broadcast| broadcast.on_its_way.contains(cpu));
            let broadcast = coming.nth(way as usize)?;
            broadcast.on_its_way.remove(cpu);
            (broadcast.serial, broadcast.target)
        };
        self.arrive(serial, target, cpu);
        Some(target)
    }

    /// The DSB of `issuer`: its broadcasts are done everywhere when this returns, and nothing that
    /// they found in flight is left.
    pub(crate) fn complete_broadcasts(&self, issuer: CpuId) {
        let mut done = Vec::new();
        self.0.in_flight.broadcasts.borrow_mut().retain_mut(|broadcast| {
            let own = broadcast.issuer == issuer;
            if own {
                done.push((broadcast.serial, broadcast.target, broadcast.on_its_way, broadcast.filled_since));
            }
            !own
        });
        for (serial, target, on_its_way, filled_since) in done {
            for cpu in self.0.online.get().iter() {
                if on_its_way.contains(cpu) || filled_since.contains(cpu) {
                    self.arrive(serial, target, cpu);
                }
                let walks = &self.core(cpu).in_flight.walks;
                walks.borrow_mut().retain(|flight| !flight.doomed_by.contains(&serial));
            }
        }
    }

    /// An invalidation of the current CPU's own TLBs cancels walks in flight there.
    pub(crate) fn cancel_here(&self, target: InvalidateTarget) {
        let here = &self.here().in_flight;
        match I::KIND {
            IsaKind::X86_64 => {
                let tag = tag_named(target);
                here.walks.borrow_mut().retain(|flight| tag.is_some_and(|tag| flight.root.tag != tag));
            }
            IsaKind::Aarch64 => {
                here.conflicts.borrow_mut().retain(|hit| !removes(target, hit.key));
                here.walks.borrow_mut().retain(|flight| !flight.concerned_by(target));
            }
        }
    }

    /// Makes the stores of the current CPU visible to walkers.
    pub(crate) fn drain_here(&self) {
        if self.0.exploring.get() {
            self.0.in_flight.stores.borrow_mut().drain_all(self.0.current.get());
        }
    }

    /// The current CPU stores a word past its store buffer, or whole pages.
    pub(crate) fn before_write(&self, at: PhysAddr, bytes: u64) {
        if self.0.exploring.get() {
            self.0.in_flight.stores.borrow_mut().observe(I::KIND, Observer::Writer, at, at.add(bytes));
        }
    }

    /// As [`Self::before_write`], for a block of frames.
    pub(crate) fn before_write_of(&self, pfn: Pfn, order: Order) {
        self.before_write(pfn.base(), order.bytes());
    }

    /// The current CPU loads the word at `at`.
    pub(crate) fn before_load(&self, at: PhysAddr) {
        if self.0.exploring.get() && I::KIND == IsaKind::X86_64 {
            let reader = Observer::Reader(self.0.current.get());
            self.0.in_flight.stores.borrow_mut().observe(I::KIND, reader, at, at.add(8));
        }
    }

    /// Brings the machine to rest: everything under way arrives, and what was speculated is
    /// forgotten.
    pub(crate) fn settle(&self) {
        let in_flight = &self.0.in_flight;
        in_flight.stores.borrow_mut().drain_before(u64::MAX);
        for cpu in (0..self.0.cores.len() as u16).map(CpuId::new) {
            self.complete_broadcasts(cpu);
            let core = self.core(cpu);
            core.outstanding.set(0);
            core.closed.set(0);
            core.in_flight.walks.borrow_mut().clear();
            core.in_flight.conflicts.borrow_mut().clear();
            core.in_flight.interrupted.set(false);
        }
        in_flight.recent.borrow_mut().clear();
        in_flight.step.set(0);
    }
}
