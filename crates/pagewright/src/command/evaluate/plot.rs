//! Draws plots as SVG.
//!
//! A plot has a line for each series, with the spread as bars. The horizontal axis, sizes or
//! numbers of CPUs, is logarithmic. The browser sets the text, so its width is only estimated here.

use super::{Plot, PlotAxis};
use plotters::prelude::*;

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 0, 0),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Width of a plot in pixels, the legend included.
const WIDTH: u32 = 960;
/// Width of the legend in pixels.
const LEGEND: u32 = 130;

/// Draws a plot as an SVG element.
pub(super) fn svg(plot: &Plot) -> Result<String, String> {
    let mut text = String::new();
    draw(plot, SVGBackend::with_string(&mut text, (WIDTH, 420)).into_drawing_area())
        .map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(
    plot: &Plot,
    area: DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || plot.series.iter().flat_map(|series| &series.points);
    let log = |bytes: u64| (bytes as f64).log2();
    let (low, high) =
        points().fold((f64::MAX, f64::MIN), |(low, high), (bytes, _)| (low.min(log(*bytes)), high.max(log(*bytes))));
    let top = points().map(|(_, stats)| stats.p90).fold(0.0, f64::max);
    if low > high {
        return Err("the plot has no points".into());
    }
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(WIDTH - LEGEND);
    let mut chart = ChartBuilder::on(&left)
        .caption(&plot.title, ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(48)
        .y_label_area_size(56)
        .build_cartesian_2d(low - 0.3..high + 0.3, 0.0..top * 1.08)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_labels((high - low) as usize + 1)
        .x_label_formatter(&|log| label(plot.axis, *log))
        .y_desc(plot.unit)
        .x_desc(axis_name(plot.axis))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    for (row, (series, colour)) in (0..).zip(plot.series.iter().zip(COLOURS.iter().cycle())) {
        let medians = series.points.iter().map(|(bytes, stats)| (log(*bytes), stats.median));
        chart.draw_series(LineSeries::new(medians, colour.stroke_width(2)).point_size(3))?;
        chart.draw_series(series.points.iter().map(|(bytes, stats)| {
            PathElement::new(vec![(log(*bytes), stats.p10), (log(*bytes), stats.p90)], colour.stroke_width(1))
        }))?;
        let y = 60 + 22 * row;
        right.draw(&PathElement::new(vec![(4, y), (26, y)], colour.stroke_width(2)))?;
        right.draw(&Text::new(series.name.clone(), (32, y - 7), ("sans-serif", 15)))?;
    }
    area.present()?;
    Ok(())
}

fn axis_name(axis: PlotAxis) -> &'static str {
    match axis {
        PlotAxis::Bytes => "extent",
        PlotAxis::Cpus => "CPUs",
    }
}

/// The label at a power of two; empty between two powers.
fn label(axis: PlotAxis, log: f64) -> String {
    if (log - log.round()).abs() > 0.01 {
        return String::new();
    }
    let number = 1 << log.round() as u64;
    match axis {
        PlotAxis::Bytes => size(number),
        PlotAxis::Cpus => number.to_string(),
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
    use super::super::{Series, Stats};
    use super::*;

    #[test]
    fn a_plot_has_a_line_and_a_name_for_each_series() {
        let points = [12u32, 20, 30].map(|log| (1u64 << log, Stats::of(vec![f64::from(log)]))).to_vec();
        let plot = Plot {
            title: "Cold".to_owned(),
            unit: "GB/s",
            axis: PlotAxis::Bytes,
            series: vec![Series { name: "movnti".to_owned(), points }],
        };
        let drawn = svg(&plot).expect("a plot");
        for text in ["<svg", "movnti", "Cold", "GB/s", "<polyline", "1 MiB"] {
            assert!(drawn.contains(text), "{text} in {drawn}");
        }
        assert!(svg(&Plot { title: String::new(), unit: "", axis: PlotAxis::Cpus, series: Vec::new() }).is_err());
    }

    #[test]
    fn sizes_are_printed_in_the_largest_unit() {
        for (bytes, text) in [(512, "512 B"), (4096, "4 KiB"), (2 << 20, "2 MiB"), (4 << 30, "4 GiB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
