//! The contents of a trace, counted without a replay.
//!
//! [`TraceContents::read`] reads a trace to its end. Its memory depends on the number of pages that
//! the program touched, not on the length of the trace.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;

use rustc_hash::FxHashSet;

use crate::trace::{
    AccessOrigin, AccessStream, CapturedFile, ImageBacking, MemCall, MemOp, PAGE_SIZE, PageNo, Pid, RawMapFlags,
    TaskEvent, TraceError, TraceEvent, TraceReader,
};

/// The calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CallCounts {
    /// Number of calls that succeeded.
    pub succeeded: u64,
    /// Number of calls that failed.
    pub failed: u64,
}

/// The mappings of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MappingCounts {
    /// Number of mappings made.
    pub mappings: u64,
    /// The sum of their lengths, in bytes.
    pub bytes: u64,
}

/// A process of the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ProcessContents {
    /// Its number in the trace.
    pub pid: u32,
    /// Its parent's number; `None` for the root.
    pub parent: Option<u32>,
    /// Whether it began by `vfork`.
    pub vfork: bool,
    /// The first argument of each image, in the order of `execve`.
    pub images: Vec<String>,
    /// Number of threads.
    pub threads: u64,
    /// Number of fetches, loads and stores.
    pub accesses: u64,
    /// Number of memory calls.
    pub calls: u64,
    /// Number of different pages touched by the program or by its system calls.
    pub pages: u64,
    /// The exit status, or 128 plus a signal; `None` if the trace ends before the exit.
    pub status: Option<u32>,
}

/// The contents of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TraceContents {
    /// Number of events.
    pub events: u64,
    /// Number of instruction fetches.
    pub fetches: u64,
    /// Number of loads.
    pub loads: u64,
    /// Number of stores.
    pub stores: u64,
    /// Number of pages that system calls read or wrote.
    pub kernel_accesses: u64,
    /// The calls by name.
    pub calls: BTreeMap<String, CallCounts>,
    /// The mappings that calls and program images made, by kind.
    pub mappings: BTreeMap<&'static str, MappingCounts>,
    /// Number of different pages that were touched, summed over the processes.
    pub pages: u64,
    /// Number of these pages that were stored to.
    pub pages_written: u64,
    /// Number of these pages that were executed.
    pub pages_executed: u64,
    /// The processes, in order of creation.
    pub processes: Vec<ProcessContents>,
    /// The files that were mapped or executed: path, and size in bytes if it was known.
    pub files: Vec<(String, Option<u64>)>,
}

/// The state of the reading.
#[derive(Default)]
struct Survey {
    contents: TraceContents,
    /// The index of each process in the contents.
    index: HashMap<Pid, usize>,
    current: Pid,
    touched: FxHashSet<(Pid, PageNo)>,
    written: FxHashSet<(Pid, PageNo)>,
    executed: FxHashSet<(Pid, PageNo)>,
}

impl TraceContents {
    /// Reads `trace` to its end.
    ///
    /// # Errors
    /// [`TraceError`]: the trace cannot be read.
    pub fn read<R: Read>(trace: &mut TraceReader<R>) -> Result<Self, TraceError> {
        let (mut survey, mut batch) = (Survey::default(), Vec::new());
        while trace.next_batch(&mut batch)? {
            for event in &batch {
                survey.contents.events += 1;
                survey.event(event);
            }
        }
        let Survey { mut contents, index, touched, written, executed, .. } = survey;
        for (pid, _) in &touched {
            if let Some(at) = index.get(pid) {
                contents.processes[*at].pages += 1;
            }
        }
        contents.pages = touched.len() as u64;
        contents.pages_written = written.len() as u64;
        contents.pages_executed = executed.len() as u64;
        Ok(contents)
    }

    /// Number of threads of all processes.
    pub fn threads(&self) -> u64 {
        self.processes.iter().map(|process| process.threads).sum()
    }

    /// Number of memory calls.
    pub fn call_count(&self) -> u64 {
        self.calls.values().map(|calls| calls.succeeded + calls.failed).sum()
    }
}

