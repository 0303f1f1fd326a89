/* What a thread may do by its users, groups and capabilities; where it runs; what becomes of its locks when it ends. Prints a line for each group. */
/* Tests INV-KERNEL-RIGHTS, INV-KERNEL-ROBUST, INV-KERNEL-THREADS. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static long told(long result)
{
    return result == -1 ? -errno : result;
}

/* Runs a test in a process of its own, which may lose its rights. */
static void apart(void (*test)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        test();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status)
        printf("status %x\n", status);
}

static void ids(void)
{
    uid_t r, e, s;
    gid_t rg, eg, sg;
    getresuid(&r, &e, &s);
    getresgid(&rg, &eg, &sg);
    printf(" %d/%d/%d", r, e, s);
    if (rg || eg || sg)
        printf(":%d/%d/%d", rg, eg, sg);
}

static uint64_t capabilities(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data))
        return -1;
    return (uint64_t)data[1].effective << 32 | data[0].effective;
}

static void changes(void)
{
    printf("ids:");
    ids();
    printf(" %ld", told(setresgid(5, 6, 7)));
    printf(" %ld", told(setresuid(1, 2, 3)));
    ids();
    printf(" %ld %ld", told(setresuid(3, 1, -1)), told(setresuid(0, -1, -1)));
    ids();
    printf(" %ld %ld", told(setuid(2)), told(setuid(1)));
    printf(" %ld %ld", told(setreuid(-1, 3)), told(setreuid(9, -1)));
    ids();
    printf(" %ld %ld %ld", told(setgid(7)), told(setgid(8)), told(setregid(6, 7)));
    ids();
    printf(" fs %d", setfsuid(1));
    printf(" %d", setfsuid(99));
    printf(" %d", setfsuid(-1));
    printf(" %ld %ld\n", told(setuid(-1)), told(setgroups(0, 0)));
}

static void groups(void)
{
    gid_t given[3] = { 30, 10, 20 }, found[8] = { 0 };
    printf("groups: %ld %ld", told(setgroups(3, given)), told(getgroups(0, 0)));
    printf(" %ld %d %d %d", told(getgroups(8, found)), found[0], found[1], found[2]);
    printf(" %ld %ld %ld", told(getgroups(2, found)), told(getgroups(-1, found)), told(setgroups(65537, given)));
    printf(" %ld\n", told(syscall(SYS_setgroups, 3, 1)));
}

static void sets(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    printf("capabilities: %lx", capabilities());
    setresuid(0, 1000, 0);
    printf(" %lx", capabilities());
    seteuid(0);
    printf(" %lx", capabilities());
    setfsuid(1000);
    printf(" %lx", capabilities());
    setfsuid(0);
    syscall(SYS_capget, &header, data);
    data[0].effective = data[0].permitted = 1 << CAP_KILL | 1 << CAP_SETUID;
    data[1].effective = data[1].permitted = 0;
    printf(" set %ld", told(syscall(SYS_capset, &header, data)));
    printf(" %lx", capabilities());
    data[0].permitted |= 1 << CAP_CHOWN;
    printf(" %ld", told(syscall(SYS_capset, &header, data)));
    data[0].permitted = 1 << CAP_KILL;
    printf(" %ld", told(syscall(SYS_capset, &header, data)));
    data[0].inheritable = 1 << CAP_CHOWN;
    data[0].effective = 0;
    printf(" %ld", told(syscall(SYS_capset, &header, data)));
    printf(" keep %d %ld", prctl(PR_SET_KEEPCAPS, 1), told(setuid(1000)));
    printf(" %lx", capabilities());
    data[0].inheritable = 0;
    data[0].permitted = data[0].effective = 1 << CAP_KILL;
    printf(" %ld", told(syscall(SYS_capset, &header, data)));
    printf(" %lx", capabilities());
    header.version = 5;
    printf(" version %ld", told(syscall(SYS_capget, &header, data)));
    printf(" %x", header.version);
    header.version = 5;
    printf(" %ld", told(syscall(SYS_capget, &header, 0)));
    header.version = _LINUX_CAPABILITY_VERSION_3;
    header.pid = -1;
    printf(" %ld", told(syscall(SYS_capget, &header, data)));
    header.pid = 12345;
    printf(" %ld %ld\n", told(syscall(SYS_capget, &header, data)), told(syscall(SYS_capset, &header, data)));
}

