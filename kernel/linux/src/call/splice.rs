//! `vmsplice`: pages of user memory into a pipe by reference (`fs/splice.c`).
//!
//! Not guaranteed: `splice`, `tee`. `SPLICE_F_GIFT` and `SPLICE_F_MOVE` are hints, and a page stays
//! where it is.

use super::transfer::{read_parts, vectors};
use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::OpenTarget;
use crate::memory::mm;
use crate::pipe::{PipeEnd, PipeTransfer, SplicedPage};
use crate::task::{CallStop, SyscallResult, Thread, WaitReason, scheduler};
use pagewright_mm::gup::GupFlags;
use pagewright_types::{PAGE_SIZE, PageRange};

/// `SPLICE_F_MOVE`, `SPLICE_F_NONBLOCK`, `SPLICE_F_MORE`, `SPLICE_F_GIFT`.
const KNOWN: u64 = 0xf;
const NONBLOCK: u64 = 2;

/// `vmsplice`.
///
/// Into a pipe, a full one ends the call after its first page. Out of a pipe, bytes are copied.
pub(super) fn vmsplice(thread: &mut Thread, a: Arguments) -> SyscallResult {
    if a[3] & !KNOWN != 0 {
        return Err(Errno::EINVAL.into());
    }
    let open = thread.open_file(a[0])?;
    let OpenTarget::Pipe(end) = &open.target else { return Err(Errno::EBADF.into()) };
    let parts = vectors(thread, a)?;
    if !end.writes() {
        return read_parts(thread, &open, &parts, None);
    }
    if parts.iter().all(|(_, len)| *len == 0) {
        return Ok(0);
    }
    {
        let mut scheduler = scheduler();
        match end.poll_page() {
            PipeTransfer::Moved(_) => {}
            PipeTransfer::Wait if a[3] & NONBLOCK != 0 => return Err(Errno::EAGAIN.into()),
            PipeTransfer::Wait => {
                return Err(CallStop::Sleep { scheduler, wait: WaitReason::Transfer, deadline: None, at_deadline: 0 });
            }
            PipeTransfer::Refused(error) => return Err(error.into()),
            PipeTransfer::Broken => {
                scheduler.post_broken_pipe(thread);
                return Err(Errno::EPIPE.into());
            }
        }
    }
    let mut moved = 0;
    let result = put_parts(thread, end, &parts, &mut moved);
    scheduler().wake_transfers();
    match result {
        Err(error) if moved == 0 => Err(error.into()),
        _ => Ok(moved),
    }
}

/// Puts the pages of `parts` into a pipe until it is full, and counts the bytes (`iter_to_pipe`).
fn put_parts(thread: &Thread, end: &PipeEnd, parts: &[(u64, u64)], moved: &mut u64) -> Result<(), Errno> {
    for (base, len) in parts {
        let mut done = 0;
        while done < *len {
            let at = address(base.checked_add(done).ok_or(Errno::EFAULT)?);
            let start = at.align_down(PAGE_SIZE);
            let range = PageRange::new(start, start.checked_add(PAGE_SIZE).ok_or(Errno::EFAULT)?);
            let count = (PAGE_SIZE - at.page_offset()).min(len - done);
            let pages = mm().get_user_pages_fast(&thread.space.0, range, GupFlags::empty())?;
            let page = SplicedPage::new(pages, at.page_offset() as usize, count as usize);
            if end.put_page(page).is_err() {
                return Ok(());
            }
            (done, *moved) = (done + count, *moved + count);
        }
    }
    Ok(())
}
