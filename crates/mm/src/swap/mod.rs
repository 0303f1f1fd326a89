//! Swap: where anonymous and shared memory goes when its frames are wanted.
//!
//! - [`SwapOps`] – a device with slots of a page; [`Backing`] – that or [`Zram`], pages compressed in the machine's own memory.

mod device;
mod zram;

pub use device::{Backing, SwapOps};
pub use zram::{MmStat, Zram};
