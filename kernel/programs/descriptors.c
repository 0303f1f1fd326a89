/* Extended attributes, what can be synced, the limit of descriptors, several messages by one call, requests of ioctl, transfers to bad
   addresses. Prints a line for each group. */
/* Tests INV-KERNEL-DESCRIPTORS, INV-KERNEL-MESSAGES, INV-KERNEL-TAKEN, INV-KERNEL-REQUESTS. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static const char *names[] = { "user.a", "trusted.a", "security.a", "system.posix_acl_access", "system.posix_acl_default", "bogus", "", "trusted.", "system.a" };

enum { NAMES = sizeof names / sizeof *names };

static void by_path(const char *path)
{
    char bytes[256];
    printf(" %s", path);
    for (int i = 0; i < NAMES; i++)
        printf(" %ld/%ld", told(getxattr(path, names[i], bytes, sizeof bytes)), told(removexattr(path, names[i])));
    printf(" %ld", told(listxattr(path, bytes, sizeof bytes)));
}

static void by_descriptor(int fd)
{
    char bytes[256];
    for (int i = 0; i < NAMES; i++)
        printf(" %ld", told(fgetxattr(fd, names[i], bytes, sizeof bytes)));
    printf(" %ld", told(flistxattr(fd, bytes, sizeof bytes)));
}

static void show_list(const char *path)
{
    char bytes[256];
    long len = told(listxattr(path, bytes, sizeof bytes));
    printf(" %ld ", len);
    for (int i = 0; i < len; i++)
        putchar(bytes[i] ? bytes[i] : '|');
}

static void attributes(void)
{
    char bytes[300], caps[20] = { 1, 0, 0, 2 };
    struct stat before, after;
    int pipes[2], pair[2], file = open("/attributes", O_RDWR | O_CREAT, 0644);
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    symlink("/attributes", "/link");
    printf("paths:");
    by_path("/attributes");
    by_path("/absent");
    by_path("/proc/self/comm");
    by_path("/dev/null");
    printf("\ndescriptors:");
    by_descriptor(file);
    by_descriptor(pipes[0]);
    by_descriptor(99);
    printf(" %ld %s\n", told(fgetxattr(pair[0], "system.sockprotoname", bytes, sizeof bytes)), bytes);
    printf("set: %ld", told(setxattr("/attributes", "trusted.a", "hello", 5, 0)));
    printf(" %ld", told(setxattr("/attributes", "trusted.a", "hellos", 6, XATTR_CREATE)));
    printf(" %ld", told(setxattr("/attributes", "trusted.b", "x", 1, XATTR_REPLACE)));
    printf(" %ld", told(fsetxattr(file, "security.z", "", 0, 0)));
    printf(" %ld", told(setxattr("/attributes", "trusted.a", "x", 1, 4)));
    printf(" %ld", told(setxattr("/attributes", "trusted.a", "x", 65537, 0)));
    printf(" %ld", told(setxattr("/attributes", "trusted.a", 0, 5, 0)));
    printf(" %ld", told(setxattr("/attributes", "user.a", "x", 1, 0)));
    printf(" %ld", told(setxattr("/attributes", "system.posix_acl_access", "x", 1, 0)));
    printf(" %ld", told(setxattr("/attributes", "security.capability", "x", 1, 0)));
    printf(" %ld", told(getxattr("/attributes", "trusted.a", bytes, 4)));
    printf(" %ld", told(getxattr("/attributes", "trusted.a", 0, 0)));
    printf(" %ld", told(getxattr("/attributes", "trusted.a", bytes, 5)));
    printf(" %.5s", bytes);
    show_list("/attributes");
    printf(" %ld %ld", told(listxattr("/attributes", 0, 0)), told(listxattr("/attributes", bytes, 5)));
    memset(bytes, 'n', sizeof bytes);
    memcpy(bytes, "trusted.", 8);
    bytes[256] = 0;
    printf(" %ld", told(setxattr("/attributes", bytes, "x", 1, 0)));
    bytes[255] = 0;
    printf(" %ld", told(setxattr("/attributes", bytes, "x", 1, 0)));
    printf(" %ld\n", told(removexattr("/attributes", bytes)));
    printf("link: %ld", told(getxattr("/link", "trusted.a", bytes, sizeof bytes)));
    printf(" %ld", told(lgetxattr("/link", "trusted.a", bytes, sizeof bytes)));
    printf(" %ld", told(lsetxattr("/link", "trusted.l", "q", 1, 0)));
    printf(" %ld %ld", told(lsetxattr("/link", "user.a", "q", 1, 0)), told(lgetxattr("/link", "system.posix_acl_access", bytes, 9)));
    printf(" %ld", told(llistxattr("/link", bytes, sizeof bytes)));
    printf(" %ld", told(lremovexattr("/link", "trusted.l")));
    fstat(file, &before);
    usleep(20000);
    fsetxattr(file, "trusted.a", "later", 5, XATTR_REPLACE);
    fstat(file, &after);
    printf(" %d %d", memcmp(&before.st_ctim, &after.st_ctim, sizeof before.st_ctim) != 0, memcmp(&before.st_mtim, &after.st_mtim, sizeof before.st_mtim) != 0);
    rename("/attributes", "/renamed");
    show_list("/renamed");
    printf("\nuser:");
    fflush(stdout);
    if (fork() == 0) {
        setresuid(1000, 1000, 1000);
        printf(" %ld", told(getxattr("/renamed", "trusted.a", bytes, sizeof bytes)));
        printf(" %ld", told(getxattr("/renamed", "security.z", bytes, sizeof bytes)));
        printf(" %ld %ld", told(setxattr("/renamed", "trusted.z", "1", 1, 0)), told(setxattr("/renamed", "user.z", "1", 1, 0)));
        printf(" %ld %ld", told(setxattr("/renamed", "security.capability", caps, 20, 0)), told(removexattr("/renamed", "system.posix_acl_access")));
        show_list("/renamed");
        printf("\n");
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    unlink("/renamed");
    unlink("/link");
    for (int fd = 3; fd < 20; fd++)
        close(fd);
}

static void synced(void)
{
    const char *paths[] = { "/dev/null", "/dev/zero", "/proc/self/comm", "/", "/sys/devices/system/cpu" };
    int pipes[2], pair[2], file = open("/synced", O_RDWR | O_CREAT, 0644);
    struct statfs of_file;
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    printf("synced: %ld %ld %ld", told(fsync(file)), told(fdatasync(file)), told(fsync(99)));
    printf(" %ld %ld %ld", told(fsync(pipes[0])), told(fdatasync(pipes[1])), told(fsync(pair[0])));
    printf(" %ld %ld", told(fsync(epoll_create1(0))), told(fdatasync(eventfd(0, 0))));
    printf(" %ld", told(fsync(memfd_create("name", 0))));
    for (int i = 0; i < 5; i++)
        printf(" %ld", told(fsync(open(paths[i], O_RDONLY))));
    for (int i = 2; i < 5; i++)
        printf(" %ld/%lx", told(statfs(paths[i], &of_file)), (long)of_file.f_type);
    printf("\n");
    unlink("/synced");
    for (int fd = 3; fd < 20; fd++)
        close(fd);
}

static void limits(void)
{
    struct rlimit limit, old, less = { 20, 30 };
    struct pollfd polled[64];
    int ends[2], last = -1, fd, pair[2];
    getrlimit(RLIMIT_NOFILE, &old);
    printf("limits: %ld %ld", (long)old.rlim_cur, (long)old.rlim_max);
    setrlimit(RLIMIT_NOFILE, &less);
    while ((fd = dup(0)) >= 0)
        last = fd;
    printf(" %d %d", last, errno);
    printf(" %ld %ld", told(open("/", O_RDONLY)), told(socket(AF_UNIX, SOCK_STREAM, 0)));
    printf(" %ld %ld", told(eventfd(0, 0)), told(epoll_create1(0)));
    printf(" %ld %ld", told(memfd_create("name", 0)), told(pipe(ends)));
    printf(" %ld %ld", told(dup2(0, 20)), told(dup2(0, 25)));
    printf(" %ld %ld", told(dup2(99, 20)), told(dup3(0, 40, 0)));
    printf(" %ld %ld", told(fcntl(0, F_DUPFD, 20)), told(fcntl(0, F_DUPFD, 10)));
    for (int i = 0; i < 64; i++)
        polled[i].fd = -1;
    printf(" poll %ld %ld", told(poll(polled, 20, 0)), told(poll(polled, 21, 0)));
    close(19);
    printf(" %ld", told(pipe(ends)));
    printf(" %ld", told(dup(0)));
    close(5);
    close(7);
    printf(" %ld", told(pipe(ends)));
    printf(" %d %d", ends[0], ends[1]);
    less.rlim_cur = 10;
    printf(" lower %ld", told(setrlimit(RLIMIT_NOFILE, &less)));
    printf(" %ld %ld", told(dup2(0, 15)), told(fcntl(15, F_GETFD)));
    close(15);
    printf(" %ld", told(dup(0)));
    close(3);
    printf(" %ld\n", told(dup(0)));
    for (fd = 3; fd < 20; fd++)
        close(fd);
    limit.rlim_cur = limit.rlim_max = 1048577;
    printf("most: %ld", told(setrlimit(RLIMIT_NOFILE, &limit)));
    limit.rlim_cur = limit.rlim_max = 1048576;
    printf(" %ld", told(setrlimit(RLIMIT_NOFILE, &limit)));
    printf(" %ld", told(dup2(0, 5000)));
    printf(" %ld", told(fcntl(0, F_DUPFD, 4000)));
    fflush(stdout);
    if (fork() == 0) {
        printf(" child %ld %ld", told(fcntl(5000, F_GETFD)), told(dup(0)));
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    /* Descriptors without a place are not received. */
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    char control[CMSG_SPACE(3 * sizeof(int))] = { 0 }, byte = 'x';
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(3 * sizeof(int));
    limit.rlim_cur = 6;
    setrlimit(RLIMIT_NOFILE, &limit);
    printf(" sent %ld", told(sendmsg(pair[0], &message, 0)));
    printf(" %ld", told(recvmsg(pair[1], &message, 0)));
    printf(" %d %ld", (message.msg_flags & MSG_CTRUNC) != 0, (long)(header->cmsg_len - CMSG_LEN(0)) / 4);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(63, &set);
    limit.rlim_cur = 1024;
    setrlimit(RLIMIT_NOFILE, &limit);
    struct timeval none = { 0 };
    printf(" select %ld\n", told(select(64, &set, 0, 0, &none)));
    setrlimit(RLIMIT_NOFILE, &old);
    close(4000);
    close(5000);
    for (fd = 3; fd < 20; fd++)
        close(fd);
}

