//! What random programs beside Linux found, and what Linux does that they cannot show.
//!
//! The tests run on both instruction sets.
//!
//! What Linux answers was asked of Linux 6.18, but for arm64's `MAP_32BIT`, which is none.

use pagewright_arch::Isa;
use pagewright_arch::on_both;
use pagewright_lab::harness::files::{DiskFile, TestDisk};
use pagewright_lab::harness::{ANON, CPU, TestProcess, at};
use pagewright_mm::counters::Gauge;
use pagewright_mm::file::{FallocateFlags, MemfdFlags, Seals, Tmpfs, TmpfsFileOps};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::{FileMapping, Privileges, Resource, Rlimit, Rlimits};
use pagewright_mm::{
    Advice, FaultError, LockFlags, MapFlags, MapRequest, MmError, MmSetting, Protection, RemapFlags, RemapRequest,
};
use pagewright_types::{Access, Errno, PAGE_SIZE, PageRange, Rights, VirtAddr};

on_both! {
    a_page_with_another_reference_is_not_sealed_against_writing,
    limits_are_raised_by_those_who_may,
    no_data_at_all_means_as_much_as_may_be,
    protection_of_a_whole_stack,
    what_can_only_be_stored_to_can_be_read,
    what_can_only_be_stored_to_is_read_in,
    low_and_high_places,
    nothing_is_mapped_too_low,
    a_tmpfs_is_full,
    files_of_others_on_a_tmpfs_tell_nothing,
    data_and_holes_of_shared_memory,
    files_of_a_tmpfs_that_forbids_it_are_not_executed,
    a_move_is_no_peak,
    a_child_keeps_pages_of_its_parent_apart,
    what_is_locked_does_not_go,
    what_was_writable_is_not_copied_because_it_is_locked,
    unlocking_what_is_not_locked_joins_nothing,
    flags_are_told_apart,
    clean_pages_of_files_go_when_told,
    pages_of_files_of_others_stay,
    locked_pages_are_out_of_the_way_at_once,
}

/// INV-SEAL.
fn a_page_with_another_reference_is_not_sealed_against_writing<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::ALLOW_SEALING)).expect("memory");
    world.on(CPU, |mm| mm.truncate(&file, 2 * PAGE_SIZE)).expect("not sealed");
    let seal = || world.on(CPU, |mm| mm.add_seals(&file, Rights::RW, Seals::WRITE)).map_err(MmError::errno);
    for write in [GupFlags::WRITE, GupFlags::empty()] {
        let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
        let range = PageRange::page(at(base, 1));
        let pages = world.on(CPU, |mm| mm.pin_user_pages(&process.space, range, write)).expect("there");
        assert_eq!(seal(), Err(Errno::EBUSY), "mapped");
        process.unmap(base, 2);
        assert_eq!(seal(), Err(Errno::EBUSY), "pinned");
        assert_eq!(file.seals(), Ok(Seals::empty()));
        world.on(CPU, |mm| mm.release_user_pages(pages, MakeDirty::Yes));
    }
    // A mapping that cannot write does not prevent the seal, nor do its pages.
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.touch(CPU, at(base, 1), Access::Read).expect("mapped");
    assert_eq!(seal(), Ok(()));
    process.end();
    world.on(CPU, |mm| mm.close_file(&file));
}

fn limits_are_raised_by_those_who_may<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let resource = Resource::AddressSpace;
    let set = |soft, hard| world.on(CPU, |mm| mm.set_limit(&process.space, resource, Rlimit { soft, hard }));
    let none = Rlimits::INFINITY;
    assert_eq!(set(none, none), Ok(Rlimit { soft: none, hard: none }));
    assert_eq!(set(9, 8).map_err(MmError::errno), Err(Errno::EINVAL));
    assert_eq!(set(1 << 20, 1 << 30), Ok(Rlimit { soft: none, hard: none }));
    assert_eq!(set(1 << 30, 1 << 30), Ok(Rlimit { soft: 1 << 20, hard: 1 << 30 }), "as far as the hard one");
    assert_eq!(set(1 << 20, none).map_err(MmError::errno), Err(Errno::EPERM));
    let limits = *process.space.map().read().limits();
    assert_eq!(limits.limit(resource), Rlimit { soft: 1 << 30, hard: 1 << 30 }, "nothing has changed");
    world.on(CPU, |mm| mm.set_limits(&process.space, limits.with_privileges(Privileges::SYS_RESOURCE)));
    assert_eq!(set(1 << 20, none), Ok(Rlimit { soft: 1 << 30, hard: 1 << 30 }));
    process.end();
}

