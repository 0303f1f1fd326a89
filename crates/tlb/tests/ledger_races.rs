//! Races of debts that are left to the ledger, under many schedules.
//!
//! Meanwhile other CPUs flush, use the page and allocate its frame. The bugs that can be planted
//! there (feature `planted`) must be found.
//!
//! Nothing in the memory manager leaves a debt yet, so the programs here stand on `tlb` alone: one
//! CPU clears an entry and drops the debt, one goes on reading the page, one flushes another page
//! of the space and takes every frame that is free. Cites INV-ORACLE-O1, INV-ORACLE-O2,
//! INV-TLB-DEBT, INV-LEDGER-FULL, INV-LEDGER-SAMPLE.

use crate::bare::{self, Bare, Shape, is_dropped, nothing_was_found};
use pagewright_arch::on_both;
use pagewright_arch::{Effects, Isa};
use pagewright_check::{Antecedent, Attempt, Chooser, RunDetail};
use pagewright_sim::explore::CoroutineBody;
use pagewright_tlb::{BatchPolicy, Gather};
use pagewright_types::{Counter, CpuId, Level, Order, PageRange};
use std::rc::Rc;

const USES: CpuId = CpuId::new(1);
const SHAPE: Shape = Shape { cpus: 3, pages: 2, isolated: false, batch: BatchPolicy::Auto };
/// The page whose debt is left to the ledger.
const LEFT: u16 = 0;
/// The page that is flushed at once.
const FLUSHED: u16 = 1;

/// What each CPU does, in their order.
///
/// One leaves a debt, [`USES`] uses the page, and one flushes and allocates.
fn programs<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let [leaves, uses, flushes] = [(); 3].map(|()| Rc::clone(bare));
    vec![
        Box::new(move || {
            drops_debt(&leaves, LEFT);
        }),
        Box::new(move || {
            for _ in 0..4 {
                uses.reads(USES, LEFT);
            }
        }),
        Box::new(move || {
            flushes.unmap(FLUSHED).settle();
            for _ in 0..4 {
                flushes.take_frame();
            }
        }),
    ]
}

/// What the debts of all schedules came to.
#[derive(Default)]
struct Seen {
    parked: u64,
    settled: u64,
}

fn run<I: Isa>(seen: &mut Seen, chooser: &mut dyn Chooser, detail: RunDetail) -> Attempt {
    let bare = Bare::<I>::new(SHAPE);
    let programs = programs(&bare);
    let mut look = |bare: &Bare<I>| {
        seen.parked += bare.count(Counter::PwTlbDebtParked);
        seen.settled += bare.count(Counter::PwTlbSettleOnAlloc);
    };
    bare.run(programs, &mut look, chooser, detail)
}

/// INV-TLB-DEBT: no caller gets the frame while a CPU can reach it.
fn a_dropped_debt_is_settled_before_its_frame_is_reused<I: Isa>() {
    let mut seen = Seen::default();
    let search = bare::explore(1, bare::soaked(400), |chooser, detail| run::<I>(&mut seen, chooser, detail));
    nothing_was_found(&search);
    assert!(
        seen.parked == u64::from(search.schedules) && seen.settled > 0,
        "debts are left, and an allocation settles them"
    );
    assert!(search.tally.of(Antecedent::FrameSwept) > 0, "no frame was handed out that a TLB still held");
}

/// As [`programs`], with a CPU that leaves the space and joins it again.
fn joins_meanwhile<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let [leaves, joins, takes] = [(); 3].map(|()| Rc::clone(bare));
    vec![
        Box::new(move || drops_debt(&leaves, LEFT)),
        Box::new(move || {
            for _ in 0..3 {
                joins.tlb.leave_space();
                joins.tlb.fx().publish();
                joins.tlb.switch_to(&joins.context);
                joins.reads(USES, LEFT);
            }
        }),
        Box::new(move || {
            for _ in 0..6 {
                takes.take_frame();
            }
        }),
    ]
}