static volatile int alarms;

static void on_alarm(int signal)
{
    alarms++;
}

/* A process that sends two messages, each after so many microseconds. */
static pid_t sending(int socket, unsigned delay, const char *first, const char *second)
{
    pid_t child = fork();
    if (child == 0) {
        usleep(delay);
        send(socket, first, strlen(first), 0);
        usleep(delay);
        send(socket, second, strlen(second), 0);
        _exit(0);
    }
    return child;
}

static void messages(void)
{
    enum { COUNT = 4 };
    char texts[COUNT][8] = { "one", "two", "three", "four" }, back[COUNT][8];
    struct iovec out[COUNT], in[COUNT];
    struct mmsghdr sent[COUNT], received[COUNT];
    struct timespec short_time = { 0, 50000000 }, bad = { 0, -1 };
    struct sigaction action = { .sa_handler = on_alarm };
    struct itimerval timer = { { 0, 50000 }, { 0, 50000 } }, off = { { 0 }, { 0 } };
    int pair[2], packets[2];
    memset(sent, 0, sizeof sent);
    memset(received, 0, sizeof received);
    for (int i = 0; i < COUNT; i++) {
        out[i] = (struct iovec){ texts[i], strlen(texts[i]) };
        in[i] = (struct iovec){ back[i], sizeof back[i] };
        sent[i].msg_hdr.msg_iov = &out[i];
        received[i].msg_hdr.msg_iov = &in[i];
        sent[i].msg_hdr.msg_iovlen = received[i].msg_hdr.msg_iovlen = 1;
    }
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    printf("messages: %ld", told(sendmmsg(pair[0], sent, COUNT, 0)));
    printf(" %u %u", sent[0].msg_len, sent[2].msg_len);
    printf(" %ld", told(recvmmsg(pair[1], received, 3, 0, 0)));
    printf(" %u %.3s %.5s", received[2].msg_len, back[0], back[2]);
    printf(" %ld", told(recvmmsg(pair[1], received, COUNT, MSG_DONTWAIT, 0)));
    printf(" %.4s %ld", back[0], told(recvmmsg(pair[1], received, COUNT, MSG_DONTWAIT, 0)));
    printf(" %ld %ld", told(sendmmsg(99, sent, 1, 0)), told(sendmmsg(1, sent, 1, 0)));
    printf(" %ld %ld", told(sendmmsg(pair[0], sent, 0, 0)), told(recvmmsg(pair[1], received, 0, 0, 0)));
    printf(" %ld", told(sendmmsg(pair[0], (void *)16, 1, 0)));
    printf(" %ld", told(recvmmsg(pair[1], received, 1, 0, &bad)));
    /* An error after the first one ends the call. */
    out[2].iov_base = (void *)16;
    printf(" %ld", told(sendmmsg(pair[0], sent, COUNT, 0)));
    out[2].iov_base = texts[2];
    /* One is waited for, and others are taken if they are there. */
    printf(" %ld", told(recvmmsg(pair[1], received, COUNT, MSG_WAITFORONE, 0)));
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        send(pair[0], "late", 4, 0);
        _exit(0);
    }
    printf(" %ld", told(recvmmsg(pair[1], received, COUNT, MSG_WAITFORONE, 0)));
    printf(" %.4s", back[0]);
    waitpid(child, 0, 0);
    /* It sleeps between messages, and a signal ends it after the first. */
    sigaction(SIGALRM, &action, 0);
    child = sending(pair[0], 20000, "first", "second");
    printf(" both %ld", told(recvmmsg(pair[1], received, 2, 0, 0)));
    printf(" %.5s %.6s", back[0], back[1]);
    waitpid(child, 0, 0);
    /* The timer repeats: on a busy machine a signal may come before the call waits. */
    setitimer(ITIMER_REAL, &timer, 0);
    send(pair[0], "again", 5, 0);
    printf(" signal %ld", told(recvmmsg(pair[1], received, 2, 0, 0)));
    close(pair[0]);
    close(pair[1]);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    printf(" %ld", told(recvmmsg(pair[1], received, 2, 0, 0)));
    setitimer(ITIMER_REAL, &off, 0);
    printf(" %d", alarms >= 2);
    /* The time limit is looked at after a message. */
    child = sending(pair[0], 100000, "late", "later");
    printf(" timeout %ld", told(recvmmsg(pair[1], received, 2, 0, &short_time)));
    printf(" %ld %ld", (long)short_time.tv_sec, short_time.tv_nsec);
    waitpid(child, 0, 0);
    printf(" %ld\n", told(recvmmsg(pair[1], received, 2, MSG_DONTWAIT, 0)));
    /* A call that waits for room continues after the messages that it has sent. */
    static char big[65536];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets);
    for (int i = 0; i < COUNT; i++)
        out[i] = (struct iovec){ big, sizeof big };
    fflush(stdout);
    child = fork();
    if (child == 0) {
        long all = 0;
        usleep(50000);
        for (int i = 0; i < 2 * COUNT; i++)
            all += recv(packets[1], big, sizeof big, 0) == sizeof big;
        printf("room: %ld", all);
        fflush(stdout);
        _exit(0);
    }
    long first = told(sendmmsg(packets[0], sent, COUNT, 0)), second = told(sendmmsg(packets[0], sent, COUNT, 0));
    waitpid(child, 0, 0);
    printf(" %ld %ld %u", first, second, sent[3].msg_len);
    close(packets[1]);
    signal(SIGPIPE, SIG_IGN);
    printf(" %ld\n", told(sendmmsg(packets[0], sent, COUNT, 0)));
}

