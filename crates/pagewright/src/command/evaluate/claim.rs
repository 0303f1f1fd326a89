//! A published or promised figure beside ours, and the verdict on it.
//!
//! Key types: [`Claim`], a row; [`Comparison`] and [`Promise`], with the functions that every
//! row's verdict comes from ([`RULE`]). A figure with a band is judged by its whole band: if only a
//! part of it agrees, the verdict is *undecided*, and also if the row is about a size that the run
//! did not reach ([`Claim::about`]). A row names the cells that it leaves out and the assumption
//! that it rests on. A figure that this run did not obtain is no row.
//!
//! Not guaranteed: that a verdict on a measured figure is the same twice, if the figure is near its
//! limit or the computer is busy.

use super::Stats;
use super::plot::size;
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
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Modelled => "modelled",
            Self::Measured => "measured",
        }
    }
}

/// How a figure compares with a published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Comparison {
    /// Within a tenth of the published figure.
    Reproduced,
    /// Better by more than a tenth.
    Better,
    /// One end of our band differs, by measurements or assumed costs; or the size was not reached.
    Undecided,
    Differs,
}

/// Whether a promise of ours is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Promise {
    Kept,
    /// One end of our band misses it, or it was kept up to a smaller size than is promised.
    Undecided,
    Missed,
}

/// The verdict on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Verdict {
    Published(Comparison),
    Promised(Promise),
}

/// The deviation from a published figure that still reproduces it: a tenth.
const TOLERANCE: f64 = 0.1;

/// How the verdicts come about, for readers.
pub(crate) const RULE: &str = "reproduced: our median is within 10 % of the published figure; better: it is better by more; differs: neither. \
     kept, missed: a promise of ours. undecided: the median agrees, and one end of our band does not; or the run, without --full, \
     did not reach the size that the row is about.";

impl Verdict {
    /// The texts of all verdicts, those of the good ones first.
    pub(super) const NAMES: [&str; 6] = ["better", "reproduced", "kept", "undecided", "differs", "missed"];

    /// The text in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Published(Comparison::Reproduced) => "reproduced",
            Self::Published(Comparison::Better) => "better",
            Self::Published(Comparison::Undecided) | Self::Promised(Promise::Undecided) => "undecided",
            Self::Published(Comparison::Differs) => "differs",
            Self::Promised(Promise::Kept) => "kept",
            Self::Promised(Promise::Missed) => "missed",
        }
    }
}

/// The verdict of three on a figure that agrees or not, and the same at all ends of its band.
fn over_band<T>(given: bool, ends: bool, [agrees, undecided, does_not]: [T; 3]) -> T {
    match (given, ends) {
        (true, true) => agrees,
        (true, false) => undecided,
        (false, _) => does_not,
    }
}

impl Comparison {
    /// The verdict on a figure that agrees or not, and the same at each end of its band.
    pub(crate) fn over_band(given: bool, ends: impl IntoIterator<Item = bool>) -> Self {
        let ends = ends.into_iter().all(|agrees| agrees);
        over_band(given, ends, [Self::Reproduced, Self::Undecided, Self::Differs])
    }

    /// A published figure of which a deviation in both directions differs.
    pub(crate) fn near(ours: &Stats, published: f64) -> Self {
        let agrees = |ours: f64| (ours - published).abs() <= published * TOLERANCE;
        Self::over_band(agrees(ours.median), [ours.p10, ours.p90].map(agrees))
    }

    /// A published figure of which more is better.
    pub(crate) fn more(ours: &Stats, published: f64) -> Self {
        let agrees = |ours: f64| ours >= published * (1.0 - TOLERANCE);
        let is_better = ours.median > published * (1.0 + TOLERANCE);
        Self::over_band(agrees(ours.median), [agrees(ours.p10)]).better_if(is_better)
    }

    /// A published figure of which less is better.
    pub(crate) fn less(ours: &Stats, published: f64) -> Self {
        let agrees = |ours: f64| ours <= published * (1.0 + TOLERANCE);
        let is_better = ours.median < published * (1.0 - TOLERANCE);
        Self::over_band(agrees(ours.median), [agrees(ours.p90)]).better_if(is_better)
    }

