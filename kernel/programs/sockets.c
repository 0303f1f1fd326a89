/* Sockets of the family AF_UNIX, epoll and FIFOs. Prints a line for each group. */
/* Tests INV-KERNEL-PINNED, INV-KERNEL-EPOLL. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static void quiet(int signal)
{
}

static int signals;

static void count(int signal)
{
    signals++;
}

static void on_signal(int number, void (*handler)(int), int flags)
{
    struct sigaction action = { 0 };
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(number, &action, 0);
}

/* Sends a signal to this process after a while. */
static pid_t alarm_in(int ms, int number)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        usleep(ms * 1000);
        kill(parent, number);
        _exit(0);
    }
    return child;
}

static socklen_t named(struct sockaddr_un *address, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (name[0] == '@') {
        memcpy(address->sun_path + 1, name + 1, strlen(name) - 1);
        return offsetof(struct sockaddr_un, sun_path) + strlen(name);
    }
    strcpy(address->sun_path, name);
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1;
}

static long bound(int fd, const char *name)
{
    struct sockaddr_un address;
    socklen_t len = named(&address, name);
    return told(bind(fd, (void *)&address, len));
}

static long connected(int fd, const char *name)
{
    struct sockaddr_un address;
    socklen_t len = named(&address, name);
    return told(connect(fd, (void *)&address, len));
}

static void show_name(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_un address;
    socklen_t len = sizeof address;
    memset(&address, 0, sizeof address);
    long result = told(get(fd, (void *)&address, &len));
    if (result)
        printf(" (%ld)", result);
    else if (len > 2 && !address.sun_path[0])
        printf(" (%d @%.*s)", len, len - 3, address.sun_path + 1);
    else
        printf(" (%d %s)", len, len > 2 ? address.sun_path : "");
}

static long option(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof value;
    long result = told(getsockopt(fd, SOL_SOCKET, name, &value, &len));
    return result ? result : value;
}

static int polled(int fd, int events)
{
    struct pollfd poller = { fd, events };
    poll(&poller, 1, 0);
    return poller.revents;
}

enum { ALL = POLLIN | POLLOUT | POLLRDHUP };

static void pairs(void)
{
    int pair[2], other[2];
    char bytes[64];
    struct stat status;
    printf("pair: %ld", told(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)));
    printf(" %ld", told(write(pair[0], "hello", 5)));
    printf(" %ld", told(write(pair[0], "world", 5)));
    printf(" %x", polled(pair[0], ALL));
    printf(" %x", polled(pair[1], ALL));
    long got = told(recv(pair[1], bytes, sizeof bytes, MSG_PEEK));
    printf(" peek %ld %.*s", got, (int)got, bytes);
    got = told(read(pair[1], bytes, 7));
    printf(" read %ld %.*s", got, (int)got, bytes);
    got = told(recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT));
    printf(" %ld %.*s", got, (int)got, bytes);
    printf(" %ld", told(recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT)));
    printf(" %ld", told(read(pair[1], bytes, 0)));
    printf(" %ld", told(send(pair[0], bytes, 0, 0)));
    fstat(pair[0], &status);
    printf(" mode %o", status.st_mode);
    printf(" %ld", told(lseek(pair[0], 0, SEEK_CUR)));
    printf(" %ld", told(pread(pair[0], bytes, 1, 0)));
    /* Half of a connection. */
    printf(" shutdown %ld", told(shutdown(pair[0], SHUT_WR)));
    printf(" %x", polled(pair[0], ALL));
    printf(" %x", polled(pair[1], ALL));
    printf(" %ld", told(read(pair[1], bytes, 8)));
    signals = 0;
    on_signal(SIGPIPE, count, SA_RESTART);
    printf(" %ld", told(write(pair[0], "x", 1)));
    printf(" %d", signals);
    printf(" %ld", told(send(pair[0], "x", 1, MSG_NOSIGNAL)));
    printf(" %d", signals);
    printf(" %ld", told(write(pair[1], "back", 4)));
    printf(" %ld", told(shutdown(pair[0], 3)));
    close(pair[1]);
    printf(" closed %x", polled(pair[0], ALL));
    printf(" %ld", told(read(pair[0], bytes, 8)));
    printf(" %ld", told(read(pair[0], bytes, 8)));
    printf(" %ld", told(write(pair[0], "x", 1)));
    close(pair[0]);
    /* A connection that is closed with bytes in it is reset. */
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    write(pair[0], "x", 1);
    write(pair[1], "y", 1);
    close(pair[0]);
    printf(" reset %x", polled(pair[1], ALL));
    printf(" %ld", told(read(pair[1], bytes, 8)));
    printf(" %ld", told(read(pair[1], bytes, 8)));
    printf(" %ld", told(read(pair[1], bytes, 8)));
    close(pair[1]);
    /* Packets keep their limits. */
    printf(" packets %ld", told(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)));
    printf(" %ld", told(write(pair[0], "one", 3)));
    printf(" %ld", told(write(pair[0], "second", 6)));
    got = told(read(pair[1], bytes, 2));
    printf(" %ld %.*s", got, (int)got, bytes);
    got = told(recv(pair[1], bytes, 3, MSG_TRUNC));
    printf(" %ld %.3s", got, bytes);
    printf(" %ld", told(write(pair[0], "", 0)));
    printf(" %ld", told(recv(pair[1], bytes, 3, 0)));
    close(pair[0]);
    printf(" end %ld", told(read(pair[1], bytes, 2)));
    printf(" %ld", told(send(pair[1], "x", 1, 0)));
    printf(" %x", polled(pair[1], ALL));
    printf(" %d", signals);
    close(pair[1]);
    socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
    printf(" datagrams %d", fcntl(pair[0], F_GETFL) & O_NONBLOCK ? 1 : 0);
    printf(" %d", fcntl(pair[0], F_GETFD));
    printf(" %ld", told(read(pair[1], bytes, 2)));
    printf(" %ld", told(write(pair[0], "", 0)));
    printf(" %ld", told(read(pair[1], bytes, 2)));
    close(pair[0]);
    printf(" %ld", told(write(pair[1], "x", 1)));
    printf(" %ld", told(write(pair[1], "x", 1)));
    printf(" %ld", told(read(pair[1], bytes, 1)));
    close(pair[1]);
    printf(" refused %ld", told(socketpair(AF_UNIX, 9, 0, pair)));
    printf(" %ld", told(socketpair(AF_UNIX, 15, 0, pair)));
    printf(" %ld", told(socketpair(AF_UNIX, SOCK_STREAM, 5, pair)));
    printf(" %ld", told(socket(99, SOCK_STREAM, 0)));
    printf(" %ld", told(socket(AF_UNIX, SOCK_STREAM | 1 << 30, 0)));
    printf(" %ld", told(socket(45, SOCK_STREAM, 0)));
    printf(" %ld", told(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)8)));
    printf(" %ld\n", told(socket(AF_UNIX, SOCK_STREAM, 1)));
}

