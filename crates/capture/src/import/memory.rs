//! The memory calls of a process, from the log to the trace.

use std::io::Write;
use std::path::Path;

use nix::sys::statfs;

use super::address_map::{MappedContents, Piece, Placement, page_up};
use super::context::Context;
use super::error::ImportError;
use super::nr;
use super::parser::Syscall;
use super::process::Process;
use crate::trace::{MemCall, MemOp, Prot, RawErrno, RawMapFlags, TraceEvent, UserAddr};

const MREMAP_FIXED: u64 = 2;
const MREMAP_DONTUNMAP: u64 = 4;

/// Whether a file is a library that valgrind loads into every program.
fn is_tool_object(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vgpreload_"))
}

/// Whether mappings of a file are aligned, so that huge pages can map it.
///
/// These are the file systems whose `get_unmapped_area` is `thp_get_unmapped_area`.
fn is_huge_aligned(path: &Path) -> bool {
    let kinds = [statfs::EXT4_SUPER_MAGIC, statfs::XFS_SUPER_MAGIC, statfs::BTRFS_SUPER_MAGIC];
    statfs::statfs(path).is_ok_and(|fs| kinds.contains(&fs.filesystem_type()))
}

impl Process {
    /// Emits `call` if it is a memory call.
    pub(super) fn memory_call<W: Write>(
        &mut self,
        call: &Syscall,
        result: Result<u64, u16>,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        let (addr, len, word) = (call.arg(0), call.arg(1), call.arg(2) as u32);
        match call.number {
            nr::MMAP => self.mmap(call, result, cx),
            nr::MREMAP => self.mremap(call, result, cx),
            nr::BRK => self.brk(addr, result, cx),
            nr::MUNMAP if result.is_ok() => {
                let pieces = self.space.unmap(addr, len);
                self.for_pieces(pieces, result, |addr, len| MemOp::Munmap { addr, len }, cx)
            }
            nr::MUNMAP => self.ranged(addr, len, result, |addr, len| MemOp::Munmap { addr, len }, cx),
            nr::MPROTECT => {
                self.ranged(addr, len, result, |addr, len| MemOp::Mprotect { addr, len, prot: Prot(word) }, cx)
            }
            nr::MADVISE => self.ranged(addr, len, result, |addr, len| MemOp::Madvise { addr, len, advice: word }, cx),
            nr::MLOCK => self.ranged(addr, len, result, |addr, len| MemOp::Mlock { addr, len, flags: 0 }, cx),
            nr::MLOCK2 => self.ranged(addr, len, result, |addr, len| MemOp::Mlock { addr, len, flags: word }, cx),
            nr::MUNLOCK => self.ranged(addr, len, result, |addr, len| MemOp::Munlock { addr, len }, cx),
            nr::MSYNC => self.ranged(addr, len, result, |addr, len| MemOp::Msync { addr, len, flags: word }, cx),
            nr::MINCORE => self.ranged(addr, len, result, |addr, len| MemOp::Mincore { addr, len }, cx),
            nr::MLOCKALL => self.call(MemOp::Mlockall { flags: addr as u32 }, result, cx),
            nr::MUNLOCKALL => self.call(MemOp::Munlockall {}, result, cx),
            nr::MEMBARRIER => self.call(MemOp::Membarrier { command: addr as u32, flags: len as u32 }, result, cx),
            number if is_other_memory_call(number) => {
                let args = call.args.iter().map(|arg| arg.value).collect();
                self.call(MemOp::Other { number, args }, result, cx)
            }
            _ => Ok(()),
        }
    }