/// A debt is left while another CPU settles an older one.
fn leaves_while_another_settles<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let [settles, leaves, uses] = [(); 3].map(|()| Rc::clone(bare));
    vec![
        Box::new(move || {
            drops_debt(&settles, FLUSHED);
            // The first settles, and the second takes what was left meanwhile.
            settles.take_frame();
            settles.take_frame();
        }),
        Box::new(move || drops_debt(&leaves, LEFT)),
        Box::new(move || {
            for _ in 0..10 {
                uses.reads(CpuId::new(2), LEFT);
            }
        }),
    ]
}

/// A gather beside others is dropped, and another CPU maps a new page where it cleared one.
fn installs_after_a_dropped_gather<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    bare.give_frame();
    let [drops, installs, uses] = [(); 3].map(|()| Rc::clone(bare));
    vec![
        Box::new(move || {
            let mut gather = Gather::concurrent(&drops.tlb, &drops.context);
            let table = drops.table.lock();
            gather.absorb(drops.unmap(LEFT));
            gather.publish(drops.slot(LEFT).table);
            drop(table);
            is_dropped(gather);
        }),
        Box::new(move || {
            let block = installs.tlb.alloc(installs.tlb.request(Order::ZERO)).expect("one is left");
            let folio = installs.tlb.frames().new_folio(block);
            installs.takes_away(LEFT);
            loop {
                let table = installs.table.lock();
                if !installs.is_mapped(LEFT) {
                    let page = PageRange::page(bare::page(LEFT));
                    installs.tlb.flush_before_install(&installs.context, installs.slot(LEFT), page.start(), Level::PTE);
                    installs.map_folio(LEFT, folio);
                    break;
                }
                drop(table);
                installs.tlb.fx().relax();
            }
            installs.returns();
        }),
        Box::new(move || {
            for _ in 0..6 {
                uses.reads(CpuId::new(2), LEFT);
            }
        }),
    ]
}

/// A debt is dropped, and another CPU reports that the page is gone.
fn relies_on_a_dropped_debt<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let [drops, relies, uses] = [(); 3].map(|()| Rc::clone(bare));
    vec![
        Box::new(move || drops_debt(&drops, LEFT)),
        Box::new(move || {
            relies.takes_away(LEFT);
            // The frame is parked after the debt is recorded.
            while relies.count(Counter::PwTlbDebtParked) == 0 {
                relies.tlb.fx().relax();
            }
            Gather::new(&relies.tlb, &relies.context).settle();
            relies.returns();
        }),
        Box::new(move || {
            for _ in 0..6 {
                uses.reads(CpuId::new(2), LEFT);
            }
        }),
    ]
}

fn drops_debt<I: Isa>(bare: &Rc<Bare<I>>, index: u16) {
    is_dropped(bare.unmap(index));
}

fn attempt<I: Isa>(
    programs: fn(&Rc<Bare<I>>) -> Vec<CoroutineBody>,
    chooser: &mut dyn Chooser,
    detail: RunDetail,
) -> Attempt {
    let bare = Bare::<I>::new(SHAPE);
    let programs = programs(&bare);
    bare.run(programs, &mut |_| {}, chooser, detail)
}

fn explored<I: Isa>(programs: fn(&Rc<Bare<I>>) -> Vec<CoroutineBody>) {
    // A race of two instructions is met once in a few thousand schedules.
    let search = bare::explore(1, bare::soaked(4_000), |chooser, detail| attempt(programs, chooser, detail));
    nothing_was_found(&search);
    assert!(search.tally.of(Antecedent::FrameSwept) > 0, "no frame was handed out that a TLB had held");
}

/// INV-TLB-SWITCH: the debt names the CPUs that join before its generation is visible.
fn a_cpu_that_joins_holds_nothing_that_a_dropped_debt_frees<I: Isa>() {
    explored::<I>(joins_meanwhile);
}

/// INV-LEDGER-SAMPLE: an act that settles everything does not settle what arose during it.
fn a_debt_that_arises_during_a_settlement_stays_open<I: Isa>() {
    explored::<I>(leaves_while_another_settles);
}