static void names(void)
{
    char bytes[64];
    struct sockaddr_un address;
    struct stat status;
    socklen_t len;
    mkdir("/s", 0755);
    int server = socket(AF_UNIX, SOCK_STREAM, 0), again = socket(AF_UNIX, SOCK_STREAM, 0);
    int client = socket(AF_UNIX, SOCK_STREAM, 0), packet = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    umask(022);
    printf("names: %x", polled(client, ALL));
    printf(" %ld", told(listen(server, 5)));
    show_name(server, getsockname);
    show_name(server, getpeername);
    printf(" bind %ld", bound(server, "/s/one"));
    printf(" %ld", bound(server, "/s/two"));
    printf(" %ld", bound(again, "/s/one"));
    printf(" %ld", bound(again, "/none/one"));
    printf(" %ld", told(access("/s/two", F_OK)));
    show_name(server, getsockname);
    stat("/s/one", &status);
    printf(" %o", status.st_mode);
    printf(" %ld", told(open("/s/one", O_RDWR)));
    printf(" connect %ld", connected(client, "/s/one"));
    printf(" %ld", connected(client, "/s/none"));
    printf(" %ld", told(accept(server, 0, 0)));
    printf(" %ld", told(listen(server, 2)));
    printf(" %ld", option(server, SO_ACCEPTCONN));
    printf(" %ld", connected(packet, "/s/one"));
    printf(" %ld", connected(client, "/s"));
    printf(" %ld", connected(client, "/s/one"));
    printf(" %x", polled(server, ALL));
    printf(" %ld", connected(client, "/s/one"));
    printf(" %ld", told(listen(client, 1)));
    show_name(client, getpeername);
    printf(" early %ld", told(write(client, "early", 5)));
    len = sizeof address;
    int accepted = accept4(server, (void *)&address, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    printf(" accept %d %d", accepted > 0, len);
    printf(" %d", fcntl(accepted, F_GETFD));
    show_name(accepted, getsockname);
    show_name(accepted, getpeername);
    long got = told(read(accepted, bytes, sizeof bytes));
    printf(" %ld %.*s", got, (int)got, bytes);
    printf(" %ld", told(read(accepted, bytes, 1)));
    printf(" %ld", told(recv(server, bytes, 1, 0)));
    printf(" %ld", told(send(server, bytes, 1, 0)));
    printf(" %ld", told(sendto(client, "x", 1, 0, (void *)&address, sizeof address)));
    struct ucred peer;
    len = sizeof peer;
    printf(" peer %ld", told(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &len)));
    printf(" %d", len);
    printf(" %d", peer.pid == getpid());
    printf(" %d %d", peer.uid, peer.gid);
    getsockopt(packet, SOL_SOCKET, SO_PEERCRED, &peer, &len);
    printf(" %d %d %d", peer.pid, peer.uid, peer.gid);
    close(accepted);
    /* The backlog. */
    fcntl(server, F_SETFL, O_NONBLOCK);
    printf(" backlog %ld", told(accept(server, 0, 0)));
    listen(server, 1);
    int many[4];
    for (int i = 0; i < 4; i++) {
        many[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        printf(" %ld", connected(many[i], "/s/one"));
    }
    printf(" %ld", told(close(accept(server, 0, 0))));
    printf(" %ld", connected(many[2], "/s/one"));
    printf(" %ld", told(close(accept(server, 0, 0))));
    write(many[2], "z", 1);
    close(server);
    printf(" end %x", polled(many[2], ALL));
    printf(" %ld", told(read(many[2], bytes, 1)));
    printf(" %ld", told(read(many[2], bytes, 1)));
    printf(" %x", polled(many[1], ALL));
    printf(" %ld", connected(again, "/s/one"));
    printf(" %ld", told(unlink("/s/one")));
    printf(" %ld", connected(again, "/s/one"));
    for (int i = 0; i < 4; i++)
        close(many[i]);
    /* Abstract names. */
    int abstract = socket(AF_UNIX, SOCK_STREAM, 0), datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    printf(" abstract %ld", bound(abstract, "@name"));
    printf(" %ld", bound(again, "@name"));
    printf(" %ld", bound(datagram, "@name"));
    printf(" %ld", told(listen(datagram, 1)));
    printf(" %ld", connected(packet, "@name"));
    printf(" %ld", connected(again, "@name"));
    listen(abstract, 1);
    printf(" %ld", connected(again, "@name"));
    show_name(again, getpeername);
    close(abstract);
    close(again);
    again = socket(AF_UNIX, SOCK_STREAM, 0);
    printf(" %ld", connected(again, "@name"));
    printf(" %ld", bound(again, "@name"));
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    int any = socket(AF_UNIX, SOCK_DGRAM, 0);
    printf(" any %ld", told(bind(any, (void *)&address, 2)));
    len = sizeof address;
    getsockname(any, (void *)&address, &len);
    printf(" %d %d", len, address.sun_path[0]);
    address.sun_family = AF_INET;
    printf(" refused %ld", told(bind(packet, (void *)&address, 20)));
    printf(" %ld", told(bind(packet, (void *)&address, 200)));
    address.sun_family = AF_UNIX;
    printf(" %ld", told(bind(packet, (void *)&address, 111)));
    printf(" %ld", told(bind(packet, (void *)&address, 1)));
    printf(" %ld", told(bind(packet, (void *)8, 20)));
    printf(" %ld", told(bind(0, (void *)&address, 20)));
    printf(" %ld", told(bind(77, (void *)&address, 20)));
    printf(" %ld", told(connect(packet, (void *)&address, 2)));
    printf(" %ld", told(accept(packet, 0, 0)));
    printf(" %ld", told(accept(datagram, 0, 0)));
    len = -1;
    printf(" %ld", told(getsockname(any, (void *)&address, &len)));
    len = 4;
    printf(" %ld", told(getsockname(any, (void *)&address, &len)));
    printf(" %d", len);
    printf(" %ld", told(getsockname(any, (void *)8, &len)));
    printf(" %ld\n", told(accept4(packet, 0, 0, 1)));
    close(packet), close(client), close(datagram), close(any), close(again);
}

static void datagrams(void)
{
    char bytes[64];
    struct sockaddr_un address, from;
    socklen_t len = named(&address, "/s/data"), size;
    int server = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0), one = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    int two = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    bound(server, "/s/data");
    bound(one, "@one");
    printf("datagrams: %ld", told(sendto(one, "first", 5, 0, (void *)&address, len)));
    printf(" %ld", told(sendto(two, "no", 2, 0, (void *)&address, len)));
    printf(" %ld", told(send(two, "x", 1, 0)));
    size = sizeof from;
    memset(&from, 0, sizeof from);
    long got = told(recvfrom(server, bytes, sizeof bytes, 0, (void *)&from, &size));
    printf(" %ld %.*s from %d %.*s", got, (int)got, bytes, size, size - 3, from.sun_path + 1);
    size = sizeof from;
    got = told(recvfrom(server, bytes, sizeof bytes, 0, (void *)&from, &size));
    printf(" %ld %.*s from %d", got, (int)got, bytes, size);
    /* A receiver that takes nothing. */
    int sent = 0;
    while (sent < 100 && sendto(one, "m", 1, 0, (void *)&address, len) == 1)
        sent++;
    printf(" full %d %d", sent, errno);
    printf(" %ld", connected(two, "/s/data"));
    printf(" %x", polled(two, POLLOUT));
    printf(" %x", polled(server, ALL));
    read(server, bytes, 1);
    printf(" %x", polled(two, POLLOUT));
    printf(" %ld", told(send(two, "t", 1, 0)));
    printf(" %ld", told(send(two, "t", 1, 0)));
    /* A receiver with a peer. */
    while (read(server, bytes, 1) == 1)
        ;
    printf(" peer %ld", connected(server, "@one"));
    printf(" %ld", told(send(two, "x", 1, 0)));
    printf(" %ld", told(send(server, "to one", 6, 0)));
    printf(" %ld", told(read(one, bytes, sizeof bytes)));
    struct sockaddr none = { AF_UNSPEC };
    printf(" %ld", told(connect(server, &none, sizeof none)));
    printf(" %ld", told(send(server, "x", 1, 0)));
    printf(" %ld", told(send(two, "x", 1, 0)));
    close(server);
    printf(" gone %ld", told(send(two, "x", 1, 0)));
    printf(" %ld", told(send(two, "x", 1, 0)));
    printf(" %ld", told(sendto(one, "x", 1, 0, (void *)&address, len)));
    printf(" %ld", told(shutdown(one, SHUT_RD)));
    printf(" %ld", told(read(one, bytes, 1)));
    printf(" %x", polled(one, ALL));
    printf(" large %ld\n", told(sendto(one, malloc(1 << 20), 1 << 20, 0, (void *)&address, len)));
    close(one), close(two);
}

