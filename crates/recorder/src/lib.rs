//! A plugin of QEMU's user mode that logs what a program does to its memory.
//!
//! `pagewright record` starts the program as `qemu-x86_64 -plugin libpagewright_recorder.so …`. The
//! plugin counts the accesses to each page in runs, as a trace has them, and writes them with the
//! system calls to a log for each process. The same crate as a Rust library has the format of the
//! log, which the importer of `pagewright-capture` reads.
//!
//! # Example
//!
//! A log of two runs, written and read:
//!
//! ```
//! use pagewright_recorder::log::{DATA, FLAG_BITS, LogReader, LoggedRun, MAGIC, Record, put_runs};
//!
//! let run = |page: u64, reads| LoggedRun { page_and_flags: page << FLAG_BITS | DATA, reads, writes: 0 };
//! let mut log = MAGIC.to_vec();
//! put_runs(&mut log, 1, &[run(0x400, 3), run(0x401, 2)]);
//!
//! let mut reader = LogReader::new(&log[..]);
//! assert_eq!(reader.next_record()?, Some(Record::Runs { slot: 1 }));
//! let loads: u32 = reader.runs().map(|run| run.reads).sum();
//! assert_eq!((loads, reader.next_record()?), (5, None));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Modules
//!
//! | module | task |
//! | --- | --- |
//! | [`log`] | the records of a log, written and read |
//! | [`launch`] | the command that runs a program under QEMU, also for a script |
//! | `api` | QEMU's plugin interface, version 1 |
//! | `plugin` | the callbacks |
//! | `vcpu` | the runs of a thread |
//! | `turn` | the lock that lets one thread run at a time |
//! | `output` | the log that this process writes |
//! | `guest` | strings of the program, and its stack |
//!
//! # Threads
//!
//! Threads take turns, as under valgrind: a thread holds its turn from the return of one system
//! call to the next, or until it has executed many blocks while another thread waits. So the order
//! in the log is one that happened. A thread that waits for its turn inside QEMU's code waits for
//! at most 50 ms, because the thread that holds the turn may wait for it to leave that code.
//!
//! # Not guaranteed
//!
//! That the counts are those of valgrind. QEMU splits an access of 16 bytes into two.

mod api;
mod guest;
pub mod launch;
pub mod log;
mod output;
mod plugin;
mod turn;
mod vcpu;
