//! The same trace, machine and seed give the same report, bit for bit, all but what a clock
//! measured.

use pagewright_capture::replay::{EventSource, MeasuredTimes, ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_capture::workload;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::{IsaKind, PAGE_SIZE};
use std::path::PathBuf;

const CAPTURES: [&str; 6] = ["compile", "pigz", "python", "shell", "sort", "sqlite"];

fn capture(name: &str) -> Box<dyn EventSource> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(format!("{name}.pwt"));
    Box::new(TraceReader::open(path).unwrap())
}

/// What a replay found, without what was measured.
fn report(isa: IsaKind, source: &mut dyn EventSource, cpus: u16, seed: u64) -> ReplayReport {
    let profile = Profile::named(Profile::default_for(isa)).unwrap();
    let config = ReplayConfig::new(MachineConfig { cpus, seed, ..MachineConfig::new(profile) });
    ReplayReport { measured: MeasuredTimes::default(), ..replay(isa, source, &config).unwrap() }
}

fn json(report: &ReplayReport) -> String {
    serde_json::to_string(report).unwrap()
}

#[test]
fn captures_repeat() {
    for name in CAPTURES {
        for isa in IsaKind::ALL {
            let [first, again] = [(); 2].map(|()| json(&report(isa, &mut *capture(name), 4, 7)));
            assert!(first == again, "{name} on {isa}:\n{first}\n{again}");
        }
    }
}

/// In half the memory that it took on Linux; nearly all of what goes is taken beside it, and none
/// of it flushed by itself.
#[test]
fn under_pressure_they_repeat_too() {
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
        let (beside, itself) = (count("pgsteal_kswapd"), count("pgsteal_direct"));
        assert!(
            beside > itself && count("pageoutrun") > 0,
            "{isa}: {beside} in the background, {itself} by who allocates"
        );
        assert!(count("pw_reclaim_waits") * 32 <= beside + itself, "{isa}: {} waits", count("pw_reclaim_waits"));
    }
}

#[test]
fn workloads_repeat_and_their_seed_chooses() {
    for name in workload::names() {
        for isa in IsaKind::ALL {
            let run = |seed| json(&report(isa, &mut workload::named(name, seed).unwrap(), 4, seed));
            let (first, again, other) = (run(3), run(3), run(4));
            assert!(first == again, "{name} on {isa}:\n{first}\n{again}");
            assert!(first != other, "{name} on {isa}: another seed is another run");
        }
    }
}

/// Which figures another seed may change: those of schedule and TLB, never what the program did.
#[test]
fn another_seed_schedules_otherwise_and_changes_no_program() {
    const DONE: [&str; 10] = [
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
            for figure in DONE {
                let value = one.counters.get(figure);
                assert!(value.is_some(), "{figure} is counted");
                // Two threads that fault on the same page at once may share a fault, or not.
                if name == "sort" || !matches!(figure, "pw_fault_around") {
                    assert_eq!(value, other.counters.get(figure), "{name} on {isa}: {figure}");
                }
            }
            let images = |report: &ReplayReport| {
                report.images.iter().map(|image| (image.peak_rss_bytes, image.page_table_bytes)).collect::<Vec<_>>()
            };
            assert_eq!(images(&one), images(&other), "{name} on {isa}");
        }
    }
}
