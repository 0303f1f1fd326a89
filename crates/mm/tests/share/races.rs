//! Sharers that break, leave and read at the same time, while their pages are swapped out.
//!
//! A third CPU that runs none of the spaces walks the tables of one: no flush reaches it.

use super::{PAGES, PLACES, parent, values};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, race, race_in_long_turns};
use pagewright_lab::harness::{CPU, OTHER, THIRD, TestProcess, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::{MapFlags, Space};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_sync::Arc;
use pagewright_types::{Access, CpuId, NodeId, Rights, VirtAddr};
use std::rc::Rc;

const SCHEDULES: u64 = 150;
const FOURTH: CpuId = CpuId::new(3);

/// A word of a space, as another process reads it.
fn read_by_another<I: Isa>(world: &pagewright_lab::harness::TestWorld<I>, space: &Space<Sim<I>>, va: VirtAddr) -> u64 {
    let mut word = [0; 8];
    let left = world.on(THIRD, |mm| mm.copy_from_user(space, va, &mut word));
    assert_eq!(left, 0, "the page is mapped");
    u64::from_le_bytes(word)
}

/// One thread breaks a table, the sibling ends, and another process reads.
///
/// Returns whether each saw its own values, and the counts agree afterwards.
fn break_beside_an_end_and_a_reader<I: Isa>(seed: u64) -> bool {
    let (world, process, base) = parent::<I>(4);
    let child = process.fork();
    // The reader's space loses its table by the break, and the frames by the end of the sibling.
    let (breaks, ends) = if seed.is_multiple_of(2) { (&process, &child) } else { (&child, &process) };
    let page = at(base, PLACES[(seed / 2 % 3) as usize]);
    let (stored, read) = (breaks.space.clone(), breaks.space.clone());
    let ended: Arc<Space<Sim<I>>> = ends.space.clone();
    let [stores, ending, reads] = [(); 3].map(|()| Rc::clone(&world));
    world.lab.run(CPU, &breaks.space);
    world.on(OTHER, |mm| mm.tlb().leave_space());
    // A thread whose CPU walks the tables that are broken.
    let (thread, threads_space) = (Rc::clone(&world), breaks.space.clone());
    breaks.read(FOURTH, at(base, PLACES[0]));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores.store(CPU, &stored, page, 70)),
        Box::new(move || ending.on(OTHER, |mm| mm.end_space(&ended))),
        Box::new(move || {
            for place in PLACES {
                read_by_another(&reads, &read, at(base, place));
            }
        }),
        Box::new(move || {
            for place in PLACES {
                thread.word(FOURTH, &threads_space, at(base, place), Access::Read);
            }
        }),
    ];
    if (seed / 6).is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_long_turns(&world, seed, programs)
    }
    let expected = PLACES.map(|place| if at(base, place) == page { 70 } else { values_at(place) });
    // New pages take the frames of the tables that were freed.
    let new = breaks.anon(16);
    (0..16).for_each(|page| breaks.write(CPU, at(new, page), page));
    let sound = values(breaks, base) == expected;
    world.recount(&[breaks]);
    breaks.end();
    world.at_rest(&[]);
    world.assert_nothing_leaked();
    sound
}

fn values_at(place: u64) -> u64 {
    1 + PLACES.iter().position(|other| *other == place).expect("one of them") as u64
}

/// The last two sharers end at once: one of them is the last to leave.
fn two_ends<I: Isa>(seed: u64) -> bool {
    let (world, process, base) = parent::<I>(2);
    let child = process.fork();
    let sound = values(&child, base) == [1, 2, 3];
    let spaces = [&process, &child].map(|process| process.space.clone());
    for cpu in [CPU, OTHER] {
        world.on(cpu, |mm| mm.tlb().leave_space());
    }
    let programs = spaces.into_iter().zip([CPU, OTHER]).map(|(space, cpu)| -> CoroutineBody {
        let world = Rc::clone(&world);
        Box::new(move || world.on(cpu, |mm| mm.end_space(&space)))
    });
    let programs = programs.collect();
    race(&world, seed, programs);
    world.at_rest(&[]);
    world.assert_nothing_leaked();
    sound
}

