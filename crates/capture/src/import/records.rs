//! The records of QEMU's recorder, from which a process's events come as from lines.

use std::collections::HashMap;
use std::io::Write;

use pagewright_recorder::launch::AARCH64;
use pagewright_recorder::log::{DATA, Image, LoggedRun, Record, WRITE_FIRST};

use super::arm64;
use super::context::Context;
use super::error::ImportError;
use super::image::{CapturedLayout, LoadedImage};
use super::nr;
use super::parser::{Arg, CallOutcome, Syscall};
use super::process::{CLONE_THREAD, CLONE_VFORK, CLONE_VM, ImagePhase, Process, SYS_VFORK, StopReason};
use crate::trace::{AccessOrigin, AccessRun, AccessStream, PAGE_SHIFT, TaskEvent};

/// The number of `fork(2)` on x86-64.
const SYS_FORK: u32 = 57;
/// The largest errno.
const ERRNO_MAX: i64 = 4095;
/// Arguments that are file descriptors of a folder, of 32 bits: openat(2).
const DIRECTORY_MASK: u64 = 0xffff_ffff;

impl Process {
    /// Converts records of about `quantum` accesses and calls.
    pub(super) fn advance_records<W: Write>(
        &mut self,
        quantum: u32,
        cx: &mut Context<'_, W>,
    ) -> Result<StopReason, ImportError> {
        let mut done = 0;
        let mut logged = Vec::new();
        while done < u64::from(quantum) {
            let Some(record) = self.lines.next_record(&mut logged)? else { return self.end_of_log(cx) };
            done += 1;
            let stop = match record {
                Record::Image(image) => self.image(image, cx)?,
                Record::Child { slot, .. } => {
                    self.phase = ImagePhase::Running;
                    self.threads = HashMap::from([(slot, self.current)]);
                    None
                }
                Record::Runs { slot } => {
                    self.switch(slot, cx)?;
                    done += self.logged_runs(&logged, cx)?;
                    None
                }
                Record::Thread { slot, new } => {
                    self.switch(slot, cx)?;
                    let tid = cx.new_thread();
                    self.threads.insert(new, tid);
                    self.emit_task(TaskEvent::CloneThread { tid }, cx)?;
                    None
                }
                Record::Call { slot, number, args, texts } => {
                    let call = self.logged_call(slot, number, args, texts);
                    self.switch(slot, cx)?;
                    self.called(call, cx)?
                }
                Record::Return { slot, result } => self.logged_return(slot, result, cx)?,
            };
            if let Some(stop) = stop {
                self.flush(cx)?;
                return Ok(stop);
            }
        }
        self.flush(cx)?;
        Ok(StopReason::Quantum)
    }

    fn image<W: Write>(&mut self, image: Image, cx: &mut Context<'_, W>) -> Result<Option<StopReason>, ImportError> {
        self.flush(cx)?;
        self.phase = ImagePhase::Running;
        self.is_arm = image.machine == AARCH64;
        self.threads = HashMap::from([(image.slot, self.current)]);
        self.seen_call = true;
        let command = image.args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
        let name = self.descriptors.resolve(&image.path);
        let (first_fetch, start_code) = (image.entry, Some(image.start_code));
        self.load(name, command, CapturedLayout { first_fetch, start_code, stack_top: image.stack_top }, cx)?;
        Ok(Some(StopReason::Execed))
    }

    /// Adds the runs of the current thread; returns the number of their accesses.
    fn logged_runs<W: Write>(&mut self, runs: &[LoggedRun], cx: &mut Context<'_, W>) -> Result<u64, ImportError> {
        let mut accesses = 0;
        for run in runs {
            let stream = if run.page_and_flags & DATA != 0 { AccessStream::Data } else { AccessStream::Fetch };
            let (captured, reads, writes) = (run.page(), run.reads, run.writes);
            accesses += u64::from(reads) + u64::from(writes);
            let addr = captured << PAGE_SHIFT;
            if self.fresh_stack && stream == AccessStream::Data && LoadedImage::is_stack(addr, self.stack_top) {
                self.fill_stack(addr, cx)?;
            }
            if self.runs.extend(stream, captured, reads, writes) {
                continue;
            }
            let Some(page) = self.translate(captured, stream, cx)? else {
                cx.leave_out(u64::from(reads) + u64::from(writes));
                continue;
            };
            if self.runs.is_full() {
                self.flush(cx)?;
            }
            let write_first = run.page_and_flags & WRITE_FIRST != 0;
            let origin = AccessOrigin::User;
            self.runs.start_logged(captured, AccessRun { page, reads, writes, stream, origin, write_first });
        }
        Ok(accesses)
    }

    /// The call in the form of valgrind's, with the number of x86-64.
    fn logged_call(&self, slot: u32, number: u32, args: [u64; 6], texts: Vec<(u8, Vec<u8>)>) -> Syscall {
        let number = if self.is_arm { arm64::x86_64_number(number) } else { number };
        let mut args = args.map(|value| Arg { value, text: None });
        for (at, text) in texts {
            if let Some(arg) = args.get_mut(usize::from(at)) {
                arg.text = Some(text);
            }
        }
        if number == nr::OPENAT {
            args[0].value &= DIRECTORY_MASK;
        }
        Syscall { slot, number, args: args.into(), outcome: CallOutcome::Pending }
    }

    fn called<W: Write>(&mut self, call: Syscall, cx: &mut Context<'_, W>) -> Result<Option<StopReason>, ImportError> {
        match call.number {
            nr::EXIT_GROUP => self.exit(call.arg(0) as u32 & 0xff, cx).map(Some),
            nr::EXIT => self.exit_thread(&call, cx),
            _ => {
                self.pending.insert(call.slot, call);
                Ok(None)
            }
        }
    }

    fn logged_return<W: Write>(
        &mut self,
        slot: u32,
        result: i64,
        cx: &mut Context<'_, W>,
    ) -> Result<Option<StopReason>, ImportError> {
        self.switch(slot, cx)?;
        let Some(call) = self.pending.remove(&slot) else { return Ok(None) };
        let flags = call.arg(0);
        let child = match call.number {
            nr::CLONE if flags & CLONE_THREAD != 0 => return Ok(None),
            nr::CLONE => Some(flags & (CLONE_VM | CLONE_VFORK) == CLONE_VM | CLONE_VFORK),
            SYS_FORK => Some(false),
            SYS_VFORK => Some(true),
            _ => None,
        };
        match child {
            Some(vfork) if result > 0 => Ok(Some(StopReason::Forked { child: result as u32, vfork })),
            Some(_) => Ok(None),
            None if (-ERRNO_MAX..0).contains(&result) => self.returned(&call, Err(-result as u16), cx),
            None => self.returned(&call, Ok(result as u64), cx),
        }
    }
}
