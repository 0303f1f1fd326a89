//! Races of deferred flushes with other CPUs, under many schedules.
//!
//! Meanwhile other CPUs depend on what was cleared, join and leave the space, or settle the batch.
//! The bugs that can be planted there (feature `planted`) must be found. `PAGEWRIGHT_SOAK` makes
//! the schedules a hundred times as many.
//!
//! The programs stand on `tlb` alone: one CPU clears entries into a batch, one finds them cleared,
//! one goes on reading the pages. Cites INV-TLB-DEFERRED, INV-TLB-CLEARED, INV-TLB-HOTPLUG,
//! INV-ORACLE-O1, INV-ORACLE-O2.

use crate::bare::{self, Bare, Shape, explore, nothing_was_found};
use pagewright_arch::on_both;
use pagewright_arch::{Effects, Isa};
use pagewright_check::{Antecedent, Attempt, Chooser, RunDetail};
use pagewright_sim::Sim;
use pagewright_sim::explore::CoroutineBody;
use pagewright_tlb::{Batch, BatchPolicy, Debt, Gather, OwedFlush, Tlb};
use pagewright_types::{Counter, CpuId, Level};
use std::cell::RefCell;
use std::rc::Rc;

const RELIES: CpuId = CpuId::new(1);
const USES: CpuId = CpuId::new(2);
const SHAPE: Shape = Shape { cpus: 3, pages: 2, isolated: false, batch: BatchPolicy::Auto };
/// A batch that absorbs more while another CPU flushes the space for its first entries.
const LONGER: Shape = Shape { pages: 8, ..SHAPE };
const FOUR: Shape = Shape { cpus: 4, ..SHAPE };
const SCHEDULES: u32 = 300;

type Programs<I> = fn(&Rc<Bare<I>>) -> Vec<CoroutineBody>;

/// Clears each page under the table's lock, puts its flush off, and settles.
fn clears<I: Isa>(bare: &Rc<Bare<I>>) -> CoroutineBody {
    let bare = Rc::clone(bare);
    Box::new(move || {
        let mut batch = Batch::new(&bare.tlb);
        for index in 0..bare.pages {
            let table = bare.table.lock();
            if bare.is_mapped(index) {
                batch.absorb(&bare.context, bare.unmap(index));
            }
            drop(table);
        }
        batch.settle();
        while bare.take_frame() {}
    })
}

/// Reads the pages, mapped or not.
fn uses<I: Isa>(bare: &Rc<Bare<I>>) -> CoroutineBody {
    let bare = Rc::clone(bare);
    Box::new(move || {
        for index in (0..bare.pages).cycle().take(4 * usize::from(bare.pages)) {
            bare.reads(USES, index);
        }
    })
}

/// Unmaps what is cleared already, and says that it is gone.
fn unmaps_what_is_cleared<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let unmaps = Rc::clone(bare);
    let relies: CoroutineBody = Box::new(move || {
        for _ in 0..3 {
            for index in 0..unmaps.pages {
                unmaps.takes_away(index);
                let table = unmaps.table.lock();
                let mut gather = Gather::new(&unmaps.tlb, &unmaps.context);
                gather.meet(unmaps.slot(index).table);
                if unmaps.is_mapped(index) {
                    gather.absorb(unmaps.unmap(index));
                }
                drop(table);
                gather.settle();
                unmaps.returns();
            }
        }
    });
    vec![clears(bare), relies, uses(bare)]
}

/// Waits until another CPU has cleared each page, and unmaps it as it is found.
fn unmaps_as_they_are_cleared<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let unmaps = Rc::clone(bare);
    let relies: CoroutineBody = Box::new(move || {
        for index in 0..unmaps.pages {
            unmaps.takes_away(index);
            while {
                let _table = unmaps.table.lock();
                unmaps.is_mapped(index)
            } {
                unmaps.tlb.fx().relax();
            }
            unmaps.depends();
            unmaps.returns();
        }
    });
    vec![clears(bare), relies, uses(bare)]
}

