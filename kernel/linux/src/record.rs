//! The recorder of memory calls and faults, as lines on the report channel.
//!
//! It records successful memory calls, served faults, and the starts and ends of threads.
//! `pagewright boot --record` makes a capture of the lines, which the lab replays.
//!
//! | line | event |
//! | --- | --- |
//! | `event PID TID run PAGE r/w/x u/k` | a served fault on a page: a load, store or fetch of the program or the kernel |
//! | `event PID TID mmap ADDR LEN PROT FLAGS OFFSET AT PATH` | a call with its arguments and result; also `munmap`, `mprotect`, `madvise`, `brk` and others |
//! | `event PID TID exec BRK STACK LIMIT PATH` | a new image, followed by its mappings: `map START LEN PROT OFFSET PATH` |
//! | `event PID TID thread/fork/vfork ID`, `end`, `exit STATUS`, `reaped ID` | the start or the end of a thread or a process |
//!
//! Numbers are hexadecimal. The path of a mapping without a file is `-`, of a stack `[stack]`.
//! While `execve` makes an image, its events are held back, because they belong after the `exec`
//! line.
//!
//! While recording is on, calls and faults are served one at a time, each together with its line
//! ([`ordered`]), so that the lines are in the order of the events.
//!
//! Not guaranteed: accesses that did not fault, faults that ended in a signal, and the order of the
//! end of one process and the faults of another.

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
/// The thread that each CPU runs, and the lines that are held back there.
static CPUS: Mutex<BTreeMap<CpuId, RecordedCpu>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct RecordedCpu {
    running: (u32, u32),
    /// While an image is made: the lines of its mappings, and all others.
    held: Option<(Vec<String>, Vec<String>)>,
}

static ORDER: Mutex<()> = Mutex::new(());

/// Runs a call or a fault whose order among all others is recorded.
///
/// `body` does not access user memory: a fault there would come here again.
pub(crate) fn ordered<T>(body: impl FnOnce() -> T) -> T {
    let _order = is_on().then(|| ORDER.lock());
    body()
}

/// Starts recording.
pub(crate) fn start() {
    ON.store(true, Ordering::Relaxed);
}

/// Whether events are recorded.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Attributes the events of this CPU to the first thread, which is about to be made.
pub(crate) fn set_init_running() {
    if is_on() {
        CPUS.lock().entry(pagewright_hal::this_cpu()).or_default().running = (1, 1);
    }
}

/// Attributes the events of this CPU to `thread`, which it runs from now on.
pub(crate) fn set_running(thread: &Thread) {
    if is_on() {
        CPUS.lock().entry(pagewright_hal::this_cpu()).or_default().running = (thread.process.0, thread.first_id.0);
    }
}

/// Records an event of the thread that this CPU runs.
pub(crate) fn event(line: fmt::Arguments<'_>) {
    if !is_on() {
        return;
    }
    let mut cpus = CPUS.lock();
    let cpu = cpus.entry(pagewright_hal::this_cpu()).or_default();
    let (process, thread) = cpu.running;
    match &mut cpu.held {
        Some((_, held)) => held.push(format!("{line}")),
        None => report::send(format_args!("event {process:x} {thread:x} {line}\n")),
    }
}

/// Records a served fault.
#[inline]
pub(crate) fn fault(va: VirtAddr, access: Access, by_kernel: bool) {
    if is_on() {
        record_fault(va, access, by_kernel);
    }
}

#[cold]
fn record_fault(va: VirtAddr, access: Access, by_kernel: bool) {
    let kind = match access {
        Access::Read => 'r',
        Access::Write => 'w',
        Access::Exec => 'x',
    };
    event(format_args!("run {:x} {kind} {}", va.page_index(), if by_kernel { 'k' } else { 'u' }));
}

/// Holds back the events of this CPU, which begins to make an image.
pub(crate) fn begin_image() {
    if is_on() {
        CPUS.lock().entry(pagewright_hal::this_cpu()).or_default().held = Some(Default::default());
    }
}

/// Records a mapping of the image.
pub(crate) fn mapping(start: VirtAddr, len: u64, rights: u8, offset: u64, path: &str) {
    if !is_on() {
        return;
    }
    if let Some(RecordedCpu { held: Some((mappings, _)), .. }) = CPUS.lock().get_mut(&pagewright_hal::this_cpu()) {
        mappings.push(format!("map {start:x} {len:x} {rights:x} {offset:x} {path}"));
    }
}

/// Sends the events that were held back, behind the line of the new image; drops them without one.
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
