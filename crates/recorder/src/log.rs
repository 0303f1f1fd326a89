//! The records of a log.
//!
//! A record is a tag, the length of the payload and the payload. All numbers are little-endian. A
//! killed process may leave a part of its last record, which a reader ignores.

use std::io::{self, Read};

/// Number of bytes of a run in a log.
pub const RUN_BYTES: usize = 16;
/// Bit of [`LoggedRun::page_and_flags`]: the accesses are loads and stores, not fetches.
pub const DATA: u64 = 1;
/// Bit of [`LoggedRun::page_and_flags`]: the first access is a store.
pub const WRITE_FIRST: u64 = 2;
/// Number of bits of the page number above which the flags are.
pub const FLAG_BITS: u32 = 8;
/// The first bytes of a log, which are an empty record; each image of a process begins with them.
pub const MAGIC: [u8; 5] = [0xb7, 0, 0, 0, 0];
/// Maximum length of a payload.
const PAYLOAD_MAX: u32 = 1 << 24;

/// Consecutive accesses of a thread to one page, in one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LoggedRun {
    /// The number of the page, shifted by [`FLAG_BITS`], and flags.
    pub page_and_flags: u64,
    /// Number of loads or fetches.
    pub reads: u32,
    /// Number of stores.
    pub writes: u32,
}

impl LoggedRun {
    /// The run in the log's bytes.
    pub fn to_bytes(self) -> [u8; RUN_BYTES] {
        let mut bytes = [0; RUN_BYTES];
        bytes[..8].copy_from_slice(&self.page_and_flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.reads.to_le_bytes());
        bytes[12..].copy_from_slice(&self.writes.to_le_bytes());
        bytes
    }

    /// The run that these bytes of a log hold.
    pub fn from_bytes(bytes: &[u8; RUN_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, r0, r1, r2, r3, w0, w1, w2, w3] = *bytes;
        Self {
            page_and_flags: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            reads: u32::from_le_bytes([r0, r1, r2, r3]),
            writes: u32::from_le_bytes([w0, w1, w2, w3]),
        }
    }

    /// The number of the page.
    pub fn page(self) -> u64 {
        self.page_and_flags >> FLAG_BITS
    }
}

/// The start of a program image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// `e_machine` of the program.
    pub machine: u32,
    /// The number of the first thread.
    pub slot: u32,
    /// The address of the first instruction.
    pub entry: u64,
    /// The lowest address of the executable's code.
    pub start_code: u64,
    /// The first address above the stack.
    pub stack_top: u64,
    /// The executable.
    pub path: Vec<u8>,
    /// The arguments, from `argv[0]`.
    pub args: Vec<Vec<u8>>,
}

/// A record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The process has a new image; the first record of a root, and one after each exec.
    Image(Image),
    /// The process is a forked child, whose only thread has this number.
    Child {
        /// The process.
        pid: u32,
        /// Its parent.
        parent: u32,
        /// The thread.
        slot: u32,
    },
    /// Runs of a thread, in order; [`LogReader::runs`] has them.
    Runs {
        /// The thread.
        slot: u32,
    },
    /// A thread creates a thread.
    Thread {
        /// The creating thread.
        slot: u32,
        /// The new thread.
        new: u32,
    },
    /// A thread makes a system call.
    Call {
        /// The thread.
        slot: u32,
        /// The number of the call, of the program's instruction set.
        number: u32,
        /// The arguments.
        args: [u64; 6],
        /// Strings to which arguments point, by the index of the argument.
        texts: Vec<(u8, Vec<u8>)>,
    },
    /// The call of a thread returns.
    Return {
        /// The thread.
        slot: u32,
        /// The result, negative for an errno.
        result: i64,
    },
}

const IMAGE: u8 = 1;
const CHILD: u8 = 2;
const RUNS: u8 = 3;
const THREAD: u8 = 4;
const CALL: u8 = 5;
const RETURN: u8 = 6;