static void options(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), value = 1;
    struct timeval time = { 1, 500000 };
    socklen_t len = sizeof time;
    printf("options: %ld", option(fd, SO_TYPE));
    printf(" %ld", option(fd, SO_DOMAIN));
    printf(" %ld", option(fd, SO_ERROR));
    printf(" %ld", option(fd, SO_SNDBUF));
    printf(" %ld", option(fd, SO_RCVBUF));
    printf(" %ld", option(fd, SO_PASSCRED));
    value = 5000;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, 4);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, 4);
    printf(" %ld", option(fd, SO_SNDBUF));
    printf(" %ld", option(fd, SO_RCVBUF));
    value = 1;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, 4);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &value, 4);
    printf(" %ld", option(fd, SO_SNDBUF));
    printf(" %ld", option(fd, SO_RCVBUF));
    value = 1 << 30;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, 4);
    printf(" %ld", option(fd, SO_SNDBUF));
    printf(" %ld", told(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &value, 4)));
    printf(" %ld", option(fd, SO_PASSCRED));
    printf(" %ld", told(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, 4)));
    printf(" %ld", option(fd, SO_REUSEADDR));
    printf(" time %ld", told(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time)));
    memset(&time, 0, sizeof time);
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &len);
    printf(" %d %ld %ld", len, time.tv_sec, time.tv_usec);
    time.tv_usec = 1000000;
    printf(" %ld", told(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time)));
    printf(" refused %ld", told(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &value, 3)));
    printf(" %ld", told(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, (void *)8, 4)));
    printf(" %ld", told(setsockopt(fd, SOL_SOCKET, 1234, &value, 4)));
    printf(" %ld", told(setsockopt(fd, 6, 1, &value, 4)));
    printf(" %ld", option(fd, 1234));
    printf(" %ld", told(setsockopt(1, SOL_SOCKET, SO_PASSCRED, &value, 4)));
    printf(" %ld", option(1, SO_TYPE));
    len = -1;
    printf(" %ld", told(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len)));
    len = 2;
    value = 0;
    printf(" %ld", told(getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &len)));
    printf(" %d %d\n", len, value);
    close(fd);
}

