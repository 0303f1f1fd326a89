/* What the names and attributes of files do, what is mounted, and who holds locks. Prints a line for each group. */
/* Tests INV-KERNEL-LOCK, INV-KERNEL-MOUNT. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static void make(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(fd, text, strlen(text));
    close(fd);
}

/* The first byte of a file; 0 without one. */
static char first(const char *path)
{
    char byte = 0;
    int fd = open(path, O_RDONLY);
    if (fd == -1)
        return '-';
    read(fd, &byte, 1);
    close(fd);
    return byte;
}

static int links(const char *path)
{
    struct stat stat;
    return lstat(path, &stat) ? -errno : (int)stat.st_nlink;
}

static void renames(void)
{
    mkdir("/d", 0755);
    mkdir("/d/sub", 0755);
    mkdir("/e", 0755);
    make("/d/sub/file", "f");
    make("/a", "a");
    make("/b", "b");
    printf("rename: %ld", told(rename("/a", "/c")));
    printf(" %c %c", first("/a"), first("/c"));
    printf(" %ld", told(rename("/c", "/b")));
    printf(" %c %c", first("/c"), first("/b"));
    printf(" %ld", told(rename("/d", "/moved")));
    printf(" %c %c", first("/moved/sub/file"), first("/d/sub/file"));
    printf(" %ld %ld", told(rename("/moved", "/moved/sub/inside")), told(rename("/moved/sub", "/moved")));
    printf(" %ld %ld", told(rename("/b", "/e")), told(rename("/e", "/b")));
    printf(" %ld %ld", told(rename("/e", "/moved")), told(rename("/nothing", "/b")));
    printf(" %ld %ld", told(rename("/b", "/nowhere/b")), told(rename("/b", "/b/c")));
    printf(" %ld %ld %ld\n", told(rename("/b", "/e/..")), told(rename("/e/.", "/g")), told(rename("/", "/g")));
    printf("renameat2: %ld", told(renameat2(AT_FDCWD, "/b", AT_FDCWD, "/moved/sub/file", RENAME_NOREPLACE)));
    printf(" %ld", told(renameat2(AT_FDCWD, "/b", AT_FDCWD, "/moved/sub/file", RENAME_EXCHANGE)));
    printf(" %c %c", first("/b"), first("/moved/sub/file"));
    printf(" %ld", told(renameat2(AT_FDCWD, "/moved", AT_FDCWD, "/b", RENAME_EXCHANGE)));
    printf(" %c %c", first("/b/sub/file"), first("/moved"));
    printf(" %ld", told(renameat2(AT_FDCWD, "/b", AT_FDCWD, "/none", RENAME_EXCHANGE)));
    printf(" %ld", told(renameat2(AT_FDCWD, "/b", AT_FDCWD, "/none", RENAME_EXCHANGE | RENAME_NOREPLACE)));
    printf(" %ld", told(renameat2(AT_FDCWD, "/b", AT_FDCWD, "/none", 64)));
    int dir = open("/b", O_RDONLY | O_DIRECTORY);
    printf(" %ld", told(renameat2(dir, "sub/file", dir, "file", RENAME_NOREPLACE)));
    printf(" %c\n", first("/b/file"));
    close(dir);
}

