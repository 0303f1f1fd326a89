//! Writes evaluations as one HTML page without scripts or other files.

use super::{Claim, EvaluateError, Evaluation, Table, plot};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right;\
font-variant-numeric:tabular-nums}td:first-child,th:first-child{text-align:left}.claims td,.claims th{text-align:left;vertical-align:top}\
.figures td{white-space:nowrap}svg{max-width:100%;height:auto}.note{color:#555}.differs{color:#a40}.reproduced,.better{color:#175}";

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
    let _ = writeln!(to, "<h1>{}: {}</h1>\n<table>", escaped(evaluation.name), escaped(evaluation.title));
    for (key, value) in evaluation.measured_on.iter().chain(&evaluation.config) {
        let _ = writeln!(to, "<tr><td>{}<td style=\"text-align:left\">{}", escaped(key), escaped(value));
    }
    to.push_str("</table>\n");
    for plot in &evaluation.plots {
        let svg = plot::svg(plot);
        to.push_str(&svg.map_err(|reason| EvaluateError::Plot { title: plot.title.clone(), reason })?);
    }
    for table in &evaluation.tables {
        write_table(to, table);
    }
    write_claims(to, &evaluation.claims);
    for note in &evaluation.notes {
        let _ = writeln!(to, "<p class=\"note\">{}</p>", escaped(note));
    }
    Ok(())
}

fn write_table(to: &mut String, table: &Table) {
    let _ = writeln!(to, "<h2>{}</h2>\n<table class=\"figures\">", escaped(&table.title));
    let row = |to: &mut String, cells: &[String], tag: &str| {
        to.push_str("<tr>");
        for cell in cells {
            let _ = write!(to, "<{tag}>{}", escaped(cell));
        }
        to.push('\n');
    };
    row(to, &table.head, "th");
    table.rows.iter().for_each(|cells| row(to, cells, "td"));
    to.push_str("</table>\n");
}

fn write_claims(to: &mut String, claims: &[Claim]) {
    to.push_str("<h2>Published and promised figures, and ours</h2>\n<table class=\"claims\"><tr><th>figure<th>published or promised<th>ours<th>verdict\n");
    for claim in claims {
        let verdict = claim.verdict.name();
        let _ = writeln!(
            to,
            "<tr><td>{}<td>{}<br><span class=\"note\">{}</span><td>{}<td><span class=\"{verdict}\">{verdict}</span><br><span class=\"note\">{}</span>",
            escaped(&claim.what),
            escaped(&claim.published),
            source(&claim.source),
            escaped(&claim.ours),
            escaped(&claim.reason)
        );
    }
    to.push_str("</table>\n");
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(to.contains("<td>&lt;i&gt;<td>1") && !to.contains("<i>"));
    }
}
