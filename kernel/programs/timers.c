/* Timers that send signals, clocks of CPU time, and what processes used. Prints a line for each group; no line depends on how fast the machine is. */
/* Tests INV-KERNEL-TIMER. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MS = 1000000, PAGE = 4096, PAGES = 200 };

static volatile sig_atomic_t count;
static volatile pid_t by;
static siginfo_t told_by, all[8];

static void handler(int signal, siginfo_t *info, void *context)
{
    told_by = *info;
    by = syscall(SYS_gettid);
    /* Last, because another thread may wait for the count. */
    all[count++ % 8] = *info;
}

static void on(int signal)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
    sigaction(signal, &action, 0);
    count = 0;
}

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static long long now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void rest(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * MS };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
        ;
}

/* Waits for so many signals; none is lost, because they are blocked meanwhile. */
static void await(int signal, int wanted)
{
    sigset_t set, none;
    sigemptyset(&set);
    sigemptyset(&none);
    sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, 0);
    while (count < wanted)
        sigsuspend(&none);
    sigprocmask(SIG_UNBLOCK, &set, 0);
}

static void intervals(void)
{
    struct itimerval once = { { 0, 0 }, { 0, 50000 } }, often = { { 0, 20000 }, { 0, 1 } }, odd = { { 0, 0 }, { 0, 1000000 } };
    struct itimerval none = { 0 }, before = { 0 }, old;
    struct timespec second = { 1, 0 };
    on(SIGALRM);
    printf("alarm: %u", alarm(100));
    printf(" %u", alarm(7));
    printf(" %u %u\n", alarm(0), alarm(0));
    long long start = now(CLOCK_MONOTONIC);
    printf("real: %ld", told(setitimer(ITIMER_REAL, &once, 0)));
    printf(" %ld", told(nanosleep(&second, 0)));
    printf(" %d %d %d", count, now(CLOCK_MONOTONIC) - start >= 50 * MS, told_by.si_code == SI_KERNEL);
    getitimer(ITIMER_REAL, &old);
    printf(" left %ld %ld", old.it_value.tv_sec, old.it_value.tv_usec);
    count = 0;
    setitimer(ITIMER_REAL, &often, 0);
    await(SIGALRM, 4);
    getitimer(ITIMER_REAL, &old);
    printf(" often %d %d %ld", count >= 4, old.it_value.tv_usec > 0 && old.it_value.tv_usec <= 20000, old.it_interval.tv_usec);
    pid_t child = fork();
    if (child == 0) {
        getitimer(ITIMER_REAL, &old);
        _exit(old.it_value.tv_sec || old.it_value.tv_usec);
    }
    int status = -1;
    while (waitpid(child, &status, 0) == -1)
        ;
    printf(" child %d", status);
    printf(" %ld %ld\n", told(setitimer(ITIMER_REAL, &none, &old)), old.it_interval.tv_usec);
    printf("refused: %ld %ld", told(setitimer(3, &once, 0)), told(setitimer(ITIMER_REAL, &odd, 0)));
    before.it_value.tv_sec = -1;
    printf(" %ld %ld", told(setitimer(ITIMER_REAL, &before, 0)), told(getitimer(9, &old)));
    printf(" %ld %ld", told(syscall(SYS_setitimer, ITIMER_REAL, 16, 0)), told(syscall(SYS_getitimer, ITIMER_REAL, 16)));
    printf(" %ld %ld\n", told(syscall(SYS_setitimer, ITIMER_REAL, 0, 0)), told(syscall(SYS_setitimer, ITIMER_REAL, &none, 16)));
    for (int which = ITIMER_VIRTUAL; which <= ITIMER_PROF; which++) {
        struct itimerval burnt = { { 0, 10000 }, { 0, 10000 } };
        on(which == ITIMER_VIRTUAL ? SIGVTALRM : SIGPROF);
        setitimer(which, &burnt, 0);
        rest(60);
        int asleep = count;
        while (count < 3)
            ;
        setitimer(which, &none, &old);
        printf("%s: asleep %d, %d %ld\n", which == ITIMER_VIRTUAL ? "virtual" : "prof", asleep > 1, told_by.si_code == SI_KERNEL, old.it_interval.tv_usec);
    }
}

