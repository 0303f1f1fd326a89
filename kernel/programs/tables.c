/* Fork that shares page tables: children of one process store, unmap, protect, map and fork beside each other, while the parent stores, too. Each
   looks that it sees its own values and no other. One child borrows the space (vfork), and one is killed for want of memory. Prints nothing that
   depends on time. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8192, CHILDREN = 12, ROUNDS = 3, WORDS = PAGE / 8 };

static volatile uint64_t *memory;

/* What the parent stored to a page before the first fork. */
static uint64_t first(int page)
{
    return page * 3 + 1;
}

static volatile uint64_t *cell(int page)
{
    return &memory[page * WORDS];
}

static int child(int number)
{
    int sound = 1;
    for (int page = 0; page < PAGES; page += 37)
        sound &= *cell(page) == first(page);
    *cell(number) = number + 1000;
    *cell(PAGES / 2) = 7;
    /* Part of a table, and some whole ones. */
    munmap((char *)memory + (PAGES / 2 + 1000) * PAGE, 1500 * PAGE);
    mprotect((void *)memory, PAGE, PROT_READ);
    char *other = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(other, number, 1 << 20);
    pid_t grandchild = fork();
    if (grandchild == 0) {
        *cell(PAGES / 4) = number;
        _exit(*cell(PAGES / 2) == 7 && other[PAGE] == (char)number ? 0 : 3);
    }
    int status;
    waitpid(grandchild, &status, 0);
    return sound && status == 0 && *cell(PAGES / 4) == first(PAGES / 4) && *cell(number) == (uint64_t)number + 1000;
}

/* A sibling shares the tables while a child that has the parent's space stores, and another runs out of memory. Returns whether the sibling
   keeps what it shared, and the parent has what its own child stored. */
static int ends_beside_a_sibling(void)
{
    int go[2], status;
    char byte;
    if (pipe(go))
        return 0;
    pid_t sibling = fork();
    if (sibling == 0) {
        int sound = 1;
        close(go[1]);
        read(go[0], &byte, 1);
        for (int page = 0; page < PAGES; page += 5)
            sound &= *cell(page) == first(page);
        _exit(!sound);
    }
    close(go[0]);
    pid_t borrower = vfork();
    if (borrower == 0) {
        *cell(5) = 55;
        _exit(0);
    }
    waitpid(borrower, &status, 0);
    int sound = status == 0 && *cell(5) == 55 && *cell(10) == first(10);
    pid_t victim = fork();
    if (victim == 0) {
        FILE *score = fopen("/proc/self/oom_score_adj", "w");
        fputs("1000", score);
        fclose(score);
        for (int page = 0; page < PAGES; page++)
            *cell(page) = 9;
        for (;;)
            memset(mmap(0, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 9, 1 << 22);
    }
    waitpid(victim, &status, 0);
    printf("out of memory: ended by signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    close(go[1]);
    waitpid(sibling, &status, 0);
    sound &= status == 0 && *cell(5) == 55 && *cell(15) == first(15);
    *cell(5) = first(5);
    return sound;
}

int main(void)
{
    int wrong = 0, changed = 0;
    memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < PAGES; page++)
        *cell(page) = first(page);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t children[CHILDREN];
        for (int number = 1; number <= CHILDREN; number++) {
            children[number - 1] = fork();
            if (children[number - 1] == 0)
                _exit(child(number) ? 0 : 1);
            cell(PAGES - 1)[number] = round;
        }
        for (int index = 0; index < CHILDREN; index++) {
            int status;
            waitpid(children[index], &status, 0);
            wrong += status != 0;
        }
    }
    printf("vfork and the end of memory: %s\n", ends_beside_a_sibling() ? "sound" : "wrong");
    for (int page = 0; page < PAGES; page++)
        changed += *cell(page) != first(page);
    printf("%d children: %d saw wrong values; %d pages of the parent changed\n", CHILDREN * ROUNDS, wrong, changed);
    return wrong || changed;
}
