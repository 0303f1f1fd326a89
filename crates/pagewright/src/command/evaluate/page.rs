//! Writes evaluations as one HTML page without scripts or other files.
//!
//! The verdicts come first, then the plots, then the tables. The page follows the reader's colour
//! scheme and never scrolls sideways: on a narrow screen each row of a table is a block of its own,
//! and a narrow drawing of each plot is shown.

use super::{Claim, EvaluateError, Evaluation, RULE, Table, Verdict, plot};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// Builds the page.
///
/// # Errors
/// [`EvaluateError::Plot`].
pub(super) fn page(evaluations: &[Evaluation]) -> Result<String, EvaluateError> {
    let mut body = String::new();
    for evaluation in evaluations {
        write_evaluation(&mut body, evaluation)?;
    }
    Ok(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Pagewright: evaluations</title><style>{STYLE}</style>\n{body}</html>\n"
    ))
}

// Writing to a String never fails, so the results of `write!` are ignored in this file.
fn write_evaluation(to: &mut String, evaluation: &Evaluation) -> Result<(), EvaluateError> {
    let _ = writeln!(to, "<h1>{}: {}</h1>", escaped(evaluation.name), escaped(evaluation.title));
    write_claims(to, &evaluation.claims);
    for plot in &evaluation.plots {
        let drawn = plot::figure(plot);
        to.push_str(&drawn.map_err(|reason| EvaluateError::Plot { title: plot.title.clone(), reason })?);
    }
    for table in &evaluation.tables {
        write_table(to, table);
    }
    to.push_str("<h2>Conditions</h2>\n<dl class=\"facts\">\n");
    for (key, value) in evaluation.measured_on.iter().chain(&evaluation.config) {
        let _ = writeln!(to, "<dt>{}<dd>{}", escaped(key), escaped(value));
    }
    to.push_str("</dl>\n");
    for note in &evaluation.notes {
        let _ = writeln!(to, "<p class=\"note\">{}</p>", escaped(note));
    }
    Ok(())
}

/// Writes a table; on a narrow screen each cell is shown with the heading of its column.
fn write_table(to: &mut String, table: &Table) {
    let _ = writeln!(to, "<h2>{}</h2>\n<table>\n<thead><tr>", escaped(&table.title));
    for heading in &table.head {
        let _ = write!(to, "<th>{}", escaped(heading));
    }
    to.push_str("\n<tbody>\n");
    for cells in &table.rows {
        to.push_str("<tr>");
        for (cell, heading) in cells.iter().zip(&table.head) {
            let _ = write!(to, "<td data-label=\"{}\">{}", escaped(heading), escaped(cell));
        }
        to.push('\n');
    }
    to.push_str("</table>\n");
}

/// Writes the number of rows with each verdict, then the rows.
fn write_claims(to: &mut String, claims: &[Claim]) {
    to.push_str("<h2>Published and promised figures, and ours</h2>\n<p class=\"verdicts\">");
    for verdict in Verdict::NAMES {
        let count = claims.iter().filter(|claim| claim.verdict.name() == verdict).count();
        if count > 0 {
            let _ = write!(to, "<span class=\"verdict {0}\">{0} {count}</span> ", verdict);
        }
    }
    let _ = write!(to, "</p>\n<p class=\"note\">{}</p>\n<div class=\"claims\">\n", escaped(RULE));
    for claim in claims {
        let verdict = claim.verdict.name();
        let (heading, from) = if claim.is_promise() {
            ("promised", String::new())
        } else {
            ("published", format!("<br><cite>{}</cite>", source(&claim.source)))
        };
        let _ = write!(
            to,
            "<article class=\"{verdict}\"><h3>{}</h3><span class=\"verdict {verdict}\">{verdict}</span>\n<dl><dt>{heading}<dd>{}{from}<dt>ours, {}<dd>{}",
            escaped(&claim.what),
            escaped(&claim.published),
            claim.kind.name(),
            escaped(&claim.ours),
        );
        for (heading, text) in claim.explanations() {
            let _ = write!(to, "<dt>{heading}<dd class=\"note\">{}", escaped(text));
        }
        to.push_str("</dl></article>\n");
    }
    to.push_str("</div>\n");
}

/// Formats the source of a figure; the message id of a mail becomes a link.
fn source(text: &str) -> String {
    let shown = escaped(text);
    if text.contains('@') && !text.contains(char::is_whitespace) {
        format!("<a href=\"https://lore.kernel.org/r/{shown}\">{shown}</a>")
    } else {
        shown
    }
}

/// Escapes text for an element or an attribute.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::{Comparison, FigureKind, Plot, PlotAxis, PlotScale, Promise, Series, Stats};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn message_ids_are_linked_and_other_sources_are_not() {
        assert_eq!(source("1-2@host"), "<a href=\"https://lore.kernel.org/r/1-2@host\">1-2@host</a>");
        assert_eq!(source("the same thread"), "the same thread");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
        let mut to = String::new();
        let rows = vec![vec!["<i>".to_owned(), "1".to_owned()]];
        write_table(&mut to, &Table { title: "T".to_owned(), head: vec!["a".to_owned(), "b".to_owned()], rows });
        assert!(to.contains("<td data-label=\"a\">&lt;i&gt;<td data-label=\"b\">1") && !to.contains("<i>"), "{to}");
    }

    #[test]
    fn a_verdict_of_figures_and_promises_is_counted_once() {
        let promise = || Claim::promised("w", "l", "o", FigureKind::Counted, Promise::Undecided);
        let published = || Claim::published("w", "p", "s", "o", FigureKind::Counted, Comparison::Undecided);
        let mut to = String::new();
        write_claims(&mut to, &[promise(), published(), promise()]);
        assert!(to.contains("undecided 3") && to.matches("undecided ").count() == 1, "{to}");
    }

    #[test]
    fn the_verdicts_come_before_the_plots_and_the_tables() {
        let points = vec![(1, Stats::of(vec![1.0]))];
        let series = vec![Series { name: "s".to_owned(), points }];
        let claim = Claim::promised("w", "l", "o", FigureKind::Counted, Promise::Missed).leaving_out("other cells");
        let evaluation = Evaluation {
            name: "n",
            title: "t",
            isa: "x86-64",
            config: BTreeMap::new(),
            measured_on: BTreeMap::new(),
            runs: Vec::new(),
            claims: vec![claim],
            tables: vec![Table { title: "T".to_owned(), head: vec!["a".to_owned()], rows: Vec::new() }],
            plots: vec![Plot {
                title: "P".to_owned(),
                unit: "u",
                scale: PlotScale::Linear,
                axis: PlotAxis::Cpus,
                series,
            }],
            notes: Vec::new(),
        };
        let page = page(&[evaluation]).expect("a page");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("missed 1") < at("<svg") && at("<svg") < at("<table"));
        assert!(at("other cells") < at("<svg") && page.contains("prefers-color-scheme"));
    }
}
