//! What a search of all schedules knows of the machine before it chooses: [`MachineView`].
//!
//! A store that drains, a walk, an eviction and the arrival of a broadcast are *acts* of the
//! machine. Each has a name that stays the same while other steps are taken ([`ActName`]), the
//! [`Footprint`] of its next step, and a *reach*: what this step and those that may follow from it
//! touch. The reach is larger than needed where later steps can change the path of a walk.
//!
//! An eviction drops an entry from both levels of the TLB at once. From one level only, it would
//! change nothing that a program or a judge observes.

use super::footprint::{EVERYWHERE, Footprint, Touch, Touched, frames, invalidated, span, word};
use super::schedule::{Agent, AgentKind, Choice, ReadyAgent};
use super::state::RunState;
use super::stores::WalkersView;
use super::walks::{WalkInFlight, WalkState};
use crate::core::Core;
use crate::machine::Sim;
use crate::tlb::{Evictable, HeldEntry, TlbHit};
use crate::walk::{WalkPosition, WalkerMemory, Word, decode};
use pagewright_arch::Isa;
use pagewright_types::{CpuId, Level, PageRange, Pfn, PhysAddr, VirtAddr};

/// A name of an act that does not change while other steps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActName {
    /// What acts.
    pub agent: Agent,
    /// The address, the word or the entry.
    pub operand: u64,
}

/// An act that the machine can take now.
#[derive(Clone, Debug)]
pub struct Act {
    /// Its name.
    pub name: ActName,
    /// The choices that make its next step, in order.
    pub choices: Vec<Choice>,
    /// What this step touches.
    pub footprint: Footprint,
    /// What it and the steps that may follow from it touch.
    pub reach: Footprint,
}

/// The machine before a choice.
pub trait MachineView {
    /// The footprint of the last step.
    fn last_footprint(&self) -> Footprint;

    /// Whether `cpu` is stopped at a point where it waits for another CPU.
    fn waits(&self, cpu: CpuId) -> bool;

    /// Whether `cpu` waits, and has checked since another CPU acted.
    fn has_checked(&self, cpu: CpuId) -> bool;

    /// Everything that decides how the run can go on, or `None` if it is not known.
    ///
    /// Two runs of the same programs whose states are equal can go on in the same ways, with the
    /// same results (INV-CHECK-MERGED).
    fn state(&self) -> Option<RunState>;

    /// Whether `cpu` has interrupts disabled.
    fn interrupts_disabled(&self, cpu: CpuId) -> bool;

    /// The acts that the machine can take now, `ready` being the ready agents.
    fn acts(&self, ready: &[ReadyAgent]) -> Vec<Act>;
}

impl<I: Isa> Sim<I> {
    /// The acts of `ready`.
    pub(super) fn acts_of(&self, ready: &[ReadyAgent]) -> Vec<Act> {
        let mut acts = Vec::new();
        for ReadyAgent { agent, ways } in ready.iter().copied() {
            match agent.kind {
                AgentKind::Cpu | AgentKind::Interrupt | AgentKind::Pick => {}
                AgentKind::Drain => (0..ways).for_each(|way| acts.extend(self.drain_act(agent, way))),
                AgentKind::Deliver => (0..ways).for_each(|way| acts.extend(self.deliver_act(agent, way))),
                AgentKind::Walk => (0..ways).for_each(|way| acts.extend(self.walk_act(agent, way))),
                AgentKind::Speculate => self.speculations(agent, ways, &mut acts),
                AgentKind::Evict => self.evictions(agent, &mut acts),
            }
        }
        acts
    }

    fn drain_act(&self, agent: Agent, way: u32) -> Option<Act> {
        let at = self.0.in_flight.stores.borrow().next_way(I::KIND, agent.cpu, way)?;
        let mut footprint = Footprint::default();
        footprint.touch(Touch::writes(Touched::WalkersView, word(at)));
        footprint.touch(Touch::writes(Touched::StoreBuffer(agent.cpu), word(at)));
        Some(act(agent, at.raw(), &[way], footprint.clone(), footprint))
    }

    fn deliver_act(&self, agent: Agent, way: u32) -> Option<Act> {
        let broadcasts = self.0.in_flight.broadcasts.borrow();
        let mut coming = broadcasts.iter().filter(|broadcast| broadcast.undelivered.contains(agent.cpu));
        let broadcast = coming.nth(way as usize)?;
        let mut footprint = Footprint::default();
        invalidated(&mut footprint, agent.cpu, broadcast.target);
        footprint.touch(Touch::writes(Touched::Held, EVERYWHERE));
        footprint.touch(Touch::writes(Touched::Reached, EVERYWHERE));
        footprint.touch(Touch::reads(Touched::Broadcasts, EVERYWHERE));
        Some(act(agent, broadcast.number, &[way], footprint.clone(), footprint))
    }

