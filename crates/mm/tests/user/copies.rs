//! Copies to and from user memory: they do what the program's own accesses would (INV-USER-COPY).
//!
//! A copy returns how far it came.

use pagewright_arch::on_both;
use pagewright_arch::{Isa, LeafFlags};
use pagewright_lab::harness::{ANON, CPU, OTHER, TestProcess, TestWorld, recount};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{MapFlags, MmError};
use pagewright_sim::AllocationFailure;
use pagewright_types::{Access, Counter, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    bytes_come_back_across_pages,
    what_was_not_copied_is_counted,
    a_copy_faults_as_the_program_would,
    a_copy_to_a_shared_page_does_not_reach_the_child,
    a_copy_leaves_the_marks_of_an_access,
    words_are_whole_and_may_straddle_pages,
    strings_end_where_they_end,
    memory_that_is_refused_ends_a_copy,
}

fn world<I: Isa>() -> TestProcess<I> {
    TestProcess::new(&TestWorld::new(2))
}

fn to<I: Isa>(process: &TestProcess<I>, at: VirtAddr, bytes: &[u8]) -> usize {
    process.world.on(CPU, |mm| mm.copy_to_user(&process.space, at, bytes))
}

fn from<I: Isa>(process: &TestProcess<I>, at: VirtAddr, len: usize) -> (Vec<u8>, usize) {
    let mut bytes = vec![0xee; len];
    let left = process.world.on(CPU, |mm| mm.copy_from_user(&process.space, at, &mut bytes));
    (bytes, left)
}

fn bytes_come_back_across_pages<I: Isa>() {
    let process = world::<I>();
    let base = process.anon(4);
    let bytes: Vec<u8> = (0..2 * PAGE_SIZE + 77).map(|i| (i * 7 + 3) as u8).collect();
    let at = base.add(PAGE_SIZE - 5);
    assert_eq!(to(&process, at, &bytes), 0);
    assert_eq!(from(&process, at, bytes.len()), (bytes.clone(), 0));
    // The program sees the same.
    let word = base.add(2 * PAGE_SIZE);
    let there = (PAGE_SIZE + 5) as usize;
    assert_eq!(process.read(OTHER, word).to_le_bytes(), bytes[there..there + 8]);
    assert_eq!(process.space.rss().pages(), 4, "touched pages and no others");
    // Zeroes, and nothing beside them.
    assert_eq!(process.world.on(CPU, |mm| mm.clear_user(&process.space, at.add(9), PAGE_SIZE as usize)), 0);
    let (read, _) = from(&process, at, bytes.len());
    assert_eq!(read[..9], bytes[..9]);
    assert!(read[9..9 + PAGE_SIZE as usize].iter().all(|byte| *byte == 0));
    assert_eq!(read[9 + PAGE_SIZE as usize..], bytes[9 + PAGE_SIZE as usize..]);
    TestProcess::end_all_at_rest(&[&process]);
}

fn what_was_not_copied_is_counted<I: Isa>() {
    let process = world::<I>();
    let base = process.anon(3);
    assert_eq!(to(&process, base, &[5; 3 * PAGE_SIZE as usize]), 0);
    process.unmap(base.add(2 * PAGE_SIZE), 1);
    let at = base.add(PAGE_SIZE);
    let page = PAGE_SIZE as usize;
    let (bytes, left) = from(&process, at, page + 100);
    assert_eq!((left, bytes[page - 1], bytes[page]), (100, 5, 0), "the rest is zero, not what it was");
    assert_eq!(to(&process, at.add(10), &[6; 2 * PAGE_SIZE as usize]), page + 10);
    assert_eq!(from(&process, at.add(10), 1), (vec![6], 0), "what lies before the hole was stored");
    assert_eq!(process.world.on(CPU, |mm| mm.clear_user(&process.space, at, page + 1)), 1);
    // Where there is no user memory nothing is touched.
    assert_eq!(from(&process, I::USER_END, 8).1, 8);
    assert_eq!(from(&process, VirtAddr::new(I::USER_END.raw() - 4), 8).1, 8);
    assert_eq!(to(&process, VirtAddr::new(u64::MAX - 3), &[1; 8]), 8);
    assert_eq!(from(&process, base, 0), (vec![], 0));
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_copy_faults_as_the_program_would<I: Isa>() {
    let process = world::<I>();
    let read_only = process.map(1, Rights::READ, ANON, None);
    let none = process.map(1, Rights::empty(), ANON, None);
    assert_eq!(to(&process, read_only, &[1]), 1);
    assert_eq!(from(&process, read_only, 1), (vec![0], 0));
    assert_eq!(from(&process, none, 1).1, 1);
    // The page of a file past its end.
    let file = process.world.file(1);
    let mapped = process.map(2, Rights::RW, MapFlags::SHARED, Some(&file));
    assert_eq!(from(&process, mapped, 8), (7u64.to_le_bytes().to_vec(), 0));
    assert_eq!(from(&process, mapped.add(PAGE_SIZE - 1), 3).1, 2);
    // A stack grows for a copy, and pages that come are counted as faults.
    let stack = process.map(2, Rights::RW, ANON | MapFlags::GROWSDOWN, None);
    let below = VirtAddr::new(stack.raw() - 3 * PAGE_SIZE);
    let (faults, counted) = (process.space.minor_faults(), process.world.lab.mm().counter(Counter::PgFault));
    assert_eq!(to(&process, below, &[9; 16]), 0);
    assert_eq!(process.space.minor_faults() - faults, 1);
    assert_eq!(process.world.lab.mm().counter(Counter::PgFault) - counted, 1);
    assert_eq!(process.space.map().read().find(below).map(|(start, _)| start), Some(below.page_index()));
    process.world.on(CPU, |mm| mm.forget_file(&file));
    assert_eq!(from(&process, mapped, 1).1, 1);
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_copy_to_a_shared_page_does_not_reach_the_child<I: Isa>() {
    let process = world::<I>();
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let child = process.fork();
    assert_eq!(to(&process, base, &2u64.to_le_bytes()), 0);
    assert_eq!((process.read(OTHER, base), child.read(OTHER, base)), (2, 1));
    // Nor is it seen by a pin that was taken through the child.
    let pin = child.take(CPU, base, 1, pagewright_lab::harness::GupCall::Pin(GupFlags::empty())).expect("there");
    assert_eq!(to(&child, base, &3u64.to_le_bytes()), 0);
    assert_eq!((pin.read(0), process.read(CPU, base)), (3, 2));
    pin.release(MakeDirty::No);
    child.end();
    TestProcess::end_all_at_rest(&[&process]);
}

fn a_copy_leaves_the_marks_of_an_access<I: Isa>() {
    use pagewright_mm::space::ClearRefs;
    let process = world::<I>();
    let base = process.anon(1);
    process.write(CPU, base, 1);
    let flags = || {
        let leaf = process.world.on(CPU, |mm| recount::leaf(mm, &process.space, base));
        leaf.expect("mapped").flags() & (LeafFlags::ACCESSED | LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY)
    };
    process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::All).expect("memory"));
    assert_eq!(flags(), LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY);
    from(&process, base, 1);
    assert_eq!(flags(), LeafFlags::ACCESSED | LeafFlags::DIRTY | LeafFlags::SOFT_DIRTY);
    process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty).expect("memory"));
    from(&process, base, 1);
    assert!(!flags().contains(LeafFlags::SOFT_DIRTY), "a copy from there is no store");
    to(&process, base, &[1]);
    assert!(flags().contains(LeafFlags::SOFT_DIRTY));
    TestProcess::end_all_at_rest(&[&process]);
}