static void bounds(void)
{
    printf("prctl: %d", prctl(PR_CAPBSET_READ, CAP_KILL));
    printf(" %d", prctl(PR_CAPBSET_DROP, CAP_KILL));
    printf(" %d %ld", prctl(PR_CAPBSET_READ, CAP_KILL), told(prctl(PR_CAPBSET_READ, 64)));
    printf(" dumpable %d", prctl(PR_GET_DUMPABLE));
    setresuid(1000, 1000, 0);
    printf(" %d %ld %ld", prctl(PR_GET_DUMPABLE), told(prctl(PR_SET_DUMPABLE, 2)), told(prctl(PR_SET_DUMPABLE, 1)));
    printf(" %d", prctl(PR_GET_DUMPABLE));
    printf(" %ld", told(prctl(PR_CAPBSET_DROP, CAP_CHOWN)));
    printf(" privileges %d %ld", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), told(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0)));
    printf(" %ld %d", told(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    int signal = 9;
    printf(" death %ld", told(prctl(PR_SET_PDEATHSIG, 65)));
    printf(" %ld", told(prctl(PR_SET_PDEATHSIG, SIGUSR2)));
    prctl(PR_GET_PDEATHSIG, &signal);
    printf(" %d\n", signal == SIGUSR2);
}

static long opens(const char *path, int flags)
{
    int fd = open(path, flags, 0644);
    if (fd == -1)
        return -errno;
    close(fd);
    return 0;
}

static int owner(const char *path)
{
    struct stat stat;
    return lstat(path, &stat) ? -errno : (int)(stat.st_uid * 10000 + stat.st_gid);
}

static int mode(const char *path)
{
    struct stat stat;
    return lstat(path, &stat) ? -errno : (int)(stat.st_mode & 07777);
}

static void make(const char *path, int mode, int uid, int gid)
{
    close(open(path, O_WRONLY | O_CREAT, 0600));
    chown(path, uid, gid);
    chmod(path, mode);
}

static void files(void)
{
    gid_t group = 300;
    umask(0);
    mkdir("/open", 0777);
    mkdir("/closed", 0700);
    mkdir("/sticky", 01777);
    mkdir("/shared", 02777);
    chown("/shared", 0, 400);
    chmod("/shared", 02777);
    make("/closed/file", 0666, 0, 0);
    make("/open/private", 0600, 0, 0);
    make("/open/readable", 0644, 0, 0);
    make("/open/own", 0640, 1000, 1000);
    make("/open/none", 0044, 1000, 1000);
    make("/open/group", 0060, 0, 300);
    make("/open/program", 0644, 0, 0);
    make("/open/setid", 06777, 1000, 300);
    make("/sticky/others", 0666, 0, 0);
    setgroups(1, &group);
    setresgid(200, 200, 200);
    setresuid(1000, 1000, 1000);
    printf("open: %ld %ld", opens("/open/private", O_RDONLY), opens("/open/readable", O_RDONLY));
    printf(" %ld %ld", opens("/open/readable", O_WRONLY), opens("/open/readable", O_RDONLY | O_TRUNC));
    printf(" own %ld %ld", opens("/open/own", O_RDWR), opens("/open/none", O_RDONLY));
    printf(" group %ld %ld", opens("/open/group", O_RDWR), opens("/closed/file", O_RDONLY));
    printf(" made %ld", opens("/open/made", O_RDWR | O_CREAT));
    printf(" %d", owner("/open/made"));
    printf(" %ld %ld", opens("/closed/made", O_RDWR | O_CREAT), opens("/made", O_RDWR | O_CREAT));
    printf(" %ld", opens("/shared/made", O_RDWR | O_CREAT));
    printf(" %d %d", owner("/shared/made"), mkdir("/shared/below", 0755));
    printf(" %o\n", mode("/shared/below"));
    printf("paths: %ld %ld", told(mkdir("/below", 0755)), told(rmdir("/closed")));
    printf(" %ld %ld", told(unlink("/closed/file")), told(unlink("/sticky/others")));
    printf(" %ld %ld", told(unlink("/open/private")), told(rename("/open/readable", "/there")));
    printf(" %ld %ld", told(rename("/sticky/others", "/open/others")), told(link("/open/own", "/own")));
    printf(" %ld %ld", told(symlink("/", "/link")), told(chdir("/closed")));
    printf(" %ld %ld", told(truncate("/open/readable", 0)), told(truncate("/open/own", 0)));
    printf(" access %ld %ld", told(access("/open/own", R_OK | W_OK)), told(access("/open/own", X_OK)));
    printf(" %ld %ld", told(access("/closed/file", F_OK)), told(access("/open/readable", W_OK)));
    printf(" %ld\n", told(access("/open/readable", 8)));
    printf("attributes: %ld %ld", told(chmod("/open/readable", 0777)), told(chmod("/open/own", 0604)));
    printf(" %ld", told(chmod("/open/own", 02710)));
    printf(" %o", mode("/open/own"));
    printf(" %ld %ld", told(chown("/open/own", 1001, -1)), told(chown("/open/own", 1000, 300)));
    printf(" %ld", told(chown("/open/own", -1, 301)));
    printf(" %d", owner("/open/own"));
    printf(" %ld", told(chown("/open/readable", -1, -1)));
    int fd = open("/open/setid", O_WRONLY);
    write(fd, "x", 1);
    close(fd);
    printf(" written %o", mode("/open/setid"));
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    printf(" times %ld", told(utimensat(AT_FDCWD, "/open/readable", times, 0)));
    printf(" %ld", told(utimensat(AT_FDCWD, "/open/readable", 0, 0)));
    printf(" %ld", told(utimensat(AT_FDCWD, "/open/own", times, 0)));
    printf(" execute %ld", told(execl("/open/program", "program", (char *)0)));
    printf(" proc %ld\n", opens("/proc/sys/vm/overcommit_memory", O_WRONLY));
}

static void privileged(void)
{
    struct rlimit limit = { 1000, 1000 }, more = { 1000, 2000 };
    char byte;
    struct iovec here = { &byte, 1 }, there = { &byte, 1 };
    setrlimit(RLIMIT_MEMLOCK, &limit);
    setresuid(1000, 1000, 1000);
    printf("refused: %ld %ld", told(setrlimit(RLIMIT_MEMLOCK, &more)), told(mlock(&byte, 1)));
    printf(" %ld %ld", told(swapon("/dev/null", 0)), told(swapoff("/dev/null")));
    printf(" %ld", told(process_vm_readv(1, &here, 1, &there, 1, 0)));
    printf(" %ld", told(syscall(SYS_prlimit64, 1, RLIMIT_AS, 0, &more)));
    printf(" kill %ld %ld", told(kill(1, 0)), told(kill(getppid(), SIGTERM)));
    printf(" %ld %ld", told(kill(getpid(), 0)), told(syscall(SYS_tkill, 1, 0)));
    struct sched_param param = { 5 }, zero = { 0 };
    printf(" sched %ld", told(sched_setscheduler(0, SCHED_FIFO, &param)));
    printf(" %ld %ld", told(sched_setscheduler(0, SCHED_BATCH, &zero)), told(sched_setscheduler(1, SCHED_BATCH, &zero)));
    printf(" %ld", told(sched_setscheduler(0, SCHED_IDLE, &zero)));
    void *head;
    size_t len;
    printf(" robust %ld\n", told(syscall(SYS_get_robust_list, 1, &head, &len)));
}

static void friends(void)
{
    int ready[2], status;
    char byte;
    pipe(ready);
    setresuid(1000, 1000, 1000);
    pid_t child = fork();
    if (child == 0) {
        close(ready[0]);
        write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    read(ready[0], &byte, 1);
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    printf("signals: %ld", told(kill(child, SIGTERM)));
    sigwaitinfo(&set, &info);
    printf(" child %d %d %d", info.si_signo == SIGCHLD, info.si_uid, info.si_status);
    waitpid(child, &status, 0);
    kill(getpid(), SIGUSR1);
    sigwaitinfo(&set, &info);
    printf(" user %d %d\n", info.si_signo == SIGUSR1, info.si_uid);
}

/* A program of another user, which is this one. */
static void programs(void)
{
    char bytes[1 << 16];
    ssize_t count;
    int from = open("/proc/self/exe", O_RDONLY), to = open("/open/me", O_WRONLY | O_CREAT, 0755);
    if (from == -1) {
        char path[256] = { 0 };
        readlink("/proc/self/exe", path, 255);
        from = open(path, O_RDONLY);
    }
    while ((count = read(from, bytes, sizeof bytes)) > 0)
        write(to, bytes, count);
    close(to);
    close(from);
    static const struct { int uid, gid, mode, by, bare; } cases[] = {
        { 0, 0, 0755, 1000, 0 }, { 0, 0, 04755, 1000, 0 }, { 500, 600, 06755, 1000, 0 },
        { 500, 0, 04755, 0, 0 }, { 0, 0, 04755, 1000, 1 }, { 0, 0, 02745, 1000, 0 },
    };
    for (int i = 0; i < 6; i++) {
        chown("/open/me", cases[i].uid, cases[i].gid);
        chmod("/open/me", cases[i].mode);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (cases[i].bare)
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            setresgid(cases[i].by, cases[i].by, cases[i].by);
            setresuid(cases[i].by, cases[i].by, cases[i].by);
            execl("/open/me", "me", "tell", (char *)0);
            _exit(1);
        }
        waitpid(child, 0, 0);
    }
    printf("\n");
}

extern unsigned long getauxval(unsigned long);

static int tell(void)
{
    ids();
    printf(" %lx %lu %lu %d;", capabilities(), getauxval(12), getauxval(23), prctl(PR_GET_DUMPABLE));
    return 0;
}

static volatile int stop;
static volatile pid_t spinner;

static void *spin(void *unused)
{
    spinner = syscall(SYS_gettid);
    while (!stop)
        ;
    return 0;
}

static void processors(void)
{
    cpu_set_t all, one, none;
    pthread_t thread;
    int right = 1, count = 0;
    CPU_ZERO(&none);
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < 64; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            count++;
            right &= sched_setaffinity(0, sizeof one, &one) == 0 && sched_getcpu() == cpu;
            for (volatile int i = 0; i < 100000; i++)
                right &= i % 1000 || sched_getcpu() == cpu;
        }
    printf("cpus: %d", right && count == sysconf(_SC_NPROCESSORS_ONLN));
    sched_setaffinity(0, sizeof all, &all);
    pthread_create(&thread, 0, spin, 0);
    while (!spinner)
        sched_yield();
    right = 1;
    for (int round = 0; round < 3; round++)
        for (int cpu = 0; cpu < 64; cpu++)
            if (CPU_ISSET(cpu, &all)) {
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                cpu_set_t found;
                right &= sched_setaffinity(spinner, sizeof one, &one) == 0;
                right &= sched_getaffinity(spinner, sizeof found, &found) == 0 && CPU_EQUAL(&found, &one);
            }
    stop = 1;
    pthread_join(thread, 0);
    printf(" other %d", right);
    printf(" %ld %ld", told(sched_setaffinity(0, sizeof none, &none)), told(sched_setaffinity(99999, sizeof all, &all)));
    printf(" %ld", told(sched_setaffinity(0, 0, &all)));
    printf(" %ld %ld", told(syscall(SYS_sched_getaffinity, 0, 4, &all)), told(syscall(SYS_sched_getaffinity, 0, 0, &all)));
    printf(" %ld %ld\n", told(syscall(SYS_sched_getaffinity, 0, 8, 1)), told(syscall(SYS_sched_setaffinity, 0, 8, 1)));
}

