//! Limits: the number that a figure is judged by, from which its text and the verdict follow.
//!
//! Key types: [`Limit`], which states a number and its unit once; [`Unit`], which formats limits
//! and our figures alike; [`Verdict`], which [`RULE`] explains to readers. A figure with a band is
//! judged by its whole band: if only a part of it agrees, the verdict is *undecided*.
//!
//! Not guaranteed: that a verdict on a measured figure is the same twice, if the figure is near its
//! limit or the computer is busy.

use super::Stats;
use serde::Serialize;

/// The unit of a figure and of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Count,
    Kilobytes,
    /// Of a fraction, such as 0.125 for 12.5 %.
    Percent,
    Times,
    PerPage,
    Nanos,
    Micros,
    Millis,
    Seconds,
    GigabytesPerSecond,
    RunsPerSecond,
}

/// Formats a figure with at most so many significant digits, and without zeros at the end.
fn significant(figure: f64, digits: i32) -> String {
    if !figure.is_finite() {
        return "–".to_owned();
    }
    let text = format!("{figure:.*}", decimals(figure, digits));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The digits after the point of a figure with so many significant ones.
fn decimals(figure: f64, significant: i32) -> usize {
    let before_point = if figure == 0.0 { 1 } else { figure.abs().log10().floor() as i32 + 1 };
    (significant - before_point).clamp(0, 6) as usize
}

impl Unit {
    const fn suffix(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Kilobytes => " kB",
            Self::Percent => " %",
            Self::Times => " ×",
            Self::PerPage => " per page",
            Self::Nanos => " ns",
            Self::Micros => " µs",
            Self::Millis => " ms",
            Self::Seconds => " s",
            Self::GigabytesPerSecond => " GB/s",
            Self::RunsPerSecond => " executions a second",
        }
    }

    fn scaled(self, figure: f64) -> f64 {
        if self == Self::Percent { figure * 100.0 } else { figure }
    }

    /// Formats a figure without a band, such as `1.983 ×`.
    ///
    /// It has a digit more than one with a band, because that digit may decide.
    pub(crate) fn exact(self, figure: f64) -> String {
        format!("{}{}", significant(self.scaled(figure), 4), self.suffix())
    }

    /// Formats a figure with its band, if it has one, such as `1.98 × [1.90–2.10]`.
    pub(crate) fn text(self, stats: &Stats) -> String {
        let is_exact = stats.p10.total_cmp(&stats.p90).is_eq();
        if is_exact && self != Self::Percent {
            return self.exact(stats.median);
        }
        let [median, low, high] = [stats.median, stats.p10, stats.p90].map(|figure| self.scaled(figure));
        let digits = match self {
            Self::Count => 0,
            // In a column all have the point at the same place.
            Self::Percent if median == 0.0 || median.abs() >= 1.0 => 1,
            _ => decimals(median, 3),
        };
        let figure = format!("{median:.digits$}{}", self.suffix());
        if is_exact { figure } else { format!("{figure} [{low:.digits$}–{high:.digits$}]") }
    }

    /// Formats a change, such as `12.1 → 24 GB/s`.
    pub(crate) fn change(self, [before, after]: [f64; 2]) -> String {
        format!("{} → {}", significant(self.scaled(before), 4), self.exact(after))
    }
}

/// The verdict on a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Better than the published figure by more than a tenth.
    Better,
    /// Within a tenth of the published figure, or within the published limit.
    Reproduced,
    /// As promised.
    Kept,
    /// One end of our band says otherwise, or the run did not reach the size that is meant.
    Undecided,
    /// Not as published.
    Differs,
    /// Not as promised.
    Missed,
}

impl Verdict {
    /// All verdicts, the good ones first.
    pub(super) const ALL: [Self; 6] =
        [Self::Better, Self::Reproduced, Self::Kept, Self::Undecided, Self::Differs, Self::Missed];

    /// The text in tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Reproduced => "reproduced",
            Self::Kept => "kept",
            Self::Undecided => "undecided",
            Self::Differs => "differs",
            Self::Missed => "missed",
        }
    }

    /// The verdict if the run did not reach the size that is meant.
    ///
    /// A smaller size can miss a promise. It cannot keep one, nor compare with a published figure.
    pub(super) fn of_smaller(self) -> Self {
        if self == Self::Missed { self } else { Self::Undecided }
    }
}

