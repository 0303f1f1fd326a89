//! Physical memory: the memmap, the buddy allocator, folios and page-table pages.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod block;
mod bomb;
mod buddy;
mod chain;
mod folio;
mod frames;
mod freeze;
mod layout;
mod list;
mod mapcount;
mod memmap;
mod pcp;
mod pin;
mod record;
mod table_page;
mod watermark;
#[allow(unsafe_code)]
mod zeroed;
mod zone;

pub use block::{Block, Unsettled};
pub use chain::BlockList;
pub use folio::{Folio, FolioFlags, FolioLock, FolioRef, Owner};
pub use frames::{Frames, FramesError, NoFrames, NoFramesCause, Request};
pub use freeze::{Frozen, NotFrozen, Parts};
pub use layout::{Layout, LayoutError, MAX_NODES, NodeSpec};
pub use mapcount::Mappings;
pub use pin::PinRef;
pub use record::State;
pub use table_page::{TableMarks, TablePage};
pub use watermark::{Urgency, Watermarks};
pub use zone::{ZoneKind, ZoneView};
