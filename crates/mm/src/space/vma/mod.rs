//! Mappings: one, all of a space in order, and the index by file.

mod address_map;
mod area;
mod file_index;
mod totals;

pub use address_map::AddressMap;
pub use area::{VmFlags, Vma, VmaBacking};
pub use totals::VmTotals;
