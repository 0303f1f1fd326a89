//! Files and shared memory, call by call.
//!
//! Memfds and their seals, sizes and holes, reads and writes, `msync`, `mincore`, writeback.
//! Linux's results are those of Linux 6.18.
//!
//! Not covered here: races (`races.rs`), for which random programs search too.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::{CPU, FileHandle, OTHER, TestProcess, TestWorld, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals};
use pagewright_mm::space::SyncFlags;
use pagewright_mm::{Advice, FaultError, MapFlags, MmError};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Errno, PAGE_SIZE, Rights, VirtAddr};
use std::sync::Arc;

on_both! {
    memfd_create_honours_its_flags,
    seals_are_added_as_on_linux,
    write_seals_forbid_writes,
    size_seals_forbid_resizing,
    contents_live_until_closed_and_unmapped,
    truncation_spares_mappings_of_other_files,
    a_forgotten_file_is_freed_with_its_last_mapping,
    reads_and_writes_are_coherent_with_mappings,
    fallocate_adds_pages_and_punches_holes,
    truncation_zeroes_the_rest_of_the_last_page,
    msync_returns_what_linux_does,
    a_store_is_written_back_once,
    a_page_that_fails_to_be_written_stays_dirty,
    mincore_returns_what_linux_does,
    a_failed_allocation_leaks_nothing,
}

/// A memfd of `pages` pages without contents, which can be sealed.
pub(super) fn memfd<I: Isa>(world: &TestWorld<I>, pages: u64) -> FileHandle<I> {
    let file = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::ALLOW_SEALING)).expect("memory");
    truncate(world, &file, pages * PAGE_SIZE).expect("not sealed");
    file
}

fn truncate<I: Isa>(world: &TestWorld<I>, file: &FileHandle<I>, size: u64) -> Result<(), Errno> {
    world.on(CPU, |mm| mm.truncate(file, size)).map_err(MmError::errno)
}

fn seal<I: Isa>(world: &TestWorld<I>, file: &FileHandle<I>, seals: Seals) -> Result<(), Errno> {
    world.on(CPU, |mm| mm.add_seals(file, Rights::RW, seals)).map_err(MmError::errno)
}

fn fallocate<I: Isa>(
    world: &TestWorld<I>,
    file: &FileHandle<I>,
    (flags, offset, len): (u32, u64, u64),
) -> Result<(), Errno> {
    let flags = FallocateFlags::from_bits_retain(flags);
    world.on(CPU, |mm| mm.fallocate(file, flags, offset, len)).map_err(MmError::errno)
}

fn write<I: Isa>(world: &TestWorld<I>, file: &FileHandle<I>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
    world.on(CPU, |mm| mm.write_at(file, offset, bytes)).map_err(MmError::errno)
}

fn read<I: Isa>(world: &TestWorld<I>, file: &FileHandle<I>, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0xee; len];
    let done = world.on(CPU, |mm| mm.read_at(file, offset, &mut bytes)).map_err(MmError::errno)?;
    bytes.truncate(done);
    Ok(bytes)
}

const PUNCH: u32 = 3;

fn memfd_create_honours_its_flags<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let make = |name: &str, flags| world.on(CPU, |mm| mm.memfd_create(name, MemfdFlags::from_bits_retain(flags)));
    let refused = |name: &str, flags| make(name, flags).map(drop).map_err(MmError::errno);
    assert_eq!(refused("a", 0x20), Err(Errno::EINVAL));
    assert_eq!(refused("a", 0x18), Err(Errno::EINVAL));
    assert_eq!(refused("a", 1 << 26), Err(Errno::EINVAL));
    assert_eq!(refused("a", 4 | 0x18), Err(Errno::EINVAL));
    assert_eq!(refused("a", 4 | 21 << 26), Err(Errno::ENOSYS), "no huge pages");
    assert_eq!(refused(&"a".repeat(250), 0), Err(Errno::EINVAL));
    let cases =
        [(0, Seals::SEAL, true), (1, Seals::SEAL, true), (2, Seals::empty(), true), (0x12, Seals::empty(), true)];
    for (flags, seals, executable) in cases.into_iter().chain([(8, Seals::EXEC, false), (0xa, Seals::EXEC, false)]) {
        let file = make(&"a".repeat(249), flags).expect("a valid name");
        assert_eq!((file.seals(), file.is_executable(), file.size()), (Ok(seals), executable, 0), "{flags:#x}");
        world.on(CPU, |mm| mm.close_file(&file));
    }
    let file = make("name", 0).expect("a valid name");
    truncate(&world, &file, PAGE_SIZE).expect("not sealed");
    let process = TestProcess::new(&world);
    process.map_file(&file, Rights::READ, MapFlags::SHARED);
    let mut maps = String::new();
    world.on(CPU, |mm| mm.show_maps(&process.space, &mut maps)).expect("writing to a string");
    assert!(maps.trim_end().ends_with(" /memfd:name (deleted)"), "{maps}");
    world.on(CPU, |mm| mm.close_file(&file));
    process.end();
    world.assert_nothing_leaked();
}

