/* A program that does what its first argument says and should be killed for it, in a child; the parent tells how. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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
    for (int how = 0; how < 9; how++) {
        int status;
        fflush(stdout);
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
