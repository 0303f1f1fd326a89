/* Memory of processes by /proc/PID/mem and pagemap, and who may look; calls about memory that embedders and tests make seldom. Prints a line for each group. */
/* Tests INV-VIEW-RESUME, INV-KERNEL-LOOK. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static long told(long result)
{
    return result == -1 ? -errno : result;
}

static int opened(pid_t process, const char *name, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", process, name);
    return open(path, flags);
}

static char *mapped(int pages, int rights, int flags)
{
    return mmap(0, (size_t)pages * PAGE, rights, flags | MAP_ANONYMOUS, -1, 0);
}

static void memory(void)
{
    int ready[2], go[2];
    char bytes[3 * PAGE], byte;
    char *both = mapped(3, PROT_READ | PROT_WRITE, MAP_PRIVATE), *fixed = mapped(1, PROT_READ, MAP_PRIVATE);
    char *shared = mapped(1, PROT_READ | PROT_WRITE, MAP_SHARED), *none = mapped(2, PROT_NONE, MAP_PRIVATE);
    static const char constant[] = "constant";
    pipe(ready);
    pipe(go);
    strcpy(both + PAGE - 3, "across");
    strcpy(shared, "shared");
    pid_t child = fork();
    if (child == 0) {
        strcpy(both, "child");
        write(ready[1], "x", 1);
        read(go[0], &byte, 1);
        printf("child: %s %s %s %s %s", both, both + PAGE - 3, fixed, constant, shared);
        write(ready[1], "x", 1);
        read(go[0], &byte, 1);
        printf(" %s\n", both);
        fflush(stdout);
        execl("/proc/self/exe", "looks", "exec", (char *)0);
        _exit(1);
    }
    read(ready[0], &byte, 1);
    int mem = opened(child, "mem", O_RDWR);
    printf("mem: %d", mem > 0);
    printf(" %ld", told(pread(mem, bytes, 5, (long)both)));
    printf(" %.5s", bytes);
    printf(" %ld", told(pread(mem, bytes, 6, (long)both + PAGE - 3)));
    printf(" %.6s", bytes);
    printf(" %ld", told(pread(mem, bytes, 3 * PAGE, (long)both)));
    /* A page of the program's own and one that it may not read, and nothing behind. */
    munmap(none + PAGE, PAGE);
    printf(" %ld", told(pread(mem, bytes, 1, 0)));
    printf(" %ld", told(pread(mem, bytes, 8, (long)none)));
    printf(" %ld %ld", told(pwrite(mem, "parent", 7, (long)both)), told(pwrite(mem, "acroSS", 6, (long)both + PAGE - 3)));
    /* Private memory that is read-only gets a copy, as a debugger needs it. */
    printf(" %ld %ld", told(pwrite(mem, "forced", 7, (long)fixed)), told(pwrite(mem, "CONST", 5, (long)constant)));
    printf(" %ld", told(pwrite(mem, "SHARED", 6, (long)shared)));
    printf(" %ld %ld", told(pwrite(mem, "x", 1, 16)), told(pread(mem, (void *)16, 1, (long)both)));
    printf(" %s %s %d %s", both, constant, *fixed, shared);
    printf(" %d", lseek(mem, (long)both, SEEK_SET) == (long)both);
    printf(" %ld %.6s", told(read(mem, bytes, 6)), bytes);
    printf(" %d %ld\n", lseek(mem, 0, SEEK_CUR) == (long)both + 6, told(lseek(mem, 0, SEEK_END)));
    fflush(stdout);
    int map = opened(child, "pagemap", O_RDONLY);
    write(go[1], "x", 1);
    read(ready[0], &byte, 1);
    printf("after: %ld\n", told(pwrite(mem, "again", 6, (long)both)));
    fflush(stdout);
    write(go[1], "x", 1);
    read(ready[0], &byte, 1);
    /* The program is another one, and so is its memory. */
    uint64_t word = 1;
    printf("exec: %ld", told(pread(mem, bytes, 5, (long)both)));
    printf(" %ld", told(pread(map, &word, 8, 0)));
    int later = opened(child, "mem", O_RDONLY);
    printf(" %ld %ld", told(pread(later, bytes, 5, (long)both)), told(write(later, "x", 1)));
    printf(" %d\n", waitpid(child, 0, 0) == child);
    close(mem);
    close(map);
    close(later);
}

