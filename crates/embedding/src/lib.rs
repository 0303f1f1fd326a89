//! A kernel's machine on frames of its own, without std: all that the memory manager needs.
//!
//! The machine has one CPU, and an array as its memory. [`boot`] gives the array's frames to the
//! memory manager, and [`fork_and_copy`] maps a page, faults it in, forks and unmaps. The code of
//! `docs/embedding.md` runs on this machine; a kernel has instructions in place of the macros
//! (`kernel/hal/src/machine.rs`).
//!
//! `cargo test -p pagewright-embedding` runs it, and the code of the page. `cargo xtask no-std`
//! builds it for bare metal.
//!
//! Not guaranteed: address translation. Only the memory manager reads these page tables, so there
//! is nothing to invalidate.
#![no_std]
#![forbid(unsafe_code)]

use core::sync::atomic::AtomicU64;
use pagewright_arch::{Caps, Effects, X86_64};
use pagewright_mm::{MapRequest, Mm, MmError, MmSettings, MmSetupError};
use pagewright_sync::{FrameWords, OneCpuLocks, Platform};
use pagewright_tlb::frames::{MemoryLayout, NodeSpec};
use pagewright_types::{Access, CpuId, IsaKind, PAGE_SIZE, Pfn};

const WORDS: usize = 1024 * 512;

/// The memory of the machine: 1024 frames, of 512 words each.
static MEMORY: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// The machine, whose first frame has the number 0x100, as of memory from 1 MiB on.
pub const MACHINE: ArrayMachine = ArrayMachine(FrameWords::new(&MEMORY, Pfn::new(0x100)));

/// A handle to a machine whose frames are these.
#[derive(Clone, Copy, Debug)]
pub struct ArrayMachine(pub FrameWords);

impl Effects for ArrayMachine {
    type Isa = X86_64;

    fn caps(&self) -> &Caps {
        const { &Caps::baseline(IsaKind::X86_64) }
    }

    pagewright_arch::one_cpu!(CpuId::new(0));
    pagewright_arch::entries_are_words!(0);
    pagewright_arch::pages_are_words!(0);
    pagewright_arch::no_tlb_and_no_interrupts!();
}

impl Platform for ArrayMachine {
    type Locks = OneCpuLocks;
}

/// Boots the memory manager with all frames of the machine.
///
/// # Errors
/// [`MmSetupError`], if the kernel heap is exhausted.
pub fn boot() -> Result<Mm<ArrayMachine>, MmSetupError> {
    let ranges = [MACHINE.0.frames()];
    Mm::try_new(MACHINE, &MemoryLayout::new(&[NodeSpec::only(&ranges, 1)]), MmSettings::default())
}

/// Maps a page, faults it in, forks, stores in both spaces and unmaps; returns what they held.
///
/// # Errors
/// [`MmError`], if the machine is out of memory.
pub fn fork_and_copy(mm: &Mm<ArrayMachine>) -> Result<[u64; 2], MmError> {
    let parent = mm.new_space()?;
    mm.tlb().switch_to(parent.table().context());
    let page = mm.mmap(&parent, &MapRequest::anonymous(PAGE_SIZE))?;
    mm.fault(&parent, page, Access::Write)?;
    mm.put_user(&parent, page, 7_u64)?;
    let child = mm.fork(&parent)?;
    // The page is shared, so the store of the child copies it.
    mm.put_user(&child, page, 8_u64)?;
    let values = [mm.get_user(&parent, page)?, mm.get_user(&child, page)?];
    mm.munmap(&parent, page, PAGE_SIZE)?;
    // A space may only end when no CPU runs it.
    mm.tlb().enter_lazy();
    mm.end_space(&child);
    mm.end_space(&parent);
    Ok(values)
}

/// The code of `docs/embedding.md`.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
mod guide {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_and_child_have_their_own_page_and_all_frames_are_free_at_the_end() {
        let mm = boot().expect("heap memory");
        let frames = mm.tlb().frames();
        let free = frames.available();
        assert_eq!(fork_and_copy(&mm), Ok([7, 8]));
        assert_eq!(frames.available(), free);
    }
}
