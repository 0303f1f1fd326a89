//! Messages to the host on the report channel, and power-off.
//!
//! | line | meaning |
//! | --- | --- |
//! | `say TEXT` | a message for a person |
//! | `input` | the machine accepts input from the serial line from now on |
//! | `missing NAME TIMES` | a system call that failed with `ENOSYS`, and how often |
//! | `first NS` | nanoseconds from power-on to the first instruction of the first program |
//! | `vmstat NAME VALUE` | gauges and counters at power-off |
//! | `machine NAME VALUE` | operations of the machine, counted by effect |
//! | `judged TIMES WHAT` | recounted page counts, at power-off with `check` or on request ([`page_counts`]) |
//! | `wrong TEXT` | a count that the page tables contradict |
//! | `event …` | with `record`, a memory call or a fault ([`crate::record`]) |
//! | `exit STATUS` | the last line |
//!
//! Not guaranteed: delivery. The host may ignore the channel.

#[cfg(feature = "oracle")]
pub(crate) mod page_counts;

use crate::memory::mm;
use crate::process::ExitStatus;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_hal::counts::{self, EffectCounter};
use pagewright_hal::report::ReportChannel;
use spin::Mutex;

static MISSING: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Sends a message for a person.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    send(format_args!("say {text}\n"));
}

/// Sends a line.
pub(crate) fn send(text: fmt::Arguments<'_>) {
    // One write per line, so that lines of several CPUs do not mix.
    let mut line = String::new();
    let _ = line.write_fmt(text);
    let _ = ReportChannel.write_str(&line);
}

/// Counts a call of a system call that is not implemented.
pub(crate) fn count_missing(number: u64) {
    *MISSING.lock().entry(number).or_insert(0) += 1;
}

/// Reports the time of the first instruction of the first program.
///
/// Called before every time slice; only the first call has an effect.
pub(crate) fn first_instruction() {
    static REPORTED: spin::Once<()> = spin::Once::new();
    REPORTED.call_once(|| send(format_args!("first {}\n", pagewright_hal::time::since_power_on_ns())));
}

static CHECK: AtomicBool = AtomicBool::new(false);

/// Requests a recount of page counts at power-off.
///
/// # Panics
/// When this kernel was built without the oracle.
pub(crate) fn check_at_end() {
    assert!(cfg!(feature = "oracle"), "command line: check: this kernel has no oracle");
    CHECK.store(true, Ordering::Relaxed);
}

/// The exit status of the machine when its first process ends.
///
/// Recounts page counts first, if `check` is on the command line.
#[cfg(feature = "oracle")]
pub(crate) fn exit_status(end: ExitStatus) -> u8 {
    if CHECK.load(Ordering::Relaxed) { page_counts::exit_status(end.status()) } else { end.status() }
}

/// The exit status of the machine when its first process ends.
#[cfg(not(feature = "oracle"))]
pub(crate) fn exit_status(end: ExitStatus) -> u8 {
    end.status()
}

/// Sends the final report and powers the machine off.
pub(crate) fn power_off(status: u8) -> ! {
    for (number, times) in &*MISSING.lock() {
        match syscalls::Sysno::new(*number as usize) {
            Some(call) => send(format_args!("missing {call} {times}\n")),
            None => send(format_args!("missing {number} {times}\n")),
        }
    }
    let mut text = String::new();
    let _ = mm().show_vmstat(&mut text);
    for line in text.lines() {
        send(format_args!("vmstat {line}\n"));
    }
    for effect in EffectCounter::ALL {
        send(format_args!("machine {} {}\n", effect.name(), counts::count(*effect)));
    }
    send(format_args!("exit {status}\n"));
    pagewright_hal::power_off(status)
}
