//! What can be wrong with a trace file.
//!
//! Every error names the file, and where it makes sense the byte offset and the block, in one line.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a trace can't be read or written.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The file has no bytes at all.
    #[error("{}: empty file, not a trace", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file does not start as a trace does.
    #[error("{}: not a Pagewright trace", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is the text that valgrind's lackey writes.
    #[error("{}: a valgrind lackey log, not a trace; `pagewright record` makes one of a program", path.display())]
    LackeyLog {
        /// The file.
        path: PathBuf,
    },
    /// A trace of a version that this reader doesn't know.
    #[error("{}: trace format version {found}; this reader knows version {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file ends before its end marker.
    #[error("{}: truncated at byte {offset}, in block {block}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes present.
        offset: u64,
        /// The block that is cut, counted from 0.
        block: u64,
    },
    /// There is something behind the end marker.
    #[error("{}: bytes behind the end marker, at byte {offset}", path.display())]
    Trailing {
        /// The file.
        path: PathBuf,
        /// Where they start.
        offset: u64,
    },
    /// Contents that don't match their checksum, or that no writer produces.
    #[error("{}: damaged at byte {offset}, in block {block}: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the damaged block starts.
        offset: u64,
        /// The block, counted from 0; the header is block 0's predecessor and counts as 0.
        block: u64,
        /// What is wrong.
        what: Corruption,
    },
}

/// What is wrong inside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Corruption {
    /// CRC-32 differs.
    #[error("checksum is {found:#010x}, should be {expected:#010x}")]
    Checksum {
        /// As stored.
        expected: u32,
        /// As computed.
        found: u32,
    },
    /// A block of an unknown kind.
    #[error("unknown block kind {0:#x}")]
    BlockKind(u8),
    /// A length beyond what any writer produces.
    #[error("impossible length {0}")]
    Length(u64),
    /// The codec refused the payload.
    #[error("payload can't be decompressed")]
    Decompress,
    /// Sections of a block don't add up.
    #[error("block sections don't fill the block")]
    Sections,
    /// A symbol without an entry in the dictionary.
    #[error("symbol {symbol} in a dictionary of {entries}")]
    Symbol {
        /// The symbol.
        symbol: u16,
        /// Entries.
        entries: usize,
    },
    /// A run without accesses.
    #[error("run without accesses")]
    EmptyRun,
    /// An undefined tag.
    #[error("unknown {what} tag {tag}")]
    UnknownTag {
        /// The type being decoded.
        what: &'static str,
        /// The tag.
        tag: u8,
    },
    /// A record that ends early.
    #[error("record too short")]
    RecordTooShort,
    /// Records left over when all events were read.
    #[error("more records than events")]
    RecordsLeft,
    /// A number too large for its field.
    #[error("number too large")]
    Overflow,
    /// Text that isn't UTF-8.
    #[error("text is not UTF-8")]
    NotUtf8,
    /// Header or summary that is not the JSON it should be.
    #[error("metadata can't be parsed")]
    Metadata,
    /// The end marker's counts differ from what was read.
    #[error("end marker says {expected} events, {found} were read")]
    Count {
        /// As stored.
        expected: u64,
        /// As read.
        found: u64,
    },
}
