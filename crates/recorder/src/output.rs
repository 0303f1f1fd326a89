//! The log of this process, and the number of accesses of all processes.

use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::launch::TOTAL;
use crate::log::{self, MAGIC, Record};
use crate::turn::ForkLock;
use crate::vcpu::Vcpu;

/// Number of bytes after which the buffer is written.
const BUFFER: usize = 1 << 17;

/// The options of the plugin.
#[derive(Debug)]
pub(crate) struct Options {
    /// The folder of the logs.
    pub(crate) directory: PathBuf,
    /// The number of accesses of all processes that ends the recording; 0 for no limit.
    pub(crate) max: u64,
}

static OPTIONS: OnceLock<Options> = OnceLock::new();
/// The number of accesses of all processes, in a file that all of them map.
static ALL: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

struct Log {
    file: Option<File>,
    buffer: Vec<u8>,
}

/// The log and its lock.
struct Shared {
    lock: ForkLock,
    log: UnsafeCell<Log>,
}

// SAFETY: the log is accessed by `with` only, which holds the lock, and in a child's only thread.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { lock: ForkLock::new(), log: UnsafeCell::new(Log { file: None, buffer: Vec::new() }) };

fn with(act: impl FnOnce(&mut Log)) {
    SHARED.lock.acquire(None);
    // SAFETY: the lock is held, and `act` does not call `with`.
    act(unsafe { &mut *SHARED.log.get() });
    SHARED.lock.release();
}

impl Log {
    fn flush(&mut self) {
        if let Some(file) = &mut self.file {
            // The reader has gone, if that fails; no one can be told.
            let _ = file.write_all(&self.buffer);
        }
        self.buffer.clear();
    }

    fn open(&mut self) {
        let Some(options) = OPTIONS.get() else { return };
        let path = options.directory.join(format!("log.{}", std::process::id()));
        self.file = OpenOptions::new().append(true).open(path).ok();
        self.buffer = Vec::with_capacity(2 * BUFFER);
    }
}

/// Opens the log and maps the number of accesses; `false` if that fails.
pub(crate) fn start(options: Options) -> bool {
    let total = OpenOptions::new().read(true).write(true).open(options.directory.join(TOTAL));
    let Ok(total) = total else { return false };
    let Some(words) = map(&total) else { return false };
    ALL.store(words, Ordering::Relaxed);
    let _ = OPTIONS.set(options);
    let mut opened = false;
    with(|log| {
        log.open();
        // A fifo has no position, so each image begins with the magic.
        log.buffer.extend_from_slice(&MAGIC);
        opened = log.file.is_some();
    });
    opened
}

fn map(file: &File) -> Option<*mut AtomicU64> {
    use std::os::fd::AsRawFd;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping of a file of at least 8 bytes, which stays to the end of the process.
    let at = unsafe { libc::mmap(ptr::null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (at != libc::MAP_FAILED).then(|| at.cast::<AtomicU64>())
}

/// Opens a log of its own in a forked child, whose only thread calls this.
pub(crate) fn reopen() {
    SHARED.lock.reset();
    with(|log| {
        // Another thread of the parent may have been at work on the buffer.
        std::mem::forget(std::mem::take(&mut log.buffer));
        log.open();
        log.buffer.extend_from_slice(&MAGIC);
    });
}

/// Appends a record.
pub(crate) fn record(record: &Record) {
    with(|log| {
        log::put_record(&mut log.buffer, record);
        if log.buffer.len() >= BUFFER {
            log.flush();
        }
    });
}

/// Appends the runs of a thread and empties its queue.
///
/// Ends the process if the accesses of all processes have reached the limit.
pub(crate) fn runs(vcpu: &mut Vcpu) {
    let (runs, accesses) = vcpu.runs();
    if runs.is_empty() {
        return;
    }
    with(|log| {
        log::put_runs(&mut log.buffer, vcpu.slot, runs);
        if log.buffer.len() >= BUFFER {
            log.flush();
        }
    });
    vcpu.clear();
    let all = ALL.load(Ordering::Relaxed);
    // SAFETY: null, or the mapping of `start`, which is never unmapped.
    let Some(all) = (unsafe { all.as_ref() }) else { return };
    let total = all.fetch_add(accesses, Ordering::Relaxed) + accesses;
    if OPTIONS.get().is_some_and(|options| options.max != 0 && total >= options.max) {
        flush();
        // SAFETY: ends this process.
        unsafe { libc::kill(std::process::id() as libc::pid_t, libc::SIGKILL) };
    }
}

/// Writes the buffer.
pub(crate) fn flush() {
    with(Log::flush);
}
