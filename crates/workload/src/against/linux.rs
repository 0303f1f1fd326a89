//! The Linux side: programs' operations as system calls and accesses of processes that are held by [`Tracee`].
//!
//! One process, the root, is made ready once: everything that it had is unmapped, its heap is put where programs expect it, its
//! privileges are dropped and its limits set. Each program runs in a child of it, and in that one's children.
//!
//! Not guaranteed: anything about memory that other processes take; Linux is asked for little, so that it always has it.

use super::AgainstError;
use super::lack::{CODE, DATA, END, LIMITS, Lack};
use super::maps;
use super::seen::{Seen, Signal};
use super::tracee::{Stop, Tracee};
use crate::random::{Descriptor, Object, Operation, Syscall, Where};
use crate::random::{FILE_PAGES, HEAP};
use nix::libc;
use nix::sys::signal::Signal as Number;
use nix::unistd::Pid;
use pagewright_arch::{Isa, X86_64};
use pagewright_types::{Access, PAGE_SIZE, VirtAddr};

/// Where calls find structures, and the kernel puts answers: offsets in the data pages.
const ARGUMENT: u64 = 0;
const ANSWER: u64 = 0x800;
/// The first errno, as a negative answer.
const LEAST_ERRNO: i64 = -4095;
/// Where our side begins to look for a hole.
const OUR_BASE: u64 = X86_64::USER_END.raw() - (128 << 20);
/// Above this, places were chosen freely.
const FREE: u64 = 1 << 40;
/// Linux's `PIDFD_SELF`.
const PIDFD_SELF: i64 = -10000;

