//! Calls on another process's memory: reading, writing and advising it; and descriptors that name a
//! process.
//!
//! Everybody is root, so everybody may.
//!
//! Not guaranteed: signals by descriptor, `PIDFD_NONBLOCK`.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::file::{Open, Target};
use crate::memory::{SpaceHandle, mm};
use crate::record;
use crate::task::{Answer, Id, Thread, state};
use alloc::sync::Arc;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_mm::Advice;
use pagewright_mm::space::AdviceTarget;
use pagewright_mm::user::IoVec;
use syscalls::Sysno;

/// Serves the calls of this file.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    match call {
        Sysno::pidfd_open => {
            if a[1] != 0 {
                return Err(Errno::EINVAL.into());
            }
            let id = Id(a[0] as u32);
            if !state().processes.contains_key(&id) {
                return Err(Errno::ESRCH.into());
            }
            let open = Open::new(Target::Process(id), linux::O_RDWR);
            let added = thread.files.lock().add(&open, true, 0);
            Ok(added?)
        }
        Sysno::process_vm_readv | Sysno::process_vm_writev => {
            let (ours, theirs) = (pieces(thread, a[1], a[2])?, pieces(thread, a[3], a[4])?);
            let other = space_of(Id(a[0] as u32))?;
            let (local, remote) = ((&*thread.space.0, &ours[..]), (&*other.0, &theirs[..]));
            let moved = if call == Sysno::process_vm_readv {
                mm().process_vm_readv(local, remote, a[5])?
            } else {
                mm().process_vm_writev(local, remote, a[5])?
            };
            Ok(moved)
        }
        Sysno::process_madvise => advise(thread, a),
        other => unreachable!("{other} is not about other processes"),
    }
}

/// The space of a process, as long as it has one.
fn space_of(id: Id) -> Result<Arc<SpaceHandle>, Errno> {
    let mut state = state();
    state.processes.get_mut(&id).and_then(|process| process.space.upgrade()).ok_or(Errno::ESRCH)
}

fn pieces(thread: &Thread, at: u64, count: u64) -> Result<Vec<IoVec>, Errno> {
    if count > u64::from(linux::UIO_MAXIOV) {
        return Err(Errno::EINVAL);
    }
    let bytes = thread.space.read_vec(address(at), count as usize * 16)?;
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let piece = |bytes: &[u8]| IoVec { base: address(number(&bytes[..8])), len: number(&bytes[8..]) };
    Ok(bytes.chunks_exact(16).map(piece).collect())
}

fn advise(thread: &Thread, a: Arguments) -> Answer {
    let [descriptor, at, count, advice, flags, _] = a;
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let ranges: Vec<_> = pieces(thread, at, count)?.iter().map(|piece| (piece.base, piece.len)).collect();
    let open = thread.files.lock().get(descriptor)?.open.clone();
    let Target::Process(id) = &open.target else { return Err(Errno::EBADF.into()) };
    let space = space_of(*id)?;
    let whose = if Arc::ptr_eq(&space, &thread.space) { AdviceTarget::Own } else { AdviceTarget::Other };
    let advice = Advice::from_raw(advice as u32)?;
    record::ordered(|| {
        let advised = mm().process_madvise(&space.0, whose, &ranges, advice)?;
        let mut left = if whose == AdviceTarget::Own { advised } else { 0 };
        for (start, len) in ranges {
            let len = len.min(left);
            left -= len;
            if len > 0 {
                record::event(format_args!("madvise {:x} {len:x} {:x}", start.raw(), advice.raw()));
            }
        }
        Ok(advised)
    })
}