/* Whether two equal processes of one CPU take turns after 100 ms, and not earlier. */
static void turns(void)
{
    struct sched_param param = { 5 };
    struct timespec slice = { 9, 9 }, none = { 9, 9 }, now, first;
    struct rusage before, after;
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setscheduler(0, SCHED_FIFO, &param);
    printf("turns: %ld", told(sched_rr_get_interval(0, &none)));
    printf(" %ld %ld", (long)none.tv_sec, none.tv_nsec);
    sched_setscheduler(0, SCHED_RR, &param);
    printf(" %ld", told(sched_rr_get_interval(0, &slice)));
    printf(" %ld %ld", (long)slice.tv_sec, slice.tv_nsec);
    printf(" %ld", told(sched_rr_get_interval(-1, &slice)));
    printf(" %ld", told(sched_rr_get_interval(99999, &slice)));
    printf(" %ld", told(syscall(SYS_sched_rr_get_interval, 0, 8)));
    pid_t child = fork();
    if (child == 0)
        for (;;)
            ;
    sched_yield();
    getrusage(RUSAGE_SELF, &before);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &first);
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while ((now.tv_sec - first.tv_sec) * 1000000000L + now.tv_nsec - first.tv_nsec < 60000000);
    getrusage(RUSAGE_SELF, &after);
    printf(" switches %d\n", after.ru_nivcsw - before.ru_nivcsw <= 1);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    param.sched_priority = 0;
    sched_setscheduler(0, SCHED_OTHER, &param);
    sched_setaffinity(0, sizeof all, &all);
    fflush(stdout);
}

