//! Recording: [`record`] runs a program natively and under valgrind, and writes a trace of it.
//!
//! The native run provides Linux's counts. Address randomisation is off, so its counts repeat, and
//! its addresses are those of [`AddressLayout::Linux`]. The run under valgrind provides the
//! accesses and calls. Both runs are followed with ptrace (`tracer`): the native run to read the
//! counts of each process at its exit (`native`), the other run to create a fifo for each process's
//! log before the process opens it (`spool`). So no log is stored as text, and an exec does not
//! overwrite a log.
//!
//! Standard input is first copied to its end, and both runs read the copy (see [`RecordInput`]).
//! The standard output of the run under valgrind is visible; that of the native run is not. A
//! program that cannot run twice, such as `mkdir`, needs [`RecordOptions::native`] off.
//!
//! Not guaranteed: that both runs do the same. Time, pids and the processor's features differ.

mod error;
mod native;
mod progress;
mod spool;
mod tracer;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

pub use error::RecordError;
pub use progress::{RecordProgress, RecordStage};

use crate::cleanup::ScratchDir;
use crate::import::{self, import};
use crate::trace::{AddressLayout, Compression, NativeCounts, TraceFile, TraceSummary};

/// The standard input of the recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecordInput {
    /// The standard input of this process; empty if that is a terminal.
    #[default]
    Inherited,
    /// Empty.
    Empty,
}

/// Options of [`record`].
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Whether to run the program natively too, for Linux's counts.
    pub native: bool,
    /// The standard input of the program.
    pub stdin: RecordInput,
    /// The layout of the addresses in the trace.
    pub layout: AddressLayout,
    /// The compression of the trace.
    pub compression: Compression,
    /// How far the recording is; a clone of it shows that to another thread.
    pub progress: Arc<RecordProgress>,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            native: true,
            stdin: RecordInput::Inherited,
            layout: AddressLayout::Linux,
            compression: Compression::Small,
            progress: Arc::default(),
        }
    }
}

/// The results of [`record`].
#[derive(Clone, Debug)]
pub struct Recording {
    /// The numbers of events in the trace.
    pub summary: TraceSummary,
    /// Linux's counts; `None` without a native run.
    pub native: Option<NativeCounts>,
    /// The program's exit status under valgrind, or 128 plus the signal that killed it.
    pub status: i32,
    /// The same of the native run; `None` without one.
    pub native_status: Option<i32>,
}

/// Records `program` with `args` into the trace `output`, which appears complete or not at all.
///
/// # Errors
/// [`RecordError`]: valgrind or the program does not exist, the program cannot be traced, or its logs
/// cannot be imported.
pub fn record(
    output: &Path,
    program: &str,
    args: &[String],
    options: &RecordOptions,
) -> Result<Recording, RecordError> {
    let valgrind = Valgrind::find()?;
    if find_program(program).is_none() {
        return Err(RecordError::NoProgram { program: program.to_owned() });
    }
    // The program may run for long, so the output is checked first.
    drop(TraceFile::create(output).map_err(|source| RecordError::Io { path: output.to_owned(), source })?);
    let scratch = ScratchDir::new("record").map_err(|(path, source)| RecordError::Io { path, source })?;
    let input = Input::copy(options.stdin, &scratch)?;
    let native = if options.native { Some(native::measure(program, args, input.open()?, &scratch)?) } else { None };
    let (native, native_status) = native.unzip();
    options.progress.enter(RecordStage::Valgrind);
    let mut command = Command::new(&valgrind.path);
    command.args(["--tool=lackey", "--basic-counts=no", "--trace-mem=yes", "--trace-syscalls=yes"]);
    command.args(["--trace-sched=yes", "--trace-children=yes", "--vgdb=no"]);
    let mut log = OsString::from("--log-file=");
    log.push(scratch.file("log.%p"));
    command.arg(log).arg(program).args(args);
    let (logs, status) = spool::run(&command, input.open()?, &scratch, &options.progress)?;
    if logs.is_empty() {
        return Err(RecordError::NoLog { program: program.to_owned(), status });
    }
    let import_options = import::ImportOptions {
        layout: options.layout,
        compression: options.compression,
        directory: std::env::current_dir().map_err(|source| RecordError::Io { path: ".".into(), source })?,
        command: Some(std::iter::once(program.to_owned()).chain(args.iter().cloned()).collect()),
        tool: format!("{} lackey", valgrind.version),
        native: native.clone(),
        // The tracer saw every process exit, so a log without an exit is that of a killed process.
        killed: true,
        read: options.progress.start_import(),
        ..import::ImportOptions::default()
    };
    let summary = import(&logs, output, &import_options)?;
    Ok(Recording { summary, native, status, native_status })
}

/// The installed valgrind.
struct Valgrind {
    path: PathBuf,
    version: String,
}

impl Valgrind {
    /// Finds `valgrind.bin`, or else `valgrind`.
    ///
    /// Debian's `valgrind` is a script that changes the environment before it runs `valgrind.bin`;
    /// the recorded program should not inherit that.
    fn find() -> Result<Self, RecordError> {
        let path =
            ["valgrind.bin", "valgrind"].iter().find_map(|name| find_program(name)).ok_or(RecordError::NoValgrind)?;
        let asked = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = asked.map_err(|source| RecordError::Io { path: path.clone(), source })?;
        Ok(Self { path, version: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
    }
}

/// Finds a program as a shell does: by its path, or by its name in `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}

/// The copy of standard input that both runs read; `None` is an empty input.
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
