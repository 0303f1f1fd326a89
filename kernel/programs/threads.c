/* Shootdowns under fire: four threads map, fill, protect and unmap the same range over and over, while four others read it. A reader that sees
   what was mapped before, or a protected page that can be written, is counted. It ends after as many rounds, and as many reads, as it is told.
   Prints nothing that depends on how often. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, THREADS = 4 };

static char *range;
static volatile int stop;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Generation of what is mapped, odd while it changes. */
static volatile uint64_t generation;
static volatile unsigned long stale, unprotected, rounds, seen;
static __thread sigjmp_buf back;
static __thread volatile int armed;

static void on_fault(int signal)
{
    (void)signal;
    if (armed)
        siglongjmp(back, 1);
    _exit(9);
}

static void *writer(void *argument)
{
    (void)argument;
    while (!stop) {
        pthread_mutex_lock(&lock);
        uint64_t next = generation + 2;
        generation = next - 1;
        munmap(range, PAGES * PAGE);
        mmap(range, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        for (int page = 0; page < PAGES; page++)
            *(volatile uint64_t *)(range + page * PAGE) = next;
        mprotect(range, PAGES * PAGE, PROT_READ);
        armed = 1;
        if (!sigsetjmp(back, 1)) {
            *(volatile uint64_t *)(range + PAGE) = 1;
            unprotected++;
        }
        armed = 0;
        generation = next;
        rounds++;
        pthread_mutex_unlock(&lock);
    }
    return 0;
}

static void *reader(void *argument)
{
    unsigned page = (uintptr_t)argument;
    while (!stop) {
        page = (page + 1) % PAGES;
        armed = 1;
        if (!sigsetjmp(back, 1)) {
            uint64_t before = generation;
            uint64_t value = *(volatile uint64_t *)(range + page * PAGE);
            uint64_t after = generation;
            /* While nothing changed, the value is this generation's. */
            if (before == after && before % 2 == 0 && before && value != before)
                __atomic_fetch_add(&stale, 1, __ATOMIC_RELAXED);
            if (before == after)
                __atomic_fetch_add(&seen, 1, __ATOMIC_RELAXED);
        }
        armed = 0;
    }
    return 0;
}

int main(int argc, char **argv)
{
    unsigned long wanted = argc > 1 ? strtoul(argv[1], 0, 0) : 4000;
    pthread_t threads[2 * THREADS];
    struct sigaction action = { .sa_handler = on_fault };
    sigaction(SIGSEGV, &action, 0);
    range = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uintptr_t i = 0; i < 2 * THREADS; i++)
        if (pthread_create(&threads[i], 0, i % 2 ? reader : writer, (void *)i))
            return 3;
    /* Counted and not timed, so that a slow machine does as much. */
    while (rounds < wanted || seen < wanted) {
        struct timespec rest = { .tv_nsec = 10 * 1000 * 1000 };
        nanosleep(&rest, 0);
    }
    stop = 1;
    for (int i = 0; i < 2 * THREADS; i++)
        pthread_join(threads[i], 0);
    printf("%s rounds, %s reads: %lu stale, %lu unprotected\n", rounds > 10 ? "many" : "few", seen > 10 ? "many" : "few", stale,
           unprotected);
    return stale || unprotected;
}
