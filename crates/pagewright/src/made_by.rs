//! What made a document or a page: the program's version and commit, the date and the command.

use serde::Serialize;
use std::time::SystemTime;

/// What made a document or a page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MadeBy {
    version: &'static str,
    /// The commit of the source when the program was built; changes since are not told.
    commit: &'static str,
    /// The date and time of the run, in UTC.
    date: String,
    command: String,
}

impl MadeBy {
    /// This program, now.
    pub(crate) fn now() -> Self {
        let args = std::env::args().skip(1);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("PAGEWRIGHT_COMMIT"),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            command: std::iter::once("pagewright".to_owned()).chain(args).collect::<Vec<_>>().join(" "),
        }
    }

    /// The parts with their names.
    pub(crate) fn parts(&self) -> [(&'static str, &str); 4] {
        [("command", &self.command), ("date", &self.date), ("version", self.version), ("commit", self.commit)]
    }
}
