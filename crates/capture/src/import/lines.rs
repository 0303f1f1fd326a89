//! The lines of a log, with their numbers.
//!
//! A log may be compressed with zstd, as `record` spools it. The first bytes show that.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::ImportError;

/// The first bytes of a zstd frame (RFC 8878 §3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Number of bytes per `read(2)`.
const BUFFER: usize = 1 << 18;

/// The lines of a log.
pub(super) struct Lines {
    input: Box<dyn BufRead>,
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
        let got = self
            .input
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

fn open(path: &Path, read: &Arc<AtomicU64>) -> io::Result<Box<dyn BufRead>> {
    let mut input = BufReader::with_capacity(BUFFER, File::open(path)?);
    let plain: Box<dyn Read> = if input.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        Box::new(zstd::stream::read::Decoder::with_buffer(input)?)
    } else {
        Box::new(input)
    };
    Ok(Box::new(BufReader::with_capacity(BUFFER, Counted { plain, read: Arc::clone(read) })))
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
