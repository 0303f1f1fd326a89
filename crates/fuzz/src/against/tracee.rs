//! A process of the host's Linux that executes single system calls and accesses for us.
//!
//! ptrace(2) holds the process. It has two mappings: code of three short sequences, and a few pages
//! of data for the arguments of calls. To execute a call, we set its registers and let it run to
//! the next breakpoint; its registers then have the result. So no code of ours runs in it, the rest
//! of its address space belongs to the program, and no unsafe code is needed.
//!
//! Not guaranteed: that it works where ptrace(2) is forbidden, or on another processor than x86-64.

use super::AgainstError;
use super::initial_state::{CODE, DATA, DATA_BYTES, END};
use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

/// `syscall; int3`, `mov rax, [rdi]; int3`, `mov [rdi], rsi; int3`.
const INSTRUCTIONS: [u8; 11] = [0x0f, 0x05, 0xcc, 0x48, 0x8b, 0x07, 0xcc, 0x48, 0x89, 0x37, 0xcc];
const SYSCALL: u64 = CODE;
const LOAD: u64 = CODE + 3;
const STORE: u64 = CODE + 7;
/// The trap flag of EFLAGS: a trap after one instruction.
const TRAP_FLAG: u64 = 0x100;
/// The first three bytes of the code, `syscall; int3`, as a word.
const SYSCALL_WORD: i64 = 0xcc050f;

/// Why a tracee stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A breakpoint after the instruction; the value is that of RAX.
    Done(u64),
    /// A signal, with its code.
    Signal(Signal, i32),
    /// A fork; the value is the child.
    Forked(Pid),
    /// The end of the process.
    Gone,
}

/// A process that ptrace(2) holds, and its descendants.
pub(super) struct Tracee {
    pid: Pid,
    /// The file that backs code and data of the process and its descendants.
    control: File,
    /// The registers with which it was seized: defaults of those that we do not set.
    registers: user_regs_struct,
}

/// The error of an unexpected stop.
fn lost(pid: Pid, status: impl std::fmt::Debug) -> AgainstError {
    AgainstError::Lost { pid: pid.as_raw(), status: format!("{status:?}") }
}

fn wait(pid: Pid) -> Result<WaitStatus, AgainstError> {
    loop {
        match waitpid(pid, Some(WaitPidFlag::__WALL)) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(AgainstError::Ptrace { pid: pid.as_raw(), errno }),
            Ok(status) => return Ok(status),
        }
    }
}

