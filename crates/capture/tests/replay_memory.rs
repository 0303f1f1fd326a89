//! The memory of a replay grows with the program's footprint, and not with the length of the trace.
//!
//! A second thread generates and encodes a trace. This thread reads it through a pipe and replays
//! it. The peak RSS after a tenth of the trace must be the peak at its end. This binary has a
//! single test, because the peak is that of the process. With `PAGEWRIGHT_SOAK=1` the trace is as
//! long as a capture of 10 GB of lackey's text.

use pagewright_capture::replay::{EventSource, ReplayConfig, replay};
use pagewright_capture::trace::{
    Compression, TaskEvent, TraceError, TraceEvent, TraceHeader, TraceReader, TraceWriter,
};
use pagewright_capture::workload;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;
use std::io::{BufReader, BufWriter, PipeReader, PipeWriter};
use std::thread;

/// Number of events without `PAGEWRIGHT_SOAK`.
const QUICK: u64 = 4_000_000;
/// Number of events of 10 GB of text, at 12.4 bytes an access and five accesses an event.
///
/// (`python3 -c pass` makes 44 million accesses, and 623 MB of text with its calls.)
const SOAK: u64 = 10_000_000_000 / 62;
/// The growth that the host's allocator may cause, in bytes.
const GROWTH: u64 = 1 << 20;

/// Writes a workload repeatedly, until there are `events` events; each round unmaps its memory.
fn produce(out: PipeWriter, events: u64) {
    let header = workload::named("map-unmap", 0).unwrap().header().clone();
    let mut writer = TraceWriter::new(BufWriter::new(out), &header, Compression::Fast).unwrap();
    let (mut written, mut round) = (0, 0);
    while written < events {
        let mut workload = workload::named("map-unmap", round).unwrap();
        let mut batch = Vec::new();
        while workload.next_batch(&mut batch).unwrap() {
            for event in &batch {
                let setup = match event {
                    TraceEvent::File(_) => true,
                    TraceEvent::Task(task) => matches!(**task, TaskEvent::Begin { .. } | TaskEvent::Exec { .. }),
                    TraceEvent::Run(_) | TraceEvent::Switch { .. } | TraceEvent::Call(_) => false,
                };
                let end = matches!(event, TraceEvent::Task(task) if matches!(**task, TaskEvent::ExitProcess { .. }));
                if end || setup && round > 0 {
                    continue;
                }
                writer.push(event).unwrap();
                written += 1;
            }
        }
        round += 1;
    }
    writer.push(&TraceEvent::Task(Box::new(TaskEvent::ExitProcess { status: 0 }))).unwrap();
    writer.finish().unwrap();
}

/// A trace reader that records the peak RSS after a tenth of the trace.
struct PeakRecorder {
    reader: TraceReader<BufReader<PipeReader>>,
    events: u64,
    read: u64,
    early: Option<u64>,
}

impl EventSource for PeakRecorder {
    fn header(&self) -> &TraceHeader {
        self.reader.header()
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        let more = self.reader.next_batch(batch)?;
        self.read += batch.len() as u64;
        if self.early.is_none() && self.read >= self.events / 10 {
            self.early = Some(peak());
        }
        Ok(more)
    }
}

/// `VmHWM` in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn a_long_trace_needs_no_more_memory_than_a_short_one() {
    let events = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { SOAK } else { QUICK };
    let (input, output) = std::io::pipe().unwrap();
    let producer = thread::spawn(move || produce(output, events));
    let reader = TraceReader::new(BufReader::new(input), "pipe").unwrap();
    let mut source = PeakRecorder { reader, events, read: 0, early: None };
    let profile = Profile::named(Profile::default_for(IsaKind::X86_64)).unwrap();
    let mut config = ReplayConfig::new(MachineConfig::new(profile));
    config.machine.nodes[0].bytes = 32 << 20;
    let report = replay(IsaKind::X86_64, &mut source, &config).unwrap();
    producer.join().unwrap();
    let (early, late) = (source.early.expect("a tenth was read"), peak());
    assert!(report.counters.get("pw_events").unwrap() >= events);
    println!("{} events: {early} bytes after a tenth, {late} at the end", source.read);
    assert!(late <= early + GROWTH, "{early} bytes after a tenth, {late} at the end");
}
