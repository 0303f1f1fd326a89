//! The creation, exec and exit of processes and threads.

use super::CaptureReplayError;
use super::diverged::DivergedRanges;
use super::engine::Engine;
use super::process::{LifeState, Process, Thread, WaitReason, cpus};
use super::queue::Phases;
use crate::trace::{ExecImage, ImageBacking, TaskEvent};
use pagewright_arch::Isa;
use pagewright_mm::space::{FileMapping, Privileges, Resource, Rlimits};
use pagewright_mm::{MapFlags, MapRequest, MmError, Space};
use pagewright_sim::{Picos, Sim};
use pagewright_sync::Arc;
use pagewright_types::{CpuId, Rights, VirtAddr};
use std::collections::VecDeque;

impl Thread {
    pub(super) fn new(process: u32) -> Self {
        Self { process, queue: VecDeque::new(), wait: WaitReason::Start, stopped: Picos::new(0) }
    }

    /// Marks the thread as exited, and frees the unused memory of its queue.
    pub(super) fn exit(&mut self) {
        self.wait = WaitReason::Exited;
        self.queue.shrink_to_fit();
    }
}

/// Whether a thread can continue its turn after an operation.
pub(super) enum Progress {
    /// It can.
    Continue,
    /// It waits, or has exited.
    Stop,
}

impl<I: Isa> Process<I> {
    pub(super) fn new(parent: Option<u32>) -> Self {
        Self {
            life: LifeState::NotStarted,
            space: None,
            borrowed: false,
            diverged: DivergedRanges::default(),
            parent,
            threads: Vec::new(),
            phases: Phases::new(),
            path: Vec::new(),
            children: 0,
            image: 0,
            name: String::new(),
            loading: false,
            previous_image: None,
            faults_before: (0, 0),
            faults_at_vfork: (0, 0),
        }
    }
}

