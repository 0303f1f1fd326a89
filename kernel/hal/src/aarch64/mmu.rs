//! Translation table base registers, TLB invalidations and barriers (Arm ARM D8.14).

use crate::boot::Region;
use crate::stacks::{STACK, STRIDE, Table};
use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{
    ID_AA64ISAR0_EL1, ID_AA64MMFR0_EL1, ID_AA64MMFR1_EL1, MIDR_EL1, Readable, TTBR0_EL1, Writeable,
};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use pagewright_arch::{Aarch64, Caps, Invalidate, InvalidateScope, InvalidateTarget, ShootdownKind};
use pagewright_types::{PAGE_SHIFT, PAGE_SIZE, PageRange, Pfn, Tag, VirtAddr};
use spin::Once;

/// The codec of this machine's tables.
pub(crate) type Isa = Aarch64;

/// The linear map: memory, and devices in the GiBs that are not memory.
pub(crate) const LINEAR: u64 = 0xffff_0000_0000_0000;
/// The stacks of the secondary CPUs, in the 512 GiB after the linear map.
pub(crate) const STACKS: u64 = LINEAR + (1 << 39);
// `trap.s` tests this bit of the stack pointer.
const _: () = assert!(STACK == 1 << 16 && STACKS.is_multiple_of(STRIDE as u64));

const GIB: u32 = 30;
/// Attributes of memory: valid, accessed, inner shareable, MAIR index 0, not executable.
const MEMORY: u64 = 1 | 1 << 10 | 3 << 8 | 1 << 53 | 1 << 54;
const MAIR_INDEX: u64 = 7 << 2;
/// A table descriptor, or at the last level a page descriptor.
pub(crate) const TABLE: u64 = 3;
pub(crate) const STACK_PAGE: u64 = MEMORY | TABLE;

unsafe extern "C" {
    static boot_root: [AtomicU64; 512];
    static boot_blocks: [AtomicU64; 512];
}

/// The physical address of a byte of the image.
pub(crate) fn physical(address: u64) -> u64 {
    address - LINEAR
}

static CAPS: Once<Caps> = Once::new();

/// The capabilities of the machine.
#[inline]
pub(crate) fn caps() -> &'static Caps {
    CAPS.call_once(|| Caps {
        shootdown: ShootdownKind::Broadcast,
        tagged: true,
        tags: if ID_AA64MMFR0_EL1.read(ID_AA64MMFR0_EL1::ASIDBits) == 2 { 1 << 16 } else { 1 << 8 },
        keeps_faulting_entry: true,
        // TLB, bits 59 to 56: 2 is FEAT_TLBIRANGE.
        range_invalidate: ID_AA64ISAR0_EL1.get() >> 56 & 0xf == 2,
        repeat_invalidate: repeats(),
        user_tag_bit: None,
    })
}

/// Whether this CPU has an erratum that requires each TLBI and DSB to be repeated.
///
/// The errata are 2441007 (Cortex-A55), 1286807 (A76 before r3p1) and 2441009 (A510 before r1p2).
fn repeats() -> bool {
    const ARM: u64 = 0x41;
    let midr = MIDR_EL1.get();
    let revision = (midr >> 20 & 0xf, midr & 0xf);
    match (midr >> 24 & 0xff, midr >> 4 & 0xfff) {
        (ARM, 0xd05) => true,
        (ARM, 0xd0b) => revision <= (3, 0),
        (ARM, 0xd46) => revision <= (1, 1),
        _ => false,
    }
}

/// Checks that the CPU has what the entries and the compiled code require.
///
/// Hardware manages the access flag and dirty state, and has the atomic instructions for which the
/// kernel is compiled. A CPU without the latter may stop before it can say so.
///
/// # Panics
/// If the CPU lacks FEAT_HAFDBS or FEAT_LSE.
pub(super) fn check() {
    // Atomic, bits 23 to 20: 2 is FEAT_LSE.
    assert!(ID_AA64ISAR0_EL1.get() >> 20 & 0xf >= 2, "the CPU has no atomic instructions (FEAT_LSE)");
    assert!(ID_AA64MMFR1_EL1.get() & 0xf >= 2, "the CPU does not manage the access flag and dirty state (FEAT_HAFDBS)");
}

/// Maps the GiBs of `region` as memory.
///
/// Runs on CPU 0, before the other CPUs start.
pub(super) fn map_memory(region: Region) {
    for gib in region.start >> GIB..region.end.div_ceil(1 << GIB) {
        // SAFETY: the boot tables are static.
        let block = unsafe { &boot_blocks[gib as usize] };
        if block.load(Ordering::Relaxed) & MAIR_INDEX == 0 {
            continue;
        }
        // A speculative walk may have cached the entry: break before make (Arm ARM D8.16.1).
        block.store(0, Ordering::Release);
        flush_all();
        block.store(gib << GIB | MEMORY, Ordering::Release);
        flush_all();
    }
}

