//! The speed of reading and writing a trace: events and accesses a second, for the largest capture.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pagewright_capture::trace::{Compression, TraceEvent, TraceReader, TraceWriter};

fn capture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures/python.pwt")
}

fn read_all(bytes: &[u8]) -> Vec<TraceEvent> {
    let mut reader = TraceReader::new(bytes, "python.pwt").expect("a shipped capture");
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).expect("a shipped capture") {
        all.append(&mut batch);
    }
    all
}

fn decode(bytes: &[u8]) -> u64 {
    let mut reader = TraceReader::new(bytes, "python.pwt").expect("a shipped capture");
    let (mut accesses, mut batch) = (0, Vec::new());
    while reader.next_batch(&mut batch).expect("a shipped capture") {
        for event in &batch {
            if let TraceEvent::Run(run) = event {
                accesses += run.accesses();
            }
        }
    }
    accesses
}

fn benches(criterion: &mut Criterion) {
    let bytes = fs::read(capture()).expect("tests/captures is there");
    let events = read_all(&bytes);
    let accesses = decode(&bytes);
    println!(
        "{:.3} bytes/event, {:.2} bits/access",
        bytes.len() as f64 / events.len() as f64,
        8.0 * bytes.len() as f64 / accesses as f64
    );
    let mut group = criterion.benchmark_group("trace");
    group.sample_size(10);
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("read/events", |bench| bench.iter(|| black_box(decode(&bytes))));
    group.throughput(Throughput::Elements(accesses));
    group.bench_function("read/accesses", |bench| bench.iter(|| black_box(decode(&bytes))));
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("write/events", |bench| {
        bench.iter(|| {
            let header = TraceReader::new(&bytes[..], "python.pwt").expect("a shipped capture").header().clone();
            let mut writer = TraceWriter::new(std::io::sink(), &header, Compression::Fast).expect("a sink takes all");
            for event in &events {
                writer.push(event).expect("a sink takes all");
            }
            writer.finish().expect("a sink takes all").0
        });
    });
    group.finish();
}

criterion_group!(trace, benches);
criterion_main!(trace);
