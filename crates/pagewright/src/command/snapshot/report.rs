//! What `pagewright snapshot` prints, and writes as JSON.
//!
//! Key type: [`SnapshotReport`]. Counted, measured, predicted and modelled figures are apart: in
//! the document by their members, on the terminal by their columns.

use super::super::evaluate::{Table, write_table};
use super::costs::{ForkCosts, ForkTime};
use super::counts::{Exposure, ForkedCounts, HugeCounts, HugeSetting, KindCounts, TableCounts};
use super::process::{MappingKind, PAGE, ProcessMemory};
use super::shared::SharedFork;
use crate::show::{counted, size};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What the figures rest on, and what holds if it is not so.
const ASSUMPTIONS: [(&str, &str); 13] = [
    ("one moment", "the process changes nothing while it is read; later stores and mappings are not seen"),
    ("geometry", "pages of 4 KiB and page tables of four levels; a table takes 4 KiB, and VmPTE leaves the root out"),
    ("tables with pages", "a table has a present or swapped page; the difference to VmPTE is tables without one"),
    (
        "copied mappings",
        "Linux copies a private mapping that has an anonymous page or swap now, and special ones; \
      one that had such a page and has none left is copied, too, and is not counted",
    ),
    ("huge leaves", "a huge page of anonymous memory has a deposited table, and fork deposits another for the child"),
    ("linear cost", "a fork costs a base, and a sum over entries, tables, mappings and huge leaves"),
    (
        "costs of now",
        "entries and tables cost what they cost this process a moment ago, with as many entries below each \
      table, and if memory allows with as many tables; before a fork the process stores to as much \
      other memory as is resident, up to 64 MiB: page tables that stay in the caches cost up to half less",
    ),
    (
        "same entries",
        "file and swapped entries cost what entries of anonymous pages cost; pages that an earlier child \
      still maps cost less, folios of several pages less",
    ),
    (
        "rest of fork",
        "open files, signal handlers and control groups cost what they cost this process; no page is \
      pinned; other threads run on no CPU",
    ),
    (
        "shared tables",
        "modelled: Linux shares no tables; a pointer costs what an entry costs, and a table and a mapping \
      what they cost above; only the mappings whose entries Linux copies have tables",
    ),
    (
        "exposure",
        "each writable page is stored to by parent or child while both live; huge pages are split and \
      copied by 4 KiB",
    ),
    ("filled huge pages", "each aligned range with a page becomes a huge page, and memory for it is found"),
    (
        "zeroes",
        "pages of zeroes count as present; as anonymous, not exclusive pages, whose first store takes a page \
      with or without a fork",
    ),
];

/// The JSON document of `snapshot`.
#[derive(Serialize)]
pub(super) struct SnapshotReport {
    pid: i32,
    command: String,
    threads: u64,
    counted: CountedFigures,
    measured: MeasuredFigures,
    predicted: PredictedFigures,
    modelled: ModelledFigures,
    assumptions: BTreeMap<&'static str, &'static str>,
}

/// Figures that were counted in `/proc` or on our memory manager.
#[derive(Serialize)]
struct CountedFigures {
    mappings: BTreeMap<&'static str, KindCounts>,
    tables: TableCounts,
    table_bytes: u64,
    /// Linux's own counts.
    vm_pte_bytes: u64,
    vm_rss_bytes: u64,
    copied: ForkedCounts,
    shared_fork: SharedFork,
    exposure: Exposure,
    exposed_bytes: u64,
    exposed_table_bytes: u64,
    huge_pages: BTreeMap<&'static str, HugeFigures>,
}

/// What huge pages would hold with a setting.
#[derive(Serialize)]
struct HugeFigures {
    #[serde(flatten)]
    counts: HugeCounts,
    bytes: u64,
    bytes_more: u64,
}

/// Figures of clocks.
#[derive(Serialize)]
struct MeasuredFigures {
    costs: ForkCosts,
}

/// Linux's fork of the process.
#[derive(Serialize)]
struct PredictedFigures {
    fork_ns: f64,
    parts: ForkTime,
    child_table_bytes: u64,
}

/// A fork that shares tables.
#[derive(Serialize)]
struct ModelledFigures {
    shared_fork_ns: f64,
    parts: ForkTime,
}

