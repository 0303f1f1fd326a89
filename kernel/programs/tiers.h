/* What programs on two memory tiers share: settings counts of files, and nodes that are almost full. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096UL
#define BIND 2

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

/* Leaves `left` bytes of a node to what comes after. */
static void fill_node(int node, unsigned long left)
{
    unsigned long nodes = 1UL << node;
    char path[64];

    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", node);
    for (;;) {
        unsigned long free = number(path, "MemFree") * 1024;
        unsigned long bytes = free > left ? (free - left) / 2 / PAGE * PAGE : 0;
        char *p;

        if (bytes < 64 * PAGE)
            return;
        p = map(bytes);
        if (syscall(SYS_mbind, p, bytes, BIND, &nodes, 64UL, 0))
            fail("mbind");
        if (mlock(p, bytes) || madvise(p, bytes, MADV_DONTFORK))
            fail("mlock");
    }
}

/* Demotion, and scans as of a machine that is `factor` times as large. */
static void use_tiers(unsigned long factor)
{
    const struct {
        const char *name;
        unsigned long value;
    } settings[] = {
        { "scan_size_mb", 256 / factor }, { "scan_delay_ms", 1000 / factor }, { "scan_period_min_ms", 1000 / factor },
        { "scan_period_max_ms", 60000 / factor }, { "hot_threshold_ms", 1000 / factor },
    };
    char path[128];
    FILE *file;

    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, 0);
    for (unsigned long i = 0; i < sizeof settings / sizeof *settings; i++) {
        snprintf(path, sizeof path, "/sys/kernel/debug/sched/numa_balancing/%s", settings[i].name);
        set(path, settings[i].value);
    }
    /* What Linux derives from the size of the machine, without what it adds for huge pages; where it cannot be changed, it is that. */
    file = fopen("/proc/sys/vm/min_free_kbytes", "w");
    if (file) {
        fputs("3236", file);
        fclose(file);
    }
    set("/sys/kernel/mm/numa/demotion_enabled", 1);
}
