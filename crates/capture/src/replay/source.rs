//! Where events come from: a trace file, or a generator.

use crate::trace::{Event, Header, Reader, TraceError};
use std::io::Read;

/// A stream of events, in the protocol of [`crate::trace`].
pub trait Source {
    /// What stands before the events.
    fn header(&self) -> &Header;

    /// Replaces `batch` by the next events, or returns `false` at the end.
    ///
    /// # Errors
    /// [`TraceError`] when the rest can't be read.
    fn next_batch(&mut self, batch: &mut Vec<Event>) -> Result<bool, TraceError>;
}

impl<R: Read> Source for Reader<R> {
    fn header(&self) -> &Header {
        Self::header(self)
    }

    fn next_batch(&mut self, batch: &mut Vec<Event>) -> Result<bool, TraceError> {
        Self::next_batch(self, batch)
    }
}
