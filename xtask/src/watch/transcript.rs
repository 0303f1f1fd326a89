//! The test that a program is running, as its output tells.
//!
//! libtest prints `test NAME ... ` before a test and `ok` after it if it runs one at a time.
//! Otherwise it prints both after the test, and names tests that run for more than a minute.

/// What stands before the name of a test.
const TEST: &str = "test ";
/// What stands after it.
const DOTS: &str = " ... ";
const LONG: &str = " has been running for over ";

/// The output of a test program, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    /// The number of tests that have ended.
    pub(super) ended: usize,
    /// The last line, which has no end yet.
    line: Vec<u8>,
    /// A test whose result is not in the line with its name, because it printed something itself.
    started: Option<String>,
    /// The tests that take long.
    long: Vec<String>,
}

impl Transcript {
    /// Adds output.
    pub(super) fn push(&mut self, printed: &[u8]) {
        for piece in printed.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.end_line(String::from_utf8_lossy(&line).trim_end());
            }
        }
    }

    fn end_line(&mut self, line: &str) {
        let is_result = |text: &str| text == "ok" || text == "FAILED" || text.starts_with("ignored");
        if let Some((name, result)) = named(line) {
            if is_result(result) {
                self.ended += 1;
                self.long.retain(|other| other != name);
                self.started = None;
            } else {
                self.started = Some(name.to_owned());
            }
        } else if is_result(line) && self.started.take().is_some() {
            self.ended += 1;
        } else if let Some((name, _)) = line.strip_prefix(TEST).and_then(|rest| rest.split_once(LONG)) {
            self.long.push(name.to_owned());
        }
    }

    /// What libtest would print next, if the running tests failed; or a test named `program` did.
    pub(super) fn failure(&self, program: &str) -> String {
        let line = String::from_utf8_lossy(&self.line);
        if named(&line).is_some_and(|(_, printed)| printed.is_empty()) {
            return "FAILED\n".to_owned();
        }
        let end = if line.is_empty() { "" } else { "\n" };
        format!("{end}{TEST}{}{DOTS}FAILED\n", self.running().as_deref().unwrap_or(program))
    }

    /// The tests that are known to run.
    pub(super) fn running(&self) -> Option<String> {
        let line = String::from_utf8_lossy(&self.line);
        let now = named(&line).map(|(name, _)| name.to_owned()).or_else(|| self.started.clone());
        now.or_else(|| (!self.long.is_empty()).then(|| self.long.join(", ")))
    }
}

/// The name of a test, and what stands after it in the line.
fn named(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix(TEST)?.split_once(DOTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(printed: &[&str]) -> (usize, Option<String>) {
        let mut transcript = Transcript::default();
        printed.iter().for_each(|part| transcript.push(part.as_bytes()));
        (transcript.ended, transcript.running())
    }

    // INV-WATCH-NAME
    #[test]
    fn the_running_test_is_the_one_without_a_result() {
        let b = Some("b::c".to_owned());
        assert_eq!(after(&["running 2 tests\n", "test a ... ok\n"]), (1, None));
        assert_eq!(after(&["test a ... ok\ntest b", "::c ... "]), (1, b.clone()), "a line in two pieces");
        assert_eq!(after(&["test b::c ... text\nmore\n"]), (0, b.clone()), "it prints something itself");
        assert_eq!(after(&["test b::c ... text\nok\n"]), (1, None));
        assert_eq!(after(&["test a ... ignored, slow\n", "ok\n"]), (1, None), "no test has printed this");
        let long = "test b::c has been running for over 60 seconds\n";
        assert_eq!(after(&["test a ... ok\n", long]), (1, b), "tests run beside each other");
        assert_eq!(after(&[long, "test b::c ... FAILED\n"]), (1, None));
    }
}
