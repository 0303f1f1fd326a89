/* Calls about memory that programs make seldom: remap_file_pages, futex_waitv, process_mrelease, shmctl with locked segments, huge pages; locks
   that know their owner, signals by pidfd. Prints a line for each group. */
/* Tests INV-RECLAIM-UNEVICTABLE, INV-KERNEL-WORDS, INV-KERNEL-LOCKED. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SHM_STAT_ANY
#define SHM_STAT_ANY 15
#endif

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static void remapped(void)
{
    int fd = memfd_create("pages", 0);
    ftruncate(fd, 8 * PAGE);
    volatile char *all = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *own = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    for (int i = 0; i < 8; i++)
        all[i * PAGE] = 'a' + i;
    printf("remap: %ld", told(remap_file_pages(all, 2 * PAGE, 0, 5, 0)));
    printf(" %ld", told(remap_file_pages(all + 7 * PAGE, PAGE, 0, 0, MAP_NONBLOCK)));
    printf(" ");
    for (int i = 0; i < 8; i++)
        putchar(all[i * PAGE]);
    all[0] = 'F';
    all[5 * PAGE + 1] = 'x';
    printf(" %c %c", all[5 * PAGE], all[1]);
    printf(" %ld", told(remap_file_pages(own, PAGE, 0, 1, 0)));
    printf(" %ld", told(remap_file_pages(all, PAGE, PROT_READ, 1, 0)));
    printf(" %ld", told(remap_file_pages(all, 0, 0, 1, 0)));
    printf(" %ld", told(remap_file_pages(all + 6 * PAGE, 4 * PAGE, 0, 1, 0)));
    printf(" %ld", told(remap_file_pages(all, PAGE, 0, -1UL, 0)));
    printf(" %ld", told(remap_file_pages(all + 1, PAGE + 1, 0, 2, 0)));
    printf(" %c", all[0]);
    munmap(all + PAGE, PAGE);
    printf(" %ld", told(remap_file_pages(all, 3 * PAGE, 0, 0, 0)));
    printf(" %ld\n", told(remap_file_pages(all + 2 * PAGE, 5 * PAGE, 0, 0, 0)));
    munmap((void *)all, 8 * PAGE);
    munmap(own, PAGE);
    close(fd);
}

struct waiter {
    uint64_t value, word;
    uint32_t flags, reserved;
};

static long waitv(void *waiters, unsigned count, unsigned flags, struct timespec *until, int clock)
{
    return told(syscall(SYS_futex_waitv, waiters, count, flags, until, clock));
}

static uint32_t words[4];
static volatile int handled, returned;

/* On a busy computer the waiter may not wait yet, so these try until there is one. */
static void *wakes(void *which)
{
    do
        usleep(50000);
    while (syscall(SYS_futex, &words[(long)which], FUTEX_WAKE_PRIVATE, 1, 0, 0, 0) == 0);
    return 0;
}

static void *requeues(void *nothing)
{
    do
        usleep(50000);
    while (syscall(SYS_futex, &words[1], FUTEX_REQUEUE_PRIVATE, 0, 1, &words[3], 0) == 0);
    return (void *)told(syscall(SYS_futex, &words[3], FUTEX_WAKE_PRIVATE, 1, 0, 0, 0));
}

static void on_signal(int signal)
{
    handled++;
}

static void *interrupts_and_wakes(void *thread)
{
    usleep(50000);
    pthread_kill(*(pthread_t *)thread, SIGUSR1);
    return wakes(0);
}

static void *interrupts(void *thread)
{
    do {
        usleep(50000);
        pthread_kill(*(pthread_t *)thread, SIGUSR1);
    } while (!returned);
    return 0;
}

