//! The registers with which a program makes a call, and the memory that its pointers lead to.
//!
//! Linux and the decoder here get the same ones.

use super::operation::{Object, Operation, Where};
use super::syscall::{Descriptor, Syscall};
use pagewright_mm::{Advice, MapFlags};
use pagewright_model::spec::ExclusiveCall;
use pagewright_syscall::{CallArguments, LinuxCall};
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// `F_ADD_SEALS` and `F_GET_SEALS`.
const F_ADD_SEALS: u64 = 1033;
const F_GET_SEALS: u64 = 1034;
/// Linux's `PIDFD_SELF`.
pub(crate) const PIDFD_SELF: u64 = -10000_i64 as u64;
/// Bytes of a `struct rlimit64`.
const RLIMIT_BYTES: usize = 16;
/// Where a buffer of the caller begins, in words behind [`Numbers::input`].
const BUFFER: u64 = 4;

/// The numbers and addresses that stand in a caller's registers.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<'a> {
    /// The descriptor of the file for reading and writing.
    pub(crate) both: u64,
    /// The descriptor of the file for reading.
    pub(crate) reading: u64,
    /// The other process, and a descriptor of it.
    pub(crate) pid: u64,
    pub(crate) pidfd: u64,
    /// Where [`CallRegisters::input`] is.
    pub(crate) input: u64,
    /// Where the call stores its result.
    pub(crate) output: u64,
    /// The hard limit of a resource.
    pub(crate) hard_limit: &'a dyn Fn(u32) -> u64,
}

/// The bytes that a call stores to [`Numbers::output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutput {
    /// None.
    Nothing,
    /// So many.
    Bytes(usize),
    /// As many as it returns.
    AsReturned,
}

/// A call with its registers.
pub(crate) struct CallRegisters {
    pub(crate) call: LinuxCall,
    pub(crate) arguments: CallArguments,
    /// Words that its pointers lead to.
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

    /// Those of an operation; `None` if it is no memory call. `value` is what a call writes.
    pub(crate) fn of(operation: &Operation, value: u64, numbers: &Numbers<'_>) -> Option<Self> {
        Some(match *operation {
            Operation::Map { place, len, rights, object, populate } => {
                let (addr, at) = match place {
                    Where::Anywhere => (VirtAddr::ZERO, MapFlags::empty()),
                    Where::Fixed(at) => (at, MapFlags::FIXED),
                    Where::Vacant(at) => (at, MapFlags::FIXED_NOREPLACE),
                };
                let (kind, fd, page) = match object {
                    Object::PrivateAnon => (MapFlags::PRIVATE | MapFlags::ANONYMOUS, u64::MAX, 0),
                    Object::SharedAnon => (MapFlags::SHARED | MapFlags::ANONYMOUS, u64::MAX, 0),
                    Object::PrivateFile(page) => (MapFlags::PRIVATE, numbers.both, page),
                    Object::SharedFile(page) => (MapFlags::SHARED, numbers.both, page),
                    Object::SharedReadOnly(page) => (MapFlags::SHARED, numbers.reading, page),
                };
                let populate = if populate { MapFlags::POPULATE } else { MapFlags::empty() };
                let flags = (kind | at | populate).bits().into();
                Self::new(LinuxCall::Mmap, [addr.raw(), len, rights.bits().into(), flags, fd, page * PAGE_SIZE])
            }
            Operation::Unmap { addr, len } => Self::on_range(LinuxCall::Munmap, addr, len, 0),
            Operation::Protect { addr, len, rights } => {
                Self::on_range(LinuxCall::Mprotect, addr, len, rights.bits().into())
            }
            Operation::DontNeed { addr, len } => {
                Self::on_range(LinuxCall::Madvise, addr, len, Advice::DontNeed.raw().into())
            }
            Operation::Break { to } => Self::on_range(LinuxCall::Brk, to, 0, 0),
            Operation::Truncate { pages } => {
                Self::new(LinuxCall::Ftruncate, [numbers.both, pages * PAGE_SIZE, 0, 0, 0, 0])
            }
            Operation::Syscall(Syscall::Exclusive(call)) => Self::of_exclusive(&call, numbers),
            Operation::Syscall(ref call) => return Self::of_syscall(call, value, numbers),
            Operation::Fork
            | Operation::Exit { .. }
            | Operation::Access { .. }
            | Operation::Roam { .. }
            | Operation::Switch { .. }
            | Operation::Lazy
            | Operation::Kernel(_)
            | Operation::Starve { .. } => return None,
        })
    }

    /// Those of a call that has its process for itself.
    pub(crate) fn of_exclusive(call: &ExclusiveCall, numbers: &Numbers<'_>) -> Self {
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

    fn of_syscall(call: &Syscall, value: u64, numbers: &Numbers<'_>) -> Option<Self> {
        let fd = |descriptor| match descriptor {
            Descriptor::None => u64::MAX,
            Descriptor::Both => numbers.both,
            Descriptor::Reading => numbers.reading,
        };
        let (input, output) = (numbers.input, numbers.output);
        Some(match *call {
            Syscall::Map { addr, len, prot, flags, file, offset } => {
                Self::new(LinuxCall::Mmap, [addr.raw(), len, prot.into(), flags.into(), fd(file), offset])
            }
            Syscall::Exclusive(ref call) => Self::of_exclusive(call, numbers),
            Syscall::Protect { addr, len, prot } => Self::on_range(LinuxCall::Mprotect, addr, len, prot.into()),
            Syscall::ResidentInto { addr, len, vec } => Self::on_range(LinuxCall::Mincore, addr, len, vec.raw()),
            Syscall::BothLimits { resource, soft, hard } => {
                Self::new(LinuxCall::Prlimit64, [0, resource.into(), input, output, 0, 0])
                    .with_input(&[soft, hard])
                    .with_output(CallOutput::Bytes(RLIMIT_BYTES))
            }
            Syscall::Allocate { flags, offset, len } => {
                Self::new(LinuxCall::Fallocate, [numbers.both, flags.into(), offset, len, 0, 0])
            }
            Syscall::AddSeals { file, seals } => {
                Self::new(LinuxCall::Fcntl, [fd(file), F_ADD_SEALS, seals.into(), 0, 0, 0])
            }
            Syscall::GetSeals => Self::new(LinuxCall::Fcntl, [numbers.both, F_GET_SEALS, 0, 0, 0, 0]),
            Syscall::ReadOther { addr, len, .. } => {
                Self::new(LinuxCall::ProcessVmReadv, [numbers.pid, input, 1, input + 16, 1, 0])
                    .with_input(&[output, len, addr.raw(), len])
                    .with_output(CallOutput::AsReturned)
            }
            Syscall::WriteOther { addr, .. } => {
                Self::new(LinuxCall::ProcessVmWritev, [numbers.pid, input, 1, input + 16, 1, 0]).with_input(&[
                    input + BUFFER * 8,
                    8,
                    addr.raw(),
                    8,
                    value,
                ])
            }
            Syscall::AdviseOther { addr, len, advice, .. } => {
                Self::new(LinuxCall::ProcessMadvise, [numbers.pidfd, input, 1, advice.into(), 0, 0])
                    .with_input(&[addr.raw(), len])
            }
            Syscall::Read { .. }
            | Syscall::Write { .. }
            | Syscall::Splice { .. }
            | Syscall::Drain
            | Syscall::Maps
            | Syscall::Usage
            | Syscall::Pages { .. } => return None,
        })
    }
}
