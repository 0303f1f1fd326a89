//! Writes evaluations as one HTML page.
//!
//! The verdicts come first, then the plots, then the tables. On a narrow screen a narrow drawing of
//! each plot is shown.

use super::{Claim, EvaluateError, Evaluation, RULE, Verdict, plot};
use crate::command::mechanisms::MECHANISMS;
use crate::made_by::MadeBy;
use crate::page::{Page, escaped};
use std::fmt::Write;

/// Builds the page.
pub(super) fn page(evaluations: &[Evaluation], made_by: &MadeBy) -> Result<String, EvaluateError> {
    let introduction = "Pagewright repeats published measurements of mechanisms for memory management, and \
        measures its own. Each part of this page is a mechanism: first the published figures and what was \
        promised, with a verdict each, then plots, tables, and the conditions of the figures. A figure is \
        counted on simulated machines, measured on this computer by a clock, or modelled from the costs of \
        a processor; each says which.";
    let mut page = Page::new("Pagewright: evaluations", introduction, made_by);
    write_decisions(&mut page, evaluations);
    for evaluation in evaluations {
        let title = format!("{}: {}", evaluation.name, evaluation.title);
        let part = |page: &mut Page| write_evaluation(page, evaluation);
        // A page of many parts is long, so a reader opens them.
        if evaluations.len() > 1 { page.closed(&title, part)? } else { page.part(&title, part)? }
    }
    Ok(page.finish())
}

/// Writes what each mechanism is, for which work, when not, and its verdicts.
fn write_decisions(page: &mut Page, evaluations: &[Evaluation]) {
    page.html("<h2>Which mechanism for which work</h2>\n<div class=\"decisions\">\n");
    for evaluation in evaluations {
        let words = MECHANISMS.iter().find(|words| words.evaluation == evaluation.name);
        let name = words.map_or(evaluation.title, |words| words.name);
        page.html(&format!("<section><h3>{}</h3>", escaped(name)));
        if let Some(words) = words {
            page.html(&format!("<p>{}.</p>", escaped(words.is)));
            page.facts([("setting", words.setting), ("for", words.suits), ("not for", words.unsuited)].into_iter());
        }
        let mut verdicts = String::new();
        write_verdicts(&mut verdicts, &evaluation.claims);
        page.html(&format!("<p class=\"verdicts\">{}: {verdicts}</p></section>\n", evaluation.name));
    }
    page.html("</div>\n");
}

fn write_evaluation(page: &mut Page, evaluation: &Evaluation) -> Result<(), EvaluateError> {
    let mut claims = String::new();
    write_claims(&mut claims, &evaluation.claims);
    page.html(&claims);
    for plot in &evaluation.figures.plots {
        let drawn = plot::figure(plot);
        page.html(&drawn.map_err(|reason| EvaluateError::Plot { title: plot.title.clone(), reason })?);
    }
    evaluation.figures.tables.iter().for_each(|table| page.table(table));
    page.html("<h3>Conditions</h3>\n");
    let facts = evaluation.measured_on.iter().chain(&evaluation.config);
    page.facts(facts.map(|(name, value)| (name.as_str(), value.as_str())));
    evaluation.notes.iter().for_each(|note| page.note(note));
    Ok(())
}

// Writing to a String never fails, so the results of `write!` are ignored in this file.
/// Writes the number of rows with each verdict.
fn write_verdicts(to: &mut String, claims: &[Claim]) {
    for verdict in Verdict::ALL {
        let count = claims.iter().filter(|claim| claim.verdict == verdict).count();
        if count > 0 {
            let _ = write!(to, "<span class=\"verdict {0}\">{0} {count}</span> ", verdict.name());
        }
    }
}

/// Writes the number of rows with each verdict, then the rows.
fn write_claims(to: &mut String, claims: &[Claim]) {
    to.push_str("<h3>Published and promised figures, and ours</h3>\n<p class=\"verdicts\">");
    write_verdicts(to, claims);
    let _ = write!(to, "</p>\n<p class=\"note\">{}</p>\n<div class=\"claims\">\n", escaped(RULE));
    for claim in claims {
        let verdict = claim.verdict.name();
        let (heading, from) = if claim.is_promise() {
            ("promised", String::new())
        } else {
            ("published", format!("<br><cite>{}</cite>", source(claim.source)))
        };
        let _ = write!(
            to,
            "<article class=\"{verdict}\"><h4>{}</h4><span class=\"verdict {verdict}\">{verdict}</span>\n<dl><dt>{heading}<dd>{}{from}<dt>ours, {}<dd>{}",
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

#[cfg(test)]
mod tests {
    use super::super::{Figures, Plot, PlotAxis, PlotScale, Stats, Table};
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn message_ids_are_linked_and_other_sources_are_not() {
        assert_eq!(source("1-2@host"), "<a href=\"https://lore.kernel.org/r/1-2@host\">1-2@host</a>");
        assert_eq!(source("the same thread"), "the same thread");
    }

    #[test]
    fn a_verdict_of_figures_and_promises_is_counted_once() {
        let undecided = |source| Claim::with_verdict(source, Verdict::Undecided);
        let mut to = String::new();
        write_claims(&mut to, &[None, Some("s"), None].map(undecided));
        assert!(to.contains("undecided 3") && to.matches("undecided ").count() == 1, "{to}");
    }

    #[test]
    fn the_verdicts_come_before_the_plots_and_the_tables() {
        let claim = Claim { leaves_out: "other cells".to_owned(), ..Claim::with_verdict(None, Verdict::Missed) };
        let evaluation = Evaluation {
            name: "batch",
            title: "t",
            isa: "x86-64",
            config: BTreeMap::new(),
            measured_on: BTreeMap::new(),
            figures: Figures {
                tables: vec![Table { title: "T".to_owned(), head: vec!["a".to_owned()], rows: Vec::new() }],
                plots: vec![Plot::of("P", "u", PlotScale::Linear, PlotAxis::Cpus, [("s", 1, Stats::exact(1.0))])],
                ..Figures::default()
            },
            claims: vec![claim],
            notes: Vec::new(),
        };
        let page = page(&[evaluation], &MadeBy::now()).expect("a page");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} in {page}"));
        assert!(at("missed 1") < at("<svg") && at("<svg") < at("<table"));
        assert!(at("Batched TLB shootdown") < at("<article") && at("not for") < at("<article"), "{page}");
        assert!(at("other cells") < at("<svg") && page.contains("prefers-color-scheme"));
    }
}
