//! A process of the Linux underneath that does as it is told: one system call or one access at a
//! time.
//!
//! It is a process that ptrace(2) holds. It has two mappings: four instructions, and a few pages
//! for what calls point to. To do something, its registers are set and it runs to the next
//! breakpoint; what it then has in its registers is the answer. So nothing of ours runs in it,
//! everything else of its address space is the program's, and no unsafe code is needed.
//!
//! Key types: [`Tracee`], [`Stop`]. Neighbours: `linux` makes programs' operations of these.
//!
//! Not guaranteed: that it works where ptrace(2) is forbidden, or on another processor than x86-64.

use super::AgainstError;
use super::lack::{CODE, DATA, DATA_BYTES, END};
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
/// After one instruction, a trap.
const TRAP_FLAG: u64 = 0x100;
/// The first three of the instructions, as a word.
const SYSCALL_WORD: i64 = 0xcc050f;

/// Why it ran no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It did as it was told; this is in its first register.
    Done(u64),
    /// A signal, with its code.
    Signal(Signal, i32),
    /// It has a child.
    Forked(Pid),
    /// It is no more.
    Gone,
}

/// A process that was taken over.
pub(super) struct Tracee {
    pid: Pid,
    /// What all its descendants share: the instructions, and behind them the data.
    control: File,
    /// Its registers when it was taken over; most of them don't matter.
    registers: user_regs_struct,
}

/// What a wait can't report of a process that only does as it is told.
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
    /// Starts a process and takes it over.
    ///
    /// Its first two descriptors are the control file and nothing. It and its descendants stay on
    /// one CPU.
    pub(super) fn start() -> Result<Self, AgainstError> {
        let control = control_file().map_err(AgainstError::Control)?;
        // The C library would have the kernel write to memory of its own (rseq) that will be
        // unmapped.
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
        // It has stopped itself, and stops again when it is seized: each is reported.
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).map_err(failed)?;
        ptrace::seize(pid, Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_EXITKILL).map_err(failed)?;
        wait(pid)?;
        let registers = ptrace::getregs(pid).map_err(failed)?;
        let tracee = Self { pid, control, registers };
        // Where it stopped is code; whatever was there is not needed any more.
        let here = registers.rip;
        ptrace::write(pid, here as ptrace::AddressType, SYSCALL_WORD).map_err(failed)?;
        let (read, write, exec, shared_fixed) = (1, 2, 4, 0x11);
        let map = |at, bytes, rights, offset| {
            let mapped = tracee.run_at(pid, here, MMAP, [at, bytes, rights, shared_fixed, 0, offset])?;
            if mapped == Stop::Done(at) { Ok(()) } else { Err(lost(pid, mapped)) }
        };
        map(CODE, DATA - CODE, read | exec, 0)?;
        map(DATA, DATA_BYTES, read | write, DATA - CODE)?;
        Ok(tracee)
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Makes a system call.
    ///
    /// A negative answer is an errno.
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

    /// Runs one instruction at `address`: a breakpoint (`cc`) or zeroes, which add to a byte that
    /// nobody needs.
    pub(super) fn fetch(&self, pid: Pid, address: u64) -> Result<Stop, AgainstError> {
        // The trap flag is set here and not by PTRACE_SINGLESTEP, which would read the instruction,
        // whatever the mapping allows.
        let eflags = self.registers.eflags | TRAP_FLAG;
        let registers = user_regs_struct { rip: address, rax: END - 8, orig_rax: u64::MAX, eflags, ..self.registers };
        ptrace::setregs(pid, registers).map_err(|errno| AgainstError::Ptrace { pid: pid.as_raw(), errno })?;
        self.go_on(pid)
    }

    fn run_at(&self, pid: Pid, at: u64, number: i64, arguments: [u64; 6]) -> Result<Stop, AgainstError> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let rax = number as u64;
        // What it last did must not look like a system call that was interrupted.
        let orig_rax = u64::MAX;
        let registers = user_regs_struct { rip: at, rax, orig_rax, rdi, rsi, rdx, r10, r8, r9, ..self.registers };
        ptrace::setregs(pid, registers).map_err(|errno| AgainstError::Ptrace { pid: pid.as_raw(), errno })?;
        self.go_on(pid)
    }

    /// Lets it run to the next stop.
    pub(super) fn go_on(&self, pid: Pid) -> Result<Stop, AgainstError> {
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
            // Meant for us, from the terminal, or from who knows whom.
            WaitStatus::Stopped(..) => self.go_on(pid),
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

    /// Puts bytes where calls can point to: `offset` from [`DATA`] on.
    pub(super) fn put(&self, offset: u64, bytes: &[u8]) -> Result<(), AgainstError> {
        self.control.write_all_at(bytes, DATA - CODE + offset).map_err(AgainstError::Control)
    }

    /// Takes bytes from there.
    pub(super) fn take(&self, offset: u64, count: usize) -> Result<Vec<u8>, AgainstError> {
        let mut bytes = vec![0; count];
        self.control.read_exact_at(&mut bytes, DATA - CODE + offset).map_err(AgainstError::Control)?;
        Ok(bytes)
    }
}

/// A page that was just brought in waits on its CPU to be put on Linux's lists (`lru_add_drain`).
///
/// MADV_PAGEOUT by the same process finds it only there, so it must not have been moved in between.
fn stay_on_one_cpu(pid: Pid) -> Result<(), Errno> {
    let mut only = CpuSet::new();
    only.set(sched_getcpu()?)?;
    sched_setaffinity(pid, &only)
}

/// `mmap`'s number, which is needed before anything else can be.
const MMAP: i64 = nix::libc::SYS_mmap;

fn control_file() -> io::Result<File> {
    let control = File::from(memfd_create(c"control", MFdFlags::empty())?);
    control.set_len(END - CODE)?;
    control.write_all_at(&INSTRUCTIONS, 0)?;
    Ok(control)
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // It holds nothing but itself, and if it is gone already that is as good.
        let _ = self.end(self.pid);
    }
}