    fn mmap<W: Write>(
        &mut self,
        call: &Syscall,
        result: Result<u64, u16>,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        let (addr, len) = (call.arg(0), call.arg(1));
        let (prot, flags) = (Prot(call.arg(2) as u32), RawMapFlags(call.arg(3) as u32));
        let offset = call.arg(5);
        let mut file = None;
        let mut tool = false;
        let shared = flags.contains(RawMapFlags::SHARED);
        let mut contents = if shared { MappedContents::Unaligned } else { MappedContents::Anonymous };
        if !flags.contains(RawMapFlags::ANONYMOUS) {
            let path = self.descriptors.path(call.arg(4));
            tool = is_tool_object(&path);
            if !tool {
                file = Some(cx.file(&path)?);
            }
            let aligned = is_huge_aligned(&path);
            contents = if aligned { MappedContents::AlignedFile(offset) } else { MappedContents::Unaligned };
        }
        let Ok(at) = result else {
            let addr = self.space.addr(addr).unwrap_or(UserAddr(addr));
            return self.call(MemOp::Mmap { addr, len, prot, flags, file, offset }, result, cx);
        };
        let range = (at, at.saturating_add(page_up(len)));
        if tool || self.tool_ranges.iter().any(|&(start, end)| start <= range.0 && range.1 <= end) {
            self.tool_ranges.push(range);
            return Ok(());
        }
        self.tool_ranges.retain(|&(start, end)| end <= range.0 || range.1 <= start);
        let fixed = flags.contains(RawMapFlags::FIXED) || flags.contains(RawMapFlags::FIXED_NOREPLACE);
        let by_program = fixed || (addr != 0 && addr == at);
        let placed = match (by_program, flags.contains(RawMapFlags::NORESERVE) && prot == Prot(0)) {
            (true, _) => Placement::ByProgram,
            (false, true) => Placement::Reserved,
            (false, false) => Placement::Anywhere,
        };
        self.flush(cx)?;
        let trace = self.space.map(at, len, placed, contents);
        let addr = if by_program { trace } else { UserAddr(addr) };
        self.call(MemOp::Mmap { addr, len, prot, flags, file, offset }, Ok(trace.0), cx)
    }

    fn mremap<W: Write>(
        &mut self,
        call: &Syscall,
        result: Result<u64, u16>,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        let (old, old_len, new_len, flags) = (call.arg(0), call.arg(1), call.arg(2), call.arg(3));
        let addr = self.space.addr(old).unwrap_or(UserAddr(old));
        let mut new_addr = UserAddr(call.arg(4));
        let mut returned = result;
        if let Ok(at) = result {
            self.flush(cx)?;
            let fixed = flags & MREMAP_FIXED != 0;
            let placed = if fixed { Placement::ByProgram } else { Placement::Anywhere };
            let trace = self.space.remap(old, old_len, at, new_len, placed, flags & MREMAP_DONTUNMAP != 0);
            if fixed {
                new_addr = trace;
            }
            returned = Ok(trace.0);
        }
        self.call(MemOp::Mremap { addr, old_len, new_len, flags: flags as u32, new_addr }, returned, cx)
    }

    fn brk<W: Write>(
        &mut self,
        addr: u64,
        result: Result<u64, u16>,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        self.flush(cx)?;
        let addr = self.space.brk_request(addr);
        let result = result.map(|at| self.space.set_brk(at).0);
        self.call(MemOp::Brk { addr }, result, cx)
    }

    /// Emits a call on a range, once for each piece of the range in the trace.
    fn ranged<W: Write>(
        &mut self,
        addr: u64,
        len: u64,
        result: Result<u64, u16>,
        op: impl Fn(UserAddr, u64) -> MemOp,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        if result.is_ok() && len > 0 {
            let pieces = self.space.pieces(addr, len);
            return self.for_pieces(pieces, result, op, cx);
        }
        let addr = self.space.addr(addr).unwrap_or(UserAddr(addr));
        self.call(op(addr, len), result, cx)
    }

    /// Emits a call for each piece.
    fn for_pieces<W: Write>(
        &mut self,
        pieces: Vec<Piece>,
        result: Result<u64, u16>,
        op: impl Fn(UserAddr, u64) -> MemOp,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        pieces.into_iter().try_for_each(|piece| self.call(op(piece.start, piece.len), result, cx))
    }

    fn call<W: Write>(
        &mut self,
        op: MemOp,
        result: Result<u64, u16>,
        cx: &mut Context<'_, W>,
    ) -> Result<(), ImportError> {
        self.emit(&TraceEvent::Call(Box::new(MemCall { op, result: result.map_err(RawErrno) })), cx)
    }
}

/// Whether a call is a memory call that the trace has as [`MemOp::Other`].
fn is_other_memory_call(number: u32) -> bool {
    matches!(
        number,
        nr::SHMAT
            | nr::SHMDT
            | nr::REMAP_FILE_PAGES
            | nr::MBIND
            | nr::SET_MEMPOLICY
            | nr::GET_MEMPOLICY
            | nr::MIGRATE_PAGES
            | nr::MOVE_PAGES
            | nr::USERFAULTFD
            | nr::PKEY_MPROTECT
            | nr::PROCESS_MADVISE
            | nr::SET_MEMPOLICY_HOME_NODE
            | nr::MSEAL
    )
}
