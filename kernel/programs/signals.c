/* What signals do to calls that wait, what their handlers find, and what is refused. Prints a line for each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MS = 1000000, PIPE = 65536, BYTES = 2 * PIPE };

static volatile sig_atomic_t handled;
static siginfo_t told_by;

static void handler(int signal, siginfo_t *info, void *context)
{
    handled = signal;
    told_by = *info;
}

static void on(int signal, int flags)
{
    struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };
    sigaction(signal, &action, 0);
    handled = 0;
}

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static void rest(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * MS };
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
        ;
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / MS;
}

/* A child that sends its parent a signal after a while. */
static pid_t sends(int signal, long ms)
{
    pid_t child = fork();
    if (child == 0) {
        rest(ms);
        kill(getppid(), signal);
        _exit(0);
    }
    return child;
}

static void reap(pid_t child)
{
    while (waitpid(child, 0, 0) == -1 && errno == EINTR)
        ;
}

/* The actions of some signals can be asked for and not changed; who is not there gets no signal. */
static void refused(void)
{
    /* As the kernel has it: handler, flags, restorer, mask. */
    unsigned long action[4] = { 0 };
    printf("kill: %ld", told(syscall(SYS_rt_sigaction, SIGKILL, action, 0, 8)));
    printf(" %ld", told(syscall(SYS_rt_sigaction, SIGSTOP, action, 0, 8)));
    printf(" %ld", told(syscall(SYS_rt_sigaction, SIGKILL, 0, action, 8)));
    printf(" %ld %ld\n", told(syscall(SYS_rt_sigaction, SIGUSR1, action, 0, 4)), told(syscall(SYS_rt_sigaction, 65, 0, action, 8)));
    printf("tgkill: %ld", told(syscall(SYS_tgkill, getpid(), 999999, SIGTERM)));
    printf(" %ld %ld", told(syscall(SYS_tgkill, getpid(), 0, SIGTERM)), told(syscall(SYS_tkill, -1, SIGTERM)));
    printf(" %ld", told(syscall(SYS_tgkill, getpid(), getpid(), 0)));
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    printf(" %ld\n", told(syscall(SYS_tgkill, child, getpid(), SIGTERM)));
    rest(100);
    printf("ended, not awaited: %ld", told(kill(child, 0)));
    reap(child);
    printf(", awaited: %ld\n", told(kill(child, 0)));
}

static void numbers(void)
{
    struct timespec before = { -1, 0 }, odd = { 0, 1000 * MS };
    int word = 0;
    struct pollfd none = { -1, POLLIN, 7 };
    printf("times: %ld %ld", told(nanosleep(&before, 0)), told(nanosleep(&odd, 0)));
    printf(" %d", clock_nanosleep(CLOCK_MONOTONIC, 0, &before, 0));
    printf(" %ld", told(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &before)));
    printf(" %ld %ld\n", told(ppoll(&none, 1, &before, 0)), told(ppoll(&none, 1, &odd, 0)));
    printf("poll: %ld", told(poll(&none, 1, 30)));
    printf(" %d\n", none.revents);
}

/* Of calls that wait for a time, none begins anew after a handler. */
static void times(int flags)
{
    struct timespec long_time = { 2, 0 }, left = { 9, 0 };
    long start;
    int word = 0;
    pid_t child;
    printf("handler with %s:", flags ? "SA_RESTART" : "no flag");
    on(SIGUSR1, flags);
    child = sends(SIGUSR1, 100);
    start = now();
    printf(" nanosleep %ld", told(nanosleep(&long_time, &left)));
    printf(" %d %d", now() - start < 1900, left.tv_sec == 1);
    reap(child);
    child = sends(SIGUSR1, 100);
    start = now();
    printf(", poll %ld", told(poll(0, 0, 2000)));
    printf(" %d", now() - start < 1900);
    reap(child);
    child = sends(SIGUSR1, 100);
    start = now();
    printf(", futex %ld", told(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &long_time)));
    printf(" %d", now() - start < 1900);
    reap(child);
    child = sends(SIGUSR1, 100);
    printf(", pause %ld", told(pause()));
    reap(child);
    /* What waits for something else does begin anew, if the handler's flags say so. */
    int ends[2];
    char byte;
    if (pipe(ends))
        exit(2);
    child = fork();
    if (child == 0) {
        rest(100);
        kill(getppid(), SIGUSR1);
        rest(100);
        _exit(write(ends[1], "x", 1) != 1);
    }
    printf(", read %ld\n", told(read(ends[0], &byte, 1)));
    reap(child);
    close(ends[0]);
    close(ends[1]);
}

