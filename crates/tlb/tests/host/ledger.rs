//! The ledger: which CPUs still owe a debt of a given age.

use super::space::{Space, machine, machine_with, page};
use crate::support::{Effect, Host, on};
use pagewright_arch::{Aarch64, Caps, Isa, X86_64, on_both};
use pagewright_tlb::{Batch, BatchPolicy, FlushInfo, Tlb};
use pagewright_types::{Access, Counter, CpuId, CpuMask, DebtKey, IsaKind, Level, PageRange};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CPUS: usize = 4;

fn cpus(numbers: impl IntoIterator<Item = u16>) -> CpuMask {
    numbers.into_iter().map(CpuId::new).collect()
}

/// Three keys have left the ring of single keys, and CPU 2 owes them.
#[test]
fn what_is_below_the_floor_is_settled_while_older_keys_are_owed() {
    let (_, tlb) = machine::<X86_64>(CPUS);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
    let first = ledger.open(cpus([1]));
    (0..CPUS as u16).for_each(|cpu| ledger.advance(CpuId::new(cpu), ledger.sample()));
    (0..66).for_each(|_| assert_ne!(ledger.open(cpus([2])), first));
    assert!(tlb.floor(&online).covers(first));
}

#[test]
fn a_key_is_owed_by_the_cpus_whose_clock_is_behind_it() {
    let (_, tlb) = machine::<X86_64>(CPUS);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
    let early = ledger.sample();
    let key = ledger.open(cpus([1, 2]));
    // INV-LEDGER-SAMPLE: an act that began before the debt arose does not settle it, whenever it
    // ends.
    ledger.advance(CpuId::new(1), early);
    assert_eq!(ledger.owing(key, &online), (cpus([1, 2]), 0));
    ledger.advance(CpuId::new(1), ledger.sample());
    assert_eq!(ledger.owing(key, &online), (cpus([2]), 1));
    ledger.advance(CpuId::new(2), ledger.sample());
    assert_eq!(ledger.owing(key, &online), (CpuMask::EMPTY, 2));
    ledger.advance(CpuId::new(2), early);
    assert_eq!(ledger.owing(key, &online).0, CpuMask::EMPTY, "a clock does not go back");
    assert!(!ledger.is_below_clocks(key), "the lowest clock was not computed");
    ledger.raise_lowest_clock(&online);
    assert!(!ledger.is_below_clocks(key), "CPU 0 might owe an older one");
    for cpu in 0..CPUS as u16 {
        ledger.advance(CpuId::new(cpu), ledger.sample());
    }
    ledger.raise_lowest_clock(&online);
    assert!(ledger.is_below_clocks(key));
    assert_eq!(ledger.owing(key, &online), (CpuMask::EMPTY, 0), "the lowest clock does not know which CPUs owed it");
    assert!(ledger.is_below_clocks(DebtKey::NONE));
}

#[test]
fn a_merged_key_is_owed_by_every_cpu() {
    let (_, tlb) = machine::<X86_64>(CPUS);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
    let (one, two) = (ledger.open(cpus([1])), ledger.open(cpus([2])));
    assert_eq!(ledger.owing(one.merge(two), &online), (online, 0));
    assert_eq!(ledger.owing(two.merge(one), &online), (online, 0));
    assert_eq!(ledger.owing(one.merge(DebtKey::NONE), &online).0, cpus([1]));
}

#[test]
fn a_key_whose_mask_was_overwritten_is_owed_by_the_cpus_of_its_bucket() {
    let (_, tlb) = machine::<X86_64>(CPUS);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
    let first = ledger.open(cpus([3]));
    let others: Vec<_> = (0..63).map(|_| ledger.open(cpus([1]))).collect();
    assert_eq!(ledger.owing(first, &online).0, cpus([3]), "64 masks are remembered");
    ledger.open(cpus([2]));
    assert_eq!(ledger.owing(first, &online).0, cpus([3]), "it is alone in its bucket");
    assert_eq!(ledger.owing(others[0], &online).0, cpus([1]));
    ledger.open(cpus([2]));
    assert_eq!(ledger.owing(first, &online).0, cpus([1, 3]), "and now it is not");
    assert_eq!(ledger.owing(others[0], &online).0, cpus([1, 3]));
    for _ in 0..64 * 20 {
        ledger.open(cpus([2]));
    }
    assert_eq!(ledger.owing(first, &online).0, cpus([1, 2, 3]), "CPU 0 never owed one");
}

