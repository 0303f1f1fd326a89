//! The reader of a trace: a batch of events at a time, in memory bounded by a block.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::block::{
    BLOCK_BYTES_MAX, BlockKind, FRAME_BYTES, Frame, MAGIC, RECORD, VERSION, check_crc, get_record, get_run,
};
use super::error::{Corruption, TraceError};
use super::event::{AccessRun, TraceEvent};
use super::header::{TraceHeader, TraceSummary};
use super::ids::PageNo;

/// Maximum number of events in a batch: 96 KiB of them fit a second-level cache.
const BATCH: usize = 4096;

/// Reads a trace from front to back.
#[derive(Debug)]
pub struct TraceReader<R> {
    input: R,
    path: PathBuf,
    header: TraceHeader,
    summary: Option<TraceSummary>,
    /// Bytes read from the file.
    offset: u64,
    /// The first byte of the current block's frame.
    block_start: u64,
    block: u64,
    events: u64,
    stored: Vec<u8>,
    raw: Vec<u8>,
    runs: Vec<AccessRun>,
    /// The records in `raw` that are not decoded yet.
    records: std::ops::Range<usize>,
    /// The symbols in `raw` that are not decoded yet.
    symbols: std::ops::Range<usize>,
}

impl TraceReader<BufReader<File>> {
    /// Opens a trace file and reads its header.
    ///
    /// # Errors
    /// [`TraceError`]: the file cannot be read, or is not a trace of this version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
        Self::new(BufReader::new(file), path)
    }
}

impl<R: Read> TraceReader<R> {
    /// Reads a trace from `input`, which errors name `name`.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn new(input: R, name: impl Into<PathBuf>) -> Result<Self, TraceError> {
        let mut source = HeaderReader { input, path: name.into(), offset: 0, block: 0 };
        let header = source.header()?;
        let HeaderReader { input, path, offset, .. } = source;
        Ok(Self {
            input,
            path,
            header,
            summary: None,
            offset,
            block_start: offset,
            block: 0,
            events: 0,
            stored: Vec::new(),
            raw: Vec::new(),
            runs: Vec::new(),
            records: 0..0,
            symbols: 0..0,
        })
    }

    /// The header of the trace.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// The summary; `None` until [`next_batch`](Self::next_batch) has returned `false`.
    pub fn summary(&self) -> Option<&TraceSummary> {
        self.summary.as_ref()
    }

    /// Number of bytes read so far, for a progress display.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Replaces the contents of `batch` by the next events.
    ///
    /// Returns `false` and an empty batch at the end of the trace.
    ///
    /// # Errors
    /// [`TraceError`]: the trace cannot be read, is damaged, or is truncated.
    pub fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        batch.clear();
        while self.symbols.is_empty() {
            if self.summary.is_some() || !self.next_block()? {
                return Ok(false);
            }
        }
        self.decode(batch).map_err(|what| self.corrupt(what))?;
        self.events += batch.len() as u64;
        Ok(true)
    }

    fn decode(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), Corruption> {
        let bytes = (2 * BATCH).min(self.symbols.len());
        let chunk = &self.raw[self.symbols.start..self.symbols.start + bytes];
        let mut records = &self.raw[self.records.clone()];
        batch.reserve(bytes / 2);
        for pair in chunk.chunks_exact(2) {
            let symbol = u16::from_le_bytes([pair[0], pair[1]]);
            if let Some(run) = self.runs.get(usize::from(symbol)) {
                batch.push(TraceEvent::Run(*run));
            } else if symbol == RECORD {
                batch.push(get_record(&mut records)?);
            } else {
                return Err(Corruption::Symbol { symbol, entries: self.runs.len() });
            }
        }
        self.symbols.start += bytes;
        self.records.start = self.records.end - records.len();
        if self.symbols.is_empty() && !self.records.is_empty() {
            return Err(Corruption::RecordsLeft);
        }
        Ok(())
    }

    /// Loads the next block; returns `false` at the end block.
    fn next_block(&mut self) -> Result<bool, TraceError> {
        self.block_start = self.offset;
        let mut frame = [0; FRAME_BYTES];
        self.fill(&mut frame)?;
        let frame = Frame::decode(&frame).map_err(|what| self.corrupt(what))?;
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(frame.stored_bytes as usize, 0);
        self.fill(&mut stored)?;
        self.stored = stored;
        check_crc(&self.stored, frame.payload_crc).map_err(|what| self.corrupt(what))?;
        self.raw.resize(frame.raw_bytes as usize, 0);
        let raw = zstd::bulk::decompress_to_buffer(&self.stored, &mut self.raw);
        if raw.ok() != Some(frame.raw_bytes as usize) {
            return Err(self.corrupt(Corruption::Decompress));
        }
        let more = match frame.kind {
            BlockKind::Events => self.open_block(&frame).map(|()| true),
            BlockKind::End => self.read_end().map(|()| false),
        };
        let more = more.map_err(|what| self.corrupt(what))?;
        if !more {
            self.expect_eof()?;
        }
        self.block += 1;
        Ok(more)
    }

    /// Finds the sections of the block in `raw`, and decodes its dictionary.
    fn open_block(&mut self, frame: &Frame) -> Result<(), Corruption> {
        let mut at = 0usize;
        let mut section = |len: usize| -> Result<std::ops::Range<usize>, Corruption> {
            let end = at.checked_add(len).filter(|&end| end <= self.raw.len()).ok_or(Corruption::Sections)?;
            Ok(std::mem::replace(&mut at, end)..end)
        };
        let lengths = section(12)?;
        let length = |word: usize| -> usize {
            let at = lengths.start + 4 * word;
            u32::from_le_bytes([self.raw[at], self.raw[at + 1], self.raw[at + 2], self.raw[at + 3]]) as usize
        };
        let dictionary = section(length(1))?;
        let records = section(length(2))?;
        let symbols = section(2 * frame.events as usize)?;
        if at != self.raw.len() || length(0) > dictionary.len() {
            return Err(Corruption::Sections);
        }
        self.runs.clear();
        let mut input = &self.raw[dictionary];
        let mut previous = PageNo(0);
        for _ in 0..length(0) {
            let run = get_run(&mut input, previous)?;
            previous = run.page;
            self.runs.push(run);
        }
        if !input.is_empty() || self.runs.len() > usize::from(RECORD) {
            return Err(Corruption::Sections);
        }
        self.records = records;
        self.symbols = symbols;
        Ok(())
    }

    fn read_end(&mut self) -> Result<(), Corruption> {
        let summary: TraceSummary = serde_json::from_slice(&self.raw).map_err(|_| Corruption::Metadata)?;
        if summary.events != self.events {
            return Err(Corruption::Count { expected: summary.events, found: self.events });
        }
        self.summary = Some(summary);
        Ok(())
    }

    fn expect_eof(&mut self) -> Result<(), TraceError> {
        let mut byte = [0];
        match read_up_to(&mut self.input, &mut byte) {
            Ok(0) => Ok(()),
            Ok(_) => Err(TraceError::Trailing { path: self.path.clone(), offset: self.offset }),
            Err(source) => Err(TraceError::Io { path: self.path.clone(), source }),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), TraceError> {
        let got =
            read_up_to(&mut self.input, buffer).map_err(|source| TraceError::Io { path: self.path.clone(), source })?;
        self.offset += got as u64;
        if got < buffer.len() {
            return Err(TraceError::Truncated { path: self.path.clone(), offset: self.offset, block: self.block });
        }
        Ok(())
    }

    fn corrupt(&self, what: Corruption) -> TraceError {
        TraceError::Corrupt { path: self.path.clone(), offset: self.block_start, block: self.block, what }
    }
}

