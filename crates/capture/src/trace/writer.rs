//! The writer of a trace: an event at a time, in memory bounded by a block.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::block::{
    BLOCK_EVENTS, BLOCK_RECORD_BYTES, BLOCK_RUNS, BlockKind, Frame, MAGIC, RECORD, Record, VERSION, put_record, put_run,
};
use super::event::{AccessOrigin, AccessRun, AccessStream, TaskEvent, TraceEvent};
use super::header::{TraceHeader, TraceSummary};
use super::ids::PageNo;

/// The compression of a trace; it does not affect the speed of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Writes tens of millions of events a second.
    Fast,
    /// Writes about a million events a second; the trace is a quarter smaller.
    Small,
}

impl Compression {
    /// The zstd level.
    const fn level(self) -> i32 {
        match self {
            Self::Fast => 3,
            Self::Small => 19,
        }
    }
}

/// Writes a trace.
///
/// [`finish`](Self::finish) writes the end block, without which a reader refuses the trace as
/// truncated.
pub struct TraceWriter<W> {
    out: W,
    compression: Compression,
    runs: Vec<AccessRun>,
    index: FxHashMap<AccessRun, u32>,
    /// Indices into `runs`, or [`u32::MAX`] for a record.
    symbols: Vec<u32>,
    records: Vec<u8>,
    block_accesses: u64,
    summary: TraceSummary,
}

impl<W: Write> TraceWriter<W> {
    /// Writes the header to `out`, which needs no buffer, because blocks are written at once.
    ///
    /// # Errors
    /// Those of `out`, and `InvalidInput` for a header of 4 GiB.
    pub fn new(mut out: W, header: &TraceHeader, compression: Compression) -> io::Result<Self> {
        let json = serde_json::to_vec(header)?;
        let len = u32::try_from(json.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&len.to_le_bytes())?;
        out.write_all(&crc32fast::hash(&json).to_le_bytes())?;
        out.write_all(&json)?;
        Ok(Self {
            out,
            compression,
            runs: Vec::new(),
            index: FxHashMap::default(),
            symbols: Vec::new(),
            records: Vec::new(),
            block_accesses: 0,
            summary: TraceSummary::default(),
        })
    }

    /// Appends an event.
    ///
    /// # Errors
    /// Those of the output.
    ///
    /// # Panics
    /// If a run has no accesses.
    pub fn push(&mut self, event: &TraceEvent) -> io::Result<()> {
        match event {
            TraceEvent::Run(run) => self.push_run(*run),
            TraceEvent::Switch { pid, tid } => self.push_record(&Record::Switch(*pid, *tid)),
            TraceEvent::Task(task) => {
                self.count_task(task);
                self.push_record(&Record::Task(task));
            }
            TraceEvent::Call(call) => {
                self.summary.calls += 1;
                self.push_record(&Record::Call(call));
            }
            TraceEvent::File(file) => self.push_record(&Record::File(file)),
        }
        self.summary.events += 1;
        if self.symbols.len() >= BLOCK_EVENTS
            || self.runs.len() >= BLOCK_RUNS
            || self.records.len() >= BLOCK_RECORD_BYTES
        {
            self.close_block()?;
        }
        Ok(())
    }

    /// Adds to the number of accesses that the producer omitted ([`TraceSummary::left_out`]).
    pub fn leave_out(&mut self, accesses: u64) {
        self.summary.left_out += accesses;
    }

    /// Writes the last block and the end block; returns the summary and the output.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<(TraceSummary, W)> {
        self.close_block()?;
        let json = serde_json::to_vec(&self.summary)?;
        self.write_block(BlockKind::End, &json, 0)?;
        self.out.flush()?;
        Ok((self.summary, self.out))
    }

    fn push_run(&mut self, run: AccessRun) {
        let accesses = run.accesses();
        assert!(accesses > 0, "a run has at least one access: {run:?}");
        match run.origin {
            AccessOrigin::User => {
                self.summary.runs += 1;
                self.summary.accesses += accesses;
                self.summary.stores += u64::from(run.writes);
                if run.stream == AccessStream::Fetch {
                    self.summary.fetches += accesses;
                }
            }
            AccessOrigin::Kernel => self.summary.kernel_accesses += accesses,
        }
        self.block_accesses += accesses;
        let next = self.runs.len() as u32;
        let symbol = *self.index.entry(run).or_insert(next);
        if symbol == next {
            self.runs.push(run);
        }
        self.symbols.push(symbol);
    }

    fn push_record(&mut self, record: &Record<'_>) {
        put_record(record, &mut self.records);
        self.symbols.push(u32::MAX);
    }

    fn count_task(&mut self, task: &TaskEvent) {
        match task {
            TaskEvent::Begin { .. } | TaskEvent::Fork { .. } => {
                self.summary.processes += 1;
                self.summary.threads += 1;
            }
            TaskEvent::CloneThread { .. } => self.summary.threads += 1,
            TaskEvent::Exec { .. }
            | TaskEvent::ExitThread {}
            | TaskEvent::ExitProcess { .. }
            | TaskEvent::Reaped { .. } => {}
        }
    }

    fn close_block(&mut self) -> io::Result<()> {
        if self.symbols.is_empty() {
            return Ok(());
        }
        // Entries sorted by page differ little from their neighbours, and neighbouring pages get
        // neighbouring symbols.
        let mut order: Vec<u32> = (0..self.runs.len() as u32).collect();
        order.sort_unstable_by_key(|&at| self.runs[at as usize]);
        let mut rank = vec![0u16; order.len()];
        let mut dictionary = Vec::new();
        let mut previous = PageNo(0);
        for (to, &from) in order.iter().enumerate() {
            let run = &self.runs[from as usize];
            rank[from as usize] = to as u16;
            put_run(run, previous, &mut dictionary);
            previous = run.page;
        }
        let mut raw = Vec::with_capacity(12 + dictionary.len() + self.records.len() + 2 * self.symbols.len());
        for len in [order.len(), dictionary.len(), self.records.len()] {
            raw.extend_from_slice(&(len as u32).to_le_bytes());
        }
        raw.extend_from_slice(&dictionary);
        raw.extend_from_slice(&self.records);
        for &symbol in &self.symbols {
            let symbol = if symbol == u32::MAX { RECORD } else { rank[symbol as usize] };
            raw.extend_from_slice(&symbol.to_le_bytes());
        }
        let events = self.symbols.len() as u32;
        self.runs.clear();
        self.index.clear();
        self.symbols.clear();
        self.records.clear();
        self.write_block(BlockKind::Events, &raw, events)
    }

    fn write_block(&mut self, kind: BlockKind, raw: &[u8], events: u32) -> io::Result<()> {
        let stored = zstd::bulk::compress(raw, self.compression.level())?;
        let frame = Frame {
            kind,
            stored_bytes: stored.len() as u32,
            raw_bytes: raw.len() as u32,
            events,
            accesses: std::mem::take(&mut self.block_accesses),
            payload_crc: crc32fast::hash(&stored),
        };
        self.out.write_all(&frame.encode())?;
        self.out.write_all(&stored)
    }
}
