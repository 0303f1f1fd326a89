//! Prints an evaluation as text.

use super::{Claim, Evaluation, RULE, Table};
use std::io::{self, Write};

/// Writes tables, claims and notes.
pub(super) fn evaluation(out: &mut impl Write, evaluation: &Evaluation) -> io::Result<()> {
    writeln!(out, "\n{}: {} ({})\n", evaluation.name, evaluation.title, evaluation.isa)?;
    for (key, value) in evaluation.measured_on.iter().chain(&evaluation.config) {
        writeln!(out, "  {key:<24} {value}")?;
    }
    for table in &evaluation.figures.tables {
        writeln!(out)?;
        write_table(out, table)?;
    }
    writeln!(out, "\nPublished and promised figures, and ours:\n")?;
    writeln!(out, "  {RULE}\n")?;
    for claim in &evaluation.claims {
        write_claim(out, claim)?;
    }
    for note in &evaluation.notes {
        writeln!(out, "Note: {note}")?;
    }
    writeln!(out)
}

/// Writes a table below its title.
pub(in crate::command) fn write_table(out: &mut impl Write, table: &Table) -> io::Result<()> {
    let wide = |text: &String| text.chars().count();
    let columns = 0..table.head.len();
    let widths: Vec<usize> = columns
        .map(|column| table.rows.iter().chain([&table.head]).map(|row| wide(&row[column])).max().unwrap_or(0))
        .collect();
    writeln!(out, "{}:\n", table.title)?;
    for row in [&table.head].into_iter().chain(&table.rows) {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if column == 0 {
                write!(out, "  {cell:<width$}")?;
            } else {
                write!(out, "  {cell:>width$}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Writes a claim: the published figure, ours, the verdict and its reason.
fn write_claim(out: &mut impl Write, claim: &Claim) -> io::Result<()> {
    writeln!(out, "  {} – {}", claim.what, claim.verdict.name())?;
    if claim.is_promise() {
        writeln!(out, "      promised   {}", claim.published)?;
    } else {
        writeln!(out, "      published  {} ({})", claim.published, claim.source)?;
    }
    writeln!(out, "      ours       {}", claim.ours)?;
    for (heading, text) in claim.explanations() {
        writeln!(out, "      {heading:<10} {text}")?;
    }
    Ok(())
}
