/* Arguments that Linux checks: of clone3, futex, execve, getrusage, mmap, read and write. Prints a line for each group. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, LARGE = 5 << 20 };

static long told(long result)
{
    return result == -1 ? -errno : result;
}

/* Makes a child that ends at once; gives its status, or the error. */
static long cloned(struct clone_args *arguments, size_t size)
{
    int status;
    long child = syscall(SYS_clone3, arguments, size);
    if (child == 0)
        _exit(7);
    if (child == -1)
        return -errno;
    return waitpid(child, &status, __WALL) == child ? WEXITSTATUS(status) : -errno;
}

static long flags(uint64_t flags, uint64_t signal)
{
    struct clone_args arguments = { .flags = flags, .exit_signal = signal };
    return cloned(&arguments, sizeof arguments);
}

static void clone3(void)
{
    struct { struct clone_args known; uint64_t more[2]; } larger = { { .exit_signal = SIGCHLD } };
    static char page[2 * PAGE];
    int pidfd = -1;
    pid_t wanted = 4000;
    struct clone_args arguments = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD };

    printf("size: %ld %ld", cloned(&larger.known, sizeof larger), cloned(&larger.known, 64));
    larger.more[1] = 1;
    printf(" %ld %ld", cloned(&larger.known, sizeof larger), cloned(&larger.known, 63));
    printf(" %ld %ld\n", cloned((void *)page, 2 * PAGE), cloned((void *)16, sizeof arguments));
    printf("flags: %ld %ld", flags(CLONE_SIGHAND, SIGCHLD), flags(CLONE_THREAD | CLONE_VM, 0));
    printf(" %ld %ld", flags(CLONE_DETACHED, SIGCHLD), flags(1ull << 40, SIGCHLD));
    printf(" %ld %ld", flags(CLONE_SIGHAND | CLONE_VM | CLONE_CLEAR_SIGHAND, SIGCHLD), flags(CLONE_CLEAR_SIGHAND, SIGCHLD));
    printf(" %ld %ld", flags(CLONE_PARENT, SIGCHLD), flags(CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, SIGCHLD));
    printf(" %ld %ld", flags(CLONE_IO | CLONE_UNTRACED | CLONE_PTRACE, SIGCHLD), flags(3, SIGCHLD));
    printf(" %ld %ld\n", flags(0, 65), flags(0, 1ull << 32 | SIGCHLD));
    printf("pidfd: %ld", cloned(&arguments, sizeof arguments));
    printf(" %d", fcntl(pidfd, F_GETFD));
    close(pidfd);
    arguments.pidfd = 16;
    printf(" %ld", cloned(&arguments, sizeof arguments));
    arguments = (struct clone_args){ .flags = CLONE_PIDFD | CLONE_PARENT_SETTID, .exit_signal = SIGCHLD };
    arguments.pidfd = arguments.parent_tid = (uintptr_t)&pidfd;
    printf(" %ld", cloned(&arguments, sizeof arguments));
    arguments = (struct clone_args){ .flags = CLONE_PIDFD | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM };
    arguments.pidfd = (uintptr_t)&pidfd;
    printf(" %ld\n", cloned(&arguments, sizeof arguments));
    arguments = (struct clone_args){ .exit_signal = SIGCHLD, .stack = (uintptr_t)page };
    printf("stack: %ld", cloned(&arguments, sizeof arguments));
    arguments = (struct clone_args){ .exit_signal = SIGCHLD, .stack_size = PAGE };
    printf(" %ld", cloned(&arguments, sizeof arguments));
    arguments = (struct clone_args){ .exit_signal = SIGCHLD, .stack = UINT64_MAX - PAGE, .stack_size = PAGE };
    printf(" %ld\n", cloned(&arguments, sizeof arguments));
    arguments = (struct clone_args){ .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1 };
    printf("number: %ld", cloned(&arguments, sizeof arguments));
    wanted = getpid();
    printf(" %ld", cloned(&arguments, sizeof arguments));
    wanted = -1;
    printf(" %ld", cloned(&arguments, sizeof arguments));
    arguments.set_tid_size = 0;
    printf(" %ld", cloned(&arguments, sizeof arguments));
    arguments.set_tid_size = 2;
    printf(" %ld", cloned(&arguments, sizeof arguments));
    arguments.set_tid = 16;
    printf(" %ld\n", cloned(&arguments, sizeof arguments));
}

