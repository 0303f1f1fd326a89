//! What was compared and what was found, in words.

use super::{Compared, Found};
use pagewright_syscall::KnownDifference;
use std::fmt::Write as _;

/// What was compared: counts by call and errno, by access and signal, and what was left out.
pub fn compared(compared: &Compared) -> String {
    let Compared {
        programs, operations, left_out, cut_short, calls, accesses, signals, lacks, time, not_again, ..
    } = compared;
    let mut text = format!(
        "beside Linux: {programs} programs, {operations} operations compared, {:.1} s (measured)\n",
        time.as_secs_f64()
    );
    let [loads, stores, fetches] = accesses;
    // Writing to a String does not fail.
    let _ = writeln!(text, "  {loads} loads, {stores} stores, {fetches} fetches");
    for (signal, times) in signals {
        let _ = writeln!(text, "  {times} of {signal}");
    }
    let _ = writeln!(
        text,
        "  {left_out} operations left out, {cut_short} programs ended early: they would have run into differences that are meant"
    );
    if *not_again > 0 {
        let _ = writeln!(text, "  {not_again} differences that did not show again when their programs ran twice more");
    }
    for lack in lacks {
        let _ = writeln!(text, "  this kernel lacks {}, which was left out", lack.name());
    }
    let mut last = "";
    for ((name, errno), times) in calls {
        let space = if errno.is_empty() { "" } else { " " };
        let _ = match *name == last {
            true => write!(text, ", {errno}{space}{times}"),
            false => write!(text, "{}  {name:30} {errno}{space}{times}", if last.is_empty() { "" } else { "\n" }),
        };
        last = name;
    }
    text.push_str("\n  meant differences, which these programs keep clear of or allow for (docs/linux-calls.md):\n");
    for difference in KnownDifference::ALL {
        let _ = writeln!(text, "    {}: {}", difference.name(), difference.meaning());
    }
    text
}

/// A difference, the program that shows it, and how to see it again.
pub fn found(found: &Found) -> String {
    let mut text = match &found.difference {
        super::Difference::Seen { operation, process, linux, ours } => {
            format!("FOUND: process {process}: {operation}\n  Linux: {linux}\n  ours:  {ours}\n")
        }
        super::Difference::Left(what) => format!("FOUND: everything has ended, and {what}\n"),
    };
    let (left, drawn) = (found.program.len(), found.whole.len());
    let _ = writeln!(text, "seed {}; {left} of the program's {drawn} operations are left:", found.program.seed);
    let (calm, others) = found.program.steps();
    text.extend(calm.iter().chain(&others).map(|step| format!("  {}\n", step.operation)));
    let _ = writeln!(text, "reproduce with: pagewright check --against linux --program {}", found.program);
    text
}
