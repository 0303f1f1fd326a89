//! Errors of reading a trace file.
//!
//! The text of an error is one line that names the file and, for damage, the byte and the block.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The operating system cannot open or read the file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is empty.
    #[error("{}: empty file, not a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file does not begin as a trace does.
    #[error("{}: not a Pagewright trace", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is a log of valgrind's lackey.
    #[error("{}: a valgrind lackey log, not a trace; `pagewright record` writes a trace of a program", path.display())]
    LackeyLog {
        /// The file.
        path: PathBuf,
    },
    /// The trace has a version that this reader does not know.
    #[error("{}: trace format version {found}, but this reader knows only version {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: u32,
        /// The version of this reader.
        known: u32,
    },
    /// The file ends before its end block.
    #[error("{}: truncated at byte {offset}, in block {block}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The size of the file, in bytes.
        offset: u64,
        /// The incomplete block, counted from 0.
        block: u64,
    },
    /// The file continues after its end block.
    #[error("{}: the file continues after its end block, at byte {offset}", path.display())]
    Trailing {
        /// The file.
        path: PathBuf,
        /// The first byte after the end block.
        offset: u64,
    },
    /// A part of the file does not match its checksum, or no writer produces it.
    #[error("{}: damaged at byte {offset}, in block {block}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The first byte of the damaged block.
        offset: u64,
        /// The block, counted from 0; the header also counts as block 0.
        block: u64,
        /// The damage.
        what: Corruption,
    },
}

/// Damage to the header or to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Corruption {
    /// The CRC-32 differs from the stored one.
    #[error("the checksum is {found:#010x} instead of {expected:#010x}")]
    Checksum {
        /// The stored checksum.
        expected: u32,
        /// The checksum of the bytes read.
        found: u32,
    },
    /// The block has an unknown kind.
    #[error("unknown block kind {0:#x}")]
    BlockKind(u8),
    /// A length, in bytes, exceeds what a writer produces.
    #[error("impossible length of {0} bytes")]
    Length(u64),
    /// The codec refuses the payload.
    #[error("the payload cannot be decompressed")]
    Decompress,
    /// The sections do not have the length of the block.
    #[error("the sections do not fill the block")]
    Sections,
    /// A symbol is not in the dictionary.
    #[error("symbol {symbol} is not in the dictionary of {entries} runs")]
    Symbol {
        /// The symbol.
        symbol: u16,
        /// Number of runs in the dictionary.
        entries: usize,
    },
    /// A run has no accesses.
    #[error("a run has no accesses")]
    EmptyRun,
    /// A tag is not defined.
    #[error("unknown {what} tag {tag}")]
    UnknownTag {
        /// The type of the field.
        what: &'static str,
        /// The tag.
        tag: u8,
    },
    /// A record ends early.
    #[error("a record is too short")]
    RecordTooShort,
    /// The block has more records than events that use one.
    #[error("more records than events")]
    RecordsLeft,
    /// A number is too large for its field.
    #[error("a number is too large for its field")]
    Overflow,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// The JSON of the header or of the summary cannot be parsed.
    #[error("the JSON of the header or summary cannot be parsed")]
    Metadata,
    /// The number of events read is not that of the summary.
    #[error("the summary counts {expected} events, but the trace has {found}")]
    Count {
        /// The number in the summary.
        expected: u64,
        /// The number of events read.
        found: u64,
    },
}
