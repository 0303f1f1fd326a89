//! A drawing of what each CPU did over modelled time.

use super::escaped;
use pagewright_capture::replay::CpuTimeline;
use std::fmt::Write;

/// Maximum number of CPUs that are drawn.
const CPUS: usize = 16;
/// Heights of the band of a kind and of its columns at most, in units of the drawing.
const BAND: f64 = 22.0;
const COLUMN: f64 = 18.0;
/// Widths of the names and of the columns.
const NAMES: f64 = 78.0;
const WIDTH: f64 = 600.0;

/// The kinds of events, with the colours of their columns, as in the plots.
type Kind = (&'static str, &'static str, fn(&CpuTimeline) -> &Vec<Vec<u64>>);
const KINDS: [Kind; 4] = [
    ("faults", "rgb(0,129,199)", |timeline| &timeline.faults),
    ("shootdowns sent", "rgb(222,98,0)", |timeline| &timeline.shootdowns),
    ("IPIs handled", "rgb(0,158,115)", |timeline| &timeline.ipis),
    ("pages moved", "rgb(204,121,167)", |timeline| &timeline.migrated),
];

/// Draws the first CPUs, a band of columns for each kind of event that happened at all.
///
/// The columns of a kind have one scale on all CPUs.
pub(crate) fn timeline(title: &str, timeline: &CpuTimeline) -> String {
    let most = |kind: &Kind| kind.2(timeline).iter().flatten().copied().max().unwrap_or(0);
    let kinds: Vec<&Kind> = KINDS.iter().filter(|kind| most(kind) > 0).collect();
    let all = timeline.faults.len();
    let slots = kinds.iter().flat_map(|kind| kind.2(timeline)).map(Vec::len).max().unwrap_or(1).max(1);
    let busy = |cpu: usize| kinds.iter().any(|kind| !kind.2(timeline)[cpu].is_empty());
    let cpus: Vec<usize> = (0..all).filter(|cpu| busy(*cpu)).take(CPUS).collect();
    let mut svg = format!("<figure><figcaption>{}</figcaption>\n<ul class=\"legend\">", escaped(title));
    for kind in &kinds {
        let (name, colour, rows) = kind;
        let sum: u64 = rows(timeline).iter().flatten().sum();
        // Writing to a String never fails.
        let _ = write!(
            svg,
            "<li><svg viewBox=\"0 0 8 8\"><rect width=\"8\" height=\"8\" fill=\"{colour}\"/></svg>{name}: {sum}, at most {} in a column",
            most(kind)
        );
    }
    let height = BAND * (cpus.len() * kinds.len()) as f64 + 18.0;
    let _ = writeln!(svg, "</ul>\n<svg class=\"timeline\" viewBox=\"0 0 {} {height}\">", NAMES + WIDTH);
    for (row, cpu) in cpus.iter().enumerate() {
        let top = BAND * (row * kinds.len()) as f64;
        let _ = writeln!(svg, "<text x=\"0\" y=\"{}\">CPU {cpu}</text>", top + COLUMN);
        for (band, (_, colour, rows)) in kinds.iter().enumerate() {
            let base = top + BAND * band as f64 + COLUMN;
            let highest = rows(timeline).iter().flatten().copied().max().unwrap_or(1) as f64;
            for (slot, events) in rows(timeline)[*cpu].iter().enumerate().filter(|(_, events)| **events > 0) {
                let (width, high) = (WIDTH / slots as f64, (COLUMN * *events as f64 / highest).max(1.0));
                let _ = write!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\" fill=\"{colour}\"/>",
                    NAMES + width * slot as f64,
                    base - high,
                    width * 0.9,
                );
            }
            let _ = writeln!(
                svg,
                "<line x1=\"{NAMES}\" x2=\"{}\" y1=\"{base}\" y2=\"{base}\" stroke=\"currentColor\" stroke-opacity=\".25\"/>",
                NAMES + WIDTH
            );
        }
    }
    let end = timeline.slot_ns as f64 * slots as f64 / 1e6;
    let _ = writeln!(
        svg,
        "<text x=\"{NAMES}\" y=\"{0}\">0</text><text x=\"{1}\" y=\"{0}\" text-anchor=\"end\">{end:.3} ms, modelled</text></svg>",
        height - 4.0,
        NAMES + WIDTH
    );
    if cpus.len() < all {
        let _ = write!(svg, "<p class=\"note\">{} of {all} CPUs are drawn.</p>", cpus.len());
    }
    svg.push_str("</figure>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_happened_has_a_band_on_each_busy_cpu() {
        let none = vec![Vec::new(); 3];
        let faults = vec![vec![4, 0, 2], Vec::new(), vec![1]];
        let drawn = CpuTimeline {
            slot_ns: 1000,
            faults,
            shootdowns: vec![vec![1], Vec::new(), Vec::new()],
            ipis: none.clone(),
            migrated: none,
        };
        let svg = timeline("CPUs", &drawn);
        assert!(svg.contains("faults: 7, at most 4") && svg.contains("shootdowns sent: 1") && !svg.contains("IPIs"));
        assert!(svg.contains("CPU 0<") && svg.contains("CPU 2<") && !svg.contains("CPU 1<"), "{svg}");
        // Three columns of faults, one shootdown, and two marks of the legend.
        assert_eq!(svg.matches("<rect").count(), 6);
        assert!(svg.contains("2 of 3 CPUs") && svg.contains("0.003 ms"), "{svg}");
    }
}
