/* Look-ups of neutron cross sections on two memory tiers, as crates/capture/src/workload/cross_section.rs makes them, in one thread.

   Arguments: kernel.numa_balancing, and the number of look-ups. The program first fills node 0 but for a fifth of its tables. It counts its own loads
   by page, asks from time to time on which node each page is (move_pages), and prints the loads of each node and the kernel's counts. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define FACTOR 64UL
#define NUCLIDES 355UL
#define POINTS (11303 / FACTOR)
#define ENERGIES (NUCLIDES * POINTS)
#define POINT_BYTES 48UL
#define ROUND(bytes) (((bytes) + PAGE - 1) / PAGE * PAGE)
#define GRID ROUND(ENERGIES * NUCLIDES * 4)
#define SECTIONS (GRID + ROUND(ENERGIES * 8))
#define PAGES ((SECTIONS + ROUND(ENERGIES * POINT_BYTES)) / PAGE)
#define BIND 2
#define SAMPLE 2000

static const int materials[12][2] = {
    { 321, 140 }, { 5, 52 }, { 4, 275 }, { 4, 134 }, { 27, 154 }, { 21, 64 }, { 21, 66 }, { 21, 55 }, { 21, 8 }, { 21, 15 }, { 9, 25 }, { 9, 12 },
};
static volatile char *tables;
static uint32_t loads[PAGES];
static uint64_t by_node[2], state = 88172645463325252ULL;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void set(const char *path, unsigned long value)
{
    FILE *file = fopen(path, "w");

    if (!file || fprintf(file, "%lu", value) < 0 || fclose(file))
        fail(path);
}

/* The number after a word of a file. */
static unsigned long number(const char *path, const char *word)
{
    char line[256];
    unsigned long found = 0;
    size_t length = strlen(word);
    FILE *file = fopen(path, "r");

    if (!file)
        fail(path);
    while (fgets(line, sizeof line, file)) {
        char *at = strstr(line, word);
        if (at && (at[length] == ' ' || at[length] == ':'))
            found = strtoul(at + length + 1, 0, 10);
    }
    fclose(file);
    return found;
}

static char *map(unsigned long bytes)
{
    char *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        fail("mmap");
    return p;
}

/* Leaves `left` bytes of node 0 to the tables. */
static void fill_node_0(unsigned long left)
{
    unsigned long node0 = 1;

    for (;;) {
        unsigned long free = number("/sys/devices/system/node/node0/meminfo", "MemFree") * 1024;
        unsigned long bytes = free > left ? (free - left) / 2 / PAGE * PAGE : 0;
        char *p;

        if (bytes < 64 * PAGE)
            return;
        p = map(bytes);
        if (syscall(SYS_mbind, p, bytes, BIND, &node0, 64UL, 0))
            fail("mbind");
        if (mlock(p, bytes))
            fail("mlock");
    }
}

static void sample(void)
{
    static void *at[PAGES];
    static int status[PAGES];

    for (unsigned long i = 0; i < PAGES; i++)
        at[i] = (void *)(tables + i * PAGE);
    if (syscall(SYS_move_pages, 0, PAGES, at, 0, status, 0))
        fail("move_pages");
    for (unsigned long i = 0; i < PAGES; i++) {
        if (status[i] == 0 || status[i] == 1)
            by_node[status[i]] += loads[i];
        loads[i] = 0;
    }
}

static unsigned long below(unsigned long bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % bound;
}

static void load(unsigned long at, unsigned long words)
{
    for (unsigned long i = 0; i < words; i++)
        (void)tables[at + i * 4];
    loads[at / PAGE] += words;
}

static void look_up(void)
{
    unsigned long energy = below(ENERGIES), draw = below(1000), low = 0, high = ENERGIES - 1, nuclides = 0, point;

    for (int i = 0; i < 12 && !nuclides; i++) {
        if (draw < (unsigned long)materials[i][1])
            nuclides = materials[i][0];
        draw -= materials[i][1];
    }
    while (high - low > 1) {
        unsigned long middle = low + (high - low) / 2;
        load(GRID + middle * 8, 1);
        if (middle > energy)
            high = middle;
        else
            low = middle;
    }
    for (unsigned long i = 0; i < nuclides; i++)
        load(energy * NUCLIDES * 4 + i * 4, 1);
    point = energy / NUCLIDES < POINTS - 2 ? energy / NUCLIDES : POINTS - 2;
    for (unsigned long i = 0; i < nuclides; i++)
        load(SECTIONS + (i * POINTS + point) * POINT_BYTES, 12);
}

int main(int argc, char **argv)
{
    const char *scans = "/sys/kernel/debug/sched/numa_balancing";
    unsigned long look_ups = argc > 2 ? strtoul(argv[2], 0, 10) : 100000;
    char path[128];
    FILE *file;
    const struct {
        const char *name;
        unsigned long value;
    } settings[] = {
        { "scan_size_mb", 256 / FACTOR }, { "scan_delay_ms", 1000 / FACTOR }, { "scan_period_min_ms", 1000 / FACTOR },
        { "scan_period_max_ms", 60000 / FACTOR }, { "hot_threshold_ms", 1000 / FACTOR },
    };

    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, 0);
    for (unsigned long i = 0; i < sizeof settings / sizeof *settings; i++) {
        snprintf(path, sizeof path, "%s/%s", scans, settings[i].name);
        set(path, settings[i].value);
    }
    /* What Linux derives from the size of the machine, without what it adds for huge pages; where it cannot be changed, it is that. */
    file = fopen("/proc/sys/vm/min_free_kbytes", "w");
    if (file) {
        fputs("3236", file);
        fclose(file);
    }
    set("/sys/kernel/mm/numa/demotion_enabled", 1);
    set("/proc/sys/kernel/numa_balancing", strtoul(argv[1], 0, 10));
    fill_node_0(PAGES / 5 * PAGE);
    tables = map(PAGES * PAGE);
    for (unsigned long i = 0; i < PAGES; i++)
        tables[i * PAGE] = 1;
    for (unsigned long i = 1; i <= look_ups; i++) {
        look_up();
        if (i % SAMPLE == 0)
            sample();
    }
    printf("loads of node 0: %lu\nloads of node 1: %lu\n", by_node[0], by_node[1]);
    for (int i = 0; i < 6; i++) {
        static const char *names[] = { "numa_pte_updates", "numa_hint_faults", "numa_pages_migrated", "pgpromote_success", "pgdemote_kswapd", "pgdemote_direct" };
        printf("%s: %lu\n", names[i], number("/proc/vmstat", names[i]));
    }
    for (int tier = 0; tier < 64; tier++) {
        char list[64] = "";
        FILE *file;
        snprintf(path, sizeof path, "/sys/devices/virtual/memory_tiering/memory_tier%d/nodelist", tier);
        file = fopen(path, "r");
        if (file && fgets(list, sizeof list, file))
            printf("memory_tier%d: %s", tier, list);
    }
    return 0;
}
