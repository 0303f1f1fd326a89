//! Swap: where anonymous and shared memory goes when its frames are wanted.
//!
//! - [`SwapOps`] – a device with slots of a page.

mod device;

pub use device::SwapOps;
