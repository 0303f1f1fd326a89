//! Calls that split or map a huge leaf, beside other CPUs that use its pages.

use super::{BASE, PAGES, end};
use pagewright_arch::{Isa, on_both};
use pagewright_lab::harness::race::{assert_holds, device_step, race, race_in_long_turns, race_in_two_turns};
use pagewright_lab::harness::{ANON, CPU, OTHER, THIRD, TestProcess, TestWorld, at};
use pagewright_lab::planted_bugs_are_found;
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, PAGE_SIZE, Rights};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

on_both! {
    /// INV-MM-HUGE-CUT.
    a_discard_of_a_part_leaves_what_a_fault_maps_beside_it:
        assert_holds(SCHEDULES, discard_beside_a_fault::<I>, "a store was lost"),
    /// INV-TLB-UPPER-EDIT.
    a_discard_beside_another_returns_when_the_pages_are_gone:
        assert_holds(SCHEDULES, discard_beside_a_discard::<I>, "a page was still there"),
    /// INV-SPLIT-HIDDEN.
    a_page_stays_mapped_while_its_leaf_is_split:
        assert_holds(SCHEDULES, count_beside_a_split::<I>, "a page was not mapped"),
    /// INV-SPLIT-HIDDEN.
    no_store_is_lost_beside_the_split_of_a_leaf:
        assert_holds(SCHEDULES, stores_beside_a_split::<I>, "a store was lost"),
    /// INV-SPLIT-ALL.
    no_store_is_lost_beside_the_split_of_a_folio:
        assert_holds(SCHEDULES, stores_beside_a_split_of_a_folio::<I>, "a store was lost"),
    /// INV-COW-ORDER.
    a_page_of_zeroes_is_gone_when_another_cpu_stores:
        assert_holds(SCHEDULES, store_to_zeroes::<I>, "a load returned what was there before"),
}

const SCHEDULES: u64 = 100;

/// A process that runs on all CPUs, with an empty range of 2 MiB that may get a huge page.
fn empty<I: Isa>(cpus: u16) -> (Rc<TestWorld<I>>, TestProcess<I>) {
    let world = TestWorld::sized(cpus, 16 << 20);
    let process = TestProcess::new(&world);
    process.map_at(BASE, 2 * PAGES, Rights::RW, ANON | MapFlags::FIXED | MapFlags::NORESERVE);
    // The tables above the range exist.
    process.write(CPU, at(BASE, PAGES), 1);
    world.set(MmSetting::ThpEnabled, "always");
    (0..cpus).for_each(|cpu| world.lab.run(pagewright_types::CpuId::new(cpu), &process.space));
    (world, process)
}

fn discard_beside_a_fault<I: Isa>(seed: u64) -> bool {
    let (world, process) = empty::<I>(2);
    let (discards, stores) = (Rc::clone(&world), Rc::clone(&world));
    let [discarded, stored] = [(); 2].map(|()| process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || discards.advise(CPU, &discarded, BASE, 3, Advice::DontNeed)),
        Box::new(move || stores.store(OTHER, &stored, at(BASE, 7), 70)),
    ];
    match seed % 3 {
        0 => race(&world, seed, programs),
        1 => race_in_two_turns(&world, seed, programs),
        _ => race_in_long_turns(&world, seed, programs),
    }
    let sound = process.read(CPU, at(BASE, 7)) == 70 && process.read(CPU, at(BASE, 1)) == 0;
    end(&world, &[&process]);
    sound
}

/// CPU 1 discards the same huge page as CPU 0, and more, and then reads a page of it.
fn discard_beside_a_discard<I: Isa>(seed: u64) -> bool {
    let (world, process) = empty::<I>(2);
    process.write(OTHER, at(BASE, 7), 7);
    let (discards, reads) = (Rc::clone(&world), Rc::clone(&world));
    let [discarded, read] = [(); 2].map(|()| process.space.clone());
    let sound = Rc::new(Cell::new(true));
    let verdict = Rc::clone(&sound);
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || discards.advise(CPU, &discarded, BASE, PAGES, Advice::DontNeed)),
        Box::new(move || {
            reads.advise(OTHER, &read, BASE, PAGES + 3, Advice::DontNeed);
            verdict.set(reads.word(OTHER, &read, at(BASE, 7), Access::Read).load(Ordering::Relaxed) == 0);
        }),
    ];
    if seed.is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_two_turns(&world, seed, programs)
    }
    // The page of zeroes stays.
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    sound.get()
}

/// A split by `mprotect` of page 4.
fn splitter<I: Isa>(process: &TestProcess<I>) -> CoroutineBody {
    let (world, space) = (Rc::clone(&process.world), process.space.clone());
    Box::new(move || world.on(CPU, |mm| mm.mprotect(&space, at(BASE, 4), PAGE_SIZE, Rights::READ)).expect("mapped"))
}

