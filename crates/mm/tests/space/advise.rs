//! `madvise` and its kin, advice by advice.
//!
//! The tests say what each does, what refuses it with which errno, and that nothing is left over.
//!
//! What Linux answers was asked of Linux 6.18. Not covered: races, which the random programs look
//! for.

use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::files::DiskFile;
use pagewright_lab::harness::{CPU, OTHER, TestProcess, TestWorld, at, recount};
use pagewright_mm::counters::RssKind;
use pagewright_mm::space::{AdviceTarget, VmFlags};
use pagewright_mm::{Advice, FaultError, MapFlags, MmError, MmSetting, RemapFlags, RemapRequest};
use pagewright_sim::AllocationFailure;
use pagewright_tlb::frames::FolioFlags;
use pagewright_types::{Access, Counter, Errno, IsaKind, PAGE_SIZE, Pfn, Rights, VirtAddr};
use std::rc::Rc;

on_both! {
    bad_advice_is_refused_and_changes_nothing,
    a_hole_fails_after_everything_else_was_done,
    locked_memory_refuses_what_would_drop_it,
    sealed_memory_that_can_not_be_written_keeps_its_contents,
    advice_about_mappings_splits_and_joins_them,
    children_get_what_was_advised,
    advice_leaves_pages_alone_that_another_process_maps,
    pages_freed_lazily_are_clean_until_they_are_written,
    guards_refuse_every_access_until_they_are_removed,
    guards_go_along_and_outlive_what_they_guard,
    guards_in_files_and_shared_memory,
    a_range_of_guards_takes_one_flush_at_most,
    populating_brings_what_an_access_would,
    removing_takes_pages_from_every_process,
    several_ranges_are_advised_about_until_one_fails,
    every_allocation_can_fail,
}

/// What `madvise` answers.
fn advise<I: Isa>(process: &TestProcess<I>, at: VirtAddr, pages: u64, advice: Advice) -> Result<(), Errno> {
    advise_bytes(process, at, pages * PAGE_SIZE, advice)
}

fn advise_bytes<I: Isa>(process: &TestProcess<I>, at: VirtAddr, len: u64, advice: Advice) -> Result<(), Errno> {
    process.world.on(CPU, |mm| mm.madvise(&process.space, at, len, advice)).map_err(MmError::errno)
}

fn guarded(va: VirtAddr, access: Access) -> Result<(), FaultError> {
    Err(FaultError::Guarded { va, access })
}