/// Eight buckets have the masks of 64 keys each; the oldest also has those of all before it.
///
/// A key is looked for in its own bucket and in the younger ones.
#[test]
fn the_masks_of_old_keys_stay_with_keys_of_their_age() {
    const ROUNDS: u16 = 12;
    let (_, tlb) = machine::<X86_64>(ROUNDS.into());
    let (ledger, online) = (tlb.ledger(), CpuMask::first(ROUNDS.into()));
    let keys: Vec<Vec<_>> = (0..ROUNDS).map(|cpu| (0..64).map(|_| ledger.open(cpus([cpu]))).collect()).collect();
    // The ring has the keys of the last round.
    let (ring, united) = (ROUNDS - 1, 3);
    for (round, keys) in (0..).zip(keys) {
        let owing = match round {
            _ if round == ring => cpus([ring]),
            _ if round <= united => cpus(0..ring),
            _ => cpus(round..ring),
        };
        for key in keys {
            assert_eq!(ledger.owing(key, &online).0, owing, "round {round}");
        }
    }
}

/// The CPUs of a key's own mask settle it; those that owe older or younger keys do not matter.
#[test]
fn the_floor_rises_past_what_the_cpus_of_each_mask_have_settled() {
    let (_, tlb) = machine::<X86_64>(CPUS);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
    let one = ledger.open(cpus([1]));
    let two = ledger.open(cpus([2]));
    assert!(!tlb.floor(&online).covers(one));
    ledger.advance(CpuId::new(1), ledger.sample());
    let floor = tlb.floor(&online);
    assert!(floor.covers(one) && !floor.covers(two));
    assert!(!ledger.is_below_clocks(one), "CPU 0 has flushed nothing, and what has no key has no mask");
    ledger.advance(CpuId::new(2), ledger.sample());
    assert!(tlb.floor(&online).covers(one.merge(two)));
}

/// On arm64 a barrier settles what every CPU owes, though the clocks of the others do not move.
#[test]
fn the_floor_rises_past_what_a_barrier_has_settled() {
    let (_, tlb) = machine::<Aarch64>(2);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(2));
    let old = ledger.open(cpus([1]));
    tlb.settle(old);
    assert!(tlb.floor(&online).covers(old));
    let young = ledger.open(cpus([0]));
    ledger.advance(CpuId::new(0), ledger.sample());
    assert!(tlb.floor(&online).covers(young), "what is below the lowest clock is settled, whatever its mask says");
}

/// Which key of a bucket is the oldest is not known, so the floor stays below all of them.
#[test]
fn the_floor_of_the_keys_stays_below_a_bucket_that_is_owed() {
    let (_, tlb) = machine::<X86_64>(CPUS);
    let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
    let first = ledger.open(cpus([3]));
    (0..64).for_each(|_| assert_ne!(ledger.open(cpus([1])), first));
    ledger.advance(CpuId::new(1), ledger.sample());
    assert!(!tlb.floor(&online).covers(first));
    ledger.advance(CpuId::new(3), ledger.sample());
    assert!(tlb.floor(&online).covers(first));
}

#[test]
fn settling_a_key_interrupts_only_the_cpus_that_owe_it() {
    let (host, tlb) = machine::<X86_64>(CPUS);
    let key = tlb.ledger().open(cpus([1, 2, 3]));
    tlb.ledger().advance(CpuId::new(2), tlb.ledger().sample());
    let ipis = |body: &dyn Fn()| -> Vec<CpuMask> {
        let ((), log) = host.log(body);
        log.iter()
            .filter_map(|step| match step.effect {
                Effect::SendIpi(targets) => Some(targets),
                _ => None,
            })
            .collect()
    };
    assert_eq!(ipis(&|| tlb.settle(key)), [cpus([1, 3])]);
    assert_eq!(tlb.frames().counters().sum(Counter::PwTlbSettledAlready), 1);
    assert_eq!(ipis(&|| tlb.settle(key)), [], "it is settled");
    let own = tlb.ledger().open(cpus([0]));
    assert_eq!(ipis(&|| tlb.settle(own)), [], "one's own TLB needs no interrupt");
    assert_eq!(tlb.ledger().owing(own, &CpuMask::first(CPUS)).0, CpuMask::EMPTY);
}

