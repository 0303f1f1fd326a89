//! Pages that go to swap and come back: anonymous and shared memory, entries, swapoff, zram.

mod anon;
mod entries;
mod lazy_free;
mod off;
mod shared;
mod zram;