fn bad_advice_is_refused_and_changes_nothing<I: Isa>() {
    let (_, process) = TestProcess::<I>::unjudged();
    let base = process.anon(4);
    process.write(CPU, base, 7);
    for raw in [5, 7, 12, 13, 25, 26, 77, 100, 101, 104, u32::MAX] {
        assert_eq!(Advice::from_raw(raw).map_err(MmError::errno), Err(Errno::EINVAL), "{raw}");
    }
    let before = process.smaps();
    for advice in Advice::ALL.iter().copied() {
        assert_eq!(Advice::from_raw(advice.raw()), Ok(advice));
        let answer = |at, len| advise_bytes(&process, at, len, advice);
        assert_eq!(answer(base.add(1), PAGE_SIZE), Err(Errno::EINVAL), "{advice:?}: misaligned");
        assert_eq!(answer(base.add(1), 0), Err(Errno::EINVAL), "{advice:?}: misaligned and empty");
        assert_eq!(answer(base, u64::MAX), Err(Errno::EINVAL), "{advice:?}: a length that wraps");
        assert_eq!(answer(base, base.raw().wrapping_neg()), Err(Errno::EINVAL), "{advice:?}: an end that wraps");
        assert_eq!(answer(base, 0), Ok(()), "{advice:?}: nothing");
        assert_eq!(answer(I::USER_END, PAGE_SIZE), Err(Errno::ENOMEM), "{advice:?}: past user memory");
        assert_eq!(process.smaps(), before, "{advice:?}");
    }
    assert_eq!(advise(&process, base, 1, Advice::Remove), Err(Errno::EINVAL), "there is no file");
    assert_eq!(process.smaps(), before);
    let shared = process.map(4, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    process.write(CPU, shared, 9);
    let before = process.smaps();
    for advice in [Advice::Free, Advice::WipeOnFork] {
        assert_eq!(advise(&process, shared, 1, advice), Err(Errno::EINVAL), "{advice:?} is for private memory");
    }
    assert_eq!((process.smaps(), process.read(CPU, shared), process.read(CPU, base)), (before, 9, 7));
    process.end();
}

fn a_hole_fails_after_everything_else_was_done<I: Isa>() {
    let (_, process) = TestProcess::<I>::unjudged();
    for advice in [Advice::DontNeed, Advice::GuardInstall, Advice::Sequential] {
        let base = process.anon(8);
        (0..8).for_each(|index| process.write(CPU, at(base, index), index + 1));
        process.unmap(at(base, 2), 1);
        assert_eq!(advise(&process, base, 8, advice), Err(Errno::ENOMEM), "{advice:?}");
        for va in [at(base, 1), at(base, 7)] {
            match advice {
                Advice::DontNeed => assert_eq!(process.read(CPU, va), 0),
                Advice::GuardInstall => assert_eq!(process.touch(CPU, va, Access::Read), guarded(va, Access::Read)),
                _ => assert!(process.flags(va).contains(VmFlags::SEQ_READ)),
            }
        }
        assert_eq!(advise(&process, at(base, 2), 1, advice), Err(Errno::ENOMEM), "nothing but a hole");
        process.unmap(base, 8);
    }
    // Populating stops at the hole.
    let base = process.anon(8);
    process.unmap(at(base, 2), 1);
    assert_eq!(advise(&process, base, 8, Advice::PopulateRead), Err(Errno::ENOMEM));
    assert_eq!(process.mincore(base, 2), Ok(vec![1, 1]));
    assert_eq!(process.mincore(at(base, 3), 5), Ok(vec![0; 5]));
    process.end();
}

fn locked_memory_refuses_what_would_drop_it<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(2);
    process.write(CPU, base, 7);
    world.on(CPU, |mm| mm.mlock(&process.space, base, PAGE_SIZE)).expect("within the limit");
    for advice in [Advice::DontNeed, Advice::Free, Advice::Cold, Advice::PageOut, Advice::GuardInstall] {
        assert_eq!(advise(&process, base, 1, advice), Err(Errno::EINVAL), "{advice:?}");
    }
    assert_eq!(process.read(CPU, base), 7);
    assert_eq!(advise(&process, base, 1, Advice::GuardRemove), Ok(()));
    // What lies before it is done.
    let base = process.anon(2);
    process.write(CPU, base, 7);
    world.on(CPU, |mm| mm.mlock(&process.space, at(base, 1), PAGE_SIZE)).expect("within the limit");
    assert_eq!(advise(&process, base, 2, Advice::DontNeed), Err(Errno::EINVAL));
    assert_eq!(process.read(CPU, base), 0);
    assert_eq!(advise(&process, base, 2, Advice::DontNeedLocked), Ok(()));
    process.end();
}

fn sealed_memory_that_can_not_be_written_keeps_its_contents<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(2);
    process.write(CPU, base, 7);
    process.protect(base, 2, Rights::READ);
    world.on(CPU, |mm| mm.mseal(&process.space, base, 2 * PAGE_SIZE, 0)).expect("mapped");
    for advice in Advice::ALL.iter().copied() {
        let expected = match advice {
            Advice::DontNeed
            | Advice::Free
            | Advice::Remove
            | Advice::DontFork
            | Advice::WipeOnFork
            | Advice::DontNeedLocked
            | Advice::GuardInstall => Err(Errno::EPERM),
            Advice::PopulateWrite => Err(Errno::EINVAL),
            _ => Ok(()),
        };
        assert_eq!(advise(&process, base, 1, advice), expected, "{advice:?}");
    }
    assert_eq!(process.read(CPU, base), 7);
    process.end();
}

