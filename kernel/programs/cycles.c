/* Runs the cycles of a process that forks again and again, to count the kernel's instructions.

   A cycle is: fork; the child stores to some of the parent's pages, and ends or executes a program;
   the parent waits for it. The C library stores to the child's TID, its stack and its data. Each
   cycle runs once before the marks count. */
#define _GNU_SOURCE
#include "marks.h"
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1UL << 20)
/* Pages below a last-level page table. */
#define TABLE 512UL

static const struct work {
    const char *name;
    int percent, executes;
} works[] = {
    { "exec", 0, 1 }, { "exit", 0, 0 }, { "touch 1 %", 1, 0 }, { "touch 10 %", 10, 0 }, { "touch 100 %", 100, 0 },
};
static const unsigned long sizes[] = { MIB, 16 * MIB, 64 * MIB, 1024 * MIB };
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const char *self;

/* Stores to `stores` pages of which each is `stride` pages after the one before. */
static void touch(volatile char *p, unsigned long stores, unsigned long stride)
{
    for (unsigned long i = 0; i < stores; i++)
        p[i * stride * PAGE] = 1;
}

static void cycle(const struct work *work, char *p, unsigned long pages, unsigned long stride)
{
    char *const words[] = { (char *)self, "end", 0 };
    int status;
    pid_t child = fork();

    if (child == 0) {
        touch(p, (pages * work->percent + 99) / 100, stride);
        if (work->executes)
            execv(self, words);
        _exit(work->executes);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        fail("a child");
}

/* Runs each cycle of a parent with `pages` pages, `stride` pages apart. */
static void cycles(unsigned long bytes, unsigned long stride, const char *density)
{
    unsigned long pages = bytes / PAGE / stride;
    char *p, name[56];

    pages += pages == 0;
    p = map(pages * stride);
    touch(p, pages, stride);
    for (unsigned long i = 0; i < COUNT(works); i++) {
        cycle(&works[i], p, pages, stride);
        measuring = 1;
        mark();
        cycle(&works[i], p, pages, stride);
        mark();
        if (bytes < 1024 * MIB)
            snprintf(name, sizeof name, "%s, %lu MiB, %s", works[i].name, bytes / MIB, density);
        else
            snprintf(name, sizeof name, "%s, %lu GiB, %s", works[i].name, bytes / MIB / 1024, density);
        row(name, 1);
        measuring = 0;
    }
    unmap(p, pages * stride);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return 0;
    self = argv[0];
    for (unsigned long i = 0; i < COUNT(sizes); i++) {
        cycles(sizes[i], 1, "dense");
        cycles(sizes[i], TABLE, "one page per 2 MiB");
    }
    print_rows();
    return 0;
}