/* Who waits for a child gets it, although its signal comes at the same time. */
static void child(void)
{
    int status = 0;
    on(SIGCHLD, 0);
    pid_t child = fork();
    if (child == 0) {
        rest(100);
        _exit(3);
    }
    printf("wait: %d", waitpid(child, &status, 0) == child);
    printf(" %d, SIGCHLD %d", WEXITSTATUS(status), handled == SIGCHLD);
    printf(" from %d, code %d, status %d\n", told_by.si_pid == child, told_by.si_code, told_by.si_status);
    child = fork();
    if (child == 0)
        pause();
    handled = 0;
    kill(child, SIGTERM);
    reap(child);
    printf("killed: %d, code %d, status %d\n", handled == SIGCHLD && told_by.si_pid == child, told_by.si_code, told_by.si_status);
    signal(SIGCHLD, SIG_DFL);
}

/* A signal that nobody wants does not stand before one that somebody does. */
static void unwanted(void)
{
    int ends[2];
    char byte;
    if (pipe(ends))
        exit(2);
    on(SIGRTMIN, 0);
    pid_t child = fork();
    if (child == 0) {
        rest(100);
        kill(getppid(), SIGCHLD);
        kill(getppid(), SIGRTMIN);
        rest(100);
        _exit(write(ends[1], "x", 1) != 1);
    }
    printf("SIGCHLD first: %ld", told(read(ends[0], &byte, 1)));
    printf(" %d\n", handled == SIGRTMIN);
    reap(child);
    close(ends[0]);
    close(ends[1]);
}

/* What has been written is not written again, though a signal comes between two parts. */
static void parts(void)
{
    static char bytes[BYTES];
    int ends[2];
    if (pipe(ends))
        exit(2);
    on(SIGUSR1, SA_RESTART);
    for (int i = 0; i < BYTES; i++)
        bytes[i] = i / PIPE;
    pid_t child = fork();
    if (child == 0) {
        long written = 0;
        close(ends[0]);
        while (written < BYTES) {
            long part = write(ends[1], bytes + written, BYTES - written);
            if (part <= 0)
                _exit(1);
            written += part;
        }
        _exit(handled != SIGUSR1);
    }
    close(ends[1]);
    rest(100);
    long all = 0, right = 0, part;
    char some[PIPE];
    while ((part = read(ends[0], some, all ? sizeof some : 2 * 4096)) > 0) {
        if (all == 0)
            kill(child, SIGUSR1);
        for (int i = 0; i < part; i++)
            right += all + i < BYTES && some[i] == (all + i) / PIPE;
        all += part;
    }
    int status;
    waitpid(child, &status, 0);
    printf("parts: %ld %ld, status %d\n", all, right, WEXITSTATUS(status));
    close(ends[0]);
}

static void senders(void)
{
    union sigval value = { 0 };
    on(SIGUSR2, 0);
    kill(getpid(), SIGUSR2);
    printf("kill: code %d, from %d", told_by.si_code, told_by.si_pid == getpid());
    memset(&told_by, 0, sizeof told_by);
    syscall(SYS_tgkill, getpid(), getpid(), SIGUSR2);
    printf(", tgkill: code %d, from %d\n", told_by.si_code, told_by.si_pid == getpid());
}

static void *sleeps(void *how)
{
    int ends[2];
    char byte;
    if (pipe(ends))
        exit(2);
    if (how)
        read(ends[0], &byte, 1);
    else
        for (;;)
            pause();
    return 0;
}

static void cancelled(void)
{
    pthread_t thread;
    void *result;
    for (long how = 0; how < 2; how++) {
        pthread_create(&thread, 0, sleeps, (void *)how);
        rest(50);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("%s %d", how ? "," : "cancelled:", result == PTHREAD_CANCELED);
    }
    printf("\n");
}

