//! What the kernel says on its second channel (`kernel/linux/src/finish/mod.rs` has the list of
//! lines).

use super::BootError;
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

    /// Tells how many instructions came before the program's first, where QEMU's clock counts them.
    pub(super) fn show_first(&self) {
        if let Some(count) = self.lines("first").last() {
            eprintln!("pagewright: {count} instructions before the program's first");
        }
    }

    /// Tells what a person should know: what was said, what is missing, counters that are not 0.
    pub(super) fn show(&self) {
        for said in self.lines("say") {
            eprintln!("pagewright: {said}");
        }
        for judged in self.lines("judged") {
            eprintln!("pagewright: counted again: {judged}");
        }
        for wrong in self.lines("wrong") {
            eprintln!("pagewright: wrong: {wrong}");
        }
        for missing in self.lines("missing") {
            match missing.split_once(' ') {
                Some((call, times)) => eprintln!("pagewright: system call {call} is missing (asked for {times} times)"),
                None => eprintln!("pagewright: system call {missing} is missing"),
            }
        }
        let counters = self.lines("vmstat").chain(self.lines("machine"));
        for counter in counters.filter(|line| !line.ends_with(" 0")) {
            eprintln!("{counter}");
        }
    }

    /// Whether every count was counted again (O4); the machine's status says whether all were
    /// right.
    pub(super) fn is_judged(&self) -> bool {
        self.lines("judged").next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_no_verdict() {
        let report = |text: &str| Report { text: text.to_owned() };
        let judged = report("judged 10 claims\nwrong one\nexit 70\n");
        assert!(judged.is_judged() && judged.status() == Some(70));
        let silent = report("say judged\nexit 0\n");
        assert!(!silent.is_judged() && silent.status() == Some(0));
    }
}
