//! Evaluations as one page for a browser: no script, no other file.

use super::{Claim, EvaluateError, Evaluation, Table, plot};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem;color:#222}\
table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right;\
font-variant-numeric:tabular-nums}td:first-child,th:first-child{text-align:left}.claims td,.claims th{text-align:left;vertical-align:top}\
.figures td{white-space:nowrap}svg{max-width:100%;height:auto}.note{color:#555}.differs{color:#a40}.reproduced,.better{color:#175}";

/// The page.
///
/// # Errors
/// [`EvaluateError::Plot`].
pub(super) fn page(evaluations: &[Evaluation]) -> Result<String, EvaluateError> {
    let mut body = String::new();
    for found in evaluations {
        evaluation(&mut body, found)?;
    }
    Ok(format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>Pagewright: evaluations</title><style>{STYLE}</style>\n{body}</html>\n"
    ))
}

// Writing to a String does not fail, here and below.
fn evaluation(to: &mut String, found: &Evaluation) -> Result<(), EvaluateError> {
    let _ = writeln!(to, "<h1>{}: {}</h1>\n<table>", escaped(found.name), escaped(found.title));
    for (key, value) in found.measured_on.iter().chain(&found.config) {
        let _ = writeln!(to, "<tr><td>{}<td style=\"text-align:left\">{}", escaped(key), escaped(value));
    }
    to.push_str("</table>\n");
    for given in &found.plots {
        let drawn = plot::svg(given);
        to.push_str(&drawn.map_err(|reason| EvaluateError::Plot { title: given.title.clone(), reason })?);
    }
    for given in &found.tables {
        table(to, given);
    }
    claims(to, &found.claims);
    for note in &found.notes {
        let _ = writeln!(to, "<p class=\"note\">{}</p>", escaped(note));
    }
    Ok(())
}

fn table(to: &mut String, table: &Table) {
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

fn claims(to: &mut String, claims: &[Claim]) {
    to.push_str("<h2>Beside what was published, and what we promise</h2>\n<table class=\"claims\"><tr><th>what<th>published, or promised<th>ours<th>verdict\n");
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

/// Where a figure was printed; a mail by its id, which is linked.
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
    fn a_mail_is_linked_and_other_sources_are_not() {
        assert_eq!(source("1-2@host"), "<a href=\"https://lore.kernel.org/r/1-2@host\">1-2@host</a>");
        assert_eq!(source("the same thread"), "the same thread");
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
        let mut to = String::new();
        let rows = vec![vec!["<i>".to_owned(), "1".to_owned()]];
        table(&mut to, &Table { title: "T".to_owned(), head: vec!["a".to_owned(), "b".to_owned()], rows });
        assert!(to.contains("<td>&lt;i&gt;<td>1") && !to.contains("<i>"));
    }
}
