//! Runs the same programs here and on the host's Linux, and compares what the programs observe.
//!
//! - [`compare`] – many programs; [`compare_again`] – one. [`DifferenceReport`] – a difference with
//!   its minimised program; [`report`] – both as text.
//! - `pair`: runs each operation on both sides. `linux`, on `tracee`: processes held by ptrace(2),
//!   each a bare address space. `ours`: the memory manager on a simulated machine.
//! - `process_list`: which process runs. `observation`: the result of an operation. `maps` and
//!   `memory_usage`: one form for `/proc/PID/maps` and `smaps` of both sides. `known_differences`:
//!   where the sides differ by intention. `missing_feature`: what the running kernel lacks.
//!
//! ```text
//!   program ──┬─▶ linux ─▶ system calls, loads and stores ──▶ Observation ─┐
//!             └─▶ ours  ─▶ decoder and Mm, accesses of Sim ─▶ Observation ─┴─ equal, or a difference
//! ```
//!
//! Programs are those of [`random`](crate::random) in [`ProgramMode::Linux`]: one CPU, all calls,
//! raw flags. Forks of our side share page tables. Both sides use the same addresses, except those
//! that a call chooses. These are compared relative to the address at which each side starts its
//! search for a hole.
//!
//! Not guaranteed: anything about other versions of Linux than the running one. Operations that
//! need a feature it lacks are skipped.

mod initial_state;
mod known_differences;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
#[path = "no_linux.rs"]
mod linux;
mod maps;
mod memory_usage;
mod missing_feature;
mod observation;
mod ours;
mod pair;
mod process_list;
pub mod report;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracee;

pub use known_differences::still_differs;
pub use maps::ShownMapping;
pub use memory_usage::MemoryUsage;
pub use missing_feature::MissingFeature;
pub use observation::{AccessSignal, Observation};

use crate::random::{Operation, ProgramMode, ProgramShape, RandomProgram, remove_operations};
use pagewright_lab::LabError;
use pagewright_mm::{MmError, MmSettingError};
use pair::Pair;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Operations of a program: setup and body.
const OPERATIONS: (u16, u16) = (4, 160);

/// Which programs have pages of blocks of 2 MiB, and ask for huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePrograms {
    /// One of eight.
    Some,
    /// All.
    All,
}

impl HugePrograms {
    fn have(self, number: u64) -> bool {
        match self {
            Self::Some => number % 8 == 7,
            Self::All => true,
        }
    }
}

/// Why the sides were not compared.
#[derive(Debug, thiserror::Error)]
pub enum AgainstError {
    /// The host is not Linux on x86-64.
    #[error("the host is not Linux on x86-64")]
    NoLinux,
    /// An operation on the control file of the tracees, or on procfs, failed.
    #[error("the control file of the tracees, or procfs: {0}")]
    Control(io::Error),
    /// The shell that becomes the tracee did not start.
    #[error("/bin/sh: {0}")]
    Shell(io::Error),
    /// ptrace(2) or wait(2) failed.
    #[error("ptrace({pid}): {errno}")]
    Ptrace {
        /// The process id.
        pid: i32,
        /// The errno.
        errno: nix::errno::Errno,
    },
    /// A call that sets the tracee up failed.
    #[error("the tracee cannot be set up: {name}: {errno}")]
    Setup {
        /// The name of the call.
        name: &'static str,
        /// The errno.
        errno: nix::errno::Errno,
    },
    /// A tracee stopped in an unexpected way.
    #[error("unexpected stop of tracee {pid}: {status}")]
    Lost {
        /// The process id.
        pid: i32,
        /// The stop.
        status: String,
    },
    /// The simulated machine cannot be built.
    #[error("the machine cannot be built: {0}")]
    Lab(#[from] LabError),
    /// A setting of the kernel's that our machine can't have.
    #[error("our machine can't be set as the kernel is: {0}")]
    Setting(MmSettingError),
    /// Our machine has no room for what every program has.
    #[error("our machine is too small: {0}")]
    Memory(MmError),
}

/// A difference between Linux and ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinuxDifference {
    /// The observations of an operation differ.
    Result {
        /// The operation.
        operation: Operation,
        /// The process, numbered in the order of creation.
        process: usize,
        /// On Linux.
        linux: Observation,
        /// Here.
        ours: Observation,
    },
    /// Our side leaks something after the end of the program.
    Leak(String),
}

