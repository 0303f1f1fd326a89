//! From a request to the memory manager, and the value that the call returns.

use crate::caller::{CallingProcess, FileUse};
use crate::request::{
    AdvisedProcess, CallRange, GetMempolicyRequest, MbindRequest, MemoryRequest, MmapRequest, PrlimitRequest,
    ProcessMadviseRequest, ProcessVmRequest, RemoteCopy,
};
use crate::user_memory::{iovecs, read_limit, read_nodes, string, write_limit, write_nodes};
use alloc::string::String;
use alloc::vec::Vec;
use pagewright_arch::Isa;
use pagewright_mm::file::{FileObject, MemfdFlags};
use pagewright_mm::policy::PolicyRequest;
use pagewright_mm::space::{AdviceTarget, BindRequest, FileMapping};
use pagewright_mm::user::IoVec;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmError, Space};
use pagewright_sync::{Arc, Platform};
use pagewright_types::{Errno, PAGE_SIZE, VirtAddr};

/// Bytes of a name of shared memory that are read.
///
/// One more than a name may have, so that the memory manager refuses a longer one.
const NAME_BYTES: usize = 250;
/// Pages that `mincore` looks at before it stores what it found.
const MINCORE_PAGES: usize = 256;

impl MemoryRequest {
    /// Serves the request and returns the value of the call.
    ///
    /// The caller holds no lock of the memory manager.
    ///
    /// # Errors
    /// The errno of the call. Unless Linux, too, leaves part of the work done, nothing has changed.
    pub fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let space = caller.space();
        let done = match *self {
            Self::Mmap(request) => return request.serve(mm, caller),
            Self::ProcessMadvise(request) => return request.serve(mm, caller),
            Self::MemfdCreate { name, flags } => return memfd_create(mm, caller, name, flags),
            Self::Prlimit(request) => return request.serve(caller),
            Self::ProcessVm(request) => return request.serve(mm, caller),
            Self::MigratePages(request) => return request.serve(mm, caller),
            Self::MovePages(request) => return request.serve(mm, caller),
            Self::Ftruncate { fd, size } => return caller.truncate(fd, size).map(|()| 0),
            Self::Mincore(range, vec) => return mincore(mm, caller, range, vec).map(|()| 0),
            Self::Brk(end) => return Ok(mm.brk(space, end).raw()),
            Self::Mremap(request) => return value(mm.mremap(space, &request).map(VirtAddr::raw)),
            Self::GetSeals { fd } => {
                let seals = |file: &Arc<FileObject<P>>, _| value(file.seals().map(|seals| seals.bits().into()));
                return caller.with_file(fd, FileUse::Seal, seals);
            }
            Self::AddSeals { fd, seals } => {
                let add = |file: &Arc<FileObject<P>>, opened| value(mm.add_seals(file, opened, seals).map(|()| 0));
                return caller.with_file(fd, FileUse::Seal, add);
            }
            Self::Fallocate { fd, mode, offset, len } => {
                let allocate = |file: &Arc<FileObject<P>>, _| value(mm.fallocate(file, mode, offset, len).map(|()| 0));
                return caller.with_file(fd, FileUse::Allocate, allocate);
            }
            Self::Mbind(request) => return request.serve(mm, caller),
            Self::SetMempolicy { mode, flags, nodes } => {
                mm.set_mempolicy(PolicyRequest { mode, flags, nodes: read_nodes(caller, nodes)? })
            }
            Self::GetMempolicy(request) => return request.serve(mm, caller),
            Self::Munmap(CallRange { addr, len }) => mm.munmap(space, addr, len),
            Self::Mprotect(CallRange { addr, len }, protection) => mm.mprotect(space, addr, len, protection),
            Self::Madvise(CallRange { addr, len }, advice) => mm.madvise(space, addr, len, advice),
            Self::Mlock(CallRange { addr, len }, flags) => mm.mlock2(space, addr, len, flags),
            Self::Munlock(CallRange { addr, len }) => mm.munlock(space, addr, len),
            Self::Mlockall(flags) => mm.mlockall(space, flags),
            Self::Munlockall => {
                mm.munlockall(space);
                Ok(())
            }
            Self::Msync(CallRange { addr, len }, flags) => mm.msync(space, addr, len, flags),
            Self::Mseal(CallRange { addr, len }, flags) => mm.mseal(space, addr, len, flags),
        };
        value(done.map(|()| 0))
    }

    /// Whether serving the request copies from or to the caller's memory.
    pub const fn copies_user_memory(&self) -> bool {
        matches!(
            self,
            Self::ProcessMadvise(_)
                | Self::MemfdCreate { .. }
                | Self::Mbind(_)
                | Self::SetMempolicy { .. }
                | Self::GetMempolicy(_)
                | Self::Mincore(..)
                | Self::Prlimit(_)
                | Self::ProcessVm(_)
                | Self::MigratePages(_)
                | Self::MovePages(_)
        )
    }
}

fn value<T, E: From<Errno>>(result: Result<T, MmError>) -> Result<T, E> {
    result.map_err(|error| error.errno().into())
}

impl MmapRequest {
    fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        if self.flags.contains(MapFlags::ANONYMOUS) {
            return self.map(mm, caller.space(), None);
        }
        caller.with_file(self.fd, FileUse::Map, |file, opened| {
            self.map(mm, caller.space(), Some(FileMapping { file, offset: self.offset, opened }))
        })
    }

    fn map<P: Platform, E: From<Errno>>(
        &self,
        mm: &Mm<P>,
        space: &Space<P>,
        file: Option<FileMapping<'_, P>>,
    ) -> Result<u64, E> {
        let Self { addr, len, protection, flags, .. } = *self;
        let request = MapRequest { addr, len, rights: protection.rights(), flags, file };
        value(mm.mmap(space, &request).map(VirtAddr::raw))
    }
}

