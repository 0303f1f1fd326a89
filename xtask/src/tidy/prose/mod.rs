//! How the project reads: words, widths and first lines of comments, messages and documents.
//!
//! [`passages`] finds what a person reads in a file; [`words`] refuses wordings that a reader
//! stumbles over; [`first_line`] asks for one sentence that stands alone; [`width`] for a hundred
//! columns. Code, tables, transcripts and quotations are exempt, by their marks and never by a
//! list.
//!
//! The rules are a ratchet: an area in [`PENDING`](super::exceptions::PENDING) is not clean yet. As
//! soon as it is, its row is a finding, and from then on the area stays clean.
//!
//! Not guaranteed: that a sentence is true, or a pleasure.

mod first_line;
mod passages;
mod width;
mod words;

use super::exceptions::Pending;
use super::{Breach, Finding};
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
pub(crate) fn run(workspace: &Workspace, files: &[File], pending: &[Pending]) -> Result<Vec<Finding>, Error> {
    let mut pages: Vec<Page> =
        files.iter().map(|file| Page { path: file.path.clone(), passages: passages::of_code(file) }).collect();
    for path in documents(&workspace.workspace_root)? {
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        pages.push(Page { path: workspace.shown(&path).to_path_buf(), passages: passages::of_document(&text) });
    }
    Ok(ratchet(pages.iter().flat_map(check).collect(), pending))
}

fn check(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for passage in &page.passages {
        let breaches = words::check(passage).chain(first_line::check(passage)).chain(width::check(passage));
        findings.extend(breaches.map(|(line, breach)| Finding { path: page.path.clone(), line, breach }));
    }
    findings
}

/// Drops the findings of pending areas, and reports the areas that have none.
fn ratchet(findings: Vec<Finding>, pending: &[Pending]) -> Vec<Finding> {
    let mut used = vec![false; pending.len()];
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        match pending.iter().position(|area| finding.path.starts_with(area.path)) {
            Some(index) => used[index] = true,
            None => kept.push(finding),
        }
    }
    for (area, _) in pending.iter().zip(used).filter(|(_, used)| !used) {
        let breach = Breach::StaleException { reason: area.reason };
        kept.push(Finding { path: area.path.into(), line: 0, breach });
    }
    kept
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

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str) -> Finding {
        Finding { path: path.into(), line: 1, breach: Breach::NoOpening }
    }

    #[test]
    fn a_pending_area_is_silent_and_a_clean_one_must_leave_the_list() {
        let pending =
            [Pending { path: "crates/a", reason: "rewritten" }, Pending { path: "crates/b", reason: "rewritten" }];
        let kept = ratchet(vec![finding("crates/a/src/lib.rs"), finding("crates/ab/src/lib.rs")], &pending);
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0], finding("crates/ab/src/lib.rs"));
        assert_eq!(kept[1].breach, Breach::StaleException { reason: "rewritten" });
    }
}
