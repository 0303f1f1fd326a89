/* The NUMA nodes of the machine: their files below /sys, the node of each CPU, and memory of both. Prints a line for each group. The arguments are what Linux says of this machine: the nodes with CPUs, and the distances of node 0. */
/* Tests INV-KERNEL-NODES. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, MIB = 1 << 20 };
static const char NODE[] = "/sys/devices/system/node", CPU[] = "/sys/devices/system/cpu";

/* The text of a file, without the last newline; what it says instead if it has none. */
static const char *text(const char *format, int number, const char *name)
{
    static char texts[8][4096];
    static int used;
    char path[256], *text = texts[used++ % 8];
    snprintf(path, sizeof path, format, number, name);
    int file = open(path, O_RDONLY);
    if (file < 0)
        return strerror(errno);
    long length = read(file, text, sizeof texts[0] - 1);
    close(file);
    if (length < 1 || text[length - 1] != '\n')
        return "no line";
    text[length - 1] = 0;
    return text;
}

static const char *of_node(int node, const char *name)
{
    return text("/sys/devices/system/node/node%d/%s", node, name);
}

/* The number in the line that begins with a name, or -1. */
static long line(const char *all, const char *name)
{
    for (const char *at = all; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : 0)
        if (strncmp(at, name, strlen(name)) == 0)
            return atol(at + strlen(name));
    return -1;
}

static int contains(const char *list, int number)
{
    for (const char *at = list; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end == at)
            return 0;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (first <= number && number <= last)
            return 1;
        at = *end == ',' ? end + 1 : end;
    }
    return 0;
}

static void lists(const char *with_cpus)
{
    const char *names[] = { "online", "possible", "has_memory", "has_normal_memory" };
    printf("lists:");
    for (int i = 0; i < 4; i++)
        printf(" %s %s", names[i], text("/sys/devices/system/node%.0d/%s", 0, names[i]));
    printf(" has_cpu %d\n", strcmp(text("/sys/devices/system/node%.0d/%s", 0, "has_cpu"), with_cpus) == 0);
}

static void distances(const char *of_first)
{
    int to_second = atoi(strchr(of_first, ' ') ? strchr(of_first, ' ') + 1 : "0");
    char of_second[32];
    snprintf(of_second, sizeof of_second, "%d 10", to_second);
    printf("distances: %d %d\n", strcmp(of_node(0, "distance"), of_first) == 0, strcmp(of_node(1, "distance"), of_second) == 0);
}

/* Each CPU is in the list, the mask and the links of one node, which getcpu returns there. */
static void cpus(void)
{
    int count = 0, listed = 0, masked = 0, linked = 0, told = 0, pinned = 0;
    int is_list = 0;
    for (int cpu = 0; contains(text("/sys/devices/system/cpu%.0d/%s", 0, "online"), cpu); cpu++, count++) {
        cpu_set_t set;
        unsigned here, node;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        pinned += sched_setaffinity(0, sizeof set, &set) == 0;
        told += syscall(SYS_getcpu, &here, &node, 0) == 0 && here == cpu && contains(of_node(node, "cpulist"), cpu);
        for (int node = 0; node < 2; node++) {
            char path[128], link[64] = "", wanted[64];
            snprintf(path, sizeof path, "%s/node%d/cpu%d", NODE, node, cpu);
            snprintf(wanted, sizeof wanted, "../../cpu/cpu%d", cpu);
            int has = readlink(path, link, sizeof link - 1) > 0 && strcmp(link, wanted) == 0;
            snprintf(path, sizeof path, "%s/cpu%d/node%d", CPU, cpu, node);
            snprintf(wanted, sizeof wanted, "../../node/node%d", node);
            memset(link, 0, sizeof link);
            int back = readlink(path, link, sizeof link - 1) > 0 && strcmp(link, wanted) == 0;
            int in_list = contains(of_node(node, "cpulist"), cpu);
            listed += in_list;
            linked += has == in_list && back == in_list;
            masked += (strtoul(of_node(node, "cpumap"), 0, 16) >> cpu & 1) == in_list;
        }
    }
    printf("cpus: %d", count > 0);
    printf(" %d %d %d %d %d\n", listed == count, masked == 2 * count, linked == 2 * count, told == count, pinned == count);
}

