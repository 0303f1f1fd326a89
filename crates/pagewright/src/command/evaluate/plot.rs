//! Draws plots as SVG.
//!
//! A plot has a group of marks for each size, number of CPUs or name: in it each series has a place
//! of its own, so that no mark covers another, with the median as a dot and the spread as a bar.
//! Text and lines have the colour of the page's text. There is a wide and a narrow drawing, because
//! text in a drawing shrinks with it.

use super::{Plot, PlotAxis, PlotScale, Series, Stats};
use crate::page::escaped;
use plotters::data::float::FloatPrettyPrinter;
use plotters::prelude::*;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// Colours that colour-blind readers can distinguish (Okabe and Ito), on light and on dark.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 129, 199),
    RGBColor(222, 98, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(196, 136, 0),
    RGBColor(128, 128, 128),
];

/// Widths of the drawings and radii of their dots in pixels, with the names of their classes.
///
/// Nine groups of six dots do not touch.
const DRAWINGS: [(u32, i32, &str); 2] = [(1000, 3, "wide"), (400, 2, "narrow")];
const HEIGHT: u32 = 340;
/// The part of a group's width that its marks take.
const GROUP: f64 = 0.76;

fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// Draws a plot as an HTML figure with its legend.
pub(super) fn figure(plot: &Plot) -> Result<String, String> {
    let mut text = format!("<figure><figcaption>{}</figcaption>\n<ul class=\"legend\">", escaped(&plot.title));
    for (index, series) in plot.series.iter().enumerate() {
        let RGBColor(red, green, blue) = colour(index);
        // Writing to a String never fails.
        let _ = write!(
            text,
            "<li><svg viewBox=\"0 0 8 8\"><circle cx=\"4\" cy=\"4\" r=\"4\" fill=\"rgb({red},{green},{blue})\"/></svg>{}",
            escaped(&series.name)
        );
    }
    text.push_str("</ul>\n");
    for (width, radius, class) in DRAWINGS {
        let mut drawn = String::new();
        draw(plot, radius, SVGBackend::with_string(&mut drawn, (width, HEIGHT)).into_drawing_area())
            .map_err(|error| error.to_string())?;
        let drawn = drawn.replace("#000000", "currentColor");
        text.push_str(&drawn.replacen("<svg ", &format!("<svg class=\"{class}\" "), 1));
    }
    text.push_str("</figure>\n");
    Ok(text)
}

fn draw(
    plot: &Plot,
    radius: i32,
    area: DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let groups: Vec<u64> = points().map(|(at, _)| *at).collect::<BTreeSet<_>>().into_iter().collect();
    if groups.is_empty() {
        return Err("the plot has no points".into());
    }
    let heights = heights(plot.scale, points().map(|(_, stats)| stats));
    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d(-0.5..groups.len() as f64 - 0.5, heights.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.5))
        .x_labels(groups.len() + 1)
        .x_label_formatter(&|at| label(&plot.axis, &groups, *at))
        .y_label_formatter(&|at| height_label(plot.scale, *at))
        .label_style(("sans-serif", 13))
        .y_desc(plot.unit)
        .x_desc(axis_name(&plot.axis))
        .axis_desc_style(("sans-serif", 13))
        .draw()?;
    // A rule between groups.
    for boundary in 1..groups.len() {
        let at = boundary as f64 - 0.5;
        let rule = PathElement::new(vec![(at, heights.start), (at, heights.end)], BLACK.mix(0.12));
        chart.draw_series([rule])?;
    }
    for (index, series) in plot.series.iter().enumerate() {
        let at = |group: u64| place(&groups, group, index, plot.series.len());
        chart.draw_series(bars(plot.scale, series, &at, colour(index)))?;
        let dots = series.points.iter().map(|(group, stats)| (at(*group), height(plot.scale, stats.median)));
        chart.draw_series(dots.map(|dot| Circle::new(dot, radius, colour(index).filled())))?;
    }
    area.present()?;
    Ok(())
}

/// Where a figure is on the vertical axis.
fn height(scale: PlotScale, figure: f64) -> f64 {
    match scale {
        PlotScale::Linear => figure,
        PlotScale::Logarithmic => figure.max(f64::MIN_POSITIVE).log10(),
    }
}

/// The vertical axis, with room for all figures; whole powers of ten if it is logarithmic.
fn heights<'a>(scale: PlotScale, all: impl Iterator<Item = &'a Stats> + Clone) -> Range<f64> {
    let top = all.clone().map(|stats| height(scale, stats.p90)).fold(f64::NEG_INFINITY, f64::max);
    match scale {
        PlotScale::Linear => 0.0..(top.max(0.0) * 1.08).max(f64::MIN_POSITIVE),
        PlotScale::Logarithmic => {
            let bottom = all.map(|stats| height(scale, stats.p10)).fold(f64::INFINITY, f64::min).floor();
            bottom..top.ceil().max(bottom + 1.0)
        }
    }
}

