//! Running a program under valgrind, its logs caught in fifos and kept compressed.
//!
//! Valgrind opens its log by name: each process after its fork, and again after each exec. The name
//! is a fifo that exists before the process runs, with a thread behind it that compresses what
//! comes. A fifo can't be truncated, so all images of a process end up in one log, in order.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use super::error::RecordError;
use super::tracer::{Watcher, follow};
use crate::cleanup::ScratchDir;

/// What an unprivileged process may ask for (`/proc/sys/fs/pipe-max-size`).
const PIPE: usize = 1 << 20;
/// Valgrind writes each line by itself; waiting this long lets the fifo fill.
const NAP: Duration = Duration::from_micros(500);

/// Run `command`; returns the logs that came, and the exit status.
pub(super) fn run(command: &Command, input: Stdio, scratch: &ScratchDir) -> Result<(Vec<PathBuf>, i32), RecordError> {
    let mut spools = Spools { scratch, spools: HashMap::new() };
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

/// One process's log.
struct Spool {
    /// Keeps the fifo from ending between one image and the next.
    writer: Option<File>,
    thread: JoinHandle<io::Result<u64>>,
    path: PathBuf,
}

struct Spools<'a> {
    scratch: &'a ScratchDir,
    spools: HashMap<Pid, Spool>,
}

impl Spools<'_> {
    fn open(&self, pid: Pid) -> io::Result<Spool> {
        let fifo = self.scratch.file(&format!("log.{pid}"));
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Read and write, so that neither end waits for the other.
        let writer = OpenOptions::new().read(true).write(true).open(&fifo)?;
        // A smaller pipe works, too, only slower.
        let _ = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE as i32));
        let reader = File::open(&fifo)?;
        let path = self.scratch.file(&format!("log.{pid}.zst"));
        let stored = path.clone();
        let thread = thread::spawn(move || compress(reader, &stored));
        Ok(Spool { writer: Some(writer), thread, path })
    }
}

fn compress(mut from: File, to: &Path) -> io::Result<u64> {
    let mut encoder = zstd::stream::write::Encoder::new(File::create(to)?, 1)?;
    let mut buffer = vec![0; PIPE];
    let mut total = 0;
    loop {
        let got = from.read(&mut buffer)?;
        if got == 0 {
            encoder.finish()?;
            return Ok(total);
        }
        encoder.write_all(&buffer[..got])?;
        total += got as u64;
        if got < PIPE / 4 {
            thread::sleep(NAP);
        }
    }
}

impl Watcher for Spools<'_> {
    fn born(&mut self, pid: Pid, _parent: Option<Pid>) -> Result<(), RecordError> {
        let opened = self.open(pid);
        let path = self.scratch.file(&format!("log.{pid}"));
        self.spools.insert(pid, opened.map_err(|source| RecordError::Io { path, source })?);
        Ok(())
    }

    fn execed(&mut self, _pid: Pid) {}

    fn exiting(&mut self, _pid: Pid) {}

    fn gone(&mut self, pid: Pid) {
        if let Some(spool) = self.spools.get_mut(&pid) {
            spool.writer = None;
        }
    }
}