    fn better_if(self, is_better: bool) -> Self {
        if self == Self::Reproduced && is_better { Self::Better } else { self }
    }
}

impl Promise {
    /// The verdict on a figure that keeps a promise or not, and the same at the end of its band.
    fn over_band(given: bool, end: bool) -> Self {
        over_band(given, end, [Self::Kept, Self::Undecided, Self::Missed])
    }

    /// A promise that a figure is at least `limit`.
    pub(crate) fn at_least(ours: &Stats, limit: f64) -> Self {
        Self::over_band(ours.median >= limit, ours.p10 >= limit)
    }

    /// A promise that a figure is at most `limit`.
    pub(crate) fn at_most(ours: &Stats, limit: f64) -> Self {
        Self::over_band(ours.median <= limit, ours.p90 <= limit)
    }

    /// A promise about an exact figure.
    pub(crate) fn kept(kept: bool) -> Self {
        Self::over_band(kept, kept)
    }
}

/// The source of a figure that this project promises, in JSON.
const OWN_PROMISE: &str = "our own promise";

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
        verdict: Comparison,
    ) -> Self {
        Self::of(what.into(), [published, source], ours.into(), kind, Verdict::Published(verdict))
    }

    /// A row with a promise of our own.
    pub(crate) fn promised(
        what: impl Into<String>,
        limit: &str,
        ours: impl Into<String>,
        kind: FigureKind,
        verdict: Promise,
    ) -> Self {
        Self::of(what.into(), [limit, OWN_PROMISE], ours.into(), kind, Verdict::Promised(verdict))
    }

    fn of(what: String, [published, source]: [&str; 2], ours: String, kind: FigureKind, verdict: Verdict) -> Self {
        let (published, source) = (published.to_owned(), source.to_owned());
        let [reason, leaves_out, rests_on] = [const { String::new() }; 3];
        Self { what, published, source, ours, kind, verdict, reason, leaves_out, rests_on }
    }

    /// Whether the row is about a promise of our own.
    pub(crate) const fn is_promise(&self) -> bool {
        matches!(self.verdict, Verdict::Promised(_))
    }

    /// Says why the figures differ.
    pub(crate) fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Names what the row does not judge, after what it names already.
    pub(crate) fn leaving_out(mut self, what: impl Into<String>) -> Self {
        let named = [std::mem::take(&mut self.leaves_out), what.into()];
        self.leaves_out = named.into_iter().filter(|what| !what.is_empty()).collect::<Vec<_>>().join("; ");
        self
    }

    /// States that the row is about sizes up to `decides`, of which the run reached `reached`.
    ///
    /// A smaller size can miss a promise. It cannot keep one, nor compare with a published figure.
    pub(crate) fn about(mut self, decides: u64, reached: u64) -> Self {
        if reached >= decides {
            return self;
        }
        self.verdict = match self.verdict {
            Verdict::Published(_) => Verdict::Published(Comparison::Undecided),
            Verdict::Promised(Promise::Kept) => Verdict::Promised(Promise::Undecided),
            Verdict::Promised(_) => self.verdict,
        };
        let [decides, reached] = [decides, reached].map(size);
        self.leaving_out(format!("{decides}, which --full decides: this run went up to {reached}"))
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
    fn a_published_figure_is_judged_by_the_median_and_the_band() {
        use Comparison::{Better, Differs, Reproduced, Undecided};
        type Compare = fn(&Stats, f64) -> Comparison;
        let (more, less): (Compare, Compare) = (Comparison::more, Comparison::less);
        for (name, compare, (p10, median, p90), figure, expected) in [
            ("a ratio", more, (2.3, 2.4, 2.5), 2.0, Better),
            ("a ratio", more, (1.9, 2.35, 2.5), 1.98, Better),
            ("a ratio", more, (1.7, 2.35, 2.5), 1.98, Undecided),
            ("a ratio", more, (1.9, 2.1, 2.9), 2.0, Reproduced),
            ("a ratio", more, (1.7, 2.1, 2.9), 2.0, Undecided),
            ("a ratio", more, (1.0, 1.7, 3.0), 2.0, Differs),
            ("a cost", less, (30.0, 32.0, 40.0), 44.0, Better),
            ("a cost", less, (30.0, 32.0, 50.0), 44.0, Undecided),
            ("a cost", less, (40.0, 45.0, 48.0), 44.0, Reproduced),
            ("a cost", less, (30.0, 49.0, 50.0), 44.0, Differs),
            // The published figure lies in the band, which says only that the band is wide.
            ("a modelled figure", Comparison::near, (0.01, 0.10, 0.30), 0.05, Differs),
            ("a modelled figure", Comparison::near, (0.01, 0.05, 0.30), 0.05, Undecided),
            ("a modelled figure", Comparison::near, (0.046, 0.05, 0.054), 0.05, Reproduced),
            ("a modelled figure", Comparison::near, (0.046, 0.056, 0.056), 0.05, Differs),
        ] {
            let verdict = compare(&stats(p10, median, p90), figure);
            assert_eq!(verdict, expected, "{name}: {p10} to {p90}, {median}, against {figure}");
        }
    }

    #[test]
    fn a_promise_is_kept_by_the_whole_band() {
        use Promise::{Kept, Missed, Undecided};
        for ((p10, median, p90), expected) in
            [((0.95, 0.97, 0.99), Kept), ((0.94, 0.97, 0.99), Undecided), ((0.90, 0.94, 2.0), Missed)]
        {
            assert_eq!(Promise::at_least(&stats(p10, median, p90), 0.95), expected, "{p10} to {p90}, {median}");
        }
        for ((p10, median, p90), expected) in
            [((0.1, 1.1, 1.1), Kept), ((0.1, 1.1, 1.2), Undecided), ((0.1, 1.2, 1.2), Missed)]
        {
            assert_eq!(Promise::at_most(&stats(p10, median, p90), 1.1), expected, "{p10} to {p90}, {median}");
        }
        assert_eq!([true, false].map(Promise::kept), [Kept, Missed]);
    }

    #[test]
    fn a_figure_that_is_no_number_agrees_with_nothing() {
        let none = stats(f64::NAN, f64::NAN, f64::NAN);
        let compared = [Comparison::more(&none, 0.9), Comparison::less(&none, 0.9), Comparison::near(&none, 0.9)];
        assert_eq!(compared, [Comparison::Differs; 3]);
        assert_eq!([Promise::at_least(&none, 0.9), Promise::at_most(&none, 0.9)], [Promise::Missed; 2]);
    }

    #[test]
    fn a_size_that_the_run_did_not_reach_decides_nothing_but_a_miss() {
        let promised = |verdict| Claim::promised("w", "l", "o", FigureKind::Counted, verdict).leaving_out("c");
        let published = |verdict| Claim::published("w", "p", "s", "o", FigureKind::Counted, verdict);
        let (decides, reached) = (64 << 30, 8 << 30);
        let verdict = |row: Claim| row.about(decides, reached).verdict.name();
        assert_eq!([Promise::Kept, Promise::Undecided].map(|of| verdict(promised(of))), ["undecided"; 2]);
        assert_eq!(verdict(promised(Promise::Missed)), "missed");
        let all = [Comparison::Reproduced, Comparison::Better, Comparison::Undecided, Comparison::Differs];
        assert_eq!(all.map(|of| verdict(published(of))), ["undecided"; 4]);
        let row = promised(Promise::Kept).about(decides, reached);
        assert_eq!(row.leaves_out, "c; 64 GiB, which --full decides: this run went up to 8 GiB");
        let row = promised(Promise::Kept).about(decides, decides);
        assert_eq!((row.verdict.name(), row.leaves_out.as_str()), ("kept", "c"));
    }

    #[test]
    fn a_row_without_explanations_prints_none() {
        let row = || Claim::promised("w", "l", "o", FigureKind::Counted, Promise::Missed);
        assert_eq!(row().explanations().count(), 0);
        let explained = row().because("b").leaving_out("c").resting_on("d");
        let shown: Vec<_> = explained.explanations().collect();
        assert_eq!(shown, [("because", "b"), ("leaves out", "c"), ("rests on", "d")]);
    }
}
