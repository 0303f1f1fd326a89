//! `shmget`, `shmat`, `shmdt`, `shmctl`: System V shared memory; `remap_file_pages`.

use super::{Arguments, address};
use crate::errno::Errno;
use crate::memory::mm;
use crate::record;
use crate::shm::{self, Segment, segments};
use crate::task::{SyscallResult, Thread, scheduler};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use pagewright_hal::Machine;
use pagewright_mm::space::{FileMapping, VmFlags};
use pagewright_mm::{MapFlags, MapRequest};
use pagewright_types::{PAGE_SIZE, PageRange, Rights, VirtAddr};

const RDONLY: u32 = 0o10000;
const RND: u32 = 0o20000;
const REMAP: u32 = 0o40000;
const EXEC: u32 = 0o100_000;
const IPC_RMID: u32 = 0;
const IPC_SET: u32 = 1;
const IPC_STAT: u32 = 2;
const IPC_INFO: u32 = 3;
const SHM_LOCK: u32 = 11;
const SHM_UNLOCK: u32 = 12;
const SHM_STAT: u32 = 13;
const SHM_INFO: u32 = 14;
const SHM_STAT_ANY: u32 = 15;

/// `shmget`.
pub(super) fn shmget(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let id = segments().get(a[0] as i32, a[1], a[2] as u32, thread.process.0, &thread.credentials)?;
    Ok(id.into())
}

/// `shmat` (`do_shmat`).
pub(super) fn shmat(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (id, mut at, flags) = (a[0] as i32, address(a[1]), a[2] as u32);
    if id < 0 {
        return Err(Errno::EINVAL.into());
    }
    if !at.is_page_aligned() {
        if flags & RND == 0 {
            return Err(Errno::EINVAL.into());
        }
        at = at.align_down(PAGE_SIZE);
    }
    let is_placed = at > VirtAddr::ZERO;
    if !is_placed && flags & REMAP != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut rights = Rights::READ;
    rights.set(Rights::WRITE, flags & RDONLY == 0);
    rights.set(Rights::EXEC, flags & EXEC != 0);
    let (object, len) = {
        let mut segments = segments();
        let segment = segments.find(id)?;
        let wanted = 0o444 | if rights.contains(Rights::WRITE) { 0o222 } else { 0 };
        segment.access(wanted | if rights.contains(Rights::EXEC) { 0o111 } else { 0 }, &thread.credentials)?;
        (segment.object.clone(), segment.size)
    };
    let mut map_flags = MapFlags::SHARED;
    if is_placed {
        map_flags |= if flags & REMAP != 0 { MapFlags::FIXED } else { MapFlags::FIXED_NOREPLACE };
    }
    let opened = if rights.contains(Rights::WRITE) { Rights::all() } else { Rights::RX };
    let file = FileMapping { file: &object, offset: 0, opened };
    let request = MapRequest { addr: at, len, rights, flags: map_flags, file: Some(file) };
    let mapped = map_and_record(thread, &request);
    // Linux looks for the overlap itself, and says so by another error.
    let at = mapped.map_err(|error| if error == Errno::EEXIST { Errno::EINVAL } else { error })?;
    if let Ok(segment) = segments().find(id) {
        (segment.attached, segment.last) = (shm::now(), thread.process.0);
    }
    Ok(at.raw())
}

/// `shmdt`: unmaps the parts of the segment that is attached at an address (`ksys_shmdt`).
pub(super) fn shmdt(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let at = address(a[0]);
    if !at.is_page_aligned() {
        return Err(Errno::EINVAL.into());
    }
    let (parts, object) = {
        let map = thread.space.0.map().read();
        let segments = &mut *segments();
        // The first mapping that would be in its place in a segment attached here.
        let in_place = |start: u64, pgoff: u64| start.checked_sub(at.page_index()) == Some(pgoff);
        let mut attached = map.iter().filter_map(|(start, vma)| {
            let file = vma.file().filter(|_| in_place(start, vma.pgoff()))?;
            segments.of_object(file).map(|segment| (start, vma.end(), file.clone(), segment.size))
        });
        let (start, end, object, size) = attached.next().ok_or(Errno::EINVAL)?;
        let limit = at.page_index() + size.div_ceil(PAGE_SIZE);
        let same = attached.filter(|(_, end, file, _)| *end <= limit && file.id() == object.id());
        let parts: Vec<(u64, u64)> = core::iter::once((start, end)).chain(same.map(|part| (part.0, part.1))).collect();
        (parts, object)
    };
    for (start, end) in parts {
        let range = PageRange::new(VirtAddr::from_page_index(start), VirtAddr::from_page_index(end));
        record::ordered(|| {
            mm().munmap(&thread.space.0, range.start(), range.len())?;
            record::event(format_args!("munmap {:x} {:x}", range.start().raw(), range.len()));
            Ok::<(), Errno>(())
        })?;
    }
    if let Some(segment) = segments().of_object(&object) {
        (segment.detached, segment.last) = (shm::now(), thread.process.0);
    }
    Ok(0)
}

