//! Files, shared memory and the page cache: call by call, and in races.

mod beside_batches;
mod calls;
mod failed_fork;
mod races;
mod seals;
