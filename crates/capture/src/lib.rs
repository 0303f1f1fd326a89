//! What a real program did to its memory: captured, kept, and replayed on the lab.
//!
//! * [`trace`] is the event model and the native file format, streamed in both directions.
//! * [`generate`] makes small programs up instead.
//! * [`import`] turns valgrind lackey logs into a trace.
//! * [`record`] runs a program natively for Linux's own figures, then under valgrind for the trace.
//! * [`replay`] does what a capture says on the lab, and reports.
//! * [`pageout`] pages shared memory out and in, as the mail of the batched-flush series measured.
//! * [`undo`] removes temporary files, also when the program is interrupted.
//!
//! The format speaks of addresses *as a capture says them* ([`trace::UserAddr`],
//! [`trace::PageNo`]) and knows nothing of our machine; [`replay`] decides which of its addresses
//! they become.

#![forbid(unsafe_code)]

pub mod cleanup;
pub mod import;
pub mod pageout;
pub mod record;
pub mod replay;
pub mod trace;
pub mod workload;
