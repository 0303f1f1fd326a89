//! Replay's memory grows with the program's footprint and not with its trace.
//!
//! The only test of its program, so that nothing else adds to the process's peak. A trace that is
//! made up as it goes is encoded by a second thread, comes through a pipe, and is decoded and
//! replayed here; the peak of resident memory after a tenth of it must be the peak at its end.
//! `PAGEWRIGHT_SOAK=1` makes it as long as a capture of 10 GB of lackey's text.

use pagewright_capture::replay::{EventSource, ReplayConfig, replay};
use pagewright_capture::trace::{
    Compression, TaskEvent, TraceError, TraceEvent, TraceHeader, TraceReader, TraceWriter,
};
use pagewright_capture::workload;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;
use std::io::{BufReader, BufWriter, PipeReader, PipeWriter};
use std::thread;

/// Events of the test that runs each time.
const QUICK: u64 = 4_000_000;
/// 10 GB of text at 12.4 bytes an access (`python3 -c pass` is 44 M accesses and 623 MB with
/// calls), of which an event here has five.
const SOAK: u64 = 10_000_000_000 / 62;
/// What the allocator's and the machine's habits may add.
const GROWTH: u64 = 1 << 20;

/// Writes rounds of a workload that leaves nothing mapped, until there were `events`.
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

/// A trace that notes how much memory the process had when a tenth of it had been read.
struct Weighed {
    reader: TraceReader<BufReader<PipeReader>>,
    events: u64,
    read: u64,
    early: Option<u64>,
}

impl EventSource for Weighed {
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
    let mut source = Weighed { reader, events, read: 0, early: None };
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
