/* Sessions and groups, nice values, barriers on other CPUs, real-time threads beside others, an address space without mappings, memory that a child of
   vfork has used, /dev/full, times without a place to go. Prints a line for each group: results, and errors as negative numbers. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#define STRANGER 1000
#define CPUS_MAX 64

static long told(long result)
{
    return result < 0 ? -errno : result;
}

/* One at a time: the order of arguments is the compiler's. */
static void say(const char *what, long result)
{
    printf(" %s %ld,", what, result);
}

static pid_t forked(void)
{
    fflush(stdout);
    return fork();
}

static int status_of(pid_t child)
{
    int status = 0;

    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Waits for a byte of a pipe, or sends one. */
static void await(int *ends)
{
    char byte;

    read(ends[0], &byte, 1);
}

static void tell(int *ends)
{
    write(ends[1], "", 1);
}

static void a_new_session(void)
{
    pid_t session = getsid(0), me = getpid();

    printf("a child:");
    say("in the same session", session == getsid(getppid()));
    say("setsid", setsid() == me);
    say("leads a session", getsid(0) == me && session != me);
    say("and a group", getpgid(0) == me);
    say("again", told(setsid()));
    say("to its own group", told(setpgid(0, 0)));
    say("to another", told(setpgid(0, getppid())));
    printf("\n");
}

static void groups(void)
{
    int go[2], gone[2];
    pid_t child, other;

    pipe(go);
    pipe(gone);
    child = forked();
    if (child == 0) {
        await(go);
        _exit(0);
    }
    printf("groups:");
    say("of a child", told(setpgid(child, child)));
    say("led by it", getpgid(child) == child);
    say("none", told(setpgid(0, 1 << 20)));
    say("bad", told(setpgid(0, -1)));
    say("no process", told(setpgid(1 << 20, 0)));
    say("the parent's", told(setpgid(getppid(), 0)));
    say("joined", told(setpgid(0, child)));
    say("own", told(setpgid(0, 0)));
    say("setsid of its leader", told(setsid()));
    printf("\n");
    tell(go);
    status_of(child);

    other = forked();
    if (other == 0) {
        setsid();
        tell(gone);
        await(go);
        _exit(0);
    }
    await(gone);
    printf("another session:");
    say("moved", told(setpgid(other, 0)));
    say("joined", told(setpgid(0, other)));
    say("getsid", getsid(other) == other);
    say("of none", told(getsid(1 << 20)));
    printf("\n");
    tell(go);
    status_of(other);

    child = forked();
    if (child == 0) {
        fcntl(gone[1], F_SETFD, FD_CLOEXEC);
        close(gone[0]);
        execl("/proc/self/exe", "processes", "wait", (char *)0);
        _exit(1);
    }
    close(gone[1]);
    await(gone);
    printf("after execve: %ld\n", told(setpgid(child, child)));
    kill(child, SIGKILL);
    status_of(child);
    close(gone[0]);
    close(go[0]);
    close(go[1]);
}

/* SIGCONT needs no permission within a session. */
static void continued_by_strangers(void)
{
    for (int apart = 0; apart < 2; apart++) {
        pid_t child = forked();
        if (child == 0)
            for (;;)
                pause();
        pid_t stranger = forked();
        if (stranger == 0) {
            if (apart)
                setsid();
            setuid(STRANGER);
            printf("a stranger%s:", apart ? " of another session" : "");
            say("SIGCONT", told(kill(child, SIGCONT)));
            say("SIGUSR1", told(kill(child, SIGUSR1)));
            printf("\n");
            fflush(stdout);
            _exit(0);
        }
        status_of(stranger);
        kill(child, SIGKILL);
        status_of(child);
    }
}

static long shown(int field)
{
    static char text[4096];
    int file = open("/proc/self/stat", O_RDONLY), length = read(file, text, sizeof text - 1);
    char *at;

    close(file);
    text[length > 0 ? length : 0] = 0;
    at = strrchr(text, ')') + 1;
    for (field -= 3; field > 0 && at; field--)
        at = strchr(at + 1, ' ');
    return at ? atol(at) : -1;
}

static long priority(int which, int of)
{
    return told(syscall(SYS_getpriority, which, of));
}

static void nice_values(void)
{
    struct sched_param high = { .sched_priority = 7 }, none = { 0 };
    struct rlimit limit = { 25, 25 };

    /* Apart from threads of the kernel. */
    setpgid(0, 0);
    printf("nice:");
    say("set", told(setpriority(PRIO_PROCESS, 0, 5)));
    say("of the process", priority(PRIO_PROCESS, 0));
    say("of the group", priority(PRIO_PGRP, 0));
    say("priority in stat", shown(18));
    say("nice in stat", shown(19));
    setpriority(PRIO_PROCESS, 0, 99);
    say("highest", priority(PRIO_PROCESS, 0));
    setpriority(PRIO_PROCESS, 0, -99);
    say("lowest", priority(PRIO_PROCESS, 0));
    say("bad", priority(3, 0));
    say("none", priority(PRIO_PROCESS, 1 << 20));
    say("no user", told(setpriority(PRIO_USER, 1 << 20, 0)));
    printf("\n");

    setpriority(PRIO_PROCESS, 0, -3);
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &high);
    printf("real-time:");
    say("priority in stat", shown(18));
    say("nice in stat", shown(19));
    say("real-time priority", shown(40));
    say("policy", shown(41));
    say("nice", priority(PRIO_PROCESS, 0));
    pid_t child = forked();
    if (child == 0)
        _exit(priority(PRIO_PROCESS, 0));
    say("of a child that resets it", status_of(child));
    sched_setscheduler(0, SCHED_OTHER, &none);
    child = forked();
    if (child == 0)
        _exit(priority(PRIO_PROCESS, 0));
    say("of another child", status_of(child));
    printf("\n");

    setpriority(PRIO_PROCESS, 0, 4);
    setrlimit(RLIMIT_NICE, &limit);
    setuid(STRANGER);
    printf("without privileges:");
    say("higher", told(setpriority(PRIO_PROCESS, 0, 6)));
    say("lower", told(setpriority(PRIO_PROCESS, 0, 5)));
    say("to the limit", told(setpriority(PRIO_PROCESS, 0, -5)));
    say("beyond", told(setpriority(PRIO_PROCESS, 0, -6)));
    say("another's", told(setpriority(PRIO_PROCESS, getppid(), 0)));
    say("all of the user", told(setpriority(PRIO_USER, 0, 1)));
    say("which is", priority(PRIO_USER, 0));
    printf("\n");
}

