//! The live processes of a program, and which one runs: the same on both sides.
//!
//! Processes are numbered in the order of creation.

/// Limit of the live processes; further forks are skipped.
const MAX_PROCESSES: usize = 4;

/// The processes of a program.
pub(super) struct ProcessList {
    live: Vec<usize>,
    running: usize,
    created: usize,
}

impl ProcessList {
    pub(super) fn new() -> Self {
        Self { live: vec![0], running: 0, created: 1 }
    }

    pub(super) fn live(&self) -> &[usize] {
        &self.live
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Runs the live process with this index, modulo their number.
    pub(super) fn switch(&mut self, index: usize) {
        self.running = self.live[index % self.live.len()];
    }

    pub(super) fn may_fork(&self) -> bool {
        self.live.len() < MAX_PROCESSES
    }

    pub(super) fn add_child(&mut self) {
        self.live.push(self.created);
        self.created += 1;
    }

    /// Whether another process remains.
    pub(super) fn may_exit(&self) -> bool {
        self.live.len() > 1
    }

    pub(super) fn remove_running(&mut self) {
        self.live.retain(|process| *process != self.running);
        self.running = self.live[0];
    }
}
