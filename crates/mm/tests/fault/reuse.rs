//! The leaf after a store that reuses its page (`wp_page_reuse`).
//!
//! Every way in which a private page becomes read-only and stays its space's alone meets every way
//! to the mapping's rights. The fault is called directly: an access would note some flags itself.

use super::leaves::leaf_at;
use pagewright_arch::{Isa, LeafFlags, on_both};
use pagewright_lab::harness::race::{assert_short_race_holds, race_in_turns};
use pagewright_lab::harness::{CPU, GupCall, OTHER, TestProcess};
use pagewright_mm::fault::FaultKind;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::space::ClearRefs;
use pagewright_mm::{Advice, MapFlags, MmSetting};
use pagewright_sim::explore::CoroutineBody;
use pagewright_types::{Access, Counter, Rights, VirtAddr};

on_both! {
    a_store_that_reuses_its_page_gives_the_leaf_all_of_the_mapping,
    a_store_that_reuses_its_page_faults_once,
    a_store_to_a_page_of_a_shared_file_faults_once,
    a_forced_store_that_reuses_its_page_gives_no_right,
    no_load_keeps_a_store_from_its_end:
        assert_short_race_holds(FAULT_STEPS, store_beside_a_load::<I>, "the store was not a reuse"),
}

/// More than a fault takes.
const FAULT_STEPS: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadOnlyPage {
    SwappedIn,
    /// Shared with a child that has ended.
    Forked,
    /// Also shared with such a child, in swap, and still in the swap cache.
    ForkedInSwap,
    /// Its soft-dirty bit was cleared.
    Watched,
    Unshared,
}

const STATES: [ReadOnlyPage; 5] = [
    ReadOnlyPage::SwappedIn,
    ReadOnlyPage::Forked,
    ReadOnlyPage::ForkedInSwap,
    ReadOnlyPage::Watched,
    ReadOnlyPage::Unshared,
];

/// A process of one private page in the state, which has not been accessed lately.
fn with_page<I: Isa>(state: ReadOnlyPage) -> (TestProcess<I>, VirtAddr) {
    let (world, process) = TestProcess::<I>::judged(1);
    world.set(MmSetting::CowPageTables, "never");
    world.swap_to(8);
    let base = process.anon(1);
    if state != ReadOnlyPage::Unshared {
        process.write(CPU, base, 1);
    }
    match state {
        ReadOnlyPage::SwappedIn => {
            process.advise(base, 1, Advice::PageOut);
            process.read(CPU, base);
        }
        ReadOnlyPage::Forked => process.fork().end(),
        ReadOnlyPage::ForkedInSwap => {
            process.advise(base, 1, Advice::PageOut);
            process.fork().end();
            process.read(CPU, base);
        }
        ReadOnlyPage::Watched => {
            world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory")
        }
        ReadOnlyPage::Unshared => {
            let pin = process.take(CPU, base, 1, GupCall::Pin(GupFlags::LONGTERM)).expect("memory");
            pin.release(MakeDirty::No);
        }
    }
    process.advise(base, 1, Advice::Cold);
    let leaf = leaf_at(&process, base).expect("a leaf");
    assert!(!leaf.rights().contains(Rights::WRITE) && !leaf.has(LeafFlags::ACCESSED), "{state:?}: {leaf:?}");
    (process, base)
}

fn a_store_that_reuses_its_page_gives_the_leaf_all_of_the_mapping<I: Isa>() {
    let ways: [&[Rights]; 4] =
        [&[Rights::RW], &[Rights::all()], &[Rights::READ, Rights::RW], &[Rights::empty(), Rights::RX, Rights::all()]];
    for state in STATES {
        for way in ways {
            let (process, base) = with_page::<I>(state);
            let world = &process.world;
            way.iter().for_each(|rights| process.protect(base, 1, *rights));
            let (before, rights) = (leaf_at(&process, base).expect("a leaf"), *way.last().expect("a right"));
            let reused = world.count(Counter::PgReuse);
            assert_eq!(world.on(CPU, |mm| mm.fault(&process.space, base, Access::Write)), Ok(FaultKind::Minor));
            let after = leaf_at(&process, base).expect("a leaf");
            let case = format!("{state:?}, {way:?}: {before:?}, then {after:?}");
            // The entry may be writable again when the mapping is.
            if !before.rights().contains(Rights::WRITE) {
                assert_eq!((world.count(Counter::PgReuse), world.count(Counter::PwCowCopy)), (reused + 1, 0), "{case}");
                assert!(after.has(LeafFlags::STORED), "{case}");
            }
            assert_eq!((after.rights(), after.pfn()), (rights, before.pfn()), "{case}");
            TestProcess::end_all_at_rest(&[&process]);
        }
    }
}

