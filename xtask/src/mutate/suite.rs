//! The tests that may kill a mutant, and what each does without one.
//!
//! Each test runs in a process of its own, two at a time on two cores. A first run without a mutant
//! ([`Suite::baseline`]) gives its time and the mutants that it reaches; only those that it reaches
//! can it kill. Properties use one fixed seed, so a result repeats.
//!
//! Not guaranteed: examples in documentation, and tests that need planted bugs or `--cfg loom`, do
//! not run.

use crate::built::TestProgram;
use crate::cargo::{self, Workspace};
use crate::error::Error;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// The address space of a test, in KiB, which stops a mutant that allocates without end.
const ADDRESS_SPACE: u64 = 16 << 20;
/// The shortest limit of a test with a mutant, in processor time.
const SHORTEST_LIMIT: Duration = Duration::from_secs(10);
/// The shortest time without any processor time after which a test is stopped.
const SHORTEST_STANDSTILL: Duration = Duration::from_secs(60);
/// The limits of a test with a mutant, in times of its times without one.
const TIMES: f64 = 10.0;

/// A test.
#[derive(Debug)]
pub(crate) struct Test {
    /// The package.
    pub(crate) package: String,
    /// Its name, with package and program.
    pub(crate) name: String,
    program: PathBuf,
    folder: PathBuf,
    filter: String,
}

/// What a test does without a mutant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// The test.
    pub(crate) name: String,
    /// Whether it passes in time.
    pub(crate) passes: bool,
    /// The processor time that it takes.
    pub(crate) seconds: f64,
    /// The time that it takes.
    elapsed: f64,
    /// The numbers of the mutants whose place it reaches.
    pub(crate) reached: BTreeSet<usize>,
}

/// The end of one run of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestEnd {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It was stopped at its time limit.
    TimeLimit,
}

/// All tests.
pub(crate) struct Suite {
    /// The tests.
    pub(crate) tests: Vec<Test>,
    baselines: Vec<OnceLock<Baseline>>,
    /// The folder of temporary files.
    folder: PathBuf,
    /// The longest processor time of a test without a mutant.
    longest: Duration,
}

