//! From a request to the memory manager, and the value that the call returns.

use crate::caller::{CallingProcess, FileUse, OpenFile};
use crate::request::{
    AdvisedProcess, CallRange, MemoryRequest, MmapRequest, PrlimitRequest, ProcessMadviseRequest, ProcessVmRequest,
    RemoteCopy,
};
use crate::user_memory::{iovecs, read_limit, string, write_limit};
use alloc::string::String;
use alloc::vec::Vec;
use pagewright_arch::Isa;
use pagewright_mm::file::MemfdFlags;
use pagewright_mm::space::{AdviceTarget, FileMapping};
use pagewright_mm::user::IoVec;
use pagewright_mm::{Advice, MapFlags, MapRequest, Mm, MmError, Space};
use pagewright_sync::Platform;
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
            Self::ProcessMadvise(request) => return request.advise(mm, caller, &request.ranges(caller)?),
            Self::MemfdCreate { name, flags } => return memfd_create(mm, caller, name, flags),
            Self::Prlimit(request) => return request.serve(caller),
            Self::ProcessVm(request) => return request.serve(mm, caller),
            Self::Ftruncate { fd, size } => return caller.truncate(fd, size).map(|()| 0),
            Self::Mincore(range, vec) => return mincore(mm, caller, range, vec).map(|()| 0),
            Self::Brk(end) => return Ok(mm.brk(space, end).raw()),
            Self::Mremap(request) => return value(mm.mremap(space, &request).map(VirtAddr::raw)),
            Self::GetSeals { fd } => {
                let file = caller.file(fd, FileUse::Seal)?;
                return value(file.object.seals().map(|seals| seals.bits().into()));
            }
            Self::AddSeals { fd, seals } => {
                let OpenFile { object, opened } = caller.file(fd, FileUse::Seal)?;
                mm.add_seals(&object, opened, seals)
            }
            Self::Fallocate { fd, mode, offset, len } => {
                let file = caller.file(fd, FileUse::Allocate)?;
                mm.fallocate(&file.object, mode, offset, len)
            }
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
                | Self::Mincore(..)
                | Self::Prlimit(_)
                | Self::ProcessVm(_)
        )
    }
}

fn value<T, E: From<Errno>>(result: Result<T, MmError>) -> Result<T, E> {
    result.map_err(|error| error.errno().into())
}

impl MmapRequest {
    fn serve<P: Platform, C: CallingProcess<P>>(&self, mm: &Mm<P>, caller: &C) -> Result<u64, C::Error> {
        let anonymous = self.flags.contains(MapFlags::ANONYMOUS);
        let open = if anonymous { None } else { Some(caller.file(self.fd, FileUse::Map)?) };
        let file = open.as_ref().map(|OpenFile { object, opened }| FileMapping {
            file: object,
            offset: self.offset,
            opened: *opened,
        });
        let Self { addr, len, protection, flags, .. } = *self;
        let request = MapRequest { addr, len, rights: protection.rights(), flags, file };
        value(mm.mmap(caller.space(), &request).map(VirtAddr::raw))
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

    /// Advises these ranges of the process, and returns how many bytes took the advice.
    ///
    /// # Errors
    /// Those of the call.
    pub fn advise<P: Platform, C: CallingProcess<P>>(
        &self,
        mm: &Mm<P>,
        caller: &C,
        ranges: &[(VirtAddr, u64)],
    ) -> Result<u64, C::Error> {
        let AdvisedProcess::Pidfd(fd) = self.process else {
            return self.advise_space(mm, caller.space(), AdviceTarget::Own, ranges);
        };
        let space = caller.space_of_pidfd(fd)?;
        let whose = if space.id() == caller.space().id() { AdviceTarget::Own } else { AdviceTarget::Other };
        self.advise_space(mm, &space, whose, ranges)
    }

    fn advise_space<P: Platform, E: From<Errno>>(
        &self,
        mm: &Mm<P>,
        space: &Space<P>,
        whose: AdviceTarget,
        ranges: &[(VirtAddr, u64)],
    ) -> Result<u64, E> {
        let advice = value(Advice::from_raw(self.advice))?;
        value(mm.process_madvise(space, whose, ranges, advice))
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
/// Linux, too, has stored the bytes before a hole when it fails.
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
    let mut bytes = [0; MINCORE_PAGES];
    for first in (0..pages).step_by(MINCORE_PAGES) {
        let start = addr.add(first * PAGE_SIZE);
        let count = (pages - first).min(MINCORE_PAGES as u64);
        let looked = mm.mincore(caller.space(), start, count * PAGE_SIZE, &mut bytes);
        let known = match looked {
            Err(MmError::NotMapped { at }) => at.since(start) / PAGE_SIZE,
            Ok(()) | Err(_) => count,
        };
        caller.copy_to_user(vec.add(first), &bytes[..known as usize])?;
        value(looked)?;
    }
    Ok(())
}