fn no_data_at_all_means_as_much_as_may_be<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let limit = |soft, hard| {
        let limits = Rlimits::default().with_limit(Resource::Data, Rlimit { soft, hard });
        world.on(CPU, |mm| mm.set_limits(&process.space, limits));
    };
    let map = |pages| {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let request =
            MapRequest { addr: VirtAddr::ZERO, len: pages * PAGE_SIZE, rights: Rights::RW, flags, file: None };
        world.on(CPU, |mm| mm.mmap(&process.space, &request)).map(drop).map_err(MmError::errno)
    };
    limit(0, 4 * PAGE_SIZE);
    assert_eq!((map(5), map(4), map(1)), (Err(Errno::ENOMEM), Ok(()), Err(Errno::ENOMEM)));
    limit(1, Rlimits::INFINITY);
    assert_eq!(map(1), Err(Errno::ENOMEM), "a limit of something is one");
    process.end();
}

fn protection_of_a_whole_stack<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    let base = process.map_at(VirtAddr::new(1 << 32), 8, Rights::RW, fixed | MapFlags::GROWSDOWN);
    let other = process.map_at(at(base, 16), 4, Rights::RW, fixed);
    let protect = |at, pages, protection| {
        let len = pages * PAGE_SIZE;
        world.on(CPU, |mm| mm.mprotect(&process.space, at, len, protection)).map_err(MmError::errno)
    };
    let rights = |at| process.space.map().read().find(at).expect("mapped").1.rights();
    let whole = Protection::GROWSDOWN | Protection::READ;
    assert_eq!(protect(at(base, 5), 1, whole | Protection::GROWSUP), Err(Errno::EINVAL));
    assert_eq!(protect(at(base, 5), 0, Protection::from_bits_retain(0x10)), Ok(()), "no bytes, no question");
    assert_eq!(protect(at(base, 5), 1, Protection::from_bits_retain(0x10)), Err(Errno::EINVAL));
    assert_eq!(protect(at(base, 5), 1, Protection::GROWSUP), Err(Errno::EINVAL));
    assert_eq!(protect(at(other, 1), 1, whole), Err(Errno::EINVAL), "no stack");
    assert_eq!(protect(at(other, 8), 1, whole), Err(Errno::ENOMEM), "nothing there");
    assert_eq!(protect(at(base, 5), 1, Protection::SEM | Protection::READ | Protection::WRITE), Ok(()));
    assert_eq!((rights(base), rights(at(base, 5))), (Rights::RW, Rights::RW));
    assert_eq!(protect(at(base, 5), 1, whole), Ok(()));
    assert_eq!((rights(base), rights(at(base, 5)), rights(at(base, 6))), (Rights::READ, Rights::READ, Rights::RW));
    // From below: the first stack that the range meets.
    assert_eq!(protect(VirtAddr::new(base.raw() - 4 * PAGE_SIZE), 5, Protection::GROWSDOWN), Ok(()));
    assert_eq!((rights(base), rights(at(base, 1))), (Rights::empty(), Rights::READ));
    process.end();
}

/// A page that is there stays at hand, even if its first store must be noticed.
fn what_can_only_be_stored_to_can_be_read<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let file = world.file_of(DiskFile::default(), 1);
    let base = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    process.touch(CPU, base, Access::Read).expect("mapped");
    process.protect(base, 1, Rights::WRITE);
    let faults = process.space.minor_faults();
    process.touch(CPU, base, Access::Read).expect("whatever can be written can be read");
    let had = world.on(CPU, |mm| mm.get_user_pages_fast(&process.space, PageRange::page(base), GupFlags::empty()));
    world.on(CPU, |mm| mm.release_user_pages(had.expect("without asking what the mapping allows"), MakeDirty::No));
    assert_eq!(process.space.minor_faults(), faults);
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
}

