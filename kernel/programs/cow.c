/* Copy-on-write between threads: a process forks again and again, and after each fork one thread stores to every page while another, which has
   just read them, looks whether it sees the stores; the child looks that it does not. The reader waits asleep in every second round, and on its
   CPU in the others. Prints nothing that depends on time. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, ROUNDS = 40 };

static volatile uint64_t *memory;
static pthread_barrier_t before, after;
static volatile uint64_t ready, stored;
static unsigned long missed;

static volatile uint64_t *cell(int page)
{
    return memory + page * (PAGE / 8);
}

static void *reader(void *argument)
{
    (void)argument;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        /* The translations are those of before the fork, or those that fork left. */
        for (int page = 0; page < PAGES; page++)
            if (*cell(page) != round - 1)
                missed++;
        if (round % 2) {
            pthread_barrier_wait(&before);
            pthread_barrier_wait(&after);
        } else {
            ready = round;
            while (stored != round)
                ;
        }
        for (int page = 0; page < PAGES; page++)
            if (*cell(page) != round)
                missed++;
    }
    return 0;
}

int main(void)
{
    unsigned long leaked = 0;
    pthread_t thread;
    memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++)
        *cell(page) = 0;
    pthread_barrier_init(&before, 0, 2);
    pthread_barrier_init(&after, 0, 2);
    if (pthread_create(&thread, 0, reader, 0))
        return 2;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        int go[2], status;
        if (pipe(go))
            return 3;
        pid_t child = fork();
        if (child < 0)
            return 4;
        if (child == 0) {
            char byte;
            close(go[1]);
            int bad = read(go[0], &byte, 1) != 0;
            for (int page = 0; page < PAGES; page++)
                bad |= *cell(page) != round - 1;
            _exit(bad);
        }
        close(go[0]);
        if (round % 2)
            pthread_barrier_wait(&before);
        else
            while (ready != round)
                ;
        for (int page = 0; page < PAGES; page++)
            *cell(page) = round;
        if (round % 2)
            pthread_barrier_wait(&after);
        else
            stored = round;
        close(go[1]);
        waitpid(child, &status, 0);
        leaked += status != 0;
    }
    pthread_join(thread, 0);
    printf("%d rounds: %lu stores missed, %lu children saw one\n", ROUNDS, missed, leaked);
    return missed || leaked;
}
