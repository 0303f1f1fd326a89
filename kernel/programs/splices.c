/* Who sees whose stores after fork, when a pipe holds pages: the first six cases of Linux's selftest `cow` (tools/testing/selftests/mm/cow.c).
   Each runs on a page that is resident and on one that was paged out, in a range whose tables are shared at more than one level. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 1536, WORDS = PAGE / 8, OLD = 0x11, NEW = 0x22 };

static const int places[] = { 0, 511, 512, 1100, PAGES - 1 };
static char *memory;
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

static int holds(const char *page, int value)
{
    for (int byte = 0; byte < PAGE; byte++)
        if (page[byte] != value)
            return 0;
    return 1;
}

static int splice_in(int *pages, char *page)
{
    struct iovec part = { page, PAGE };
    return vmsplice(pages[1], &part, 1, 0) == PAGE;
}

static int splice_holds(int *pages, int value)
{
    char copy[PAGE];
    for (size_t read_in = 0; read_in < PAGE;) {
        ssize_t got = read(pages[0], copy + read_in, PAGE - read_in);
        if (got <= 0)
            return 0;
        read_in += got;
    }
    return holds(copy, value);
}

static void store(char *page, int protects)
{
    if (protects) {
        mprotect(page, PAGE, PROT_READ);
        mprotect(page, PAGE, PROT_READ | PROT_WRITE);
    }
    memset(page, NEW, PAGE);
}

/* The child has the page, by its mapping or by a pipe, and the parent stores. Returns whether the child keeps what was there before. */
static int parent_stores(char *page, int splices, int protects)
{
    int pages[2], status;
    pipe(pages);
    pid_t child = fork();
    if (child == 0) {
        int good = !splices || (splice_in(pages, page) && munmap(page, PAGE) == 0);
        tell(to_parent);
        await(to_child);
        good &= splices ? splice_holds(pages, OLD) : holds(page, OLD);
        _exit(!good);
    }
    await(to_parent);
    store(page, protects);
    tell(to_child);
    waitpid(child, &status, 0);
    close(pages[0]);
    close(pages[1]);
    return status == 0 && holds(page, NEW);
}

/* The parent has the page by a pipe and unmaps it, and the child stores. Returns whether the pipe keeps what was there before. */
static int child_stores(char *page, int splices_before)
{
    int pages[2], status;
    pipe(pages);
    int good = !splices_before || splice_in(pages, page);
    pid_t child = fork();
    if (child == 0) {
        await(to_child);
        store(page, 0);
        tell(to_parent);
        _exit(!holds(page, NEW));
    }
    good &= splices_before || splice_in(pages, page);
    good &= munmap(page, PAGE) == 0;
    tell(to_child);
    await(to_parent);
    good &= splice_holds(pages, OLD);
    waitpid(child, &status, 0);
    close(pages[0]);
    close(pages[1]);
    return good && status == 0;
}

static int run(int number, char *page)
{
    switch (number) {
    case 1: return parent_stores(page, 0, 0);
    case 2: return parent_stores(page, 0, 1);
    case 3: return parent_stores(page, 1, 0);
    case 4: return parent_stores(page, 1, 1);
    case 5: return child_stores(page, 1);
    default: return child_stores(page, 0);
    }
}

int main(void)
{
    static const char *names[] = {
        "the parent stores", "the parent protects and stores", "the child splices, unmaps, and the parent stores",
        "the same, and the parent protects", "the parent splices, forks, unmaps, and the child stores",
        "the parent forks, splices, unmaps, and the child stores",
    };
    int wrong = 0;
    pipe(to_child);
    pipe(to_parent);
    for (int number = 1; number <= 6; number++)
        for (int paged_out = 0; paged_out <= 1; paged_out++) {
            int good = 0;
            memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (unsigned place = 0; place < sizeof places / sizeof *places; place++) {
                char *page = memory + (size_t)places[place] * PAGE;
                memset(page, OLD, PAGE);
                if (paged_out)
                    madvise(page, PAGE, MADV_PAGEOUT);
                good += run(number, page);
            }
            munmap(memory, (size_t)PAGES * PAGE);
            printf("%d %s, %s: %d\n", number, names[number - 1], paged_out ? "paged out" : "resident", good);
            wrong += good != sizeof places / sizeof *places;
        }
    return wrong != 0;
}
