//! The counts of each program image in a replay, compared with Linux's.
//!
//! The counts are minor faults, peak RSS and page tables. Linux's are of a run of the same program
//! without valgrind. A count may differ by a tenth or by one fault, because Linux's own count
//! differs by one from run to run. A larger difference is in [`EXCEPTIONS`], with its cause and its
//! bound.
//!
//! `docs/linux-counts.md` has the comparison. The test fails if that file is out of date, and with
//! `PAGEWRIGHT_WRITE_DOCS=1` it writes the file.

use pagewright_capture::ImageCounts;
use pagewright_capture::replay::{ReplayConfig, ReplayReport, replay};
use pagewright_capture::trace::{NativeCounts, TraceReader};
use pagewright_mm::MmSetting;
use pagewright_sim::{MachineConfig, Profile};
use pagewright_types::IsaKind;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const CAPTURES: [&str; 6] = ["compile", "pigz", "python", "shell", "sort", "sqlite"];
/// The largest difference without a cause, in per cent.
const TOLERANCE: f64 = 10.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Faults,
    Rss,
    Tables,
}

impl Figure {
    const ALL: [Self; 3] = [Self::Faults, Self::Rss, Self::Tables];

    fn name(self) -> &'static str {
        match self {
            Self::Faults => "minor faults",
            Self::Rss => "peak RSS",
            Self::Tables => "page tables",
        }
    }

    fn of(self, image: &ImageCounts) -> Option<u64> {
        match self {
            Self::Faults => Some(image.minor_faults),
            Self::Rss => image.peak_rss_bytes,
            Self::Tables => image.page_table_bytes,
        }
    }

    /// The count in a table, memory in kB.
    fn show(self, value: Option<u64>) -> String {
        match (self, value) {
            (_, None) => "–".to_owned(),
            (Self::Faults, Some(faults)) => faults.to_string(),
            (Self::Rss | Self::Tables, Some(bytes)) => (bytes / 1024).to_string(),
        }
    }
}

/// A count that differs by more than [`TOLERANCE`], and its cause.
struct Exception {
    capture: &'static str,
    /// The processes, by their names in the table.
    processes: &'static [&'static str],
    figure: Figure,
    /// The largest difference, in per cent.
    bound: f64,
    cause: &'static str,
}

const EXCEPTIONS: &[Exception] = &[Exception {
    capture: "shell",
    processes: &["dash", "dash [0]", "dash [1]", "dash [2]", "dash [3]", "dash [4]", "dash [5]"],
    figure: Figure::Faults,
    bound: 13.0,
    cause: "Only Linux has these faults; a list of both sides' faults with their addresses shows them\n\
            (`perf record -e page-faults -d`). After each fork the kernel stores to the restartable-sequences\n\
            area in the thread's control block (`rseq`), which is copy-on-write by then: valgrind refuses\n\
            `rseq` to the program, and prints no argument that says where the area is. Signal frames of\n\
            `SIGCHLD` reach into the next page of the stack, because Linux saves the AVX-512 registers in\n\
            them and valgrind has none. The handler returns through a page of the C library\n\
            (`__restore_rt`), which valgrind replaces by code of its own. Each is one page, of 37 and of 133\n\
            faults.",
}];

fn file(relative: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(relative)
}

fn replayed(capture: &str) -> (ReplayReport, NativeCounts) {
    let mut reader = TraceReader::open(file(&format!("tests/captures/{capture}.pwt"))).unwrap();
    let native = reader.header().native.clone().expect("the capture was recorded with a native run");
    let profile = Profile::named(Profile::default_for(IsaKind::X86_64)).unwrap();
    let mut config = ReplayConfig::new(MachineConfig::new(profile));
    config.settings.push((MmSetting::CowPageTables, 0));
    let report = replay(IsaKind::X86_64, &mut reader, &config).unwrap();
    (report, native)
}

/// A row of the comparison.
struct Row {
    name: String,
    /// Our count and Linux's.
    figures: [(Option<u64>, Option<u64>); 3],
}

impl Row {
    fn of(ours: &ImageCounts, linux: &ImageCounts) -> Self {
        // Linux has no RSS and tables of an image that `execve` replaced, so ours are not shown.
        let figures = Figure::ALL.map(|figure| {
            let linux = figure.of(linux);
            (figure.of(ours).filter(|_| linux.is_some()), linux)
        });
        Self { name: ours.label(), figures }
    }

    fn total(rows: &[Self]) -> Self {
        let sum = |pick: &dyn Fn(&Self) -> Option<u64>| Some(rows.iter().filter_map(pick).sum());
        let figures = [0, 1, 2].map(|index| (sum(&|row| row.figures[index].0), sum(&|row| row.figures[index].1)));
        Self { name: "all".to_owned(), figures }
    }
}

fn percent(ours: u64, linux: u64) -> f64 {
    if linux == 0 { if ours == 0 { 0.0 } else { f64::INFINITY } } else { (ours as f64 / linux as f64 - 1.0) * 100.0 }
}

fn rows(report: &ReplayReport, native: &NativeCounts) -> Vec<Row> {
    assert_eq!(report.images.len(), native.images.len(), "{:?}: each image has counts of Linux", report.command);
    let row = |image: &ImageCounts| {
        let linux = image.find_in(&native.images).unwrap_or_else(|| panic!("Linux has no counts of {image:?}"));
        Row::of(image, linux)
    };
    report.images.iter().map(row).collect()
}

