//! From a call's number and registers to its request.
//!
//! Decoding fails only where Linux fails before it looks at anything but the arguments; a flag or
//! an address that Linux checks later is part of the request, and the memory manager refuses it.

use crate::number::LinuxCall;
use crate::request::{
    AdvisedProcess, CallRange, CloneRequest, DecodedCall, FutexRequest, GetMempolicyRequest, MbindRequest,
    MemoryRequest, MigratePagesRequest, MmapRequest, MovePagesRequest, PrlimitRequest, ProcessMadviseRequest,
    ProcessVmRequest, RemoteCopy, SwapRequest, UserIoVecs, UserNodes,
};
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::policy::{PolicyFlags, PolicyMode, PolicyQuery, PolicyRequest};
use pagewright_mm::space::{BindFlags, SyncFlags};
use pagewright_mm::user::FutexScope;
use pagewright_mm::{Advice, LockAllFlags, LockFlags, MapFlags, MmError, Protection, RemapFlags, RemapRequest};
use pagewright_types::{Errno, IsaKind, PAGE_SIZE, VirtAddr};

/// The arguments of a call, as registers hold them.
pub type CallArguments = [u64; 6];

/// Commands of `fcntl` (`include/uapi/linux/fcntl.h`).
const F_ADD_SEALS: u32 = 1033;
const F_GET_SEALS: u32 = 1034;
/// `PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP` (`include/uapi/linux/fcntl.h`).
const PIDFD_SELF: [i32; 2] = [-10000, -10001];
/// Flags of `futex` (`include/uapi/linux/futex.h`).
const FUTEX_PRIVATE: u32 = 128;
const FUTEX_CLOCK_REALTIME: u32 = 256;
/// Flags of `swapon` (`include/linux/swap.h`).
///
/// Those about discarding have no effect: zram discards in any case.
const SWAP_PREFER: u32 = 0x8000;
const SWAP_PRIORITY: u32 = 0x7fff;
const SWAP_DISCARD: u32 = 0x7_0000;
/// Flags of `clone` (`include/uapi/linux/sched.h`), and the signal of a forked child.
const CSIGNAL: u64 = 0xff;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const SIGCHLD: u64 = 17;