static void several(void)
{
    struct waiter waiters[129];
    struct timespec until, bad = { 0, -1 };
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    pthread_t thread, self = pthread_self();
    void *woken;
    for (int i = 0; i < 129; i++)
        waiters[i] = (struct waiter){ 0, (uintptr_t)&words[i % 3], 2 | FUTEX_PRIVATE_FLAG, 0 };
    printf("waitv: %ld %ld", waitv(waiters, 0, 0, 0, 0), waitv(waiters, 129, 0, 0, 0));
    printf(" %ld %ld", waitv(waiters, 3, 1, 0, 0), waitv(0, 3, 0, 0, 0));
    printf(" %ld %ld", waitv((void *)16, 3, 0, 0, 0), waitv(waiters, 1, 0, &bad, CLOCK_MONOTONIC));
    clock_gettime(CLOCK_MONOTONIC, &until);
    printf(" %ld", waitv(waiters, 3, 0, &until, CLOCK_MONOTONIC));
    printf(" %ld %ld", waitv(waiters, 3, 0, &until, CLOCK_BOOTTIME), waitv(waiters, 3, 0, (void *)16, CLOCK_MONOTONIC));
    waiters[1].value = 1;
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    waiters[1].value = 0;
    waiters[2].flags = FUTEX_PRIVATE_FLAG;
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    waiters[2].flags = 2 | 64;
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    waiters[2].flags = 2 | FUTEX_PRIVATE_FLAG;
    waiters[2].reserved = 1;
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    waiters[2].reserved = 0;
    waiters[2].word = 16;
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    waiters[2].word = (uintptr_t)&words[2] + 1;
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    waiters[2].word = (uintptr_t)&words[2];
    for (long which = 0; which < 3; which++) {
        pthread_create(&thread, 0, wakes, (void *)which);
        printf(" woken %ld", waitv(waiters, 3, 0, 0, 0));
        pthread_join(thread, 0);
    }
    pthread_create(&thread, 0, requeues, 0);
    printf(" requeued %ld", waitv(waiters, 3, 0, 0, 0));
    pthread_join(thread, &woken);
    printf(" %ld", (long)woken);
    sigaction(SIGUSR1, &action, 0);
    pthread_create(&thread, 0, interrupts_and_wakes, &self);
    printf(" restarted %ld", waitv(waiters, 3, 0, 0, 0));
    pthread_join(thread, 0);
    printf(" %d", handled);
    action.sa_flags = 0;
    sigaction(SIGUSR1, &action, 0);
    pthread_create(&thread, 0, interrupts, &self);
    printf(" %ld", waitv(waiters, 3, 0, 0, 0));
    returned = 1;
    pthread_join(thread, 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20000000;
    if (until.tv_nsec >= 1000000000)
        until.tv_sec++, until.tv_nsec -= 1000000000;
    printf(" %ld\n", waitv(waiters, 128, 0, &until, CLOCK_REALTIME));
}

static void released(void)
{
    int status, pair[2];
    pipe(pair);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    int fd = syscall(SYS_pidfd_open, child, 0);
    printf("mrelease: %ld %ld", told(syscall(SYS_process_mrelease, fd, 0)), told(syscall(SYS_process_mrelease, fd, 1)));
    printf(" %ld %ld", told(syscall(SYS_process_mrelease, pair[0], 0)), told(syscall(SYS_process_mrelease, 99, 0)));
    kill(child, SIGKILL);
    long result = told(syscall(SYS_process_mrelease, fd, 0));
    printf(" %d", result == 0 || result == -ESRCH);
    waitpid(child, &status, 0);
    printf(" %d %ld\n", WTERMSIG(status), told(syscall(SYS_process_mrelease, fd, 0)));
    close(fd);
    close(pair[0]);
    close(pair[1]);
}

static void segments(void)
{
    struct shmid_ds described;
    struct shminfo limits;
    struct shm_info totals;
    int none = shmctl(0, SHM_INFO, (void *)&totals);
    int first = shmget(IPC_PRIVATE, 3 * PAGE, 0600), second = shmget(1234, 5000, IPC_CREAT | 0600);
    char *memory = shmat(first, 0, 0);
    memory[0] = memory[PAGE] = 1;
    printf("shm: %d %ld", none, told(shmctl(0, IPC_INFO, (void *)&limits)));
    printf(" %lu %lu %lu %lu %lu", limits.shmmax, limits.shmmin, limits.shmmni, limits.shmseg, limits.shmall);
    printf(" %ld", told(shmctl(0, SHM_INFO, (void *)&totals)));
    printf(" %d %lu %lu %lu", totals.used_ids, totals.shm_tot, totals.shm_rss, totals.shm_swp);
    printf(" %d", shmctl(0, SHM_STAT, &described) == first);
    printf(" %lu %lu", described.shm_segsz, described.shm_nattch);
    printf(" %d", shmctl(1, SHM_STAT_ANY, &described) == second);
    printf(" %lu %ld", described.shm_segsz, told(shmctl(7, SHM_STAT, &described)));
    printf(" %ld %ld", told(shmctl(0, SHM_INFO, (void *)16)), told(shmctl(0, IPC_INFO, (void *)16)));
    printf(" %ld %ld", told(shmctl(second, SHM_UNLOCK, 0)), told(shmctl(77, SHM_LOCK, 0)));
    printf(" %ld", told(shmctl(first, 99, &described)));
    fflush(stdout);
    if (fork() == 0) {
        struct rlimit nothing = { 0, 0 };
        setrlimit(RLIMIT_MEMLOCK, &nothing);
        setresuid(7, 7, 7);
        printf(" user %ld", told(shmctl(first, SHM_LOCK, 0)));
        printf(" %ld", told(shmctl(first, SHM_UNLOCK, 0)));
        printf(" %ld", told(shmctl(0, SHM_STAT, &described)));
        printf(" %d", shmctl(0, SHM_STAT_ANY, &described) == first);
        int own = shmget(IPC_PRIVATE, PAGE, 0600);
        printf(" %ld", told(shmctl(own, SHM_LOCK, 0)));
        printf(" %ld", told(shmctl(own, SHM_UNLOCK, 0)));
        printf(" %ld", told(shmctl(own, IPC_RMID, 0)));
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    shmctl(first, IPC_RMID, 0);
    shmctl(second, IPC_RMID, 0);
    shmdt(memory);
    printf(" %ld", told(shmctl(0, SHM_INFO, (void *)&totals)));
    printf(" %d\n", totals.used_ids);
}

static unsigned mode(int id)
{
    struct shmid_ds described;
    shmctl(id, IPC_STAT, &described);
    return described.shm_perm.mode;
}

enum { LOCKED_PAGES = 8 };

/* How many pages of a segment are in memory once it was to be paged out. */
static int paged_out(char *memory)
{
    unsigned char present[LOCKED_PAGES];
    int count = 0;
    madvise(memory, LOCKED_PAGES * PAGE, MADV_PAGEOUT);
    mincore(memory, LOCKED_PAGES * PAGE, present);
    for (int i = 0; i < LOCKED_PAGES; i++)
        count += present[i] & 1;
    return count;
}

static void show(const char *before, int id, int command)
{
    printf("%s %ld", before, told(shmctl(id, command, 0)));
}

/* What a user without privileges may lock: 12 pages. */
static void locked_by_user(int foreign)
{
    struct rlimit twelve = { 12 * PAGE, 12 * PAGE }, nothing = { 0, 0 };
    struct shmid_ds described;
    setrlimit(RLIMIT_MEMLOCK, &twelve);
    setresuid(7, 7, 7);
    int large = shmget(IPC_PRIVATE, 8 * PAGE - 5, 0600), other = shmget(IPC_PRIVATE, 8 * PAGE, 0600);
    int small = shmget(IPC_PRIVATE, 3 * PAGE + 1, 0600), page = shmget(IPC_PRIVATE, PAGE, 0600);
    char *own = mmap(0, 12 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show(" user", foreign, SHM_LOCK);
    show("", foreign, SHM_UNLOCK);
    /* Locked memory has a count of its own. */
    printf(" %ld", told(mlock(own, 12 * PAGE)));
    show("", large, SHM_LOCK);
    show("", large, SHM_LOCK);
    show("", other, SHM_LOCK);
    show("", small, SHM_LOCK);
    show("", page, SHM_LOCK);
    printf(" %o %o", mode(small), mode(page));
    fflush(stdout);
    /* All processes of the user have one count. */
    if (fork() == 0) {
        show(" child", page, SHM_LOCK);
        show("", small, SHM_UNLOCK);
        show("", page, SHM_LOCK);
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    show("", small, SHM_LOCK);
    show("", page, SHM_UNLOCK);
    show("", small, SHM_LOCK);
    show("", small, SHM_UNLOCK);
    /* A removed segment counts until it is detached, and can be unlocked before. */
    char *memory = shmat(large, 0, 0);
    shmctl(large, IPC_RMID, 0);
    printf(" removed %o", mode(large));
    show("", other, SHM_LOCK);
    shmdt(memory);
    show("", other, SHM_LOCK);
    memory = shmat(other, 0, 0);
    shmctl(other, IPC_RMID, 0);
    show("", page, SHM_LOCK);
    show("", small, SHM_LOCK);
    show("", other, SHM_UNLOCK);
    show("", small, SHM_LOCK);
    shmdt(memory);
    /* The creator remains one of those who may lock it. */
    shmctl(page, IPC_STAT, &described);
    described.shm_perm.uid = 8;
    shmctl(page, IPC_SET, &described);
    printf(" owner %o", mode(page));
    show("", page, SHM_UNLOCK);
    show("", page, SHM_LOCK);
    setrlimit(RLIMIT_MEMLOCK, &nothing);
    show(" none", page, SHM_LOCK);
    show("", page, SHM_UNLOCK);
    shmctl(small, IPC_RMID, 0);
    shmctl(page, IPC_RMID, 0);
    fflush(stdout);
    _exit(0);
}

static void locked(void)
{
    struct shmid_ds described;
    int id = shmget(IPC_PRIVATE, LOCKED_PAGES * PAGE - 5, 0640);
    char *memory = shmat(id, 0, 0);
    memset(memory, 1, LOCKED_PAGES * PAGE);
    show("locked:", id, SHM_LOCK);
    printf(" %o %d", mode(id), paged_out(memory));
    show("", id, SHM_LOCK);
    printf(" %d", paged_out(memory));
    show("", id, SHM_UNLOCK);
    printf(" %o %d", mode(id), paged_out(memory));
    show("", id, SHM_UNLOCK);
    /* A page in swap stays once it is used. Linux reads others ahead. */
    show(" again", id, SHM_LOCK);
    memory[0] = 2;
    printf(" %d", paged_out(memory) > 0);
    memset(memory, 3, LOCKED_PAGES * PAGE);
    printf(" %d", paged_out(memory));
    fflush(stdout);
    if (fork() == 0)
        locked_by_user(id);
    wait(0);
    shmctl(id, IPC_STAT, &described);
    described.shm_perm.uid = 7;
    described.shm_perm.mode = 0600;
    shmctl(id, IPC_SET, &described);
    printf(" set %o", mode(id));
    fflush(stdout);
    /* The new owner may unlock what another user has locked. */
    if (fork() == 0) {
        setresuid(7, 7, 7);
        show("", id, SHM_UNLOCK);
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    printf(" %o %d\n", mode(id), paged_out(memory));
    shmctl(id, IPC_RMID, 0);
    shmdt(memory);
}

/* The pool of huge pages is empty. */
static void huge(void)
{
    int both = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    size_t size = 2 << 20;
    printf("huge:");
    for (int log = 0; log < 64; log++) {
        int flags = anonymous | MAP_HUGETLB | log << MAP_HUGE_SHIFT;
        if (log == 0 || log == 7 || log == 20 || log == 21 || log == 63)
            printf(" %ld", told((long)mmap(0, size, both, flags, -1, 0)));
    }
    printf(" %ld", told((long)mmap(0, 100, both, anonymous | MAP_HUGETLB, -1, 0)));
    printf(" %ld", told((long)mmap(0, size, both, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0)));
    printf(" %ld", told((long)mmap(0, 0, both, anonymous | MAP_HUGETLB, -1, 0)));
    int fd = memfd_create("file", 0);
    ftruncate(fd, size);
    printf(" %ld", told((long)mmap(0, size, both, MAP_SHARED | MAP_HUGETLB, fd, 0)));
    printf(" %ld", told((long)mmap(0, size, both, MAP_SHARED | MAP_HUGETLB, 99, 0)));
    printf(" %ld", told((long)mmap((void *)0x40001000, size, both, anonymous | MAP_HUGETLB | MAP_FIXED, -1, 0)));
    printf(" %ld", told((long)mmap((void *)0x40000000, size, both, anonymous | MAP_HUGETLB | MAP_FIXED, -1, 0)));
    printf(" %ld\n", told(shmget(IPC_PRIVATE, size, SHM_HUGETLB | 0600)));
    close(fd);
}

/* A lock whose word has the number of its owner. */
static unsigned *lock_word;
static volatile int owner_ends, interrupted;

static long pi(int command, unsigned *word, long ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return told(syscall(SYS_futex, word, command | FUTEX_PRIVATE_FLAG, 0, ms ? &until : 0));
}

static void pause_ms(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&time, &time) == -1)
        ;
}

static void *owns(void *until)
{
    *lock_word = 0;
    pi(FUTEX_LOCK_PI, lock_word, 0);
    while (!owner_ends)
        pause_ms(5);
    if (until)
        printf(" unlock %ld", pi(FUTEX_UNLOCK_PI, lock_word, 0));
    return 0;
}

static void handles(int signal)
{
    interrupted = 1;
}

static void *disturbs(void *to)
{
    while (!(*lock_word & FUTEX_WAITERS))
        pause_ms(5);
    pause_ms(50);
    pthread_kill(*(pthread_t *)to, SIGUSR1);
    pause_ms(50);
    owner_ends = 1;
    return 0;
}

/* Owns a lock and waits for another one. */
static void *waits(void *words)
{
    unsigned *own = words, *wanted = own + 1;
    pi(FUTEX_LOCK_PI, own, 0);
    pi(FUTEX_LOCK_PI, wanted, 0);
    pi(FUTEX_UNLOCK_PI, wanted, 0);
    pi(FUTEX_UNLOCK_PI, own, 0);
    return 0;
}

static void cycle(void)
{
    static volatile unsigned words[2];
    pthread_t thread;
    pi(FUTEX_LOCK_PI, (unsigned *)&words[1], 0);
    pthread_create(&thread, 0, waits, (void *)words);
    while (!(words[1] & FUTEX_WAITERS))
        pause_ms(5);
    printf("cycle: %ld", pi(FUTEX_LOCK_PI, (unsigned *)&words[0], 0));
    pi(FUTEX_UNLOCK_PI, (unsigned *)&words[1], 0);
    pthread_join(thread, 0);
    printf(" %x %x\n", words[0], words[1]);
}

static void owned(void)
{
    unsigned word = 0, me = syscall(SYS_gettid);
    pthread_t thread, other, self = pthread_self();
    lock_word = &word;
    printf("owner: %ld", pi(FUTEX_LOCK_PI, &word, 0));
    printf(" %d", word == me);
    printf(" %ld", pi(FUTEX_LOCK_PI, &word, 0));
    printf(" %ld", pi(FUTEX_TRYLOCK_PI, &word, 0));
    printf(" %d", word == me);
    printf(" %ld", pi(FUTEX_UNLOCK_PI, &word, 0));
    printf(" %u", word);
    printf(" %ld", pi(FUTEX_UNLOCK_PI, &word, 0));
    word = 0x1ffffff0;
    printf(" %ld", pi(FUTEX_LOCK_PI, &word, 0));
    word = FUTEX_OWNER_DIED;
    printf(" %ld", pi(FUTEX_LOCK_PI, &word, 0));
    printf(" %d", word == (me | FUTEX_OWNER_DIED));
    printf(" %ld", told(syscall(SYS_futex, (char *)&word + 1, FUTEX_LOCK_PI, 0, 0)));
    printf(" %ld\n", told(syscall(SYS_futex, "text", FUTEX_LOCK_PI, 0, 0)));
    word = 0;
    owner_ends = 0;
    pthread_create(&thread, 0, owns, &word);
    while (!*(volatile unsigned *)&word)
        pause_ms(5);
    printf("other: try %ld", pi(FUTEX_TRYLOCK_PI, &word, 0));
    printf(" %x", word & ~FUTEX_TID_MASK);
    printf(" unlock %ld", pi(FUTEX_UNLOCK_PI, &word, 0));
    printf(" late %ld", pi(FUTEX_LOCK_PI, &word, 50));
    struct sigaction action = { .sa_handler = handles };
    sigaction(SIGUSR1, &action, 0);
    pthread_create(&other, 0, disturbs, &self);
    long got = pi(FUTEX_LOCK_PI, &word, 0);
    pthread_join(thread, 0);
    pthread_join(other, 0);
    printf(" lock %ld %d %x interrupted %d", got, (word & FUTEX_TID_MASK) == me, word & ~FUTEX_TID_MASK, interrupted);
    printf(" unlock %ld", pi(FUTEX_UNLOCK_PI, &word, 0));
    printf(" %x\n", word);
    owner_ends = 0;
    word = 0;
    pthread_create(&thread, 0, owns, 0);
    while (!*(volatile unsigned *)&word)
        pause_ms(5);
    pthread_create(&other, 0, disturbs, &self);
    got = pi(FUTEX_LOCK_PI, &word, 0);
    pthread_join(thread, 0);
    pthread_join(other, 0);
    printf("ended: %ld %d %x\n", got, (word & FUTEX_TID_MASK) == me, word & FUTEX_OWNER_DIED);
    cycle();
}

static pthread_mutex_t mutex;
static int sum;

static void *adds(void *unused)
{
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&mutex);
        sum++;
        if (i % 16 == 0)
            sched_yield();
        pthread_mutex_unlock(&mutex);
    }
    return 0;
}

static void *leaves(void *unused)
{
    pthread_mutex_lock(&mutex);
    return 0;
}

static void inherited(void)
{
    pthread_mutexattr_t attributes;
    pthread_t threads[4];
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    printf("mutex: %d", pthread_mutex_init(&mutex, &attributes));
    for (int i = 0; i < 4; i++)
        pthread_create(threads + i, 0, adds, 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    printf(" %d", sum);
    pthread_create(threads, 0, leaves, 0);
    pthread_join(threads[0], 0);
    printf(" died %d", pthread_mutex_lock(&mutex) == EOWNERDEAD);
    printf(" %d", pthread_mutex_consistent(&mutex));
    printf(" %d\n", pthread_mutex_unlock(&mutex));
}

static void told_by_pidfd(void)
{
    siginfo_t info;
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    int fd = syscall(SYS_pidfd_open, child, 0), mine = syscall(SYS_pidfd_open, getpid(), 0);
    memset(&info, 0, sizeof info);
    info.si_signo = SIGTERM;
    printf("pidfd: %ld", told(syscall(SYS_pidfd_send_signal, fd, 0, 0, 0)));
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, 1, SIGTERM, 0, 0)));
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, fd, 65, 0, 0)));
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, fd, SIGTERM, 0, 64)));
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, fd, SIGTERM, &info, 0)));
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, &info, 0)));
    info.si_code = SI_QUEUE;
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, fd, SIGTERM, &info, 0)));
    int status;
    waitpid(child, &status, 0);
    printf(" %x", status);
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, fd, SIGTERM, 0, 0)));
    interrupted = 0;
    printf(" %ld", told(syscall(SYS_pidfd_send_signal, mine, SIGUSR1, 0, 0)));
    printf(" %d\n", interrupted);
}

