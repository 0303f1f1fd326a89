//! Memory calls: decoded and served by `pagewright_syscall`, and recorded.

use super::table::missing;
use super::{Arguments, clone, futex, swap};
use crate::errno::Errno;
use crate::file::OpenFile;
use crate::inode::InodeKind;
use crate::inode_attributes::as_caller;
use crate::memory::mm;
use crate::record;
use crate::task::{SyscallResult, Thread};
use alloc::sync::Arc;
use pagewright_arch::Isa;
use pagewright_hal::Machine;
use pagewright_mm::file::FileKind;
use pagewright_mm::space::{AdviceTarget, FileMapping};
use pagewright_mm::{MapFlags, MapRequest, Protection};
use pagewright_syscall::{
    CallRange, CallingProcess, DecodedCall, LinuxCall, MemoryRequest, MmapRequest, ProcessMadviseRequest,
};
use pagewright_types::{IsaKind, PAGE_SIZE, Rights, VirtAddr};

/// The instruction set whose numbers and registers programs use.
pub(super) const ISA: IsaKind = <<Machine as pagewright_arch::Effects>::Isa as Isa>::KIND;

/// Serves a memory call.
pub(super) fn serve(thread: &mut Thread, call: LinuxCall, a: Arguments) -> SyscallResult {
    thread.space.set_privileges(thread.process, thread.credentials.privileges());
    match call.decode(ISA, a) {
        Ok(DecodedCall::Memory(MemoryRequest::ProcessMadvise(request))) => process_madvise(thread, &request),
        Ok(DecodedCall::Memory(MemoryRequest::Mmap(request))) => serve_mmap(thread, request),
        Ok(DecodedCall::Memory(request)) => serve_request(thread, &request),
        Ok(DecodedCall::Clone(request)) => clone::clone(thread, &request),
        Ok(DecodedCall::Futex(request)) => futex::futex(thread, &request),
        Ok(DecodedCall::Swap(request)) => swap::serve(thread, request),
        Err(pagewright_types::Errno::ENOSYS) => missing(thread.call.0),
        Err(error) => Err(error.into()),
    }
}

/// Serves `mmap`; a mapping of `/dev/zero` is anonymous memory (`mmap_zero`).
fn serve_mmap(thread: &Thread, request: MmapRequest) -> SyscallResult {
    if request.flags.contains(MapFlags::ANONYMOUS) {
        return serve_request(thread, &MemoryRequest::Mmap(request));
    }
    let is_zero = |open: &Arc<OpenFile>| open.inode().is_some_and(|node| matches!(node.kind, InodeKind::Zero));
    let zero = match thread.open_file(request.fd.into()) {
        Ok(open) if is_zero(&open) => open,
        _ => return serve_request(thread, &MemoryRequest::Mmap(request)),
    };
    let shared = request.flags.contains(MapFlags::SHARED);
    let stores = shared && request.protection.contains(Protection::WRITE);
    if !zero.can_read() || stores && !zero.can_write() {
        return Err(Errno::EACCES.into());
    }
    if shared && !zero.can_write() {
        return map_constant_zeroes(thread, &request);
    }
    let request = MmapRequest { flags: request.flags | MapFlags::ANONYMOUS, offset: 0, ..request };
    serve_request(thread, &MemoryRequest::Mmap(request))
}

/// Maps `/dev/zero`, shared and not opened for writing: `mprotect` cannot make it writable.
fn map_constant_zeroes(thread: &Thread, request: &MmapRequest) -> SyscallResult {
    let MmapRequest { addr, len, protection, flags, .. } = *request;
    let bytes = len.checked_next_multiple_of(PAGE_SIZE).unwrap_or(len);
    record::ordered(|| {
        let object = mm().add_file("/dev/zero", FileKind::Shmem, bytes)?;
        let file = FileMapping { file: &object, offset: 0, opened: Rights::READ | Rights::EXEC };
        let mapped =
            mm().mmap(thread.space(), &MapRequest { addr, len, rights: protection.rights(), flags, file: Some(file) });
        mm().close_file(&object);
        let at = mapped?.raw();
        if record::is_on() {
            record_mmap(thread, request, at);
        }
        Ok(at)
    })
}

fn serve_request(thread: &Thread, request: &MemoryRequest) -> SyscallResult {
    let serve = || {
        let value = request.serve(mm(), thread)?;
        if record::is_on() {
            record_call(thread, request, value);
        }
        Ok(value)
    };
    if matches!(request, MemoryRequest::Mincore(..) | MemoryRequest::Madvise(..)) {
        return as_caller(thread, || record_in_order(request, serve));
    }
    record_in_order(request, serve)
}