/* Sends bytes with descriptors. */
static long send_files(int to, const char *text, const int *files, int number)
{
    char control[CMSG_SPACE(300 * sizeof(int))];
    struct iovec part = { (void *)text, strlen(text) };
    struct msghdr message = { 0, 0, &part, 1, control, CMSG_SPACE(number * sizeof(int)) };
    struct cmsghdr *header = (void *)control;
    memset(control, 0, sizeof control);
    header->cmsg_len = CMSG_LEN(number * sizeof(int));
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(header), files, number * sizeof(int));
    return told(sendmsg(to, &message, 0));
}

/* Receives a message, prints it, and stores its descriptors. */
static int receive_files(int from, int room, int flags, int *files)
{
    char control[256], text[64];
    struct iovec part = { text, sizeof text };
    struct msghdr message = { 0, 0, &part, 1, room ? control : 0, room };
    int found = 0;
    memset(control, 0, sizeof control);
    long got = told(recvmsg(from, &message, flags));
    printf(" [%ld %.*s %x %d", got, got > 0 ? (int)got : 0, text, message.msg_flags, (int)message.msg_controllen);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header && got >= 0; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_type == SCM_CREDENTIALS) {
            struct ucred *sender = (void *)CMSG_DATA(header);
            printf(" by %d", sender->pid == getpid() ? 1 : sender->pid ? 2 : 0);
            printf(" %d %d", sender->uid, sender->gid);
        } else {
            int number = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            memcpy(files + found, CMSG_DATA(header), number * sizeof(int));
            found += number;
            printf(" files %d", number);
        }
    }
    printf("]");
    return found;
}

static void close_all(int *files, int number)
{
    while (number > 0)
        close(files[--number]);
}

