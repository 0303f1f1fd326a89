//! The memory calls: from Linux's arguments to the memory manager's.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::memory::mm;
use crate::task::{Answer, Thread};
use pagewright_mm::space::FileMapping;
use pagewright_mm::{Advice, MapFlags, MapRequest};
use pagewright_types::{Rights, VirtAddr};
use syscalls::Sysno;

/// Serves the calls of this file.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    let space = &thread.space.0;
    match call {
        Sysno::mmap => mmap(thread, a),
        Sysno::munmap => {
            mm().munmap(space, address(a[0]), a[1])?;
            Ok(0)
        }
        Sysno::mprotect => {
            mm().mprotect(space, address(a[0]), a[1], rights(a[2])?)?;
            Ok(0)
        }
        Sysno::brk => Ok(mm().brk(space, address(a[0])).raw()),
        Sysno::madvise => madvise(thread, a),
        other => unreachable!("{other} is not a memory call"),
    }
}

fn rights(protection: u64) -> Result<Rights, Errno> {
    u8::try_from(protection).ok().and_then(Rights::from_bits).ok_or(Errno::EINVAL)
}

fn mmap(thread: &mut Thread, a: Arguments) -> Answer {
    let [addr, len, protection, flags, descriptor, offset] = a;
    // Flags that are not known are ignored, as by Linux without MAP_SHARED_VALIDATE.
    let flags = MapFlags::from_bits_truncate(flags as u32);
    let addr = VirtAddr::new(addr);
    let rights = rights(protection)?;
    if flags.contains(MapFlags::ANONYMOUS) {
        let request = MapRequest { addr, len, rights, flags, file: None };
        return Ok(mm().mmap(&thread.space.0, &request)?.raw());
    }
    let open = thread.files.lock().get(descriptor)?.open.clone();
    let node = open.node().ok_or(Errno::ENODEV)?;
    let object = node.object()?;
    let mut opened = Rights::EXEC;
    opened.set(Rights::READ, open.can_read());
    opened.set(Rights::WRITE, open.can_write());
    let file = Some(FileMapping { file: &object, offset, opened });
    Ok(mm().mmap(&thread.space.0, &MapRequest { addr, len, rights, flags, file })?.raw())
}

fn madvise(thread: &Thread, a: Arguments) -> Answer {
    let [addr, len, advice, ..] = a;
    mm().madvise(&thread.space.0, address(addr), len, Advice::from_raw(advice as u32)?)?;
    Ok(0)
}
