//! The native trace: what a program's threads touched, and what they asked of the memory manager.
//!
//! # Reading
//!
//! ```no_run
//! use pagewright_capture::trace::{Event, Reader};
//!
//! let mut reader = Reader::open("sort.pwt")?;
//! println!("{}", reader.header().command.join(" "));
//! let mut batch = Vec::new();
//! while reader.next_batch(&mut batch)? {
//!     for event in &batch {
//!         match event {
//!             Event::Run(run) => { /* `run.reads` + `run.writes` accesses to `run.page` */ }
//!             Event::Switch { pid, tid } => { /* the events that follow belong to this thread */ }
//!             Event::Task(task) => { /* birth, exec, death, reaping */ }
//!             Event::Call(call) => { /* mmap, brk, … with arguments and result */ }
//!             Event::File(file) => { /* a file that later events name by its id */ }
//!         }
//!     }
//! }
//! println!("{} accesses", reader.summary().expect("the end was reached").accesses);
//! # Ok::<(), pagewright_capture::trace::TraceError>(())
//! ```
//!
//! # Key types
//!
//! [`TraceEvent`] is one step of the program; [`AccessRun`] is the common one, a run of accesses of the
//! current thread to one 4 KB page. [`TraceHeader`] and [`TraceSummary`] frame the events. [`TraceReader`] and
//! [`TraceWriter`] stream them. The byte layout is in `docs/trace-format.md`.
//!
//! # Protocol of the events
//!
//! 1. A trace opens with [`TaskEvent::Begin`] of the root process, and its [`TaskEvent::Exec`].
//! 2. Every event belongs to the *current thread*: the one that the latest [`TraceEvent::Switch`] named,
//!    at first the root's first thread. A thread is born by `Begin`, [`TaskEvent::CloneThread`] or
//!    [`TaskEvent::Fork`] *before* it is first switched to. Pids and tids are numbered from 1 in order
//!    of birth, out of one sequence, as in a fresh pid namespace.
//! 3. Instruction fetches and data accesses are two streams with a current page each, so a fetch
//!    run and a data run overlap in time. A run stands where its *first* access happened. No run
//!    crosses any other event: order relative to calls and switches is exact. A run may be split in
//!    two for want of buffer space; adjacent runs to the same page are therefore legal.
//! 4. An access that straddles two pages counts once in a run of each.
//! 5. Runs with [`AccessOrigin::Kernel`] are what system calls read and wrote in user memory (`read`
//!    buffers, `stat` structures, futex words) and the pages that `execve` itself fills (strings on
//!    the stack, the head of the bss); those of a call stand right after where the call returned.
//!    Those of `execve` follow [`TaskEvent::Exec`] and precede the image's first data access to its
//!    stack.
//! 6. A [`MemCall`] stands where the call *returned*; failed calls are kept with their errno. Results
//!    are facts of the captured run: with [`AddressLayout::Linux`] the addresses in them are those that
//!    Linux without address randomisation would have returned.
//! 7. A file is introduced by [`TraceEvent::File`] before anything names its [`FileId`]; two paths to
//!    the same file have one id.
//! 8. [`TaskEvent::Reaped`] comes after the child's [`TaskEvent::ExitProcess`]; `ExitProcess` ends all
//!    threads of the process.
//!
//! # Not guaranteed
//!
//! Captures have no contents, no time, and no parallelism: the tool runs one thread of a process at
//! a time, so the interleaving in the trace is one that happened under the tool, not one that would
//! happen on several CPUs. Processes are merged so that causality by fork, exit and wait holds;
//! what they say to each other through pipes orders nothing.

mod block;
mod call;
mod error;
mod event;
mod file;
mod header;
mod ids;
mod reader;
mod wire;
mod writer;

pub use call::{MemCall, MemOp};
pub use error::{Corruption, TraceError};
pub use event::{
    AccessOrigin, AccessRun, AccessStream, CapturedFile, ExecImage, ImageBacking, ImageMapping, TaskEvent, TraceEvent,
};
pub use file::TraceFile;
pub use header::{AddressLayout, MappingSource, NativeCounts, NativeImage, TraceHeader, TraceSummary};
pub use ids::{FileId, PAGE_SHIFT, PAGE_SIZE, PageNo, Pid, Prot, RawErrno, RawMapFlags, Tid, UserAddr};
pub use reader::TraceReader;
pub use writer::{Compression, TraceWriter};
