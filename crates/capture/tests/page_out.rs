//! The program of the batched-flush series: its waits and deferred flushes, by sharers and CPUs.

use pagewright_capture::pageout::{PageOutCosts, PageOutError, PageOutProgram, run};
use pagewright_capture::replay::ReplayConfig;
use pagewright_mm::MmSetting;
use pagewright_sim::{BandEnd, MachineConfig};
use pagewright_types::IsaKind;

const ROUNDS: u32 = 2;

fn config(isa: IsaKind, cpus: u16, batch: u64) -> ReplayConfig {
    let mut machine = MachineConfig::default_for(isa).expect("the profile is compiled in");
    machine.cpus = cpus;
    let mut config = ReplayConfig::new(machine);
    config.swap_slots = 1024;
    config.settings.push((MmSetting::TlbBatch, batch));
    config
}

fn page_out(isa: IsaKind, cpus: u16, batch: u64, program: PageOutProgram) -> PageOutCosts {
    run(isa, &config(isa, cpus, batch), program).expect("all pages are paged out")
}

fn count(found: &PageOutCosts, name: &str) -> u64 {
    found.counters.get(name).expect("a counter")
}

#[test]
fn one_wait_pages_out_32_pages_shared_or_not_and_dirty_or_not() {
    for isa in IsaKind::ALL {
        for (sharers, stores) in [(1, false), (1, true), (10, false), (10, true)] {
            // On x86-64 reclaim waits only for CPUs that have run the space.
            let program =
                PageOutProgram { sharers, stores, threads: sharers == 1, ..PageOutProgram::of_the_series(ROUNDS) };
            let [before, after] = [0, 1].map(|batch| page_out(isa, 4, batch, program));
            let what = format!("{isa}, {program:?}");
            assert_eq!(after.pages, 256 * u64::from(ROUNDS), "{what}");
            let entries = after.pages * u64::from(sharers);
            assert_eq!(count(&before, "pw_tlb_batch_at_once"), entries, "{what}");
            // A space that no other CPU has run needs no deferral.
            let at_once = count(&after, "pw_tlb_batch_at_once");
            assert_eq!(count(&after, "pw_tlb_batch_entries") + at_once, entries, "{what}");
            assert!(count(&before, "pw_flush_waits") >= before.pages, "{what}");
            assert_eq!(count(&after, "pw_flush_waits"), after.pages / 32, "{what}");
            assert_eq!(count(&after, "pswpout"), after.pages, "{what}");
            assert!(after.elapsed < before.elapsed && after.waited < before.waited, "{what}");
        }
    }
}

#[test]
fn a_single_cpu_defers_only_if_forced() {
    let program = PageOutProgram::of_the_series(ROUNDS);
    let waits = |batch| count(&page_out(IsaKind::Aarch64, 1, batch, program), "pw_flush_waits");
    assert_eq!([0, 1, 2].map(waits), [512, 512, 16]);
}

#[test]
fn what_a_batch_saves_depends_on_the_cost_of_each_entry() {
    let at = |waits, entries, batch| {
        let mut config = config(IsaKind::Aarch64, 8, batch);
        config.machine.profile = config.machine.profile.with_flushes_at(waits, entries);
        run(IsaKind::Aarch64, &config, PageOutProgram::of_the_series(ROUNDS)).expect("all pages are paged out")
    };
    let saved_part = |waits, entries| {
        let [before, after] = [0, 1].map(|batch| at(waits, entries, batch));
        assert_eq!(count(&before, "pw_dsbs"), 2 * before.pages, "costs change no count");
        before.elapsed.since(after.elapsed).raw() as f64 / before.waited.raw() as f64
    };
    let [least, given, most] =
        [(BandEnd::Low, BandEnd::High), (BandEnd::Given, BandEnd::Given), (BandEnd::High, BandEnd::Low)]
            .map(|(waits, entries)| saved_part(waits, entries));
    // One wait of 32 remains; a queue of invalidations that take longer than the work between them
    // remains as well.
    assert!(least < 0.7 && given > 0.9 && most > 0.9, "{least} {given} {most}");
}

#[test]
fn pages_without_a_slot_remain_and_are_reported() {
    let mut config = config(IsaKind::X86_64, 2, 1);
    config.swap_slots = 200;
    let found = run(IsaKind::X86_64, &config, PageOutProgram::of_the_series(ROUNDS));
    assert!(matches!(found, Err(PageOutError::Remained { left: 56, pages: 256, round: 0 })), "{found:?}");
}
