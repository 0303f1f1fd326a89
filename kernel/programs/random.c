/* Random system calls, by several processes at once, some of them root: random SEED CALLS. Their arguments are bad, plausible and right ones. Says whether as many calls
   were made as asked for, and whether memory came back. With a third argument, the number of a process, only that process makes its calls and tells each. */
/* Tests INV-KERNEL-CALLS. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, AT_ONCE = 4, CALLS = 200, NUMBERS = 470, ARENA = 64 * PAGE, LOST = 4 << 10, STUCK = 20, BIRTHS = 6 };
#define FOLDER "/tmp/random"

/* What a call takes: f descriptor, p pointer, P pointer to a pointer array, s path, z size, i number, F flags, t time, v iovec, h message, a address of a socket,
   m address in the arena, d process, g signal, o offset. A call that is missing here, and a quarter of the others, gets anything. */
static const struct {
    int number;
    const char *takes;
} known[] = {
    { SYS_read, "fpz" }, { SYS_write, "fpz" }, { SYS_readv, "fvi" }, { SYS_writev, "fvi" }, { SYS_pread64, "fpzo" }, { SYS_pwrite64, "fpzo" },
    { SYS_lseek, "foi" }, { SYS_close, "f" }, { SYS_dup, "f" }, { SYS_dup3, "ffF" }, { SYS_fcntl, "fii" }, { SYS_ioctl, "fip" }, { SYS_pipe2, "pF" },
    { SYS_flock, "fi" }, { SYS_fadvise64, "fozi" }, { SYS_readahead, "foz" }, { SYS_sendfile, "ffpz" }, { SYS_fsync, "f" }, { SYS_pidfd_open, "di" },
    { SYS_openat, "fsFi" }, { SYS_unlinkat, "fsF" }, { SYS_mkdirat, "fsi" }, { SYS_mknodat, "fsii" }, { SYS_symlinkat, "sfs" }, { SYS_readlinkat, "fspz" },
    { SYS_faccessat, "fsi" }, { SYS_faccessat2, "fsiF" }, { SYS_fchmodat, "fsi" }, { SYS_fchmod, "fi" }, { SYS_mount, "ssxFx" }, { SYS_umount2, "si" },
    { SYS_fchownat, "fsiiF" }, { SYS_fchown, "fii" }, { SYS_utimensat, "fstF" }, { SYS_statfs, "sp" }, { SYS_fstatfs, "fp" }, { SYS_getxattr, "sxpz" },
    { SYS_setxattr, "sxpzi" }, { SYS_fsetxattr, "fxpzi" }, { SYS_listxattr, "spz" }, { SYS_flistxattr, "fpz" }, { SYS_removexattr, "sx" },
    { SYS_linkat, "fsfsF" }, { SYS_renameat2, "fsfsi" }, { SYS_truncate, "so" }, { SYS_ftruncate, "fo" }, { SYS_chdir, "s" }, { SYS_getcwd, "pz" },
    { SYS_getdents64, "fpz" }, { SYS_fstat, "fp" }, { SYS_statx, "fsFip" }, { SYS_ppoll, "pitpz" }, { SYS_pselect6, "ippptp" }, { SYS_eventfd2, "iF" },
    { SYS_epoll_create1, "F" }, { SYS_epoll_ctl, "fifp" }, { SYS_epoll_pwait, "fpiipz" }, { SYS_epoll_pwait2, "fpitpz" }, { SYS_socket, "iFi" },
    { SYS_socketpair, "iFip" }, { SYS_bind, "faz" }, { SYS_listen, "fi" }, { SYS_accept, "fpp" }, { SYS_accept4, "fppF" }, { SYS_connect, "faz" },
    { SYS_getsockname, "fpp" }, { SYS_getpeername, "fpp" }, { SYS_shutdown, "fi" }, { SYS_sendto, "fpziaz" }, { SYS_recvfrom, "fpzipp" },
    { SYS_sendmsg, "fhi" }, { SYS_recvmsg, "fhi" }, { SYS_sendmmsg, "fhii" }, { SYS_recvmmsg, "fhiit" }, { SYS_setsockopt, "fiipz" },
    { SYS_getsockopt, "fiipp" }, { SYS_vmsplice, "fvii" }, { SYS_shmget, "izi" }, { SYS_shmat, "imi" }, { SYS_shmdt, "m" }, { SYS_shmctl, "iip" },
    { SYS_remap_file_pages, "mziii" }, { 448, "fi" }, { 449, "piiti" }, { SYS_clone, "Fpppp" }, { 435, "pz" }, { SYS_execve, "sPP" },
    { SYS_wait4, "dpip" }, { SYS_waitid, "idpip" }, { SYS_rt_sigaction, "gppz" }, { SYS_rt_sigprocmask, "ippz" }, { SYS_rt_sigtimedwait, "pptz" },
    { SYS_rt_sigsuspend, "pz" }, { SYS_rt_sigpending, "pz" }, { SYS_rt_sigqueueinfo, "dgp" }, { SYS_rt_tgsigqueueinfo, "ddgp" }, { SYS_sigaltstack, "pp" },
    { SYS_kill, "dg" }, { SYS_tkill, "dg" }, { SYS_tgkill, "ddg" }, { SYS_clock_gettime, "ip" }, { SYS_clock_nanosleep, "iitp" }, { SYS_nanosleep, "tp" },
    { SYS_setitimer, "ipp" }, { SYS_getitimer, "ip" }, { SYS_timer_create, "ipp" }, { SYS_timer_settime, "iipp" }, { SYS_timer_gettime, "ip" },
    { SYS_timer_getoverrun, "i" }, { SYS_timer_delete, "i" }, { SYS_getpgid, "d" }, { SYS_setpgid, "dd" }, { SYS_getsid, "d" }, { SYS_setgroups, "ip" },
    { SYS_getgroups, "ip" }, { SYS_capget, "pp" }, { SYS_capset, "pp" }, { SYS_set_robust_list, "pz" }, { SYS_get_robust_list, "dpp" },
    { SYS_getrandom, "pzF" }, { SYS_sysinfo, "p" }, { SYS_getrusage, "ip" }, { SYS_prctl, "iiiii" }, { SYS_getcpu, "pp" },
    { SYS_sched_getaffinity, "dzp" }, { SYS_sched_setaffinity, "dzp" }, { SYS_sched_setscheduler, "dip" }, { SYS_sched_setparam, "dp" },
    { SYS_sched_rr_get_interval, "dp" }, { SYS_mmap, "mzFFfo" }, { SYS_munmap, "mz" }, { SYS_mprotect, "mzi" }, { SYS_mremap, "mzzim" }, { SYS_madvise, "mzi" },
    { SYS_mincore, "mzp" }, { SYS_msync, "mzi" }, { SYS_mlock, "mz" }, { SYS_mlock2, "mzi" }, { SYS_munlock, "mz" }, { SYS_mlockall, "i" }, { SYS_brk, "m" },
    { SYS_memfd_create, "xF" }, { SYS_fallocate, "fioz" }, { SYS_process_vm_readv, "dvivii" }, { SYS_process_vm_writev, "dvivii" }, { 440, "fviii" },
    { SYS_prlimit64, "dipp" }, { SYS_futex, "piipti" }, { SYS_mbind, "mziipi" }, { SYS_get_mempolicy, "ppimi" }, { SYS_set_mempolicy, "ipi" },
    { SYS_move_pages, "dipppi" }, { SYS_migrate_pages, "dipp" }, { SYS_userfaultfd, "F" }, { SYS_swapon, "si" }, { SYS_swapoff, "s" }, { SYS_close_range, "iii" },
#ifdef SYS_open
    { SYS_open, "sFi" }, { SYS_stat, "sp" }, { SYS_poll, "pii" }, { SYS_fork, "" }, { SYS_vfork, "" }, { SYS_rename, "ss" }, { SYS_mkdir, "si" },
    { SYS_rmdir, "s" }, { SYS_unlink, "s" }, { SYS_link, "ss" }, { SYS_symlink, "ss" }, { SYS_select, "ipppt" }, { SYS_alarm, "i" }, { SYS_utime, "sp" },
    { SYS_epoll_wait, "fpii" }, { SYS_chown, "sii" }, { SYS_dup2, "ff" }, { SYS_arch_prctl, "ip" },
#endif
};

static const char *const paths[] = { ".", "..", "", "a", "b", "c/d", "c", "c/../a", "link", "./dangling", "fifo", "socket", "/", "/proc/self/mem", "/proc/self/maps",
    "/proc/self/smaps", "/proc/self/pagemap", "/proc/self/clear_refs", "/proc/self/fd/5", "/proc/self/fd", "/proc/self/task", "/proc/self/exe", "/proc/self/cwd/a",
    "/proc/self/environ", "/proc/self/oom_score_adj", "/proc/meminfo", "/proc/vmstat", "/proc/mounts", "/proc/sysvipc/shm", "/proc", "/sys/kernel/mm",
    "/dev/zero", "/dev/null", "/dev/shm/x", "/proc/sys/kernel/hostname", "/proc/cpuinfo", "/dev/zram0/x", "a/b", "././c/./d", "/proc/self/root/tmp", "/proc/1/cwd" };
static const char *const names[] = { "tmpfs", "proc", "sysfs", "trusted.x", "user.x", "security.y", "size=1M", "mode=700,uid=5", "" };

struct shared {
    unsigned long made[AT_ONCE];
    int born[AT_ONCE];
};
static struct shared *shared;
static FILE *trace;
static int supervisor, one, null;
static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545F4914F6CDD1D;
}

