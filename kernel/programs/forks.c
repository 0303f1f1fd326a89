/* A server of many children, one after the other and some at once; then a process that forks without end, and so do its children, up to the limit of its user. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE = 8, LIMIT = 100, USER = 1234 };

static long served(int requests)
{
    int ends[2], status, running = 0;
    long sum = 0;
    char *page = malloc(1 << 20);
    pipe(ends);
    for (int request = 0; request < requests; request++) {
        page[request * 997 % (1 << 20)] = request;
        if (fork() == 0) {
            long answer = request * 2L + (page[request * 997 % (1 << 20)] != (char)request);
            page[0] = 1;
            write(ends[1], &answer, sizeof answer);
            _exit(0);
        }
        if (++running == AT_ONCE || request == requests - 1)
            for (; running > 0; running--) {
                long answer = -1;
                read(ends[0], &answer, sizeof answer);
                wait(&status);
                sum += answer + status;
            }
    }
    return sum;
}

static void bomb(void)
{
    struct rlimit limit = { LIMIT, LIMIT };
    int ends[2], status, told = 0;
    char full;
    pipe(ends);
    pid_t first = fork();
    if (first == 0) {
        setrlimit(RLIMIT_NPROC, &limit);
        setresuid(USER, USER, USER);
        for (;;)
            if (fork() == -1 && told == 0) {
                full = errno == EAGAIN;
                write(ends[1], &full, 1);
                told = 1;
            }
    }
    for (int i = 0; i < LIMIT; i++)
        read(ends[0], &full, 1);
    setresuid(USER, USER, 0);
    kill(-1, SIGKILL);
    setresuid(0, 0, 0);
    waitpid(first, &status, 0);
    printf("bomb: %d %d\n", full, WTERMSIG(status));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IONBF, 0);
    printf("served: %ld\n", served(atoi(argv[1])));
    bomb();
    return 0;
}