/// Nor is a page that comes with the load out of reach.
fn what_can_only_be_stored_to_is_read_in<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let file = world.file_of(DiskFile::default(), 1);
    let (zero, swapped) = (process.map(1, Rights::WRITE, ANON, None), process.anon(1));
    let of_file = process.map_file(&file, Rights::WRITE, MapFlags::PRIVATE);
    process.write(CPU, swapped, 7);
    process.protect(swapped, 1, Rights::WRITE);
    process.advise(swapped, 1, Advice::PageOut);
    assert_eq!((process.read(CPU, zero), process.read(CPU, swapped)), (0, 7));
    process.touch(CPU, of_file, Access::Read).expect("whatever can be written can be read");
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
}

fn low_and_high_places<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let map = |addr, pages: u64, flags| {
        let flags = flags | MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let request = MapRequest {
            addr,
            len: pages * PAGE_SIZE,
            rights: Rights::RW,
            flags: flags | MapFlags::NORESERVE,
            file: None,
        };
        world.on(CPU, |mm| mm.mmap(&process.space, &request)).map_err(MmError::errno)
    };
    let anywhere = map(VirtAddr::ZERO, 1, MapFlags::empty()).expect("room");
    let (low, hint) = (VirtAddr::new(1 << 30), VirtAddr::new(3 << 30));
    let Some(place) = I::LOW_MAPPINGS else {
        assert_eq!(
            map(VirtAddr::ZERO, 1, MapFlags::LOW),
            Ok(VirtAddr::new(anywhere.raw() - PAGE_SIZE)),
            "no such flag"
        );
        process.end();
        return;
    };
    assert_eq!((place.start(), map(VirtAddr::ZERO, 1, MapFlags::LOW)), (low, Ok(low)));
    assert_eq!(map(VirtAddr::ZERO, 1, MapFlags::LOW), Ok(at(low, 1)), "from below");
    assert_eq!(map(at(low, 9), 1, MapFlags::LOW), Ok(at(low, 9)), "a hint in it");
    assert_eq!(map(hint, 2, MapFlags::LOW), Ok(at(low, 2)), "a hint above it");
    assert_eq!(map(VirtAddr::ZERO, (1 << 30) / PAGE_SIZE, MapFlags::LOW), Err(Errno::ENOMEM), "too much for it");
    assert_eq!(map(hint, 1, MapFlags::LOW | MapFlags::FIXED), Ok(hint), "a fixed place is where it is");
    // All that is above is taken: without the flag what is below is given.
    let four_gb = VirtAddr::new(4 << 30);
    let above = anywhere.since(four_gb) / PAGE_SIZE;
    assert_eq!(map(four_gb, above, MapFlags::FIXED), Ok(four_gb));
    assert_eq!(map(VirtAddr::ZERO, 1, MapFlags::empty()), Ok(VirtAddr::new(four_gb.raw() - PAGE_SIZE)));
    let last = map(VirtAddr::ZERO, 1, MapFlags::ABOVE4G).expect("above where they usually go");
    assert!(last > anywhere, "{last}");
    assert_eq!(map(at(low, 20), 1, MapFlags::ABOVE4G), Ok(at(low, 20)), "a hint comes first");
    process.end();
}

fn nothing_is_mapped_too_low<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let low = VirtAddr::new(0x8000);
    let map = |flags| {
        let flags = flags | MapFlags::PRIVATE | MapFlags::ANONYMOUS;
        let request = MapRequest { addr: low, len: PAGE_SIZE, rights: Rights::RW, flags, file: None };
        world.on(CPU, |mm| mm.mmap(&process.space, &request)).map_err(MmError::errno)
    };
    assert_eq!(map(MapFlags::FIXED), Err(Errno::EPERM));
    assert_eq!(map(MapFlags::FIXED_NOREPLACE), Err(Errno::EPERM));
    let least = VirtAddr::new(MmSetting::MmapMinAddr.default());
    assert_eq!(map(MapFlags::GROWSDOWN), Ok(least), "a hint is moved up");
    assert!(process.touch(CPU, VirtAddr::new(least.raw() - 8), Access::Write).is_err(), "nor does a stack go there");
    let request = RemapRequest {
        addr: least,
        old_len: PAGE_SIZE,
        new_len: PAGE_SIZE,
        flags: RemapFlags::MAYMOVE | RemapFlags::FIXED,
        new_addr: low,
    };
    let moved = || world.on(CPU, |mm| mm.mremap(&process.space, &request)).map_err(MmError::errno);
    assert_eq!(moved(), Err(Errno::EPERM));
    let limits = *process.space.map().read().limits();
    world.on(CPU, |mm| mm.set_limits(&process.space, limits.with_privileges(Privileges::SYS_RAWIO)));
    assert_eq!((moved(), map(MapFlags::FIXED)), (Ok(low), Ok(low)));
    process.end();
}