static void show(long result)
{
    printf(" %ld", result);
}

/* What a kind of file answers to requests: those that every file knows, the count of its bytes, those of terminals, and an unknown one. */
static void requests_of(const char *kind, int fd)
{
    struct termios terminal;
    struct winsize size;
    int on = 1, off = 0, count = -1, block = -1;
    long long bytes = -1;
    printf(" %s", kind);
    show(told(ioctl(fd, FIONBIO, &on)));
    printf(" %d", fcntl(fd, F_GETFL) & O_NONBLOCK);
    show(told(ioctl(fd, FIONBIO, (void *)16)));
    show(told(ioctl(fd, FIONBIO, &off)));
    printf(" %d", fcntl(fd, F_GETFL) & O_NONBLOCK);
    show(told(ioctl(fd, FIOCLEX)));
    printf(" %d", fcntl(fd, F_GETFD));
    show(told(ioctl(fd, FIONCLEX)));
    printf(" %d", fcntl(fd, F_GETFD));
    show(told(ioctl(fd, FIONREAD, &count)));
    printf(" %d", count);
    show(told(ioctl(fd, FIONREAD, (void *)16)));
    show(told(ioctl(fd, FIOASYNC, &off)));
    show(told(ioctl(fd, FIOASYNC, (void *)16)));
    show(told(ioctl(fd, FIGETBSZ, &block)));
    printf(" %d", block);
    show(told(ioctl(fd, FIOQSIZE, &bytes)));
    printf(" %lld", bytes);
    show(told(ioctl(fd, TCGETS, &terminal)));
    show(told(ioctl(fd, TIOCGWINSZ, &size)));
    show(told(ioctl(fd, TIOCGPGRP, &count)));
    show(told(ioctl(fd, BLKGETSIZE64, &bytes)));
    printf(" %ld;", told(ioctl(fd, 0x1234, 0)));
}

