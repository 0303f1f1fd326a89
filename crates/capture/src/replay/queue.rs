//! What a thread still has to do, and what order the threads of one process keep.
//!
//! Each process numbers *phases*: a call, a fork or an end is a phase of its own, and the accesses
//! between two of them, of all threads, are one. A thread may do an item only in the item's phase.
//! While a process has one thread its own order suffices.

use crate::trace::{AccessRun, MemCall, TaskEvent};
use std::collections::VecDeque;

/// Something to do other than an access.
#[derive(Debug)]
pub(super) enum Op {
    Call(Box<MemCall>),
    Task(Box<TaskEvent>),
}

/// One item of a thread's queue.
#[derive(Debug)]
pub(super) enum Work {
    Run(AccessRun),
    Op(Op),
}

/// One item and the phase in which it may be done; 0 is any.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) phase: u32,
    pub(super) work: Work,
}

/// The phases of one process that are under way or have been fed.
#[derive(Debug)]
pub(super) struct Phases {
    /// Whether there ever were two threads; before that, phases are not used.
    several: bool,
    now: u32,
    /// Items left in phase `now` and those after it; the last is open for more accesses.
    left: VecDeque<u32>,
}

impl Phases {
    pub(super) fn new() -> Self {
        Self { several: false, now: 1, left: VecDeque::from([0]) }
    }

    /// From here on several threads must keep order.
    pub(super) fn several(&mut self) {
        self.several = true;
    }

    /// The phase for an access that is fed now.
    #[inline]
    pub(super) fn access(&mut self) -> u32 {
        if !self.several {
            return 0;
        }
        if let Some(open) = self.left.back_mut() {
            *open += 1;
        }
        self.now + self.left.len() as u32 - 1
    }

    /// The phase for anything else that is fed now: one of its own.
    pub(super) fn alone(&mut self) -> u32 {
        if !self.several {
            return 0;
        }
        match self.left.back_mut() {
            Some(open) if *open == 0 => *open = 1,
            Some(_) | None => self.left.push_back(1),
        }
        self.left.push_back(0);
        self.now + self.left.len() as u32 - 2
    }

    /// Whether an item of `phase` may be done now.
    #[inline]
    pub(super) fn is_due(&self, phase: u32) -> bool {
        phase == 0 || phase == self.now
    }

    /// An item of the present phase was done, or dropped; returns whether the next phase began.
    #[inline]
    pub(super) fn done(&mut self, phase: u32) -> bool {
        if phase == 0 {
            return false;
        }
        let index = (phase - self.now) as usize;
        self.left[index] -= 1;
        let mut moved = false;
        while self.left.len() > 1 && self.left[0] == 0 {
            self.left.pop_front();
            self.now += 1;
            moved = true;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_overlap_and_calls_stand_alone() {
        let mut phases = Phases::new();
        assert_eq!((phases.access(), phases.alone()), (0, 0), "one thread needs no phases");
        phases.several();
        let (a, b) = (phases.access(), phases.access());
        let call = phases.alone();
        let after = phases.access();
        assert_eq!(a, b);
        assert!(a < call && call < after);
        assert!(phases.is_due(a) && !phases.is_due(call) && !phases.is_due(after));
        assert!(!phases.done(a));
        assert!(phases.done(b), "the last access before the call makes it due");
        assert!(phases.is_due(call));
        assert!(phases.done(call));
        assert!(phases.is_due(after));
        assert!(!phases.done(after), "the open phase waits for more");
        let again = phases.access();
        assert!(phases.is_due(again));
    }

    #[test]
    fn two_calls_in_a_row_are_two_phases() {
        let mut phases = Phases::new();
        phases.several();
        let (first, second) = (phases.alone(), phases.alone());
        assert!(first < second && phases.is_due(first));
        assert!(phases.done(first) && phases.is_due(second));
    }
}