/* Flags of pages, without soft-dirty, which one of the instruction sets lacks. */
static void show_words(int map, const char *at, int pages)
{
    uint64_t words[8];
    long read = pread(map, words, pages * 8, (uintptr_t)at / PAGE * 8);
    printf(" %ld", told(read));
    for (int i = 0; i < read / 8; i++)
        printf(" %lx%s", (long)(words[i] >> 56), words[i] << 9 ? "+" : "");
}

static void pagemap(void)
{
    uint64_t word = 0, other = 0;
    char *memory = mapped(4, PROT_READ | PROT_WRITE, MAP_PRIVATE), *shared = mapped(2, PROT_READ | PROT_WRITE, MAP_SHARED);
    int map = open("/proc/self/pagemap", O_RDONLY);
    madvise(memory, 4 * PAGE, MADV_NOHUGEPAGE);
    memory[0] = shared[0] = 1;
    volatile char zero = memory[PAGE];
    printf("pagemap:");
    show_words(map, memory, 4);
    show_words(map, shared, 2);
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    show_words(map, memory, 1);
    int of_child = opened(child, "pagemap", O_RDONLY);
    pread(of_child, &other, 8, (uintptr_t)memory / PAGE * 8);
    pread(map, &word, 8, (uintptr_t)memory / PAGE * 8);
    printf(" same %d", (word << 9) == (other << 9));
    memory[0] = 2;
    pread(map, &word, 8, (uintptr_t)memory / PAGE * 8);
    printf(" %d", (word << 9) == (other << 9));
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    printf(" dead %ld", told(pread(of_child, &word, 8, 0)));
    printf(" %ld %ld %ld", told(pread(map, &word, 7, 0)), told(pread(map, &word, 8, 4)), told(pread(map, &word, 0, 0)));
    printf(" %ld", told(pread(map, &word, 8, 3L << 46)));
    printf(" %ld %ld\n", told(open("/proc/self/pagemap", O_WRONLY)), told(pread(map, (void *)16, 8, 0)));
    close(map);
    close(of_child);
}

/* A process of user 7 and this group, dumpable or not, which says when it waits for a signal. */
static pid_t waiting_as(gid_t group, int dumpable, int ready)
{
    pid_t child = fork();
    if (child == 0) {
        setresgid(group, group, group);
        setresuid(7, 7, 7);
        prctl(PR_SET_DUMPABLE, dumpable);
        write(ready, "x", 1);
        pause();
        _exit(0);
    }
    return child;
}