static int named_socket(int type, const char *name)
{
    struct sockaddr_un address = { AF_UNIX };
    int fd = socket(AF_UNIX, type, 0);
    strcpy(address.sun_path + 1, name);
    bind(fd, (void *)&address, sizeof address);
    listen(fd, 4);
    return fd;
}

static int connected_to(const char *name)
{
    struct sockaddr_un address = { AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(address.sun_path + 1, name);
    connect(fd, (void *)&address, sizeof address);
    return fd;
}

static void close_all(void)
{
    for (int fd = 3; fd < 40; fd++)
        close(fd);
}

static void requests(void)
{
    char bytes[64];
    int pipes[2], stream[2], packets[2], datagrams[2], count;
    int file = open("/requested", O_RDWR | O_CREAT, 0644), name = open("/proc/self/comm", O_RDONLY);
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, stream);
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams);
    write(pipes[1], "0123456789", 10);
    for (int i = 0; i < 2; i++) {
        write(stream[0], "0123", 4);
        write(packets[0], "01234", 5);
        write(datagrams[0], "012345", 6);
    }
    read(stream[1], bytes, 3);
    write(file, "0123456789", 10);
    lseek(file, 3, SEEK_SET);
    read(name, bytes, 2);
    printf("requests:");
    requests_of("pipe", pipes[0]);
    requests_of("pipe", pipes[1]);
    requests_of("stream", stream[1]);
    requests_of("packets", packets[1]);
    requests_of("datagrams", datagrams[1]);
    requests_of("listener", named_socket(SOCK_STREAM, "requests"));
    printf("\nrequests:");
    requests_of("file", file);
    lseek(file, 20, SEEK_SET);
    requests_of("file", file);
    requests_of("directory", open("/", O_RDONLY));
    requests_of("memfd", memfd_create("name", 0));
    requests_of("proc", name);
    requests_of("proc directory", open("/proc/self", O_RDONLY));
    printf("\nrequests:");
    requests_of("epoll", epoll_create1(0));
    requests_of("eventfd", eventfd(3, 0));
    requests_of("pidfd", syscall(SYS_pidfd_open, getpid(), 0));
    requests_of("null", open("/dev/null", O_RDWR));
    requests_of("zero", open("/dev/zero", O_RDWR));
    requests_of("urandom", open("/dev/urandom", O_RDONLY));
    requests_of("closed", 99);
    printf("\nqueued: %ld", told(ioctl(datagrams[1], SIOCOUTQ, &count)));
    printf(" %d", count);
    show(told(ioctl(datagrams[0], SIOCOUTQ, &count)));
    printf(" %d", count > 12);
    show(told(ioctl(pipes[0], SIOCOUTQ, &count)));
    printf("\nothers: %ld", told(dup3(0, 30, O_NONBLOCK)));
    show(told(dup3(30, 30, 0)));
    show(told(getrandom(bytes, 10, 8)));
    show(told(getrandom(bytes, 10, GRND_RANDOM | 4)));
    show(told(readlink("/proc/self/exe", bytes, 0)));
    printf(" %ld\n", told(syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", bytes, -1)));
    unlink("/requested");
    close_all();
}

/* Runs this program as a child and reads its output and its errors together, as Rust's Command::output does. */
static void output_of_child(void)
{
    char got[2][16] = { "", "" };
    int out[2], errors[2], on = 1, status;
    size_t len[2] = { 0, 0 };
    pipe2(out, O_CLOEXEC);
    pipe2(errors, O_CLOEXEC);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], 1);
        dup2(errors[1], 2);
        execl("/proc/self/exe", "descriptors", "say", (char *)0);
        _exit(1);
    }
    close(out[1]);
    close(errors[1]);
    struct pollfd ends[2] = { { out[0], POLLIN }, { errors[0], POLLIN } };
    printf("output: %ld", told(ioctl(out[0], FIOCLEX)));
    show(told(ioctl(errors[0], FIOCLEX)));
    show(told(ioctl(out[0], FIONBIO, &on)));
    show(told(ioctl(errors[0], FIONBIO, &on)));
    for (int open_ends = 2; open_ends > 0 && poll(ends, 2, -1) > 0;)
        for (int i = 0; i < 2; i++)
            if (ends[i].revents) {
                ssize_t more = read(ends[i].fd, got[i] + len[i], sizeof got[i] - 1 - len[i]);
                if (more > 0)
                    len[i] += more;
                else if (more == 0 || errno != EAGAIN) {
                    ends[i].fd = -1;
                    open_ends--;
                }
            }
    waitpid(child, &status, 0);
    printf(" %s", got[0]);
    printf(" %s", got[1]);
    printf(" %d\n", WEXITSTATUS(status));
    close_all();
}

enum { PAGE = 4096 };

/* The first address that cannot be written or read, and one that can, `count` bytes before it. */
static char *bad;

static char *before(int count)
{
    return bad - count;
}

static long left_in(int fd)
{
    int count = -1;
    long result = told(ioctl(fd, FIONREAD, &count));
    return result < 0 ? result : count;
}

