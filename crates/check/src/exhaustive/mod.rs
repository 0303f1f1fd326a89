//! The search of all schedules within two bounds: preemptions of CPUs, and acts of the machine.
//!
//! [`enumerate`] runs a depth-first search over the choices of a run; each run starts anew and
//! replays the choices before the one that is changed.
//!
//! - A **preemption** is a switch from a CPU that could go on. A switch is free where a CPU waits,
//!   where its program or its interrupt handler ends, and at the start. All orders of the steps of
//!   CPUs are tried up to this bound, because programs share memory that the machine cannot see.
//! - An **act** is a store that walkers see late, a broadcast that arrives late at one CPU, a
//!   speculative walk near a page that a program has accessed, or an eviction. Otherwise stores
//!   and broadcasts arrive at once, and there is no speculation and no eviction.
//!
//! **Reduction.** An act moves across the steps with which it commutes
//! ([`Footprint::conflicts`]), so of the schedules that differ by that alone, one is tried: the one
//! in which the act is as late as possible. These are sleep sets (Godefroid, LNCS 1032, 1996).
//! Sleep sets and a bound on preemptions do not go together in general, because commuting the steps
//! of CPUs changes the number of preemptions. Here the steps of CPUs keep their order, so all
//! schedules of a class have the same number of preemptions and of acts, and the bounds hold for
//! all of them or for none. An act that no step of a CPU depends on is not tried at all, and a late
//! store or broadcast to which nothing conflicts before it arrives is given up (INV-CHECK-REDUCED).
//!
//! **Merging.** A run that comes to a state which was reached before is given up
//! (INV-CHECK-MERGED). The memory of programs cannot be hashed, so two states are equal only if the
//! pieces of programs ran in the same order and saw the same: see [`RunState`]. What is merged are
//! acts that leave nothing behind, and the order of acts, of walks that programs wait for, and of
//! pieces of programs. Equal states are not enough. The earlier visit must have had as much left of
//! both bounds, because it has searched no further than them; and it must have had no step asleep
//! that is awake now, because it has not tried that step.
//!
//! **INV-CHECK-REDUCED** An exhaustive search has the outcomes of the plain enumeration of all
//! schedules within its bounds: it leaves a schedule out only if another one, in which acts of the
//! machine moved across steps that do not conflict with them, stands for it. Otherwise "complete"
//! would be false.
//!
//! **INV-CHECK-BOUNDS** A search is called complete only if it tried every schedule within its
//! bounds of preemptions and acts, and no schedule of it exceeds them.
//!
//! Neighbours: `sim::explore` has the agents and their footprints; [`crate::search`] samples.
//!
//! Not guaranteed: anything beyond the bounds (INV-CHECK-BOUNDS). A loop in which a CPU waits is
//! taken to do nothing else: a check in vain is tried only where no other CPU can go on.

mod merged;
mod node;

use crate::testbench::{Attempt, RunDetail};
use merged::ReachedState;
use node::{Asleep, Node, OptionKind, WayOn};
use pagewright_sim::explore::{
    Act, ActName, Agent, AgentKind, Choice, Chooser, Footprint, MachineView, ReadyAgent, RunState,
};
use pagewright_types::{CpuId, IsaKind};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;

/// The bounds of an exhaustive search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchBounds {
    /// The most preemptions in a schedule.
    pub preemptions: u32,
    /// The most acts of the machine in a schedule.
    pub acts: u32,
}

impl SearchBounds {
    /// The acts of a machine of `isa`, in words.
    pub(crate) fn acts_of(isa: IsaKind) -> &'static str {
        match isa {
            IsaKind::X86_64 => "late stores, speculative walks, evictions",
            IsaKind::Aarch64 => "late stores, delayed broadcasts, speculative walks, evictions",
        }
    }
}

impl fmt::Display for SearchBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k = {} preemptions and m = {} acts", self.preemptions, self.acts)
    }
}

/// Which schedules of an exhaustive search stand for others.
#[derive(Clone, Copy, Debug)]
pub enum ActReduction {
    /// None: every act is tried at every step.
    Plain,
    /// One stands for all in which acts moved across steps that do not conflict with them.
    Commuting,
    /// The same, and a state that was reached before is not searched again.
    Merging,
    /// As `Merging`, where this function leaves a part of the states out.
    MergingBy(fn(RunState) -> RunState),
    /// As `Commuting`, where this function says whether two steps conflict.
    CommutingBy(fn(&Footprint, &Footprint) -> bool),
}

