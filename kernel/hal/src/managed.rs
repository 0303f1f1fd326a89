//! The frames of the memory manager, and the check of each physical address that it passes.
//!
//! Key type: [`ManagedBytes`], the proof that bytes are in a managed frame. Managed are the frames
//! that were free at boot. The kernel image, its heap, stacks, devices and firmware's memory never
//! are, and a block that becomes memory of the kernel leaves for ever. So no address that safe code
//! passes to [`Machine`](crate::Machine) reaches memory of a Rust object (INV-HAL-MANAGED).
//!
//! **INV-HAL-MANAGED** A physical address that safe code passes to the kernel's machine reaches
//! only frames that were free at boot and that the kernel has not taken for itself since. Otherwise
//! it would reach the memory of a Rust object.
//!
//! Not guaranteed: that the caller owns the frame. The allocator ensures that.

use crate::boot::NodeInfo;
use crate::machine::linear;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use once_cell::race::OnceRef;
use pagewright_sync::{FrameSet, LinearMap};
use pagewright_types::{FrameRange, Order, PAGE_SIZE, Pfn, PhysAddr};
use spin::Once;

/// Each access of a table reads it, so it is one pointer; a `Once` has a state beside its value.
static MANAGED: OnceRef<'static, FrameSet> = OnceRef::new();
static MAP: Once<LinearMap> = Once::new();

/// Declares the free frames of all nodes managed; on CPU 0, before the kernel boots.
///
/// # Panics
/// If the heap has no memory for a bit per frame.
pub(crate) fn manage(nodes: &[NodeInfo]) {
    let free: Vec<FrameRange> = nodes.iter().flat_map(|node| node.ranges.iter().copied()).collect();
    let managed = FrameSet::try_new(&free).expect("the heap at boot has room for a bit per frame");
    assert!(MANAGED.set(Box::leak(Box::new(managed))).is_ok(), "the frames are declared twice");
}

/// Whether all frames of a block are managed.
#[inline]
fn is_managed(pfn: Pfn, order: Order) -> bool {
    MANAGED.get().is_some_and(|managed| managed.contains(pfn, order))
}

#[cold]
fn not_managed(table: Pfn) -> ! {
    panic!("INV-HAL-MANAGED: the table at {table} is not in a frame of the memory manager");
}

/// The linear map of the managed frames.
pub(crate) fn map() -> Option<&'static LinearMap> {
    let first = NonNull::new(linear(PhysAddr::ZERO))?;
    let all = FrameRange::new(Pfn::new(0), Pfn::new(u32::MAX));
    // SAFETY: INV-LINEAR-MAP – the boot code maps all memory there, as Normal memory. Managed
    // frames are no Rust object (INV-HAL-MANAGED).
    Some(MAP.call_once(|| unsafe { LinearMap::new(first, all, is_managed) }))
}

/// Bytes within one managed frame.
#[derive(Clone, Copy)]
pub(crate) struct ManagedBytes(*mut u8);

impl ManagedBytes {
    /// The `len` bytes at `at`.
    ///
    /// # Panics
    /// If they are not in one managed frame.
    #[inline]
    pub(crate) fn new(at: PhysAddr, len: usize) -> Self {
        let in_one = at.page_offset() + len as u64 <= PAGE_SIZE;
        assert!(
            in_one && is_managed(Pfn::containing(at), Order::ZERO),
            "INV-HAL-MANAGED: {len} bytes at {at} are not in a frame of the memory manager"
        );
        Self(linear(at))
    }

    /// The bytes of a page table.
    ///
    /// # Panics
    /// If the frame is not managed.
    #[inline]
    pub(crate) fn table(table: Pfn) -> Self {
        let managed = MANAGED.get().is_some_and(|managed| managed.contains_frame(table));
        if managed { Self(linear(table.base())) } else { not_managed(table) }
    }

    /// All bytes of a block.
    ///
    /// # Panics
    /// If a frame of the block is not managed.
    pub(crate) fn block(pfn: Pfn, order: Order) -> Self {
        assert!(is_managed(pfn, order), "INV-HAL-MANAGED: the block of order {order} at {pfn} is not managed");
        Self(linear(pfn.base()))
    }

    /// All bytes of a block, which is managed no longer.
    ///
    /// # Panics
    /// If a frame of the block is not managed.
    pub(crate) fn take_block(pfn: Pfn, order: Order) -> Self {
        let taken = MANAGED.get().is_some_and(|managed| managed.remove(pfn, order));
        assert!(taken, "INV-HAL-MANAGED: the block of order {order} at {pfn} is not managed");
        Self(linear(pfn.base()))
    }

    /// The linear address of the first byte.
    #[inline]
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.0
    }
}