/// A difference, with the minimised program that shows it.
#[derive(Clone, Debug)]
pub struct DifferenceReport {
    /// The minimised program.
    pub program: RandomProgram,
    /// The program with all operations.
    pub whole: RandomProgram,
    /// The difference.
    pub difference: LinuxDifference,
}

/// What was compared, and the first difference.
#[derive(Clone, Debug, Default)]
pub struct LinuxComparison {
    /// Number of programs.
    pub programs: u64,
    /// Operations whose observations were compared.
    pub operations: u64,
    /// Operations whose minor faults were compared, too.
    pub faults_compared: u64,
    /// Operations that were skipped.
    ///
    /// The reasons are a fork beyond the limit of processes, the end of the last process, a feature
    /// that the kernel lacks, and known differences.
    pub skipped: u64,
    /// Programs that ended early, because a failed call had an effect on Linux and none here.
    pub cut_short: u64,
    /// Calls by name and name of the errno, which is empty for success.
    pub calls: BTreeMap<(&'static str, &'static str), u64>,
    /// Accesses that got no signal: loads, stores, fetches.
    pub accesses: [u64; 3],
    /// Signals of accesses.
    pub signals: BTreeMap<AccessSignal, u64>,
    /// The features that the kernel lacks.
    pub missing: Vec<MissingFeature>,
    /// Elapsed time, measured.
    pub time: Duration,
    /// Differences that did not show when their program ran again.
    ///
    /// Linux reclaims pages for other work, for example, and `mincore` shows it.
    pub not_reproduced: u64,
    /// The first difference, which ended the comparison.
    pub difference: Option<DifferenceReport>,
}

impl LinuxComparison {
    /// Adds the counts of another pair of machines.
    fn add(&mut self, more: Self) {
        self.programs += more.programs;
        self.operations += more.operations;
        self.faults_compared += more.faults_compared;
        self.skipped += more.skipped;
        self.cut_short += more.cut_short;
        for (answer, times) in more.calls {
            *self.calls.entry(answer).or_default() += times;
        }
        for (all, times) in self.accesses.iter_mut().zip(more.accesses) {
            *all += times;
        }
        for (signal, times) in more.signals {
            *self.signals.entry(signal).or_default() += times;
        }
        self.missing = more.missing;
    }
}

/// Program `number` of a seed.
pub fn nth(seed: u64, number: u64, huge: HugePrograms) -> RandomProgram {
    let (setup, body) = OPERATIONS;
    let huge = huge.have(number);
    let shape = ProgramShape { mode: ProgramMode::Linux, cpus: 1, setup, body, huge };
    RandomProgram::new(shape, seed.wrapping_mul(1_000_003).wrapping_add(number))
}

/// Runs programs on both sides until `operations` operations are compared, or until a difference.
///
/// Minimises the program that shows the difference. `compared` is called before each program, with
/// the number of operations compared so far.
///
/// # Errors
/// [`AgainstError`], if the host's Linux cannot be used.
pub fn compare(
    seed: u64,
    operations: u64,
    huge: HugePrograms,
    compared: &mut dyn FnMut(u64),
) -> Result<LinuxComparison, AgainstError> {
    search((seed, operations, huge), Pair::start, compared)
}

/// Runs one program on both sides.
///
/// # Errors
/// [`AgainstError`], if the host's Linux cannot be used.
pub fn compare_again(program: &RandomProgram) -> Result<Option<DifferenceReport>, AgainstError> {
    let whole = program.whole();
    let difference = Pair::start()?.run(program)?;
    Ok(difference.map(|difference| DifferenceReport { program: program.clone(), whole, difference }))
}

fn search(
    (seed, operations, huge): (u64, u64, HugePrograms),
    start: fn() -> Result<Pair, AgainstError>,
    compared: &mut dyn FnMut(u64),
) -> Result<LinuxComparison, AgainstError> {
    let begun = Instant::now();
    let mut all = LinuxComparison::default();
    let mut pair = start()?;
    while all.operations + pair.operations() < operations && all.difference.is_none() {
        compared(all.operations + pair.operations());
        let whole = nth(seed, all.programs + pair.programs(), huge);
        let Some(difference) = pair.run(&whole)? else { continue };
        // The difference may have left the two machines in different states: use new ones.
        all.add(std::mem::replace(&mut pair, start()?).into_counts());
        if reproduces(&whole, start)? {
            all.difference = Some(minimise(whole, difference, start)?);
        } else {
            all.not_reproduced += 1;
        }
    }
    all.add(pair.into_counts());
    Ok(LinuxComparison { time: begun.elapsed(), ..all })
}

/// Whether a program shows a difference in one of two more runs.
fn reproduces(program: &RandomProgram, start: fn() -> Result<Pair, AgainstError>) -> Result<bool, AgainstError> {
    for _ in 0..2 {
        if start()?.run(program)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes operations that the difference does not need.
fn minimise(
    whole: RandomProgram,
    difference: LinuxDifference,
    start: fn() -> Result<Pair, AgainstError>,
) -> Result<DifferenceReport, AgainstError> {
    let mut first = difference;
    let mut error = None;
    let program = remove_operations(&whole, |less| match start().and_then(|mut pair| pair.run(less)) {
        Ok(Some(difference)) if difference.is_like(&first) => {
            first = difference;
            true
        }
        Ok(_) => false,
        Err(failed) => {
            error = Some(failed);
            false
        }
    });
    match error {
        Some(error) => Err(error),
        None => Ok(DifferenceReport { program, whole, difference: first }),
    }
}

impl LinuxDifference {
    /// Whether both are of the same call, with the same kinds of observation.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leak(_), Self::Leak(_)) => true,
            (
                Self::Result { operation, linux, ours, .. },
                Self::Result { operation: other, linux: other_linux, ours: other_ours, .. },
            ) => {
                let kind = |observation: &Observation| (std::mem::discriminant(observation), observation.errno());
                operation.name() == other.name() && kind(linux) == kind(other_linux) && kind(ours) == kind(other_ours)
            }
            (Self::Leak(_), Self::Result { .. }) | (Self::Result { .. }, Self::Leak(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_types::Access;

    /// A pair whose sides handle fetches differently.
    fn with_plain_fetches() -> Result<Pair, AgainstError> {
        let mut pair = Pair::start()?;
        pair.fetch_plainly();
        Ok(pair)
    }

    /// After a fork that copies page tables, resident pages are compared, too.
    #[test]
    fn programs_whose_forks_copy_page_tables_observe_the_same_results() {
        let copying = || {
            let mut pair = Pair::start()?;
            pair.copy_page_tables();
            Ok(pair)
        };
        let compared =
            search((2, 100_000, HugePrograms::Some), copying, &mut |_| {}).expect("a Linux that allows ptrace");
        if let Some(difference) = &compared.difference {
            panic!("{}", report::difference(difference));
        }
        assert!(compared.operations >= 100_000 && compared.calls.keys().any(|(call, _)| *call == "fork"));
        assert!(compared.faults_compared >= 5_000, "the faults of {} operations", compared.faults_compared);
    }

    #[test]
    fn a_difference_is_found_and_minimised() {
        let compared = search((1, 20_000, HugePrograms::Some), with_plain_fetches, &mut |_| {})
            .expect("a Linux that allows ptrace");
        let found = compared.difference.expect("a page that is resident on one side only");
        let (setup, body) = found.program.steps();
        let steps: Vec<Operation> = setup.iter().chain(&body).map(|step| step.operation).collect();
        assert!((2..8).contains(&steps.len()) && found.whole.len() == 164, "{}", report::difference(&found));
        assert!(steps.iter().any(|step| matches!(step, Operation::Access { access: Access::Exec, .. })));
        let again = with_plain_fetches().and_then(|mut pair| pair.run(&found.program)).expect("the same pair");
        assert_eq!(again.as_ref(), Some(&found.difference), "the same program shows the same difference");
        let command = format!("pagewright check --against linux --program {}", found.program);
        assert!(report::difference(&found).contains(&command));
        assert_eq!(found.program.to_string().parse(), Ok(found.program.clone()));
    }
}
