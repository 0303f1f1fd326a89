//! Fast mode: runs one operation after another; TLB entries are evicted at random.
//!
//! It finds bugs that need no race. A panic is a finding too.

use super::operation_counts::OperationCounts;
use super::program::RandomProgram;
use super::program_run::ProgramRun;
use pagewright_arch::Isa;
use pagewright_check::{CheckFinding, Tally};
use pagewright_lab::LabError;
use pagewright_types::CpuId;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The run of a program in fast mode.
#[derive(Clone, Debug)]
pub struct FastRun {
    /// The findings, in order.
    pub findings: Vec<CheckFinding>,
    /// How often each rule judged something.
    pub tally: Tally,
    /// What the program did.
    pub counts: OperationCounts,
    /// The number of operations before the first finding, or of all.
    pub operations: usize,
}

/// Runs a program.
///
/// # Errors
/// [`LabError`], if the machine cannot be built.
pub fn run<I: Isa>(program: &RandomProgram) -> Result<FastRun, LabError> {
    let run = ProgramRun::<I>::new(program)?;
    let (setup, body) = program.steps();
    let (operations, cpu) = (Cell::new(0), Cell::new(CpuId::new(0)));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for step in setup.iter().chain(&body) {
            cpu.set(step.cpu);
            run.step(step.cpu, step.operation);
            run.check_step();
            operations.set(operations.get() + 1);
            if run.bench.finding_count() > 0 {
                return;
            }
        }
        run.final_checks();
    }));
    let panicked =
        ran.err().map(|payload| CheckFinding::Panicked { cpu: cpu.get(), message: panic_message(&*payload) });
    let findings: Vec<CheckFinding> = run.bench.findings().into_iter().chain(panicked).collect();
    let mut tally = run.bench.oracle().tally().clone();
    tally += run.spec.borrow().tally();
    let counts = run.counts.borrow().clone();
    if !findings.is_empty() {
        // Dropping debts and pins of an operation that did not finish would panic.
        std::mem::forget(run);
    }
    Ok(FastRun { findings, tally, counts, operations: operations.get() })
}

/// The message of a panic.
pub(super) fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
