/* Transparent huge pages: the words of the settings, what faults, forks and calls make of huge pages, and who gets none. Prints a line for each group.
   Linux prints the same since 6.18, which has PR_THP_DISABLE_EXCEPT_ADVISED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define SETTINGS "/sys/kernel/mm/transparent_hugepage/"

enum { EXCEPT_ADVISED = 2 };

static unsigned long regions;

static long told(long result)
{
    return result == -1 ? -errno : result;
}

/* The text of a file, without the newline at its end. */
static char *text(const char *path)
{
    static char bytes[4096];
    int file = open(path, O_RDONLY);
    ssize_t length = read(file, bytes, sizeof bytes - 1);
    close(file);
    if (length > 0 && bytes[length - 1] == '\n')
        length--;
    bytes[length > 0 ? length : 0] = 0;
    return bytes;
}

static long store(const char *path, const char *word)
{
    int file = open(path, O_WRONLY);
    long result = file < 0 ? -errno : told(write(file, word, strlen(word)));
    close(file);
    return result;
}

/* The number that follows a name in a file. */
static long number(const char *path, const char *name)
{
    char line[512];
    long found = -1;
    FILE *file = fopen(path, "r");
    size_t length = strlen(name);
    while (fgets(line, sizeof line, file))
        if (strncmp(line, name, length) == 0 && (line[length] == ' ' || line[length] == ':'))
            found = strtol(line + length + 1, 0, 10);
    fclose(file);
    return found;
}

/* The sum of a figure of the mappings in a range, in kB, or for VmFlags whether one of them has nh. */
static long figure(char *start, unsigned long bytes, const char *name)
{
    char line[512];
    long sum = 0;
    unsigned long from, to;
    int inside = 0;
    size_t length = strlen(name);
    FILE *file = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from < (unsigned long)start + bytes && to > (unsigned long)start;
        else if (inside && strncmp(line, name, length) == 0 && line[length] == ':')
            sum += line[0] == 'V' ? strstr(line, " nh") != 0 : strtol(line + length + 1, 0, 10);
    }
    fclose(file);
    return sum;
}

/* Counters of the machine since the last call: faults and splits; and the memory of the machine in huge pages, in MiB. */
static void counted(void)
{
    static long allocated, split, all;
    long now[] = { number("/proc/vmstat", "thp_fault_alloc"), number("/proc/vmstat", "thp_split_pmd"), number("/proc/meminfo", "AnonHugePages") };
    printf(" [%ld %ld %ld]", now[0] - allocated, now[1] - split, (now[2] - all) / 1024);
    allocated = now[0];
    split = now[1];
    all = now[2];
}

/* Prints how much of a region is in huge pages, and how much is resident, both in kB. */
static void shows(char *start, unsigned long bytes)
{
    printf(" %ld/%ld", figure(start, bytes, "AnonHugePages"), figure(start, bytes, "Rss"));
}

/* Maps memory that no other mapping is next to. */
static char *region(unsigned long bytes, int flags)
{
    char *at = (char *)(1UL << 40) + (regions++ << 30);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | flags, -1, 0);
}

static char *advised(unsigned long bytes)
{
    char *start = region(bytes, 0);
    if (madvise(start, bytes, MADV_HUGEPAGE))
        perror("madvise");
    return start;
}

/* Stores a byte to the first page of each block of 2 MiB. */
static void fill(volatile char *start, unsigned long bytes)
{
    for (unsigned long at = 0; at < bytes; at += HUGE)
        start[at] = 1 + at / HUGE;
}

/* Whether the blocks have these bytes still, and the rest of the first page of each is empty. */
static int is_filled(volatile char *start, unsigned long bytes)
{
    for (unsigned long at = 0; at < bytes; at += HUGE)
        if (start[at] != 1 + at / HUGE || start[at + 1] || start[at + PAGE - 1])
            return 0;
    return 1;
}

static void words(const char *name, const char *const *tried)
{
    char path[128];
    snprintf(path, sizeof path, SETTINGS "%s", name);
    printf("%s: %s", name, text(path));
    for (; *tried; tried++) {
        printf("; %ld", store(path, *tried));
        printf(" %s", text(path));
    }
    printf("\n");
}

