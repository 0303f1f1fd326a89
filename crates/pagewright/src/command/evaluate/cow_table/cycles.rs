//! Cycles of a process that forks again and again: what memory management takes in each.
//!
//! Key types: [`Cycle`], what child and parent do; [`Server`], which runs them; [`CycleTimes`], the
//! ways of a fork beside each other.
//!
//! A cycle is: fork; the child stores to its TID, its stack and its data, as every child does, then
//! to more of its memory; the child ends, or executes another program; the parent stores to its own
//! three pages. The time is that of all these operations of the memory manager. The parent is left
//! as it is, so a cycle finds it as the cycle before has left it, and those of the other way.
//!
//! Not guaranteed: what the programs do besides, the system calls and the exceptions.

use super::super::plot::size;
use super::super::rounds::in_turns;
use super::super::{EvaluateError, Figures, Grid, Run, Stats};
use super::LARGEST_IN_MATRIX;
use super::parent::{ForkMode, Parent, ProgramPages, SpanClock, failed};
use super::random::Random;
use pagewright_host::{HostMemory, Platform};
use pagewright_mm::MapFlags;
use pagewright_types::{Counter, Level, VirtAddr};

const MIB: u64 = 1 << 20;

/// Which pages of its memory the parent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Density {
    /// All.
    Dense,
    /// One in each 2 MiB, so one under each last-level table.
    OnePerTable,
}

impl Density {
    const ALL: [Self; 2] = [Self::Dense, Self::OnePerTable];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::OnePerTable => "one page per 2 MiB",
        }
    }
}

/// What the child does after its first three stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildWork {
    /// It executes another program: its memory ends, and a new space begins.
    Exec,
    /// It ends.
    Exit,
    /// It stores to so many per cent of the pages, the first ones, and ends.
    Touch(u64),
    /// It stores to so many runs of so many pages each at random places, and ends.
    Runs { runs: u64, pages: u64 },
}

impl ChildWork {
    pub(super) fn name(self) -> String {
        match self {
            Self::Exec => "exec".to_owned(),
            Self::Exit => "exit".to_owned(),
            Self::Touch(percent) => format!("touch {percent} %"),
            Self::Runs { runs, pages } => format!("{runs} runs of {pages} pages"),
        }
    }
}

/// A parent, and what its children do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cycle {
    pub(super) name: &'static str,
    pub(super) bytes: u64,
    pub(super) density: Density,
    pub(super) work: ChildWork,
}

impl Cycle {
    /// What the child does, the size of the parent, and its pages.
    pub(super) fn labels(&self) -> [String; 3] {
        let work = self.work.name();
        let work = if self.name == MATRIX { work } else { format!("{}: {work}", self.name) };
        [work, size(self.bytes), self.density.name().to_owned()]
    }
}

/// The rows that every run has.
pub(super) const NAMED: [Cycle; 5] = [
    Cycle {
        name: "fork server",
        bytes: 64 * MIB,
        density: Density::Dense,
        work: ChildWork::Runs { runs: 16, pages: 8 },
    },
    Cycle {
        name: "VM clone",
        bytes: 1024 * MIB,
        density: Density::Dense,
        work: ChildWork::Runs { runs: 40, pages: 64 },
    },
    Cycle { name: "fork and exit", bytes: 1024 * MIB, density: Density::Dense, work: ChildWork::Exit },
    Cycle { name: "fork and exec", bytes: 64 * MIB, density: Density::Dense, work: ChildWork::Exec },
    Cycle { name: "fork and exec", bytes: 1024 * MIB, density: Density::Dense, work: ChildWork::Exec },
];

/// What every cycle of the matrix is called.
const MATRIX: &str = "matrix";

/// The matrix: work, size and density, for sizes up to `largest`.
pub(super) fn matrix(largest: u64) -> impl Iterator<Item = Cycle> {
    use ChildWork::{Exec, Exit, Touch};
    let sizes = [MIB, 16 * MIB, 64 * MIB, LARGEST_IN_MATRIX].into_iter().filter(move |bytes| *bytes <= largest);
    sizes.flat_map(|bytes| {
        Density::ALL.into_iter().flat_map(move |density| {
            [Exec, Exit, Touch(1), Touch(10), Touch(100)].map(|work| Cycle { name: MATRIX, bytes, density, work })
        })
    })
}

/// The times of a cycle.
pub(super) struct CycleTimes {
    pub(super) cycle: Cycle,
    /// Microseconds by round, by [`ForkMode`].
    pub(super) micros: [Vec<f64>; 3],
    /// Tables and pages that a cycle copies, by [`ForkMode`].
    pub(super) tables_copied: [u64; 3],
    pub(super) pages_copied: [u64; 3],
}

impl CycleTimes {
    /// Runs a cycle again and again on a machine with this memory.
    pub(super) fn measure(memory: HostMemory, cycle: Cycle, rounds: usize) -> Result<Self, EvaluateError> {
        let server = Server::new(Parent::with_contents(memory)?, cycle)?;
        let rounds: [Vec<_>; 3] = in_turns(rounds, |way| {
            server.set(ForkMode::ALL[way])?;
            let count = |counter| server.parent.mm.counter(counter);
            let before = [Counter::PwTableBroken, Counter::PwCowCopy].map(count);
            let clock = SpanClock::Cpu.start();
            server.run()?;
            let micros = clock.elapsed().as_secs_f64() * 1e6;
            Ok((micros, [count(Counter::PwTableBroken) - before[0], count(Counter::PwCowCopy) - before[1]]))
        })?;
        // Each round copies as much.
        let copied = |at: usize| rounds.each_ref().map(|rounds| rounds.last().map_or(0, |(_, copied)| copied[at]));
        Ok(Self {
            cycle,
            micros: rounds.each_ref().map(|rounds| rounds.iter().map(|(micros, _)| *micros).collect()),
            tables_copied: copied(0),
            pages_copied: copied(1),
        })
    }

