//! Each call on one side of a fork that shares tables, and what the other side sees: nothing.

use super::{PAGES, PLACES, parent, values};
use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::{ANON, CPU, GupCall, TestProcess, TestWorld, at};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::user::IoVec;
use pagewright_mm::view::PagemapFlags;
use pagewright_mm::{Advice, MapFlags, Mm, RemapFlags, RemapRequest};
use pagewright_table::LeafView;
use pagewright_types::{Access, Counter, PAGE_SIZE, PageRange, Rights, VirtAddr};

on_both! {
    a_call_on_one_side_is_not_seen_on_the_other,
    a_hole_in_a_file_is_seen_on_both_sides,
    a_heap_that_grows_is_seen_on_one_side,
    a_mapping_that_grows_is_seen_on_one_side,
    a_stack_that_grows_is_seen_on_one_side,
    memory_mapped_next_to_other_is_seen_on_one_side,
    advice_is_followed_in_tables_that_no_child_has_any_more,
}

type BeforeFork<I> = fn(&TestWorld<I>, &TestProcess<I>, VirtAddr);
type Act<I> = fn(&TestWorld<I>, &TestProcess<I>, VirtAddr);
/// Gets the process of the call first, then the other one.
type Effect<I> = fn(&TestWorld<I>, &TestProcess<I>, &TestProcess<I>, VirtAddr);

/// What a call does to a process, and what [`PLACES`] then read there; `None` for a signal.
struct Row<I: Isa> {
    name: &'static str,
    /// What the parent does before it forks.
    before: BeforeFork<I>,
    act: Act<I>,
    /// What else is asserted after the call, before any access.
    effect: Effect<I>,
    after: [Option<u64>; 3],
}

impl<I: Isa> Row<I> {
    fn before(self, before: BeforeFork<I>) -> Self {
        Self { before, ..self }
    }

    fn effect(self, effect: Effect<I>) -> Self {
        Self { effect, ..self }
    }
}

fn row<I: Isa>(name: &'static str, act: Act<I>, after: [Option<u64>; 3]) -> Row<I> {
    Row { name, before: |_, _, _| (), act, effect: |_, _, _, _| (), after }
}

/// The leaves that map [`PLACES`].
fn leaves<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> [Option<LeafView>; 3] {
    let map = process.space.map().read();
    process.world.on(CPU, |mm| PLACES.map(|page| map.tables(mm.tlb()).peek(at(base, page)).leaf()))
}

/// Whether each of [`PLACES`] was accessed, or is not mapped.
fn accessed<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> [bool; 3] {
    leaves(process, base).map(|leaf| leaf.is_none_or(|leaf| leaf.has(LeafFlags::ACCESSED)))
}

/// Which of [`PLACES`] `pagemap` has as soft-dirty.
fn soft_dirty<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> [bool; 3] {
    PLACES.map(|page| {
        let mut is_soft_dirty = false;
        process.world.on(CPU, |mm| {
            mm.pagemap(&process.space, PageRange::page(at(base, page)), |_, word| {
                is_soft_dirty = word.flags().contains(PagemapFlags::SOFT_DIRTY);
            });
        });
        is_soft_dirty
    })
}

/// Pages of the process in swap.
fn swapped<I: Isa>(process: &TestProcess<I>) -> u64 {
    process.world.on(CPU, |mm| mm.rss(&process.space).swapped())
}