fn advice_about_mappings_splits_and_joins_them<I: Isa>() {
    let (_, process) = TestProcess::<I>::unjudged();
    let base = process.anon(9);
    let pairs = [
        (Advice::Random, Advice::Normal, VmFlags::RAND_READ),
        (Advice::Sequential, Advice::Normal, VmFlags::SEQ_READ),
        (Advice::DontFork, Advice::DoFork, VmFlags::DONTCOPY),
        (Advice::DontDump, Advice::DoDump, VmFlags::DONTDUMP),
        (Advice::WipeOnFork, Advice::KeepOnFork, VmFlags::WIPEONFORK),
    ];
    for (set, clear, flag) in pairs {
        assert_eq!(advise(&process, at(base, 3), 3, set), Ok(()));
        assert_eq!(process.mappings(), 3, "{set:?}");
        let flags = [2, 3, 5, 6].map(|index| process.flags(at(base, index)).contains(flag));
        assert_eq!(flags, [false, true, true, false], "{set:?}");
        assert_eq!(advise(&process, base, 9, set), Ok(()));
        assert_eq!(process.mappings(), 1, "{set:?} everywhere");
        assert_eq!(advise(&process, base, 9, clear), Ok(()));
        assert_eq!((process.mappings(), process.flags(base).contains(flag)), (1, false), "{clear:?}");
    }
    assert_eq!(advise(&process, base, 9, Advice::Random), Ok(()));
    assert_eq!(advise(&process, base, 9, Advice::Sequential), Ok(()));
    assert_eq!(process.flags(base) & (VmFlags::RAND_READ | VmFlags::SEQ_READ), VmFlags::SEQ_READ);
    process.end();
}

fn children_get_what_was_advised<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(6);
    (0..6).for_each(|index| process.write(CPU, at(base, index), index + 1));
    assert_eq!(advise(&process, at(base, 1), 1, Advice::DontFork), Ok(()));
    assert_eq!(advise(&process, at(base, 3), 1, Advice::WipeOnFork), Ok(()));
    world.on(CPU, |mm| mm.mlock(&process.space, at(base, 5), PAGE_SIZE)).expect("within the limit");
    let child = process.fork();
    let va = at(base, 1);
    let refused = Err(FaultError::NotMapped { va, access: Access::Read });
    assert_eq!(child.touch(CPU, va, Access::Read), refused, "kept from the child");
    assert_eq!([0, 2, 3, 4, 5].map(|index| child.read(CPU, at(base, index))), [1, 3, 0, 5, 6]);
    assert!(child.flags(at(base, 3)).contains(VmFlags::WIPEONFORK), "its own children find it empty, too");
    assert!(!child.flags(at(base, 5)).contains(VmFlags::LOCKED), "locks are the parent's");
    child.write(CPU, at(base, 3), 40);
    let grandchild = child.fork();
    assert_eq!([2, 3].map(|index| grandchild.read(CPU, at(base, index))), [3, 0]);
    assert_eq!([1, 3].map(|index| process.read(CPU, at(base, index))), [2, 4], "the parent keeps everything");
    world.recount(&[&process, &child, &grandchild]);
    grandchild.end();
    child.end();
    process.end();
    world.assert_nothing_leaked();
}

fn pages_freed_lazily_are_clean_until_they_are_written<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(3);
    (0..2).for_each(|index| process.write(CPU, at(base, index), index + 1));
    process.read(CPU, at(base, 2));
    // Another CPU may store through what its TLB has as dirty.
    process.touch(OTHER, base, Access::Write).expect("writable");
    world.lab.run(CPU, &process.space);
    assert_eq!(advise(&process, base, 3, Advice::Free), Ok(()));
    assert_eq!(world.lab.mm().counter(Counter::PgLazyFree), 2, "the zero page is not freed");
    assert_eq!([0, 1].map(|index| process.read(CPU, at(base, index))), [1, 2], "reclaim has not taken them yet");
    assert_eq!(process.smaps_field("LazyFree:"), 8);
    process.touch(OTHER, base, Access::Write).expect("writable");
    assert_eq!(process.smaps_field("LazyFree:"), 4, "one was written again");
    assert_eq!(process.space.rss().of(RssKind::Anon), 2);
    process.end();
}