/// INV-TLB-DEBT: the space remembers a dropped debt, until an operation has flushed it.
fn no_right_of_a_dropped_debt_outlives_an_operation_that_finds_the_entry<I: Isa>() {
    for programs in [installs_after_a_dropped_gather::<I>, relies_on_a_dropped_debt::<I>] {
        let search = bare::explore(1, bare::soaked(1_000), |chooser, detail| attempt(programs, chooser, detail));
        nothing_was_found(&search);
        assert!(search.tally.of(Antecedent::RightReduced) > 0, "no call returned while a TLB had held the page");
    }
}

on_both! {
    no_right_of_a_dropped_debt_outlives_an_operation_that_finds_the_entry,
    a_dropped_debt_is_settled_before_its_frame_is_reused,
    a_cpu_that_joins_holds_nothing_that_a_dropped_debt_frees,
    a_debt_that_arises_during_a_settlement_stays_open,
}

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use bare::{Wanted, is_found};
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_check::Rule;
    use pagewright_plant::PlantedBug;

    fn find<I: Isa>(plant: PlantedBug, budget: u32, race: bool) {
        is_found::<I>(&Wanted { plant, rules: &[Rule::Reuse], budget, race }, |chooser, detail| {
            run::<I>(&mut Seen::default(), chooser, detail)
        });
    }

    /// INV-LEDGER-FULL: found when the third CPU takes the frame.
    #[test]
    fn a_clock_that_a_partial_flush_advances_is_found() {
        find::<X86_64>(PlantedBug::PartialClock, 2000, true);
    }

    /// INV-TLB-SWITCH: found when the third CPU takes the frame.
    ///
    /// On arm64 a debt names the CPU that issued.
    #[test]
    fn a_debt_that_misses_a_cpu_that_joins_is_found() {
        let wanted =
            Wanted { plant: PlantedBug::DebtMaskBeforeBump, rules: &[Rule::Reuse], budget: 60_000, race: true };
        is_found::<X86_64>(&wanted, |chooser, detail| attempt(joins_meanwhile::<X86_64>, chooser, detail));
    }

    /// INV-LEDGER-SAMPLE: found when the CPU that settles takes the frame.
    ///
    /// On x86-64 a CPU cannot walk between the two in its handler.
    #[test]
    fn a_clock_sampled_after_the_act_is_found() {
        let wanted = Wanted { plant: PlantedBug::SampledAfterAct, rules: &[Rule::Reuse], budget: 60_000, race: true };
        is_found::<Aarch64>(&wanted, |chooser, detail| {
            attempt(leaves_while_another_settles::<Aarch64>, chooser, detail)
        });
    }

    fn find_right<I: Isa>(plant: PlantedBug, programs: fn(&Rc<Bare<I>>) -> Vec<CoroutineBody>, race: bool) {
        is_found::<I>(&Wanted { plant, rules: &[Rule::Rights], budget: 20_000, race }, |chooser, detail| {
            attempt(programs, chooser, detail)
        });
    }

    /// INV-TLB-DEBT: found when the call returns.
    #[test]
    fn a_dropped_debt_that_leaves_no_mark_is_found() {
        find_right::<X86_64>(PlantedBug::DroppedRightsForgotten, relies_on_a_dropped_debt, false);
        find_right::<Aarch64>(PlantedBug::DroppedRightsForgotten, relies_on_a_dropped_debt, false);
    }

    /// INV-TLB-DEBT: found when the call returns, if it installs between the two.
    #[test]
    fn a_dropped_gather_that_is_uncounted_first_is_found() {
        find_right::<X86_64>(PlantedBug::CountDroppedFirst, installs_after_a_dropped_gather, true);
        find_right::<Aarch64>(PlantedBug::CountDroppedFirst, installs_after_a_dropped_gather, true);
    }

    /// Found when the third CPU takes the frame.
    ///
    /// The default schedule keeps a broadcast in flight for as long as no CPU waits for it, so this
    /// needs no race.
    #[test]
    fn a_dsb_on_another_cpu_is_found() {
        find::<Aarch64>(PlantedBug::CompleteElsewhere, 100, false);
    }
}