/* ppoll waits with another set of blocked signals. */
static void masks(void)
{
    sigset_t one, none, old;
    sigemptyset(&none);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, 0);
    on(SIGUSR1, SA_RESTART);
    kill(getpid(), SIGUSR1);
    struct timespec time = { 2, 0 };
    printf("ppoll: %d", handled);
    printf(" %ld", told(ppoll(0, 0, &time, &none)));
    sigprocmask(SIG_UNBLOCK, &none, &old);
    printf(" %d %d\n", handled == SIGUSR1, sigismember(&old, SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &one, 0);
}

/* A handler begins with the flags and floating-point modes of any function. */
static volatile unsigned long flags_there;
static volatile unsigned modes_there;

static void looks(int signal)
{
#ifdef __x86_64__
    unsigned long flags;
    __asm__ volatile("pushfq; pop %0; cld" : "=r"(flags));
    flags_there = flags;
    __asm__ volatile("stmxcsr %0" : "=m"(modes_there));
#endif
}

static void beginning(void)
{
    signal(SIGUSR1, looks);
    unsigned long direction = 0, after = 0;
    unsigned modes = 0x1f80;
#ifdef __x86_64__
    long number = SYS_tgkill;
    unsigned rounding = 0x7f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(rounding));
    __asm__ volatile("sub $128, %%rsp; std; syscall; pushfq; pop %1; cld; add $128, %%rsp" : "+a"(number), "=r"(after)
                     : "D"((long)getpid()), "S"((long)getpid()), "d"((long)SIGUSR1) : "rcx", "r11", "memory");
    __asm__ volatile("stmxcsr %0" : "=m"(rounding));
    direction = flags_there >> 10 & 1;
    after = (after >> 10 & 1) + (rounding == 0x7f80);
    modes = modes_there;
    rounding = 0x1f80;
    __asm__ volatile("ldmxcsr %0" : : "m"(rounding));
#else
    raise(SIGUSR1);
    after = 2;
#endif
    printf("handler: direction %lu, modes %x, afterwards %lu\n", direction, modes, after);
}

static void stacks(void)
{
    static char room[16384];
    stack_t small = { room, 0, 1024 }, odd = { room, 0x40, sizeof room }, none = { 0, SS_DISABLE, 0 }, right = { room, 0, sizeof room }, old;
    printf("sigaltstack: %ld %ld", told(sigaltstack(&small, 0)), told(sigaltstack(&odd, 0)));
    printf(" %ld", told(sigaltstack(&right, 0)));
    printf(" %ld", told(sigaltstack(&none, &old)));
    printf(" %d %d\n", old.ss_sp == room, old.ss_flags);
}

/* A waiter says by which of 32 kinds of wakers it can be woken. */
static int words[2];

static void *kind(void *bits)
{
    return (void *)syscall(SYS_futex, words, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, 0, 0, (long)bits);
}

static void kinds(void)
{
    pthread_t first, second;
    pthread_create(&first, 0, kind, (void *)1);
    rest(50);
    pthread_create(&second, 0, kind, (void *)2);
    rest(50);
    printf("bitset: %ld", told(syscall(SYS_futex, words, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 1, 0, 0, 2)));
    pthread_join(second, 0);
    printf(" %ld", told(syscall(SYS_futex, words, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 9, 0, 0, 4)));
    printf(" %ld", told(syscall(SYS_futex, words, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, 9, 0, 0, 0)));
    printf(" %ld\n", told(syscall(SYS_futex, words, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 9)));
    pthread_join(first, 0);
}

/* The state of a thread, as /proc shows it. */
static char state(pid_t process, pid_t thread)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    int file = open(path, O_RDONLY);
    read(file, text, sizeof text - 1);
    close(file);
    char *end = strrchr(text, ')');
    return end ? end[2] : '?';
}

static char state_of(pid_t process)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/status", process);
    int file = open(path, O_RDONLY);
    read(file, text, sizeof text - 1);
    close(file);
    char *line = strstr(text, "State:");
    return line ? line[7] : '?';
}