/// Serves a request in the order of a recording.
fn record_in_order(request: &MemoryRequest, serve: impl FnOnce() -> SyscallResult) -> SyscallResult {
    // A copy of user memory can fault, and is then recorded in its own turn.
    if request.copies_user_memory() { serve() } else { record::ordered(serve) }
}

/// Records a call that succeeded, if it changed mappings or pages.
fn record_call(thread: &Thread, request: &MemoryRequest, value: u64) {
    let range = |name: &str, CallRange { addr, len }: CallRange| {
        record::event(format_args!("{name} {:x} {len:x}", addr.raw()));
    };
    let flagged = |name: &str, CallRange { addr, len }: CallRange, flags: u32| {
        record::event(format_args!("{name} {:x} {len:x} {flags:x}", addr.raw()));
    };
    match *request {
        MemoryRequest::Mmap(ref request) => record_mmap(thread, request, value),
        MemoryRequest::Munmap(at) => range("munmap", at),
        MemoryRequest::Mprotect(at, protection) => flagged("mprotect", at, protection.bits()),
        MemoryRequest::Brk(end) => record::event(format_args!("brk {:x} {value:x}", end.raw())),
        MemoryRequest::Mremap(request) => {
            let (addr, new_addr, flags) = (request.addr.raw(), request.new_addr.raw(), request.flags.bits());
            let (old_len, new_len) = (request.old_len, request.new_len);
            record::event(format_args!("mremap {addr:x} {old_len:x} {new_len:x} {flags:x} {new_addr:x} {value:x}"));
        }
        MemoryRequest::Madvise(at, advice) => flagged("madvise", at, advice.raw()),
        MemoryRequest::Mlock(at, flags) => flagged("mlock", at, flags.bits()),
        MemoryRequest::Munlock(at) => range("munlock", at),
        MemoryRequest::Mlockall(flags) => record::event(format_args!("mlockall {:x}", flags.bits())),
        MemoryRequest::Munlockall => record::event(format_args!("munlockall")),
        MemoryRequest::Msync(at, flags) => flagged("msync", at, flags.bits()),
        MemoryRequest::Mincore(at, _) => range("mincore", at),
        MemoryRequest::ProcessMadvise(_)
        | MemoryRequest::Mseal(..)
        | MemoryRequest::Mbind(_)
        | MemoryRequest::SetMempolicy { .. }
        | MemoryRequest::GetMempolicy(_)
        | MemoryRequest::MemfdCreate { .. }
        | MemoryRequest::AddSeals { .. }
        | MemoryRequest::GetSeals { .. }
        | MemoryRequest::Ftruncate { .. }
        | MemoryRequest::Fallocate { .. }
        | MemoryRequest::Prlimit(_)
        | MemoryRequest::ProcessVm(_)
        | MemoryRequest::MigratePages(_)
        | MemoryRequest::MovePages(_) => {}
    }
}

fn record_mmap(thread: &Thread, request: &MmapRequest, at: u64) {
    let MmapRequest { addr, len, protection, flags, offset, .. } = *request;
    let (addr, protection, bits) = (addr.raw(), protection.bits(), flags.bits());
    if flags.contains(MapFlags::ANONYMOUS) {
        return record::event(format_args!("mmap {addr:x} {len:x} {protection:x} {bits:x} 0 {at:x} -"));
    }
    let map = thread.space().map().read();
    let mapped = map.find(VirtAddr::new(at)).and_then(|(_, vma)| vma.file());
    let path = mapped.map_or("-", |file| file.name());
    record::event(format_args!("mmap {addr:x} {len:x} {protection:x} {bits:x} {offset:x} {at:x} {path}"));
}

/// Serves `process_madvise`; advice about the memory of the caller is recorded.
fn process_madvise(thread: &Thread, request: &ProcessMadviseRequest) -> SyscallResult {
    let ranges = request.ranges(thread)?;
    record::ordered(|| {
        let (whose, advised) = as_caller(thread, || request.advise(mm(), thread, &ranges))?;
        let mut left = if whose == AdviceTarget::Own { advised } else { 0 };
        for (start, len) in ranges {
            let len = len.min(left);
            left -= len;
            if len > 0 {
                record::event(format_args!("madvise {:x} {len:x} {:x}", start.raw(), request.advice));
            }
        }
        Ok(advised)
    })
}
