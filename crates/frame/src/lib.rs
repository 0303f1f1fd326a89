//! Physical memory: what every frame is, who has it, and where free ones are.
//!
//! - [`Frames`] – all memory of a machine, set up from a [`MemoryLayout`]: the memmap with one record of
//!   64 bytes a frame, and per node the zones below and above 4 GiB, each with watermarks, buddy
//!   lists and per-CPU lists.
//! - [`Block`] – a run of frames that somebody owns. [`UnsettledBlock`] – one fresh from the allocator,
//!   which may still owe a TLB flush. [`BlockList`] – blocks kept without memory for the list.
//! - [`FolioRef`], [`Folio`], [`PinRef`], [`FrozenFolio`] – frames that are mapped, referenced, pinned,
//!   and taken apart as one.
//! - [`IsolatedFolio`] – a folio off the lists by use, from which reclaim chooses. [`ReleaseList`] – folios
//!   that are freed together.
//! - [`TablePage`] – the record of a frame that is a page table.
//! - [`PinnedCpu`], [`IncoherentBlock`], [`ZeroedBlock`] – clearing, and the fence that some stores want
//!   before anybody may look: the module [`clear`].
//!
//! ```text
//! Frames::alloc ─▶ UnsettledBlock ─settle─▶ Block ─new_folio─▶ FolioRef ─put (last)─▶ Block ─▶ Frames::free, free_with_debt
//!                                       └───new_table──▶ Pfn ──────retire─────────┘        (parks what still owes)
//! ```
//!
//! Neighbours: uses `sync`, `arch` (the current CPU, permission to allocate) and `types`. Only
//! `tlb` uses this crate directly: it settles what frames owe, and hands the rest of the interface
//! on. Contents of frames are touched by `clear` alone.
//!
//! Protocol: linear values – [`Block`], [`UnsettledBlock`], [`BlockList`], [`FolioRef`], [`IsolatedFolio`],
//! [`ReleaseList`], [`PinRef`], [`FrozenFolio`], [`FolioParts`] – are ended by the call that takes them; debug
//! builds panic when one is dropped (INV-FRAME-LINEAR). Every frame is in the one state that its
//! record says (INV-FRAME-STATE), drawn in the module `record`. Nothing allocates memory after
//! [`Frames::try_new`].
//!
//! Not guaranteed: that a frame which is free is not still reached through some TLB. That is what
//! its debt key is for, and only `tlb` can read it.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod block;
mod buddy;
mod chain;
pub mod clear;

mod folio;
mod frames;
mod freeze;
mod layout;
mod list;
mod lru;
mod mapcount;
mod memmap;
mod pcp;
mod pin;
mod record;
mod release_list;
mod scan;
mod table_page;
mod watermark;
#[allow(unsafe_code)]
mod zeroed_slice;
mod zone;

pub use block::{Block, UnsettledBlock};
pub use chain::BlockList;
pub use clear::{
    CacheProbe, CacheProbeProgress, ClearBackend, ClearBatch, ClearCalibration, ClearCaps, ClearExtent, ClearPolicy,
    ClearSelector, CpuSignature, IncoherentBlock, PinnedCpu, Residency, ZeroedBlock, ZeroedList,
};

pub use folio::{Folio, FolioFlags, FolioLock, FolioOwner, FolioRef};
pub use frames::{FrameRequest, Frames, FramesError, NoFrames, NoFramesCause};
pub use freeze::{FolioParts, FrozenFolio, NotFrozen};
pub use layout::{MAX_NODES, MemoryLayout, MemoryLayoutError, NodeSpec};
pub use lru::{IsolatedFolio, LruScan};
pub use mapcount::MapcountChange;
pub use pin::PinRef;
pub use record::FrameState;
pub use release_list::ReleaseList;
pub use table_page::{TableMarks, TablePage};
pub use watermark::{Urgency, Watermarks};
pub use zone::{ZoneKind, ZoneView};
