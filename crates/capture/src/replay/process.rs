//! Processes and threads of the capture, as far as they have been fed.

use super::queue::{Item, Phases};
use super::report::ImageReport;
use pagewright_mm::Space;
use pagewright_sim::{Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::CpuId;
use std::collections::VecDeque;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// Its birth.
    Birth,
    /// Nothing: it runs or waits for a CPU.
    Nothing,
    /// More of the capture.
    Feed,
    /// The next phase of its process.
    Phase,
    /// The end of this child.
    Child(u32),
    /// This `vfork` child to leave its memory.
    Vfork(u32),
    /// Nothing any more: it has ended.
    Ended,
}

pub(super) struct Thread {
    pub(super) process: u32,
    pub(super) queue: VecDeque<Item>,
    pub(super) waits: WaitReason,
    /// When it stopped.
    pub(super) stopped: Picos,
}

/// Where a process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifeState {
    /// Fed, its fork not yet done.
    Unborn,
    Alive,
    Ended(Picos),
}

pub(super) struct Process<I: pagewright_arch::Isa> {
    pub(super) life: LifeState,
    /// Its memory; a `vfork` child has its parent's until it execs.
    pub(super) space: Option<Arc<Space<Sim<I>>>>,
    pub(super) borrowed: bool,
    pub(super) parent: Option<u32>,
    pub(super) threads: Vec<u32>,
    pub(super) phases: Phases,
    /// How the report names it: the root is `[]`, its second child `[1]`.
    pub(super) path: Vec<u32>,
    pub(super) children: u32,
    /// Images so far (`execve`).
    pub(super) image: u32,
    pub(super) name: String,
    /// Whether its image has not come to its data yet, so that what the kernel touches is
    /// `execve`'s.
    pub(super) loading: bool,
    /// Where the report of the image before this one stands.
    pub(super) replaced: Option<usize>,
    /// Faults that the space had served when the image began.
    pub(super) faults_before: (u64, u64),
    /// Faults that the space had served when a `vfork` child got to use it.
    pub(super) faults_at_vfork: (u64, u64),
}

impl<I: pagewright_arch::Isa> Process<I> {
    /// What the present image has cost, as Linux counts it.
    pub(super) fn image_report(&self) -> Option<ImageReport> {
        let space = self.space.as_ref()?;
        let (minor, major) = (space.minor_faults(), space.major_faults());
        Some(ImageReport {
            process: self.path.clone(),
            image: self.image,
            command: self.name.clone(),
            minor_faults: minor - self.faults_before.0,
            major_faults: major - self.faults_before.1,
            // A child that still has its parent's memory has none of its own to report.
            peak_rss_bytes: (!self.borrowed).then(|| space.rss().peak_bytes()),
            page_table_bytes: (!self.borrowed).then(|| space.table().bytes()),
        })
    }
}

/// CPUs of a machine, by number.
pub(super) fn cpus(count: u16) -> impl Iterator<Item = CpuId> {
    (0..count).map(CpuId::new)
}
