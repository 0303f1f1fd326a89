//! Births, ends and waits of a process's threads and children.

use std::io::Write;

use super::context::Context;
use super::error::ImportError;
use super::parser::Syscall;
use super::process::{Process, StopReason};
use crate::trace::TaskEvent;

/// For whom a process waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildWait {
    /// `wait` returned this child.
    For(u32),
    /// `wait` was interrupted by a signal, so some child has ended; the log doesn't say which, nor
    /// whether `wait` returned it.
    Any,
    /// `wait` said that no child is left.
    All,
}

impl Process {
    pub(super) fn clone_thread<W: Write>(&mut self, cx: &mut Context<'_, W>) -> Result<(), ImportError> {
        let tid = cx.new_thread();
        self.newborn.push_back(tid);
        self.emit_task(TaskEvent::CloneThread { tid }, cx)
    }

    /// A `wait` is over; in the trace what follows has to stand behind the children's ends.
    pub(super) fn waited<W: Write>(
        &mut self,
        wait: ChildWait,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<StopReason>, ImportError> {
        let ended = |child: &u32| cx.process(*child).is_some_and(|(_, ended)| ended);
        let over = match wait {
            ChildWait::For(child) => !self.children.contains(&child) || ended(&child),
            ChildWait::Any => self.children.is_empty() || self.children.iter().any(ended),
            ChildWait::All => self.children.iter().all(ended),
        };
        if !over {
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
        if self.threads.is_empty() && self.newborn.is_empty() {
            let status = call.args.first().map_or(0, |arg| arg.value as u32 & 0xff);
            return self.exit(status, cx).map(Some);
        }
        self.emit_task(TaskEvent::ExitThread {}, cx)?;
        Ok(None)
    }

    pub(super) fn exit<W: Write>(&mut self, status: u32, cx: &mut Context<'_, W>) -> Result<StopReason, ImportError> {
        self.emit_task(TaskEvent::ExitProcess { status }, cx)?;
        cx.ended(self.captured_pid);
        Ok(StopReason::Ended)
    }
}
