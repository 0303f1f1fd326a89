//! Base register and invalidations.
//!
//! Without PCIDs the only tag is 0 and `MOV CR3` drops everything but global entries. With them,
//! `INVPCID` reaches any tag; `INVLPG` reaches the one in use (Intel SDM vol. 3A §4.10.4.1).

use crate::boot::CPUS;
use crate::machine::linear;
use crate::stacks::{PIECE, STACK, Table};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Caps, Invalidate, InvalidateScope, InvalidateTarget, ShootdownKind, X86_64};
use pagewright_types::{Pfn, Tag, VirtAddr};
use raw_cpuid::CpuId;
use spin::Once;
use x86_64::registers::control::{Cr4, Cr4Flags};

/// The codec of this machine's tables.
pub(crate) type Isa = X86_64;

/// Where physical memory is mapped.
pub(crate) const LINEAR: u64 = 0xffff_8000_0000_0000;
/// Where the first 4 GiB are mapped for devices.
pub(crate) const DEVICES: u64 = 0xffff_8080_0000_0000;
/// Where the image is mapped.
pub(crate) const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Where the stacks of the CPUs that did not boot are mapped: in the last GiB.
pub(crate) const STACKS: u64 = 0xffff_ffff_c000_0000;

/// The entries of the boot root that every root shares.
const SHARED: [usize; 3] = [256, 257, 511];

const TAGS: u32 = 1 << 12;

unsafe extern "C" {
    static boot_pml4: [AtomicU64; 512];
    static image_pdpt: [AtomicU64; 512];
    static boot_guard: u8;
}

/// Present, writable; of a leaf also global, and whether it is large, or never executed.
pub(crate) const TABLE: u64 = 0x3;
const PAGE: u64 = 0x103;
const BLOCK: u64 = 0x183;
pub(crate) const STACK_PAGE: u64 = PAGE | 1 << 63;

/// Where a byte of the image is.
pub(crate) fn physical(address: u64) -> u64 {
    address - IMAGE
}

static CAPS: Once<Caps> = Once::new();

/// What the machine can do.
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

/// Takes the page below the boot stack out of the image's map, so that who overflows the stack
/// faults. On CPU 0, while nobody else runs.
pub(super) fn guard_boot_stack() {
    /// Of the image's GiB: 512 pieces of 2 MiB, and of one of them 512 pages.
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
    // SAFETY: the tables live for ever, and map all but the guard as before.
    unsafe {
        image_pdpt[GIB_OF_IMAGE].store(LARGE.entry(), Ordering::Release);
        // Global entries go with the right to have any (SDM vol. 3A §4.10.4.1).
        Cr4::update(|flags| flags.remove(Cr4Flags::PAGE_GLOBAL));
        Cr4::update(|flags| flags.insert(Cr4Flags::PAGE_GLOBAL));
    }
}

/// Hangs the table of the stacks' 2 MiB into the last GiB.
pub(crate) fn map_stacks(large: &'static Table) {
    const GIB_OF_STACKS: usize = 511;
    // SAFETY: the tables live for ever, and map what nothing was mapped at; no CPU keeps that
    // nothing was.
    unsafe { image_pdpt[GIB_OF_STACKS].store(large.entry(), Ordering::Release) };
}

/// Whether an access to `address` has left the stack of a CPU.
pub(super) fn is_guard(address: u64) -> bool {
    let in_pieces = address.checked_sub(STACKS).map(|offset| offset as usize).filter(|offset| *offset < CPUS * PIECE);
    in_pieces.is_some_and(|offset| offset % PIECE >= STACK) || address >> 12 == &raw const boot_guard as u64 >> 12
}

/// Turns on what [`caps`] found, on each CPU.
pub(crate) fn enable() {
    if caps().tagged {
        // SAFETY: the tag in CR3 is 0, as setting the bit wants.
        unsafe { Cr4::update(|flags| flags.insert(Cr4Flags::PCID)) };
    }
}

/// Stores reach walkers in order (SDM vol.
///
/// 3A §4.10.4); only the compiler must not move them.
#[inline]
pub(crate) fn publish() {
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Local invalidations are done when they return.
#[inline]
pub(crate) fn complete() {}

/// # Panics
/// For what x86-64 does not have: a broadcast, or a range.
pub(crate) fn invalidate(op: Invalidate) {
    assert_eq!(op.scope, InvalidateScope::Local, "x86-64 has no broadcast");
    match op.target {
        InvalidateTarget::Page { tag, va, .. } => page(tag, va),
        InvalidateTarget::Tag(tag) if caps().tagged => invpcid(1, tag, VirtAddr::ZERO),
        InvalidateTarget::AllTags if caps().tagged => invpcid(3, Tag::new(0), VirtAddr::ZERO),
        InvalidateTarget::Tag(_) | InvalidateTarget::AllTags => load(cr3()),
        InvalidateTarget::Range { .. } => panic!("x86-64 has no invalidation of a range"),
    }
}

fn page(tag: Tag, va: VirtAddr) {
    if caps().tagged && u64::from(tag.raw()) != cr3() & 0xfff {
        invpcid(0, tag, va);
        return;
    }
    // SAFETY: it only forgets.
    unsafe { asm!("invlpg [{}]", in(reg) va.raw(), options(nostack, preserves_flags)) }
}

fn invpcid(kind: u64, tag: Tag, va: VirtAddr) {
    let descriptor = [u64::from(tag.raw()), va.raw()];
    // SAFETY: it only forgets; the CPU has the instruction, or nobody calls this.
    unsafe { asm!("invpcid {}, [{}]", in(reg) kind, in(reg) &raw const descriptor, options(nostack, preserves_flags)) }
}

fn cr3() -> u64 {
    let value: u64;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nostack, preserves_flags, nomem)) };
    value
}

fn load(value: u64) {
    // SAFETY: every root has the shared entries, so the kernel goes on where it was.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Walks from `root` from now on.
///
/// A root that is installed for the first time gets the kernel's half.
pub(crate) fn install_root(root: Pfn, tag: Tag, keep: bool) {
    let entries = linear(root.base()).cast::<AtomicU64>();
    for index in SHARED {
        // SAFETY: a root is a table of 512 words; the boot root lives for ever. Whoever else
        // installs this root stores the same.
        unsafe { (*entries.add(index)).store(boot_pml4[index].load(Ordering::Relaxed), Ordering::Release) };
    }
    let tag = if caps().tagged { u64::from(tag.raw()) } else { 0 };
    // Bit 63 is reserved while PCIDs are off.
    let keep = if keep && caps().tagged { 1 << 63 } else { 0 };
    load(root.base().raw() | tag | keep);
}

/// Forgets that low memory was mapped to itself.
///
/// Nobody needs it once all CPUs are up.
pub(crate) fn drop_identity() {
    // SAFETY: the entry is used by boot code only.
    unsafe { boot_pml4[0].store(0, Ordering::Release) };
}
