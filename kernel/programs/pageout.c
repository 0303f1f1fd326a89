/* The program of the series that batches arm64's flushes in reclaim (20220822082120.8347-5-yangyicong@huawei.com): reads 1 MiB of shared memory, pages
   it out, and again, as often as its argument says. What stands between the marks is counted by kernel/plugin/flushes.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE (1 * 1024 * 1024)
#define PAGE 4096

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static void mark(void)
{
#ifdef __aarch64__
    /* A hint that means nothing. */
    __asm__ volatile("hint #112" ::: "memory");
#endif
}

static int swap_in(volatile unsigned char *p)
{
    int wrong = 0;
    for (int i = 0; i < SIZE; i += PAGE)
        wrong += p[i] != 0x88;
    return wrong;
}

static int resident(volatile unsigned char *p)
{
    unsigned char seen[SIZE / PAGE];
    int pages = 0;
    if (mincore((void *)p, SIZE, seen))
        return -1;
    for (int i = 0; i < SIZE / PAGE; i++)
        pages += seen[i] & 1;
    return pages;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 10, wrong = 0;
    volatile unsigned char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return 2;
    memset((void *)p, 0x88, SIZE);
    /* The first round writes the pages out; what comes after finds them clean, as most of the program's rounds do. */
    wrong += swap_in(p);
    if (madvise((void *)p, SIZE, MADV_PAGEOUT))
        return 3;
    printf("resident %d of %d\n", resident(p), SIZE / PAGE);
    fflush(stdout);
    mark();
    for (int k = 0; k < rounds; k++) {
        wrong += swap_in(p);
        madvise((void *)p, SIZE, MADV_PAGEOUT);
    }
    mark();
    printf("resident %d of %d\nwrong %d\n", resident(p), SIZE / PAGE, wrong);
    return wrong != 0;
}
