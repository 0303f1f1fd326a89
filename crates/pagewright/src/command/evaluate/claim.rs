//! A published or promised figure beside ours, and the verdict on it.
//!
//! Key types: [`Claim`], a row; [`Verdict`], with the functions that every row's verdict comes
//! from. A figure with a band is judged by its whole band: if only a part of it agrees, the verdict
//! is [`Verdict::Undecided`]. A row names the cells that it leaves out and the assumption that it
//! rests on.
//!
//! Not guaranteed: that a verdict on a measured figure is the same twice, if the figure is near its
//! limit or the computer is busy.

use super::Stats;
use serde::Serialize;

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FigureKind {
    /// By counting.
    Counted,
    /// By adding up the costs of a profile.
    Modelled,
    /// By a clock.
    Measured,
}

impl FigureKind {
    /// The text in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Modelled => "modelled",
            Self::Measured => "measured",
        }
    }
}

/// How a figure compares with the published or promised one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// The published figure is reproduced, or the promise kept.
    Reproduced,
    /// Our figure is better than the published one.
    Better,
    /// A part of our band agrees: the spread of the measurements, or of the assumed costs.
    Undecided,
    Differs,
}

/// The deviation from a published figure that still reproduces it: a tenth.
const TOLERANCE: f64 = 0.1;

impl Verdict {
    /// The text in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Better => "better",
            Self::Undecided => "undecided",
            Self::Differs => "differs",
        }
    }

    /// The verdict on a figure that agrees or not, and the same at each end of its band.
    pub(crate) fn over_band(given: bool, ends: impl IntoIterator<Item = bool>) -> Self {
        match (given, ends.into_iter().all(|agrees| agrees)) {
            (true, true) => Self::Reproduced,
            (true, false) => Self::Undecided,
            (false, _) => Self::Differs,
        }
    }

    /// A published figure against a modelled one, whose spread is the band of the assumed costs.
    pub(crate) fn reproduces(ours: &Stats, published: f64) -> Self {
        let agrees = |ours: f64| (ours - published).abs() <= published * TOLERANCE;
        Self::over_band(agrees(ours.median), [ours.p10, ours.p90].map(agrees))
    }

    /// A measured ratio against a published one; a larger ratio is better.
    pub(crate) fn ratio(ours: &Stats, published: f64) -> Self {
        let agrees = |ours: f64| ours >= published * (1.0 - TOLERANCE);
        if ours.p10 > published * (1.0 + TOLERANCE) {
            Self::Better
        } else {
            Self::over_band(agrees(ours.median), [agrees(ours.p10)])
        }
    }

    /// A promise that a figure is at least `limit`.
    pub(crate) fn at_least(ours: &Stats, limit: f64) -> Self {
        Self::over_band(ours.median >= limit, [ours.p10 >= limit])
    }

    /// A promise that a figure is at most `limit`.
    pub(crate) fn at_most(ours: &Stats, limit: f64) -> Self {
        Self::over_band(ours.median <= limit, [ours.p90 <= limit])
    }

    /// A promise about an exact figure.
    pub(crate) fn kept(kept: bool) -> Self {
        Self::over_band(kept, [])
    }
}

/// The source of a figure that this project promises.
pub(crate) const OWN_PROMISE: &str = "our own promise";

/// A published or promised figure, and ours.
#[derive(Serialize)]
pub(crate) struct Claim {
    pub(crate) what: String,
    /// The figure as its source prints it.
    pub(crate) published: String,
    pub(crate) source: String,
    pub(crate) ours: String,
    pub(crate) kind: FigureKind,
    pub(crate) verdict: Verdict,
    /// Why the figures differ, if it is known.
    pub(crate) reason: String,
    /// The measurements that the row does not judge, with their figures.
    pub(crate) leaves_out: String,
    /// The assumption without which the verdict may be another.
    pub(crate) rests_on: String,
}

impl Claim {
    /// A row with a published figure.
    pub(crate) fn published(
        what: impl Into<String>,
        published: &str,
        source: &str,
        ours: impl Into<String>,
        kind: FigureKind,
        verdict: Verdict,
    ) -> Self {
        let (published, source) = (published.to_owned(), source.to_owned());
        let (what, ours) = (what.into(), ours.into());
        let [reason, leaves_out, rests_on] = [const { String::new() }; 3];
        Self { what, published, source, ours, kind, verdict, reason, leaves_out, rests_on }
    }