impl LinuxCall {
    /// Decodes the arguments of the call as a program on `isa` passes them.
    ///
    /// # Errors
    /// What Linux answers: `ENOSYS` for a call that is not supported, `EINVAL` for arguments that
    /// it refuses before anything else.
    pub fn decode(self, isa: IsaKind, a: CallArguments) -> Result<DecodedCall, Errno> {
        let request = match self {
            Self::Fork => return Ok(DecodedCall::Clone(CloneRequest::fork(0))),
            Self::Vfork => return Ok(DecodedCall::Clone(CloneRequest::fork(CLONE_VM | CLONE_VFORK))),
            Self::Clone => return Ok(DecodedCall::Clone(CloneRequest::decode(isa, a))),
            Self::Futex => return Ok(DecodedCall::Futex(FutexRequest::decode(a))),
            Self::Swapon | Self::Swapoff => return SwapRequest::decode(self, a).map(DecodedCall::Swap),
            Self::Mmap => MemoryRequest::Mmap(MmapRequest::decode(a)?),
            Self::Munmap => MemoryRequest::Munmap(range(a)),
            Self::Mprotect => MemoryRequest::Mprotect(range(a), Protection::from_bits_retain(flags(a[2]))),
            Self::Brk => MemoryRequest::Brk(VirtAddr::new(a[0])),
            Self::Mremap => MemoryRequest::Mremap(RemapRequest {
                addr: VirtAddr::new(a[0]),
                old_len: a[1],
                new_len: a[2],
                flags: RemapFlags::from_bits_retain(flags(a[3])),
                new_addr: VirtAddr::new(a[4]),
            }),
            Self::Madvise => MemoryRequest::Madvise(range(a), Advice::from_raw(a[2] as u32).map_err(MmError::errno)?),
            Self::ProcessMadvise => MemoryRequest::ProcessMadvise(ProcessMadviseRequest::decode(a)?),
            Self::Mlock => MemoryRequest::Mlock(range(a), LockFlags::empty()),
            Self::Mlock2 => MemoryRequest::Mlock(range(a), LockFlags::from_bits_retain(a[2] as u32)),
            Self::Munlock => MemoryRequest::Munlock(range(a)),
            Self::Mlockall => MemoryRequest::Mlockall(LockAllFlags::from_bits_retain(a[0] as u32)),
            Self::Munlockall => MemoryRequest::Munlockall,
            Self::Msync => MemoryRequest::Msync(range(a), SyncFlags::from_bits_retain(a[2] as u32)),
            Self::Mincore => MemoryRequest::Mincore(range(a), VirtAddr::new(a[2])),
            Self::Mseal => MemoryRequest::Mseal(range(a), flags(a[2])),
            Self::Mbind => MemoryRequest::Mbind(MbindRequest::decode(a)?),
            Self::SetMempolicy => {
                let (mode, flags) = policy_mode(a[0])?;
                MemoryRequest::SetMempolicy { mode, flags, nodes: UserNodes { at: VirtAddr::new(a[1]), max: a[2] } }
            }
            Self::GetMempolicy => MemoryRequest::GetMempolicy(GetMempolicyRequest {
                value: VirtAddr::new(a[0]),
                nodes: UserNodes { at: VirtAddr::new(a[1]), max: a[2] },
                addr: VirtAddr::new(a[3]),
                query: PolicyQuery::from_bits_retain(flags(a[4])),
            }),
            Self::MemfdCreate => decode_memfd(a)?,
            Self::Fcntl => decode_seals(a)?,
            Self::Ftruncate if a[1] > i64::MAX as u64 => return Err(Errno::EINVAL),
            Self::Ftruncate => MemoryRequest::Ftruncate { fd: a[0] as u32, size: a[1] },
            Self::Fallocate => {
                let mode = FallocateFlags::from_bits_retain(a[1] as u32);
                MemoryRequest::Fallocate { fd: a[0] as u32, mode, offset: a[2], len: a[3] }
            }
            Self::Getrlimit => MemoryRequest::Prlimit(PrlimitRequest::of_caller(a[0], None, Some(a[1]))),
            Self::Setrlimit => MemoryRequest::Prlimit(PrlimitRequest::of_caller(a[0], Some(a[1]), None)),
            Self::Prlimit64 => {
                let pointer = |at| (at != 0).then_some(at);
                let request = PrlimitRequest::of_caller(a[1], pointer(a[2]), pointer(a[3]));
                MemoryRequest::Prlimit(PrlimitRequest { pid: a[0] as u32, ..request })
            }
            Self::ProcessVmReadv => MemoryRequest::ProcessVm(ProcessVmRequest::decode(RemoteCopy::Read, a)?),
            Self::ProcessVmWritev => MemoryRequest::ProcessVm(ProcessVmRequest::decode(RemoteCopy::Write, a)?),
            Self::MigratePages => MemoryRequest::MigratePages(MigratePagesRequest::decode(a)),
            Self::MovePages => MemoryRequest::MovePages(MovePagesRequest::decode(a)),
            // A test compares these with the table of supported calls.
            _ => return Err(Errno::ENOSYS),
        };
        Ok(DecodedCall::Memory(request))
    }
}

fn decode_memfd(a: CallArguments) -> Result<MemoryRequest, Errno> {
    let flags = MemfdFlags::from_bits_retain(a[1] as u32);
    flags.validate().map_err(MmError::errno)?;
    Ok(MemoryRequest::MemfdCreate { name: VirtAddr::new(a[0]), flags })
}

fn decode_seals(a: CallArguments) -> Result<MemoryRequest, Errno> {
    let fd = a[0] as u32;
    match a[1] as u32 {
        F_ADD_SEALS => Ok(MemoryRequest::AddSeals { fd, seals: Seals::from_bits_retain(a[2] as u32) }),
        F_GET_SEALS => Ok(MemoryRequest::GetSeals { fd }),
        _ => Err(Errno::EINVAL),
    }
}

