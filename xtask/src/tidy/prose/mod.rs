//! The prose of comments, messages and documents: wordings, widths and first lines.
//!
//! [`passages`] finds the prose of a file. [`words`] refuses wordings that slow a reader down,
//! [`first_line`] requires one sentence that stands alone, and [`width`] limits lines to 100
//! columns. Code, tables, transcripts and quotations are exempt, by their marks and not by a list;
//! [`WORDS`] is exempt from its own list of wordings.
//!
//! Not guaranteed: that a sentence is true, or pleasant to read.

mod first_line;
mod passages;
mod width;
mod words;

use super::Finding;
use crate::source::{Document, File};
use passages::Passage;
use std::path::{Path, PathBuf};

/// The file that lists the refused wordings.
const WORDS: &str = "xtask/src/tidy/prose/words.rs";

/// The prose of a Rust file or of a document.
struct Page {
    path: PathBuf,
    passages: Vec<Passage>,
}

/// Checks every Rust file and every Markdown document.
pub(crate) fn check(files: &[File], documents: &[Document]) -> Vec<Finding> {
    let code = files.iter().map(|file| Page { path: file.path.clone(), passages: passages::of_code(file) });
    let text =
        documents.iter().map(|page| Page { path: page.path.clone(), passages: passages::of_document(&page.text) });
    code.chain(text).flat_map(|page| check_page(&page)).collect()
}

fn check_page(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in &page.passages {
        let wordings = (page.path != Path::new(WORDS)).then(|| words::check(passage)).into_iter().flatten();
        let breaches = wordings.chain(first_line::check(passage)).chain(width::check(passage));
        findings.extend(breaches.map(|(line, breach)| Finding { path: page.path.clone(), line, breach }));
    }
    findings
}
