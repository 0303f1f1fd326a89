/* Files below /proc and /sys, names of threads, /dev/zero, sendfile; and which process ends when memory does. Prints a line for each group. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static long told(long result)
{
    return result == -1 ? -errno : result;
}

/* The start of a file, with spaces for line ends. */
static char *text(const char *path)
{
    static char bytes[4096];
    int fd = open(path, O_RDONLY);
    long count = fd == -1 ? -1 : read(fd, bytes, sizeof bytes - 1);
    if (count < 0)
        snprintf(bytes, sizeof bytes, "(%d)", errno);
    else
        bytes[count] = 0;
    close(fd);
    for (char *at = bytes; *at; at++)
        if (*at == '\n')
            *at = ' ';
    return bytes;
}

static long store(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY);
    long result = fd == -1 ? -errno : told(write(fd, value, strlen(value)));
    close(fd);
    return result;
}

static char *of(pid_t process, const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    return path;
}

static void scores(void)
{
    int status;
    printf("score: %s", text("/proc/self/oom_score_adj"));
    printf("%ld ", store("/proc/self/oom_score_adj", "300\n"));
    printf("%s", text("/proc/self/oom_score_adj"));
    fflush(stdout);
    if (fork() == 0) {
        printf("child %s", text("/proc/self/oom_score_adj"));
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    printf("%ld %ld", store(of(getpid(), "oom_score_adj"), "1001"), store("/proc/self/oom_score_adj", "x"));
    printf(" %ld", store("/proc/self/oom_score_adj", "-1000"));
    printf(" %s", text(of(getpid(), "oom_score_adj")));
    printf("%ld %ld", store("/proc/self/oom_score_adj", "0"), told(access(of(getpid(), "oom_score_adj"), W_OK)));
    printf(" %ld\n", told(access("/proc/999999/oom_score_adj", F_OK)));
}

static void processes(const char *program)
{
    int go[2], status, wanted = 0;
    char line[64];
    pipe(go);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        prctl(PR_SET_NAME, "a name that is too long");
        close(go[1]);
        read(go[0], &byte, 1);
        _exit(0);
    }
    close(go[0]);
    while (!strstr(text(of(child, "comm")), "a name"))
        usleep(1000);
    printf("process: %s", text(of(child, "comm")));
    snprintf(line, sizeof line, "%d (a name that is ) S %d ", child, getpid());
    while (strncmp(text(of(child, "stat")), line, strlen(line)))
        usleep(1000);
    char *found = text(of(child, "status"));
    printf("%d %d", strncmp(found, "Name:\ta name that is  ", 22), strstr(found, "State:\tS (sleeping)") != 0);
    snprintf(line, sizeof line, "PPid:\t%d ", getpid());
    printf(" %d %d", strstr(found, line) != 0, strstr(found, "VmRSS:") != 0);
    printf(" %d", strstr(text(of(child, "maps")), "[stack]") != 0 || strstr(text(of(child, "maps")), "r-xp") != 0);
    printf(" %d", strcmp(text(of(child, "cmdline")), program));
    close(go[1]);
    siginfo_t info;
    while (strstr(text(of(child, "stat")), ") Z ") == 0)
        usleep(1000);
    printf(" ended %s", text(of(child, "maps")));
    wait(&status);
    printf("%s\n", text(of(child, "stat")));
    char name[16];
    prctl(PR_SET_NAME, "renamed");
    prctl(PR_GET_NAME, name);
    printf("names: %s %s", name, text("/proc/self/comm"));
    printf("%ld %ld\n", told(prctl(PR_SET_NAME, 16)), told(prctl(PR_GET_NAME, 16)));
}

static void machine(void)
{
    unsigned cpu = 99, node = 99;
    printf("machine: %ld", told(syscall(SYS_getcpu, &cpu, &node, 0)));
    printf(" %d %u", cpu < (unsigned)sysconf(_SC_NPROCESSORS_ONLN), node);
    printf(" %ld %ld", told(syscall(SYS_getcpu, 0, 0, 0)), told(syscall(SYS_getcpu, 16, 0, 0)));
    printf(" %d", text("/sys/devices/system/cpu/online")[0] == '0');
    printf(" %s", text("/proc/sys/vm/overcommit_memory"));
    printf("%ld ", store("/proc/sys/vm/overcommit_memory", "1"));
    printf("%s", text("/proc/sys/vm/overcommit_memory"));
    printf("%ld ", store("/proc/sys/vm/overcommit_memory", "7"));
    printf("%ld ", store("/proc/sys/vm/overcommit_memory", "0\n"));
    printf("%s", text("/proc/sys/vm/overcommit_memory"));
    printf("%s", text("/proc/sys/kernel/ostype"));
    printf("%ld\n", store("/proc/sys/vm/max_map_count", "70000"));
}

