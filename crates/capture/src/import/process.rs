//! A process of a capture, whose log is read line by line and converted into events.

use std::collections::{HashMap, VecDeque};
use std::io::Write;

use super::address_map::{AddressMap, MappedContents};
use super::buffers::{Direction, touches};
use super::context::Context;
use super::error::ImportError;
use super::files::Descriptors;
use super::image::LoadedImage;
use super::lines::Lines;
use super::nr;
use super::parser::{self, Access, AccessKind, CallOutcome, LockReason, LogItem, Syscall};
use super::runs::Runs;
use super::tasks::ChildWait;
use crate::trace::{
    AccessStream, AddressLayout, MemCall, MemOp, PAGE_SHIFT, PAGE_SIZE, PageNo, Pid, TaskEvent, Tid, TraceEvent,
    UserAddr,
};

pub(super) const CLONE_VM: u64 = 0x100;
pub(super) const CLONE_VFORK: u64 = 0x4000;
/// The number of `vfork(2)` on x86-64.
pub(super) const SYS_VFORK: u32 = 58;
pub(super) const CLONE_THREAD: u64 = 0x1_0000;
/// The errno of a `wait` without children.
const ECHILD: u16 = 10;
/// The argument −1 of wait4(2), which waits for any child.
const ANY_CHILD: u32 = u32::MAX;
/// `P_PID` of waitid(2).
const P_PID: u64 = 1;
/// Size of a chunk that is mapped around the first access if mappings are inferred, in bytes.
const INFERRED_BYTES: u64 = 2 << 20;
/// Maximum length of the text of a line in an error.
const EXCERPT: usize = 60;

/// The reason why a process ends its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Its turn is over.
    Quantum,
    /// It forked this child, by its number in the log.
    Forked { child: u32, vfork: bool },
    /// It waits for the exit of a child.
    Waits,
    /// It has a new image, so a `vfork` parent wakes.
    Execed,
    /// It has exited.
    Exited,
}

/// The progress of an image.
#[derive(Debug)]
pub(super) enum ImagePhase {
    /// The log has the preamble of a new image or of a forked child.
    Preamble { command: Vec<String> },
    /// The image has started; its first fetch shows the addresses of its mappings.
    Starting { command: Vec<String> },
    /// The image runs.
    Running,
}

/// A process of the capture.
pub(super) struct Process {
    pub(super) captured_pid: u32,
    pub(super) pid: Pid,
    pub(super) lines: Lines,
    /// The rest of a line with several items.
    rest: Vec<u8>,
    pub(super) phase: ImagePhase,
    /// The threads of the trace, by valgrind's numbers.
    pub(super) threads: HashMap<u32, Tid>,
    /// The threads that were created and have not run yet.
    pub(super) unstarted: VecDeque<Tid>,
    pub(super) current: Tid,
    /// The calls whose result a later item has, by valgrind's thread number.
    pub(super) pending: HashMap<u32, Syscall>,
    /// The call of the next bare result.
    pub(super) open_call: Option<Syscall>,
    pub(super) descriptors: Descriptors,
    pub(super) space: AddressMap,
    pub(super) runs: Runs,
    /// The captured ranges of valgrind's preloaded libraries, as start and end.
    pub(super) tool_ranges: Vec<(u64, u64)>,
    /// Whether the numbers of calls are those of arm64.
    pub(super) is_arm: bool,
    /// The first captured address above the stack.
    pub(super) stack_top: u64,
    /// Whether the image has not accessed its stack yet.
    pub(super) fresh_stack: bool,
    /// Whether the log has had a system call.
    pub(super) seen_call: bool,
    /// The children that no `wait` has returned yet, by their numbers in the log.
    pub(super) children: Vec<u32>,
    pub(super) wait: Option<ChildWait>,
    killed_by: Option<u32>,
}

impl Process {
    /// The first process of a capture.
    pub(super) fn root<W: Write>(
        lines: Lines,
        captured_pid: u32,
        cx: &mut Context<'_, W>,
    ) -> Result<Self, ImportError> {
        let (pid, tid) = cx.new_process(captured_pid);
        cx.begin(pid, tid)?;
        let layout = if cx.premapped() { AddressLayout::AsCaptured } else { cx.options.layout };
        Ok(Self {
            captured_pid,
            pid,
            lines,
            rest: Vec::new(),
            phase: if cx.premapped() { ImagePhase::Running } else { ImagePhase::Preamble { command: Vec::new() } },
            threads: HashMap::from([(1, tid)]),
            unstarted: VecDeque::new(),
            current: tid,
            pending: HashMap::new(),
            open_call: None,
            descriptors: Descriptors::new(cx.options.directory.clone()),
            space: AddressMap::new(layout),
            runs: Runs::new(),
            tool_ranges: Vec::new(),
            is_arm: false,
            stack_top: 0,
            fresh_stack: false,
            seen_call: false,
            children: Vec::new(),
            wait: None,
            killed_by: None,
        })
    }

