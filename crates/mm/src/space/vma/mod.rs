//! The mappings of an address space: a mapping, the ordered map, and the reverse map's index.

mod address_map;
mod area;
mod mapping_index;
mod totals;

pub use address_map::AddressMap;
pub use area::{VmFlags, Vma};
pub(crate) use totals::CopiedTotals;
pub use totals::VmTotals;
