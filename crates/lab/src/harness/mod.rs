//! The harness of the memory manager's tests.
//!
//! * [`TestWorld`] – a machine under the oracle with its memory manager, and the operations of CPUs
//!   in a race.
//! * [`TestProcess`] – a process that acts call by call.
//! * [`TestDevice`] – a device that holds pages of user memory and reaches them by their frames.
//! * [`files`], [`MemorySwap`] – files and a swap device for tests.
//! * [`race`] – programs on several CPUs under many schedules.
//! * [`paths`] – what the pointers on the way to a page say of it.
//! * [`recount`] – every count of the memory manager, counted again from the tables.
//! * [`smoke_test`] – a short program that uses every part of the memory manager.
//! * [`on_both!`](pagewright_arch::on_both) – one test for each instruction set.

pub mod files;
mod inspect;
pub mod paths;
pub mod race;
pub mod recount;
mod smoke;
mod swap_device;
mod test_device;
mod test_process;
mod test_world;

pub use smoke::smoke_test;
pub use swap_device::MemorySwap;
pub use test_device::{GupCall, TestDevice};
pub use test_process::{TestProcess, at};
pub use test_world::{ANON, CPU, FileHandle, OTHER, THIRD, TestWorld, one_node_machine};
