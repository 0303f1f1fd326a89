/* Runs stressors of stress-ng one after the other, each in its own process for a second, and prints what became of each: ok, skipped, complaining (of a
   failure that its status does not tell), early (without a second's work), failed (with stress-ng's status), killed (with the signal) or late. What
   stress-ng said of one that is not ok follows, indented. */
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
    int file = open(SAID, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);

    snprintf(option, sizeof option, "--%s", name);
    dup2(file, 1);
    dup2(file, 2);
    /* These refuse to run as root. */
    if (strcmp(name, "exec") == 0 || strcmp(name, "spawn") == 0)
        setuid(STRANGER);
    execl("/usr/bin/stress-ng", "stress-ng", option, "1", "--verify", "--timeout", "1", "--oomable", "--pathological", "--no-rand-seed", (char *)0);
    _exit(127);
}

/* What stress-ng said of a stressor whose status is 0. */
static const char *said(void)
{
    static char text[1 << 16];
    int file = open(SAID, O_RDONLY), length = read(file, text, sizeof text - 1);

    close(file);
    text[length > 0 ? length : 0] = 0;
    if (strstr(text, "be skipped") || strstr(text, "skipping stress") || strstr(text, "skipping the stress"))
        return "skipped";
    if (strstr(text, ": fail:"))
        return "complaining";
    return strstr(text, "finished prematurely") ? "early" : "ok";
}

static void copy_said(void)
{
    char line[512];
    FILE *file = fopen(SAID, "r");

    while (file && fgets(line, sizeof line, file))
        printf("    %s", line);
    if (file)
        fclose(file);
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
    else
        printf("%s %s\n", name, said());
    if (is_late || status || strcmp(said(), "ok"))
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
