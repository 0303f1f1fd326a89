// Entry to user mode, and traps from user mode and from the kernel.
//
// While user mode runs, SP_EL1 points to the registers of its context. A trap saves the registers
// there and switches to the kernel's stack, whose pointer is in the per-CPU data (TPIDR_EL1).
// Entering user mode is therefore a call that returns at the next trap.

// Offset in CpuLocal.
.set CPU_KERNEL_SP, 0
// Offsets in Registers.
.set R_SP, 248
.set R_PC, 256
.set R_PSTATE, 264
.set R_KIND, 272
.set R_SIZE, 288
.set STACK_SHIFT, 16

.macro vector kind
    .align 7
    stp x0, x1, [sp, #0]
    mov x0, #\kind
    b from_user
.endm

// A stack has 64 KiB and is aligned to 128 KiB: if the bit of its size is set in the stack pointer,
// the stack has overflowed. The test needs no free register, as in Linux's kernel_ventry: sp += x0,
// x0 = sp - x0, test, and back.
.macro kernel_vector kind
    .align 7
    sub sp, sp, #R_SIZE
    add sp, sp, x0
    sub x0, sp, x0
    tbnz x0, #STACK_SHIFT, overflowed
    sub x0, sp, x0
    sub sp, sp, x0
    stp x0, x1, [sp, #0]
    mov x0, #\kind
    b from_kernel
.endm

.section .text, "ax"
.align 11
.global trap_vectors
trap_vectors:
    kernel_vector 4
    kernel_vector 5
    kernel_vector 6
    kernel_vector 7
    kernel_vector 0
    kernel_vector 1
    kernel_vector 2
    kernel_vector 3
    vector 0
    vector 1
    vector 2
    vector 3
    vector 4
    vector 4
    vector 4
    vector 4

.macro save_rest
    str x0, [sp, #R_KIND]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x1, elr_el1
    mrs x2, spsr_el1
    str x30, [sp, #240]
    stp x1, x2, [sp, #R_PC]
.endm

.macro restore_all
    ldp x1, x2, [sp, #R_PC]
    msr elr_el1, x1
    msr spsr_el1, x2
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x19, [sp, #144]
    ldp x20, x21, [sp, #160]
    ldp x22, x23, [sp, #176]
    ldp x24, x25, [sp, #192]
    ldp x26, x27, [sp, #208]
    ldp x28, x29, [sp, #224]
    ldr x30, [sp, #240]
    ldp x0, x1, [sp, #0]
.endm

from_user:
    save_rest
    mrs x1, sp_el0
    str x1, [sp, #R_SP]
    mrs x1, tpidr_el1
    ldr x1, [x1, #CPU_KERNEL_SP]
    mov sp, x1
    ldp x19, x20, [sp], #16
    ldp x21, x22, [sp], #16
    ldp x23, x24, [sp], #16
    ldp x25, x26, [sp], #16
    ldp x27, x28, [sp], #16
    ldp x29, x30, [sp], #16
    ret

// The overflowed stack is not used again.
overflowed:
    adrp x0, overflow_stack_end
    add x0, x0, :lo12:overflow_stack_end
    mov sp, x0
    mrs x0, elr_el1
    bl stack_overflowed
    b .

from_kernel:
    save_rest
    mov x0, sp
    bl kernel_trap
    restore_all
    add sp, sp, #R_SIZE
    eret

.section .bss, "aw", @nobits
    .align 4
    .skip 16384
overflow_stack_end:

.section .text, "ax"
// fn enter_user(registers: *mut Registers): runs user mode until the next trap. Interrupts are
// disabled.
.global enter_user
enter_user:
    stp x29, x30, [sp, #-16]!
    stp x27, x28, [sp, #-16]!
    stp x25, x26, [sp, #-16]!
    stp x23, x24, [sp, #-16]!
    stp x21, x22, [sp, #-16]!
    stp x19, x20, [sp, #-16]!
    mrs x1, tpidr_el1
    mov x2, sp
    str x2, [x1, #CPU_KERNEL_SP]
    mov sp, x0
    ldr x1, [sp, #R_SP]
    msr sp_el0, x1
    restore_all
    eret

// fn copy_user(to: *mut u8, from: *const u8, bytes: usize) -> usize: copies, and returns the number
// of bytes left when an access faulted. The fault handler continues at copy_user_fault. Words are
// copied only between aligned addresses, so that none crosses a page.
.global copy_user, copy_user_end, copy_user_fault
copy_user:
    orr x3, x0, x1
    tst x3, #7
    b.ne 2f
1:  cmp x2, #8
    b.lo 2f
    ldr x3, [x1]
    str x3, [x0]
    add x0, x0, #8
    add x1, x1, #8
    sub x2, x2, #8
    b 1b
2:  cbz x2, 3f
    ldrb w3, [x1]
    strb w3, [x0]
    add x0, x0, #1
    add x1, x1, #1
    sub x2, x2, #1
    b 2b
3:
copy_user_end:
copy_user_fault:
    mov x0, x2
    ret

// fn load_user_u32(from: *const u32, to: *mut u32) -> usize: one aligned load; 0 on success.
.global load_user_u32, load_user_u32_end, load_user_u32_fault
load_user_u32:
    ldr w2, [x0]
load_user_u32_end:
    str w2, [x1]
    mov x0, #0
    ret
load_user_u32_fault:
    mov x0, #1
    ret

// fn compare_exchange_user_u32(at: *mut u32, old: u32, new: u32, found: *mut u32) -> usize: one atomic
// operation on an aligned word; 0 on success.
.arch_extension lse                     // which the kernel requires
.global compare_exchange_user_u32, compare_exchange_user_u32_end, compare_exchange_user_u32_fault
compare_exchange_user_u32:
    casal w1, w2, [x0]
compare_exchange_user_u32_end:
    str w1, [x3]
    mov x0, #0
    ret
compare_exchange_user_u32_fault:
    mov x0, #1
    ret

.arch_extension fp
.arch_extension simd
.macro floating op
    \op q0, q1, [x0, #0]
    \op q2, q3, [x0, #32]
    \op q4, q5, [x0, #64]
    \op q6, q7, [x0, #96]
    \op q8, q9, [x0, #128]
    \op q10, q11, [x0, #160]
    \op q12, q13, [x0, #192]
    \op q14, q15, [x0, #224]
    \op q16, q17, [x0, #256]
    \op q18, q19, [x0, #288]
    \op q20, q21, [x0, #320]
    \op q22, q23, [x0, #352]
    \op q24, q25, [x0, #384]
    \op q26, q27, [x0, #416]
    \op q28, q29, [x0, #448]
    \op q30, q31, [x0, #480]
.endm

// fn save_floating(to: *mut FpState), fn load_floating(from: *const FpState)
.global save_floating, load_floating
save_floating:
    floating stp
    mrs x1, fpsr
    mrs x2, fpcr
    add x0, x0, #512
    stp x1, x2, [x0]
    ret
load_floating:
    floating ldp
    add x0, x0, #512
    ldp x1, x2, [x0]
    msr fpsr, x1
    msr fpcr, x2
    ret