fn clear_soft_dirty<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>) {
    world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory for tables");
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
        // The store gives the process a table of its own, and a page. What is shared stays.
        row(
            "MADV_COLD",
            |_, process, base| {
                process.write(CPU, at(base, PLACES[1]), 2);
                assert_eq!(accessed(process, base), [true; 3]);
                process.advise(base, PAGES, Advice::Cold);
            },
            WHOLE,
        )
        .effect(|_, one, other, base| {
            assert_eq!((accessed(one, base), accessed(other, base)), ([true, false, true], [true; 3]));
        }),
        row(
            "MADV_PAGEOUT",
            |_, process, base| {
                process.write(CPU, at(base, PLACES[1]), 2);
                process.advise(base, PAGES, Advice::PageOut);
            },
            WHOLE,
        )
        .effect(|world, one, other, base| {
            assert_eq!((swapped(one), swapped(other), world.count(Counter::PswpOut)), (1, 0, 1));
            let resident = |process| leaves(process, base).map(|leaf| leaf.is_some());
            assert_eq!((resident(one), resident(other)), ([true, false, true], [true; 3]));
        }),
        row("MADV_WILLNEED", |_, process, base| process.advise(base, PAGES, Advice::WillNeed), WHOLE)
            .before(|world, process, base| {
                process.map_over(at(base, 100), &world.file(4), Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
            })
            .effect(|world, one, other, base| {
                assert_eq!(world.count(Counter::PwTableBroken), 0, "no entry changes");
                for process in [one, other] {
                    assert_eq!(process.mincore(at(base, 100), 4), Ok(vec![1; 4]), "the file is cached");
                }
            }),
        row(
            "MADV_GUARD_INSTALL",
            |_, process, base| process.advise(at(base, 600), 200, Advice::GuardInstall),
            MIDDLE_GONE,
        ),
        row("MADV_GUARD_REMOVE", |_, process, base| process.advise(at(base, 600), 200, Advice::GuardRemove), WHOLE)
            .before(|_, process, base| process.advise(at(base, 610), 10, Advice::GuardInstall))
            .effect(|_, one, other, base| {
                assert_eq!(one.read(CPU, at(base, 615)), 0);
                assert!(other.touch(CPU, at(base, 615), Access::Read).is_err(), "the other guard stays");
            }),
        row(
            "MADV_DONTNEED_LOCKED",
            |world, process, base| {
                world.on(CPU, |mm| mm.mlock(&process.space, at(base, 690), 20 * PAGE_SIZE)).expect("within the limit");
                process.advise(at(base, 600), 200, Advice::DontNeedLocked);
            },
            MIDDLE_ZERO,
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
        row("clear_refs of soft-dirty bits", |world, process, _| clear_soft_dirty(world, process), WHOLE)
            .before(|world, process, base| {
                clear_soft_dirty(world, process);
                process.write(CPU, at(base, PLACES[1]), 2);
                assert_eq!(soft_dirty(process, base), [false, true, false]);
            })
            .effect(|_, one, other, base| {
                assert_eq!((soft_dirty(one, base), soft_dirty(other, base)), ([false; 3], [false, true, false]));
            }),
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

/// Calls after which mappings below a table that was shared are one again.
fn rows_that_merge<I: Isa>() -> Vec<Row<I>> {
    fn protect<I: Isa>(process: &TestProcess<I>, base: VirtAddr, rights: Rights) {
        process.protect(at(base, 100), 50, rights);
    }
    fn may_store<I: Isa>(process: &TestProcess<I>, base: VirtAddr) -> bool {
        process.touch(CPU, at(base, 120), Access::Write).is_ok()
    }
    vec![
        row("mprotect, as the mappings around", |_, process, base| protect(process, base, Rights::RW), WHOLE)
            .before(|_, process, base| protect(process, base, Rights::READ))
            .effect(|world, one, other, base| {
                assert_eq!((one.mappings(), other.mappings()), (1, 3));
                assert!(world.count(Counter::PwTableBroken) > 0, "the mappings differ");
                assert_eq!((may_store(one, base), may_store(other, base)), (true, false));
            }),
        row(
            "mprotect, and back",
            |_, process, base| {
                protect(process, base, Rights::READ);
                assert_eq!(process.mappings(), 3);
                protect(process, base, Rights::RW);
            },
            WHOLE,
        )
        .effect(|_, one, other, base| {
            assert_eq!((one.mappings(), other.mappings()), (1, 1));
            assert_eq!((may_store(one, base), may_store(other, base)), (true, true));
        }),
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
    for row in rows::<I>().into_iter().chain(more_rows()).chain(rows_that_merge()).chain(rows_by_others()) {
        for by_child in [true, false] {
            let (world, process, base) = parent::<I>(2);
            world.swap_to(64);
            (row.before)(&world, &process, base);
            let child = process.fork();
            let (one, other) = if by_child { (&child, &process) } else { (&process, &child) };
            (row.act)(&world, one, base);
            (row.effect)(&world, one, other, base);
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

/// `MADV_REMOVE`: what the file loses, each mapping of it loses, by one edit of a shared table.
fn a_hole_in_a_file_is_seen_on_both_sides<I: Isa>() {
    for by_child in [true, false] {
        let (world, process, base) = parent::<I>(2);
        let file = world.shmem(4);
        let [mapped, private] = [at(base, 100), at(base, 110)];
        process.map_over(mapped, &file, Rights::RW, MapFlags::SHARED | MapFlags::FIXED);
        process.map_over(private, &file, Rights::RW, MapFlags::PRIVATE | MapFlags::FIXED);
        (0..4).for_each(|page| process.write(CPU, at(mapped, page), page + 10));
        process.write(CPU, private, 50);
        let child = process.fork();
        let (one, other) = if by_child { (&child, &process) } else { (&process, &child) };
        let words = |process: &TestProcess<I>, base| [0, 1, 2, 3].map(|page| process.read(CPU, at(base, page)));
        for process in [one, other] {
            assert_eq!((words(process, mapped), words(process, private)), ([10, 11, 12, 13], [50, 11, 12, 13]));
        }
        one.advise(mapped, 2, Advice::Remove);
        assert_eq!(world.count(Counter::PwTableBroken), 0, "no table is copied for it");
        for process in [one, other] {
            assert_eq!((words(process, mapped), words(process, private)), ([0, 0, 12, 13], [50, 0, 12, 13]));
            assert_eq!(values(process, base), [1, 2, 3]);
        }
        one.write(CPU, at(mapped, 1), 31);
        one.write(CPU, at(private, 2), 32);
        assert_eq!((words(other, mapped), words(other, private)), ([0, 31, 12, 13], [50, 31, 12, 13]));
        assert_eq!(words(one, private), [50, 31, 32, 13]);
        world.recount(&[&process, &child]);
        world.on(CPU, |mm| mm.close_file(&file));
        TestProcess::end_all_at_rest(&[&process, &child]);
    }
}

/// INV-SHARE-FILL: the mapping is one side's alone, and so is what a read fills in.
pub(super) fn a_heap_that_grows_is_seen_on_one_side<I: Isa>() {
    let (world, process, base) = parent::<I>(2);
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

/// INV-SHARE-FILL: grows the child's memory, reads what it got, and asserts that only it has that.
///
/// `new` is in a table that both share, or would make. `before` is what the parent maps there.
fn assert_grows_on_one_side<I: Isa>(before: Act<I>, grow: Act<I>, new: impl Fn(VirtAddr) -> VirtAddr) {
    let (world, process, base) = parent::<I>(2);
    before(&world, &process, base);
    let child = process.fork();
    let (mappings, new) = (process.mappings(), new(base));
    grow(&world, &child, base);
    assert_eq!(child.read(CPU, new), 0);
    assert_eq!(process.leaf_level(new), None, "the child's page");
    assert_eq!(process.mappings(), mappings);
    assert_eq!((values(&process, base), values(&child, base)), ([1, 2, 3], [1, 2, 3]));
    world.recount(&[&process, &child]);
    child.write(CPU, new, 9);
    assert_eq!(process.leaf_level(new), None, "the child's page");
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
}

/// Pages of the mapping that end in the middle of a table.
const SHORT: u64 = PAGES - 20;

fn shorten<I: Isa>(_: &TestWorld<I>, process: &TestProcess<I>, base: VirtAddr) {
    process.unmap(at(base, SHORT), PAGES - SHORT);
}

/// `mremap`, in a shared table, and into a table that is missing.
pub(super) fn a_mapping_that_grows_is_seen_on_one_side<I: Isa>() {
    fn grow<I: Isa>(world: &TestWorld<I>, process: &TestProcess<I>, base: VirtAddr, (old, new): (u64, u64)) {
        let (old_len, new_len, flags) = (old * PAGE_SIZE, new * PAGE_SIZE, RemapFlags::empty());
        let request = RemapRequest { addr: base, old_len, new_len, flags, new_addr: VirtAddr::ZERO };
        assert_eq!(world.on(CPU, |mm| mm.mremap(&process.space, &request)), Ok(base));
    }
    assert_grows_on_one_side::<I>(
        shorten,
        |world, process, base| grow(world, process, base, (SHORT, SHORT + 4)),
        |base| at(base, SHORT + 2),
    );
    assert_grows_on_one_side::<I>(
        |_, _, _| (),
        |world, process, base| grow(world, process, base, (PAGES, PAGES + 4)),
        |base| at(base, PAGES + 2),
    );
}

/// By a fault.
pub(super) fn a_stack_that_grows_is_seen_on_one_side<I: Isa>() {
    fn stack(base: VirtAddr) -> VirtAddr {
        at(base, (1 << 14) + 100)
    }
    assert_grows_on_one_side::<I>(
        |_, process, base| {
            process.map_at(stack(base), 4, Rights::RW, ANON | MapFlags::FIXED | MapFlags::GROWSDOWN);
            process.write(CPU, stack(base), 5);
        },
        |_, process, base| assert_eq!(process.read(CPU, at(base, (1 << 14) + 98)), 0),
        |base| at(base, (1 << 14) + 98),
    );
}

/// `mmap`, at a fixed address and at one that the call chooses.
pub(super) fn memory_mapped_next_to_other_is_seen_on_one_side<I: Isa>() {
    const FLAGS: MapFlags = ANON.union(MapFlags::NORESERVE);
    fn map<I: Isa>(process: &TestProcess<I>, at: VirtAddr, flags: MapFlags) {
        assert_eq!(process.map_at(at, 4, Rights::RW, FLAGS | flags), at);
    }
    assert_grows_on_one_side::<I>(
        shorten,
        |_, process, base| map(process, at(base, SHORT), MapFlags::FIXED),
        |base| at(base, SHORT + 2),
    );
    // The hint is free.
    assert_grows_on_one_side::<I>(
        shorten,
        |_, process, base| map(process, at(base, SHORT), MapFlags::empty()),
        |base| at(base, SHORT + 2),
    );
    // The last-level table is missing.
    assert_grows_on_one_side::<I>(
        |_, _, _| (),
        |_, process, base| map(process, at(base, PAGES), MapFlags::FIXED),
        |base| at(base, PAGES + 2),
    );
}

/// `MADV_COLD` and `MADV_PAGEOUT`, as the first calls after the end of the child.
fn advice_is_followed_in_tables_that_no_child_has_any_more<I: Isa>() {
    for advice in [Advice::Cold, Advice::PageOut] {
        let (world, process, base) = parent::<I>(1);
        let device = world.swap_to(16);
        process.fork().end();
        assert_eq!(accessed(&process, base), [true; 3]);
        process.advise(base, PAGES, advice);
        let in_swap = if advice == Advice::PageOut { 3 } else { 0 };
        assert_eq!((swapped(&process), device.used() as u64), (in_swap, in_swap), "{advice:?}");
        if advice == Advice::Cold {
            assert_eq!(accessed(&process, base), [false; 3]);
        }
        assert_eq!(values(&process, base), [1, 2, 3]);
        TestProcess::end_all_at_rest(&[&process]);
    }
}