static long create(int clock, int notify, int signal, int thread, int *id)
{
    struct sigevent event = { .sigev_notify = notify, .sigev_signo = signal };
    event.sigev_value.sival_ptr = (void *)0x1234567890;
    event._sigev_un._tid = thread;
    return told(syscall(SYS_timer_create, clock, &event, id));
}

static long set(int id, int flags, long ms, long interval, struct itimerspec *old)
{
    struct itimerspec new = { { interval / 1000, interval % 1000 * MS }, { ms / 1000, ms % 1000 * MS } };
    return told(syscall(SYS_timer_settime, id, flags, &new, old));
}

static volatile int go = 1;
static volatile pid_t other;

static void *thread(void *argument)
{
    other = syscall(SYS_gettid);
    while (go)
        rest(5);
    return 0;
}

static void posix(void)
{
    int id = -1, second = -1;
    struct itimerspec left, odd = { { 0, 0 }, { 0, 1000 * MS } };
    pthread_t one;
    on(SIGALRM);
    printf("posix: %ld", told(syscall(SYS_timer_create, CLOCK_MONOTONIC, 0, &id)));
    printf(" %d %ld", id, set(id, 0, 20, 0, 0));
    await(SIGALRM, 1);
    printf(" %d %d %d", told_by.si_code == SI_TIMER, told_by.si_timerid, told_by.si_value.sival_int);
    syscall(SYS_timer_gettime, id, &left);
    printf(" left %ld %ld", left.it_value.tv_sec, left.it_value.tv_nsec);
    printf(" %ld", create(CLOCK_REALTIME, SIGEV_SIGNAL, SIGRTMIN, 0, &second));
    printf(" %d", second);
    on(SIGRTMIN);
    long long at = now(CLOCK_REALTIME) + 20 * MS;
    printf(" absolute %ld", set(second, TIMER_ABSTIME, at / MS, 0, 0));
    await(SIGRTMIN, 1);
    printf(" %d %d\n", now(CLOCK_REALTIME) >= at / MS * MS, told_by.si_value.sival_ptr == (void *)0x1234567890);
    /* Expirations while the signal is blocked are overruns of one signal. */
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &blocked, 0);
    count = 0;
    set(second, 0, 1, 10, 0);
    rest(100);
    set(id, 0, 0, 0, &left);
    sigprocmask(SIG_UNBLOCK, &blocked, 0);
    printf("overruns: %d %d", count >= 1, all[0].si_overrun >= 5);
    set(second, 0, 0, 0, &left);
    printf(" interval %ld %d", left.it_interval.tv_nsec / MS, left.it_value.tv_nsec <= 10 * MS);
    syscall(SYS_timer_gettime, second, &left);
    printf(" %ld %ld", left.it_value.tv_nsec, left.it_interval.tv_nsec);
    printf(" %ld %ld\n", told(syscall(SYS_timer_delete, second)), told(syscall(SYS_timer_delete, second)));
    pthread_create(&one, 0, thread, 0);
    while (!other)
        rest(1);
    on(SIGUSR1);
    printf("thread: %ld", create(CLOCK_MONOTONIC, SIGEV_SIGNAL | SIGEV_THREAD_ID, SIGUSR1, other, &second));
    set(second, 0, 5, 0, 0);
    while (!count)
        rest(1);
    printf(" %d", by == other);
    go = 0;
    pthread_join(one, 0);
    printf(" %ld", told(syscall(SYS_timer_delete, second)));
    printf(" none %ld", create(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, &second));
    set(second, 0, 30000, 0, 0);
    rest(5);
    syscall(SYS_timer_gettime, second, &left);
    printf(" %d %ld", left.it_value.tv_sec == 29, left.it_interval.tv_nsec);
    printf(" cpu %ld", create(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGUSR1, 0, &second));
    on(SIGUSR1);
    set(second, 0, 20, 0, 0);
    while (!count)
        ;
    printf(" %d\n", now(CLOCK_PROCESS_CPUTIME_ID) >= 20 * MS);
    printf("refused: %ld %ld", create(77, SIGEV_SIGNAL, SIGUSR1, 0, &second), create(CLOCK_MONOTONIC_RAW, SIGEV_SIGNAL, SIGUSR1, 0, &second));
    printf(" %ld %ld", create(CLOCK_MONOTONIC, 9, SIGUSR1, 0, &second), create(CLOCK_MONOTONIC, SIGEV_SIGNAL, 65, 0, &second));
    printf(" %ld %ld", create(CLOCK_MONOTONIC, SIGEV_SIGNAL, 0, 0, &second), create(CLOCK_MONOTONIC, SIGEV_SIGNAL | SIGEV_THREAD_ID, SIGUSR1, 999999, &second));
    printf(" %ld %ld", create(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGUSR1, 0, (void *)16), told(syscall(SYS_timer_create, CLOCK_MONOTONIC, 16, &second)));
    printf(" %ld %ld", told(syscall(SYS_timer_settime, id, 0, &odd, 0)), told(syscall(SYS_timer_settime, id, 0, 0, 0)));
    printf(" %ld %ld", told(syscall(SYS_timer_settime, 99, 0, &left, 0)), told(syscall(SYS_timer_gettime, 99, &left)));
    printf(" %ld %ld\n", told(syscall(SYS_timer_getoverrun, 99)), told(syscall(SYS_timer_settime, id, 0, 16, 0)));
}

