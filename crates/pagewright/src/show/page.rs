//! Writes replays as one HTML page: a replay, or a comparison.

use super::compare::{ComparedColumn, ComparedRows, heading, is_numbered, tables};
use super::forks::meaning;
use super::single::{machine, remarks};
use crate::made_by::MadeBy;
use crate::page::{Page, Table, timeline};
use pagewright_capture::replay::ReplayReport;

/// Number of mappings in the table of faults.
const MAPPINGS: usize = 20;

/// Builds the page; `shown` says which rows of a comparison it has.
pub(crate) fn page(columns: &[ComparedColumn], shown: ComparedRows, made_by: &MadeBy) -> String {
    let Some(first) = columns.first().and_then(|column| column.reports.first()) else { return String::new() };
    let (what, shown) = match columns {
        [_] => ("replayed on a simulated machine", ComparedRows::Happened),
        _ => ("replayed on simulated machines that differ in a setting", shown),
    };
    let introduction = format!(
        "The memory accesses and calls of a program were recorded, and {what}: page tables, TLBs and the memory \
         manager, not caches or pipelines. Counts are exact for the machine and its seed. Times are modelled from \
         the costs of the processor; they compare replays, and are no claim about a real clock."
    );
    let mut page = Page::new(&format!("Pagewright: {}", first.command.join(" ")), &introduction, made_by);
    page.facts([("machine", machine(first).as_str())].into_iter());
    if is_numbered(columns) {
        let names: Vec<String> = (0..columns.len()).map(|index| heading(columns, index)).collect();
        page.facts(names.iter().zip(columns).map(|(name, column)| (name.as_str(), column.heading.as_str())));
    }
    page.html(&paragraphs(|text| meaning(text, columns)));
    page.html(&paragraphs(|text| columns.last().map_or(Ok(()), |column| remarks(text, &column.reports[0]))));
    let [counts, memory, times] = tables(columns, shown);
    for (title, table) in [times, memory] {
        page.table(&table.page_table(title));
    }
    for (index, column) in columns.iter().enumerate() {
        if let Some(report) = column.reports.first() {
            let name = heading(columns, index);
            let of = if name.is_empty() { name } else { format!(", {name}") };
            let seed = report.config.get("seed").unwrap_or(0);
            page.html(&timeline(&format!("What each CPU did over time{of}, seed {seed}"), &report.cpus_over_time));
        }
    }
    page.table(&counts.1.page_table(counts.0));
    page.table(&faults(first));
    page.finish()
}

/// The lines that `write` prints, as paragraphs.
fn paragraphs(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to a vector never fails.
    let _ = write(&mut text);
    let text = String::from_utf8_lossy(&text);
    let escaped = text.split("\n\n").map(|paragraph| crate::page::escaped(paragraph.trim()));
    escaped.filter(|paragraph| !paragraph.is_empty()).map(|paragraph| format!("<p>{paragraph}</p>\n")).collect()
}

fn faults(report: &ReplayReport) -> Table {
    let row = |mapping: &pagewright_capture::replay::MappingFaults| {
        vec![mapping.mapping.clone(), mapping.minor_faults.to_string(), mapping.major_faults.to_string()]
    };
    let shown = report.faults_by_mapping.len().min(MAPPINGS);
    Table {
        title: format!("Faults by mapping, {shown} of {} mappings", report.faults_by_mapping.len()),
        head: ["mapping", "minor", "major"].map(str::to_owned).to_vec(),
        rows: report.faults_by_mapping.iter().take(MAPPINGS).map(row).collect(),
    }
}