/// INV-GUARD.
fn guards_refuse_every_access_until_they_are_removed<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(1200);
    (0..1200).step_by(7).for_each(|index| process.write(CPU, at(base, index), 1));
    process.touch(OTHER, at(base, 7), Access::Write).expect("writable");
    world.lab.run(CPU, &process.space);
    assert_eq!(advise(&process, at(base, 1), 1198, Advice::GuardInstall), Ok(()));
    assert_eq!(process.mappings(), 1, "a guard is no mapping");
    assert_eq!(process.space.rss().of(RssKind::Anon), 1, "what was there is gone");
    for (cpu, index) in [(CPU, 1), (OTHER, 7), (CPU, 600), (OTHER, 1198)] {
        for access in [Access::Read, Access::Write] {
            let va = at(base, index);
            assert_eq!(process.touch(cpu, va, access), guarded(va, access));
        }
    }
    assert_eq!([0, 1199].map(|index| process.read(CPU, at(base, index))), [1, 0], "beside the guards");
    assert_eq!(process.mincore(base, 4), Ok(vec![1, 0, 0, 0]));
    assert_eq!(advise(&process, base, 3, Advice::GuardInstall), Ok(()), "over guards and beside them");
    assert_eq!(advise(&process, base, 1200, Advice::GuardRemove), Ok(()));
    assert_eq!([0, 1, 600].map(|index| process.read(CPU, at(base, index))), [0, 0, 0]);
    world.recount(&[&process]);
    process.end();
    world.assert_nothing_leaked();
}

fn guards_go_along_and_outlive_what_they_guard<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(4);
    process.write(CPU, base, 7);
    let va = at(base, 1);
    assert_eq!(advise(&process, va, 1, Advice::GuardInstall), Ok(()));
    let refused = |process: &TestProcess<I>| process.touch(CPU, va, Access::Read) == guarded(va, Access::Read);
    process.protect(base, 4, Rights::READ);
    assert!(refused(&process), "mprotect");
    process.protect(base, 4, Rights::RW);
    for advice in [Advice::DontNeed, Advice::Free] {
        assert_eq!(advise(&process, base, 4, advice), Ok(()));
        assert!(refused(&process), "{advice:?}");
    }
    for advice in [Advice::PopulateRead, Advice::PopulateWrite] {
        assert_eq!(advise(&process, base, 4, advice), Err(Errno::EFAULT));
    }
    // There and back again.
    let away = VirtAddr::new(base.raw() - (1 << 30));
    let flags = RemapFlags::MAYMOVE | RemapFlags::FIXED;
    for (from, to) in [(base, away), (away, base)] {
        let len = 4 * PAGE_SIZE;
        let request = RemapRequest { addr: from, old_len: len, new_len: len, flags, new_addr: to };
        assert_eq!(world.on(CPU, |mm| mm.mremap(&process.space, &request)), Ok(to));
        let va = at(to, 1);
        assert_eq!(process.touch(CPU, va, Access::Write), guarded(va, Access::Write));
        let gone = Err(FaultError::NotMapped { va: at(from, 1), access: Access::Read });
        assert_eq!(process.touch(CPU, at(from, 1), Access::Read), gone);
    }
    let child = process.fork();
    assert!(refused(&child), "fork");
    let grandchild = child.fork();
    child.end();
    assert!(refused(&grandchild), "and its fork");
    assert_eq!(advise(&grandchild, va, 1, Advice::GuardRemove), Ok(()));
    assert_eq!(grandchild.read(CPU, va), 0);
    assert!(refused(&process), "the parent's stays");
    assert_eq!(advise(&process, base, 4, Advice::WipeOnFork), Ok(()));
    let wiped = process.fork();
    assert_eq!(wiped.read(CPU, va), 0, "a child that finds nothing finds no guards");
    process.unmap(base, 4);
    process.map_at(base, 4, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
    assert_eq!(process.read(CPU, va), 0, "they go with the mapping");
    for process in [process, grandchild, wiped] {
        process.end();
    }
    world.assert_nothing_leaked();
}