/// The address and the length with which most calls begin.
fn range(a: CallArguments) -> CallRange {
    CallRange { addr: VirtAddr::new(a[0]), len: a[1] }
}

/// Flags that Linux takes as an `unsigned long`.
///
/// No flag is above bit 31, and bit 31 is none either: it stands for all bits above it.
fn flags(word: u64) -> u32 {
    let unknown = if word >> 32 == 0 { 0 } else { 1 << 31 };
    word as u32 | unknown
}

impl MigratePagesRequest {
    fn decode([pid, max, from, to, ..]: CallArguments) -> Self {
        let nodes = |at| UserNodes { at: VirtAddr::new(at), max };
        Self { pid: pid as u32, from: nodes(from), to: nodes(to) }
    }
}

impl MovePagesRequest {
    fn decode([pid, count, pages, nodes, status, flags]: CallArguments) -> Self {
        Self {
            pid: pid as u32,
            count,
            pages: VirtAddr::new(pages),
            nodes: (nodes != 0).then(|| VirtAddr::new(nodes)),
            status: VirtAddr::new(status),
            flags: flags as u32,
        }
    }
}

impl MmapRequest {
    fn decode([addr, len, protection, flags, fd, offset]: CallArguments) -> Result<Self, Errno> {
        if !offset.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            addr: VirtAddr::new(addr),
            len,
            protection: Protection::from_bits_retain(protection as u32),
            flags: MapFlags::from_bits_retain(self::flags(flags)),
            fd: fd as u32,
            offset,
        })
    }
}

/// The mode of a policy, of which Linux looks at 32 bits, and its flags.
fn policy_mode(word: u64) -> Result<(PolicyMode, PolicyFlags), Errno> {
    PolicyRequest::mode_of(word as u32).map_err(MmError::errno)
}

impl MbindRequest {
    fn decode([addr, len, mode, nodes, max, flags]: CallArguments) -> Result<Self, Errno> {
        let (mode, mode_flags) = policy_mode(mode)?;
        Ok(Self {
            range: CallRange { addr: VirtAddr::new(addr), len },
            mode,
            mode_flags,
            nodes: UserNodes { at: VirtAddr::new(nodes), max },
            flags: BindFlags::from_bits_retain(flags as u32),
        })
    }
}

impl ProcessMadviseRequest {
    fn decode([pidfd, at, count, advice, flags, _]: CallArguments) -> Result<Self, Errno> {
        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let itself = PIDFD_SELF.contains(&(pidfd as i32));
        let process = if itself { AdvisedProcess::Caller } else { AdvisedProcess::Pidfd(pidfd as u32) };
        Ok(Self { process, ranges: UserIoVecs { at: VirtAddr::new(at), count }, advice: advice as u32 })
    }
}

impl PrlimitRequest {
    fn of_caller(resource: u64, new: Option<u64>, old: Option<u64>) -> Self {
        Self { pid: 0, resource: resource as u32, new: new.map(VirtAddr::new), old: old.map(VirtAddr::new) }
    }
}

impl ProcessVmRequest {
    fn decode(copy: RemoteCopy, [pid, local, locals, remote, remotes, flags]: CallArguments) -> Result<Self, Errno> {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let ranges = |at, count| UserIoVecs { at: VirtAddr::new(at), count };
        Ok(Self { copy, pid: pid as u32, local: ranges(local, locals), remote: ranges(remote, remotes) })
    }
}

