/* /sys/kernel/debug/split_huge_pages: which words it takes, and what becomes of huge pages that a program has it split. Prints a line for each group. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define COUNT 4
#define FILE_NAME "/sys/kernel/debug/split_huge_pages"
#define ENABLED "/sys/kernel/mm/transparent_hugepage/enabled"

static char *memory;

static long told(long result)
{
    return result == -1 ? -errno : result;
}

/* Writes a word to a file, and returns 0 if it was taken. */
static long store(const char *path, const char *word)
{
    int file = open(path, O_WRONLY);
    long length = strlen(word), result = file < 0 ? -errno : told(write(file, word, length));
    close(file);
    return result == length ? 0 : result;
}

/* Has the huge pages of a process split in the range of pages that begins at the first and ends before the last. */
static long split(pid_t process, unsigned long first, unsigned long last)
{
    char word[128];
    snprintf(word, sizeof word, "%d,0x%lx,0x%lx", process, (unsigned long)memory + first * PAGE, (unsigned long)memory + last * PAGE);
    return store(FILE_NAME, word);
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

/* Prints how much of the process is in huge pages, in MiB, and counters since the last call: entries and folios that were split. */
static void shows(void)
{
    static long entries, folios;
    long now[] = { number("/proc/vmstat", "thp_split_pmd"), number("/proc/vmstat", "thp_split_page") };
    printf(" %ld [%ld %ld]", number("/proc/self/smaps_rollup", "AnonHugePages") / 1024, now[0] - entries, now[1] - folios);
    entries = now[0];
    folios = now[1];
}

/* Page `page` of each huge page has a byte of its own; the others are empty. */
static int is_filled(void)
{
    for (unsigned long page = 0; page < COUNT * HUGE / PAGE; page++)
        if (memory[page * PAGE] != (page % 64 == 3 ? (char)page / 3 + 1 : 0) || memory[page * PAGE + PAGE - 1])
            return 0;
    return 1;
}

/* Memory in huge pages. */
static void begin(const char *name)
{
    memory = mmap((char *)(1UL << 40), COUNT * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    madvise(memory, COUNT * HUGE, MADV_HUGEPAGE);
    for (unsigned long page = 3; page < COUNT * HUGE / PAGE; page += 64)
        memory[page * PAGE] = (char)page / 3 + 1;
    fflush(stdout);
    int out = dup(1), null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    shows();
    fflush(stdout);
    dup2(out, 1);
    close(out);
    close(null);
    printf("%s:", name);
    shows();
}

static void end(void)
{
    printf(" %s\n", is_filled() ? "same" : "other");
    munmap(memory, COUNT * HUGE);
}

static void words(void)
{
    static const char *const wrong[] = { "", "all", "0", "2", "-1", "x,0x0,0x0", "7", "7,", "7,0x1000", "7,0x1000,", "7,1000,2000", "7,0x1000,0x", 0 };
    char byte;
    int file = open(FILE_NAME, O_RDONLY);
    begin("words");
    for (const char *const *word = wrong; *word; word++)
        printf(" %ld", store(FILE_NAME, *word));
    printf(" read %ld", told(read(file, &byte, 1)));
    close(file);
    shows();
    end();
}

static void processes(void)
{
    int status;
    begin("processes");
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    /* It has no memory, and is not waited for. */
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    printf(" %ld", split(child, 0, 512));
    waitpid(child, &status, 0);
    printf(" %ld", split(child, 0, 512));
    printf(" %ld", split(-1, 0, 512));
    printf(" %ld", split(1 << 30, 0, 512));
    shows();
    end();
}

static void ranges(void)
{
    pid_t own = getpid();
    begin("ranges");
    printf(" empty %ld", split(own, 0, 0));
    printf(" %ld", split(own, 512, 0));
    shows();
    printf(" a page %ld", split(own, 700, 701));
    shows();
    printf(" again %ld", split(own, 512, 1024));
    shows();
    /* The folio is mapped by an entry for each page, and some pages are not mapped. */
    mprotect(memory + PAGE, PAGE, PROT_READ);
    madvise(memory + 20 * PAGE, 10 * PAGE, MADV_DONTNEED);
    printf(" pieces");
    shows();
    printf(" %ld", split(own, 0, 512));
    shows();
    printf(" all %ld", store(FILE_NAME, "1\n"));
    shows();
    end();
}

/* A page that a pipe has keeps its folio whole. */
static void pipes(void)
{
    int pipes[2];
    struct iovec part = { memory + 7 * PAGE, PAGE };
    begin("pipe");
    pipe(pipes);
    printf(" %ld", told(vmsplice(pipes[1], &part, 1, 0)));
    printf(" %ld", split(getpid(), 0, 1024));
    shows();
    close(pipes[0]);
    close(pipes[1]);
    printf(" closed %ld", split(getpid(), 0, 1024));
    shows();
    end();
}

/* A folio is split for each process that maps it. */
static void forks(void)
{
    int ready[2], go[2], status;
    char byte;
    begin("forks");
    fflush(stdout);
    pipe(ready);
    pipe(go);
    pid_t child = fork();
    if (child == 0) {
        write(ready[1], "", 1);
        read(go[0], &byte, 1);
        int same = is_filled();
        printf(" child");
        shows();
        /* Its own entries are left. */
        memory[5 * PAGE] = 1;
        printf(" %d", same);
        fflush(stdout);
        _exit(0);
    }
    read(ready[0], &byte, 1);
    printf(" %ld", split(child, 0, 1024));
    shows();
    fflush(stdout);
    write(go[1], "", 1);
    waitpid(child, &status, 0);
    end();
}

int main(void)
{
    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount("debugfs", "/sys/kernel/debug", "debugfs", 0, 0);
    store(ENABLED, "madvise");
    words();
    processes();
    ranges();
    pipes();
    forks();
    return 0;
}