impl SnapshotReport {
    pub(super) fn new(process: &ProcessMemory, costs: ForkCosts, shared_fork: SharedFork) -> Self {
        let copied = ForkedCounts::of(process);
        let tables = TableCounts::of(process.mappings.iter());
        let exposure = Exposure::of(process);
        let parts = costs.of(&copied);
        let shared =
            costs.of_shared(&copied, shared_fork.pointers + shared_fork.entries, shared_fork.child_bytes / PAGE);
        let of_kind = |kind: MappingKind| (kind.name(), KindCounts::of_kind(process, kind));
        let huge = |setting: HugeSetting| {
            let counts = HugeCounts::of(process, setting);
            (setting.name(), HugeFigures { bytes: counts.bytes(), bytes_more: counts.bytes_more(), counts })
        };
        Self {
            pid: process.pid,
            command: process.command.clone(),
            threads: process.threads,
            counted: CountedFigures {
                mappings: MappingKind::ALL.map(of_kind).into(),
                tables,
                table_bytes: tables.bytes(),
                vm_pte_bytes: process.vm_pte,
                vm_rss_bytes: process.vm_rss,
                copied,
                shared_fork,
                exposure,
                exposed_bytes: exposure.bytes(),
                exposed_table_bytes: exposure.tables.bytes(),
                huge_pages: HugeSetting::ALL.map(huge).into(),
            },
            measured: MeasuredFigures { costs },
            predicted: PredictedFigures { fork_ns: parts.total_ns(), parts, child_table_bytes: copied.tables.bytes() },
            modelled: ModelledFigures { shared_fork_ns: shared.total_ns(), parts: shared },
            assumptions: ASSUMPTIONS.into(),
        }
    }

