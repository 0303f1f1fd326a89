/* The first program of a Linux whose answers are recorded: loads the modules that lie in /modules, swaps to zram if its environment has "swap_to", runs the
   program that its arguments name, tells its status, switches the machine off.
   Arguments come as the kernel's command line has them: %xx stands for a byte. */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SWAP_PAGES 16384
#define PAGE 4096
#define COMPRESSED_FILE 4

static void unescape(char *word)
{
    char *to = word;
    for (char *from = word; *from; from++)
        if (*from == '%' && from[1] && from[2]) {
            char digits[3] = { from[1], from[2], 0 };
            *to = strtoul(digits, 0, 16);
            to += *to != 0;
            from += 2;
        } else {
            *to++ = *from;
        }
    *to = 0;
}

/* In the order of their names. */
static void load_modules(void)
{
    struct dirent **found;
    char path[512];
    int count = scandir("/modules", &found, 0, alphasort);

    for (int i = 0; i < count; i++) {
        const char *name = found[i]->d_name;
        size_t length = strlen(name);
        int flags = length > 3 && strcmp(name + length - 3, ".xz") == 0 ? COMPRESSED_FILE : 0, file;

        if (name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/modules/%s", name);
        file = open(path, O_RDONLY);
        if (syscall(SYS_finit_module, file, "", flags))
            perror(name);
        close(file);
    }
}

static int say(const char *path, const char *word)
{
    int file = open(path, O_WRONLY), said = write(file, word, strlen(word)) > 0;

    close(file);
    return said;
}

/* As mkswap(8) and swapon(8) do. */
static void swap_to_zram(void)
{
    static uint32_t page[PAGE / 4];
    char size[32];
    int disk;

    snprintf(size, sizeof size, "%d", SWAP_PAGES * PAGE);
    if (!say("/sys/block/zram0/disksize", size))
        return;
    page[256] = 1;
    page[257] = SWAP_PAGES - 1;
    memcpy((char *)page + PAGE - 10, "SWAPSPACE2", 10);
    disk = open("/dev/zram0", O_WRONLY);
    if (write(disk, page, PAGE) != PAGE || fsync(disk) || close(disk) || swapon("/dev/zram0", 0))
        perror("zram0");
}

int main(int argc, char **argv)
{
    int status = 0;
    /* Linux passes words that it does not know, such as nokaslr, before the program's path. */
    while (argc > 2 && argv[1][0] != '/')
        argc--, argv++;
    for (int i = 1; i < argc; i++)
        unescape(argv[i]);
    mkdir("/proc", 0755);
    mkdir("/dev", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    mount("dev", "/dev", "devtmpfs", 0, 0);
    mkdir("/sys", 0755);
    mount("sys", "/sys", "sysfs", 0, 0);
    load_modules();
    /* The only one that is brought along; without zram there is nothing to say it to. */
    say("/sys/block/zram0/comp_algorithm", "lz4");
    if (getenv("swap_to"))
        swap_to_zram();
    pid_t child = fork();
    if (child == 0) {
        execv(argv[1], argv + 1);
        _exit(127);
    }
    while (wait(&status) != child)
        ;
    printf("\nstatus %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    fflush(stdout);
    /* What the serial line still holds goes out first. */
    sleep(1);
    reboot(RB_POWER_OFF);
    return 0;
}
