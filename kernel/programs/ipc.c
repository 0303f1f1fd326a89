/* Calls by which processes wait for each other and pass memory: waitid, select, eventfd, vmsplice, FUTEX_WAKE_OP, System V shared memory. Prints a line for each group. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <poll.h>
#include <unistd.h>

enum { PAGE = 4096 };

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static void tell(const siginfo_t *info, pid_t child)
{
    printf(" [%d %d %d %d %d]", info->si_signo, info->si_code, info->si_pid == child, info->si_uid, info->si_status);
}

static void waits(void)
{
    siginfo_t info;
    struct rusage usage;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    memset(&info, 9, sizeof info);
    printf("waitid: %ld", told(waitid(P_PID, child, &info, WEXITED | WNOWAIT)));
    tell(&info, child);
    printf(" %ld", told(waitid(P_PID, child, &info, WSTOPPED | WCONTINUED)));
    printf(" %ld", told(syscall(SYS_waitid, P_ALL, 0, &info, WEXITED, &usage)));
    tell(&info, child);
    printf(" %ld", told(waitid(P_ALL, 0, &info, WEXITED)));
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    memset(&info, 9, sizeof info);
    printf(" %ld", told(waitid(P_PID, child, &info, WEXITED | WNOHANG)));
    printf(" %d %d", info.si_signo, info.si_pid);
    printf(" %ld", told(waitid(P_PID, child, &info, WSTOPPED | WNOHANG)));
    kill(child, SIGKILL);
    printf(" %ld", told(waitid(P_PGID, 0, &info, WEXITED)));
    tell(&info, child);
    printf(" refused %ld %ld", told(waitid(P_PID, child, &info, 0)), told(waitid(9, child, &info, WEXITED)));
    printf(" %ld %ld", told(waitid(P_PID, 0, &info, WEXITED)), told(waitid(P_PIDFD, 99, &info, WEXITED)));
    printf(" %ld %ld", told(waitid(P_PID, getpid(), &info, WEXITED)), told(waitid(P_PID, child, &info, WEXITED | 8 << 20)));
    child = syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (child == 0)
        _exit(3);
    printf(" clone %ld", told(waitpid(child, &status, 0)));
    printf(" %d %x", waitpid(child, &status, __WCLONE) == child, status);
    printf(" %ld %ld\n", told(waitpid(-1, &status, 0x40)), told(waitpid((pid_t)0x80000000, &status, 0)));
}

static void nothing(int signal)
{
}

static void selects(void)
{
    int ends[2], other[2];
    fd_set in, out, except;
    struct timeval none = { 0, 0 }, some = { 0, 20000 };
    struct timespec zero = { 0, 0 };
    pipe(ends);
    pipe(other);
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&except);
    FD_SET(ends[0], &in);
    FD_SET(other[0], &in);
    FD_SET(ends[1], &out);
    printf("select: %ld", told(select(64, &in, &out, 0, &none)));
    printf(" %d %d %d", FD_ISSET(ends[0], &in), FD_ISSET(other[0], &in), FD_ISSET(ends[1], &out));
    FD_SET(ends[0], &in);
    printf(" %ld", told(select(ends[0] + 1, &in, 0, 0, &some)));
    printf(" %d %ld", FD_ISSET(ends[0], &in), (long)(some.tv_sec + some.tv_usec));
    pid_t child = fork();
    if (child == 0) {
        write(ends[1], "x", 1);
        _exit(0);
    }
    FD_SET(ends[0], &in);
    printf(" %ld", told(select(64, &in, 0, &except, 0)));
    printf(" %d", FD_ISSET(ends[0], &in));
    waitpid(child, 0, 0);
    close(other[1]);
    FD_ZERO(&in);
    FD_SET(other[0], &in);
    printf(" closed %ld", told(pselect(64, &in, 0, 0, &zero, 0)));
    FD_SET(60, &in);
    printf(" %ld %ld", told(select(64, &in, 0, 0, &none)), told(select(-1, 0, 0, 0, &none)));
    none.tv_sec = -1;
    printf(" %ld %ld", told(select(0, 0, 0, 0, &none)), told(syscall(SYS_pselect6, 8, 1, 0, 0, 0, 0)));
    /* A signal that the mask of the call lets through. */
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    signal(SIGUSR1, nothing);
    raise(SIGUSR1);
    printf(" signal %ld\n", told(pselect(0, 0, 0, 0, 0, &before)));
    sigprocmask(SIG_SETMASK, &before, 0);
    signal(SIGUSR1, SIG_DFL);
    close(ends[0]);
    close(ends[1]);
    close(other[0]);
}

