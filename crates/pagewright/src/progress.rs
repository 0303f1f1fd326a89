//! Progress on standard error, when somebody is looking.

use indicatif::{ProgressBar, ProgressStyle};
use pagewright_capture::replay::Source;
use pagewright_capture::trace::{Event, Header, Reader, TraceError};
use std::io::Read;

/// A trace that shows how much of it has been read.
pub(crate) struct Watched<R: Read> {
    reader: Reader<R>,
    bar: ProgressBar,
}

impl<R: Read> Watched<R> {
    /// Watches `reader`, whose trace has `bytes` bytes; `what` stands before the bar.
    pub(crate) fn new(reader: Reader<R>, bytes: u64, what: &str) -> Self {
        // Hidden by itself where standard error is no terminal.
        let bar = ProgressBar::new(bytes).with_message(what.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{msg:24!} {bar:40} {percent:>3}% {eta}") {
            bar.set_style(style);
        }
        Self { reader, bar }
    }
}

impl<R: Read> Source for Watched<R> {
    fn header(&self) -> &Header {
        self.reader.header()
    }

    fn next_batch(&mut self, batch: &mut Vec<Event>) -> Result<bool, TraceError> {
        self.bar.set_position(self.reader.offset());
        self.reader.next_batch(batch)
    }
}

impl<R: Read> Drop for Watched<R> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