impl Survey {
    fn event(&mut self, event: &TraceEvent) {
        match event {
            TraceEvent::Run(run) => {
                let key = (self.current, run.page);
                self.touched.insert(key);
                if run.writes > 0 {
                    self.written.insert(key);
                }
                let (reads, writes) = (u64::from(run.reads), u64::from(run.writes));
                match (run.origin, run.stream) {
                    (AccessOrigin::Kernel, _) => {
                        self.contents.kernel_accesses += 1;
                        return;
                    }
                    (AccessOrigin::User, AccessStream::Fetch) => {
                        self.contents.fetches += reads;
                        self.executed.insert(key);
                    }
                    (AccessOrigin::User, AccessStream::Data) => self.contents.loads += reads,
                }
                self.contents.stores += writes;
                if let Some(process) = self.process() {
                    process.accesses += reads + writes;
                }
            }
            TraceEvent::Switch { pid, .. } => self.current = *pid,
            TraceEvent::Task(task) => self.task(task),
            TraceEvent::Call(call) => self.call(call),
            TraceEvent::File(file) => {
                let CapturedFile { path, size, .. } = &**file;
                self.contents.files.push((path.clone(), *size));
            }
        }
    }

    fn process(&mut self) -> Option<&mut ProcessContents> {
        let at = *self.index.get(&self.current)?;
        self.contents.processes.get_mut(at)
    }

    fn new_process(&mut self, pid: Pid, parent: Option<Pid>, vfork: bool) {
        self.index.insert(pid, self.contents.processes.len());
        let parent = parent.map(|pid| pid.0);
        let process = ProcessContents { pid: pid.0, parent, vfork, threads: 1, ..ProcessContents::default() };
        self.contents.processes.push(process);
    }

    fn map(&mut self, kind: &'static str, len: u64) {
        let counts = self.contents.mappings.entry(kind).or_default();
        counts.mappings += 1;
        counts.bytes += len.div_ceil(PAGE_SIZE) * PAGE_SIZE;
    }

    fn task(&mut self, task: &TaskEvent) {
        match task {
            TaskEvent::Begin { pid, .. } => {
                self.current = *pid;
                self.new_process(*pid, None, false);
            }
            TaskEvent::Fork { child, vfork, .. } => self.new_process(*child, Some(self.current), *vfork),
            TaskEvent::CloneThread { .. } => {
                if let Some(process) = self.process() {
                    process.threads += 1;
                }
            }
            TaskEvent::Exec { image } => {
                let name = image.args.first().cloned().unwrap_or_default();
                if let Some(process) = self.process() {
                    process.images.push(name);
                }
                for mapping in &image.mappings {
                    let kind = match mapping.backing {
                        ImageBacking::File { .. } => "program image, file",
                        ImageBacking::Anonymous {} => "program image, bss",
                        ImageBacking::Stack {} => "stack",
                        ImageBacking::Vvar {} | ImageBacking::Vdso {} => continue,
                    };
                    self.map(kind, mapping.len);
                }
            }
            TaskEvent::ExitProcess { status } => {
                let status = *status;
                if let Some(process) = self.process() {
                    process.status = Some(status);
                }
            }
            TaskEvent::ExitThread {} | TaskEvent::Reaped { .. } => {}
        }
    }

    fn call(&mut self, call: &MemCall) {
        let counts = self.contents.calls.entry(call.op.name().into_owned()).or_default();
        match call.result {
            Ok(_) => counts.succeeded += 1,
            Err(_) => counts.failed += 1,
        }
        if let Some(process) = self.process() {
            process.calls += 1;
        }
        match &call.op {
            MemOp::Mmap { len, flags, file, .. } if call.result.is_ok() => {
                let kind = match (file.is_some(), flags.contains(RawMapFlags::SHARED)) {
                    (true, true) => "mmap, shared file",
                    (true, false) => "mmap, private file",
                    (false, true) => "mmap, shared anonymous",
                    (false, false) => "mmap, private anonymous",
                };
                self.map(kind, *len);
            }
            MemOp::Inferred { len, .. } => self.map("inferred", *len),
            _ => {}
        }
    }
}