impl ActReduction {
    fn conflict(self, one: &Footprint, other: &Footprint) -> bool {
        match self {
            Self::Plain => true,
            Self::Commuting | Self::Merging | Self::MergingBy(_) => one.conflicts(other),
            Self::CommutingBy(conflict) => conflict(one, other),
        }
    }

    /// The state by which runs are merged, if they are.
    fn merged_by(self, state: impl FnOnce() -> Option<RunState>) -> Option<RunState> {
        match self {
            Self::Plain | Self::Commuting | Self::CommutingBy(_) => None,
            Self::Merging => state(),
            Self::MergingBy(part) => state().map(part),
        }
    }

    fn is_plain(self) -> bool {
        matches!(self, Self::Plain)
    }
}

/// What an exhaustive search did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enumerated {
    /// Runs, those given up included.
    pub runs: u64,
    /// Runs that were given up because another one stands for them.
    pub given_up: u64,
    /// Those among them that came to a state which was reached before.
    pub merged: u64,
    /// Whether every schedule within the bounds was tried, or one that stands for it.
    pub complete: bool,
}

/// Tries all schedules within `bounds`, and calls `visit` with each run that was not given up.
///
/// `attempt` makes a fresh machine and runs it under the chooser; the same choices must give the
/// same run. Its settings must not let stores drain by themselves, and must allow as many
/// speculative walks on a CPU as there are acts.
pub fn enumerate(
    bounds: SearchBounds,
    reduction: ActReduction,
    attempt: &mut dyn FnMut(&mut dyn Chooser, RunDetail) -> Attempt,
    visit: &mut dyn FnMut(&Attempt) -> ControlFlow<()>,
) -> Enumerated {
    let mut tree = Tree { bounds, reduction, nodes: Vec::new(), reached: FxHashMap::default(), run: Run::default() };
    let mut done = Enumerated::default();
    loop {
        tree.run = Run::default();
        let run = attempt(&mut tree, RunDetail::Quick);
        done.runs += 1;
        if tree.run.given_up {
            done.given_up += 1;
            done.merged += u64::from(tree.run.merged);
        } else if visit(&run).is_break() {
            return done;
        }
        if !tree.backtrack() {
            return Enumerated { complete: true, ..done };
        }
    }
}

/// A store or a broadcast that was made late.
#[derive(Debug)]
struct Late {
    name: ActName,
    /// What its arrival touches.
    arrival: Footprint,
    /// Whether a step since then would have differed, had it arrived.
    mattered: bool,
}

/// The state of the current run.
#[derive(Debug, Default)]
struct Run {
    /// Nodes passed.
    depth: usize,
    /// Choices that follow without a node.
    queue: VecDeque<Choice>,
    late: Vec<Late>,
    /// CPUs in an interrupt handler.
    handlers: Vec<CpuId>,
    /// The node whose footprint the machine has not reported.
    open: Option<usize>,
    /// The step of a CPU among them has just ended its handler.
    handler_ended: bool,
    started: bool,
    given_up: bool,
    /// The run came to a state that was reached before.
    merged: bool,
}

impl Run {
    fn is_late(&self, name: &ActName) -> bool {
        self.late.iter().any(|late| late.name == *name)
    }
}

/// Whether an agent of this kind brings what is in flight to where it takes effect.
fn arrives(kind: AgentKind) -> bool {
    matches!(kind, AgentKind::Drain | AgentKind::Deliver)
}

/// The search.
struct Tree {
    bounds: SearchBounds,
    reduction: ActReduction,
    nodes: Vec<Node>,
    reached: FxHashMap<u64, Vec<ReachedState>>,
    run: Run,
}

impl Tree {
    /// Moves the deepest node that has another way on to it; returns false if none has.
    fn backtrack(&mut self) -> bool {
        while let Some(node) = self.nodes.last_mut() {
            let next = node.at + 1;
            if node.choose_from(next, self.reduction) {
                return true;
            }
            self.nodes.pop();
        }
        false
    }

    /// Whether what the step of the node at `index` touches is not known yet.
    ///
    /// The step of a CPU touches what it touched in earlier runs, unless another translation is
    /// picked in it.
    fn records_footprint(&self, index: usize) -> bool {
        let way = self.nodes[index].chosen();
        let picks = self.nodes.get(index + 1).is_some_and(|next| next.chosen().kind == OptionKind::Pick);
        way.kind == OptionKind::Cpu && (way.footprint.is_none() || picks)
    }

