//! What each CPU does: picks a thread, runs it, serves its traps.
//!
//! A thread leaves its CPU in this order: its registers are saved, the CPU goes lazy, then others
//! may have the thread. So whoever ends its space finds no CPU that runs it.

use crate::call;
use crate::errno::Errno;
use crate::memory::mm;
use crate::record;
use crate::report;
use crate::signal;
use crate::stop_machine;
use crate::task::{CallStop, ExitStatus, Resume, SyscallResult, Thread, WaitReason, scheduler};
use alloc::boxed::Box;
use pagewright_hal::{Exception, Trap};
use pagewright_mm::FaultError;
use pagewright_types::{Access, VirtAddr};

/// Runs threads for ever.
pub(crate) fn run() -> ! {
    loop {
        if stop_machine::is_requested() {
            stop_machine::wait();
        }
        let next = {
            let mut scheduler = scheduler();
            scheduler.wake_expired(pagewright_hal::time::now_ns());
            let next = scheduler.next_ready();
            scheduler.set_idle(next.is_none());
            next
        };
        match next {
            Some(thread) => run_thread(thread),
            None => sleep(),
        }
    }
}

/// Nobody is ready: reclaims where memory is short, as kswapd would, and sleeps until an interrupt
/// comes.
fn sleep() {
    mm().tlb().enter_lazy();
    mm().balance_all();
    pagewright_hal::idle(|| crate::task::may_be_ready() || stop_machine::is_requested());
}

/// What becomes of a thread that leaves its CPU.
enum Leave {
    Ready,
    Stopped(CallStop),
}

fn run_thread(mut thread: Box<Thread>) {
    mm().tlb().switch_to(thread.space.0.table().context());
    thread.context.load();
    record::set_running(&thread);
    let leave = slice(&mut thread);
    thread.context.save();
    match leave {
        Leave::Ready => {
            mm().tlb().enter_lazy();
            scheduler().make_ready(thread);
        }
        Leave::Stopped(CallStop::Sleep { mut scheduler, wait, deadline, at_deadline }) => {
            mm().tlb().enter_lazy();
            scheduler.put_to_sleep(thread, wait, deadline, at_deadline);
        }
        Leave::Stopped(CallStop::ExitProcess(end)) => {
            scheduler().end_process(thread.process, end);
            call::process::end_thread(thread, end);
        }
        Leave::Stopped(CallStop::Exit(end)) => call::process::end_thread(thread, end),
        Leave::Stopped(CallStop::Yield(_) | CallStop::Error(_) | CallStop::Done) => {
            mm().tlb().enter_lazy();
            scheduler().make_ready(thread);
        }
    }
}

/// Runs a thread until it must leave its CPU.
fn slice(thread: &mut Thread) -> Leave {
    report::first_instruction();
    if let Err(stop) = begin(thread) {
        return Leave::Stopped(stop);
    }
    loop {
        if stop_machine::is_requested() {
            return Leave::Ready;
        }
        // Signals, and the end of the process, are looked for on the way to user mode.
        if let Err(stop) = signal::deliver(thread) {
            return Leave::Stopped(stop);
        }
        let served = match thread.context.run() {
            Trap::Syscall => serve_call(thread),
            Trap::Fault { va, access } => serve_fault(thread, va, access),
            Trap::Exception(exception) => {
                let (signal, code, at) = (signal_of(exception), 0, thread.context.pc());
                signal::force_signal(thread, signal, code, at)
            }
            Trap::Interrupt => {
                // kswapd would have its turn, too, where no CPU is idle.
                mm().balance_all();
                let mut scheduler = scheduler();
                scheduler.wake_expired(pagewright_hal::time::now_ns());
                if scheduler.has_ready() {
                    return Leave::Ready;
                }
                Ok(())
            }
        };
        if let Err(stop) = served {
            return Leave::Stopped(stop);
        }
    }
}

