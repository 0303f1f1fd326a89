//! A choice on the current path of an exhaustive search, and which of its ways must be tried.

use super::{ActReduction, SearchBounds};
use pagewright_sim::explore::{ActName, Choice, Footprint};

/// What an option of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionKind {
    /// A CPU goes on or takes an interrupt.
    Cpu,
    /// An act takes a step.
    Act,
    /// The store or the broadcast of this name arrives late.
    Late,
    /// One of several conflicting translations is used.
    Pick,
}

/// One way in which a run can go on.
#[derive(Clone, Debug)]
pub(super) struct WayOn {
    pub(super) kind: OptionKind,
    pub(super) name: ActName,
    pub(super) choices: Vec<Choice>,
    pub(super) preempts: bool,
    pub(super) acts: bool,
    /// What it touches; for a CPU, known once it was tried.
    pub(super) footprint: Option<Footprint>,
    /// What it may lead to.
    pub(super) reach: Footprint,
    pub(super) tried: bool,
}

impl WayOn {
    pub(super) fn of(kind: OptionKind, operand: u64, choice: Choice) -> Self {
        Self {
            kind,
            name: ActName { agent: choice.agent, operand },
            choices: vec![choice],
            preempts: false,
            acts: false,
            footprint: None,
            reach: Footprint::default(),
            tried: false,
        }
    }
}

/// A step that another order of steps has tried already.
#[derive(Clone, Debug)]
pub(super) struct Asleep {
    pub(super) name: ActName,
    pub(super) footprint: Footprint,
    pub(super) is_cpu: bool,
}

/// A choice on the current path.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) ways: Vec<WayOn>,
    pub(super) at: usize,
    pub(super) asleep: Vec<Asleep>,
    pub(super) left: SearchBounds,
}

impl Node {
    pub(super) fn chosen(&self) -> &WayOn {
        &self.ways[self.at]
    }

    /// What is left of the bounds after the chosen way.
    pub(super) fn left_after(&self) -> SearchBounds {
        let WayOn { preempts, acts, .. } = self.chosen();
        SearchBounds {
            preemptions: self.left.preemptions - u32::from(*preempts),
            acts: self.left.acts - u32::from(*acts),
        }
    }

    pub(super) fn is_asleep(&self, way: &WayOn) -> bool {
        way.kind != OptionKind::Late && self.asleep.iter().any(|asleep| asleep.name == way.name)
    }

    /// Moves to the first way from `from` on that must be tried; returns whether there is one.
    pub(super) fn choose_from(&mut self, from: usize, reduction: ActReduction) -> bool {
        for index in from..self.ways.len() {
            let way = &self.ways[index];
            let needed = match way.kind {
                _ if reduction.is_plain() => true,
                OptionKind::Pick | OptionKind::Late => true,
                OptionKind::Cpu => !self.is_asleep(way),
                OptionKind::Act => !self.is_asleep(way) && self.is_relevant(index, reduction),
            };
            if needed {
                self.at = index;
                self.ways[index].tried = true;
                return true;
            }
        }
        false
    }

    /// Whether the step of a CPU that may come next depends on the act at `index`.
    ///
    /// It does so directly, or by other acts before that step.
    pub(super) fn is_relevant(&self, index: usize, reduction: ActReduction) -> bool {
        let cpus: Vec<&Footprint> = self.steps_of_cpus().collect();
        if cpus.is_empty() {
            // An act that must come at once, before any CPU goes on.
            return true;
        }
        let left = self.left.acts - u32::from(self.ways[index].acts);
        let conflicts = |way: &WayOn, footprint: &Footprint| reduction.conflict(&way.reach, footprint);
        let mut seen = vec![index];
        let mut next = 0;
        while let Some(current) = seen.get(next).copied() {
            next += 1;
            if cpus.iter().any(|cpu| conflicts(&self.ways[current], cpu)) {
                return true;
            }
            for (other, way) in self.ways.iter().enumerate() {
                let possible = way.kind == OptionKind::Act && (!way.acts || left > 0) && !seen.contains(&other);
                if possible && conflicts(&self.ways[current], &way.reach) {
                    seen.push(other);
                }
            }
        }
        false
    }

    /// The steps that CPUs may take here.
    pub(super) fn steps_of_cpus(&self) -> impl Iterator<Item = &Footprint> {
        let cpus = self.ways.iter().filter(|way| way.kind == OptionKind::Cpu);
        cpus.filter_map(|way| {
            let asleep = self.asleep.iter().find(|asleep| asleep.name == way.name);
            way.footprint.as_ref().or(asleep.map(|asleep| &asleep.footprint))
        })
    }
}
