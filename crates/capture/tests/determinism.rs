//! The same trace, machine and seed give the same report bit for bit, except measured times.

use pagewright_capture::replay::{EventSource, MeasuredTimes, ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_capture::workload;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::{IsaKind, PAGE_SIZE};
use std::path::PathBuf;

/// The larger half of the captures, each on one instruction set.
///
/// `cargo xtask repeat quick` replays the smaller half twice on both, in two processes. In a soak,
/// `cargo xtask repeat` does that with all of them.
const CAPTURES: [(&str, IsaKind); 3] =
    [("compile", IsaKind::X86_64), ("pigz", IsaKind::Aarch64), ("python", IsaKind::X86_64)];

fn capture(name: &str) -> Box<dyn EventSource> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(format!("{name}.pwt"));
    Box::new(TraceReader::open(path).unwrap())
}

/// The report of a replay, without measured times.
fn report(isa: IsaKind, source: &mut dyn EventSource, cpus: u16, seed: u64) -> ReplayReport {
    let profile = Profile::named(Profile::default_for(isa)).unwrap();
    let config = ReplayConfig::new(MachineConfig { cpus, seed, ..MachineConfig::new(profile) });
    ReplayReport { measured: MeasuredTimes::default(), ..replay(isa, source, &config).unwrap() }
}

fn json(report: &ReplayReport) -> String {
    serde_json::to_string(report).unwrap()
}

#[test]
fn a_replay_of_a_capture_repeats() {
    for (name, isa) in CAPTURES {
        let [first, again] = [(); 2].map(|()| json(&report(isa, &mut *capture(name), 4, 7)));
        assert!(first == again, "{name} on {isa}:\n{first}\n{again}");
    }
}

/// The machine has half of the memory that the program needs on Linux.
///
/// Background reclaim frees most pages, and reclaim waits for flushes at most once per 32 pages.
#[test]
fn a_replay_under_memory_pressure_repeats() {
    for isa in IsaKind::ALL {
        let run = || {
            let mut source = capture("pigz");
            let footprint = source.header().native.as_ref().map_or(0, NativeCounts::footprint);
            let mut machine = MachineConfig::default_for(isa).unwrap();
            machine.nodes[0].bytes = (footprint / 2).next_multiple_of(PAGE_SIZE);
            let config = ReplayConfig { swap_slots: 1 << 16, ..ReplayConfig::new(machine) };
            ReplayReport { measured: MeasuredTimes::default(), ..replay(isa, &mut *source, &config).unwrap() }
        };
        let (first, again) = (run(), run());
        assert!(json(&first) == json(&again), "{isa}");
        let count = |name| first.counters.get(name).unwrap();
        let (background, direct) = (count("pgsteal_kswapd"), count("pgsteal_direct"));
        assert!(
            background > direct && count("pageoutrun") > 0,
            "{isa}: {background} pages by background reclaim, {direct} by direct reclaim"
        );
        assert!(count("pw_reclaim_waits") * 32 <= background + direct, "{isa}: {} waits", count("pw_reclaim_waits"));
    }
}

/// The most rounds of a workload: all of them with `PAGEWRIGHT_SOAK`.
fn rounds() -> u64 {
    if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { u64::MAX } else { 64 }
}

#[test]
fn a_workload_repeats_and_depends_on_its_seed() {
    // A workload generates the same events for both instruction sets, so it runs on one of them.
    for (name, isa) in workload::names().zip(IsaKind::ALL.into_iter().cycle()) {
        let workload = |seed| workload::named(name, seed).unwrap().with_rounds(rounds());
        let run = |seed| json(&report(isa, &mut workload(seed), 4, seed));
        let (first, again, other) = (run(3), run(3), run(4));
        assert!(first == again, "{name} on {isa}:\n{first}\n{again}");
        assert!(first != other, "{name} on {isa}: another seed gives the same report");
    }
}

/// A seed changes the schedule and so the TLB counts, but not what the program does.
#[test]
fn another_seed_changes_the_schedule_and_not_the_program() {
    const OF_THE_PROGRAM: [&str; 10] = [
        "pw_events",
        "pw_accesses",
        "dTLB-loads",
        "dTLB-stores",
        "iTLB-loads",
        "pw_fork",
        "pgalloc",
        "pw_cow_copy",
        "pw_pages_zeroed",
        "pw_fault_around",
    ];
    for name in ["sort", "pigz"] {
        for isa in IsaKind::ALL {
            let [one, other] = [1, 2].map(|seed| report(isa, &mut *capture(name), 4, seed));
            for counter in OF_THE_PROGRAM {
                let value = one.counters.get(counter);
                assert!(value.is_some(), "{counter} is counted");
                // Two threads that fault on one page at the same time may share a fault.
                if name == "sort" || !matches!(counter, "pw_fault_around") {
                    assert_eq!(value, other.counters.get(counter), "{name} on {isa}: {counter}");
                }
            }
            let images = |report: &ReplayReport| {
                report.images.iter().map(|image| (image.peak_rss_bytes, image.page_table_bytes)).collect::<Vec<_>>()
            };
            assert_eq!(images(&one), images(&other), "{name} on {isa}");
        }
    }
}