/// The input of a reader that has no header yet.
struct HeaderReader<R> {
    input: R,
    path: PathBuf,
    offset: u64,
    block: u64,
}

impl<R: Read> HeaderReader<R> {
    fn header(&mut self) -> Result<TraceHeader, TraceError> {
        let mut magic = [0; 8];
        let got = self.read(&mut magic)?;
        self.check_magic(&magic[..got])?;
        let mut version = [0; 4];
        self.fill(&mut version)?;
        let found = u32::from_le_bytes(version);
        if found != VERSION {
            return Err(TraceError::Version { path: self.path.clone(), found, known: VERSION });
        }
        let mut word = [0; 4];
        self.fill(&mut word)?;
        let len = u32::from_le_bytes(word);
        self.fill(&mut word)?;
        let crc = u32::from_le_bytes(word);
        let corrupt = |path: &Path, what| TraceError::Corrupt { path: path.to_owned(), offset: 8, block: 0, what };
        if len > BLOCK_BYTES_MAX {
            return Err(corrupt(&self.path, Corruption::Length(u64::from(len))));
        }
        let mut json = vec![0; len as usize];
        self.fill(&mut json)?;
        check_crc(&json, crc).map_err(|what| corrupt(&self.path, what))?;
        serde_json::from_slice(&json).map_err(|_| corrupt(&self.path, Corruption::Metadata))
    }

    fn check_magic(&self, start: &[u8]) -> Result<(), TraceError> {
        let path = self.path.clone();
        if start == MAGIC {
            Ok(())
        } else if start.is_empty() {
            Err(TraceError::Empty { path })
        } else if MAGIC.starts_with(start) {
            Err(TraceError::Truncated { path, offset: self.offset, block: self.block })
        } else if looks_like_lackey(start) {
            Err(TraceError::LackeyLog { path })
        } else {
            Err(TraceError::Foreign { path })
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TraceError> {
        let got =
            read_up_to(&mut self.input, buffer).map_err(|source| TraceError::Io { path: self.path.clone(), source })?;
        self.offset += got as u64;
        Ok(got)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), TraceError> {
        if self.read(buffer)? < buffer.len() {
            return Err(TraceError::Truncated { path: self.path.clone(), offset: self.offset, block: self.block });
        }
        Ok(())
    }
}

/// Whether `start` begins a log of lackey: its preamble, or an access line.
fn looks_like_lackey(start: &[u8]) -> bool {
    let preamble = start.starts_with(b"==") && start.get(2).is_some_and(u8::is_ascii_digit);
    let access = matches!(start, [b'I', b' ', b' ', ..] | [b' ', b'L' | b'S' | b'M', b' ', ..]);
    let digits = start.get(3..).unwrap_or_default();
    preamble || (access && digits.iter().all(|b| b.is_ascii_hexdigit() || *b == b','))
}

/// Reads until `buffer` is full or the input ends; returns the number of bytes read.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match input.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
