//! Operations as system calls: numbers, arguments, and what these point to.

use super::{ANSWER, ARGUMENT, Linux, PIDFD_SELF, bytes_of};
use crate::against::AgainstError;
use crate::against::lack::{DATA, LIMITS};
use crate::random::{Descriptor, Object, Operation, Syscall, Where};
use nix::libc;
use pagewright_model::spec::ExclusiveCall;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// `mseal`, which the C library's headers don't name yet.
pub(super) const SYS_MSEAL: i64 = 462;

/// The arguments of a call about a range, with one more.
fn range(addr: VirtAddr, len: u64, more: u64) -> [u64; 6] {
    [addr.raw(), len, more, 0, 0, 0]
}

impl Linux {
    /// The number and the arguments of a call, with what they point to put in place.
    pub(super) fn arguments(
        &self,
        operation: &Operation,
        value: u64,
        live: &[usize],
    ) -> Result<(i64, [u64; 6]), AgainstError> {
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
            | Operation::Kernel(_)
            | Operation::Starve { .. } => unreachable!("{operation} is no call of one process"),
        })
    }

    fn syscall(&self, call: &Syscall, value: u64, live: &[usize]) -> Result<(i64, [u64; 6]), AgainstError> {
        let file = |descriptor| match descriptor {
            Descriptor::None => u64::MAX,
            Descriptor::Both => self.both,
            Descriptor::Reading => self.reading,
        };
        Ok(match *call {
            Syscall::Map { addr, len, prot, flags, file: descriptor, offset } => {
                (libc::SYS_mmap, [addr.raw(), len, prot.into(), flags.into(), file(descriptor), offset])
            }
            Syscall::Exclusive(ref call) => return self.exclusive_call(call),
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
            Syscall::Protect { addr, len, prot } => (libc::SYS_mprotect, range(addr, len, prot.into())),
            Syscall::ResidentInto { addr, len, vec } => (libc::SYS_mincore, range(addr, len, vec.raw())),
            Syscall::BothLimits { resource, soft, hard } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[soft, hard]))?;
                (libc::SYS_prlimit64, [0, resource.into(), DATA, DATA + ANSWER, 0, 0])
            }
            Syscall::WriteOther { process, addr } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[DATA + 32, 8, addr.raw(), 8, value]))?;
                let other = self.pid(live[process % live.len()])?.as_raw() as u64;
                (libc::SYS_process_vm_writev, [other, DATA, 1, DATA + 16, 1, 0])
            }
            Syscall::Splice { addr } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[addr.raw(), 8]))?;
                (libc::SYS_vmsplice, [self.pipe[1], DATA, 1, libc::SPLICE_F_NONBLOCK.into(), 0, 0])
            }
            Syscall::Drain => (libc::SYS_read, [self.pipe[0], DATA + ANSWER, 8, 0, 0, 0]),
            Syscall::AdviseOther { .. } | Syscall::Maps | Syscall::Usage | Syscall::Pages { .. } => {
                unreachable!("{call} is no single call")
            }
        })
    }

    fn exclusive_call(&self, call: &ExclusiveCall) -> Result<(i64, [u64; 6]), AgainstError> {
        Ok(match *call {
            ExclusiveCall::Remap { addr, old_len, new_len, flags, new_addr } => {
                (libc::SYS_mremap, [addr.raw(), old_len, new_len, flags.into(), new_addr.raw(), 0])
            }
            ExclusiveCall::Advise { addr, len, advice } => (libc::SYS_madvise, range(addr, len, advice.into())),
            ExclusiveCall::AdviseRanges { ranges: [(a, m), (b, n)], advice } => {
                self.tracee.put(ARGUMENT, &bytes_of(&[a.raw(), m, b.raw(), n]))?;
                (libc::SYS_process_madvise, [PIDFD_SELF as u64, DATA, 2, advice.into(), 0, 0])
            }
            ExclusiveCall::Lock { addr, len, flags } => (libc::SYS_mlock2, range(addr, len, flags.into())),
            ExclusiveCall::Unlock { addr, len } => (libc::SYS_munlock, range(addr, len, 0)),
            ExclusiveCall::LockAll { flags } => (libc::SYS_mlockall, [flags.into(), 0, 0, 0, 0, 0]),
            ExclusiveCall::UnlockAll => (libc::SYS_munlockall, [0; 6]),
            ExclusiveCall::Sync { addr, len, flags } => (libc::SYS_msync, range(addr, len, flags.into())),
            ExclusiveCall::Resident { addr, len } => (libc::SYS_mincore, range(addr, len, DATA + ANSWER)),
            ExclusiveCall::Seal { addr, len, flags } => (SYS_MSEAL, range(addr, len, flags.into())),
            ExclusiveCall::Limit { resource, bytes } => {
                let place = LIMITS.iter().position(|(known, _)| *known == resource);
                let hard = place.map_or(u64::MAX, |place| self.host.hard[place]);
                self.tracee.put(ARGUMENT, &bytes_of(&[bytes, hard]))?;
                (libc::SYS_prlimit64, [0, resource.into(), DATA, 0, 0, 0])
            }
        })
    }
}
