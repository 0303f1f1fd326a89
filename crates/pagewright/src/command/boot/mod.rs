//! `pagewright boot`: a Linux program on the kernel, in QEMU.
//!
//! `program` looks whether the kernel can run it; `archive` packs it and what it needs; `qemu`
//! turns the options into a command line; `report` reads what the kernel says on its second
//! channel, and `capture` makes a trace of what it records. The program's output goes to standard
//! output as it comes, its status becomes ours; everything else goes to standard error.
//!
//! Not guaranteed: speed. QEMU emulates every instruction.

mod archive;
mod capture;
mod program;
mod qemu;
mod report;

use super::CommandError;
use crate::options::{OptionError, Setting, isa_named, swap_slots};
use pagewright_capture::undo::{Scratch, Undo};
use pagewright_types::IsaKind;
use report::Report;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Options of `boot`.
#[derive(clap::Args)]
#[command(after_help = crate::options::settings_help())]
pub(crate) struct Args {
    /// Instruction set: x86-64 or arm64
    #[arg(long, value_name = "A", default_value = "x86-64")]
    arch: String,
    /// QEMU's machine: q35 or microvm for x86-64, virt for arm64
    #[arg(long, value_name = "M")]
    machine: Option<String>,
    /// Number of CPUs
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: u16,
    /// Memory, on one node
    #[arg(long, value_name = "SIZE", default_value = "512M", conflicts_with = "node")]
    mem: String,
    /// A node with its memory and CPUs, such as 0:1G,cpus=0-3; without CPUs a slower tier (repeat
    /// for each)
    #[arg(long, value_name = "SPEC")]
    node: Vec<String>,
    /// A setting of the memory manager, such as fault_around_bytes=4096 (repeat for each)
    #[arg(long, value_name = "K=V")]
    set: Vec<String>,
    /// A file to take along, as FILE or FILE=/PATH (repeat for each); without a path it goes to
    /// /bin
    #[arg(long, value_name = "F")]
    file: Vec<String>,
    /// Count everything again at power-off, and fail if a count is wrong (the kernel is built with
    /// the oracle)
    #[arg(long)]
    check: bool,
    /// Make a capture of its memory calls and faults, for `pagewright replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// A device for swap of this size, compressed in the machine's own memory (zram)
    #[arg(long, value_name = "SIZE")]
    swap: Option<String>,
    /// Seconds after which the machine is stopped
    #[arg(long, value_name = "S")]
    limit: Option<u64>,
    /// The kernel's image; else it is built in this repository
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Have QEMU count instructions, and say how many come before the program's first
    #[arg(long)]
    count: bool,
    /// A plugin for QEMU, with its arguments as `qemu -plugin` has them
    #[arg(long, value_name = "FILE,ARGS")]
    plugin: Option<String>,
    /// Words for the kernel's command line, before the program: another kernel's
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
    /// Let the kernel make a mistake (it is built with all of them)
    #[arg(long, value_name = "BUG")]
    plant: Option<String>,
    /// Static program of this system, or one among the files
    program: String,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {program}: {source} (cargo xtask setup installs it)")]
    Program { program: String, source: io::Error },
    #[error(
        "{path} is dynamic (it wants {loader}), and the kernel runs static programs: link it with -static, or boot a static busybox"
    )]
    Dynamic { path: String, loader: String },
    #[error("{path} is a program for {found}, and the machine is {isa}: choose it with --arch")]
    OtherIsa { path: String, found: IsaKind, isa: IsaKind },
    #[error("{0} is neither a 64-bit ELF program for x86-64 or arm64 nor a script")]
    NoProgram(String),
    #[error("the kernel was not built; its messages are above")]
    Build,
    #[error("this program was not built in its repository: name the kernel's image with --kernel")]
    NoRepository,
    #[error("the machine stopped without a status: what QEMU or the kernel said last is above")]
    NoStatus,
    #[error("stopped after {0} s")]
    Limit(u64),
    #[error("--machine {0}: must be q35 or microvm for x86-64, virt for arm64")]
    Machine(String),
    #[error("{0} bytes of memory on a node: QEMU has whole MiB only")]
    PartOfMiB(u64),
    #[error("--node: {0}")]
    Node(pagewright_sim::config::parse::ConfigParseError),
    #[error("--mem: {0}")]
    Memory(pagewright_sim::config::parse::ConfigParseError),
    #[error("the kernel recorded what can't be read: {0}")]
    Record(String),
    #[error("{0}: file names with spaces can't be passed to the kernel")]
    Name(String),
}

