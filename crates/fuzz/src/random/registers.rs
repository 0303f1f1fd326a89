//! The number and registers of a call, and the memory that its pointers refer to.
//!
//! Linux and the memory manager's decoder get the same ones.

use super::operation::{MappedObject, Operation};
use super::syscall::{FileDescriptor, Syscall};
use pagewright_mm::{Advice, MapFlags};
use pagewright_model::spec::{ExclusiveCall, MmapPlacement, RangeCall};
use pagewright_syscall::{CallArguments, LinuxCall};
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// `F_ADD_SEALS` and `F_GET_SEALS`.
const F_ADD_SEALS: u64 = 1033;
const F_GET_SEALS: u64 = 1034;
/// Linux's `PIDFD_SELF`.
pub(crate) const PIDFD_SELF: u64 = -10000_i64 as u64;
/// Bytes of a `struct rlimit64`.
const RLIMIT_BYTES: usize = 16;
/// Offset of the caller's buffer from [`CallerNumbers::input`], in words.
const BUFFER: u64 = 4;

/// The descriptors, process ids and addresses that a caller passes.
#[derive(Clone, Copy)]
pub(crate) struct CallerNumbers<'a> {
    /// The descriptor of the file opened for reading and writing.
    pub(crate) read_write: u64,
    /// The descriptor of the file opened for reading.
    pub(crate) read_only: u64,
    /// The id of the other process.
    pub(crate) pid: u64,
    /// A descriptor of the other process.
    pub(crate) pidfd: u64,
    /// Address of [`CallRegisters::input`].
    pub(crate) input: u64,
    /// Address at which the call stores its output.
    pub(crate) output: u64,
    /// The hard limit of a resource.
    pub(crate) hard_limit: &'a dyn Fn(u32) -> u64,
}

/// The bytes that a call stores to [`CallerNumbers::output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutput {
    /// None.
    Nothing,
    /// This number of bytes.
    Bytes(usize),
    /// The number of bytes that it returns.
    AsReturned,
}

/// The number and registers of a call.
pub(crate) struct CallRegisters {
    pub(crate) call: LinuxCall,
    pub(crate) arguments: CallArguments,
    /// Words that its pointers refer to.
    pub(crate) input: Vec<u64>,
    pub(crate) output: CallOutput,
}

impl CallRegisters {
    fn new(call: LinuxCall, arguments: CallArguments) -> Self {
        Self { call, arguments, input: Vec::new(), output: CallOutput::Nothing }
    }

    fn on_range(call: LinuxCall, addr: VirtAddr, len: u64, more: u64) -> Self {
        Self::new(call, [addr.raw(), len, more, 0, 0, 0])
    }

    fn with_input(self, input: &[u64]) -> Self {
        Self { input: input.to_vec(), ..self }
    }

    fn with_output(self, output: CallOutput) -> Self {
        Self { output, ..self }
    }