    /// Classic in multiples of another way, round by round.
    pub(super) fn gain(&self, mode: ForkMode) -> Stats {
        Stats::of_ratios(&self.micros[ForkMode::Classic as usize], &self.micros[mode as usize])
    }

    pub(super) fn stats(&self, mode: ForkMode) -> Stats {
        Stats::of(self.micros[mode as usize].clone())
    }
}

/// A parent with the layout of a program, and the stores of its children.
pub(super) struct Server<P: Platform> {
    parent: Parent<P>,
    /// TID, stack and data.
    own: [VirtAddr; 3],
    stores: Vec<VirtAddr>,
    work: ChildWork,
}

impl<P: Platform> Server<P> {
    /// Gives a process without memory the memory of a cycle.
    pub(super) fn new(parent: Parent<P>, cycle: Cycle) -> Result<Self, EvaluateError> {
        let ProgramPages { tid, stack, data } = parent.populate_program()?;
        let pages = match cycle.density {
            Density::Dense => parent.populate(VirtAddr::ZERO, cycle.bytes)?.iter().collect::<Vec<_>>(),
            Density::OnePerTable => {
                let range = parent.map(VirtAddr::ZERO, cycle.bytes, MapFlags::empty())?;
                let pages: Vec<_> = range.iter().step_by(Level::ENTRIES).collect();
                pages.iter().try_for_each(|va| parent.store(&parent.space, *va))?;
                pages
            }
        };
        let own = [tid.start(), VirtAddr::new(stack.end().raw() - 1), data.start()];
        Ok(Self { parent, own, stores: stores(&pages, cycle.work), work: cycle.work })
    }

    /// Sets what later forks do with page tables.
    pub(super) fn set(&self, mode: ForkMode) -> Result<(), EvaluateError> {
        self.parent.set(mode)
    }

    /// One cycle.
    pub(super) fn run(&self) -> Result<(), EvaluateError> {
        let Parent { mm, space } = &self.parent;
        let child = mm.fork(space).map_err(failed)?;
        mm.tlb().switch_to(child.table().context());
        self.own.iter().chain(&self.stores).try_for_each(|va| self.parent.store(&child, *va))?;
        let next = match self.work {
            ChildWork::Exec => {
                let image = mm.new_space().map_err(failed)?;
                mm.tlb().switch_to(image.table().context());
                Some(image)
            }
            ChildWork::Exit | ChildWork::Touch(_) | ChildWork::Runs { .. } => None,
        };
        mm.tlb().switch_to(space.table().context());
        mm.end_space(&child);
        if let Some(image) = next {
            mm.end_space(&image);
        }
        self.own.iter().try_for_each(|va| self.parent.store(space, *va))
    }
}

/// The pages to which a child stores besides.
fn stores(pages: &[VirtAddr], work: ChildWork) -> Vec<VirtAddr> {
    match work {
        ChildWork::Exec | ChildWork::Exit => Vec::new(),
        ChildWork::Touch(percent) => pages[..(pages.len() * percent as usize).div_ceil(100)].to_vec(),
        ChildWork::Runs { runs, pages: run } => {
            let mut random = Random::new();
            let starts = (0..runs).map(|_| random.below(pages.len() as u64 - run) as usize).collect::<Vec<_>>();
            starts.into_iter().flat_map(|start| &pages[start..start + run as usize]).copied().collect()
        }
    }
}

/// The headings of what the child does, the size of the parent, and its pages.
pub(super) const CYCLE_HEAD: [&str; 3] = ["cycle", "parent", "memory"];
/// Those of the gains.
pub(super) const GAIN_HEAD: [&str; 2] = ["classic/shared", "classic/auto"];

pub(super) fn figures(title: &str, all: &[CycleTimes]) -> Figures {
    let runs = all.iter().flat_map(|times| {
        let Cycle { name, bytes, density, work } = times.cycle;
        ForkMode::ALL.map(|mode| {
            let label = format!("cycle, {name}, {}, {}", work.name(), mode.name());
            let input = format!("a parent of {}, {}", size(bytes), density.name());
            Run::measured(label, input, "cycle_us", times.stats(mode)).with_counters([
                (Counter::PwCowCopy.name(), times.pages_copied[mode as usize]),
                (Counter::PwTableBroken.name(), times.tables_copied[mode as usize]),
            ])
        })
    });
    Grid::of(title, all)
        .texts(CYCLE_HEAD, |times| times.cycle.labels())
        .texts(["classic µs", "shared µs", "auto µs"], |times| ForkMode::ALL.map(|mode| times.stats(mode)))
        .texts(GAIN_HEAD, |times| ForkMode::AGAINST_CLASSIC.map(|mode| times.gain(mode)))
        .text("tables copied", |times| times.tables_copied[ForkMode::Shared as usize])
        .text("pages copied", |times| times.pages_copied[ForkMode::Shared as usize])
        .with_runs(runs)
}
