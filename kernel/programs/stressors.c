/* Runs stressors of stress-ng one after the other, each in its own process for a second, and prints what became of each: ok, skipped, failed (with
   stress-ng's status), killed (with the signal) or late. What stress-ng said of one that is not ok follows, indented. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* In seconds. */
#define LONGEST 60
#define SAID "/tmp/said"
#define STRANGER 1000

static volatile sig_atomic_t is_late;

static void end_all(int signal)
{
    is_late = 1;
    kill(-1, SIGKILL);
}

static void stress(const char *name)
{
    char option[64];
    int said = open(SAID, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);

    snprintf(option, sizeof option, "--%s", name);
    dup2(said, 1);
    dup2(said, 2);
    /* These refuse to run as root. */
    if (strcmp(name, "exec") == 0 || strcmp(name, "spawn") == 0)
        setuid(STRANGER);
    execl("/usr/bin/stress-ng", "stress-ng", option, "1", "--verify", "--timeout", "1", "--oomable", "--pathological", "--no-rand-seed", (char *)0);
    _exit(127);
}

/* Whether stress-ng said that it did not run the stressor, which it need not tell by its status. */
static int is_skipped(void)
{
    static char text[1 << 16];
    int said = open(SAID, O_RDONLY), length = read(said, text, sizeof text - 1);

    close(said);
    text[length > 0 ? length : 0] = 0;
    return strstr(text, "be skipped") || strstr(text, "skipping stress") || strstr(text, "skipping the stress");
}

static void copy_said(void)
{
    char line[512];
    FILE *said = fopen(SAID, "r");

    while (said && fgets(line, sizeof line, said))
        printf("    %s", line);
    if (said)
        fclose(said);
}

/* Prints what became of a stressor by its wait status. */
static void judge(const char *name, int status)
{
    if (is_late)
        printf("%s late\n", name);
    else if (WIFSIGNALED(status))
        printf("%s killed-%d\n", name, WTERMSIG(status));
    else if (WEXITSTATUS(status))
        printf("%s failed-%d\n", name, WEXITSTATUS(status));
    else if (is_skipped())
        printf("%s skipped\n", name);
    else {
        printf("%s ok\n", name);
        return;
    }
    copy_said();
}

int main(int argc, char **argv)
{
    struct sigaction action = { .sa_handler = end_all };
    int status;

    sigaction(SIGALRM, &action, 0);
    umask(0);
    mkdir("/tmp", 0777);
    mkdir("/dev/shm", 0777);
    mount("shm", "/dev/shm", "tmpfs", 0, 0);
    chdir("/tmp");
    for (int i = 1; i < argc; i++) {
        pid_t child = fork();
        if (child == 0)
            stress(argv[i]);
        is_late = 0;
        alarm(LONGEST);
        while (waitpid(child, &status, 0) != child)
            ;
        alarm(0);
        /* What the stressor left, which are orphans. */
        kill(-1, SIGKILL);
        while (waitpid(-1, 0, WNOHANG) > 0)
            ;
        judge(argv[i], status);
        fflush(stdout);
    }
    return 0;
}
