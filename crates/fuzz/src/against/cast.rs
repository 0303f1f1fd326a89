//! The processes of a program: which live, and which one runs.
//!
//! The same on both sides, by number in order of birth.

/// Processes that live at once; a fork beyond that is left out.
const MOST: usize = 4;

/// The processes of a program.
pub(super) struct Cast {
    live: Vec<usize>,
    running: usize,
    born: usize,
}

impl Cast {
    pub(super) fn new() -> Self {
        Self { live: vec![0], running: 0, born: 1 }
    }

    pub(super) fn live(&self) -> &[usize] {
        &self.live
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// The one at this place runs, counted round.
    pub(super) fn switch(&mut self, place: usize) {
        self.running = self.live[place % self.live.len()];
    }

    pub(super) fn may_fork(&self) -> bool {
        self.live.len() < MOST
    }

    pub(super) fn forked(&mut self) {
        self.live.push(self.born);
        self.born += 1;
    }

    /// The last one stays.
    pub(super) fn may_exit(&self) -> bool {
        self.live.len() > 1
    }

    pub(super) fn exited(&mut self) {
        self.live.retain(|process| *process != self.running);
        self.running = self.live[0];
    }
}
