//! The run of a program under a tool, whose logs are compressed as they are written.
//!
//! Each process opens its log by name, after its fork and again after each exec. The name is that
//! of a fifo, which exists before the process runs; a thread of this process reads and compresses
//! it. A fifo cannot be truncated, so one log has all images of a process, in order.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use super::error::RecordError;
use super::progress::RecordProgress;
use super::tracer::{Watcher, follow};
use crate::cleanup::ScratchDir;

/// Size of a fifo in bytes: the limit for an unprivileged process (`/proc/sys/fs/pipe-max-size`).
const FIFO_BYTES: usize = 1 << 20;
/// The pause after a short read, in which the fifo fills, because the tool writes little at a time.
const PAUSE: Duration = Duration::from_micros(500);

/// Runs `command`; returns the logs that are not empty, and the exit status.
///
/// The bytes of the logs are counted in `progress`.
pub(super) fn run(
    command: &Command,
    input: Stdio,
    scratch: &ScratchDir,
    progress: &Arc<RecordProgress>,
) -> Result<(Vec<PathBuf>, i32), RecordError> {
    let mut spools = Spools { scratch, progress, spools: HashMap::new() };
    let status = follow(command, input, Stdio::inherit(), &mut spools)?;
    let mut logs = Vec::new();
    for spool in spools.spools.into_values() {
        drop(spool.writer);
        let written = spool.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let written = written.map_err(|source| RecordError::Io { path: spool.path.clone(), source })?;
        if written > 0 {
            logs.push(spool.path);
        }
    }
    Ok((logs, status))
}

/// The log of a process.
struct Spool {
    /// Keeps the fifo open for writing between one image and the next.
    writer: Option<File>,
    thread: JoinHandle<io::Result<u64>>,
    path: PathBuf,
}

/// The logs of all processes.
struct Spools<'a> {
    scratch: &'a ScratchDir,
    progress: &'a Arc<RecordProgress>,
    spools: HashMap<Pid, Spool>,
}

impl Spools<'_> {
    fn open(&self, pid: Pid) -> io::Result<Spool> {
        let fifo = self.scratch.file(&format!("log.{pid}"));
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Opening for reading and writing does not wait for the other end.
        let writer = OpenOptions::new().read(true).write(true).open(&fifo)?;
        // A smaller fifo is only slower.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(FIFO_BYTES as i32));
        let reader = File::open(&fifo)?;
        let path = self.scratch.file(&format!("log.{pid}.zst"));
        let stored = path.clone();
        let progress = Arc::clone(self.progress);
        let thread = thread::spawn(move || spool(reader, &stored, &progress, pid));
        Ok(Spool { writer: Some(writer), thread, path })
    }
}

/// Compresses the log of a process.
///
/// If that fails, the process is killed, and the rest of its log is read and dropped: the process
/// would otherwise wait for ever for room in the fifo.
fn spool(mut from: File, to: &Path, progress: &RecordProgress, pid: Pid) -> io::Result<u64> {
    let compressed = compress(&mut from, to, progress);
    if compressed.is_err() {
        // It may have exited already.
        let _ = kill(pid, Signal::SIGKILL);
        io::copy(&mut from, &mut io::sink())?;
    }
    compressed
}

/// Compresses everything from the fifo into the file `to`; returns the number of bytes read.
fn compress(from: &mut File, to: &Path, progress: &RecordProgress) -> io::Result<u64> {
    let mut encoder = zstd::stream::write::Encoder::new(File::create(to)?, 1)?;
    let mut buffer = vec![0; FIFO_BYTES];
    let mut total = 0;
    loop {
        let got = from.read(&mut buffer)?;
        if got == 0 {
            encoder.finish()?;
            return Ok(total);
        }
        encoder.write_all(&buffer[..got])?;
        total += got as u64;
        progress.add_logged(got as u64);
        if got < FIFO_BYTES / 4 {
            thread::sleep(PAUSE);
        }
    }
}

impl Watcher for Spools<'_> {
    fn created(&mut self, pid: Pid, _parent: Option<Pid>) -> Result<(), RecordError> {
        let opened = self.open(pid);
        let path = self.scratch.file(&format!("log.{pid}"));
        self.spools.insert(pid, opened.map_err(|source| RecordError::Io { path, source })?);
        Ok(())
    }

    fn execed(&mut self, _pid: Pid) {}

    fn thread_exits(&mut self, _pid: Pid) {}

    fn exited(&mut self, pid: Pid) {
        if let Some(spool) = self.spools.get_mut(&pid) {
            spool.writer = None;
        }
        if self.progress.is_limit_reached() {
            // The process has killed itself; the others would wait for it, or go on.
            for (&pid, spool) in &self.spools {
                if spool.writer.is_some() {
                    // It may have exited already.
                    let _ = kill(pid, Signal::SIGKILL);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_log_cannot_be_stored_is_killed_and_its_log_drained() {
        let scratch = ScratchDir::new("spool").expect("there is room");
        let fifo = scratch.file("fifo");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).expect("it can be created");
        // It writes more than fits into a fifo, and then waits for longer than the test lasts.
        let mut child = Command::new("sh");
        child.args(["-c", "exec >\"$0\"; head -c 9000000 /dev/urandom; exec sleep 600"]).arg(&fifo);
        let mut child = child.spawn().expect("sh exists");
        let from = File::open(&fifo).expect("the child opens it");
        let pid = Pid::from_raw(child.id() as i32);
        let error = spool(from, Path::new("/dev/full"), &RecordProgress::default(), pid).expect_err("no space");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let status = child.wait().expect("it is a child");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGKILL as i32));
    }
}