/* What /proc/sys/kernel says and takes. */
static void kernel_settings(void)
{
    char text[32] = "";
    int file = open("/proc/sys/kernel/pid_max", O_RDONLY);
    read(file, text, sizeof text - 1);
    printf("pid_max %d", atoi(text));
    file = open("/proc/sys/kernel/shmmax", O_RDWR);
    printf(" shmmax %ld", told(write(file, "8192\n", 5)));
    printf(" %ld", told(write(file, "x", 1)));
    lseek(file, 0, SEEK_SET);
    printf(" %ld", told(write(file, "x", 1)));
    memset(text, 0, sizeof text);
    pread(file, text, sizeof text - 1, 0);
    printf(" %d", atoi(text));
    int id = shmget(IPC_PRIVATE, 8192, 0600);
    printf(" %d %ld\n", id >= 0, told(shmget(IPC_PRIVATE, 8193, 0600)));
    shmctl(id, IPC_RMID, 0);
    pwrite(file, "18446744073692774399\n", 21, 0);
}

static void show_cached(int file)
{
    unsigned char cached[4] = { 9, 9, 9, 9 };
    char *all = mmap(0, 4 * PAGE, PROT_READ, MAP_SHARED, file, 0);
    printf(" %ld ", told(mincore(all, 4 * PAGE, cached)));
    for (int i = 0; i < 4; i++)
        putchar('0' + (cached[i] & 1));
    munmap(all, 4 * PAGE);
}