    /// Forks a child, which has a log of its own.
    pub(super) fn fork<W: Write>(
        &mut self,
        captured_pid: u32,
        lines: Lines,
        vfork: bool,
        cx: &mut Context<'_, W>,
    ) -> Result<Self, ImportError> {
        let (child, tid) = cx.new_process(captured_pid);
        // The child's only thread has the number of the thread that forked it.
        let slot = self.threads.iter().find(|&(_, &thread)| thread == self.current).map_or(1, |(&slot, _)| slot);
        self.emit_task(TaskEvent::Fork { child, tid, vfork }, cx)?;
        self.children.push(captured_pid);
        Ok(Self {
            captured_pid,
            pid: child,
            lines,
            rest: Vec::new(),
            phase: ImagePhase::Preamble { command: Vec::new() },
            threads: HashMap::from([(slot, tid)]),
            unstarted: VecDeque::new(),
            current: tid,
            pending: HashMap::new(),
            open_call: None,
            descriptors: self.descriptors.clone(),
            space: self.space.clone(),
            runs: Runs::new(),
            tool_ranges: self.tool_ranges.clone(),
            is_arm: self.is_arm,
            stack_top: self.stack_top,
            fresh_stack: false,
            seen_call: true,
            children: Vec::new(),
            wait: None,
            killed_by: None,
        })
    }

    /// Converts at most `quantum` items of the log.
    pub(super) fn advance<W: Write>(
        &mut self,
        quantum: u32,
        cx: &mut Context<'_, W>,
    ) -> Result<StopReason, ImportError> {
        if let Some(wait) = self.wait.take()
            && let Some(stop) = self.waited(wait, cx)?
        {
            return Ok(stop);
        }
        if self.lines.has_records() {
            return self.advance_records(quantum, cx);
        }
        for _ in 0..quantum {
            if self.rest.is_empty() {
                let Some(line) = self.lines.next()? else { return self.end_of_log(cx) };
                if let Some(access) = parser::access(line) {
                    // The fast path: nearly all lines are accesses.
                    if let Some(stop) = self.access(access, cx)? {
                        return Ok(stop);
                    }
                    continue;
                }
                self.rest.extend_from_slice(line);
            }
            if let Some(stop) = self.next_item(cx)? {
                self.flush(cx)?;
                return Ok(stop);
            }
        }
        self.flush(cx)?;
        Ok(StopReason::Quantum)
    }

    /// Converts the first item of the rest of a line.
    fn next_item<W: Write>(&mut self, cx: &mut Context<'_, W>) -> Result<Option<StopReason>, ImportError> {
        let mut tail = &self.rest[..];
        let Ok(item) = parser::item(&mut tail) else { return Err(self.syntax()) };
        let used = self.rest.len() - tail.len();
        self.rest.drain(..used);
        match item {
            Some(item) => self.item(item, cx),
            None => Ok(None),
        }
    }

    fn item<W: Write>(&mut self, item: LogItem, cx: &mut Context<'_, W>) -> Result<Option<StopReason>, ImportError> {
        match item {
            LogItem::Access(access) => return self.access(access, cx),
            LogItem::Syscall(call) => return self.syscall(call, cx),
            LogItem::Completed { slot, outcome } => {
                self.switch(slot, cx)?;
                if let (Some(call), CallOutcome::Done(result)) = (self.pending.remove(&slot), outcome) {
                    return self.returned(&call, result, cx);
                }
            }
            LogItem::BareResult(outcome) => {
                if let ImagePhase::Preamble { .. } = self.phase {
                    // The fork returns in the child, which continues in its parent's image.
                    self.phase = ImagePhase::Running;
                } else if let Some(call) = self.open_call.take() {
                    return self.syscall(Syscall { outcome, ..call }, cx);
                }
            }
            LogItem::Forked { child } => {
                // The child's number is known, so the result in the parent is not needed.
                let call = self.open_call.take();
                let flags = call.as_ref().map_or(0, |call| call.arg(0));
                let asked = flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM | CLONE_VFORK;
                // Valgrind prints `vfork` as a fork with the number of `vfork`.
                let vfork = asked || call.is_some_and(|call| call.number == SYS_VFORK);
                return Ok(Some(StopReason::Forked { child, vfork }));
            }
            LogItem::Acquired { slot, why } => return self.acquired(slot, why, cx),
            LogItem::Banner { .. } => {
                self.flush(cx)?;
                self.phase = ImagePhase::Preamble { command: Vec::new() };
            }
            LogItem::Command(words) => self.phase = ImagePhase::Preamble { command: words },
            LogItem::Killed { signal } => self.killed_by = Some(signal),
            LogItem::Parent { .. } | LogItem::Ignored => {}
        }
        Ok(None)
    }