/* A child of its grandparent. */
static void parents(void)
{
    int status = 0;
    pid_t middle = fork();
    if (middle == 0) {
        struct clone_args arguments = { .flags = CLONE_PARENT };
        long child = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (child == 0)
            _exit(9);
        _exit(child > 0 && waitpid(child, 0, __WALL) == -1 && errno == ECHILD);
    }
    waitpid(middle, &status, 0);
    printf("parent: %d", WEXITSTATUS(status));
    pid_t other = wait(&status);
    printf(" %d %d\n", other > 0, WEXITSTATUS(status));
}

static long futex(void *word, int command, int value, long timeout, void *second, int third)
{
    return told(syscall(SYS_futex, word, command, value, timeout, second, third));
}

static void futexes(void)
{
    int fd = memfd_create("word", 0), good = 0;
    ftruncate(fd, 2 * PAGE);
    char *none = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *cut = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *gone = cut + PAGE;
    char *fixed = mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ftruncate(fd, PAGE);
    void *bad[] = { (void *)PAGE, none, gone, fixed, (void *)(1ull << 63), (char *)&good + 1 };
    struct timespec odd = { 0, 1000000000 };
    for (int private = 0; private <= FUTEX_PRIVATE_FLAG; private += FUTEX_PRIVATE_FLAG) {
        printf("futex:");
        for (int i = 0; i < 6; i++) {
            printf(" %ld", futex(bad[i], FUTEX_WAKE | private, 1, 0, 0, 0));
            printf(" %ld", futex(bad[i], FUTEX_REQUEUE | private, 1, 1, &good, 0));
            printf(" %ld", futex(&good, FUTEX_REQUEUE | private, 1, 1, bad[i], 0));
            printf(" %ld", futex(bad[i], FUTEX_WAIT | private, 1, 0, 0, 0));
            printf(" %ld;", futex(bad[i], FUTEX_CMP_REQUEUE | private, 1, 1, &good, 1));
        }
        printf("\n");
    }
    printf("counts: %ld %ld", futex(&good, FUTEX_REQUEUE, -1, 1, &good, 0), futex(&good, FUTEX_REQUEUE, 1, -1, &good, 0));
    printf(" %ld %ld", futex(&good, FUTEX_CMP_REQUEUE, 1, -1, &good, 0), futex(&good, FUTEX_CMP_REQUEUE, 0, 0, &good, 5));
    printf(" %ld %ld", futex(&good, FUTEX_WAKE, -5, 0, 0, 0), futex(cut, FUTEX_WAKE, 1, 0, 0, 0));
    printf(" %ld %ld", futex(&good, FUTEX_WAKE_BITSET, 1, 0, 0, 0), futex(&good, FUTEX_WAIT_BITSET, 0, 0, 0, 0));
    printf(" %ld %ld", futex(&good, FUTEX_WAIT, 1, (long)&odd, 0, 0), futex(&good, FUTEX_WAIT, 1, 16, 0, 0));
    printf(" %ld %ld", futex((void *)2, FUTEX_WAIT, 1, 16, 0, 0), futex(&good, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, 0, 0, 0));
    printf(" %ld %ld\n", futex(&good, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 1, 0, 0, 0), futex(&good, 99, 1, 0, 0, 0));
    close(fd);
}

static void names(void)
{
    static char path[2 * PAGE], name[300];
    char *words[] = { "name", 0 };
    struct stat stat;
    struct rusage usage;
    memset(path, 'a', sizeof path - 1);
    memset(name, 'b', 256);
    for (int i = 0; i < PAGE; i += 2)
        path[i] = '/';
    printf("names: %ld %ld %ld", told(execv(path, words)), told(open(path, O_RDONLY)), told(lstat(path, &stat)));
    printf(" %ld %ld %ld", told(execv(name, words)), told(open(name, O_RDONLY | O_CREAT, 0600)), told(mkdir(name, 0700)));
    path[PAGE] = 0;
    printf(" %ld", told(access(path, F_OK)));
    path[PAGE - 1] = 0;
    printf(" %ld", told(access(path, F_OK)));
    name[255] = 0;
    printf(" %ld %ld\n", told(access(name, F_OK)), told(access("", F_OK)));
    printf("usage: %ld %ld", told(getrusage(-2, &usage)), told(getrusage(2, &usage)));
    printf(" %ld %ld", told(syscall(SYS_getrusage, RUSAGE_SELF, 16)), told(syscall(SYS_getrusage, 9, 16)));
    printf(" %ld %ld %ld\n", told(getrusage(RUSAGE_SELF, &usage)), told(getrusage(RUSAGE_CHILDREN, &usage)), told(getrusage(RUSAGE_THREAD, &usage)));
}

