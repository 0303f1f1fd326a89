//! Recording: a program is run twice, natively for what Linux counts and under valgrind for what it
//! does, and a trace comes of it.
//!
//! [`record`] is all there is to call. The native run has address randomisation off, so that its
//! figures repeat and its addresses are those of [`AddressLayout::Linux`](crate::trace::Layout).
//! Both runs are followed with ptrace (`tracer`): the native one to read each process's counters at
//! the moment it ends (`native`), the other one to have a fifo ready for each process's log before
//! the process opens it (`spool`). So no log is stored as text, and none is overwritten when a
//! process execs.
//!
//! Standard input is copied to its end first and given to both runs (see [`RecordInput`]); of the
//! output, that of the run under valgrind is the one that is seen. Programs whose effects can't be
//! had twice (`mkdir`, say) don't suit the native run; [`RecordOptions::native`] leaves it out.
//!
//! Not guaranteed: that both runs do the same. Time, pids and the processor's features differ.

mod error;
mod native;
mod spool;
mod tracer;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use error::RecordError;

use crate::cleanup::ScratchDir;
use crate::import::{self, import};
use crate::trace::{AddressLayout, Compression, NativeCounts, TraceFile, TraceSummary};

/// What the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecordInput {
    /// What we would read, unless that is a terminal: then nothing.
    #[default]
    Inherited,
    /// Nothing.
    Empty,
}

/// How to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Whether to run the program natively, too.
    pub native: bool,
    /// What the program reads.
    pub stdin: RecordInput,
    /// Whose addresses the trace gets.
    pub layout: AddressLayout,
    /// How hard to compress.
    pub effort: Compression,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self { native: true, stdin: RecordInput::Inherited, layout: AddressLayout::Linux, effort: Compression::Small }
    }
}

/// What came of a recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// What the trace holds.
    pub summary: TraceSummary,
    /// What Linux counted.
    pub native: Option<NativeCounts>,
    /// The program's exit status under valgrind, or 128 + signal.
    pub status: i32,
}

/// Records `program` with `args` into the trace `output`, which appears whole or not at all.
///
/// # Errors
/// [`RecordError`]: there is no valgrind, no such program, or what it logged is no capture.
pub fn record(
    output: &Path,
    program: &str,
    args: &[String],
    options: &RecordOptions,
) -> Result<Recording, RecordError> {
    let valgrind = Valgrind::find()?;
    if search(program).is_none() {
        return Err(RecordError::NoProgram { program: program.to_owned() });
    }
    // Before the program runs: it may run for long.
    drop(TraceFile::create(output).map_err(|source| RecordError::Io { path: output.to_owned(), source })?);
    let scratch = ScratchDir::new("record").map_err(|(path, source)| RecordError::Io { path, source })?;
    let input = Input::copy(options.stdin, &scratch)?;
    let native = if options.native { Some(native::measure(program, args, input.open()?, &scratch)?) } else { None };
    let mut command = Command::new(&valgrind.path);
    command.args(["--tool=lackey", "--basic-counts=no", "--trace-mem=yes", "--trace-syscalls=yes"]);
    command.args(["--trace-sched=yes", "--trace-children=yes", "--vgdb=no"]);
    let mut log = OsString::from("--log-file=");
    log.push(scratch.file("log.%p"));
    command.arg(log).arg(program).args(args);
    let (logs, status) = spool::run(&command, input.open()?, &scratch)?;
    if logs.is_empty() {
        return Err(RecordError::NoLog { program: program.to_owned(), status });
    }
    let import_options = import::ImportOptions {
        layout: options.layout,
        effort: options.effort,
        directory: std::env::current_dir().map_err(|source| RecordError::Io { path: ".".into(), source })?,
        command: Some(std::iter::once(program.to_owned()).chain(args.iter().cloned()).collect()),
        tool: format!("{} lackey", valgrind.version),
        native: native.clone(),
        // What became of each process was seen; a log without an end is that of one that was
        // killed.
        killed: true,
        ..import::ImportOptions::default()
    };
    let summary = import(&logs, output, &import_options)?;
    Ok(Recording { summary, native, status })
}

/// The valgrind that is installed.
struct Valgrind {
    path: PathBuf,
    version: String,
}

impl Valgrind {
    /// Debian's `valgrind` is a script that changes the library path before it runs `valgrind.bin`;
    /// the program should not see that.
    fn find() -> Result<Self, RecordError> {
        let path = ["valgrind.bin", "valgrind"].iter().find_map(|name| search(name)).ok_or(RecordError::NoValgrind)?;
        let asked = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = asked.map_err(|source| RecordError::Io { path: path.clone(), source })?;
        Ok(Self { path, version: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
    }
}

/// Find a program as a shell does.
fn search(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// What both runs read.
struct Input(Option<PathBuf>);

impl Input {
    fn copy(from: RecordInput, scratch: &ScratchDir) -> Result<Self, RecordError> {
        let mut stdin = io::stdin();
        if from == RecordInput::Empty || stdin.is_terminal() {
            return Ok(Self(None));
        }
        let path = scratch.file("input");
        let copied = File::create(&path).and_then(|mut file| io::copy(&mut stdin, &mut file));
        copied.map_err(|source| RecordError::Io { path: path.clone(), source })?;
        Ok(Self(Some(path)))
    }

    fn open(&self) -> Result<Stdio, RecordError> {
        match &self.0 {
            Some(path) => {
                File::open(path).map(Stdio::from).map_err(|source| RecordError::Io { path: path.clone(), source })
            }
            None => Ok(Stdio::null()),
        }
    }
}