    /// Handles a thread that acquires valgrind's lock.
    fn acquired<W: Write>(
        &mut self,
        slot: u32,
        why: LockReason,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<StopReason>, ImportError> {
        match &mut self.phase {
            ImagePhase::Preamble { command } if why == LockReason::Started => {
                let command = std::mem::take(command);
                self.phase = ImagePhase::Starting { command };
                self.threads = HashMap::from([(slot, self.current)]);
                self.unstarted.clear();
            }
            ImagePhase::Preamble { .. } | ImagePhase::Starting { .. } => {}
            ImagePhase::Running => {
                if why == LockReason::Started
                    && let Some(tid) = self.unstarted.pop_front()
                {
                    self.threads.insert(slot, tid);
                }
                self.switch(slot, cx)?;
                let interrupted = if why == LockReason::Signal { self.pending.remove(&slot) } else { None };
                if interrupted.is_some_and(|call| call.number == nr::WAIT4 || call.number == nr::WAITID) {
                    return self.waited(ChildWait::Any, cx);
                }
            }
        }
        Ok(None)
    }

    /// Makes the thread with this number of valgrind the current one.
    pub(super) fn switch<W: Write>(&mut self, slot: u32, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        match self.threads.get(&slot) {
            Some(&tid) if tid != self.current => {
                self.flush(cx)?;
                self.current = tid;
                Ok(())
            }
            Some(_) => Ok(()),
            None => {
                let (path, line) = (self.lines.path().to_owned(), self.lines.number());
                Err(ImportError::UnknownThread { path, line, slot })
            }
        }
    }

    fn access<W: Write>(&mut self, access: Access, cx: &mut Context<'_, W>) -> Result<Option<StopReason>, ImportError> {
        let mut stop = None;
        match &mut self.phase {
            ImagePhase::Running => {}
            ImagePhase::Starting { command } => {
                let command = std::mem::take(command);
                self.exec(command, access.addr, cx)?;
                stop = Some(StopReason::Execed);
            }
            ImagePhase::Preamble { .. } => {
                return Err(ImportError::AccessesAlone {
                    path: self.lines.path().to_owned(),
                    line: self.lines.number(),
                });
            }
        }
        let (stream, reads, writes) = match access.kind {
            AccessKind::Fetch => (AccessStream::Fetch, 1, 0),
            AccessKind::Load => (AccessStream::Data, 1, 0),
            AccessKind::Store => (AccessStream::Data, 0, 1),
            AccessKind::Modify => (AccessStream::Data, 1, 1),
        };
        if self.fresh_stack && stream == AccessStream::Data && LoadedImage::is_stack(access.addr, self.stack_top) {
            self.fill_stack(access.addr, cx)?;
        }
        let last = access.addr.saturating_add(access.size.max(1) - 1) >> PAGE_SHIFT;
        for page in access.addr >> PAGE_SHIFT..=last {
            if !self.runs.extend(stream, page, reads, writes) {
                self.start_run(stream, page, reads, writes, cx)?;
            }
        }
        Ok(stop)
    }

    fn start_run<W: Write>(
        &mut self,
        stream: AccessStream,
        page: u64,
        reads: u32,
        writes: u32,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        let Some(to) = self.translate(page, stream, cx)? else {
            cx.leave_out(u64::from(reads + writes));
            return Ok(());
        };
        if self.runs.is_full() {
            self.flush(cx)?;
        }
        self.runs.start(stream, page, to, reads, writes);
        Ok(())
    }

    pub(super) fn translate<W: Write>(
        &mut self,
        page: u64,
        stream: AccessStream,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<PageNo>, ImportError> {
        let found = self.space.translate(page, stream as usize);
        if found.is_some() || !cx.premapped() {
            return Ok(found);
        }
        let addr = page << PAGE_SHIFT;
        let chunk = addr & !(INFERRED_BYTES - 1);
        // If a call mapped a part of the chunk, only the page itself is inferred.
        let (start, len) = if self.space.pieces(chunk, INFERRED_BYTES).is_empty() {
            (chunk, INFERRED_BYTES)
        } else {
            (addr, PAGE_SIZE)
        };
        self.space.place(start, UserAddr(start), len, MappedContents::Unaligned);
        self.flush(cx)?;
        let op = MemOp::Inferred { addr: UserAddr(start), len };
        self.emit(&TraceEvent::Call(Box::new(MemCall { op, result: Ok(start) })), cx)?;
        Ok(Some(PageNo(page)))
    }

    fn syscall<W: Write>(&mut self, call: Syscall, cx: &mut Context<'_, W>) -> Result<Option<StopReason>, ImportError> {
        if let ImagePhase::Running = self.phase {
            self.switch(call.slot, cx)?;
        }
        self.seen_call = true;
        match (call.number, call.outcome) {
            // These two calls do not return. The text after them is that of another thread, if any.
            (nr::EXIT_GROUP, _) => {
                let status = call.args.first().map_or(0, |arg| arg.value as u32 & 0xff);
                self.exit(status, cx).map(Some)
            }
            (nr::EXIT, _) => self.exit_thread(&call, cx),
            (_, CallOutcome::Done(result)) => self.returned(&call, result, cx),
            (_, CallOutcome::NoResult) => Ok(None),
            (_, CallOutcome::Pending) => {
                self.pending.insert(call.slot, call);
                Ok(None)
            }
            (_, CallOutcome::NotPrinted) => {
                self.open_call = Some(call);
                Ok(None)
            }
        }
    }

    /// Applies a call that has returned to memory, descriptors and threads.
    pub(super) fn returned<W: Write>(
        &mut self,
        call: &Syscall,
        result: Result<u64, u16>,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<StopReason>, ImportError> {
        self.memory_call(call, result, cx)?;
        for (addr, len, direction) in touches(call.number, &call.args, result) {
            self.kernel_touch(addr, len, direction == Direction::Write, cx)?;
        }
        let first = call.args.first().map_or(0, |arg| arg.value as u32);
        let value = match result {
            Ok(value) => value,
            Err(ECHILD) if call.number == nr::WAIT4 && first == ANY_CHILD => return self.waited(ChildWait::All, cx),
            Err(_) => return Ok(None),
        };
        self.descriptors.apply(call, value);
        match call.number {
            nr::CLONE if call.arg(0) & CLONE_THREAD != 0 => self.clone_thread(cx)?,
            nr::CLONE3 => self.clone_thread(cx)?,
            nr::WAIT4 if value > 0 => return self.waited(ChildWait::For(value as u32), cx),
            nr::WAITID if call.arg(0) == P_PID => return self.waited(ChildWait::For(call.arg(1) as u32), cx),
            _ => {}
        }
        Ok(None)
    }

    /// Emits the accesses of the kernel to the pages of a buffer.
    pub(super) fn kernel_touch<W: Write>(
        &mut self,
        addr: u64,
        len: u64,
        write: bool,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        self.flush(cx)?;
        for page in addr >> PAGE_SHIFT..=addr.saturating_add(len - 1) >> PAGE_SHIFT {
            if let Some(page) = self.translate(page, AccessStream::Data, cx)? {
                cx.emit_kernel(self.pid, self.current, page, write)?;
            }
        }
        Ok(())
    }

    pub(super) fn end_of_log<W: Write>(&mut self, cx: &mut Context<'_, W>) -> Result<StopReason, ImportError> {
        self.flush(cx)?;
        if self.lines.number() == 0 {
            return Err(ImportError::Empty { path: self.lines.path().to_owned() });
        }
        if !self.seen_call && !cx.premapped() {
            return Err(ImportError::AccessesAlone { path: self.lines.path().to_owned(), line: self.lines.number() });
        }
        match self.killed_by {
            Some(signal) => self.exit(128 + signal, cx),
            // A log without calls has no exit.
            None if (cx.premapped() || cx.options.killed) && self.lines.whole() => self.exit(0, cx),
            None => Err(ImportError::Unfinished {
                path: self.lines.path().to_owned(),
                line: self.lines.number(),
                pid: self.captured_pid,
            }),
        }
    }

    /// Emits the runs of the current thread.
    pub(super) fn flush<W: Write>(&mut self, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        let (pid, tid) = (self.pid, self.current);
        self.runs.take().try_for_each(|run| cx.emit(pid, tid, &TraceEvent::Run(run)))
    }

    /// Emits an event of the current thread, after its runs.
    pub(super) fn emit<W: Write>(&mut self, event: &TraceEvent, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        self.flush(cx)?;
        cx.emit(self.pid, self.current, event)
    }

    pub(super) fn emit_task<W: Write>(&mut self, task: TaskEvent, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        self.emit(&TraceEvent::Task(Box::new(task)), cx)
    }

    fn syntax(&self) -> ImportError {
        let text = String::from_utf8_lossy(&self.rest).chars().take(EXCERPT).collect();
        ImportError::Syntax { path: self.lines.path().to_owned(), line: self.lines.number(), text }
    }
}