static void policies(void)
{
    struct sched_param param = { 5 }, found = { 9 }, zero = { 0 }, high = { 100 };
    printf("policies: %d", sched_getscheduler(0));
    for (int policy = 0; policy < 8; policy++)
        printf(" %ld/%ld", told(sched_get_priority_min(policy)), told(sched_get_priority_max(policy)));
    printf(" %ld %ld", told(sched_setscheduler(0, SCHED_FIFO, &zero)), told(sched_setscheduler(0, SCHED_OTHER, &param)));
    printf(" %ld %ld", told(sched_setscheduler(0, 4, &zero)), told(sched_setscheduler(0, SCHED_RR, &high)));
    printf(" %ld %ld", told(sched_setscheduler(-1, 0, &zero)), told(sched_setscheduler(99999, 0, &zero)));
    printf(" %ld", told(sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param)));
    long got = told(sched_getparam(0, &found));
    printf(" %x %ld %d", sched_getscheduler(0), got, found.sched_priority);
    pid_t child = fork();
    if (child == 0)
        _exit(sched_getscheduler(0) * 10 + (sched_getparam(0, &found), found.sched_priority));
    int status;
    waitpid(child, &status, 0);
    printf(" child %d", WEXITSTATUS(status));
    param.sched_priority = 7;
    printf(" %ld", told(sched_setparam(0, &param)));
    sched_getparam(0, &found);
    printf(" %d %ld %ld %ld", found.sched_priority, told(sched_setparam(0, &zero)), told(sched_getparam(0, 0)), told(sched_getscheduler(-1)));
    /* On one CPU, a process of higher priority runs before its parent goes on. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    int *order = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sched_setscheduler(0, SCHED_FIFO, &param);
    child = fork();
    if (child == 0) {
        order[1 + order[0]++] = 2;
        _exit(0);
    }
    for (volatile int i = 0; i < 3000000; i++)
        ;
    order[1 + order[0]++] = 1;
    waitpid(child, 0, 0);
    printf(" order %d%d", order[1], order[2]);
    order[0] = 0;
    child = fork();
    if (child == 0) {
        order[1 + order[0]++] = 2;
        _exit(0);
    }
    param.sched_priority = 50;
    sched_setscheduler(child, SCHED_FIFO, &param);
    order[1 + order[0]++] = 1;
    waitpid(child, 0, 0);
    printf(" %d%d", order[1], order[2]);
    sched_setscheduler(0, SCHED_OTHER, &zero);
    printf(" %ld\n", told(sched_getscheduler(0)));
}

struct lock {
    struct robust_list list;
    uint32_t word;
};

static struct shared {
    struct robust_list_head head;
    struct lock locks[3];
    uint32_t pending;
} *shared;

static void *robust(void *unused)
{
    uint32_t tid = syscall(SYS_gettid);
    shared->head.futex_offset = offsetof(struct lock, word);
    shared->head.list.next = &shared->locks[0].list;
    shared->locks[0].list.next = &shared->locks[1].list;
    shared->locks[1].list.next = &shared->locks[2].list;
    shared->locks[2].list.next = &shared->head.list;
    shared->locks[0].word = tid;
    shared->locks[1].word = tid | FUTEX_WAITERS;
    shared->locks[2].word = tid + 1;
    syscall(SYS_set_robust_list, &shared->head, sizeof shared->head);
    return 0;
}

static void *mutex_owner(void *mutex)
{
    pthread_mutex_lock(mutex);
    return 0;
}

static void locks(void)
{
    pthread_t thread;
    struct robust_list_head *head;
    size_t len;
    shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_create(&thread, 0, robust, 0);
    pthread_join(thread, 0);
    printf("robust: %x %x %d", shared->locks[0].word, shared->locks[1].word, shared->locks[2].word != 0 && !(shared->locks[2].word & FUTEX_OWNER_DIED));
    printf(" %ld", told(syscall(SYS_set_robust_list, &shared->head, 8)));
    long got = told(syscall(SYS_get_robust_list, 0, &head, &len));
    printf(" %ld %zu %d", got, len, head != 0);
    printf(" %ld", told(syscall(SYS_get_robust_list, 99999, &head, &len)));
    /* A waiter in another process is woken by the end of the owner. */
    pid_t child = fork();
    if (child == 0) {
        shared->locks[0].word = 0;
        robust(0);
        shared->locks[2].word = 0;
        shared->head.list_op_pending = &shared->locks[2].list;
        __atomic_store_n(&shared->pending, 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &shared->pending, FUTEX_WAKE, 1, 0, 0, 0);
        while (!(__atomic_load_n(&shared->locks[1].word, __ATOMIC_SEQ_CST) & 1 << 29))
            sched_yield();
        shared->locks[1].word &= ~(1u << 29);
        _exit(0);
    }
    while (!__atomic_load_n(&shared->pending, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &shared->pending, FUTEX_WAIT, 0, 0, 0, 0);
    __atomic_fetch_or(&shared->locks[1].word, 1u << 29, __ATOMIC_SEQ_CST);
    uint32_t value;
    while (!((value = __atomic_load_n(&shared->locks[1].word, __ATOMIC_SEQ_CST)) & FUTEX_OWNER_DIED))
        syscall(SYS_futex, &shared->locks[1].word, FUTEX_WAIT, value, 0, 0, 0);
    waitpid(child, 0, 0);
    printf(" woken %x", value);
    pthread_mutexattr_t attributes;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &attributes);
    pthread_create(&thread, 0, mutex_owner, &mutex);
    pthread_join(thread, 0);
    int died = pthread_mutex_lock(&mutex);
    printf(" mutex %d %d", died == EOWNERDEAD, pthread_mutex_consistent(&mutex));
    printf(" %d", pthread_mutex_unlock(&mutex));
    printf(" %d\n", pthread_mutex_lock(&mutex));
}