/// The deviation from a published figure that still reproduces it: a tenth.
const TOLERANCE: f64 = 0.1;

/// How the verdicts come about, for readers.
pub(crate) const RULE: &str = "reproduced: our median is within 10 % of the published figure; better: it is better by more; differs: neither. \
     kept, missed: a promise of ours. undecided: the median agrees, and one end of our band does not; or the run, without --full, \
     did not reach the size that the row is about.";

/// How a figure is set against the number of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LimitRule {
    /// The figure is 1 if a statement holds, and 0 if not.
    Holds,
    Exactly,
    AtLeast,
    AtMost,
    /// A published figure of which a deviation in both directions differs.
    Near,
    /// A published figure of which more is better.
    More,
    /// A published figure of which less is better.
    Less,
}

/// What a figure is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    rule: LimitRule,
    figure: f64,
    pub(super) unit: Unit,
    /// Figures before and after from which the limit's follows, or of which it is the second.
    change: Option<([f64; 2], Unit)>,
    /// What the source or the promise says besides, or the statement.
    note: &'static str,
}

impl Limit {
    /// A limit that the results give, with a figure that agrees with nothing.
    pub(crate) const OF_RESULTS: Self = Self::new(LimitRule::Exactly, f64::NAN, Unit::Count);

    const fn new(rule: LimitRule, figure: f64, unit: Unit) -> Self {
        Self { rule, figure, unit, change: None, note: "" }
    }

    /// A statement that holds or not, in place of a number.
    pub(crate) const fn holds(statement: &'static str) -> Self {
        Self::new(LimitRule::Holds, 1.0, Unit::Count).noting(statement)
    }

    pub(crate) const fn exactly(figure: f64, unit: Unit) -> Self {
        Self::new(LimitRule::Exactly, figure, unit)
    }

    pub(crate) const fn at_least(figure: f64, unit: Unit) -> Self {
        Self::new(LimitRule::AtLeast, figure, unit)
    }

    pub(crate) const fn at_most(figure: f64, unit: Unit) -> Self {
        Self::new(LimitRule::AtMost, figure, unit)
    }

    /// A published figure of which a deviation in both directions differs.
    pub(crate) const fn near(figure: f64, unit: Unit) -> Self {
        Self::new(LimitRule::Near, figure, unit)
    }

    /// A published figure of which more is better.
    pub(crate) const fn more(figure: f64, unit: Unit) -> Self {
        Self::new(LimitRule::More, figure, unit)
    }

    /// A published fall from one figure to the other, of which less is better.
    pub(crate) const fn fall(change: [f64; 2], unit: Unit) -> Self {
        Self::new(LimitRule::Less, change[1], unit).by(change, unit)
    }

    /// A published change by a factor, of which more is better.
    pub(crate) const fn gain(change: [f64; 2], unit: Unit) -> Self {
        Self::more(change[1] / change[0], Unit::Times).by(change, unit)
    }

    /// A published fall by a factor, of which more is better.
    pub(crate) const fn fewer(change: [f64; 2], unit: Unit) -> Self {
        Self::more(change[0] / change[1], Unit::Times).by(change, unit)
    }

    /// A published change by a factor, of which less is better.
    pub(crate) const fn cost(change: [f64; 2], unit: Unit) -> Self {
        Self::new(LimitRule::Less, change[1] / change[0], Unit::Times).by(change, unit)
    }

    /// A published saving, of which a deviation in both directions differs.
    pub(crate) const fn saved(change: [f64; 2], unit: Unit) -> Self {
        Self::near(1.0 - change[1] / change[0], Unit::Percent).by(change, unit)
    }

    const fn by(self, change: [f64; 2], unit: Unit) -> Self {
        Self { change: Some((change, unit)), ..self }
    }

    /// The limit with what its source or the promise says besides.
    pub(crate) const fn noting(self, note: &'static str) -> Self {
        Self { note, ..self }
    }

    /// The number.
    pub(crate) const fn figure(&self) -> f64 {
        self.figure
    }

    /// Whether a statement stands in place of a number.
    pub(super) fn is_statement(&self) -> bool {
        self.rule == LimitRule::Holds
    }