static void strangers(void)
{
    int ready[2];
    char byte, bytes[8];
    struct stat status;
    char *memory = mapped(1, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    uint64_t word = 0;
    memory[0] = 7;
    pipe(ready);
    pid_t other = fork();
    if (other == 0) {
        write(ready[1], "x", 1);
        pause();
        _exit(0);
    }
    pid_t same = waiting_as(7, 1, ready[1]);
    pid_t hidden = waiting_as(7, 0, ready[1]);
    pid_t group = waiting_as(8, 1, ready[1]);
    for (int i = 0; i < 4; i++)
        read(ready[0], &byte, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setresgid(7, 7, 7);
        setresuid(7, 7, 7);
        printf("strangers: %ld %ld", told(opened(other, "mem", O_RDONLY)), told(opened(other, "pagemap", O_RDONLY)));
        printf(" %ld %ld", told(opened(hidden, "mem", O_RDONLY)), told(opened(hidden, "pagemap", O_RDONLY)));
        printf(" %ld %ld", told(opened(group, "mem", O_RDONLY)), told(opened(group, "pagemap", O_RDONLY)));
        printf(" %ld %ld", told(opened(other, "maps", O_RDONLY)), told(opened(hidden, "smaps", O_RDONLY)));
        printf(" %ld", told(opened(group, "smaps_rollup", O_RDONLY)));
        int mem = opened(same, "mem", O_RDWR), map = opened(same, "pagemap", O_RDONLY);
        printf(" %ld", told(pread(mem, bytes, 1, (long)memory)));
        printf(" %d", bytes[0]);
        printf(" %ld", told(pread(map, &word, 8, (uintptr_t)memory / PAGE * 8)));
        /* Frames are for an administrator. */
        printf(" %lx %d", (long)(word >> 56) & 0x80, word << 9 != 0);
        snprintf(bytes, sizeof bytes, "x");
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/mem", other);
        printf(" %ld", told(stat(path, &status)));
        printf(" %o %d", status.st_mode, status.st_uid);
        snprintf(path, sizeof path, "/proc/%d/pagemap", same);
        printf(" %ld", told(stat(path, &status)));
        printf(" %o %d\n", status.st_mode, status.st_uid);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
    kill(other, SIGKILL);
    kill(same, SIGKILL);
    kill(hidden, SIGKILL);
    kill(group, SIGKILL);
    while (wait(0) > 0)
        ;
}

/* Whether the page was accessed, as smaps says. */
static int referenced(const char *memory)
{
    char line[256], start[32];
    int found = 0, kilobytes = -1;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    snprintf(start, sizeof start, "%lx-", (long)memory);
    while (fgets(line, sizeof line, smaps)) {
        if (!strncmp(line, start, strlen(start)))
            found = 1;
        if (found && sscanf(line, "Referenced: %d", &kilobytes) == 1)
            break;
    }
    fclose(smaps);
    return kilobytes;
}

static void cleared(void)
{
    char *memory = mapped(2, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    int clear = open("/proc/self/clear_refs", O_WRONLY);
    memory[0] = 1;
    printf("clear: %d", referenced(memory));
    printf(" %ld", told(write(clear, "1", 1)));
    printf(" %d", referenced(memory));
    /* A new page, because a TLB may keep the old entry, through which no access is noted. */
    memory[PAGE] = 2;
    printf(" %d", referenced(memory));
    printf(" %ld", told(write(clear, "3\n", 2)));
    printf(" %d", referenced(memory));
    printf(" %ld", told(write(clear, "2", 1)));
    printf(" %d", referenced(memory));
    printf(" %ld %ld %ld", told(write(clear, "0", 1)), told(write(clear, "6", 1)), told(write(clear, "x", 1)));
    printf(" %ld %ld\n", told(write(clear, "5", 1)), told(open("/proc/self/clear_refs", O_RDONLY)));
    close(clear);
}

/* The borders of the mappings in a region, in pages. */
static void show_borders(const char *base, int pages)
{
    char line[256];
    unsigned long start, end, first = (unsigned long)base, last = first + (unsigned long)pages * PAGE;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start < last && end > first)
            printf(" %ld-%ld", ((long)start - (long)first) / PAGE, ((long)end - (long)first) / PAGE);
    fclose(maps);
    fflush(stdout);
}

static void add(char *base, int first, int pages)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    mmap(base + first * PAGE, (size_t)pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
}

/* Which mappings are one, after forks. */
static void borders(void)
{
    char *base = mapped(40, PROT_NONE, MAP_PRIVATE);
    add(base, 2, 4);
    add(base, 20, 4);
    base[2 * PAGE] = 1;
    printf("borders:");
    fflush(stdout);
    if (fork() == 0) {
        add(base, 6, 2);
        add(base, 24, 2);
        base[7 * PAGE] = 1;
        show_borders(base, 40);
        fflush(stdout);
        if (fork() == 0) {
            add(base, 8, 1);
            mprotect(base + 2 * PAGE, 6 * PAGE, PROT_READ);
            mprotect(base + 2 * PAGE, 6 * PAGE, PROT_READ | PROT_WRITE);
            printf(" grandchild");
            show_borders(base, 40);
            _exit(0);
        }
        wait(0);
        madvise(base + 2 * PAGE, 4 * PAGE, MADV_WIPEONFORK);
        if (fork() == 0) {
            madvise(base + 2 * PAGE, 4 * PAGE, MADV_KEEPONFORK);
            add(base, 0, 2);
            printf(" wiped");
            show_borders(base, 40);
            _exit(0);
        }
        wait(0);
        _exit(0);
    }
    wait(0);
    add(base, 6, 2);
    printf(" parent");
    show_borders(base, 40);
    printf("\n");
    munmap(base, 40 * PAGE);
}

static char text_of_maps[1 << 17], other_text[1 << 17];

/* Reads to the end in parts, and returns the length. */
static long read_parts(int fd, char *to, long part)
{
    long all = 0, count;
    while ((count = read(fd, to + all, part)) > 0)
        all += count;
    to[all] = 0;
    return count < 0 ? -errno : all;
}

/* The mappings of a region in a text, in pages. */
static void show_mappings(const char *text, const char *base, int pages)
{
    unsigned long start, end, first = (unsigned long)base, last = first + (unsigned long)pages * PAGE;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != 0)
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start < last && end > first)
            printf(" %ld-%ld", ((long)start - (long)first) / PAGE, ((long)end - (long)first) / PAGE);
}