/* A stranger does not learn which pages of a file are cached, and pages out none. */
static void strangers(void)
{
    int file = open("/tmp-cached", O_RDWR | O_CREAT, 0600);
    ftruncate(file, 4 * PAGE);
    pwrite(file, "a", 1, 0);
    pwrite(file, "b", 1, 2 * PAGE);
    for (int mode = 0644; mode <= 0666; mode += 022) {
        fchmod(file, mode);
        printf("%o: owner", mode);
        show_cached(file);
        pid_t child = fork();
        if (child == 0) {
            setuid(1000);
            int other = open("/tmp-cached", O_RDONLY);
            printf(" stranger");
            show_cached(other);
            volatile char *all = mmap(0, 4 * PAGE, PROT_READ, MAP_SHARED, other, 0);
            char seen = all[0] + all[2 * PAGE];
            printf(" out %ld", told(madvise((void *)all, 4 * PAGE, MADV_PAGEOUT)));
            _exit(0);
        }
        waitpid(child, 0, 0);
        printf(" owner");
        show_cached(file);
        printf("\n");
    }
    unlink("/tmp-cached");
    close(file);
}

int main()
{
    setvbuf(stdout, 0, _IONBF, 0);
    remapped();
    several();
    released();
    segments();
    locked();
    huge();
    owned();
    inherited();
    told_by_pidfd();
    kernel_settings();
    strangers();
    return 0;
}