/// The Linux underneath.
pub(super) struct Linux {
    tracee: Tracee,
    /// Hard limits, in the order of [`LIMITS`].
    hard: [u64; 4],
    /// Where searches for a hole begin.
    base: u64,
    lacks: Vec<Lack>,
    /// By number; those that have ended are `None`.
    processes: Vec<Option<Pid>>,
    /// Descriptors of the file: for reading and writing, and for reading.
    both: u64,
    reading: u64,
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Linux {
    /// Gets a root process ready.
    pub(super) fn start() -> Result<Self, AgainstError> {
        let tracee = Tracee::start()?;
        let mut linux =
            Self { tracee, hard: [0; 4], base: 0, lacks: Vec::new(), processes: Vec::new(), both: 0, reading: 0 };
        linux.clear()?;
        linux.place_heap()?;
        linux.set_limits()?;
        linux.drop_privileges()?;
        // Ended children are not to wait for somebody to ask for them (SIG_IGN for SIGCHLD).
        linux.tracee.put(ARGUMENT, &bytes_of(&[1, 0, 0, 0]))?;
        linux.must("rt_sigaction", libc::SYS_rt_sigaction, [libc::SIGCHLD as u64, DATA, 0, 8, 0, 0])?;
        // No huge pages: the memory manager here has none.
        linux.must("prctl", libc::SYS_prctl, [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0, 0])?;
        let private_anonymous = 0x22;
        let highest = linux.must("mmap", libc::SYS_mmap, [0, PAGE_SIZE, 0, private_anonymous, u64::MAX, 0])?;
        linux.must("munmap", libc::SYS_munmap, [highest, PAGE_SIZE, 0, 0, 0, 0])?;
        linux.base = highest + PAGE_SIZE;
        linux.probe()?;
        Ok(linux)
    }

    /// What the kernel does not have.
    pub(super) fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    fn root(&self, number: i64, arguments: [u64; 6]) -> Result<i64, AgainstError> {
        let pid = self.tracee.pid();
        self.answer(pid, self.tracee.call(pid, number, arguments)?)
    }

    /// A call of the root's that has no reason to fail.
    fn must(&self, name: &'static str, number: i64, arguments: [u64; 6]) -> Result<u64, AgainstError> {
        let answer = self.root(number, arguments)?;
        if (LEAST_ERRNO..0).contains(&answer) {
            return Err(AgainstError::Setup { name, errno: nix::errno::Errno::from_raw(-answer as i32) });
        }
        Ok(answer as u64)
    }

    fn answer(&self, pid: Pid, stop: Stop) -> Result<i64, AgainstError> {
        match stop {
            Stop::Done(answer) => Ok(answer as i64),
            Stop::Signal(..) | Stop::Forked(_) | Stop::Gone => {
                Err(AgainstError::Lost { pid: pid.as_raw(), status: format!("{stop:?} in a call") })
            }
        }
    }

    /// Unmaps what the shell had.
    fn clear(&self) -> Result<(), AgainstError> {
        let user_end = X86_64::USER_END.raw();
        self.must("munmap", libc::SYS_munmap, [0, CODE, 0, 0, 0, 0])?;
        self.must("munmap", libc::SYS_munmap, [END, user_end - END, 0, 0, 0, 0]).map(drop)
    }

    /// The heap begins where programs expect it, and is empty (`struct prctl_mm_map`).
    fn place_heap(&self) -> Result<(), AgainstError> {
        let (heap, somewhere) = (HEAP.raw(), CODE);
        let no_auxv_no_exe = u64::from(u32::MAX) << 32;
        let mut map = vec![somewhere, somewhere + 1, somewhere, somewhere, heap, heap];
        map.extend([somewhere; 5]);
        map.extend([0, no_auxv_no_exe]);
        self.tracee.put(ARGUMENT, &bytes_of(&map))?;
        let (what, bytes) = (libc::PR_SET_MM_MAP as u64, map.len() as u64 * 8);
        self.must("prctl(PR_SET_MM)", libc::SYS_prctl, [libc::PR_SET_MM as u64, what, DATA, bytes, 0, 0]).map(drop)
    }

    fn set_limits(&mut self) -> Result<(), AgainstError> {
        for (place, (resource, bytes)) in LIMITS.into_iter().enumerate() {
            self.must("prlimit64", libc::SYS_prlimit64, [0, resource.into(), 0, DATA + ANSWER, 0, 0])?;
            let old = self.tracee.take(ANSWER + 8, 8)?;
            self.hard[place] = u64::from_le_bytes(old.try_into().unwrap_or_default());
            self.tracee.put(ARGUMENT, &bytes_of(&[bytes, self.hard[place]]))?;
            self.must("prlimit64", libc::SYS_prlimit64, [0, resource.into(), DATA, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Without any capability, even if we are root.
    fn drop_privileges(&self) -> Result<(), AgainstError> {
        let version_3 = 0x2008_0522;
        self.tracee.put(ARGUMENT, &bytes_of(&[version_3, 0, 0, 0, 0]))?;
        self.must("capset", libc::SYS_capset, [DATA, DATA + 8, 0, 0, 0, 0]).map(drop)
    }

    fn probe(&mut self) -> Result<(), AgainstError> {
        let asked = [
            (Lack::Seal, SYS_MSEAL, [CODE, 0, 0, 0, 0, 0]),
            (Lack::Guard, libc::SYS_madvise, [CODE, 0, 102, 0, 0, 0]),
            (Lack::AdviseRanges, libc::SYS_process_madvise, [PIDFD_SELF as u64, DATA, 0, 4, 0, 0]),
        ];
        for (lack, number, arguments) in asked {
            if self.root(number, arguments)? < 0 {
                self.lacks.push(lack);
            }
        }
        Ok(())
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

    /// Makes a call that concerns one process; `live` are those that live.
    pub(super) fn call(
        &self,
        process: usize,
        operation: &Operation,
        value: u64,
        live: &[usize],
    ) -> Result<Seen, AgainstError> {
        let pid = self.pid(process)?;
        if let Operation::Syscall(Syscall::Maps) = operation {
            let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(AgainstError::Control)?;
            return Ok(Seen::Maps(maps::parse(&text, |address| self.same_base(address))));
        }
        let (number, arguments) = self.arguments(operation, value, live)?;
        let answer = self.answer(pid, self.tracee.call(pid, number, arguments)?)?;
        if (LEAST_ERRNO..0).contains(&answer) {
            return Ok(Seen::Failed(-answer as u16));
        }
        let answer = self.same_base(answer as u64);
        let filled = if let Operation::Syscall(Syscall::Resident { len, .. }) = operation {
            Some(len.div_ceil(PAGE_SIZE))
        } else if let Operation::Syscall(Syscall::Read { .. } | Syscall::ReadOther { .. }) = operation {
            Some(answer)
        } else {
            None
        };
        match filled {
            Some(count) => Ok(Seen::Bytes(answer, self.tracee.take(ANSWER, count as usize)?)),
            None => Ok(Seen::Value(answer)),
        }
    }

    /// The number and the arguments of a call, with what they point to put in place.
    fn arguments(&self, operation: &Operation, value: u64, live: &[usize]) -> Result<(i64, [u64; 6]), AgainstError> {
        Ok(match *operation {
            Operation::Map { place, len, rights, object, populate } => {
                let (addr, at) = match place {
                    Where::Anywhere => (VirtAddr::ZERO, 0),
                    Where::Fixed(at) => (at, libc::MAP_FIXED),
                    Where::Vacant(at) => (at, libc::MAP_FIXED_NOREPLACE),
                };
                let (kind, file, page) = match object {
                    Object::PrivateAnon => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, u64::MAX, 0),
                    Object::SharedAnon => (libc::MAP_SHARED | libc::MAP_ANONYMOUS, u64::MAX, 0),
                    Object::PrivateFile(page) => (libc::MAP_PRIVATE, self.both, page),
                    Object::SharedFile(page) => (libc::MAP_SHARED, self.both, page),
                    Object::SharedReadOnly(page) => (libc::MAP_SHARED, self.reading, page),
                };
                let flags = kind | at | if populate { libc::MAP_POPULATE } else { 0 };
                let rights = u64::from(rights.bits());
                (libc::SYS_mmap, [addr.raw(), len, rights, flags as u64, file, page * PAGE_SIZE])
            }
            Operation::Unmap { addr, len } => (libc::SYS_munmap, [addr.raw(), len, 0, 0, 0, 0]),
            Operation::Protect { addr, len, rights } => {
                (libc::SYS_mprotect, [addr.raw(), len, rights.bits().into(), 0, 0, 0])
            }
            Operation::DontNeed { addr, len } => {
                (libc::SYS_madvise, [addr.raw(), len, libc::MADV_DONTNEED as u64, 0, 0, 0])
            }
            Operation::Break { to } => (libc::SYS_brk, [to.raw(), 0, 0, 0, 0, 0]),
            Operation::Truncate { pages } => (libc::SYS_ftruncate, [self.both, pages * PAGE_SIZE, 0, 0, 0, 0]),
            Operation::Syscall(ref call) => return self.syscall(call, value, live),
            Operation::Fork
            | Operation::Exit { .. }
            | Operation::Access { .. }
            | Operation::Roam { .. }
            | Operation::Switch { .. }
            | Operation::Lazy
            | Operation::Starve { .. } => unreachable!("{operation} is no call of one process"),
        })
    }

    fn syscall(&self, call: &Syscall, value: u64, live: &[usize]) -> Result<(i64, [u64; 6]), AgainstError> {
        let file = |descriptor| match descriptor {
            Descriptor::None => u64::MAX,
            Descriptor::Both => self.both,
            Descriptor::Reading => self.reading,
        };
        let range = |addr: VirtAddr, len, more: u64| [addr.raw(), len, more, 0, 0, 0];
        Ok(match *call {
            Syscall::Map { addr, len, prot, flags, file: descriptor, offset } => {
                (libc::SYS_mmap, [addr.raw(), len, prot.into(), flags.into(), file(descriptor), offset])
            }
            Syscall::Remap { addr, old_len, new_len, flags, new_addr } => {
                (libc::SYS_mremap, [addr.raw(), old_len, new_len, flags.into(), new_addr.raw(), 0])
            }
            Syscall::Advise { addr, len, advice } => (libc::SYS_madvise, range(addr, len, advice.into())),
            Syscall::Lock { addr, len, flags } => (libc::SYS_mlock2, range(addr, len, flags.into())),
            Syscall::Unlock { addr, len } => (libc::SYS_munlock, range(addr, len, 0)),
            Syscall::LockAll { flags } => (libc::SYS_mlockall, [flags.into(), 0, 0, 0, 0, 0]),
            Syscall::UnlockAll => (libc::SYS_munlockall, [0; 6]),
            Syscall::Sync { addr, len, flags } => (libc::SYS_msync, range(addr, len, flags.into())),
            Syscall::Resident { addr, len } => (libc::SYS_mincore, range(addr, len, DATA + ANSWER)),
            Syscall::Seal { addr, len, flags } => (SYS_MSEAL, range(addr, len, flags.into())),
            Syscall::Limit { resource, bytes } => {
                let place = LIMITS.iter().position(|(known, _)| *known == resource);
                let hard = place.map_or(u64::MAX, |place| self.hard[place]);
                self.tracee.put(ARGUMENT, &bytes_of(&[bytes, hard]))?;
                (libc::SYS_prlimit64, [0, resource.into(), DATA, 0, 0, 0])
            }
            Syscall::Allocate { flags, offset, len } => {
                (libc::SYS_fallocate, [self.both, flags.into(), offset, len, 0, 0])
            }
            Syscall::AddSeals { file: descriptor, seals } => {
                (libc::SYS_fcntl, [file(descriptor), libc::F_ADD_SEALS as u64, seals.into(), 0, 0, 0])
            }
            Syscall::GetSeals => (libc::SYS_fcntl, [self.both, libc::F_GET_SEALS as u64, 0, 0, 0, 0]),
            Syscall::Read { offset } => (libc::SYS_pread64, [self.both, DATA + ANSWER, 8, offset, 0, 0]),
            Syscall::Write { offset } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[value]))?;
                (libc::SYS_pwrite64, [self.both, DATA, 8, offset, 0, 0])
            }
            Syscall::ReadOther { process, addr, len } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[DATA + ANSWER, len, addr.raw(), len]))?;
                let other = self.pid(live[process % live.len()])?.as_raw() as u64;
                (libc::SYS_process_vm_readv, [other, DATA, 1, DATA + 16, 1, 0])
            }
            Syscall::AdviseRanges { ranges: [(a, m), (b, n)], advice } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[a.raw(), m, b.raw(), n]))?;
                (libc::SYS_process_madvise, [PIDFD_SELF as u64, DATA, 2, advice.into(), 0, 0])
            }
            Syscall::Maps => unreachable!("no call"),
        })
    }
}

/// `mseal`, which the C library's headers don't name yet.
const SYS_MSEAL: i64 = 462;