/// INV-SEAL.
fn seals_are_added_as_on_linux<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = memfd(&world, 4);
    let read_only = world.on(CPU, |mm| mm.add_seals(&file, Rights::READ, Seals::SHRINK)).map_err(MmError::errno);
    assert_eq!(read_only, Err(Errno::EPERM));
    assert_eq!(seal(&world, &file, Seals::from_bits_retain(0x40)), Err(Errno::EINVAL));
    assert_eq!(
        seal(&world, &world.file_of(DiskFile::default(), 1), Seals::SHRINK),
        Err(Errno::EINVAL),
        "not shared memory"
    );
    // A shared mapping that may become writable prevents the seal, in any space; a private one does
    // not.
    let base = process.map_file(&file, Rights::READ, MapFlags::SHARED);
    let child = process.fork();
    process.unmap(at(base, 1), 1);
    process.unmap(base, 1);
    process.unmap(at(base, 2), 2);
    assert_eq!(seal(&world, &file, Seals::WRITE), Err(Errno::EBUSY), "the child maps it");
    assert_eq!(seal(&world, &file, Seals::EXEC), Err(Errno::EBUSY), "an executable file must not be written");
    assert_eq!(file.seals(), Ok(Seals::empty()));
    child.end();
    let private = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, private, 7);
    process.try_map_file(&file, (Rights::READ, Rights::READ), MapFlags::SHARED).expect("never writable");
    assert_eq!(seal(&world, &file, Seals::WRITE), Ok(()));
    assert_eq!(seal(&world, &file, Seals::GROW | Seals::WRITE), Ok(()), "sealed already");
    assert_eq!(seal(&world, &file, Seals::EXEC | Seals::SEAL), Ok(()));
    assert_eq!(file.seals(), Ok(Seals::all()), "an executable file gets all seals");
    assert_eq!(seal(&world, &file, Seals::SHRINK), Err(Errno::EPERM), "no more seals");
    process.end();
}

/// INV-SEAL.
fn write_seals_forbid_writes<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    for sealed in [Seals::WRITE, Seals::FUTURE_WRITE] {
        let process = TestProcess::new(&world);
        let file = memfd(&world, 4);
        let old = process.map_file(&file, Rights::RW, MapFlags::SHARED);
        process.write(CPU, old, 7);
        if sealed == Seals::WRITE {
            process.unmap(old, 4);
        }
        assert_eq!(seal(&world, &file, sealed), Ok(()));
        let map = |rights, opened, flags| process.try_map_file(&file, (rights, opened), flags).map_err(MmError::errno);
        assert_eq!(map(Rights::RW, Rights::RW, MapFlags::SHARED), Err(Errno::EPERM));
        assert_eq!(map(Rights::RW, Rights::READ, MapFlags::SHARED), Err(Errno::EACCES));
        let base = map(Rights::READ, Rights::RW, MapFlags::SHARED).expect("a readable mapping");
        let protected = world.on(CPU, |mm| mm.mprotect(&process.space, base, PAGE_SIZE, Rights::RW));
        assert_eq!(protected.map_err(MmError::errno), Err(Errno::EACCES));
        let remove =
            |at| world.on(CPU, |mm| mm.madvise(&process.space, at, PAGE_SIZE, Advice::Remove)).map_err(MmError::errno);
        assert_eq!(remove(base), Err(Errno::EACCES));
        assert_eq!(write(&world, &file, 0, b"a"), Err(Errno::EPERM));
        assert_eq!(write(&world, &file, 0, b""), Ok(0));
        assert_eq!(fallocate(&world, &file, (PUNCH, 0, PAGE_SIZE)), Err(Errno::EPERM));
        assert_eq!(fallocate(&world, &file, (0, 0, 5 * PAGE_SIZE)), Ok(()));
        let private = map(Rights::RW, Rights::RW, MapFlags::PRIVATE).expect("private mappings are allowed");
        process.write(CPU, private, 8);
        assert_eq!((process.read(CPU, base), process.read(CPU, private)), (7, 8));
        if sealed == Seals::FUTURE_WRITE {
            process.write(CPU, old, 9);
            assert_eq!((process.read(CPU, base), remove(old)), (9, Err(Errno::EPERM)));
            let child = process.fork();
            child.write(CPU, old, 10);
            assert_eq!(process.read(CPU, base), 10, "existing mappings stay writable, also in children");
            child.end();
        }
        assert_eq!(truncate(&world, &file, 0), Ok(()), "shrinking is not sealed");
        process.end();
        world.on(CPU, |mm| mm.close_file(&file));
    }
}