fn guards_in_files_and_shared_memory<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let shared = process.map(4, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    (0..4).for_each(|index| process.write(CPU, at(shared, index), index + 1));
    let va = at(shared, 1);
    assert_eq!(advise(&process, va, 1, Advice::GuardInstall), Ok(()));
    let child = process.fork();
    for process in [&process, &child] {
        assert_eq!(process.touch(CPU, va, Access::Write), guarded(va, Access::Write));
        assert_eq!(process.read(CPU, at(shared, 2)), 3);
        assert_eq!(process.mincore(shared, 4), Ok(vec![1; 4]), "the cache has the page under the guard");
    }
    assert_eq!(advise(&child, va, 1, Advice::GuardRemove), Ok(()));
    assert_eq!(child.read(CPU, va), 2, "the page is as it was");
    child.end();
    // Fault-around goes around a guard, and truncation leaves it.
    let file = world.file_of(DiskFile::default(), 8);
    let mapped = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    let va = at(mapped, 3);
    assert_eq!(advise(&process, va, 1, Advice::GuardInstall), Ok(()));
    assert_eq!(process.read(CPU, at(mapped, 2)), 2);
    assert_eq!(process.touch(CPU, va, Access::Read), guarded(va, Access::Read));
    world.on(CPU, |mm| mm.truncate(&file, 0)).expect("not sealed");
    world.on(CPU, |mm| mm.truncate(&file, 8 * PAGE_SIZE)).expect("not sealed");
    assert_eq!(process.touch(CPU, va, Access::Read), guarded(va, Access::Read));
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
    world.assert_nothing_leaked();
}

fn a_range_of_guards_takes_one_flush_at_most<I: Isa>() {
    const PAGES: u64 = 64;
    let (world, process) = TestProcess::<I>::unjudged();
    let flushes = || {
        let local = world.count(Counter::NrTlbLocalFlushAll) + world.count(Counter::NrTlbLocalFlushOne).div_ceil(PAGES);
        (world.count(Counter::NrTlbRemoteFlush), local)
    };
    let guard = |base| {
        [CPU, OTHER].into_iter().for_each(|cpu| world.lab.run(cpu, &process.space));
        let before = flushes();
        assert_eq!(advise(&process, base, PAGES, Advice::GuardInstall), Ok(()));
        let after = flushes();
        (after.0 - before.0, after.1 - before.1)
    };
    assert_eq!(guard(process.anon(PAGES)), (0, 0), "no page was touched");
    let base = process.anon(PAGES);
    (0..PAGES).for_each(|index| process.write(CPU, at(base, index), 1));
    // On x86-64 the sender and the receiver of the IPI flush. On arm64 one broadcast is for both.
    let local = if I::KIND == IsaKind::X86_64 { 2 } else { 0 };
    assert_eq!(guard(base), (1, local), "all pages were touched");
    assert_eq!(guard(base), (0, 0), "all pages have guards");
    process.end();
}

fn populating_brings_what_an_access_would<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(600);
    assert_eq!(advise(&process, base, 600, Advice::PopulateRead), Ok(()));
    assert_eq!(process.space.rss().pages(), 0, "the zero page is enough to read");
    assert_eq!(advise(&process, base, 600, Advice::PopulateWrite), Ok(()));
    assert_eq!(process.space.rss().of(RssKind::Anon), 600);
    let reuses = world.lab.mm().counter(Counter::PwSpuriousFault);
    assert_eq!(advise(&process, base, 600, Advice::PopulateWrite), Ok(()));
    assert_eq!(world.lab.mm().counter(Counter::PwSpuriousFault), reuses, "what is there is not faulted in");
    let cases = [
        (Rights::READ, Ok(()), Err(Errno::EINVAL)),
        (Rights::empty(), Err(Errno::EINVAL), Err(Errno::EINVAL)),
        (Rights::WRITE, Err(Errno::EINVAL), Ok(())),
    ];
    for (rights, read, write) in cases {
        let base = process.map(1, rights, MapFlags::PRIVATE | MapFlags::ANONYMOUS, None);
        assert_eq!(advise(&process, base, 1, Advice::PopulateRead), read, "{rights}");
        assert_eq!(advise(&process, base, 1, Advice::PopulateWrite), write, "{rights}");
    }
    let file = world.file_of(DiskFile::default(), 4);
    let mapped = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    world.on(CPU, |mm| mm.truncate(&file, 2 * PAGE_SIZE)).expect("not sealed");
    assert_eq!(advise(&process, mapped, 4, Advice::PopulateWrite), Err(Errno::EFAULT), "past the end");
    assert_eq!(process.mincore(mapped, 4), Ok(vec![1, 1, 0, 0]));
    // A stack does not grow because a call populates below it.
    let stack = process.map(2, Rights::RW, MapFlags::PRIVATE | MapFlags::GROWSDOWN | MapFlags::ANONYMOUS, None);
    let below = VirtAddr::new(stack.raw() - PAGE_SIZE);
    assert_eq!(advise(&process, below, 1, Advice::PopulateWrite), Err(Errno::ENOMEM));
    process.end();
}