/// What the program may do with a file: whether it could write it.
struct TestAccess(bool);

impl TmpfsFileOps for TestAccess {
    fn could_be_written(&self) -> bool {
        self.0
    }
}

/// A file of another user does not tell which of its pages are cached (`can_do_mincore`).
///
/// Its pages stay, too (`can_do_file_pageout`).
fn files_of_others_on_a_tmpfs_tell_nothing<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let tmpfs = Tmpfs::try_new(8, true).expect("memory");
    for (own, cached, kept) in [(true, vec![1, 0, 1], vec![0, 0, 0]), (false, vec![1; 3], vec![1; 3])] {
        let access = Box::new(TestAccess(own));
        let file = world.on(CPU, |mm| mm.add_tmpfs_file(&tmpfs, "/tmp/file", 3 * PAGE_SIZE, access)).expect("memory");
        let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
        for index in [0, 2] {
            process.write(CPU, at(base, index), index);
        }
        assert_eq!(process.mincore(base, 3), Ok(cached), "own: {own}");
        world.on(CPU, |mm| mm.madvise(&process.space, base, 3 * PAGE_SIZE, Advice::PageOut)).expect("mapped");
        assert_eq!(process.space.rss().pages(), if own { 0 } else { 2 });
        assert_eq!(process.mincore(base, 3), Ok(kept), "own: {own}");
        process.unmap(base, 3);
        world.on(CPU, |mm| mm.close_file(&file));
    }
    process.end();
}

/// `size=` of a mounted tmpfs.
fn a_tmpfs_is_full<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let tmpfs = Tmpfs::try_new(3, true).expect("memory");
    let add = |name| {
        world.on(CPU, |mm| mm.add_tmpfs_file(&tmpfs, name, 8 * PAGE_SIZE, Box::new(TestAccess(true)))).expect("memory")
    };
    let (one, other) = (add("/tmp/one"), add("/tmp/other"));
    let errno = |done: Result<(), MmError>| done.map_err(MmError::errno);
    let allocate = |from, pages| {
        let (from, len) = (from * PAGE_SIZE, pages * PAGE_SIZE);
        errno(world.on(CPU, |mm| mm.fallocate(&other, FallocateFlags::KEEP_SIZE, from, len)))
    };
    let base = process.map_file(&one, Rights::RW, MapFlags::SHARED);
    for index in [0, 5] {
        process.touch(CPU, at(base, index), Access::Write).expect("room");
    }
    assert_eq!((allocate(0, 4), tmpfs.used()), (Err(Errno::ENOSPC), 2), "never");
    assert_eq!((allocate(7, 1), tmpfs.used()), (Ok(()), 3));
    let full = process.touch(CPU, at(base, 1), Access::Write);
    assert_eq!(full, Err(FaultError::Device { index: 1, errno: Errno::ENOSPC }), "SIGBUS");
    let bytes = vec![7; 2 * PAGE_SIZE as usize];
    let write = |at| world.on(CPU, |mm| mm.write_at(&one, at, &bytes)).map_err(MmError::errno);
    assert_eq!(write(PAGE_SIZE), Err(Errno::ENOSPC));
    assert_eq!(write(5 * PAGE_SIZE), Ok(PAGE_SIZE as usize), "as much as there is room for");
    // What goes makes room, whatever it is that goes.
    world.on(CPU, |mm| mm.truncate(&other, 0)).expect("not sealed");
    assert_eq!((write(0), tmpfs.used()), (Ok(2 * PAGE_SIZE as usize), 3));
    process.end();
    for file in [&one, &other] {
        world.on(CPU, |mm| mm.close_file(file));
    }
    assert_eq!(tmpfs.used(), 0);
}