static void events(void)
{
    uint64_t value = 5, most = -2, more = -1;
    int fd = eventfd(3, EFD_NONBLOCK), semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK), waiting = eventfd(0, 0);
    struct pollfd poller = { fd, POLLIN | POLLOUT };
    printf("eventfd: %ld", told(write(fd, &value, 8)));
    printf(" %ld", told(read(fd, &value, 8)));
    printf(" %ld %ld", value, told(read(fd, &value, 8)));
    poll(&poller, 1, 0);
    printf(" %x", poller.revents);
    printf(" %ld", told(write(fd, &most, 8)));
    poll(&poller, 1, 0);
    printf(" %x", poller.revents);
    value = 1;
    printf(" %ld %ld %ld", told(write(fd, &value, 8)), told(write(fd, &more, 8)), told(write(fd, &value, 4)));
    printf(" %ld %ld", told(read(fd, &value, 7)), told(read(fd, &value, 8)));
    printf(" semaphore");
    for (int i = 0; i < 3; i++) {
        value = 9;
        long got = told(read(semaphore, &value, 8));
        printf(" %ld %ld", got, value);
    }
    pid_t child = fork();
    if (child == 0) {
        value = 77;
        write(waiting, &value, 8);
        _exit(0);
    }
    long got = told(read(waiting, &value, 8));
    printf(" waited %ld %ld", got, value);
    waitpid(child, 0, 0);
    printf(" %ld %ld %ld\n", told(eventfd(0, 4)), told(lseek(fd, 0, SEEK_SET)), told(pread(fd, &value, 8, 0)));
}

static void ignored(void)
{
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, 0);
    raise(SIGUSR1);
    raise(SIGRTMIN);
    raise(SIGRTMIN);
    sigpending(&pending);
    printf("ignored: %d %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGRTMIN));
    signal(SIGUSR1, SIG_IGN);
    signal(SIGRTMIN, SIG_IGN);
    sigpending(&pending);
    printf(" %d %d", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGRTMIN));
    raise(SIGUSR1);
    sigpending(&pending);
    printf(" blocked %d", sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_UNBLOCK, &set, 0);
    sigprocmask(SIG_BLOCK, &set, 0);
    sigpending(&pending);
    printf(" %d\n", sigismember(&pending, SIGUSR1));
    signal(SIGUSR1, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &set, 0);
}

static volatile uint32_t words[2];

static void *sleeper(void *word)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 5, 0, 0, 0);
    return 0;
}

static long wake_op(int op, int argument, int compare, int with)
{
    return told(syscall(SYS_futex, &words[0], FUTEX_WAKE_OP_PRIVATE, 1, 1, &words[1], FUTEX_OP(op, argument, compare, with)));
}

static void wakes(void)
{
    words[1] = 12;
    printf("wake_op: %ld", wake_op(FUTEX_OP_SET, 7, FUTEX_OP_CMP_EQ, 12));
    printf(" %d %ld", words[1], wake_op(FUTEX_OP_ADD, -3, FUTEX_OP_CMP_GT, -1));
    printf(" %d %ld", words[1], wake_op(FUTEX_OP_OR, 3, FUTEX_OP_CMP_LT, 0));
    printf(" %d %ld", words[1], wake_op(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_LE, 0));
    printf(" %d %ld", words[1], wake_op(FUTEX_OP_XOR | FUTEX_OP_OPARG_SHIFT, 4, FUTEX_OP_CMP_GE, 0));
    printf(" %d %ld %ld", words[1], wake_op(5, 0, 0, 0), wake_op(FUTEX_OP_SET, 5, 6, 0));
    printf(" %ld", told(syscall(SYS_futex, &words[0], FUTEX_WAKE_OP_PRIVATE, 1, 1, 8, 0)));
    printf(" %ld", told(syscall(SYS_futex, &words[0], FUTEX_WAKE_OP_PRIVATE, 1, 1, (char *)words + 1, 0)));
    /* Both sleepers are woken, whenever they begin to sleep. */
    pthread_t threads[2];
    words[0] = words[1] = 5;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, sleeper, (void *)&words[i]);
    long woken = 0;
    while (woken < 2) {
        long now = wake_op(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 5);
        if (now < 0)
            break;
        woken += now;
        sched_yield();
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    printf(" woken %ld\n", woken);
}