static void rights(void)
{
    int pair[2], ends[2], files[300], on = 1;
    char bytes[8];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pipe(ends);
    printf("rights: %ld", send_files(pair[0], "one", ends, 2));
    printf(" %ld", told(write(pair[0], "more", 4)));
    /* The bytes after those of the descriptors are not received with them. */
    int got = receive_files(pair[1], 256, MSG_CMSG_CLOEXEC, files);
    printf(" %d", fcntl(files[0], F_GETFD));
    printf(" %ld", told(write(files[1], "through", 7)));
    memset(bytes, 0, 8);
    printf(" %ld", told(read(ends[0], bytes, 7)));
    printf(" %s", bytes);
    close_all(files, got);
    receive_files(pair[1], 256, 0, files);
    send_files(pair[0], "peek", ends, 2);
    close_all(files, receive_files(pair[1], 256, MSG_PEEK, files));
    close_all(files, receive_files(pair[1], CMSG_SPACE(4), 0, files));
    send_files(pair[0], "none", ends, 2);
    receive_files(pair[1], 0, 0, files);
    send_files(pair[0], "read", ends, 1);
    printf(" %ld", told(read(pair[1], bytes, 8)));
    /* A descriptor that only a message holds is closed with it. */
    send_files(pair[0], "last", ends + 1, 1);
    close(ends[1]);
    printf(" held %x", polled(ends[0], POLLIN));
    close(pair[1]);
    printf(" %x", polled(ends[0], POLLIN));
    close(pair[0]);
    /* Credentials. */
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    write(pair[0], "before", 6);
    setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, 4);
    write(pair[0], "after", 5);
    receive_files(pair[1], 256, 0, files);
    receive_files(pair[1], 256, 0, files);
    pid_t child = fork();
    if (child == 0) {
        setresgid(7, 7, 7);
        setresuid(8, 8, 8);
        write(pair[0], "child", 5);
        struct { struct cmsghdr header; struct ucred of; } claim = { { sizeof claim, SOL_SOCKET, SCM_CREDENTIALS }, { getpid(), 8, 7 } };
        struct iovec part = { "claim", 5 };
        struct msghdr message = { 0, 0, &part, 1, &claim, sizeof claim };
        claim.header.cmsg_len = CMSG_LEN(sizeof(struct ucred));
        long right = told(sendmsg(pair[0], &message, 0));
        claim.of.uid = 0;
        long wrong = told(sendmsg(pair[0], &message, 0));
        claim.of.uid = 8, claim.of.pid = 1;
        _exit(right == 5 && wrong == -EPERM && told(sendmsg(pair[0], &message, 0)) == -EPERM);
    }
    int status;
    waitpid(child, &status, 0);
    receive_files(pair[1], 256, 0, files);
    receive_files(pair[1], CMSG_LEN(4), 0, files);
    printf(" %x", status);
    struct { struct cmsghdr header; struct ucred of; } claim = { { CMSG_LEN(sizeof(struct ucred)), SOL_SOCKET, SCM_CREDENTIALS }, { 9999, 0, 0 } };
    struct iovec part = { "x", 1 };
    struct msghdr message = { 0, 0, &part, 1, &claim, sizeof claim };
    printf(" refused %ld", told(sendmsg(pair[0], &message, 0)));
    claim.of.pid = getpid();
    claim.header.cmsg_len--;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    claim.header.cmsg_len = 8;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    claim.header.cmsg_len = CMSG_LEN(sizeof(struct ucred));
    claim.header.cmsg_type = 77;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    claim.header.cmsg_level = 77;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    message.msg_control = (void *)8;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    message.msg_controllen = 1 << 20;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    message.msg_controllen = 0;
    message.msg_iovlen = 2000;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    printf(" %ld", told(sendmsg(pair[0], (void *)8, 0)));
    printf(" %ld", told(sendmsg(1, &message, 0)));
    message.msg_iovlen = 1;
    part.iov_base = (void *)8;
    printf(" %ld", told(sendmsg(pair[0], &message, 0)));
    printf(" %ld", told(recvmsg(pair[1], &message, 0)));
    files[0] = 77;
    printf(" files %ld", send_files(pair[0], "x", files, 1));
    for (int i = 0; i < 300; i++)
        files[i] = 0;
    printf(" %ld", send_files(pair[0], "x", files, 254));
    printf(" %ld\n", send_files(pair[0], "x", files, 253));
    close(pair[0]);
    close(pair[1]);
}

/* Sockets in their own messages go away; an ordinary user may have few in flight. */
static void cycles(void)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = { 32, 32 };
        int pair[2], other[2], failed = 0;
        setrlimit(RLIMIT_NOFILE, &limit);
        setresgid(7, 7, 7);
        setresuid(8, 8, 8);
        printf("cycles:");
        for (int i = 0; i < 300; i++) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) || socketpair(AF_UNIX, SOCK_DGRAM, 0, other)) {
                failed = errno;
                break;
            }
            /* Each pair holds the other. */
            if (send_files(pair[0], "a", other, 2) < 0 || send_files(other[0], "b", pair, 2) < 0)
                failed++;
            close(pair[0]), close(pair[1]), close(other[0]), close(other[1]);
            close(socket(AF_UNIX, SOCK_STREAM, 0));
        }
        printf(" failed %d", failed);
        /* Without an end of the queue, the limit holds. */
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        int sent = 0;
        long result;
        while ((result = send_files(pair[0], "x", pair, 1)) == 1)
            sent++;
        printf(" limit %d %ld", sent, result);
        close(pair[0]), close(pair[1]);
        /* A chain is longer than any stack. */
        limit.rlim_cur = limit.rlim_max = 32;
        int before = -1;
        for (int i = 0; i < 20; i++) {
            socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
            if (before >= 0)
                send_files(pair[0], "x", &before, 1), close(before);
            close(pair[0]);
            before = pair[1];
        }
        printf(" chain %ld\n", told(close(before)));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
}

