//! `pagewright` without a command: the tour, which shows each mechanism at work.
//!
//! A stop is a row of [`STOPS`]: what it shows, and a function that prints it. A later mechanism
//! adds its row. All stops together take at most a minute once the program is built.
//!
//! - `missing_flush` – a missing TLB flush, found, drawn and replayed.
//! - `published` – published figures of a mechanism beside ours, from `evaluate`.
//! - `off_and_on` – a capture with a mechanism off and on, under the oracle.

mod missing_flush;
mod off_and_on;
mod published;

use super::CommandError;
use std::io::{StdoutLock, Write};
use std::process::ExitCode;
use std::time::Instant;

/// The captures by name; `tests/captures/README.md` says how each was made.
pub(super) const CAPTURES: [(&str, &[u8]); 6] = [
    ("sort", include_bytes!("../../../captures/sort.pwt")),
    ("sqlite", include_bytes!("../../../captures/sqlite.pwt")),
    ("python", include_bytes!("../../../captures/python.pwt")),
    ("compile", include_bytes!("../../../captures/compile.pwt")),
    ("pigz", include_bytes!("../../../captures/pigz.pwt")),
    ("shell", include_bytes!("../../../captures/shell.pwt")),
];

/// How a stop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopEnd {
    /// It showed what its title says.
    Shown,
    /// It did not, and said why.
    Failed,
}

/// A stop of the tour.
struct TourStop {
    title: &'static str,
    /// What to try next.
    next: &'static str,
    show: fn(&mut StdoutLock<'_>) -> Result<StopEnd, CommandError>,
}

const STOPS: [TourStop; 8] = [
    TourStop {
        title: "A munmap without its TLB flush is found",
        next: "docs/check.md: check page-table code of your own",
        show: missing_flush::show,
    },
    TourStop {
        title: "Batched TLB shootdown in reclaim, on arm64",
        next: "pagewright evaluate batch: every machine, number of CPUs and sharer",
        show: published::batch,
    },
    TourStop {
        title: "Pages that move between memory tiers without a TLB flush, on x86-64",
        next: "pagewright evaluate migrc: every count, which pages linger, captures in half of their memory",
        show: published::migrc,
    },
    TourStop {
        title: "Clearing huge pages past the cache, on this computer",
        next: "pagewright evaluate clear: every kind of store, extent and state of the target",
        show: published::clear,
    },
    TourStop {
        title: "Fork with page tables shared, and its time over size beside Linux on this computer",
        next: "pagewright evaluate cow-table: stores after a fork, cycles, snapshots, up to 64 GiB",
        show: published::cow_table,
    },
    TourStop {
        title: "Huge pages: references, a page in two processes, and first stores without clearing",
        next: "pagewright evaluate thp: runs and splits, forks, heaps under never, madvise and always",
        show: published::thp,
    },
    TourStop {
        title: "A captured program that forks, with page tables copied and shared, under the oracle",
        next: "pagewright replay mine.pwt --compare cow_page_tables=never,always --oracle",
        show: off_and_on::forks,
    },
    TourStop {
        title: "A captured program in half of its memory, with batches off and on, under the oracle",
        next: "pagewright record -o mine.pwt -- PROGRAM ARGS…, then pagewright replay mine.pwt --compare tlb_batch=never,auto",
        show: off_and_on::batches,
    },
];

/// Shows all stops; the exit status is 1 if one does not show what its title says.
pub(crate) fn run() -> Result<ExitCode, CommandError> {
    let mut out = std::io::stdout().lock();
    if let Some(token) = missing_flush::token_to_replay()? {
        return Ok(exit_status(missing_flush::replay(&mut out, &token)?));
    }
    let began = Instant::now();
    let mut end = StopEnd::Shown;
    for (number, stop) in STOPS.iter().enumerate() {
        writeln!(out, "\n{}. {}\n", number + 1, stop.title)?;
        out.flush()?;
        if (stop.show)(&mut out)? == StopEnd::Failed {
            end = StopEnd::Failed;
        }
        writeln!(out, "\n   Next: {}", stop.next)?;
    }
    writeln!(out, "\nThe tour took {:.0} s. docs/commands.md lists all commands.", began.elapsed().as_secs_f64())?;
    out.flush()?;
    Ok(exit_status(end))
}

fn exit_status(end: StopEnd) -> ExitCode {
    match end {
        StopEnd::Shown => ExitCode::SUCCESS,
        StopEnd::Failed => ExitCode::FAILURE,
    }
}

/// Writes `text`, indented below the title of the stop.
fn indented(out: &mut impl Write, text: &str) -> std::io::Result<()> {
    text.lines().try_for_each(|line| writeln!(out, "   {line}"))
}
