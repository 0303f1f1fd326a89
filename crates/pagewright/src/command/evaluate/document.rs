//! The results of an evaluation, as the tables, the HTML page and `--json` show them.
//!
//! Key types: [`Evaluation`] with its [`Run`]s and [`Claim`]s. `docs/json.md` says
//! what each member means, and which members are the same, bit for bit, for the same seed.
//!
//! Not guaranteed: the order of the keys of a map.

use super::{Claim, Stats};
use crate::page::Table;
use serde::Serialize;
use std::collections::BTreeMap;

/// The JSON document of `evaluate`.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) evaluations: &'a [Evaluation],
}

/// One evaluation.
#[derive(Serialize)]
pub(crate) struct Evaluation {
    pub(crate) name: &'static str,
    /// The subject, in a few words.
    #[serde(skip)]
    pub(crate) title: &'static str,
    pub(crate) isa: &'static str,
    pub(crate) config: BTreeMap<String, String>,
    /// The computer on which times were measured; empty if none were.
    pub(crate) measured_on: BTreeMap<String, String>,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    pub(crate) claims: Vec<Claim>,
    /// Conditions and limits of the figures.
    pub(crate) notes: Vec<String>,
}

/// The figures of an evaluation, or of a part of it.
#[derive(Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) runs: Vec<Run>,
    #[serde(skip)]
    pub(crate) tables: Vec<Table>,
    #[serde(skip)]
    pub(crate) plots: Vec<Plot>,
}

impl From<Table> for Figures {
    fn from(table: Table) -> Self {
        Self { tables: vec![table], ..Self::default() }
    }
}

impl FromIterator<Figures> for Figures {
    fn from_iter<T: IntoIterator<Item = Figures>>(parts: T) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.runs.extend(part.runs);
            all.tables.extend(part.tables);
            all.plots.extend(part.plots);
        }
        all
    }
}

/// The figures of one configuration.
#[derive(Default, Serialize)]
pub(crate) struct Run {
    pub(crate) label: String,
    pub(crate) input: String,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) modelled: BTreeMap<String, u64>,
    pub(crate) measured: BTreeMap<String, Stats>,
}

impl Run {
    /// A run without figures.
    pub(crate) fn of(label: String, input: String) -> Self {
        Self { label, input, ..Self::default() }
    }

    /// A run with one measured figure.
    pub(crate) fn measured(label: String, input: String, name: &str, stats: Stats) -> Self {
        Self { measured: BTreeMap::from([(name.to_owned(), stats)]), ..Self::of(label, input) }
    }

    /// The run with these counters, too.
    pub(crate) fn with_counters<const N: usize>(mut self, counters: [(&str, u64); N]) -> Self {
        self.counters.extend(counters.map(|(name, count)| (name.to_owned(), count)));
        self
    }
}

/// The quantity on the horizontal axis of a plot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlotAxis {
    /// Size in bytes.
    Bytes,
    /// Number of CPUs.
    Cpus,
    /// Things with these names, by their index.
    Names(Vec<String>),
}

/// How figures are placed on the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlotScale {
    /// From 0.
    Linear,
    /// By their logarithms, for figures of several orders of magnitude.
    Logarithmic,
}

/// A plot, with a group of marks for each size, number of CPUs or name.
pub(crate) struct Plot {
    pub(crate) title: String,
    /// The unit of the vertical axis.
    pub(crate) unit: &'static str,
    pub(crate) scale: PlotScale,
    pub(crate) axis: PlotAxis,
    pub(crate) series: Vec<Series>,
}

/// One line of a plot.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Horizontal position, by the axis, and the figure.
    pub(crate) points: Vec<(u64, Stats)>,
}

impl Plot {
    /// A plot of points, each with the name of its series, its horizontal position and its figure.
    ///
    /// The series are in the order of their first points.
    pub(crate) fn of<N: Into<String>>(
        title: impl Into<String>,
        unit: &'static str,
        scale: PlotScale,
        axis: PlotAxis,
        points: impl IntoIterator<Item = (N, u64, Stats)>,
    ) -> Self {
        let mut series: Vec<Series> = Vec::new();
        for (name, at, stats) in points {
            let name = name.into();
            match series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push((at, stats)),
                None => series.push(Series { name, points: vec![(at, stats)] }),
            }
        }
        Self { title: title.into(), unit, scale, axis, series }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use serde_json::json;

    #[test]
    fn the_document_has_exactly_the_keys_of_its_schema() {
        let stats = Stats::of(vec![2.0]);
        let claim = Claim::with_verdict(Some("s"), Verdict::Undecided);
        let evaluation = Evaluation {
            name: "n",
            title: "",
            isa: "x86-64",
            config: BTreeMap::new(),
            measured_on: BTreeMap::new(),
            figures: Figures {
                runs: vec![Run::measured("l".to_owned(), "i".to_owned(), "gb_per_s", stats)],
                ..Figures::default()
            },
            claims: vec![claim],
            notes: Vec::new(),
        };
        let run = json!({"label": "l", "input": "i", "counters": {}, "modelled": {},
            "measured": {"gb_per_s": {"median": 2.0, "p10": 2.0, "p90": 2.0, "samples": 1}}});
        let claim = json!({"what": "w", "published": "at most 1", "source": "s", "ours": "2", "kind": "measured",
            "verdict": "undecided", "reason": "", "leaves_out": "", "rests_on": ""});
        let expected = json!({"evaluations": [{"name": "n", "isa": "x86-64", "config": {}, "measured_on": {},
            "runs": [run], "claims": [claim], "notes": []}]});
        let document = Document { evaluations: &[evaluation] };
        assert_eq!(serde_json::to_value(&document).expect("plain data"), expected);
    }

    #[test]
    fn points_of_one_name_are_a_series() {
        let points = [("a", 1), ("b", 1), ("a", 2)].map(|(name, at)| (name, at, Stats::exact(at as f64)));
        let plot = Plot::of("t", "u", PlotScale::Linear, PlotAxis::Cpus, points);
        let series: Vec<_> = plot.series.iter().map(|series| (series.name.as_str(), series.points.len())).collect();
        assert_eq!(series, [("a", 2), ("b", 1)]);
    }
}