static unsigned waited(pid_t child, int options)
{
    int status = 0;
    pid_t found = waitpid(child, &status, options);
    return found == child ? status : found == 0 ? 0xaaaa : 0xbbbb;
}

/* A child in a group of its own, which its parent can continue. */
static pid_t starts(void (*does)(void))
{
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        does();
        _exit(0);
    }
    setpgid(child, child);
    return child;
}

static void pauses(void)
{
    for (;;)
        pause();
}

static void stopped(void)
{
    static const int signals[] = { SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU };
    for (int i = 0; i < 4; i++) {
        pid_t child = starts(pauses);
        kill(child, signals[i]);
        printf("stop %d: %x", signals[i], waited(child, WUNTRACED));
        printf(" %c%c %x", state(child, child), state_of(child), waited(child, WUNTRACED | WCONTINUED | WNOHANG));
        kill(child, SIGTERM);
        rest(50);
        printf(" %x", waited(child, WUNTRACED | WNOHANG));
        kill(child, i ? SIGCONT : SIGKILL);
        printf(" %x\n", waited(child, 0));
    }
    pid_t child = starts(pauses);
    rest(50);
    printf("continue: %c", state(child, child));
    kill(child, SIGCONT);
    printf(" %x", waited(child, WCONTINUED | WNOHANG));
    kill(child, SIGSTOP);
    waited(child, WUNTRACED);
    kill(child, SIGCONT);
    printf(" %x", waited(child, WCONTINUED));
    printf(" %x", waited(child, WCONTINUED | WNOHANG));
    rest(50);
    printf(" %c\n", state(child, child));
    siginfo_t info;
    kill(child, SIGSTOP);
    for (int i = 0; i < 2; i++) {
        memset(&info, 0, sizeof info);
        printf("waitid: %ld", told(waitid(P_PID, child, &info, WSTOPPED | WEXITED | (i ? 0 : WNOWAIT))));
        printf(" signal %d code %d status %d, ", info.si_signo, info.si_code, info.si_status);
    }
    kill(child, SIGCONT);
    printf("%ld", told(waitid(P_PID, child, &info, WCONTINUED)));
    printf(" code %d status %d\n", info.si_code, info.si_status);
    kill(child, SIGKILL);
    waited(child, 0);
}

static void parent_told(void)
{
    for (int i = 0; i < 2; i++) {
        on(SIGCHLD, i ? SA_NOCLDSTOP : 0);
        pid_t child = starts(pauses);
        kill(child, SIGSTOP);
        printf("SIGCHLD: %x", waited(child, WUNTRACED));
        printf(" %d", handled == SIGCHLD && told_by.si_pid == child ? told_by.si_code * 100 + told_by.si_status : 0);
        handled = 0;
        kill(child, SIGCONT);
        printf(" %x", waited(child, WCONTINUED));
        rest(50);
        printf(" %d\n", handled == SIGCHLD && told_by.si_pid == child ? told_by.si_code * 100 + told_by.si_status : 0);
        signal(SIGCHLD, SIG_DFL);
        kill(child, SIGKILL);
        waited(child, 0);
    }
}

static int line[2], done[2];

static void ends(int signal)
{
    write(done[1], "h", 1);
    _exit(7);
}

static void keeps(void)
{
    signal(SIGTSTP, ends);
    write(done[1], "r", 1);
    pauses();
}

static void ignores(void)
{
    signal(SIGTSTP, SIG_IGN);
    kill(getpid(), SIGTSTP);
    _exit(8);
}

static void blocks(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    sigprocmask(SIG_BLOCK, &set, 0);
    kill(getpid(), SIGTSTP);
    kill(getpid(), SIGCONT);
    sigprocmask(SIG_UNBLOCK, &set, 0);
    _exit(9);
}

static void sleeps_long(void)
{
    struct timespec time = { 0, 200 * MS };
    long start = now();
    long result = nanosleep(&time, 0);
    long took = now() - start;
    _exit(result == 0 && took >= 200 ? 10 : 11);
}

static void reads(void)
{
    char byte = 0;
    _exit(read(line[0], &byte, 1) == 1 ? byte : 12);
}

