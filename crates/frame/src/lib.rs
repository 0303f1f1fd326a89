//! Physical memory: the memmap, the frame allocator, folios and the clearing of frames.
//!
//! - [`Frames`] – all physical memory of a machine, set up from a [`MemoryLayout`]: the memmap,
//!   with one record of 64 bytes for each frame, and for each node the zones below and above 4 GiB,
//!   each with watermarks, buddy lists and per-CPU lists. [`FrameAllocator`] – the same, with the
//!   right to allocate.
//! - [`Block`] – 2^order frames that have one owner. [`UnsettledBlock`] – a block fresh from the
//!   allocator, which may still owe a TLB flush. [`BlockList`] – a list of blocks that needs no
//!   memory of its own.
//! - [`FolioRef`], [`Folio`], [`PinRef`], [`FrozenFolio`] – frames that are mapped, referenced,
//!   pinned and split as one (Linux's `struct folio`). [`StoredFolioRef`], [`FolioCell`] – a
//!   reference in a structure.
//! - [`IsolatedFolio`] – a folio that reclaim took off its LRU list. [`ReleaseList`] – folios that
//!   are freed together.
//! - [`TablePage`] – the record of a page-table page (Linux's `struct ptdesc`).
//! - [`PinnedCpu`], [`IncoherentBlock`], [`ZeroedBlock`] – clearing, and the fence that weakly
//!   ordered stores need before the frames may be mapped: module [`clear`].
//!
//! ```text
//! FrameAllocator::alloc ─▶ UnsettledBlock ─ settle ─▶ Block ─ new_folio ─▶ FolioRef ─ last put ─▶ Block ─▶ Frames::free,
//!                                               └─── new_table ──▶ Pfn ────── retire ───────┘      free_with_debt
//! ```
//!
//! # Example
//!
//! A folio on a simulated machine. A kernel implements [`Platform`](pagewright_sync::Platform) for
//! its own machine.
//!
//! ```
//! use pagewright_arch::X86_64;
//! use pagewright_frame::{FrameAllocator, FrameRequest, MemoryLayout, NodeSpec};
//! use pagewright_sim::{MachineConfig, Sim};
//! use pagewright_types::{CpuId, DebtFloor, IsaKind, Order};
//!
//! let machine = Sim::<X86_64>::new(MachineConfig::default_for(IsaKind::X86_64)?)?;
//! let node = machine.nodes()[0];
//! machine.run_on(CpuId::new(0), || {
//!     let nodes = [NodeSpec { id: node.id, ranges: &[node.frames], cpus: node.cpus }];
//!     let frames = FrameAllocator::try_new(machine.clone(), &MemoryLayout::new(&nodes)).expect("a valid layout");
//!
//!     let request = FrameRequest::new(Order::new(2), node.id);
//!     let unsettled = frames.alloc(request, || DebtFloor::NONE).expect("free frames");
//!     let block = unsettled.settle(|key| unreachable!("no frame was freed, but one owes {key}"));
//!     let first = frames.new_folio(block);
//!     let second = frames.folio_of(&first).get();
//!     assert_eq!(frames.folio_of(&first).refs(), 2);
//!
//!     assert!(frames.put(first).is_none());
//!     let block = frames.put(second).expect("the last reference returns the frames");
//!     frames.free(block);
//!     assert_eq!(frames.available(), frames.managed());
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Neighbours: uses `sync`, `arch` (the current CPU, permission to allocate) and `types`. Only
//! `tlb` depends on this crate: it settles the debts of frames and re-exports the rest of the
//! interface. Only `clear` stores to the contents of frames.
//!
//! Protocol: [`Block`], [`UnsettledBlock`], [`BlockList`], [`FolioRef`], [`IsolatedFolio`],
//! [`ReleaseList`], [`PinRef`], [`FrozenFolio`] and [`FolioParts`] are linear values: the call that
//! takes one ends it, and debug builds panic when one is dropped (INV-FRAME-LINEAR). Every frame is
//! in the one state that its record names (INV-FRAME-STATE); the module `record` draws the states.
//! Nothing allocates heap memory after [`FrameAllocator::try_new`].
//!
//! Not guaranteed: that no TLB reaches a free frame. The debt key of the frame covers that, and
//! only `tlb` can interpret it.
#![no_std]
#![deny(unsafe_code)]

extern crate alloc;

mod allocate;
mod block;
mod buddy;
mod chain;
pub mod clear;
mod counts;
mod deferred;
mod deposit;
mod folio;
mod folio_debt;
mod folio_flags;
mod folio_ref;
mod frames;
mod free;
mod freeze;
mod last_use;
mod layout;
mod list;
mod lru;
mod lru_batch;
mod mapcount;
mod memmap;
mod new_folio;
mod node_event;
mod pcp;
mod pin;
mod record;
mod release_list;
mod rss;
mod scan;
mod stored_ref;
mod table_page;
mod tiers;
mod transfer;
mod watermark;
#[allow(unsafe_code)]
mod zeroed_slice;
mod zone;

pub use allocate::{FrameAllocator, FrameRequest, NoFrames, NoFramesCause};
pub use block::{Block, UnsettledBlock};
pub use chain::BlockList;
pub use clear::{
    CacheProbe, CacheProbeProgress, ClearBackend, ClearBatch, ClearCalibration, ClearCaps, ClearExtent, ClearPolicy,
    ClearSelector, CpuSignature, IncoherentBlock, PinnedCpu, Residency, ZeroedBlock, ZeroedList,
};
pub use folio::{FOLIO_COUNTS, Folio, FolioOwner};
pub use folio_flags::{FolioFlags, FolioLock};
pub use folio_ref::{FolioRef, FolioRefs};
pub use frames::{Frames, FramesError};
pub use freeze::{FolioParts, FrozenFolio, NotFrozen};
pub use last_use::LastUse;
pub use layout::{MAX_NODES, MemoryLayout, MemoryLayoutError, NodeSpec};
pub use lru::{IsolatedFolio, LruScan};
pub use mapcount::{MapcountChange, PageCounts};
pub use new_folio::NewFolio;
pub use node_event::NodeEvent;
pub use pin::PinRef;
pub use record::FrameState;
pub use release_list::ReleaseList;
pub use rss::{EntryCounts, RssKind, SWAP_ENTRIES};
pub use stored_ref::{FolioCell, StoredFolioRef};
pub use table_page::{TableKey, TableMarks, TablePage};
pub use watermark::{Urgency, Watermarks};
pub use zone::{ZoneKind, ZoneView};