/// INV-FILE-REMOVED.
fn removing_takes_pages_from_every_process<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let before = world.levels();
    let process = TestProcess::new(&world);
    let shared = process.map(4, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
    (0..4).for_each(|index| process.write(CPU, at(shared, index), index + 1));
    let child = process.fork();
    assert_eq!(child.read(CPU, at(shared, 1)), 2);
    assert_eq!(advise(&process, at(shared, 1), 2, Advice::Remove), Ok(()));
    for process in [&process, &child] {
        assert_eq!([0, 1, 2, 3].map(|index| process.read(CPU, at(shared, index))), [1, 0, 0, 4]);
    }
    process.write(CPU, at(shared, 1), 20);
    assert_eq!(child.read(CPU, at(shared, 1)), 20, "and it is shared as before");
    process.protect(shared, 4, Rights::READ);
    assert_eq!(advise(&process, shared, 1, Advice::Remove), Ok(()), "it may be written, if not now");
    assert_eq!(child.read(CPU, shared), 0);
    world.recount(&[&process, &child]);
    let file = world.file_of(DiskFile::default(), 4);
    let private = process.map_file(&file, Rights::RW, MapFlags::PRIVATE);
    assert_eq!(advise(&process, private, 1, Advice::Remove), Err(Errno::EACCES));
    let mapped = process.map_file(&file, Rights::RW, MapFlags::SHARED);
    assert_eq!(advise(&process, mapped, 1, Advice::Remove), Err(Errno::EOPNOTSUPP), "a file without holes");
    assert_eq!(process.read(CPU, at(mapped, 1)), 1);
    child.end();
    process.end();
    world.on(CPU, |mm| mm.forget_file(&file));
    assert_eq!(world.levels(), before);
}