/// What a thread does before it goes on in user mode: the end of its sleep, or its beginning.
fn begin(thread: &mut Thread) -> Result<(), CallStop> {
    if thread.set_child_tid > VirtAddr::ZERO {
        let at = core::mem::take(&mut thread.set_child_tid);
        // As in Linux, a bad address is the program's own affair.
        let _ = thread.space.write_u32(at, thread.id.0);
    }
    let Some(resume) = thread.resume.take() else { return Ok(()) };
    if scheduler().must_exit(thread).is_some() {
        return Ok(());
    }
    match resume {
        Resume::Return(value) => {
            (thread.deadline, thread.bytes_moved) = (None, 0);
            thread.context.set_syscall_result(value);
            Ok(())
        }
        // The registers are still those of the call. It is not made from user mode, where a
        // handler, whose calls are others, could come first.
        Resume::Again => serve_call(thread),
        Resume::Interrupted { restarts } => {
            if thread.bytes_moved > 0 {
                // What has been moved is not moved again.
                thread.context.set_syscall_result(core::mem::take(&mut thread.bytes_moved) as u64);
                thread.deadline = None;
                return Ok(());
            }
            if signal::interrupt_call(thread, restarts) { Ok(()) } else { serve_call(thread) }
        }
    }
}

fn serve_call(thread: &mut Thread) -> Result<(), CallStop> {
    let (number, arguments) = thread.context.syscall();
    thread.call = (number, arguments[0]);
    let answer: SyscallResult = call::serve(thread, number, arguments);
    match answer {
        Ok(value) => thread.context.set_syscall_result(value),
        Err(CallStop::Error(error)) => thread.context.set_syscall_result(error.result()),
        Err(CallStop::Done) => {}
        Err(CallStop::Yield(value)) => {
            thread.context.set_syscall_result(value);
            return Err(CallStop::Yield(value));
        }
        Err(stop @ (CallStop::Sleep { .. } | CallStop::Exit(_) | CallStop::ExitProcess(_))) => return Err(stop),
    }
    (thread.deadline, thread.bytes_moved) = (None, 0);
    Ok(())
}

fn serve_fault(thread: &mut Thread, va: VirtAddr, access: Access) -> Result<(), CallStop> {
    let served = record::ordered(|| {
        let served = mm().fault(&thread.space.0, va, access);
        if served.is_ok() {
            record::fault(va, access, false);
        }
        served
    });
    match served {
        Ok(_) => Ok(()),
        Err(error) => {
            let (signal, code) = match error {
                FaultError::NotMapped { .. } | FaultError::Guarded { .. } => (signal::SIGSEGV, signal::SEGV_MAPERR),
                FaultError::NotAllowed { .. } => (signal::SIGSEGV, signal::SEGV_ACCERR),
                FaultError::PastEnd { .. } | FaultError::Device { .. } => (signal::SIGBUS, signal::BUS_ADRERR),
                FaultError::OutOfMemory(_) => {
                    finish_for_want_of_memory(thread);
                    return Err(CallStop::ExitProcess(ExitStatus::Signal(signal::SIGKILL)));
                }
            };
            signal::force_signal(thread, signal, code, va)
        }
    }
}

fn finish_for_want_of_memory(thread: &Thread) {
    let mut scheduler = scheduler();
    let name = scheduler.process(thread.process).name();
    report::say(format_args!("{name} ({}) is killed: out of memory", thread.process.0));
}

fn signal_of(exception: Exception) -> u8 {
    match exception {
        Exception::Illegal => signal::SIGILL,
        Exception::Arithmetic => signal::SIGFPE,
        Exception::Breakpoint => signal::SIGTRAP,
        Exception::Misaligned => signal::SIGBUS,
        Exception::Protection => signal::SIGSEGV,
    }
}

/// What a call answers that can't wait any longer.
pub(crate) fn timed_out() -> u64 {
    Errno::ETIMEDOUT.result()
}

/// Sleeps until `deadline`, then answers 0.
pub(crate) fn sleep_until(deadline: u64) -> CallStop {
    CallStop::Sleep { scheduler: scheduler(), wait: WaitReason::Time, deadline: Some(deadline), at_deadline: 0 }
}
