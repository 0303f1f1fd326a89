/* Runs each operation of a table often enough to count its instructions.

   kernel/plugin/instructions.c counts between two marks. A line "row" says afterwards what was
   between them: the number of operations, and their name. Each operation also runs once before the
   marks count, so that files are read and caches of the kernel are filled. All but the large forks
   then run three times, since deferred work of the kernel falls into some of them. */
#define _GNU_SOURCE
#include "marks.h"
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUN 512UL
/* Pages of most operations. */
#define PAGES 4096UL
/* Pages of the large process, 512 MB. */
#define LARGE 131072UL
#define MAPPINGS 10000UL

static const char *self;

/* At `offset` beyond a multiple of 2 MiB. */
static char *map_at(unsigned long pages, unsigned long offset)
{
    unsigned long size = RUN * PAGE;
    char *all = map(pages + 2 * RUN), *p = (char *)(((unsigned long)all + size - 1) & -size) + offset;

    /* The rest would be copied by the forks of small processes. */
    unmap(p + pages * PAGE, (unsigned long)(all + 2 * size - p) / PAGE);
    if (p != all)
        unmap(all, (unsigned long)(p - all) / PAGE);
    return p;
}

static void touch(volatile char *p, unsigned long pages)
{
    for (unsigned long i = 0; i < pages; i++)
        p[i * PAGE] = 1;
}

/* A child that ends when the other end of its pipe says so. */
struct child {
    pid_t pid;
    int hold[2];
};

static void wait_for_word(struct child *child)
{
    char word;

    _exit(read(child->hold[0], &word, 1) != 1);
}

static void prepare(struct child *child)
{
    if (pipe(child->hold))
        fail("pipe");
}

static void end(struct child *child)
{
    if (write(child->hold[1], "", 1) != 1 || waitpid(child->pid, 0, 0) != child->pid)
        fail("waitpid");
}

static void cleanup(struct child *child)
{
    close(child->hold[0]);
    close(child->hold[1]);
}

static void begin(struct child *child)
{
    child->pid = fork();
    if (child->pid == 0)
        wait_for_word(child);
    if (child->pid < 0)
        fail("fork");
}

static void anonymous_faults(void)
{
    char *p = map(PAGES);

    mark();
    touch(p, PAGES);
    mark();
    row("4 KiB anonymous fault, store", PAGES);
    mark();
    for (unsigned long at = 0; at < PAGES; at += RUN)
        unmap(p + at * PAGE, RUN);
    mark();
    row("munmap in runs of 512, per page", PAGES);
}

static void zero_page_faults(void)
{
    volatile char *p = map(PAGES);
    int sum = 0;

    mark();
    for (unsigned long i = 0; i < PAGES; i++)
        sum += p[i * PAGE];
    mark();
    row("4 KiB anonymous fault, load (zero page)", PAGES);
    if (sum)
        fail("zero page");
    unmap((char *)p, PAGES);
}

static void short_mappings(void)
{
    char *p;

    mark();
    for (unsigned long i = 0; i < PAGES; i++) {
        p = map(1);
        *(volatile char *)p = 1;
        unmap(p, 1);
    }
    mark();
    row("mmap, store and munmap of a page", PAGES);

    /* Every other page, so that each is a mapping of its own. */
    p = map(2 * PAGES);
    for (unsigned long i = 0; i < PAGES; i++) {
        p[2 * i * PAGE] = 1;
        unmap(p + (2 * i + 1) * PAGE, 1);
    }
    mark();
    for (unsigned long i = 0; i < PAGES; i++)
        unmap(p + 2 * i * PAGE, 1);
    mark();
    row("munmap of a page that is a mapping", PAGES);
}

static void protections(void)
{
    char *p = map_at(PAGES, 0);

    touch(p, PAGES);
    mark();
    for (unsigned long at = 0; at < PAGES; at += RUN)
        if (mprotect(p + at * PAGE, RUN * PAGE, PROT_READ))
            fail("mprotect");
    mark();
    row("mprotect to read-only in runs of 512, per page", PAGES);
    mark();
    for (unsigned long at = 0; at < PAGES; at += RUN)
        if (mprotect(p + at * PAGE, RUN * PAGE, PROT_READ | PROT_WRITE))
            fail("mprotect");
    mark();
    row("mprotect back in runs of 512, per page", PAGES);
    unmap(p, PAGES);
}

