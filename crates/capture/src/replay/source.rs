//! The source of a replay's events: a trace file or a built-in workload.

use crate::trace::{TraceError, TraceEvent, TraceHeader, TraceReader};
use std::io::Read;

/// A stream of events, in the order that [`crate::trace`] defines.
pub trait EventSource {
    /// The header, which precedes the events.
    fn header(&self) -> &TraceHeader;

    /// Replaces the contents of `batch` by the next events; returns `false` at the end.
    ///
    /// # Errors
    /// [`TraceError`] if the events cannot be read.
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
