//! `evaluate cow-table`: counts and measures what sharing page tables at fork saves and costs.
//!
//! - `parent` – a process that forks, on a machine of its own, and the two ways of a fork.
//! - `memory` – the tables of a child, as in the series' table.
//! - `fork_time` – the time of a fork and what it touches, by size and mappings.
//! - `linux` – Linux's own fork on this computer.
//! - `claims` – the figures beside those of the series and our own promises.
//!
//! *Classic* is the same memory manager with `cow_page_tables=never`, *shared* with `always`.
//!
//! Not guaranteed: figures free of other load. The ways take turns, so that other load affects all.

mod claims;
mod fork_time;
mod linux;
mod memory;
mod parent;
#[cfg(test)]
mod tests;

use super::{Context, Evaluation, Scale};
use crate::command::CommandError;
use fork_time::ForkResults;
use memory::TableMemory;
use pagewright_arch::{Aarch64, X86_64};
use pagewright_host::HostFacts;
use std::collections::BTreeMap;

/// Bytes of the parent of the series' table.
const SERIES_PARENT: u64 = 1 << 30;

/// All results.
struct CowTableResults {
    /// For each instruction set, both ways.
    memory: Vec<Vec<TableMemory>>,
    forks: ForkResults,
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    let facts = HostFacts::gather();
    let forks = fork_time::measure(context)?;
    context.show_step("tables of a child of 1 GiB");
    let memory = vec![memory::measure::<X86_64>(SERIES_PARENT)?, memory::measure::<Aarch64>(SERIES_PARENT)?];
    Ok(evaluation(context.scale, &facts, &CowTableResults { memory, forks }))
}

fn evaluation(scale: Scale, facts: &HostFacts, results: &CowTableResults) -> Evaluation {
    let mut tables: Vec<_> = results.memory.iter().map(|of| memory::table(of)).collect();
    tables.extend(results.forks.tables());
    let mut runs: Vec<_> = results.memory.iter().flat_map(|of| memory::runs(of)).collect();
    runs.extend(results.forks.runs());
    Evaluation {
        name: "cow-table",
        title: "page tables that fork shares",
        isa: "x86-64, arm64",
        config: BTreeMap::from([
            ("scale".to_owned(), if scale == Scale::Full { "full" } else { "quick" }.to_owned()),
            ("cow_page_tables".to_owned(), "never (classic), always (shared)".to_owned()),
        ]),
        measured_on: measured_on(facts),
        runs,
        claims: claims::claims(results),
        tables,
        plots: results.forks.plots(),
        notes: notes(facts, results),
    }
}

/// Describes the computer.
fn measured_on(facts: &HostFacts) -> BTreeMap<String, String> {
    let computer = if facts.is_virtual { "a virtual machine" } else { "no hypervisor reported" };
    BTreeMap::from([
        ("computer".to_owned(), computer.to_owned()),
        ("CPU".to_owned(), format!("{}, {} CPUs", facts.model, facts.cpus)),
        ("system".to_owned(), format!("Linux {}, load {:.2}", facts.kernel_release, facts.load_percent as f64 / 100.0)),
    ])
}

fn notes(facts: &HostFacts, results: &CowTableResults) -> Vec<String> {
    let mut notes = vec![
        "Times are µs, median [tenth–ninetieth percentile] of rounds in which classic and shared take turns on the same parent; x86-64 tables on one CPU of \
         this computer. Ours leave out the exception, the rest of fork(2), TLB misses and IPIs."
            .to_owned(),
        "Each page of the forks by size has a frame of its own with record, reference and mapping, and no contents.".to_owned(),
        format!(
            "Linux's forks are of this process with as much touched memory in base pages, up to {} MiB here: half of what was available. They include the \
             system call and the rest of the process.",
            results.forks.available >> 21
        ),
    ];
    if facts.load_percent as usize > 100 * facts.cpus.max(1) / 2 {
        notes.push("This computer was busy: compare ratios, not µs.".to_owned());
    }
    notes
}
