//! Fast mode: operation by operation, with entries that leave the TLBs at random.
//!
//! Finds what needs no race. A program that panics is a finding, too; its machine is left where it
//! was.

use super::program::Program;
use super::tally::Done;
use super::world::World;
use pagewright_arch::Isa;
use pagewright_check::{CheckFinding, Tally};
use pagewright_lab::LabError;
use pagewright_types::CpuId;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What became of a program in fast mode.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What was found, in order.
    pub findings: Vec<CheckFinding>,
    /// What was judged.
    pub tally: Tally,
    /// What was done.
    pub done: Done,
    /// Operations that were done when something was found, or all.
    pub operations: usize,
}

/// Runs a program.
///
/// # Errors
/// [`LabError`], when there is no such machine.
pub fn run<I: Isa>(program: &Program) -> Result<Ran, LabError> {
    let world = World::<I>::new(program.shape, program.seed)?;
    let (calm, others) = program.steps();
    let (operations, cpu) = (Cell::new(0), Cell::new(CpuId::new(0)));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        for step in calm.iter().chain(&others) {
            cpu.set(step.cpu);
            world.step(step.cpu, step.operation);
            operations.set(operations.get() + 1);
            if world.bench.finding_count() > 0 {
                return;
            }
        }
        world.ask_at_rest();
    }));
    let panicked = ran.err().map(|payload| CheckFinding::Panicked { cpu: cpu.get(), message: message(&*payload) });
    let findings: Vec<CheckFinding> = world.bench.findings().into_iter().chain(panicked).collect();
    let mut tally = world.bench.oracle().tally().clone();
    tally += world.spec.borrow().tally();
    let done = world.done.borrow().clone();
    if !findings.is_empty() {
        // What stands half-done would complain when it is dropped.
        std::mem::forget(world);
    }
    Ok(Ran { findings, tally, done, operations: operations.get() })
}

/// What a panic said.
pub(super) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
