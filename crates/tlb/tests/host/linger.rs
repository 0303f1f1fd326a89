//! Which translations may linger, and when they are settled.
//!
//! INV-LINGER-MAY, INV-LINGER-WHOLE, INV-LINGER-GENERATION, INV-TLB-CLEARED.

use super::space::{Space, machine, page};
use crate::support::{Host, on};
use pagewright_arch::{Effects, Isa, Pte, X86_64, on_both};
use pagewright_tlb::{Batch, FamilyDebt, Gather, LazyBatch, SecondaryMmu, Tlb};
use pagewright_types::{Access, Counter, CpuId, CpuMask, DebtKey, Level, PageRange, Rights};
use std::sync::Arc;

on_both! {
    what_may_not_linger_is_flushed_and_counted,
    one_entry_that_may_not_linger_flushes_the_others_of_its_folio,
    a_folio_of_more_spaces_than_a_batch_remembers_is_flushed,
    a_batch_without_a_translation_that_lingers_has_no_key,
    an_install_asks_the_key_of_its_entry_alone,
}

/// A machine on which CPUs 1 and 2 run a space.
fn run_by_two<I: Isa>() -> (Host<I>, Arc<Tlb<Host<I>>>, Space<I>) {
    let (host, tlb) = machine::<I>(4);
    let space = Space::new(&tlb);
    [1, 2].into_iter().for_each(|cpu| on(cpu, || space.run()));
    (host, tlb, space)
}

/// Clears an entry, which had these rights, into the folio that `lazy` has begun.
fn absorb<'t, I: Isa>(space: &'t Space<I>, lazy: &mut LazyBatch<'t, Host<I>>, index: u16, rights: Rights) -> bool {
    FamilyDebt::new(None, space.clear(index).cleared(rights)).absorb_lazily(lazy, &space.context)
}

struct Device;

impl SecondaryMmu for Device {
    fn invalidate_secondary(&self, _range: Option<PageRange>) {}
}

/// Prepares a refusal: whether the page may linger, and the rights of the entry.
type Prepare<I> = fn(&Space<I>) -> (bool, Rights);

fn what_may_not_linger_is_flushed_and_counted<I: Isa>() {
    let refusals: [(Counter, Prepare<I>); 4] = [
        (Counter::PwLingerPageRefused, |_| (false, Rights::READ)),
        (Counter::PwLingerWritable, |_| (true, Rights::RW)),
        (Counter::PwLingerDevice, |space| {
            space.tlb.register_secondary(&space.context, Arc::new(Device)).expect("memory");
            (true, Rights::READ)
        }),
        (Counter::PwLingerNoWait, |space| {
            // On arm64 it is not known which CPUs run a space.
            [1, 2].into_iter().for_each(|cpu| on(cpu, || space.tlb.leave_space()));
            (true, if I::KIND == X86_64::KIND { Rights::READ } else { Rights::RW })
        }),
    ];
    for (counter, prepare) in refusals {
        let (_, tlb, space) = run_by_two::<I>();
        let (may, rights) = prepare(&space);
        let mut lazy = LazyBatch::new(&tlb, true);
        lazy.begin_folio(may);
        assert!(!absorb(&space, &mut lazy, 0, rights) && !lazy.end_folio(), "{counter:?}");
        assert_eq!(lazy.settle(), DebtKey::NONE);
        let counter = if counter == Counter::PwLingerNoWait && rights == Rights::RW {
            Counter::PwLingerWritable
        } else {
            counter
        };
        assert_eq!(tlb.frames().counters().sum(counter), 1, "{counter:?}");
    }
    // A gather that is open may have taken a right to store.
    let (_, tlb, space) = run_by_two::<I>();
    let open = Gather::concurrent(&tlb, &space.context);
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(3));
    for gathers in [1, 0] {
        let mut lazy = LazyBatch::new(&tlb, true);
        lazy.begin_folio(true);
        assert!(!absorb(&space, &mut lazy, 0, Rights::READ) && !lazy.end_folio(), "{gathers} gathers");
        assert_eq!(lazy.settle(), DebtKey::NONE);
    }
    open.settle();
    batch.settle();
    assert_eq!(tlb.frames().counters().sum(Counter::PwLingerUnflushed), 2);
}

fn one_entry_that_may_not_linger_flushes_the_others_of_its_folio<I: Isa>() {
    let (host, tlb, space) = run_by_two::<I>();
    (0..2).for_each(|index| _ = space.map_new(index));
    let reaches = |index| on(1, || host.access(page(index), Access::Read)).is_some();
    assert!(reaches(0) && reaches(1));
    let mut lazy = LazyBatch::new(&tlb, true);
    lazy.begin_folio(true);
    assert!(absorb(&space, &mut lazy, 0, Rights::READ));
    assert!(!absorb(&space, &mut lazy, 1, Rights::RW));
    assert!(!lazy.end_folio());
    assert!(reaches(0) && reaches(1));
    lazy.settle();
    assert!(!reaches(0) && !reaches(1));
    assert_eq!(tlb.frames().counters().sum(Counter::PwLingerPages), 0);
}

