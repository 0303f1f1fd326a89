//! Each call on one side of a fork that shares tables, and what the other side sees: nothing.

use super::{PAGES, PLACES, values};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::user::IoVec;
use pagewright_mm::{Advice, MapFlags, Mm, RemapFlags, RemapRequest};
use pagewright_types::{Access, PAGE_SIZE, Rights, VirtAddr};

on_both! {
    a_call_on_one_side_is_not_seen_on_the_other,
    a_heap_that_grows_is_seen_on_one_side,
}

/// What a call does to a process, and what [`PLACES`] then read there; `None` for a signal.
struct Row<I: Isa> {
    name: &'static str,
    act: fn(&TestWorld<I>, &TestProcess<I>, VirtAddr),
    after: [Option<u64>; 3],
}

fn row<I: Isa>(
    name: &'static str,
    act: fn(&TestWorld<I>, &TestProcess<I>, VirtAddr),
    after: [Option<u64>; 3],
) -> Row<I> {
    Row { name, act, after }
}

const WHOLE: [Option<u64>; 3] = [Some(1), Some(2), Some(3)];
const GONE: [Option<u64>; 3] = [None; 3];
const MIDDLE_GONE: [Option<u64>; 3] = [Some(1), None, Some(3)];
const MIDDLE_ZERO: [Option<u64>; 3] = [Some(1), Some(0), Some(3)];

/// Calls that unmap, protect or advise.
fn rows<I: Isa>() -> Vec<Row<I>> {
    vec![
        row("munmap of a page", |_, process, base| process.unmap(at(base, PLACES[1]), 1), MIDDLE_GONE),
        row("munmap of a whole table", |_, process, base| process.unmap(at(base, 512), 512), MIDDLE_GONE),
        row("munmap of all", |_, process, base| process.unmap(base, PAGES), GONE),
        row("mprotect", |_, process, base| process.protect(at(base, 600), 200, Rights::READ), WHOLE),
        row("mprotect to none", |_, process, base| process.protect(at(base, 600), 200, Rights::empty()), MIDDLE_GONE),
        row("MADV_DONTNEED", |_, process, base| process.advise(at(base, 600), 200, Advice::DontNeed), MIDDLE_ZERO),
        row("MADV_FREE", |_, process, base| process.advise(base, PAGES, Advice::Free), WHOLE),
        row("MADV_COLD", |_, process, base| process.advise(base, PAGES, Advice::Cold), WHOLE),
        row("MADV_PAGEOUT", |_, process, base| process.advise(base, PAGES, Advice::PageOut), WHOLE),
        row(
            "MADV_GUARD_INSTALL",
            |_, process, base| process.advise(at(base, 600), 200, Advice::GuardInstall),
            MIDDLE_GONE,
        ),
        row("MADV_POPULATE_WRITE", |_, process, base| process.advise(at(base, 690), 20, Advice::PopulateWrite), WHOLE),
    ]
}