/* Of signals that are queued, none is lost; of others, all but one. */
static void queues(void)
{
    sigset_t set, pending;
    struct timespec none = { 0, 0 }, some = { 0, 20 * MS };
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, 0);
    on(SIGRTMIN + 1);
    for (int i = 1; i <= 3; i++) {
        sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = i });
        kill(getpid(), SIGUSR2);
    }
    sigpending(&pending);
    printf("queues: %d %d %d", sigismember(&pending, SIGUSR2), sigismember(&pending, SIGRTMIN + 1), sigismember(&pending, SIGALRM));
    printf(" %d", sigtimedwait(&set, &info, &none) == SIGUSR2 && info.si_code == SI_USER);
    printf(" %d", sigtimedwait(&set, &info, &none) == SIGRTMIN + 1 && info.si_code == SI_QUEUE && info.si_value.sival_int == 1);
    sigprocmask(SIG_UNBLOCK, &set, 0);
    printf(" %d %d %d", count, all[0].si_value.sival_int, all[1].si_value.sival_int);
    printf(" %ld", told(sigtimedwait(&set, &info, &none)));
    sigprocmask(SIG_BLOCK, &set, 0);
    printf(" %ld", told(sigtimedwait(&set, &info, &some)));
    if (fork() == 0) {
        rest(20);
        kill(getppid(), SIGUSR2);
        _exit(0);
    }
    printf(" %d", sigwaitinfo(&set, &info) == SIGUSR2);
    wait(0);
    info.si_code = SI_USER;
    printf(" %ld %ld", told(syscall(SYS_rt_sigqueueinfo, getppid(), SIGUSR2, &info)), told(syscall(SYS_rt_sigqueueinfo, 999999, 0, &info)));
    printf(" %ld %ld\n", told(syscall(SYS_rt_sigtimedwait, &set, 0, &none, 4)), told(syscall(SYS_rt_sigpending, &set, 99)));
}

static void burn(long ms)
{
    long long until = now(CLOCK_THREAD_CPUTIME_ID) + (long long)ms * MS;
    while (now(CLOCK_THREAD_CPUTIME_ID) < until)
        ;
}

/* The minor faults of the process since the last call. */
static long faults(void)
{
    static long before;
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    long more = own.ru_minflt - before;
    before = own.ru_minflt;
    return more;
}

/* How the faults of a call on PAGES fresh pages were counted: all, none, or their number. The stack and the data may add a few. */
static void counted(const char *name)
{
    long more = faults();
    if (more >= PAGES && more < PAGES + 8)
        printf(" %s all", name);
    else if (more < 8)
        printf(" %s none", name);
    else
        printf(" %s %ld", name, more);
}

static char *fresh(int flags)
{
    char *memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
    faults();
    return memory;
}