/// INV-SEAL.
fn size_seals_forbid_resizing<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let file = memfd(&world, 0);
    let size = 2 * PAGE_SIZE + 100;
    assert_eq!(truncate(&world, &file, size), Ok(()));
    assert_eq!(seal(&world, &file, Seals::GROW), Ok(()));
    assert_eq!(truncate(&world, &file, size + 1), Err(Errno::EPERM));
    let bytes = vec![1; 3 * PAGE_SIZE as usize];
    assert_eq!(write(&world, &file, 0, &bytes), Ok(2 * PAGE_SIZE as usize), "the pages within the size");
    assert_eq!(write(&world, &file, 2 * PAGE_SIZE, &bytes[..200]), Err(Errno::EPERM));
    assert_eq!(write(&world, &file, 2 * PAGE_SIZE, &bytes[..100]), Ok(100));
    for flags in [0, 1] {
        assert_eq!(fallocate(&world, &file, (flags, 0, 3 * PAGE_SIZE)), Err(Errno::EPERM));
    }
    assert_eq!(seal(&world, &file, Seals::SHRINK), Ok(()));
    assert_eq!(truncate(&world, &file, 10), Err(Errno::EPERM));
    assert_eq!(truncate(&world, &file, size), Ok(()));
    assert_eq!(fallocate(&world, &file, (PUNCH, PAGE_SIZE, PAGE_SIZE)), Ok(()), "a hole does not change the size");
    assert_eq!((file.size(), read(&world, &file, PAGE_SIZE, 2)), (size, Ok(vec![0, 0])));
    world.on(CPU, |mm| mm.close_file(&file));
}

fn truncation_spares_mappings_of_other_files<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let (cut, other) = (memfd(&world, 4), memfd(&world, 4));
    let process = TestProcess::new(&world);
    let mapped = process.map_file(&cut, Rights::RW, MapFlags::SHARED);
    let copies = process.map_file(&other, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, mapped, 7);
    process.write(CPU, copies, 8);
    assert_eq!(truncate(&world, &cut, 0), Ok(()));
    assert_eq!(process.read(CPU, copies), 8);
    process.end();
    [cut, other].iter().for_each(|file| world.on(CPU, |mm| mm.close_file(file)));
}

fn a_forgotten_file_is_freed_with_its_last_mapping<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let device = Arc::new(TestDisk::default());
    let handles = || Arc::strong_count(&device);
    let file = world.file_of(DiskFile(device.clone()), 4);
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, base, 7);
    let files = || {
        let mut files = 0;
        world.on(CPU, |mm| mm.for_each_file(|_| files += 1));
        files
    };
    assert_eq!((files(), handles()), (1, 2));
    world.on(CPU, |mm| mm.forget_file(&file));
    drop(file);
    assert_eq!((files(), handles()), (0, 2), "only its mapping keeps it");
    let child = process.fork();
    process.unmap(base, 4);
    assert_eq!(handles(), 2, "the child's mapping keeps it too");
    child.end();
    assert_eq!(handles(), 1);
    process.end();
}

