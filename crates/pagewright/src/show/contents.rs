//! Prints what a capture holds.

use super::number::{grouped, size};
use pagewright_capture::contents::{ProcessContents, TraceContents};
use pagewright_capture::trace::{AddressLayout, MappingSource, NativeCounts, TraceHeader};
use std::io::{self, Write};

/// Number of processes and files that are shown without `--all`.
const SHOWN: usize = 12;

/// Writes the header and the contents of a capture of `bytes` bytes.
///
/// With `all`, it writes each process and each file.
pub(crate) fn contents(
    out: &mut impl Write,
    header: &TraceHeader,
    bytes: u64,
    contents: &TraceContents,
    all: bool,
) -> io::Result<()> {
    writeln!(out, "\n Capture of '{}'\n", header.command.join(" "))?;
    let layout = match header.layout {
        AddressLayout::AsCaptured => "as the capturing tool placed them",
        AddressLayout::Linux => "those of Linux without address randomisation",
    };
    let mappings = match header.mappings {
        MappingSource::SystemCalls => "from the program's calls",
        MappingSource::Premapped => "inferred from the accesses",
    };
    let accesses = contents.fetches + contents.loads + contents.stores;
    let pages = |count: u64| format!("{} ({})", grouped(count), size(count * header.page_size));
    let lines = [
        ("recorded by", header.tool.clone()),
        ("instruction set", header.isa.name().to_owned()),
        ("addresses", layout.to_owned()),
        ("mappings", mappings.to_owned()),
        ("file", format!("{}, {:.2} bytes an event", size(bytes), bytes as f64 / contents.events.max(1) as f64)),
        ("processes, threads", format!("{}, {}", contents.processes.len(), contents.threads())),
        ("events", grouped(contents.events)),
        ("accesses", grouped(accesses)),
        ("  fetches", grouped(contents.fetches)),
        ("  loads", grouped(contents.loads)),
        ("  stores", grouped(contents.stores)),
        ("pages by system calls", grouped(contents.kernel_accesses)),
        ("pages touched", pages(contents.pages)),
        ("  stored to", pages(contents.pages_written)),
        ("  executed", pages(contents.pages_executed)),
        ("memory calls", grouped(contents.call_count())),
    ];
    for (name, text) in lines {
        writeln!(out, " {name:<24} {text}")?;
    }
    counts(out, contents)?;
    processes(out, contents, all)?;
    files(out, contents, all)?;
    match &header.native {
        Some(native) => linux(out, native),
        None => writeln!(out, "\n The capture has no counts of Linux.\n"),
    }
}

fn counts(out: &mut impl Write, contents: &TraceContents) -> io::Result<()> {
    if !contents.calls.is_empty() {
        writeln!(out, "\n {:<26} {:>10} {:>10}", "call", "succeeded", "failed")?;
    }
    for (name, calls) in &contents.calls {
        writeln!(out, " {name:<26} {:>10} {:>10}", grouped(calls.succeeded), grouped(calls.failed))?;
    }
    if !contents.mappings.is_empty() {
        writeln!(out, "\n {:<26} {:>10} {:>14}", "mapping", "made", "kB")?;
    }
    for (kind, counts) in &contents.mappings {
        writeln!(out, " {kind:<26} {:>10} {:>14}", grouped(counts.mappings), grouped(counts.bytes / 1024))?;
    }
    Ok(())
}

/// Says how many rows of a list are hidden.
fn hidden(out: &mut impl Write, rows: usize, shown: usize) -> io::Result<()> {
    if rows > shown { writeln!(out, " {} more; --all shows them", rows - shown) } else { Ok(()) }
}

fn processes(out: &mut impl Write, contents: &TraceContents, all: bool) -> io::Result<()> {
    let processes = &contents.processes;
    let shown = if all { processes.len() } else { processes.len().min(SHOWN) };
    writeln!(
        out,
        "\n {:>7} {:>7} {:>7} {:>14} {:>8} {:>8} {:>6}  images",
        "process", "parent", "threads", "accesses", "pages", "calls", "exit"
    )?;
    for process in &processes[..shown] {
        let ProcessContents { pid, parent, vfork, images, threads, accesses, calls, pages, status } = process;
        let number = |number: &Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let start = match (parent, vfork) {
            (None, _) => "",
            (Some(_), false) => "(fork) ",
            (Some(_), true) => "(vfork) ",
        };
        writeln!(
            out,
            " {pid:>7} {:>7} {threads:>7} {:>14} {:>8} {:>8} {:>6}  {start}{}",
            number(parent),
            grouped(*accesses),
            grouped(*pages),
            grouped(*calls),
            number(status),
            images.join(", then ")
        )?;
    }
    hidden(out, processes.len(), shown)
}

fn files(out: &mut impl Write, contents: &TraceContents, all: bool) -> io::Result<()> {
    let files = &contents.files;
    let shown = if all { files.len() } else { files.len().min(SHOWN) };
    writeln!(out, "\n {:>10}  file", "kB")?;
    for (path, bytes) in &files[..shown] {
        writeln!(out, " {:>10}  {path}", bytes.map_or_else(|| "-".to_owned(), |bytes| grouped(bytes.div_ceil(1024))))?;
    }
    hidden(out, files.len(), shown)
}

fn linux(out: &mut impl Write, native: &NativeCounts) -> io::Result<()> {
    let faults = |pick: fn(&pagewright_capture::ImageCounts) -> u64| native.images.iter().map(pick).sum::<u64>();
    writeln!(
        out,
        "\n On Linux {} (huge pages: {}): {} minor and {} major faults, peak RSS of all images {} kB\n",
        native.kernel,
        native.thp,
        grouped(faults(|image| image.minor_faults)),
        grouped(faults(|image| image.major_faults)),
        grouped(native.footprint() / 1024)
    )
}
