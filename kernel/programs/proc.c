/* Files below /proc and /sys, names of threads, /dev/zero, sendfile; and which process ends when memory does. Prints a line for each group. */
/* Tests INV-KERNEL-OOM. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
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

/* The names of the machine, by calls and files. */
static void names(void)
{
    struct utsname named;
    char *found;
    printf(" %ld", told(sethostname("a host", 6)));
    printf(" %s", text("/proc/sys/kernel/hostname"));
    printf("%ld ", store("/proc/sys/kernel/hostname", "another\nname"));
    uname(&named);
    printf("%s", named.nodename);
    printf(" %ld", told(setdomainname("domain", 3)));
    uname(&named);
    printf(" %s %s", named.domainname, text("/proc/sys/kernel/domainname"));
    int file = open("/proc/sys/kernel/hostname", O_RDWR);
    printf("%ld", told(pwrite(file, "abcdef", 6, 0)));
    printf(" %ld", told(pwrite(file, "XY", 2, 2)));
    printf(" %s", text("/proc/sys/kernel/hostname"));
    printf("%ld", told(pwrite(file, "no", 2, 5)));
    printf(" %ld", told(pwrite(file, "Z", 1, 4)));
    printf(" %ld", told(write(file, "p", 1)));
    printf(" %ld", told(write(file, "q\nr", 3)));
    printf(" %s", text("/proc/sys/kernel/hostname"));
    close(file);
    printf("%ld", told(sethostname("x", 65)));
    printf(" %ld", told(sethostname("x", -1)));
    printf(" %ld", told(sethostname((void *)16, 3)));
    fflush(stdout);
    if (fork() == 0) {
        setresuid(7, 7, 7);
        printf(" %ld", told(sethostname("x", 1)));
        printf(" %ld", store("/proc/sys/kernel/hostname", "x"));
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    found = text("/proc/cpuinfo");
    printf(" cpuinfo %d %d\n", !strncmp(found, "processor\t: 0 ", 14), strstr(found, "flags") || strstr(found, "Features"));
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
    printf("%ld", store("/proc/sys/vm/max_map_count", "70000"));
    names();
}

/* The number of entries of a directory, and whether one of them is there. */
static void show_entries(const char *path, const char *name)
{
    DIR *directory = opendir(path);
    int number = 0, found = 0;
    if (!directory) {
        printf(" (%d)", errno);
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory));) {
        number++;
        found += !strcmp(entry->d_name, name);
    }
    closedir(directory);
    printf(" %d", found);
    if (strstr(path, "/fd") || strstr(path, "/task"))
        printf("/%d", number);
}

static void constants(const char *program)
{
    static const char *names[] = { "kernel/cap_last_cap", "kernel/ngroups_max", "kernel/overflowuid", "kernel/shmmni", "kernel/shmmax", "kernel/sched_rr_timeslice_ms", "vm/nr_hugepages", "fs/nr_open", "kernel/nothing" };
    char path[128], line[256], from[64], at[64], type[64];
    struct stat link, file;
    printf("constants:");
    for (int i = 0; i < 9; i++) {
        snprintf(path, sizeof path, "/proc/sys/%s", names[i]);
        printf(" %s", text(path));
    }
    printf(" %ld %ld", store("/proc/sys/kernel/osrelease", "7"), store("/proc/sys/kernel/cap_last_cap", "7"));
    printf(" %d\nlisted:", strstr(text("/proc/filesystems"), "tmpfs") != 0);
    show_entries("/proc", "meminfo");
    show_entries("/proc/sys", "vm");
    show_entries("/proc/sys/vm", "swappiness");
    show_entries("/proc/sys/kernel", "osrelease");
    show_entries("/sys/devices/system", "cpu");
    show_entries("/proc/self", "exe");
    show_entries("/proc/sys/nothing", "");
    long len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len < 0 ? 0 : len] = 0;
    printf(" exe %d", strcmp(path, program));
    printf(" %ld %ld", told(lstat("/proc/self/exe", &link)), told(stat("/proc/self/exe", &file)));
    printf(" %d %d", S_ISLNK(link.st_mode), S_ISREG(file.st_mode) && file.st_size > 1000);
    printf(" %d", !strncmp(text("/proc/self/exe"), "\177ELF", 4));
    printf(" %ld\nmounts:", told(open("/proc/self/exe", O_RDONLY | O_NOFOLLOW)));
    FILE *mounts = fopen("/proc/self/mounts", "r");
    while (fgets(line, sizeof line, mounts))
        if (sscanf(line, "%s %s %s rw", from, at, type) == 3 && strcmp(at, "/dev"))
            printf(" %s %s %s", from, at, type);
    fclose(mounts);
    printf(" %d\n", strstr(text("/proc/mounts"), "/proc proc rw") != 0);
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

