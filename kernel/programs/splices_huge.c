/* The cases of splices.h on large folios, mapped in the ways of Linux's selftest `cow` (`enum thp_run`). The argument is the size of a folio in kB: one of 2048
   is mapped by one entry at first, a smaller one by an entry for each page. Prints no size, so that all of them print the same. */
#define _GNU_SOURCE
#include "splices.h"
#include <stdlib.h>
#include <sys/mount.h>

#define SETTINGS "/sys/kernel/mm/transparent_hugepage/"

enum { HUGE = 2 << 20 };

/* How a folio is mapped. */
enum mapped { WHOLE, PIECES, SINGLE, HALF_MOVED, PARTLY_SHARED };

static const struct {
    const char *name;
    enum mapped mapped;
    int paged_out;
} ways[] = {
    { "as it was allocated", WHOLE, 0 },
    { "as it was allocated, paged out", WHOLE, 1 },
    { "in pieces", PIECES, 0 },
    { "in pieces, paged out", PIECES, 1 },
    { "one page", SINGLE, 0 },
    { "one page, paged out", SINGLE, 1 },
    { "half of it moved", HALF_MOVED, 0 },
    { "a part was shared", PARTLY_SHARED, 0 },
};
enum { WAYS = sizeof ways / sizeof *ways };

static void say(const char *path, const char *word)
{
    int file = open(path, O_WRONLY);
    write(file, word, strlen(word));
    close(file);
}

/* The sum of a figure of the mappings in a range, in bytes. */
static size_t figure(const char *start, size_t bytes, const char *name)
{
    char line[512];
    size_t sum = 0, length = strlen(name);
    unsigned long from, to;
    int inside = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < (unsigned long)start + bytes && to > (unsigned long)start;
        else if (inside && strncmp(line, name, length) == 0 && line[length] == ':')
            sum += strtoul(line + length + 1, 0, 10) * 1024;
    }
    fclose(file);
    return sum;
}

/* Maps a part of a folio in one of the ways, and returns how many bytes of it the case has. The moved half goes to `other`. */
static size_t map_as(enum mapped mapped, char *memory, size_t size, char *other)
{
    int status;
    switch (mapped) {
    case PIECES:
        mprotect(memory + PAGE, PAGE, PROT_READ);
        mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE);
        break;
    case SINGLE:
        madvise(memory + PAGE, size - PAGE, MADV_DONTNEED);
        return PAGE;
    case HALF_MOVED:
        mremap(memory + size / 2, size / 2, size / 2, MREMAP_MAYMOVE | MREMAP_FIXED, other);
        return size / 2;
    case PARTLY_SHARED:
        madvise(memory + PAGE, size - PAGE, MADV_DONTFORK);
        if (fork() == 0)
            _exit(0);
        wait(&status);
        madvise(memory + PAGE, size - PAGE, MADV_DOFORK);
        break;
    default:
        break;
    }
    return size;
}

/* Whether the memory is mapped as it should be. */
static int is_mapped(const char *memory, size_t size, int whole, int paged_out)
{
    size_t huge = whole && !paged_out ? size : 0, swapped = paged_out ? size : 0;
    return figure(memory, size, "AnonHugePages") == huge && figure(memory, size, "Swap") == swapped;
}

static int try(int number, int way, size_t size)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, good;
    char *start = mmap(0, 3 * size, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *memory = (char *)(((uintptr_t)start + size - 1) & ~(size - 1)), *other = mmap(0, size / 2, PROT_NONE, flags, -1, 0);
    madvise(memory, size, MADV_HUGEPAGE);
    /* The first store maps all of the folio. */
    memory[0] = OLD;
    good = figure(memory, size, "Rss") == size;
    memset(memory, OLD, size);
    size_t bytes = map_as(ways[way].mapped, memory, size, other);
    if (ways[way].paged_out)
        madvise(memory, bytes, MADV_PAGEOUT);
    if (!good || !is_mapped(memory, bytes, ways[way].mapped == WHOLE && size == HUGE, ways[way].paged_out))
        printf("%s: not mapped so: %zu %zu\n", ways[way].name, figure(memory, size, "AnonHugePages"), figure(memory, size, "Swap"));
    good &= run(number, memory, bytes);
    if (ways[way].mapped == HALF_MOVED)
        good &= holds(other, size / 2, OLD);
    munmap(start, 3 * size);
    munmap(other, size / 2);
    return good;
}

int main(int argc, char **argv)
{
    char path[128];
    int wrong = 0;
    size_t size = (argc > 1 ? strtoul(argv[1], 0, 10) : 2048) * 1024;
    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    if (size == HUGE) {
        say(SETTINGS "enabled", "madvise");
    } else {
        snprintf(path, sizeof path, SETTINGS "hugepages-%zukB/enabled", size / 1024);
        say(path, "madvise");
    }
    pipe(to_child);
    pipe(to_parent);
    for (int way = 0; way < WAYS; way++) {
        printf("%s:", ways[way].name);
        for (int number = 0; number < CASES; number++) {
            int good = try(number, way, size);
            printf(" %d", good);
            wrong += !good;
        }
        printf("\n");
    }
    return wrong != 0;
}