fn contents_live_until_closed_and_unmapped<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = memfd(&world, 2);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    process.write(CPU, base, 7);
    process.unmap(base, 2);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    assert_eq!(process.read(CPU, base), 7, "the descriptor kept it");
    world.on(CPU, |mm| mm.close_file(&file));
    assert_eq!(process.read(CPU, base), 7, "the mapping keeps it");
    assert_eq!(world.lab.mm().gauge(Gauge::Shmem), 1);
    process.unmap(base, 2);
    assert_eq!(world.lab.mm().gauge(Gauge::Shmem), 0, "the last mapping is gone");
    process.end();
    world.assert_nothing_leaked();
}

fn reads_and_writes_are_coherent_with_mappings<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = memfd(&world, 0);
    assert_eq!(
        write(&world, &file, PAGE_SIZE - 4, &[1, 2, 3, 4, 5, 6, 7, 8]),
        Ok(8),
        "across pages, and the file grows"
    );
    assert_eq!(file.size(), PAGE_SIZE + 4);
    assert_eq!(read(&world, &file, PAGE_SIZE - 6, 64), Ok(vec![0, 0, 1, 2, 3, 4, 5, 6, 7, 8]));
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    assert_eq!(process.read(CPU, at(base, 1)), 0x0807_0605);
    process.write(CPU, at(base, 1), 0x0102_0304);
    assert_eq!(read(&world, &file, PAGE_SIZE, 4), Ok(vec![4, 3, 2, 1]));
    assert_eq!(truncate(&world, &file, 8 * PAGE_SIZE), Ok(()));
    assert_eq!(read(&world, &file, 5 * PAGE_SIZE, 4), Ok(vec![0; 4]));
    assert_eq!(world.lab.mm().gauge(Gauge::Shmem), 2, "a read of a missing page allocates none");
    assert_eq!(read(&world, &file, 9 * PAGE_SIZE, 4), Ok(vec![]));
    assert_eq!(read(&world, &file, 1 << 63, 4), Err(Errno::EINVAL));
    assert_eq!(write(&world, &file, 1 << 63, &[1]), Err(Errno::EINVAL));
    assert_eq!(write(&world, &file, i64::MAX as u64, &[1]), Err(Errno::EFBIG));
    // In the embedder's file, a partial write keeps the page's other bytes.
    let data = world.file_of(DiskFile::default(), 2);
    assert_eq!(write(&world, &data, PAGE_SIZE + 1, &[9]), Ok(1));
    assert_eq!(read(&world, &data, PAGE_SIZE, 3), Ok(vec![1, 9, 0]));
    assert_eq!(read(&world, &data, 2 * PAGE_SIZE - 1, 3), Ok(vec![0]));
    process.end();
    world.on(CPU, |mm| {
        mm.close_file(&file);
        mm.close_file(&data);
    });
    world.assert_nothing_leaked();
}

