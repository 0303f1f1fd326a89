/* Threads on four CPUs read pages that move between two memory tiers and to swap, and check what each load returns.

   Arguments: the pages, the loads of each thread, the pages that stay free on nodes 0 and 1 or "all", how often the first thread pages out a 64th of
   the pages, how often it stores to one, and the counters to print: names in /proc/vmstat, or TLB of /proc/interrupts.
   Fifteen of sixteen loads are of a window of an eighth of the pages, which moves. A word of a page has its place in the lower half and the number of stores
   to it in the upper half. Without stores, the mapping is read-only. Before each store, a child checks all pages. */
#define _GNU_SOURCE
#include "tiers.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/wait.h>

enum { CPUS = 4, WORDS = 8, PARTS = 64, WINDOWS = 32, STEPS = 128, MAX_COUNTERS = 32, FIRST = 7 };

static char *tables;
static unsigned long pages, loads;
/* The loads that each thread may have made: none is ahead of what the first thread does by more than two steps. */
static _Atomic unsigned long allowed;
static _Atomic uint32_t *stores;
static struct reader {
    pthread_t thread;
    int cpu;
    _Atomic unsigned long done;
    unsigned long wrong;
    uint64_t sum;
} readers[CPUS];

static _Atomic uint64_t *word(unsigned long page, unsigned long at)
{
    return (_Atomic uint64_t *)(tables + page * PAGE + at * (PAGE / WORDS));
}

static void fill(unsigned long page, uint64_t value)
{
    for (unsigned long at = 0; at < WORDS; at++)
        atomic_store_explicit(word(page, at), value << 32 | (page * WORDS + at), memory_order_relaxed);
    /* A load that follows one of this number finds the words. */
    atomic_store_explicit(&stores[page], value, memory_order_release);
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

static void *read_pages(void *argument)
{
    struct reader *reader = argument;
    uint64_t state = 88172645463325252ULL + reader->cpu;

    pin(reader->cpu);
    for (unsigned long i = 0; i < loads; i++) {
        unsigned long window = i * WINDOWS / loads * (pages / 16), page, at;
        uint64_t least, value;

        while (i >= allowed)
            usleep(100);
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at = state >> 40 & (WORDS - 1);
        page = state & 15 ? (window + (state >> 4) % (pages / 8)) % pages : (state >> 4) % pages;
        least = atomic_load_explicit(&stores[page], memory_order_acquire);
        value = atomic_load_explicit(word(page, at), memory_order_relaxed);
        reader->wrong += (uint32_t)value != page * WORDS + at || value >> 32 < least;
        reader->sum += (uint32_t)value;
        atomic_store_explicit(&reader->done, i + 1, memory_order_relaxed);
    }
    return 0;
}

/* A 64th of the pages, in an order in which neighbours are far apart. */
static unsigned long part(unsigned long turn)
{
    return turn * 27 % PARTS * (pages / PARTS);
}

static void page_out(unsigned long turn)
{
    madvise(tables + part(turn) * PAGE, pages / PARTS * PAGE, 21 /* MADV_PAGEOUT */);
}

/* Whether a child, which shares the page tables where that is possible, finds in each page what it had at the fork. */
static int child_finds_all(void)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        for (unsigned long page = 0; page < pages; page++)
            for (unsigned long at = 0; at < WORDS; at++)
                if (*word(page, at) != ((uint64_t)stores[page] << 32 | (page * WORDS + at)))
                    _exit(1);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void store(unsigned long turn)
{
    if (!child_finds_all())
        fail("a child");
    for (unsigned long page = part(turn); page < part(turn) + pages / PARTS; page++)
        fill(page, stores[page] + 1);
}

/* Pages out and stores, each so often in equal steps of what the threads read. */
static void disturb(unsigned long page_outs, unsigned long stored)
{
    unsigned long outs = 0, ins = 0, done;

    for (unsigned long step = 0; step < STEPS; step++) {
        allowed = (step + 2) * (loads / STEPS + 1);
        do {
            done = loads;
            for (int cpu = 0; cpu < CPUS; cpu++)
                done = readers[cpu].done < done ? readers[cpu].done : done;
            usleep(100);
        } while (done < step * loads / STEPS);
        for (; outs < page_outs * step / STEPS; outs++)
            page_out(outs);
        for (; ins < stored * step / STEPS; ins++)
            store(ins + PARTS / 2);
    }
}

/* The sum of the numbers of CPUs in a line of /proc/interrupts. */
static unsigned long interrupts(const char *name)
{
    char line[1024], *at;
    unsigned long sum = 0;
    FILE *file = fopen("/proc/interrupts", "r");

    while (file && fgets(line, sizeof line, file))
        if ((at = strstr(line, name)) && at[strlen(name)] == ':')
            for (at += strlen(name) + 1; strspn(at, " ") < strspn(at, " 0123456789");)
                sum += strtoul(at, &at, 10);
    if (file)
        fclose(file);
    return sum;
}

static unsigned long counted(const char *name)
{
    return strcmp(name, "TLB") == 0 ? interrupts(name) : number("/proc/vmstat", name);
}

int main(int argc, char **argv)
{
    unsigned long before[MAX_COUNTERS], wrong = 0, stored;
    uint64_t sum = 0;

    if (argc < FIRST || argc - FIRST > MAX_COUNTERS)
        return 2;
    pages = strtoul(argv[1], 0, 10);
    loads = strtoul(argv[2], 0, 10);
    stored = strtoul(argv[6], 0, 10);
    use_tiers(64);
    stores = (void *)map(pages * sizeof *stores);
    /* Neither moves. */
    if (mlock((void *)stores, pages * sizeof *stores))
        fail("mlock");
    for (int node = 0; node < 2; node++)
        if (strcmp(argv[3 + node], "all"))
            fill_node(node, strtoul(argv[3 + node], 0, 10) * PAGE);
    tables = map(pages * PAGE);
    for (unsigned long page = 0; page < pages; page++)
        fill(page, 0);
    if (!stored && mprotect(tables, pages * PAGE, PROT_READ))
        fail("mprotect");
    set("/proc/sys/kernel/numa_balancing", 2);
    for (int i = FIRST; i < argc; i++)
        before[i - FIRST] = counted(argv[i]);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        readers[cpu].cpu = cpu;
        if (pthread_create(&readers[cpu].thread, 0, read_pages, &readers[cpu]))
            fail("pthread_create");
    }
    disturb(strtoul(argv[5], 0, 10), stored);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        pthread_join(readers[cpu].thread, 0);
        wrong += readers[cpu].wrong;
        sum += readers[cpu].sum;
    }
    for (int i = FIRST; i < argc; i++)
        printf("%s: %lu\n", argv[i], counted(argv[i]) - before[i - FIRST]);
    printf("wrong loads: %lu\nchecksum: %lu\n", wrong, (unsigned long)sum);
    return wrong != 0;
}