impl BootError {
    /// An error about a file, for `map_err`.
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let isa = isa_named(&args.arch)?;
    let settings = settings(&args.set)?;
    let swap_slots = args.swap.as_deref().map(swap_slots).transpose()?;
    let machine = qemu::Machine::new(args, isa)?;
    let scratch = Scratch::new("boot").map_err(|(path, source)| BootError::File { path, source })?;
    let (archive, program) = archive::pack(args, isa, scratch.path())?;
    let kernel = match &args.kernel {
        Some(kernel) => {
            std::fs::File::open(kernel).map_err(BootError::file(kernel))?;
            kernel.clone()
        }
        None => build(isa, args.plant.is_some(), args.check)?,
    };
    let report_file = scratch.file("report");
    let words = qemu::Words {
        swap_slots,
        append: &args.append,
        settings: &settings,
        check: args.check,
        record: args.record.is_some(),
        plant: args.plant.as_deref(),
        program: &program,
    };
    let mut qemu = machine.command(&kernel, &archive, &report_file, &words.line(&args.args)?);
    wait(&mut qemu, args.limit)?;
    let report = Report::read(&report_file)?;
    report.show();
    if args.count {
        report.show_first();
    }
    if let Some(path) = &args.record {
        let command = std::iter::once(&args.program).chain(&args.args).cloned().collect();
        capture::write(report.text(), isa, command, path)?;
    }
    match report.status() {
        // Who asked for a verdict and got none must not take silence for one.
        Some(status) if !args.check || report.is_judged() => Ok(ExitCode::from(status)),
        Some(_) => Ok(ExitCode::FAILURE),
        None => Err(BootError::NoStatus.into()),
    }
}

/// Checks the settings, and gives them as the kernel wants them.
fn settings(set: &[String]) -> Result<Vec<String>, OptionError> {
    let check = |text: &String| {
        let (setting, value) = Setting::parse(text)?;
        match setting {
            Setting::Knob(knob) => Ok(format!("set.{}={}", knob.name(), setting.value(value)?)),
            Setting::NoPcid => Err(OptionError::NotOfTheKernel(setting.name())),
        }
    };
    set.iter().map(check).collect()
}

/// Builds the kernel in the repository that this program was built in.
fn build(isa: IsaKind, planted: bool, judged: bool) -> Result<PathBuf, BootError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !root.join("kernel/Cargo.toml").exists() {
        return Err(BootError::NoRepository);
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["xtask", "kernel", isa.name()]).current_dir(&root).stderr(Stdio::inherit());
    cargo.args(planted.then_some("planted")).args(judged.then_some("oracle"));
    let output = cargo.output().map_err(|source| BootError::Program { program: "cargo".to_owned(), source })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let image = printed.lines().last().filter(|_| output.status.success());
    image.map(PathBuf::from).ok_or(BootError::Build)
}

/// Runs the machine to its end, or to the limit.
fn wait(qemu: &mut Command, limit: Option<u64>) -> Result<(), BootError> {
    const LOOK: Duration = Duration::from_millis(20);
    let program = qemu.get_program().display().to_string();
    let failed = |source| BootError::Program { program: program.clone(), source };
    let child = Arc::new(Mutex::new(qemu.stdin(Stdio::null()).spawn().map_err(failed)?));
    let killed = Arc::clone(&child);
    // However this ends, the machine does not run on; one that has ended is not killed
    // (`Child::kill`).
    let _stopped = Undo::new(move || {
        let mut child = killed.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill().and_then(|()| child.wait());
    });
    let start = Instant::now();
    loop {
        if child.lock().unwrap_or_else(PoisonError::into_inner).try_wait().map_err(failed)?.is_some() {
            return Ok(());
        }
        if let Some(seconds) = limit.filter(|seconds| start.elapsed() >= Duration::from_secs(*seconds)) {
            return Err(BootError::Limit(seconds));
        }
        thread::sleep(LOOK);
    }
}
