//! Input from the serial line, for a machine that was started with a shell.
//!
//! Each CPU looks for bytes when it leaves a program or wakes up, at the latest by its next timer
//! tick ([`poll`]). A read returns at most one line, as a terminal in canonical mode does; the
//! host's terminal edits and echoes it. The byte `EOT` ends the input for good.
//!
//! Not guaranteed: the calls of terminals (`ENOTTY`), so a shell has no job control.

use crate::report;
use crate::task::scheduler;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use pagewright_hal::console;
use spin::Mutex;

/// The end of the input (Ctrl-D).
const EOT: u8 = 4;
/// The most bytes that wait for a reader; the host keeps further ones.
const BYTES_MAX: usize = 64 << 10;

struct Input {
    bytes: VecDeque<u8>,
    has_ended: bool,
}

impl Input {
    /// The length of what a read returns; `None` if it must wait.
    fn ready(&self) -> Option<usize> {
        let line = self.bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        line.or(self.has_ended.then_some(self.bytes.len()))
    }
}

static INPUT: Mutex<Input> = Mutex::new(Input { bytes: VecDeque::new(), has_ended: false });
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Accepts input from now on, and tells the host so.
///
/// What arrived before the serial line was set up is lost.
pub(crate) fn start() {
    while console::receive().is_some() {}
    IS_ON.store(true, Ordering::Relaxed);
    report::send(format_args!("input\n"));
}

/// Whether the machine has input.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Takes what has arrived on the serial line, and wakes its readers.
///
/// The scheduler is not locked.
pub(crate) fn poll() {
    if !is_on() {
        return;
    }
    let mut arrived = false;
    {
        let mut input = INPUT.lock();
        while !input.has_ended && input.bytes.len() < BYTES_MAX && input.bytes.try_reserve(1).is_ok() {
            let Some(byte) = console::receive() else { break };
            match byte {
                EOT => input.has_ended = true,
                byte => input.bytes.push_back(byte),
            }
            arrived = true;
        }
    }
    if arrived {
        scheduler().wake_transfers();
    }
}

/// Whether a read returns at once.
pub(crate) fn is_ready() -> bool {
    INPUT.lock().ready().is_some()
}

/// The bytes of all lines that have arrived (`inq_canon`).
pub(crate) fn available() -> usize {
    let input = INPUT.lock();
    let lines = input.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if input.has_ended { input.bytes.len() } else { lines }
}

/// Takes at most `most` bytes of a line, none at the end of the input; `None` if a read must wait.
pub(crate) fn take(most: usize) -> Option<Vec<u8>> {
    let mut input = INPUT.lock();
    let count = input.ready()?.min(most);
    Some(input.bytes.drain(..count).collect())
}