/// INV-FILE-REMOVED.
fn fallocate_adds_pages_and_punches_holes<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = memfd(&world, 8);
    let answers = [
        (2, PAGE_SIZE, PAGE_SIZE, Errno::EOPNOTSUPP),
        (0x10, PAGE_SIZE, PAGE_SIZE, Errno::EOPNOTSUPP),
        (0, PAGE_SIZE, 0, Errno::EINVAL),
        (0, 1 << 63, PAGE_SIZE, Errno::EINVAL),
        (0, 0, 1 << 63, Errno::EINVAL),
        (0, i64::MAX as u64, 1, Errno::EFBIG),
    ];
    for (flags, offset, len, errno) in answers {
        assert_eq!(fallocate(&world, &file, (flags, offset, len)), Err(errno), "{flags:#x} {offset:#x} {len:#x}");
    }
    assert_eq!(truncate(&world, &file, u64::MAX), Err(Errno::EFBIG));
    let shmem = || world.lab.mm().gauge(Gauge::Shmem);
    assert_eq!(fallocate(&world, &file, (0, PAGE_SIZE + 1, PAGE_SIZE)), Ok(()));
    assert_eq!((shmem(), file.size()), (2, 8 * PAGE_SIZE), "each page of the range");
    assert_eq!(fallocate(&world, &file, (1, 8 * PAGE_SIZE, PAGE_SIZE)), Ok(()));
    assert_eq!((shmem(), file.size()), (3, 8 * PAGE_SIZE), "preallocated past the end");
    assert_eq!(fallocate(&world, &file, (0, 8 * PAGE_SIZE, 10)), Ok(()));
    assert_eq!((shmem(), file.size()), (3, 8 * PAGE_SIZE + 10));
    let (shared, private) =
        (process.map_file(&file, Rights::RW, MapFlags::SHARED), process.map_file(&file, Rights::RW, MapFlags::PRIVATE));
    (0..8).for_each(|index| process.write(CPU, at(shared, index), index + 1));
    let last = |index| at(shared, index).add(PAGE_SIZE - 8);
    (0..8).for_each(|index| process.write(CPU, last(index), index + 1));
    process.write(CPU, at(private, 3), 40);
    assert_eq!(process.read(CPU, at(private, 4)), 5);
    process.touch(OTHER, at(shared, 4), Access::Read).expect("readable");
    assert_eq!(fallocate(&world, &file, (PUNCH, 2 * PAGE_SIZE + 8, 4 * PAGE_SIZE)), Ok(()));
    let firsts = [0, 1, 2, 3, 4, 5, 6, 7].map(|index| process.read(CPU, at(shared, index)));
    assert_eq!(firsts, [1, 2, 3, 0, 0, 0, 0, 8]);
    assert_eq!([1, 2, 5, 6].map(|index| process.read(CPU, last(index))), [2, 0, 0, 7], "partial pages are zeroed");
    assert_eq!([3, 4].map(|index| process.read(CPU, at(private, index))), [40, 0], "a private copy stays");
    assert_eq!(fallocate(&world, &file, (PUNCH, 8, 8)), Ok(()));
    assert_eq!((process.read(CPU, shared), process.read(CPU, last(0))), (1, 1), "a hole within a page");
    assert_eq!(fallocate(&world, &world.file_of(DiskFile::default(), 1), (0, 0, 1)), Err(Errno::EOPNOTSUPP));
    world.on(CPU, |mm| mm.close_file(&file));
    process.end();
}

fn truncation_zeroes_the_rest_of_the_last_page<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = memfd(&world, 2);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (0..4).for_each(|index| process.write(CPU, base.add(index * PAGE_SIZE / 2), index + 1));
    assert_eq!(truncate(&world, &file, 8), Ok(()));
    let va = at(base, 1);
    assert_eq!(process.touch(CPU, va, Access::Read), Err(FaultError::PastEnd { va }));
    assert_eq!(truncate(&world, &file, 2 * PAGE_SIZE), Ok(()));
    let words = [0, 1, 2, 3].map(|index| process.read(CPU, base.add(index * PAGE_SIZE / 2)));
    assert_eq!(words, [1, 0, 0, 0]);
    process.end();
}

fn msync_returns_what_linux_does<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(4);
    let sync = |at, len, flags| {
        let flags = SyncFlags::from_bits_retain(flags);
        world.on(CPU, |mm| mm.msync(&process.space, at, len, flags)).map_err(MmError::errno)
    };
    let (einval, enomem) = (Err(Errno::EINVAL), Err(Errno::ENOMEM));
    let answers = [
        (base, PAGE_SIZE, 0, Ok(())),
        (base, PAGE_SIZE, 8, einval),
        (base.add(1), PAGE_SIZE, 4, einval),
        (base, PAGE_SIZE, 5, einval),
        (base, u64::MAX, 4, Ok(())),
        (base, PAGE_SIZE.wrapping_neg(), 4, enomem),
        (base, 0, 4, Ok(())),
        (VirtAddr::new(PAGE_SIZE.wrapping_neg()), PAGE_SIZE, 4, enomem),
    ];
    for (at, len, flags, answer) in answers {
        assert_eq!(sync(at, len, flags), answer, "{at} {len:#x} {flags}");
    }
    world.on(CPU, |mm| mm.mlock(&process.space, base, PAGE_SIZE)).expect("within the limit");
    for (flags, answer) in [(2, Err(Errno::EBUSY)), (3, Err(Errno::EBUSY)), (4, Ok(()))] {
        assert_eq!(sync(base, PAGE_SIZE, flags), answer);
    }
    process.unmap(at(base, 2), 1);
    for flags in [0, 1, 4] {
        assert_eq!(sync(base, 4 * PAGE_SIZE, flags), enomem, "a hole, {flags}");
    }
    // With MS_SYNC pages after a hole are written; with MS_ASYNC nothing is.
    let device = Arc::new(TestDisk::default());
    let file = world.file_of(DiskFile(device.clone()), 3);
    let mapped = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (0..3).for_each(|index| process.write(CPU, at(mapped, index), 7));
    process.unmap(at(mapped, 1), 1);
    let written = || device.written.lock().expect("unpoisoned").len();
    assert_eq!((sync(mapped, 3 * PAGE_SIZE, 1), written()), (enomem, 0));
    assert_eq!((sync(mapped, 3 * PAGE_SIZE, 4), written()), (enomem, 2));
    process.end();
}