/// A page is swapped out for all its sharers while one of them uses it on another CPU.
fn page_out_beside_a_sibling<I: Isa>(seed: u64) -> bool {
    let (world, process, base) = parent::<I>(3);
    let device = world.swap_to(8);
    let child = process.fork();
    let family = [process, child];
    let [used, other] = if seed.is_multiple_of(2) { [0, 1] } else { [1, 0] };
    family[used].read(OTHER, at(base, 0));
    let (space, [uses, reclaims]) = (family[used].space.clone(), [(); 2].map(|()| Rc::clone(&world)));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for _ in 0..4 {
                reclaims.on(CPU, |mm| mm.reclaim(NodeId::new(0), 3));
            }
        }),
        Box::new(move || {
            for value in 40..43 {
                uses.store(OTHER, &space, at(base, 1), value);
                uses.word(OTHER, &space, at(base, 0), Access::Read);
            }
        }),
    ];
    race(&world, seed, programs);
    let sound = values(&family[used], base) == [1, 2, 3] && values(&family[other], base) == [1, 2, 3];
    world.recount(&[&family[0], &family[1]]);
    TestProcess::end_all_at_rest(&[&family[0], &family[1]]);
    sound && device.used() == 0
}

/// A table that has one sharer left is taken back while its pages are swapped out.
///
/// INV-SHARE-COUNT: what is noted in the table for all sharers is counted in the space, once.
fn take_back_beside_page_out<I: Isa>(seed: u64) -> bool {
    let (world, process, base) = parent::<I>(2);
    let device = world.swap_to(8);
    let child = process.fork();
    child.end();
    world.lab.run(OTHER, &process.space);
    let (space, [stores, reclaims]) = (process.space.clone(), [(); 2].map(|()| Rc::clone(&world)));
    let page = at(base, PLACES[(seed % 3) as usize]);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || {
            for _ in 0..3 {
                reclaims.on(CPU, |mm| mm.reclaim(NodeId::new(0), 2));
            }
        }),
        Box::new(move || stores.store(OTHER, &space, page, 44)),
    ];
    race(&world, seed, programs);
    world.recount(&[&process]);
    let expected = PLACES.map(|place| if at(base, place) == page { 44 } else { values_at(place) });
    let sound = values(&process, base) == expected;
    // A note that were left in a table would go with it.
    process.unmap(base, PAGES);
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    sound && device.used() == 0
}

/// Two threads break the same table by stores to different pages, and a third reads one of them.
///
/// The third has translations of the table that is broken. INV-SHARE-LEAVE: it loses them before a
/// page of the copy changes.
fn two_threads_break<I: Isa>(seed: u64) -> bool {
    let (world, process, base) = parent::<I>(3);
    process.write(CPU, at(base, 1), 5);
    let child = process.fork();
    for cpu in [OTHER, THIRD] {
        process.read(cpu, at(base, 1));
    }
    let [first, second, third] = [(); 3].map(|()| (Rc::clone(&world), process.space.clone()));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || first.0.store(CPU, &first.1, at(base, 0), 80)),
        Box::new(move || second.0.store(OTHER, &second.1, at(base, 1), 81)),
        Box::new(move || {
            for _ in 0..3 {
                third.0.word(THIRD, &third.1, at(base, 1), Access::Read);
            }
        }),
    ];
    race(&world, seed, programs);
    let sound = process.read(THIRD, at(base, 0)) == 80
        && process.read(THIRD, at(base, 1)) == 81
        && child.read(CPU, at(base, 1)) == 5;
    world.recount(&[&process, &child]);
    TestProcess::end_all_at_rest(&[&process, &child]);
    sound
}

