//! CR3 and TLB invalidations.
//!
//! Without PCIDs the only tag is 0, and `MOV CR3` flushes everything except global entries. With
//! PCIDs, `INVPCID` invalidates any tag and `INVLPG` the current one (Intel SDM vol. 3A §4.10.4.1).

use crate::boot::CPUS;
use crate::machine::linear;
use crate::stacks::{STACK, STRIDE, Table};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Caps, Invalidate, InvalidateScope, InvalidateTarget, ShootdownKind, X86_64};
use pagewright_types::{Pfn, Tag, VirtAddr};
use raw_cpuid::CpuId;
use spin::Once;
use x86_64::registers::control::{Cr4, Cr4Flags};

/// The codec of this machine's tables.
pub(crate) type Isa = X86_64;

/// The linear map of physical memory.
pub(crate) const LINEAR: u64 = 0xffff_8000_0000_0000;
/// The uncached map of the first 4 GiB, for devices.
pub(crate) const DEVICES: u64 = 0xffff_8080_0000_0000;
/// The map of the kernel image.
pub(crate) const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// The stacks of the secondary CPUs, in the last GiB.
pub(crate) const STACKS: u64 = 0xffff_ffff_c000_0000;

/// The entries of the boot root that all roots share.
const SHARED: [usize; 3] = [256, 257, 511];

const TAGS: u32 = 1 << 12;

unsafe extern "C" {
    static boot_pml4: [AtomicU64; 512];
    static image_pdpt: [AtomicU64; 512];
    static boot_guard: u8;
}

/// Present and writable; a leaf is also global, and may be large or not executable.
pub(crate) const TABLE: u64 = 0x3;
const PAGE: u64 = 0x103;
const BLOCK: u64 = 0x183;
pub(crate) const STACK_PAGE: u64 = PAGE | 1 << 63;

/// The physical address of a byte of the image.
pub(crate) fn physical(address: u64) -> u64 {
    address - IMAGE
}

static CAPS: Once<Caps> = Once::new();

/// The capabilities of the machine.
#[inline]
pub(crate) fn caps() -> &'static Caps {
    CAPS.call_once(|| {
        let cpuid = CpuId::new();
        let pcid = cpuid.get_feature_info().is_some_and(|features| features.has_pcid());
        let invpcid = cpuid.get_extended_feature_info().is_some_and(|features| features.has_invpcid());
        Caps {
            shootdown: ShootdownKind::Ipi,
            tagged: pcid && invpcid,
            tags: TAGS,
            keeps_faulting_entry: false,
            range_invalidate: false,
            repeat_invalidate: false,
            user_tag_bit: None,
        }
    })
}

/// Unmaps the page below the boot stack, so that a stack overflow faults.
///
/// Runs on CPU 0, before the other CPUs start.
pub(super) fn guard_boot_stack() {
    /// The tables that split the image's GiB into 2 MiB pages, and one of those into 4 KiB pages.
    static LARGE: Table = Table::empty();
    static SMALL: Table = Table::empty();
    const GIB_OF_IMAGE: usize = 510;
    let guard = physical(&raw const boot_guard as u64);
    let (block, page) = ((guard >> 21) as usize, (guard >> 12 & 511) as usize);
    for index in 0..512 {
        LARGE.0[index].store((index as u64) << 21 | BLOCK, Ordering::Relaxed);
        SMALL.0[index].store((block as u64) << 21 | (index as u64) << 12 | PAGE, Ordering::Relaxed);
    }
    SMALL.0[page].store(0, Ordering::Relaxed);
    LARGE.0[block].store(SMALL.entry(), Ordering::Relaxed);
    // SAFETY: the tables are static, and map everything but the guard as before.
    unsafe {
        image_pdpt[GIB_OF_IMAGE].store(LARGE.entry(), Ordering::Release);
        // Changing CR4.PGE flushes global entries (SDM vol. 3A §4.10.4.1).
        Cr4::update(|flags| flags.remove(Cr4Flags::PAGE_GLOBAL));
        Cr4::update(|flags| flags.insert(Cr4Flags::PAGE_GLOBAL));
    }
}

/// Links the table of the stacks' 2 MiB areas into the last GiB.
pub(crate) fn map_stacks(large: &'static Table) {
    const GIB_OF_STACKS: usize = 511;
    // SAFETY: the table is static, nothing was mapped there, and a TLB does not cache non-present
    // entries.
    unsafe { image_pdpt[GIB_OF_STACKS].store(large.entry(), Ordering::Release) };
}

/// Whether `address` is in the guard below a stack.
pub(super) fn is_guard(address: u64) -> bool {
    let in_pieces = address.checked_sub(STACKS).map(|offset| offset as usize).filter(|offset| *offset < CPUS * STRIDE);
    in_pieces.is_some_and(|offset| offset % STRIDE >= STACK) || address >> 12 == &raw const boot_guard as u64 >> 12
}

