//! The states that an exhaustive search has reached (INV-CHECK-MERGED).
//!
//! **INV-CHECK-MERGED** An exhaustive search gives a run up at a state that it has reached before
//! only if all that decides the rest of the run is equal – the machine, what the judge remembers,
//! and what programs have done and seen, in order – and if the earlier visit had at least as much
//! left of both bounds and nothing asleep that is awake now.

use super::node::Node;
use super::{SearchBounds, Tree};
use pagewright_sim::explore::MachineView;
use pagewright_types::CpuId;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A visit of a state.
#[derive(Debug)]
pub(super) struct ReachedState {
    left: SearchBounds,
    /// The steps that were asleep, sorted by their hashes.
    asleep: Vec<u64>,
}

impl ReachedState {
    /// Whether all that `other` would search was searched from this visit.
    pub(super) fn stands_for(&self, other: &Self) -> bool {
        self.left.preemptions >= other.left.preemptions
            && self.left.acts >= other.left.acts
            && self.asleep.iter().all(|name| other.asleep.binary_search(name).is_ok())
    }
}

pub(super) fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Tree {
    /// Whether an earlier visit of this state stands for this one; notes this one if not.
    ///
    /// The state is that of the machine and of this run: which CPU ran last, which are in handlers,
    /// and what was made late. The earlier visit must have had as much left of both bounds, and
    /// nothing asleep that is awake now.
    pub(super) fn was_reached(&mut self, machine: &dyn MachineView, last: CpuId) -> bool {
        let Some(state) = self.reduction.merged_by(|| machine.state()) else { return false };
        let mut handlers = self.run.handlers.clone();
        handlers.sort_unstable();
        let mut late: Vec<u64> = self.run.late.iter().map(|late| hash_of((late.name, late.mattered))).collect();
        late.sort_unstable();
        let key = hash_of((state, last, handlers, self.run.handler_ended, self.run.started, late));
        let mut asleep: Vec<u64> = self.asleep_now().iter().map(|asleep| hash_of(asleep.name)).collect();
        asleep.sort_unstable();
        let visit = ReachedState { left: self.nodes.last().map_or(self.bounds, Node::left_after), asleep };
        let visits = self.reached.entry(key).or_default();
        if visits.iter().any(|earlier| earlier.stands_for(&visit)) {
            return true;
        }
        visits.retain(|earlier| !visit.stands_for(earlier));
        visits.push(visit);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(preemptions: u32, acts: u32, asleep: &[u64]) -> ReachedState {
        ReachedState { left: SearchBounds { preemptions, acts }, asleep: asleep.to_vec() }
    }

    // INV-CHECK-MERGED.
    #[test]
    fn an_earlier_visit_stands_only_for_what_it_has_searched() {
        let earlier = visit(1, 1, &[7]);
        assert!(earlier.stands_for(&visit(1, 1, &[7])));
        assert!(earlier.stands_for(&visit(0, 1, &[5, 7, 9])));
        assert!(!earlier.stands_for(&visit(2, 0, &[7])), "more preemptions are left now");
        assert!(!earlier.stands_for(&visit(0, 2, &[7])), "more acts are left now");
        assert!(!earlier.stands_for(&visit(1, 1, &[5, 9])), "a step is awake now that was asleep");
    }
}