impl Suite {
    /// Lists the tests of `programs`.
    pub(super) fn new(
        workspace: &Workspace,
        programs: Vec<TestProgram>,
        folder: &Path,
        longest: Duration,
    ) -> Result<Self, Error> {
        let mut tests = Vec::new();
        for TestProgram { target, path: program, folder } in programs {
            let of = |package: &&cargo::Package| {
                package.manifest_path.parent().and_then(Path::file_name) == folder.file_name()
            };
            let package = workspace.packages.iter().find(of).map_or_else(String::new, |package| package.name.clone());
            let listed =
                cargo::output(Command::new(&program).args(["--list", "--format", "terse"]).current_dir(&folder))?;
            let ignored = cargo::output(
                Command::new(&program).args(["--list", "--format", "terse", "--ignored"]).current_dir(&folder),
            )?;
            let ignored = String::from_utf8_lossy(&ignored).into_owned();
            for line in
                String::from_utf8_lossy(&listed).lines().filter(|line| !ignored.lines().any(|other| other == *line))
            {
                if let Some(test) = line.strip_suffix(": test") {
                    tests.push(Test {
                        package: package.clone(),
                        name: format!("{package} {target} {test}"),
                        program: program.clone(),
                        folder: folder.clone(),
                        filter: test.to_owned(),
                    });
                }
            }
        }
        let baselines = tests.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { tests, baselines, folder: folder.to_owned(), longest })
    }

    /// Prints the tests that take part in nothing, because they fail without a mutant.
    pub(crate) fn print_left_out(&self) {
        for baseline in self.baselines.iter().filter_map(OnceLock::get).filter(|baseline| !baseline.passes) {
            println!("left out: {} fails, or takes too long, without a mutant", baseline.name);
        }
    }

    /// Adopts what an earlier run has found.
    pub(crate) fn adopt(&self, known: impl Iterator<Item = Baseline>) {
        for baseline in known {
            if let Some(index) = self.tests.iter().position(|test| test.name == baseline.name) {
                let _ = self.baselines[index].set(baseline);
            }
        }
    }

    /// What a test does without a mutant, if it is known.
    pub(crate) fn known(&self, test: usize) -> Option<&Baseline> {
        self.baselines[test].get()
    }

    /// What a test does without a mutant; runs it if that is not known.
    pub(crate) fn baseline(&self, test: usize) -> Result<&Baseline, Error> {
        if let Some(known) = self.known(test) {
            return Ok(known);
        }
        // Two workers may run the same test at once, each with a file of its own.
        let file = self.folder.join(format!("reached-{test}-{:?}", thread::current().id()));
        if file.exists() {
            fs::remove_file(&file).map_err(Error::file(&file))?;
        }
        let start = Instant::now();
        let reached = |command: &mut Command| {
            command.env("PAGEWRIGHT_MUTANTS_REACHED", &file);
        };
        let limits = Limits { processor: self.longest, standstill: self.longest.max(SHORTEST_STANDSTILL) };
        let (end, processor) = self.run(test, reached, limits)?;
        let (seconds, elapsed) = (processor.as_secs_f64(), start.elapsed().as_secs_f64());
        let written = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(&file);
        let name = self.tests[test].name.clone();
        let reached = written.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(self.baselines[test].get_or_init(|| Baseline {
            name,
            passes: end == TestEnd::Passed,
            seconds,
            elapsed,
            reached,
        }))
    }

    /// Runs a test with a mutant.
    pub(crate) fn run_mutant(&self, test: usize, baseline: &Baseline, number: usize) -> Result<TestEnd, Error> {
        let times = |seconds: f64| Duration::from_secs_f64(seconds * TIMES);
        let limits = Limits {
            processor: times(baseline.seconds).max(SHORTEST_LIMIT),
            standstill: times(baseline.elapsed).max(SHORTEST_STANDSTILL),
        };
        let active = |command: &mut Command| {
            command.env("PAGEWRIGHT_MUTANT", number.to_string());
        };
        Ok(self.run(test, active, limits)?.0)
    }

    /// Runs a test, and returns its end and the processor time that it took.
    fn run(&self, test: usize, set: impl FnOnce(&mut Command), limits: Limits) -> Result<(TestEnd, Duration), Error> {
        let Test { program, folder, filter, .. } = &self.tests[test];
        let mut command = Command::new("sh");
        // The limit on processor time also ends a test whose parent was killed.
        let seconds = limits.processor.as_secs() * 2 + 1;
        let shell = format!("ulimit -c 0 -v {ADDRESS_SPACE} -t {seconds}; exec \"$0\" \"$@\"");
        command.args(["-c", &shell]).arg(program).args(["--exact", filter]).current_dir(folder);
        command.env("CARGO_MANIFEST_DIR", folder).env("PROPTEST_RNG_SEED", "1");
        // A case that fails is neither kept nor minimised.
        command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1").env("PROPTEST_MAX_SHRINK_ITERS", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        set(&mut command);
        let failed = |source| Error::Spawn { program: program.display().to_string(), source };
        let mut child = command.spawn().map_err(failed)?;
        let (mut processor, mut progress, mut pause) = (Duration::ZERO, Instant::now(), Duration::from_millis(1));
        loop {
            let now = processor_time(child.id()).unwrap_or(processor);
            if now > processor {
                (processor, progress) = (now, Instant::now());
            }
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok((if status.success() { TestEnd::Passed } else { TestEnd::Failed }, processor));
            }
            if processor > limits.processor || progress.elapsed() > limits.standstill {
                // The test and the processes that it has started. It fails only if all have ended.
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                child.wait().map_err(failed)?;
                return Ok((TestEnd::TimeLimit, processor));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// The limits of a test: how busy the machine is otherwise does not count.
#[derive(Clone, Copy)]
struct Limits {
    /// The longest processor time.
    processor: Duration,
    /// The longest time without any processor time, as in a deadlock.
    standstill: Duration,
}

/// The processor time of a process, and of its children that have ended.
fn processor_time(process: u32) -> Option<Duration> {
    processor_time_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Adds up `utime`, `stime`, `cutime` and `cstime` (proc_pid_stat(5)), in ticks of 10 ms.
fn processor_time_in(stat: &str) -> Option<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    // The name may contain blanks and ends with the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u32> = fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    (ticks.len() == 4).then(|| TICK * ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_process_and_of_its_ended_children() {
        let stat = "7 (a (b) c) R 1 7 7 0 -1 4194304 90 80 70 60 5 4 3 2 20 0 1 0 99";
        assert_eq!(processor_time_in(stat), Some(Duration::from_millis(140)));
        assert_eq!(processor_time_in("7 (a) R 1"), None);
        assert!(processor_time(std::process::id()).is_some());
    }
}