fn count_beside_a_split<I: Isa>(seed: u64) -> bool {
    let (world, process) = empty::<I>(2);
    process.write(CPU, at(BASE, 7), 7);
    let page = process.frame(CPU, at(BASE, 7), Access::Read);
    let (reads, least) = (Rc::clone(&world), Rc::new(Cell::new(1)));
    let told = Rc::clone(&least);
    let count = move || {
        device_step();
        reads.on(OTHER, |mm| mm.kpagecount(page))
    };
    let programs: Vec<CoroutineBody> =
        vec![splitter(&process), Box::new(move || (0..40).for_each(|_| told.set(told.get().min(count()))))];
    race(&world, seed, programs);
    end(&world, &[&process]);
    least.get() == 1
}

fn stores_beside_a_split<I: Isa>(seed: u64) -> bool {
    stores_beside(seed, splitter::<I>)
}

fn stores_beside_a_split_of_a_folio<I: Isa>(seed: u64) -> bool {
    stores_beside(seed, |process: &TestProcess<I>| {
        super::split::splitter(Rc::clone(&process.world), process.space.clone())
    })
}

/// CPU 1 has the leaf in its TLB, stores by it, and must not do so after the pages were discarded.
fn stores_beside<I: Isa>(seed: u64, splitter: fn(&TestProcess<I>) -> CoroutineBody) -> bool {
    let (world, process) = empty::<I>(2);
    process.write(CPU, at(BASE, 3), 3);
    process.write(OTHER, at(BASE, 3), 3);
    let (stores, stored) = (Rc::clone(&world), process.space.clone());
    let programs: Vec<CoroutineBody> = vec![
        splitter(&process),
        Box::new(move || (5..10).for_each(|page| stores.store(OTHER, &stored, at(BASE, page), page * 10))),
    ];
    race(&world, seed, programs);
    let sound = (5..10).all(|page| process.read(CPU, at(BASE, page)) == page * 10);
    // A flush of a page reaches no TLB entry of 2 MiB on arm64.
    process.advise(at(BASE, 3), 1, Advice::DontNeed);
    let sound = sound && process.read(OTHER, at(BASE, 3)) == 0;
    world.at_rest(&[]);
    end(&world, &[&process]);
    sound
}

/// All CPUs have the huge page of zeroes; CPU 0 and CPU 1 store, and CPU 2 reads what CPU 1 stored.
fn store_to_zeroes<I: Isa>(seed: u64) -> bool {
    let (world, process) = empty::<I>(3);
    [CPU, OTHER, THIRD].iter().for_each(|cpu| assert_eq!(process.read(*cpu, at(BASE, 8)), 0));
    let (first, second, reads) = (Rc::clone(&world), Rc::clone(&world), Rc::clone(&world));
    let [one, two, read] = [(); 3].map(|()| process.space.clone());
    let (is_stored, sound) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(true)));
    let (told, seen, verdict) = (Rc::clone(&is_stored), is_stored, Rc::clone(&sound));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || first.store(CPU, &one, at(BASE, 9), 90)),
        Box::new(move || {
            second.store(OTHER, &two, at(BASE, 8), 80);
            told.set(true);
        }),
        Box::new(move || {
            for _ in 0..30 {
                device_step();
                let must_be = seen.get();
                reads.lab.touch(THIRD, &read, at(BASE, 8), Access::Read, 1).expect("mapped");
                let Some(word) = reads.word_now(THIRD, at(BASE, 8), Access::Read) else { continue };
                let value = word.load(Ordering::Relaxed);
                verdict.set(verdict.get() && (value == 80 || value == 0 && !must_be));
            }
        }),
    ];
    if seed.is_multiple_of(2) {
        race(&world, seed, programs)
    } else {
        race_in_long_turns(&world, seed, programs)
    }
    let sound = sound.get() && [8, 9].map(|page| process.read(CPU, at(BASE, page))) == [80, 90];
    world.recount(&[&process]);
    TestProcess::end_all_at_rest(&[&process]);
    sound
}

planted_bugs_are_found! {
    20 * SCHEDULES;
    CutHugeLeafTaken => discard_beside_a_fault,
    WholeUncountedFirst => count_beside_a_split,
    HugeZeroFlushLate => store_to_zeroes,
    UpperEditUnannounced => discard_beside_a_discard,
}

/// On x86-64 the flush of any page of a huge leaf ends all of it, so a later call ends it, too.
#[cfg(feature = "planted")]
#[test]
fn splits_without_a_flush_are_found_on_arm64() {
    use pagewright_arch::Aarch64;
    use pagewright_lab::harness::race::{PlantedRace, assert_planted_bugs_are_found};
    use pagewright_plant::PlantedBug;
    let of_leaf = stores_beside_a_split::<Aarch64> as fn(u64) -> bool;
    let races: [PlantedRace; 4] = [
        (PlantedBug::SplitNotFlushed, of_leaf),
        (PlantedBug::SplitFlushesPage, of_leaf),
        (PlantedBug::FolioSplitNotFlushed, stores_beside_a_split_of_a_folio::<Aarch64>),
        (PlantedBug::UpperEditNotAwaited, discard_beside_a_discard::<Aarch64>),
    ];
    assert_planted_bugs_are_found(20 * SCHEDULES, &races);
}
