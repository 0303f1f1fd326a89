//! `pagewright boot`: boots the kernel in QEMU and runs a Linux program on it.
//!
//! `program` checks that the kernel can run the program; `initramfs` packs it with its files, and
//! `library` finds the libraries that they need;
//! `qemu` turns the options into QEMU's command line, and `memory` says how much memory the kernel
//! needs; `report` reads the kernel's report, and
//! `capture` turns what it recorded into a trace. The program's output goes to standard output and
//! its exit status becomes that of `boot`; everything else goes to standard error.
//!
//! Not guaranteed: speed. QEMU emulates every instruction.

mod capture;
mod initramfs;
mod library;
mod memory;
mod program;
mod qemu;
mod report;

use super::{CommandError, examples};
use crate::files::CommandFiles;
use crate::options::{NodeOptions, OptionError, memory_option, parse_cpus, parse_isa, parse_swap};
use crate::setting::{Setting, SettingError, settings_help};
use pagewright_capture::cleanup::{Cleanup, ScratchDir};
use pagewright_types::IsaKind;
use report::KernelReport;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Options of `boot`.
#[derive(clap::Args)]
#[command(after_help = examples::of_command("boot", &settings_help()))]
pub(crate) struct Args {
    /// Instruction set: x86-64 or arm64.
    #[arg(long, value_name = "ISA", default_value = "x86-64")]
    arch: String,
    /// Machine that QEMU emulates: q35 (the default) or microvm for x86-64, virt for arm64.
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// Number of CPUs, 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_cpus)]
    cpus: u16,
    /// Memory on a single node, whole MiB, such as 512M or 2G; --node replaces it.
    #[arg(long, value_name = "SIZE", default_value = "512M", conflicts_with = "node")]
    mem: String,
    #[command(flatten)]
    nodes: NodeOptions,
    /// Value of a setting listed below, such as fault_around_bytes=4096; repeat for each setting.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// File to copy into the machine, as FILE or FILE=/PATH; repeat for each file.
    ///
    /// A file without a path is copied to /bin.
    #[arg(long, value_name = "FILE")]
    file: Vec<String>,
    /// Folder below which the libraries of a dynamically linked program are.
    ///
    /// The default is the root of this computer, or the cross compiler's folder for the other
    /// instruction set. The loader and the libraries are copied to the same paths.
    #[arg(long, value_name = "FOLDER")]
    sysroot: Option<PathBuf>,
    /// Recount references and mappings at power-off; exit with status 70 if a count is wrong.
    ///
    /// The kernel is built with the oracle.
    #[arg(long)]
    check: bool,
    /// Write a capture of the program's memory calls and faults, for `pagewright replay`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Size of a swap device, compressed into the machine's own memory (zram), 4K to 512G.
    ///
    /// There is no swap by default.
    #[arg(long, value_name = "SIZE")]
    swap: Option<String>,
    /// Stop the machine after this many seconds.
    ///
    /// There is no limit by default.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Kernel image to boot.
    ///
    /// The default is the kernel of the repository in which pagewright was built; it is built
    /// first.
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Count instructions, and print how many the machine executes before the program's first.
    #[arg(long)]
    count: bool,
    /// QEMU plugin with its arguments, as for `qemu -plugin`.
    #[arg(long, value_name = "FILE,ARGS")]
    plugin: Option<String>,
    /// Words to put first on the kernel's command line, for a kernel given by --kernel.
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    append: String,
    /// Plant a bug in the kernel, to see that it is found.
    #[arg(long, value_name = "BUG")]
    plant: Option<String>,
    /// Run an interactive shell, with input from standard input: Debian's busybox, or --busybox.
    #[arg(long, conflicts_with_all = ["program", "record"])]
    shell: bool,
    /// Busybox for --shell.
    ///
    /// The default is the one of this computer, if the machine has its instruction set.
    #[arg(long, value_name = "FILE", requires = "shell")]
    busybox: Option<String>,
    /// Program to run: a program of this computer, or the path of one that --file copies.
    #[arg(required_unless_present = "shell")]
    program: Option<String>,
    /// Arguments of the program.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// How often the machine is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a program could not be booted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot run {program}: {source} (cargo xtask setup installs it)")]
    Program { program: String, source: io::Error },
    #[error(
        "{program} needs {name}, which is not below {}: give the folder with its libraries with --sysroot, or link it with -static", root.display()
    )]
    NoLibrary { name: String, program: String, root: PathBuf },
    #[error("{path} is a program for {found}, and the machine is {isa}: choose the machine with --arch")]
    OtherIsa { path: String, found: IsaKind, isa: IsaKind },
    #[error("{0} is neither a 64-bit ELF program for x86-64 or arm64 nor a script")]
    NoProgram(String),
    #[error("--shell: no busybox for {0} on this computer: give one with --busybox")]
    NoBusybox(IsaKind),
    #[error("the kernel could not be built; cargo's messages are above")]
    Build,
    #[error("the repository in which pagewright was built is gone: give the kernel's image with --kernel")]
    NoRepository,
    #[error("the machine stopped without an exit status; the last messages of QEMU and the kernel are above")]
    NoStatus,
    #[error("--limit {0}: the machine was stopped after {0} s")]
    Limit(u64),
    #[error("--machine {0}: must be q35 or microvm for x86-64, virt for arm64")]
    Machine(String),
    #[error("{option}: {bytes} bytes are not whole MiB, which QEMU needs")]
    PartOfMiB { option: &'static str, bytes: u64 },
    #[error("{option}: {mebibytes} MiB are too little for the kernel, the program and its files: at least {least} MiB")]
    TooLittleMemory { option: &'static str, mebibytes: u64, least: u64 },
    #[error("--node: node {node} has {mebibytes} MiB, and the machine needs at least {least} MiB there")]
    SmallNode { node: usize, mebibytes: u64, least: u64 },
    #[error("--mem: {0}")]
    Memory(pagewright_sim::config::parse::ConfigParseError),
    #[error("--record: the kernel recorded a line that cannot be read: {0}")]
    Record(String),
    #[error("{0}: file names with spaces cannot be passed to the kernel")]
    Name(String),
}

impl Args {
    pub(super) fn files(&self) -> CommandFiles {
        let files = CommandFiles::default().writes("--record", self.record.as_deref());
        let plugin = self.plugin.as_deref().and_then(|plugin| plugin.split(',').next());
        let given = [
            ("the program", self.program.as_deref().map(Path::new)),
            ("--kernel", self.kernel.as_deref()),
            ("--plugin", plugin.map(Path::new)),
        ];
        let given = given.into_iter().filter_map(|(name, path)| path.map(|path| (name, path)));
        let copied = self.file.iter().map(|file| ("--file", initramfs::host_path(file)));
        given.chain(copied).fold(files, |files, (name, path)| files.reads(name, path))
    }

    /// The program and its arguments.
    ///
    /// # Errors
    /// [`BootError::NoBusybox`].
    fn command(&self, isa: IsaKind) -> Result<(String, Vec<String>), BootError> {
        if let Some(program) = &self.program {
            return Ok((program.clone(), self.args.clone()));
        }
        let here = match isa {
            IsaKind::X86_64 => cfg!(target_arch = "x86_64"),
            IsaKind::Aarch64 => cfg!(target_arch = "aarch64"),
        };
        let installed = ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|path| here && Path::new(path).exists());
        let busybox = self.busybox.clone().or(installed.map(str::to_owned)).ok_or(BootError::NoBusybox(isa))?;
        Ok((busybox, ["sh", "-i"].map(str::to_owned).to_vec()))
    }
}

