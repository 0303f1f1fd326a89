/* Threads that read and write the disk through one descriptor: nobody waits for ever, and whoever reads finds what somebody wrote. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SECTOR = 512, SECTORS = 64, THREADS = 4, ROUNDS = 20000 };

static int disk, wrong;

static void *reads(void *unused)
{
    char bytes[SECTOR];
    for (int i = 0; i < ROUNDS; i++)
        if (pread(disk, bytes, SECTOR, i % SECTORS * SECTOR) != SECTOR || bytes[0] != 0 && bytes[0] != 7 || memcmp(bytes, bytes + 1, SECTOR - 1))
            wrong++;
    return 0;
}

static void *writes(void *unused)
{
    char bytes[SECTOR];
    memset(bytes, 7, SECTOR);
    for (int i = 0; i < ROUNDS; i++)
        if (pwrite(disk, bytes, SECTOR, i % SECTORS * SECTOR) != SECTOR)
            wrong++;
    return 0;
}

int main(void)
{
    pthread_t threads[THREADS];
    int size = open("/sys/block/zram0/disksize", O_WRONLY);
    int given = write(size, "1M", 2);
    close(size);
    disk = open("/dev/zram0", O_RDWR);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, i % 2 ? reads : writes, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    printf("disk: %d %d\n", given, wrong);
    return 0;
}
