//! Clearing frames, with stores that go past the cache where that is faster and leaves the cache
//! alone.
//!
//! - [`PinnedCpu`] – the CPU on which somebody clears; [`PinnedCpu::clear`] is the one function by
//!   which frames become zero.
//! - [`IncoherentBlock`] – a block cleared by stores that other CPUs may see late; [`ClearBatch`],
//!   several of them.
//! - [`ZeroedBlock`] – a block whose zeroes everybody sees.
//! - [`ClearSelector`] – a machine's choice of stores: by what the allocator knows of the target
//!   ([`Residency`]), by the [`ClearExtent`] of the whole operation, and by what was measured
//!   ([`ClearCalibration`], [`CacheProbe`]).
//! - [`ClearBackend`], [`ClearCaps`] – the stores there are, and those that this CPU has.
//!
//! ```text
//!            PinnedCpu::clear                  fence
//! Block ─────────────────────▶ IncoherentBlock ────────────▶ ZeroedBlock ─▶ Block ─▶ new_folio, new_table
//!   ▲                             │   └─▶ ClearBatch ──────┘ (one for all)
//!   └──── drop: fence, free ──────┘
//! ```
//!
//! Neighbours: `block`, `zone` say where a block comes from. `tlb` wraps this for who allocates;
//! `mm`, `table` clear through that.
//!
//! Weakly ordered stores (MOVNTI, MOVNTDQ, CLZERO: Intel SDM vol. 1 §10.4.6.2, AMD APM vol. 3
//! CLZERO) sit in buffers of the CPU that made them, and only that CPU's SFENCE orders them. So:
//!
//! - INV-CLEAR-FENCE: a block cleared by such stores becomes a folio or a table only after a fence.
//!   An [`IncoherentBlock`] gives nobody its block or bytes; [`IncoherentBlock::fence`] and
//!   [`ClearBatch::fence`] do. Dropped, it fences and its frames are freed as what they are: not
//!   zeroed.
//! - INV-CLEAR-PINNED: the fence is made by the CPU that stored: an [`IncoherentBlock`] borrows its
//!   [`PinnedCpu`] and is not `Send`, and the CPU is given up by a call that wants the
//!   [`PinnedCpu`] unborrowed.
//! - INV-CLEAR-FENCES: there are as many fences as batches and yields, where stores were weakly
//!   ordered, and none elsewhere.
//! - INV-CLEAR-YIELD: who clears with [`Frames::clear_yielding`](crate::Frames::clear_yielding)
//!   gets a chance to yield after at most 8 MiB, 3 ms at 2.8 GB/s.
//! - INV-CLEAR-CAPS: stores are used only if this CPU said that it has them.
//! - INV-CLEAR-WHOLE: every byte of a block is zero afterwards, and no byte beside it was touched.
//!
//! What does not compile: mapping what is not fenced,
//!
//! ```compile_fail,E0308
//! use pagewright_frame::{Block, ClearExtent, Frames};
//! fn map<P: pagewright_sync::Platform>(frames: &Frames<P>, block: Block) {
//!     let cpu = frames.pin_cpu();
//!     let cleared = cpu.clear(block, ClearExtent::PAGE);
//!     frames.new_folio(cleared).into_raw();
//! }
//! ```
//!
//! where this does;
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
//! carrying it to another CPU,
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
//! giving up the CPU in between,
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
//! and taking the block or its bytes out.
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
//! Not guaranteed: that the choice is the best one for a target of which the allocator knows
//! nothing ([`Residency::Unknown`]).

#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod aarch64;
#[allow(unsafe_code)]
mod backend;
mod cache_probe;
mod calibrate;
mod caps;
mod incoherent;
mod selector;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86_64;

pub use backend::ClearBackend;
pub use cache_probe::{CacheProbe, CacheProbeProgress};
pub use calibrate::ClearCalibration;
pub use caps::{ClearCaps, CpuSignature};
pub use incoherent::{ClearBatch, IncoherentBlock, PinnedCpu, ZeroedBlock, ZeroedList};
pub use selector::{ClearExtent, ClearPolicy, ClearSelector, Residency};