static void hard_links(void)
{
    int fd = open("/one", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct stat one, two;
    printf("link: %ld", told(link("/one", "/two")));
    write(fd, "x", 1);
    stat("/one", &one);
    stat("/two", &two);
    printf(" %d %d %c", one.st_ino == two.st_ino, (int)two.st_nlink, first("/two"));
    printf(" %ld %ld", told(rename("/one", "/two")), told(unlink("/one")));
    printf(" %d %c", links("/two"), first("/two"));
    printf(" %ld %ld", told(link("/two", "/two")), told(link("/e", "/f")));
    printf(" %ld %ld", told(link("/none", "/f")), told(linkat(AT_FDCWD, "/two", AT_FDCWD, "/f", 1)));
    symlink("/two", "/soft");
    printf(" %ld", told(link("/soft", "/hard")));
    printf(" %d", links("/hard"));
    printf(" %ld", told(linkat(AT_FDCWD, "/soft", AT_FDCWD, "/three", AT_SYMLINK_FOLLOW)));
    printf(" %d", links("/three"));
    printf(" %ld", told(linkat(fd, "", AT_FDCWD, "/four", AT_EMPTY_PATH)));
    printf(" %d", links("/four"));
    unlink("/two");
    unlink("/three");
    unlink("/four");
    fstat(fd, &one);
    printf(" %d %ld", (int)one.st_nlink, told(linkat(fd, "", AT_FDCWD, "/four", AT_EMPTY_PATH)));
    printf(" directories %d %d\n", links("/b"), links("/e"));
    close(fd);
    printf("unlink: %ld %ld", told(unlink("/e")), told(rmdir("/b")));
    printf(" %ld %ld", told(rmdir("/moved")), told(unlink("/none")));
    printf(" %ld %ld\n", told(unlinkat(AT_FDCWD, "/e", 1)), told(rmdir("/e")));
    unlink("/soft");
    unlink("/hard");
}

static void owners(void)
{
    struct stat stat;
    make("/owned", "o");
    symlink("/owned", "/link");
    int fd = open("/owned", O_RDWR), pipes[2];
    pipe(pipes);
    chmod("/owned", 06755);
    lstat("/owned", &stat);
    printf("owner: %d %d %o", stat.st_uid, stat.st_gid, stat.st_mode);
    printf(" %ld", told(chown("/link", 5, 6)));
    lstat("/owned", &stat);
    printf(" %d %d %o", stat.st_uid, stat.st_gid, stat.st_mode);
    printf(" %ld", told(lchown("/link", 7, -1)));
    lstat("/link", &stat);
    printf(" %d %d", stat.st_uid, stat.st_gid);
    printf(" %ld %ld", told(fchown(fd, -1, 9)), told(fchownat(fd, "", 11, -1, AT_EMPTY_PATH)));
    fstat(fd, &stat);
    printf(" %d %d", stat.st_uid, stat.st_gid);
    chmod("/owned", 02644);
    chown("/owned", -1, -1);
    fstat(fd, &stat);
    printf(" %o", stat.st_mode);
    printf(" %ld %ld", told(chown("/none", 0, 0)), told(fchown(99, 0, 0)));
    printf(" %ld %ld", told(fchownat(AT_FDCWD, "/owned", 0, 0, 1)), told(fchownat(99, "x", 0, 0, 0)));
    printf(" %ld\n", told(fchownat(fd, "x", 0, 0, 0)));
    struct timespec times[2] = { { 1000, 5 }, { 2000, 7 } }, some[2] = { { 0, UTIME_OMIT }, { 3000, 0 } }, odd[2] = { { 0, 1000000000 }, { 0, 0 } };
    printf("times: %ld", told(utimensat(AT_FDCWD, "/owned", times, 0)));
    fstat(fd, &stat);
    printf(" %ld.%ld %ld.%ld", stat.st_atim.tv_sec, stat.st_atim.tv_nsec, stat.st_mtim.tv_sec, stat.st_mtim.tv_nsec);
    printf(" %ld", told(futimens(fd, some)));
    fstat(fd, &stat);
    printf(" %ld %ld", stat.st_atim.tv_sec, stat.st_mtim.tv_sec);
    char byte;
    pread(fd, &byte, 1, 0);
    fstat(fd, &stat);
    printf(" read %d %ld", stat.st_atim.tv_sec > 1600000000, stat.st_mtim.tv_sec);
    pwrite(fd, "w", 1, 0);
    fstat(fd, &stat);
    printf(" write %d", stat.st_mtim.tv_sec > 1600000000 && stat.st_ctim.tv_sec > 1600000000);
    printf(" %ld %ld", told(utimensat(AT_FDCWD, "/owned", odd, 0)), told(utimensat(AT_FDCWD, "/none", 0, 0)));
    printf(" %ld %ld\n", told(utimensat(AT_FDCWD, "/owned", times, 1)), told(utimensat(99, "x", 0, 0)));
    struct statfs fs, same;
    printf("statfs: %ld", told(statfs("/owned", &fs)));
    printf(" %ld", told(fstatfs(fd, &same)));
    printf(" %lx %ld %ld %d", (long)fs.f_type, (long)fs.f_bsize, (long)fs.f_namelen, fs.f_type == same.f_type && fs.f_blocks == same.f_blocks);
    printf(" free %d %d", fs.f_blocks > fs.f_bfree, fs.f_bfree == fs.f_bavail);
    ftruncate(fd, 40 << 20);
    fallocate(fd, 0, 0, 4 << 20);
    fstatfs(fd, &same);
    printf(" used %ld", (long)(fs.f_bfree - same.f_bfree));
    printf(" pipe %ld", told(fstatfs(pipes[0], &fs)));
    printf(" %lx", (long)fs.f_type);
    printf(" %ld %ld", told(statfs("/none", &fs)), told(fstatfs(99, &fs)));
    printf(" %ld\n", told(syscall(SYS_statfs, "/", 16)));
    printf("devices: ");
    lstat("/dev/null", &stat);
    printf("%o %lx", stat.st_mode & S_IFMT, (long)stat.st_rdev);
    lstat("/dev/zero", &stat);
    printf(" %o %lx\n", stat.st_mode & S_IFMT, (long)stat.st_rdev);
    close(fd);
    unlink("/owned");
    unlink("/link");
}

static long lock(int fd, int command, int type, long start, long len)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
    return told(fcntl(fd, command, &lock));
}

