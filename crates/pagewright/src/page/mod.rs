//! HTML pages without scripts or other files.
//!
//! Key type: [`Page`], to which `evaluate` and `replay` add parts. A page follows the reader's
//! colour scheme and never scrolls sideways: on a narrow screen each row of a table is a block of
//! its own. `timeline` draws what each CPU did over time.

mod timeline;

use crate::made_by::MadeBy;
use std::fmt::Write;
pub(crate) use timeline::timeline;

const STYLE: &str = include_str!("style.css");

/// Maximum number of rows of a table that is open at first.
const OPEN_ROWS: usize = 12;

/// A table of cells that are already formatted.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A page that is being written.
pub(crate) struct Page {
    title: String,
    body: String,
}

// Writing to a String never fails, so the results of `write!` are ignored in this file.
impl Page {
    /// A page with its heading, what made it, and an introduction of a few sentences.
    pub(crate) fn new(title: &str, introduction: &str, made_by: &MadeBy) -> Self {
        let mut page = Self { title: title.to_owned(), body: String::new() };
        let _ = writeln!(page.body, "<h1>{}</h1>\n<p>{}</p>", escaped(title), escaped(introduction));
        page.facts(made_by.parts().into_iter());
        page
    }

    /// Adds a part with its heading.
    pub(crate) fn part<E>(&mut self, title: &str, write: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let _ = writeln!(self.body, "<h2>{}</h2>", escaped(title));
        write(self)
    }

    /// Adds a part that a reader opens by its heading.
    pub(crate) fn closed<E>(&mut self, title: &str, write: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let _ = writeln!(self.body, "<details class=\"part\"><summary>{}</summary>", escaped(title));
        write(self)?;
        self.body.push_str("</details>\n");
        Ok(())
    }

    /// Adds a paragraph of secondary text.
    pub(crate) fn note(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"note\">{}</p>", escaped(text));
    }

    /// Adds names with their values.
    pub(crate) fn facts<'a>(&mut self, facts: impl Iterator<Item = (&'a str, &'a str)>) {
        self.body.push_str("<dl class=\"facts\">\n");
        for (name, value) in facts {
            let _ = writeln!(self.body, "<dt>{}<dd>{}", escaped(name), escaped(value));
        }
        self.body.push_str("</dl>\n");
    }

    /// Adds a table; a reader opens one with many rows.
    ///
    /// On a narrow screen each cell is shown with the heading of its column.
    pub(crate) fn table(&mut self, table: &Table) {
        let title = escaped(&table.title);
        let is_long = table.rows.len() > OPEN_ROWS;
        let _ = match is_long {
            true => writeln!(self.body, "<details><summary>{title}: {} rows</summary>", table.rows.len()),
            false => writeln!(self.body, "<h3>{title}</h3>"),
        };
        self.body.push_str("<table>\n<thead><tr>");
        for heading in &table.head {
            let _ = write!(self.body, "<th>{}", escaped(heading));
        }
        self.body.push_str("\n<tbody>\n");
        for cells in &table.rows {
            self.body.push_str("<tr>");
            for (cell, heading) in cells.iter().zip(&table.head) {
                let _ = write!(self.body, "<td data-label=\"{}\">{}", escaped(heading), escaped(cell));
            }
            self.body.push('\n');
        }
        self.body.push_str(if is_long { "</table></details>\n" } else { "</table>\n" });
    }

    /// Adds a part that is HTML.
    pub(crate) fn html(&mut self, html: &str) {
        self.body.push_str(html);
    }

    /// The text of the whole page.
    pub(crate) fn finish(self) -> String {
        format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{}</title><style>{STYLE}</style>\n{}</html>\n",
            escaped(&self.title),
            self.body
        )
    }
}

/// Escapes text for an element or an attribute.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
        let mut page = Page::new("T<", "an introduction & more", &MadeBy::now());
        let rows = vec![vec!["<i>".to_owned(), "1".to_owned()]];
        page.table(&Table { title: "T".to_owned(), head: vec!["a".to_owned(), "b".to_owned()], rows });
        let html = page.finish();
        assert!(
            html.contains("<td data-label=\"a\">&lt;i&gt;<td data-label=\"b\">1") && !html.contains("<i>"),
            "{html}"
        );
        assert!(html.contains("<title>T&lt;</title>") && html.contains("an introduction &amp; more"), "{html}");
    }
}