/// A file is truncated for all sharers of a table while one of them breaks it.
///
/// INV-SHARE-BREAK: the copy loses what the old table loses.
fn break_beside_truncation<I: Isa>(seed: u64) -> bool {
    let (world, process, base) = parent::<I>(2);
    let file = world.file(2);
    let mapped = at(base, 100);
    process.map_over(mapped, &file, Rights::RW, MapFlags::SHARED | MapFlags::FIXED);
    process.write(CPU, mapped, 9);
    let child = process.fork();
    let breaks = if seed.is_multiple_of(2) { &process } else { &child };
    world.lab.run(CPU, &breaks.space);
    let (space, cut) = (breaks.space.clone(), file.clone());
    let [stores, truncates] = [(); 2].map(|()| Rc::clone(&world));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || stores.store(CPU, &space, base, 70)),
        Box::new(move || truncates.on(OTHER, |mm| mm.truncate(&cut, 0)).expect("not sealed")),
    ];
    race(&world, seed, programs);
    let sound = [&process, &child].iter().all(|process| process.touch(CPU, mapped, Access::Read).is_err());
    world.recount(&[&process, &child]);
    world.on(CPU, |mm| mm.forget_file(&file));
    TestProcess::end_all_at_rest(&[&process, &child]);
    sound
}

on_both! {
    a_break_loses_what_a_truncation_removes:
        assert_holds(SCHEDULES, break_beside_truncation::<I>, "a page of the file is mapped after its truncation"),
    two_threads_break_a_table_and_a_third_loses_it:
        assert_holds(SCHEDULES, two_threads_break::<I>, "a store was lost, or seen by the child"),
    a_break_an_end_and_a_reader_do_not_disturb_each_other:
        assert_holds(SCHEDULES, break_beside_an_end_and_a_reader::<I>, "a value was lost, or another one seen"),
    the_last_of_two_that_end_frees_the_tables:
        assert_holds(SCHEDULES, two_ends::<I>, "a child sees other values"),
    a_table_is_taken_back_while_its_pages_go_out:
        assert_holds(SCHEDULES, take_back_beside_page_out::<I>, "a value was lost"),
    a_page_out_reaches_the_siblings_on_other_cpus:
        assert_holds(SCHEDULES, page_out_beside_a_sibling::<I>, "a value was lost"),
}

/// The other tests of the room, as races of one schedule.
#[cfg(feature = "planted")]
mod still {
    use pagewright_arch::Isa;

    macro_rules! still {
        ($($name:ident: $test:expr;)*) => {
            $(pub(super) fn $name<I: Isa>(_seed: u64) -> bool {
                $test;
                true
            })*
        };
    }

    still! {
        stores: super::super::a_store_copies_the_tables_on_its_way_and_no_others::<I>();
        lent: super::super::a_child_that_is_left_may_not_store_to_what_the_parent_lent::<I>();
        paged_out: super::super::for_all::a_page_out_is_flushed_on_the_cpus_of_all_sharers::<I>();
        read: super::super::for_all::a_page_in_swap_is_read_for_all_sharers::<I>();
        summed: super::super::for_all::a_resident_set_is_summed_again_after_what_changes_it::<I>();
        failed: super::super::for_all::a_break_that_fails_counts_no_edit_for_all::<I>();
        ended: super::super::for_all::an_ended_process_has_no_resident_set::<I>();
        mapped: super::super::a_mapping_in_a_shared_table_is_flushed_on_other_cpus::<I>();
        left: super::super::an_unmap_of_a_shared_table_is_flushed_on_other_cpus::<I>();
        moved: super::super::pins::a_table_to_which_a_pinned_page_moved_is_not_shared::<I>();
        limit: super::super::a_break_at_the_limit_of_references_changes_nothing::<I>();
        pinned: super::super::pins::a_table_with_a_pinned_page_is_not_shared_until_it_is_unpinned::<I>();
    }
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    OldPointerWritable => still::stores,
    TakenBackByAnyone => still::lent,
    ForkSharesPinned => still::pinned,
    PinMovedUnmarked => still::moved,
    LastShareDropped => two_ends,
    FailedCopyKept => still::limit,
    CopiedBeforeGap => break_beside_truncation,
    EditsFoldedFirst => take_back_beside_page_out,
    LeaveNotFlushed => still::left,
    BreakNotFlushed => still::mapped,
    ShareNotFlushed => two_threads_break,
    FamilyForgotten => still::paged_out,
    EndedSpaceSummed => still::ended,
    FilledWritable => still::read,
    EditNotNoted => still::summed,
    PathChangeNotCounted => still::summed,
    BreakNotCounted => still::summed,
    LeaveNotCounted => still::summed,
    FailedBreakCounted => still::failed,
}
