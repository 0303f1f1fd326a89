//! The cycles of a process that forks: forks that copy page tables beside those that share them.
//!
//! `kernel/programs/cycles.c` runs the matrix of `pagewright evaluate cow-table`, which reads the
//! table that is written here.

use super::count::Row;
use super::{Bench, COPIED, Counted, OPERATIONS, SHARED};
use crate::boot::cases::MACHINES;
use crate::error::Error;
use std::time::Duration;

/// The head of the first column.
pub(super) const HEAD: &str = "thousands of kernel instructions in a cycle";
/// The memory is room for a parent of 1 GiB, a copy of each page, and Linux.
const CYCLES: Counted =
    Counted { source: "cycles.c", memory: &["--mem", "2560M"], allowed: Duration::from_secs(900), ..OPERATIONS };
/// The setting under which all forks share page tables.
const ALWAYS: &str = "--set=cow_page_tables=always";
/// Names of the columns of an instruction set, after Linux's, in the order of [`Counts::ours`].
const WAYS: [(&str, &str); 3] = [("copied", COPIED), ("shared", ALWAYS), ("auto", SHARED)];

/// The counts on one instruction set.
pub(super) struct Counts {
    linux: Vec<Row>,
    /// By setting of `cow_page_tables`, as in [`WAYS`].
    ours: Vec<Vec<Row>>,
}

/// Counts on both instruction sets.
///
/// # Errors
/// [`Error::Findings`], if a program failed.
pub(super) fn count(bench: &Bench) -> Result<Vec<Counts>, Error> {
    let on = |machine| {
        let ways = WAYS.iter().map(|(_, set)| bench.ours(machine, &CYCLES, Some(set), ""));
        let ours = ways.collect::<Result<_, _>>()?;
        let (_, linux) = bench.linux(machine, &CYCLES)?;
        Ok(Counts { linux, ours })
    };
    MACHINES.iter().map(on).collect()
}

/// The lines of the table: name, and for each instruction set Linux and ours.
pub(super) fn lines(columns: &[Counts]) -> Vec<Vec<String>> {
    let mut head = vec![HEAD.to_owned()];
    for machine in MACHINES.iter().take(columns.len()) {
        head.push(format!("{}, Linux", machine.isa));
        head.extend(WAYS.map(|(way, _)| way.to_owned()));
    }
    let names = columns.first().map_or(&[][..], |counts| &counts.linux);
    let line = |(index, row): (usize, &Row)| {
        let mut line = vec![row.name.clone()];
        for rows in columns.iter().flat_map(|counts| [&counts.linux].into_iter().chain(&counts.ours)) {
            let figure = rows.get(index).filter(|other| other.name == row.name).map_or(f64::NAN, Row::each);
            line.push(format!("{:.1}", figure / 1e3));
        }
        line
    };
    std::iter::once(head).chain(names.iter().enumerate().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_has_linux_and_each_setting_of_each_instruction_set() {
        let rows = |kernel| vec![Row { name: "exit, 1 MiB, dense".to_owned(), operations: 1, kernel }];
        let counts = |least| Counts { linux: rows(least), ours: (1..4).map(|way| rows(least + way * 1000)).collect() };
        let lines = lines(&[counts(4_000), counts(20_050)]);
        assert_eq!(lines[0][1..5], ["x86-64, Linux", "copied", "shared", "auto"]);
        assert_eq!(
            lines[1],
            ["exit, 1 MiB, dense", "4.0", "5.0", "6.0", "7.0", "20.1", "21.1", "22.1", "23.1"].map(str::to_owned)
        );
    }
}