/// The label of a height; between two powers of ten it is empty.
fn height_label(scale: PlotScale, at: f64) -> String {
    match scale {
        // As plotters does by itself.
        PlotScale::Linear => {
            let printer = FloatPrettyPrinter { allow_scientific: false, min_decimal: 1, max_decimal: 5 };
            printer.print(at)
        }
        PlotScale::Logarithmic if (at - at.round()).abs() > 0.01 => String::new(),
        PlotScale::Logarithmic => format!("{}", 10_f64.powf(at.round())),
    }
}

fn bars<'a>(
    scale: PlotScale,
    series: &'a Series,
    at: &'a dyn Fn(u64) -> f64,
    colour: RGBColor,
) -> impl Iterator<Item = PathElement<(f64, f64)>> + 'a {
    series.points.iter().map(move |(group, stats)| {
        let ends = [stats.p10, stats.p90].map(|figure| (at(*group), height(scale, figure)));
        PathElement::new(ends.to_vec(), colour.stroke_width(2))
    })
}

/// The horizontal place of a series in a group; the groups are one apart.
fn place(groups: &[u64], group: u64, series: usize, of: usize) -> f64 {
    let centre = groups.iter().position(|other| *other == group).unwrap_or(0) as f64;
    centre + GROUP * ((series as f64 + 0.5) / of.max(1) as f64 - 0.5)
}

fn axis_name(axis: &PlotAxis) -> &'static str {
    match axis {
        PlotAxis::Bytes => "extent in bytes",
        PlotAxis::Cpus => "CPUs",
        PlotAxis::Names(_) => "",
    }
}

/// The label of a group; empty between two groups.
fn label(axis: &PlotAxis, groups: &[u64], at: f64) -> String {
    if (at - at.round()).abs() > 0.01 || at < -0.01 {
        return String::new();
    }
    let Some(group) = groups.get(at.round() as usize) else { return String::new() };
    match axis {
        PlotAxis::Bytes => size(*group).replace(" ", "").replace("iB", ""),
        PlotAxis::Cpus => group.to_string(),
        PlotAxis::Names(names) => names.get(*group as usize).cloned().unwrap_or_default(),
    }
}

/// Formats bytes in the largest unit that fits, rounded down.
pub(super) fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fitting = units.into_iter().find(|(shift, _)| bytes >= 1 << shift);
    fitting.map_or_else(|| format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_has_marks_and_a_name_for_each_series_on_wide_and_narrow_pages() {
        let points = [12u32, 20, 30].map(|log| (1u64 << log, Stats::of(vec![f64::from(log)]))).to_vec();
        let series = |name: &str| Series { name: name.to_owned(), points: points.clone() };
        let plot = Plot {
            title: "Cold".to_owned(),
            unit: "GB/s",
            scale: PlotScale::Linear,
            axis: PlotAxis::Bytes,
            series: vec![series("movnti"), series("auto")],
        };
        let drawn = figure(&plot).expect("a plot");
        for text in ["class=\"wide\"", "class=\"narrow\"", "movnti", "auto", "Cold", "GB/s", "\n1M\n"] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
        // Three points of two series, in two drawings, and two marks of the legend.
        assert_eq!(drawn.matches("<circle").count(), 14);
        assert!(!drawn.contains("#000000") && !drawn.contains("#FFFFFF"), "colours of the page");
        assert!(
            figure(&Plot {
                title: String::new(),
                unit: "",
                scale: PlotScale::Linear,
                axis: PlotAxis::Cpus,
                series: Vec::new()
            })
            .is_err()
        );
    }

    #[test]
    fn a_logarithmic_axis_has_whole_powers_of_ten() {
        let all = [3.6, 104_000.0].map(|figure| Stats::of(vec![figure]));
        assert_eq!(heights(PlotScale::Logarithmic, all.iter()), 0.0..6.0);
        assert_eq!(heights(PlotScale::Linear, all.iter()), 0.0..104_000.0 * 1.08);
        let labels = [0.0, 2.5, 5.0].map(|at| height_label(PlotScale::Logarithmic, at));
        assert_eq!(labels, ["1", "", "100000"]);
        assert_eq!(height(PlotScale::Logarithmic, 100.0), 2.0);
    }

    #[test]
    fn no_two_marks_of_a_plot_share_a_place() {
        let groups = [1, 2, 4];
        let all = groups.iter().flat_map(|group| (0..6).map(|series| place(&groups, *group, series, 6)));
        let mut places: Vec<f64> = all.collect();
        places.sort_unstable_by(f64::total_cmp);
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] > 0.1), "{places:?}");
    }

    #[test]
    fn sizes_are_printed_in_the_largest_unit() {
        for (bytes, text) in [(512, "512 B"), (4096, "4 KiB"), (2 << 20, "2 MiB"), (4 << 30, "4 GiB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
