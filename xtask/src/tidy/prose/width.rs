//! Lines of comments and documents have at most 100 columns.

use super::passages::{Passage, Setting};
use crate::tidy::Breach;

const COLUMNS: usize = 100;

/// The lines that are too wide; one long word, such as an address, cannot be wrapped.
pub(super) fn check(passage: &Passage) -> impl Iterator<Item = (usize, Breach)> {
    let applies = !matches!(passage.setting, Setting::Message | Setting::TestName);
    passage.lines.iter().filter(move |_| applies).filter_map(|line| {
        let can_break = line.text.split_whitespace().count() > 2;
        let breach = Breach::WideLine { columns: line.columns, limit: COLUMNS };
        (line.columns > COLUMNS && can_break).then_some((line.number, breach))
    })
}

#[cfg(test)]
mod tests {
    use super::super::passages::of_document;
    use super::*;

    #[test]
    fn a_line_over_the_limit_is_reported_if_it_can_be_wrapped() {
        let line = |columns: usize| format!("{}\n", "ab ".repeat(columns).split_at(columns).0);
        let text = [line(100), line(101), format!("- {}\n", "x".repeat(120))].concat();
        let found: Vec<_> = of_document(&text).iter().flat_map(|passage| check(passage).collect::<Vec<_>>()).collect();
        assert_eq!(found, [(2, Breach::WideLine { columns: 101, limit: 100 })]);
    }
}