static char *page(char fill)
{
    char *at = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(at, fill, PAGE);
    return at;
}

/* What a pipe gives after its page was changed, in the child that spliced it or in its parent (the cases of Linux's selftest cow.c). */
static void spliced(int before_fork, int unmaps, int child_splices)
{
    int data[2], go[2], done[2];
    char *at = page('a'), seen[PAGE], byte;
    struct iovec part = { at, PAGE };
    pipe(data);
    pipe(go);
    pipe(done);
    if (before_fork)
        printf(" %ld", told(vmsplice(data[1], &part, 1, 0)));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (child_splices) {
            vmsplice(data[1], &part, 1, 0);
            if (unmaps)
                munmap(at, PAGE);
            write(done[1], "x", 1);
            read(go[0], &byte, 1);
            read(data[0], seen, PAGE);
            _exit(seen[0] == 'a' && seen[PAGE - 1] == 'a');
        }
        write(done[1], "x", 1);
        read(go[0], &byte, 1);
        _exit(at[0] == 'a');
    }
    read(done[0], &byte, 1);
    memset(at, 'b', PAGE);
    write(go[1], "x", 1);
    int status;
    waitpid(child, &status, 0);
    printf("%d", WEXITSTATUS(status));
    if (before_fork) {
        read(data[0], seen, PAGE);
        printf("%c", seen[0]);
    }
    for (int i = 0; i < 2; i++) {
        close(data[i]);
        close(go[i]);
        close(done[i]);
    }
    munmap(at, PAGE);
}

static void splices(void)
{
    int ends[2];
    char *first = page('1'), *second = page('2'), seen[4 * PAGE];
    struct iovec parts[3] = { { first + 4000, 96 }, { second, 200 }, { first, 0 } };
    pipe(ends);
    printf("vmsplice: %ld", told(vmsplice(ends[1], parts, 3, 0)));
    write(ends[1], "tail", 4);
    second[0] = 'x';
    printf(" %ld", told(read(ends[0], seen, 50)));
    printf(" %ld", told(read(ends[0], seen + 50, sizeof seen - 50)));
    printf(" %c%c%c%c%.4s", seen[0], seen[95], seen[96], seen[97], seen + 296);
    /* A pipe has room for 16 pages. */
    struct iovec many[20];
    for (int i = 0; i < 20; i++)
        many[i] = (struct iovec) { second, PAGE };
    printf(" full %ld", told(vmsplice(ends[1], many, 20, SPLICE_F_NONBLOCK)));
    printf(" %ld", told(vmsplice(ends[1], many, 1, SPLICE_F_NONBLOCK)));
    long left = 0, got;
    while (left < 16 * PAGE && (got = read(ends[0], seen, sizeof seen)) > 0)
        left += got;
    printf(" %ld", left);
    struct iovec bad = { (void *)8, 5 }, into = { seen, 3 };
    printf(" bad %ld %ld %ld", told(vmsplice(ends[1], &bad, 1, 0)), told(vmsplice(ends[1], parts, 1, 99)), told(vmsplice(0, parts, 1, 0)));
    parts[1] = bad;
    printf(" %ld", told(vmsplice(ends[1], parts, 2, 0)));
    printf(" out %ld", told(vmsplice(ends[0], &into, 1, 0)));
    printf(" %.3s", seen);
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    printf(" %ld", told(vmsplice(ends[1], parts, 1, 0)));
    close(ends[1]);
    printf(" fork");
    spliced(0, 0, 1);
    spliced(0, 1, 1);
    spliced(1, 0, 0);
    printf("\n");
}