static long read_parts(int fd, int good)
{
    char there[PAGE];
    struct iovec parts[2] = { { there, good }, { bad, 6 } };
    return told(readv(fd, parts, 2));
}

static void bad_pipes(void)
{
    static char page[2 * PAGE];
    struct iovec spliced = { page, 10 }, unread = { bad, 10 }, parts[2] = { { page, 10 }, { bad, 10 } };
    int pipes[2], written = 0;
    struct pollfd polled;
    pipe2(pipes, O_NONBLOCK);
    write(pipes[1], "0123456789", 10);
    printf("bad pipes: %ld", told(read(pipes[0], bad, 10)));
    show(left_in(pipes[0]));
    show(read_parts(pipes[0], 4));
    show(left_in(pipes[0]));
    show(told(read(pipes[0], before(4), 10)));
    show(left_in(pipes[0]));
    show(told(read(pipes[0], before(4), 4)));
    show(left_in(pipes[0]));
    printf(" %.4s", before(4));
    show(told(read(pipes[0], page, 100)));
    show(told(read(pipes[0], bad, 1)));
    /* Each page is read as a whole or not at all. */
    write(pipes[1], page, 2 * PAGE);
    write(pipes[1], "01", 2);
    printf(" pages %ld", told(read(pipes[0], before(PAGE + 64), 2 * PAGE)));
    show(left_in(pipes[0]));
    show(read_parts(pipes[0], PAGE));
    show(left_in(pipes[0]));
    show(read_parts(pipes[0], 2));
    show(told(read(pipes[0], page, 100)));
    printf(" spliced %ld", told(vmsplice(pipes[1], &spliced, 1, 0)));
    show(told(read(pipes[0], bad, 10)));
    show(told(vmsplice(pipes[0], &unread, 1, 0)));
    show(left_in(pipes[0]));
    show(told(read(pipes[0], page, 100)));
    printf("\nbad pipe writes: %ld", told(write(pipes[1], bad, 10)));
    show(told(write(pipes[1], before(4), 10)));
    show(told(writev(pipes[1], parts, 2)));
    show(left_in(pipes[0]));
    show(told(write(pipes[1], before(PAGE), 2 * PAGE)));
    show(left_in(pipes[0]));
    write(pipes[1], "01", 2);
    /* Bytes are added to the page of the last ones. */
    show(told(write(pipes[1], before(4), 10)));
    show(left_in(pipes[0]));
    while (read(pipes[0], page, sizeof page) > 0)
        ;
    close(pipes[0]);
    signal(SIGPIPE, SIG_IGN);
    printf(" %ld\n", told(write(pipes[1], bad, 10)));
    signal(SIGPIPE, SIG_DFL);
    close_all();
    /* A pipe has slots of a page each. */
    pipe2(pipes, O_NONBLOCK);
    while (write(pipes[1], page, 2049) == 2049)
        written++;
    polled = (struct pollfd){ pipes[1], POLLOUT };
    printf("slots: %d", written);
    show(told(write(pipes[1], page, 2047)));
    show(told(write(pipes[1], page, 1)));
    printf(" %d", poll(&polled, 1, 0));
    show(told(read(pipes[0], page, 2000)));
    printf(" %d", poll(&polled, 1, 0));
    show(told(read(pipes[0], page, 49)));
    printf(" %d", poll(&polled, 1, 0));
    show(told(write(pipes[1], page, 2 * PAGE)));
    show(told(write(pipes[1], page, 1)));
    printf(" %ld\n", left_in(pipes[0]));
    close_all();
}

static long receive_descriptor(int socket, void *to, size_t len, void *control, size_t room, int *received, unsigned *flags)
{
    struct iovec part = { to, len };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room };
    long result = told(recvmsg(socket, &message, MSG_DONTWAIT));
    struct cmsghdr *header = control == bad ? 0 : CMSG_FIRSTHDR(&message);
    *received = result >= 0 && header ? *(int *)CMSG_DATA(header) : -1;
    *flags = message.msg_flags;
    return result < 0 ? result : result * 1000 + (long)message.msg_controllen;
}

