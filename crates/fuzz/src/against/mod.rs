//! The same programs here and on the Linux underneath: what they see must be the same.
//!
//! - [`compare`] – many programs; [`compare_again`] – one. [`Found`] – a difference, by as little
//!   as shows it.
//! - `pair`: both sides, in step. `linux` over `tracee`: processes that are held by ptrace(2), each
//!   a bare address space. `ours`: the memory manager on a simulated machine.
//! - [`report`] – in words. `cast`: which process runs; `seen`: what an operation showed; `maps`:
//!   one form for `/proc/PID/maps`, and `usage` for `smaps`; `meant`: where the two are to differ.
//!
//! ```text
//!   program ──┬─▶ linux ─▶ system calls, loads and stores ──▶ Seen ─┐
//!             └─▶ ours  ─▶ methods of Mm, accesses of Sim ──▶ Seen ─┴─ equal, or a difference
//! ```
//!
//! Programs are those of [`random`](crate::random), drawn in [`Mode::Linux`]: one CPU, raw flags,
//! all calls. Addresses are the same on both sides but for those that a call chose, which are
//! compared from where either side begins to look for a hole.
//!
//! Not guaranteed: anything about other versions of Linux than the one that runs. What it lacks is
//! left out; what it does otherwise than ours is found.

mod cast;
mod lack;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod linux;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
#[path = "no_linux.rs"]
mod linux;
mod maps;
mod meant;
mod ours;
mod pair;
pub mod report;
mod seen;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod tracee;
mod usage;

pub use lack::Lack;
pub use maps::Mapping;
pub use meant::still_differs;
pub use seen::{Seen, Signal};
pub use usage::Usage;

use crate::random::{Mode, Operation, Program, Shape, cut_down};
use pagewright_lab::LabError;
use pagewright_mm::{MmError, MmSettingError};
use pair::Pair;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Operations of a program: those that begin it, and the others.
const OPERATIONS: (u16, u16) = (4, 160);

/// Why the two could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum AgainstError {
    /// It is not Linux that we run on, or not on x86-64.
    #[error("there is no x86-64 Linux underneath")]
    NoLinux,
    /// The file that the processes share, or procfs.
    #[error("what is shared with the processes on Linux: {0}")]
    Control(io::Error),
    /// The shell that is taken over.
    #[error("/bin/sh: {0}")]
    Shell(io::Error),
    /// ptrace(2) or wait(2).
    #[error("ptrace({pid}): {errno}")]
    Ptrace {
        /// Which process.
        pid: i32,
        /// Why.
        errno: nix::errno::Errno,
    },
    /// A call that makes a process ready.
    #[error("{name} on Linux, to begin with: {errno}")]
    Setup {
        /// Which.
        name: &'static str,
        /// Why.
        errno: nix::errno::Errno,
    },
    /// A process did something else than it was told.
    #[error("process {pid} on Linux is lost: {status}")]
    Lost {
        /// Which.
        pid: i32,
        /// What it did.
        status: String,
    },
    /// Our machine.
    #[error("impossible machine: {0}")]
    Lab(#[from] LabError),
    /// A setting of the kernel's that our machine can't have.
    #[error("our machine can't be set as the kernel is: {0}")]
    Setting(MmSettingError),
    /// Our machine has no room for what every program has.
    #[error("our machine is too small: {0}")]
    Memory(MmError),
}

/// What was different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// What an operation showed.
    Seen {
        /// Which.
        operation: Operation,
        /// By which process.
        process: usize,
        /// On Linux.
        linux: Seen,
        /// Here.
        ours: Seen,
    },
    /// Something is left here of a program that has ended.
    Left(String),
}

/// A difference that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// By what.
    pub program: Program,
    /// The program as it was drawn.
    pub whole: Program,
    /// What it shows.
    pub difference: Difference,
}

/// What was compared.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Programs.
    pub programs: u64,
    /// Operations whose answers were compared.
    pub operations: u64,
    /// Operations that were left out: too many processes, or the last one, or something that the
    /// kernel lacks.
    pub left_out: u64,
    /// Programs that ended early, because a call that failed leaves something behind on Linux and
    /// not here.
    pub cut_short: u64,
    /// Answers by call and errno; the empty one for success.
    pub calls: BTreeMap<(&'static str, &'static str), u64>,
    /// Accesses by kind, and signals.
    pub accesses: [u64; 3],
    /// Signals that accesses got.
    pub signals: BTreeMap<Signal, u64>,
    /// What the kernel lacks.
    pub lacks: Vec<Lack>,
    /// Measured: how long it took.
    pub time: Duration,
    /// Differences that a program showed once and not when it ran again: Linux has other work, too,
    /// and takes pages for it, which `mincore` tells.
    pub not_again: u64,
    /// The first difference, with which it ended.
    pub found: Option<Found>,
}

