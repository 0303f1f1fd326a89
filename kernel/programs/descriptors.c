/* Extended attributes, what can be synced, the limit of descriptors, several messages by one call, requests of
   ioctl. Prints a line for each group. */
#define _GNU_SOURCE
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
    struct itimerval timer = { { 0 }, { 0, 50000 } };
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
    setitimer(ITIMER_REAL, &timer, 0);
    send(pair[0], "again", 5, 0);
    printf(" signal %ld", told(recvmmsg(pair[1], received, 2, 0, 0)));
    printf(" %d", alarms);
    close(pair[0]);
    close(pair[1]);
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    setitimer(ITIMER_REAL, &timer, 0);
    printf(" %ld %d", told(recvmmsg(pair[1], received, 2, 0, 0)), alarms);
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

int main(int count, char **arguments)
{
    if (count > 1) {
        write(1, "said", 4);
        write(2, "warned", 6);
        return 6;
    }
    attributes();
    synced();
    limits();
    messages();
    close_all();
    requests();
    output_of_child();
    return 0;
}
