//! A link of a document leads to a file of this repository, and to a heading that the file has.
//!
//! Links are checked outside code. Addresses of the web are not looked up.
//!
//! Not guaranteed: that the other end says what the text of the link promises.

use super::{Breach, Finding};
use crate::source::Document;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Checks the links of every document below `root`.
pub(crate) fn check(root: &Path, documents: &[Document]) -> Vec<Finding> {
    let anchors: BTreeMap<&Path, BTreeSet<String>> =
        documents.iter().map(|page| (page.path.as_path(), anchors(&page.text))).collect();
    let mut findings = Vec::new();
    for page in documents {
        for (line, target) in links(&page.text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let end = if file.is_empty() { page.path.clone() } else { resolved(&page.path, file) };
            let leads = (anchors.contains_key(end.as_path()) || root.join(&end).exists())
                && (anchor.is_empty() || anchors.get(end.as_path()).is_none_or(|known| known.contains(anchor)));
            if !leads {
                let breach = Breach::DeadLink { target: target.into() };
                findings.push(Finding { path: page.path.clone(), line, breach });
            }
        }
    }
    findings
}

/// The file to which a link of `page` leads, from the root.
fn resolved(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::Normal(part) => path.push(part),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    path
}

/// The targets of links outside code, but for those of the web, each with its line.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (line, text) in outside_code(text) {
        for (at, _) in text.match_indices("](") {
            let target = text[at + 2..].split(')').next().unwrap_or_default();
            if !target.contains("://") {
                found.push((line, target));
            }
        }
    }
    found
}

/// The lines that are in no block of code, with their numbers from 1.
pub(super) fn outside_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        (!in_code && !fence).then_some((index + 1, line))
    })
}

/// The anchors of the headings of a page, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = outside_code(text).filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(text: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let other = Document { path: "src/other.md".into(), text: "# One\n## `Two`, and two\n".into() };
        let page = Document { path: "src/page.md".into(), text: text.into() };
        let findings = check(root, &[other, page]).into_iter();
        findings
            .map(|finding| match finding.breach {
                Breach::DeadLink { target } => target,
                breach => panic!("{breach}"),
            })
            .collect()
    }

    #[test]
    fn a_link_leads_to_a_file_that_exists() {
        assert_eq!(dead("[a](main.rs) [b](../Cargo.toml) [c](gone.rs)\n"), ["gone.rs"]);
        assert_eq!(dead("[w](https://example.org/x)\n```\n[c](gone.rs)\n```\n"), [""; 0]);
    }

    #[test]
    fn an_anchor_is_a_heading_of_the_page() {
        let text = "## Here\n[a](#here) [b](#there)\n";
        assert_eq!(dead(text), ["#there"]);
        assert_eq!(anchors("# One\n## `Two`, and two\n").into_iter().collect::<Vec<_>>(), ["one", "two-and-two"]);
    }
}