impl Compared {
    /// Adds what was compared on another pair of machines.
    fn add(&mut self, more: Self) {
        self.programs += more.programs;
        self.operations += more.operations;
        self.left_out += more.left_out;
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
        self.lacks = more.lacks;
    }
}

/// The program of this number.
pub fn nth(seed: u64, number: u64) -> Program {
    let (calm, others) = OPERATIONS;
    let shape = Shape { mode: Mode::Linux, cpus: 1, calm, others };
    Program::new(shape, seed.wrapping_mul(1_000_003).wrapping_add(number))
}

/// Compares programs, each on both sides, until so many operations were compared, or a difference
/// was found, which is cut down.
///
/// # Errors
/// [`AgainstError`], when they can't be compared on this machine.
pub fn compare(seed: u64, operations: u64) -> Result<Compared, AgainstError> {
    search(seed, operations, Pair::start)
}

/// Runs one program again.
///
/// # Errors
/// [`AgainstError`], when it can't be compared on this machine.
pub fn compare_again(program: &Program) -> Result<Option<Found>, AgainstError> {
    let whole = Program::new(program.shape, program.seed);
    let difference = Pair::start()?.run(program)?;
    Ok(difference.map(|difference| Found { program: program.clone(), whole, difference }))
}

fn search(seed: u64, operations: u64, start: fn() -> Result<Pair, AgainstError>) -> Result<Compared, AgainstError> {
    let begun = Instant::now();
    let mut all = Compared::default();
    let mut pair = start()?;
    while all.operations + pair.operations() < operations && all.found.is_none() {
        let whole = nth(seed, all.programs + pair.programs());
        let Some(difference) = pair.run(&whole)? else { continue };
        // What one of the two has left behind is of no use to the next program.
        all.add(std::mem::replace(&mut pair, start()?).done());
        if shows_again(&whole, start)? {
            all.found = Some(smaller(whole, difference, start)?);
        } else {
            all.not_again += 1;
        }
    }
    all.add(pair.done());
    Ok(Compared { time: begun.elapsed(), ..all })
}

/// Whether a program shows any difference when it runs again, twice.
fn shows_again(program: &Program, start: fn() -> Result<Pair, AgainstError>) -> Result<bool, AgainstError> {
    for _ in 0..2 {
        if start()?.run(program)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Leaves out what the difference doesn't need.
fn smaller(
    whole: Program,
    difference: Difference,
    start: fn() -> Result<Pair, AgainstError>,
) -> Result<Found, AgainstError> {
    let mut first = difference;
    let mut error = None;
    let program = cut_down(&whole, |less| match start().and_then(|mut pair| pair.run(less)) {
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
        None => Ok(Found { program, whole, difference: first }),
    }
}

impl Difference {
    /// Whether both are of the same kind: the same call, answered alike.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Left(_), Self::Left(_)) => true,
            (
                Self::Seen { operation, linux, ours, .. },
                Self::Seen { operation: other, linux: other_linux, ours: other_ours, .. },
            ) => {
                let kind = |seen: &Seen| (std::mem::discriminant(seen), seen.errno());
                operation.name() == other.name() && kind(linux) == kind(other_linux) && kind(ours) == kind(other_ours)
            }
            (Self::Left(_), Self::Seen { .. }) | (Self::Seen { .. }, Self::Left(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewright_types::Access;

    /// A side that fetches otherwise than the other.
    fn unlike() -> Result<Pair, AgainstError> {
        let mut pair = Pair::start()?;
        pair.fetch_plainly();
        Ok(pair)
    }

    #[test]
    fn a_difference_is_found_and_cut_down() {
        let compared = search(1, 20_000, unlike).expect("a Linux that lets itself be traced");
        let found = compared.found.expect("a page that is there on one side only");
        let (calm, others) = found.program.steps();
        let steps: Vec<Operation> = calm.iter().chain(&others).map(|step| step.operation).collect();
        assert!((2..8).contains(&steps.len()) && found.whole.len() == 164, "{}", report::found(&found));
        assert!(steps.iter().any(|step| matches!(step, Operation::Access { access: Access::Exec, .. })));
        let again = unlike().and_then(|mut pair| pair.run(&found.program)).expect("as before");
        assert_eq!(again.as_ref(), Some(&found.difference), "the same program shows the same");
        let command = format!("pagewright check --against linux --program {}", found.program);
        assert!(report::found(&found).contains(&command));
        assert_eq!(found.program.to_string().parse(), Ok(found.program.clone()));
    }
}