impl CloneRequest {
    /// `clone`, whose last two arguments are swapped on arm64 (`CONFIG_CLONE_BACKWARDS`).
    fn decode(isa: IsaKind, a: CallArguments) -> Self {
        let (child_tid, tls) = match isa {
            IsaKind::X86_64 => (a[3], a[4]),
            IsaKind::Aarch64 => (a[4], a[3]),
        };
        Self {
            flags: u64::from(a[0] as u32) & !CSIGNAL,
            exit_signal: a[0] & CSIGNAL,
            stack: a[1],
            parent_tid: VirtAddr::new(a[2]),
            child_tid: VirtAddr::new(child_tid),
            tls,
            pidfd: VirtAddr::new(a[2]),
        }
    }

    /// `fork` and `vfork`.
    const fn fork(flags: u64) -> Self {
        let (parent_tid, child_tid, pidfd) = (VirtAddr::ZERO, VirtAddr::ZERO, VirtAddr::ZERO);
        Self { flags, exit_signal: SIGCHLD, stack: 0, parent_tid, child_tid, tls: 0, pidfd }
    }
}

impl FutexRequest {
    fn decode([word, operation, value, timeout, second_word, value3]: CallArguments) -> Self {
        let operation = operation as u32;
        let scope = if operation & FUTEX_PRIVATE == 0 { FutexScope::Shared } else { FutexScope::Private };
        Self {
            word: VirtAddr::new(word),
            scope,
            command: operation & !(FUTEX_PRIVATE | FUTEX_CLOCK_REALTIME),
            realtime: operation & FUTEX_CLOCK_REALTIME != 0,
            value: value as u32,
            timeout,
            second_word: VirtAddr::new(second_word),
            value3: value3 as u32,
        }
    }
}

