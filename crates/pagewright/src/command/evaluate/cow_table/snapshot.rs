//! A snapshot under write load: the pause of the fork, and the parent's stores during the snapshot.
//!
//! Key type: [`Snapshots`]. As Redis does it: the parent forks, the child writes the memory out and
//! stores nothing, and the parent goes on to store to random pages. Each first store to a page
//! copies it, so the figures are those of the stores that fault; the others cost nothing.
//!
//! Times are the thread's CPU time, so that a store that another thread interrupts is not the
//! longest. A store's time includes a part of the two reads of that clock, in both ways the same.
//!
//! Not guaranteed: the exception, and the load that the child's reads put on caches and memory.

use super::super::plot::size;
use super::super::rounds::{by_figure, in_turns};
use super::super::{EvaluateError, Figures, Grid, Run, Stats};
use super::parent::{ForkMode, Parent, SpanClock};
use super::random::Random;
use pagewright_host::HostMemory;
use pagewright_types::VirtAddr;

/// The figures of a snapshot in tables and in JSON.
const FIGURES: [(&str, &str); 6] = [
    ("pause µs", "pause_us"),
    ("p50 ns", "store_p50_ns"),
    ("p99 ns", "store_p99_ns"),
    ("p99.9 ns", "store_p999_ns"),
    ("max ns", "store_max_ns"),
    ("all stores and pause ms", "total_ms"),
];
/// The place among [`FIGURES`] of the pause, of the 99th percentile, and of the sum of all.
pub(super) const PAUSE: usize = 0;
pub(super) const TAIL: usize = 2;
pub(super) const ALL_STORES: usize = 5;

/// Snapshots in both ways.
pub(super) struct Snapshots {
    pub(super) bytes: u64,
    /// Stores to different pages during a snapshot.
    pub(super) stores: usize,
    /// For each way, the samples of each of [`FIGURES`] by round.
    pub(super) samples: [[Vec<f64>; 6]; 2],
}

impl Snapshots {
    /// Takes snapshots of a parent of `bytes`, which stores to one page in `one_in` meanwhile.
    pub(super) fn measure(memory: HostMemory, bytes: u64, one_in: usize, rounds: usize) -> Result<Self, EvaluateError> {
        let parent = Parent::with_contents(memory)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        let mut pages: Vec<VirtAddr> = range.iter().collect();
        Random::new().shuffle(&mut pages);
        pages.truncate(pages.len() / one_in);
        // Not allocated anew, so that the host's allocator is as it was at each fork.
        let mut nanos = Vec::with_capacity(pages.len());
        let samples: [_; 2] = in_turns(rounds, |way| {
            parent.set(ForkMode::BOTH[way])?;
            let (child, pause) = parent.fork()?;
            nanos.clear();
            for va in &pages {
                let clock = SpanClock::Cpu.start();
                parent.store(&parent.space, *va)?;
                nanos.push(clock.elapsed().as_nanos() as u64);
            }
            parent.mm.end_space(&child);
            parent.store_to_all(range)?;
            Ok(figures(pause.as_secs_f64() * 1e6, &mut nanos))
        })?;
        Ok(Self { bytes, stores: pages.len(), samples: samples.map(|rounds| by_figure(&rounds)) })
    }

    pub(super) fn stats(&self, mode: ForkMode, figure: usize) -> Stats {
        Stats::of(self.samples[mode as usize][figure].clone())
    }

    /// Classic in multiples of shared, of one figure, round by round.
    pub(super) fn gain(&self, figure: usize) -> Stats {
        let [classic, shared] = &self.samples;
        Stats::of_ratios(&classic[figure], &shared[figure])
    }

    /// Shared in multiples of classic, of one figure, round by round.
    pub(super) fn cost(&self, figure: usize) -> Stats {
        let [classic, shared] = &self.samples;
        Stats::of_ratios(&shared[figure], &classic[figure])
    }

    pub(super) fn figures(&self) -> Figures {
        let runs = ForkMode::BOTH.into_iter().map(|mode| {
            let measured = FIGURES.iter().zip(0..).map(|((_, name), of)| ((*name).to_owned(), self.stats(mode, of)));
            let input = format!("a parent of {}, {} stores", size(self.bytes), self.stores);
            Run { measured: measured.collect(), ..Run::of(format!("snapshot, {}", mode.name()), input) }
        });
        let title = format!("A snapshot of {}, the parent's first stores to {} pages", size(self.bytes), self.stores);
        Grid::of(title, FIGURES.iter().enumerate())
            .text("figure", |(_, (name, _))| *name)
            .texts(["classic", "shared"], |(at, _)| ForkMode::BOTH.map(|mode| self.stats(mode, *at)))
            .text("classic/shared", |(at, _)| self.gain(*at))
            .with_runs(runs)
    }
}

/// The figures of one snapshot, from its pause and the times of its stores.
pub(super) fn figures(pause: f64, nanos: &mut [u64]) -> [f64; 6] {
    nanos.sort_unstable();
    // The rank of a percentile is the least that has so many of the samples at or below it.
    let at = |permille: usize| {
        let rank = (nanos.len() * permille).div_ceil(1000).saturating_sub(1);
        nanos.get(rank).copied().unwrap_or(0) as f64
    };
    let total = nanos.iter().sum::<u64>() as f64;
    [pause, at(500), at(990), at(999), at(1000), pause / 1e3 + total / 1e6]
}
