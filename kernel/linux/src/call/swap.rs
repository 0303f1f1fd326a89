//! `swapon` and `swapoff`.
//!
//! Not guaranteed: swap files; a file of this machine is memory, and as one of Linux's tmpfs it is
//! refused. Nobody lacks the right, so nobody gets `EPERM`.

use super::path::path_at;
use super::{Arguments, address};
use crate::errno::Errno;
use crate::task::{Answer, Thread};
use crate::tree::{self, Kind};
use crate::zram;
use linux_raw_sys::general as linux;
use syscalls::Sysno;

/// `SWAP_FLAG_PREFER`, `SWAP_FLAG_PRIO_MASK`, and those about discarding, which zram does in any
/// case (`include/linux/swap.h`).
const PREFER: u64 = 0x8000;
const PRIORITY: u64 = 0x7fff;
const DISCARD: u64 = 0x7_0000;

/// Serves the calls of this file.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    let flags = a[1];
    if call == Sysno::swapon && flags & !(PREFER | PRIORITY | DISCARD) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let node = tree::find(&path_at(thread, linux::AT_FDCWD as u64, address(a[0]))?, true)?;
    match &*node.kind.lock() {
        Kind::Zram => {}
        Kind::Directory => return Err(Errno::EISDIR.into()),
        Kind::File(_)
        | Kind::Shmem(_)
        | Kind::Link(_)
        | Kind::Null
        | Kind::Zero
        | Kind::Random
        | Kind::Console
        | Kind::Attribute(_) => return Err(Errno::EINVAL.into()),
    }
    match call {
        Sysno::swapon => zram::swap_on((flags & PREFER != 0).then_some((flags & PRIORITY) as i16))?,
        Sysno::swapoff => zram::swap_off()?,
        other => unreachable!("{other} is not about swap"),
    }
    Ok(0)
}
