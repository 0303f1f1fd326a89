//! The figures beside those of the series and beside our own promises.

use super::super::plot::size;
use super::super::{Claim, FigureKind, Stats, Verdict};
use super::CowTableResults;
use super::fork_time::{ForkResults, ForkTimes};
use super::memory::TableMemory;
use super::parent::ForkMode;
use pagewright_types::PAGE_SIZE;

/// The mail of the series.
const SERIES: &str = "20230414142341.354556-1-shiyn.lin@gmail.com";
/// Bytes of a child's tables after its first three stores: eight tables.
const FEW_TABLES: u64 = 8 * PAGE_SIZE;
/// Microseconds of a fork of one mapping.
const FORK_MICROS: f64 = 20.0;
/// What the largest parent's fork may take, in multiples of the smallest's.
const FORK_GROWTH: f64 = 2.0;
const NO_ENTRY: &str = "the exception and the rest of fork(2); contents of pages";

pub(super) fn claims(results: &CowTableResults) -> Vec<Claim> {
    let mut claims: Vec<Claim> = results.memory.iter().filter_map(|of| child_tables(of)).flatten().collect();
    claims.extend(series_fork(&results.forks));
    claims.extend(fork_of_largest(&results.forks));
    claims.extend(fork_growth(&results.forks));
    claims.extend(touched(&results.forks));
    claims
}

/// The tables of a child before and after its first stores.
fn child_tables(of: &[TableMemory]) -> Option<[Claim; 2]> {
    let find = |mode| of.iter().find(|memory| memory.mode == mode);
    let (classic, shared) = (find(ForkMode::Classic)?, find(ForkMode::Shared)?);
    let (first, last) = (shared.moments.first()?, shared.moments.last()?);
    let kib = |bytes: u64| format!("{} kB", bytes >> 10);
    let isa = shared.isa.name();
    let root = Claim::promised(
        format!("Private tables of a child of {} MB before its first store, {isa}", shared.bytes >> 20),
        "the root alone (4 kB)",
        format!("{}, classic {}", kib(first.private), kib(classic.moments.first()?.private)),
        FigureKind::Counted,
        Verdict::kept(first.private == PAGE_SIZE),
    );
    let ours = format!("{}, classic {}", kib(last.private), kib(classic.moments.last()?.private));
    let verdict = if last.private <= FEW_TABLES { Verdict::Better } else { Verdict::Differs };
    let stores = Claim::published(
        format!("Private tables of that child after stores to its TID, stack and data, {isa}"),
        "44 kB (VmPTE), classic 2096 kB; we promise at most 32 kB",
        SERIES,
        ours,
        FigureKind::Counted,
        verdict,
    );
    let differs = "VmRSS and VmPTE of the series leave out what is shared; ours include it, as Linux counts a page that \
                   several processes map";
    Some([root, stores.because(differs)])
}

/// The series' fork of 512 MB, which sharing did not make faster.
fn series_fork(forks: &ForkResults) -> Option<Claim> {
    let times = forks.by_size.iter().find(|times| times.bytes == 512 << 20)?;
    let gain = times.gain();
    let micros = |samples: &[f64]| Stats::of(samples.to_vec()).text();
    let ours = format!("{} µs against {}: {} ×", micros(&times.shared), micros(&times.classic), gain.text());
    let what = "Fork of 512 MB with shared tables, against a classic one";
    let reason = "the series visits each entry under the table that it shares; this fork visits none";
    let row = Claim::published(
        what,
        "about 10 ms either way",
        SERIES,
        ours,
        FigureKind::Measured,
        Verdict::ratio(&gain, 1.0),
    );
    Some(row.because(reason).leaving_out(NO_ENTRY))
}

fn fork_of_largest(forks: &ForkResults) -> Option<Claim> {
    let times = forks.by_size.last()?;
    let figure = Stats::of(times.shared.clone());
    let what = format!("Fork of {} in one mapping, shared", size(times.bytes));
    let limit = format!("at most {FORK_MICROS} µs, at 64 GiB");
    let ours = format!("{} µs", figure.text());
    let row = Claim::promised(what, &limit, ours, FigureKind::Measured, Verdict::at_most(&figure, FORK_MICROS));
    Some(row.leaving_out(NO_ENTRY))
}

fn fork_growth(forks: &ForkResults) -> Option<Claim> {
    let (first, last) = (forks.by_size.first()?, forks.by_size.last()?);
    let [small, large] = [first, last].map(|times| Stats::of(times.shared.clone()));
    let growth = large.over(&small);
    let what = format!("Fork of {} against {}, shared", size(last.bytes), size(first.bytes));
    let limit = format!("at most {FORK_GROWTH} ×, up to 64 GiB");
    let ours = format!("{} × ({} µs, {} µs)", growth.text(), large.text(), small.text());
    Some(Claim::promised(what, &limit, ours, FigureKind::Measured, Verdict::at_most(&growth, FORK_GROWTH)))
}

/// Entries and records that a fork touches, at the smallest size and at the largest.
fn touched(forks: &ForkResults) -> Option<Claim> {
    let (first, last) = (forks.by_size.first()?, forks.by_size.last()?);
    let shared = |times: &ForkTimes| *times.counts_of(ForkMode::Shared);
    let text = |times: &ForkTimes| {
        let counts = shared(times);
        format!("{} and {} at {}", counts.entry_accesses, counts.records, size(times.bytes))
    };
    let classic = last.counts_of(ForkMode::Classic);
    let ours = format!(
        "{}, {}; classic {} and {} at {}",
        text(first),
        text(last),
        classic.entry_accesses,
        classic.records,
        size(last.bytes)
    );
    let what = "Accesses to entries and memmap records changed by a fork with shared tables";
    let kept = shared(first) == shared(last);
    let row = Claim::promised(
        what,
        "the same at the smallest and the largest size",
        ours,
        FigureKind::Counted,
        Verdict::kept(kept),
    );
    Some(row.leaving_out("records that a fork reads and does not change"))
}
