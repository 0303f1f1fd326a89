//! The state that all processes of an import share: the trace, its numbers and its files.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::ImportError;
use super::files::FileTable;
use super::{ImportOptions, MappingInference};
use crate::trace::{
    AccessOrigin, AccessRun, AccessStream, FileId, PageNo, Pid, TaskEvent, Tid, TraceEvent, TraceWriter,
};

/// The shared state of an import.
pub(super) struct Context<'a, W> {
    pub(super) options: &'a ImportOptions,
    writer: TraceWriter<W>,
    output: PathBuf,
    files: FileTable,
    /// The current thread of the trace.
    current: (Pid, Tid),
    last_id: u32,
    /// The number in the trace of each process of the logs, and whether it has exited.
    processes: HashMap<u32, (Pid, bool)>,
}

impl<'a, W: Write> Context<'a, W> {
    pub(super) fn new(writer: TraceWriter<W>, output: PathBuf, options: &'a ImportOptions) -> Self {
        Self {
            options,
            writer,
            output,
            files: FileTable::default(),
            current: (Pid(0), Tid(0)),
            last_id: 0,
            processes: HashMap::new(),
        }
    }

    /// Whether mappings are inferred.
    pub(super) fn premapped(&self) -> bool {
        match self.options.infer {
            MappingInference::Premapped => true,
            MappingInference::Refuse => false,
        }
    }

    /// Returns the numbers of a new process and of its first thread.
    pub(super) fn new_process(&mut self, captured: u32) -> (Pid, Tid) {
        self.last_id += 1;
        self.processes.insert(captured, (Pid(self.last_id), false));
        (Pid(self.last_id), Tid(self.last_id))
    }

    /// Returns the number of a new thread.
    pub(super) fn new_thread(&mut self) -> Tid {
        self.last_id += 1;
        Tid(self.last_id)
    }

    /// The number in the trace of a process of the logs, and whether it has exited.
    pub(super) fn process(&self, captured: u32) -> Option<(Pid, bool)> {
        self.processes.get(&captured).copied()
    }

    /// Marks a process of the logs as exited.
    pub(super) fn mark_exited(&mut self, captured: u32) {
        if let Some((_, exited)) = self.processes.get_mut(&captured) {
            *exited = true;
        }
    }

    /// Emits the start of the root process.
    pub(super) fn begin(&mut self, pid: Pid, tid: Tid) -> Result<(), ImportError> {
        self.current = (pid, tid);
        self.write(&TraceEvent::Task(Box::new(TaskEvent::Begin { pid, tid })))
    }

    /// Emits an event of a thread.
    pub(super) fn emit(&mut self, pid: Pid, tid: Tid, event: &TraceEvent) -> Result<(), ImportError> {
        if self.current != (pid, tid) {
            self.current = (pid, tid);
            self.write(&TraceEvent::Switch { pid, tid })?;
        }
        self.write(event)
    }

    /// Emits an access of the kernel to a page, in a system call of a thread.
    pub(super) fn emit_kernel(&mut self, pid: Pid, tid: Tid, page: PageNo, write: bool) -> Result<(), ImportError> {
        let (reads, writes) = (u32::from(!write), u32::from(write));
        let run = AccessRun {
            page,
            reads,
            writes,
            stream: AccessStream::Data,
            origin: AccessOrigin::Kernel,
            write_first: write,
        };
        self.emit(pid, tid, &TraceEvent::Run(run))
    }

    /// The number of a file in the trace, which a new file gets here.
    pub(super) fn file(&mut self, path: &Path) -> Result<FileId, ImportError> {
        let (id, new) = self.files.intern(path);
        if let Some(info) = new {
            self.write(&TraceEvent::File(Box::new(info)))?;
        }
        Ok(id)
    }

    /// Counts accesses outside the program's mappings.
    pub(super) fn leave_out(&mut self, accesses: u64) {
        self.writer.leave_out(accesses);
    }

    /// The writer, whose caller finishes the trace.
    pub(super) fn into_writer(self) -> TraceWriter<W> {
        self.writer
    }

    fn write(&mut self, event: &TraceEvent) -> Result<(), ImportError> {
        self.writer.push(event).map_err(|source| output_error(&self.output, source))
    }
}

/// The error of writing the trace.
pub(super) fn output_error(path: &Path, source: io::Error) -> ImportError {
    ImportError::Output { path: path.to_owned(), source }
}