/* Links lead to folders, also on the way to a file. */
static void links(void)
{
    struct stat at, through;
    char path[128];
    DIR *folder;
    struct dirent *entry;
    int files = 0, kinds = 0;
    unsigned node;
    syscall(SYS_getcpu, 0, &node, 0);
    snprintf(path, sizeof path, "%s/cpu0/node%d", CPU, contains(of_node(0, "cpulist"), 0) ? 0 : 1);
    printf("links: %d", lstat(path, &at) == 0 && S_ISLNK(at.st_mode));
    printf(" %d", stat(path, &through) == 0 && S_ISDIR(through.st_mode));
    printf(" %d", open(path, O_RDONLY | O_NOFOLLOW) == -1 && errno == ELOOP);
    strcat(path, "/cpu0/online");
    printf(" %d", access(path, F_OK) == 0 || errno == ENOENT);
    snprintf(path, sizeof path, "%s/cpu0/node%d/../has_cpu", CPU, contains(of_node(0, "cpulist"), 0) ? 0 : 1);
    printf(" %d", access(path, R_OK) == 0);
    printf(" %d", chdir("/sys/devices/system/node/node1") == 0 && access("../node0/meminfo", R_OK) == 0);
    folder = opendir("/sys/devices/system/node/node0");
    while (folder && (entry = readdir(folder))) {
        const char *names[] = { "cpulist", "cpumap", "distance", "meminfo", "numastat", "vmstat" };
        for (int i = 0; i < 6; i++)
            files += strcmp(entry->d_name, names[i]) == 0;
        kinds += strncmp(entry->d_name, "cpu", 3) == 0 && entry->d_name[3] <= '9' && entry->d_type != DT_LNK;
    }
    printf(" %d %d\n", files, kinds);
}

static void absent(void)
{
    printf("absent: %d %d", access("/sys/devices/system/node/node2", F_OK) == -1, errno == ENOENT);
    printf(" %d", access("/sys/devices/system/node/node01", F_OK) == -1);
    printf(" %d\n", access("/sys/devices/system/node/node0/cpu99", F_OK) == -1);
}

/* The memory of both nodes adds up, and a program that fills one continues in the other. */
static void memory(void)
{
    long total[2], free[2], listed[2];
    printf("memory:");
    for (int node = 0; node < 2; node++) {
        char name[64];
        const char *all = of_node(node, "meminfo");
        snprintf(name, sizeof name, "Node %d MemTotal:", node);
        total[node] = line(all, name);
        snprintf(name, sizeof name, "Node %d MemFree:", node);
        free[node] = line(all, name);
        snprintf(name, sizeof name, "Node %d MemUsed:", node);
        printf(" %d", total[node] > 0 && total[node] == free[node] + line(all, name));
        const char *counts = of_node(node, "vmstat");
        listed[node] = line(counts, "nr_inactive_anon ") + line(counts, "nr_active_anon ");
        printf(" %d %d", line(counts, "nr_free_pages ") > 0, listed[node] >= 0);
    }
    printf(" %d", line(text("/proc/%.0d%s", 0, "meminfo"), "MemTotal:") == total[0] + total[1]);
    /* The first node of this program, and 8 MiB of the other. */
    unsigned node;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof set, &set);
    syscall(SYS_getcpu, 0, &node, 0);
    long bytes = free[node] * 1024 + 8 * MIB;
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long page = 0; page < bytes; page += PAGE)
        at[page] = 1;
    const char *counts = of_node(!node, "vmstat");
    long grown = line(counts, "nr_inactive_anon ") + line(counts, "nr_active_anon ") - listed[!node];
    printf(" %d\n", grown >= MIB / PAGE);
    munmap(at, bytes);
}

int main(int count, char **arguments)
{
    lists(count > 1 ? arguments[1] : "0");
    distances(count > 2 ? arguments[2] : "10 20");
    cpus();
    links();
    absent();
    memory();
    return 0;
}
