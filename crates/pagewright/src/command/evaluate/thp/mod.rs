//! `evaluate thp`: counts and measures what huge pages cost and save.
//!
//! - `stepping` – executes an operation instruction by instruction.
//! - `counted` – locked instructions and records per operation on a folio.
//! - `claims` – the figures beside our own promises.
//!
//! Not guaranteed: figures free of other load. Only ratios are judged, by rounds in turns.

mod claims;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod counted;
mod operations;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod stepping;

use super::{Context, Evaluation, Scale};
use crate::command::CommandError;
use operations::OperationUse;
use std::collections::BTreeMap;

/// All results.
struct ThpResults {
    /// What operations on a folio use, or why it is not counted here.
    operations: Result<Vec<OperationUse>, String>,
}

/// Counts the operations, where the host can.
fn operations(scale: Scale) -> Result<Vec<OperationUse>, String> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return counted::measure(scale).map_err(|error| error.to_string());
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    {
        let _ = scale;
        Err("locked instructions are counted on x86-64 Linux only".to_owned())
    }
}

/// Runs the evaluation.
pub(super) fn run(context: &Context<'_>) -> Result<Evaluation, CommandError> {
    context.show_step("stepping through operations on folios");
    let results = ThpResults { operations: operations(context.scale) };
    Ok(evaluation(&results))
}

fn evaluation(results: &ThpResults) -> Evaluation {
    let operations = results.operations.as_deref().unwrap_or_default();
    let debug = if cfg!(debug_assertions) { "with" } else { "without" };
    Evaluation {
        name: "thp",
        title: "huge pages: one folio, mapped whole and in pieces",
        isa: "x86-64",
        config: BTreeMap::from([("build".to_owned(), format!("{debug} debug assertions"))]),
        measured_on: BTreeMap::new(),
        runs: operations::runs(operations),
        claims: claims::claims(results),
        tables: vec![operations::table(operations)],
        plots: Vec::new(),
        notes: notes(),
    }
}

fn notes() -> Vec<String> {
    [
        "Locked instructions and records are counted in the machine code of this program, which is executed instruction by instruction. A record is one cache \
         line. Debug assertions load records and lock nothing.",
        "Not comparable: the series' times of a kernel build and of specjvm. They are times of Linux with and without the patches, on a computer that runs whole \
         programs; this memory manager does not run a kernel build, and a capture of one has no time of its own.",
    ]
    .map(str::to_owned)
    .to_vec()
}
