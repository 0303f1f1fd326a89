/* Moves pages between two nodes often enough to count the instructions of a page.

   kernel/plugin/instructions.c counts between two marks (marks.h). */
#define _GNU_SOURCE
#include "marks.h"
#include <sys/syscall.h>
#include <unistd.h>

#define RUN 512UL
#define MOVE 2

static char *memory;

static void move(unsigned long first, unsigned long pages, int node)
{
    static void *at[RUN];
    static int nodes[RUN], status[RUN];

    for (unsigned long i = 0; i < pages; i++) {
        at[i] = memory + (first + i) * PAGE;
        nodes[i] = node;
    }
    if (syscall(SYS_move_pages, 0, pages, at, nodes, status, MOVE))
        fail("move_pages");
    for (unsigned long i = 0; i < pages; i++)
        if (status[i] != node)
            fail("status");
}

static void all(void)
{
    for (int node = 1; node >= 0; node--) {
        mark();
        move(0, RUN, node);
        mark();
        row("move_pages of 512 pages, per page", RUN);
    }
    mark();
    for (unsigned long i = 0; i < RUN; i++)
        move(i, 1, 1);
    mark();
    row("move_pages of a page", RUN);
    move(0, RUN, 0);
}

int main(void)
{
    memory = map(RUN);
    for (unsigned long i = 0; i < RUN; i++)
        memory[i * PAGE] = 1;
    move(0, RUN, 0);
    all();
    measuring = 1;
    for (int i = 0; i < 3; i++)
        all();
    print_rows();
    return 0;
}