/// The lowest clock may be older, so the key is looked at.
fn a_key_that_its_cpus_owe_no_more_is_settled_without_a_wait<I: Isa>() {
    let (host, tlb) = machine::<I>(CPUS);
    let ledger = tlb.ledger();
    let key = ledger.open(cpus([0, 2]));
    [0, 2].map(CpuId::new).into_iter().for_each(|cpu| ledger.advance(cpu, ledger.sample()));
    assert!(!ledger.is_below_clocks(key));
    host.allow_waiting(false);
    assert_eq!(host.log(|| tlb.settle(key)).1, []);
}

on_both! { a_key_that_its_cpus_owe_no_more_is_settled_without_a_wait }

/// INV-LEDGER-FULL: only a flush that covers all debts of a CPU settles them.
#[test]
fn a_flush_of_one_space_does_not_advance_the_clock() {
    let (_, tlb) = machine::<X86_64>(2);
    let (one, two) = (Space::new(&tlb), Space::new(&tlb));
    on(1, || two.run());
    on(1, || one.run());
    let key = tlb.ledger().open(cpus([1]));
    let range = Some(PageRange::page(page(0)));
    tlb.flush(&one.context, FlushInfo { range, level: Level::PTE, freed_tables: false });
    tlb.flush(&one.context, FlushInfo { range: None, level: Level::PTE, freed_tables: true });
    assert_eq!(tlb.ledger().owing(key, &CpuMask::first(2)).0, cpus([1]));
}

#[test]
fn a_dsb_settles_the_invalidations_of_its_own_cpu() {
    let (_, tlb) = machine::<Aarch64>(2);
    let space = Space::new(&tlb);
    let key = tlb.ledger().open(cpus([1]));
    let flush = || tlb.flush(&space.context, FlushInfo { range: None, level: Level::PTE, freed_tables: false });
    flush();
    assert_eq!(tlb.ledger().owing(key, &CpuMask::first(2)).0, cpus([1]), "CPU 0's barrier proves nothing of CPU 1's");
    on(1, flush);
    assert_eq!(tlb.ledger().owing(key, &CpuMask::first(2)).0, CpuMask::EMPTY);
}

/// A DSB ISHST orders stores and completes nothing (Arm ARM D8.14.5).
#[test]
fn a_dsb_that_publishes_settles_nothing_and_one_that_completes_settles() {
    let (_, tlb) = machine::<Aarch64>(2);
    let space = Space::new(&tlb);
    let mut batch = Batch::new(&tlb);
    batch.absorb(&space.context, space.clear(0));
    let key = tlb.ledger().open(cpus([0]));
    // The next TLBI follows a DSB ISHST.
    batch.absorb(&space.context, space.clear(1));
    assert_eq!(tlb.owing(key).0, cpus([0]));
    batch.settle();
    assert_eq!(tlb.owing(key).0, CpuMask::EMPTY);
}

type Engine = Arc<Tlb<Host<X86_64>>>;

/// A space that CPU 1 runs, and the key of a dropped debt of a page that it uses there.
fn dropped_debt(runs_before: impl Fn(&Engine)) -> (Host<X86_64>, Space<X86_64>, DebtKey) {
    let (host, tlb) = machine::<X86_64>(CPUS);
    let space = Space::new(&tlb);
    let pfn = space.map_new(1);
    runs_before(&tlb);
    on(1, || {
        space.run();
        assert!(host.access(page(1), Access::Write).is_some());
    });
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(space.unmap(1, pfn))));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    let key = DebtKey::new(tlb.ledger().sample());
    assert_eq!(tlb.owing(key).0, cpus([1]));
    (host, space, key)
}