fn words_are_whole_and_may_straddle_pages<I: Isa>() {
    let process = world::<I>();
    let base = process.anon(2);
    let border = base.add(PAGE_SIZE - 2);
    process.world.on(CPU, |mm| {
        let space = &process.space;
        mm.put_user(space, border, 0x1122_3344_5566_7788u64).expect("mapped");
        assert_eq!(mm.get_user::<u64>(space, border), Ok(0x1122_3344_5566_7788));
        assert_eq!(mm.get_user::<u8>(space, border), Ok(0x88));
        assert_eq!(mm.get_user::<u16>(space, border.add(2)), Ok(0x5566));
        assert_eq!(mm.get_user::<u32>(space, border.add(4)), Ok(0x1122_3344));
        let past = base.add(2 * PAGE_SIZE);
        assert_eq!(mm.get_user::<u32>(space, past), Err(MmError::Inaccessible { va: past }));
        assert_eq!(mm.put_user(space, past, 1u8), Err(MmError::Inaccessible { va: past }));
    });
    TestProcess::end_all_at_rest(&[&process]);
}

fn strings_end_where_they_end<I: Isa>() {
    let process = world::<I>();
    let base = process.anon(2);
    let name = b"/usr/lib/ld.so\0after";
    let at = base.add(PAGE_SIZE - 5);
    to(&process, at, name);
    let string = |at: VirtAddr, room: usize| {
        let mut bytes = vec![0xee; room];
        let len = process.world.on(CPU, |mm| mm.strncpy_from_user(&process.space, at, &mut bytes));
        (len, bytes)
    };
    let (len, bytes) = string(at, 64);
    assert_eq!((len, &bytes[..15]), (Ok(14), &name[..15]), "across a page");
    assert_eq!(string(at, 7), (Ok(7), name[..7].to_vec()), "no end in sight");
    assert_eq!(string(at, 0).0, Ok(0));
    // A string may end right before a hole, and must not run into it.
    let last = base.add(2 * PAGE_SIZE - 4);
    to(&process, last, b"abc\0");
    assert_eq!(string(last, 64).0, Ok(3));
    to(&process, last, b"abcd");
    let hole = base.add(2 * PAGE_SIZE);
    let (len, bytes) = string(last, 64);
    assert_eq!((len, &bytes[..4]), (Err(MmError::Inaccessible { va: hole }), &b"abcd"[..]));
    assert!(string(I::USER_END, 1).0.is_err());
    TestProcess::end_all_at_rest(&[&process]);
}

fn memory_that_is_refused_ends_a_copy<I: Isa>() {
    let process = world::<I>();
    let base = process.anon(3);
    process.write(CPU, base, 1);
    let sim = process.world.lab.sim();
    let refused = sim.refused_allocations();
    sim.fail_allocation_after(0, AllocationFailure::One);
    assert_eq!(to(&process, base, &[7; 2 * PAGE_SIZE as usize]), PAGE_SIZE as usize);
    sim.permit_allocations();
    assert_eq!(sim.refused_allocations() - refused, 1);
    assert_eq!(process.space.rss().pages(), 1, "nothing came of the second page");
    assert!(process.touch(CPU, base.add(PAGE_SIZE), Access::Read).is_ok());
    TestProcess::end_all_at_rest(&[&process]);
}