#define BARRIER(command, flags) told(syscall(SYS_membarrier, command, flags))

static void barriers(void)
{
    printf("membarrier:");
    /* Without the commands for restartable sequences. */
    say("known", BARRIER(0, 0) & 127);
    say("global", BARRIER(1, 0));
    say("private without registration", BARRIER(8, 0));
    say("core", BARRIER(32, 0));
    say("register", BARRIER(4, 0));
    say("private", BARRIER(16, 0));
    say("private is", BARRIER(8, 0));
    say("core is not", BARRIER(32, 0));
    say("core", BARRIER(64, 0));
    say("is", BARRIER(32, 0));
    say("global", BARRIER(2, 0));
    pid_t child = forked();
    if (child == 0)
        _exit(-BARRIER(8, 0));
    say("of a child", status_of(child));
    say("bad", BARRIER(3, 0));
    say("negative", BARRIER(-1, 0));
    say("flags", BARRIER(8, 1));
    printf("\n");
}

/* A real-time process on each CPU leaves the others a part of the time. */
static void starving(void)
{
    int cpus = sysconf(_SC_NPROCESSORS_ONLN);
    struct sched_param high = { .sched_priority = 50 };
    pid_t busy[CPUS_MAX], other;

    other = forked();
    if (other == 0) {
        /* Asleep while the others begin. */
        usleep(200000);
        for (volatile long i = 0; i < 1000000; i++)
            ;
        _exit(7);
    }
    for (int i = 0; i < cpus && i < CPUS_MAX; i++) {
        busy[i] = forked();
        if (busy[i] == 0) {
            sched_setscheduler(0, SCHED_FIFO, &high);
            for (;;)
                ;
        }
    }
    printf("beside real-time processes: %d", status_of(other));
    for (int i = 0; i < cpus && i < CPUS_MAX; i++) {
        kill(busy[i], SIGKILL);
        printf(i ? "" : " %d", status_of(busy[i]));
    }
    printf("\n");
}

/* Unmaps more and more of the lower half, in a process that blocks and catches SIGSEGV. */
static void ignored(int signal)
{
}

