//! Reads and writes of another process's memory.
//!
//! They serve `process_vm_readv(2)`, `process_vm_writev(2)` and `/proc/PID/mem`. A call pins the
//! remote pages one at a time and copies them to or from the caller's memory, or a buffer of the
//! kernel. A pin requires an exclusive page, so a read sees the page that the remote program keeps.
//! The embedder checks that the caller may access the process (`ptrace_may_access`).

use crate::error::MmError;
use crate::gup::{GupFlags, GupRequest, MakeDirty};
use crate::mm::Mm;
use crate::space::Space;
use core::ops::Range;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{IsaKind, PAGE_SIZE, Pfn, PhysAddr, VirtAddr};

/// A segment of user memory (`struct iovec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoVec {
    /// Its address.
    pub base: VirtAddr,
    /// Its length in bytes.
    pub len: u64,
}

/// Maximum number of segments of one call (`UIO_MAXIOV`).
const MAX_SEGMENTS: usize = 1024;
/// Maximum number of bytes of one call (`MAX_RW_COUNT`).
const MAX_BYTES: u64 = 0x7fff_f000;
/// Size in bytes of the buffer between the two pages.
const BOUNCE: usize = 256;

/// The direction of the copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyDirection {
    FromRemote,
    ToRemote,
}

/// A position in a list of segments.
struct Cursor<'a> {
    segments: &'a [IoVec],
    /// Offset in the first segment.
    offset: u64,
    /// Number of bytes left in all segments.
    left: u64,
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the start of `segments`, limited to [`MAX_BYTES`].
    ///
    /// # Errors
    /// [`MmError::TooManySegments`], or [`MmError::OutOfBounds`] for a negative length.
    fn new(segments: &'a [IoVec]) -> Result<Self, MmError> {
        if segments.len() > MAX_SEGMENTS {
            return Err(MmError::TooManySegments { segments: segments.len() });
        }
        if let Some(bad) = segments.iter().find(|segment| segment.len > i64::MAX as u64) {
            return Err(MmError::OutOfBounds { addr: bad.base, len: bad.len });
        }
        let total = segments.iter().fold(0u64, |sum, segment| sum.saturating_add(segment.len).min(MAX_BYTES));
        Ok(Self { segments, offset: 0, left: total })
    }

    /// Returns the address and the number of the next bytes in one segment.
    fn next(&mut self) -> Option<(VirtAddr, u64)> {
        while let Some(first) = self.segments.first() {
            let len = (first.len - self.offset).min(self.left);
            if len > 0 {
                // A segment that wraps has been refused, or its address is inaccessible anyway.
                return Some((VirtAddr::new(first.base.raw().wrapping_add(self.offset)), len));
            }
            if self.left == 0 {
                return None;
            }
            self.segments = &self.segments[1..];
            self.offset = 0;
        }
        None
    }

    fn advance(&mut self, bytes: u64) {
        self.offset += bytes;
        self.left -= bytes;
    }
}

impl<P: Platform> Mm<P> {
    /// Copies from `remote` to `local` until either list of segments ends (`process_vm_readv(2)`).
    ///
    /// Returns the number of bytes copied, which may be fewer than requested.
    ///
    /// # Errors
    /// - `EINVAL` for flags other than 0, more than 1024 segments, or a negative length.
    /// - [`MmError::Inaccessible`] (`EFAULT`) if a segment of `local` is not in user memory, or if
    ///   the first byte cannot be copied.
    pub fn process_vm_readv(
        &self,
        (local, to): (&Space<P>, &[IoVec]),
        (remote, from): (&Space<P>, &[IoVec]),
        flags: u64,
    ) -> Result<u64, MmError> {
        self.declare_return_of(|| self.process_vm_rw((local, to), (remote, from), flags, CopyDirection::FromRemote))
    }

    /// Copies from `local` to `remote` until either list of segments ends (`process_vm_writev(2)`).
    ///
    /// Returns the number of bytes copied, which may be fewer than requested.
    ///
    /// # Errors
    /// The same as of [`Mm::process_vm_readv`].
    pub fn process_vm_writev(
        &self,
        (local, from): (&Space<P>, &[IoVec]),
        (remote, to): (&Space<P>, &[IoVec]),
        flags: u64,
    ) -> Result<u64, MmError> {
        self.declare_return_of(|| self.process_vm_rw((local, from), (remote, to), flags, CopyDirection::ToRemote))
    }

    /// Copies from `remote` to a buffer as a debugger reads (`access_remote_vm` with `FOLL_FORCE`).
    ///
    /// Returns the number of bytes copied, up to the first page that cannot be read. Mappings that
    /// the program itself may not read can be read if they may ever be.
    pub fn read_remote(&self, remote: &Space<P>, from: VirtAddr, to: &mut [u8]) -> usize {
        let direction = CopyDirection::FromRemote;
        self.access_remote(remote, from, to.len(), direction, |part, pa| self.fx().read(pa, &mut to[part]))
    }