impl Tracee {
    /// Starts a shell, seizes it and maps code and data.
    ///
    /// Its standard input is the control file. It and its descendants stay on one CPU.
    pub(super) fn start() -> Result<Self, AgainstError> {
        let control = control_file().map_err(AgainstError::Control)?;
        // Without rseq: the kernel would write to memory of the C library, which will be unmapped.
        let shell = Command::new("/bin/sh")
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .args(["-c", "kill -STOP $$"])
            .stdin(Stdio::from(control.try_clone().map_err(AgainstError::Control)?))
            .stdout(Stdio::null())
            .spawn()
            .map_err(AgainstError::Shell)?;
        let pid = Pid::from_raw(shell.id() as i32);
        stay_on_one_cpu(pid).map_err(|errno| AgainstError::Setup { name: "sched_setaffinity", errno })?;
        let failed = |errno| AgainstError::Ptrace { pid: pid.as_raw(), errno };
        // Two stops are reported: the shell stops itself, and stops again when it is seized.
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).map_err(failed)?;
        ptrace::seize(pid, Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_EXITKILL).map_err(failed)?;
        wait(pid)?;
        let registers = ptrace::getregs(pid).map_err(failed)?;
        let tracee = Self { pid, control, registers };
        // The code at which it stopped is not needed any more: replace it.
        let here = registers.rip;
        ptrace::write(pid, here as ptrace::AddressType, SYSCALL_WORD).map_err(failed)?;
        let (read, write, exec, shared_fixed) = (1, 2, 4, 0x11);
        let map = |at, bytes, rights, offset| {
            let mapped = tracee.run_at(pid, here, MMAP, [at, bytes, rights, shared_fixed, 0, offset])?;
            if mapped == Stop::Done(at) { Ok(()) } else { Err(lost(pid, mapped)) }
        };
        map(CODE, DATA - CODE, read | exec, 0)?;
        map(DATA, DATA_BYTES, read | write, DATA - CODE)?;
        tracee.take_protection_keys()?;
        Ok(tracee)
    }

    /// Allocates every protection key of the process, whose children inherit that.
    ///
    /// On a CPU with keys, Linux would use one to make execute-only mappings unreadable
    /// (`execute_only_pkey`). Without a free key they are as on any other CPU.
    fn take_protection_keys(&self) -> Result<(), AgainstError> {
        loop {
            match self.call(self.pid, PKEY_ALLOC, [0; 6])? {
                Stop::Done(key) if key < PROTECTION_KEYS => {}
                // ENOSPC: there are no more, or none at all.
                Stop::Done(_) => return Ok(()),
                stop @ (Stop::Signal(..) | Stop::Forked(_) | Stop::Gone) => return Err(lost(self.pid, stop)),
            }
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Makes a system call.
    ///
    /// A result from -4095 to -1 is a negated errno.
    pub(super) fn call(&self, pid: Pid, number: i64, arguments: [u64; 6]) -> Result<Stop, AgainstError> {
        self.run_at(pid, SYSCALL, number, arguments)
    }

    /// Loads eight bytes.
    pub(super) fn load(&self, pid: Pid, address: u64) -> Result<Stop, AgainstError> {
        self.run_at(pid, LOAD, 0, [address, 0, 0, 0, 0, 0])
    }

    /// Stores eight bytes.
    pub(super) fn store(&self, pid: Pid, address: u64, value: u64) -> Result<Stop, AgainstError> {
        self.run_at(pid, STORE, 0, [address, value, 0, 0, 0, 0])
    }

    /// Executes one instruction at `address`: a breakpoint (`cc`), or zeroes.
    ///
    /// Zeroes are `add [rax], al`, so RAX points to an unused byte.
    pub(super) fn fetch(&self, pid: Pid, address: u64) -> Result<Stop, AgainstError> {
        // PTRACE_SINGLESTEP would read the instruction whatever the VMA allows: set the trap flag.
        let eflags = self.registers.eflags | TRAP_FLAG;
        let registers = user_regs_struct { rip: address, rax: END - 8, orig_rax: u64::MAX, eflags, ..self.registers };
        ptrace::setregs(pid, registers).map_err(|errno| AgainstError::Ptrace { pid: pid.as_raw(), errno })?;
        self.resume(pid)
    }

    fn run_at(&self, pid: Pid, at: u64, number: i64, arguments: [u64; 6]) -> Result<Stop, AgainstError> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let rax = number as u64;
        // Otherwise the kernel could take the last stop for an interrupted system call.
        let orig_rax = u64::MAX;
        let registers = user_regs_struct { rip: at, rax, orig_rax, rdi, rsi, rdx, r10, r8, r9, ..self.registers };
        ptrace::setregs(pid, registers).map_err(|errno| AgainstError::Ptrace { pid: pid.as_raw(), errno })?;
        self.resume(pid)
    }

    /// Lets a process run to its next stop.
    pub(super) fn resume(&self, pid: Pid) -> Result<Stop, AgainstError> {
        ptrace::cont(pid, None).map_err(|errno| AgainstError::Ptrace { pid: pid.as_raw(), errno })?;
        self.stop(pid)
    }

    fn stop(&self, pid: Pid) -> Result<Stop, AgainstError> {
        let failed = |errno| AgainstError::Ptrace { pid: pid.as_raw(), errno };
        match wait(pid)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(Stop::Done(ptrace::getregs(pid).map_err(failed)?.rax)),
            WaitStatus::Stopped(_, signal @ (Signal::SIGSEGV | Signal::SIGBUS)) => {
                Ok(Stop::Signal(signal, ptrace::getsiginfo(pid).map_err(failed)?.si_code))
            }
            // A signal from outside, from the terminal for example: ignore it.
            WaitStatus::Stopped(..) => self.resume(pid),
            WaitStatus::PtraceEvent(_, _, event) if event == ptrace::Event::PTRACE_EVENT_FORK as i32 => {
                let child = Pid::from_raw(ptrace::getevent(pid).map_err(failed)? as i32);
                wait(child)?;
                Ok(Stop::Forked(child))
            }
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => Ok(Stop::Gone),
            other => Err(lost(pid, other)),
        }
    }

    /// Ends a process.
    pub(super) fn end(&self, pid: Pid) -> Result<(), AgainstError> {
        kill(pid, Signal::SIGKILL).map_err(|errno| AgainstError::Ptrace { pid: pid.as_raw(), errno })?;
        loop {
            if let WaitStatus::Exited(..) | WaitStatus::Signaled(..) = wait(pid)? {
                return Ok(());
            }
        }
    }

    /// Writes to the data at `offset` from [`DATA`].
    pub(super) fn write_data(&self, offset: u64, bytes: &[u8]) -> Result<(), AgainstError> {
        self.control.write_all_at(bytes, DATA - CODE + offset).map_err(AgainstError::Control)
    }

    /// Reads from the data at `offset` from [`DATA`].
    pub(super) fn read_data(&self, offset: u64, count: usize) -> Result<Vec<u8>, AgainstError> {
        let mut bytes = vec![0; count];
        self.control.read_exact_at(&mut bytes, DATA - CODE + offset).map_err(AgainstError::Control)?;
        Ok(bytes)
    }
}

/// Binds a process to the current CPU.
///
/// A new page waits in a batch of its CPU before Linux puts it on an LRU list (`lru_add_drain`).
/// `MADV_PAGEOUT` drains the batch of the current CPU only, so the process must not migrate.
fn stay_on_one_cpu(pid: Pid) -> Result<(), Errno> {
    let mut only = CpuSet::new();
    only.set(sched_getcpu()?)?;
    sched_setaffinity(pid, &only)
}

/// The number of `mmap`, which maps code and data.
const MMAP: i64 = nix::libc::SYS_mmap;
/// The number of `pkey_alloc`.
const PKEY_ALLOC: i64 = nix::libc::SYS_pkey_alloc;
/// The number of protection keys on x86-64 (Intel SDM vol. 3A §4.6.2).
const PROTECTION_KEYS: u64 = 16;

fn control_file() -> io::Result<File> {
    let control = File::from(memfd_create(c"control", MFdFlags::empty())?);
    control.set_len(END - CODE)?;
    control.write_all_at(&INSTRUCTIONS, 0)?;
    Ok(control)
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.end(self.pid);
    }
}
