//! Where events come from: a trace file, or a generator.

use crate::trace::{TraceError, TraceEvent, TraceHeader, TraceReader};
use std::io::Read;

/// A stream of events, in the protocol of [`crate::trace`].
pub trait EventSource {
    /// What stands before the events.
    fn header(&self) -> &TraceHeader;

    /// Replaces `batch` by the next events, or returns `false` at the end.
    ///
    /// # Errors
    /// [`TraceError`] when the rest can't be read.
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError>;
}

impl<R: Read> EventSource for TraceReader<R> {
    fn header(&self) -> &TraceHeader {
        Self::header(self)
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<bool, TraceError> {
        Self::next_batch(self, batch)
    }
}