/// Puts a page of another frame where one was cleared.
fn maps_what_is_cleared<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    bare.give_frame();
    let maps = Rc::clone(bare);
    let relies: CoroutineBody = Box::new(move || {
        let block = maps.tlb.alloc(maps.tlb.request(pagewright_types::Order::ZERO)).expect("one is left");
        let folio = maps.tlb.frames().new_folio(block);
        maps.takes_away(0);
        loop {
            let table = maps.table.lock();
            if !maps.is_mapped(0) {
                maps.tlb.flush_before_install(&maps.context, maps.slot(0), bare::page(0), Level::PTE);
                maps.map_folio(0, folio);
                break;
            }
            drop(table);
            maps.tlb.fx().relax();
        }
        maps.returns();
    });
    let clears = Rc::clone(bare);
    let clears: CoroutineBody = Box::new(move || {
        let mut batch = Batch::new(&clears.tlb);
        let table = clears.table.lock();
        batch.absorb(&clears.context, clears.unmap(0));
        drop(table);
        batch.settle();
    });
    vec![clears, relies, uses(bare)]
}

/// Declares that no CPU can use a page after the settlement of a batch that found it cleared.
fn absorbs_what_is_cleared<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let (zaps, cleans) = (Rc::clone(bare), Rc::clone(bare));
    let zaps: CoroutineBody = Box::new(move || {
        let mut gather = Gather::concurrent(&zaps.tlb, &zaps.context);
        for index in 0..zaps.pages {
            let table = zaps.table.lock();
            gather.absorb(zaps.unmap(index));
            gather.publish(zaps.slot(index).table);
            drop(table);
        }
        gather.settle();
    });
    let cleans: CoroutineBody = Box::new(move || {
        for index in 0..cleans.pages {
            cleans.takes_away(index);
            let mut batch = Batch::new(&cleans.tlb);
            let found = loop {
                let table = cleans.table.lock();
                if !cleans.is_mapped(index) {
                    batch.absorb_pending(&cleans.context, cleans.slot(index).table);
                    break true;
                }
                drop(table);
                cleans.tlb.fx().relax();
            };
            batch.settle();
            assert!(found);
            cleans.returns();
        }
    });
    vec![zaps, cleans, uses(bare)]
}

/// A batch that is filled on one CPU and settled on another, as a thread is moved.
fn settles_elsewhere<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    // A batch that changes hands lives as long as its engine, for which this one is kept for good.
    let tlb: &'static Rc<Tlb<Sim<I>>> = Box::leak(Box::new(Rc::clone(&bare.tlb)));
    let moved: Rc<RefCell<Option<Batch<'static, Sim<I>>>>> = Rc::default();
    let (fills, settles) = (Rc::clone(bare), Rc::clone(bare));
    let (full, empty) = (Rc::clone(&moved), moved);
    let fills: CoroutineBody = Box::new(move || {
        let mut batch = Batch::new(tlb);
        for index in 0..fills.pages {
            let table = fills.table.lock();
            batch.absorb(&fills.context, fills.unmap_by(tlb, index));
            drop(table);
        }
        *full.borrow_mut() = Some(batch);
    });
    let settles: CoroutineBody = Box::new(move || {
        let batch = loop {
            let moved = empty.borrow_mut().take();
            match moved {
                Some(batch) => break batch,
                None => settles.tlb.fx().relax(),
            }
        };
        batch.settle();
        while settles.take_frame() {}
    });
    vec![fills, settles, uses(bare)]
}

/// A CPU that leaves the space and joins it again, while flushes are deferred.
fn leaves_and_joins<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let joins = Rc::clone(bare);
    let joins: CoroutineBody = Box::new(move || {
        for _ in 0..3 {
            joins.tlb.leave_space();
            joins.tlb.fx().publish();
            joins.tlb.switch_to(&joins.context);
            for index in 0..joins.pages {
                joins.reads(RELIES, index);
            }
        }
    });
    // Of two spaces, so that the CPUs that the batch noted settle it. With one page: a further
    // one would note the CPU that has joined.
    let clears = Rc::clone(bare);
    let other = bare.tlb.open_context(bare.tlb.kernel_root()).expect("memory is left");
    let clears: CoroutineBody = Box::new(move || {
        let mut batch = Batch::new(&clears.tlb);
        batch.absorb(&other, Debt::new(&clears.tlb, &other, bare::page(0), OwedFlush::Leaf(Level::PTE), ()));
        for index in 0..clears.pages {
            let table = clears.table.lock();
            batch.absorb(&clears.context, clears.unmap(index));
            drop(table);
        }
        batch.settle();
        while clears.take_frame() {}
    });
    vec![clears, joins, uses(bare)]
}