static void send_descriptor(int socket, int fd)
{
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec part = { "fd", 2 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    sendmsg(socket, &message, 0);
}

static void bad_sockets(void)
{
    static const int types[] = { SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM };
    for (int i = 0; i < 3; i++) {
        char there[64] = "", control[64];
        int pair[2], received, on = 1;
        unsigned flags, len = sizeof(struct sockaddr_un);
        socketpair(AF_UNIX, types[i] | SOCK_NONBLOCK, 0, pair);
        send(pair[0], "0123456789", 10, 0);
        send(pair[0], "01234", 5, 0);
        printf("bad sockets: %ld", told(recv(pair[1], bad, 10, MSG_PEEK)));
        show(left_in(pair[1]));
        show(told(recv(pair[1], bad, 10, 0)));
        show(left_in(pair[1]));
        show(read_parts(pair[1], 4));
        show(left_in(pair[1]));
        for (int more = 0; more < 2; more++) {
            send(pair[0], "0123456789", 10, 0);
            send(pair[0], "01234", 5, 0);
        }
        /* A message that fits before the bad address is received, and the next one stays. */
        show(told(recv(pair[1], before(10), 15, MSG_WAITALL)));
        show(left_in(pair[1]));
        while (recv(pair[1], there, sizeof there, MSG_DONTWAIT) > 0)
            ;
        send(pair[0], "0123456789", 10, 0);
        printf(" address %ld", told(recvfrom(pair[1], there, 10, 0, (void *)bad, (void *)bad)));
        show(left_in(pair[1]));
        send_descriptor(pair[0], 0);
        printf(" fd %ld", receive_descriptor(pair[1], bad, 2, control, sizeof control, &received, &flags));
        printf(" %d", received);
        show(receive_descriptor(pair[1], there, 2, control, sizeof control, &received, &flags));
        printf(" %d", received);
        printf(" %x", flags);
        close(received);
        send_descriptor(pair[0], 0);
        show(receive_descriptor(pair[1], there, 2, bad, sizeof control, &received, &flags));
        printf(" %x", flags);
        printf(" %d", dup(0));
        setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
        send(pair[0], "x", 1, 0);
        show(receive_descriptor(pair[1], there, 2, bad, sizeof control, &received, &flags));
        printf(" %x\n", flags);
        close_all();
    }
    char there[8];
    struct iovec parts[2] = { { there, 4 }, { bad, 4 } };
    struct mmsghdr each[2] = { { { .msg_iov = &parts[0], .msg_iovlen = 1 } }, { { .msg_iov = &parts[1], .msg_iovlen = 1 } } };
    int pair[2];
    struct timespec *bad_time = (void *)16;
    printf("bad messages:");
    for (int i = 0; i < 3; i++) {
        socketpair(AF_UNIX, types[i] | SOCK_NONBLOCK, 0, pair);
        send(pair[0], "0123", 4, 0);
        send(pair[0], "4567", 4, 0);
        show(told(recvmmsg(pair[1], each, 2, MSG_DONTWAIT, 0)));
        printf(" %u", each[0].msg_len);
        show(left_in(pair[1]));
        show(told(recvmmsg(pair[1], (void *)bad, 1, MSG_DONTWAIT, 0)));
        show(left_in(pair[1]));
        close_all();
    }
    int listener = named_socket(SOCK_STREAM | SOCK_NONBLOCK, "bad"), client = connected_to("bad");
    unsigned len = sizeof(struct sockaddr_un);
    printf(" accept %ld", told(accept(listener, (void *)bad, &len)));
    show(told(accept(listener, 0, 0)));
    printf(" %ld\n", told(read(client, there, 1)));
    close_all();
}

static long entries_of(char *bytes, long len)
{
    long count = 0;
    for (long at = 0; at < len; at += ((struct dirent64 *)(bytes + at))->d_reclen)
        count++;
    return len < 0 ? len : count;
}

/* Where a copy is short, the good bytes are whole cache lines, because a copy may stop at the last of these. */
enum { LINE = 64 };

static void bad_files(void)
{
    static char there[1024];
    struct iovec part = { before(LINE), 2 * LINE };
    int file = open("/bad", O_RDWR | O_CREAT, 0644), name, zero, directory;
    memset(there, 'a', sizeof there);
    write(file, there, 8 * LINE);
    lseek(file, 0, SEEK_SET);
    printf("bad files: %ld", told(read(file, bad, 10)));
    show(told(lseek(file, 0, SEEK_CUR)));
    show(told(read(file, before(LINE), 2 * LINE)));
    show(told(lseek(file, 0, SEEK_CUR)));
    show(read_parts(file, LINE));
    show(told(lseek(file, 0, SEEK_CUR)));
    show(told(pread(file, before(LINE), 2 * LINE, LINE)));
    show(told(preadv(file, &part, 1, LINE)));
    show(told(preadv(file, &part, 1, -1)));
    show(told(pwritev(file, &part, 1, 7 * LINE + 4)));
    show(told(lseek(file, 0, SEEK_END)));
    show(told(write(file, before(LINE), 2 * LINE)));
    show(told(lseek(file, 0, SEEK_CUR)));
    show(told(write(file, bad, 10)));
    show(told(lseek(file, 0, SEEK_CUR)));
    prctl(PR_SET_NAME, "longname");
    name = open("/proc/self/comm", O_RDONLY);
    printf(" proc %ld", told(read(name, bad, 10)));
    show(told(read(name, there, 4)));
    show(told(read(name, bad, 10)));
    show(told(read(name, there, 20)));
    printf(" %.4s", there);
    name = open("/proc/self/maps", O_RDONLY);
    printf(" maps %ld", told(read(name, bad, 10)));
    show(told(read(name, before(LINE), 2 * LINE)));
    show(told(lseek(name, 0, SEEK_CUR)));
    show(told(read(name, there, 20)));
    /* These are stored as a whole or not at all. */
    static const char *wholes[] = { "/proc/self/mem", "/proc/self/pagemap", "/proc/sys/kernel/ostype" };
    for (int i = 0; i < 3; i++) {
        struct iovec parts[2] = { { before(16), 16 }, { bad, 16 } };
        long start = i == 0 ? (long)there : i == 1 ? (long)there / PAGE * 8 : 0;
        int whole = open(wholes[i], O_RDONLY);
        lseek(whole, start, SEEK_SET);
        printf(" whole %ld", told(read(whole, before(i == 1 ? 8 : 4), 16)));
        show(lseek(whole, 0, SEEK_CUR) - start);
        show(told(readv(whole, parts, 2)));
        show(lseek(whole, 0, SEEK_CUR) - start);
    }
    int host = open("/proc/sys/kernel/hostname", O_RDWR);
    memcpy(before(4), "next", 4);
    sethostname("first", 5);
    printf(" setting %ld", told(write(host, before(4), 6)));
    gethostname(there, sizeof there);
    printf(" %s", there);
    zero = open("/dev/zero", O_RDONLY);
    printf(" zero %ld", told(read(zero, before(LINE), 2 * LINE)));
    show(told(read(zero, bad, 20)));
    printf(" random %ld", told(getrandom(before(LINE), 2 * LINE, 0)));
    show(told(getrandom(bad, 20, 0)));
    printf(" %ld\n", told(getrandom(there, 1000, 0)));
    mkdir("/listed", 0755);
    mkdir("/listed/a", 0755);
    mkdir("/listed/b", 0755);
    directory = open("/listed", O_RDONLY);
    printf("bad listings: %ld", told(syscall(SYS_getdents64, directory, bad, sizeof there)));
    show(told(syscall(SYS_getdents64, directory, there, 10)));
    show(told(syscall(SYS_getdents64, directory, before(24), sizeof there)));
    show(entries_of(there, told(syscall(SYS_getdents64, directory, there, 60))));
    show(told(syscall(SYS_getdents64, directory, bad, sizeof there)));
    show(entries_of(there, told(syscall(SYS_getdents64, directory, there, sizeof there))));
    printf(" %ld\n", told(syscall(SYS_getdents64, directory, bad, sizeof there)));
    rmdir("/listed/a");
    rmdir("/listed/b");
    rmdir("/listed");
    unlink("/bad");
    close_all();
}

static pid_t ended_child(int status)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(status);
    siginfo_t info;
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    return child;
}

