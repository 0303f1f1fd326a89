//! What tests of the memory manager stand on.
//!
//! * [`world`]: a machine under the oracle, processes that act call by call, devices that pin.
//! * [`recount`]: every count of the memory manager, counted again.
//! * [`files`]: files for tests that are not about contents.
//! * [`alone`]: tests that choose a planted bug run one at a time.
//! * [`on_both!`](crate::on_both): a test for each instruction set.

pub mod alone;
pub mod files;
mod on_both;
pub mod recount;
pub mod world;

pub use alone::alone;
