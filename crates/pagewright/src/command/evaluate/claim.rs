//! A published or promised figure beside ours, with a verdict.
//!
//! Key types: [`ClaimRow`], what an evaluation states about one figure before it runs: the limit,
//! the source, and the function that finds our figure in the results; [`OurFigure`], what that
//! function finds; [`Claim`], the row that is printed. An evaluation lists its rows in tables, by
//! the part of the results that they are about, and [`claims_of`] makes all of them.
//!
//! The text and the verdict of a row follow from its [`Limit`]. A row about a size that the run did
//! not reach is *undecided* ([`ClaimHead::up_to`]). A row names the cells that it leaves out and
//! the assumption that it rests on. A figure that this run did not obtain is no row.

use super::limit::{Limit, Unit, Verdict};
use super::plot::size;
use super::{LeastStats, Stats};
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

/// The source of a figure that this project promises, in JSON.
const OWN_PROMISE: &str = "our own promise";

/// A published or promised figure, and ours.
#[derive(Serialize)]
pub(crate) struct Claim {
    pub(crate) what: String,
    /// The published figure or the promise.
    pub(crate) published: String,
    pub(crate) source: &'static str,
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
    /// Whether the row is about a promise of our own.
    pub(crate) fn is_promise(&self) -> bool {
        self.source == OWN_PROMISE
    }

    /// The explanations of the row, each with its heading.
    pub(super) fn explanations(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("because", &self.reason), ("leaves out", &self.leaves_out), ("rests on", &self.rests_on)];
        all.into_iter().filter(|(_, text)| !text.is_empty()).map(|(heading, text)| (heading, text.as_str()))
    }

    /// A row of a published figure, or of a promise, with this verdict.
    #[cfg(test)]
    pub(super) fn with_verdict(source: Option<&'static str>, verdict: Verdict) -> Self {
        let head = published("w", source.unwrap_or(OWN_PROMISE), Limit::at_most(1.0, Unit::Count));
        Self { verdict, ..head.claim(FigureKind::Measured, OurFigure::exact(2.0)) }
    }
}

/// Our figure of a row, and what only the results can say of it.
#[derive(Default)]
pub(crate) struct OurFigure {
    /// What the verdict is on.
    pub(crate) judged: Stats,
    /// The figure before, where a change is shown.
    pub(crate) before: Option<f64>,
    /// The figure that is shown, if its band is not the judged one.
    pub(crate) shown: Option<Stats>,
    /// What the row shows after the figure.
    pub(crate) details: String,
    /// What has the lower end of the judged band, if the figure that is shown has not.
    pub(crate) lowest: String,
    /// What the row is of, among others with the same words.
    pub(crate) of: String,
    /// The limit, in place of [`Limit::OF_RESULTS`].
    pub(crate) limit: Option<Limit>,
    /// The size that the run reached.
    pub(crate) reached: Option<u64>,
    /// After what the row of the table says.
    pub(crate) reason: String,
    pub(crate) leaves_out: String,
    pub(crate) rests_on: String,
}

impl From<Stats> for OurFigure {
    fn from(judged: Stats) -> Self {
        Self { judged, ..Self::default() }
    }
}

impl OurFigure {
    /// A figure without a band.
    pub(crate) fn exact(figure: f64) -> Self {
        Stats::exact(figure).into()
    }

    /// The figure before and after a change, without a band.
    pub(crate) fn change([before, after]: [f64; 2]) -> Self {
        Self { before: Some(before), ..Self::exact(after) }
    }

    /// Whether a statement holds, and the figures that show it.
    pub(crate) fn holds(holds: bool, details: String) -> Self {
        Self { details, ..Self::exact(f64::from(u8::from(holds))) }
    }

    /// The least of several figures, with the names of what has it.
    pub(crate) fn least<T: Copy>(least: &LeastStats<T>, name: impl Fn(T) -> String) -> Self {
        let (median, low) = (least.median, least.low);
        let details = format!("at worst ({})", name(median.1));
        let lowest = if low.0.p10 < median.0.p10 { name(low.1) } else { String::new() };
        Self { shown: Some(median.0), details, lowest, ..least.figure().into() }
    }

