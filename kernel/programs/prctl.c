/* PR_SET_COW_PTE under cow_page_tables=prctl: the next fork shares page tables and no fork before it, a second call is refused, a child inherits it,
   and it holds for all threads of the process and for no other process. Which way a fork goes is in /proc/vmstat, so nothing else may fork beside
   it. Only here: Linux never merged the call. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COW_PTE = 65, PAGE = 4096, PAGES = 2048, WORDS = PAGE / 8 };

static volatile uint64_t *memory;

static unsigned long counted(const char *name)
{
    char word[64];
    unsigned long value, found = 0;
    FILE *file = fopen("/proc/vmstat", "r");
    while (fscanf(file, "%63s %lu", word, &value) == 2)
        if (strcmp(word, name) == 0)
            found = value;
    fclose(file);
    return found;
}

/* Whether all pages have what the parent stored; then stores to some. */
static int reads_and_stores(void)
{
    int sound = 1;
    for (int page = 0; page < PAGES; page++)
        sound &= memory[page * WORDS] == page + 1;
    for (int page = 0; page < PAGES; page += 300)
        memory[page * WORDS] = 7;
    return sound;
}

/* What a fork does with the page tables. */
static const char *forks(void)
{
    unsigned long shared = counted("pw_table_shared"), copied = counted("pw_table_copied_unasked");
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(reads_and_stores() ? 0 : 1);
    waitpid(child, &status, 0);
    shared = counted("pw_table_shared") - shared;
    copied = counted("pw_table_copied_unasked") - copied;
    if (status)
        return "gives wrong values";
    if (shared && !copied)
        return "shares tables";
    /* The memory is under four tables at least. */
    return !shared && copied >= PAGES / 512 ? "copies tables" : "does neither";
}

static const char *asks(void)
{
    errno = 0;
    return prctl(COW_PTE, 0, 0, 0, 0) == 0 ? "0" : errno == EINVAL ? "EINVAL" : "something else";
}

static void *thread_forks(void *unused)
{
    return (void *)forks();
}

static void *thread_asks(void *unused)
{
    return (void *)asks();
}

static const char *in_a_thread(void *(*what)(void *))
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, what, 0);
    pthread_join(thread, &result);
    return result;
}

/* Runs `what` in a child, whose output is printed before more of the parent's. */
static void in_a_child(void (*what)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        what();
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    if (status)
        printf("a child ended with %#x\n", status);
}

static void child_whose_thread_asks(void)
{
    printf("child: a fork %s\n", forks());
    printf("child: a thread's prctl returns %s\n", in_a_thread(thread_asks));
    printf("child: the next fork %s\n", forks());
    printf("child: a second prctl returns %s\n", asks());
}

static void grandchild(void)
{
    printf("grandchild: a fork %s\n", forks());
}

static void child_that_inherits(void)
{
    printf("child: a fork %s\n", forks());
    printf("child: prctl returns %s\n", asks());
    in_a_child(grandchild);
}

int main(void)
{
    memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++)
        memory[page * WORDS] = page + 1;
    printf("a fork %s\n", forks());
    printf("a thread's fork %s\n", in_a_thread(thread_forks));
    in_a_child(child_whose_thread_asks);
    printf("a fork after a child has asked %s\n", forks());
    printf("prctl returns %s\n", asks());
    printf("the next fork %s\n", forks());
    printf("a second prctl returns %s\n", asks());
    printf("a thread's prctl returns %s\n", in_a_thread(thread_asks));
    printf("a thread's fork %s\n", in_a_thread(thread_forks));
    in_a_child(child_that_inherits);
    int sound = 1;
    for (int page = 0; page < PAGES; page++)
        sound &= memory[page * WORDS] == page + 1;
    printf("the parent's memory is %s\n", sound ? "as it was" : "wrong");
    return !sound;
}
