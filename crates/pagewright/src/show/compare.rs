//! Prints replays at several values of a setting, and the changes from the first value.
//!
//! A cell is the median over the seeds, with the range if the seeds differ. Counts, memory and
//! modelled times have a table each. Rows in which no seed differs between the values are hidden.

use super::forks;
use super::number::{TimeUnit, grouped};
use super::single::{MEMORY_TIME, header, is_time, remarks};
use crate::page::Table;
use pagewright_capture::ImageCounts;
use pagewright_capture::replay::{NodeReport, ReplayReport, TableMemory};
use std::io::{self, Write};

/// The replays at one value of the setting.
pub(crate) struct ComparedColumn {
    /// The setting with its value.
    pub(crate) heading: String,
    /// A replay for each seed, in the same order in each column.
    pub(crate) reports: Vec<ReplayReport>,
}

/// A figure at one value of the setting.
struct Spread {
    median: u64,
    min: u64,
    max: u64,
}

impl Spread {
    /// The spread of `figures`, which are not empty.
    fn of(figures: &[u64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_unstable();
        let at = |index: usize| sorted.get(index).copied().unwrap_or(0);
        Self { median: at(sorted.len() / 2), min: at(0), max: at(sorted.len().saturating_sub(1)) }
    }

    fn text(&self, number: &dyn Fn(u64) -> String) -> String {
        if self.min == self.max {
            number(self.median)
        } else {
            format!("{} ({}–{})", number(self.median), number(self.min), number(self.max))
        }
    }

    /// The change of the median from `first`, in brackets if the ranges of several seeds overlap.
    fn change_from(&self, first: &Self) -> String {
        let change = super::number::change(first.median, self.median);
        let is_spread = self.min != self.max || first.min != first.max;
        if is_spread && self.min <= first.max && first.min <= self.max { format!("[{change}]") } else { change }
    }
}

/// The rows of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ComparedRows {
    /// All rows.
    All,
    /// The rows in which a seed differs between the values.
    Different,
    /// The rows with a figure above 0.
    Happened,
}

/// A table whose rows have a cell and a change for each value.
pub(super) struct ComparisonTable<'a> {
    columns: &'a [ComparedColumn],
    shown: ComparedRows,
    rows: Vec<Vec<String>>,
    hidden: usize,
}

impl<'a> ComparisonTable<'a> {
    fn new(columns: &'a [ComparedColumn], shown: ComparedRows) -> Self {
        Self { columns, shown, rows: Vec::new(), hidden: 0 }
    }

    fn row(&mut self, name: &str, pick: &dyn Fn(&ReplayReport) -> u64, number: &dyn Fn(&[u64]) -> NumberText) {
        let figures: Vec<Vec<u64>> =
            self.columns.iter().map(|column| column.reports.iter().map(pick).collect()).collect();
        let first = &figures[0];
        let is_shown = match self.shown {
            ComparedRows::All => true,
            ComparedRows::Happened => figures.iter().flatten().any(|figure| *figure > 0),
            ComparedRows::Different => figures.iter().any(|figures| figures != first),
        };
        if !is_shown {
            self.hidden += 1;
            return;
        }
        let number = number(&figures.concat());
        let base = Spread::of(first);
        let mut row = vec![format!("{name}{}", number.unit)];
        for (index, figures) in figures.iter().enumerate() {
            let spread = Spread::of(figures);
            row.push(spread.text(&number.text));
            if index > 0 {
                row.push(spread.change_from(&base));
            }
        }
        self.rows.push(row);
    }

    /// The headings of all cells of a row; `title` is that of the names.
    fn head(&self, title: &str) -> Vec<String> {
        let mut head = vec![title.to_owned()];
        for index in 0..self.columns.len() {
            head.push(heading(self.columns, index));
            head.extend((index > 0).then(|| "change".to_owned()));
        }
        head
    }