/// Another space is flushed several times, and then CPU 1 runs it.
fn flush_and_run_another(tlb: &Engine) {
    let other = Space::new(tlb);
    for _ in 0..8 {
        tlb.flush(&other.context, FlushInfo { range: None, level: Level::PTE, freed_tables: false });
    }
    on(1, || other.run());
}

/// CPU 1 returns to the space, and the load of its root settles the debt.
fn assert_settled_by_the_load_of_the_root(host: &Host<X86_64>, space: &Space<X86_64>, key: DebtKey) {
    let asked = Arc::downgrade(&space.tlb);
    host.watch(move || asked.upgrade().map_or(0, |tlb| u64::from(tlb.owing(key).0.count())));
    let ((), log) = host.log(|| on(1, || space.run()));
    let root = log.iter().find(|step| matches!(step.effect, Effect::Root { .. })).expect("it loads a root");
    assert_eq!(root.probe, 1, "the flush is part of the load");
    assert_eq!(space.tlb.owing(key).0, CpuMask::EMPTY);
}

/// INV-LEDGER-SEEN.
#[test]
fn a_cpu_that_has_flushed_the_space_since_owes_nothing_of_it() {
    let (host, space, key) = dropped_debt(|_| {});
    let tlb = &space.tlb;
    tlb.flush(&space.context, FlushInfo { range: None, level: Level::PTE, freed_tables: false });
    assert_eq!(tlb.owing(key), (CpuMask::EMPTY, 1));
    assert_eq!(tlb.ledger().owing(key, &CpuMask::first(CPUS)).0, cpus([1]), "its clock stands still");
    assert!(tlb.floor(&CpuMask::first(CPUS)).covers(key), "the allocator learns it");
    assert_eq!(host.log(|| tlb.settle(key)).1, []);
    assert_eq!(on(1, || host.access(page(1), Access::Read)), None);
}

/// CPU 1 comes back to the space, whose generation has moved, and loads its root.
#[test]
fn a_cpu_has_seen_a_generation_when_its_flush_is_done() {
    let (host, space, key) = dropped_debt(|_| {});
    let tlb = space.tlb.clone();
    let other = Space::new(&tlb);
    on(1, || other.run());
    assert_eq!(tlb.owing(key).0, cpus([1]), "its translations are under the tag of the space still");
    assert_settled_by_the_load_of_the_root(&host, &space, key);
}

/// The same number as a generation of another space means nothing.
#[test]
fn a_generation_is_that_of_its_space() {
    let (host, space, key) = dropped_debt(flush_and_run_another);
    space.tlb.settle(key);
    assert_eq!(on(1, || host.access(page(1), Access::Read)), None);
}

/// The slot that the space had is another's since, and the next one was another's before.
#[test]
fn a_slot_that_changes_hands_has_seen_nothing() {
    let (host, space, key) = dropped_debt(|_| {});
    for _ in 0..6 {
        flush_and_run_another(&space.tlb);
    }
    assert_settled_by_the_load_of_the_root(&host, &space, key);
}

/// INV-LEDGER-SAMPLE: the load of a root does not settle a debt that arises meanwhile.
#[test]
fn a_root_loaded_without_tags_is_a_full_flush() {
    let caps = Caps { tagged: false, ..Caps::baseline(IsaKind::X86_64) };
    let (host, tlb) = machine_with::<X86_64>(CPUS, caps, BatchPolicy::Auto);
    let space = Space::new(&tlb);
    let (opens, young) = (Arc::downgrade(&tlb), Arc::new(AtomicU64::new(0)));
    let opened = young.clone();
    host.watch(move || {
        let key = opens.upgrade().map_or(DebtKey::NONE, |tlb| tlb.ledger().open(cpus([1])));
        opened.store(key.raw(), Ordering::Relaxed);
        0
    });
    for enters in [true, false] {
        let key = tlb.ledger().open(cpus([1]));
        assert_eq!(tlb.owing(key).0, cpus([1]));
        let ((), log) = host.log(|| on(1, || if enters { space.run() } else { tlb.leave_space() }));
        assert!(matches!(log[..], [step] if matches!(step.effect, Effect::Root { .. })));
        assert_eq!(tlb.owing(key).0, CpuMask::EMPTY);
        assert_eq!(tlb.owing(DebtKey::new(young.load(Ordering::Relaxed))).0, cpus([1]));
    }
    let (_, tagged) = machine::<X86_64>(CPUS);
    let space = Space::new(&tagged);
    let key = tagged.ledger().open(cpus([1]));
    on(1, || space.run());
    assert_eq!(tagged.owing(key).0, cpus([1]), "a root with a tag flushes that tag at most");
}