    fn walk_act(&self, agent: Agent, way: u32) -> Option<Act> {
        let core = self.core(agent.cpu);
        let walks = core.in_flight.walks.borrow();
        let walk = walks.iter().filter(|walk| !walk.demanded).nth(way as usize)?;
        let mut footprint = self.walk_step(agent.cpu, walk);
        footprint.walks();
        let mut reach = footprint.clone();
        self.reach_of_walk(agent.cpu, core, walk.root.table, walk.va, &mut reach);
        Some(act(agent, walk.va.raw(), &[way], footprint, reach))
    }

    /// What the next step of `walk` touches.
    fn walk_step(&self, cpu: CpuId, walk: &WalkInFlight) -> Footprint {
        let mut footprint = Footprint::default();
        footprint.touch(Touch::reads(Touched::Walks(cpu), span(walk.va, self.0.config.last_level())));
        if !walk.doomed_by.is_empty() {
            footprint.touch(Touch::reads(Touched::Broadcasts, EVERYWHERE));
        }
        match walk.state {
            WalkState::Table(position) => {
                self.read_by_walk(cpu, position, walk.va, &mut footprint);
                self.change_path(cpu, walk, position, &mut footprint);
            }
            WalkState::Leaf(found) => {
                footprint.touch(Touch::writes(Touched::Translations(cpu), span(walk.va, found.level)));
                // A judge takes the leaf that a walk has found for a translation already.
                let same = |hit: &TlbHit| {
                    (hit.entry.pfn(), hit.entry.rights(), hit.key.level()) == (found.pfn, found.rights, found.level)
                };
                self.translations_of(cpu, walk.va).iter().filter(|hit| !same(hit)).for_each(|hit| {
                    footprint.touch(Touch::writes(Touched::Held, span(hit.key.start(), hit.key.level())));
                    footprint.touch(Touch::writes(Touched::Reached, frames(hit.entry.pfn(), hit.key.level())));
                });
            }
        }
        footprint
    }

    /// The bytes of a table.
    fn table(&self, table: Pfn) -> (u64, u64) {
        frames(table, self.0.config.last_level())
    }

    /// The translations that `cpu` caches for `va`, under whatever tag.
    fn translations_of(&self, cpu: CpuId, va: VirtAddr) -> Vec<TlbHit> {
        let mut found = Vec::new();
        self.core(cpu).tlbs.borrow().translations(Some(PageRange::page(va)), |hit| {
            if hit.key.start() == va.align_down(hit.key.level().span()) {
                found.push(hit);
            }
        });
        found
    }

    /// What a judge may observe of the step of `walk` that reads the entry at `position`.
    ///
    /// A path that the tables in memory have, too, is nothing that a judge objects to. So such a
    /// walk only leaves the addresses that its new table does not cover.
    fn change_path(&self, cpu: CpuId, walk: &WalkInFlight, position: WalkPosition, footprint: &mut Footprint) {
        let va = walk.va;
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        let raw = memory.load_entry(position.slot(va).addr());
        let covered = span(va, position.level);
        footprint.touch(Touch::writes(Touched::Reached, self.table(position.table)));
        let next = match decode(I::KIND, position.level, raw, self.0.config.privilege_at(va)) {
            Word::Table(next) => next,
            Word::Leaf(leaf) => {
                footprint.touch(Touch::writes(Touched::Reached, frames(leaf.pfn, position.level)));
                return footprint.touch(Touch::writes(Touched::Held, covered));
            }
            Word::Absent | Word::Malformed => return footprint.touch(Touch::writes(Touched::Held, covered)),
        };
        footprint.touch(Touch::writes(Touched::Reached, self.table(next.table)));
        if let Some(old) = self.core(cpu).tlbs.borrow().walk_cached(walk.root.tag, position.level, va)
            && old.table != next.table
        {
            footprint.touch(Touch::writes(Touched::Reached, self.table(old.table)));
            footprint.touch(Touch::writes(Touched::Held, covered));
        }
        let Some(level) = position.level.down() else { return };
        let below = WalkPosition { level, table: next.table, allows: position.allows & next.allows };
        let root = walk.root.table;
        if self.tables_lead_to(root, va, position, footprint) && self.tables_lead_to(root, va, below, footprint) {
            let kept = span(va, level);
            if covered.0 < kept.0 {
                footprint.touch(Touch::writes(Touched::Held, (covered.0, kept.0 - 1)));
            }
            if kept.1 < covered.1 {
                footprint.touch(Touch::writes(Touched::Held, (kept.1 + 1, covered.1)));
            }
        } else {
            footprint.touch(Touch::writes(Touched::Held, covered));
        }
    }