/* What stands in the way of a lock: its kind, range, and whether this process's parent holds it. */
static void asked(int fd, int command, int type, long start, long len)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };
    if (fcntl(fd, command, &lock))
        printf(" %d", -errno);
    else if (lock.l_type == F_UNLCK)
        printf(" free");
    else
        printf(" %d:%ld+%ld:%d", lock.l_type, (long)lock.l_start, (long)lock.l_len, lock.l_pid == getppid() ? 1 : lock.l_pid == -1 ? -1 : 0);
}

static void in_child(void (*body)(void))
{
    int status;
    fflush(stdout);
    if (fork() == 0) {
        body();
        fflush(stdout);
        _exit(0);
    }
    while (wait(&status) == -1)
        ;
}

static int shared_fd;

static void sees_locks(void)
{
    int own = open("/locked", O_RDWR);
    asked(own, F_GETLK, F_WRLCK, 0, 0);
    asked(own, F_GETLK, F_RDLCK, 0, 0);
    asked(own, F_GETLK, F_WRLCK, 60, 10);
    asked(own, F_GETLK, F_RDLCK, 100, 1);
    printf(" %ld %ld", lock(own, F_SETLK, F_RDLCK, 0, 10), lock(own, F_SETLK, F_WRLCK, 15, 1));
    printf(" %ld", lock(shared_fd, F_SETLK, F_WRLCK, 25, 1));
}

static void sees_none(void)
{
    int own = open("/locked", O_RDWR);
    asked(own, F_GETLK, F_WRLCK, 0, 0);
}

static void sees_files(void)
{
    int own = open("/locked", O_RDWR), only = open("/locked", O_RDONLY);
    printf(" %ld %ld", lock(own, F_OFD_SETLK, F_WRLCK, 0, 0), lock(shared_fd, F_OFD_SETLK, F_WRLCK, 0, 5));
    asked(own, F_OFD_GETLK, F_RDLCK, 0, 0);
    asked(own, F_GETLK, F_RDLCK, 0, 0);
    printf(" %ld %ld", told(flock(own, LOCK_EX | LOCK_NB)), told(flock(own, LOCK_SH | LOCK_NB)));
    printf(" %ld", told(flock(shared_fd, LOCK_EX | LOCK_NB)));
    printf(" %ld", lock(only, F_SETLK, F_WRLCK, 50, 1));
}

static volatile sig_atomic_t alarms;

static void handler(int signal)
{
    alarms++;
}