    /// Writes the tables and the assumptions.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { pid, command, threads, counted: figures, .. } = self;
        writeln!(
            out,
            "\nProcess {pid}, {command}: {}, {} resident\n",
            counted(*threads, ["thread", "threads"]),
            size(figures.vm_rss_bytes)
        )?;
        for table in [self.mappings(), self.tables(), self.costs(), self.fork(), self.exposure(), self.huge()] {
            write_table(out, &table)?;
            writeln!(out)?;
        }
        writeln!(out, "Assumptions:\n")?;
        ASSUMPTIONS.iter().try_for_each(|(name, text)| writeln!(out, "  {name:<18} {text}"))
    }

    fn mappings(&self) -> Table {
        let row = |(name, counts): (&&str, &KindCounts)| {
            let figures = [counts.entries, counts.huge_leaves, counts.swapped].map(|count| count.to_string());
            [(*name).to_owned(), counts.mappings.to_string(), size(counts.bytes)].into_iter().chain(figures).collect()
        };
        table(
            "Mappings, counted",
            &["kind", "mappings", "addresses", "4 KiB entries", "2 MiB entries", "swapped"],
            self.counted.mappings.iter().map(row),
        )
    }

    fn tables(&self) -> Table {
        let CountedFigures { tables, copied, vm_pte_bytes, shared_fork, .. } = &self.counted;
        let child = &copied.tables;
        let row = |name: &str, process: u64, child: u64| vec![name.to_owned(), process.to_string(), child.to_string()];
        let kib = |name: &str, process: u64, child: u64| row(name, process >> 10, child >> 10);
        let alone = |name: &str, process: String, child: String| vec![name.to_owned(), process, child];
        let without = vm_pte_bytes.saturating_sub(tables.bytes()) >> 10;
        let shared = (shared_fork.child_bytes - PAGE) >> 10;
        table(
            "Page tables, counted",
            &["", "process", "child of a fork (predicted)"],
            [
                row("last-level tables (PTE)", tables.pte, child.pte),
                row("tables of 2 MiB entries (PMD)", tables.pmd, child.pmd),
                row("tables of 1 GiB entries (PUD)", tables.pud, child.pud),
                kib("kB", tables.bytes(), child.bytes()),
                alone("kB, Linux's VmPTE", (vm_pte_bytes >> 10).to_string(), String::new()),
                alone("kB, VmPTE without a page in them", without.to_string(), String::new()),
                alone(
                    "kB if tables are shared, of the child alone, before its first store",
                    String::new(),
                    shared.to_string(),
                ),
            ],
        )
    }

    fn costs(&self) -> Table {
        let costs = &self.measured.costs;
        let by = |name: &str, ns: f64, from: String| vec![name.to_owned(), format!("{ns:.1}"), from];
        let process = format!("{} entries below {} tables", costs.entries, costs.tables);
        let mut rows = vec![
            by("base", costs.base_ns, "pagewright, without what is below".to_owned()),
            by("entry of 4 KiB", costs.entry_ns, process),
            by("table", costs.table_ns, format!("{} tables with an entry each", costs.tables)),
            by("mapping, entries copied", costs.copied_mapping_ns, "mappings of a touched page".to_owned()),
            by("mapping, entries not copied", costs.other_mapping_ns, "mappings of a file".to_owned()),
        ];
        rows.extend(costs.huge_leaf_ns.map(|ns| by("entry of 2 MiB", ns, "huge pages".to_owned())));
        table("Costs of a fork, measured now by forks of pagewright itself", &["", "ns each", "of"], rows)
    }

    fn fork(&self) -> Table {
        let CountedFigures { copied, shared_fork, .. } = &self.counted;
        let micros = |ns: f64| format!("{:.1}", ns / 1e3);
        let row = |name: &str, count: u64, of: fn(&ForkTime) -> f64, shared: u64| {
            let [linux, modelled] = [&self.predicted.parts, &self.modelled.parts].map(|parts| micros(of(parts)));
            vec![name.to_owned(), count.to_string(), linux, shared.to_string(), modelled]
        };
        let mappings = copied.copied_mappings + copied.other_mappings;
        let pointers = shared_fork.pointers + shared_fork.entries;
        table(
            "A fork of the process",
            &["", "Linux copies", "µs, predicted", "tables shared: copies", "µs, modelled"],
            [
                row("base", 1, |time| time.base_ns, 1),
                row("entries, pointers to tables", copied.entries, |time| time.entries_ns, pointers),
                row("tables", copied.tables.tables(), |time| time.tables_ns, shared_fork.child_bytes / PAGE),
                row("huge leaves", copied.huge_leaves, |time| time.huge_leaves_ns, 0),
                row("mappings", mappings, |time| time.mappings_ns, mappings),
                vec![
                    "all".to_owned(),
                    String::new(),
                    micros(self.predicted.fork_ns),
                    String::new(),
                    micros(self.modelled.shared_fork_ns),
                ],
            ],
        )
    }

    fn exposure(&self) -> Table {
        let Exposure { pages, not_exclusive, read_only_pages, tables } = &self.counted.exposure;
        let row = |name: &str, pages: u64| vec![name.to_owned(), pages.to_string(), size(pages * PAGE)];
        let shared = &self.counted.shared_fork;
        let first = (shared.child_bytes_after_store - shared.child_bytes) / PAGE;
        table(
            "Copy-on-write exposure: what stores after a fork copy, counted",
            &["", "pages or tables", "memory"],
            [
                row("pages that are writable", *pages),
                row("of them shared already, or of zeroes", *not_exclusive),
                row("pages that are read-only now", *read_only_pages),
                row("tables if shared, by the first store", first),
                row("tables if shared, by stores to all writable pages", tables.tables()),
            ],
        )
    }

    fn huge(&self) -> Table {
        let row = |(name, figures): (&&str, &HugeFigures)| {
            let HugeCounts { ranges, full, huge_now, entries_now, entries_then, pages } = figures.counts;
            let reach = |entries: u64| size((entries_of_pages(self) * PAGE).checked_div(entries).unwrap_or(0));
            let counts = [ranges, huge_now, full].map(|count| count.to_string());
            let bytes = [pages * PAGE, figures.bytes, figures.bytes_more].map(size);
            let entries = [entries_now, entries_then].map(|count| count.to_string());
            let reaches = [entries_now, entries_then].map(reach);
            [vec![(*name).to_owned()], counts.into(), bytes.into(), entries.into(), reaches.into()].concat()
        };
        table(
            "Huge pages of private anonymous memory, by transparent_hugepage.enabled, counted",
            &[
                "setting",
                "ranges",
                "huge now",
                "full",
                "hold now",
                "would hold",
                "more",
                "entries now",
                "then",
                "per entry now",
                "then",
            ],
            self.counted.huge_pages.iter().map(row),
        )
    }
}

/// Pages of private anonymous memory that are present.
fn entries_of_pages(report: &SnapshotReport) -> u64 {
    let counts = report.counted.mappings.get(MappingKind::PrivateAnonymous.name());
    counts.map_or(0, |counts| counts.entries + counts.huge_leaves * super::process::BLOCK_PAGES)
}

fn table(title: &str, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    Table {
        title: title.to_owned(),
        head: head.iter().map(|cell| (*cell).to_owned()).collect(),
        rows: rows.into_iter().collect(),
    }
}
