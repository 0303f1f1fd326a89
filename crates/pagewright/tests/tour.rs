//! The tour: its first screen answers what, for which work and is it safe; its details are short.

use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

/// One run of the tour, which all tests read.
static TOUR: LazyLock<Output> = LazyLock::new(|| {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewright"));
    command.env_remove("PAGEWRIGHT_REPLAY").stdin(Stdio::null()).output().unwrap()
});

/// The name and the evaluation of each mechanism.
const MECHANISMS: [(&str, &str); 5] = [
    ("Deferred flushes of pages that move", "migrc"),
    ("Huge pages cleared past the cache", "clear"),
    ("Huge pages mapped whole and in pieces", "thp"),
    ("Copy-on-write page tables", "cow-table"),
    ("Batched TLB shootdown in reclaim, on arm64", "batch"),
];

fn text() -> &'static str {
    let text = std::str::from_utf8(&TOUR.stdout).unwrap();
    assert_eq!(TOUR.status.code(), Some(0), "{text}\n{}", String::from_utf8_lossy(&TOUR.stderr));
    text
}

/// The first screen, and the details after it.
fn parts() -> (&'static str, &'static str) {
    text().split_at(text().find("\n\nDETAILS").expect("details follow the rows"))
}

/// The blocks of a text, each with its heading.
fn blocks(text: &str) -> Vec<(&'static str, Vec<&str>)> {
    let is_heading = |line: &&str| line.contains("───");
    let mut blocks = Vec::new();
    for line in text.lines() {
        let named = MECHANISMS.iter().find(|(name, _)| is_heading(&line) && line.starts_with(name));
        match (named, blocks.last_mut()) {
            (Some((name, _)), _) => blocks.push((*name, vec![line])),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn the_first_screen_has_the_missing_flush_and_all_rows_in_50_lines_of_80_columns() {
    let (screen, _) = parts();
    assert!(screen.lines().count() <= 50, "{} lines: {screen}", screen.lines().count());
    for line in text().lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
    for words in ["without a TLB flush", "INV-ORACLE-O1", "clears entry", "PAGEWRIGHT_REPLAY=pw1/3993f1e3/list/c1"] {
        assert!(screen.contains(words), "no '{words}' in: {screen}");
    }
}

#[test]
fn each_mechanism_has_a_row_with_all_parts_and_was_judged_without_a_finding() {
    let (screen, _) = parts();
    let rows = blocks(screen);
    assert_eq!(rows.iter().map(|(name, _)| *name).collect::<Vec<_>>(), MECHANISMS.map(|(name, _)| name));
    for (name, lines) in rows {
        let part = |label: &str| {
            let line = lines.iter().find(|line| line.starts_with(label) && line[label.len()..].starts_with(' '));
            line.map(|line| line[label.len()..].trim())
        };
        assert!(lines[0].contains('='), "no setting: {}", lines[0]);
        for label in ["is", "for", "not for", "published"] {
            assert!(part(label).is_some_and(|text| text.len() > 20), "{name} has no '{label}': {lines:#?}");
        }
        let ours = ["counted", "measured"].into_iter().filter_map(part);
        assert!(ours.clone().count() > 0, "{name} has no figure of this run: {lines:#?}");
        assert!(ours.into_iter().all(|figure| figure.contains(|c: char| c.is_ascii_digit())), "{lines:#?}");
        let judged = part("judged").unwrap_or_else(|| panic!("{name} was not judged: {lines:#?}"));
        let (times, rest) = judged.split_once(" times, no finding: ").unwrap_or_else(|| panic!("{judged}"));
        assert!(times.replace(',', "").parse::<u64>().is_ok_and(|times| times > 0) && !rest.is_empty(), "{judged}");
    }
}

#[test]
fn the_details_of_each_mechanism_have_at_most_ten_lines_and_name_its_evaluation() {
    let (_, details) = parts();
    let details = blocks(details);
    assert_eq!(details.len(), MECHANISMS.len());
    for ((name, lines), (_, evaluation)) in details.iter().zip(MECHANISMS) {
        let more = format!("More: pagewright evaluate {evaluation}");
        let end = lines.iter().position(|line| *line == more);
        let end = end.unwrap_or_else(|| panic!("no '{more}' in: {lines:#?}"));
        assert!((3..10).contains(&end), "{name} has {} lines: {lines:#?}", end + 1);
    }
}

#[test]
fn shared_tables_are_shown_on_a_large_parent_and_on_small_ones_with_the_reason() {
    let (_, details) = parts();
    let details = blocks(details);
    let (_, lines) = details.iter().find(|(name, _)| *name == "Copy-on-write page tables").unwrap();
    let row = |name: &str| {
        let line =
            lines.iter().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {lines:#?}"));
        line.split_whitespace().map(|figure| figure.replace(',', "").parse().unwrap()).collect::<Vec<u64>>()
    };
    let entries = row("entries copied by forks");
    assert!(entries[0] >= 262_144 && entries[1] == 0, "a large parent: {entries:?}");
    assert!(entries[2] > 0 && entries[3] == 0 && entries[4] == entries[2], "small ones, auto copies: {entries:?}");
    assert!(lines.iter().any(|line| line.contains("copied after the fork anyway")), "no reason: {lines:#?}");
}

#[test]
fn progress_goes_to_standard_error_and_no_escape_sequence_to_a_file() {
    assert!(!text().contains('\u{1b}'));
    let progress = String::from_utf8_lossy(&TOUR.stderr);
    assert!(progress.lines().all(|line| line.starts_with("pagewright: tour, ")), "{progress}");
}