    /// The table of an HTML page.
    pub(super) fn page_table(self, title: &str) -> Table {
        let mut head = self.head("");
        if let [_, figure] = &mut head[..] {
            "figure".clone_into(figure);
        }
        Table { title: title.to_owned(), head, rows: self.rows }
    }

    fn print(&self, out: &mut impl Write, title: &str) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let head = self.head(title);
        let rows = || [&head].into_iter().chain(&self.rows);
        let width = |cell: usize| rows().map(|row| row[cell].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..head.len()).map(width).collect();
        for row in rows() {
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match index {
                    0 => write!(out, " {cell:<width$}")?,
                    _ => write!(out, "  {cell:>width$}")?,
                }
            }
            writeln!(out)?;
        }
        writeln!(out)
    }
}

/// Whether the columns have numbers, because the names of several settings are too wide.
pub(super) fn is_numbered(columns: &[ComparedColumn]) -> bool {
    columns.iter().any(|column| column.heading.contains(' '))
}

/// The heading of a column.
pub(super) fn heading(columns: &[ComparedColumn], index: usize) -> String {
    if is_numbered(columns) { format!("#{}", index + 1) } else { columns[index].heading.clone() }
}

/// How the figures of a row are printed.
struct NumberText {
    text: Box<dyn Fn(u64) -> String>,
    /// What follows the name of the row.
    unit: String,
}

fn count(_: &[u64]) -> NumberText {
    NumberText { text: Box::new(grouped), unit: String::new() }
}

/// All times of a row have the unit of the longest.
fn time(figures: &[u64]) -> NumberText {
    let unit = TimeUnit::of(figures.iter().copied().max().unwrap_or(0));
    NumberText { text: Box::new(move |ns| unit.number(ns)), unit: format!(", {}", unit.name()) }
}

/// Writes the comparison.
pub(crate) fn comparison(out: &mut impl Write, columns: &[ComparedColumn], shown: ComparedRows) -> io::Result<()> {
    let Some(report) = columns.first().and_then(|column| column.reports.first()) else { return Ok(()) };
    header(out, report)?;
    if is_numbered(columns) {
        for (index, column) in columns.iter().enumerate() {
            writeln!(out, " {:>3}  {}", heading(columns, index), column.heading)?;
        }
        writeln!(out)?;
    }
    let tables = tables(columns, shown);
    for (title, table) in &tables {
        table.print(out, title)?;
    }
    forks::meaning(out, columns)?;
    let hidden: usize = tables.iter().map(|(_, table)| table.hidden).sum();
    if hidden > 0 {
        writeln!(out, " {hidden} rows are equal in all replays; --all shows them.")?;
    }
    let seeds = columns[0].reports.len();
    if seeds > 1 {
        writeln!(
            out,
            " Each figure is the median of {seeds} seeds, with the range if they differ; [change]: the ranges overlap."
        )?;
    }
    let mut last = columns.iter().filter_map(|column| column.reports.first());
    last.next_back().map_or(Ok(()), |report| remarks(out, report))
}