fn put(out: &mut Vec<u8>, tag: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[tag, 0, 0, 0, 0]);
    fill(out);
    let len = (out.len() - start - 5) as u32;
    out[start + 1..start + 5].copy_from_slice(&len.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Appends a record of runs.
pub fn put_runs(out: &mut Vec<u8>, slot: u32, runs: &[LoggedRun]) {
    put(out, RUNS, |out| {
        out.extend_from_slice(&slot.to_le_bytes());
        for run in runs {
            out.extend_from_slice(&run.to_bytes());
        }
    });
}

/// Appends a record; one of runs without any run.
pub fn put_record(out: &mut Vec<u8>, record: &Record) {
    let words = |out: &mut Vec<u8>, words: &[u32]| {
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    };
    match record {
        Record::Image(image) => put(out, IMAGE, |out| {
            words(out, &[image.pid, image.parent, image.machine, image.slot]);
            for word in [image.entry, image.start_code, image.stack_top] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            put_bytes(out, &image.path);
            words(out, &[image.args.len() as u32]);
            for arg in &image.args {
                put_bytes(out, arg);
            }
        }),
        Record::Child { pid, parent, slot } => put(out, CHILD, |out| words(out, &[*pid, *parent, *slot])),
        Record::Runs { slot } => put_runs(out, *slot, &[]),
        Record::Thread { slot, new } => put(out, THREAD, |out| words(out, &[*slot, *new])),
        Record::Call { slot, number, args, texts } => put(out, CALL, |out| {
            words(out, &[*slot, *number]);
            for arg in args {
                out.extend_from_slice(&arg.to_le_bytes());
            }
            words(out, &[texts.len() as u32]);
            for (index, text) in texts {
                words(out, &[u32::from(*index)]);
                put_bytes(out, text);
            }
        }),
        Record::Return { slot, result } => put(out, RETURN, |out| {
            words(out, &[*slot]);
            out.extend_from_slice(&result.to_le_bytes());
        }),
    }
}

/// The fields of a payload that remain.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.word()? as usize;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn image(&mut self) -> Option<Image> {
        let [pid, parent, machine, slot] = [self.word()?, self.word()?, self.word()?, self.word()?];
        let [entry, start_code, stack_top] = [self.long()?, self.long()?, self.long()?];
        let path = self.bytes()?;
        let args = (0..self.word()?).map(|_| self.bytes()).collect::<Option<Vec<_>>>()?;
        Some(Image { pid, parent, machine, slot, entry, start_code, stack_top, path, args })
    }

    fn call(&mut self) -> Option<Record> {
        let (slot, number) = (self.word()?, self.word()?);
        let mut args = [0; 6];
        for arg in &mut args {
            *arg = self.long()?;
        }
        let texts = (0..self.word()?).map(|_| Some((self.word()? as u8, self.bytes()?))).collect::<Option<Vec<_>>>()?;
        Some(Record::Call { slot, number, args, texts })
    }

    fn record(&mut self, tag: u8) -> Option<Record> {
        Some(match tag {
            IMAGE => Record::Image(self.image()?),
            CHILD => Record::Child { pid: self.word()?, parent: self.word()?, slot: self.word()? },
            RUNS => Record::Runs { slot: self.word()? },
            THREAD => Record::Thread { slot: self.word()?, new: self.word()? },
            CALL => self.call()?,
            RETURN => Record::Return { slot: self.word()?, result: self.long()? as i64 },
            _ => return None,
        })
    }
}

/// Reads a log.
pub struct LogReader<R> {
    input: R,
    payload: Vec<u8>,
    number: u64,
}

impl<R: Read> LogReader<R> {
    /// Reads from the start of a log.
    pub fn new(input: R) -> Self {
        Self { input, payload: Vec::new(), number: 0 }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// Those of the input, and `InvalidData` for bytes that are no record.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        let mut head = MAGIC;
        while head == MAGIC {
            if !self.fill(&mut head)? {
                return Ok(None);
            }
        }
        let len = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        if len > PAYLOAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(len as usize, 0);
        let whole = self.fill(&mut payload)?;
        self.payload = payload;
        if !whole {
            return Ok(None);
        }
        self.number += 1;
        Fields(&self.payload).record(head[0]).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The runs of the latest record, which is [`Record::Runs`].
    pub fn runs(&self) -> impl ExactSizeIterator<Item = LoggedRun> {
        self.payload.get(4..).unwrap_or_default().as_chunks::<RUN_BYTES>().0.iter().map(LoggedRun::from_bytes)
    }

    /// Number of records read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Fills the buffer; `false` if the input ends before.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.input.read_exact(buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let image = Image { pid: 7, slot: 2, path: b"/bin/x".to_vec(), args: vec![b"x".to_vec()], ..Image::default() };
        let call = Record::Call { slot: 1, number: 257, args: [1, 2, 3, 4, 5, 6], texts: vec![(1, b"a".to_vec())] };
        let records = [
            Record::Image(image),
            Record::Child { pid: 1, parent: 2, slot: 3 },
            Record::Thread { slot: 0, new: 1 },
            call,
            Record::Return { slot: 1, result: -2 },
        ];
        let mut log = MAGIC.to_vec();
        records.iter().for_each(|record| put_record(&mut log, record));
        let run = LoggedRun { page_and_flags: 5 << FLAG_BITS | DATA, reads: 1, writes: 2 };
        put_runs(&mut log, 9, &[run]);
        let mut reader = LogReader::new(&log[..]);
        for record in records {
            assert_eq!(reader.next_record().unwrap(), Some(record));
        }
        assert_eq!(reader.next_record().unwrap(), Some(Record::Runs { slot: 9 }));
        assert_eq!(reader.runs().collect::<Vec<_>>(), [run]);
        assert_eq!(reader.next_record().unwrap(), None);
        let mut cut = LogReader::new(&log[..log.len() - 1]);
        while cut.next_record().unwrap().is_some() {}
        assert_eq!(cut.number(), 5, "a part of a record is the end of the log");
    }
}
