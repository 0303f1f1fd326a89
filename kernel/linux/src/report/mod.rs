//! What the machine tells whoever started it, on the report channel: lines of words.
//!
//! | line | what |
//! | --- | --- |
//! | `say TEXT` | something a person should read |
//! | `missing NAME TIMES` | a system call that answered `ENOSYS` |
//! | `first NS` | nanoseconds from power-on to the first program's first instruction |
//! | `vmstat NAME VALUE` | gauges and counters at power-off |
//! | `machine NAME VALUE` | what was asked of the machine through the effects trait |
//! | `judged TIMES WHAT` | what was counted again, at power-off with `check` or because a program asked ([`judge`]) |
//! | `wrong TEXT` | a count that the tables contradict |
//! | `event …` | with `record`: what programs did to memory ([`crate::record`]) |
//! | `exit STATUS` | the last line |
//!
//! Not guaranteed: that anybody listens.

#[cfg(feature = "oracle")]
pub(crate) mod page_counts;

use crate::memory::mm;
use crate::task::ExitStatus;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_hal::counts::{self, EffectCounter};
use pagewright_hal::report::ReportChannel;
use spin::Mutex;

static MISSING: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Tells something to a person.
pub(crate) fn say(text: fmt::Arguments<'_>) {
    send(format_args!("say {text}\n"));
}

/// Sends a line.
pub(crate) fn send(text: fmt::Arguments<'_>) {
    // In one piece, so that lines of several CPUs don't mix.
    let mut line = String::new();
    let _ = line.write_fmt(text);
    let _ = ReportChannel.write_str(&line);
}

/// Notes that a system call is missing.
pub(crate) fn count_missing(number: u64) {
    *MISSING.lock().entry(number).or_insert(0) += 1;
}

/// A thread is about to go on; notes when that happens for the first time: the first program is
/// about to execute its first instruction.
pub(crate) fn first_instruction() {
    static INIT: spin::Once<()> = spin::Once::new();
    INIT.call_once(|| send(format_args!("first {}\n", pagewright_hal::time::since_power_on_ns())));
}

static CHECK: AtomicBool = AtomicBool::new(false);

/// Lets every count be counted again at power-off.
///
/// # Panics
/// When this kernel was built without its judge.
pub(crate) fn check_at_end() {
    assert!(cfg!(feature = "oracle"), "command line: check: this kernel has no oracle");
    CHECK.store(true, Ordering::Relaxed);
}

/// The machine's status when its first process has ended so; if it was asked for, its counts are
/// judged.
#[cfg(feature = "oracle")]
pub(crate) fn exit_status(end: ExitStatus) -> u8 {
    if CHECK.load(Ordering::Relaxed) { page_counts::exit_status(end.status()) } else { end.status() }
}

/// The machine's status when its first process has ended so: nobody here can judge it.
#[cfg(not(feature = "oracle"))]
pub(crate) fn exit_status(end: ExitStatus) -> u8 {
    end.status()
}

/// Tells everything and switches the machine off.
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
