/* The first six cases of Linux's selftest `cow` (tools/testing/selftests/mm/cow.c): who sees whose stores after fork, when a pipe holds pages. Each case is on
   memory of whole pages that holds OLD in all bytes. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, OLD = 0x11, NEW = 0x22, CASES = 6, PIPE = 16 * PAGE };

static const char *const names[CASES] = {
    "the parent stores", "the parent protects and stores", "the child splices, unmaps, and the parent stores",
    "the same, and the parent protects", "the parent splices, forks, unmaps, and the child stores",
    "the parent forks, splices, unmaps, and the child stores",
};
/* Each process tells the other that it has come to a point. */
static int to_child[2], to_parent[2];

static void tell(int *pipe)
{
    write(pipe[1], "", 1);
}

static void await(int *pipe)
{
    char byte;
    read(pipe[0], &byte, 1);
}

static int holds(const char *memory, size_t size, int value)
{
    for (size_t at = 0; at < size; at++)
        if (memory[at] != value)
            return 0;
    return 1;
}

/* As much as a pipe takes. */
static size_t spliced(size_t size)
{
    return size < PIPE ? size : PIPE;
}

static int splice_in(int *pages, char *memory, size_t size)
{
    struct iovec part = { memory, size };
    return vmsplice(pages[1], &part, 1, 0) == spliced(size);
}

static int splice_holds(int *pages, size_t size, int value)
{
    static char copy[PIPE];
    size = spliced(size);
    for (size_t read_in = 0; read_in < size;) {
        ssize_t got = read(pages[0], copy + read_in, size - read_in);
        if (got <= 0)
            return 0;
        read_in += got;
    }
    return holds(copy, size, value);
}

static void store(char *memory, size_t size, int protects)
{
    if (protects) {
        mprotect(memory, size, PROT_READ);
        mprotect(memory, size, PROT_READ | PROT_WRITE);
    }
    memset(memory, NEW, size);
}

/* The child has the memory, by its mapping or by a pipe, and the parent stores. Returns whether the child keeps what was there before. */
static int parent_stores(char *memory, size_t size, int splices, int protects)
{
    int pages[2], status;
    pipe(pages);
    pid_t child = fork();
    if (child == 0) {
        int good = !splices || (splice_in(pages, memory, size) && munmap(memory, size) == 0);
        tell(to_parent);
        await(to_child);
        good &= splices ? splice_holds(pages, size, OLD) : holds(memory, size, OLD);
        _exit(!good);
    }
    await(to_parent);
    store(memory, size, protects);
    tell(to_child);
    waitpid(child, &status, 0);
    close(pages[0]);
    close(pages[1]);
    return status == 0 && holds(memory, size, NEW);
}

/* The parent has the memory by a pipe and unmaps it, and the child stores. Returns whether the pipe keeps what was there before. */
static int child_stores(char *memory, size_t size, int splices_before)
{
    int pages[2], status;
    pipe(pages);
    int good = !splices_before || splice_in(pages, memory, size);
    pid_t child = fork();
    if (child == 0) {
        await(to_child);
        store(memory, size, 0);
        tell(to_parent);
        _exit(!holds(memory, size, NEW));
    }
    good &= splices_before || splice_in(pages, memory, size);
    good &= munmap(memory, size) == 0;
    tell(to_child);
    await(to_parent);
    good &= splice_holds(pages, size, OLD);
    waitpid(child, &status, 0);
    close(pages[0]);
    close(pages[1]);
    return good && status == 0;
}

/* Runs a case, by its place in `names`. */
static int run(int number, char *memory, size_t size)
{
    switch (number) {
    case 0: return parent_stores(memory, size, 0, 0);
    case 1: return parent_stores(memory, size, 0, 1);
    case 2: return parent_stores(memory, size, 1, 0);
    case 3: return parent_stores(memory, size, 1, 1);
    case 4: return child_stores(memory, size, 1);
    default: return child_stores(memory, size, 0);
    }
}