/// `SEEK_DATA`, `SEEK_HOLE`: pages in swap are data, too.
fn data_and_holes_of_shared_memory<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let file = world.on(CPU, |mm| mm.memfd_create("sparse", MemfdFlags::empty())).expect("memory");
    world.on(CPU, |mm| mm.truncate(&file, 9 * PAGE_SIZE)).expect("not sealed");
    let base = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    for index in [2, 3, 6] {
        process.write(CPU, at(base, index), index);
    }
    let seeks = || [0, 2, 3, 4, 6, 7].map(|index| (file.next_data(index), file.next_hole(index)));
    let found = [(Some(2), 0), (Some(2), 4), (Some(3), 4), (Some(6), 4), (Some(6), 7), (None, 7)];
    assert_eq!(seeks(), found);
    world.on(CPU, |mm| mm.madvise(&process.space, base, 9 * PAGE_SIZE, Advice::PageOut)).expect("mapped");
    assert_eq!((process.space.rss().pages(), seeks()), (0, found));
    process.end();
    world.on(CPU, |mm| mm.close_file(&file));
}

/// `MS_NOEXEC` of a mounted tmpfs (`path_noexec`).
fn files_of_a_tmpfs_that_forbids_it_are_not_executed<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    for (executable, mapped, protected) in [(true, Ok(()), Ok(())), (false, Err(Errno::EPERM), Err(Errno::EACCES))] {
        let tmpfs = Tmpfs::try_new(3, executable).expect("memory");
        let file = world
            .on(CPU, |mm| mm.add_tmpfs_file(&tmpfs, "/tmp/file", PAGE_SIZE, Box::new(TestAccess(true))))
            .expect("memory");
        for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
            let mapping = Some(FileMapping { file: &file, offset: 0, opened: Rights::RW });
            let request = MapRequest { addr: VirtAddr::ZERO, len: PAGE_SIZE, rights: Rights::RX, flags, file: mapping };
            let done = world.on(CPU, |mm| mm.mmap(&process.space, &request)).map(drop);
            assert_eq!(done.map_err(MmError::errno), mapped);
            let base = process.map_file(&file, Rights::READ, flags);
            let done = world.on(CPU, |mm| mm.mprotect(&process.space, base, PAGE_SIZE, Rights::RX));
            assert_eq!(done.map_err(MmError::errno), protected);
        }
    }
    process.end();
}

/// INV-VMA-INHERITED.
fn a_child_keeps_pages_of_its_parent_apart<I: Isa>() {
    let (world, parent) = TestProcess::<I>::unjudged();
    let base = parent.anon(12);
    parent.unmap(at(base, 4), 8);
    // The first pages are written, the last ones are not.
    parent.touch(CPU, base, Access::Write).expect("mapped");
    parent.map_at(at(base, 8), 4, Rights::RW, ANON | MapFlags::FIXED);
    let child = parent.fork();
    for (process, expected) in [(&parent, vec![(0, 12)]), (&child, vec![(0, 4), (4, 12)])] {
        process.map_at(at(base, 4), 4, Rights::RW, ANON | MapFlags::FIXED);
        let map = process.space.map().read();
        let first = base.page_index();
        let ours = map.iter().filter(|(start, vma)| *start >= first && vma.end() <= first + 12);
        let ours: Vec<_> = ours.map(|(start, vma)| (start - first, vma.end() - first)).collect();
        assert_eq!(ours, expected);
    }
    // A grandchild has both with pages, and the two stay apart.
    child.touch(CPU, at(base, 5), Access::Write).expect("mapped");
    let grandchild = child.fork();
    grandchild.protect(base, 12, Rights::READ);
    grandchild.protect(base, 12, Rights::RW);
    let count = |process: &TestProcess<I>| process.space.map().read().iter().count();
    assert_eq!(count(&grandchild), count(&child));
    world.recount(&[&parent, &child, &grandchild]);
    [parent, child, grandchild].iter().for_each(TestProcess::end);
}

fn a_move_is_no_peak<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(48);
    let request = RemapRequest {
        addr: at(base, 4),
        old_len: 6 * PAGE_SIZE,
        new_len: 9 * PAGE_SIZE,
        flags: RemapFlags::MAYMOVE,
        new_addr: VirtAddr::ZERO,
    };
    world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
    let map = process.space.map().read();
    assert_eq!((map.bytes(), map.peak_bytes()), (51 * PAGE_SIZE, 51 * PAGE_SIZE), "in one place at a time");
    drop(map);
    process.end();
}

