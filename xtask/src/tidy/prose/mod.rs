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
use crate::cargo::Workspace;
use crate::error::Error;
use crate::source::File;
use passages::Passage;
use std::fs;
use std::path::{Path, PathBuf};

/// The file that lists the refused wordings.
const WORDS: &str = "xtask/src/tidy/prose/words.rs";

/// The prose of a Rust file or of a document.
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
        let wordings = (page.path != Path::new(WORDS)).then(|| words::check(passage)).into_iter().flatten();
        let breaches = wordings.chain(first_line::check(passage)).chain(width::check(passage));
        findings.extend(breaches.map(|(line, breach)| Finding { path: page.path.clone(), line, breach }));
    }
    findings
}

/// Every Markdown document of the repository.
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
