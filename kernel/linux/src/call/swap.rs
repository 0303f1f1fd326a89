//! `swapon` and `swapoff`.
//!
//! Not guaranteed: swap files. A file of this machine is memory, and is refused as one on Linux's
//! tmpfs is.

use super::path::{find, path_at};
use crate::errno::Errno;
use crate::inode::InodeKind;
use crate::task::{SyscallResult, Thread};
use crate::zram;
use linux_raw_sys::general as linux;
use pagewright_syscall::SwapRequest;

/// Serves both calls.
pub(super) fn serve(thread: &Thread, request: SwapRequest) -> SyscallResult {
    thread.credentials.need(linux::CAP_SYS_ADMIN)?;
    let (SwapRequest::On { path, .. } | SwapRequest::Off { path }) = request;
    let node = find(thread, &path_at(thread, linux::AT_FDCWD as u64, path)?, true)?;
    match node.kind {
        InodeKind::Zram => {}
        InodeKind::Directory => return Err(Errno::EISDIR.into()),
        InodeKind::Archive(_)
        | InodeKind::Text(_)
        | InodeKind::Setting(_)
        | InodeKind::OfMemory(_)
        | InodeKind::OomScoreAdj(_)
        | InodeKind::Sysctl(_)
        | InodeKind::Shmem(_)
        | InodeKind::Link(_)
        | InodeKind::Null
        | InodeKind::Zero
        | InodeKind::Full
        | InodeKind::Random
        | InodeKind::Console
        | InodeKind::Socket(_)
        | InodeKind::Fifo(_)
        | InodeKind::Memory(_)
        | InodeKind::Attribute(_) => return Err(Errno::EINVAL.into()),
    }
    match request {
        SwapRequest::On { priority, .. } => zram::swap_on(priority)?,
        SwapRequest::Off { .. } => zram::swap_off()?,
    }
    Ok(0)
}