/// A batch of two CPUs, which absorb one page each; `settler` is the one that settles it.
fn two_cpus_fill_a_batch<I: Isa>(bare: &Rc<Bare<I>>, settler: usize) -> Vec<CoroutineBody> {
    /// The next turn, and the batch.
    type Handed<I> = Option<(usize, Batch<'static, Sim<I>>)>;

    let tlb: &'static Rc<Tlb<Sim<I>>> = Box::leak(Box::new(Rc::clone(&bare.tlb)));
    let moved: Rc<RefCell<Handed<I>>> = Rc::default();
    let fills = |me: usize| -> CoroutineBody {
        let (bare, moved) = (Rc::clone(bare), Rc::clone(&moved));
        Box::new(move || {
            let next = |turn: usize| loop {
                let is_mine = moved.borrow().as_ref().is_some_and(|(at, _)| *at == turn);
                if is_mine {
                    break moved.borrow_mut().take().expect("just seen").1;
                }
                bare.tlb.fx().relax();
            };
            let mut batch = if me == 0 { Batch::new(tlb) } else { next(1) };
            let table = bare.table.lock();
            batch.absorb(&bare.context, bare.unmap_by(tlb, me as u16));
            drop(table);
            let turn = me + 1;
            if settler == me && turn == 2 {
                batch.settle();
            } else {
                *moved.borrow_mut() = Some((turn, batch));
            }
            if settler == 0 && me == 0 {
                next(2).settle();
            }
            if settler == me {
                while bare.take_frame() {}
            }
        })
    };
    vec![fills(0), fills(1), uses(bare)]
}

fn the_first_issuer_settles<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    two_cpus_fill_a_batch(bare, 0)
}

fn the_second_issuer_settles<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    two_cpus_fill_a_batch(bare, 1)
}

/// Two CPUs defer flushes of one space; a third depends on what both have cleared.
fn depends_on_two_batches<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let clears = |index: u16| -> CoroutineBody {
        let bare = Rc::clone(bare);
        Box::new(move || {
            let mut batch = Batch::new(&bare.tlb);
            let table = bare.table.lock();
            batch.absorb(&bare.context, bare.unmap(index));
            drop(table);
            // The other CPU may clear its page and settle here, or this one may settle first.
            bare.tlb.fx().publish();
            bare.tlb.fx().publish();
            batch.settle();
        })
    };
    let relies = Rc::clone(bare);
    let relies: CoroutineBody = Box::new(move || {
        for index in 0..relies.pages {
            relies.takes_away(index);
        }
        while {
            let _table = relies.table.lock();
            (0..relies.pages).any(|index| relies.is_mapped(index))
        } {
            relies.tlb.fx().relax();
        }
        relies.depends();
        relies.returns();
    });
    vec![clears(0), clears(1), uses(bare), relies]
}

/// A CPU that goes while a batch is open, and comes back.
fn goes_and_comes_back<I: Isa>(bare: &Rc<Bare<I>>) -> Vec<CoroutineBody> {
    let goes = Rc::clone(bare);
    let goes: CoroutineBody = Box::new(move || {
        goes.reads(RELIES, 0);
        goes.tlb.cpu_dying();
        goes.sim().unplug(RELIES);
        for _ in 0..4 {
            goes.tlb.fx().publish();
        }
        goes.tlb.cpu_starting();
        goes.sim().plug(RELIES);
        goes.tlb.switch_to(&goes.context);
        for index in 0..goes.pages {
            goes.reads(RELIES, index);
        }
    });
    vec![clears(bare), goes, uses(bare)]
}

fn run<I: Isa>(
    shape: Shape,
    programs: Programs<I>,
    seen: &mut dyn FnMut(&Bare<I>),
    chooser: &mut dyn Chooser,
    detail: RunDetail,
) -> Attempt {
    let bare = Bare::<I>::new(shape);
    let programs = programs(&bare);
    bare.run(programs, seen, chooser, detail)
}

/// Asserts that no violation is found, and that the programs did what they are for.
///
/// `wanted` was counted, and a TLB held what an edit took away.
fn holds<I: Isa>(shape: Shape, programs: Programs<I>, wanted: Counter, held: Antecedent) {
    holds_in::<I>(bare::soaked(SCHEDULES), shape, programs, wanted, held);
}

