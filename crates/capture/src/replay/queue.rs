//! The queued events of a thread, and the order between the threads of one process.
//!
//! Each process has numbered *phases*. A call, a fork, an exec or an exit is a phase of its own;
//! the accesses of all threads between two of them form one phase. A thread executes an item only
//! in the item's phase. A process with a single thread needs no phases.

use crate::trace::{AccessRun, MemCall, TaskEvent};
use std::collections::VecDeque;

/// An operation of a thread, other than an access.
#[derive(Debug)]
pub(super) enum Op {
    /// A call, with its position among the events of the capture.
    Call(Box<MemCall>, u64),
    Task(Box<TaskEvent>),
}

/// The work of a queued item.
#[derive(Debug)]
pub(super) enum Work {
    Run(AccessRun),
    Op(Op),
}

/// An item of a thread's queue, with the phase in which it may be executed; 0 is any phase.
#[derive(Debug)]
pub(super) struct QueuedItem {
    pub(super) phase: u32,
    pub(super) work: Work,
}

/// The phases of a process that are not complete.
#[derive(Debug)]
pub(super) struct Phases {
    /// Whether the process has ever had two threads; before that, phases are not used.
    multithreaded: bool,
    /// The phase whose items may be executed.
    current: u32,
    /// Number of items left in the current phase and in each later one.
    ///
    /// The last phase is open for further accesses.
    left: VecDeque<u32>,
}

impl Phases {
    pub(super) fn new() -> Self {
        Self { multithreaded: false, current: 1, left: VecDeque::from([0]) }
    }

    /// Starts the use of phases.
    pub(super) fn set_multithreaded(&mut self) {
        self.multithreaded = true;
    }

    /// Adds an access to the open phase; returns that phase.
    #[inline]
    pub(super) fn add_access(&mut self) -> u32 {
        if !self.multithreaded {
            return 0;
        }
        if let Some(open) = self.left.back_mut() {
            *open += 1;
        }
        self.current + self.left.len() as u32 - 1
    }

    /// Adds a phase for one operation, and an open phase after it; returns the operation's phase.
    pub(super) fn add_op(&mut self) -> u32 {
        if !self.multithreaded {
            return 0;
        }
        match self.left.back_mut() {
            Some(open) if *open == 0 => *open = 1,
            Some(_) | None => self.left.push_back(1),
        }
        self.left.push_back(0);
        self.current + self.left.len() as u32 - 2
    }

    /// Whether an item of `phase` may be executed now.
    #[inline]
    pub(super) fn is_due(&self, phase: u32) -> bool {
        phase == 0 || phase == self.current
    }

    /// Completes an item of the current phase; returns whether the next phase begins.
    #[inline]
    pub(super) fn complete(&mut self, phase: u32) -> bool {
        if phase == 0 {
            return false;
        }
        let index = (phase - self.current) as usize;
        self.left[index] -= 1;
        let mut moved = false;
        while self.left.len() > 1 && self.left[0] == 0 {
            self.left.pop_front();
            self.current += 1;
            moved = true;
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_share_a_phase_and_a_call_has_its_own() {
        let mut phases = Phases::new();
        assert_eq!((phases.add_access(), phases.add_op()), (0, 0), "one thread needs no phases");
        phases.set_multithreaded();
        let (a, b) = (phases.add_access(), phases.add_access());
        let call = phases.add_op();
        let after = phases.add_access();
        assert_eq!(a, b);
        assert!(a < call && call < after);
        assert!(phases.is_due(a) && !phases.is_due(call) && !phases.is_due(after));
        assert!(!phases.complete(a));
        assert!(phases.complete(b), "the call is due after the last access before it");
        assert!(phases.is_due(call));
        assert!(phases.complete(call));
        assert!(phases.is_due(after));
        assert!(!phases.complete(after), "the open phase may get further accesses");
        let again = phases.add_access();
        assert!(phases.is_due(again));
    }

    #[test]
    fn two_consecutive_calls_are_two_phases() {
        let mut phases = Phases::new();
        phases.set_multithreaded();
        let (first, second) = (phases.add_op(), phases.add_op());
        assert!(first < second && phases.is_due(first));
        assert!(phases.complete(first) && phases.is_due(second));
    }
}
