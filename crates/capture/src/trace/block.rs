//! The byte layout of a block: frame, dictionary, records, symbols.
//!
//! A program's runs repeat: a loop touches the same pages with the same counts. So a block holds
//! each *distinct* run once, in a dictionary sorted by page. An event is a 16-bit index into the
//! dictionary, a *symbol*, and the general-purpose codec finds the loops among the symbols. Rare
//! events are records in a section of their own: the symbol [`RECORD`] stands for the next one.
//! Blocks share no state, so damage stays local, and each block can be decoded alone.

use super::call::MemCall;
use super::error::Corruption;
use super::event::{AccessOrigin, AccessRun, AccessStream, CapturedFile, TaskEvent, TraceEvent};
use super::ids::{PageNo, Pid, Tid};
use super::wire::{Wire, take_byte};

/// First bytes of every trace.
///
/// The non-ASCII byte and the line ends reveal a file that a text conversion has changed.
pub(crate) const MAGIC: [u8; 8] = *b"\x89PWT\r\n\x1a\n";
/// Version of the layout.
pub(crate) const VERSION: u32 = 1;
/// Size of a block's frame, in bytes.
pub(crate) const FRAME_BYTES: usize = 32;
/// Maximum number of events in a block.
pub(crate) const BLOCK_EVENTS: usize = 1 << 20;
/// Maximum number of distinct runs in a block: every 16-bit symbol but [`RECORD`].
pub(crate) const BLOCK_RUNS: usize = 0xffff;
/// Size of the records at which the writer closes a block, in bytes.
pub(crate) const BLOCK_RECORD_BYTES: usize = 1 << 20;
/// Largest block, compressed or not, that a reader accepts, in bytes.
pub(crate) const BLOCK_BYTES_MAX: u32 = 1 << 26;
/// The symbol that stands for the next record.
pub(crate) const RECORD: u16 = 0xffff;

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Events,
    End,
}

/// The frame that precedes a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: BlockKind,
    pub(crate) stored_bytes: u32,
    pub(crate) raw_bytes: u32,
    pub(crate) events: u32,
    pub(crate) accesses: u64,
    pub(crate) payload_crc: u32,
}

impl Frame {
    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut out = [0; FRAME_BYTES];
        out[0] = match self.kind {
            BlockKind::Events => 1,
            BlockKind::End => 2,
        };
        out[4..8].copy_from_slice(&self.stored_bytes.to_le_bytes());
        out[8..12].copy_from_slice(&self.raw_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.events.to_le_bytes());
        out[16..24].copy_from_slice(&self.accesses.to_le_bytes());
        out[24..28].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..28]);
        out[28..32].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Self, Corruption> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        check_crc(&bytes[..28], word(28))?;
        let kind = match bytes[0] {
            1 => BlockKind::Events,
            2 => BlockKind::End,
            kind => return Err(Corruption::BlockKind(kind)),
        };
        let frame = Self {
            kind,
            stored_bytes: word(4),
            raw_bytes: word(8),
            events: word(12),
            accesses: u64::from(word(16)) | u64::from(word(20)) << 32,
            payload_crc: word(24),
        };
        for len in [frame.stored_bytes, frame.raw_bytes] {
            if len > BLOCK_BYTES_MAX {
                return Err(Corruption::Length(u64::from(len)));
            }
        }
        Ok(frame)
    }
}

/// Compares the CRC-32 of `bytes` with the one stored in the file.
pub(crate) fn check_crc(bytes: &[u8], expected: u32) -> Result<(), Corruption> {
    let found = crc32fast::hash(bytes);
    if found == expected { Ok(()) } else { Err(Corruption::Checksum { expected, found }) }
}

const DATA: u8 = 1;
const KERNEL: u8 = 2;
const WRITE_FIRST: u8 = 4;

/// Appends a dictionary entry; `previous` is the page of the preceding entry, at most this page.
pub(crate) fn put_run(run: &AccessRun, previous: PageNo, out: &mut Vec<u8>) {
    (run.page.0 - previous.0).put(out);
    let mut bits = 0;
    if run.stream == AccessStream::Data {
        bits |= DATA;
    }
    if run.origin == AccessOrigin::Kernel {
        bits |= KERNEL;
    }
    if run.write_first {
        bits |= WRITE_FIRST;
    }
    out.push(bits);
    run.reads.put(out);
    run.writes.put(out);
}

/// Decodes a dictionary entry and removes it from the front of `input`.
pub(crate) fn get_run(input: &mut &[u8], previous: PageNo) -> Result<AccessRun, Corruption> {
    let page = PageNo(previous.0.checked_add(u64::get(input)?).ok_or(Corruption::Overflow)?);
    let bits = take_byte(input)?;
    if bits & !(DATA | KERNEL | WRITE_FIRST) != 0 {
        return Err(Corruption::UnknownTag { what: "AccessRun", tag: bits });
    }
    let run = AccessRun {
        page,
        reads: Wire::get(input)?,
        writes: Wire::get(input)?,
        stream: if bits & DATA == 0 { AccessStream::Fetch } else { AccessStream::Data },
        origin: if bits & KERNEL == 0 { AccessOrigin::User } else { AccessOrigin::Kernel },
        write_first: bits & WRITE_FIRST != 0,
    };
    if run.accesses() == 0 { Err(Corruption::EmptyRun) } else { Ok(run) }
}

/// A rare event, which is stored as a record.
pub(crate) enum Record<'a> {
    Switch(Pid, Tid),
    Task(&'a TaskEvent),
    Call(&'a MemCall),
    File(&'a CapturedFile),
}

/// Appends a record.
pub(crate) fn put_record(record: &Record<'_>, out: &mut Vec<u8>) {
    match record {
        Record::Switch(pid, tid) => {
            out.push(1);
            pid.put(out);
            tid.put(out);
        }
        Record::Task(task) => {
            out.push(2);
            task.put(out);
        }
        Record::Call(call) => {
            out.push(3);
            call.put(out);
        }
        Record::File(file) => {
            out.push(4);
            file.put(out);
        }
    }
}

/// Decodes a record and removes it from the front of `input`.
pub(crate) fn get_record(input: &mut &[u8]) -> Result<TraceEvent, Corruption> {
    match take_byte(input)? {
        1 => Ok(TraceEvent::Switch { pid: Wire::get(input)?, tid: Wire::get(input)? }),
        2 => Ok(TraceEvent::Task(Box::new(Wire::get(input)?))),
        3 => Ok(TraceEvent::Call(Box::new(Wire::get(input)?))),
        4 => Ok(TraceEvent::File(Box::new(Wire::get(input)?))),
        tag => Err(Corruption::UnknownTag { what: "TraceEvent", tag }),
    }
}