static void settings(void)
{
    static const char *const enabled[] = { "always", "sometimes", "never\n", "madvise\n\n", " madvise", "Madvise", "madvise never", "madvise\n", 0 };
    static const char *const defrag[] = { "always\n", "defer", "defer+madvise\n", "defer+", "never", "madvise", 0 };
    static const char *const size[] = { "always", "madvise\n", "never", "nowhere", "inherit", 0 };
    static const char *const zero[] = { "0", "2", "x", "1\n", 0 };
    store(SETTINGS "enabled", "madvise");
    words("enabled", enabled);
    words("defrag", defrag);
    words("hugepages-2048kB/enabled", size);
    words("use_zero_page", zero);
    printf("hpage_pmd_size: %s %ld\n", text(SETTINGS "hpage_pmd_size"), store(SETTINGS "hpage_pmd_size", "1"));
    printf("directory: %d %d\n", access(SETTINGS "hugepages-64kB/enabled", W_OK), access(SETTINGS "hugepages-64kB/nothing", F_OK));
}

static void faults(void)
{
    char *plain = region(4 * HUGE, 0), *huge = advised(4 * HUGE), *cut = advised(2 * HUGE);
    printf("faults:");
    fill(plain, 4 * HUGE);
    shows(plain, 4 * HUGE);
    printf(" %ld", figure(plain, 1, "THPeligible"));
    counted();
    fill(huge, 4 * HUGE);
    shows(huge, 4 * HUGE);
    printf(" %ld %d", figure(huge, 1, "THPeligible"), is_filled(huge, 4 * HUGE));
    printf(" rollup %ld", number("/proc/self/smaps_rollup", "AnonHugePages"));
    counted();
    /* The mapping does not cover a block whole. */
    munmap(cut, PAGE);
    munmap(cut + 2 * HUGE - PAGE, PAGE);
    cut[PAGE] = cut[HUGE] = 1;
    shows(cut + PAGE, HUGE);
    printf(" %ld", figure(cut + PAGE, 1, "THPeligible"));
    counted();
    munmap(plain, 4 * HUGE);
    munmap(huge, 4 * HUGE);
    munmap(cut, 2 * HUGE);
    counted();
    printf("\n");
}

static void parts(void)
{
    char *start = advised(4 * HUGE);
    printf("parts:");
    fill(start, 4 * HUGE);
    counted();
    printf(" unmapped");
    munmap(start + 3 * PAGE, 5 * PAGE);
    shows(start, 4 * HUGE);
    counted();
    printf(" protected");
    mprotect(start + HUGE + 7 * PAGE, PAGE, PROT_READ);
    shows(start, 4 * HUGE);
    counted();
    mprotect(start + 2 * HUGE, HUGE, PROT_READ);
    mprotect(start + 2 * HUGE, HUGE, PROT_READ | PROT_WRITE);
    start[2 * HUGE] = 3;
    shows(start, 4 * HUGE);
    counted();
    printf(" %d dropped", is_filled(start, 4 * HUGE));
    madvise(start + 2 * HUGE + 9 * PAGE, 11 * PAGE, MADV_DONTNEED);
    shows(start, 4 * HUGE);
    counted();
    madvise(start + 3 * HUGE, HUGE, MADV_DONTNEED);
    shows(start, 4 * HUGE);
    counted();
    printf(" %d %d unmapped", is_filled(start, 3 * HUGE), start[3 * HUGE]);
    munmap(start, 4 * HUGE);
    counted();
    printf("\n");
}

