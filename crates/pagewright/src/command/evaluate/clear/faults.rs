//! Demand faults of 4 KiB, through the whole fault path: with ordinary stores against the choice.
//!
//! Key type: [`Faults`]. A program's private memory is stored to page by page, and each page read
//! as soon as it is there, as its program would. The mapping goes afterwards, so that the next
//! finds its frames free: long ago where it is larger than any cache, or just now.
//!
//! Not guaranteed: what an exception costs, of which there is none here; that is the same either
//! way.

use super::super::plot::size;
use super::super::{Context, EvaluateError, Run, Scale, Stats, Table};
use super::bed::Bed;
use pagewright_arch::{Entry, Isa, X86_64};
use pagewright_host::{HostMachine, ThreadClock};
use pagewright_mm::{MapFlags, MapRequest, Space};
use pagewright_tlb::frames::{ClearBackend, ClearPolicy};
use pagewright_types::{Access, Level, Order, PAGE_SIZE, Rights, VirtAddr};
use std::sync::atomic::Ordering;

/// Nanoseconds a fault by what is mapped at once.
pub(super) struct Row {
    pub(super) state: &'static str,
    pub(super) bytes: u64,
    /// With ordinary stores, and as chosen.
    pub(super) cached: Stats,
    pub(super) auto: Stats,
}

/// Both states.
pub(super) struct Faults {
    pub(super) rows: Vec<Row>,
}

const WAYS: [ClearPolicy; 2] = [ClearPolicy::Only(ClearBackend::Cached), ClearPolicy::Auto];

/// Measures.
///
/// # Errors
/// [`EvaluateError`].
pub(super) fn measure(context: &Context<'_>, bed: &Bed) -> Result<Faults, EvaluateError> {
    context.doing("faulting");
    let most = if bed.scale == Scale::Full { 6 } else { 2 };
    let space = bed.mm().new_space().map_err(machine)?;
    let mut rows = Vec::new();
    for (state, bytes, times) in [("cold", most * Order::PUD.bytes(), 1), ("hot", 64 << 10, 4000)] {
        let mut samples = [const { Vec::new() }; WAYS.len()];
        for round in 0..=bed.repetitions() {
            // Each goes first in turn.
            for way in [round % 2, 1 - round % 2] {
                bed.set(WAYS[way]);
                let took = (0..times).map(|_| fault_in(bed, &space, bytes)).sum::<Result<f64, _>>()?;
                if round > 0 {
                    samples[way].push(took / f64::from(times));
                }
            }
        }
        let [cached, auto] = samples.map(Stats::of);
        rows.push(Row { state, bytes, cached, auto });
    }
    bed.mm().end_space(&space);
    bed.set(ClearPolicy::Auto);
    Ok(Faults { rows })
}

fn machine(error: impl std::fmt::Display) -> EvaluateError {
    EvaluateError::Machine(error.to_string())
}

/// Maps memory, stores to each page and reads it, and unmaps it; nanoseconds a page, without the
/// mapping.
fn fault_in(bed: &Bed, space: &Space<HostMachine>, bytes: u64) -> Result<f64, EvaluateError> {
    let mm = bed.mm();
    let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS;
    let request = MapRequest { addr: VirtAddr::ZERO, len: bytes, rights: Rights::RW, flags, file: None };
    let base = mm.mmap(space, &request).map_err(machine)?;
    let mut left = 0;
    let clock = ThreadClock::start_running();
    for offset in (0..bytes).step_by(PAGE_SIZE as usize) {
        let va = base.add(offset);
        mm.fault(space, va, Access::Write).map_err(machine)?;
        let found = space.table().find(mm.tlb(), va, Level::PTE);
        if let Entry::Leaf(leaf) = X86_64::decode(found.level, found.pte) {
            let words = bed.memory().block(leaf.pfn, Order::ZERO);
            left |= words.iter().step_by(8).fold(0, |all, word| all | word.load(Ordering::Relaxed));
        }
    }
    let took = clock.elapsed();
    mm.munmap(space, base, bytes).map_err(machine)?;
    if left != 0 {
        return Err(machine("a page that was faulted in was not zero"));
    }
    Ok(took.as_nanos() as f64 / (bytes / PAGE_SIZE) as f64)
}

impl Row {
    /// How many times as fast the choice is.
    pub(super) fn gain(&self) -> f64 {
        super::ratio(&self.cached, &self.auto)
    }
}

impl Faults {
    pub(super) fn table(&self) -> Table {
        let row = |row: &Row| {
            let gain = format!("{:.2}", row.gain());
            vec![row.state.to_owned(), size(row.bytes), row.cached.text(), row.auto.text(), gain]
        };
        Table {
            title: "Demand faults of 4 KiB, each page read as soon as it is there, ns a fault".to_owned(),
            head: ["frames", "mapped", "cached", "auto", "cached/auto"].map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    pub(super) fn runs(&self) -> Vec<Run> {
        let ways = |row: &Row| {
            [("cached", row.cached), ("auto", row.auto)].map(|(how, stats)| (row.state, row.bytes, how, stats))
        };
        let run = |(state, bytes, how, stats)| {
            let input = format!("{bytes} bytes mapped, {state} frames");
            Run::measured(format!("fault: {how}"), input, "ns_per_fault", stats)
        };
        self.rows.iter().flat_map(ways).map(run).collect()
    }
}