static long mapped(size_t size, int flags, int fd)
{
    void *at = mmap(0, size, PROT_READ, flags, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    munmap(at, size);
    return 0;
}

static void mappings(void)
{
    int fd = memfd_create("file", 0);
    ftruncate(fd, PAGE);
    printf("mmap: %ld %ld", mapped(PAGE, MAP_SHARED_VALIDATE, fd), mapped(PAGE, MAP_SHARED_VALIDATE | 1 << 27, fd));
    printf(" %ld %ld", mapped(PAGE, MAP_SHARED | 1 << 27, fd), mapped(PAGE, MAP_SHARED_VALIDATE | MAP_SYNC, fd));
    printf(" %ld %ld", mapped(PAGE, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1), mapped(PAGE, MAP_PRIVATE | MAP_HUGETLB, fd));
    printf(" %ld\n", mapped(PAGE, 0, fd));
    close(fd);
}

/* More than a MiB in one call, to a file, from it, and partly to memory that is not there. */
static void transfers(void)
{
    unsigned char *bytes = mmap(0, LARGE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = open("/transfer", O_RDWR | O_CREAT | O_TRUNC, 0600), zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < LARGE; i += 64)
        bytes[i] = i / 64 % 251;
    munmap(bytes + LARGE, PAGE);
    printf("transfers: %ld", told(write(fd, bytes, LARGE)));
    printf(" %ld", told(pwrite(fd, bytes + PAGE, LARGE, LARGE)));
    printf(" %ld", told(write(null, bytes, LARGE)));
    printf(" %ld", told(read(zero, bytes, LARGE)));
    int sum = 0;
    for (int i = 0; i < LARGE; i += 64)
        sum += bytes[i] != 0;
    printf(" %d", sum);
    printf(" %ld", told(pread(fd, bytes, LARGE, 0)));
    for (int i = 0; i < LARGE; i += 64)
        sum += bytes[i] != i / 64 % 251;
    printf(" %d", sum);
    printf(" %ld", told(pread(fd, bytes + PAGE, LARGE, 0)));
    printf(" %ld %ld", told(write(fd, (void *)16, 2)), told(read(fd, bytes, 0)));
    printf(" %ld %ld\n", told(read(zero, bytes + LARGE - PAGE, 2 * PAGE)), told(lseek(fd, 0, SEEK_END)));
    close(fd);
    close(zero);
    close(null);
    unlink("/transfer");
}

static void *stack;

static void handler(int signal, siginfo_t *info, void *context)
{
    _exit(signal == SIGSEGV ? 20 : 30);
}

/* What becomes of a signal whose handler has an alternate stack that it cannot write. */
static long alternate(int handled, int sent, int flags)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        stack_t other = { .ss_sp = mmap(0, 16 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 16 * PAGE };
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };
        sigaltstack(&other, 0);
        sigaction(handled, &action, 0);
        action.sa_flags = SA_SIGINFO | flags;
        if (flags != -1)
            sigaction(SIGSEGV, &action, 0);
        if (sent)
            kill(getpid(), sent);
        else
            *(volatile int *)16 = 1;
        _exit(40);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void)
{
    clone3();
    parents();
    futexes();
    names();
    mappings();
    transfers();
    printf("stacks: %ld %ld", alternate(SIGSEGV, 0, -1), alternate(SIGSEGV, SIGSEGV, -1));
    printf(" %ld %ld %ld\n", alternate(SIGUSR1, SIGUSR1, -1), alternate(SIGUSR1, SIGUSR1, 0), alternate(SIGUSR1, SIGUSR1, SA_ONSTACK));
    return 0;
}
