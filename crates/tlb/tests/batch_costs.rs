//! What a batch saves, and how much more it would save if it collected ranges.
//!
//! The tests count events, and model their time on the machines whose costs are published or
//! assumed (`docs/machine.md`). `docs/batch.md` has the table that they print.

use crate::bare::{Bare, Shape};
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_sim::{BandEnd, Cost, MachineEvent, Profile};
use pagewright_tlb::{Batch, BatchPolicy, Gather};
use pagewright_types::CpuId;
use std::rc::Rc;

const ME: CpuId = CpuId::new(0);
/// Entries of a batch (`SWAP_CLUSTER_MAX`).
const ENTRIES: u16 = 32;
const CPUS: [u16; 6] = [1, 2, 4, 8, 32, 128];

/// What it took to be rid of [`ENTRIES`] neighbouring entries.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// Modelled nanoseconds for each.
    each: f64,
    tlbis: u64,
    dsbs: u64,
    waits: u64,
}

fn took<I: Isa>(profile: &Profile, cpus: u16, batch: BatchPolicy, way: impl FnOnce(&Rc<Bare<I>>)) -> Took {
    let shape = Shape { cpus, pages: ENTRIES, isolated: false, batch };
    let bare = Bare::<I>::on(profile.clone(), shape);
    let sim = bare.sim();
    // The set-up has ended on every CPU: no entry waits until all CPUs have joined the mask of the
    // space.
    sim.idle_until(ME, sim.elapsed());
    let count =
        || [MachineEvent::TlbisIssued, MachineEvent::Dsbs, MachineEvent::FlushWaits].map(|event| sim.total(event));
    let (clock, before) = (sim.clock(ME), count());
    sim.run_on(ME, || way(&bare));
    let after = count();
    let [tlbis, dsbs, waits] = [0, 1, 2].map(|event| after[event] - before[event]);
    Took { each: sim.clock(ME).since(clock).raw() as f64 / 1e3 / f64::from(ENTRIES), tlbis, dsbs, waits }
}

/// As reclaim does: one entry after the other, each under its table's lock.
fn by_batch<I: Isa>(bare: &Rc<Bare<I>>) {
    let mut batch = Batch::new(&bare.tlb);
    (0..ENTRIES).for_each(|index| batch.absorb(&bare.context, bare.unmap(index)));
    batch.settle();
}

/// The least that ranges could cost: one invalidation names all entries.
///
/// They are neighbours, and are cleared under one lock.
fn by_range<I: Isa>(bare: &Rc<Bare<I>>) {
    let mut gather = Gather::new(&bare.tlb, &bare.context);
    (0..ENTRIES).for_each(|index| gather.absorb(bare.unmap(index)));
    gather.settle();
}

fn row(profile: &str, cpus: u16, columns: [Took; 3], page: f64) -> String {
    let [once, deferred, ranged] = columns.map(|took| took.each);
    let percent = |spared: f64| spared / page * 100.0;
    format!(
        "| {profile} | {cpus} | {once:.0} | {deferred:.0} | {ranged:.0} | {:.1} | {:.1} |",
        percent(once - deferred),
        percent(deferred - ranged)
    )
}

/// Modelled nanoseconds for a page that goes to swap and comes back, its flush apart.
fn page_out_and_in(profile: &Profile) -> f64 {
    (profile.cost(Cost::SwapOut) + profile.cost(Cost::SwapIn)).raw() as f64 / 1e3
}

#[test]
fn a_batch_waits_once_and_a_range_flush_saves_little_more() {
    println!("| profile | CPUs | at once | deferred | in ranges | batch saves, % | ranges save more, % |");
    for name in ["snapdragon888", "kunpeng920", "neoverse-n1"] {
        let profile = Profile::named(name).expect("a shipped profile");
        let page = page_out_and_in(&profile);
        for cpus in CPUS {
            let once = took::<Aarch64>(&profile, cpus, BatchPolicy::Never, by_batch);
            let deferred = took::<Aarch64>(&profile, cpus, BatchPolicy::Always, by_batch);
            let ranged = took::<Aarch64>(&profile.clone().with_ranges(), cpus, BatchPolicy::Always, by_range);
            let entries = u64::from(ENTRIES);
            assert_eq!((once.tlbis, once.dsbs, once.waits), (entries, 2 * entries, entries));
            assert_eq!((deferred.tlbis, deferred.dsbs, deferred.waits), (entries, entries + 1, 1));
            assert_eq!((ranged.tlbis, ranged.dsbs, ranged.waits), (1, 2, 1));
            println!("{}", row(name, cpus, [once, deferred, ranged], page));
            let (spared, more) = (once.each - deferred.each, deferred.each - ranged.each);
            assert!(
                more < spared / 8.0 && more < page / 100.0,
                "ranges are worth it: {name}, {cpus} CPUs, {spared}, {more}"
            );
        }
    }
}

/// Ranges are worth it at the high end of the band of what a TLBI takes to complete.
///
/// That cost decides, and none is published for a machine of the profiles.
#[test]
fn ranges_are_worth_it_where_each_tlbi_takes_long_to_complete() {
    println!("| profile | deferred | in ranges | ranges save more, % |");
    for name in ["snapdragon888", "kunpeng920", "neoverse-n1"] {
        let profile = Profile::named(name).expect("a shipped profile").with_flushes_at(BandEnd::Given, BandEnd::High);
        let deferred = took::<Aarch64>(&profile, 8, BatchPolicy::Always, by_batch).each;
        let ranged = took::<Aarch64>(&profile.clone().with_ranges(), 8, BatchPolicy::Always, by_range).each;
        let percent = (deferred - ranged) / page_out_and_in(&profile) * 100.0;
        println!("| {name} | {deferred:.0} | {ranged:.0} | {percent:.1} |");
        assert!(percent > 2.0, "{name}: {percent}");
    }
}

/// On x86-64 all CPUs run the space here; a batch waits for no CPU that does not.
#[test]
fn a_batch_costs_one_round_of_interrupts() {
    println!("| profile | CPUs | at once | deferred | batch saves, % |");
    for name in ["icelake", "sapphire-rapids", "milan"] {
        let profile = Profile::named(name).expect("a shipped profile");
        for cpus in CPUS {
            let once = took::<X86_64>(&profile, cpus, BatchPolicy::Never, by_batch);
            let deferred = took::<X86_64>(&profile, cpus, BatchPolicy::Auto, by_batch);
            let rounds = if cpus == 1 { [0, 0] } else { [u64::from(ENTRIES), 1] };
            assert_eq!([once.waits, deferred.waits], rounds, "{name}, {cpus} CPUs");
            let percent = (once.each - deferred.each) / page_out_and_in(&profile) * 100.0;
            println!("| {name} | {cpus} | {:.0} | {:.0} | {percent:.1} |", once.each, deferred.each);
        }
    }
}
