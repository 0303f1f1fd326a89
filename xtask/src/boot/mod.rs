//! `cargo xtask boot`: programs on the kernel in QEMU, {x86-64, arm64} × {1, 4 CPUs}.
//!
//! Each program runs by `pagewright boot`, with a hard limit of time and `--check`, and must print
//! and answer what it does on Debian's Linux 6.1 in the same QEMU (`kernel/programs/expected`,
//! which [`crate::expected`] records). `planted` has mistakes made, each of which must be noticed.
//! Several machines run at a time. What programs do is also recorded, and counted again in the lab
//! (`recorded`).
//!
//! Not guaranteed: anything about time; QEMU emulates every instruction.

pub(crate) mod cases;
mod light;
mod planted;
mod recorded;

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::kernel;
use cases::{CASES, Case, MACHINES, Machine};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;

const CPUS: [&str; 2] = ["1", "4"];

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The programs.
    Programs,
    /// The programs, and the mistakes that some of them must notice.
    Planted,
}

/// One boot.
struct Run<'a> {
    machine: &'a Machine,
    case: &'a Case,
    program: PathBuf,
    kernel: PathBuf,
    cpus: &'static str,
    plant: Option<&'static str>,
}

/// What all boots need.
struct Bench {
    workspace: Workspace,
    pagewright: PathBuf,
    /// Where compiled programs lie.
    folder: PathBuf,
}

/// Runs what belongs to `extent`; each run is a line as of a test.
pub(crate) fn run(extent: Extent) -> Result<(), Error> {
    let bench = Bench::new()?;
    let (mut runs, mut ready) = (Vec::new(), Vec::new());
    for machine in &MACHINES {
        if let Some(missing) = machine.lacks() {
            println!("test boot {} ... ignored ({missing} is missing: cargo xtask setup)", machine.isa);
            continue;
        }
        let kernel = kernel::build(machine.target, &["oracle"])?;
        bench.programs(machine, &kernel, &mut runs)?;
        if extent == Extent::Planted {
            planted::runs(&bench, machine, &mut runs)?;
        }
        ready.push((machine, kernel));
    }
    let counted = ready.iter().map(|(machine, kernel)| {
        || Ok(light::judge(&bench, machine, kernel)? + recorded::judge(&bench, machine, kernel)?)
    });
    let failed = side_by_side(counted)? + bench.judge_all(runs)?;
    if failed == 0 { Ok(()) } else { Err(Error::Findings { check: "boot", count: failed }) }
}

/// Works at the same time; returns how many failed in all.
fn side_by_side<W>(works: impl Iterator<Item = W>) -> Result<usize, Error>
where
    W: FnOnce() -> Result<usize, Error> + Send,
{
    thread::scope(|scope| {
        let workers: Vec<_> = works.map(|work| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).sum()
    })
}

/// The program `pagewright`, built.
pub(crate) fn pagewright(workspace: &Workspace) -> Result<PathBuf, Error> {
    let mut build = cargo::command();
    build.args(["build", "--quiet", "--package", "pagewright"]).current_dir(&workspace.workspace_root);
    cargo::status(&mut build)?;
    Ok(workspace.target_directory.join("debug/pagewright"))
}

impl Bench {
    fn new() -> Result<Self, Error> {
        let workspace = Workspace::load()?;
        let pagewright = pagewright(&workspace)?;
        let folder = workspace.target_directory.join("programs");
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        Ok(Self { workspace, pagewright, folder })
    }

    /// Every program on one CPU and on four.
    fn programs<'a>(&self, machine: &'a Machine, kernel: &Path, runs: &mut Vec<Run<'a>>) -> Result<(), Error> {
        for case in &CASES {
            let Some(program) = case.program(machine, &self.workspace, &self.folder)? else {
                println!(
                    "test boot {} {} ... ignored (its program is missing: cargo xtask setup)",
                    machine.isa, case.name
                );
                continue;
            };
            let run = |cpus| {
                let (program, kernel) = (program.clone(), kernel.to_owned());
                Run { machine, case, program, kernel, cpus, plant: None }
            };
            runs.extend(CPUS.map(run));
        }
        Ok(())
    }

    /// Boots all of them, some at a time; returns how many failed.
    fn judge_all(&self, mut runs: Vec<Run<'_>>) -> Result<usize, Error> {
        // The longest first, of all machines.
        runs.sort_by_key(|run| CASES.iter().position(|case| case.name == run.case.name));
        let queue = Mutex::new(runs.into_iter());
        let take = || queue.lock().ok()?.next();
        let work = || {
            let mut failed = 0;
            while let Some(run) = take() {
                failed += usize::from(!self.judge(&run)?);
            }
            Ok(failed)
        };
        // Up to four CPUs here, a machine's own take turns on one; where there are more, each has
        // its own.
        let here = thread::available_parallelism().map_or(1, usize::from);
        let workers = (here / 4).max(2).min(here);
        side_by_side((0..workers).map(|_| work))
    }

    /// Boots, compares, prints the line; says whether all is as it should be.
    fn judge(&self, run: &Run<'_>) -> Result<bool, Error> {
        let output = self.boot(run)?;
        let right = run.is_right(&self.workspace.workspace_root, &output)?;
        let (wanted, output) =
            if run.plant.is_some() { self.judge_planted(run, right, output)? } else { (right, output) };
        run.show(wanted, &output);
        Ok(wanted)
    }

    fn boot(&self, run: &Run<'_>) -> Result<Output, Error> {
        let Case { arguments, memory, limit, .. } = *run.case;
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", run.machine.isa, "--cpus", run.cpus, "--mem", memory, "--kernel"])
            .arg(&run.kernel);
        boot.args(run.case.swap.option());
        match run.plant {
            Some(plant) => boot.args(["--limit", planted::LIMIT, "--check", "--plant", plant]),
            None => boot.args(["--limit", limit, "--check"]),
        };
        boot.arg("--").arg(&run.program).args(arguments).stdin(Stdio::null());
        let program = boot.get_program().display().to_string();
        boot.output().map_err(|source| Error::Spawn { program, source })
    }
}

impl Run<'_> {
    /// Whether the program printed and answered what it does on Linux.
    fn is_right(&self, root: &Path, output: &Output) -> Result<bool, Error> {
        let expected = self.case.expected(self.machine, root);
        let expected = fs::read(&expected).map_err(Error::file(&expected))?;
        Ok(output.stdout == expected && output.status.code() == Some(self.case.status))
    }

    fn show(&self, wanted: bool, output: &Output) {
        let what = self.plant.map_or(String::new(), |plant| format!(" with {plant}"));
        let verdict = if wanted { "ok" } else { "FAILED" };
        let mut line =
            format!("test boot {} {} cpus {}{what} ... {verdict}", self.machine.isa, self.cpus, self.case.name);
        if !wanted {
            let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            line.push_str(&format!("\n{out}\n{said}\nstatus {}", output.status));
        }
        // In one piece, so that those of several machines don't mix.
        println!("{line}");
    }
}