    /// Notes what the last step has touched; returns whether another run stands for this one.
    fn note_step(&mut self, machine: &dyn MachineView, ready: &[ReadyAgent]) -> bool {
        let Some(index) = self.run.open.take() else { return false };
        let arriving = ready.iter().filter(|ready| arrives(ready.agent.kind)).copied().collect::<Vec<_>>();
        let records = self.records_footprint(index);
        let node = &mut self.nodes[index];
        let way = &mut node.ways[node.at];
        let (kind, agent) = (way.kind, way.name.agent);
        if kind == OptionKind::Cpu {
            if records {
                let mut seen = machine.last_footprint();
                // What arrives at once belongs to the step: no other act can come in between.
                for act in machine.acts(&arriving).iter().filter(|act| !self.run.is_late(&act.name)) {
                    seen.add(&act.footprint);
                }
                match &mut way.footprint {
                    Some(known) => known.add(&seen),
                    None => way.footprint = Some(seen),
                }
            }
            self.run.handler_ended = false;
            let others = node.ways.iter().any(|way| way.kind == OptionKind::Cpu && way.name.agent != agent);
            if others && agent.kind == AgentKind::Cpu && machine.has_checked(agent.cpu) {
                return true;
            }
            if agent.kind == AgentKind::Interrupt {
                self.run.handlers.push(agent.cpu);
            }
            if self.run.handlers.contains(&agent.cpu) && !machine.interrupts_disabled(agent.cpu) {
                self.run.handlers.retain(|cpu| *cpu != agent.cpu);
                self.run.handler_ended = true;
            }
        }
        if self.run.late.is_empty() {
            return false;
        }
        let footprint = self.nodes[index].chosen().footprint.clone().unwrap_or_default();
        let (acts, mut unused) = (machine.acts(&arriving), false);
        self.run.late.retain_mut(|late| {
            let waits = acts.iter().any(|act| act.name == late.name);
            if waits {
                late.mattered |= self.reduction.conflict(&late.arrival, &footprint);
            }
            unused |= !waits && !late.mattered;
            waits
        });
        unused && !self.reduction.is_plain()
    }

    /// The steps that are asleep after the chosen way of the last node.
    fn asleep_now(&self) -> Vec<Asleep> {
        let Some(node) = self.nodes.last().filter(|_| !self.reduction.is_plain()) else { return Vec::new() };
        let chosen = node.chosen();
        if chosen.kind == OptionKind::Pick {
            return Vec::new();
        }
        let tried = node.ways[..node.at].iter().filter(|way| way.tried && way.kind != OptionKind::Late);
        let tried = tried.filter_map(|way| {
            let footprint = way.footprint.clone()?;
            Some(Asleep { name: way.name, footprint, is_cpu: way.kind == OptionKind::Cpu })
        });
        let own = chosen.footprint.clone().filter(|_| chosen.kind != OptionKind::Late).unwrap_or_default();
        let is_cpu = chosen.kind == OptionKind::Cpu;
        let both = |asleep: &Asleep| asleep.is_cpu && is_cpu;
        let commutes = |asleep: &Asleep| !both(asleep) && !self.reduction.conflict(&asleep.footprint, &own);
        node.asleep.iter().cloned().chain(tried).filter(commutes).collect()
    }

    /// The ways on from the state of the machine.
    fn ways(&self, machine: &dyn MachineView, ready: &[ReadyAgent], last: CpuId) -> Vec<WayOn> {
        let left = self.nodes.last().map_or(self.bounds, Node::left_after);
        let in_motion = |ready: &&ReadyAgent| !matches!(ready.agent.kind, AgentKind::Speculate | AgentKind::Evict);
        // Speculation and evictions are looked at only if one more act is allowed.
        let ready_acts: Vec<ReadyAgent> =
            ready.iter().filter(|ready| left.acts > 0 || in_motion(ready)).copied().collect();
        let acts = machine.acts(&ready_acts);
        if let Some(act) = acts.iter().find(|act| arrives(act.name.agent.kind) && !self.run.is_late(&act.name)) {
            let late = WayOn { choices: Vec::new(), kind: OptionKind::Late, acts: true, ..way_of(act.clone()) };
            let arrival = way_of(act.clone());
            let possible = left.acts > 0;
            return [arrival].into_iter().chain(possible.then_some(late)).collect();
        }
        let mut ways = self.steps_of_cpus(machine, ready, last, left);
        ways.extend(acts.into_iter().map(way_of).filter(|way| !way.acts || left.acts > 0));
        ways
    }

