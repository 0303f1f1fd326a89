//! The Linux side: programs' operations as system calls and accesses of processes that are held by
//! [`Tracee`].
//!
//! One process, the root, is made ready once (`ready`). Each program runs in a child of it, and in
//! that one's children. `calls` makes a system call of an operation.
//!
//! Not guaranteed: anything about memory that other processes take; Linux is asked for little, so
//! that it always has it.

mod calls;
mod ready;

use super::AgainstError;
use super::lack::{DATA, Host, Lack, PIPE_PAGES};
use super::maps::{self, Mapping};
use super::seen::{Seen, Signal};
use super::tracee::{Stop, Tracee};
use super::usage::Usage;
use crate::random::{FILE_PAGES, Operation, Syscall};
use calls::Other;
use nix::libc;
use nix::sys::signal::Signal as Number;
use nix::unistd::Pid;
use pagewright_arch::{Isa, X86_64};
use pagewright_types::{Access, PAGE_SIZE, VirtAddr};
use std::os::unix::fs::FileExt;

/// Where calls find structures, and the kernel puts answers: offsets in the data pages.
const ARGUMENT: u64 = 0;
const ANSWER: u64 = 0x800;
/// The first errno, as a negative answer.
const LEAST_ERRNO: i64 = -4095;
/// Where our side begins to look for a hole.
const OUR_BASE: u64 = X86_64::USER_END.raw() - (128 << 20);
/// Above this, places were chosen freely.
const FREE: u64 = 1 << 40;
/// Bits of a word of `pagemap`, but for the frame.
const PAGE_STATE: u64 = !0 << 55;
/// That a page is a file's.
const PAGE_OF_FILE: u64 = 1 << 61;