impl SwapRequest {
    fn decode(call: LinuxCall, a: CallArguments) -> Result<Self, Errno> {
        let (path, flags) = (VirtAddr::new(a[0]), a[1] as u32);
        if call == LinuxCall::Swapoff {
            return Ok(Self::Off { path });
        }
        if flags & !(SWAP_PREFER | SWAP_PRIORITY | SWAP_DISCARD) != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(Self::On { path, priority: (flags & SWAP_PREFER != 0).then_some((flags & SWAP_PRIORITY) as i16) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const X86: IsaKind = IsaKind::X86_64;

    fn va(address: u64) -> VirtAddr {
        VirtAddr::new(address)
    }

    fn some_range() -> CallRange {
        CallRange { addr: va(0x1000), len: 0x2000 }
    }

    /// Valid arguments of each call that acts on a range, and the request.
    fn on_ranges() -> Vec<(LinuxCall, CallArguments, MemoryRequest)> {
        let arguments = |more| [0x1000, 0x2000, more, 0, 0, 0];
        let locked_on_fault = MemoryRequest::Mlock(some_range(), LockFlags::ONFAULT);
        vec![
            (LinuxCall::Munmap, arguments(0), MemoryRequest::Munmap(some_range())),
            (LinuxCall::Mprotect, arguments(1), MemoryRequest::Mprotect(some_range(), Protection::READ)),
            (LinuxCall::Madvise, arguments(4), MemoryRequest::Madvise(some_range(), Advice::DontNeed)),
            (LinuxCall::Mlock, arguments(7), MemoryRequest::Mlock(some_range(), LockFlags::empty())),
            (LinuxCall::Mlock2, arguments(1), locked_on_fault),
            (LinuxCall::Munlock, arguments(0), MemoryRequest::Munlock(some_range())),
            (LinuxCall::Msync, arguments(4), MemoryRequest::Msync(some_range(), SyncFlags::SYNC)),
            (LinuxCall::Mincore, arguments(0x5000), MemoryRequest::Mincore(some_range(), va(0x5000))),
            (LinuxCall::Mseal, arguments(0), MemoryRequest::Mseal(some_range(), 0)),
        ]
    }

    /// Valid arguments of each other call, and the request.
    fn others() -> Vec<(LinuxCall, CallArguments, MemoryRequest)> {
        let (flags, ranges) = (MapFlags::PRIVATE, UserIoVecs { at: va(0x100), count: 2 });
        let mmap =
            MmapRequest { addr: va(0x1000), len: 10, protection: Protection::READ, flags, fd: 5, offset: PAGE_SIZE };
        let flags = RemapFlags::MAYMOVE;
        let mremap = RemapRequest { addr: va(0x1000), old_len: 1, new_len: 2, flags, new_addr: va(0x9000) };
        let process = AdvisedProcess::Pidfd(3);
        let remote = UserIoVecs { at: va(0x200), count: 1 };
        let (name, mode) = (va(0x100), FallocateFlags::KEEP_SIZE);
        let limit = PrlimitRequest { pid: 7, resource: 9, new: None, old: Some(va(0x300)) };
        let set_limit = PrlimitRequest { pid: 0, resource: 9, new: Some(va(0)), old: None };
        vec![
            (LinuxCall::Mmap, [0x1000, 10, 1, 2, 5, PAGE_SIZE], MemoryRequest::Mmap(mmap)),
            (LinuxCall::Brk, [0x8000, 0, 0, 0, 0, 0], MemoryRequest::Brk(va(0x8000))),
            (LinuxCall::Mremap, [0x1000, 1, 2, 1, 0x9000, 0], MemoryRequest::Mremap(mremap)),
            (
                LinuxCall::ProcessMadvise,
                [3, 0x100, 2, 77, 0, 0],
                MemoryRequest::ProcessMadvise(ProcessMadviseRequest { process, ranges, advice: 77 }),
            ),
            (LinuxCall::Mlockall, [1, 0, 0, 0, 0, 0], MemoryRequest::Mlockall(LockAllFlags::CURRENT)),
            (LinuxCall::Munlockall, [0; 6], MemoryRequest::Munlockall),
            (
                LinuxCall::MemfdCreate,
                [0x100, 1, 0, 0, 0, 0],
                MemoryRequest::MemfdCreate { name, flags: MemfdFlags::CLOEXEC },
            ),
            (LinuxCall::Fcntl, [4, 1033, 1, 0, 0, 0], MemoryRequest::AddSeals { fd: 4, seals: Seals::SEAL }),
            (LinuxCall::Fcntl, [4, 1034, 0, 0, 0, 0], MemoryRequest::GetSeals { fd: 4 }),
            (LinuxCall::Ftruncate, [4, 99, 0, 0, 0, 0], MemoryRequest::Ftruncate { fd: 4, size: 99 }),
            (LinuxCall::Fallocate, [4, 1, 8, 9, 0, 0], MemoryRequest::Fallocate { fd: 4, mode, offset: 8, len: 9 }),
            (LinuxCall::Prlimit64, [7, 9, 0, 0x300, 0, 0], MemoryRequest::Prlimit(limit)),
            (LinuxCall::Getrlimit, [9, 0x300, 0, 0, 0, 0], MemoryRequest::Prlimit(PrlimitRequest { pid: 0, ..limit })),
            (LinuxCall::Setrlimit, [9, 0, 0, 0, 0, 0], MemoryRequest::Prlimit(set_limit)),
            (
                LinuxCall::ProcessVmWritev,
                [7, 0x100, 2, 0x200, 1, 0],
                MemoryRequest::ProcessVm(ProcessVmRequest { copy: RemoteCopy::Write, pid: 7, local: ranges, remote }),
            ),
        ]
    }

    /// Valid arguments of each call on memory policies, and the request.
    fn on_policies() -> Vec<(LinuxCall, CallArguments, MemoryRequest)> {
        vec![
            (
                LinuxCall::Mbind,
                [0x1000, 0x2000, 0x8002, 0x300, 65, 1],
                MemoryRequest::Mbind(MbindRequest {
                    range: some_range(),
                    mode: PolicyMode::Bind,
                    mode_flags: PolicyFlags::STATIC_NODES,
                    nodes: UserNodes { at: va(0x300), max: 65 },
                    flags: BindFlags::STRICT,
                }),
            ),
            (
                LinuxCall::SetMempolicy,
                [1, 0x300, 65, 0, 0, 0],
                MemoryRequest::SetMempolicy {
                    mode: PolicyMode::Preferred,
                    flags: PolicyFlags::empty(),
                    nodes: UserNodes { at: va(0x300), max: 65 },
                },
            ),
            (
                LinuxCall::GetMempolicy,
                [0x200, 0x300, 65, 0x1000, 3, 0],
                MemoryRequest::GetMempolicy(GetMempolicyRequest {
                    value: va(0x200),
                    nodes: UserNodes { at: va(0x300), max: 65 },
                    addr: va(0x1000),
                    query: PolicyQuery::NODE | PolicyQuery::ADDR,
                }),
            ),
        ]
    }

    #[test]
    fn valid_arguments_become_the_request() {
        for (call, arguments, request) in on_ranges().into_iter().chain(others()).chain(on_policies()) {
            for isa in IsaKind::ALL {
                assert_eq!(call.decode(isa, arguments), Ok(DecodedCall::Memory(request)), "{}", call.name());
            }
        }
    }

    #[test]
    fn arguments_that_linux_refuses_first_are_refused() {
        let einval: [(LinuxCall, CallArguments); 13] = [
            (LinuxCall::Mmap, [0, 4096, 3, 0x22, u64::MAX, 8]),
            (LinuxCall::Madvise, [0, 4096, 5, 0, 0, 0]),
            (LinuxCall::ProcessMadvise, [3, 0x100, 1, 4, 1, 0]),
            (LinuxCall::MemfdCreate, [0x100, 0x20, 0, 0, 0, 0]),
            (LinuxCall::MemfdCreate, [0x100, 0x18, 0, 0, 0, 0]),
            (LinuxCall::Fcntl, [4, 1, 0, 0, 0, 0]),
            (LinuxCall::Ftruncate, [4, 1 << 63, 0, 0, 0, 0]),
            (LinuxCall::ProcessVmReadv, [7, 0x100, 2, 0x200, 1, 1]),
            (LinuxCall::ProcessVmReadv, [7, 0x100, 2, 0x200, 1, 1 << 32]),
            (LinuxCall::Swapon, [0x100, 0x8_0000, 0, 0, 0, 0]),
            // MPOL_INTERLEAVE, MPOL_LOCAL, and two flags that contradict each other.
            (LinuxCall::Mbind, [1, 0x1000, 3, 0x100, 64, 8]),
            (LinuxCall::SetMempolicy, [4, 0, 0, 0, 0, 0]),
            (LinuxCall::SetMempolicy, [0xc002, 0x100, 64, 0, 0, 0]),
        ];
        for (call, arguments) in einval {
            assert_eq!(call.decode(X86, arguments), Err(Errno::EINVAL), "{} {arguments:x?}", call.name());
        }
    }

    #[test]
    fn a_bit_above_31_is_an_unknown_flag() {
        let high = 1 << 32;
        let unknown = |call: LinuxCall, arguments| match call.decode(X86, arguments) {
            Ok(DecodedCall::Memory(MemoryRequest::Mmap(request))) => request.flags.bits(),
            Ok(DecodedCall::Memory(MemoryRequest::Mprotect(_, protection))) => protection.bits(),
            Ok(DecodedCall::Memory(MemoryRequest::Mremap(request))) => request.flags.bits(),
            Ok(DecodedCall::Memory(MemoryRequest::Mseal(_, flags))) => flags,
            other => panic!("{other:?}"),
        };
        assert_eq!(unknown(LinuxCall::Mmap, [0, 0, 0, high | 2, 0, 0]), 1 << 31 | 2);
        assert_eq!(unknown(LinuxCall::Mprotect, [0, 0, high | 1, 0, 0, 0]), 1 << 31 | 1);
        assert_eq!(unknown(LinuxCall::Mremap, [0, 0, 0, high | 1, 0, 0]), 1 << 31 | 1);
        assert_eq!(unknown(LinuxCall::Mseal, [0, 0, high, 0, 0, 0]), 1 << 31);
    }

    #[test]
    fn the_upper_half_of_an_int_is_ignored() {
        let high = 7 << 32;
        let pairs: [(LinuxCall, CallArguments, CallArguments); 7] = [
            (LinuxCall::Mlock2, [0, 0, high | 1, 0, 0, 0], [0, 0, 1, 0, 0, 0]),
            (LinuxCall::SetMempolicy, [high | 1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]),
            (LinuxCall::Mbind, [0, 0, high | 2, 0, 0, high | 1], [0, 0, 2, 0, 0, 1]),
            (LinuxCall::Madvise, [0, 0, high | 4, 0, 0, 0], [0, 0, 4, 0, 0, 0]),
            (LinuxCall::ProcessMadvise, [high | 3, 0, 0, 4, high, 0], [3, 0, 0, 4, 0, 0]),
            (LinuxCall::Ftruncate, [high | 3, 0, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]),
            (LinuxCall::Prlimit64, [high, high | 9, 0, 0, 0, 0], [0, 9, 0, 0, 0, 0]),
        ];
        for (call, wide, narrow) in pairs {
            assert_eq!(call.decode(X86, wide), call.decode(X86, narrow), "{}", call.name());
        }
    }

    #[test]
    fn a_pidfd_can_name_the_caller() {
        for itself in [-10000_i64, -10001, i64::from(-10000_i32 as u32)] {
            let decoded = LinuxCall::ProcessMadvise.decode(X86, [itself as u64, 0, 0, 4, 0, 0]);
            let Ok(DecodedCall::Memory(MemoryRequest::ProcessMadvise(request))) = decoded else {
                panic!("{decoded:?}")
            };
            assert_eq!(request.process, AdvisedProcess::Caller);
        }
    }

    #[test]
    fn clone_takes_the_thread_pointer_before_the_child_tid_on_arm64() {
        let decode = |isa| LinuxCall::Clone.decode(isa, [0x1_0000_0111, 0x7000, 1, 2, 3, 0]);
        let request = |child_tid, tls| {
            let (exit_signal, stack, parent_tid, pidfd) = (0x11, 0x7000, va(1), va(1));
            Ok(DecodedCall::Clone(CloneRequest { flags: 0x100, exit_signal, stack, parent_tid, child_tid, tls, pidfd }))
        };
        assert_eq!(decode(IsaKind::X86_64), request(va(2), 3));
        assert_eq!(decode(IsaKind::Aarch64), request(va(3), 2));
        let DecodedCall::Clone(vfork) = LinuxCall::Vfork.decode(X86, [9; 6]).expect("no arguments") else {
            panic!("a new process")
        };
        assert_eq!((vfork.flags, vfork.exit_signal, vfork.stack), (0x4100, 17, 0));
    }

    #[test]
    fn futex_and_swap_calls_are_split_into_their_parts() {
        // FUTEX_WAIT_BITSET with both flags.
        let futex = LinuxCall::Futex.decode(X86, [0x1000, 9 | 128 | 256, 1, 0x2000, 0x3000, 4]);
        let (word, scope, second_word) = (va(0x1000), FutexScope::Private, va(0x3000));
        let (command, realtime, value, timeout, value3) = (9, true, 1, 0x2000, 4);
        let request = FutexRequest { word, scope, command, realtime, value, timeout, second_word, value3 };
        assert_eq!(futex, Ok(DecodedCall::Futex(request)));
        let path = va(0x100);
        let swap_on = |flags| LinuxCall::Swapon.decode(X86, [0x100, flags, 0, 0, 0, 0]);
        assert_eq!(swap_on(5), Ok(DecodedCall::Swap(SwapRequest::On { path, priority: None })));
        assert_eq!(swap_on(0x1_8005), Ok(DecodedCall::Swap(SwapRequest::On { path, priority: Some(5) })));
        let swap_off = LinuxCall::Swapoff.decode(X86, [0x100, u64::MAX, 0, 0, 0, 0]);
        assert_eq!(swap_off, Ok(DecodedCall::Swap(SwapRequest::Off { path })));
    }
}