    /// Formats the figure and what is shown after it.
    pub(crate) fn text(&self, unit: Unit) -> String {
        let shown = self.shown.as_ref().unwrap_or(&self.judged);
        let figure = match self.before {
            Some(before) => unit.change([before, shown.median]),
            None => unit.text(shown),
        };
        let lowest = match self.lowest.as_str() {
            "" => String::new(),
            lowest => format!("; lowest end {} ({lowest})", unit.exact(self.judged.p10)),
        };
        joined(" ", [&figure, &self.details]) + &lowest
    }
}

/// What a row of an evaluation's table states before a figure is obtained.
#[derive(Clone, Copy)]
pub(crate) struct ClaimHead {
    what: &'static str,
    source: &'static str,
    limit: Limit,
    up_to: Option<u64>,
    reason: &'static str,
    leaves_out: &'static str,
    rests_on: &'static str,
}

/// A row of an evaluation's table of claims, about a part `P` of the results.
pub(crate) struct ClaimRow<P: ?Sized> {
    head: ClaimHead,
    kind: FigureKind,
    /// Finds our figure; `None` if the run did not obtain it.
    find: FindFigure<P>,
}

type FindFigure<P> = fn(&P) -> Option<OurFigure>;

/// A published figure.
pub(crate) const fn published(what: &'static str, source: &'static str, limit: Limit) -> ClaimHead {
    ClaimHead { what, source, limit, up_to: None, reason: "", leaves_out: "", rests_on: "" }
}

/// A promise of our own.
pub(crate) const fn promised(what: &'static str, limit: Limit) -> ClaimHead {
    published(what, OWN_PROMISE, limit)
}

impl ClaimHead {
    /// States that the row is about sizes up to this one, which a run may not reach.
    pub(crate) const fn up_to(self, size: u64) -> Self {
        Self { up_to: Some(size), ..self }
    }

    /// Says why the figures differ, or why ours is as it is.
    pub(crate) const fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    /// Names what the row does not judge.
    pub(crate) const fn leaving_out(self, leaves_out: &'static str) -> Self {
        Self { leaves_out, ..self }
    }

    /// Names the assumption that the row rests on.
    pub(crate) const fn resting_on(self, rests_on: &'static str) -> Self {
        Self { rests_on, ..self }
    }

    /// The row whose figure is obtained in this way.
    pub(crate) const fn by<P: ?Sized>(self, kind: FigureKind, find: FindFigure<P>) -> ClaimRow<P> {
        ClaimRow { head: self, kind, find }
    }

    pub(crate) const fn counted<P: ?Sized>(self, find: FindFigure<P>) -> ClaimRow<P> {
        self.by(FigureKind::Counted, find)
    }

    pub(crate) const fn modelled<P: ?Sized>(self, find: FindFigure<P>) -> ClaimRow<P> {
        self.by(FigureKind::Modelled, find)
    }

    pub(crate) const fn measured<P: ?Sized>(self, find: FindFigure<P>) -> ClaimRow<P> {
        self.by(FigureKind::Measured, find)
    }

    /// The row with a figure.
    fn claim(&self, kind: FigureKind, found: OurFigure) -> Claim {
        let limit = found.limit.unwrap_or(self.limit);
        let is_promise = self.source == OWN_PROMISE;
        let ours = if limit.is_statement() { found.details.clone() } else { found.text(limit.unit) };
        let (mut published, mut verdict) = (limit.text(), limit.verdict(&found.judged, !is_promise));
        let mut not_reached = String::new();
        if let (Some(up_to), Some(reached)) = (self.up_to, found.reached) {
            if is_promise {
                published = format!("{published}, up to {}", size(up_to));
            }
            if reached < up_to {
                verdict = verdict.of_smaller();
                let [up_to, reached] = [up_to, reached].map(size);
                not_reached = format!("{up_to}, which --full decides: this run went up to {reached}");
            }
        }
        Claim {
            what: joined(", ", [self.what, &found.of]),
            published,
            source: self.source,
            ours,
            kind,
            verdict,
            reason: joined("; ", [self.reason, &found.reason]),
            leaves_out: joined("; ", [self.leaves_out, &found.leaves_out, &not_reached]),
            rests_on: joined("; ", [self.rests_on, &found.rests_on]),
        }
    }
}

