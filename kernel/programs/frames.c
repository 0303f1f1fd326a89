/* Files with a word or a bit for each frame: kpagecount, kpageflags, page_idle/bitmap. Prints a line for each group.
   Linux prints the same if it is built with CONFIG_IDLE_PAGE_TRACKING. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define IDLE "/sys/kernel/mm/page_idle/bitmap"

/* Bits of kpageflags (include/uapi/linux/kernel-page-flags.h). */
static const struct {
    int bit;
    const char *name;
} flags[] = {{11, "mmap"}, {12, "anon"}, {14, "swapbacked"}, {15, "head"}, {16, "tail"}, {22, "thp"}, {24, "zero"}, {25, "idle"}};

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static uint64_t word(const char *path, uint64_t index)
{
    uint64_t value;
    int file = open(path, O_RDONLY);
    if (file < 0 || pread(file, &value, sizeof value, index * sizeof value) != sizeof value)
        fail(path);
    close(file);
    return value;
}

static uint64_t frame(const volatile char *page)
{
    return word("/proc/self/pagemap", (uintptr_t)page / PAGE) & ((1UL << 55) - 1);
}

static void show(const char *what, const volatile char *page)
{
    uint64_t bits = word("/proc/kpageflags", frame(page));
    printf("%s: mapped %lu times:", what, (unsigned long)word("/proc/kpagecount", frame(page)));
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++)
        if (bits >> flags[i].bit & 1)
            printf(" %s", flags[i].name);
    printf("\n");
}

static volatile char *map(unsigned long size, int advice)
{
    char *all = mmap(0, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        fail("mmap");
    char *p = (char *)(((uintptr_t)all + HUGE - 1) & -HUGE);
    if (madvise(p, size, advice))
        fail("madvise");
    return p;
}

static void pages(void)
{
    volatile char *small = map(HUGE, MADV_NOHUGEPAGE), *huge = map(HUGE, MADV_HUGEPAGE), *shared[2];
    int memfd = memfd_create("shared", 0);
    if (memfd < 0 || ftruncate(memfd, PAGE))
        fail("memfd");
    for (int i = 0; i < 2; i++)
        shared[i] = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
    (void)small[0];
    show("page of zeroes", small);
    small[PAGE] = huge[0] = shared[0][0] = shared[1][0] = 1;
    show("page", small + PAGE);
    show("file", shared[0]);
    show("huge page", huge);
    show("its last page", huge + HUGE - PAGE);
}

static void refusals(void)
{
    uint64_t value[2];
    int count = open("/proc/kpagecount", O_RDONLY), idle = open(IDLE, O_RDWR);
    printf("kpagecount: at an odd offset %ld, of an odd size %ld, behind the end %ld\n", told(pread(count, value, 8, 4)),
           told(pread(count, value, 12, 0)), told(pread(count, value, 8, 1L << 50)));
    printf("bitmap: at an odd offset %ld %ld, of an odd size %ld %ld, behind the end %ld %ld\n",
           told(pread(idle, value, 8, 4)), told(pwrite(idle, value, 8, 4)), told(pread(idle, value, 12, 0)),
           told(pwrite(idle, value, 12, 0)), told(pread(idle, value, 8, 1L << 50)), told(pwrite(idle, value, 8, 1L << 50)));
    close(count);
    close(idle);
}

/* The bit of a frame in the bitmap. */
static int is_idle(uint64_t frame)
{
    return word(IDLE, frame / 64) >> frame % 64 & 1;
}

static void mark(uint64_t frame)
{
    uint64_t bit = 1UL << frame % 64;
    int file = open(IDLE, O_WRONLY);
    if (pwrite(file, &bit, sizeof bit, frame / 64 * sizeof bit) != sizeof bit)
        fail(IDLE);
    close(file);
}

/* Marks the folio of a page as idle, and uses a page of it. */
static void idleness(const char *what, volatile char *first, volatile char *used)
{
    uint64_t head = frame(first);
    int before = is_idle(head), marked;
    mark(head);
    marked = is_idle(head);
    /* A cached translation would be used without the accessed bit; mprotect flushes it. */
    if (mprotect((void *)used, PAGE, PROT_READ) || mprotect((void *)used, PAGE, PROT_READ | PROT_WRITE))
        fail("mprotect");
    *used = 2;
    printf("%s: idle %d, marked %d, used %d\n", what, before, marked, is_idle(head));
}

int main(void)
{
    setvbuf(stdout, 0, _IONBF, 0);
    pages();
    volatile char *small = map(HUGE, MADV_NOHUGEPAGE), *huge = map(HUGE, MADV_HUGEPAGE);
    small[0] = huge[0] = 1;
    idleness("page", small, small);
    idleness("huge page", huge, huge + 5 * PAGE);
    refusals();
    return 0;
}