fn several_ranges_are_advised_about_until_one_fails<I: Isa>() {
    let (world, process) = TestProcess::<I>::unjudged();
    let base = process.anon(6);
    process.unmap(at(base, 2), 1);
    let call = |whose, ranges: &[(VirtAddr, u64)], advice| {
        let answer = world.on(CPU, |mm| mm.process_madvise(&process.space, whose, ranges, advice));
        answer.map_err(MmError::errno)
    };
    let (own, other) = (AdviceTarget::Own, AdviceTarget::Other);
    let at = |index| at(base, index);
    let fill = || [0, 1, 3].iter().for_each(|index| process.write(CPU, at(*index), 7));
    fill();
    let ranges = [(at(0), PAGE_SIZE), (at(1), 2 * PAGE_SIZE), (at(3), PAGE_SIZE)];
    assert_eq!(call(own, &ranges, Advice::DontNeed), Ok(PAGE_SIZE));
    assert_eq!([0, 1, 3].map(|index| process.read(CPU, at(index))), [0, 0, 7], "a part of the one that failed, too");
    assert_eq!(call(own, &ranges[1..], Advice::DontNeed), Err(Errno::ENOMEM));
    assert_eq!(call(own, &[(at(0), 100), (at(1), 100)], Advice::DontNeed), Ok(200), "bytes, not pages");
    assert_eq!(call(own, &[], Advice::DontNeed), Ok(0));
    assert_eq!(
        call(own, &[(at(0).add(1), 0), (at(1), 0)], Advice::DontNeed),
        Ok(0),
        "the address of an empty range is not checked"
    );
    assert_eq!(call(own, &[(at(0).add(1), 0), (at(1), 1)], Advice::DontNeed), Err(Errno::EINVAL));
    assert_eq!(call(own, &[(at(0), PAGE_SIZE), (at(1).add(1), 1)], Advice::DontNeed), Ok(PAGE_SIZE));
    assert_eq!(call(own, &vec![(at(0), 1); 1025], Advice::DontNeed), Err(Errno::EINVAL));
    let before = process.smaps();
    assert_eq!(call(own, &[(at(0), 1), (at(0), u64::MAX)], Advice::DontNeed), Err(Errno::EINVAL));
    assert_eq!(call(own, &[(at(0), 1), (I::USER_END, 1)], Advice::DontNeed), Err(Errno::EFAULT));
    assert_eq!(process.smaps(), before, "nothing is done before all ranges are sound");
    for advice in Advice::ALL.iter().copied() {
        let allowed = matches!(advice, Advice::WillNeed | Advice::Cold | Advice::PageOut);
        let expected = if allowed { Ok(PAGE_SIZE) } else { Err(Errno::EINVAL) };
        assert_eq!(call(other, &[(at(0), PAGE_SIZE)], advice), expected, "{advice:?} for another process");
    }
    let huge =
        process.map(0x8_8000, Rights::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::ANONYMOUS, None);
    let most = (1 << 31) - PAGE_SIZE;
    assert_eq!(call(own, &[(huge, 0x8800_0000), (at(0), 1)], Advice::Normal), Ok(most), "no more than that at once");
    process.end();
}

fn every_allocation_can_fail<I: Isa>() {
    let world = TestWorld::<I>::unjudged();
    let before = world.levels();
    let mut failures = 0;
    for depth in 0.. {
        let process = TestProcess::new(&world);
        let base = process.anon(1200);
        let shared = process.map(3, Rights::RW, MapFlags::SHARED | MapFlags::ANONYMOUS, None);
        process.write(CPU, base, 7);
        process.write(CPU, shared, 7);
        let calls = [
            (at(base, 500), 3, Advice::Random),
            (at(base, 500), 24, Advice::PopulateWrite),
            (at(base, 100), 600, Advice::GuardInstall),
            (shared, 3, Advice::GuardInstall),
            (at(base, 100), 600, Advice::GuardRemove),
            (shared, 2, Advice::Remove),
            (base, 1200, Advice::Free),
            (base, 1200, Advice::DontNeed),
        ];
        world.lab.sim().fail_allocation_after(depth, AllocationFailure::One);
        let mut failed = None;
        for (at, pages, advice) in calls {
            let (picture, mapped) = (process.smaps(), process.mappings());
            let answer = advise(&process, at, pages, advice);
            let partial = matches!(advice, Advice::PopulateWrite | Advice::GuardInstall);
            if let Err(errno) = answer {
                let expected = if advice == Advice::Random { Errno::EAGAIN } else { Errno::ENOMEM };
                assert_eq!(errno, expected, "{advice:?}");
                assert_eq!(process.mappings(), mapped);
                assert!(partial || process.smaps() == picture, "{advice:?} failed and changed something");
                failed = Some(advice);
            }
        }
        let child = world.on(CPU, |mm| mm.fork(&process.space));
        world.lab.sim().permit_allocations();
        failures += u64::from(failed.is_some());
        let done = failed.is_none() && child.is_ok();
        if let Ok(space) = child {
            world.on(CPU, |mm| mm.end_space(&space));
        }
        world.recount(&[&process]);
        process.end();
        assert_eq!(world.levels(), before, "the allocation after {depth} others failed in {failed:?}");
        if done {
            break;
        }
    }
    assert!(failures > 24, "only {failures} allocations could fail");
}

/// A page that two processes map, and how they came to it.
#[derive(Clone, Copy, Debug)]
enum CommonPage {
    /// The child shares the parent's page table.
    SharedTable,
    /// Fork copied the entry.
    CopiedEntry,
    SharedMemory,
    File,
    PrivateFile,
}

