//! The loop of each CPU: pick a thread, run it, serve its traps.
//!
//! A thread leaves its CPU in this order: its registers are saved, the CPU enters lazy mode, then
//! another CPU may take the thread. So no CPU runs an address space that ends.

use crate::call;
use crate::console_input;
use crate::errno::Errno;
use crate::file;
use crate::job_control::wait_for_continue;
use crate::memory::mm;
use crate::oom;
use crate::record;
use crate::report;
use crate::signal::{self, SigCause};
use crate::stop_machine;
use crate::task::{CallStop, Resume, SyscallResult, Thread, WaitReason, scheduler};
use alloc::boxed::Box;
use core::time::Duration;
use pagewright_hal::{Machine, Trap};
use pagewright_mm::FaultError;
use pagewright_mm::policy::MemPolicy;
use pagewright_tlb::{ClearMeasurements, Tlb};
use pagewright_types::{Access, VirtAddr};
use spin::Mutex;

/// Runs threads, and never returns.
pub(crate) fn run() -> ! {
    loop {
        if stop_machine::is_requested() {
            stop_machine::wait();
        }
        file::close_deferred();
        console_input::poll();
        let next = {
            let mut scheduler = scheduler();
            let now = pagewright_hal::time::now_ns();
            scheduler.wake_expired(now);
            let next = scheduler.next_ready(now);
            scheduler.set_idle(next.is_none());
            next
        };
        match next {
            Some(thread) => run_thread(thread),
            None => sleep(),
        }
    }
}

/// Reclaims memory where it is short, as kswapd does, and sleeps until an interrupt arrives.
///
/// The run queue is empty. The first CPUs that are idle make the measurements of clearing, one at a
/// time, and look for work after each.
fn sleep() {
    mm().tlb().enter_lazy();
    mm().balance_all();
    let more = measure_clearing(ClearMeasurements::step).unwrap_or(false);
    pagewright_hal::idle(|| more || crate::task::may_be_ready() || stop_machine::is_requested());
}

/// Lets this CPU measure the clearing of memory, unless another CPU does.
fn measure_clearing<T>(
    measure: impl FnOnce(&mut ClearMeasurements, &Tlb<Machine>, fn() -> Duration) -> T,
) -> Option<T> {
    static MEASUREMENTS: Mutex<ClearMeasurements> = Mutex::new(ClearMeasurements::new());
    let mut measurements = MEASUREMENTS.try_lock()?;
    Some(measure(&mut measurements, mm().tlb(), || Duration::from_nanos(pagewright_hal::time::now_ns())))
}

/// Why a thread leaves its CPU.
enum LeaveReason {
    /// Its time slice is over.
    Preempted,
    /// Its call or a signal stopped it.
    Stopped(CallStop),
}

fn run_thread(mut thread: Box<Thread>) {
    mm().tlb().switch_to(thread.space.0.table().context());
    mm().set_task_policy(thread.policy);
    thread.context.load();
    record::set_running(&thread);
    thread.begin_slice();
    let reason = run_slice(&mut thread);
    thread.context.save();
    thread.policy = mm().set_task_policy(MemPolicy::DEFAULT);
    match reason {
        LeaveReason::Preempted => {
            mm().tlb().enter_lazy();
            thread.noted.preempted += 1;
            scheduler().make_ready_again(thread);
        }
        LeaveReason::Stopped(CallStop::Sleep { mut scheduler, wait, deadline, at_deadline }) => {
            mm().tlb().enter_lazy();
            thread.noted.waited += 1;
            scheduler.account(&mut thread);
            scheduler.put_to_sleep(thread, wait, deadline, at_deadline);
        }
        LeaveReason::Stopped(CallStop::ExitProcess(end)) => {
            let mut scheduler = scheduler();
            scheduler.account(&mut thread);
            scheduler.leave_cpu(&mut thread);
            scheduler.end_process(thread.process, end);
            drop(scheduler);
            call::process::end_thread(thread, end);
        }
        LeaveReason::Stopped(CallStop::Exit(end)) => {
            let mut scheduler = scheduler();
            scheduler.account(&mut thread);
            scheduler.leave_cpu(&mut thread);
            drop(scheduler);
            call::process::end_thread(thread, end);
        }
        LeaveReason::Stopped(CallStop::Yield(_) | CallStop::Error(_) | CallStop::Done) => {
            mm().tlb().enter_lazy();
            scheduler().make_ready_again(thread);
        }
    }
}

