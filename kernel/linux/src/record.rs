//! What programs did to memory: memory calls that succeeded, faults that were served, and the
//! births and deaths around them, as lines on the report channel. `pagewright boot --record` makes
//! a capture of them, which the lab replays.
//!
//! | line | what |
//! | --- | --- |
//! | `event PID TID run PAGE r/w/x u/k` | a fault was served: of which page, by a load, store or fetch of the program or the kernel |
//! | `event PID TID mmap ADDR LEN PROT FLAGS OFFSET AT PATH` | and `munmap`, `mprotect`, `madvise`, `brk`, with arguments and result |
//! | `event PID TID exec BRK STACK LIMIT PATH` | a new image; its mappings follow as `map START LEN PROT OFFSET PATH` |
//! | `event PID TID thread/fork/vfork ID`, `end`, `exit STATUS`, `reaped ID` | birth and death |
//!
//! Numbers are in hexadecimal; a mapping without a file has `-` for its path, a stack `[stack]`.
//! What happens while an image is made is kept back until it stands, because the faults of `execve`
//! belong behind it.
//!
//! With it on, calls and faults are served one at a time, each with its telling ([`ordered`]), so
//! that what is told last happened last.
//!
//! Not guaranteed: accesses that did not fault; faults that ended in a signal; the order of one
//! process's end and another's faults.

use crate::report;
use crate::task::Thread;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_types::{Access, CpuId, VirtAddr};
use spin::Mutex;

static ON: AtomicBool = AtomicBool::new(false);
/// Whom each CPU runs, and the lines that are kept back there.
static CPUS: Mutex<BTreeMap<CpuId, Cpu>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Cpu {
    running: (u32, u32),
    /// The image being made: its mappings, then everything else.
    held: Option<(Vec<String>, Vec<String>)>,
}

static TURN: Mutex<()> = Mutex::new(());

/// Runs something whose place among calls and faults is told.
///
/// It must not come here again: it reads and writes no user memory.
pub(crate) fn ordered<T>(body: impl FnOnce() -> T) -> T {
    let _turn = is_on().then(|| TURN.lock());
    body()
}

/// Turns it on.
pub(crate) fn start() {
    ON.store(true, Ordering::Relaxed);
}

pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The first thread is about to be made on this CPU.
pub(crate) fn set_init_running() {
    if is_on() {
        CPUS.lock().entry(pagewright_hal::this_cpu()).or_default().running = (1, 1);
    }
}

/// This CPU runs `thread` from now on.
pub(crate) fn set_running(thread: &Thread) {
    if is_on() {
        CPUS.lock().entry(pagewright_hal::this_cpu()).or_default().running = (thread.process.0, thread.first_id.0);
    }
}

/// Something happened to the thread that this CPU runs.
pub(crate) fn event(what: fmt::Arguments<'_>) {
    if !is_on() {
        return;
    }
    let mut cpus = CPUS.lock();
    let cpu = cpus.entry(pagewright_hal::this_cpu()).or_default();
    let (process, thread) = cpu.running;
    match &mut cpu.held {
        Some((_, held)) => held.push(format!("{what}")),
        None => report::send(format_args!("event {process:x} {thread:x} {what}\n")),
    }
}

/// A fault was served.
pub(crate) fn fault(va: VirtAddr, access: Access, by_kernel: bool) {
    let kind = match access {
        Access::Read => 'r',
        Access::Write => 'w',
        Access::Exec => 'x',
    };
    event(format_args!("run {:x} {kind} {}", va.page_index(), if by_kernel { 'k' } else { 'u' }));
}

/// An image is being made on this CPU.
pub(crate) fn begin_image() {
    if is_on() {
        CPUS.lock().entry(pagewright_hal::this_cpu()).or_default().held = Some(Default::default());
    }
}

/// It has this mapping.
pub(crate) fn mapping(start: VirtAddr, len: u64, rights: u8, offset: u64, path: &str) {
    if !is_on() {
        return;
    }
    if let Some(Cpu { held: Some((mappings, _)), .. }) = CPUS.lock().get_mut(&pagewright_hal::this_cpu()) {
        mappings.push(format!("map {start:x} {len:x} {rights:x} {offset:x} {path}"));
    }
}

/// It stands, or will not be.
pub(crate) fn end_image(made: Option<fmt::Arguments<'_>>) {
    if !is_on() {
        return;
    }
    let held = CPUS.lock().get_mut(&pagewright_hal::this_cpu()).and_then(|cpu| cpu.held.take());
    if let (Some(made), Some((mappings, events))) = (made, held) {
        event(made);
        mappings.iter().chain(&events).for_each(|line| event(format_args!("{line}")));
    }
}