/// Calls that lock, track, replace or move memory.
fn more_rows<I: Isa>() -> Vec<Row<I>> {
    vec![
        row(
            "mlock",
            |world, process, base| {
                world.on(CPU, |mm| mm.mlock(&process.space, at(base, 690), 20 * PAGE_SIZE)).expect("within the limit");
            },
            WHOLE,
        ),
        row(
            "clear_refs of soft-dirty bits",
            |world, process, _| {
                world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory for tables");
            },
            WHOLE,
        ),
        row(
            "a mapping over it",
            |_, process, base| {
                process.map_at(at(base, 600), 200, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
            },
            MIDDLE_ZERO,
        ),
        row(
            "mremap of a whole table",
            |world, process, base| {
                let (flags, new_addr) = (RemapFlags::MAYMOVE | RemapFlags::FIXED, base.add(1 << 30));
                let len = 512 * PAGE_SIZE;
                let request = RemapRequest { addr: at(base, 512), old_len: len, new_len: len, flags, new_addr };
                world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
                assert_eq!(process.read(CPU, new_addr.add((PLACES[1] - 512) * PAGE_SIZE)), 2, "it has moved");
            },
            MIDDLE_GONE,
        ),
        row(
            "mremap of a page",
            |world, process, base| {
                let (flags, new_addr) = (RemapFlags::MAYMOVE | RemapFlags::FIXED, base.add(1 << 30));
                let (addr, len) = (at(base, PLACES[1]), PAGE_SIZE);
                let request = RemapRequest { addr, old_len: len, new_len: len, flags, new_addr };
                world.on(CPU, |mm| mm.mremap(&process.space, &request)).expect("room");
                assert_eq!(process.read(CPU, new_addr), 2, "it has moved");
            },
            MIDDLE_GONE,
        ),
    ]
}

/// Stores that others do, and the end of the process.
fn rows_by_others<I: Isa>() -> Vec<Row<I>> {
    vec![
        row(
            "a forced write",
            |_, process, base| {
                process.protect(base, PAGES, Rights::READ);
                let call = GupCall::Get(GupFlags::WRITE | GupFlags::FORCE);
                let debugger = process.take(CPU, at(base, PLACES[1]), 1, call).expect("its own copy");
                debugger.write(0, 7);
                debugger.release(MakeDirty::Yes);
                process.protect(base, PAGES, Rights::RW);
            },
            [Some(1), Some(7), Some(3)],
        ),
        row(
            "process_vm_writev into it",
            |world, process, base| {
                let stranger = TestProcess::new(&process.world);
                let word = stranger.anon(1);
                stranger.write(CPU, word, 9);
                let [ours, theirs] = [word, at(base, PLACES[1])].map(|base| [IoVec { base, len: 8 }]);
                let write = |mm: &Mm<_>| mm.process_vm_writev((&stranger.space, &ours), (&process.space, &theirs), 0);
                assert_eq!(world.on(CPU, write), Ok(8));
                stranger.end();
                world.lab.run(CPU, &process.space);
            },
            [Some(1), Some(9), Some(3)],
        ),
        row(
            "a store of the kernel",
            |world, process, base| {
                world.on(CPU, |mm| mm.put_user(&process.space, at(base, PLACES[1]), 11_u64)).expect("mapped");
            },
            [Some(1), Some(11), Some(3)],
        ),
        // The OOM killer and `execve` end a space in the same way.
        row("exit", |_, process, _| process.end(), GONE),
    ]
}

fn seen<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> [Option<u64>; 3] {
    PLACES.map(|page| {
        let va = at(base, page);
        process.touch(CPU, va, Access::Read).ok().map(|()| process.read(CPU, va))
    })
}

/// INV-SHARE-OWN.
fn a_call_on_one_side_is_not_seen_on_the_other<I: Isa>() {
    for row in rows::<I>().into_iter().chain(more_rows()).chain(rows_by_others()) {
        for by_child in [true, false] {
            let (world, process, base) = super::parent::<I>(2);
            world.swap_to(64);
            let child = process.fork();
            let (one, other) = if by_child { (&child, &process) } else { (&process, &child) };
            (row.act)(&world, one, base);
            let ended = row.name == "exit";
            if !ended {
                assert_eq!(seen(one, base), row.after, "{}", row.name);
            }
            assert_eq!(
                values(other, base),
                [1, 2, 3],
                "{} of the {}",
                row.name,
                if by_child { "child" } else { "parent" }
            );
            for page in PLACES {
                other.write(CPU, at(base, page), page + 5);
            }
            assert_eq!(values(other, base), PLACES.map(|page| page + 5), "{}", row.name);
            if !ended {
                assert_eq!(seen(one, base), row.after, "{}: stores on the other side", row.name);
            }
            let alive: &[&TestProcess<I>] = if ended { &[other] } else { &[one, other] };
            world.recount(alive);
            TestProcess::end_all_at_rest(alive);
        }
    }
}

/// INV-SHARE-FILL: the mapping is one side's alone, and so is what a read fills in.
pub(super) fn a_heap_that_grows_is_seen_on_one_side<I: Isa>() {
    let (world, process, base) = super::parent::<I>(2);
    let heap = at(base, 1 << 12);
    world.on(CPU, |mm| mm.set_brk_start(&process.space, heap));
    let child = process.fork();
    let end = at(heap, 4);
    assert_eq!(world.on(CPU, |mm| mm.brk(&child.space, end)), end);
    assert_eq!(child.read(CPU, heap), 0);
    assert!(process.touch(CPU, heap, Access::Read).is_err(), "the parent's heap is empty");
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}
