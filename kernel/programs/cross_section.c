/* Look-ups of neutron cross sections on two memory tiers, as crates/capture/src/workload/cross_section.rs makes them, in one thread.

   Arguments: kernel.numa_balancing, and the number of look-ups. The program first fills node 0 but for a fifth of its tables. It counts its own loads
   by page, asks from time to time on which node each page is (move_pages), and prints the loads of each node and the kernel's counts. */
#define _GNU_SOURCE
#include "tiers.h"
#include <stdint.h>

#define FACTOR 64UL
#define NUCLIDES 355UL
#define POINTS (11303 / FACTOR)
#define ENERGIES (NUCLIDES * POINTS)
#define POINT_BYTES 48UL
#define ROUND(bytes) (((bytes) + PAGE - 1) / PAGE * PAGE)
#define GRID ROUND(ENERGIES * NUCLIDES * 4)
#define SECTIONS (GRID + ROUND(ENERGIES * 8))
#define PAGES ((SECTIONS + ROUND(ENERGIES * POINT_BYTES)) / PAGE)
#define SAMPLE 2000

static const int materials[12][2] = {
    { 321, 140 }, { 5, 52 }, { 4, 275 }, { 4, 134 }, { 27, 154 }, { 21, 64 }, { 21, 66 }, { 21, 55 }, { 21, 8 }, { 21, 15 }, { 9, 25 }, { 9, 12 },
};
static volatile char *tables;
static uint32_t loads[PAGES];
static uint64_t by_node[2], state = 88172645463325252ULL;

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
    unsigned long look_ups = argc > 2 ? strtoul(argv[2], 0, 10) : 100000;
    char path[128];

    use_tiers(FACTOR);
    set("/proc/sys/kernel/numa_balancing", strtoul(argv[1], 0, 10));
    fill_node(0, PAGES / 5 * PAGE);
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