/// Enables PCIDs if [`caps`] has them; on each CPU.
pub(crate) fn enable() {
    if caps().tagged {
        // SAFETY: the tag in CR3 is 0, as setting the bit requires.
        unsafe { Cr4::update(|flags| flags.insert(Cr4Flags::PCID)) };
    }
}

/// Keeps the compiler from reordering stores to entries.
///
/// The CPU makes them visible to page-table walkers in order (SDM vol. 3A §4.10.4).
#[inline]
pub(crate) fn publish() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Makes memory visible to instruction fetches, which see all stores (SDM vol. 3A §12.6).
///
/// # Safety
/// None here; on arm64 the bytes must be mapped.
pub(crate) unsafe fn publish_code(_start: *const u8, _bytes: usize) {}

/// Copies whole pages with one string instruction, as Linux's `copy_page`.
///
/// # Safety
/// Both blocks are mapped memory of `bytes` bytes, a whole number of pages, and do not overlap;
/// the caller owns `to`.
pub(crate) unsafe fn copy_pages(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract; the direction flag is clear on entry to any function.
    unsafe {
        asm!(
            "rep movsq",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") bytes / 8 => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Nothing to wait for: a local invalidation is complete when its instruction is.
#[inline]
pub(crate) fn complete() {}

/// Executes a local invalidation.
///
/// # Panics
/// On a broadcast or a range, which x86-64 does not have.
pub(crate) fn invalidate(op: Invalidate) {
    assert_eq!(op.scope, InvalidateScope::Local, "x86-64 has no broadcast");
    match op.target {
        InvalidateTarget::Page { tag, va, .. } => page(tag, va),
        InvalidateTarget::Tag(tag) if caps().tagged => invpcid(1, tag, VirtAddr::ZERO),
        InvalidateTarget::AllTags if caps().tagged => invpcid(3, Tag::new(0), VirtAddr::ZERO),
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags => load(cr3()),
        InvalidateTarget::Everything => change_global_pages(),
        InvalidateTarget::Range { .. } | InvalidateTarget::PageOfAllTags { .. } => {
            panic!("x86-64 has no such invalidation: {:?}", op.target)
        }
    }
}

fn page(tag: Tag, va: VirtAddr) {
    if caps().tagged && u64::from(tag.raw()) != cr3() & 0xfff {
        invpcid(0, tag, va);
        return;
    }
    // SAFETY: an invalidation only removes TLB entries.
    unsafe { asm!("invlpg [{}]", in(reg) va.raw(), options(nostack, preserves_flags)) }
}

fn invpcid(kind: u64, tag: Tag, va: VirtAddr) {
    let descriptor = [u64::from(tag.raw()), va.raw()];
    // SAFETY: an invalidation only removes TLB entries; `caps` has checked for the instruction.
    unsafe { asm!("invpcid {}, [{}]", in(reg) kind, in(reg) &raw const descriptor, options(nostack, preserves_flags)) }
}

/// Changes CR4.PGE and back, which invalidates all entries (Intel SDM vol. 3A §4.10.4.1).
fn change_global_pages() {
    const PGE: u64 = 1 << 7;
    let value: u64;
    // SAFETY: reading CR4 has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nostack, preserves_flags, nomem)) };
    for value in [value ^ PGE, value] {
        // SAFETY: whether global entries are used changes no translation, and the bit is restored.
        unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
    }
}

fn cr3() -> u64 {
    let value: u64;
    // SAFETY: reading CR3 has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nostack, preserves_flags, nomem)) };
    value
}

fn load(value: u64) {
    // SAFETY: every root has the shared entries, so the kernel stays mapped.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Installs `root` with `tag`; `keep` preserves the TLB entries of the tag.
///
/// A root that is installed for the first time gets the entries of the kernel's half.
pub(crate) fn install_root(root: Pfn, tag: Tag, keep: bool) {
    let entries = linear(root.base()).cast::<AtomicU64>();
    for index in SHARED {
        // SAFETY: a root is a table of 512 words, and the boot root is static. Another CPU that
        // installs this root stores the same values.
        unsafe { (*entries.add(index)).store(boot_pml4[index].load(Ordering::Relaxed), Ordering::Release) };
    }
    let tag = if caps().tagged { u64::from(tag.raw()) } else { 0 };
    // Bit 63 is reserved while PCIDs are off.
    let keep = if keep && caps().tagged { 1 << 63 } else { 0 };
    load(root.base().raw() | tag | keep);
}

/// Removes the identity map of low memory, once all CPUs have started.
pub(crate) fn drop_identity() {
    // SAFETY: only boot code uses the entry.
    unsafe { boot_pml4[0].store(0, Ordering::Release) };
}