/* Reads a line, byte by byte. */
static int read_line(int fd, char *to)
{
    int length = 0;
    while (read(fd, to + length, 1) == 1)
        if (to[length++] == '\n')
            break;
    to[length] = 0;
    return length;
}

/* Reads lines up to the one of the mapping that starts at a page of the region. */
static void read_up_to(int fd, const char *base, int page)
{
    char line[8192];
    unsigned long start;
    while (read_line(fd, line))
        if (sscanf(line, "%lx", &start) == 1 && start == (unsigned long)base + page * PAGE)
            break;
}

/* Maps and smaps, which are made as they are read. */
static void in_parts(void)
{
    enum { PAGES = 300 };
    char line[8192];
    char *base = mapped(PAGES, PROT_NONE, MAP_PRIVATE);
    for (int i = 1; i < PAGES; i += 2)
        mprotect(base + i * PAGE, PAGE, PROT_READ);
    printf("parts:");
    fflush(stdout);
    int fd = open("/proc/self/maps", O_RDONLY);
    /* A read returns whole lines, as many as a page holds. */
    long whole = read_parts(fd, text_of_maps, 1 << 16), first = pread(fd, line, 1 << 13, 0);
    printf(" %d %d %d", whole > 3 * PAGE, first > PAGE / 2 && first <= PAGE, line[first - 1] == '\n');
    int lines = 0;
    for (const char *at = text_of_maps; (at = strchr(at, '\n')); at++)
        lines++;
    printf(" %d", lines > PAGES);
    for (long part = 1; part < 6000; part = part * 7 + 3) {
        lseek(fd, 0, SEEK_SET);
        printf(" %d", read_parts(fd, other_text, part) == whole && !strcmp(text_of_maps, other_text));
    }
    /* Anywhere: also back, and behind the end. */
    int same = 1;
    for (long at = whole - 5; at > 0; at -= 1234)
        same &= pread(fd, line, 7, at) > 0 && !memcmp(line, text_of_maps + at, 5);
    printf(" %d %ld %ld", same, told(pread(fd, line, 5, whole)), told(pread(fd, line, 5, whole + 100000)));
    printf(" %ld", told(lseek(fd, 0, SEEK_END)));
    printf(" %d", lseek(fd, 1000, SEEK_SET) == 1000 && read(fd, line, 9) == 9 && !memcmp(line, text_of_maps + 1000, 9));
    printf(" %ld", told(lseek(fd, 0, SEEK_CUR)));
    printf(" %ld %ld\n", told(read(fd, (void *)16, 5)), told(lseek(fd, 0, SEEK_CUR)));
    fflush(stdout);
    /* Mappings that change between two reads. */
    char *region = mapped(20, PROT_NONE, MAP_PRIVATE);
    for (int i = 1; i < 20; i += 2)
        mprotect(region + i * PAGE, PAGE, PROT_READ);
    printf("between:");
    lseek(fd, 0, SEEK_SET);
    read_up_to(fd, region, 3);
    munmap(region + 5 * PAGE, 2 * PAGE);
    mprotect(region + 9 * PAGE, PAGE, PROT_NONE);
    munmap(region, PAGE);
    read_parts(fd, other_text, 4000);
    show_mappings(other_text, region, 20);
    /* The mapping that comes next becomes one with that before it. */
    printf(" merged");
    lseek(fd, 0, SEEK_SET);
    read_up_to(fd, region, 11);
    mprotect(region + 11 * PAGE, PAGE, PROT_NONE);
    read_parts(fd, other_text, 4000);
    show_mappings(other_text, region, 20);
    /* A part of it goes away. */
    printf(" cut");
    lseek(fd, 0, SEEK_SET);
    read_up_to(fd, region, 13);
    munmap(region + 14 * PAGE, 2 * PAGE);
    munmap(region + 19 * PAGE, PAGE);
    read_parts(fd, other_text, 4000);
    show_mappings(other_text, region, 20);
    close(fd);
    munmap(region, 20 * PAGE);
    munmap(base, PAGES * PAGE);
    printf(" smaps");
    fflush(stdout);
    fd = open("/proc/self/smaps", O_RDONLY);
    whole = read_parts(fd, text_of_maps, 1 << 16);
    printf(" %d", whole > PAGE);
    for (long part = 1; part < 6000; part = part * 11 + 5) {
        lseek(fd, 0, SEEK_SET);
        printf(" %d", read_parts(fd, other_text, part) == whole);
    }
    close(fd);
    fd = open("/proc/self/smaps_rollup", O_RDONLY);
    whole = read_parts(fd, text_of_maps, 1 << 16);
    lseek(fd, 0, SEEK_SET);
    printf(" %d", read_parts(fd, other_text, 1) == whole);
    printf(" %d\n", strstr(other_text, "[rollup]\nRss:") != 0);
    close(fd);
    fflush(stdout);
    /* A line longer than a page, because each newline of its path takes four bytes. */
    char path[4096] = "";
    for (int i = 0; i < 6; i++) {
        strcat(path, "/");
        memset(path + strlen(path), '\n', 250);
        if (i < 5)
            mkdir(path, 0700);
    }
    int file = open(path, O_CREAT | O_RDWR, 0600);
    ftruncate(file, PAGE);
    char *of_file = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0);
    fd = open("/proc/self/maps", O_RDONLY);
    whole = read_parts(fd, text_of_maps, 1 << 16);
    lseek(fd, 0, SEEK_SET);
    printf("long: %ld %d", told(file) > 0, read_parts(fd, other_text, 1) == whole);
    int newlines = 0;
    for (const char *at = text_of_maps; (at = strstr(at, "\\012")); at += 4)
        newlines++;
    printf(" %d %d\n", newlines, strstr(strstr(text_of_maps, "\\012"), "\n") != 0);
    munmap(of_file, PAGE);
    close(fd);
    close(file);
    unlink(path);
    for (int i = 5; i > 0; i--) {
        path[i * 251] = 0;
        rmdir(path);
    }
    fflush(stdout);
}