static void zero(void)
{
    int all = open("/dev/zero", O_RDWR), only = open("/dev/zero", O_RDONLY), status;
    char *mine = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, only, 0), sum = 0;
    char *ours = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, all, 0);
    for (int i = 0; i < 4 * PAGE; i++)
        sum |= mine[i] | ours[i];
    mine[PAGE] = ours[PAGE] = 1;
    if (fork() == 0) {
        mine[PAGE] = ours[PAGE] = 2;
        _exit(0);
    }
    wait(&status);
    printf("zero: %d %d %d", sum, mine[PAGE], ours[PAGE]);
    printf(" %d", mmap(0, PAGE, PROT_WRITE, MAP_SHARED, only, 0) == MAP_FAILED ? errno : 0);
    printf(" %d\n", mmap(0, PAGE, PROT_READ, MAP_SHARED, only, 0) == MAP_FAILED ? errno : 0);
    close(all);
    close(only);
}

static void sends(void)
{
    static char bytes[3 * PAGE], back[4 * PAGE];
    int from = open("/from", O_RDWR | O_CREAT | O_TRUNC, 0600), to = open("/to", O_RDWR | O_CREAT | O_TRUNC, 0600), pipes[2];
    off_t at = PAGE;
    for (int i = 0; i < (int)sizeof bytes; i++)
        bytes[i] = i % 251;
    write(from, bytes, sizeof bytes);
    pipe(pipes);
    printf("sendfile: %ld", told(sendfile(to, from, &at, 100000)));
    printf(" %ld %ld", (long)at, (long)lseek(from, 0, SEEK_CUR));
    printf(" %ld", (long)lseek(to, 0, SEEK_CUR));
    pread(to, back, 2 * PAGE, 0);
    printf(" %d", memcmp(back, bytes + PAGE, 2 * PAGE));
    lseek(from, 5, SEEK_SET);
    printf(" %ld", told(sendfile(pipes[1], from, 0, 100)));
    printf(" %ld %ld %d", (long)lseek(from, 0, SEEK_CUR), told(read(pipes[0], back, 200)), memcmp(back, bytes + 5, 100));
    printf(" %ld %ld", told(sendfile(to, pipes[0], 0, 1)), told(sendfile(from, 99, 0, 1)));
    int append = open("/to", O_WRONLY | O_APPEND), read_only = open("/to", O_RDONLY);
    printf(" %ld %ld", told(sendfile(append, from, 0, 1)), told(sendfile(read_only, from, 0, 1)));
    at = -1;
    printf(" %ld %ld\n", told(sendfile(to, from, &at, 1)), told(sendfile(to, from, (void *)16, 1)));
    printf("advice: %d %d", posix_fadvise(from, 0, 0, POSIX_FADV_DONTNEED), posix_fadvise(from, 0, 0, 9));
    printf(" %d %d", posix_fadvise(pipes[0], 0, 0, POSIX_FADV_NORMAL), posix_fadvise(99, 0, 0, POSIX_FADV_NORMAL));
    printf(" %d\n", posix_fadvise(from, 0, -1, POSIX_FADV_NORMAL));
    unlink("/from");
    unlink("/to");
}

static void *volatile last;

/* A child that takes memory: some of it, or all. */
static pid_t takes(long mib, int adjust, int to)
{
    pid_t child = fork();
    if (child == 0) {
        char value[16];
        snprintf(value, sizeof value, "%d", adjust);
        store("/proc/self/oom_score_adj", value);
        for (long i = 0; i < mib; i++) {
            char *memory = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED)
                _exit(2);
            for (int at = 0; at < 1 << 20; at += PAGE)
                memory[at] = 1;
            last = memory;
        }
        write(to, "x", 1);
        pause();
        _exit(3);
    }
    return child;
}

/* The largest process is killed, or the one that is adjusted to be. */
static void memory(void)
{
    int there[2], status;
    char byte;
    pipe(there);
    pid_t small = takes(8, 0, there[1]), chosen = takes(8, 1000, there[1]);
    read(there[0], &byte, 1);
    read(there[0], &byte, 1);
    pid_t all = takes(100000, 0, there[1]);
    printf("memory: %d", waitpid(chosen, &status, 0) == chosen);
    printf(" %d", WTERMSIG(status));
    printf(" %d", waitpid(all, &status, 0) == all);
    printf(" %d", WTERMSIG(status));
    kill(small, SIGTERM);
    waitpid(small, &status, 0);
    printf(" %d\n", WTERMSIG(status));
}

int main(int argc, char **argv)
{
    scores();
    processes(argv[0]);
    machine();
    zero();
    sends();
    memory();
    return 0;
}
