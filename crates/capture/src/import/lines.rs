//! The lines of a log, with their numbers.
//!
//! A log of QEMU's recorder has records instead of lines. A log may be compressed with zstd, as
//! `record` spools it. The first bytes show both.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewright_recorder::log::{LogReader, LoggedRun, MAGIC, Record};

use super::error::ImportError;

/// The first bytes of a zstd frame (RFC 8878 §3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Number of bytes per `read(2)`.
const BUFFER: usize = 1 << 18;

/// The contents of a log.
enum Input {
    Text(Box<dyn BufRead>),
    Records(LogReader<Box<dyn BufRead>>),
}

/// The lines of a log.
pub(super) struct Lines {
    input: Input,
    path: PathBuf,
    line: Vec<u8>,
    number: u64,
    /// Whether the latest line ended with a newline.
    whole: bool,
}

impl Lines {
    /// Opens a log; the bytes read from it are added to `read`.
    pub(super) fn open(path: &Path, read: &Arc<AtomicU64>) -> Result<Self, ImportError> {
        let input = open(path, read).map_err(|source| ImportError::Log { path: path.to_owned(), source })?;
        Ok(Self { input, path: path.to_owned(), line: Vec::new(), number: 0, whole: true })
    }

    /// The next line, without its newline; `None` at the end of the log.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, ImportError> {
        self.line.clear();
        let Input::Text(input) = &mut self.input else { return Ok(None) };
        let got = input
            .read_until(b'\n', &mut self.line)
            .map_err(|source| ImportError::Log { path: self.path.clone(), source })?;
        if got == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.whole = self.line.last() == Some(&b'\n');
        if self.whole {
            self.line.pop();
        }
        Ok(Some(&self.line))
    }

    /// Whether the log has records instead of lines.
    pub(super) fn has_records(&self) -> bool {
        matches!(self.input, Input::Records(_))
    }

    /// The next record, whose runs go to `runs`; `None` at the end of the log, and for lines.
    pub(super) fn next_record(&mut self, runs: &mut Vec<LoggedRun>) -> Result<Option<Record>, ImportError> {
        let Input::Records(input) = &mut self.input else { return Ok(None) };
        let record = input.next_record().map_err(|source| ImportError::Log { path: self.path.clone(), source })?;
        self.number = input.number();
        if let Some(Record::Runs { .. }) = record {
            runs.clear();
            runs.extend(input.runs());
        }
        Ok(record)
    }

    /// The path of the log.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the latest line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the latest line ended with a newline; the last line of a truncated log does not.
    pub(super) fn whole(&self) -> bool {
        self.whole
    }
}

fn open(path: &Path, read: &Arc<AtomicU64>) -> io::Result<Input> {
    let mut input = BufReader::with_capacity(BUFFER, File::open(path)?);
    let plain: Box<dyn Read> = if input.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        Box::new(zstd::stream::read::Decoder::with_buffer(input)?)
    } else {
        Box::new(input)
    };
    let mut plain = BufReader::with_capacity(BUFFER, Counted { plain, read: Arc::clone(read) });
    let has_records = plain.fill_buf()?.starts_with(&MAGIC);
    let plain: Box<dyn BufRead> = Box::new(plain);
    Ok(if has_records { Input::Records(LogReader::new(plain)) } else { Input::Text(plain) })
}

/// A reader that counts the bytes.
struct Counted {
    plain: Box<dyn Read>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.plain.read(buffer)?;
        self.read.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}