/// The counts that differ too much, and the exceptions that are not needed.
fn complaints(capture: &str, rows: &[Row]) -> Vec<String> {
    let mut complaints = Vec::new();
    let excepted = |row: &Row, figure| {
        EXCEPTIONS
            .iter()
            .find(|known| known.capture == capture && known.figure == figure && known.processes.contains(&&*row.name))
    };
    for row in rows {
        for (figure, (ours, linux)) in Figure::ALL.into_iter().zip(row.figures) {
            let (Some(ours), Some(linux)) = (ours, linux) else { continue };
            let off = percent(ours, linux).abs();
            let bound = excepted(row, figure).map_or(TOLERANCE, |exception| exception.bound);
            let one_fault = figure == Figure::Faults && ours.abs_diff(linux) <= 1;
            if off > bound && !one_fault {
                complaints.push(format!("{capture}: {}: {}: {ours} here, {linux} on Linux", row.name, figure.name()));
            }
        }
    }
    for exception in EXCEPTIONS.iter().filter(|exception| exception.capture == capture) {
        let index = Figure::ALL.iter().position(|figure| *figure == exception.figure).unwrap();
        for process in exception.processes {
            let needed = rows.iter().filter(|row| row.name == **process).any(|row| {
                let (ours, linux) = row.figures[index];
                ours.zip(linux).is_some_and(|(ours, linux)| percent(ours, linux).abs() > TOLERANCE)
            });
            if !needed {
                let figure = exception.figure.name();
                complaints.push(format!("{capture}: {process}: {figure} needs no exception"));
            }
        }
    }
    complaints
}

const INTRODUCTION: &str = "# Our counts beside Linux's

This page compares page faults, resident memory and page tables of each replayed capture with what
Linux counted for the same command. Each capture of
[tests/captures](../tests/captures/README.md) is replayed on x86-64 (4 CPUs, 2 GiB; fork copies page
tables as on Linux: `cow_page_tables=never`). Linux's counts are of a run without valgrind, on the
machine where the capture was recorded.

A program image is a process from its birth or an `execve` to its next `execve` or its end; `[0.1]`
is the second child of the root's first child. Faults inside `execve` count for the image that
called it, as on Linux. RSS is `VmHWM` and page tables are `VmPTE`, both in kB; Linux has neither
for an image that `execve` replaced.

A figure may differ by 10 %, or by one fault, because Linux's own count differs by one from run to
run (a `vfork` child that calls `execve` at once has 2 or 3). The text names every figure that
differs by more, with the cause. `crates/capture/tests/native.rs` asserts these bounds, and writes
this page when it is run as
`PAGEWRIGHT_WRITE_DOCS=1 cargo test -p pagewright-capture --test all native`.

The replay lacks what a capture cannot contain, a few pages of each program: pages that depend on
the variant of a function that the C library chooses (valgrind's processor has no AVX-512, so
`strlen` is another function in another page), the kernel's stores for `rseq`, and the full size of
Linux's signal frames.
";

fn document(captures: &[(&str, NativeCounts, Vec<Row>)]) -> String {
    let mut text = INTRODUCTION.to_owned();
    for (capture, native, rows) in captures {
        writeln!(text, "\n## {capture}\n\nLinux {}, transparent huge pages {}.\n", native.kernel, native.thp).unwrap();
        text.push_str("| image | faults | Linux | % | RSS | Linux | % | page tables | Linux | % |\n");
        text.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
        for row in rows.iter().chain(&[Row::total(rows)]) {
            write!(text, "| {} |", row.name).unwrap();
            for (figure, (ours, linux)) in Figure::ALL.into_iter().zip(row.figures) {
                let off = ours.zip(linux).map_or("–".to_owned(), |(ours, linux)| {
                    let percent = percent(ours, linux);
                    // A zero has no minus.
                    format!("{:+.1}", if percent.abs() < 0.05 { 0.0 } else { percent })
                });
                write!(text, " {} | {} | {off} |", figure.show(ours), figure.show(linux)).unwrap();
            }
            text.push('\n');
        }
        for exception in EXCEPTIONS.iter().filter(|exception| exception.capture == *capture) {
            let (figure, processes) = (exception.figure.name(), exception.processes.join(", "));
            writeln!(text, "\n**{figure} of {processes}**\n(at most {} % off).\n{}", exception.bound, exception.cause)
                .unwrap();
        }
    }
    text
}

#[test]
fn counts_of_each_image_differ_from_linux_by_a_tenth_or_have_a_cause() {
    let mut captures = Vec::new();
    let mut all = Vec::new();
    for capture in CAPTURES {
        let (report, native) = replayed(capture);
        assert_eq!(report.diverged, [""; 0], "{capture}: every result is that of Linux");
        let rows = rows(&report, &native);
        all.extend(complaints(capture, &rows));
        all.extend(complaints_of_total(capture, &Row::total(&rows)));
        captures.push((capture, native, rows));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
    let (path, text) = (file("docs/linux-counts.md"), document(&captures));
    if std::env::var_os("PAGEWRIGHT_WRITE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "docs/linux-counts.md is out of date: set PAGEWRIGHT_WRITE_DOCS=1 and run this test");
}

/// The sums of a capture that differ too much; they have no exceptions.
fn complaints_of_total(capture: &str, total: &Row) -> Vec<String> {
    let off = |(ours, linux): (Option<u64>, Option<u64>)| percent(ours.unwrap(), linux.unwrap()).abs();
    let figures = Figure::ALL.into_iter().zip(total.figures).filter(|(_, figures)| off(*figures) > TOLERANCE);
    figures.map(|(figure, figures)| format!("{capture}: {} of all images: {figures:?}", figure.name())).collect()
}