static void waits(void)
{
    int pair[2], status;
    char *bytes = malloc(1 << 20);
    on_signal(SIGUSR1, quiet, 0);
    on_signal(SIGUSR2, count, SA_RESTART);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    /* More than the buffer, in both directions of waiting. */
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        long sum = 0, got;
        usleep(10000);
        while ((got = read(pair[1], bytes, 100000)) > 0)
            for (long i = 0; i < got; i++)
                sum += bytes[i];
        _exit(sum == 7 << 20 ? 3 : 4);
    }
    close(pair[1]);
    memset(bytes, 7, 1 << 20);
    printf("waits: %ld", told(write(pair[0], bytes, 1 << 20)));
    close(pair[0]);
    waitpid(child, &status, 0);
    printf(" %x", status);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    long sent = 0, part;
    while ((part = write(pair[0], bytes, 10000)) > 0)
        sent += part;
    printf(" full %d %d", sent > 20000 && sent < 300000, errno);
    printf(" %x", polled(pair[0], POLLOUT));
    while (recv(pair[1], bytes, 1 << 20, MSG_DONTWAIT) > 0)
        ;
    printf(" %x", polled(pair[0], POLLOUT));
    /* All of a buffer. */
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) {
            usleep(3000);
            write(pair[1], "abc", 3);
        }
        _exit(0);
    }
    fcntl(pair[0], F_SETFL, 0);
    part = told(recv(pair[0], bytes, 9, MSG_WAITALL));
    printf(" all %ld %.9s", part, bytes);
    waitpid(child, 0, 0);
    /* Signals. */
    child = alarm_in(5, SIGUSR1);
    printf(" signal %ld", told(read(pair[0], bytes, 1)));
    waitpid(child, 0, 0);
    child = fork();
    signals = 0;
    if (child == 0) {
        usleep(5000);
        kill(getppid(), SIGUSR2);
        usleep(5000);
        write(pair[1], "r", 1);
        _exit(0);
    }
    part = told(read(pair[0], bytes, 1));
    printf(" %ld %d", part, signals);
    waitpid(child, 0, 0);
    struct timeval time = { 0, 5000 };
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    printf(" time %ld", told(read(pair[0], bytes, 1)));
    time.tv_usec = 50000;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    child = alarm_in(5, SIGUSR2);
    printf(" %ld", told(read(pair[0], bytes, 1)));
    waitpid(child, 0, 0);
    /* A connection and its acceptance wait for each other. */
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    bound(server, "@waits");
    listen(server, 0);
    child = fork();
    if (child == 0) {
        int fds[3];
        for (int i = 0; i < 3; i++) {
            fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
            if (connected(fds[i], "@waits"))
                _exit(9);
        }
        _exit(0);
    }
    usleep(5000);
    for (int i = 0; i < 3; i++)
        close(accept(server, 0, 0));
    waitpid(child, &status, 0);
    printf(" connect %x", status);
    child = fork();
    if (child == 0) {
        usleep(5000);
        shutdown(server, SHUT_RDWR);
        _exit(0);
    }
    printf(" %ld", told(accept(server, 0, 0)));
    waitpid(child, 0, 0);
    /* sendfile, and bad addresses. */
    int file = open("/s/file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(file, "contents", 8);
    lseek(file, 0, SEEK_SET);
    printf(" file %ld", told(sendfile(pair[1], file, 0, 100)));
    printf(" %ld", told(read(pair[0], (void *)8, 4)));
    part = told(read(pair[0], bytes, 100));
    printf(" %ld %.*s", part, (int)part, bytes);
    printf(" %ld", told(write(pair[0], (void *)8, 4)));
    printf(" %ld", told(recv(file, bytes, 1, 0)));
    printf(" %ld", told(shutdown(file, 0)));
    printf(" %ld\n", told(shutdown(99, 0)));
    close(pair[0]), close(pair[1]), close(server), close(file);
    free(bytes);
}

static long control(int epoll, int operation, int fd, uint32_t events)
{
    struct epoll_event event = { events, { .u64 = 0x1000 + fd } };
    return told(epoll_ctl(epoll, operation, fd, &event));
}

/* Prints the events of one wait. */
static void show_events(int epoll, int timeout)
{
    struct epoll_event events[8];
    long got = told(epoll_wait(epoll, events, 8, timeout));
    printf(" [%ld", got);
    for (int i = 0; i < got; i++)
        printf(" %x", events[i].events);
    printf("]");
}

static void polls(void)
{
    int pair[2], ends[2];
    char bytes[8];
    struct epoll_event event = { EPOLLIN, { .u64 = 0x123456789abcdefull } };
    int epoll = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(0, 0);
    printf("epoll: %d", fcntl(epoll, F_GETFD));
    printf(" %ld", told(epoll_create1(1)));
    printf(" %ld", told(syscall(SYS_epoll_create1, -1)));
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pipe(ends);
    show_events(epoll, 0);
    printf(" %ld", told(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event)));
    printf(" %ld", told(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event)));
    show_events(epoll, 5);
    write(pair[1], "ab", 2);
    show_events(epoll, -1);
    memset(&event, 0, sizeof event);
    epoll_wait(epoll, &event, 1, -1);
    printf(" %llx", (unsigned long long)event.data.u64);
    /* Edges. */
    printf(" edge %ld", control(epoll, EPOLL_CTL_MOD, pair[0], EPOLLIN | EPOLLOUT | EPOLLET));
    show_events(epoll, 0);
    show_events(epoll, 0);
    write(pair[1], "c", 1);
    show_events(epoll, 0);
    show_events(epoll, 0);
    read(pair[0], bytes, 8);
    show_events(epoll, 0);
    shutdown(pair[1], SHUT_WR);
    show_events(epoll, 0);
    show_events(epoll, 0);
    /* Once. */
    printf(" once %ld", control(epoll, EPOLL_CTL_MOD, pair[0], EPOLLIN | EPOLLRDHUP | EPOLLONESHOT));
    show_events(epoll, 0);
    show_events(epoll, 0);
    close(pair[1]);
    show_events(epoll, 0);
    control(epoll, EPOLL_CTL_MOD, pair[0], 0);
    show_events(epoll, 0);
    printf(" %ld", control(epoll, EPOLL_CTL_DEL, pair[0], 0));
    printf(" %ld", control(epoll, EPOLL_CTL_DEL, pair[0], 0));
    show_events(epoll, 0);
    /* Pipes and counters; the watch of a file ends with its last descriptor. */
    control(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLET);
    control(epoll, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLET);
    show_events(epoll, 0);
    write(ends[1], "x", 1);
    show_events(epoll, 0);
    uint64_t value = 1;
    write(counter, &value, 8);
    show_events(epoll, 0);
    write(counter, &value, 8);
    write(ends[1], "y", 1);
    show_events(epoll, 0);
    show_events(epoll, 0);
    close(ends[1]);
    show_events(epoll, 0);
    int copy = dup(ends[0]);
    close(ends[0]);
    control(epoll, EPOLL_CTL_ADD, copy, EPOLLIN);
    show_events(epoll, 0);
    close(copy);
    show_events(epoll, 0);
    close(counter);
    /* A wait that another process ends, and one that a signal ends. */
    pipe(ends);
    control(epoll, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLEXCLUSIVE);
    pid_t child = fork();
    if (child == 0) {
        usleep(5000);
        write(ends[1], "z", 1);
        _exit(0);
    }
    show_events(epoll, -1);
    waitpid(child, 0, 0);
    read(ends[0], bytes, 1);
    on_signal(SIGUSR1, quiet, SA_RESTART);
    child = alarm_in(5, SIGUSR1);
    show_events(epoll, -1);
    waitpid(child, 0, 0);
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &before);
    raise(SIGUSR1);
    printf(" mask %ld", told(epoll_pwait(epoll, &event, 1, 5, 0)));
    printf(" %ld", told(epoll_pwait(epoll, &event, 1, -1, &before)));
    sigprocmask(SIG_SETMASK, &before, 0);
    struct timespec time = { 0, 1000000 }, bad = { 0, 1000000000 };
    printf(" %ld", told(syscall(SYS_epoll_pwait2, epoll, &event, 1, &time, 0, 8)));
    printf(" %ld", told(syscall(SYS_epoll_pwait2, epoll, &event, 1, &bad, 0, 8)));
    printf(" %ld\n", told(syscall(SYS_epoll_pwait, epoll, &event, 1, 0, &set, 4)));
    close(epoll), close(ends[0]), close(ends[1]), close(pair[0]);
}

static void nested(void)
{
    int ends[2], chain[10], file = open("/s/file", O_RDWR | O_CREAT, 0600);
    struct epoll_event event = { EPOLLIN };
    int outer = epoll_create1(0), inner = epoll_create1(0);
    pipe(ends);
    printf("nested: %ld", control(outer, EPOLL_CTL_ADD, inner, EPOLLIN));
    printf(" %ld", control(inner, EPOLL_CTL_ADD, ends[0], EPOLLIN));
    show_events(outer, 0);
    write(ends[1], "x", 1);
    show_events(outer, 0);
    printf(" %x", polled(outer, POLLIN));
    show_events(inner, 0);
    control(outer, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLET);
    show_events(outer, 0);
    show_events(outer, 0);
    write(ends[1], "y", 1);
    show_events(outer, 0);
    printf(" loop %ld", control(inner, EPOLL_CTL_ADD, outer, EPOLLIN));
    printf(" %ld", control(inner, EPOLL_CTL_ADD, inner, EPOLLIN));
    for (int i = 0; i < 10; i++) {
        chain[i] = epoll_create1(0);
        printf(" %ld", i ? control(chain[i], EPOLL_CTL_ADD, chain[i - 1], EPOLLIN) : control(chain[i], EPOLL_CTL_ADD, ends[0], EPOLLIN));
    }
    printf(" %x", polled(chain[4], POLLIN));
    printf(" %x", polled(chain[5], POLLIN));
    close_all(chain, 10);
    printf(" refused %ld", control(outer, EPOLL_CTL_ADD, file, EPOLLIN));
    printf(" %ld", control(outer, EPOLL_CTL_ADD, 99, EPOLLIN));
    printf(" %ld", control(99, EPOLL_CTL_ADD, ends[0], EPOLLIN));
    printf(" %ld", control(ends[0], EPOLL_CTL_ADD, ends[1], EPOLLIN));
    printf(" %ld", control(outer, 7, ends[0], EPOLLIN));
    printf(" %ld", control(outer, EPOLL_CTL_MOD, ends[1], EPOLLIN));
    printf(" %ld", told(epoll_ctl(outer, EPOLL_CTL_ADD, ends[0], (void *)8)));
    printf(" %ld", control(outer, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT));
    printf(" %ld", control(outer, EPOLL_CTL_MOD, inner, EPOLLIN | EPOLLEXCLUSIVE));
    printf(" %ld", control(outer, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLEXCLUSIVE));
    printf(" %ld", control(outer, EPOLL_CTL_MOD, ends[0], EPOLLIN));
    printf(" wait %ld", told(epoll_wait(outer, &event, 0, 0)));
    printf(" %ld", told(epoll_wait(outer, &event, -1, 0)));
    printf(" %ld", told(epoll_wait(ends[0], &event, 1, 0)));
    printf(" %ld", told(epoll_wait(99, &event, 1, 0)));
    printf(" %ld", told(epoll_wait(outer, (void *)8, 1, 0)));
    show_events(outer, 0);
    printf(" %ld", told(read(outer, &event, 1)));
    printf(" %ld\n", told(write(outer, &event, 1)));
    close(outer), close(inner), close(ends[0]), close(ends[1]), close(file);
}