    /// Whether the tables in memory lead a walk for `va` to `to` with at least its rights.
    ///
    /// In the kernel's range a judge may take the tables of another root, so there it is false.
    fn tables_lead_to(&self, root: Pfn, va: VirtAddr, to: WalkPosition, footprint: &mut Footprint) -> bool {
        if self.0.config.kernel_range.is_some() {
            return false;
        }
        let mut here = WalkPosition::from_root(root, self.0.config.top());
        while here.level > to.level {
            let at = here.slot(va).addr();
            if !self.0.ram.has(at) {
                return false;
            }
            footprint.touch(Touch::reads(Touched::Memory, word(at)));
            match (
                decode(I::KIND, here.level, self.0.ram.load_entry(at), self.0.config.privilege_at(va)),
                here.level.down(),
            ) {
                (Word::Table(next), Some(level)) => {
                    here = WalkPosition { level, table: next.table, allows: here.allows & next.allows };
                }
                (Word::Table(_) | Word::Absent | Word::Malformed | Word::Leaf(_), _) => return false,
            }
        }
        here.table == to.table && here.allows.contains(to.allows)
    }

    /// What a walk for `va` touches when it reads the entry at `position`.
    fn read_by_walk(&self, cpu: CpuId, position: WalkPosition, va: VirtAddr, footprint: &mut Footprint) {
        let at = position.slot(va).addr();
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        let raw = memory.load_entry(at);
        footprint.touch(Touch::reads(Touched::WalkersView, word(at)));
        let updates = match decode(I::KIND, position.level, raw, self.0.config.privilege_at(va)) {
            Word::Absent | Word::Malformed => false,
            Word::Table(next) => {
                footprint.touch(Touch::writes(Touched::Paths(cpu, position.level.raw()), span(va, position.level)));
                next.used != raw
            }
            Word::Leaf(leaf) => leaf.used != raw,
        };
        if updates {
            footprint.touch(Touch::writes(Touched::WalkersView, word(at)));
            footprint.touch(Touch::writes(Touched::Memory, word(at)));
        }
    }

    /// Adds what a walk for `va` may touch from the root on, in memory or as walkers see it.
    fn reach_of_walk(&self, cpu: CpuId, core: &Core, root: Pfn, va: VirtAddr, reach: &mut Footprint) {
        reach.walks();
        reach.touch(Touch::reads(Touched::Walks(cpu), span(va, self.0.config.last_level())));
        reach.touch(Touch::writes(Touched::Held, span(va, self.0.config.top())));
        for hit in self.translations_of(cpu, va) {
            reach.touch(Touch::writes(Touched::Reached, frames(hit.entry.pfn(), hit.key.level())));
        }
        let mut tables: Vec<Pfn> = vec![root];
        for level in (0..=self.0.config.top().raw()).rev().map(|raw| self.0.config.last_level().of_same_tree(raw)) {
            if !level.is_last() {
                reach.touch(Touch::reads(Touched::Paths(cpu, level.raw()), span(va, level)));
            }
            let below: Vec<Pfn> = tables.iter().flat_map(|table| self.next_tables(level, *table, va)).collect();
            for table in tables {
                let position = WalkPosition { level, table, allows: pagewright_types::Rights::all() };
                reach.touch(Touch::writes(Touched::Reached, self.table(table)));
                if self.0.ram.has(position.slot(va).addr()) {
                    self.read_by_walk(cpu, position, va, reach);
                    self.reach_of_leaves(position, va, reach);
                    reach.touch(Touch::writes(
                        Touched::Translations(cpu),
                        span(va, level.min(level.of_same_tree(Level::PUD.raw()))),
                    ));
                }
            }
            tables = core.tlbs.borrow().table_on_path(level, va).into_iter().chain(below).collect();
            tables.sort_unstable();
            tables.dedup();
        }
    }

    /// Adds the frames that the entry at `position` maps, in memory or as walkers see it.
    fn reach_of_leaves(&self, position: WalkPosition, va: VirtAddr, reach: &mut Footprint) {
        for raw in self.words_at(position.slot(va).addr()) {
            if let Word::Leaf(leaf) = decode(I::KIND, position.level, raw, self.0.config.privilege_at(va)) {
                reach.touch(Touch::writes(Touched::Reached, frames(leaf.pfn, position.level)));
            }
        }
    }

