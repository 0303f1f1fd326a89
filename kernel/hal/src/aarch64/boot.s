// From Linux's arm64 boot protocol (Documentation/arch/arm64/booting.rst: MMU off, x0 = device tree) to Rust, and from PSCI's CPU_ON to
// the same.
//
// The boot tables stay. One table of 1 GiB blocks serves as the linear map of the kernel's half and, until the first space is installed,
// as the identity: both have the same low bits. Only the block of the image is memory at first, cut into smaller ones; Rust adds the others.

.set BLOCK_VALID, (1 << 0) | (1 << 10)          // block, accessed
.set BLOCK_INNER, 3 << 8
.set BLOCK_DEVICE, 1 << 2                       // MAIR index 1
.set BLOCK_UXN, 1 << 54
.set BLOCK_PXN, 1 << 53
.set STACK_SIZE, 0x10000

// Fills a table with 512 entries that differ by what they map, of 1 << shift bytes each. Changes x4 and x13.
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
    // Zero .bss: a flat image does not carry it.
    adrp x1, bss_start
    adrp x2, image_end
1:  stp xzr, xzr, [x1], #16
    cmp x1, x2
    b.lo 1b
    // 512 blocks of 1 GiB: devices, but for the one that this code lies in.
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
    // The GiB of the image in blocks of 2 MiB, and that with the boot stack in pages, of which the one below the stack is not there.
    adrp x8, boot_large
    orr x7, x6, x3, lsl #30
    fill_table x8, x7, 21
    adrp x9, boot_guard
    lsr x10, x9, #21
    orr x11, x6, x10, lsl #21
    orr x11, x11, #2                            // a page, no block
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

// PSCI enters here: x0 = physical address of two words, the CPU's number and the top of its stack.
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

// Changes x0 to x4.
enable_mmu:
    ldr x0, =0x04ff                             // MAIR: 0 write-back memory, 1 nGnRE device
    msr mair_el1, x0
    // T0SZ = T1SZ = 16, write-back inner-shareable walks, 4K granules; size, ASIDs and hardware state as the CPU has them.
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
    // SPAN, EIS, EOS and other ones; nTWE, nTWI, UCT, UCI, DZE: user mode may wait and maintain caches; SA, SA0; I, C, M.
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
// So much before every stack, and none of it twice: `trap.s` sees by one bit of the pointer whether a stack has overflowed.
    .skip 4096
    .align 17
boot_stack:
.set boot_guard, boot_stack - 4096
    .skip STACK_SIZE
.global boot_stack_end
boot_stack_end:
