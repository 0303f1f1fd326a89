/* Memory calls that others than the C library's start make, each with what it should do and what it should refuse. Prints a line for each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 100 };
#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* What a call gave: its result, or the error. */
static long told(long result)
{
    return result == -1 ? -errno : result;
}

static char *anonymous(int pages)
{
    return mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void memfd(void)
{
    char bytes[8] = { 0 };
    struct stat stat;
    int fd = memfd_create("name", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    printf("memfd: %ld %ld", told(ftruncate(fd, 3 * PAGE)), told(pwrite(fd, "written", 7, PAGE - 3)));
    char *shared = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    shared[PAGE + 4] = '!';
    printf(" %.7s", shared + PAGE - 3);
    memcpy(shared + 2 * PAGE, "mapped", 7);
    printf(" %ld %s", told(pread(fd, bytes, 7, 2 * PAGE)), bytes);
    printf(" %ld %ld", told(msync(shared, 3 * PAGE, MS_SYNC)), told(msync(shared + 1, PAGE, MS_SYNC)));
    printf(" hole %ld", told(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE)));
    printf(" %d %d", shared[PAGE], shared[PAGE - 3]);
    printf(" room %ld", told(fallocate(fd, 0, 0, 5 * PAGE)));
    fstat(fd, &stat);
    printf(" %ld %ld", (long)stat.st_size, told(fallocate(fd, 0, 0, 0)));
    printf(" seals %ld", told(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)));
    printf(" %ld", told(fcntl(fd, F_GET_SEALS)));
    printf(" %ld %ld", told(ftruncate(fd, 0)), told(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)));
    printf(" %ld\n", told(memfd_create("name", 0x8000)));
    munmap(shared, 3 * PAGE);
    close(fd);
}

static void residency(void)
{
    unsigned char vec[4] = { 9, 9, 9, 9 };
    char *memory = anonymous(4);
    memory[0] = memory[2 * PAGE] = 1;
    printf("mincore: %ld", told(mincore(memory, 4 * PAGE, vec)));
    for (int i = 0; i < 4; i++)
        printf(" %d", vec[i] & 1);
    printf(" %ld %ld", told(mincore(memory + 1, PAGE, vec)), told(mincore(memory, PAGE, (void *)16)));
    munmap(memory + 3 * PAGE, PAGE);
    printf(" %ld", told(mincore(memory, 4 * PAGE, vec)));
    printf(" %ld\n", told(msync(memory, 4 * PAGE, MS_ASYNC)));
}

/* Linux has it from 6.10 on. */
static void seal(void)
{
    char *memory = anonymous(2);
    int sealed = syscall(SYS_mseal, memory, 2 * PAGE, 0) == 0;
    int right = sealed ? munmap(memory, PAGE) == -1 && errno == EPERM && mprotect(memory, PAGE, PROT_READ) == -1 && errno == EPERM
                       : errno == ENOSYS;
    printf("mseal: %s\n", right ? "right" : "wrong");
}

static void others(void)
{
    char *memory = anonymous(2), *local = anonymous(1);
    int go[2], status, byte;
    strcpy(memory + PAGE - 4, "parent's");
    if (pipe(go))
        exit(2);
    pid_t child = fork();
    if (child == 0) {
        close(go[1]);
        strcpy(memory + PAGE - 4, "child's");
        byte = read(go[0], &byte, 1);
        _exit(memcmp(memory + PAGE - 4, "another", 8) ? 1 : 0);
    }
    close(go[0]);
    /* The child has written once it reads. */
    struct iovec ours[2] = { { local, 3 }, { local + 100, 5 } }, theirs = { memory + PAGE - 4, 8 };
    do
        if (process_vm_readv(child, ours, 2, &theirs, 1, 0) != 8)
            printf("readv: %d\n", errno);
    while (memcmp(local, "chi", 3));
    printf("process_vm: %.3s%.5s %.8s", local, local + 100, memory + PAGE - 4);
    memcpy(local, "another", 8);
    ours[0].iov_len = 8;
    printf(" %ld", told(process_vm_writev(child, ours, 1, &theirs, 1, 0)));
    theirs.iov_base = (void *)16;
    printf(" %ld", told(process_vm_readv(child, ours, 1, &theirs, 1, 0)));
    printf(" %ld %ld\n", told(process_vm_readv(999999, ours, 1, &theirs, 1, 0)), told(process_vm_readv(child, ours, 1, &theirs, 1, 1)));
    int fd = syscall(SYS_pidfd_open, child, 0);
    struct iovec range = { memory, 2 * PAGE };
    printf("process_madvise: %ld", told(syscall(SYS_process_madvise, fd, &range, 1, MADV_COLD, 0)));
    printf(" %ld", told(syscall(SYS_process_madvise, fd, &range, 1, MADV_DONTNEED, 0)));
    printf(" %ld", told(syscall(SYS_process_madvise, go[1], &range, 1, MADV_COLD, 0)));
    printf(" %ld\n", told(syscall(SYS_pidfd_open, 999999, 0)));
    close(go[1]);
    waitpid(child, &status, 0);
    printf("child: %d\n", status);
}

static void limits(void)
{
    struct rlimit old, set = { 64 << 20, RLIM_INFINITY }, bad = { 2, 1 };
    printf("limits: %ld", told(prlimit(0, RLIMIT_AS, &set, &old)));
    printf(" %d", mmap(0, 128 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? errno : 0);
    if (fork() == 0) {
        getrlimit(RLIMIT_AS, &set);
        _exit(set.rlim_cur >> 20);
    }
    int status;
    wait(&status);
    printf(" child %d", WEXITSTATUS(status));
    printf(" %ld", told(prlimit(0, RLIMIT_AS, &old, &set)));
    printf(" %ld", (long)(set.rlim_cur >> 20));
    printf(" %ld %ld %ld\n", told(prlimit(0, RLIMIT_AS, &bad, 0)), told(prlimit(0, 99, 0, &old)), told(prlimit(999999, RLIMIT_AS, 0, &old)));
}

static void *waits(void *argument)
{
    pause();
    return argument;
}

/* How often the program replaces itself: others are just about to sleep then, or sleep, or have not begun. */
static int rounds = ROUNDS;

static void *replaces(void *program)
{
    char left[12];
    char *words[] = { program, left, 0 };
    snprintf(left, sizeof left, "%d", rounds - 1);
    if (rounds == ROUNDS) {
        execv("/nowhere", words);
        printf("execve: %d\n", errno);
        fflush(stdout);
    }
    execv("/proc/self/exe", words);
    return 0;
}

static int replace(char *program)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], 0, i < 2 ? waits : replaces, program);
    pthread_join(threads[2], 0);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        /* The thread that replaced the program is its only one, and its first. */
        int alone = getpid() == (int)syscall(SYS_gettid);
        rounds = atoi(argv[1]);
        if (alone && rounds > 0)
            return replace(argv[0]);
        printf("alone: %d, rounds left: %d\n", alone, rounds);
        return 0;
    }
    memfd();
    residency();
    seal();
    others();
    limits();
    fflush(stdout);
    return replace(argv[0]);
}