/* The same files of a process that ends. */
static void of_ended(void)
{
    char bytes[PAGE];
    siginfo_t info;
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    int maps = opened(child, "maps", O_RDONLY), smaps = opened(child, "smaps", O_RDONLY);
    int rollup = opened(child, "smaps_rollup", O_RDONLY), unread = opened(child, "maps", O_RDONLY);
    printf("ended: %ld %ld", told(read(maps, bytes, 10)), told(read(smaps, bytes, 10)));
    kill(child, SIGKILL);
    waitid(P_PID, child, &info, WEXITED | WNOWAIT);
    long rest = read(maps, bytes, PAGE);
    printf(" %d %ld", rest > 10 && rest < 400 && bytes[rest - 1] == '\n', told(read(maps, bytes, PAGE)));
    printf(" %ld %ld", told(read(rollup, bytes, PAGE)), told(read(unread, bytes, PAGE)));
    int later = opened(child, "maps", O_RDONLY);
    printf(" %ld", told(read(later, bytes, PAGE)));
    waitpid(child, 0, 0);
    rest = read(smaps, bytes, PAGE);
    printf(" %d %ld", rest > 400, told(read(smaps, bytes, PAGE)));
    printf(" %ld %ld", told(read(maps, bytes, PAGE)), told(pread(maps, bytes, 1, 0)));
    printf(" %ld %ld\n", told(read(rollup, bytes, PAGE)), told(read(later, bytes, PAGE)));
    close(maps);
    close(smaps);
    close(rollup);
    close(unread);
    close(later);
    int own = open("/proc/self/maps", O_WRONLY);
    printf("written: %d %ld\n", own > 0, told(write(own, "x", 1)));
    close(own);
}

