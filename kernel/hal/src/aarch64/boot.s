// From Linux's arm64 boot protocol (Documentation/arch/arm64/booting.rst: MMU off, x0 = device
// tree) to Rust, and from PSCI's CPU_ON to Rust.
//
// The boot tables stay in use. One table of 1 GiB blocks is the linear map of the kernel's half
// and, until the first space is installed, the identity map: both have the same low bits. At first
// only the GiB of the image is mapped as memory, in smaller blocks; Rust maps the rest.

.set BLOCK_VALID, (1 << 0) | (1 << 10)          // block, accessed
.set BLOCK_INNER, 3 << 8
.set BLOCK_DEVICE, 1 << 2                       // MAIR index 1
.set BLOCK_UXN, 1 << 54
.set BLOCK_PXN, 1 << 53
.set STACK_SIZE, 0x10000

// Fills a table with 512 entries that map consecutive blocks of 1 << shift bytes. Clobbers x4, x13.
.macro fill_table table, first, shift
    mov x4, #0
1:  orr x13, \first, x4, lsl #\shift
    str x13, [\table, x4, lsl #3]
    add x4, x4, #1
    cmp x4, #512
    b.lo 1b
.endm

.section .text.boot, "ax"
.global image_head
image_head:
    b boot_start
    .word 0
    .quad 0                                     // text_offset
    .quad image_size
    .quad 0xa                                   // little endian, 4K pages, anywhere in memory
    .quad 0, 0, 0
    .ascii "ARM\x64"
    .word 0

boot_start:
    mov x19, x0
    // Zero .bss, which a flat image does not contain.
    adrp x1, bss_start
    adrp x2, image_end
1:  stp xzr, xzr, [x1], #16
    cmp x1, x2
    b.lo 1b
    // 512 blocks of 1 GiB: devices, except the one that contains this code.
    adrp x0, boot_blocks
    adr x3, image_head
    lsr x3, x3, #30
    mov x4, #0
    ldr x5, =(BLOCK_VALID | BLOCK_DEVICE | BLOCK_UXN | BLOCK_PXN)
    ldr x6, =(BLOCK_VALID | BLOCK_INNER | BLOCK_UXN)
2:  cmp x4, x3
    csel x7, x6, x5, eq
    orr x7, x7, x4, lsl #30
    str x7, [x0, x4, lsl #3]
    add x4, x4, #1
    cmp x4, #512
    b.lo 2b
    // The GiB of the image in blocks of 2 MiB, and the block of the boot stack in pages. The page
    // below the stack is not mapped.
    adrp x8, boot_large
    orr x7, x6, x3, lsl #30
    fill_table x8, x7, 21
    adrp x9, boot_guard
    lsr x10, x9, #21
    orr x11, x6, x10, lsl #21
    orr x11, x11, #2                            // page descriptors
    adrp x12, boot_small
    fill_table x12, x11, 12
    ubfx x4, x9, #12, #9
    str xzr, [x12, x4, lsl #3]
    and x10, x10, #511
    orr x12, x12, #3
    str x12, [x8, x10, lsl #3]
    orr x8, x8, #3
    str x8, [x0, x3, lsl #3]
    adrp x1, boot_root
    orr x0, x0, #3
    str x0, [x1]
    bl enable_mmu
    ldr x1, =boot_stack_end
    ldr x2, =1f
    br x2
1:  mov sp, x1
    mov x29, xzr
    mov x30, xzr
    mov x0, x19
    bl boot_cpu_start
    b .

// PSCI enters here. x0 = physical address of two words: the CPU's number and the top of its stack.
.global other_cpu_entry
other_cpu_entry:
    mov x19, x0
    bl enable_mmu
    ldr x2, =1f
    br x2
1:  ldp x0, x1, [x19]
    mov sp, x1
    mov x29, xzr
    mov x30, xzr
    bl other_cpu_start
    b .

// Clobbers x0 to x4.
enable_mmu:
    ldr x0, =0x04ff                             // MAIR: 0 write-back memory, 1 nGnRE device
    msr mair_el1, x0
    // T0SZ = T1SZ = 16, write-back inner-shareable walks, 4K granules. Physical address size, ASID
    // size and hardware access and dirty state as the CPU supports them.
    ldr x0, =0xb5103510
    mrs x1, id_aa64mmfr0_el1
    and x2, x1, #0xf                            // PARange
    cmp x2, #5
    mov x3, #5
    csel x2, x2, x3, lo
    orr x0, x0, x2, lsl #32
    ubfx x2, x1, #4, #4                         // ASIDBits: 2 is 16 bits
    cmp x2, #2
    cset x2, eq
    orr x0, x0, x2, lsl #36
    mrs x1, id_aa64mmfr1_el1
    and x2, x1, #0xf                            // HAFDBS: 1 accessed, 2 dirty too
    cmp x2, #1
    cset x3, hs
    orr x0, x0, x3, lsl #39
    cmp x2, #2
    cset x3, hs
    orr x0, x0, x3, lsl #40
    msr tcr_el1, x0
    adrp x0, boot_root
    msr ttbr0_el1, x0
    msr ttbr1_el1, x0
    tlbi vmalle1
    dsb nsh
    isb
    // SPAN, EIS, EOS and the bits that are reserved as 1. nTWE, nTWI, UCT, UCI, DZE: user mode may
    // execute WFE, WFI and cache maintenance. SA, SA0, I, C, M.
    ldr x0, =0x34d5d81d
    msr sctlr_el1, x0
    isb
    mov x0, #(3 << 20)                          // floating point does not trap
    msr cpacr_el1, x0
    mov x0, #2                                  // user mode may read the virtual counter
    msr cntkctl_el1, x0
    isb
    ret
.ltorg

.section .bss, "aw", @nobits
    .align 12
.global boot_root
boot_root:
    .skip 4096
.global boot_blocks
boot_blocks:
    .skip 4096
boot_large:
    .skip 4096
boot_small:
    .skip 4096
// The stack is aligned to twice its size, so that one bit of the stack pointer shows an overflow
// (`trap.s`).
    .skip 4096
    .align 17
boot_stack:
.set boot_guard, boot_stack - 4096
    .skip STACK_SIZE
.global boot_stack_end
boot_stack_end:
