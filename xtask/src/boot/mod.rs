//! `cargo xtask boot`: programs on the kernel in QEMU, {x86-64, arm64} × {1, 4 CPUs}.
//!
//! `pagewright boot` runs each program with `--check`, under the watchdog ([`watch`]). Output and
//! exit status must be those of Debian's Linux 6.1 in the same QEMU (`kernel/programs/expected`,
//! recorded by [`crate::expected`]). `planted` also boots with planted bugs, each of which must be
//! detected. Some programs are also recorded and replayed in the lab, which must count the same
//! ([`recorded`]). A program that does nothing boots with the least memory that is accepted
//! ([`least_memory`]). [`mod@repeat`] makes the same boots many times, [`mod@long`] runs programs
//! that take minutes, and [`stressors`] those of stress-ng. Several machines run at the same time.
//!
//! Not guaranteed: anything about time, because QEMU emulates every instruction.

mod budget;
pub(crate) mod cases;
mod least_memory;
pub(crate) mod long;
mod planted;
mod recorded;
mod repeat;
mod shell;
pub(crate) mod stressors;

use crate::cargo::{self, Workspace};
use crate::error::Error;
use crate::kernel;
use crate::watch;
use cases::{CASES, Case, MACHINES, Machine};
use pagewright_types::IsaKind;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::thread;

const CPUS: [&str; 2] = ["1", "4"];

/// The boots to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The programs.
    Programs,
    /// The programs, and boots with planted bugs.
    Planted,
    /// The programs, again and again until there were so many boots.
    Repeated(usize),
    /// Programs that take minutes.
    Long,
}

/// One boot.
struct Run<'a> {
    machine: &'a Machine,
    case: &'a Case,
    program: PathBuf,
    kernel: PathBuf,
    cpus: &'static str,
    plant: Option<pagewright_plant::PlantedBug>,
}

/// The files that every boot needs.
struct Bench {
    workspace: Workspace,
    pagewright: PathBuf,
    /// The folder of compiled programs.
    folder: PathBuf,
    cases: &'static [Case],
    /// The program of each instruction set and case, if it is available.
    programs: HashMap<(IsaKind, &'static str), PathBuf>,
}

/// A boot, or several that belong together; returns the number of its failures.
type Task<'a> = Box<dyn FnOnce() -> Result<usize, Error> + Send + 'a>;

/// Runs the boots of `extent`, and prints a line for each as for a test.
///
/// If there are `names`, it boots only the programs with these.
///
/// # Errors
/// [`Error::Usage`], if no program has such a name; [`Error::Findings`], if a boot fails.
pub(crate) fn run(extent: Extent, names: &[&str]) -> Result<(), Error> {
    let cases: &[Case] = if extent == Extent::Long { &long::CASES } else { &CASES };
    if let Some(unknown) = names.iter().find(|name| !cases.iter().any(|case| case.name == **name)) {
        return Err(Error::Usage(format!("boot long {unknown}")));
    }
    let (machines, targets) = machines();
    let (bench, kernels) = prepare(&machines, cases)?;
    let ready: Vec<_> = machines.into_iter().zip(kernels).collect();
    let mut runs = Vec::new();
    if extent == Extent::Planted {
        let kernels = kernel::build_for_boots(&targets, &["planted", "oracle"])?;
        for ((machine, _), kernel) in ready.iter().zip(&kernels) {
            planted::runs(&bench, machine, kernel, &mut runs);
        }
    }
    for (machine, kernel) in &ready {
        bench.programs(machine, kernel, &mut runs);
    }
    runs.retain(|run| names.is_empty() || names.contains(&run.case.name));
    // The longest first, over all machines.
    runs.sort_by_key(|run| bench.cases.iter().position(|case| case.name == run.case.name));
    let bench = &bench;
    if let Extent::Repeated(boots) = extent {
        return verdict(repeat::run(bench, &runs, boots)?);
    }
    let mut tasks: Vec<Task<'_>> = Vec::new();
    for run in runs {
        tasks.push(Box::new(move || Ok(usize::from(!bench.judge(&run)?))));
    }
    for (machine, kernel) in ready.iter().filter(|_| extent != Extent::Long) {
        tasks.extend(recorded::tasks(bench, machine, kernel));
        tasks.extend(shell::task(bench, machine, kernel));
        tasks.extend(least_memory::tasks(bench, machine, kernel)?);
        tasks.push(Box::new(|| budget::judge(bench, machine, kernel)));
    }
    let here = thread::available_parallelism().map_or(1, usize::from);
    // QEMU emulates all CPUs of a machine on one thread, and a machine may need 1 GiB. On a small
    // host, one machine more than there are CPUs fills the time in which another waits.
    verdict(concurrently(tasks, (here / 4).max(3))?)
}

/// Builds what [`run`] runs.
pub(crate) fn build() -> Result<(), Error> {
    prepare(&machines().0, &CASES).map(|_| ())
}

/// The machines whose emulator and compiler are installed; prints a line for each other one.
fn machines() -> (Vec<&'static Machine>, Vec<IsaKind>) {
    let mut machines = Vec::new();
    for machine in &MACHINES {
        match machine.lacks() {
            Some(missing) => {
                println!("test boot {} ... ignored ({missing} is missing: cargo xtask setup)", machine.isa);
            }
            None => machines.push(machine),
        }
    }
    let targets = machines.iter().map(|machine| machine.isa).collect();
    (machines, targets)
}

/// Builds the programs and the kernels.
///
/// The crates of the kernel depend on each other in a chain, so their build leaves time for the
/// programs.
fn prepare(machines: &[&Machine], cases: &'static [Case]) -> Result<(Bench, Vec<PathBuf>), Error> {
    let targets: Vec<_> = machines.iter().map(|machine| machine.isa).collect();
    let (bench, kernels) = thread::scope(|scope| {
        let bench = scope.spawn(|| Bench::new(machines, cases));
        let kernels = kernel::build_for_boots(&targets, &["oracle"]);
        (join(bench), kernels)
    });
    Ok((bench?, kernels?))
}

fn verdict(failed: usize) -> Result<(), Error> {
    if failed == 0 { Ok(()) } else { Err(Error::Findings { check: "boot", count: failed }) }
}

/// Runs `tasks` in order, `workers` at a time, and returns the sum of their failures.
fn concurrently(tasks: Vec<Task<'_>>, workers: usize) -> Result<usize, Error> {
    let queue = Mutex::new(tasks.into_iter());
    let take = || queue.lock().ok()?.next();
    let work = || {
        let mut failed = 0;
        while let Some(task) = take() {
            failed += task()?;
        }
        Ok(failed)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(join).sum()
    })
}