/// `shmctl`.
pub(super) fn shmctl(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (id, command) = (a[0] as i32, a[1] as u32);
    if id < 0 || (command as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    match command {
        IPC_RMID => {
            let mut segments = segments();
            segments.find(id)?.own(&thread.credentials)?;
            segments.remove(id)?;
            Ok(0)
        }
        IPC_SET => {
            let bytes: [u8; 24] = thread.space.read_array(address(a[2]))?;
            let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let mut segments = segments();
            let segment = segments.find(id)?;
            segment.own(&thread.credentials)?;
            (segment.uid, segment.gid) = (word(4), word(8));
            segment.mode = segment.mode & !0o777 | word(20) & 0o777;
            segment.changed = shm::now();
            Ok(0)
        }
        // An index is the number of its segment.
        IPC_STAT | SHM_STAT | SHM_STAT_ANY => {
            let bytes = {
                let mut segments = segments();
                let segment = segments.find(id)?;
                if command != SHM_STAT_ANY {
                    segment.access(0o444, &thread.credentials)?;
                }
                describe(segment)
            };
            thread.space.write(address(a[2]), &bytes)?;
            Ok(if command == IPC_STAT { 0 } else { a[0] })
        }
        IPC_INFO => {
            // `struct shminfo64`.
            let most = shm::COUNT_MAX as u64;
            let words = [shm::size_limit(), 1, most, most, shm::SIZE_MAX, 0, 0, 0, 0];
            store_words(thread, address(a[2]), &words)?;
            Ok(segments().last_id())
        }
        SHM_INFO => {
            let (words, last) = {
                let segments = segments();
                let (count, pages, resident) = segments.totals();
                // `struct shm_info`.
                ([count, pages, resident, 0, 0, 0], segments.last_id())
            };
            store_words(thread, address(a[2]), &words)?;
            Ok(last)
        }
        SHM_LOCK => {
            let limit = scheduler().process(thread.process).limits.get(linux::RLIMIT_MEMLOCK)?.soft;
            segments().lock(id, limit, &thread.credentials)?;
            Ok(0)
        }
        SHM_UNLOCK => {
            segments().unlock(id, &thread.credentials)?;
            Ok(0)
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

fn store_words(thread: &Thread, to: VirtAddr, words: &[u64]) -> Result<(), Errno> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    thread.space.write(to, &bytes)
}

/// `remap_file_pages`, which maps a part of a shared file anew, as Linux emulates it.
///
/// Another thread that changes the mapping at the same time can be overtaken.
pub(super) fn remap_file_pages(thread: &mut Thread, a: Arguments) -> SyscallResult {
    let (start, pages, protection, offset) = (address(a[0]).align_down(PAGE_SIZE), a[1] / PAGE_SIZE, a[2], a[3]);
    let len = pages * PAGE_SIZE;
    let end = start.checked_add(len).filter(|end| *end > start).ok_or(Errno::EINVAL)?;
    if protection != 0 || offset.checked_add(pages).is_none() {
        return Err(Errno::EINVAL.into());
    }
    let offset = offset.checked_mul(PAGE_SIZE).ok_or(Errno::EOVERFLOW)?;
    let (file, rights, opened, locked) = {
        let map = thread.space.0.map().read();
        let (at, first) = map.find(start).ok_or(Errno::EINVAL)?;
        let file = first.file().filter(|_| first.flags().contains(VmFlags::SHARED)).ok_or(Errno::EINVAL)?;
        // The whole range must be mapped from the file in the same way.
        let mut mapped = first.range(at).end();
        while mapped < end {
            let (next, vma) = map.find(mapped).ok_or(Errno::EINVAL)?;
            let is_same = vma.file().is_some_and(|other| other.id() == file.id()) && vma.flags() == first.flags();
            if !is_same || vma.rights() != first.rights() {
                return Err(Errno::EINVAL.into());
            }
            mapped = vma.range(next).end();
        }
        (file.clone(), first.rights(), first.max_rights(), first.flags().contains(VmFlags::LOCKED))
    };
    let mut flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
    flags |= MapFlags::from_bits_truncate(a[4] as u32) & MapFlags::NONBLOCK;
    flags.set(MapFlags::LOCKED, locked);
    let mapping = FileMapping { file: &file, offset, opened };
    map_and_record(thread, &MapRequest { addr: start, len, rights, flags, file: Some(mapping) })?;
    Ok(0)
}

/// Maps a file, and records it.
fn map_and_record(thread: &Thread, request: &MapRequest<'_, Machine>) -> Result<VirtAddr, Errno> {
    record::ordered(|| {
        let mapped = mm().mmap(&thread.space.0, request).map_err(Errno::from)?;
        let MapRequest { addr, len, rights, flags, ref file } = *request;
        let (addr, protection, bits, mapped_at) = (addr.raw(), rights.bits(), flags.bits(), mapped.raw());
        if let Some(FileMapping { file, offset, .. }) = file {
            let path = file.name();
            record::event(format_args!(
                "mmap {addr:x} {len:x} {protection:x} {bits:x} {offset:x} {mapped_at:x} {path}"
            ));
        }
        Ok(mapped)
    })
}

/// `struct shmid64_ds`.
fn describe(segment: &Segment) -> [u8; 112] {
    let mut bytes = [0; 112];
    let halves = [
        (0, segment.key.cast_unsigned()),
        (4, segment.uid),
        (8, segment.gid),
        (12, segment.creator_uid),
        (16, segment.creator_gid),
        (20, segment.mode),
        (80, segment.creator),
        (84, segment.last),
    ];
    for (at, half) in halves {
        bytes[at..at + 4].copy_from_slice(&half.to_le_bytes());
    }
    let words = [
        (48, segment.size),
        (56, segment.attached),
        (64, segment.detached),
        (72, segment.changed),
        (88, segment.object.mappings()),
    ];
    for (at, word) in words {
        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