fn what_is_locked_does_not_go<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(4);
    for (index, lock) in [true, false].into_iter().enumerate() {
        let at = at(base, index as u64);
        process.touch(CPU, at, Access::Write).expect("mapped");
        let advise = |advice| world.on(CPU, |mm| mm.madvise(&process.space, at, PAGE_SIZE, advice)).expect("mapped");
        advise(Advice::Free);
        assert_eq!(process.smaps_field("LazyFree:"), 4);
        if lock {
            world.on(CPU, |mm| mm.mlock2(&process.space, at, PAGE_SIZE, LockFlags::empty())).expect("within the limit");
        } else {
            advise(Advice::PopulateWrite);
        }
        assert_eq!(process.smaps_field("LazyFree:"), 0, "lock {lock}");
    }
    process.end();
}

/// `mprotect` brings in what becomes writable under a lock, and leaves alone what was before.
fn what_was_writable_is_not_copied_because_it_is_locked<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(4);
    process.protect(at(base, 2), 2, Rights::READ);
    world.on(CPU, |mm| mm.mlock2(&process.space, base, 4 * PAGE_SIZE, LockFlags::empty())).expect("within the limit");
    let child = process.fork();
    assert_eq!(
        (process.smaps_field("Shared_Dirty:"), process.smaps_field("Private_Dirty:")),
        (8, 0),
        "two are the zero page"
    );
    process.protect(base, 4, Rights::RW);
    assert_eq!((process.smaps_field("Shared_Dirty:"), process.smaps_field("Private_Dirty:")), (8, 8));
    child.end();
    process.end();
}

fn unlocking_what_is_not_locked_joins_nothing<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(8);
    // Without pages, which a child's mapping would keep apart (INV-VMA-INHERITED).
    world
        .on(CPU, |mm| mm.mlock2(&process.space, at(base, 2), 2 * PAGE_SIZE, LockFlags::ONFAULT))
        .expect("within the limit");
    let child = process.fork();
    assert_eq!((process.mappings(), child.mappings()), (3, 3), "a child's mappings are cut as its parent's");
    for process in [&process, &child] {
        world.on(CPU, |mm| mm.munlockall(&process.space));
    }
    assert_eq!((process.mappings(), child.mappings()), (1, 3), "nothing was locked there");
    // What really changes is joined.
    child.protect(base, 8, Rights::all());
    assert_eq!(child.mappings(), 1);
    child.end();
    process.end();
}

fn flags_are_told_apart<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    let base = process.map_at(VirtAddr::new(1 << 32), 2, Rights::RW, fixed);
    process.map_at(at(base, 2), 2, Rights::RW, fixed | MapFlags::SYNC);
    assert!(process.smaps().contains("VmFlags: rd wr mr mw me ac sf sd \n"), "{}", process.smaps());
    assert_eq!(process.mappings(), 2);
    // Sealed against new writers, a mapping is still one of a file that was opened for writing.
    let file = world.on(CPU, |mm| mm.memfd_create("it", MemfdFlags::ALLOW_SEALING)).expect("memory");
    world.on(CPU, |mm| mm.truncate(&file, PAGE_SIZE)).expect("not sealed");
    world.on(CPU, |mm| mm.add_seals(&file, Rights::RW, Seals::FUTURE_WRITE)).expect("no mapping writes");
    process.map_file(&file, Rights::READ, MapFlags::SHARED);
    assert!(process.smaps().contains("VmFlags: rd sh mr me ms sd \n"), "{}", process.smaps());
    process.end();
    world.on(CPU, |mm| mm.close_file(&file));
}

/// INV-FILE-CLEAN: what was stored is not dropped with the page.
fn clean_pages_of_files_go_when_told<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let free = || world.on(CPU, |mm| mm.gauge(Gauge::FreePages));
    let page_out = |base| world.on(CPU, |mm| mm.madvise(&process.space, base, 8 * PAGE_SIZE, Advice::PageOut));
    for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
        let file = world.file_of(DiskFile::default(), 8);
        let base = process.map_file(&file, Rights::RW, flags);
        (0..8).for_each(|index| assert_eq!(process.read(CPU, at(base, index)), index));
        assert_eq!(process.mincore(base, 8), Ok(vec![1; 8]));
        process.write(CPU, at(base, 2), 77);
        let before = free();
        page_out(base).expect("mapped");
        assert_eq!(process.mincore(base, 8), Ok(vec![0, 0, 1, 0, 0, 0, 0, 0]), "{flags:?}");
        assert!(free() >= before + 7, "{flags:?}: the page that was copied is one more");
        (0..8).for_each(|index| assert_eq!(process.read(CPU, at(base, index)), if index == 2 { 77 } else { index }));
        // This program may not page out what another process maps, too.
        let child = process.fork();
        child.read(CPU, at(base, 3));
        child.protect(at(base, 4), 1, Rights::READ);
        child.read(CPU, at(base, 4));
        page_out(base).expect("mapped");
        let left = process.mincore(base, 8).expect("mapped");
        assert_eq!((left[2], left[3], left[4]), (1, 1, 1), "{flags:?}");
        child.end();
        page_out(base).expect("mapped");
        assert_eq!(process.mincore(base, 8), Ok(vec![0, 0, 1, 0, 0, 0, 0, 0]), "{flags:?}, alone again");
        process.unmap(base, 8);
        world.on(CPU, |mm| mm.forget_file(&file));
    }
    process.end();
}

