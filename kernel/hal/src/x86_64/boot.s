# From the PVH entry (32 bits, paging off, %ebx = struct hvm_start_info; Xen's
# docs/misc/pvh.pandoc) to Rust in long mode, and from a start-up IPI (16 bits) to Rust.
#
# The boot tables stay in use, and every root shares their upper half. Entry 256 is the linear map
# of physical memory, entry 257 the uncached map of the first 4 GiB for devices, entry 511 the
# image. Entry 0, the identity map, is removed once all CPUs have started.

.set KERNEL_BASE, 0xffffffff80000000
.set STACK_SIZE, 0x10000

.section .note.Xen, "a", @note
    .align 4
    .long 4, 8, 18                      # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .align 4
    .quad pvh_start - KERNEL_BASE

# Loads the data segment registers in long mode: null in %fs and %gs, the data segment in the others.
.macro load_data_segments
    mov $0x10, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
.endm

.section .text.boot, "ax"
.code32
.global pvh_start
pvh_start:
    cld
    mov %ebx, %edi                      # first argument of Rust
    xor %esi, %esi                      # CPU 0
    lgdt boot_gdt_pointer - KERNEL_BASE
    call enter_long_mode
    ljmp $8, $(1f - KERNEL_BASE)
.code64
1:  movabs $2f, %rax
    jmp *%rax
2:  load_data_segments
    lea boot_stack_end(%rip), %rsp
    xor %ebp, %ebp
    call boot_cpu_start
    ud2

# Enables PAE, long mode, no-execute and paging. Clobbers eax, ecx, edx.
.code32
enter_long_mode:
    mov $0x6a0, %eax                    # CR4: PAE, PGE, OSFXSR, OSXMMEXCPT
    mov %eax, %cr4
    mov $(boot_pml4 - KERNEL_BASE), %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx               # EFER: SCE, LME, NXE
    rdmsr
    or $0x901, %eax
    wrmsr
    mov $0x80010033, %eax               # CR0: PG, WP, NE, ET, MP, PE
    mov %eax, %cr0
    ret

# A start-up IPI enters here, in a copy at the page TRAMPOLINE: 16 bits, %cs:0 is that page.
.set TRAMPOLINE, 0x8000
.code16
.global trampoline_start, trampoline_end, trampoline_cpu, trampoline_stack
trampoline_start:
    cli
    cld
    xor %ax, %ax
    mov %ax, %ds
    lgdtl TRAMPOLINE + (3f - trampoline_start)
    mov %cr0, %eax
    or $1, %eax
    mov %eax, %cr0
    ljmpl $0x18, $(TRAMPOLINE + (1f - trampoline_start))
.code32
1:  mov $0x10, %eax
    mov %eax, %ds
    mov %eax, %ss
    # The rest runs at its physical address, which the boot tables map identically.
    mov $(enter_long_mode - KERNEL_BASE), %eax
    mov $(TRAMPOLINE + 0xff0), %esp
    call *%eax
    ljmpl $8, $(TRAMPOLINE + (2f - trampoline_start))
.code64
2:  mov TRAMPOLINE + (trampoline_stack - trampoline_start), %rsp
    mov TRAMPOLINE + (trampoline_cpu - trampoline_start), %rdi
    lgdt boot_gdt_pointer_high
    load_data_segments
    xor %ebp, %ebp
    movabs $other_cpu_start, %rax
    call *%rax
    ud2
    .align 8
trampoline_cpu:
    .quad 0
trampoline_stack:
    .quad 0
3:  .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt - KERNEL_BASE
trampoline_end:

.section .data, "aw"
    .align 16
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff            # 0x08 kernel code, 64 bits
    .quad 0x00cf93000000ffff            # 0x10 data
    .quad 0x00cf9b000000ffff            # 0x18 kernel code, 32 bits
boot_gdt_end:
boot_gdt_pointer:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt - KERNEL_BASE
boot_gdt_pointer_high:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt

    .align 4096
.global boot_pml4
boot_pml4:
    .quad low_pdpt - KERNEL_BASE + 0x3
    .fill 255, 8, 0
    .quad linear_pdpt - KERNEL_BASE + 0x3
    .quad device_pdpt - KERNEL_BASE + 0x3
    .fill 253, 8, 0
    .quad image_pdpt - KERNEL_BASE + 0x3
low_pdpt:
    .quad 0x083                         # the first GiB, which contains the image
    .fill 511, 8, 0
linear_pdpt:                            # 512 GiB, global, not executable, write-back
    .set gib, 0
    .rept 512
    .quad (gib << 30) | 0x8000000000000183
    .set gib, gib + 1
    .endr
device_pdpt:                            # 4 GiB, uncached
    .set gib, 0
    .rept 4
    .quad (gib << 30) | 0x800000000000019b
    .set gib, gib + 1
    .endr
    .fill 508, 8, 0
.global image_pdpt
image_pdpt:
    .fill 510, 8, 0
    .quad 0x183
    .quad 0

.section .bss, "aw", @nobits
    .align 4096
.global boot_guard
boot_guard:                             # unmapped by guard_boot_stack
    .skip 4096
boot_stack:
    .skip STACK_SIZE
.global boot_stack_end
boot_stack_end:
