//! Medians with their spread.
//!
//! Key type: [`Stats`]. Other load on the computer makes single measurements vary. The median of
//! interleaved repetitions varies least; the tenth and ninetieth percentile show the variation.
//!
//! Not guaranteed: a confidence interval. Repetitions seconds apart are not independent.

use serde::Serialize;

/// Median and percentiles of several repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

    /// Formats median and spread, such as `24.0 [23.9–24.2]`.
    pub(crate) fn text(&self) -> String {
        let digits = if self.median < 9.995 { 2 } else { 1 };
        format!("{:.digits$} [{:.digits$}–{:.digits$}]", self.median, self.p10, self.p90)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_interpolated() {
        let stats = Stats::of((1..=11).rev().map(f64::from).collect());
        assert_eq!((stats.p10, stats.median, stats.p90, stats.samples), (2.0, 6.0, 10.0, 11));
        assert_eq!(Stats::of(vec![1.0, 2.0]).median, 1.5);
        assert_eq!(Stats::of(vec![3.0]).text(), "3.00 [3.00–3.00]");
        assert_eq!(Stats::of(Vec::new()).samples, 0);
    }
}
