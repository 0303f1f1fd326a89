//! The drawing of the lock order in `ARCHITECTURE.md` has each rank of `sync`, in order.
//!
//! Not guaranteed: that a rank is in the right group of the drawing.

use super::{Breach, Finding};
use crate::source::{Document, File};

const PAGE: &str = "ARCHITECTURE.md";
const HEADING: &str = "## The lock order";
const RANKS: &str = "crates/sync/src/rank.rs";

/// Compares the drawing with the table of ranks.
pub(crate) fn check(files: &[File], documents: &[Document]) -> Vec<Finding> {
    let ranks = files.iter().find(|file| file.path.as_path() == RANKS).map_or(Vec::new(), |file| ranks(&file.text));
    let page = documents.iter().find(|page| page.path.as_path() == PAGE);
    let breach = compare(&ranks, page.map_or("", |page| &page.text));
    breach.map(|breach| Finding { path: PAGE.into(), line: 0, breach }).into_iter().collect()
}

/// The names in the rows `NameRank = place` of the table.
fn ranks(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once("Rank = ")).map(|(name, _)| name).collect()
}

/// The first rank that the drawing lacks or has at another place.
fn compare(ranks: &[&str], page: &str) -> Option<Breach> {
    let section = page.split_once(HEADING).map_or("", |(_, section)| section);
    let drawing = section.split("```").nth(1).unwrap_or_default();
    let words = drawing.split(|c: char| !c.is_alphanumeric()).filter(|word| ranks.contains(word));
    let mut drawn = words.map(Some).chain(std::iter::repeat(None));
    let differs = ranks.iter().find(|rank| drawn.next() != Some(Some(**rank)));
    let rank = differs.copied().or_else(|| drawn.next().flatten())?;
    Some(Breach::LockOrder { rank: rank.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "ranks! {\n    /// A.\n    OuterRank = 0;\n    /// B.\n    InnerRank = 1, true;\n}\n";

    fn differs(drawing: &str) -> Option<Breach> {
        compare(&ranks(TABLE), &format!("# A\n{HEADING}\n\n```text\n{drawing}\n```\nInner\n"))
    }

    #[test]
    fn the_drawing_has_each_rank_once_in_order() {
        assert_eq!(ranks(TABLE), ["Outer", "Inner"]);
        assert_eq!(differs("a file  Outer ─▶ Inner"), None);
        let lacks = |rank: &str| Some(Breach::LockOrder { rank: rank.into() });
        assert_eq!(differs("Outer"), lacks("Inner"));
        assert_eq!(differs("Inner ─▶ Outer"), lacks("Outer"));
        assert_eq!(differs("Outer ─▶ Inner ─▶ Inner"), lacks("Inner"));
    }
}
