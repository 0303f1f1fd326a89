# Entry to user mode, and traps from user mode and from the kernel.
#
# TSS.RSP0 and the syscall entry point to the end of the user context, so a trap saves the registers
# in the context itself. Entering user mode stores the kernel's stack pointer in the per-CPU data,
# and every trap from user mode returns to it. Entering user mode is therefore a call that returns
# at the next trap.

# Offsets in CpuLocal.
.set CPU_CONTEXT_END, 8
.set CPU_KERNEL_RSP, 16
.set CPU_SCRATCH, 24
.set CPU_RSP0, 36
# Offsets in Registers.
.set REGISTERS_SIZE, 176
.set VECTOR_SYSCALL, 0x100

.macro save_registers
    push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
.endm

.macro restore_registers
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rbp
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbx
    pop %rax
    add $16, %rsp                       # vector and error code
.endm

.section .text, "ax"
.code64

# fn enter_user(registers: *mut Registers): runs user mode until the next trap. Interrupts are
# disabled.
.global enter_user
enter_user:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, %gs:CPU_KERNEL_RSP
    lea REGISTERS_SIZE(%rdi), %rax
    mov %rax, %gs:CPU_CONTEXT_END
    mov %rax, %gs:CPU_RSP0
    mov %rdi, %rsp
    restore_registers
    swapgs
    iretq

.global syscall_entry
syscall_entry:
    swapgs
    mov %rsp, %gs:CPU_SCRATCH
    mov %gs:CPU_CONTEXT_END, %rsp
    push $0x1b                          # user data
    push %gs:CPU_SCRATCH
    push %r11
    push $0x23                          # user code
    push %rcx
    push $0
    push $VECTOR_SYSCALL
    save_registers
    jmp back_to_kernel

.align 16
.global trap_stubs
trap_stubs:                             # 16 bytes each
.set vector, 0
.rept 256
    .align 16
    .if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    push $0                             # the CPU pushes no error code
    .endif
    push $vector
    jmp trap_common
    .set vector, vector + 1
.endr

trap_common:
    testb $3, 24(%rsp)
    jz 1f
    swapgs
    save_registers
back_to_kernel:
    mov %gs:CPU_KERNEL_RSP, %rsp
    cld
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret
1:  save_registers
    mov %rsp, %rdi
    mov %rsp, %rbp
    and $-16, %rsp
    cld
    call kernel_trap
    mov %rbp, %rsp
    restore_registers
    iretq

# fn copy_user(to: *mut u8, from: *const u8, bytes: usize) -> usize: copies, and returns the number
# of bytes left when an access faulted. The fault handler continues at copy_user_fault.
.global copy_user, copy_user_end, copy_user_fault
copy_user:
    mov %rdx, %rcx
    rep movsb
copy_user_end:
copy_user_fault:
    mov %rcx, %rax
    ret

# fn load_user_u32(from: *const u32, to: *mut u32) -> usize: one aligned load; 0 on success.
.global load_user_u32, load_user_u32_end, load_user_u32_fault
load_user_u32:
    mov (%rdi), %eax
load_user_u32_end:
    mov %eax, (%rsi)
    xor %eax, %eax
    ret
load_user_u32_fault:
    mov $1, %eax
    ret

# fn compare_exchange_user_u32(at: *mut u32, old: u32, new: u32, found: *mut u32) -> usize: one atomic
# operation on an aligned word; 0 on success.
.global compare_exchange_user_u32, compare_exchange_user_u32_end, compare_exchange_user_u32_fault
compare_exchange_user_u32:
    mov %esi, %eax
    lock cmpxchg %edx, (%rdi)
compare_exchange_user_u32_end:
    mov %eax, (%rcx)
    xor %eax, %eax
    ret
compare_exchange_user_u32_fault:
    mov $1, %eax
    ret