impl BootError {
    /// Adds the file to an I/O error, for `map_err`.
    fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, CommandError> {
    let isa = parse_isa(&args.arch)?;
    let settings = kernel_settings(&args.set)?;
    let swap_slots = args.swap.as_deref().map(parse_swap).transpose()?;
    let machine = qemu::QemuMachine::new(args, isa)?;
    let scratch = ScratchDir::new("boot").map_err(|(path, source)| BootError::File { path, source })?;
    let (given, arguments) = args.command(isa)?;
    let (initramfs, program) = initramfs::pack(args, &given, isa, scratch.path())?;
    let packed = std::fs::metadata(&initramfs).map_err(BootError::file(&initramfs))?.len();
    let kernel = match &args.kernel {
        Some(kernel) => kernel.clone(),
        None => build(isa, args.plant.is_some(), args.check)?,
    };
    let image = std::fs::read(&kernel).map_err(BootError::file(&kernel))?;
    machine.check_memory(memory_option(args.nodes.are_given()), &image, packed)?;
    let report_file = scratch.file("report");
    let words = qemu::KernelWords {
        swap_slots,
        append: &args.append,
        settings: &settings,
        check: args.check,
        record: args.record.is_some(),
        input: args.shell,
        plant: args.plant.as_deref(),
        program: &program,
    };
    let mut qemu = machine.command(&kernel, &initramfs, &report_file, &words.line(&arguments)?);
    wait(&mut qemu, args.limit, args.shell.then_some(report_file.as_path()))?;
    let report = KernelReport::read(&report_file)?;
    report.print();
    if args.count {
        report.print_instruction_count();
    }
    if let Some(path) = &args.record {
        let command = std::iter::once(given).chain(arguments).collect();
        capture::write(report.text(), isa, command, path)?;
    }
    match report.status() {
        // `--check` without a verdict is a failure.
        Some(status) if !args.check || report.is_judged() => Ok(ExitCode::from(status)),
        Some(_) => Ok(ExitCode::FAILURE),
        None => Err(BootError::NoStatus.into()),
    }
}

/// Checks the arguments of `--set` and turns them into words of the kernel's command line.
fn kernel_settings(arguments: &[String]) -> Result<Vec<String>, OptionError> {
    let word = |((setting, value), argument): ((Setting, u64), &String)| match setting {
        Setting::Mm(named) => Ok(format!("set.{}={}", named.name(), named.show(value))),
        Setting::NoPcid => Err(SettingError::of("--set", argument)(SettingError::SimulatedOnly(setting.name()))),
    };
    Setting::parse_all(arguments)?.into_iter().zip(arguments).map(word).collect()
}

/// Builds the kernel of the repository in which this program was built, and returns its image.
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

fn lock_child(child: &Mutex<Option<Child>>) -> MutexGuard<'_, Option<Child>> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies standard input to the machine, and then tells it that there is no more.
///
/// The machine says in its report when it accepts input. QEMU passes no end of its input on, so a
/// byte stands for it.
fn forward_input(mut to: ChildStdin, report: PathBuf) {
    const EOT: u8 = 4;
    thread::spawn(move || {
        while !KernelReport::read(&report).is_ok_and(|report| report.accepts_input()) {
            thread::sleep(POLL_INTERVAL);
        }
        // The machine may end first.
        let _ = io::copy(&mut io::stdin(), &mut to).and_then(|_| to.write_all(&[EOT]));
        // QEMU's end of the pipe stays open until the machine ends.
        std::mem::forget(to);
    });
}

/// Runs QEMU until it exits or the limit, in seconds, is over.
///
/// With `input_report`, the file with its report, the machine gets standard input.
fn wait(qemu: &mut Command, limit: Option<u64>, input_report: Option<&Path>) -> Result<(), BootError> {
    let program = qemu.get_program().display().to_string();
    let failed = |source| BootError::Program { program: program.clone(), source };
    let child: Arc<Mutex<Option<Child>>> = Arc::default();
    let killed = Arc::clone(&child);
    // QEMU is killed on every path out of here, SIGINT included, so this precedes its start.
    // `Child::kill` ignores a child that has already exited.
    let _kill_on_exit = Cleanup::new(move || {
        if let Some(child) = &mut *lock_child(&killed) {
            let _ = child.kill().and_then(|()| child.wait());
        }
    });
    {
        // SIGINT waits for the lock, and then finds the child.
        let mut child = lock_child(&child);
        let input = if input_report.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut started = qemu.stdin(input).spawn().map_err(failed)?;
        if let (Some(stdin), Some(report)) = (started.stdin.take(), input_report) {
            forward_input(stdin, report.to_owned());
        }
        *child = Some(started);
    }
    let start = Instant::now();
    loop {
        let exited = lock_child(&child).as_mut().map(Child::try_wait).transpose().map_err(failed)?;
        if exited.flatten().is_some() {
            return Ok(());
        }
        if let Some(seconds) = limit.filter(|seconds| start.elapsed() >= Duration::from_secs(*seconds)) {
            return Err(BootError::Limit(seconds));
        }
        thread::sleep(POLL_INTERVAL);
    }
}