static void *sleeps(void *unused)
{
    pause();
    return 0;
}

/* The limit of the threads of a user: those that were not reaped count, and user 0 has none. */
static void thread_limit(void)
{
    struct rlimit limit = { 3, 10 }, more = { 4, 10 };
    pthread_t thread;
    int status;
    printf("threads:");
    setrlimit(RLIMIT_NPROC, &limit);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        printf(" %d", child > 0);
    }
    while (wait(&status) > 0)
        ;
    setresuid(1234, 1234, 1234);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        printf(" %d", child > 0 ? 1 : -errno);
    }
    wait(&status);
    printf(" %d", pthread_create(&thread, 0, sleeps, 0));
    printf(" %d", pthread_create(&thread, 0, sleeps, 0));
    setrlimit(RLIMIT_NPROC, &more);
    printf(" %d", pthread_create(&thread, 0, sleeps, 0));
    printf(" %d\n", fork() == -1 ? errno : 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return tell();
    mkdir("/proc", 0755);
    apart(changes);
    apart(groups);
    apart(sets);
    apart(bounds);
    apart(files);
    apart(privileged);
    apart(friends);
    printf("programs:");
    programs();
    apart(processors);
    apart(policies);
    apart(turns);
    apart(locks);
    apart(thread_limit);
    return 0;
}
