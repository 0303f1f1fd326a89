//! Recording: [`record`] runs a program natively and under a tool, and writes a trace of it.
//!
//! The native run provides Linux's counts. Address randomisation is off, so its counts repeat, and
//! its addresses are those of [`AddressLayout::Linux`]. The run under the tool provides the
//! accesses and calls. The tool is QEMU's user mode with the plugin of `pagewright-recorder`
//! (`qemu`). If that cannot record the program, it is valgrind, which is much slower.
//!
//! Both runs are followed with ptrace (`tracer`): the native run to read the counts of each process
//! at its exit (`native`), the other run to create a fifo for each process's log before the process
//! opens it (`spool`). So no log is stored uncompressed, and an exec does not overwrite a log.
//!
//! Standard input is first copied to its end, and both runs read the copy (see [`RecordInput`]).
//! The standard output of the run under the tool is visible; that of the native run is not. A
//! program that cannot run twice, such as `mkdir`, needs [`RecordOptions::native`] off.
//!
//! Not guaranteed: that both runs do the same. Time, pids and the processor's features differ.

mod error;
mod native;
mod progress;
mod qemu;
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

use pagewright_recorder::launch::TOTAL;

use self::qemu::Qemu;
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

/// The tool that records accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecordTool {
    /// QEMU if it can record the program, else valgrind.
    #[default]
    Any,
    /// QEMU's user mode, `qemu-x86_64` or `qemu-aarch64`.
    Qemu,
    /// Valgrind's lackey.
    Valgrind,
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
    /// The compression of the trace; `None` is a fast one if the tool is fast, else a small one.
    pub compression: Option<Compression>,
    /// The tool.
    pub tool: RecordTool,
    /// The number of accesses at which the recording ends; the program is then killed.
    ///
    /// Only QEMU can do that. The recording may have a few thousand accesses more.
    pub max_accesses: Option<u64>,
    /// How far the recording is; a clone of it shows that to another thread.
    pub progress: Arc<RecordProgress>,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            native: true,
            stdin: RecordInput::Inherited,
            layout: AddressLayout::Linux,
            compression: None,
            tool: RecordTool::Any,
            max_accesses: None,
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
    /// The name and version of the tool.
    pub tool: String,
    /// Why QEMU was not the tool; `None` if it was, or was not to be.
    pub without_qemu: Option<String>,
    /// Whether the recording ended at [`RecordOptions::max_accesses`].
    pub limited: bool,
    /// The program's exit status under the tool, or 128 plus the signal that killed it.
    pub status: i32,
    /// The same of the native run; `None` without one.
    pub native_status: Option<i32>,
}

/// Records `program` with `args` into the trace `output`, which appears complete or not at all.
///
/// # Errors
/// [`RecordError`]: the tool or the program does not exist, the program cannot be traced, or its logs
/// cannot be imported.
pub fn record(
    output: &Path,
    program: &str,
    args: &[String],
    options: &RecordOptions,
) -> Result<Recording, RecordError> {
    // The program may run for long, so the output is checked first.
    drop(TraceFile::create(output).map_err(|source| RecordError::Io { path: output.to_owned(), source })?);
    let tool = Tool::find(program, args, options)?;
    let scratch = ScratchDir::new("record").map_err(|(path, source)| RecordError::Io { path, source })?;
    let input = Input::copy(options.stdin, &scratch)?;
    let native = if options.native && tool.is_native() {
        Some(native::measure(program, args, input.open()?, &scratch)?)
    } else {
        None
    };
    let (native, native_status) = native.unzip();
    let command = tool.command(program, args, options, &scratch)?;
    options.progress.start_tool(tool.total(&scratch), options.max_accesses)?;
    let (logs, status) = spool::run(&command, input.open()?, &scratch, &options.progress)?;
    if logs.is_empty() {
        return Err(RecordError::NoLog { program: program.to_owned(), tool: tool.name(), status });
    }
    let limited = options.progress.is_limit_reached();
    let import_options = import::ImportOptions {
        layout: options.layout,
        compression: options.compression.unwrap_or(tool.compression()),
        directory: std::env::current_dir().map_err(|source| RecordError::Io { path: ".".into(), source })?,
        command: Some(std::iter::once(program.to_owned()).chain(args.iter().cloned()).collect()),
        tool: tool.name(),
        native: native.clone(),
        // The tracer saw every process exit, so a log without an exit is that of a killed process.
        killed: true,
        read: options.progress.start_import(),
        ..import::ImportOptions::default()
    };
    let summary = import(&logs, output, &import_options)?;
    let (name, without_qemu) = (tool.name(), tool.without_qemu);
    Ok(Recording { summary, native, tool: name, without_qemu, limited, status, native_status })
}

/// The chosen tool.
struct Tool {
    /// QEMU, or else valgrind.
    found: Result<Qemu, Valgrind>,
    without_qemu: Option<String>,
}

impl Tool {
    fn find(program: &str, args: &[String], options: &RecordOptions) -> Result<Self, RecordError> {
        let path = find_program(program).ok_or_else(|| RecordError::NoProgram { program: program.to_owned() })?;
        if options.tool == RecordTool::Valgrind {
            if options.max_accesses.is_some() {
                return Err(RecordError::NoQemu { why: "valgrind has no limit of accesses".to_owned() });
            }
            return Ok(Self { found: Err(Valgrind::find()?), without_qemu: None });
        }
        match Qemu::find(&path, program, args) {
            Ok(qemu) => Ok(Self { found: Ok(qemu), without_qemu: None }),
            Err(why) if options.tool == RecordTool::Qemu || options.max_accesses.is_some() => {
                Err(RecordError::NoQemu { why })
            }
            Err(why) => Ok(Self { found: Err(Valgrind::find()?), without_qemu: Some(why) }),
        }
    }

    /// Whether the program runs on this host without the tool.
    fn is_native(&self) -> bool {
        self.found.as_ref().map_or(true, Qemu::is_native)
    }

    fn compression(&self) -> Compression {
        if self.found.is_ok() { Compression::Fast } else { Compression::Small }
    }

    fn name(&self) -> String {
        match &self.found {
            Ok(qemu) => qemu.tool(),
            Err(valgrind) => format!("{} lackey", valgrind.version),
        }
    }

    /// The file with the number of accesses so far, if the tool has one.
    fn total(&self, scratch: &ScratchDir) -> Option<PathBuf> {
        self.found.is_ok().then(|| scratch.file(TOTAL))
    }

    fn command(
        &self,
        program: &str,
        args: &[String],
        options: &RecordOptions,
        scratch: &ScratchDir,
    ) -> Result<Command, RecordError> {
        match &self.found {
            Ok(qemu) => qemu.command(scratch, options.max_accesses.unwrap_or(0)),
            Err(valgrind) => Ok(valgrind.command(program, args, scratch)),
        }
    }
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

    fn command(&self, program: &str, args: &[String], scratch: &ScratchDir) -> Command {
        let mut command = Command::new(&self.path);
        command.args(["--tool=lackey", "--basic-counts=no", "--trace-mem=yes", "--trace-syscalls=yes"]);
        command.args(["--trace-sched=yes", "--trace-children=yes", "--vgdb=no"]);
        let mut log = OsString::from("--log-file=");
        log.push(scratch.file("log.%p"));
        command.arg(log).arg(program).args(args);
        command
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