fn join<T>(worker: thread::ScopedJoinHandle<'_, T>) -> T {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Builds the program `pagewright`, and returns its path.
pub(crate) fn pagewright(workspace: &Workspace) -> Result<PathBuf, Error> {
    let mut build = cargo::command();
    build.args(["build", "--quiet", "--package", "pagewright"]).args(cargo::WITH_PLANTED_BUGS);
    build.current_dir(&workspace.workspace_root);
    cargo::status(&mut build)?;
    Ok(workspace.target_directory.join("debug/pagewright"))
}

/// The program that the environment names in `PAGEWRIGHT`; without one, [`pagewright`].
pub(crate) fn given_pagewright(workspace: &Workspace) -> Result<PathBuf, Error> {
    std::env::var_os("PAGEWRIGHT").map_or_else(|| pagewright(workspace), |program| Ok(PathBuf::from(program)))
}

impl Bench {
    /// Builds `pagewright`, and the programs of `cases` for `machines`.
    fn new(machines: &[&Machine], cases: &'static [Case]) -> Result<Self, Error> {
        let workspace = Workspace::load()?;
        let pagewright = pagewright(&workspace)?;
        let folder = workspace.programs()?;
        let mut programs = HashMap::new();
        for machine in machines {
            for case in cases {
                if let Some(program) = case.program(machine, &workspace, &folder)? {
                    programs.insert((machine.isa, case.name), program);
                }
            }
        }
        Ok(Self { workspace, pagewright, folder, cases, programs })
    }

    /// The program of a case.
    fn program(&self, machine: &Machine, case: &Case) -> Option<PathBuf> {
        self.programs.get(&(machine.isa, case.name)).cloned()
    }

    /// Adds the boots of every program, most of them on one CPU and on four.
    fn programs<'a>(&self, machine: &'a Machine, kernel: &Path, runs: &mut Vec<Run<'a>>) {
        for case in self.cases {
            let Some(program) = self.program(machine, case) else {
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
            runs.extend(case.cpus.iter().copied().map(run));
        }
    }

    /// Runs one boot, prints its line, and returns whether it passed.
    fn judge(&self, run: &Run<'_>) -> Result<bool, Error> {
        let output = self.boot(run)?;
        let right = run.is_right(&self.workspace.workspace_root, &output)?;
        let (passed, output) =
            if run.plant.is_some() { self.judge_planted(run, right, output)? } else { (right, output) };
        // One call, so that the output of several machines does not mix.
        println!("{}", run.verdict(passed, &output));
        Ok(passed)
    }

    fn boot(&self, run: &Run<'_>) -> Result<Output, Error> {
        let Case { arguments, memory, allowed, .. } = *run.case;
        let mut boot = Command::new(&self.pagewright);
        boot.args(["boot", "--arch", run.machine.isa.name()]).args(run.case.size(memory, run.cpus));
        boot.arg("--kernel").arg(&run.kernel);
        boot.args(run.case.swap.option());
        boot.args(run.case.set.iter().map(|set| format!("--set={set}"))).arg("--check");
        boot.args(run.plant.map(|plant| format!("--plant={plant}")));
        if let Some(sysroot) = run.case.sysroot(run.machine, &self.workspace) {
            boot.arg("--sysroot").arg(sysroot);
        }
        boot.arg("--").arg(&run.program).args(arguments).stdin(Stdio::null());
        watch::output(&mut boot, if run.plant.is_some() { planted::ALLOWED } else { allowed })
    }
}

impl Run<'_> {
    /// Whether output and exit status are those on Linux, and what should be counted was.
    fn is_right(&self, root: &Path, output: &Output) -> Result<bool, Error> {
        let expected = self.case.expected(self.machine, root);
        let expected = fs::read(&expected).map_err(Error::file(&expected))?;
        let counts = String::from_utf8_lossy(&output.stderr);
        let are_counted = self.case.counted.iter().all(|name| recorded::counted(&counts, name) > 0);
        Ok(output.stdout == expected && output.status.code() == Some(self.case.status) && are_counted)
    }

    /// The machine and the program.
    fn name(&self) -> String {
        let what = self.plant.map_or(String::new(), |plant| format!(" with {plant}"));
        format!("boot {} {} cpus {}{what}", self.machine.isa, self.cpus, self.case.name)
    }

    /// The line of its result; after it what it printed, if it failed.
    fn verdict(&self, passed: bool, output: &Output) -> String {
        let mut line = format!("test {} ... {}", self.name(), if passed { "ok" } else { "FAILED" });
        if !passed {
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            line.push_str(&format!("\n{stdout}\n{stderr}\nstatus {}", output.status));
        }
        line
    }
}