static void locks(void)
{
    int fd = open("/locked", O_RDWR | O_CREAT | O_TRUNC, 0644), go[2];
    shared_fd = fd;
    printf("posix: %ld %ld", lock(fd, F_SETLK, F_WRLCK, 10, 20), lock(fd, F_SETLK, F_RDLCK, 40, 10));
    printf(" %ld", lock(fd, F_SETLK, F_RDLCK, 50, 20));
    printf(" %ld", lock(fd, F_SETLK, F_UNLCK, 15, 5));
    printf(" %ld", lock(fd, F_SETLK, F_WRLCK, 45, 5));
    in_child(sees_locks);
    int other = open("/locked", O_RDONLY);
    close(other);
    printf(" closed");
    in_child(sees_none);
    printf("\nfile: %ld", lock(fd, F_OFD_SETLK, F_RDLCK, 0, 100));
    printf(" %ld %ld", told(flock(fd, LOCK_SH)), told(flock(fd, LOCK_SH | LOCK_NB)));
    in_child(sees_files);
    printf(" %ld %ld", told(flock(fd, LOCK_UN)), told(flock(fd, LOCK_EX)));
    int twin = dup(fd);
    close(fd);
    in_child(sees_none);
    fd = open("/locked", O_RDWR);
    printf(" %ld", told(flock(fd, LOCK_SH | LOCK_NB)));
    close(twin);
    printf(" %ld", told(flock(fd, LOCK_SH | LOCK_NB)));
    in_child(sees_none);
    struct flock odd = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = -1 }, bad = { .l_type = 9 }, mine = { .l_type = F_RDLCK, .l_pid = 1 };
    printf("\nrefused: %ld %ld", told(fcntl(fd, F_SETLK, &odd)), told(fcntl(fd, F_SETLK, &bad)));
    odd.l_start = 0, odd.l_whence = 7;
    printf(" %ld %ld", told(fcntl(fd, F_SETLK, &odd)), told(fcntl(fd, F_OFD_SETLK, &mine)));
    odd.l_whence = SEEK_SET, odd.l_start = 100, odd.l_len = -50;
    printf(" %ld", told(fcntl(fd, F_SETLK, &odd)));
    odd.l_start = 10;
    printf(" %ld", told(fcntl(fd, F_SETLK, &odd)));
    odd.l_start = odd.l_len = 0x7fffffffffffffff;
    printf(" %ld", told(fcntl(fd, F_SETLK, &odd)));
    printf(" %ld %ld", told(fcntl(fd, F_SETLK, (void *)16)), told(fcntl(99, F_SETLK, &mine)));
    printf(" %ld %ld %ld\n", told(flock(99, LOCK_SH)), told(flock(fd, 0)), told(flock(fd, LOCK_SH | LOCK_EX)));
    close(fd);
    /* One waits until the other releases; a signal ends a wait; two that wait for each other are refused. */
    fd = open("/locked", O_RDWR);
    int there[2];
    pipe(go);
    pipe(there);
    lock(fd, F_SETLK, F_WRLCK, 0, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        int own = open("/locked", O_RDWR);
        lock(own, F_SETLK, F_WRLCK, 1, 1);
        write(there[1], "x", 1);
        long result = lock(own, F_SETLKW, F_WRLCK, 0, 1);
        _exit(result == 0 ? 3 : 4);
    }
    char byte;
    struct sigaction action = { .sa_handler = handler };
    struct itimerval soon = { { 0, 50000 }, { 0, 50000 } }, never = { 0 };
    int status;
    read(there[0], &byte, 1);
    usleep(50000);
    printf("waits: %ld", lock(fd, F_SETLKW, F_WRLCK, 1, 1));
    sigaction(SIGALRM, &action, 0);
    lock(fd, F_SETLK, F_UNLCK, 0, 0);
    waitpid(child, &status, 0);
    printf(" %d", WEXITSTATUS(status));
    flock(fd, LOCK_EX);
    int second = open("/locked", O_RDWR);
    setitimer(ITIMER_REAL, &soon, 0);
    printf(" %ld", told(flock(second, LOCK_EX)));
    setitimer(ITIMER_REAL, &never, 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        usleep(30000);
        int result = flock(fd, LOCK_UN);
        _exit(result);
    }
    printf(" %ld", told(flock(second, LOCK_EX)));
    waitpid(child, &status, 0);
    printf(" %d\n", status);
    close(second);
    close(fd);
    unlink("/locked");
}

/* The line of /proc/mounts, without what depends on the configuration of Linux. */
static void show_mount(const char *path)
{
    char line[256], wanted[64];
    FILE *mounts = fopen("/proc/mounts", "r");
    snprintf(wanted, sizeof wanted, " %s ", path);
    while (fgets(line, sizeof line, mounts))
        if (strstr(line, wanted)) {
            char *end = strstr(line, " 0 0\n"), *inodes = strstr(line, ",inode");
            *(inodes ? inodes : end) = 0;
            printf(" [%s]", line);
        }
    fclose(mounts);
}

