//! What each CPU does: picks a thread, runs it, serves its traps.
//!
//! A thread leaves its CPU in this order: its registers are saved, the CPU goes lazy, then others
//! may have the thread. So whoever ends its space finds no CPU that runs it.

use crate::call;
use crate::errno::Errno;
use crate::finish;
use crate::memory::mm;
use crate::record;
use crate::rest;
use crate::signal;
use crate::task::{Answer, End, Resume, Stop, Thread, Wait, state};
use alloc::boxed::Box;
use pagewright_hal::{Exception, Trap};
use pagewright_mm::FaultError;
use pagewright_types::{Access, VirtAddr};

/// Runs threads for ever.
pub(crate) fn run() -> ! {
    loop {
        if rest::is_wanted() {
            rest::rest();
        }
        let next = {
            let mut state = state();
            state.wake_late(pagewright_hal::time::now_ns());
            let next = state.next_ready();
            state.set_idle(next.is_none());
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
    pagewright_hal::idle(|| crate::task::may_be_ready() || rest::is_wanted());
}

/// What becomes of a thread that leaves its CPU.
enum Leave {
    Ready,
    Stop(Stop),
}

fn run_thread(mut thread: Box<Thread>) {
    mm().tlb().switch_to(thread.space.0.table().context());
    thread.context.load();
    record::runs(&thread);
    let leave = slice(&mut thread);
    thread.context.save();
    match leave {
        Leave::Ready => {
            mm().tlb().enter_lazy();
            state().make_ready(thread);
        }
        Leave::Stop(Stop::Sleep { mut state, wait, deadline, late }) => {
            mm().tlb().enter_lazy();
            state.put_to_sleep(thread, wait, deadline, late);
        }
        Leave::Stop(Stop::ExitProcess(end)) => {
            state().end_process(thread.process, end);
            call::process::end_thread(thread, end);
        }
        Leave::Stop(Stop::Exit(end)) => call::process::end_thread(thread, end),
        Leave::Stop(Stop::Yield(_) | Stop::Error(_) | Stop::Done) => {
            mm().tlb().enter_lazy();
            state().make_ready(thread);
        }
    }
}

/// Runs a thread until it must leave its CPU.
fn slice(thread: &mut Thread) -> Leave {
    finish::first_instruction();
    if let Err(stop) = begin(thread) {
        return Leave::Stop(stop);
    }
    loop {
        if rest::is_wanted() {
            return Leave::Ready;
        }
        // Signals, and the end of the process, are looked for on the way to user mode.
        if let Err(stop) = signal::deliver(thread) {
            return Leave::Stop(stop);
        }
        let served = match thread.context.run() {
            Trap::Syscall => serve_call(thread),
            Trap::Fault { va, access } => serve_fault(thread, va, access),
            Trap::Exception(exception) => {
                let (signal, code, at) = (signal_of(exception), 0, thread.context.pc());
                signal::force(thread, signal, code, at)
            }
            Trap::Interrupt => {
                // kswapd would have its turn, too, where no CPU is idle.
                mm().balance_all();
                let mut state = state();
                state.wake_late(pagewright_hal::time::now_ns());
                if state.is_anybody_ready() {
                    return Leave::Ready;
                }
                Ok(())
            }
        };
        if let Err(stop) = served {
            return Leave::Stop(stop);
        }
    }
}

/// What a thread does before it goes on in user mode: the end of its sleep, or its beginning.
fn begin(thread: &mut Thread) -> Result<(), Stop> {
    if thread.set_at_start > VirtAddr::ZERO {
        let at = core::mem::take(&mut thread.set_at_start);
        // As in Linux, a bad address is the program's own affair.
        let _ = thread.space.write_u32(at, thread.id.0);
    }
    let Some(resume) = thread.resume.take() else { return Ok(()) };
    if state().must_end(thread).is_some() {
        return Ok(());
    }
    match resume {
        Resume::Answer(value) => {
            (thread.deadline, thread.progress) = (None, 0);
            thread.context.set_syscall_result(value);
            Ok(())
        }
        // The registers are still those of the call. It is not made from user mode, where a
        // handler, whose calls are others, could come first.
        Resume::Again => serve_call(thread),
        Resume::Interrupted { restarts } => {
            if thread.progress > 0 {
                // What has been moved is not moved again.
                thread.context.set_syscall_result(core::mem::take(&mut thread.progress) as u64);
                thread.deadline = None;
                return Ok(());
            }
            if signal::interrupt(thread, restarts) { Ok(()) } else { serve_call(thread) }
        }
    }
}

fn serve_call(thread: &mut Thread) -> Result<(), Stop> {
    let (number, arguments) = thread.context.syscall();
    thread.call = (number, arguments[0]);
    let answer: Answer = call::serve(thread, number, arguments);
    match answer {
        Ok(value) => thread.context.set_syscall_result(value),
        Err(Stop::Error(error)) => thread.context.set_syscall_result(error.result()),
        Err(Stop::Done) => {}
        Err(Stop::Yield(value)) => {
            thread.context.set_syscall_result(value);
            return Err(Stop::Yield(value));
        }
        Err(stop @ (Stop::Sleep { .. } | Stop::Exit(_) | Stop::ExitProcess(_))) => return Err(stop),
    }
    (thread.deadline, thread.progress) = (None, 0);
    Ok(())
}

fn serve_fault(thread: &mut Thread, va: VirtAddr, access: Access) -> Result<(), Stop> {
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
                FaultError::NotMapped { .. } | FaultError::Guarded { .. } => (signal::SIGSEGV, signal::MAPPING_ERROR),
                FaultError::NotAllowed { .. } => (signal::SIGSEGV, signal::ACCESS_ERROR),
                FaultError::PastEnd { .. } | FaultError::Device { .. } => (signal::SIGBUS, signal::NO_SUCH_ADDRESS),
                FaultError::OutOfMemory(_) => {
                    finish_for_want_of_memory(thread);
                    return Err(Stop::ExitProcess(End::Signal(signal::SIGKILL)));
                }
            };
            signal::force(thread, signal, code, va)
        }
    }
}

fn finish_for_want_of_memory(thread: &Thread) {
    let mut state = state();
    let name = state.process(thread.process).name();
    finish::say(format_args!("{name} ({}) is killed: out of memory", thread.process.0));
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
pub(crate) fn sleep_until(deadline: u64) -> Stop {
    Stop::Sleep { state: state(), wait: Wait::Time, deadline: Some(deadline), late: 0 }
}