    /// Copies from a buffer to `remote` as a debugger writes (`access_remote_vm`).
    ///
    /// Returns the number of bytes copied, up to the first page that cannot be written. Private
    /// memory that is read-only gets a copy, as a breakpoint needs it.
    pub fn write_remote(&self, remote: &Space<P>, to: VirtAddr, from: &[u8]) -> usize {
        let direction = CopyDirection::ToRemote;
        self.access_remote(remote, to, from.len(), direction, |part, pa| self.fx().write(pa, &from[part]))
    }

    /// Calls `copy` for the part of the buffer in each page, with its address in the frame.
    fn access_remote(
        &self,
        remote: &Space<P>,
        at: VirtAddr,
        len: usize,
        direction: CopyDirection,
        mut copy: impl FnMut(Range<usize>, PhysAddr),
    ) -> usize {
        self.declare_return_of(|| {
            let mut done = 0;
            while done < len
                && let Some(va) = at.checked_add(done as u64)
            {
                let part = (len - done).min((PAGE_SIZE - va.page_offset()) as usize);
                let copied =
                    self.with_remote_byte(remote, va, GupFlags::FORCE, direction, |pa| copy(done..done + part, pa));
                if copied.is_none() {
                    break;
                }
                done += part;
            }
            done
        })
    }

    /// Pins the page of `va` in `remote` while `copy` runs, which gets the address in the frame.
    ///
    /// `None` if the page cannot be had for a copy in this direction.
    fn with_remote_byte<T>(
        &self,
        remote: &Space<P>,
        va: VirtAddr,
        mut flags: GupFlags,
        direction: CopyDirection,
        copy: impl FnOnce(PhysAddr) -> T,
    ) -> Option<T> {
        if va >= P::Isa::USER_END {
            return None;
        }
        let writes = direction == CopyDirection::ToRemote;
        flags.set(GupFlags::WRITE, writes);
        let page = self.gup_slow(remote, va.align_down(PAGE_SIZE), GupRequest::pin(flags), None).ok()?;
        let copied = copy(page.pfn().base().add(va.page_offset()));
        if writes {
            self.publish_written_code(page.pfn());
        }
        self.release_user_page(page, if writes { MakeDirty::Yes } else { MakeDirty::No });
        Some(copied)
    }

    /// Makes a breakpoint visible to the instruction fetches of a page that is executed already.
    ///
    /// `flush_ptrace_access`; the entry layer does it for pages that are mapped later.
    fn publish_written_code(&self, pfn: Pfn) {
        let is_executed = || self.frames().folio(pfn).flags().contains(FolioFlags::CODE_VISIBLE);
        if P::Isa::KIND == IsaKind::Aarch64 && is_executed() {
            self.fx().publish_code(pfn);
        }
    }

    fn process_vm_rw(
        &self,
        (local, local_iov): (&Space<P>, &[IoVec]),
        (remote, remote_iov): (&Space<P>, &[IoVec]),
        flags: u64,
        direction: CopyDirection,
    ) -> Result<u64, MmError> {
        if flags != 0 {
            return Err(MmError::BadFlags { flags: flags as u32 });
        }
        let mut local_iov = Cursor::new(local_iov)?;
        // `import_iovec` checks the caller's segments, but not the remote ones, by `access_ok`.
        let beyond = |segment: &&IoVec| segment.base.checked_add(segment.len).is_none_or(|end| end > P::Isa::USER_END);
        if let Some(segment) = local_iov.segments.iter().find(beyond) {
            return Err(MmError::Inaccessible { va: segment.base });
        }
        if local_iov.left == 0 {
            return Ok(0);
        }
        let mut remote_iov = Cursor::new(remote_iov)?;
        let mut moved = 0;
        while local_iov.left > 0
            && let Some((va, len)) = remote_iov.next()
        {
            let part = len.min(PAGE_SIZE - va.page_offset()).min(local_iov.left);
            let copy = |pa| self.copy_remote_page(local, &mut local_iov, pa, part, direction);
            let done = self.with_remote_byte(remote, va, GupFlags::empty(), direction, copy).unwrap_or(0);
            moved += done;
            remote_iov.advance(done);
            if done < part {
                return if moved > 0 { Ok(moved) } else { Err(MmError::Inaccessible { va }) };
            }
        }
        Ok(moved)
    }

    /// Copies `len` bytes of one page of `remote`; returns the number of bytes copied.
    fn copy_remote_page(
        &self,
        local: &Space<P>,
        local_iov: &mut Cursor<'_>,
        at_remote: PhysAddr,
        len: u64,
        direction: CopyDirection,
    ) -> u64 {
        let mut bounce = [0; BOUNCE];
        let mut done = 0;
        while done < len
            && let Some((at, max)) = local_iov.next()
        {
            let piece = (len - done).min(max).min(BOUNCE as u64);
            let bytes = &mut bounce[..piece as usize];
            let remote_bytes = at_remote.add(done);
            let left = match direction {
                CopyDirection::FromRemote => {
                    self.fx().read(remote_bytes, bytes);
                    self.write_user(local, at, bytes)
                }
                CopyDirection::ToRemote => {
                    let left = self.read_user(local, at, bytes);
                    self.fx().write(remote_bytes, &bytes[..bytes.len() - left]);
                    left
                }
            };
            let moved = piece - left as u64;
            local_iov.advance(moved);
            done += moved;
            if left > 0 {
                break;
            }
        }
        done
    }
}
