/* Pages that move between two nodes: what move_pages, migrate_pages and mbind say, and that no store of another thread is lost. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, MOVES = 200, BIND = 2, STRICT = 1, MOVE = 2, MOVE_ALL = 4 };

static char *memory;
static void *pages[PAGES];

static long move_pages(long count, void **at, int *nodes, int *status, int flags)
{
    return syscall(SYS_move_pages, 0, count, at, nodes, status, flags);
}

/* How many of the pages are on a node. */
static int on(int node)
{
    int status[PAGES], count = 0;
    if (move_pages(PAGES, pages, 0, status, 0) != 0)
        return -1;
    for (int page = 0; page < PAGES; page++)
        count += status[page] == node;
    return count;
}

/* Moves all pages to a node; returns how many have it as their status, or -1. */
static int move_to(int node)
{
    int nodes[PAGES], status[PAGES], count = 0;
    for (int page = 0; page < PAGES; page++) {
        nodes[page] = node;
        status[page] = -99;
    }
    if (move_pages(PAGES, pages, nodes, status, MOVE) != 0)
        return -1;
    for (int page = 0; page < PAGES; page++)
        count += status[page] == node;
    return count;
}

static int intact(void)
{
    for (int page = 0; page < PAGES; page++)
        for (int at = 0; at < PAGE; at += 512)
            if (memory[page * PAGE + at] != (char)(page + at / 512 + 1))
                return 0;
    return 1;
}

/* Prints what a call returns, and the error. The call comes first: C does not order arguments. */
static void tell(long result)
{
    printf(" %ld", result);
    if (result < 0)
        printf(" %d", errno);
}

static void there_and_back(void)
{
    printf("moved:");
    for (int turn = 0; turn < 4; turn++) {
        int node = turn % 2;
        tell(move_to(node));
        tell(on(node));
    }
    printf(" %d\n", intact());
}

static int status_of(void *at, int node)
{
    int status = -99;
    move_pages(1, &at, &node, &status, MOVE);
    return status;
}

static void refused(void)
{
    int status[1], node = 2;
    char *fresh = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char zero = fresh[PAGE];
    (void)zero;
    munmap(fresh + 2 * PAGE, PAGE);
    /* Of a page that was never touched, Linux 6.1 says EFAULT, later ones ENOENT, as the manual does. */
    printf("status:");
    for (int page = 1; page < 3; page++)
        printf(" %d", status_of(fresh + page * PAGE, 1));
    printf(" %d\n", move_to(0) == PAGES && status_of(memory, 0) == 0);
    printf("errors:");
    tell(move_pages(1, pages, &node, status, MOVE));
    node = -1;
    tell(move_pages(1, pages, &node, status, MOVE));
    node = 1;
    tell(move_pages(1, pages, &node, status, 1));
    tell(move_pages(1, (void **)8, &node, status, MOVE));
    tell(move_pages(1, pages, (int *)8, status, MOVE));
    tell(move_pages(1, pages, 0, (int *)8, MOVE));
    tell(move_pages(0, pages, &node, status, MOVE));
    tell(syscall(SYS_move_pages, 99999, 1, pages, &node, status, MOVE));
    printf("\n");
}

/* A page that a child has, too, moves only with MOVE_ALL, for both. */
static void shared(void)
{
    int go[2], done[2];
    char byte = 0;
    move_to(0);
    if (pipe(go) || pipe(done))
        return;
    pid_t child = fork();
    if (child == 0) {
        int ok = read(go[0], &byte, 1) == 1 && intact();
        memory[0] = 77;
        byte = ok && on(1) == PAGES - 1;
        _exit(write(done[1], &byte, 1) != 1);
    }
    printf("shared: %d", status_of(memory, 1));
    int nodes[PAGES], status[PAGES], moved = 0;
    for (int page = 0; page < PAGES; page++)
        nodes[page] = 1;
    long failed = move_pages(PAGES, pages, nodes, status, MOVE_ALL);
    for (int page = 0; page < PAGES; page++)
        moved += status[page] == 1;
    printf(" %ld %d", failed, moved);
    printf(" %d", write(go[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1);
    waitpid(child, 0, 0);
    printf(" %d\n", intact());
}

static void ranges(void)
{
    unsigned long first = 1, second = 2;
    move_to(1);
    printf("ranges:");
    tell(syscall(SYS_mbind, memory, PAGES * PAGE, BIND, &first, 65, MOVE | STRICT));
    tell(on(0));
    tell(syscall(SYS_mbind, memory, PAGES * PAGE, BIND, &second, 65, STRICT));
    tell(syscall(SYS_mbind, memory, PAGES * PAGE, 0, 0, 0, 0));
    tell(syscall(SYS_migrate_pages, 0, 65, &first, &second));
    tell(on(1));
    tell(syscall(SYS_migrate_pages, 0, 65, &second, &first));
    tell(on(0));
    unsigned long none = 0;
    tell(syscall(SYS_migrate_pages, 0, 65, &first, &none));
    printf(" %d\n", intact());
}

static atomic_int stop;

/* Counts in every page, and says how often it has. */
static void *counts(void *unused)
{
    (void)unused;
    long rounds = 0;
    do {
        for (int page = 0; page < PAGES; page++)
            ++*(volatile long *)(memory + page * PAGE + 64);
        rounds++;
    } while (!atomic_load(&stop));
    return (void *)rounds;
}

static void beside_a_thread(void)
{
    pthread_t thread;
    void *rounds;
    long moved = 0;
    for (int page = 0; page < PAGES; page++)
        *(long *)(memory + page * PAGE + 64) = 0;
    pthread_create(&thread, 0, counts, 0);
    for (int turn = 0; turn < MOVES; turn++)
        moved += move_to(turn % 2) > 0;
    atomic_store(&stop, 1);
    pthread_join(thread, &rounds);
    int kept = 0;
    for (int page = 0; page < PAGES; page++)
        kept += *(long *)(memory + page * PAGE + 64) == (long)rounds;
    printf("beside a thread: %d %d\n", moved > MOVES / 2, kept);
}

int main(void)
{
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++) {
        pages[page] = memory + page * PAGE;
        for (int at = 0; at < PAGE; at += 512)
            memory[page * PAGE + at] = page + at / 512 + 1;
    }
    there_and_back();
    refused();
    shared();
    ranges();
    beside_a_thread();
    return 0;
}