impl ProcessMadviseRequest {
    /// Reads the ranges, each an address and its bytes, from the caller's memory.
    ///
    /// # Errors
    /// `EINVAL` for too many ranges, `EFAULT`, `ENOMEM`.
    pub fn ranges<P: Platform, C: CallingProcess<P>>(&self, caller: &C) -> Result<Vec<(VirtAddr, u64)>, C::Error> {
        iovecs(caller, self.ranges, |addr, len| (addr, len))
    }

    fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let ranges = self.ranges(caller)?;
        self.advise(mm, caller, &ranges).map(|(_, advised)| advised)
    }

    /// Advises these ranges of the process.
    ///
    /// Returns whose memory it is and how many bytes took the advice.
    ///
    /// # Errors
    /// Those of the call.
    pub fn advise<P: Platform, C: CallingProcess<P>>(
        &self,
        mm: &Mm<P>,
        caller: &C,
        ranges: &[(VirtAddr, u64)],
    ) -> Result<(AdviceTarget, u64), C::Error> {
        let advise = |space: &Space<P>, whose| {
            let advice = value(Advice::from_raw(self.advice))?;
            Ok((whose, value(mm.process_madvise(space, whose, ranges, advice))?))
        };
        let AdvisedProcess::Pidfd(fd) = self.process else { return advise(caller.space(), AdviceTarget::Own) };
        let space = caller.space_of_pidfd(fd)?;
        advise(&space, if space.id() == caller.space().id() { AdviceTarget::Own } else { AdviceTarget::Other })
    }
}

impl MbindRequest {
    fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let policy = PolicyRequest { mode: self.mode, flags: self.mode_flags, nodes: read_nodes(caller, self.nodes)? };
        let CallRange { addr, len } = self.range;
        let request = BindRequest { addr, len, policy, flags: self.flags };
        value(mm.mbind(caller.space(), request, caller.may_move_all()).map(|()| 0))
    }
}

impl GetMempolicyRequest {
    /// As in Linux, the mode may have been stored when the nodes cannot be.
    fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let wants_nodes = self.nodes.at > VirtAddr::ZERO;
        if wants_nodes && self.nodes.max < mm.tlb().frames().nodes() as u64 {
            return Err(Errno::EINVAL.into());
        }
        let report = value(mm.get_mempolicy(caller.space(), self.addr, self.query))?;
        if self.value > VirtAddr::ZERO {
            caller.copy_to_user(self.value, &report.value.to_le_bytes())?;
        }
        if wants_nodes {
            write_nodes(caller, self.nodes, report.nodes)?;
        }
        Ok(0)
    }
}

impl PrlimitRequest {
    fn serve<P: Platform, C: CallingProcess<P>>(&self, caller: &C) -> Result<u64, C::Error> {
        let new = self.new.map(|at| read_limit(caller, at)).transpose()?;
        let old = caller.limit(self.pid, self.resource, new)?;
        self.old.map_or(Ok(()), |at| write_limit(caller, at, old))?;
        Ok(0)
    }
}

impl ProcessVmRequest {
    fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let iovec = |base, len| IoVec { base, len };
        let (local, remote) = (iovecs(caller, self.local, iovec)?, iovecs(caller, self.remote, iovec)?);
        let other = caller.space_of_pid(self.pid)?;
        let (local, remote) = ((caller.space(), &local[..]), (&*other, &remote[..]));
        value(match self.copy {
            RemoteCopy::Read => mm.process_vm_readv(local, remote, 0),
            RemoteCopy::Write => mm.process_vm_writev(local, remote, 0),
        })
    }
}

fn memfd_create<P: Platform, C: CallingProcess<P>>(
    mm: &Mm<P>,
    caller: &C,
    name: VirtAddr,
    flags: MemfdFlags,
) -> Result<u64, C::Error> {
    let mut bytes = [0; NAME_BYTES];
    let name = String::from_utf8_lossy(string(caller, name, &mut bytes)?);
    let object = value(mm.memfd_create(&name, flags))?;
    caller.open_memfd(object, flags).map(u64::from)
}

/// `mincore`: stores a byte for each page of `range` to `vec`.
///
/// As in Linux, the bytes of each mapping are stored before the next is looked at, so those before
/// a hole are stored when the call fails.
fn mincore<P: Platform, C: CallingProcess<P>>(
    mm: &Mm<P>,
    caller: &C,
    CallRange { addr, len }: CallRange,
    vec: VirtAddr,
) -> Result<(), C::Error> {
    let exists = |at: VirtAddr, len| at.checked_add(len).is_some_and(|end| end <= P::Isa::USER_END);
    if !addr.is_page_aligned() {
        return Err(Errno::EINVAL.into());
    }
    if !exists(addr, len) {
        return Err(Errno::ENOMEM.into());
    }
    let pages = len.div_ceil(PAGE_SIZE);
    if !exists(vec, pages) {
        return Err(Errno::EFAULT.into());
    }
    let (mut bytes, mut done) = ([0; MINCORE_PAGES], 0);
    while done < pages {
        let count = (pages - done).min(MINCORE_PAGES as u64);
        let at = addr.add(done * PAGE_SIZE);
        let looked = value(mm.mincore_of_mapping(caller.space(), at, count * PAGE_SIZE, &mut bytes))?;
        caller.copy_to_user(vec.add(done), &bytes[..looked as usize])?;
        done += looked;
    }
    Ok(())
}