static long attached(int id)
{
    struct shmid_ds state;
    return shmctl(id, IPC_STAT, &state) ? -errno : (long)state.shm_nattch;
}

static int listed(int id)
{
    char line[300];
    int found = 0, at;
    FILE *file = fopen("/proc/sysvipc/shm", "r");
    while (file && fgets(line, sizeof line, file))
        found |= sscanf(line, "%*d %d", &at) == 1 && at == id;
    if (file)
        fclose(file);
    return found;
}

static long attach(int id, void *at, int flags)
{
    char *got = shmat(id, at, flags);
    return got == (char *)-1 ? -errno : got != 0;
}

static void segments(void)
{
    struct shmid_ds state;
    int id = shmget(0x1234, 2 * PAGE + 5, IPC_CREAT | 0640), other = shmget(IPC_PRIVATE, PAGE, 0600);
    printf("shm: %d %d", shmget(0x1234, 0, 0) == id, other != id);
    printf(" %ld %ld", told(shmget(0x1234, PAGE, IPC_CREAT | IPC_EXCL)), told(shmget(0x1234, 3 * PAGE, 0)));
    printf(" %ld %ld", told(shmget(0x4321, PAGE, 0)), told(shmget(0x4321, 0, IPC_CREAT)));
    char *first = shmat(id, 0, 0), *second = shmat(id, 0, SHM_RDONLY);
    first[2 * PAGE + 100] = 'x';
    printf(" %d %ld %c", first != second, attached(id), second[2 * PAGE + 100]);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        first[0] = 'c';
        printf(" child %ld", attached(id));
        printf(" %ld", told(shmdt(second)));
        printf(" %ld", attached(id));
        fflush(stdout);
        setresuid(1000, 1000, 1000);
        printf(" %ld %ld", attach(id, 0, SHM_RDONLY), told(shmctl(id, IPC_STAT, &state)));
        printf(" %ld %d", told(shmctl(id, IPC_RMID, 0)), shmget(0x1234, 0, 0400) == -1);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    printf(" %c %ld", second[0], attached(id));
    printf(" at %ld", attach(id, first, 0));
    printf(" %ld", attach(id, first + 1, 0));
    printf(" %ld", attach(id, 0, SHM_REMAP));
    printf(" %ld %ld", attach(-1, 0, 0), attach(9999, 0, 0));
    char *place = mmap(0, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf(" %d", shmat(id, place + 7, SHM_RND | SHM_REMAP) == place);
    printf(" %c", place[0]);
    printf(" %ld %ld", told(shmdt(place + PAGE)), told(shmdt(place)));
    memset(&state, 0, sizeof state);
    printf(" stat %ld", told(shmctl(id, IPC_STAT, &state)));
    printf(" %zu %o %x %d %d %d %d", state.shm_segsz, state.shm_perm.mode, state.shm_perm.__key, state.shm_perm.uid, state.shm_cpid == getpid(), state.shm_lpid == getpid(), state.shm_atime > 0 && state.shm_dtime > 0 && state.shm_ctime > 0);
    state.shm_perm.mode = 0604;
    state.shm_perm.uid = 1000;
    printf(" set %ld", told(shmctl(id, IPC_SET, &state)));
    shmctl(id, IPC_STAT, &state);
    printf(" %o %d", state.shm_perm.mode, state.shm_perm.uid);
    printf(" listed %d %d", listed(id), listed(other));
    printf(" removed %ld", told(shmctl(id, IPC_RMID, 0)));
    printf(" %ld", told(shmget(0x1234, 0, 0)));
    shmctl(id, IPC_STAT, &state);
    printf(" %o %x %ld %c", state.shm_perm.mode, state.shm_perm.__key, attached(id), first[0]);
    printf(" %ld", told(shmdt(first)));
    printf(" %ld", told(shmdt(first)));
    printf(" %ld", told(shmdt(second)));
    printf(" %ld %d", attached(id), listed(id));
    printf(" %ld", told(shmctl(other, IPC_RMID, 0)));
    printf(" %d\n", listed(other));
}

int main(void)
{
    waits();
    selects();
    events();
    ignored();
    wakes();
    splices();
    segments();
    return 0;
}