fn holds_in<I: Isa>(schedules: u32, shape: Shape, programs: Programs<I>, wanted: Counter, held: Antecedent) {
    let mut counted = 0;
    let search = explore(1, schedules, |chooser, detail| {
        run::<I>(shape, programs, &mut |bare| counted += bare.count(wanted), chooser, detail)
    });
    nothing_was_found(&search);
    assert!(counted > 0, "no {}", wanted.name());
    assert!(search.tally.of(held) > 0, "vacuous: {held:?}");
    println!("{}: {} schedules", I::KIND, search.schedules);
}

/// INV-TLB-DEFERRED.
fn an_unmap_flushes_what_a_batch_cleared<I: Isa>() {
    holds::<I>(SHAPE, unmaps_what_is_cleared, Counter::PwTlbBatchOvertaken, Antecedent::RightHeld);
    holds::<I>(SHAPE, unmaps_as_they_are_cleared, Counter::PwTlbBatchOvertaken, Antecedent::RightHeld);
}

/// INV-TLB-DEFERRED: two flushes are deferred in one epoch.
///
/// One is deferred before the flush of the space begins, and one after.
fn a_deferral_during_a_flush_of_its_space_stays_owed<I: Isa>() {
    holds::<I>(LONGER, unmaps_as_they_are_cleared, Counter::PwTlbBatchOvertaken, Antecedent::RightHeld);
}

/// INV-TLB-DEFERRED.
fn an_install_flushes_what_a_batch_cleared<I: Isa>() {
    holds::<I>(SHAPE, maps_what_is_cleared, Counter::PwTlbBatchOvertaken, Antecedent::RightHeld);
}

/// INV-TLB-CLEARED.
fn a_batch_absorbs_what_a_concurrent_gather_clears<I: Isa>() {
    holds::<I>(SHAPE, absorbs_what_is_cleared, Counter::PwTlbBatchFlushed, Antecedent::RightHeld);
}

/// INV-TLB-ORDER.
fn a_batch_can_settle_on_another_cpu<I: Isa>() {
    // Each leaves its machine behind.
    holds_in::<I>(SCHEDULES, SHAPE, settles_elsewhere, Counter::PwTlbBatchFlushed, Antecedent::FrameSwept);
}

/// INV-TLB-SWITCH: what the batch defers, and a CPU that joins meanwhile.
fn a_cpu_that_joins_holds_nothing_that_a_batch_frees<I: Isa>() {
    let shape = Shape { pages: 1, batch: BatchPolicy::Always, ..SHAPE };
    holds_in::<I>(bare::soaked(2_000), shape, leaves_and_joins, Counter::PwTlbBatchFlushed, Antecedent::FrameSwept);
}

/// INV-TLB-ORDER: a barrier completes what its own CPU has issued (Arm ARM D8.14.5).
fn a_batch_of_two_issuers_waits_for_both<I: Isa>() {
    holds_in::<I>(SCHEDULES, SHAPE, the_first_issuer_settles, Counter::PwTlbBatchFlushed, Antecedent::FrameSwept);
    holds_in::<I>(SCHEDULES, SHAPE, the_second_issuer_settles, Counter::PwTlbBatchFlushed, Antecedent::FrameSwept);
}

/// INV-TLB-DEFERRED: the deferrals of two CPUs are settled when both are.
fn a_space_deferred_by_two_cpus_is_settled_by_both<I: Isa>() {
    holds::<I>(FOUR, depends_on_two_batches, Counter::PwTlbBatchOvertaken, Antecedent::RightHeld);
}

/// INV-TLB-HOTPLUG.
fn a_cpu_that_comes_online_holds_nothing_flushed_meanwhile<I: Isa>() {
    holds::<I>(SHAPE, goes_and_comes_back, Counter::PwTlbBatchFlushed, Antecedent::FrameSwept);
}

/// Both tags of a space are flushed.
fn both_tags_of_a_space_are_flushed_by_a_batch<I: Isa>() {
    let shape = Shape { isolated: true, ..SHAPE };
    holds::<I>(shape, unmaps_what_is_cleared, Counter::PwTlbBatchOvertaken, Antecedent::RightHeld);
    holds::<I>(shape, goes_and_comes_back, Counter::PwTlbBatchFlushed, Antecedent::FrameSwept);
}

