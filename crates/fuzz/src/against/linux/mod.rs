//! The Linux side: runs operations as system calls and accesses of the processes of a [`Tracee`].
//!
//! One process, the root, is set up once (`setup`). Each program runs in a child of the root and
//! its descendants. `calls` turns an operation into a system call.
//!
//! Not guaranteed: results when Linux runs out of memory. Programs need little.

mod calls;
mod setup;

use super::AgainstError;
use super::initial_state::{DATA, HostSettings, PIPE_PAGES, data_pages};
use super::maps::{self, ShownMapping};
use super::memory_usage::MemoryUsage;
use super::missing_feature::MissingFeature;
use super::observation::{AccessSignal, Observation};
use super::tracee::{Stop, Tracee};
use crate::random::{FILE_PAGES, Operation, Syscall};
use calls::OtherProcess;
use nix::libc;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use pagewright_arch::{Isa, X86_64};
use pagewright_types::{Access, PAGE_SIZE, VirtAddr};
use std::os::unix::fs::FileExt;

/// Offset in the tracee's data of the words that calls read.
const ARGUMENT: u64 = 0;
/// Offset in the tracee's data of the bytes that calls store.
const OUTPUT: u64 = 0x800;
/// Fields of `/proc/PID/stat`, from 1.
const STATE: usize = 3;
const MIN_FLT: usize = 10;
/// The least negated errno.
const LEAST_ERRNO: i64 = -4095;
/// The address below which our side searches for a hole.
const OUR_BASE: u64 = X86_64::USER_END.raw() - (128 << 20);
/// Addresses above this one were chosen by a call.
const CHOSEN_START: u64 = 1 << 40;
/// The bits of a `pagemap` word above the frame number.
const PAGEMAP_FLAGS: u64 = !0 << 55;
/// The `pagemap` bit of pages of files and shared memory.
const PAGEMAP_FILE: u64 = 1 << 61;

