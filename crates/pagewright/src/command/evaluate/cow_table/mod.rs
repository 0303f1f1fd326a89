//! `evaluate cow-table`: counts and measures what sharing page tables at fork saves and costs.
//!
//! - `memory` – the tables of a child, as in the series' table.
//! - `fork_time` – the time of a fork and what it touches, by size and mappings.
//! - `fallbacks` – forks that copied tables, by reason.
//! - `linux` – Linux's own fork on this computer.
//! - `faults` – stores after a fork, in order and at random.
//! - `cycles` – fork servers, clones of VMs, fork and exec, and a matrix of cycles.
//! - `modelled` – the matrix in modelled time, on both instruction sets.
//! - `snapshot` – a snapshot under write load.
//! - `large` – operations in a large space and in a small one.
//! - `oom` – the OOM killer's choice among many forks.
//! - `bare_metal` – instructions of forks on bare metal, counted elsewhere.
//! - `coverage` – the rows of the series and the test of each.
//! - `headline` – the figures of the tour.
//! - `claims` – the figures beside those of the series and our own promises.
//!
//! *Classic* is the same memory manager with `cow_page_tables=never`, *shared* with `always`.
//! Cycles also run with `auto`.
//!
//! Not guaranteed: figures free of other load. The ways take turns, so that other load affects all.

mod bare_metal;
mod claims;
mod coverage;
mod cycles;
mod fallbacks;
mod faults;
mod fork_time;
pub(super) mod headline;
mod large;
mod memory;
mod modelled;
mod oom;
mod pages;
mod random;
mod snapshot;
#[cfg(test)]
mod tests;

use super::{Context, EvaluateError, Evaluation, Scale, busy_note, measured_on, parent, run_parallel};
use crate::command::CommandError;
use cycles::CycleTimes;
use fallbacks::Fallback;
use faults::FaultCosts;
use fork_time::ForkResults;
use large::LargeSpace;
use memory::TableMemory;
use modelled::ModelledCycle;
use oom::OomChoice;
use pagewright_arch::{Aarch64, X86_64};
use pagewright_host::{HostFacts, HostMemory};
use pagewright_types::IsaKind;
use parent::ForkMode;
use snapshot::Snapshots;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// Bytes of the parent of the series' table, and of the snapshot's.
const SERIES_PARENT: u64 = 1024 * MIB;
/// Bytes of the largest parent of the promises, and of the matrix; a quick run has smaller ones.
const LARGEST: u64 = 65536 * MIB;
const LARGEST_IN_MATRIX: u64 = 1024 * MIB;
/// Bytes of the buffer to which the series stores after a fork.
const BUFFER: u64 = 512 * MIB;
/// One page in so many is stored to during a snapshot.
const STORED_ONE_IN: usize = 10;

/// Children among which the OOM killer chooses, and bytes to which one of them stores.
const FORKS: usize = 100;
const STORED_BY_CHILD: u64 = 16 * MIB;

/// All results.
struct CowTableResults {
    /// For each instruction set, both ways.
    memory: Vec<Vec<TableMemory>>,
    forks: ForkResults,
    fallbacks: Vec<Fallback>,
    use_cases: UseCases,
}

/// What parent and child do after a fork.
struct UseCases {
    faults: Vec<FaultCosts>,
    named: Vec<CycleTimes>,
    matrix: Vec<CycleTimes>,
    modelled: Vec<ModelledCycle>,
    snapshots: Snapshots,
    large: LargeSpace,
    oom: Vec<OomChoice>,
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let facts = HostFacts::gather();
    let forks = fork_time::measure(context)?;
    context.show_step("tables of a child of 1 GiB");
    let memory = vec![memory::measure::<X86_64>(SERIES_PARENT)?, memory::measure::<Aarch64>(SERIES_PARENT)?];
    let fallbacks = fallbacks::measure()?;
    let use_cases = match context.scale {
        Scale::Quick => UseCases::measure(context, 16 * MIB, 8192 * MIB, 9)?,
        Scale::Full => UseCases::measure(context, LARGEST_IN_MATRIX, LARGEST, 45)?,
    };
    Ok(evaluation(context.scale, &facts, &CowTableResults { memory, forks, fallbacks, use_cases }))
}

