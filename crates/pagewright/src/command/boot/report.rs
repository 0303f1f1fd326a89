//! What the kernel says on its second channel (`kernel/linux/src/finish.rs` has the list of lines).

use super::{BootError, census};
use pagewright_arch::IsaKind;
use std::path::Path;

/// What was said.
pub(super) struct Report {
    text: String,
}

impl Report {
    pub(super) fn read(path: &Path) -> Result<Self, BootError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self { text: String::from_utf8_lossy(&bytes).into_owned() }),
            // The machine stopped before it said anything.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self { text: String::new() }),
            Err(source) => Err(BootError::File { path: path.to_owned(), source }),
        }
    }

    /// All of it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn lines<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    /// What the first process answered.
    pub(super) fn status(&self) -> Option<u8> {
        self.lines("exit").last()?.parse().ok()
    }

    /// Tells what a person should know: what was said, what is missing, counters that are not 0.
    pub(super) fn show(&self) {
        for said in self.lines("say") {
            eprintln!("pagewright: {said}");
        }
        for missing in self.lines("missing") {
            match missing.split_once(' ') {
                Some((call, times)) => eprintln!("pagewright: system call {call} is missing (asked for {times} times)"),
                None => eprintln!("pagewright: system call {missing} is missing"),
            }
        }
        for counter in self.lines("vmstat").filter(|line| !line.ends_with(" 0")) {
            eprintln!("{counter}");
        }
    }

    /// Whether every count is what the tables say (O4). What is wrong is told.
    pub(super) fn check(&self, isa: IsaKind) -> bool {
        match census::judge(isa, &self.text) {
            Ok(judged) => {
                eprintln!("pagewright: {} claims and {} entries counted again:", judged.claims, judged.words);
                for (what, times) in judged.tally.iter().filter(|(_, times)| *times > 0) {
                    eprintln!("{} {times}", what.name());
                }
                true
            }
            Err(wrong) => {
                for line in wrong {
                    eprintln!("pagewright: {line}");
                }
                false
            }
        }
    }
}