/// The time to read them again would tell whether others have read them (`can_do_file_pageout`).
///
/// A program's own copies are its own.
fn pages_of_files_of_others_stay<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    world.swap_to(8);
    let file = world.file_of(DiskFile(std::sync::Arc::new(TestDisk { foreign: true, ..TestDisk::default() })), 4);
    for (flags, kept) in [(MapFlags::SHARED, 4), (MapFlags::PRIVATE, 3)] {
        let base = process.map_file(&file, Rights::RW, flags);
        (0..4).for_each(|index| assert_eq!(process.read(CPU, at(base, index)), index));
        process.write(CPU, at(base, 1), 1);
        world.on(CPU, |mm| mm.madvise(&process.space, base, 4 * PAGE_SIZE, Advice::PageOut)).expect("mapped");
        assert_eq!(process.space.rss().pages(), kept, "{flags:?}");
        assert_eq!(process.read(CPU, at(base, 1)), 1);
        process.unmap(base, 4);
    }
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
}

/// `Unevictable` of `meminfo`, as Linux counts it after a drain of its per-CPU batches.
fn locked_pages_are_out_of_the_way_at_once<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let unevictable = || world.on(CPU, |mm| mm.gauge(Gauge::Unevictable));
    let lock = |at, pages, flags| world.on(CPU, |mm| mm.mlock2(&process.space, at, pages * PAGE_SIZE, flags));
    let base = process.anon(16);
    process.write(CPU, base, 1);
    lock(base, 4, LockFlags::empty()).expect("within the limit");
    assert_eq!(unevictable(), 4);
    process.write(CPU, at(base, 8), 1);
    lock(at(base, 8), 4, LockFlags::ONFAULT).expect("within the limit");
    assert_eq!(unevictable(), 5, "what is there");
    process.write(CPU, at(base, 9), 1);
    assert_eq!(unevictable(), 6, "what is touched later");
    process.write(CPU, at(base, 12), 1);
    assert_eq!(unevictable(), 6, "what is not locked");
    // A child has nothing locked, and takes nothing away.
    let child = process.fork();
    child.write(CPU, at(base, 2), 2);
    process.write(CPU, at(base, 3), 3);
    assert_eq!(unevictable(), 6, "each has a page of its own");
    child.end();
    assert_eq!(unevictable(), 6);
    world.recount(&[&process]);
    world.on(CPU, |mm| mm.munlock(&process.space, base, 2 * PAGE_SIZE)).expect("mapped");
    assert_eq!(unevictable(), 4);
    world.on(CPU, |mm| mm.madvise(&process.space, at(base, 8), PAGE_SIZE, Advice::DontNeedLocked)).expect("mapped");
    assert_eq!(unevictable(), 3);
    process.unmap(base, 16);
    assert_eq!(unevictable(), 0);
    // Of a file, which stays in memory.
    let file = world.file_of(DiskFile::default(), 4);
    let base = process.map_file(&file, Rights::READ, MapFlags::SHARED);
    lock(base, 4, LockFlags::empty()).expect("within the limit");
    assert_eq!(unevictable(), 4);
    process.end();
    assert_eq!((unevictable(), world.on(CPU, |mm| mm.gauge(Gauge::InactiveFile))), (0, 4));
    world.on(CPU, |mm| mm.forget_file(&file));
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    let bug = PlantedBug::MergeWithInherited;
    assert_found_by(bug, a_child_keeps_pages_of_its_parent_apart::<pagewright_arch::X86_64>);
    assert_found_by(bug, a_child_keeps_pages_of_its_parent_apart::<pagewright_arch::Aarch64>);
}
