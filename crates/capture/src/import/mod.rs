//! Importing: logs of `valgrind --tool=lackey` become a trace.
//!
//! ```text
//! valgrind --tool=lackey --basic-counts=no --trace-mem=yes --trace-syscalls=yes --trace-sched=yes --trace-children=yes
//!          --log-file=/tmp/log.%p PROGRAM ARGS…
//! ```
//!
//! [`import`] takes all logs of one capture, one per process, plain or compressed with zstd, and
//! writes one trace. Memory is bounded by the number of processes and mappings, not by the length
//! of the logs.
//!
//! # How
//!
//! `lines` → `parse` (pieces of lines) → `process` (one process: threads, images, calls) → `merge`
//! (all processes in one order). `tasks` follows births, ends and waits, `exec` new images. `space`
//! translates addresses, `image` reconstructs what `execve` mapped, `memory` turns memory calls
//! into events, `effects` knows what other calls touch, `files` follows descriptors, `runs` gathers
//! accesses.
//!
//! # What is not the program's
//!
//! Valgrind loads `vgpreload_*.so` into every program and redirects a few functions to trampolines
//! of its own. Their mappings, and accesses to them and to anything else outside the program's
//! mappings, are left out; the trace's summary counts them.
//!
//! # What a log can't say
//!
//! * Buffers behind a second pointer (`readv`), System V shared memory (`shmat` has no length),
//!   signal frames.
//! * Which instructions ran between `fork` and `execve` in a child, when both wrote to one
//!   `--log-file` name: the second overwrote the first. [`record`](crate::record) avoids that.
//! * Processors that valgrind lacks: programs choose other code paths than natively (no AVX-512).
//! * Heaps beyond 8 MB: valgrind's `brk` fails there, and `malloc` turns to `mmap`.

mod address_map;
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
mod runs;
mod tasks;

use std::io::Write;
use std::path::{Path, PathBuf};

pub use error::{ExecutableError, ImportError};

use crate::trace::{
    AddressLayout, Compression, MappingSource, NativeCounts, PAGE_SIZE, TraceFile, TraceHeader, TraceSummary,
    TraceWriter,
};
use pagewright_types::IsaKind;

/// What to do about memory that no system call and no executable explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MappingInference {
    /// Refuse logs without system calls.
    #[default]
    Refuse,
    /// Take what is touched for mapped, readable and writable, in 2 MB pieces from its first touch
    /// on. Addresses stay as captured.
    Premapped,
}

/// How to import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// What to do about unexplained memory.
    pub infer: MappingInference,
    /// Whose addresses the trace gets.
    ///
    /// Inferred mappings always stay as captured.
    pub layout: AddressLayout,
    /// How hard to compress.
    pub effort: Compression,
    /// The directory in which the program was started: relative paths are meant from there.
    pub directory: PathBuf,
    /// The command; `None` takes it from the root's log.
    pub command: Option<Vec<String>>,
    /// The capturing tool with its version.
    pub tool: String,
    /// What Linux counted for the same command.
    pub native: Option<NativeCounts>,
    /// Take a log that ends before its process does for that of a process that was killed, instead
    /// of an error.
    pub killed: bool,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            infer: MappingInference::Refuse,
            layout: AddressLayout::Linux,
            effort: Compression::Fast,
            directory: PathBuf::from("."),
            command: None,
            tool: "valgrind lackey".to_owned(),
            native: None,
            killed: false,
        }
    }
}

/// Imports the logs of one capture into the trace `output`, which appears whole or not at all.
///
/// # Errors
/// [`ImportError`], of a log or of the trace.
pub fn import(logs: &[PathBuf], output: &Path, options: &ImportOptions) -> Result<TraceSummary, ImportError> {
    let failed = |source| context::output_error(output, source);
    let file = TraceFile::create(output).map_err(failed)?;
    let (summary, file) = import_to(logs, file, output, options)?;
    file.commit().map_err(failed)?;
    Ok(summary)
}

/// Imports the logs of one capture into any sink; errors of the sink name it `name`.
///
/// # Errors
/// [`ImportError`], of a log or of the sink, which may have part of the trace then.
pub fn import_to<W: Write>(
    logs: &[PathBuf],
    sink: W,
    name: &Path,
    options: &ImportOptions,
) -> Result<(TraceSummary, W), ImportError> {
    let (family, command) = merge::LogSet::new(logs)?;
    let inferred = options.infer == MappingInference::Premapped;
    let header = TraceHeader {
        command: options.command.clone().unwrap_or(command),
        tool: options.tool.clone(),
        isa: IsaKind::X86_64,
        page_size: PAGE_SIZE,
        mappings: if inferred { MappingSource::Premapped } else { MappingSource::SystemCalls },
        layout: if inferred { AddressLayout::AsCaptured } else { options.layout },
        native: options.native.clone(),
    };
    let failed = |source| context::output_error(name, source);
    let writer = TraceWriter::new(sink, &header, options.effort).map_err(failed)?;
    let mut context = context::Context::new(writer, name.to_owned(), options);
    merge::merge(&family, &mut context)?;
    context.into_writer().finish().map_err(failed)
}
