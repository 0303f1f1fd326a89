/* What a program is told about its faults, and how children that misbehave are killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf after;
static char *expected;
static const char *what;

/* Prints the signal, its code, whether it names the expected address, and what the frame says of the fault. */
static void tell(int signal, siginfo_t *info, void *frame)
{
    ucontext_t *context = frame;
    printf("%s: signal %d code %d address %d", what, signal, info->si_code,
           info->si_addr == expected ? 1 : info->si_addr ? 2 : 0);
#ifdef __x86_64__
    greg_t *registers = context->uc_mcontext.gregs;
    printf(", error %llx trap %llu cr2 %d\n", registers[REG_ERR], registers[REG_TRAPNO], (char *)registers[REG_CR2] == expected);
#else
    char *record = (char *)context->uc_mcontext.__reserved;
    unsigned long syndrome = 0;
    while (*(unsigned *)record) {
        if (*(unsigned *)record == 0x45535201)
            syndrome = *(unsigned long *)(record + 8);
        record += ((unsigned *)record)[1];
    }
    /* Not the level of the tables at which the walk ended. */
    printf(", class %lx write %lu status %lx address %d\n", syndrome >> 26, syndrome >> 26 == 0x24 ? syndrome >> 6 & 1 : 0,
           syndrome & 0x3c, (char *)context->uc_mcontext.fault_address == expected);
#endif
    siglongjmp(after, 1);
}

static char *page(int protection)
{
    char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)at = 1;
    mprotect(at, 4096, protection);
    return at;
}

static char *past_end(void)
{
    int file = memfd_create("short", 0);
    ftruncate(file, 4096);
    return (char *)mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) + 4096;
}

#define FAULT(words, at, code) \
    what = words;              \
    expected = at;             \
    if (!sigsetjmp(after, 1)) { \
        code;                  \
        printf("%s: nothing\n", what); \
    }

static void faults(void)
{
    static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGUSR1 };
    static char room[65536];
    struct sigaction action = { .sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_ONSTACK };
    sigaltstack(&(stack_t){ .ss_sp = room, .ss_size = sizeof room }, 0);
    for (int i = 0; i < 6; i++)
        sigaction(signals[i], &action, 0);
    char *none = page(PROT_NONE), *constant = page(PROT_READ), *data = page(PROT_READ | PROT_WRITE);
    char *hole = page(PROT_READ), *past = past_end();
    munmap(hole, 4096);
    FAULT("before any", 0, raise(SIGUSR1));
    FAULT("load, not mapped", hole, *(volatile char *)hole);
    FAULT("store, not mapped", hole + 5, *(volatile char *)(hole + 5) = 1);
    FAULT("load, not permitted", none, *(volatile char *)none);
    FAULT("store, not permitted", constant + 8, *(volatile char *)(constant + 8) = 1);
    FAULT("fetch, not mapped", hole, ((void (*)(void))hole)());
    FAULT("fetch, not permitted", data, ((void (*)(void))data)());
    FAULT("load, kernel", (char *)0xffff800000100000u, *(volatile char *)expected);
    FAULT("store, kernel", (char *)0xffff800000100000u, *(volatile char *)expected = 1);
    FAULT("load, past the end", past, *(volatile char *)past);
    FAULT("store, past the end", past, *(volatile char *)past = 1);
    FAULT("SIGUSR1", past, raise(SIGUSR1));
#ifdef __x86_64__
    extern char undefined[], divides[], halts[], stepped[];
    FAULT("undefined instruction", undefined, __asm__ volatile(".globl undefined; undefined: ud2"));
    FAULT("int3", 0, __asm__ volatile("int3"));
    FAULT("division", divides, __asm__ volatile(".globl divides; divides: div %%ecx" : : "a"(1), "d"(0), "c"(0)));
    FAULT("non-canonical load", 0, *(volatile char *)0x8000000000000000u);
    FAULT("non-canonical stack", 0, __asm__ volatile("mov %%rsp, %%rcx; bts $62, %%rsp; push %%rax; mov %%rcx, %%rsp" : : : "rcx"));
    FAULT("privileged", halts, __asm__ volatile(".globl halts; halts: hlt"));
    FAULT("single step", stepped, __asm__ volatile("sub $128, %%rsp; pushfq; orl $256, (%%rsp); popfq; nop; .globl stepped; stepped: add $128, %%rsp" : : : "memory"));
    FAULT("x87 division", 0, __asm__ volatile("fninit; fldcw %0; fldz; fld1; fdivp; fwait" : : "m"((short){ 0x37b })));
#else
    extern char undefined[], stops[], privileged[];
    FAULT("undefined instruction", undefined, __asm__ volatile(".globl undefined; undefined: udf #0"));
    FAULT("brk", stops, __asm__ volatile(".globl stops; stops: brk #7"));
    FAULT("misaligned exclusive", data + 13, __asm__ volatile("ldaxr w0, [%0]" : : "r"(expected) : "x0"));
    FAULT("misaligned fetch", constant + 2, __asm__ volatile("br %0" : : "r"(expected)));
    FAULT("privileged", privileged, __asm__ volatile(".globl privileged; privileged: mrs x0, sctlr_el1" : : : "x0"));
#endif
    for (int i = 0; i < 6; i++)
        signal(signals[i], SIG_DFL);
    sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, 0);
}

static void misbehave(int how)
{
    volatile char *code;
    switch (how) {
    case 0: *(volatile int *)16 = 1; break;                                     /* nothing is mapped there */
    case 1: *(volatile char *)(void *)misbehave = 1; break;                     /* code can't be written */
    case 2: *(volatile char *)0xffff800000100000u = 1; break;                   /* the kernel's */
    case 3: __builtin_trap(); break;                                            /* no instruction */
    case 4:                                                                     /* data can't be executed */
        code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ((void (*)(void))code)();
        break;
    case 5: for (;;) { volatile char frame[1 << 16]; frame[0] = 1; alloca(1 << 16); misbehave(5); } /* the stack ends */
    case 6: abort();
    case 7: for (;;) if (write(1, (void *)0xffff800000100000u, 1) == -1) _exit(3);  /* refused, not killed */
    case 8:                                                                     /* memory ends */
        for (;;) {
            char *memory = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED)
                _exit(4);
            memset(memory, 1, 16 << 20);
        }
    }
}

int main(void)
{
    setvbuf(stdout, 0, _IONBF, 0);
    faults();
    for (int how = 0; how < 9; how++) {
        int status;
        if (!fork()) {
            misbehave(how);
            _exit(0);
        }
        wait(&status);
        if (WIFSIGNALED(status))
            printf("%d: signal %d\n", how, WTERMSIG(status));
        else
            printf("%d: status %d\n", how, WEXITSTATUS(status));
    }
    return 5;
}
