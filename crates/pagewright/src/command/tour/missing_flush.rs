//! A `munmap` that omits the flush, beside the same with it.
//!
//! `crates/check/examples/missing_flush.rs` is the same check as a program of its own.

use super::TourEnd;
use super::screen::COLUMNS;
use crate::command::CommandError;
use pagewright_check::{
    Antecedent, Check, CheckOutcome, CpuProgram, Harness, InvalidateScope, PageRange, Pfn, PhysAddr, ReplayToken,
    Rights, Rule, Search, Tag, VirtAddr, X86_64, explain_briefly, program,
};
use std::io::{StdoutLock, Write};

/// The environment variable that has the token of a schedule to replay.
const REPLAY: &str = "PAGEWRIGHT_REPLAY";
const PAGE: VirtAddr = VirtAddr::new(0x40_0000);

/// Maps a new page through four tables, and loads them on all CPUs (Intel SDM vol. 3A §4.5).
///
/// Returns the address of the page's entry, and the page.
fn map_page(harness: &Harness<X86_64>) -> (PhysAddr, Pfn) {
    const TABLE: u64 = 0b111;
    let kernel = harness.cpu(0);
    let frames: Vec<Pfn> = (0..5).map(|_| harness.alloc_frame()).collect();
    let entry = |level: usize| frames[3 - level].base().add((PAGE.raw() >> (12 + 9 * level) & 511) * 8);
    (0..4).for_each(|level| kernel.store(entry(level), frames[4 - level].base().raw() | TABLE));
    harness.cpus().for_each(|cpu| cpu.load_root(frames[0], Tag::new(1)));
    (entry(0), frames[4])
}

/// CPU 0 unmaps the page and frees it; CPU 1 reads it three times.
fn programs(harness: &Harness<X86_64>, flush: bool) -> Vec<CpuProgram<X86_64>> {
    let (entry, page) = map_page(harness);
    let unmaps = program(move |cpu| {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
            cpu.swap(entry, 0);
            if flush {
                cpu.flush_page(PAGE, InvalidateScope::Local);
                cpu.shoot_down(cpu.others(), |cpu| cpu.flush_page(PAGE, InvalidateScope::Local));
            }
            cpu.free_frame(page);
        });
    });
    let reads = program(|cpu| (0..3).for_each(|_| _ = cpu.read(PAGE)));
    vec![unmaps, reads]
}

/// The token in the environment, if there is one.
pub(super) fn token_to_replay() -> Result<Option<ReplayToken>, CommandError> {
    let Ok(text) = std::env::var(REPLAY) else { return Ok(None) };
    text.parse().map(Some).map_err(|error| CommandError::Token(format!("{REPLAY}: {error}")))
}

/// Replays one schedule without the flush.
pub(super) fn replay(out: &mut StdoutLock<'_>, token: &ReplayToken) -> Result<TourEnd, CommandError> {
    let outcome = Check::<X86_64>::new().replay(token, |harness| programs(harness, false));
    let outcome = outcome.map_err(|foreign| CommandError::Token(format!("{REPLAY}: {foreign}")))?;
    writeln!(out, "{outcome}")?;
    Ok(TourEnd::Shown)
}

/// Searches without and with the flush; prints what was caught, briefly.
pub(super) fn show(out: &mut StdoutLock<'_>) -> Result<TourEnd, CommandError> {
    let broken = Check::<X86_64>::new().explore(|harness| programs(harness, false));
    let correct = Check::<X86_64>::new().explore(|harness| programs(harness, true));
    let search = broken.search();
    match &search.failing {
        Some(found) => {
            let schedules = search.schedules;
            writeln!(out, "Caught: a munmap that frees its page without a TLB flush, in schedule {schedules}")?;
            write!(out, "{}", explain_briefly(&found.attempt, COLUMNS))?;
            writeln!(out, "replay it: {REPLAY}={} cargo run --release", found.printed_token())?;
        }
        None => writeln!(out, "NOT caught: {broken}")?,
    }
    match correct.finding() {
        None => {
            let Search { schedules, tally, .. } = correct.search();
            let held = tally.of(Antecedent::RightHeld);
            writeln!(out, "with its flush, {schedules} schedules are clean; in {held} CPU 1 cached the page")?;
        }
        Some(_) => writeln!(out, "With its flush: {correct}")?,
    }
    let is_right = finds(&broken, Some(Rule::Reuse)) && finds(&correct, None);
    Ok(TourEnd::of(is_right))
}

/// Whether a check found a violation of this rule, or nothing.
fn finds(outcome: &CheckOutcome, rule: Option<Rule>) -> bool {
    outcome.finding().is_none() == rule.is_none() && outcome.finding().and_then(|finding| finding.rule()) == rule
}
