//! The creation and exit of threads, the exit of a process, and its waits for children.

use std::io::Write;

use super::context::Context;
use super::error::ImportError;
use super::parser::Syscall;
use super::process::{Process, StopReason};
use crate::trace::TaskEvent;

/// The children for whose exit a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildWait {
    /// This child, which `wait` returned.
    For(u32),
    /// Any child: a signal interrupted `wait`.
    ///
    /// The log has neither the child that exited nor whether `wait` returned it.
    Any,
    /// All children: `wait` returned `ECHILD`.
    All,
}

impl Process {
    pub(super) fn clone_thread<W: Write>(&mut self, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        let tid = cx.new_thread();
        self.unstarted.push_back(tid);
        self.emit_task(TaskEvent::CloneThread { tid }, cx)
    }

    /// Ends a `wait`, or suspends the process if the children have not exited in the trace.
    pub(super) fn waited<W: Write>(
        &mut self,
        wait: ChildWait,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<StopReason>, ImportError> {
        let exited = |child: &u32| cx.process(*child).is_some_and(|(_, exited)| exited);
        let complete = match wait {
            ChildWait::For(child) => !self.children.contains(&child) || exited(&child),
            ChildWait::Any => self.children.is_empty() || self.children.iter().any(exited),
            ChildWait::All => self.children.iter().all(exited),
        };
        if !complete {
            self.wait = Some(wait);
            return Ok(Some(StopReason::Waits));
        }
        let reaped: Vec<u32> = match wait {
            ChildWait::For(child) => self.children.extract_if(.., |known| *known == child).collect(),
            ChildWait::Any => Vec::new(),
            ChildWait::All => std::mem::take(&mut self.children),
        };
        for child in reaped {
            if let Some((child, _)) = cx.process(child) {
                self.emit_task(TaskEvent::Reaped { child }, cx)?;
            }
        }
        Ok(None)
    }

    pub(super) fn exit_thread<W: Write>(
        &mut self,
        call: &Syscall,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<StopReason>, ImportError> {
        self.threads.remove(&call.slot);
        if self.threads.is_empty() && self.unstarted.is_empty() {
            let status = call.args.first().map_or(0, |arg| arg.value as u32 & 0xff);
            return self.exit(status, cx).map(Some);
        }
        self.emit_task(TaskEvent::ExitThread {}, cx)?;
        Ok(None)
    }

    pub(super) fn exit<W: Write>(&mut self, status: u32, cx: &mut Context<'_, W>) -> Result<StopReason, ImportError> {
        self.emit_task(TaskEvent::ExitProcess { status }, cx)?;
        cx.mark_exited(self.captured_pid);
        Ok(StopReason::Exited)
    }
}