    /// The word at `at` as walkers see it, and in memory.
    fn words_at(&self, at: PhysAddr) -> [u64; 2] {
        let memory = WalkersView { ram: &self.0.ram, stores: &self.0.in_flight.stores };
        [memory.load_entry(at), self.0.ram.load_entry(at)]
    }

    /// The tables to which the entry for `va` of `table` points, in memory and as walkers see it.
    fn next_tables(&self, level: Level, table: Pfn, va: VirtAddr) -> Vec<Pfn> {
        let at = WalkPosition { level, table, allows: pagewright_types::Rights::all() }.slot(va).addr();
        if !self.0.ram.has(at) {
            return Vec::new();
        }
        let tables = self.words_at(at).into_iter().filter_map(|raw| {
            match decode(I::KIND, level, raw, self.0.config.privilege_at(va)) {
                Word::Table(next) => Some(next.table),
                Word::Absent | Word::Malformed | Word::Leaf(_) => None,
            }
        });
        tables.collect()
    }

    fn speculations(&self, agent: Agent, ways: u32, acts: &mut Vec<Act>) {
        let core = self.core(agent.cpu);
        for way in 0..ways {
            let va = self.speculated(way);
            let Some(root) = core.root_for(I::KIND, va) else { continue };
            let same = |act: &Act| act.name == ActName { agent, operand: va.raw() };
            if acts.iter().any(same) || core.in_flight.speculates(va) {
                continue;
            }
            let mut footprint = Footprint::default();
            footprint.walks();
            footprint.touch(Touch::reads(Touched::Root(agent.cpu), EVERYWHERE));
            footprint.touch(Touch::reads(Touched::Walks(agent.cpu), span(va, self.0.config.last_level())));
            for level in self.upper_levels() {
                footprint.touch(Touch::reads(Touched::Paths(agent.cpu, level.raw()), span(va, level)));
            }
            let start = core.tlbs.borrow().peek_walk_start(root.tag, va);
            let start = start.unwrap_or_else(|| WalkPosition::from_root(root.table, self.0.config.top()));
            footprint.touch(Touch::writes(Touched::Held, span(va, start.level)));
            footprint.touch(Touch::writes(Touched::Reached, self.table(start.table)));
            let mut reach = footprint.clone();
            self.reach_of_walk(agent.cpu, core, root.table, va, &mut reach);
            acts.push(act(agent, va.raw(), &[way], footprint, reach));
        }
    }

    /// The address for which speculation `way` begins a walk.
    pub(super) fn speculated(&self, way: u32) -> VirtAddr {
        let page = self.0.in_flight.recent.borrow()[way as usize / 3];
        match way % 3 {
            0 => page,
            1 => page.add(self.0.config.granule.bytes()),
            _ => VirtAddr::new(page.raw().saturating_sub(self.0.config.granule.bytes())),
        }
    }

    fn evictions(&self, agent: Agent, acts: &mut Vec<Act>) {
        let core = self.core(agent.cpu);
        for Evictable { key, held, mut ways } in core.tlbs.borrow().evictable() {
            let mut footprint = Footprint::default();
            let (covered, mut is_path) = (span(key.start(), key.level()), false);
            for entry in held {
                match entry {
                    HeldEntry::Translation(entry) => {
                        footprint.touch(Touch::writes(Touched::Translations(agent.cpu), covered));
                        footprint.touch(Touch::writes(Touched::Held, covered));
                        footprint.touch(Touch::writes(Touched::Reached, frames(entry.pfn(), key.level())));
                    }
                    HeldEntry::Path(upper) => {
                        is_path = true;
                        footprint.touch(Touch::writes(Touched::Paths(agent.cpu, key.level().raw()), covered));
                        footprint.touch(Touch::writes(Touched::Reached, self.table(upper.table)));
                        let root = self.0.roots.borrow().table(upper.root);
                        let below = key.level().down().unwrap_or(self.0.config.last_level());
                        let to = WalkPosition { level: below, table: upper.table, allows: upper.allows };
                        if !self.tables_lead_to(root, key.start(), to, &mut footprint) {
                            footprint.touch(Touch::writes(Touched::Held, covered));
                        }
                    }
                }
            }
            // From the last, so that the earlier numbers remain.
            ways.sort_unstable_by(|a, b| b.cmp(a));
            let operand = key.number() << 1 | u64::from(is_path);
            acts.push(act(agent, operand, &ways, footprint.clone(), footprint));
        }
    }
}

fn act(agent: Agent, operand: u64, ways: &[u32], footprint: Footprint, reach: Footprint) -> Act {
    let choices = ways.iter().map(|way| Choice { agent, way: *way }).collect();
    Act { name: ActName { agent, operand }, choices, footprint, reach }
}
