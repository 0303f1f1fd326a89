//! The memory calls: from Linux's arguments to the memory manager's.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::memory::mm;
use crate::record;
use crate::task::{Answer, Thread};
use pagewright_arch::Isa;
use pagewright_mm::space::{FileMapping, SyncFlags};
use pagewright_mm::{
    Advice, LockAllFlags, LockFlags, MapFlags, MapRequest, MmError, Protection, RemapFlags, RemapRequest,
};
use pagewright_types::{PAGE_SIZE, Rights, VirtAddr};
use syscalls::Sysno;

/// Serves the calls of this file.
pub(super) fn serve(thread: &mut Thread, call: Sysno, a: Arguments) -> Answer {
    let space = &thread.space.0;
    match call {
        Sysno::mmap => mmap(thread, a),
        Sysno::munmap => {
            mm().munmap(space, address(a[0]), a[1])?;
            record::event(format_args!("munmap {:x} {:x}", a[0], a[1]));
            Ok(0)
        }
        Sysno::mprotect => {
            let protection = u32::try_from(a[2]).map_err(|_| Errno::EINVAL)?;
            mm().mprotect(space, address(a[0]), a[1], Protection::from_bits_retain(protection))?;
            record::event(format_args!("mprotect {:x} {:x} {:x}", a[0], a[1], a[2]));
            Ok(0)
        }
        Sysno::brk => {
            let end = mm().brk(space, address(a[0])).raw();
            record::event(format_args!("brk {:x} {end:x}", a[0]));
            Ok(end)
        }
        Sysno::madvise => madvise(thread, a),
        Sysno::mremap => {
            let flags = RemapFlags::from_bits(a[3] as u32).ok_or(Errno::EINVAL)?;
            let (addr, new_addr) = (address(a[0]), address(a[4]));
            let request = RemapRequest { addr, old_len: a[1], new_len: a[2], flags, new_addr };
            let at = mm().mremap(space, &request)?.raw();
            record::event(format_args!("mremap {:x} {:x} {:x} {:x} {:x} {at:x}", a[0], a[1], a[2], a[3], a[4]));
            Ok(at)
        }
        Sysno::mlock => {
            mm().mlock(space, address(a[0]), a[1])?;
            record::event(format_args!("mlock {:x} {:x} 0", a[0], a[1]));
            Ok(0)
        }
        Sysno::mlock2 => {
            mm().mlock2(space, address(a[0]), a[1], LockFlags::from_bits_retain(a[2] as u32))?;
            record::event(format_args!("mlock {:x} {:x} {:x}", a[0], a[1], a[2]));
            Ok(0)
        }
        Sysno::munlock => {
            mm().munlock(space, address(a[0]), a[1])?;
            record::event(format_args!("munlock {:x} {:x}", a[0], a[1]));
            Ok(0)
        }
        Sysno::mlockall => {
            mm().mlockall(space, LockAllFlags::from_bits_retain(a[0] as u32))?;
            record::event(format_args!("mlockall {:x}", a[0]));
            Ok(0)
        }
        Sysno::munlockall => {
            mm().munlockall(space);
            record::event(format_args!("munlockall"));
            Ok(0)
        }
        Sysno::msync => {
            mm().msync(space, address(a[0]), a[1], SyncFlags::from_bits_retain(a[2] as u32))?;
            record::event(format_args!("msync {:x} {:x} {:x}", a[0], a[1], a[2]));
            Ok(0)
        }
        Sysno::mseal => {
            mm().mseal(space, address(a[0]), a[1], u32::try_from(a[2]).map_err(|_| Errno::EINVAL)?)?;
            Ok(0)
        }
        other => unreachable!("{other} is not a memory call"),
    }
}

fn mmap(thread: &mut Thread, a: Arguments) -> Answer {
    let [addr, len, protection, flags, descriptor, offset] = a;
    // Flags that are not known are ignored, as by Linux without MAP_SHARED_VALIDATE.
    let flags = MapFlags::from_bits_truncate(flags as u32);
    let addr = VirtAddr::new(addr);
    let rights = Protection::from_bits_retain(protection as u32).rights();
    if flags.contains(MapFlags::ANONYMOUS) {
        let request = MapRequest { addr, len, rights, flags, file: None };
        let at = mm().mmap(&thread.space.0, &request)?.raw();
        record::event(format_args!("mmap {addr:x} {len:x} {protection:x} {:x} 0 {at:x} -", flags.bits()));
        return Ok(at);
    }
    let open = thread.files.lock().get(descriptor)?.open.clone();
    let node = open.node().ok_or(Errno::ENODEV)?;
    let object = node.object()?;
    let mut opened = Rights::EXEC;
    opened.set(Rights::READ, open.can_read());
    opened.set(Rights::WRITE, open.can_write());
    let file = Some(FileMapping { file: &object, offset, opened });
    let at = mm().mmap(&thread.space.0, &MapRequest { addr, len, rights, flags, file })?.raw();
    let path = &node.path;
    record::event(format_args!("mmap {addr:x} {len:x} {protection:x} {:x} {offset:x} {at:x} {path}", flags.bits()));
    Ok(at)
}

fn madvise(thread: &Thread, a: Arguments) -> Answer {
    let [addr, len, advice, ..] = a;
    mm().madvise(&thread.space.0, address(addr), len, Advice::from_raw(advice as u32)?)?;
    record::event(format_args!("madvise {addr:x} {len:x} {advice:x}"));
    Ok(0)
}

/// Pages that `mincore` is told of at a time (Linux takes a page of answers).
const PAGES_AT_ONCE: u64 = PAGE_SIZE;

/// Serves `mincore`, which writes what it finds to the program's memory.
pub(super) fn mincore(thread: &Thread, a: Arguments) -> Answer {
    let [addr, len, to, ..] = a;
    if !address(addr).is_page_aligned() {
        return Err(Errno::EINVAL.into());
    }
    let user_end = <<pagewright_hal::Machine as pagewright_arch::Effects>::Isa as Isa>::USER_END.raw();
    if addr.checked_add(len).is_none_or(|end| end > user_end) {
        return Err(Errno::ENOMEM.into());
    }
    let pages = len.div_ceil(PAGE_SIZE);
    if to.checked_add(pages).is_none_or(|end| end > user_end) {
        return Err(Errno::EFAULT.into());
    }
    let mut answers = alloc::vec![0; pages.min(PAGES_AT_ONCE) as usize];
    let mut done = 0;
    while done < pages {
        let now = (pages - done).min(PAGES_AT_ONCE);
        let start = addr + done * PAGE_SIZE;
        let answered = mm().mincore(&thread.space.0, address(start), now * PAGE_SIZE, &mut answers);
        // What lies before a hole has been answered.
        let known = match answered {
            Err(MmError::NotMapped { at }) => at.since(address(start)) / PAGE_SIZE,
            Ok(()) | Err(_) => now,
        };
        thread.space.write(address(to + done), &answers[..known as usize])?;
        answered?;
        done += now;
    }
    record::event(format_args!("mincore {addr:x} {len:x}"));
    Ok(0)
}
