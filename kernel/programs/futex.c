/* The page of a futex is discarded again and again, so that futex calls fault, while as many threads are made as it is told. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

static unsigned *word;
static atomic_int stop;

/* The word is always 0, so neither call waits. */
static void *calls(void *operation)
{
    while (!stop)
        syscall(SYS_futex, word, (long)operation | FUTEX_PRIVATE_FLAG, 1, 0, word + 1, 1);
    return 0;
}

static void *discards(void *unused)
{
    while (!stop)
        madvise(word, PAGE, MADV_DONTNEED);
    return 0;
}

static void *ends(void *made)
{
    ++*(int *)made;
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t others[3], thread;
    int made = 0;
    word = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_create(&others[0], 0, calls, (void *)FUTEX_WAIT);
    pthread_create(&others[1], 0, calls, (void *)FUTEX_CMP_REQUEUE);
    pthread_create(&others[2], 0, discards, 0);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pthread_create(&thread, 0, ends, &made);
        pthread_join(thread, 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(others[i], 0);
    printf("made: %d\n", made);
    return 0;
}
