/* Memory calls for a recording: mappings that grow, move, are locked, advised and synced, of anonymous memory and of a file. Prints what it counted,
   nothing that depends on time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static unsigned long sum(const char *memory, int pages)
{
    unsigned long total = 0;
    for (int page = 0; page < pages; page++)
        total += memory[page * PAGE];
    return total;
}

static void fill(char *memory, int pages)
{
    for (int page = 0; page < pages; page++)
        memory[page * PAGE] = page + 1;
}

int main(int argc, char **argv)
{
    unsigned char vec[2 * PAGES];
    char *memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(memory, PAGES);
    /* Something behind it, so that it must move. */
    char *behind = mmap(memory + PAGES * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory = mremap(memory, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
    printf("moved: %lu\n", sum(memory, 2 * PAGES));
    printf("locked: %d", mlock(memory, 2 * PAGES * PAGE));
    printf(" %d", munlock(memory + PAGE, PAGE));
    printf(" %d", mlockall(MCL_CURRENT));
    printf(" %d\n", munlockall());
    printf("advised: %d", madvise(memory, PAGES * PAGE, MADV_DONTNEED));
    printf(" %d", madvise(memory + PAGES * PAGE, PAGES * PAGE / 2, MADV_COLD));
    printf(" %d", madvise(memory, 8 * PAGE, MADV_POPULATE_WRITE));
    printf(" %lu\n", sum(memory, 2 * PAGES));
    printf("resident: %d", mincore(memory, 2 * PAGES * PAGE, vec));
    unsigned long resident = 0;
    for (int page = 0; page < 2 * PAGES; page++)
        resident += vec[page] & 1;
    printf(" %lu\n", resident);
    memory = mremap(memory, 2 * PAGES * PAGE, PAGES * PAGE, 0);
    printf("halved: %lu\n", sum(memory, PAGES));
    int fd = open(argv[0], O_RDONLY);
    char *file = mmap(0, 16 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    printf("file: %.3s %d\n", file + 1, msync(file, 16 * PAGE, MS_SYNC));
    munmap(behind, PAGE);
    munmap(memory, PAGES * PAGE);
    return 0;
}
