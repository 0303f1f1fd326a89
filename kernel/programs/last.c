/* All threads of a process end at the same moment: whoever is last ends the process, and the machine if it is its first. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 50, STATUS = 3 };

static atomic_int here;

static void *ends(void *unused)
{
    here++;
    while (here < THREADS)
        ;
    syscall(SYS_exit, STATUS);
    return 0;
}

int main(void)
{
    pthread_t thread;
    int status, right = 0;
    pid_t child;
    for (int round = 0; round <= ROUNDS; round++) {
        if (round == ROUNDS) {
            printf("ended: %d\n", right);
            fflush(stdout);
        }
        /* The last time it is this process. */
        child = round < ROUNDS ? fork() : 0;
        if (child == 0) {
            for (int i = 1; i < THREADS; i++)
                pthread_create(&thread, 0, ends, 0);
            ends(0);
        }
        right += waitpid(child, &status, 0) == child && WEXITSTATUS(status) == STATUS;
    }
}
