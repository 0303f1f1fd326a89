//! The processes and threads of the capture that have been fed.

use super::diverged::DivergedRanges;
use super::queue::{Phases, QueuedItem};
use crate::ImageCounts;
use pagewright_mm::Space;
use pagewright_sim::{Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::CpuId;
use std::collections::VecDeque;

/// The event for which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    /// The replay of its creation.
    Start,
    /// None: the thread runs or waits for a CPU.
    Nothing,
    /// Further events of the capture.
    Events,
    /// The next phase of its process.
    Phase,
    /// The exit of this child.
    Child(u32),
    /// The exec or exit of this `vfork` child.
    Vfork(u32),
    /// None: the thread has exited.
    Exited,
}

/// A thread of the capture.
pub(super) struct Thread {
    pub(super) process: u32,
    pub(super) queue: VecDeque<QueuedItem>,
    pub(super) wait: WaitReason,
    /// The time at which it last stopped.
    pub(super) stopped: Picos,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LifeState {
    /// The replay has not reached its creation.
    NotStarted,
    Alive,
    /// Exited at this time.
    Exited(Picos),
}

/// A process of the capture.
pub(super) struct Process<I: pagewright_arch::Isa> {
    pub(super) life: LifeState,
    /// Its address space; a `vfork` child uses its parent's until its exec.
    pub(super) space: Option<Arc<Space<Sim<I>>>>,
    /// Whether the address space is the parent's.
    pub(super) borrowed: bool,
    /// The diverged calls of its address space; unused while the address space is the parent's.
    pub(super) diverged: DivergedRanges,
    pub(super) parent: Option<u32>,
    pub(super) threads: Vec<u32>,
    pub(super) phases: Phases,
    /// Its path of child indices: the root is `[]`, its second child `[1]`.
    pub(super) path: Vec<u32>,
    /// Number of children so far.
    pub(super) children: u32,
    /// Number of `execve`s so far.
    pub(super) image: u32,
    pub(super) name: String,
    /// Whether the image has made no data access, so that accesses of the kernel are `execve`'s.
    pub(super) loading: bool,
    /// The index of the previous image's report.
    pub(super) previous_image: Option<usize>,
    /// Minor and major faults of the space when the image began.
    pub(super) faults_before: (u64, u64),
    /// Minor and major faults of the space when its `vfork` child began.
    pub(super) faults_at_vfork: (u64, u64),
}

impl<I: pagewright_arch::Isa> Process<I> {
    /// The counts of the current image, as Linux counts them; `None` if it has no space.
    pub(super) fn image_report(&self) -> Option<ImageCounts> {
        let space = self.space.as_ref()?;
        let (minor, major) = (space.minor_faults(), space.major_faults());
        Some(ImageCounts {
            process: self.path.clone(),
            image: self.image,
            command: self.name.clone(),
            minor_faults: minor - self.faults_before.0,
            major_faults: major - self.faults_before.1,
            // The memory of a child that uses its parent's space is reported for the parent.
            peak_rss_bytes: (!self.borrowed).then(|| space.rss().peak_bytes()),
            page_table_bytes: (!self.borrowed).then(|| space.table().bytes()),
        })
    }
}

/// The first `count` CPUs.
pub(super) fn cpus(count: u16) -> impl Iterator<Item = CpuId> {
    (0..count).map(CpuId::new)
}