    /// A row with a promise of our own.
    pub(crate) fn promised(
        what: impl Into<String>,
        limit: &str,
        ours: impl Into<String>,
        kind: FigureKind,
        verdict: Verdict,
    ) -> Self {
        Self::published(what, limit, OWN_PROMISE, ours, kind, verdict)
    }

    /// Says why the figures differ.
    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Names what the row does not judge.
    pub(crate) fn leaving_out(mut self, what: impl Into<String>) -> Self {
        self.leaves_out = what.into();
        self
    }

    /// Names the assumption that the row rests on.
    pub(crate) fn resting_on(mut self, what: impl Into<String>) -> Self {
        self.rests_on = what.into();
        self
    }

    /// The explanations of the row, each with its heading.
    pub(super) fn explanations(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("because", &self.reason), ("leaves out", &self.leaves_out), ("rests on", &self.rests_on)];
        all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(heading, text)| (heading, text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(p10: f64, median: f64, p90: f64) -> Stats {
        Stats { median, p10, p90, samples: 9 }
    }

    #[test]
    fn a_verdict_needs_the_whole_band() {
        use Verdict::{Better, Differs, Reproduced, Undecided};
        let at_least: fn(&Stats, f64) -> Verdict = Verdict::at_least;
        for (name, verdict, (p10, median, p90), figure, expected) in [
            ("a promise of at least", at_least, (0.95, 0.97, 0.99), 0.95, Reproduced),
            ("a promise of at least", at_least, (0.94, 0.97, 0.99), 0.95, Undecided),
            ("a promise of at least", at_least, (0.90, 0.94, 2.0), 0.95, Differs),
            ("a promise of at most", Verdict::at_most, (0.1, 1.1, 1.1), 1.1, Reproduced),
            ("a promise of at most", Verdict::at_most, (0.1, 1.1, 1.2), 1.1, Undecided),
            ("a promise of at most", Verdict::at_most, (0.1, 1.2, 1.2), 1.1, Differs),
            ("a ratio", Verdict::ratio, (2.3, 2.4, 2.5), 2.0, Better),
            ("a ratio", Verdict::ratio, (2.1, 2.4, 2.5), 2.0, Reproduced),
            ("a ratio", Verdict::ratio, (1.7, 2.4, 2.5), 2.0, Undecided),
            ("a ratio", Verdict::ratio, (1.0, 1.7, 3.0), 2.0, Differs),
            // The published figure lies in the band, which says only that the band is wide.
            ("a modelled figure", Verdict::reproduces, (0.01, 0.10, 0.30), 0.05, Differs),
            ("a modelled figure", Verdict::reproduces, (0.01, 0.05, 0.30), 0.05, Undecided),
            ("a modelled figure", Verdict::reproduces, (0.046, 0.05, 0.054), 0.05, Reproduced),
            ("a modelled figure", Verdict::reproduces, (0.046, 0.056, 0.056), 0.05, Differs),
        ] {
            let verdict = verdict(&stats(p10, median, p90), figure);
            assert_eq!(verdict, expected, "{name}: {p10} to {p90}, {median}, against {figure}");
        }
        assert_eq!([true, false].map(Verdict::kept), [Reproduced, Differs]);
    }

    #[test]
    fn a_figure_that_is_no_number_keeps_no_promise() {
        for verdict in [
            Verdict::at_least(&stats(f64::NAN, f64::NAN, f64::NAN), 0.9),
            Verdict::at_most(&stats(f64::NAN, f64::NAN, f64::NAN), 0.9),
            Verdict::ratio(&stats(f64::NAN, f64::NAN, f64::NAN), 0.9),
            Verdict::reproduces(&stats(f64::NAN, f64::NAN, f64::NAN), 0.9),
        ] {
            assert_eq!(verdict, Verdict::Differs);
        }
    }

    #[test]
    fn a_row_without_explanations_prints_none() {
        let row = || Claim::promised("w", "l", "o", FigureKind::Counted, Verdict::Differs);
        assert_eq!(row().explanations().count(), 0);
        let explained = row().because("b").leaving_out("c").resting_on("d");
        let shown: Vec<_> = explained.explanations().collect();
        assert_eq!(shown, [("because", "b"), ("leaves out", "c"), ("rests on", "d")]);
    }
}