/// The texts that are not empty, with a separator between them.
fn joined<const N: usize>(separator: &str, texts: [&str; N]) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(separator)
}

/// The rows of a table whose figure the run obtained.
pub(crate) fn claims_of<P: ?Sized>(table: &[ClaimRow<P>], part: &P) -> Vec<Claim> {
    table.iter().filter_map(|row| Some(row.head.claim(row.kind, (row.find)(part)?))).collect()
}

/// The verdicts on the rows of a table.
#[cfg(test)]
pub(crate) fn verdicts<P: ?Sized>(table: &[ClaimRow<P>], part: &P) -> Vec<&'static str> {
    claims_of(table, part).iter().map(|claim| claim.verdict.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: ClaimHead = promised("a fork", Limit::at_most(2.0, Unit::Micros));

    fn claim(head: ClaimHead, found: OurFigure) -> Claim {
        head.claim(FigureKind::Counted, found)
    }

    #[test]
    fn a_size_that_the_run_did_not_reach_decides_nothing_but_a_miss() {
        let of_mail = ClaimHead { source: "a mail", ..PROMISE };
        for (head, figure, reached, verdict) in [
            (PROMISE, 1.0, 64, "kept"),
            (PROMISE, 1.0, 8, "undecided"),
            (PROMISE, 3.0, 8, "missed"),
            (of_mail, 1.0, 8, "undecided"),
            (of_mail, 3.0, 8, "undecided"),
        ] {
            let found = OurFigure { reached: Some(reached << 30), ..OurFigure::exact(figure) };
            assert_eq!(claim(head.up_to(64 << 30), found).verdict.name(), verdict, "{figure} up to {reached} GiB");
        }
        let found = OurFigure { reached: Some(8 << 30), leaves_out: "c".to_owned(), ..OurFigure::exact(1.0) };
        let row = claim(PROMISE.up_to(64 << 30), found);
        assert_eq!(row.leaves_out, "c; 64 GiB, which --full decides: this run went up to 8 GiB");
        assert_eq!(row.published, "at most 2 µs, up to 64 GiB");
    }

    #[test]
    fn a_row_without_explanations_prints_none() {
        assert_eq!(claim(PROMISE, OurFigure::exact(1.0)).explanations().count(), 0);
        let found = OurFigure { reason: "e".to_owned(), rests_on: "f".to_owned(), ..OurFigure::exact(1.0) };
        let explained = claim(PROMISE.because("b").leaving_out("c").resting_on("d"), found);
        let shown: Vec<_> = explained.explanations().collect();
        assert_eq!(shown, [("because", "b; e"), ("leaves out", "c"), ("rests on", "d; f")]);
    }

    #[test]
    fn a_row_shows_the_figure_in_the_unit_of_its_limit() {
        let ours = |found: OurFigure| claim(PROMISE, found).ours;
        assert_eq!(ours(OurFigure::change([4.0, 1.5])), "4 → 1.5 µs");
        assert_eq!(ours(OurFigure { details: "of 3 µs".to_owned(), ..OurFigure::exact(1.5) }), "1.5 µs of 3 µs");
        let stats = |p10, median| Stats { median, p10, p90: 9.0, samples: 5 };
        let least = LeastStats::of([(stats(0.9, 0.95), "a"), (stats(0.5, 1.5), "b")]).expect("figures");
        let shown = ours(OurFigure::least(&least, str::to_owned));
        assert_eq!(shown, "0.950 µs [0.900–9.000] at worst (a); lowest end 0.5 µs (b)");
        let given = OurFigure { limit: Some(Limit::at_most(1.0, Unit::Times)), ..OurFigure::exact(1.5) };
        let row = claim(PROMISE, given);
        assert_eq!((row.published.as_str(), row.ours.as_str(), row.verdict), ("at most 1 ×", "1.5 ×", Verdict::Missed));
        let row = claim(promised("w", Limit::holds("it is")), OurFigure::holds(false, "it is not".to_owned()));
        assert_eq!((row.ours.as_str(), row.verdict), ("it is not", Verdict::Missed));
    }
}