static void calls_stopped(void)
{
    char byte;
    pipe(line);
    pipe(done);
    pid_t child = starts(keeps);
    read(done[0], &byte, 1);
    kill(child, SIGTSTP);
    printf("handled: %x", waited(child, WUNTRACED));
    read(done[0], &byte, 1);
    printf(", ignored: %x", waited(starts(ignores), WUNTRACED));
    printf(", blocked and continued: %x\n", waited(starts(blocks), WUNTRACED));
    child = starts(sleeps_long);
    rest(50);
    kill(child, SIGSTOP);
    printf("sleeps: %x", waited(child, WUNTRACED));
    rest(50);
    kill(child, SIGCONT);
    printf(" %x\n", waited(child, 0));
    child = starts(reads);
    rest(50);
    kill(child, SIGSTOP);
    printf("reads: %x", waited(child, WUNTRACED));
    write(line[1], "ab", 2);
    rest(50);
    printf(" %ld", told(read(line[0], &byte, 1)));
    printf(" %c", byte);
    kill(child, SIGCONT);
    printf(" %x\n", waited(child, 0));
}

/* A process of which no parent could continue the group is not stopped as by a terminal, and hung up if it is stopped. */
static void waits_for_hangup(void)
{
    signal(SIGHUP, ends);
    write(done[1], "r", 1);
    pauses();
}

static void orphaned(void)
{
    for (int stops = 0; stops < 2; stops++) {
        char byte = 0;
        pid_t child = fork(), orphan;
        if (child == 0) {
            setpgid(0, 0);
            orphan = starts(waits_for_hangup);
            read(done[0], &byte, 1);
            if (stops) {
                kill(orphan, SIGSTOP);
                printf("orphaned, stopped: %x", waited(orphan, WUNTRACED));
            }
            write(line[1], &orphan, sizeof orphan);
            _exit(0);
        }
        waited(child, 0);
        read(line[0], &orphan, sizeof orphan);
        if (!stops) {
            kill(orphan, SIGTSTP);
            rest(50);
            printf("orphaned: %c\n", state(orphan, orphan));
            kill(orphan, SIGHUP);
        }
        read(done[0], &byte, 1);
        if (stops)
            printf(" %c\n", byte);
    }
    close(line[0]);
    close(line[1]);
}

static volatile long *shared;

static void *spins(void *unused)
{
    for (;;)
        ++*shared;
}

static void *waits(void *unused)
{
    shared[1] = syscall(SYS_gettid);
    syscall(SYS_futex, shared + 2, FUTEX_WAIT, 0, 0);
    shared[3] = 1;
    return 0;
}

static void has_threads(void)
{
    pthread_t first, second;
    pthread_create(&first, 0, spins, 0);
    pthread_create(&second, 0, waits, 0);
    pthread_join(second, 0);
    _exit(13);
}

static void threads_stopped(void)
{
    shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = starts(has_threads);
    while (!shared[1] || !*shared || state(child, shared[1]) != 'S')
        rest(10);
    printf("threads: %c%c", state(child, child), state(child, shared[1]));
    kill(child, SIGSTOP);
    printf(" %x", waited(child, WUNTRACED));
    long before = *shared;
    printf(" %c%c", state(child, child), state(child, shared[1]));
    rest(100);
    printf(" %d", before == *shared);
    shared[2] = 1;
    syscall(SYS_futex, shared + 2, FUTEX_WAKE, 1);
    rest(50);
    printf(" %ld", shared[3]);
    kill(child, SIGCONT);
    printf(" %x\n", waited(child, 0));
}

/* The parent of those that are stopped is not the first process, whose children are orphaned. */
static void stops(void)
{
    pid_t child = fork();
    if (child == 0) {
        stopped();
        parent_told();
        calls_stopped();
        orphaned();
        threads_stopped();
        _exit(0);
    }
    reap(child);
}

int main(void)
{
    setvbuf(stdout, 0, _IONBF, 0);
    refused();
    numbers();
    times(0);
    times(SA_RESTART);
    child();
    unwanted();
    parts();
    senders();
    cancelled();
    masks();
    beginning();
    stacks();
    kinds();
    stops();
    return 0;
}
