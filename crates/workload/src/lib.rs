//! What a real program did to its memory: captured, kept, and given to whoever wants to do it
//! again.
//!
//! * [`trace`] is the event model and the native file format, streamed in both directions.
//! * [`generate`] makes up small programs instead.
//! * [`import`] turns valgrind lackey logs into a trace.
//! * [`lab`] is the memory manager on a simulated machine, where captures are replayed.
//! * [`pageout`] pages shared memory out and in, as one series of patches measured.
//! * [`replay`] does what a capture says on the lab, and reports.
//! * [`random`] makes up programs of memory calls and runs them under an oracle.
//! * [`against`] runs such programs on the Linux underneath, too.
//! * [`record`] runs a program natively for Linux's own figures, then under valgrind for the trace.
//! * [`undo`] takes away what is temporary, also when the program is interrupted.
//!
//! The modules above speak of addresses *as a capture says them* ([`trace::UserAddr`],
//! [`trace::PageNo`]); they know nothing of our machine. Whoever replays decides which of its
//! addresses they become.

#![forbid(unsafe_code)]

pub mod against;
pub mod generate;
pub mod import;
pub mod lab;
pub mod pageout;
pub mod random;
pub mod record;
pub mod replay;
pub mod trace;
pub mod undo;
