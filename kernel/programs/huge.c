/* Runs each operation on huge pages often enough to count its instructions.

   kernel/plugin/instructions.c counts between two marks (marks.h). The memory has MADV_HUGEPAGE.
   Outside of the marks, AnonHugePages and the contents say whether each operation met huge pages,
   and whether it kept or split them. */
#define _GNU_SOURCE
#include "marks.h"
#include <sys/wait.h>
#include <unistd.h>

#define HUGE (2UL << 20)
/* Huge pages of most operations, and of the large process, 512 MB. */
#define FEW 48UL
#define LARGE 256UL

/* The kB of a range that huge leaves map. */
static unsigned long huge_kb(const char *start, unsigned long bytes)
{
    char line[512];
    unsigned long from, to, kb, sum = 0;
    int inside = 0;
    FILE *file = fopen("/proc/self/smaps", "r");

    if (!file)
        fail("smaps");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < (unsigned long)start + bytes && to > (unsigned long)start;
        else if (inside && sscanf(line, "AnonHugePages: %lu", &kb) == 1)
            sum += kb;
    }
    fclose(file);
    return sum;
}

/* What the first byte of a block is after `fill`. */
static char content(unsigned long block)
{
    return 1 + block % 100;
}

/* Stores to the first page of each block. */
static void fill(volatile char *p, unsigned long blocks)
{
    for (unsigned long i = 0; i < blocks; i++)
        p[i * HUGE] = content(i);
}

/* Fails unless `huge` leaves map the blocks and the contents are those of `fill`. */
static void check(volatile char *p, unsigned long blocks, unsigned long huge)
{
    if (huge_kb((char *)p, blocks * HUGE) != huge * HUGE / 1024) {
        fprintf(stderr, "%lu kB are huge, not %lu\n", huge_kb((char *)p, blocks * HUGE), huge * HUGE / 1024);
        exit(1);
    }
    for (unsigned long i = 0; i < blocks; i++)
        if (p[i * HUGE] != content(i) || p[i * HUGE + 1] || p[i * HUGE + HUGE - 1]) {
            fprintf(stderr, "contents of block %lu\n", i);
            exit(1);
        }
}

/* Maps blocks that no other mapping is next to, at a multiple of 2 MiB. */
static char *blocks_at(unsigned long blocks)
{
    static unsigned long regions;
    char *at = (char *)(1UL << 40) + (regions++ << 30);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;

    if (mmap(at, blocks * HUGE, PROT_READ | PROT_WRITE, flags, -1, 0) != at)
        fail("mmap");
    if (madvise(at, blocks * HUGE, MADV_HUGEPAGE))
        fail("madvise");
    return at;
}

static void faults(void)
{
    char *p = blocks_at(FEW);

    mark();
    fill(p, FEW);
    mark();
    row("2 MiB anonymous fault, store", FEW);
    check(p, FEW, FEW);
    mark();
    for (unsigned long i = 0; i < FEW; i++)
        unmap(p + i * HUGE, HUGE / PAGE);
    mark();
    row("munmap of a huge page", FEW);
}

static void protections(void)
{
    static const int rights[] = { PROT_READ, PROT_READ | PROT_WRITE };
    char *p = blocks_at(FEW);

    fill(p, FEW);
    check(p, FEW, FEW);
    mark();
    for (int way = 0; way < 2; way++)
        for (unsigned long i = 0; i < FEW; i++)
            if (mprotect(p + i * HUGE, HUGE, rights[way]))
                fail("mprotect");
    mark();
    row("mprotect of a huge page, read-only or back", 2 * FEW);
    fill(p, FEW);
    check(p, FEW, FEW);
    unmap(p, FEW * HUGE / PAGE);
}

static void moves(void)
{
    char *from = blocks_at(FEW), *to = blocks_at(FEW);

    fill(from, FEW);
    check(from, FEW, FEW);
    /* Moving to where nothing is mapped unmaps nothing. */
    unmap(to, FEW * HUGE / PAGE);
    mark();
    for (unsigned long at = 0; at < FEW * HUGE; at += HUGE)
        if (mremap(from + at, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + at) == MAP_FAILED)
            fail("mremap");
    mark();
    row("mremap of a huge page", FEW);
    check(to, FEW, FEW);
    unmap(to, FEW * HUGE / PAGE);
}

/* Unmaps the second page of each block, and in other blocks makes it read-only. */
static void parts(void)
{
    char *p = blocks_at(FEW);

    fill(p, FEW);
    check(p, FEW, FEW);
    mark();
    for (unsigned long i = 0; i < FEW; i++)
        unmap(p + i * HUGE + PAGE, 1);
    mark();
    row("munmap of 4 KiB of a huge page", FEW);
    check(p, FEW, 0);
    unmap(p, FEW * HUGE / PAGE);

    p = blocks_at(FEW);
    fill(p, FEW);
    check(p, FEW, FEW);
    mark();
    for (unsigned long i = 0; i < FEW; i++)
        if (mprotect(p + i * HUGE + PAGE, PAGE, PROT_READ))
            fail("mprotect");
    mark();
    row("mprotect of 4 KiB of a huge page", FEW);
    check(p, FEW, 0);
    unmap(p, FEW * HUGE / PAGE);
}

/* A child that ends when the other end of its pipe says so. */
static pid_t begin(int hold[2])
{
    char word;
    pid_t pid = fork();

    if (pid < 0)
        fail("fork");
    if (pid == 0)
        _exit(read(hold[0], &word, 1) != 1);
    return pid;
}

static void end(pid_t pid, int hold[2])
{
    int status;

    if (write(hold[1], "", 1) != 1 || waitpid(pid, &status, 0) != pid || status)
        fail("waitpid");
}

static void open_pipe(int hold[2])
{
    if (pipe(hold))
        fail("pipe");
}

static void close_pipe(int hold[2])
{
    close(hold[0]);
    close(hold[1]);
}

static void copy_on_write(void)
{
    int hold[2];
    pid_t child;
    char *p = blocks_at(FEW);

    fill(p, FEW);
    open_pipe(hold);
    child = begin(hold);
    check(p, FEW, FEW);
    mark();
    fill(p, FEW);
    mark();
    row("copy-on-write fault in a huge page", FEW);
    check(p, FEW, 0);
    end(child, hold);
    close_pipe(hold);
    unmap(p, FEW * HUGE / PAGE);
}

static void large_forks(void)
{
    int hold[2];
    pid_t child;
    char *p = blocks_at(LARGE);

    fill(p, LARGE);
    check(p, LARGE, LARGE);
    open_pipe(hold);
    mark();
    child = begin(hold);
    mark();
    row("fork of 512 MB of huge pages", 1);
    check(p, LARGE, LARGE);
    mark();
    end(child, hold);
    mark();
    row("exit of a child of 512 MB of huge pages", 1);
    close_pipe(hold);
    unmap(p, LARGE * HUGE / PAGE);
}

int main(void)
{
    for (int i = 0; i < 4; i++) {
        /* A first pass fills the kernel's caches. */
        measuring = i > 0;
        faults();
        protections();
        moves();
        parts();
        copy_on_write();
        large_forks();
    }
    print_rows();
    return 0;
}