impl UseCases {
    /// Measures them, the matrix up to parents of `largest` bytes.
    fn measure(context: &Context<'_>, largest: u64, large: u64, rounds: usize) -> Result<Self, EvaluateError> {
        // A parent, a copy of each of its pages, and tables.
        let memory = HostMemory::try_new(parent::frames_for(2 * SERIES_PARENT))?;
        context.show_step("touching memory");
        memory.touch();
        context.show_step("stores after a fork");
        let faults = faults::measure(memory, BUFFER, rounds)?;
        let cycles = |all: &mut dyn Iterator<Item = cycles::Cycle>| {
            let measure = |cycle: cycles::Cycle| {
                context.show_step(&format!("cycles: {}, {}", cycle.name, cycle.work.name()));
                CycleTimes::measure(memory, cycle, rounds)
            };
            all.map(measure).collect::<Result<Vec<_>, _>>()
        };
        let named = cycles(&mut cycles::NAMED.into_iter())?;
        let matrix = cycles(&mut cycles::matrix(largest))?;
        context.show_step("a snapshot under write load");
        let snapshots = Snapshots::measure(memory, SERIES_PARENT, STORED_ONE_IN, rounds)?;
        context.show_step("operations in a large space");
        let large = LargeSpace::measure([MIB, large], rounds)?;
        context.show_step("cycles in modelled time");
        let modelled = modelled(largest)?;
        context.show_step("the OOM killer's choice");
        let choose = |mode| OomChoice::measure(mode, SERIES_PARENT, FORKS, STORED_BY_CHILD);
        let oom = ForkMode::BOTH.into_iter().map(choose).collect::<Result<_, _>>()?;
        Ok(Self { faults, named, matrix, modelled, snapshots, large, oom })
    }
}

/// Models the matrix up to parents of `largest` bytes, an instruction set on a thread each.
fn modelled(largest: u64) -> Result<Vec<ModelledCycle>, EvaluateError> {
    let all = run_parallel(IsaKind::ALL, |isa| {
        cycles::matrix(largest).map(|cycle| ModelledCycle::run(isa, cycle)).collect::<Result<Vec<_>, _>>()
    })?;
    Ok(all.into_iter().flatten().collect())
}

fn evaluation(scale: Scale, facts: &HostFacts, results: &CowTableResults) -> Evaluation {
    let cases = &results.use_cases;
    let of_children = results.memory.iter().flat_map(|of| {
        let pages: Vec<_> = of.iter().map(|memory| memory.pages).collect();
        [memory::figures(of), pages::figures(&pages)]
    });
    let parts = [
        results.forks.figures(),
        fallbacks::figures(&results.fallbacks),
        faults::figures(&cases.faults),
        cycles::figures("Memory management in a cycle, µs", &cases.named),
        cases.snapshots.figures(),
        cases.large.figures(),
        oom::figures(&cases.oom),
        cycles::figures("The matrix of cycles, µs", &cases.matrix),
    ];
    let modelled = IsaKind::ALL.into_iter().map(|isa| modelled::figures(isa, &cases.modelled));
    let elsewhere = [bare_metal::figures(), coverage::figures()];
    Evaluation {
        name: "cow-table",
        title: "page tables that fork shares",
        isa: "x86-64, arm64",
        config: BTreeMap::from([
            ("scale".to_owned(), scale.name().to_owned()),
            ("cow_page_tables".to_owned(), "never (classic), always (shared), auto".to_owned()),
        ]),
        measured_on: measured_on(facts),
        figures: of_children.chain(parts).chain(modelled).chain(elsewhere).collect(),
        claims: claims::claims(results),
        notes: notes(facts, results),
    }
}

fn notes(facts: &HostFacts, results: &CowTableResults) -> Vec<String> {
    let mut notes = vec![
        "Times are µs, median [tenth–ninetieth percentile] of rounds in which classic and shared take turns on the same parent; x86-64 tables on one CPU of \
         this computer. Ours leave out the exception, the rest of fork(2), TLB misses and IPIs."
            .to_owned(),
        "Each page of the forks by size, and of the small and large spaces, has a frame of its own with record, reference and mapping, and no contents. Pages \
         of all other rows have contents, which copies copy."
            .to_owned(),
        format!(
            "Linux's forks are of this process with as much touched memory in base pages, up to {} MiB here: half of what was available. They include the \
             system call and the rest of the process.",
            results.forks.available >> 21
        ),
    ];
    notes.extend(busy_note(facts, "µs"));
    notes
}
