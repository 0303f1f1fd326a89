//! The speed of a replay: accesses and events a second, for each capture and instruction set.
//!
//! One core must replay 40 million accesses and 5 million events a second, decoding included.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pagewright_capture::replay::{ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::TraceReader;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;
use std::fs;
use std::path::PathBuf;

const CAPTURES: [&str; 6] = ["compile", "pigz", "python", "shell", "sort", "sqlite"];

fn run(isa: IsaKind, bytes: &[u8]) -> ReplayReport {
    let profile = Profile::named(Profile::default_for(isa)).expect("a shipped profile");
    let config = ReplayConfig::new(MachineConfig::new(profile));
    let mut reader = TraceReader::new(bytes, "capture").expect("a shipped capture");
    replay(isa, &mut reader, &config).expect("a shipped capture")
}

fn benches(criterion: &mut Criterion) {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    for isa in IsaKind::ALL {
        for (unit, counter) in [("accesses", "pw_accesses"), ("events", "pw_events")] {
            let mut group = criterion.benchmark_group(format!("replay/{}/{unit}", isa.name()));
            group.sample_size(10);
            for name in CAPTURES {
                let bytes = fs::read(directory.join(format!("{name}.pwt"))).expect("tests/captures is there");
                let elements = run(isa, &bytes).counters.get(counter).expect("it is counted");
                group.throughput(Throughput::Elements(elements));
                group.bench_function(BenchmarkId::from_parameter(name), |bench| bench.iter(|| run(isa, &bytes)));
            }
            group.finish();
        }
    }
}

criterion_group!(replays, benches);
criterion_main!(replays);
