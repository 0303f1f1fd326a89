//! How the project reads: words, widths and first lines of comments, messages and documents.
//!
//! [`passages`] finds what a person reads in a file; [`words`] refuses wordings that a reader
//! stumbles over; [`first_line`] asks for one sentence that stands alone; [`width`] for a hundred
//! columns. Code, tables, transcripts and quotations are exempt, by their marks and never by a
//! list.
//!
//! Not guaranteed: that a sentence is true, or a pleasure.

mod first_line;
mod passages;
mod width;
mod words;

use super::Finding;
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::File;
use passages::Passage;
use std::fs;
use std::path::{Path, PathBuf};

/// What is checked of one file: code or a document.
struct Page {
    path: PathBuf,
    passages: Vec<Passage>,
}

/// Checks every Rust file and every Markdown document.
pub(crate) fn check(workspace: &Workspace, files: &[File]) -> Result<Vec<Finding>, Error> {
    let mut pages: Vec<Page> =
        files.iter().map(|file| Page { path: file.path.clone(), passages: passages::of_code(file) }).collect();
    for path in documents(&workspace.workspace_root)? {
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        pages.push(Page { path: workspace.shown(&path).to_path_buf(), passages: passages::of_document(&text) });
    }
    Ok(pages.iter().flat_map(check_page).collect())
}

fn check_page(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in &page.passages {
        let breaches = words::check(passage).chain(first_line::check(passage)).chain(width::check(passage));
        findings.extend(breaches.map(|(line, breach)| Finding { path: page.path.clone(), line, breach }));
    }
    findings
}

/// Every Markdown document that users or developers read.
fn documents(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            let path = entry.map_err(Error::file(&folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !(name == "target" || name.starts_with('.')) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
