//! Reads the kernel's report, which it writes to a channel apart from the console.
//!
//! `kernel/linux/src/report/mod.rs` lists the lines.

use super::BootError;
use std::path::Path;

/// The text of the kernel's report.
pub(super) struct KernelReport {
    text: String,
}

impl KernelReport {
    pub(super) fn read(path: &Path) -> Result<Self, BootError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(Self { text: String::from_utf8_lossy(&bytes).into_owned() }),
            // The machine stopped before it wrote a line.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self { text: String::new() }),
            Err(source) => Err(BootError::File { path: path.to_owned(), source }),
        }
    }

    /// The whole text.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn lines<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    /// The exit status of the first process, if the kernel reported one.
    pub(super) fn status(&self) -> Option<u8> {
        self.lines("exit").last()?.parse().ok()
    }

    /// Whether the machine accepts input.
    pub(super) fn accepts_input(&self) -> bool {
        self.text.lines().any(|line| line == "input")
    }

    /// Prints the number of instructions that the kernel executed before the program's first.
    ///
    /// The kernel reports it if QEMU counts instructions.
    pub(super) fn print_instruction_count(&self) {
        if let Some(count) = self.lines("first").last() {
            eprintln!("pagewright: {count} instructions before the program's first");
        }
    }

    /// Prints messages, the verdict, missing system calls, and counters that are not 0.
    pub(super) fn print(&self) {
        for message in self.lines("say") {
            eprintln!("pagewright: {message}");
        }
        for verdict in self.lines("judged") {
            eprintln!("pagewright: recounted: {verdict}");
        }
        for wrong in self.lines("wrong") {
            eprintln!("pagewright: wrong: {wrong}");
        }
        for missing in self.lines("missing") {
            match missing.split_once(' ') {
                Some((call, times)) => {
                    eprintln!("pagewright: system call {call} is not implemented (called {times} times)");
                }
                None => eprintln!("pagewright: system call {missing} is not implemented"),
            }
        }
        let counters = self.lines("vmstat").chain(self.lines("machine"));
        for counter in counters.filter(|line| !line.ends_with(" 0")) {
            eprintln!("{counter}");
        }
    }

    /// Whether the kernel recounted its counts (O4).
    ///
    /// The exit status says whether they were right.
    pub(super) fn is_judged(&self) -> bool {
        self.lines("judged").next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_without_a_judged_line_has_no_verdict() {
        let report = |text: &str| KernelReport { text: text.to_owned() };
        let judged = report("judged 10 claims\nwrong one\nexit 70\n");
        assert!(judged.is_judged() && judged.status() == Some(70));
        let silent = report("say judged\nexit 0\n");
        assert!(!silent.is_judged() && silent.status() == Some(0));
    }
}