/* Faults that calls take for the process, also in the memory of another one. */
static void faults_of_calls(void)
{
    static char page[PAGE] = { 1 };
    struct iovec from[PAGES], to = { 0, PAGES * PAGE };
    char *memory = fresh(0);
    int wait_for_end[2], status, zeroes = open("/dev/zero", O_RDONLY);
    printf("faults:");
    for (int i = 0; i < PAGES; i++)
        from[i] = (struct iovec){ page, PAGE };
    faults();
    mmap(memory, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0);
    counted("MAP_POPULATE");
    memory = fresh(0);
    mlock(memory, PAGES * PAGE);
    counted("mlock");
    munlock(memory, PAGES * PAGE);
    memory = fresh(0);
    madvise(memory, PAGES * PAGE, MADV_POPULATE_WRITE);
    counted("MADV_POPULATE_WRITE");
    memory = fresh(0);
    read(zeroes, memory, PAGES * PAGE);
    counted("read");
    memory = fresh(0);
    pipe(wait_for_end);
    pid_t child = fork();
    if (child == 0) {
        struct rusage own;
        close(wait_for_end[1]);
        getrusage(RUSAGE_SELF, &own);
        long before = own.ru_minflt;
        read(wait_for_end[0], page, 1);
        getrusage(RUSAGE_SELF, &own);
        _exit(own.ru_minflt - before < 16);
    }
    to.iov_base = memory;
    /* Copied by the fork's first stores. */
    page[0] = 2;
    faults();
    process_vm_writev(child, from, PAGES, &to, 1, 0);
    counted("process_vm_writev");
    close(wait_for_end[1]);
    wait(&status);
    printf(" the other none %d\n", WEXITSTATUS(status));
    close(wait_for_end[0]);
    close(zeroes);
}

static void usage(void)
{
    struct rusage own, child, before;
    struct tms ticks;
    int status;
    long long process = now(CLOCK_PROCESS_CPUTIME_ID), real = now(CLOCK_MONOTONIC);
    rest(200);
    process = now(CLOCK_PROCESS_CPUTIME_ID) - process;
    printf("usage: asleep %d", process < (now(CLOCK_MONOTONIC) - real) / 2);
    getrusage(RUSAGE_SELF, &before);
    char *memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE);
    for (int i = 0; i < PAGES; i++)
        memory[i * PAGE] = 1;
    burn(50);
    getrusage(RUSAGE_SELF, &own);
    printf(" faults %d", own.ru_minflt - before.ru_minflt >= PAGES && own.ru_minflt - before.ru_minflt < 2 * PAGES);
    printf(" size %d", own.ru_maxrss >= PAGES * PAGE / 1024);
    printf(" time %d", timerisset(&own.ru_utime) || timerisset(&own.ru_stime));
    printf(" switches %d", own.ru_nvcsw > before.ru_nvcsw - 1 && own.ru_nvcsw > 0);
    if (fork() == 0) {
        burn(50);
        _exit(0);
    }
    wait4(-1, &status, 0, &child);
    long us = (child.ru_utime.tv_sec + child.ru_stime.tv_sec) * 1000000 + child.ru_utime.tv_usec + child.ru_stime.tv_usec;
    printf(" child %d", us >= 50000);
    getrusage(RUSAGE_CHILDREN, &own);
    printf(" %d", own.ru_utime.tv_usec + own.ru_stime.tv_usec + (own.ru_utime.tv_sec + own.ru_stime.tv_sec) * 1000000 >= us);
    times(&ticks);
    printf(" %d\n", ticks.tms_cutime + ticks.tms_cstime >= 4 && ticks.tms_utime + ticks.tms_stime >= 4);
}

int main(int argc, char **argv)
{
    struct itimerval long_time = { { 0, 0 }, { 1000, 0 } }, left;
    struct itimerspec posix_left;
    if (argc > 1) {
        getitimer(ITIMER_REAL, &left);
        printf("exec: %d %ld\n", left.it_value.tv_sec > 900, told(syscall(SYS_timer_gettime, 0, &posix_left)));
        return 0;
    }
    long long offset = now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC);
    intervals();
    posix();
    queues();
    usage();
    faults_of_calls();
    long long drift = now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC) - offset;
    printf("clocks agree: %d, date: %d\n", drift < 100 * MS && drift > -100 * MS, now(CLOCK_REALTIME) / 1000000000 > 1700000000);
    fflush(stdout);
    setitimer(ITIMER_REAL, &long_time, 0);
    execl("/proc/self/exe", argv[0], "again", (char *)0);
    return 1;
}