static void fifos(void)
{
    char bytes[16];
    struct stat status;
    int number;
    umask(022);
    printf("fifo: %ld", told(mkfifo("/s/fifo", 0666)));
    printf(" %ld", told(mkfifo("/s/fifo", 0666)));
    stat("/s/fifo", &status);
    printf(" %o", status.st_mode);
    printf(" %ld", told(open("/s/fifo", O_WRONLY | O_NONBLOCK)));
    int reader = open("/s/fifo", O_RDONLY | O_NONBLOCK);
    printf(" %x", polled(reader, POLLIN));
    printf(" %ld", told(read(reader, bytes, 8)));
    int writer = open("/s/fifo", O_WRONLY);
    printf(" %x", polled(reader, POLLIN));
    printf(" %ld", told(read(reader, bytes, 8)));
    printf(" %ld", told(write(writer, "abc", 3)));
    printf(" %x", polled(reader, POLLIN));
    close(writer);
    printf(" %x", polled(reader, POLLIN));
    printf(" %ld", told(read(reader, bytes, 8)));
    printf(" %ld", told(read(reader, bytes, 8)));
    fstat(reader, &status);
    printf(" %o", status.st_mode);
    printf(" %ld", told(lseek(reader, 0, SEEK_SET)));
    printf(" %ld", told(write(reader, "x", 1)));
    close(reader);
    /* Opens that wait for each other. */
    pid_t child = fork();
    if (child == 0) {
        usleep(5000);
        int out = open("/s/fifo", O_WRONLY);
        write(out, "from child", 10);
        _exit(0);
    }
    reader = open("/s/fifo", O_RDONLY);
    printf(" waited %d", reader > 0);
    printf(" %ld", told(read(reader, bytes, 16)));
    printf(" %.10s", bytes);
    printf(" %ld", told(read(reader, bytes, 16)));
    waitpid(child, 0, 0);
    close(reader);
    /* A signal ends the wait, and the end that waited goes away. */
    on_signal(SIGUSR1, quiet, 0);
    child = alarm_in(5, SIGUSR1);
    printf(" signal %ld", told(open("/s/fifo", O_WRONLY)));
    waitpid(child, 0, 0);
    reader = open("/s/fifo", O_RDONLY | O_NONBLOCK);
    printf(" %x", polled(reader, POLLIN));
    close(reader);
    on_signal(SIGUSR1, quiet, SA_RESTART);
    child = fork();
    if (child == 0) {
        usleep(5000);
        kill(getppid(), SIGUSR1);
        usleep(5000);
        open("/s/fifo", O_RDONLY);
        usleep(5000);
        _exit(0);
    }
    writer = open("/s/fifo", O_WRONLY);
    printf(" restarted %d", writer > 0);
    waitpid(child, 0, 0);
    signals = 0;
    on_signal(SIGPIPE, count, 0);
    printf(" %ld", told(write(writer, "x", 1)));
    printf(" %d", signals);
    printf(" %x", polled(writer, POLLOUT));
    close(writer);
    /* Both ends. */
    int both = open("/s/fifo", O_RDWR);
    printf(" both %ld", told(write(both, "kept", 4)));
    printf(" %x", polled(both, POLLIN | POLLOUT));
    printf(" %ld", told(read(both, bytes, 8)));
    write(both, "lost", 4);
    close(both);
    reader = open("/s/fifo", O_RDONLY | O_NONBLOCK);
    printf(" %ld", told(read(reader, bytes, 8)));
    close(reader);
    printf(" mknod %ld", told(mknod("/s/node", S_IFREG | 0640, 0)));
    stat("/s/node", &status);
    printf(" %o", status.st_mode);
    printf(" %ld", told(mknod("/s/socket", S_IFSOCK | 0600, 0)));
    printf(" %ld", told(mknod("/s/x", S_IFDIR | 0600, 0)));
    printf(" %ld", told(mknod("/s/x", 0030000, 0)));
    printf(" %ld", connected(number = socket(AF_UNIX, SOCK_STREAM, 0), "/s/socket"));
    printf(" %ld\n", told(mknod("/s/node", S_IFIFO, 0)));
    close(number);
}

int main(void)
{
    setvbuf(stdout, 0, _IOFBF, 1 << 16);
    void (*const groups[])(void) = { pairs, names, datagrams, options, rights, cycles, waits, polls, nested, fifos };
    for (int i = 0; i < sizeof groups / sizeof *groups; i++) {
        groups[i]();
        fflush(stdout);
    }
    return 0;
}
