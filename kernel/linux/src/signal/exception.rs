//! The signals of exceptions other than page faults.
//!
//! Codes and addresses are those of `arch/x86/kernel/traps.c`, and of `traps.c`,
//! `debug-monitors.c` and `fault.c` of arm64.
//!
//! Not guaranteed: hardware breakpoints, which no program can set.

use super::{SI_KERNEL, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP, SigCause, force_signal};
use crate::task::{CallStop, Thread};
use linux_raw_sys::general as linux;
use pagewright_hal::{Exception, FloatingException};

/// The codes of an undefined instruction and of a breakpoint, which differ between the two.
///
/// That of a breakpoint of x86-64 has no address (`do_int3_user`).
#[cfg(target_arch = "x86_64")]
const OF_MACHINE: (u32, Option<u32>) = (linux::ILL_ILLOPN, None);
#[cfg(target_arch = "aarch64")]
const OF_MACHINE: (u32, Option<u32>) = (linux::ILL_ILLOPC, Some(linux::TRAP_BRKPT));

/// Sends the signal of an exception.
///
/// # Errors
/// [`CallStop`] when the process is killed.
pub(crate) fn of_exception(thread: &mut Thread, exception: Exception) -> Result<(), CallStop> {
    let (undefined, breakpoint) = OF_MACHINE;
    let here = |signal, code: u32| (signal, code.cast_signed(), SigCause::Address(thread.context.pc()));
    // `force_sig`
    let without_address = |signal| (signal, SI_KERNEL, SigCause::Kernel);
    let (signal, code, cause) = match exception {
        Exception::Undefined => here(SIGILL, undefined),
        Exception::Division => here(SIGFPE, linux::FPE_INTDIV),
        Exception::FloatingPoint(kind) => here(SIGFPE, code_of(kind)),
        Exception::Breakpoint => breakpoint.map_or_else(|| without_address(SIGTRAP), |code| here(SIGTRAP, code)),
        Exception::SingleStep => here(SIGTRAP, linux::TRAP_TRACE),
        Exception::Misaligned(at) => (SIGBUS, linux::BUS_ADRALN.cast_signed(), SigCause::Address(at)),
        Exception::Protection => without_address(SIGSEGV),
        Exception::Segment => without_address(SIGBUS),
    };
    thread.context.record_exception(exception);
    force_signal(thread, signal, code, cause)
}

fn code_of(kind: FloatingException) -> u32 {
    match kind {
        FloatingException::Invalid => linux::FPE_FLTINV,
        FloatingException::DivisionByZero => linux::FPE_FLTDIV,
        FloatingException::Overflow => linux::FPE_FLTOVF,
        FloatingException::Underflow => linux::FPE_FLTUND,
        FloatingException::Inexact => linux::FPE_FLTRES,
        FloatingException::Unknown => linux::FPE_FLTUNK,
    }
}