fn a_forced_store_that_reuses_its_page_gives_no_right<I: Isa>() {
    for state in STATES {
        for rights in [Rights::READ, Rights::RX, Rights::empty()] {
            let (process, base) = with_page::<I>(state);
            process.protect(base, 1, rights);
            let before = leaf_at(&process, base).expect("a leaf");
            let call = GupCall::Get(GupFlags::WRITE | GupFlags::FORCE);
            process.take(CPU, base, 1, call).expect("a private mapping").release(MakeDirty::Yes);
            let after = leaf_at(&process, base).expect("a leaf");
            let kept = (before.rights(), before.pfn(), true);
            assert_eq!((after.rights(), after.pfn(), after.is_exclusive()), kept, "{state:?}, {rights:?}");
            TestProcess::end_all_at_rest(&[&process]);
        }
    }
}

/// Also on a CPU that keeps the entry that refused the store (arm64).
fn a_store_that_reuses_its_page_faults_once<I: Isa>() {
    for state in STATES {
        let (process, base) = with_page::<I>(state);
        // With all rights, so that the store needs the general edit.
        for rights in [Rights::RW, Rights::all()] {
            process.protect(base, 1, Rights::READ);
            process.protect(base, 1, rights);
            process.world.on(CPU, |mm| mm.clear_refs(&process.space, ClearRefs::SoftDirty)).expect("memory");
            process.read(CPU, base);
            let faults = process.world.count(Counter::PgFault);
            process.write(CPU, base, 12);
            assert_eq!(process.world.count(Counter::PgFault) - faults, 1, "{state:?}, {rights:?}");
        }
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// Also after a load, which leaves the entry that refuses the store in the TLB.
fn a_store_to_a_page_of_a_shared_file_faults_once<I: Isa>() {
    for loads in [false, true] {
        let (world, process) = TestProcess::<I>::judged(1);
        let base = process.map_file(&world.file(1), Rights::RW, MapFlags::SHARED);
        if loads {
            process.read(CPU, base);
            assert!(!leaf_at(&process, base).expect("a leaf").rights().contains(Rights::WRITE));
        }
        let faults = world.count(Counter::PgFault);
        process.write(CPU, base, 12);
        assert_eq!(world.count(Counter::PgFault) - faults, 1, "after a load: {loads}");
        TestProcess::end_all_at_rest(&[&process]);
    }
}

/// At each step of the fault in turn, the walker of another CPU notes that the page was accessed.
///
/// Returns whether the fault reused the page.
fn store_beside_a_load<I: Isa>(seed: u64) -> bool {
    let (world, process) = TestProcess::<I>::unjudged();
    world.set(MmSetting::CowPageTables, "never");
    let base = process.anon(1);
    process.write(CPU, base, 1);
    process.fork().end();
    process.advise(base, 1, Advice::Cold);
    world.lab.run(OTHER, &process.space);
    let [stores, loads] = [(); 2].map(|()| (world.clone(), process.space.clone()));
    let programs: Vec<CoroutineBody> = vec![
        Box::new(move || _ = stores.0.on(CPU, |mm| mm.fault(&stores.1, base, Access::Write)).expect("mapped")),
        Box::new(move || loads.0.lab.touch(OTHER, &loads.1, base, Access::Read, 1).expect("readable")),
    ];
    race_in_turns(&world, seed, &[(CPU, seed as u32), (OTHER, 100)], programs);
    world.count(Counter::PgReuse) == 1 && process.read(CPU, base) == 1
}
