//! Reading and writing the memory of another process (`process_vm_readv(2)`,
//! `process_vm_writev(2)`).
//!
//! The other's pages are pinned one at a time, which also breaks the copy-on-write that would lead
//! a reader astray, and copied from or to the caller's own memory. Who may do that to whom is the
//! embedder's question (`ptrace_may_access`).

use crate::error::MmError;
use crate::gup::{GupFlags, GupRequest, MakeDirty, UserPage};
use crate::mm::Mm;
use crate::space::Space;
use pagewright_arch::Isa;
use pagewright_sync::Platform;
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// A piece of user memory (`struct iovec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoVec {
    /// Where it is.
    pub base: VirtAddr,
    /// Its length in bytes.
    pub len: u64,
}

/// Pieces that one call may have (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1024;
/// Bytes that one call moves at most (`MAX_RW_COUNT`).
const MAX_BYTES: u64 = 0x7fff_f000;
/// Bytes on their way from one page to another.
const BOUNCE: usize = 256;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    FromRemote,
    ToRemote,
}

/// A place in a list of pieces.
struct Cursor<'a> {
    pieces: &'a [IoVec],
    /// Within the first piece.
    offset: u64,
    /// Bytes left in all.
    left: u64,
}

impl<'a> Cursor<'a> {
    /// The beginning of `pieces`, at most [`MAX_BYTES`] of them.
    ///
    /// # Errors
    /// Too many pieces, or a length that is negative.
    fn new(pieces: &'a [IoVec]) -> Result<Self, MmError> {
        if pieces.len() > MAX_PIECES {
            return Err(MmError::TooManySegments { segments: pieces.len() });
        }
        if let Some(bad) = pieces.iter().find(|piece| piece.len > i64::MAX as u64) {
            return Err(MmError::OutOfBounds { addr: bad.base, len: bad.len });
        }
        let total = pieces.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.len).min(MAX_BYTES));
        Ok(Self { pieces, offset: 0, left: total })
    }

    /// The next bytes in one piece.
    fn next(&mut self) -> Option<(VirtAddr, u64)> {
        while let Some(first) = self.pieces.first() {
            let len = (first.len - self.offset).min(self.left);
            if len > 0 {
                // A piece that wraps was refused, or its address can't be had anyway.
                return Some((VirtAddr::new(first.base.raw().wrapping_add(self.offset)), len));
            }
            if self.left == 0 {
                return None;
            }
            self.pieces = &self.pieces[1..];
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
    /// Copies from `remote` to `local`, piece after piece, until either list ends, and returns how
    /// many bytes.
    ///
    /// # Errors
    /// `EINVAL` for flags (there are none), more than 1024 pieces, or a length that is negative;
    /// `EFAULT` if a piece of `local` is not in user memory, or if the first byte can't be copied.
    /// A copy that stops later is no error, and the count says where.
    pub fn process_vm_readv(
        &self,
        (local, to): (&Space<P>, &[IoVec]),
        (remote, from): (&Space<P>, &[IoVec]),
        flags: u64,
    ) -> Result<u64, MmError> {
        self.call(|| self.move_bytes((local, to), (remote, from), flags, Way::FromRemote))
    }

    /// Copies from `local` to `remote`, as [`Mm::process_vm_readv`] does the other way.
    ///
    /// # Errors
    /// As there.
    pub fn process_vm_writev(
        &self,
        (local, from): (&Space<P>, &[IoVec]),
        (remote, to): (&Space<P>, &[IoVec]),
        flags: u64,
    ) -> Result<u64, MmError> {
        self.call(|| self.move_bytes((local, from), (remote, to), flags, Way::ToRemote))
    }

    fn move_bytes(
        &self,
        (local, ours): (&Space<P>, &[IoVec]),
        (remote, theirs): (&Space<P>, &[IoVec]),
        flags: u64,
        way: Way,
    ) -> Result<u64, MmError> {
        if flags != 0 {
            return Err(MmError::BadFlags { flags: flags as u32 });
        }
        let mut ours = Cursor::new(ours)?;
        // `import_iovec` asks of our own pieces whether they could exist (`access_ok`).
        let beyond = |piece: &&IoVec| piece.base.checked_add(piece.len).is_none_or(|end| end > P::Isa::USER_END);
        if let Some(piece) = ours.pieces.iter().find(beyond) {
            return Err(MmError::Inaccessible { va: piece.base });
        }
        if ours.left == 0 {
            return Ok(0);
        }
        let mut theirs = Cursor::new(theirs)?;
        let mut moved = 0;
        while ours.left > 0
            && let Some((va, len)) = theirs.next()
        {
            let part = len.min(PAGE_SIZE - va.page_offset()).min(ours.left);
            let done = self.move_part(local, &mut ours, remote, va, part, way);
            moved += done;
            theirs.advance(done);
            if done < part {
                return if moved > 0 { Ok(moved) } else { Err(MmError::Inaccessible { va }) };
            }
        }
        Ok(moved)
    }

    /// Moves `len` bytes that lie in one page of `remote`; returns how many it could.
    fn move_part(
        &self,
        local: &Space<P>,
        ours: &mut Cursor<'_>,
        remote: &Space<P>,
        va: VirtAddr,
        len: u64,
        way: Way,
    ) -> u64 {
        let mut flags = GupFlags::empty();
        flags.set(GupFlags::WRITE, way == Way::ToRemote);
        let page = va.align_down(PAGE_SIZE);
        if page >= P::Isa::USER_END {
            return 0;
        }
        let Ok(page) = self.gup_slow(remote, page, GupRequest::pin(flags), None) else { return 0 };
        let done = self.move_page(local, ours, &page, va.page_offset(), len, way);
        let make_dirty = if way == Way::ToRemote { MakeDirty::Yes } else { MakeDirty::No };
        self.release_user_page(page, make_dirty);
        done
    }

    fn move_page(
        &self,
        local: &Space<P>,
        ours: &mut Cursor<'_>,
        page: &UserPage,
        offset: u64,
        len: u64,
        way: Way,
    ) -> u64 {
        let mut bounce = [0; BOUNCE];
        let mut done = 0;
        while done < len
            && let Some((at, most)) = ours.next()
        {
            let piece = (len - done).min(most).min(BOUNCE as u64);
            let bytes = &mut bounce[..piece as usize];
            let there = page.pfn().base().add(offset + done);
            let left = match way {
                Way::FromRemote => {
                    self.fx().read(there, bytes);
                    self.write_user(local, at, bytes)
                }
                Way::ToRemote => {
                    let left = self.read_user(local, at, bytes);
                    self.fx().write(there, &bytes[..bytes.len() - left]);
                    left
                }
            };
            let moved = piece - left as u64;
            ours.advance(moved);
            done += moved;
            if left > 0 {
                break;
            }
        }
        done
    }
}
