/* The cases of splices.h on one page that is resident, and on one that was paged out, in a range whose tables are shared at more than one level. */
/* Tests INV-COW-REUSE. */
#define _GNU_SOURCE
#include "splices.h"

enum { PAGES = 1536 };

static const int places[] = { 0, 511, 512, 1100, PAGES - 1 };

int main(void)
{
    int wrong = 0;
    pipe(to_child);
    pipe(to_parent);
    for (int number = 0; number < CASES; number++)
        for (int paged_out = 0; paged_out <= 1; paged_out++) {
            int good = 0;
            char *memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (unsigned place = 0; place < sizeof places / sizeof *places; place++) {
                char *page = memory + (size_t)places[place] * PAGE;
                memset(page, OLD, PAGE);
                if (paged_out)
                    madvise(page, PAGE, MADV_PAGEOUT);
                good += run(number, page, PAGE);
            }
            munmap(memory, (size_t)PAGES * PAGE);
            printf("%d %s, %s: %d\n", number + 1, names[number], paged_out ? "paged out" : "resident", good);
            wrong += good != sizeof places / sizeof *places;
        }
    return wrong != 0;
}