#[derive(Clone, Debug)]
enum Act {
    Open(Vec<u16>),
    /// A CPU begins an act that settles all it owes.
    Begin(u16),
    /// It is done with it.
    Finish(u16),
    RaiseFloor,
}

fn act() -> impl Strategy<Value = Act> {
    let cpu = 0..CPUS as u16;
    prop_oneof![
        proptest::collection::vec(cpu.clone(), 1..3).prop_map(Act::Open),
        cpu.clone().prop_map(Act::Begin),
        cpu.prop_map(Act::Finish),
        Just(Act::RaiseFloor),
    ]
}

proptest! {
    /// The ledger names each CPU that owes.
    ///
    /// While it remembers the mask of a key it names no other CPU, and later only those that owed
    /// some key.
    #[test]
    fn the_ledger_agrees_with_a_list_of_debtors(acts in proptest::collection::vec(act(), 1..200)) {
        let (_, tlb) = machine::<X86_64>(CPUS);
        let (ledger, online) = (tlb.ledger(), CpuMask::first(CPUS));
        let mut debts: Vec<(DebtKey, CpuMask)> = Vec::new();
        // What the act of each CPU in progress will settle: the debts that there were, and the
        // sample.
        let mut under_way: [Option<(usize, u64)>; CPUS] = [None; CPUS];
        for act in acts {
            match act {
                Act::Open(numbers) => {
                    let mask = cpus(numbers);
                    debts.push((ledger.open(mask), mask));
                }
                Act::Begin(cpu) => under_way[usize::from(cpu)] = Some((debts.len(), ledger.sample())),
                Act::Finish(cpu) => {
                    if let Some((known, sampled)) = under_way[usize::from(cpu)].take() {
                        ledger.advance(CpuId::new(cpu), sampled);
                        debts[..known].iter_mut().for_each(|(_, owing)| owing.remove(CpuId::new(cpu)));
                    }
                }
                Act::RaiseFloor => ledger.raise_lowest_clock(&online),
            }
            let forgotten = debts.len().saturating_sub(64);
            let floor = tlb.floor(&online);
            for (age, (key, owing)) in debts.iter().enumerate() {
                let named = ledger.owing(*key, &online).0;
                prop_assert!(owing.iter().all(|cpu| named.contains(cpu)), "{key:?} is owed by {owing:?}, not {named:?}");
                prop_assert!(age < forgotten || named == *owing);
                prop_assert!(!ledger.is_below_clocks(*key) || owing.is_empty());
                prop_assert!(!floor.covers(*key) || owing.is_empty(), "{key:?} is owed by {owing:?}");
            }
        }
    }
}

#[cfg(feature = "planted")]
#[test]
fn mistakes_about_masks_are_found() {
    use pagewright_plant::{PlantedBug, assert_found_by};
    assert_found_by(PlantedBug::PublishSettles, a_dsb_that_publishes_settles_nothing_and_one_that_completes_settles);
    assert_found_by(PlantedBug::UntaggedSampledLate, a_root_loaded_without_tags_is_a_full_flush);
    assert_found_by(PlantedBug::SeenBeforeFlush, a_cpu_has_seen_a_generation_when_its_flush_is_done);
    assert_found_by(PlantedBug::SlotKeepsGeneration, a_slot_that_changes_hands_has_seen_nothing);
    assert_found_by(PlantedBug::GenerationOfOtherSpace, a_generation_is_that_of_its_space);
    assert_found_by(PlantedBug::OldKeysForgotten, a_key_whose_mask_was_overwritten_is_owed_by_the_cpus_of_its_bucket);
    assert_found_by(PlantedBug::NewestKeyIsFloor, the_floor_rises_past_what_the_cpus_of_each_mask_have_settled);
}