static void without_mappings(void)
{
    for (int way = 0; way < 4; way++) {
        pid_t child = forked();
        if (child == 0) {
            sigset_t blocked;
            size_t length = ~0ul;

            sigemptyset(&blocked);
            sigaddset(&blocked, SIGSEGV);
            if (way & 1)
                signal(SIGSEGV, ignored);
            if (way & 2)
                sigprocmask(SIG_BLOCK, &blocked, 0);
            for (; length > 4096; length >>= 1)
                munmap(0, length - 4096);
            _exit(1);
        }
        printf("%s %d", way ? "," : "no mappings:", status_of(child));
    }
    printf("\n");
}

/* A directory of /proc as the name of a process. */
static void directories(void)
{
    int of_child, of_all = open("/proc", O_RDONLY), file;
    char path[32];
    pid_t child = forked();

    if (child == 0)
        for (;;)
            pause();
    snprintf(path, sizeof path, "/proc/%d", child);
    of_child = open(path, O_RDONLY | O_DIRECTORY);
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    file = open(path, O_RDONLY);
    printf("pidfd_send_signal:");
    say("to /proc", told(syscall(SYS_pidfd_send_signal, of_all, SIGTERM, 0, 0)));
    say("to a file", told(syscall(SYS_pidfd_send_signal, file, SIGTERM, 0, 0)));
    say("to a directory", told(syscall(SYS_pidfd_send_signal, of_child, 0, 0, 0)));
    say("SIGTERM", told(syscall(SYS_pidfd_send_signal, of_child, SIGTERM, 0, 0)));
    say("status", status_of(child));
    say("reaped", told(syscall(SYS_pidfd_send_signal, of_child, 0, 0, 0)));
    printf("\n");
    close(of_all);
    close(of_child);
    close(file);
}

static void full(void)
{
    char bytes[8] = "xxxxxxx";
    int file = open("/dev/full", O_RDWR);

    printf("/dev/full:");
    say("read", told(read(file, bytes, 8)));
    say("bytes", bytes[0] | bytes[7]);
    say("write", told(write(file, bytes, 8)));
    say("of none", told(write(file, bytes, 0)));
    for (int i = 0; i < 3; i++) {
        const char *paths[] = { "/dev/full", "/dev/zero", "/dev/null" };
        int other = open(paths[i], O_RDWR);
        say("seek", told(lseek(other, 100, SEEK_SET)));
        close(other);
    }
    say("map", mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED ? -errno : 0);
    printf("\n");
    close(file);
}

static void times(void)
{
    struct timeval now = { 1, -1 };
    struct timezone zone = { 1, 1 };

    printf("gettimeofday:");
    say("of nothing", told(syscall(SYS_gettimeofday, 0, 0)));
    say("of the time", told(syscall(SYS_gettimeofday, &now, 0)));
    say("microseconds", now.tv_usec >= 0 && now.tv_usec < 1000000);
    say("of the zone", told(syscall(SYS_gettimeofday, 0, &zone)));
    say("minutes", zone.tz_minuteswest);
    say("summer", zone.tz_dsttime);
    say("bad time", told(syscall(SYS_gettimeofday, 1, 0)));
    say("bad zone", told(syscall(SYS_gettimeofday, 0, 1)));
    printf("\n");
}

/* The child of vfork used its parent's memory, and has ended. */
static void release_of_shared_memory(void)
{
    volatile long kept = 42;
    pid_t child = vfork();

    if (child == 0)
        _exit(0);
    int descriptor = syscall(SYS_pidfd_open, child, 0);
    printf("process_mrelease:");
    say("of a zombie", told(syscall(SYS_process_mrelease, descriptor, 0)));
    say("the parent has", kept);
    say("status", status_of(child));
    printf("\n");
    close(descriptor);
}

static void in_child(void (*group)(void))
{
    pid_t child = forked();

    if (child == 0) {
        group();
        fflush(stdout);
        _exit(0);
    }
    int status = status_of(child);
    if (status)
        printf("status %d\n", status);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        for (;;)
            pause();
    in_child(a_new_session);
    in_child(groups);
    in_child(continued_by_strangers);
    in_child(nice_values);
    in_child(barriers);
    in_child(starving);
    in_child(without_mappings);
    in_child(directories);
    in_child(release_of_shared_memory);
    in_child(full);
    in_child(times);
    return 0;
}
