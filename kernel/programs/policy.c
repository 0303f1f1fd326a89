/* Memory policies of tasks and mappings: what set_mempolicy, get_mempolicy and mbind keep, inherit, report and refuse. All of it with node 0, which
   every machine has. No page moves, and no mode but default, preferred and bind is used. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, DEFAULT = 0, PREFERRED = 1, BIND = 2, BALANCING = 1 << 13, RELATIVE = 1 << 14, STATIC = 1 << 15 };
enum { NODE = 1, ADDR = 2, MEMS_ALLOWED = 4, STRICT = 1 };

static unsigned long word(unsigned long bits)
{
    static unsigned long words[2];
    words[0] = bits;
    return (unsigned long) words;
}

static const char *answer(long result)
{
    switch (result < 0 ? errno : 0) {
    case 0: return "ok";
    case EINVAL: return "EINVAL";
    case EFAULT: return "EFAULT";
    case EPERM: return "EPERM";
    case EIO: return "EIO";
    default: return "another error";
    }
}

static long set(int mode, unsigned long nodes, unsigned long max) { return syscall(SYS_set_mempolicy, mode, nodes, max); }

static long bind(void *at, unsigned long bytes, int mode, unsigned long nodes, unsigned flags)
{
    return syscall(SYS_mbind, at, bytes, mode, nodes, 64, flags);
}

/* The policy of the task, or of the mapping at an address. */
static void show(const char *what, void *at, unsigned flags)
{
    unsigned long nodes[16] = { 0 };
    int mode = -1;
    long result = syscall(SYS_get_mempolicy, &mode, nodes, 1024, at, flags);
    printf("%s: %s, mode %x, nodes %lx\n", what, answer(result), mode, nodes[0]);
    fflush(stdout);
}

static void *of_thread(void *unused)
{
    show("a thread", NULL, 0);
    set(DEFAULT, 0, 0);
    return unused;
}

static void task_policies(const char *self)
{
    pthread_t thread;
    show("at first", NULL, 0);
    printf("bind: %s\n", answer(set(BIND, word(1), 64)));
    show("bound", NULL, 0);
    pthread_create(&thread, NULL, of_thread, NULL);
    pthread_join(thread, NULL);
    show("after the thread", NULL, 0);
    fflush(stdout);
    if (fork() == 0) {
        show("a child", NULL, 0);
        execl(self, self, "after-exec", NULL);
    }
    wait(NULL);
    printf("a node that is not there beside one that is: %s\n", answer(set(BIND | STATIC, word(1 | 1ul << 63), 65)));
    show("static", NULL, 0);
    printf("relative: %s\n", answer(set(PREFERRED | RELATIVE, word(1), 64)));
    show("relative", NULL, 0);
    printf("balanced: %s\n", answer(set(BIND | BALANCING, word(1), 64)));
    printf("the last bit does not count: %s\n", answer(set(BIND, word(1), 1)));
    printf("default with nodes: %s, without: %s, with a null pointer: %s\n", answer(set(DEFAULT, word(1), 64)),
           answer(set(DEFAULT, word(0), 64)), answer(set(DEFAULT, 0, 64)));
    printf("bind to none: %s, to an absent node: %s\n", answer(set(BIND, word(0), 64)), answer(set(BIND, word(1ul << 63), 65)));
    printf("preferred and static, of none: %s\n", answer(set(PREFERRED | STATIC, word(0), 64)));
    printf("static and relative: %s, balanced and preferred: %s\n", answer(set(BIND | STATIC | RELATIVE, word(1), 64)),
           answer(set(PREFERRED | BALANCING, word(1), 64)));
    printf("unknown mode: %s, with a bad pointer: %s\n", answer(set(100, 8, 64)), answer(set(BIND, 8, 64)));
    printf("too many nodes: %s, no bits at all: %s\n", answer(set(BIND, word(1), 40000)), answer(set(BIND, word(1), 0)));
    show("in the end", NULL, 0);
}

static void mapping_policies(void)
{
    char *memory = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *hole = memory + 4 * PAGE;
    munmap(hole, PAGE);
    memset(memory, 1, PAGE);
    printf("mbind: %s\n", answer(bind(memory + PAGE, PAGE, BIND, word(1), STRICT)));
    show("before", memory, ADDR);
    show("the page", memory + PAGE, ADDR);
    show("behind", memory + 2 * PAGE, ADDR);
    fflush(stdout);
    if (fork() == 0) {
        show("a child's page", memory + PAGE, ADDR);
        _exit(0);
    }
    wait(NULL);
    char *moved = mremap(memory + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    show("moved", moved + PAGE, ADDR);
    show("its node", memory, ADDR | NODE);
    printf("all pages on node 0: %s, of no node: %s\n", answer(bind(memory, PAGE, PREFERRED, word(1), STRICT)),
           answer(bind(memory, PAGE, PREFERRED, word(0), STRICT)));
    printf("a hole: %s, for the default: %s, nothing else: %s\n", answer(bind(memory + 2 * PAGE, 4 * PAGE, BIND, word(1), 0)),
           answer(bind(memory + 2 * PAGE, 4 * PAGE, DEFAULT, 0, STRICT)), answer(bind(hole, PAGE, DEFAULT, 0, 0)));
    printf("misaligned: %s, unknown flags: %s, a range that wraps: %s\n", answer(bind(memory + 1, PAGE, BIND, word(1), 0)),
           answer(bind(memory + 1, PAGE, BIND, word(1), 64)), answer(bind(memory, -2 * PAGE, BIND, word(1), 0)));
    printf("an empty range and an absent node: %s, a length that wraps to 0: %s\n", answer(bind(memory, 0, BIND, word(1ul << 63), 0)),
           answer(bind(memory, -1, BIND, word(1), 0)));
}

static void questions(void)
{
    int mode;
    show("an unknown flag", NULL, 8);
    show("an address without its flag", &mode, 0);
    show("nodes of the task, and of an address", &mode, MEMS_ALLOWED | ADDR);
    show("the next node of a policy that does not interleave", NULL, NODE);
    show("a hole", (void *) PAGE, ADDR);
    printf("a bad pointer: %s\n", answer(syscall(SYS_get_mempolicy, 8, NULL, 0, NULL, 0)));
    printf("too few nodes: %s\n", answer(syscall(SYS_get_mempolicy, &mode, word(0), 0, NULL, 0)));
    printf("nothing wanted: %s\n", answer(syscall(SYS_get_mempolicy, NULL, NULL, 0, NULL, 0)));
}

int main(int count, char **arguments)
{
    if (count > 1) {
        show("after execve", NULL, 0);
        return 0;
    }
    task_policies(arguments[0]);
    mapping_policies();
    questions();
    return 0;
}