static void moves(const char *name, unsigned long offset)
{
    char *from = map_at(PAGES, 0), *to = map_at(PAGES, offset);

    touch(from, PAGES);
    /* Moving to where nothing is mapped unmaps nothing. */
    unmap(to, PAGES);
    mark();
    for (unsigned long at = 0; at < PAGES * PAGE; at += RUN * PAGE)
        if (mremap(from + at, RUN * PAGE, RUN * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + at) == MAP_FAILED)
            fail("mremap");
    mark();
    row(name, PAGES);
    unmap(to, PAGES);
}

static void copy_on_write(void)
{
    struct child child;
    char *p = map(PAGES);

    touch(p, PAGES);
    prepare(&child);
    begin(&child);
    mark();
    touch(p, PAGES);
    mark();
    row("copy-on-write fault, copy", PAGES);
    end(&child);
    cleanup(&child);

    prepare(&child);
    begin(&child);
    end(&child);
    cleanup(&child);
    mark();
    touch(p, PAGES);
    mark();
    row("copy-on-write fault, reuse", PAGES);
    unmap(p, PAGES);
}

static void shared_faults(void)
{
    int file = memfd_create("instructions", 0);
    char *p;

    if (file < 0 || ftruncate(file, PAGES * PAGE))
        fail("memfd_create");
    p = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (p == MAP_FAILED)
        fail("mmap");
    mark();
    touch(p, PAGES);
    mark();
    row("memfd fault, store", PAGES);
    unmap(p, PAGES);
    close(file);
}

static void large_forks(void)
{
    struct child first, second;
    char *p = map(LARGE);

    touch(p, LARGE);
    prepare(&first);
    prepare(&second);
    mark();
    begin(&first);
    mark();
    row("fork of 512 MB, per page", LARGE);
    mark();
    begin(&second);
    mark();
    row("second fork of 512 MB, per page", LARGE);
    mark();
    end(&second);
    mark();
    row("exit of a child of 512 MB, per page", LARGE);
    end(&first);
    cleanup(&first);
    cleanup(&second);
    unmap(p, LARGE);
}

static void fork_of_mappings(void)
{
    struct child child;
    char *p = map(MAPPINGS);

    for (unsigned long i = 0; i < MAPPINGS; i += 2)
        if (mprotect(p + i * PAGE, PAGE, PROT_READ))
            fail("mprotect");
    prepare(&child);
    mark();
    begin(&child);
    mark();
    row("fork of 10 000 mappings, per mapping", MAPPINGS);
    end(&child);
    cleanup(&child);
    unmap(p, MAPPINGS);
}

static void calls(void)
{
    mark();
    for (int i = 0; i < 4096; i++)
        syscall(SYS_getppid);
    mark();
    row("getppid", 4096);
}

static void pipes(void)
{
    int there[2], back[2];
    char word = 0;
    pid_t child;

    if (pipe(there) || pipe(back))
        fail("pipe");
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++)
            if (read(there[0], &word, 1) != 1 || write(back[1], &word, 1) != 1)
                _exit(1);
        _exit(0);
    }
    mark();
    for (int i = 0; i < 1000; i++)
        if (write(there[1], &word, 1) != 1 || read(back[0], &word, 1) != 1)
            fail("pipe");
    mark();
    row("pipe, round trip", 1000);
    waitpid(child, 0, 0);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
}

static void small_forks(void)
{
    char *const words[] = { (char *)self, "end", 0 };
    pid_t child;

    mark();
    for (int i = 0; i < 64; i++) {
        child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, 0, 0);
    }
    mark();
    row("fork and exit of a small process", 64);
    mark();
    for (int i = 0; i < 32; i++) {
        child = fork();
        if (child == 0) {
            execv(self, words);
            _exit(127);
        }
        waitpid(child, 0, 0);
    }
    mark();
    row("fork and exec of a small process", 32);
}

static void all(void)
{
    anonymous_faults();
    zero_page_faults();
    short_mappings();
    protections();
    moves("mremap in runs of 512, aligned, per page", 0);
    moves("mremap in runs of 512, unaligned, per page", PAGE);
    copy_on_write();
    shared_faults();
    fork_of_mappings();
    calls();
    pipes();
    small_forks();
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return 0;
    self = argv[0];
    all();
    measuring = 1;
    for (int i = 0; i < 3; i++)
        all();
    large_forks();
    print_rows();
    return 0;
}