/* What else a process shows of itself: its directory, its environment, its limits. */
static void itself(const char *program)
{
    char text[2048], path[64];
    struct rlimit files = { 77, 99 };
    mkdir("/here", 0700);
    chdir("/here");
    text[readlink("/proc/self/cwd", text, sizeof text)] = 0;
    printf("self: %s", text);
    close(open("made", O_CREAT | O_WRONLY, 0600));
    printf(" %ld", told(access("/proc/self/cwd/made", F_OK)));
    printf(" %ld", told(unlink("/proc/self/cwd/made")));
    printf(" %ld", told(access("/proc/self/cwd/../here/made", F_OK)));
    printf(" %ld", told(chdir("/proc/self/cwd/..")));
    printf(" %s", getcwd(text, sizeof text));
    rmdir("/here");
    printf(" %ld", told(chdir("/proc/self/task")));
    chdir("/");
    setrlimit(RLIMIT_NOFILE, &files);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = { "program", "waits", 0 }, *environment[] = { "ONE=1", "TWO=\xe9\xff two", 0 };
        execve(program, arguments, environment);
        _exit(1);
    }
    do {
        int fd = opened(child, "environ", O_RDONLY);
        long count = read(fd, text, sizeof text);
        close(fd);
        text[count < 0 ? 0 : count] = 0;
        for (char *at = text; at < text + count; at++)
            if (!*at)
                *at = ';';
    } while (strcmp(text, "ONE=1;TWO=\xe9\xff two;"));
    printf(" [%d]", (int)strlen(text));
    snprintf(path, sizeof path, "/proc/%d/limits", child);
    FILE *limits = fopen(path, "r");
    while (fgets(text, sizeof text, limits))
        if (strstr(text, "Limit") || strstr(text, "open files") || strstr(text, "nice") || strstr(text, "timeout"))
            printf("%s", text);
    fclose(limits);
    fflush(stdout);
    if (fork() == 0) {
        setresuid(7, 7, 7);
        snprintf(path, sizeof path, "/proc/%d/cwd", child);
        printf("stranger: %ld", told(readlink(path, text, sizeof text)));
        printf(" %d", opened(child, "environ", O_RDONLY) == -1 ? errno : 0);
        printf(" %d\n", opened(child, "limits", O_RDONLY) == -1 ? errno : 0);
        fflush(stdout);
        _exit(0);
    }
    wait(0);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "waits")) {
        pause();
        return 0;
    }
    if (argc > 1) {
        write(4, "x", 1);
        usleep(100000);
        return 0;
    }
    memory();
    pagemap();
    strangers();
    cleared();
    borders();
    in_parts();
    of_ended();
    itself(argv[0]);
    return 0;
}