/// The Linux underneath.
pub(super) struct Linux {
    tracee: Tracee,
    host: Host,
    /// Where searches for a hole begin.
    base: u64,
    lacks: Vec<Lack>,
    /// By number; those that have ended are `None`.
    processes: Vec<Option<Pid>>,
    /// Descriptors of the file: for reading and writing, and for reading.
    both: u64,
    reading: u64,
    /// Both ends of the pipe: what is spliced goes into the second.
    pipe: [u64; 2],
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Linux {
    /// What the kernel does not have.
    pub(super) fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    /// What the kernel is set to.
    pub(super) fn host(&self) -> Host {
        self.host
    }

    fn answer(&self, pid: Pid, stop: Stop) -> Result<i64, AgainstError> {
        match stop {
            Stop::Done(answer) => Ok(answer as i64),
            Stop::Signal(..) | Stop::Forked(_) | Stop::Gone => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} in a call") })
            }
        }
    }

    /// The first process of a program, with the file.
    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        let root = self.tracee.pid();
        let first = self
            .fork(root)?
            .map_err(|errno| AgainstError::Setup { name: "fork", errno: nix::errno::Errno::from_raw(errno.into()) })?;
        self.processes = vec![Some(first)];
        self.tracee.put(ARGUMENT, b"file\0")?;
        let allow_sealing = 2;
        self.both = self.first("memfd_create", libc::SYS_memfd_create, [DATA, allow_sealing, 0, 0, 0, 0])?;
        self.tracee.put(ARGUMENT, format!("/proc/self/fd/{}\0", self.both).as_bytes())?;
        self.reading = self.first("open", libc::SYS_open, [DATA, libc::O_RDONLY as u64, 0, 0, 0, 0])?;
        self.first("pipe2", libc::SYS_pipe2, [DATA + ANSWER, libc::O_NONBLOCK as u64, 0, 0, 0, 0])?;
        let ends = self.tracee.take(ANSWER, 8)?;
        self.pipe = [0, 4].map(|at| u64::from(ends[at]));
        // As many pages as both sides take.
        let room = [self.pipe[1], libc::F_SETPIPE_SZ as u64, PIPE_PAGES as u64 * PAGE_SIZE, 0, 0, 0];
        self.first("fcntl(F_SETPIPE_SZ)", libc::SYS_fcntl, room)?;
        let bytes = FILE_PAGES * PAGE_SIZE;
        self.first("ftruncate", libc::SYS_ftruncate, [self.both, bytes, 0, 0, 0, 0]).map(drop)
    }

    /// A call of a program's first process, before the program begins.
    fn first(&self, name: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, AgainstError> {
        let pid = self.pid(0)?;
        let answer = self.answer(pid, self.tracee.call(pid, number, arguments)?)?;
        if (LEAST_ERRNO..0).contains(&answer) {
            return Err(AgainstError::Setup { name, errno: nix::errno::Errno::from_raw(-answer as i32) });
        }
        Ok(answer as u64)
    }

    /// Ends what is left of a program.
    pub(super) fn finish(&mut self) -> Result<(), AgainstError> {
        for pid in std::mem::take(&mut self.processes).into_iter().flatten() {
            self.tracee.end(pid)?;
        }
        Ok(())
    }

    fn pid(&self, process: usize) -> Result<Pid, AgainstError> {
        let gone = || AgainstError::Lost { pid: 0, status: format!("process {process} has ended") };
        self.processes.get(process).copied().flatten().ok_or_else(gone)
    }

    /// The child, or why there is none.
    fn fork(&self, pid: Pid) -> Result<Result<Pid, u16>, AgainstError> {
        match self.tracee.call(pid, libc::SYS_fork, [0; 6])? {
            Stop::Forked(child) => {
                let stop = self.tracee.go_on(pid)?;
                self.answer(pid, stop)?;
                Ok(Ok(child))
            }
            stop @ (Stop::Done(_) | Stop::Signal(..) | Stop::Gone) => {
                self.answer(pid, stop).map(|answer| Err(-answer as u16))
            }
        }
    }

    /// Forks; the child gets the next number.
    pub(super) fn fork_process(&mut self, process: usize) -> Result<Seen, AgainstError> {
        match self.fork(self.pid(process)?)? {
            Ok(child) => {
                self.processes.push(Some(child));
                Ok(Seen::Done)
            }
            Err(errno) => Ok(Seen::Failed(errno)),
        }
    }

    /// Ends a process by its own call.
    pub(super) fn exit_process(&mut self, process: usize) -> Result<Seen, AgainstError> {
        let pid = self.pid(process)?;
        self.processes[process] = None;
        match self.tracee.call(pid, libc::SYS_exit_group, [0; 6])? {
            Stop::Gone => Ok(Seen::Done),
            stop @ (Stop::Done(_) | Stop::Signal(..) | Stop::Forked(_)) => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} after its end") })
            }
        }
    }

    /// Accesses the cell at `va`; `value` is what a store stores.
    pub(super) fn access(
        &self,
        process: usize,
        va: VirtAddr,
        access: Access,
        value: u64,
    ) -> Result<Seen, AgainstError> {
        let pid = self.pid(process)?;
        let stop = match access {
            Access::Read => self.tracee.load(pid, va.raw())?,
            Access::Write => self.tracee.store(pid, va.raw(), value)?,
            Access::Exec => self.tracee.fetch(pid, va.raw())?,
        };
        match (stop, access) {
            (Stop::Done(value), Access::Read) => Ok(Seen::Value(value)),
            (Stop::Done(_), Access::Write | Access::Exec) => Ok(Seen::Done),
            (Stop::Signal(number, code), _) => Ok(Seen::Signal(match (number, code) {
                (Number::SIGSEGV, 1) => Signal::Unmapped,
                (Number::SIGSEGV, 2) => Signal::Forbidden,
                (Number::SIGBUS, 2) => Signal::PastEnd,
                (number, code) => Signal::Other(number as i32, code),
            })),
            (stop @ (Stop::Forked(_) | Stop::Gone), _) => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} in an access") })
            }
        }
    }

    /// An address as our side would have it, where a place was chosen freely.
    fn same_base(&self, address: u64) -> u64 {
        let is_free = (FREE..=self.base).contains(&address);
        if is_free { OUR_BASE - (self.base - address) } else { address }
    }

    /// Makes a call, or reads what procfs says; `live` are the processes that live.
    pub(super) fn call(
        &self,
        process: usize,
        operation: &Operation,
        value: u64,
        live: &[usize],
    ) -> Result<Seen, AgainstError> {
        let pid = self.pid(process)?;
        let Operation::Syscall(call) = *operation else {
            return self.call_once(pid, operation, value, Other::default());
        };
        if call == Syscall::Maps {
            let text = self.proc(pid, "maps")?;
            return Ok(Seen::Maps(maps::parse(&text, |address| self.same_base(address))));
        }
        if call == Syscall::Usage {
            let (smaps, status) = (self.proc(pid, "smaps")?, self.proc(pid, "status")?);
            return Ok(Seen::Usage(Usage::parse(&smaps, &status, |address| self.same_base(address))));
        }
        if let Syscall::Pages { addr, pages } = call {
            let mappings = maps::parse(&self.proc(pid, "maps")?, |address| address);
            let mut words = self.pages(pid, addr, pages)?;
            for (page, word) in words.iter_mut().enumerate() {
                let at = addr.raw() + page as u64 * PAGE_SIZE;
                let around = |mapping: &Mapping| mapping.contains(at) && mapping.is_private_file();
                let left_out = *word & PAGE_OF_FILE != 0 && mappings.iter().any(around);
                *word = if left_out { 0 } else { *word & self.host.page_state };
            }
            return Ok(Seen::Pages(words));
        }
        let Some(other) = call.other() else { return self.call_once(pid, operation, value, Other::default()) };
        let other = self.pid(live[other % live.len()])?;
        if let Syscall::AdviseOther { .. } = call {
            return self.advise_other(pid, other, operation);
        }
        self.call_once(pid, operation, value, Other { pid: other.as_raw() as u64, pidfd: 0 })
    }

    fn proc(&self, pid: Pid, name: &str) -> Result<String, AgainstError> {
        std::fs::read_to_string(format!("/proc/{pid}/{name}")).map_err(AgainstError::Control)
    }

    /// The words of some pages, frames aside.
    fn pages(&self, pid: Pid, addr: VirtAddr, pages: u64) -> Result<Vec<u64>, AgainstError> {
        let mut bytes = vec![0; pages as usize * 8];
        let file = std::fs::File::open(format!("/proc/{pid}/pagemap")).map_err(AgainstError::Control)?;
        file.read_exact_at(&mut bytes, addr.page_index() * 8).map_err(AgainstError::Control)?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default()) & PAGE_STATE;
        Ok(bytes.chunks_exact(8).map(word).collect())
    }

    /// `process_madvise` through a descriptor of the other process.
    fn advise_other(&self, pid: Pid, other: Pid, operation: &Operation) -> Result<Seen, AgainstError> {
        let call = |number, arguments| self.answer(pid, self.tracee.call(pid, number, arguments)?);
        let other = other.as_raw() as u64;
        let pidfd = call(libc::SYS_pidfd_open, [other, 0, 0, 0, 0, 0])? as u64;
        let advised = self.call_once(pid, operation, 0, Other { pid: other, pidfd })?;
        call(libc::SYS_close, [pidfd, 0, 0, 0, 0, 0])?;
        Ok(advised)
    }
}