static void moves(void)
{
    char *start = advised(4 * HUGE), *to = region(8 * HUGE, 0);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    printf("moves:");
    fill(start, 4 * HUGE);
    counted();
    mremap(start, 2 * HUGE, 2 * HUGE, flags, to);
    shows(to, 2 * HUGE);
    printf(" %d", is_filled(to, 2 * HUGE));
    counted();
    mremap(start + 2 * HUGE, HUGE, HUGE, flags, to + 3 * HUGE + PAGE);
    shows(to + 3 * HUGE + PAGE, HUGE);
    printf(" %d", to[3 * HUGE + PAGE]);
    counted();
    /* Shrinks by half of a huge page. */
    mremap(start + 3 * HUGE, HUGE, HUGE / 2, 0);
    shows(start + 3 * HUGE, HUGE / 2);
    printf(" %d", start[3 * HUGE]);
    counted();
    munmap(start, 4 * HUGE);
    munmap(to, 8 * HUGE);
    counted();
    printf("\n");
}

/* Waits for the child to print its part. */
static int ended(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void forks(void)
{
    char *start = advised(4 * HUGE), byte;
    int ready[2], go[2];
    printf("forks:");
    fill(start, 4 * HUGE);
    counted();
    pipe(ready);
    pipe(go);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf(" child");
        shows(start, 4 * HUGE);
        counted();
        start[PAGE] = 11;
        start[3 * PAGE] = 13;
        start[HUGE + PAGE] = 21;
        shows(start, 4 * HUGE);
        counted();
        fflush(stdout);
        write(ready[1], "x", 1);
        read(go[0], &byte, 1);
        _exit(is_filled(start, 4 * HUGE) && !start[2 * HUGE + PAGE] && start[PAGE] == 11 ? 0 : 1);
    }
    read(ready[0], &byte, 1);
    printf(" parent");
    counted();
    printf(" %d %d", is_filled(start, 4 * HUGE), start[PAGE]);
    start[2 * HUGE + PAGE] = 31;
    shows(start, 4 * HUGE);
    counted();
    write(go[1], "x", 1);
    printf(" child %d after it", ended(child));
    /* One block that the child split, and one that it left alone. */
    start[PAGE] = start[3 * HUGE + PAGE] = 41;
    shows(start, 4 * HUGE);
    counted();
    printf(" %d", is_filled(start, 4 * HUGE));
    munmap(start, 4 * HUGE);
    counted();
    printf("\n");
}

static int sum(volatile char *start, unsigned long bytes)
{
    int sum = 0;
    for (unsigned long at = 0; at < bytes; at += PAGE)
        sum += start[at];
    return sum;
}

static void zeroes(void)
{
    char *start = advised(4 * HUGE);
    printf("zeroes: %d", sum(start, 2 * HUGE));
    shows(start, 4 * HUGE);
    counted();
    start[HUGE + PAGE] = 1;
    shows(start, 4 * HUGE);
    printf(" %d", sum(start, 2 * HUGE));
    counted();
    /* A part of the huge page of zeroes is protected, and another part is stored to. */
    mprotect(start + PAGE, PAGE, PROT_READ);
    start[5 * PAGE] = 1;
    shows(start, 4 * HUGE);
    printf(" %d", sum(start, 2 * HUGE));
    counted();
    printf(" %ld", store(SETTINGS "use_zero_page", "0"));
    printf(" %d", sum(start + 2 * HUGE, HUGE));
    printf(" %ld", store(SETTINGS "use_zero_page", "1"));
    shows(start, 4 * HUGE);
    counted();
    munmap(start, 4 * HUGE);
    counted();
    printf("\n");
}

/* Which blocks are huge after a store to each: of a mapping without advice, with MADV_HUGEPAGE, and with MADV_NOHUGEPAGE. */
static void stores(void)
{
    char *start = region(4 * HUGE, 0);
    madvise(start + HUGE, HUGE, MADV_HUGEPAGE);
    madvise(start + 2 * HUGE, HUGE, MADV_NOHUGEPAGE);
    fill(start, 3 * HUGE);
    for (int i = 0; i < 3; i++)
        printf("%s%ld", i ? "/" : " ", figure(start + i * HUGE, HUGE, "AnonHugePages") / 2048);
    printf("/%ld", figure(start + 2 * HUGE, 1, "VmFlags"));
    munmap(start, 4 * HUGE);
}

