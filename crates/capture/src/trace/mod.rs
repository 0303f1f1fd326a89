//! The trace format: the accesses and memory calls of a program's threads.
//!
//! # Example
//!
//! ```no_run
//! use pagewright_capture::trace::{TraceEvent, TraceReader};
//!
//! let mut reader = TraceReader::open("sort.pwt")?;
//! println!("{}", reader.header().command.join(" "));
//! let mut batch = Vec::new();
//! while reader.next_batch(&mut batch)? {
//!     for event in &batch {
//!         match event {
//!             TraceEvent::Run(run) => { /* `run.reads` + `run.writes` accesses to `run.page` */ }
//!             TraceEvent::Switch { pid, tid } => { /* the events that follow belong to this thread */ }
//!             TraceEvent::Task(task) => { /* creation, exec, exit, reaping */ }
//!             TraceEvent::Call(call) => { /* mmap, brk, … with arguments and result */ }
//!             TraceEvent::File(file) => { /* a file that later events name by its id */ }
//!         }
//!     }
//! }
//! println!("{} accesses", reader.summary().expect("the end was reached").accesses);
//! # Ok::<(), pagewright_capture::trace::TraceError>(())
//! ```
//!
//! # Key types
//!
//! [`TraceEvent`] is an event of the program. The common event is [`AccessRun`], a run of accesses
//! of the current thread to one page of 4 KiB. [`TraceHeader`] precedes the events,
//! [`TraceSummary`] follows them. [`TraceReader`] and [`TraceWriter`] stream events in memory
//! bounded by a block. `docs/trace-format.md` specifies the byte layout.
//!
//! # Protocol of the events
//!
//! 1. A trace begins with [`TaskEvent::Begin`] of the root process and its [`TaskEvent::Exec`].
//! 2. Every event belongs to the *current thread*, which the latest [`TraceEvent::Switch`] names.
//!    At first it is the root's first thread. `Begin`, [`TaskEvent::CloneThread`] and
//!    [`TaskEvent::Fork`] create a thread *before* the first switch to it. Pids and tids share one
//!    sequence of numbers, from 1 in order of creation, as in a new pid namespace.
//! 3. Instruction fetches and data accesses are two streams with a current page each, so a fetch
//!    run and a data run overlap in time. The position of a run is that of its *first* access. No
//!    run extends across another event, so the order of accesses relative to calls and switches is
//!    exact. A full buffer may split a run in two, so adjacent runs to one page are legal.
//! 4. An access that straddles two pages counts once in a run of each page.
//! 5. A run with [`AccessOrigin::Kernel`] is a page that a system call reads or writes (`read`
//!    buffers, `stat` structures, futex words), or that `execve` fills (strings on the stack, the
//!    first page of the bss). The runs of a call directly follow its return. The runs of `execve`
//!    follow [`TaskEvent::Exec`] and precede the image's first data access to its stack.
//! 6. The position of a [`MemCall`] is that of its *return*. A failed call has its errno. With
//!    [`AddressLayout::Linux`] the addresses in results are those that Linux without address
//!    randomisation returns.
//! 7. [`TraceEvent::File`] introduces a file before another event names its [`FileId`]. Two paths
//!    of one file have one id.
//! 8. [`TaskEvent::ExitProcess`] ends all threads of the process. [`TaskEvent::Reaped`] follows the
//!    child's `ExitProcess`.
//!
//! # Not guaranteed
//!
//! A capture has no page contents, no times and no parallelism. The tool runs one thread of a
//! process at a time, so the interleaving is one that happened under the tool, not one of several
//! CPUs. The order of processes respects fork, exit and wait, but not communication through pipes.

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
pub use header::{AddressLayout, MappingSource, NativeCounts, TraceHeader, TraceSummary};
pub use ids::{FileId, PAGE_SHIFT, PAGE_SIZE, PageNo, Pid, Prot, RawErrno, RawMapFlags, Tid, UserAddr};
pub use reader::TraceReader;
pub use writer::{Compression, TraceWriter};