static void bad_results(void)
{
    struct epoll_event event = { EPOLLIN | EPOLLET }, found[2];
    int counter = eventfd(5, EFD_NONBLOCK), other = eventfd(1, EFD_NONBLOCK), epoll = epoll_create1(0), status = 0;
    unsigned long long value;
    siginfo_t info;
    sigset_t set;
    struct timespec none = { 0, 0 };
    printf("bad results: %ld", told(read(counter, bad, 8)));
    show(told(read(counter, &value, 8)));
    value = 7;
    write(counter, &value, 8);
    show(told(read(counter, before(4), 8)));
    show(told(read(counter, &value, 8)));
    write(counter, &value, 8);
    epoll_ctl(epoll, EPOLL_CTL_ADD, counter, &event);
    epoll_ctl(epoll, EPOLL_CTL_ADD, other, &event);
    printf(" epoll %ld", told(epoll_wait(epoll, (void *)bad, 2, 0)));
    show(told(epoll_wait(epoll, (void *)before(sizeof event), 2, 0)));
    show(told(epoll_wait(epoll, found, 2, 0)));
    show(told(epoll_wait(epoll, found, 2, 0)));
    pid_t child = ended_child(3);
    printf(" wait %ld", told(wait4(child, (void *)bad, 0, 0)));
    show(told(wait4(child, 0, 0, 0)));
    child = ended_child(4);
    show(told(wait4(child, &status, 0, (void *)bad)));
    printf(" %d", WEXITSTATUS(status));
    show(told(wait4(child, 0, 0, 0)));
    child = ended_child(5);
    show(told(syscall(SYS_waitid, P_PID, child, bad, WEXITED, 0)));
    show(told(waitid(P_PID, child, &info, WEXITED)));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    kill(getpid(), SIGUSR1);
    printf(" signal %ld", told(syscall(SYS_rt_sigtimedwait, &set, bad, &none, 8)));
    show(told(sigtimedwait(&set, 0, &none)));
    printf(" paths %ld", told(syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", bad, 10)));
    printf(" %ld\n", told(syscall(SYS_getcwd, bad, 10)));
    close_all();
}

/* What a descriptor that only names a file is good for, and for nothing else. */
static void path_only(void)
{
    char byte = 0, link[64];
    struct stat state;
    struct statfs system;
    struct iovec part = { &byte, 1 };
    int made = open("/tmp-named", O_RDWR | O_CREAT, 0600), file = open("/tmp-named", O_PATH | O_RDWR | O_TRUNC, 0);
    write(made, "x", 1);
    printf("named: read %ld", told(read(file, &byte, 1)));
    printf(" write %ld", told(write(file, &byte, 1)));
    printf(" %ld", told(writev(file, &part, 1)));
    printf(" %ld", told(pread(file, &byte, 1, 0)));
    printf(" map %ld", told((long)mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0)));
    printf(" ioctl %ld", told(ioctl(file, FIONREAD, &byte)));
    printf(" lseek %ld", told(lseek(file, 0, SEEK_SET)));
    printf(" mode %ld %ld", told(fchmod(file, 0644)), told(fchown(file, 0, 0)));
    printf(" size %ld %ld", told(ftruncate(file, 0)), told(fallocate(file, 0, 0, 1)));
    printf(" sync %ld", told(fsync(file)));
    printf(" attribute %ld", told(fgetxattr(file, "trusted.a", &byte, 1)));
    printf(" lock %ld", told(flock(file, LOCK_SH)));
    printf(" seals %ld flags %ld", told(fcntl(file, F_GET_SEALS)), told(fcntl(file, F_SETFL, O_NONBLOCK)));
    struct pollfd polled = { file, POLLIN };
    printf(" poll %ld", told(poll(&polled, 1, 0)));
    printf(" %x\n", polled.revents);
    printf("named: stat %ld", told(fstat(file, &state)));
    printf(" size %ld", (long)state.st_size);
    printf(" %ld", told(fstatfs(file, &system)));
    printf(" flags %d", (fcntl(file, F_GETFL) & (O_PATH | O_ACCMODE)) == O_PATH);
    printf(" %ld", told(fcntl(file, F_GETFD)));
    int copy = dup(file);
    printf(" copy %d %ld", copy > 0, told(read(copy, &byte, 1)));
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int again = open(link, O_RDONLY);
    printf(" again %ld", told(read(again, &byte, 1)));
    int directory = open("/", O_PATH | O_DIRECTORY);
    printf(" below %d", openat(directory, "tmp-named", O_RDONLY) > 0);
    printf(" entries %ld", told(syscall(SYS_getdents64, directory, link, sizeof link)));
    printf(" %ld", told(open("/tmp-named", O_PATH | O_DIRECTORY)));
    symlink("/tmp-named", "/tmp-link");
    int itself = open("/tmp-link", O_PATH | O_NOFOLLOW);
    fstat(itself, &state);
    printf(" link %d", S_ISLNK(state.st_mode));
    close_all();
    mkfifo("/tmp-fifo", 0600);
    int fifo = open("/tmp-fifo", O_PATH);
    printf(" fifo %d %ld", fifo > 0, told(read(fifo, &byte, 1)));
    chmod("/tmp-named", 0);
    seteuid(1000);
    printf(" stranger %ld", told(open("/tmp-named", O_RDONLY)));
    printf(" %d\n", open("/tmp-named", O_PATH) > 0);
    seteuid(0);
    unlink("/tmp-fifo");
    unlink("/tmp-link");
    close_all();
}

/* The last word of the line of a mapping. */
static void show_name(const char *at)
{
    char line[512], start[32];
    FILE *maps = fopen("/proc/self/maps", "r");
    snprintf(start, sizeof start, "%08lx-", (long)at);
    while (fgets(line, sizeof line, maps))
        if (strncmp(line, start, strlen(start)) == 0) {
            char *name = strchr(line, '/');
            printf(" '%.4s %.*s'", strchr(line, ' ') + 1, name ? (int)strlen(name) - 1 : 0, name);
        }
    fclose(maps);
}

static void mapped_names(void)
{
    int zero = open("/dev/zero", O_RDONLY), file = open("/tmp-named", O_RDWR | O_CREAT, 0600), memory = memfd_create("some", 0);
    char *constant = mmap(0, PAGE, PROT_READ, MAP_SHARED, zero, 0);
    printf("zeroes: %d", *constant);
    printf(" %ld", told(mprotect(constant, PAGE, PROT_READ | PROT_WRITE)));
    printf(" %ld", told((long)mmap(0, PAGE, PROT_WRITE, MAP_SHARED, zero, 0)));
    char *private = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, zero, 0);
    printf(" %ld", told(mprotect(private, PAGE, PROT_READ | PROT_WRITE)));
    show_name(constant);
    ftruncate(file, PAGE);
    ftruncate(memory, PAGE);
    char *of_file = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0), *of_memory = mmap(0, PAGE, PROT_READ, MAP_SHARED, memory, 0);
    printf("\nnames:");
    show_name(of_file);
    show_name(of_memory);
    link("/tmp-named", "/tmp-other");
    unlink("/tmp-other");
    show_name(of_file);
    unlink("/tmp-named");
    show_name(of_file);
    printf("\n");
    close_all();
}

