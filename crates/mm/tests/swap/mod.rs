//! Swap-out and swap-in of anonymous and shared memory, swap PTEs, swapoff, and zram.

mod anon;
mod entries;
mod lazy_free;
mod lost_swap_in;
mod owners;
mod shared;
pub(crate) mod swapoff;
mod swapped_in;
mod zram;
mod zram_races;