static int waits(void *unused)
{
    for (;;)
        pause();
}

/* A process that takes all memory, and one that shares it: no memory is free until both have ended. */
static void shared_memory(void)
{
    static char stack[1 << 14];
    int there[2], status;
    pid_t one, other;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pipe(there);
    if ((one = fork()) == 0) {
        other = clone(waits, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
        write(there[1], &other, sizeof other);
        for (;;)
            memset(mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
    }
    read(there[0], &other, sizeof other);
    printf("shared memory: %d", waitpid(one, &status, 0) == one);
    printf(" %d", WTERMSIG(status));
    printf(" %d", waitpid(other, &status, 0) == other);
    printf(" %d\n", WTERMSIG(status));
    prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* The target of the link of a descriptor, without numbers. */
static void show_link(pid_t process, int fd)
{
    char path[64], target[128];
    struct stat link;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, fd);
    long len = readlink(path, target, sizeof target - 1);
    printf(" %ld ", len < 0 ? (long)-errno : 0);
    for (int i = 0; i < len; i++)
        if (target[i] < '0' || target[i] > '9')
            putchar(target[i]);
    if (!lstat(path, &link))
        printf(" %o", link.st_mode);
}

static int named_id;

static void *named(void *ready)
{
    int *ends = ready;
    char byte;
    prctl(PR_SET_NAME, "other");
    named_id = syscall(SYS_gettid);
    write(ends[1], "x", 1);
    pause();
    return 0;
}

static void descriptors(void)
{
    int ends[2], pair[2], other, counter, epoll, file;
    char bytes[8], path[64];
    struct stat status, of_path;
    close(10);
    for (int fd = 3; fd < 20; fd++)
        close(fd);
    file = open("/kept", O_RDWR | O_CREAT | O_TRUNC, 0644);
    pipe(ends);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    counter = eventfd(0, 0);
    epoll = epoll_create1(0);
    other = open("/gone", O_WRONLY | O_CREAT, 0600);
    unlink("/gone");
    printf("descriptors:");
    for (int fd = file; fd <= other; fd++)
        show_link(getpid(), fd);
    show_link(getpid(), 99);
    show_entries("/proc/self/fd", "4");
    /* The links lead to the files, also without a path. */
    write(file, "abcdef", 6);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int again = open(path, O_RDONLY);
    printf(" again %ld %.2s", told(read(again, bytes, 2)), bytes);
    printf(" %ld", told(open(path, O_RDONLY | O_NOFOLLOW)));
    close(again);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    stat(path, &of_path);
    fstat(ends[0], &status);
    printf(" %o %d", of_path.st_mode, of_path.st_ino == status.st_ino);
    fstat(ends[1], &of_path);
    printf(" %d", of_path.st_ino == status.st_ino);
    again = open(path, O_RDONLY);
    write(ends[1], "pi", 2);
    printf(" %ld %.2s", told(read(again, bytes, 8)), bytes);
    close(again);
    snprintf(path, sizeof path, "/proc/self/fd/%d", pair[0]);
    printf(" %ld", told(open(path, O_RDWR)));
    printf(" %ld", told(open("/proc/self/fd/99", O_RDWR)));
    /* Another process, and one that a stranger may not look into. */
    pid_t child = fork();
    if (child == 0) {
        close(file);
        write(ends[1], "x", 1);
        pause();
        _exit(0);
    }
    read(ends[0], bytes, 1);
    printf(" child");
    show_link(child, file);
    show_link(child, counter);
    fflush(stdout);
    pid_t stranger = fork();
    if (stranger == 0) {
        setresuid(7, 7, 7);
        show_link(child, counter);
        fflush(stdout);
        _exit(0);
    }
    fflush(stdout);
    waitpid(stranger, 0, 0);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    printf("\n");
    pthread_t thread;
    pthread_create(&thread, 0, named, ends);
    read(ends[0], bytes, 1);
    snprintf(path, sizeof path, "%d", getpid());
    printf("threads:");
    show_entries("/proc/self/task", path);
    show_entries("/proc/self/task/99999", path);
    show_entries("/proc/self", "task");
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", named_id);
    printf(" %s", text(path));
    printf(" %s", text(of(getpid(), "comm")));
    printf("\n");
    printf("cpus:");
    show_entries("/sys/devices/system/cpu", "cpu0");
    printf(" %ld", told(access("/sys/devices/system/cpu/cpu0", F_OK)));
    printf(" %ld\n", told(access("/sys/devices/system/cpu/cpu99", F_OK)));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    scores();
    processes(argv[0]);
    machine();
    constants(argv[0]);
    zero();
    sends();
    descriptors();
    memory();
    shared_memory();
    return 0;
}
