//! Medians with their spread.
//!
//! Key types: [`Stats`]; [`LeastStats`], the least of several. Other load on the computer makes
//! single measurements vary. The median of interleaved repetitions varies least; the tenth and
//! ninetieth percentile show the variation.
//!
//! Not guaranteed: a confidence interval. Repetitions seconds apart are not independent.

use serde::Serialize;

/// Median and percentiles of several repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stats {
    pub(crate) median: f64,
    pub(crate) p10: f64,
    pub(crate) p90: f64,
    pub(crate) samples: usize,
}

impl Stats {
    /// Summarises samples in any order; all figures are 0 if there are none.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = share * samples.len().saturating_sub(1) as f64;
            let low = samples.get(rank as usize).copied().unwrap_or(0.0);
            let high = samples.get(rank as usize + 1).copied().unwrap_or(low);
            low + (high - low) * rank.fract()
        };
        Self { median: at(0.5), p10: at(0.1), p90: at(0.9), samples: samples.len() }
    }

    /// A figure that is the same each time.
    pub(crate) fn exact(figure: f64) -> Self {
        Self::of(vec![figure])
    }

    /// The same in another unit.
    pub(crate) fn scaled(self, by: f64) -> Self {
        Self { median: self.median * by, p10: self.p10 * by, p90: self.p90 * by, ..self }
    }

    /// Summarises the ratios of samples taken in the same rounds; empty if a denominator is 0.
    ///
    /// Load that lasts longer than a round affects both samples of a pair and cancels out.
    pub(crate) fn of_ratios(of: &[f64], to: &[f64]) -> Self {
        if to.iter().any(|to| *to <= 0.0) {
            return Self::of(Vec::new());
        }
        Self::of(of.iter().zip(to).map(|(of, to)| of / to).collect())
    }

    /// The ratio of figures that were not measured in the same rounds, with the widest spread.
    pub(crate) fn over(&self, to: &Self) -> Self {
        if to.p10 <= 0.0 {
            return Self::of(Vec::new());
        }
        let samples = self.samples.min(to.samples);
        Self { median: self.median / to.median, p10: self.p10 / to.p90, p90: self.p90 / to.p10, samples }
    }

    /// Formats median and spread, such as `24.0 [23.9–24.2]`.
    pub(crate) fn text(&self) -> String {
        let digits = if self.median < 9.995 { 2 } else { 1 };
        format!("{:.digits$} [{:.digits$}–{:.digits$}]", self.median, self.p10, self.p90)
    }
}

/// The least of several figures, by median and by tenth percentile, each with what it is of.
///
/// A promise of at least so much in each of several cells is judged by both: the cell that decides
/// need not be the one with the least median.
pub(crate) struct LeastStats<T> {
    pub(crate) median: (Stats, T),
    pub(crate) low: (Stats, T),
}

impl<T: Copy> LeastStats<T> {
    /// Finds them; `None` if there is no figure.
    pub(crate) fn of(all: impl IntoIterator<Item = (Stats, T)>) -> Option<Self> {
        let all: Vec<(Stats, T)> = all.into_iter().collect();
        let least = |of: fn(&Stats) -> f64| all.iter().min_by(|a, b| of(&a.0).total_cmp(&of(&b.0))).copied();
        Some(Self { median: least(|stats| stats.median)?, low: least(|stats| stats.p10)? })
    }

    /// What a promise of at least so much is judged by: the least median, and the least lower end.
    pub(crate) fn figure(&self) -> Stats {
        Stats { p10: self.low.0.p10, ..self.median.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_lower_end_may_be_of_another_figure_than_the_least_median() {
        let stats = |p10, median| Stats { median, p10, p90: 9.0, samples: 5 };
        let least = LeastStats::of([(stats(0.9, 0.95), "a"), (stats(0.5, 1.5), "b"), (stats(2.0, 2.0), "c")]);
        let least = least.expect("figures");
        assert_eq!((least.median.1, least.low.1), ("a", "b"));
        assert_eq!((least.figure().median, least.figure().p10), (0.95, 0.5));
        assert!(LeastStats::<&str>::of([]).is_none());
    }

    #[test]
    fn medians_and_percentiles_are_interpolated() {
        let stats = Stats::of((1..=11).rev().map(f64::from).collect());
        assert_eq!((stats.p10, stats.median, stats.p90, stats.samples), (2.0, 6.0, 10.0, 11));
        assert_eq!(Stats::of(vec![1.0, 2.0]).median, 1.5);
        assert_eq!(Stats::of(vec![3.0]).text(), "3.00 [3.00–3.00]");
        assert_eq!(Stats::of(Vec::new()).samples, 0);
    }

    #[test]
    fn load_that_affects_both_samples_of_a_pair_cancels_out() {
        let (quiet, busy) = (vec![10.0, 20.0], vec![5.0, 10.0]);
        let rounds = |a: f64, b: f64| Stats::of_ratios(&[quiet[0], busy[0], a], &[quiet[1], busy[1], b]);
        assert_eq!(rounds(1.0, 2.0).text(), "0.50 [0.50–0.50]");
        assert_eq!(rounds(1.0, 0.0).samples, 0, "no ratio to 0");
        let apart = Stats::of(vec![5.0, 10.0]).over(&Stats::of(vec![10.0, 20.0]));
        assert!(apart.p10 < 0.4 && apart.p90 > 0.8, "{apart:?}");
    }
}
