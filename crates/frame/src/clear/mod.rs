//! Clearing frames, with stores that bypass the cache where that is faster.
//!
//! - [`PinnedCpu`] – the CPU on which the caller clears. [`PinnedCpu::clear`] clears one block;
//!   [`Frames::clear_yielding`](crate::Frames::clear_yielding) clears a large one in chunks.
//! - [`IncoherentBlock`] – a block cleared by stores that may become visible late to other CPUs;
//!   [`ClearBatch`], several of them.
//! - [`ZeroedBlock`] – a block whose zeroes are visible to all CPUs.
//! - [`ClearSelector`] – selects the stores for a block: by what the allocator knows about its
//!   cache lines ([`Residency`]), by the [`ClearExtent`] of the whole operation, and by
//!   measurements ([`ClearCalibration`], [`CacheProbe`]).
//! - [`ClearBackend`], [`ClearCaps`] – the stores that exist, and those that this CPU has.
//!
//! ```text
//!           PinnedCpu::clear                   fence
//! Block ─────────────────────▶ IncoherentBlock ─────▶ ZeroedBlock ─▶ Block ─▶ new_folio, new_table
//!   ▲                             │   └─▶ ClearBatch ──────▶ ZeroedList (one fence for all)
//!   └──── drop: fence, free ──────┘
//! ```
//!
//! Neighbours: `block` and `zone` provide the blocks. `tlb` wraps clearing for allocations; `mm`
//! and `table` clear through `tlb`.
//!
//! Weakly ordered stores (MOVNTI, MOVNTDQ, MOVDIR64B, CLZERO: Intel SDM vol. 1 §10.4.6.2, AMD APM
//! vol. 3, CLZERO) wait in buffers of the CPU that made them, and only an SFENCE of that CPU orders
//! them. Hence these invariants:
//!
//! - **INV-CLEAR-FENCE** A block that was cleared by weakly ordered stores becomes a folio or a
//!   table only after a fence. A block that is dropped earlier is fenced, and freed as not zeroed.
//!   Otherwise another CPU would see the frame's old contents. Types enforce it (`compile_fail`
//!   examples in `frame::clear`). An [`IncoherentBlock`] gives no access to its block or bytes;
//!   only [`IncoherentBlock::fence`] and [`ClearBatch::fence`] do.
//! - **INV-CLEAR-PINNED** The CPU that made the stores makes the fence; a fence of another CPU does
//!   not order them. Types enforce it, and debug builds check that the CPU is the same. An
//!   [`IncoherentBlock`] borrows its [`PinnedCpu`] and is not `Send`, and [`PinnedCpu::yield_cpu`]
//!   needs an unborrowed [`PinnedCpu`].
//! - **INV-CLEAR-FENCES** Weakly ordered stores get one fence per batch and one per chance to
//!   yield. Ordinary stores get none.
//! - **INV-CLEAR-YIELD** Clearing a large block offers a chance to yield after at most 8 MiB, which
//!   is 3 ms at 2.8 GB/s. Otherwise a watchdog would fire on a gigantic page, as Xen's did.
//! - **INV-CLEAR-CAPS** A kind of store is used only if this CPU has reported it.
//! - **INV-CLEAR-WHOLE** Every byte of a cleared block is zero, and no byte outside it was written.
//!
//! The types refuse to map a block before the fence:
//! ```compile_fail,E0308
//! use pagewright_frame::{Block, ClearExtent, Frames};
//! fn map<P: pagewright_sync::Platform>(frames: &Frames<P>, block: Block) {
//!     let cpu = frames.pin_cpu();
//!     let cleared = cpu.clear(block, ClearExtent::PAGE);
//!     frames.new_folio(cleared).into_raw();
//! }
//! ```
//!
//! After the fence the block may be mapped:
//!
//! ```
//! use pagewright_frame::{Block, ClearExtent, Frames};
//! fn map<P: pagewright_sync::Platform>(frames: &Frames<P>, block: Block) {
//!     let cpu = frames.pin_cpu();
//!     let cleared = cpu.clear(block, ClearExtent::PAGE);
//!     frames.new_folio(cleared.fence().into_block()).into_raw();
//! }
//! ```
//!
//! They refuse to move the block to another CPU before the fence:
//!
//! ```compile_fail,E0277
//! use pagewright_frame::{Block, ClearExtent, Frames};
//! fn carry<P: pagewright_sync::Platform + Sync>(frames: &'static Frames<P>, block: Block) {
//!     let cpu = frames.pin_cpu();
//!     let cleared = cpu.clear(block, ClearExtent::PAGE);
//!     std::thread::scope(|scope| {
//!         scope.spawn(move || drop(cleared));
//!     });
//! }
//! ```
//!
//! They refuse to yield the CPU before the fence:
//!
//! ```compile_fail,E0502
//! use pagewright_frame::{Block, ClearExtent, Frames};
//! fn wait<P: pagewright_sync::Platform>(frames: &Frames<P>, block: Block) {
//!     let mut cpu = frames.pin_cpu();
//!     let cleared = cpu.clear(block, ClearExtent::PAGE);
//!     cpu.yield_cpu(|machine| machine.relax());
//!     cleared.fence().into_block().into_raw();
//! }
//! ```
//!
//! They refuse to take the block or its bytes out before the fence:
//!
//! ```compile_fail,E0614
//! use pagewright_frame::{Block, ClearExtent, Frames};
//! fn look<P: pagewright_sync::Platform>(frames: &Frames<P>, block: Block) {
//!     let cpu = frames.pin_cpu();
//!     let cleared = cpu.clear(block, ClearExtent::PAGE);
//!     let bytes = *cleared;
//! }
//! ```
//!
//! Not guaranteed: that the selection is best for a block whose residency is
//! [`Residency::Unknown`].

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[allow(unsafe_code)]
mod aarch64;
#[allow(unsafe_code)]
mod backend;
mod cache_probe;
mod calibrate;
mod caps;
mod incoherent;
mod selector;
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[allow(unsafe_code)]
mod x86_64;

pub use backend::ClearBackend;
pub use cache_probe::{CacheProbe, CacheProbeProgress};
pub use calibrate::ClearCalibration;
pub use caps::{ClearCaps, CpuSignature};
pub use incoherent::{ClearBatch, IncoherentBlock, PinnedCpu, ZeroedBlock, ZeroedList};
pub use selector::{ClearExtent, ClearPolicy, ClearSelector, Residency};