/// Links the table of the stacks' 2 MiB areas into the boot root.
pub(crate) fn map_stacks(large: &'static Table) {
    static GIBS: Table = Table::empty();
    GIBS.0[0].store(large.entry(), Ordering::Relaxed);
    // SAFETY: the tables are static, nothing was mapped there, and a TLB does not cache invalid
    // entries.
    unsafe { boot_root[1].store(GIBS.entry(), Ordering::Release) };
}

fn flush_all() {
    barrier::dsb(barrier::ISHST);
    // SAFETY: an invalidation only removes TLB entries.
    unsafe { asm!("tlbi vmalle1is", options(nostack)) };
    barrier::dsb(barrier::ISH);
    barrier::isb(barrier::SY);
}

/// Points the user's root at an empty table until a space is installed; on each CPU.
pub(super) fn drop_identity() {
    #[repr(align(4096))]
    struct Empty(#[expect(dead_code, reason = "walked by hardware only")] [u64; 512]);
    static EMPTY: Empty = Empty([0; 512]);
    TTBR0_EL1.set(physical(&raw const EMPTY as u64));
    // Before the flush, or a walk with the old root could fill the TLB after it.
    barrier::isb(barrier::SY);
    flush_all();
}

/// Makes stores to entries visible to page-table walkers.
#[inline]
pub(crate) fn publish() {
    barrier::dsb(barrier::ISHST);
}

/// Makes `bytes` bytes from `start` on visible to instruction fetches of all CPUs.
///
/// Arm ARM B2.4.4: the data lines are cleaned to the point of unification, and the instruction
/// lines invalidated. An instruction cache that is not physically tagged is invalidated whole.
///
/// # Safety
/// The bytes are mapped.
pub(crate) unsafe fn publish_code(start: *const u8, bytes: usize) {
    let (start, end) = (start.addr(), start.addr() + bytes);
    let cache_type: u64;
    // SAFETY: reading the register changes nothing.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack, preserves_flags)) };
    // Both line sizes are binary logarithms of words.
    let line = |shift: u32| 4_usize << (cache_type >> shift & 0xf);
    for at in (start..end).step_by(line(16)) {
        // SAFETY: the caller's memory is mapped; cleaning a line changes no contents.
        unsafe { asm!("dc cvau, {}", in(reg) at, options(nostack, preserves_flags)) };
    }
    barrier::dsb(barrier::ISH);
    const PHYSICALLY_TAGGED: u64 = 3;
    if cache_type >> 14 & 3 == PHYSICALLY_TAGGED {
        for at in (start..end).step_by(line(0)) {
            // SAFETY: as above; an instruction line is fetched again.
            unsafe { asm!("ic ivau, {}", in(reg) at, options(nostack, preserves_flags)) };
        }
    } else {
        // SAFETY: instruction lines are fetched again.
        unsafe { asm!("ic ialluis", options(nostack, preserves_flags)) };
    }
    barrier::dsb(barrier::ISH);
    barrier::isb(barrier::SY);
}

/// Waits until this CPU's invalidations are complete.
#[inline]
pub(crate) fn complete() {
    barrier::dsb(barrier::ISH);
    barrier::isb(barrier::SY);
}

/// Copies whole pages.
///
/// 256 bytes at a time (Linux's `copy_page`: 128): the compiler's `memcpy` copies eight, which
/// takes three times as many instructions.
///
/// # Safety
/// Both blocks are mapped memory of `bytes` bytes, a whole number of pages, and do not overlap;
/// the caller owns `to`.
pub(crate) unsafe fn copy_pages(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's contract; the loop touches `bytes` bytes of each block.
    unsafe {
        asm!(
            "2:",
            "ldp {a}, {b}, [{from}]",
            "ldp {c}, {d}, [{from}, #16]",
            "ldp {e}, {f}, [{from}, #32]",
            "ldp {g}, {h}, [{from}, #48]",
            "stp {a}, {b}, [{to}]",
            "stp {c}, {d}, [{to}, #16]",
            "stp {e}, {f}, [{to}, #32]",
            "stp {g}, {h}, [{to}, #48]",
            "ldp {a}, {b}, [{from}, #64]",
            "ldp {c}, {d}, [{from}, #80]",
            "ldp {e}, {f}, [{from}, #96]",
            "ldp {g}, {h}, [{from}, #112]",
            "stp {a}, {b}, [{to}, #64]",
            "stp {c}, {d}, [{to}, #80]",
            "stp {e}, {f}, [{to}, #96]",
            "stp {g}, {h}, [{to}, #112]",
            "ldp {a}, {b}, [{from}, #128]",
            "ldp {c}, {d}, [{from}, #144]",
            "ldp {e}, {f}, [{from}, #160]",
            "ldp {g}, {h}, [{from}, #176]",
            "stp {a}, {b}, [{to}, #128]",
            "stp {c}, {d}, [{to}, #144]",
            "stp {e}, {f}, [{to}, #160]",
            "stp {g}, {h}, [{to}, #176]",
            "ldp {a}, {b}, [{from}, #192]",
            "ldp {c}, {d}, [{from}, #208]",
            "ldp {e}, {f}, [{from}, #224]",
            "ldp {g}, {h}, [{from}, #240]",
            "stp {a}, {b}, [{to}, #192]",
            "stp {c}, {d}, [{to}, #208]",
            "stp {e}, {f}, [{to}, #224]",
            "stp {g}, {h}, [{to}, #240]",
            "add {from}, {from}, #256",
            "add {to}, {to}, #256",
            "subs {left}, {left}, #256",
            "b.ne 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            left = inout(reg) bytes => _,
            a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
            e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _,
            options(nostack),
        );
    }
}

/// A `TLBI` with an operand, local or inner shareable.
macro_rules! tlbi {
    ($scope:expr, $operation:literal, $operand:expr) => {
        match $scope {
            // SAFETY: an invalidation only removes TLB entries.
            InvalidateScope::Local => unsafe { asm!(concat!("tlbi ", $operation, ", {}"), in(reg) $operand, options(nostack)) },
            // SAFETY: an invalidation only removes TLB entries.
            InvalidateScope::Broadcast => unsafe { asm!(concat!("tlbi ", $operation, "is, {}"), in(reg) $operand, options(nostack)) },
        }
    };
}

pub(crate) fn invalidate(op: Invalidate) {
    let scope = op.scope;
    match op.target {
        InvalidateTarget::Page { tag, va, last_level, .. } => page(scope, tag, va, last_level),
        InvalidateTarget::Range { tag, range, last_level, .. } => by_range(scope, tag, range, last_level),
        InvalidateTarget::Tag(tag) => tlbi!(scope, "aside1", u64::from(tag.raw()) << 48),
        InvalidateTarget::PageOfAllTags { va, last_level, .. } => {
            let operand = va.raw() >> PAGE_SHIFT & ((1 << 44) - 1);
            if last_level {
                tlbi!(scope, "vaale1", operand);
            } else {
                tlbi!(scope, "vaae1", operand);
            }
        }
        InvalidateTarget::AllTags | InvalidateTarget::Everything => match scope {
            // SAFETY: an invalidation only removes TLB entries.
            InvalidateScope::Local => unsafe { asm!("tlbi vmalle1", options(nostack)) },
            // SAFETY: an invalidation only removes TLB entries.
            InvalidateScope::Broadcast => unsafe { asm!("tlbi vmalle1is", options(nostack)) },
        },
    }
    if scope == InvalidateScope::Local {
        barrier::dsb(barrier::NSH);
        barrier::isb(barrier::SY);
    }
}

fn page(scope: InvalidateScope, tag: Tag, va: VirtAddr, last_level: bool) {
    let operand = u64::from(tag.raw()) << 48 | va.raw() >> PAGE_SHIFT & ((1 << 44) - 1);
    if last_level {
        tlbi!(scope, "vale1", operand);
    } else {
        tlbi!(scope, "vae1", operand);
    }
}

/// Invalidates a range with FEAT_TLBIRANGE, as Linux's `__flush_tlb_range_op`.
///
/// One instruction covers (NUM + 1)·2^(5·SCALE + 1) pages; the largest parts go first.
fn by_range(scope: InvalidateScope, tag: Tag, range: PageRange, last_level: bool) {
    const GRANULE_4K: u64 = 1 << 46;
    let (mut at, mut left) = (range.start(), range.pages());
    for scale in (0..4).rev() {
        let unit = 1_u64 << (5 * scale + 1);
        while left >= unit {
            let count = (left / unit).min(32);
            let operand = u64::from(tag.raw()) << 48
                | GRANULE_4K
                | scale << 44
                | (count - 1) << 39
                | at.raw() >> PAGE_SHIFT & ((1 << 37) - 1);
            ranged(scope, operand, last_level);
            at = at.add(count * unit * PAGE_SIZE);
            left -= count * unit;
        }
    }
    if left > 0 {
        page(scope, tag, at, last_level);
    }
}

fn ranged(scope: InvalidateScope, operand: u64, last_level: bool) {
    // Encoded by hand (op0 1, CRn 8), because the assembler may not know the extension.
    match (scope, last_level) {
        // SAFETY: RVALE1, if the CPU has it; an invalidation only removes TLB entries.
        (InvalidateScope::Local, true) => unsafe { asm!("sys #0, c8, c6, #5, {}", in(reg) operand, options(nostack)) },
        // SAFETY: RVAE1; as above.
        (InvalidateScope::Local, false) => unsafe { asm!("sys #0, c8, c6, #1, {}", in(reg) operand, options(nostack)) },
        // SAFETY: RVALE1IS; as above.
        (InvalidateScope::Broadcast, true) => unsafe {
            asm!("sys #0, c8, c2, #5, {}", in(reg) operand, options(nostack))
        },
        // SAFETY: RVAE1IS; as above.
        (InvalidateScope::Broadcast, false) => unsafe {
            asm!("sys #0, c8, c2, #1, {}", in(reg) operand, options(nostack))
        },
    }
}

/// Installs `root` with `tag` as the user's root.
pub(crate) fn install_root(root: Pfn, tag: Tag, keep: bool) {
    TTBR0_EL1.set(root.base().raw() | u64::from(tag.raw()) << 48);
    barrier::isb(barrier::SY);
    if !keep {
        invalidate(Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::Tag(tag) });
    }
}
