//! Progress bars on standard error, hidden where standard error is not a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use pagewright_capture::replay::EventSource;
use pagewright_capture::trace::{TraceError, TraceEvent, TraceHeader, TraceReader};
use std::io::Read;

/// A trace reader with a progress bar that shows how much of the trace has been read.
pub(crate) struct ProgressReader<R: Read> {
    reader: TraceReader<R>,
    bar: ProgressBar,
}

impl<R: Read> ProgressReader<R> {
    /// Wraps `reader`, whose trace is `bytes` long; `label` is printed before the bar.
    pub(crate) fn new(reader: TraceReader<R>, bytes: u64, label: &str) -> Self {
        let bar = ProgressBar::new(bytes).with_message(label.to_owned());
        if let Ok(style) = ProgressStyle::with_template("{msg:24!} {bar:40} {percent:>3}% {eta}") {
            bar.set_style(style);
        }
        Self { reader, bar }
    }
}

impl<R: Read> EventSource for ProgressReader<R> {
    fn header(&self) -> &TraceHeader {
        self.reader.header()
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        self.bar.set_position(self.reader.offset());
        self.reader.next_batch(batch)
    }
}

impl<R: Read> Drop for ProgressReader<R> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