impl CommonPage {
    const ALL: [Self; 5] = [Self::SharedTable, Self::CopiedEntry, Self::SharedMemory, Self::File, Self::PrivateFile];

    /// Two processes that have loaded the page, with its address in each.
    fn mapped<I: Isa>(self, world: &Rc<TestWorld<I>>) -> [(TestProcess<I>, VirtAddr); 2] {
        let process = TestProcess::new(world);
        let both = match self {
            Self::SharedTable | Self::CopiedEntry => {
                let shares = if matches!(self, Self::SharedTable) { "always" } else { "never" };
                world.set(MmSetting::CowPageTables, shares);
                let base = process.anon(1);
                process.write(CPU, base, 1);
                let child = process.fork();
                [(process, base), (child, base)]
            }
            Self::SharedMemory | Self::File | Self::PrivateFile => {
                let flags = if matches!(self, Self::PrivateFile) { MapFlags::PRIVATE } else { MapFlags::SHARED };
                let file = if matches!(self, Self::SharedMemory) {
                    world.shmem(1)
                } else {
                    world.file_of(DiskFile::default(), 1)
                };
                [process, TestProcess::new(world)].map(|process| {
                    let base = process.map_file(&file, Rights::RW, flags);
                    (process, base)
                })
            }
        };
        both.iter().for_each(|(process, base)| _ = process.read(CPU, *base));
        both
    }
}

/// The frame, age and list of a page; `None` if the process does not map it.
fn age<I: Isa>((process, base): &(TestProcess<I>, VirtAddr)) -> Option<(Pfn, bool, FolioFlags)> {
    process.world.on(CPU, |mm| {
        let leaf = recount::leaf(mm, &process.space, *base)?;
        let list = mm.tlb().frames().folio(leaf.pfn()).flags() & (FolioFlags::ACTIVE | FolioFlags::REFERENCED);
        Some((leaf.pfn(), leaf.has(LeafFlags::ACCESSED), list))
    })
}

/// INV-ADVICE-ALONE: the advice is followed once the other process has ended.
fn advice_leaves_pages_alone_that_another_process_maps<I: Isa>() {
    for (advice, common) in
        [Advice::Cold, Advice::PageOut].into_iter().flat_map(|advice| CommonPage::ALL.map(|common| (advice, common)))
    {
        let world = TestWorld::<I>::unjudged();
        world.swap_to(16);
        let [one, other] = common.mapped(&world);
        world.on(CPU, |mm| {
            let leaf = recount::leaf(mm, &one.0.space, one.1).expect("loaded");
            mm.tlb().frames().lru_move(mm.tlb().frames().folio(leaf.pfn()), FolioFlags::ACTIVE, FolioFlags::empty());
        });
        let before = [age(&one), age(&other)];
        assert!(
            before
                .iter()
                .all(|age| age.is_some_and(|(_, accessed, list)| accessed && list.contains(FolioFlags::ACTIVE)))
        );
        assert_eq!(before[0].map(|(pfn, ..)| pfn), before[1].map(|(pfn, ..)| pfn), "{common:?}");
        assert_eq!(advise(&one.0, one.1, 1, advice), Ok(()));
        assert_eq!([age(&one), age(&other)], before, "{advice:?}, {common:?}");
        other.0.end();
        assert_eq!(advise(&one.0, one.1, 1, advice), Ok(()));
        let alone = age(&one);
        let is_followed = match advice {
            Advice::Cold => alone.is_some_and(|(_, accessed, list)| !accessed && list.is_empty()),
            _ => alone.is_none(),
        };
        assert!(is_followed, "{advice:?}, {common:?}: {alone:?}");
        one.0.end();
    }
}

#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    for bug in [PlantedBug::ColdIgnoresSharers, PlantedBug::PageOutIgnoresSharers] {
        assert_found_by(bug, advice_leaves_pages_alone_that_another_process_maps::<pagewright_arch::X86_64>);
        assert_found_by(bug, advice_leaves_pages_alone_that_another_process_maps::<pagewright_arch::Aarch64>);
    }
}
