//! Feeding: the events of the capture go to the queues of their threads.
//!
//! A thread, process or file exists here from the moment its first event is fed, so that its events
//! can be queued. The simulated machine creates it later, when the replay reaches that event.

use super::engine::Engine;
use super::file::ContentlessFile;
use super::process::{Process, Thread, WaitReason};
use super::queue::{Op, QueuedItem, Work};
use super::source::EventSource;
use super::{CaptureReplayError, TraceInconsistency};
use crate::trace::{CapturedFile, TaskEvent, TraceEvent};
use pagewright_arch::Isa;
use pagewright_mm::file::FileKind;
use pagewright_sim::sched::ThreadId;
use pagewright_types::CpuId;

impl<I: Isa> Engine<'_, I> {
    /// Feeds a batch of events; returns `false` at the end of the capture.
    pub(super) fn feed_batch(
        &mut self,
        source: &mut dyn EventSource,
        batch: &mut Vec<TraceEvent>,
    ) -> Result<bool, CaptureReplayError> {
        let more = source.next_batch(batch)?;
        if more {
            for event in batch.drain(..) {
                self.fed += 1;
                self.feed(event)?;
            }
        }
        Ok(more)
    }

    fn feed(&mut self, event: TraceEvent) -> Result<(), CaptureReplayError> {
        match event {
            TraceEvent::Run(run) => self.push(Work::Run(run)),
            TraceEvent::Switch { tid, .. } => {
                self.thread(tid.0)?;
                self.fed_thread = tid.0;
                Ok(())
            }
            TraceEvent::Call(call) => self.push(Work::Op(Op::Call(call, self.fed))),
            TraceEvent::File(file) => self.add_file(&file),
            TraceEvent::Task(task) => self.feed_task(task),
        }
    }

    fn feed_task(&mut self, task: Box<TaskEvent>) -> Result<(), CaptureReplayError> {
        match &*task {
            TaskEvent::Begin { pid, tid } => {
                self.add_process(pid.0, tid.0, None)?;
                self.fed_thread = tid.0;
                return self.begin(pid.0, tid.0);
            }
            TaskEvent::Fork { child, tid, .. } => {
                let parent = self.thread(self.fed_thread)?.process;
                self.add_process(child.0, tid.0, Some(parent))?;
            }
            TaskEvent::CloneThread { tid } => {
                let pid = self.thread(self.fed_thread)?.process;
                self.process(pid)?.phases.set_multithreaded();
                self.add_thread(tid.0, pid)?;
            }
            TaskEvent::Exec { .. }
            | TaskEvent::ExitThread {}
            | TaskEvent::ExitProcess { .. }
            | TaskEvent::Reaped { .. } => {}
        }
        self.push(Work::Op(Op::Task(task)))
    }

    /// Queues work for the thread whose events are fed.
    fn push(&mut self, work: Work) -> Result<(), CaptureReplayError> {
        let inconsistent = |what| CaptureReplayError::Inconsistent { events: self.events, what };
        let index = self.fed_thread as usize;
        let Some(thread) = self.threads.get_mut(index).and_then(Option::as_mut) else {
            return Err(inconsistent(TraceInconsistency::UnknownThread(self.fed_thread)));
        };
        let Some(process) = self.processes.get_mut(thread.process as usize).and_then(Option::as_mut) else {
            return Err(inconsistent(TraceInconsistency::UnknownProcess(thread.process)));
        };
        let phase = match &work {
            Work::Run(_) => process.phases.add_access(),
            Work::Op(_) => process.phases.add_op(),
        };
        thread.queue.push_back(QueuedItem { phase, work });
        self.queued += 1;
        if thread.wait == WaitReason::Events {
            thread.wait = WaitReason::Nothing;
            self.sched.wake(ThreadId::new(self.fed_thread), thread.stopped);
        }
        Ok(())
    }

    fn add_file(&mut self, file: &CapturedFile) -> Result<(), CaptureReplayError> {
        // Files are numbered from 1.
        self.files.resize_with(self.files.len().max(1), || None);
        if file.id.0 as usize != self.files.len() {
            return Err(self.inconsistent(TraceInconsistency::FileOutOfOrder(file.id.0)));
        }
        let kind = FileKind::File(Box::new(ContentlessFile));
        // The size of a file that did not exist any more when the trace was written is unknown;
        // this is more than any mapping needs.
        let size = file.size.unwrap_or(1 << 40);
        let known = self.lab.on(CpuId::new(0), |mm| mm.add_file(&file.path, kind, size));
        let object = known.map_err(|error| CaptureReplayError::NoMemoryForFile {
            path: file.path.clone(),
            events: self.events,
            error,
        })?;
        self.files.push(Some(object));
        Ok(())
    }

    /// Adds a process with its first thread, which has the same number.
    fn add_process(&mut self, pid: u32, tid: u32, parent: Option<u32>) -> Result<(), CaptureReplayError> {
        if pid != tid {
            return Err(self.inconsistent(TraceInconsistency::ThreadOutOfOrder(pid)));
        }
        self.add_thread(tid, pid)?;
        self.processes.resize_with(pid as usize, || None);
        self.processes.push(Some(Process::new(parent)));
        Ok(())
    }

    fn add_thread(&mut self, tid: u32, pid: u32) -> Result<(), CaptureReplayError> {
        // Threads are numbered from 1.
        self.threads.resize_with(self.threads.len().max(1), || None);
        if tid as usize != self.threads.len() {
            return Err(self.inconsistent(TraceInconsistency::ThreadOutOfOrder(tid)));
        }
        self.threads.push(Some(Thread::new(pid)));
        Ok(())
    }
}