static uint64_t below(uint64_t limit)
{
    return draw() % limit;
}

/* Below: what processes share with no one. The arena is readable, writable, not accessible, shared and missing, in turns. */
static char *arena;
static uint64_t *words;
static int fds[12];

static uint64_t number(void)
{
    static const uint64_t ends[] = { 0, 1, 2, 7, 8, 15, 16, 31, 64, 127, 128, 255, 256, 511, 1023, 4095, 4096, 4097, 65535, 65536, 1 << 20, 0x7fffffff, 0x80000000,
        0xffffffff, 1ULL << 32, 1ULL << 47, (1ULL << 48) - 1, 1ULL << 63, INT64_MAX, -1ULL, -2ULL, -4096ULL, -4095ULL, -100ULL };
    switch (below(4)) {
    case 0: return below(20);
    case 1: return ends[below(sizeof ends / sizeof *ends)];
    case 2: return 1ULL << below(64) | 1ULL << below(32);
    default: return draw() >> below(64);
    }
}

static uint64_t within(void)
{
    uint64_t page = (uint64_t)arena + below(ARENA / PAGE) * PAGE;
    static const int offsets[] = { 0, 0, 0, 0, 8, 64, 1, 4088, 4095, 4092 };
    return page + offsets[below(10)];
}

static uint64_t pointer(void)
{
    static const uint64_t bad[] = { 0, 1, 4096, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000, 0xfffffffff000, 0x1000000000000, 0xffff800000000000, 0xffffffff80000000,
        0xffffffffffffffff, 0xfffffffffffff000 };
    switch (below(8)) {
    case 0: return bad[below(sizeof bad / sizeof *bad)];
    case 1: return number();
    case 2: case 3: return within();
    default: return (uint64_t)words + below(400) * 8;
    }
}

static uint64_t descriptor(void)
{
    return below(16) ? fds[below(12)] : below(2) ? -100 : number();
}

static uint64_t process(void)
{
    static const int few[] = { 0, 0, 0, -1 };
    int pid = below(3) ? getpid() : below(3) ? getpid() + (int)below(9) - 4 : below(3) ? few[below(4)] : (int)number();
    return pid == supervisor || pid == 1 || -pid == supervisor ? getpid() : pid;
}

static uint64_t any(char kind);

/* Words that mean something as a structure. */
static void fill(void)
{
    static const char kinds[] = "fpzimFdgoisi";
    for (int i = 0; i < 512; i++)
        words[i] = below(3) ? any(kinds[below(12)]) : any(kinds[below(12)]) << 32 | (uint32_t)any(kinds[below(12)]);
}

static uint64_t any(char kind)
{
    uint64_t *room = words + 520 + below(1000);
    switch (kind) {
    case 'f': return descriptor();
    case 'p': return pointer();
    case 's': return below(10) ? (uint64_t)paths[below(sizeof paths / sizeof *paths)] : pointer();
    case 'x': return below(10) ? (uint64_t)names[below(sizeof names / sizeof *names)] : pointer();
    case 'z': return below(3) ? below(3 * PAGE) : below(2) ? below(ARENA / PAGE) * PAGE : number();
    case 'o': return below(2) ? below(64) * PAGE : number();
    case 'i': return below(2) ? below(12) : number();
    case 'F': return below(2) ? 1ULL << below(32) | (below(2) ? 1ULL << below(20) : below(4)) : below(2) ? below(4) : number();
    case 'm': return below(8) ? within() & -PAGE : pointer();
    case 'd': return process();
    case 'g': return below(64);
    case 't':
        room[0] = below(8) ? 0 : number();
        room[1] = below(8) ? below(3000000) : number();
        return below(8) ? (uint64_t)room : below(2) ? 0 : pointer();
    case 'P':
        for (int i = 0; i < 4; i++)
            room[i] = below(3) ? (uint64_t)paths[below(8)] : below(2) ? 0 : pointer();
        room[4] = 0;
        return below(8) ? (uint64_t)room : pointer();
    case 'v':
        for (int i = 0; i < 8; i += 2)
            room[i] = pointer(), room[i + 1] = any('z');
        return below(8) ? (uint64_t)room : pointer();
    case 'a': {
        struct sockaddr_un { short family; char path[20]; } *at = (void *)room;
        at->family = below(8) ? 1 : below(40);
        strcpy(at->path + (below(3) == 0), below(2) ? "socket" : "a");
        return below(8) ? (uint64_t)room : pointer();
    }
    case 'h': {
        struct msghdr *message = (void *)room;
        memset(message, 0, sizeof *message);
        if (below(3) == 0)
            message->msg_name = (void *)any('a'), message->msg_namelen = below(40);
        message->msg_iov = (void *)any('v'), message->msg_iovlen = below(8) ? below(5) : number();
        if (below(2)) {
            struct cmsghdr *control = (void *)(words + 1600);
            control->cmsg_len = below(4) ? CMSG_LEN(sizeof(int) * below(4)) : number();
            control->cmsg_level = below(8) ? SOL_SOCKET : number();
            control->cmsg_type = below(8) ? below(2) + 1 : number();
            for (int i = 0; i < 4; i++)
                ((int *)CMSG_DATA(control))[i] = descriptor();
            message->msg_control = control, message->msg_controllen = below(4) ? CMSG_SPACE(16) : number();
        }
        return below(8) ? (uint64_t)room : pointer();
    }
    default: return number();
    }
}

static void on_signal(int signal)
{
}

static void prepare(int index)
{
    struct epoll_event event = { EPOLLIN };
    char name[64];
    int both = PROT_READ | PROT_WRITE;
    sprintf(name, FOLDER "/%d", index);
    if (mkdir(name, 0777) || chdir(name))
        _exit(1);
    chmod(name, 0777);
    if (one)
        trace = fdopen(fcntl(2, F_DUPFD_CLOEXEC, 200), "w");
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    close_range(3, 199, 0);
    if (below(4)) {
        setresgid(1000 + index, 1000 + index, 1000 + index);
        setresuid(1000 + index, 1000 + index, 1000 + index);
    }
    for (int signal = 1; signal < 65; signal++)
        if (signal != SIGSEGV && signal != SIGBUS && signal != SIGILL)
            sigaction(signal, &(struct sigaction){ .sa_handler = on_signal, .sa_flags = below(2) ? SA_RESTART : 0 }, 0);
    arena = mmap(0, ARENA, both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    words = mmap(0, 4 * PAGE, both, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fds[0] = open("a", O_RDWR | O_CREAT, 0666), fds[1] = open("/proc/self/exe", O_RDONLY), fds[2] = open(".", O_RDONLY | O_DIRECTORY);
    pipe(fds + 3);
    socketpair(AF_UNIX, below(2) ? SOCK_STREAM : SOCK_DGRAM, 0, fds + 5);
    fds[7] = epoll_create1(0), fds[8] = eventfd(below(3), 0), fds[9] = memfd_create("m", MFD_ALLOW_SEALING);
    fds[10] = syscall(SYS_pidfd_open, getpid(), 0), fds[11] = socket(AF_UNIX, SOCK_STREAM, 0);
    epoll_ctl(fds[7], EPOLL_CTL_ADD, fds[3 + below(6)], &event);
    ftruncate(fds[0], 8 * PAGE), ftruncate(fds[9], 8 * PAGE);
    mkdir("c", 0777), symlink("a", "link"), symlink("none", "dangling"), mkfifo("fifo", 0666);
    mmap(arena + 8 * PAGE, 8 * PAGE, both, MAP_SHARED | MAP_FIXED, fds[0], 0);
    mmap(arena + 16 * PAGE, 8 * PAGE, both, MAP_PRIVATE | MAP_FIXED, fds[9], 0);
    mmap(arena + 24 * PAGE, 8 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fds[9], 0);
    mprotect(arena + 32 * PAGE, 8 * PAGE, PROT_NONE);
    munmap(arena + 40 * PAGE, 4 * PAGE);
    memset(arena, 1, 12 * PAGE);
}

/* Numbers that end a process are drawn less often, and of what is a command to the whole machine nothing. */
static int choose(void)
{
    for (;;) {
        int number = below(4) ? known[below(sizeof known / sizeof *known)].number : (int)below(NUMBERS);
        int ends = number == SYS_exit || number == SYS_exit_group || number == SYS_rt_sigreturn;
        if (number != SYS_reboot && (!ends || below(8) == 0))
            return number;
    }
}

/* Whether this is not yet another call that makes a process. */
static int may_call(int number, int slot)
{
    int makes = number == SYS_clone || number == 435;
#ifdef SYS_fork
    makes |= number == SYS_fork || number == SYS_vfork;
#endif
    return makes == 0 || __atomic_add_fetch(&shared->born[slot], 1, __ATOMIC_RELAXED) <= BIRTHS;
}

static void calls(int slot)
{
    for (int i = 0; i < CALLS; i++) {
        uint64_t a[6];
        int number = choose();
        const char *takes = "";
        for (unsigned row = 0; row < sizeof known / sizeof *known; row++)
            if (known[row].number == number && below(4))
                takes = known[row].takes;
        if (may_call(number, slot) == 0)
            continue;
        fill();
        for (int j = 0; j < 6; j++)
            a[j] = any(j < (int)strlen(takes) ? takes[j] : "fpszidgmtv"[below(10)]);
        if (*takes == 0 && ((int)a[0] == supervisor || (int)a[0] == 1))
            a[0] = getpid();
        if (one)
            fprintf(trace, "%d: %d(%lx, %lx, %lx, %lx, %lx, %lx)", getpid(), number, a[0], a[1], a[2], a[3], a[4], a[5]), fflush(trace);
        long result = syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        if (one)
            fprintf(trace, " = %ld\n", result == -1 ? -errno : result), fflush(trace);
        __atomic_fetch_add(&shared->made[slot], 1, __ATOMIC_RELAXED);
    }
    _exit(0);
}

static void empty(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    char name[600];
    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        while (umount2(name, 0) == 0)
            ;
        if (unlink(name)) {
            empty(name);
            rmdir(name);
        }
    }
    if (folder)
        closedir(folder);
}

static void clean(void)
{
    struct shmid_ds segment;
    struct shm_info totals;
    int id, last = shmctl(0, SHM_INFO, (void *)&totals);
    for (int i = 0; i <= last; i++)
        if ((id = shmctl(i, SHM_STAT, &segment)) != -1)
            shmctl(id, IPC_RMID, 0);
    empty(FOLDER);
    empty("/dev/shm");
}

static long free_kib(void)
{
    char text[4096];
    int file = open("/proc/meminfo", O_RDONLY);
    long size = read(file, text, sizeof text - 1);
    close(file);
    text[size > 0 ? size : 0] = 0;
    const char *line = strstr(text, "MemFree:");
    return line ? atol(line + 8) : 0;
}

/* Some processes at once, and how many calls they made; one that has made no call for long is killed, and whatever is left at the end. */
static unsigned long round_of(uint64_t seed, int first)
{
    int pids[AT_ONCE], stuck[AT_ONCE] = { 0 }, left = AT_ONCE;
    unsigned long before[AT_ONCE], made = 0;
    for (int slot = 0; slot < AT_ONCE; slot++) {
        before[slot] = -1;
        shared->made[slot] = shared->born[slot] = 0;
        if ((pids[slot] = one && one != first + slot ? -1 : fork()) == 0) {
            state = (seed * 1000003 + first + slot) * 0x9E3779B97F4A7C15 | 1;
            for (int i = 0; i < 8; i++)
                draw();
            sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
            FILE *adjustment = fopen("/proc/self/oom_score_adj", "w");
            fputs("500", adjustment), fclose(adjustment);
            setsid();
            prepare(first + slot);
            calls(slot);
        }
        left -= pids[slot] == -1;
    }
    while (left) {
        int ended;
        usleep(2000);
        while ((ended = waitpid(-1, 0, WNOHANG)) > 0)
            for (int slot = 0; slot < AT_ONCE; slot++)
                if (pids[slot] == ended)
                    pids[slot] = -1, left--;
        if (ended == -1 && errno == ECHILD)
            break;
        for (int slot = 0; slot < AT_ONCE; slot++) {
            unsigned long now = __atomic_load_n(&shared->made[slot], __ATOMIC_RELAXED);
            stuck[slot] = now == before[slot] ? stuck[slot] + 1 : 0;
            before[slot] = now;
            if (pids[slot] != -1 && stuck[slot] >= STUCK)
                kill(pids[slot], SIGKILL);
        }
    }
    do {
        kill(-1, SIGKILL);
        usleep(1000);
    } while (waitpid(-1, 0, WNOHANG) != -1 || errno != ECHILD);
    clean();
    for (int slot = 0; slot < AT_ONCE; slot++)
        made += shared->made[slot] <= CALLS * (BIRTHS + 1) ? shared->made[slot] : 0;
    return made;
}

int main(int count, char **words)
{
    if (count < 3 || atol(words[2]) == 0)
        return 0;
    uint64_t seed = atol(words[1]);
    unsigned long wanted = atol(words[2]), made = 0;
    long warm = 0;
    int first = 1;
    one = count > 3 ? atoi(words[3]) : 0;
    supervisor = getpid();
    /* Opened here, because a call may remove its name. */
    null = open("/dev/null", O_RDWR);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    mkdir(FOLDER, 0777);
    /* Where no call finds it by chance. */
    shared = mmap((void *)0x123456789000, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    FILE *adjustment = fopen("/proc/self/oom_score_adj", "w");
    fputs("-1000", adjustment), fclose(adjustment);
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 50 });
    for (; made < wanted && (one == 0 || first <= one); first += AT_ONCE) {
        if (one == 0 || one < first + AT_ONCE)
            made += round_of(seed, first);
        if (warm == 0 && made >= wanted / 4)
            warm = free_kib();
        if (one)
            fprintf(stderr, "random: %lu calls of %d processes, %ld KiB free\n", made, first + AT_ONCE - 1, free_kib());
    }
    long lost = warm - free_kib();
    if (made < wanted || lost > LOST)
        printf("%lu calls of %d processes, %ld KiB less free\n", made, first - 1, lost);
    printf("random: %s, %s\n", made >= wanted ? "all calls made" : "too few calls", lost <= LOST ? "memory came back" : "memory is lost");
    return 0;
}
