/* Swap as a program gets it: a size for /dev/zram0, a header, swapon(2), more stored than there is memory, and everything back by swapoff(2). Sizes follow the
   machine's memory, so that all machines print the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define PAGE 4096UL
#define DISK "/dev/zram0"
#define SYS "/sys/block/zram0/"
#define DISCARD 0x10000
#define DISCARD_ONCE 0x20000
#define DISCARD_PAGES 0x40000

static const char *name(long answer)
{
    return answer < 0 ? strerrorname_np(errno) : "0";
}

static void try(const char *what, long answer)
{
    printf("%s: %s\n", what, name(answer));
    fflush(stdout);
}

static long say(const char *path, const char *word)
{
    int file = open(path, O_WRONLY), old;
    long answer = write(file, word, strlen(word));

    old = errno;
    close(file);
    errno = old;
    return answer;
}

static long put(off_t at, const void *bytes, size_t count)
{
    int file = open(DISK, O_WRONLY), old;
    long answer = pwrite(file, bytes, count, at);

    if (answer >= 0 && fsync(file))
        answer = -1;
    old = errno;
    close(file);
    errno = old;
    return answer;
}

static unsigned long number(const char *path)
{
    char text[64] = "";
    int file = open(path, O_RDONLY);

    read(file, text, sizeof text - 1);
    close(file);
    return strtoul(text, 0, 10);
}

/* A line of a file that begins so; its words are left. */
static int line(const char *path, const char *begin, char *to, size_t size)
{
    FILE *file = fopen(path, "r");
    int found = 0;

    while (file && !found && fgets(to, size, file))
        found = strncmp(to, begin, strlen(begin)) == 0;
    if (file)
        fclose(file);
    return found;
}

/* The number after a word at the beginning of a line. */
static unsigned long after(const char *path, const char *word)
{
    char text[256];
    return line(path, word, text, sizeof text) ? strtoul(text + strlen(word), 0, 10) : 0;
}

static unsigned long meminfo(const char *what)
{
    return after("/proc/meminfo", what) * 1024;
}

/* What is said of the device, where there are so many bytes of swap. */
static void look(unsigned long bytes)
{
    char text[256], type[32];
    unsigned long size, used;
    int priority;
    struct sysinfo info;

    sysinfo(&info);
    printf("total %s, %s\n", meminfo("SwapTotal:") == bytes ? "right" : "wrong",
           info.totalswap * info.mem_unit == bytes ? "right" : "wrong");
    if (line("/proc/swaps", DISK, text, sizeof text) &&
        sscanf(text, DISK " %31s %lu %lu %d", type, &size, &used, &priority) == 4)
        printf("%s, size %s, priority %d\n", type, size * 1024 == bytes ? "right" : "wrong", priority);
    else
        printf("not swapped to\n");
}

static void header(uint32_t version, uint32_t last)
{
    uint32_t words[3] = { version, last, 0 };
    try("header", put(1024, words, sizeof words) < 0 || put(PAGE - 10, "SWAPSPACE2", 10) < 0 ? -1 : 0);
}

/* Words that can be compressed, and are nobody else's. */
static void fill(char *page, unsigned long index)
{
    uint64_t *words = (uint64_t *)page;

    for (unsigned long at = 0; at < PAGE / 8; at++)
        words[at] = at % 8 ? 0x2073692073696874 : index << 16 | at;
}

static unsigned long wrong(char *base, unsigned long from, unsigned long pages)
{
    static char right[PAGE] __attribute__((aligned(8)));
    unsigned long count = 0;

    for (unsigned long index = from; index < pages; index++) {
        fill(right, index);
        count += memcmp(base + index * PAGE, right, PAGE) != 0;
    }
    return count;
}

static void refusals(void)
{
    try("no such file", swapon("/nowhere", 0));
    try("no name", swapon("", 0));
    try("a bad address", swapon((char *)8, 0));
    try("a directory", swapon("/dev", 0));
    try("another device", swapon("/dev/null", 0));
    try("an unknown flag", swapon(DISK, 0x100000));
    try("swapoff of another device", swapoff("/dev/null"));
    try("swapoff of nothing", swapoff("/nowhere"));
    try("swapoff too early", swapoff(DISK));
    try("without a size", swapon(DISK, 0));
}

int main(void)
{
    struct sysinfo info;
    unsigned long total, pages, kept, disk;
    char text[32], *base;

    sysinfo(&info);
    total = info.totalram * info.mem_unit / PAGE;
    /* A quarter more than there is, on a disk that has room for all of it. */
    pages = total + total / 4, kept = total / 4, disk = pages;
    refusals();
    snprintf(text, sizeof text, "%luK\n", disk * 4);
    try("bad size", say(SYS "disksize", "much"));
    try("size", say(SYS "disksize", text) < 0 ? -1 : 0);
    try("another size", say(SYS "disksize", text));
    printf("size is %s\n", number(SYS "disksize") == disk * PAGE ? "right" : "wrong");
    try("without a header", swapon(DISK, 0));
    header(1, disk);
    try("longer than the device", swapon(DISK, 0));
    header(2, disk - 1);
    try("another version", swapon(DISK, 0));
    header(1, disk - 1);
    look(0);
    try("swapon", swapon(DISK, SWAP_FLAG_PREFER | 5 | DISCARD | DISCARD_ONCE | DISCARD_PAGES));
    look((disk - 1) * PAGE);
    try("swapon again", swapon(DISK, 0));
    try("write to it", put(0, text, 1));
    try("reset it", say(SYS "reset", "1"));

    base = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return 2;
    for (unsigned long index = 0; index < pages; index++)
        fill(base + index * PAGE, index);
    printf("fill: %s\n", meminfo("SwapTotal:") - meminfo("SwapFree:") >= total / 4 * PAGE ? "swapped" : "not swapped");
    /* The program computes all the time, and on a machine of one CPU nobody is idle. */
    printf("background: %s\n", after("/proc/vmstat", "pgsteal_kswapd ") > 0 ? "reclaimed" : "idle");
    printf("wrong %lu\n", wrong(base, 0, pages));
    munmap(base + kept * PAGE, (pages - kept) * PAGE);
    try("swapoff", swapoff(DISK));
    look(0);
    printf("wrong %lu\n", wrong(base, 0, kept));
    try("swapoff again", swapoff(DISK));
    try("swapon as it is", swapon(DISK, 0));
    look((disk - 1) * PAGE);
    try("swapoff", swapoff(DISK));
    try("reset", say(SYS "reset", "1") < 0 ? -1 : 0);
    printf("size %lu\n", number(SYS "disksize"));
    return 0;
}