    /// The registers of an operation; `None` if it is not a call that the decoder knows.
    ///
    /// `value` is the word that a call writes.
    pub(crate) fn of(operation: &Operation, value: u64, numbers: &CallerNumbers<'_>) -> Option<Self> {
        Some(match *operation {
            Operation::Mmap { place, len, rights, object, populate } => {
                let (addr, at) = match place {
                    MmapPlacement::Anywhere => (VirtAddr::ZERO, MapFlags::empty()),
                    MmapPlacement::Fixed(at) => (at, MapFlags::FIXED),
                    MmapPlacement::FixedNoReplace(at) => (at, MapFlags::FIXED_NOREPLACE),
                };
                let (kind, fd, page) = match object {
                    MappedObject::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, u64::MAX, 0),
                    MappedObject::SharedAnon => (MapFlags::SHARED | MapFlags::ANONYMOUS, u64::MAX, 0),
                    MappedObject::PrivateFile(page) => (MapFlags::PRIVATE, numbers.read_write, page),
                    MappedObject::SharedFile(page) => (MapFlags::SHARED, numbers.read_write, page),
                    MappedObject::SharedReadOnly(page) => (MapFlags::SHARED, numbers.read_only, page),
                };
                let populate = if populate { MapFlags::POPULATE } else { MapFlags::empty() };
                let flags = (kind | at | populate).bits().into();
                Self::new(LinuxCall::Mmap, [addr.raw(), len, rights.bits().into(), flags, fd, page * PAGE_SIZE])
            }
            Operation::Range(RangeCall::Munmap { addr, len }) => Self::on_range(LinuxCall::Munmap, addr, len, 0),
            Operation::Range(RangeCall::Mprotect { addr, len, rights }) => {
                Self::on_range(LinuxCall::Mprotect, addr, len, rights.bits().into())
            }
            Operation::Range(RangeCall::DontNeed { addr, len }) => {
                Self::on_range(LinuxCall::Madvise, addr, len, Advice::DontNeed.raw().into())
            }
            Operation::Range(RangeCall::Brk { to }) => Self::on_range(LinuxCall::Brk, to, 0, 0),
            Operation::Truncate { pages } => {
                Self::new(LinuxCall::Ftruncate, [numbers.read_write, pages * PAGE_SIZE, 0, 0, 0, 0])
            }
            Operation::Syscall(Syscall::Exclusive(call)) => Self::of_exclusive(&call, numbers),
            Operation::Syscall(ref call) => return Self::of_syscall(call, value, numbers),
            Operation::Fork
            | Operation::Exit { .. }
            | Operation::Access { .. }
            | Operation::AccessMany { .. }
            | Operation::Switch { .. }
            | Operation::RunKernelThread
            | Operation::Kernel(_)
            | Operation::FailAllocation { .. } => return None,
        })
    }

    /// The registers of an exclusive call.
    pub(crate) fn of_exclusive(call: &ExclusiveCall, numbers: &CallerNumbers<'_>) -> Self {
        match *call {
            ExclusiveCall::Remap { addr, old_len, new_len, flags, new_addr } => {
                let arguments = [addr.raw(), old_len, new_len, flags.into(), new_addr.raw(), 0];
                Self::new(LinuxCall::Mremap, arguments)
            }
            ExclusiveCall::Advise { addr, len, advice } => Self::on_range(LinuxCall::Madvise, addr, len, advice.into()),
            ExclusiveCall::AdviseRanges { ranges: [(a, m), (b, n)], advice } => {
                let arguments = [PIDFD_SELF, numbers.input, 2, advice.into(), 0, 0];
                Self::new(LinuxCall::ProcessMadvise, arguments).with_input(&[a.raw(), m, b.raw(), n])
            }
            ExclusiveCall::Lock { addr, len, flags } => Self::on_range(LinuxCall::Mlock2, addr, len, flags.into()),
            ExclusiveCall::Unlock { addr, len } => Self::on_range(LinuxCall::Munlock, addr, len, 0),
            ExclusiveCall::LockAll { flags } => Self::new(LinuxCall::Mlockall, [flags.into(), 0, 0, 0, 0, 0]),
            ExclusiveCall::UnlockAll => Self::new(LinuxCall::Munlockall, [0; 6]),
            ExclusiveCall::Sync { addr, len, flags } => Self::on_range(LinuxCall::Msync, addr, len, flags.into()),
            ExclusiveCall::Resident { addr, len } => {
                let output = CallOutput::Bytes(len.div_ceil(PAGE_SIZE) as usize);
                Self::on_range(LinuxCall::Mincore, addr, len, numbers.output).with_output(output)
            }
            ExclusiveCall::Seal { addr, len, flags } => Self::on_range(LinuxCall::Mseal, addr, len, flags.into()),
            ExclusiveCall::Limit { resource, bytes } => {
                let arguments = [0, resource.into(), numbers.input, 0, 0, 0];
                let hard = (numbers.hard_limit)(resource);
                Self::new(LinuxCall::Prlimit64, arguments).with_input(&[bytes, hard])
            }
        }
    }

    fn of_syscall(call: &Syscall, value: u64, numbers: &CallerNumbers<'_>) -> Option<Self> {
        let fd = |descriptor| match descriptor {
            FileDescriptor::None => u64::MAX,
            FileDescriptor::ReadWrite => numbers.read_write,
            FileDescriptor::ReadOnly => numbers.read_only,
        };
        let (input, output) = (numbers.input, numbers.output);
        Some(match *call {
            Syscall::Mmap { addr, len, prot, flags, file, offset } => {
                Self::new(LinuxCall::Mmap, [addr.raw(), len, prot.into(), flags.into(), fd(file), offset])
            }
            Syscall::Exclusive(ref call) => Self::of_exclusive(call, numbers),
            Syscall::Mprotect { addr, len, prot } => Self::on_range(LinuxCall::Mprotect, addr, len, prot.into()),
            Syscall::MincoreInto { addr, len, vec } => Self::on_range(LinuxCall::Mincore, addr, len, vec.raw()),
            Syscall::SetLimits { resource, soft, hard } => {
                Self::new(LinuxCall::Prlimit64, [0, resource.into(), input, output, 0, 0])
                    .with_input(&[soft, hard])
                    .with_output(CallOutput::Bytes(RLIMIT_BYTES))
            }
            Syscall::Fallocate { flags, offset, len } => {
                Self::new(LinuxCall::Fallocate, [numbers.read_write, flags.into(), offset, len, 0, 0])
            }
            Syscall::AddSeals { file, seals } => {
                Self::new(LinuxCall::Fcntl, [fd(file), F_ADD_SEALS, seals.into(), 0, 0, 0])
            }
            Syscall::GetSeals => Self::new(LinuxCall::Fcntl, [numbers.read_write, F_GET_SEALS, 0, 0, 0, 0]),
            Syscall::ProcessVmReadv { addr, len, .. } => {
                Self::new(LinuxCall::ProcessVmReadv, [numbers.pid, input, 1, input + 16, 1, 0])
                    .with_input(&[output, len, addr.raw(), len])
                    .with_output(CallOutput::AsReturned)
            }
            Syscall::ProcessVmWritev { addr, .. } => {
                Self::new(LinuxCall::ProcessVmWritev, [numbers.pid, input, 1, input + 16, 1, 0]).with_input(&[
                    input + BUFFER * 8,
                    8,
                    addr.raw(),
                    8,
                    value,
                ])
            }
            Syscall::ProcessMadvise { addr, len, advice, .. } => {
                Self::new(LinuxCall::ProcessMadvise, [numbers.pidfd, input, 1, advice.into(), 0, 0])
                    .with_input(&[addr.raw(), len])
            }
            Syscall::Pread { .. }
            | Syscall::Pwrite { .. }
            | Syscall::Vmsplice { .. }
            | Syscall::ReadPipe
            | Syscall::ShowMaps
            | Syscall::ShowSmaps
            | Syscall::ShowPagemap { .. } => return None,
        })
    }
}