static int on_root(const char *path)
{
    struct stat root, file;
    stat("/", &root);
    return stat(path, &file) ? -errno : file.st_dev == root.st_dev;
}

/* The status of a copy of this program, which is its effective user. */
static int runs(const char *path)
{
    int status;
    fflush(stdout);
    if (fork() == 0) {
        execl(path, path, "user", (char *)0);
        _exit(errno);
    }
    wait(&status);
    return WEXITSTATUS(status);
}

static void copy_program(const char *path)
{
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT, 0755);
    for (long count; (count = read(from, bytes, sizeof bytes)) > 0;)
        write(to, bytes, count);
    close(from);
    close(to);
    chown(path, 7, 0);
    chmod(path, 04755);
}

static void mounts(void)
{
    static char bytes[100000];
    struct stat stat_of;
    struct statfs of;
    mkdir("/m", 0700);
    make("/m/covered", "c");
    printf("mount: %ld", told(mount("a name", "/m", "tmpfs", MS_NOSUID | MS_NODEV | MS_SILENT, "size=63k,mode=750,uid=3")));
    show_mount("/m");
    stat("/m", &stat_of);
    statfs("/m", &of);
    printf(" %o %d %d", stat_of.st_mode, stat_of.st_uid, (int)stat_of.st_nlink);
    printf(" %ld", (long)of.f_blocks);
    printf(" %ld", (long)of.f_bfree);
    printf(" %c", first("/m/covered"));
    printf(" %d", on_root("/m"));
    printf(" %d", on_root("/proc"));
    int fd = open("/m/f", O_RDWR | O_CREAT, 0600);
    printf(" %ld", told(write(fd, bytes, sizeof bytes)));
    printf(" %ld", told(write(fd, bytes, 1)));
    printf(" %ld", told(rename("/m/f", "/f")));
    printf(" %ld", told(link("/m/f", "/f")));
    printf(" %ld", told(rename("/m", "/n")));
    printf(" %ld", told(rmdir("/m")));
    printf(" %ld", told(umount("/m")));
    char *mapped = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    printf(" mapped %ld", told(umount("/m")));
    munmap(mapped, 4096);
    chdir("/m");
    printf(" here %ld", told(umount("/m")));
    chdir("/");
    mkdir("/m/n", 0700);
    printf(" above %ld", told(mount(0, "/m/n", "tmpfs", 0, 0)));
    printf(" %ld", told(umount("/m")));
    show_mount("/m/n");
    printf(" %ld", told(umount("/m/n")));
    printf(" %ld", told(umount("/m")));
    printf(" %c\n", first("/m/covered"));

    printf("stacked: %ld", told(mount("one", "/m", "tmpfs", 0, "")));
    make("/m/a", "1");
    printf(" %ld", told(mount("two", "/m", "tmpfs", 0, 0)));
    printf(" %c", first("/m/a"));
    make("/m/a", "2");
    printf(" %c", first("/m/a"));
    printf(" %ld", told(umount("/m")));
    printf(" %c", first("/m/a"));
    fd = open("/m/a", O_RDONLY);
    printf(" %ld", told(umount2("/m", MNT_DETACH)));
    printf(" %c", first("/m/a"));
    printf(" %ld", told(read(fd, bytes, 1)));
    printf(" %c", bytes[0]);
    printf(" %ld", told(umount("/m")));
    close(fd);
    mkdir("/p", 0700);
    mkdir("/p/q", 0700);
    mount("moved", "/p/q", "tmpfs", 0, 0);
    make("/p/q/x", "x");
    printf(" %ld", told(rename("/p", "/r")));
    printf(" %c", first("/r/q/x"));
    show_mount("/r/q");
    printf(" %ld", told(umount("/p/q")));
    printf(" %ld", told(rmdir("/r/q")));
    printf(" %ld", told(umount2("/r/q", MNT_FORCE)));
    printf(" %ld", told(mount("x", "/r/q", "tmpfs", 0, "nr_blocks=18446744073709551614")));
    chdir("/r/q");
    printf(" %s", getcwd(bytes, sizeof bytes));
    chdir("../../sys/devices/system/cpu/../../system");
    printf(" %s", getcwd(bytes, sizeof bytes));
    printf(" %c\n", first("cpu/../cpu/online"));
    chdir("/");
    rmdir("/r/q");
    rmdir("/r");

    copy_program("/m/program");
    printf("flags: %d", runs("/m/program"));
    mount("x", "/m", "tmpfs", MS_NOSUID | MS_NOEXEC, 0);
    copy_program("/m/program");
    fd = open("/m/program", O_RDONLY);
    printf(" %d", runs("/m/program"));
    printf(" %ld", told(access("/m/program", X_OK)));
    printf(" %d", mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED ? errno : 0);
    mapped = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    printf(" %ld", told(mprotect(mapped, 4096, PROT_READ | PROT_EXEC)));
    munmap(mapped, 4096);
    close(fd);
    umount("/m");
    mount("x", "/m", "tmpfs", MS_NOSUID, 0);
    copy_program("/m/program");
    printf(" %d", runs("/m/program"));
    printf(" %ld", told(umount("/m")));
    unlink("/m/program");
    printf(" proc %ld", told(mount("it", "/m", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, 0)));
    show_mount("/m");
    statfs("/m", &of);
    printf(" %lx", (long)of.f_type);
    printf(" %c", first("/m/self/comm"));
    printf("%c", first("/m/self/task/../comm"));
    printf(" %ld", told(mkdir("/m/x", 0700)));
    printf(" %d", open("/m/x", O_WRONLY | O_CREAT, 0600) == -1 ? errno : 0);
    printf(" %ld", told(rmdir("/m")));
    printf(" %ld", told(umount("/m")));
    printf(" sys %ld", told(mount("it", "/m", "sysfs", 0, 0)));
    printf(" %ld", told(access("/m/devices/system/cpu", F_OK)));
    printf(" %d", first("/m/devices/system/cpu/online"));
    printf(" %ld", told(mkdir("/m/x", 0700)));
    printf(" %d", open("/m/x", O_WRONLY | O_CREAT, 0600) == -1 ? errno : 0);
    printf(" %ld", told(umount("/m")));
    printf(" %c\n", first("/m/covered"));

    printf("no mount: %ld", told(mount("x", "/none", "tmpfs", 0, 0)));
    printf(" %ld", told(mount("x", "/m/covered", "tmpfs", 0, 0)));
    printf(" %ld", told(mount("x", "/m", "nothing", 0, 0)));
    printf(" %ld", told(mount("x", "/m", 0, 0, 0)));
    printf(" %ld", told(mount("x", "/m", "tmpfs", 0, "size=x")));
    printf(" %ld", told(mount("x", "/m", "tmpfs", 0, "nothing=1")));
    printf(" %ld", told(mount("x", "/sys", "sysfs", 0, 0)));
    printf(" %ld", told(mount("x", "/m", "proc", 0, "nothing=1")));
    printf(" %ld", told(mount("x", "/m", (void *)16, 0, 0)));
    printf(" %ld", told(mount("x", "/m", "tmpfs", 0, (void *)16)));
    printf(" %ld", told(mount((void *)16, "/m", "tmpfs", 0, 0)));
    printf(" %ld", told(mount("x", (void *)16, "tmpfs", 0, 0)));
    printf(" %ld", told(umount2("/m", 64)));
    printf(" %ld", told(umount("/m")));
    printf(" %ld", told(umount("/none")));
    printf(" %ld", told(umount((void *)16)));
    mount("x", "/m", "tmpfs", 0, 0);
    symlink("/m", "/link");
    printf(" %ld", told(umount2("/link", UMOUNT_NOFOLLOW)));
    printf(" %ld", told(umount("/m/none")));
    fflush(stdout);
    if (fork() == 0) {
        setresuid(7, 7, 7);
        printf(" %ld", told(mount("x", "/m", "tmpfs", 0, 0)));
        printf(" %ld", told(umount("/m")));
        printf(" %ld", told(mount("x", "/none", "tmpfs", 0, 0)));
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    printf(" %ld\n", told(umount("/link")));
    unlink("/link");
    unlink("/m/covered");
    rmdir("/m");
}

static long made(const char *path, int flags)
{
    int fd = open(path, flags, 0600);
    if (fd != -1)
        close(fd);
    return fd == -1 ? -errno : 0;
}

/* Links that are followed, or not. */
static void followed(void)
{
    char name[20], text[20];
    mkdir("/l", 0700);
    chdir("/l");
    make("0", "x");
    for (int i = 1; i <= 41; i++) {
        sprintf(name, "%d", i);
        sprintf(text, "%d", i - 1);
        symlink(text, name);
    }
    printf("links: %c", first("40"));
    printf(" %ld", made("41", O_RDONLY));
    symlink("none", "dangling");
    printf(" %ld", made("dangling", O_WRONLY | O_CREAT | O_EXCL));
    printf(" %ld", made("1", O_WRONLY | O_CREAT | O_EXCL));
    printf(" %ld", made("dangling", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
    printf(" %ld", made("dangling", O_WRONLY | O_CREAT | O_NOFOLLOW));
    printf(" %ld", made("/proc/self/fd/1", O_WRONLY | O_CREAT | O_EXCL));
    printf(" %ld", made("/proc/self/comm", O_WRONLY | O_CREAT | O_EXCL));
    printf(" %ld", made("/proc/self/cwd", O_RDONLY | O_CREAT | O_EXCL));
    printf(" %ld", told(access("none", F_OK)));
    printf(" %ld", made("dangling", O_WRONLY | O_CREAT));
    printf(" %ld\n", told(access("none", F_OK)));
    for (int i = 0; i <= 41; i++) {
        sprintf(name, "%d", i);
        unlink(name);
    }
    unlink("dangling");
    unlink("none");
    chdir("/");
    rmdir("/l");
}

/* Mount points that are removed, renamed and covered; what keeps a mount busy. */
static void mount_points(void)
{
    char bytes[100];
    struct sockaddr_un at = { AF_UNIX, "/m/socket" };
    mkdir("/m", 0700);
    mkdir("/m/b", 0700);
    mount("one", "/m/b", "tmpfs", 0, 0);
    printf("points: %ld %ld", told(unlink("/m/b")), told(rmdir("/m/b")));
    make("/m/b/x", "1");
    mount("two", "/m", "tmpfs", 0, 0);
    mkdir("/m/b", 0700);
    make("/m/b/x", "2");
    printf(" %ld", told(rename("/m/b", "/m/c")));
    printf(" %c", first("/m/c/x"));
    mkdir("/m/b", 0700);
    printf(" %ld", told(rmdir("/m/b")));
    printf(" %ld", told(umount("/m")));
    printf(" %c", first("/m/b/x"));
    printf(" %ld", told(umount("/m/b")));
    mount("three", "/m", "tmpfs", 0, 0);
    int named = socket(AF_UNIX, SOCK_STREAM, 0);
    printf(" socket %ld", told(bind(named, (void *)&at, sizeof at)));
    printf(" %ld", told(umount("/m")));
    close(named);
    printf(" %ld", told(umount("/m")));
    mount("four", "/m", "tmpfs", 0, 0);
    mkdir("/m/d", 0700);
    mkdir("/m/d/e", 0700);
    chdir("/m/d/e");
    printf(" moved %ld", told(rename("/m/d", "/m/f")));
    printf(" %s", getcwd(bytes, sizeof bytes));
    make("here", "h");
    printf(" %c", first("/m/f/e/here"));
    printf(" %ld", told(umount("/m")));
    mount("five", "/m", "tmpfs", 0, 0);
    printf(" covered %ld", told(umount("/m")));
    printf(" %ld", told(umount("/m")));
    chdir("/m/f");
    unlink("/m/f/e/here");
    printf(" gone %ld", told(rmdir("/m/f/e")));
    chdir("/m");
    printf(" %ld", told(rmdir("/m/f")));
    mkdir("/m/g", 0700);
    chdir("/m/g");
    rmdir("/m/g");
    printf(" %s", getcwd(bytes, sizeof bytes) ? bytes : strerror(errno));
    chdir("/");
    printf(" %ld\n", told(umount("/m")));
    rmdir("/m/b");
    rmdir("/m");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return geteuid();
    renames();
    hard_links();
    owners();
    mounts();
    mount_points();
    followed();
    locks();
    return 0;
}
