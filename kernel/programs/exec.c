/* A thread is about to wait when another one ends the process or replaces its program: it must not begin to. Prints a line for each. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 4, DELAYS = 3, ROUNDS = 6 * KINDS * DELAYS, TURNS = 100000, STATUS = 3 };

static atomic_int here, go, word;
static int empty[2];

/* Waits for ever. With each kind of call and after each delay in turn: where CPUs run at the same time, the other thread needs a while. */
static void *waits(void *round)
{
    struct timespec year = { 365 * 86400 };
    long kind = (long)round % KINDS, turns = (long)round / KINDS % DELAYS * TURNS;
    char byte;
    here = 1;
    while (!go)
        ;
    for (volatile long i = 0; i < turns; i++)
        ;
    if (kind == 0)
        pause();
    if (kind == 1)
        syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, 0, 0, 0);
    if (kind == 2)
        read(empty[0], &byte, 1);
    if (kind == 3)
        nanosleep(&year, 0);
    return 0;
}

/* What a child does. */
static void ends(char *program, long round, int executes)
{
    char *words[] = { program, "after", 0 };
    pthread_t thread;
    pthread_create(&thread, 0, waits, (void *)round);
    while (!here)
        ;
    go = 1;
    if (executes)
        execv("/proc/self/exe", words);
    _exit(STATUS);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return STATUS;
    if (pipe(empty))
        return 1;
    for (int executes = 0; executes < 2; executes++) {
        int right = 0, status;
        for (long round = 0; round < ROUNDS; round++) {
            pid_t child = fork();
            if (child == 0)
                ends(argv[0], round, executes);
            right += waitpid(child, &status, 0) == child && WEXITSTATUS(status) == STATUS;
        }
        printf("%s: %d\n", executes ? "execve" : "exit_group", right);
        fflush(stdout);
    }
    return 0;
}