/// The tables with their titles: counts, memory, and modelled times.
///
/// There is at least one column, with at least one report.
pub(super) fn tables<'a>(
    columns: &'a [ComparedColumn],
    shown: ComparedRows,
) -> [(&'static str, ComparisonTable<'a>); 3] {
    let report = &columns[0].reports[0];
    let mut counts = ComparisonTable::new(columns, shown);
    for (name, _) in report.counters.0.iter().filter(|(name, _)| !is_time(name)) {
        counts.row(name, &|report| report.counters.get(name).unwrap_or(0), &count);
    }
    if report.nodes.len() > 1 {
        by_node(&mut counts, report);
    }
    let mut memory = ComparisonTable::new(columns, shown);
    memory.row(
        "peak RSS, all images, kB",
        &|report| sum_of_images(report, |image| image.peak_rss_bytes) / 1024,
        &count,
    );
    memory.row(
        "page tables, all images, kB",
        &|report| sum_of_images(report, |image| image.page_table_bytes) / 1024,
        &count,
    );
    let mut tables = |name: &str, pick: fn(&TableMemory) -> u64| {
        memory.row(name, &|report| pick(&report.forks.most_tables) / 1024, &count);
    };
    tables("page tables at most, kB", |tables| tables.all_bytes);
    tables("private page tables then, kB", |tables| tables.private_bytes);
    tables("page tables of the largest process, kB", |tables| tables.largest_bytes);
    tables("the same, shared ones in proportion, kB", |tables| tables.largest_proportional_bytes);
    for (index, node) in report.nodes.iter().enumerate() {
        let name = format!("peak in use on node {}, kB", node.node);
        memory.row(&name, &|report| report.nodes.get(index).map_or(0, |node| node.peak_used_bytes) / 1024, &count);
    }
    let mut times = ComparisonTable::new(columns, shown);
    times.row("elapsed", &|report| report.modelled.elapsed_ns, &time);
    times.row("forks, all CPUs", &|report| report.forks.total_ns, &time);
    times.row("longest fork", &|report| report.forks.longest_ns, &time);
    times.row("page walks, all CPUs", &|report| report.modelled.walk_ns, &time);
    times.row("waits for flushes, all CPUs", &|report| report.modelled.flush_wait_ns, &time);
    times.row(MEMORY_TIME, &|report| report.modelled.memory_ns, &time);
    [("counts", counts), ("memory", memory), ("modelled time", times)]
}

/// The promotions to a node, and the demotions from it.
const MOVES: [(&str, &[&str]); 2] = [
    ("pages promoted to", &["pgpromote_success"]),
    ("pages demoted from", &["pgdemote_kswapd", "pgdemote_direct", "pgdemote_proactive"]),
];

/// Adds what happened to the memory of each node, and by its CPUs.
fn by_node(counts: &mut ComparisonTable<'_>, report: &ReplayReport) {
    for (index, node) in report.nodes.iter().enumerate() {
        let of = |pick: fn(&NodeReport) -> u64| move |report: &ReplayReport| report.nodes.get(index).map_or(0, pick);
        let name = |what: &str| format!("{what} node {}, no cache modelled", node.node);
        counts.row(&name("loads of"), &of(|node| node.loads), &count);
        counts.row(&name("stores to"), &of(|node| node.stores), &count);
        for (what, names) in MOVES {
            let moved = |report: &ReplayReport| {
                let of_node = |name: &&str| report.nodes.get(index).and_then(|node| node.counters.get(name));
                names.iter().filter_map(of_node).sum()
            };
            counts.row(&format!("{what} node {}", node.node), &moved, &count);
        }
        let by_cpus = |what: &str| format!("{what} by CPUs of node {}", node.node);
        counts.row(&by_cpus("faults"), &of(|node| node.minor_faults + node.major_faults), &count);
        counts.row(&by_cpus("shootdowns"), &of(|node| node.remote_flushes), &count);
    }
}

/// The sum of a figure over all program images.
pub(super) fn sum_of_images(report: &ReplayReport, pick: fn(&ImageCounts) -> Option<u64>) -> u64 {
    report.images.iter().filter_map(pick).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_range() {
        let text = |figures: &[u64]| Spread::of(figures).text(&grouped);
        assert_eq!(text(&[1500]), "1,500");
        assert_eq!(text(&[7, 7, 7]), "7");
        assert_eq!(text(&[30, 10, 20]), "20 (10–30)");
    }

    #[test]
    fn a_change_within_the_spread_is_in_brackets() {
        let change = |a: &[u64], b: &[u64]| Spread::of(b).change_from(&Spread::of(a));
        assert_eq!(change(&[100], &[90]), "-10.0 %");
        assert_eq!(change(&[99, 100, 101], &[80, 90, 95]), "-10.0 %");
        assert_eq!(change(&[99, 100, 101], &[80, 90, 99]), "[-10.0 %]");
        assert_eq!(change(&[0, 0], &[5, 5]), "-");
    }
}
