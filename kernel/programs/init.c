/* The first program of a Linux whose answers are recorded: runs the program that its arguments name, tells its status, switches the machine off.
   Arguments come as the kernel's command line has them: %xx stands for a byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
    int status = 0;
    for (int i = 1; i < argc; i++)
        unescape(argv[i]);
    mkdir("/proc", 0755);
    mkdir("/dev", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    mount("dev", "/dev", "devtmpfs", 0, 0);
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