/// Maps a new file of `pages` pages on a disk.
fn map_disk_file<I: Isa>(process: &TestProcess<I>, pages: u64) -> (Arc<TestDisk>, FileHandle<I>, VirtAddr) {
    let device = Arc::new(TestDisk::default());
    let file = process.world.file_of(DiskFile(device.clone()), pages);
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    (device, file, base)
}

/// INV-FILE-CLEAN.
fn a_store_is_written_back_once<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let (device, file, base) = map_disk_file(&process, 4);
    let child = process.fork();
    let private = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.write(CPU, at(private, 3), 99);
    let sync = || {
        world.on(CPU, |mm| mm.msync(&process.space, base, 4 * PAGE_SIZE, SyncFlags::SYNC)).expect("mapped");
        std::mem::take(&mut *device.written.lock().expect("unpoisoned"))
    };
    process.read(CPU, at(base, 1));
    assert_eq!(sync(), [], "no page was stored to");
    process.write(CPU, base, 7);
    child.touch(OTHER, at(base, 2), Access::Write).expect("writable");
    assert_eq!(sync(), [(0, 7), (2, 2)]);
    assert_eq!(sync(), [], "all pages are clean");
    process.protect(base, 4, Rights::READ);
    process.protect(base, 4, Rights::RW);
    assert_eq!(sync(), [], "mprotect makes no page dirty");
    // A CPU whose entry was writable faults again.
    child.touch(OTHER, at(base, 2), Access::Write).expect("writable");
    process.write(CPU, base, 8);
    assert_eq!(sync(), [(0, 8), (2, 2)]);
    process.protect(base, 1, Rights::empty());
    process.protect(base, 1, Rights::RW);
    process.read(CPU, base);
    assert_eq!(sync(), [], "a load gives no right to store");
    process.write(CPU, base, 9);
    assert_eq!(sync(), [(0, 9)]);
    assert_eq!(write(&world, &file, 3 * PAGE_SIZE, &[5]), Ok(1));
    assert_eq!(sync(), [(3, 5)], "a write makes the page dirty too");
    assert_eq!(process.read(CPU, at(private, 3)), 99);
    child.end();
    process.end();
    world.on(CPU, |mm| mm.close_file(&file));
    world.assert_nothing_leaked();
}

fn a_page_that_fails_to_be_written_stays_dirty<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let (device, file, base) = map_disk_file(&process, 3);
    (0..3).for_each(|index| process.write(CPU, at(base, index), index + 7));
    *device.broken.lock().expect("unpoisoned") = Some(1);
    let back = || world.on(CPU, |mm| mm.write_back(&file, 0, 3 * PAGE_SIZE)).map_err(MmError::errno);
    assert_eq!(back(), Err(Errno::ENOSPC));
    assert_eq!(*device.written.lock().expect("unpoisoned"), [(0, 7), (2, 9)], "the other pages are written");
    *device.broken.lock().expect("unpoisoned") = None;
    assert_eq!(back(), Ok(()));
    assert_eq!(device.written.lock().expect("unpoisoned")[2..], [(1, 8)]);
    process.end();
}

