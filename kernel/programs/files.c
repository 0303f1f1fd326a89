/* Files that programs make: holes, sizes, mappings, swap. Prints a line for each group. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, FILES = 8, PAGES = 512 };
static const long LARGE = 128 << 20;

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static int file(const char *path)
{
    return open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
}

static long blocks(int fd)
{
    struct stat stat;
    fstat(fd, &stat);
    return stat.st_blocks;
}

/* Together, the files are four times as large as memory. */
static void sparse(void)
{
    char path[32], byte = 0;
    int fds[FILES];
    long made = 0, sizes = 0, seen = 0;
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "/sparse%d", i);
        fds[i] = file(path);
        made += told(ftruncate(fds[i], LARGE));
        struct stat stat;
        fstat(fds[i], &stat);
        sizes += stat.st_size;
        pwrite(fds[i], "end", 3, LARGE - 3);
        char *shared = mmap(0, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        shared[LARGE / 2] = i + 1;
        seen += memcmp(shared + LARGE - 3, "end", 3) == 0;
        munmap(shared, LARGE);
        seen += pread(fds[i], &byte, 1, LARGE / 2) == 1 && byte == i + 1;
        seen += pread(fds[i], &byte, 1, LARGE / 4) == 1 && byte == 0;
    }
    printf("sparse: %ld %ld %ld, blocks %ld", made, sizes >> 20, seen, blocks(fds[0]));
    printf(" %ld", told(ftruncate(fds[0], LARGE / 2)));
    printf(" %ld", blocks(fds[0]));
    printf(" %ld", told(ftruncate(fds[0], LARGE)));
    printf(" %ld", told(pread(fds[0], &byte, 1, LARGE - 1)));
    printf(" %d, hole %ld", byte, told(fallocate(fds[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LARGE)));
    printf(" %ld", blocks(fds[0]));
    printf(", room %ld", told(fallocate(fds[0], 0, 0, 4 * PAGE)));
    printf(" %ld", blocks(fds[0]));
    printf(" %ld", told(truncate("/sparse0", 5)));
    printf(" %ld\n", told(lseek(fds[0], 0, SEEK_END)));
    printf("refused: %ld %ld", told(truncate("/sparse0", -1)), told(truncate("/nothing", 0)));
    printf(" %ld %ld", told(truncate("/", 0)), told(ftruncate(fds[0], -1)));
    int only = open("/sparse0", O_RDONLY);
    printf(" %ld %ld\n", told(ftruncate(only, 0)), told(fallocate(only, 0, 0, 1)));
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "/sparse%d", i);
        unlink(path);
        close(fds[i]);
    }
    close(only);
}

/* Pages of a file that were paged out come back, by a mapping and by a read. */
static void swapped(void)
{
    struct sysinfo before, after;
    int fd = file("/swapped"), wrong = 0;
    long size = PAGES * PAGE;
    ftruncate(fd, size);
    int *shared = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < PAGES; i++)
        shared[i * (PAGE / 4) + i] = i + 1;
    sysinfo(&before);
    printf("swapped: %ld", told(madvise(shared, size, MADV_PAGEOUT)));
    sysinfo(&after);
    printf(" %d", (before.freeswap - after.freeswap) * before.mem_unit >= size / 2);
    for (int i = 0; i < PAGES / 2; i++)
        wrong += shared[i * (PAGE / 4) + i] != i + 1;
    for (int i = PAGES / 2; i < PAGES; i++) {
        int word = 0;
        pread(fd, &word, sizeof word, (long)i * PAGE + i * 4);
        wrong += word != i + 1;
    }
    printf(" wrong %d, blocks %ld\n", wrong, blocks(fd));
    munmap(shared, size);
    unlink("/swapped");
    close(fd);
}

/* A program that was copied runs, and goes on after its file is gone. */
static void copied(const char *program)
{
    static char bytes[1 << 16];
    int from = open(program, O_RDONLY), to = open("/copy", O_WRONLY | O_CREAT | O_EXCL, 0755), status = 0;
    for (long count; (count = read(from, bytes, sizeof bytes)) > 0;)
        write(to, bytes, count);
    close(from);
    close(to);
    fflush(stdout);
    if (fork() == 0) {
        execl("/copy", "/copy", "copied", (char *)0);
        _exit(1);
    }
    wait(&status);
    printf("copied: %d\n", WEXITSTATUS(status));
    unlink("/copy");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        printf("gone: %ld\n", told(unlink(argv[0])));
        return 6;
    }
    sparse();
    swapped();
    copied(argv[0]);
    return 0;
}