    fn steps_of_cpus(
        &self,
        machine: &dyn MachineView,
        ready: &[ReadyAgent],
        last: CpuId,
        left: SearchBounds,
    ) -> Vec<WayOn> {
        let goes_on = ready.iter().any(|ready| ready.agent == Agent { kind: AgentKind::Cpu, cpu: last });
        let free = !self.run.started || !goes_on || machine.waits(last) || self.run.handler_ended;
        let cpus = ready.iter().filter(|ready| matches!(ready.agent.kind, AgentKind::Cpu | AgentKind::Interrupt));
        let mut ways: Vec<WayOn> = cpus
            .map(|ready| {
                let agent = ready.agent;
                let own = agent == Agent { kind: AgentKind::Cpu, cpu: last };
                let way = WayOn::of(OptionKind::Cpu, 0, Choice { agent, way: 0 });
                WayOn { preempts: !own && !free, ..way }
            })
            .filter(|way| !way.preempts || left.preemptions > 0)
            .collect();
        ways.sort_by_key(|way| {
            let Agent { kind, cpu } = way.name.agent;
            (way.preempts, kind != AgentKind::Interrupt, cpu != last, cpu <= last, cpu)
        });
        ways
    }

    /// Passes a node, which is made if the run goes beyond those of the last run.
    ///
    /// Returns false if nothing needs to be tried here.
    fn pass(&mut self, ways: impl FnOnce(&Self) -> Vec<WayOn>) -> bool {
        if self.run.depth == self.nodes.len() {
            let left = self.nodes.last().map_or(self.bounds, Node::left_after);
            let (ways, asleep) = (ways(self), self.asleep_now());
            let mut node = Node { ways, at: 0, asleep, left };
            if !node.choose_from(0, self.reduction) {
                return false;
            }
            self.nodes.push(node);
        }
        self.run.depth += 1;
        true
    }
}

fn way_of(act: Act) -> WayOn {
    let Act { name, choices, footprint, reach } = act;
    let acts = matches!(name.agent.kind, AgentKind::Speculate | AgentKind::Evict);
    let (kind, footprint) = (OptionKind::Act, Some(footprint));
    WayOn { kind, name, choices, preempts: false, acts, footprint, reach, tried: false }
}

impl Chooser for Tree {
    fn next(&mut self, ready: &[ReadyAgent], _: CpuId) -> Choice {
        Choice { agent: ready[0].agent, way: 0 }
    }

    fn next_on(&mut self, machine: &dyn MachineView, ready: &[ReadyAgent], last: CpuId) -> Option<Choice> {
        if let Some(choice) = self.run.queue.pop_front() {
            return Some(choice);
        }
        if self.note_step(machine, ready) {
            self.run.given_up = true;
            return None;
        }
        loop {
            let is_new = self.run.depth == self.nodes.len();
            self.run.merged = is_new && self.was_reached(machine, last);
            if self.run.merged || !self.pass(|tree| tree.ways(machine, ready, last)) {
                self.run.given_up = true;
                return None;
            }
            let index = self.run.depth - 1;
            let way = self.nodes[index].chosen();
            if way.kind == OptionKind::Late {
                let arrival = way.footprint.clone().unwrap_or_default();
                self.run.late.push(Late { name: way.name, arrival, mattered: false });
                continue;
            }
            self.run.started = true;
            self.run.open = Some(index);
            self.run.queue.extend(way.choices.iter().copied());
            return self.run.queue.pop_front();
        }
    }

    fn pick(&mut self, cpu: CpuId, ways: u32) -> u32 {
        let agent = Agent { kind: AgentKind::Pick, cpu };
        let pick = |way| WayOn::of(OptionKind::Pick, u64::from(way), Choice { agent, way });
        self.pass(|_| (0..ways).map(pick).collect());
        self.nodes[self.run.depth - 1].chosen().choices[0].way
    }

    fn ended(&mut self, machine: &dyn MachineView) {
        self.note_step(machine, &[]);
    }

    fn wants_footprint(&self) -> bool {
        self.run.open.is_some_and(|index| self.records_footprint(index))
    }

    fn compares_states(&self) -> bool {
        matches!(self.reduction, ActReduction::Merging | ActReduction::MergingBy(_))
    }
}