    /// The limit as a row prints it.
    pub(super) fn text(&self) -> String {
        let shown = self.unit.exact(self.figure);
        let limit = match self.rule {
            LimitRule::Holds => return self.note.to_owned(),
            LimitRule::Exactly => format!("exactly {shown}"),
            LimitRule::AtLeast => format!("at least {shown}"),
            LimitRule::AtMost => format!("at most {shown}"),
            LimitRule::Near | LimitRule::More | LimitRule::Less => shown,
        };
        let note = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        match self.change {
            None => format!("{limit}{note}"),
            Some((change, unit)) if unit == self.unit => format!("{}{note}", unit.change(change)),
            Some((change, unit)) => format!("{}, {limit}{note}", unit.change(change)),
        }
    }

    /// The verdict on a figure of ours.
    pub(super) fn verdict(&self, ours: &Stats, is_published: bool) -> Verdict {
        let (limit, rule) = (self.figure, self.rule);
        let agrees = |ours: f64| match rule {
            LimitRule::Holds | LimitRule::Exactly => ours.total_cmp(&limit).is_eq() && !ours.is_nan(),
            LimitRule::AtLeast => ours >= limit,
            LimitRule::AtMost => ours <= limit,
            LimitRule::Near => (ours - limit).abs() <= limit * TOLERANCE,
            LimitRule::More => ours >= limit * (1.0 - TOLERANCE),
            LimitRule::Less => ours <= limit * (1.0 + TOLERANCE),
        };
        let is_better = match rule {
            LimitRule::More => ours.median > limit * (1.0 + TOLERANCE),
            LimitRule::Less => ours.median < limit * (1.0 - TOLERANCE),
            _ => false,
        };
        let ends = match rule {
            LimitRule::AtLeast | LimitRule::More => [ours.p10; 2],
            LimitRule::AtMost | LimitRule::Less => [ours.p90; 2],
            LimitRule::Holds | LimitRule::Exactly | LimitRule::Near => [ours.p10, ours.p90],
        };
        let [good, bad] =
            if is_published { [Verdict::Reproduced, Verdict::Differs] } else { [Verdict::Kept, Verdict::Missed] };
        match (agrees(ours.median), ends.into_iter().all(agrees)) {
            (true, true) if is_better => Verdict::Better,
            (true, true) => good,
            // Different counts are no band.
            (true, false) if rule != LimitRule::Exactly => Verdict::Undecided,
            _ => bad,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Better, Differs, Kept, Missed, Reproduced, Undecided};

    fn stats([p10, median, p90]: [f64; 3]) -> Stats {
        Stats { median, p10, p90, samples: 9 }
    }

    #[test]
    fn a_published_figure_is_judged_by_the_median_and_the_band() {
        let [more, cost] = [2.0, 1.98].map(|ratio| Limit::more(ratio, Unit::Times));
        let (less, near) = (Limit::fall([90.0, 44.0], Unit::Kilobytes), Limit::near(0.05, Unit::Percent));
        let [at_most, at_least] = [Limit::at_most(0.01, Unit::Percent), Limit::at_least(0.975, Unit::Times)];
        for (limit, ours, expected) in [
            (more, [2.3, 2.4, 2.5], Better),
            (cost, [1.9, 2.35, 2.5], Better),
            (cost, [1.7, 2.35, 2.5], Undecided),
            (more, [1.9, 2.1, 2.9], Reproduced),
            (more, [1.7, 2.1, 2.9], Undecided),
            (more, [1.0, 1.7, 3.0], Differs),
            (less, [30.0, 32.0, 40.0], Better),
            (less, [30.0, 32.0, 50.0], Undecided),
            (less, [40.0, 45.0, 48.0], Reproduced),
            (less, [30.0, 49.0, 50.0], Differs),
            // The published figure lies in the band, which says only that the band is wide.
            (near, [0.01, 0.10, 0.30], Differs),
            (near, [0.01, 0.05, 0.30], Undecided),
            (near, [0.046, 0.05, 0.054], Reproduced),
            (near, [0.046, 0.056, 0.056], Differs),
            // A published limit is no figure to come near to.
            (at_most, [0.0, 0.001, 0.01], Reproduced),
            (at_most, [0.0, 0.001, 0.011], Undecided),
            (at_least, [0.97, 0.98, 2.0], Undecided),
            (at_least, [0.9, 0.97, 2.0], Differs),
        ] {
            assert_eq!(limit.verdict(&stats(ours), true), expected, "{ours:?} against {limit:?}");
        }
    }

    #[test]
    fn a_promise_is_kept_by_the_whole_band() {
        let [least, most] = [Limit::at_least(0.95, Unit::Times), Limit::at_most(1.1, Unit::Times)];
        let (exactly, holds) = (Limit::exactly(2.0, Unit::Count), Limit::holds("it is"));
        for (limit, ours, expected) in [
            (least, [0.95, 0.97, 0.99], Kept),
            (least, [0.94, 0.97, 0.99], Undecided),
            (least, [0.90, 0.94, 2.0], Missed),
            (most, [0.1, 1.1, 1.1], Kept),
            (most, [0.1, 1.1, 1.2], Undecided),
            (most, [0.1, 1.2, 1.2], Missed),
            (exactly, [2.0; 3], Kept),
            (exactly, [1.0, 2.0, 2.0], Missed),
            (holds, [1.0; 3], Kept),
            (holds, [0.0; 3], Missed),
        ] {
            assert_eq!(limit.verdict(&stats(ours), false), expected, "{ours:?} against {limit:?}");
        }
    }

    #[test]
    fn a_figure_that_is_no_number_agrees_with_nothing() {
        let none = stats([f64::NAN; 3]);
        let (of, unit) = (0.9, Unit::Times);
        let published = [Limit::more(of, unit), Limit::near(of, unit), Limit::cost([1.0, of], unit)];
        assert_eq!(published.map(|limit| limit.verdict(&none, true)), [Differs; 3]);
        let promised = [Limit::at_least(of, unit), Limit::at_most(of, unit), Limit::OF_RESULTS];
        assert_eq!(promised.map(|limit| limit.verdict(&none, false)), [Missed; 3]);
    }

    #[test]
    fn a_limit_prints_the_number_that_judges() {
        for (limit, text) in [
            (Limit::at_most(20.0, Unit::Micros), "at most 20 µs"),
            (Limit::at_least(0.9, Unit::Percent), "at least 90 %"),
            (Limit::at_most(1.0 / 32.0, Unit::PerPage).noting("one for 32"), "at most 0.03125 per page (one for 32)"),
            (Limit::exactly(0.0, Unit::Count), "exactly 0"),
            (Limit::gain([12.1, 24.0], Unit::GigabytesPerSecond), "12.1 → 24 GB/s, 1.983 ×"),
            (Limit::fewer([0.5, 0.25], Unit::PerPage), "0.5 → 0.25 per page, 2 ×"),
            (Limit::cost([770.0, 795.0], Unit::Nanos), "770 → 795 ns, 1.032 ×"),
            (Limit::saved([14.69, 13.80], Unit::Seconds).noting("a phone"), "14.69 → 13.8 s, 6.059 % (a phone)"),
            (Limit::fall([2096.0, 44.0], Unit::Kilobytes), "2096 → 44 kB"),
            (Limit::holds("each is the same"), "each is the same"),
            (Limit::OF_RESULTS, "exactly –"),
        ] {
            assert_eq!(limit.text(), text);
        }
    }

    #[test]
    fn a_figure_has_as_many_digits_as_decide() {
        for (unit, ours, text) in [
            (Unit::Times, [1.9, 1.983, 2.1], "1.98 × [1.90–2.10]"),
            (Unit::Percent, [0.068, 0.125, 0.172], "12.5 % [6.8–17.2]"),
            (Unit::Percent, [0.005, 0.04, 0.152], "4.0 % [0.5–15.2]"),
            (Unit::Percent, [0.000_031_2, 0.000_031_2, 0.0001], "0.00312 % [0.00312–0.01000]"),
            (Unit::Percent, [0.72; 3], "72.0 %"),
            (Unit::PerPage, [0.006_432; 3], "0.006432 per page"),
            (Unit::Count, [1.0, 1.0, 2.0], "1 [1–2]"),
            (Unit::Count, [131_072.0; 3], "131072"),
            (Unit::Micros, [0.0; 3], "0 µs"),
        ] {
            assert_eq!(unit.text(&stats(ours)), text);
        }
    }
}
