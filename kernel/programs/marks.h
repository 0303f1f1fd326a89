/* Marks between which kernel/plugin/instructions.c counts, and the rows that name them.

   Marks count nothing until `measuring` is set, so that a first pass fills the kernel's caches. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096UL

static struct row {
    char name[56];
    unsigned long operations;
} rows[128];
static int counted, measuring;

static void mark(void)
{
    if (!measuring)
        return;
#ifdef __aarch64__
    __asm__ volatile("hint #112" ::: "memory");
#else
    /* A no-operation whose displacement says "pwin". */
    __asm__ volatile(".byte 0x0f, 0x1f, 0x80, 0x70, 0x77, 0x69, 0x6e" ::: "memory");
#endif
}

/* Names what lies between the last two marks. */
static void row(const char *name, unsigned long operations)
{
    if (!measuring)
        return;
    snprintf(rows[counted].name, sizeof rows[counted].name, "%s", name);
    rows[counted++].operations = operations;
}

static void print_rows(void)
{
    for (int i = 0; i < counted; i++)
        printf("row %lu %s\n", rows[i].operations, rows[i].name);
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static char *map(unsigned long pages)
{
    char *p = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        fail("mmap");
    return p;
}

static void unmap(char *p, unsigned long pages)
{
    if (munmap(p, pages * PAGE))
        fail("munmap");
}