/// Runs a thread until it must leave its CPU.
fn run_slice(thread: &mut Thread) -> LeaveReason {
    report::first_instruction();
    if let Err(stop) = resume(thread) {
        return LeaveReason::Stopped(stop);
    }
    loop {
        if stop_machine::is_requested() {
            return LeaveReason::Preempted;
        }
        // Signals and the end of the process take effect on the return to user mode.
        if let Err(stop) = signal::deliver(thread) {
            return LeaveReason::Stopped(stop);
        }
        let served = match thread.context.run() {
            Trap::Syscall => serve_call(thread),
            Trap::Fault { va, access } => serve_fault(thread, va, access),
            Trap::Exception(exception) => signal::of_exception(thread, exception),
            Trap::Interrupt => {
                // If no CPU is idle, reclaim runs here, and the measurements do.
                mm().balance_all();
                mm().numa_tick(&thread.space.0, pagewright_hal::time::now_ns() / 1_000_000);
                measure_clearing(ClearMeasurements::tick);
                console_input::poll();
                let mut scheduler = scheduler();
                scheduler.wake_expired(pagewright_hal::time::now_ns());
                scheduler.account(thread);
                if scheduler.must_leave() {
                    return LeaveReason::Preempted;
                }
                Ok(())
            }
        };
        if let Err(stop) = served {
            return LeaveReason::Stopped(stop);
        }
        file::close_deferred();
    }
}

/// Prepares a thread for user mode: ends its sleep, or starts it.
fn resume(thread: &mut Thread) -> Result<(), CallStop> {
    if thread.set_child_tid > VirtAddr::ZERO {
        let at = core::mem::take(&mut thread.set_child_tid);
        // As in Linux, a bad address is ignored.
        let _ = thread.space.write_u32(at, thread.id.0);
    }
    let Some(resume) = thread.resume.take() else { return Ok(()) };
    let mut scheduler = scheduler();
    if scheduler.must_exit(thread).is_some() {
        return Ok(());
    }
    if scheduler.process(thread.process).job.is_stopped() {
        thread.resume = Some(resume);
        return Err(wait_for_continue(scheduler));
    }
    drop(scheduler);
    match resume {
        Resume::Return(value) => {
            (thread.deadline, thread.bytes_moved, thread.messages) = (None, 0, None);
            thread.context.set_syscall_result(value);
            Ok(())
        }
        // The registers are still those of the call. Restarting it from user mode could run a
        // signal handler first, which makes other calls.
        Resume::Again => serve_call(thread),
        Resume::Interrupted { restart } => {
            let moved = thread.bytes_moved > 0;
            if let Some(messages) = thread.messages.as_mut().filter(|messages| moved || messages.moved > 0) {
                messages.is_interrupted = true;
                return serve_call(thread);
            }
            if thread.bytes_moved > 0 {
                // Bytes are moved once, so the call returns their count.
                thread.context.set_syscall_result(core::mem::take(&mut thread.bytes_moved) as u64);
                thread.deadline = None;
                return Ok(());
            }
            if signal::interrupt_call(thread, restart)? {
                (thread.opening, thread.messages) = (None, None);
                Ok(())
            } else {
                serve_call(thread)
            }
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
    (thread.deadline, thread.bytes_moved, thread.messages, thread.opening) = (None, 0, None, None);
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
                FaultError::PastEnd { .. } | FaultError::Device { .. } | FaultError::TooManyHolders { .. } => {
                    (signal::SIGBUS, signal::BUS_ADRERR)
                }
                FaultError::OutOfMemory(_) => return Err(oom::out_of_memory(thread)),
            };
            thread.context.record_fault(va);
            signal::force_signal(thread, signal, code, SigCause::Address(va))
        }
    }
}

/// The result of a wait whose deadline has passed (`ETIMEDOUT`).
pub(crate) fn timed_out() -> u64 {
    Errno::ETIMEDOUT.result()
}

/// Sleeps until `deadline`; then the call returns 0.
pub(crate) fn sleep_until(deadline: u64) -> CallStop {
    CallStop::Sleep { scheduler: scheduler(), wait: WaitReason::Time, deadline: Some(deadline), at_deadline: 0 }
}