fn mincore_returns_what_linux_does<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(4);
    process.write(CPU, base, 1);
    process.read(CPU, at(base, 2));
    assert_eq!(process.mincore(base, 4), Ok(vec![1, 0, 1, 0]), "the zero page is resident");
    let ask = |at, len| {
        let mut vec = [9; 8];
        (world.on(CPU, |mm| mm.mincore(&process.space, at, len, &mut vec)).map_err(MmError::errno), vec)
    };
    assert_eq!(ask(base.add(1), PAGE_SIZE).0, Err(Errno::EINVAL));
    assert_eq!(ask(base, 0), (Ok(()), [9; 8]));
    assert_eq!(ask(base, 1).1, [1, 9, 9, 9, 9, 9, 9, 9]);
    assert_eq!(ask(base, u64::MAX).0, Err(Errno::ENOMEM));
    assert_eq!(ask(I::USER_END, PAGE_SIZE).0, Err(Errno::ENOMEM));
    assert_eq!(ask(I::USER_END, 0).0, Ok(()));
    assert_eq!(ask(VirtAddr::new(1 << 60), 0).0, Err(Errno::ENOMEM));
    process.unmap(at(base, 2), 1);
    assert_eq!(ask(base, 4 * PAGE_SIZE), (Err(Errno::ENOMEM), [1, 0, 9, 9, 9, 9, 9, 9]), "up to the hole");
    let file = world.file_of(DiskFile::default(), 4);
    let mapped = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    assert_eq!(read(&world, &file, PAGE_SIZE, 1), Ok(vec![1]));
    assert_eq!(process.mincore(mapped, 4), Ok(vec![0, 1, 0, 0]), "cached but not mapped");
    process.write(CPU, at(mapped, 2), 1);
    let own = process.mincore(mapped, 4).expect("mapped");
    assert_eq!(own[2], 1, "a private copy");
    let foreign = world.file_of(DiskFile(Arc::new(TestDisk { foreign: true, ..TestDisk::default() })), 4);
    let mapped = process.map_file(&foreign, Rights::READ, MapFlags::PRIVATE);
    assert_eq!(process.mincore(mapped, 4), Ok(vec![1; 4]), "files of others are reported as resident");
    process.end();
}

fn a_failed_allocation_leaks_nothing<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let before = world.levels();
    let (mut depth, mut failures) = (0, 0);
    loop {
        world.lab.sim().fail_allocation_after(depth, AllocationFailure::One);
        let made = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::ALLOW_SEALING)).map_err(MmError::errno);
        let mut failed = made.is_err();
        if let Ok(file) = &made {
            let bytes = [1; 3 * PAGE_SIZE as usize];
            let written = write(&world, file, 0, &bytes);
            failed |= written != Ok(bytes.len());
            assert_eq!(file.size(), written.map_or(0, |bytes| bytes as u64), "the file grows by what was written");
            let kept = fallocate(&world, file, (1, 20 * PAGE_SIZE, 2 * PAGE_SIZE));
            failed |= kept.is_err();
            let room = fallocate(&world, file, (0, 4 * PAGE_SIZE, 4 * PAGE_SIZE));
            let size = if room.is_ok() { 8 * PAGE_SIZE } else { file.size() };
            assert_eq!(file.size(), size);
            failed |= room.is_err();
            if room.is_err() {
                assert_eq!(room, Err(Errno::ENOMEM));
                let kept = if kept.is_ok() { 2 } else { 0 };
                assert_eq!(world.lab.mm().gauge(Gauge::Shmem), file.pages() + kept, "past the end: what is kept");
            }
        }
        world.lab.sim().permit_allocations();
        if let Ok(file) = made {
            world.on(CPU, |mm| mm.close_file(&file));
        }
        assert_eq!(world.levels(), before, "after {depth} allocations");
        if !failed {
            break;
        }
        depth += 1;
        failures += 1;
    }
    assert!(failures >= 10, "only {failures} allocations could fail");
}

#[cfg(feature = "planted")]
#[test]
fn undoing_more_than_a_call_did_is_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::UndoesOtherPages, a_failed_allocation_leaks_nothing::<pagewright_arch::X86_64>);
    assert_found_by(PlantedBug::UndoesOtherPages, a_failed_allocation_leaks_nothing::<pagewright_arch::Aarch64>);
}