on_both! {
    an_unmap_flushes_what_a_batch_cleared,
    a_deferral_during_a_flush_of_its_space_stays_owed,
    an_install_flushes_what_a_batch_cleared,
    a_batch_absorbs_what_a_concurrent_gather_clears,
    a_batch_can_settle_on_another_cpu,
    a_cpu_that_joins_holds_nothing_that_a_batch_frees,
    a_batch_of_two_issuers_waits_for_both,
    a_space_deferred_by_two_cpus_is_settled_by_both,
    a_cpu_that_comes_online_holds_nothing_flushed_meanwhile,
    both_tags_of_a_space_are_flushed_by_a_batch,
}

#[cfg(feature = "planted")]
mod planted {
    use super::*;
    use bare::{Wanted, is_found};
    use pagewright_arch::{Aarch64, X86_64};
    use pagewright_check::Rule;
    use pagewright_plant::PlantedBug;

    fn find<I: Isa>(plant: PlantedBug, rules: &'static [Rule], race: bool, shape: Shape, programs: Programs<I>) {
        is_found::<I>(&Wanted { plant, rules, budget: 10_000, race }, |chooser, detail| {
            run::<I>(shape, programs, &mut |_| {}, chooser, detail)
        });
    }

    /// Defines tests of planted bugs.
    ///
    /// A row names the instruction sets, the rules that may report the bug, whether it needs a
    /// race, the shape and the programs.
    macro_rules! found {
        ($($(#[$about:meta])* $test:ident: [$($isa:ident),+] $bug:ident by $rules:ident, race $race:literal, $shape:ident, $programs:ident;)*) => {
            $(#[test]
            $(#[$about])*
            fn $test() {
                $(find::<$isa>(PlantedBug::$bug, $rules, $race, $shape, $programs);)+
            })*
        };
    }

    const RIGHTS: &[Rule] = &[Rule::Rights];
    const REUSE: &[Rule] = &[Rule::Reuse];
    const BOTH: &[Rule] = &[Rule::Rights, Rule::Reuse];
    const ONE_PAGE: Shape = Shape { pages: 1, batch: BatchPolicy::Always, ..SHAPE };
    const ISOLATED: Shape = Shape { isolated: true, ..SHAPE };

    found! {
        a_gather_that_ignores_deferrals_is_found:
            [X86_64, Aarch64] DeferredNotSeen by RIGHTS, race true, SHAPE, unmaps_as_they_are_cleared;
        an_install_that_ignores_deferrals_is_found:
            [X86_64, Aarch64] DeferredNotSeenAtInstall by RIGHTS, race true, SHAPE, maps_what_is_cleared;
        a_batch_that_absorbs_no_deferral_is_found:
            [X86_64, Aarch64] DeferredNotTakenAlong by RIGHTS, race true, SHAPE, absorbs_what_is_cleared;
        /// x86-64 shows walkers what a locked instruction has stored.
        a_late_publication_is_found:
            [Aarch64] PublishedLate by RIGHTS, race true, SHAPE, absorbs_what_is_cleared;
        a_deferral_lost_to_a_concurrent_flush_is_found:
            [X86_64, Aarch64] LateAdderCleared by BOTH, race true, LONGER, unmaps_as_they_are_cleared;
        an_epoch_that_is_still_open_is_found:
            [X86_64, Aarch64] EpochStillOpen by BOTH, race true, LONGER, unmaps_as_they_are_cleared;
        /// On arm64 a batch notes no CPUs.
        a_batch_that_misses_a_cpu_that_joins_is_found:
            [X86_64] BatchMaskBeforeBump by REUSE, race true, ONE_PAGE, leaves_and_joins;
        /// On x86-64 it does not matter which CPU issues.
        a_batch_that_waits_for_one_of_two_issuers_is_found:
            [Aarch64] LatestIssuerCompletes by REUSE, race false, SHAPE, the_second_issuer_settles;
        a_space_that_remembers_one_of_two_deferrals_is_found:
            [Aarch64] LatestDeferralKept by RIGHTS, race true, FOUR, depends_on_two_batches;
        /// On x86-64 there is no barrier to be on the wrong CPU.
        a_completion_on_another_cpu_is_found:
            [Aarch64] CompleteElsewhere by REUSE, race false, SHAPE, settles_elsewhere;
        /// On x86-64 the generation of the space catches up a CPU that comes back.
        a_cpu_that_comes_online_unflushed_is_found:
            [Aarch64] HotplugUnflushed by REUSE, race true, SHAPE, goes_and_comes_back;
        an_unflushed_user_tag_is_found:
            [X86_64, Aarch64] UserTagForgotten by BOTH, race false, ISOLATED, unmaps_what_is_cleared;
    }
}
