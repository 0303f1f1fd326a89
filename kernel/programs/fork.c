/* Copy-on-write under fire: many children of one process. Each checks every byte while it and its parent write; nobody may see what
   another wrote. Prints nothing that depends on who is first. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8 };

static uint64_t value(size_t page, size_t word, uint64_t writer)
{
    return page * 0x9e3779b97f4a7c15u + word + (writer << 56);
}

/* A writer replaces every 64th page, each another. */
static int writes(size_t page, uint64_t writer)
{
    return page % 64 == writer % 64;
}

static void fill(uint64_t *memory, size_t pages, uint64_t writer, int all)
{
    for (size_t page = 0; page < pages; page++)
        if (all || writes(page, writer))
            for (size_t word = 0; word < WORDS; word++)
                memory[page * WORDS + word] = value(page, word, all ? 0 : writer);
}

static size_t wrong(const uint64_t *memory, size_t pages, uint64_t writer)
{
    size_t bad = 0;
    for (size_t page = 0; page < pages; page++) {
        uint64_t by = writer && writes(page, writer) ? writer : 0;
        for (size_t word = 0; word < WORDS; word++)
            bad += memory[page * WORDS + word] != value(page, word, by);
    }
    return bad;
}

int main(int argc, char **argv)
{
    size_t children = argc > 1 ? strtoul(argv[1], 0, 0) : 64;
    size_t pages = (argc > 2 ? strtoul(argv[2], 0, 0) : 32) << 8;
    uint64_t *memory = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 2;
    fill(memory, pages, 0, 1);
    for (size_t child = 1; child <= children; child++) {
        pid_t pid = fork();
        if (pid < 0)
            return 3;
        if (pid == 0) {
            fill(memory, pages, child, 0);
            _exit(wrong(memory, pages, child) != 0);
        }
    }
    /* The parent writes while they read, what none of them may see. */
    fill(memory, pages, 100, 0);
    size_t failed = 0;
    for (size_t child = 0; child < children; child++) {
        int status;
        if (wait(&status) < 0)
            return 4;
        failed += status != 0;
    }
    size_t own = wrong(memory, pages, 100);
    printf("%zu children, %zu pages: %zu children and %zu words of the parent are wrong\n", children, pages, failed, own);
    return failed || own;
}