static void ranges(void)
{
    int first = dup(1), flags;
    for (int i = 1; i < 6; i++)
        dup(1);
    printf("ranges: %ld", told(syscall(SYS_close_range, first + 1, first, 0)));
    printf(" %ld", told(syscall(SYS_close_range, first, first, 1)));
    printf(" %ld", told(syscall(SYS_close_range, first + 1, first + 2, 4)));
    printf(" %d%d", fcntl(first, F_GETFD), fcntl(first + 1, F_GETFD));
    printf(" %ld", told(syscall(SYS_close_range, first + 2, first + 3, 0)));
    printf(" %ld", told(fcntl(first + 2, F_GETFD)));
    printf(" %ld", told(fcntl(first + 4, F_GETFD)));
    printf(" %ld", told(syscall(SYS_close_range, first + 1, ~0u, 2)));
    printf(" %ld", told(fcntl(first + 5, F_GETFD)));
    printf(" %d\n", fcntl(first, F_GETFD));
    close(first);
}

static void sparse(void)
{
    char byte = 'x', two[2] = "";
    struct iovec parts[2] = { { two, 1 }, { two + 1, 1 } }, one = { &byte, 1 };
    int file = memfd_create("sparse", 0), pipes[2];
    ftruncate(file, 8 * PAGE + 10);
    pwrite(file, &byte, 1, 2 * PAGE + 5);
    pwrite(file, &byte, 1, 3 * PAGE);
    pwrite(file, &byte, 1, 6 * PAGE);
    long from[] = { 0, 2 * PAGE, 2 * PAGE + 7, 4 * PAGE + 1, 6 * PAGE, 7 * PAGE, 8 * PAGE + 9, 8 * PAGE + 10, -1 };
    printf("sparse:");
    for (int i = 0; i < 9; i++)
        printf(" %ld/%ld", told(lseek(file, from[i], SEEK_DATA)), told(lseek(file, from[i], SEEK_HOLE)));
    fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * PAGE, PAGE);
    printf(" %ld %ld\n", told(lseek(file, 0, SEEK_DATA)), told(lseek(file, 3 * PAGE, SEEK_CUR)));
    ftruncate(file, 0);
    lseek(file, 0, SEEK_SET);
    printf("positions: %ld", told(pwritev2(file, &one, 1, 3, 0)));
    printf(" %ld", told(pwritev2(file, &one, 1, -1, 0)));
    printf(" %ld", told(lseek(file, 0, SEEK_CUR)));
    printf(" %ld", told(preadv2(file, parts, 2, 2, 0)));
    printf(" %d%d", two[0], two[1]);
    printf(" %ld", told(preadv2(file, parts, 2, -1, 0)));
    printf(" %ld %ld", told(preadv2(file, parts, 2, 0, 0x4000000)), told(preadv2(file, parts, 2, -2, 0)));
    pipe(pipes);
    printf(" %ld %ld %ld\n", told(pwritev2(pipes[1], &one, 1, 0, 0)), told(pwritev2(pipes[1], &one, 1, -1, 0)), told(preadv(file, parts, 1, 0)));
    close_all();
}

int main(int count, char **arguments)
{
    if (count > 1) {
        write(1, "said", 4);
        write(2, "warned", 6);
        return 6;
    }
    bad = (char *)mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 3 * PAGE;
    mprotect(bad, PAGE, PROT_NONE);
    attributes();
    synced();
    limits();
    messages();
    close_all();
    requests();
    output_of_child();
    bad_pipes();
    bad_sockets();
    bad_files();
    bad_results();
    path_only();
    mapped_names();
    ranges();
    sparse();
    return 0;
}
