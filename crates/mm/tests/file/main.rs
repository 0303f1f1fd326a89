//! Files, shared memory and the page cache: calls one by one, and races.

mod calls;
mod races;
