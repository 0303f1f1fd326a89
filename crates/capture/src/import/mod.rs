//! Importing: the conversion of logs of valgrind's lackey, or of QEMU's recorder, into a trace.
//!
//! ```text
//! valgrind --tool=lackey --basic-counts=no --trace-mem=yes --trace-syscalls=yes --trace-sched=yes --trace-children=yes
//!          --log-file=/tmp/log.%p PROGRAM ARGS…
//! ```
//!
//! [`import`] reads all logs of one capture, one per process, plain or compressed with zstd, and
//! writes one trace. Its memory depends on the number of processes and mappings, not on the length
//! of the logs.
//!
//! # Modules
//!
//! | module | task |
//! | --- | --- |
//! | `lines`, `parser` | the lines of a log, and the items in them |
//! | `process` | the events of one process, from its log |
//! | `records`, `arm64` | the records of QEMU's recorder, which are instead of lines |
//! | `tasks`, `exec`, `image` | threads and children, a new image, the mappings of `execve` |
//! | `memory`, `buffers`, `files` | memory calls, buffers of other calls, descriptors |
//! | `address_map` | captured addresses and those of the trace |
//! | `runs` | accesses that form a run |
//! | `merge`, `context` | the order of all processes, and the state that they share |
//!
//! # Accesses outside the program
//!
//! Valgrind loads `vgpreload_*.so` into every program and redirects a few functions to its own
//! trampolines. The trace omits their mappings, and all accesses outside the program's mappings.
//! Its summary counts these accesses ([`TraceSummary::left_out`]).
//!
//! # What a log lacks
//!
//! * Buffers behind a second pointer (`readv`), System V shared memory (`shmat` has no length), and
//!   signal frames.
//! * The accesses of a child between `fork` and `execve`, if both images wrote to one log file: the
//!   second image overwrote the log. [`record`](crate::record) avoids that.
//! * Features of the processor that valgrind lacks, such as AVX-512. Programs choose other code
//!   paths than natively.
//! * Heaps beyond 8 MiB: valgrind's `brk` fails, and `malloc` uses `mmap`.

mod address_map;
mod arm64;
mod buffers;
mod context;
mod error;
mod exec;
mod files;
mod image;
mod lines;
mod memory;
mod merge;
mod nr;
mod parser;
mod process;
mod records;
mod runs;
mod tasks;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use error::{ExecutableError, ImportError};

use crate::trace::{
    AddressLayout, Compression, MappingSource, NativeCounts, PAGE_SIZE, TraceFile, TraceHeader, TraceSummary,
    TraceWriter,
};

/// The treatment of memory that no system call and no executable maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MappingInference {
    /// Logs without system calls are refused.
    #[default]
    Refuse,
    /// The first access to such memory maps it, in chunks of 2 MiB.
    ///
    /// The mappings are readable, writable and executable, and addresses are those of the log.
    Premapped,
}

/// Options of [`import`].
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The treatment of memory that no call maps.
    pub infer: MappingInference,
    /// The layout of the addresses in the trace.
    ///
    /// With inferred mappings it is always [`AddressLayout::AsCaptured`].
    pub layout: AddressLayout,
    /// The compression of the trace.
    pub compression: Compression,
    /// The working directory in which the program was started.
    pub directory: PathBuf,
    /// The command; `None` for the one in the root's log.
    pub command: Option<Vec<String>>,
    /// The capturing tool with its version.
    pub tool: String,
    /// Linux's counts for the same command.
    pub native: Option<NativeCounts>,
    /// Whether a log that ends before its process exits is that of a killed process, and no error.
    pub killed: bool,
    /// Number of bytes of the logs that have been read, for another thread to show.
    pub read: Arc<AtomicU64>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            infer: MappingInference::Refuse,
            layout: AddressLayout::Linux,
            compression: Compression::Fast,
            directory: PathBuf::from("."),
            command: None,
            tool: "valgrind lackey".to_owned(),
            native: None,
            killed: false,
            read: Arc::default(),
        }
    }
}

/// Imports the logs of one capture into the trace `output`, which appears complete or not at all.
///
/// # Errors
/// [`ImportError`]: a log cannot be read, the logs are not those of one capture, or the trace cannot
/// be written.
pub fn import(logs: &[PathBuf], output: &Path, options: &ImportOptions) -> Result<TraceSummary, ImportError> {
    let failed = |source| context::output_error(output, source);
    let file = TraceFile::create(output).map_err(failed)?;
    let (summary, file) = import_to(logs, file, output, options)?;
    file.commit().map_err(failed)?;
    Ok(summary)
}

/// Imports the logs of one capture into `sink`, which errors name `name`.
///
/// # Errors
/// As [`import`]. The sink may then have a part of the trace.
pub fn import_to<W: Write>(
    logs: &[PathBuf],
    sink: W,
    name: &Path,
    options: &ImportOptions,
) -> Result<(TraceSummary, W), ImportError> {
    let (logs, command) = merge::LogSet::new(logs)?;
    let inferred = options.infer == MappingInference::Premapped;
    let header = TraceHeader {
        command: options.command.clone().unwrap_or(command),
        tool: options.tool.clone(),
        isa: logs.isa,
        page_size: PAGE_SIZE,
        mappings: if inferred { MappingSource::Premapped } else { MappingSource::SystemCalls },
        layout: if inferred { AddressLayout::AsCaptured } else { options.layout },
        native: options.native.clone(),
    };
    let failed = |source| context::output_error(name, source);
    let writer = TraceWriter::new(sink, &header, options.compression).map_err(failed)?;
    let mut context = context::Context::new(writer, name.to_owned(), options);
    merge::merge(&logs, &mut context)?;
    context.into_writer().finish().map_err(failed)
}
