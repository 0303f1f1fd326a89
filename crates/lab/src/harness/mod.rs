//! What tests of the memory manager stand on.
//!
//! * [`World`]: a machine under the oracle with its memory manager.
//! * [`Process`]: a process that acts call by call, and what CPUs do in a race.
//! * [`Device`]: pages of user memory that are reached by their frames.
//! * [`files`], [`MemorySwap`]: files, and a swap device, that keep what they are given.
//! * [`race`]: programs on several CPUs under many schedules.
//! * [`recount`]: every count of the memory manager, counted again.
//! * [`on_both!`](crate::on_both): a test for each instruction set.

mod device;
pub mod files;
mod inspect;
mod on_both;
mod process;
pub mod race;
pub mod recount;
mod swap_device;
mod world;

pub use device::{Device, TakeBy};
pub use process::{Process, at};
pub use swap_device::MemorySwap;
pub use world::{ANON, CPU, File, OTHER, World};
