//! Files, shared memory and the page cache: call by call, and in races.

mod calls;
mod races;