impl<I: Isa> Engine<'_, I> {
    /// Starts the root process, with an empty address space.
    pub(super) fn begin(&mut self, pid: u32, tid: u32) -> Result<(), CaptureReplayError> {
        let space = self.lab.on(CpuId::new(0), |mm| mm.new_space()).map_err(|error| self.out_of_memory(pid, error))?;
        let process = self.process(pid)?;
        process.life = LifeState::Alive;
        process.space = Some(space);
        process.threads.push(tid);
        self.schedule(tid, Picos::new(0))
    }

    pub(super) fn task(
        &mut self,
        cpu: CpuId,
        pid: u32,
        tid: u32,
        task: TaskEvent,
    ) -> Result<Progress, CaptureReplayError> {
        match task {
            // The root was started when its `Begin` was fed.
            TaskEvent::Begin { .. } => Ok(Progress::Continue),
            TaskEvent::Exec { image } => self.exec(cpu, pid, tid, &image).map(|()| Progress::Continue),
            TaskEvent::CloneThread { tid } => {
                self.process(pid)?.threads.push(tid.0);
                let now = self.lab.sim().clock(cpu);
                self.schedule(tid.0, now).map(|()| Progress::Continue)
            }
            TaskEvent::Fork { child, tid: child_tid, vfork } => self.fork(cpu, pid, tid, child.0, child_tid.0, vfork),
            TaskEvent::ExitThread {} => {
                self.thread(tid)?.wait = WaitReason::Exited;
                self.process(pid)?.threads.retain(|thread| *thread != tid);
                self.lab.idle(cpu);
                Ok(Progress::Stop)
            }
            TaskEvent::ExitProcess { .. } => {
                self.thread(tid)?.wait = WaitReason::Exited;
                self.exit_process(cpu, pid)?;
                Ok(Progress::Stop)
            }
            TaskEvent::Reaped { child } => match self.process(child.0)?.life {
                LifeState::Exited(at) => {
                    self.lab.sim().idle_until(cpu, at);
                    Ok(Progress::Continue)
                }
                LifeState::Alive | LifeState::NotStarted => {
                    self.thread(tid)?.wait = WaitReason::Child(child.0);
                    Ok(Progress::Stop)
                }
            },
        }
    }

    fn fork(
        &mut self,
        cpu: CpuId,
        pid: u32,
        tid: u32,
        child: u32,
        child_tid: u32,
        vfork: bool,
    ) -> Result<Progress, CaptureReplayError> {
        let space = self.space_of(pid)?;
        let copy = if vfork {
            space
        } else {
            let began = self.lab.sim().clock(cpu);
            let copy = self.lab.on(cpu, |mm| mm.fork(&space)).map_err(|error| self.out_of_memory(pid, error))?;
            self.forks.note_fork(began, self.lab.sim().clock(cpu));
            copy
        };
        let faults = if vfork { (copy.minor_faults(), copy.major_faults()) } else { (0, 0) };
        let diverged = if vfork { DivergedRanges::default() } else { self.diverged_ranges(pid)?.clone() };
        let parent = self.process(pid)?;
        let (mut path, nth, name) = (parent.path.clone(), parent.children, parent.name.clone());
        parent.children += 1;
        parent.faults_at_vfork = faults;
        path.push(nth);
        let process = self.process(child)?;
        process.life = LifeState::Alive;
        process.space = Some(copy);
        process.borrowed = vfork;
        process.diverged = diverged;
        process.threads.push(child_tid);
        process.path = path;
        process.name = name;
        process.faults_before = faults;
        self.forks.note_tables(self.lab, cpu, &self.processes);
        let now = self.lab.sim().clock(cpu);
        self.schedule(child_tid, now)?;
        if vfork {
            self.thread(tid)?.wait = WaitReason::Vfork(child);
            return Ok(Progress::Stop);
        }
        Ok(Progress::Continue)
    }

    /// Replaces the image of a process: frees its memory, then maps the new image.
    fn exec(&mut self, cpu: CpuId, pid: u32, tid: u32, image: &ExecImage) -> Result<(), CaptureReplayError> {
        for other in std::mem::take(&mut self.process(pid)?.threads) {
            if other != tid {
                self.thread(other)?.exit();
                self.sched.exit(pagewright_sim::sched::ThreadId::new(other));
            }
        }
        self.process(pid)?.threads.push(tid);
        self.forks.note_tables(self.lab, cpu, &self.processes);
        let space = self.lab.on(cpu, |mm| mm.new_space()).map_err(|error| self.out_of_memory(pid, error))?;
        let previous_image = self.finish_image(cpu, pid)?;
        let process = self.process(pid)?;
        process.space = Some(space.clone());
        process.loading = true;
        process.previous_image = previous_image;
        process.borrowed = false;
        process.diverged = DivergedRanges::default();
        process.image += 1;
        process.faults_before = (0, 0);
        process.name = image.args.first().map_or(String::new(), |path| base_name(path));
        self.lab.run(cpu, &space);
        for mapping in &image.mappings {
            let (mut flags, mut file) = (MapFlags::PRIVATE | MapFlags::FIXED, None);
            match &mapping.backing {
                ImageBacking::File { file: id, offset } => file = Some((self.file(id.0)?, *offset)),
                ImageBacking::Anonymous {} => flags |= MapFlags::ANONYMOUS,
                ImageBacking::Stack {} => flags |= MapFlags::ANONYMOUS | MapFlags::GROWSDOWN,
                // The kernel's pages in user space are not counted in RSS, and the capturing tool
                // hides them from the program.
                ImageBacking::Vvar {} | ImageBacking::Vdso {} => continue,
            }
            let request = MapRequest {
                addr: VirtAddr::new(mapping.start.0),
                len: mapping.len,
                rights: Rights::from_bits_truncate(mapping.prot.0 as u8),
                flags,
                file: file.as_ref().map(|(file, offset)| FileMapping { file, offset: *offset, opened: Rights::RX }),
            };
            if let Err(error) = self.lab.on(cpu, |mm| mm.mmap(&space, &request)) {
                return Err(CaptureReplayError::ImageRefused { pid, at: mapping.start, events: self.events, error });
            }
        }
        self.lab.on(cpu, |mm| {
            mm.set_brk_start(&space, VirtAddr::new(image.brk.0));
            // Every replayed call succeeded on Linux, so no limit may refuse it here.
            let limits = Rlimits::default().with_privileges(Privileges::IPC_LOCK);
            mm.set_limits(&space, limits.with(Resource::Stack, image.stack_limit));
        });
        Ok(())
    }

    /// Ends a process with all its threads, and wakes the threads that wait for its exit.
    pub(super) fn exit_process(&mut self, cpu: CpuId, pid: u32) -> Result<(), CaptureReplayError> {
        for tid in std::mem::take(&mut self.process(pid)?.threads) {
            self.thread(tid)?.exit();
            self.sched.exit(pagewright_sim::sched::ThreadId::new(tid));
        }
        self.forks.note_tables(self.lab, cpu, &self.processes);
        self.finish_image(cpu, pid)?;
        let now = self.lab.sim().clock(cpu);
        self.process(pid)?.life = LifeState::Exited(now);
        self.wake(now, |thread| thread.wait == WaitReason::Child(pid));
        Ok(())
    }

    /// Counts faults in the memory of a new image for the image that called `execve`.
    pub(super) fn count_for_previous_image(
        &mut self,
        pid: u32,
        minor: u64,
        major: u64,
    ) -> Result<(), CaptureReplayError> {
        let process = self.process(pid)?;
        process.faults_before.0 += minor;
        process.faults_before.1 += major;
        if let Some(index) = process.previous_image {
            self.images[index].minor_faults += minor;
            self.images[index].major_faults += major;
        }
        Ok(())
    }

    /// Reports the current image, and ends its address space or returns it to the parent.
    ///
    /// Returns the index of the report. The state of the root before its first exec has no report.
    fn finish_image(&mut self, cpu: CpuId, pid: u32) -> Result<Option<usize>, CaptureReplayError> {
        let process = self.process(pid)?;
        let mut index = None;
        if process.image > 0 || process.parent.is_some() {
            let report = process.image_report();
            index = report.is_some().then_some(self.images.len());
            self.images.extend(report);
        }
        let process = self.process(pid)?;
        let (space, borrowed, parent) = (process.space.take(), process.borrowed, process.parent);
        process.borrowed = false;
        if borrowed {
            self.subtract_faults_of_child(parent, &space)?;
            let now = self.lab.sim().clock(cpu);
            self.wake(now, |thread| Some(thread.process) == parent && thread.wait == WaitReason::Vfork(pid));
            self.lab.on(cpu, |mm| mm.tlb().enter_lazy());
        } else if let Some(space) = space {
            // The other CPUs of the space are idle or run another space; this CPU leaves it now.
            for other in cpus(self.lab.sim().config().cpus) {
                if space.table().context().cpus().contains(other) {
                    self.lab.on(other, |mm| mm.tlb().enter_lazy());
                }
            }
            self.lab.on(cpu, |mm| {
                mm.tlb().leave_space();
                mm.end_space(&space);
            });
        }
        Ok(index)
    }

    /// Subtracts the faults of a `vfork` child from its parent's, because Linux counts by thread.
    fn subtract_faults_of_child(
        &mut self,
        parent: Option<u32>,
        space: &Option<Arc<Space<Sim<I>>>>,
    ) -> Result<(), CaptureReplayError> {
        if let (Some(parent), Some(space)) = (parent, space) {
            let (minor, major) = (space.minor_faults(), space.major_faults());
            let parent = self.process(parent)?;
            let (at_fork_minor, at_fork_major) = parent.faults_at_vfork;
            parent.faults_before.0 += minor - at_fork_minor;
            parent.faults_before.1 += major - at_fork_major;
        }
        Ok(())
    }

    pub(super) fn out_of_memory(&self, pid: u32, error: MmError) -> CaptureReplayError {
        CaptureReplayError::OutOfMemory { pid, events: self.events, error }
    }
}

fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
