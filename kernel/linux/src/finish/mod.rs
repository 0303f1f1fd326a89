//! What the machine tells whoever started it, on the report channel: lines of words.
//!
//! | line | what |
//! | --- | --- |
//! | `say TEXT` | something a person should read |
//! | `missing NAME TIMES` | a system call that answered `ENOSYS` |
//! | `first NS` | nanoseconds from boot to the first program's first instruction |
//! | `vmstat NAME VALUE` | gauges and counters at power-off |
//! | `claim WHAT …` | with `check`: one count that the memory manager keeps ([`claims`]) |
//! | `words TABLE INDEX:WORD …` | with `check`: the words of a page table that are not 0, in hexadecimal |
//! | `event …` | with `record`: what programs did to memory ([`crate::record`]) |
//! | `exit STATUS` | the last line |
//!
//! Not guaranteed: that anybody listens.

mod claims;

use crate::memory::mm;
use crate::task::End;
use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use pagewright_hal::report::Report;
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
    let _ = Report.write_str(&line);
}

/// Notes that a system call is missing.
pub(crate) fn miss(number: u64) {
    *MISSING.lock().entry(number).or_insert(0) += 1;
}

/// A thread is about to go on; notes when that happens for the first time: the first program is about to execute its first instruction.
pub(crate) fn first_instruction() {
    static FIRST: spin::Once<()> = spin::Once::new();
    FIRST.call_once(|| send(format_args!("first {}\n", pagewright_hal::time::now_ns())));
}

static STOPPING: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicU32 = AtomicU32::new(0);
static CHECK: AtomicBool = AtomicBool::new(false);

/// Lets every count be told at power-off.
pub(crate) fn check_at_end() {
    CHECK.store(true, Ordering::Relaxed);
}

/// Whether the machine is about to be switched off: threads leave their CPUs, and CPUs [`stop`].
pub(crate) fn is_stopping() -> bool {
    STOPPING.load(Ordering::Acquire)
}

/// This CPU does nothing any more.
pub(crate) fn stop() -> ! {
    mm().tlb().enter_lazy();
    STOPPED.fetch_add(1, Ordering::AcqRel);
    loop {
        pagewright_hal::idle(|| false);
    }
}

/// Waits until no other CPU does anything.
fn stop_others() {
    if STOPPING.swap(true, Ordering::AcqRel) {
        // Two CPUs end the machine: the first does.
        stop();
    }
    let others = Machine.online().count() - 1;
    while STOPPED.load(Ordering::Acquire) < others {
        Machine.relax();
    }
}

/// Tells everything and switches the machine off.
pub(crate) fn end(end: End) -> ! {
    if CHECK.load(Ordering::Relaxed) {
        stop_others();
        claims::tell();
    }
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
    send(format_args!("exit {}\n", end.status()));
    pagewright_hal::power_off(end.status())
}