fn a_folio_of_more_spaces_than_a_batch_remembers_is_flushed<I: Isa>() {
    const REMEMBERED: usize = 16;
    let (_, tlb) = machine::<I>(4);
    let spaces: Vec<Space<I>> = (0..=REMEMBERED).map(|_| Space::new(&tlb)).collect();
    let mut lazy = LazyBatch::new(&tlb, true);
    for (pages, lingers) in [(REMEMBERED, true), (REMEMBERED + 1, false), (1, true)] {
        lazy.begin_folio(true);
        for space in &spaces[..pages] {
            on(1, || space.run());
            absorb(space, &mut lazy, 0, Rights::READ);
        }
        assert_eq!(lazy.end_folio(), lingers, "{pages} spaces");
    }
    assert_ne!(lazy.settle(), DebtKey::NONE);
}

fn a_batch_without_a_translation_that_lingers_has_no_key<I: Isa>() {
    let (_, tlb, space) = run_by_two::<I>();
    for lingers in [false, true] {
        let mut lazy = LazyBatch::new(&tlb, lingers);
        lazy.begin_folio(true);
        assert_eq!(absorb(&space, &mut lazy, 0, Rights::READ), lingers);
        assert_eq!(lazy.end_folio(), lingers);
        assert_eq!(lazy.settle() != DebtKey::NONE, lingers);
    }
}

/// What lingers under entry 0 is settled; under entry 1 a flush is deferred after that.
fn an_install_asks_the_key_of_its_entry_alone<I: Isa>() {
    let (host, tlb, space) = run_by_two::<I>();
    let reaches = || on(1, || host.access(page(1), Access::Read)).is_some();
    let key = space.linger(0);
    on(0, || tlb.settle(key));
    space.map_new(1);
    assert!(reaches());
    let mut batch = Batch::new(&tlb);
    on(2, || batch.absorb(&space.context, space.clear(1)));
    let install =
        |index| on(3, || tlb.flush_before_install(&space.context, space.slot(index), page(index), Level::PTE));
    install(0);
    assert!(reaches(), "entry 0 owes nothing");
    install(1);
    assert!(!reaches(), "INV-TLB-CLEARED");
    batch.settle();
}

/// CPU 1 keeps a translation under its tag while it runs another space.
///
/// The clocks of the CPUs that run this one are past the clearing, and the generation has not
/// moved.
fn a_cpu_comes_back_to_what_lingers() {
    let (host, tlb, space) = run_by_two::<X86_64>();
    let other = Space::new(&tlb);
    space.map_new(0);
    let reaches = || on(1, || host.access(page(0), Access::Read)).is_some();
    assert!(reaches());
    let mut lazy = LazyBatch::new(&tlb, true);
    lazy.begin_folio(true);
    assert!(absorb(&space, &mut lazy, 0, Rights::READ) && lazy.end_folio());
    on(1, || other.run());
    let everybody = tlb.ledger().open(CpuMask::of(CpuId::new(2)));
    on(2, || tlb.settle(everybody));
    // Another page is about to be mapped there.
    on(3, || tlb.flush_before_install(&space.context, space.slot(0), page(0), Level::PTE));
    tlb.fx().store(space.slot(0), Pte::EMPTY);
    on(1, || space.run());
    assert!(!reaches(), "INV-LINGER-GENERATION");
    lazy.settle();
}

/// A batch of two spaces depends on a table in which a translation lingers.
///
/// CPU 3 keeps the third space under its tag, and comes back to it after the batch was settled.
fn a_batch_depends_on_what_lingers() {
    let (host, tlb) = machine::<X86_64>(6);
    let [space, second, third, other] = [(); 4].map(|()| Space::new(&tlb));
    [&space, &second, &third].into_iter().for_each(|space| _ = space.map_new(0));
    let reaches = || on(3, || host.access(page(0), Access::Read)).is_some();
    on(3, || space.run());
    assert!(reaches());
    on(3, || other.run());
    on(1, || second.run());
    on(2, || third.run());
    let mut batch = Batch::new(&tlb);
    on(0, || batch.absorb(&second.context, second.clear(0)));
    on(0, || batch.absorb(&third.context, third.clear(0)));
    on(1, || space.run());
    let mut lazy = LazyBatch::new(&tlb, true);
    lazy.begin_folio(true);
    assert!(on(4, || absorb(&space, &mut lazy, 0, Rights::READ)) && lazy.end_folio());
    on(0, || batch.absorb_pending(&space.context, space.last()));
    on(0, || batch.settle());
    on(3, || space.run());
    let stale = reaches();
    on(4, || lazy.settle());
    assert!(!stale, "INV-LINGER-GENERATION");
}

#[test]
fn a_batch_that_depends_on_what_lingers_moves_the_generation() {
    a_batch_depends_on_what_lingers();
}

#[test]
fn clocks_settle_after_the_generation_has_moved() {
    a_cpu_comes_back_to_what_lingers();
}

#[cfg(feature = "planted")]
#[test]
fn clocks_that_settle_too_early_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::ClocksBeforeGeneration, a_cpu_comes_back_to_what_lingers);
    assert_found_by(PlantedBug::OtherKeyAsked, an_install_asks_the_key_of_its_entry_alone::<X86_64>);
    assert_found_by(PlantedBug::DeviceLingers, what_may_not_linger_is_flushed_and_counted::<X86_64>);
    assert_found_by(PlantedBug::LingeringTakenForOwn, a_batch_depends_on_what_lingers);
}