/// The host's Linux.
pub(super) struct Linux {
    tracee: Tracee,
    host: HostSettings,
    /// The address below which Linux searches for a hole.
    base: u64,
    missing: Vec<MissingFeature>,
    /// The processes by number; `None` if ended.
    processes: Vec<Option<Pid>>,
    /// The descriptor of the file opened for reading and writing.
    read_write: u64,
    /// The descriptor of the file opened for reading.
    read_only: u64,
    /// The descriptors of the pipe: read end, write end.
    pipe: [u64; 2],
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Linux {
    /// The features that the kernel lacks.
    pub(super) fn missing(&self) -> &[MissingFeature] {
        &self.missing
    }

    /// The settings of the kernel.
    pub(super) fn host(&self) -> HostSettings {
        self.host
    }

    /// The value that a call returned.
    fn returned(&self, pid: Pid, stop: Stop) -> Result<i64, AgainstError> {
        match stop {
            Stop::Done(value) => Ok(value as i64),
            Stop::Signal(..) | Stop::Forked(_) | Stop::Gone => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} during a call") })
            }
        }
    }

    /// Starts the first process of a program, and creates its file and pipe.
    pub(super) fn begin(&mut self) -> Result<(), AgainstError> {
        let root = self.tracee.pid();
        let first = self
            .fork(root)?
            .map_err(|errno| AgainstError::Setup { name: "fork", errno: nix::errno::Errno::from_raw(errno.into()) })?;
        self.processes = vec![Some(first)];
        self.map_data(first)?;
        self.tracee.write_data(ARGUMENT, b"file\0")?;
        let allow_sealing = 2;
        self.read_write = self.setup_call("memfd_create", libc::SYS_memfd_create, [DATA, allow_sealing, 0, 0, 0, 0])?;
        self.tracee.write_data(ARGUMENT, format!("/proc/self/fd/{}\0", self.read_write).as_bytes())?;
        self.read_only = self.setup_call("open", libc::SYS_open, [DATA, libc::O_RDONLY as u64, 0, 0, 0, 0])?;
        self.setup_call("pipe2", libc::SYS_pipe2, [DATA + OUTPUT, libc::O_NONBLOCK as u64, 0, 0, 0, 0])?;
        let ends = self.tracee.read_data(OUTPUT, 8)?;
        self.pipe = [0, 4].map(|at| u64::from(ends[at]));
        // The capacity of our pipe.
        let set_size = [self.pipe[1], libc::F_SETPIPE_SZ as u64, PIPE_PAGES as u64 * PAGE_SIZE, 0, 0, 0];
        self.setup_call("fcntl(F_SETPIPE_SZ)", libc::SYS_fcntl, set_size)?;
        let bytes = FILE_PAGES * PAGE_SIZE;
        self.setup_call("ftruncate", libc::SYS_ftruncate, [self.read_write, bytes, 0, 0, 0, 0]).map(drop)
    }

    /// Stores to the data of a new process, so that no later operation faults it in.
    fn map_data(&self, pid: Pid) -> Result<(), AgainstError> {
        for at in data_pages() {
            let stop = self.tracee.store(pid, at, 0)?;
            self.returned(pid, stop)?;
        }
        Ok(())
    }

    /// Makes a call of the program's first process that must succeed.
    fn setup_call(&self, name: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, AgainstError> {
        let pid = self.pid(0)?;
        let returned = self.returned(pid, self.tracee.call(pid, number, arguments)?)?;
        if (LEAST_ERRNO..0).contains(&returned) {
            return Err(AgainstError::Setup { name, errno: nix::errno::Errno::from_raw(-returned as i32) });
        }
        Ok(returned as u64)
    }

    /// Ends the remaining processes of a program.
    pub(super) fn finish(&mut self) -> Result<(), AgainstError> {
        for pid in std::mem::take(&mut self.processes).into_iter().flatten() {
            self.tracee.end(pid)?;
        }
        Ok(())
    }

    fn pid(&self, process: usize) -> Result<Pid, AgainstError> {
        let ended = || AgainstError::Lost { pid: 0, status: format!("process {process} has ended") };
        self.processes.get(process).copied().flatten().ok_or_else(ended)
    }

    /// Forks; returns the child or the errno.
    fn fork(&self, pid: Pid) -> Result<Result<Pid, u16>, AgainstError> {
        match self.tracee.call(pid, libc::SYS_fork, [0; 6])? {
            Stop::Forked(child) => {
                let stop = self.tracee.resume(pid)?;
                self.returned(pid, stop)?;
                Ok(Ok(child))
            }
            stop @ (Stop::Done(_) | Stop::Signal(..) | Stop::Gone) => {
                self.returned(pid, stop).map(|returned| Err(-returned as u16))
            }
        }
    }

    /// Forks; the child gets the next number.
    pub(super) fn fork_process(&mut self, process: usize) -> Result<Observation, AgainstError> {
        match self.fork(self.pid(process)?)? {
            Ok(child) => {
                self.map_data(child)?;
                self.processes.push(Some(child));
                Ok(Observation::Done)
            }
            Err(errno) => Ok(Observation::Failed(errno)),
        }
    }

    /// Ends a process by `exit_group`.
    pub(super) fn exit_process(&mut self, process: usize) -> Result<Observation, AgainstError> {
        let pid = self.pid(process)?;
        self.processes[process] = None;
        match self.tracee.call(pid, libc::SYS_exit_group, [0; 6])? {
            Stop::Gone => Ok(Observation::Done),
            stop @ (Stop::Done(_) | Stop::Signal(..) | Stop::Forked(_)) => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} after exit_group") })
            }
        }
    }

    /// Accesses the cell at `va`; a store stores `value`.
    pub(super) fn access(
        &self,
        process: usize,
        va: VirtAddr,
        access: Access,
        value: u64,
    ) -> Result<Observation, AgainstError> {
        let pid = self.pid(process)?;
        let stop = match access {
            Access::Read => self.tracee.load(pid, va.raw())?,
            Access::Write => self.tracee.store(pid, va.raw(), value)?,
            Access::Exec => self.tracee.fetch(pid, va.raw())?,
        };
        match (stop, access) {
            (Stop::Done(value), Access::Read) => Ok(Observation::Value(value)),
            (Stop::Done(_), Access::Write | Access::Exec) => Ok(Observation::Done),
            (Stop::Signal(signal, code), _) => Ok(Observation::Signal(match (signal, code) {
                (Signal::SIGSEGV, 1) => AccessSignal::Unmapped,
                (Signal::SIGSEGV, 2) => AccessSignal::Forbidden,
                (Signal::SIGBUS, 2) => AccessSignal::PastEnd,
                (signal, code) => AccessSignal::Other(signal as i32, code),
            })),
            (stop @ (Stop::Forked(_) | Stop::Gone), _) => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} during an access") })
            }
        }
    }

    /// Translates an address that a call chose to the one that our side would choose.
    fn same_base(&self, address: u64) -> u64 {
        let is_chosen = (CHOSEN_START..=self.base).contains(&address);
        if is_chosen { OUR_BASE - (self.base - address) } else { address }
    }

    /// Makes a call, or reads a file of procfs; `live` are the live processes.
    pub(super) fn call(
        &self,
        process: usize,
        operation: &Operation,
        value: u64,
        live: &[usize],
    ) -> Result<Observation, AgainstError> {
        let pid = self.pid(process)?;
        let Operation::Syscall(call) = *operation else {
            return self.single_call(pid, operation, value, OtherProcess::default());
        };
        if call == Syscall::ShowMaps {
            let text = self.proc(pid, "maps")?;
            return Ok(Observation::Maps(maps::parse(&text, |address| self.same_base(address))));
        }
        if call == Syscall::ShowSmaps {
            let (smaps, status) = (self.proc(pid, "smaps")?, self.proc(pid, "status")?);
            return Ok(Observation::Usage(MemoryUsage::parse(&smaps, &status, |address| self.same_base(address))));
        }
        if let Syscall::ShowPagemap { addr, pages } = call {
            let mappings = maps::parse(&self.proc(pid, "maps")?, |address| address);
            let mut words = self.pages(pid, addr, pages)?;
            for (page, word) in words.iter_mut().enumerate() {
                let at = addr.raw() + page as u64 * PAGE_SIZE;
                let is_private_file = |mapping: &ShownMapping| mapping.contains(at) && mapping.is_private_file();
                let skipped = *word & PAGEMAP_FILE != 0 && mappings.iter().any(is_private_file);
                *word = if skipped { 0 } else { *word & self.host.pagemap_bits };
            }
            return Ok(Observation::Pages(words));
        }
        let Some(other) = call.other_process() else {
            return self.single_call(pid, operation, value, OtherProcess::default());
        };
        let other = self.pid(live[other % live.len()])?;
        if let Syscall::ProcessMadvise { .. } = call {
            return self.process_madvise(pid, other, operation);
        }
        self.single_call(pid, operation, value, OtherProcess { pid: other.as_raw() as u64, pidfd: 0 })
    }

    /// Reads the minor faults of a process (`min_flt`).
    pub(super) fn minor_faults(&self, process: usize) -> Result<u64, AgainstError> {
        let stat = self.proc(self.pid(process)?, "stat")?;
        // The name of the program may have spaces; state is the first field behind it.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let faults = fields.split_ascii_whitespace().nth(MIN_FLT - STATE).and_then(|field| field.parse().ok());
        faults.ok_or_else(|| AgainstError::Control(std::io::ErrorKind::InvalidData.into()))
    }

    fn proc(&self, pid: Pid, name: &str) -> Result<String, AgainstError> {
        std::fs::read_to_string(format!("/proc/{pid}/{name}")).map_err(AgainstError::Control)
    }

    /// The `pagemap` words of pages, without frame numbers.
    fn pages(&self, pid: Pid, addr: VirtAddr, pages: u64) -> Result<Vec<u64>, AgainstError> {
        let mut bytes = vec![0; pages as usize * 8];
        let file = std::fs::File::open(format!("/proc/{pid}/pagemap")).map_err(AgainstError::Control)?;
        file.read_exact_at(&mut bytes, addr.page_index() * 8).map_err(AgainstError::Control)?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default()) & PAGEMAP_FLAGS;
        Ok(bytes.chunks_exact(8).map(word).collect())
    }

    /// `process_madvise`, with a new descriptor of the other process.
    fn process_madvise(&self, pid: Pid, other: Pid, operation: &Operation) -> Result<Observation, AgainstError> {
        let call = |number, arguments| self.returned(pid, self.tracee.call(pid, number, arguments)?);
        let other = other.as_raw() as u64;
        let pidfd = call(libc::SYS_pidfd_open, [other, 0, 0, 0, 0, 0])? as u64;
        let advised = self.single_call(pid, operation, 0, OtherProcess { pid: other, pidfd })?;
        call(libc::SYS_close, [pidfd, 0, 0, 0, 0, 0])?;
        Ok(advised)
    }
}
