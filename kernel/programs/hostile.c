/* A program that asks for what no kernel should do, or be ended by, and looks that it is refused and nothing left behind. Prints a line for each. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG = 100 << 10, MANY = 4096 };

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static int file(const char *path, const char *text, int mode)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd == -1 || write(fd, text, strlen(text)) != (long)strlen(text))
        exit(2);
    return fd;
}

/* Scripts that name each other, or themselves, for their interpreter. */
static void scripts(void)
{
    char *words[] = { "script", 0 };
    close(file("/tmp/one", "#!/tmp/one\n", 0755));
    printf("scripts: %ld", told(execv("/tmp/one", words)));
    close(file("/tmp/one", "#!/tmp/two\n", 0755));
    close(file("/tmp/two", "#!/tmp/one an argument\n", 0755));
    printf(" %ld\n", told(execv("/tmp/one", words)));
    unlink("/tmp/one");
    unlink("/tmp/two");
}

/* More arguments than any kernel takes, and than there is memory. */
static void arguments(char *program)
{
    static char word[LONG];
    char **words = calloc(MANY + 1, sizeof *words);
    memset(word, 'a', sizeof word - 1);
    for (int i = 0; i < MANY; i++)
        words[i] = word;
    printf("arguments: %ld", told(execv(program, words)));
    words[0] = program;
    words[1] = 0;
    words[2] = word;
    printf(" %ld\n", told(execve(program, words, words + 2)));
    free(words);
}

/* The signal of a child's end is none. */
static void endings(void)
{
    int status = 0;
    unsigned long structure[11] = { 0 };
    pid_t child = syscall(SYS_clone, 200, 0, 0, 0, 0);
    if (child == 0) {
        usleep(100000);
        _exit(4);
    }
    printf("ended: %d", waitpid(child, &status, __WALL) == child);
    structure[4] = 200;
    printf(" %d, clone3: %ld", WEXITSTATUS(status), told(syscall(SYS_clone3, structure, sizeof structure)));
    structure[4] = 0;
    structure[0] = SIGCHLD;
    printf(" %ld", told(syscall(SYS_clone3, structure, sizeof structure)));
    structure[0] = 0;
    structure[5] = 4096;
    printf(" %ld\n", told(syscall(SYS_clone3, structure, sizeof structure)));
}

/* All processes are those that may be signalled, and the first may not. */
static volatile sig_atomic_t handled;

static void handler(int signal)
{
    handled = signal;
}

static void everybody(void)
{
    signal(SIGTERM, handler);
    /* As the first process of a Linux of ours, of which there is no other. */
    if (getpid() == 1) {
        pid_t child = fork();
        if (child == 0)
            _exit(kill(-1, SIGTERM) == 0 || errno != ESRCH);
        waitpid(child, 0, 0);
        usleep(50000);
    }
    printf("everybody: %d\n", handled);
}

/* Children of who ignores their ends leave nothing to wait for. */
static void ignored(void)
{
    int status;
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            usleep(50000 * i);
            _exit(0);
        }
    printf("ignored: %ld\n", told(wait(&status)));
    signal(SIGCHLD, SIG_DFL);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IONBF, 0);
    mkdir("/tmp", 0777);
    scripts();
    arguments(argv[0]);
    endings();
    everybody();
    ignored();
    return 0;
}