static void refusals(void)
{
    char *stack;
    printf("advice:");
    stores();
    store(SETTINGS "enabled", "always");
    printf(" always");
    stores();
    stack = region(2 * HUGE, MAP_STACK);
    fill(stack, HUGE);
    shows(stack, 2 * HUGE);
    printf(" stack %ld %ld", figure(stack, 1, "VmFlags"), figure(stack, 1, "THPeligible"));
    madvise(stack, 2 * HUGE, MADV_HUGEPAGE);
    fill(stack, 2 * HUGE);
    shows(stack, 2 * HUGE);
    munmap(stack, 2 * HUGE);
    store(SETTINGS "enabled", "never");
    printf(" never");
    stores();
    printf(" %ld", store(SETTINGS "hugepages-2048kB/enabled", "always"));
    stores();
    store(SETTINGS "hugepages-2048kB/enabled", "inherit");
    store(SETTINGS "enabled", "madvise");
    /* A huge page stays one although no new one may be had. */
    stack = advised(HUGE);
    fill(stack, HUGE);
    madvise(stack, HUGE, MADV_NOHUGEPAGE);
    shows(stack, HUGE);
    munmap(stack, HUGE);
    printf(" %ld %ld\n", told(madvise(stack, HUGE, MADV_HUGEPAGE)), told(madvise(stack + 1, HUGE, MADV_HUGEPAGE)));
}

static long set(unsigned long disable, unsigned long flags, unsigned long third, unsigned long fourth)
{
    return told(prctl(PR_SET_THP_DISABLE, disable, flags, third, fourth));
}

static long get(unsigned long second)
{
    return told(prctl(PR_GET_THP_DISABLE, 0, second, 0, 0));
}

/* What the process has asked for, by the call and in its status, and what stores get. */
static void disabled(void)
{
    printf(" %ld/%ld", get(0), number("/proc/self/status", "THP_enabled"));
    stores();
}

static void processes(void)
{
    printf("prctl: %ld %ld", get(0), get(1));
    printf(" %ld %ld %ld", set(1, 0, 1, 0), set(1, 0, 0, 1), set(1, 1, 0, 0));
    printf(" %ld %ld", set(1, 4, 0, 0), set(0, EXCEPT_ADVISED, 0, 0));
    store(SETTINGS "enabled", "always");
    disabled();
    printf(" %ld", set(7, 0, 0, 0));
    disabled();
    printf(" %ld", set(1, EXCEPT_ADVISED, 0, 0));
    disabled();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf(" child");
        disabled();
        printf(" %ld", set(1, 0, 0, 0));
        fflush(stdout);
        execl("/proc/self/exe", "thp", "exec", (char *)0);
        _exit(1);
    }
    printf(" %d %ld", ended(child), set(0, 0, 0, 0));
    disabled();
    store(SETTINGS "enabled", "madvise");
    printf("\n");
}

/* Whether memory without a hint begins at a huge page, new and where it moves to. */
static void places(void)
{
    char *first = mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *moved;
    char *start = mmap(0, 8 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *second = mmap(0, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    printf("places: %lu %lu", (unsigned long)start % HUGE, (unsigned long)second % HUGE);
    /* The second page leaves no room to grow. */
    moved = region(2 * PAGE, 0);
    mprotect(moved + PAGE, PAGE, PROT_READ);
    moved = mremap(moved, PAGE, 4 * HUGE, MREMAP_MAYMOVE);
    printf(" %lu %d\n", (unsigned long)moved % HUGE, moved == MAP_FAILED);
    munmap(first, PAGE);
    munmap(start, 8 * HUGE);
    munmap(second, HUGE);
    munmap(moved, 4 * HUGE);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        printf(" exec");
        disabled();
        fflush(stdout);
        return 3;
    }
    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    settings();
    /* Sets where the counters begin, and prints nothing. */
    fflush(stdout);
    int out = dup(1), null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    counted();
    fflush(stdout);
    dup2(out, 1);
    faults();
    parts();
    moves();
    forks();
    zeroes();
    refusals();
    processes();
    places();
    printf("left: %ld\n", figure(0, 1UL << 60, "AnonHugePages"));
    return 0;
}
