/* A dynamically linked program: what its loader finds, and loaders that cannot be run. Prints a line for each group. */
/* Tests INV-KERNEL-LOADER. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int objects, known;

static int count(struct dl_phdr_info *info, size_t size, void *unused)
{
    objects++;
    /* The program has no name; its loader is where AT_BASE says. */
    known += info->dlpi_addr == getauxval(AT_BASE);
    return 0;
}

static __thread int local = 5;

static void *thread(void *value)
{
    local += *(int *)value;
    return (void *)(long)local;
}

static void loaded(void)
{
    void *result;
    int value = 37;
    pthread_t other;
    const ElfW(Phdr) *headers = (void *)getauxval(AT_PHDR);
    int segments = 0, number = getauxval(AT_PHNUM);
    dl_iterate_phdr(count, 0);
    for (int i = 0; i < number; i++)
        segments += headers[i].p_type == PT_INTERP;
    printf("loaded: libc %d loader %d interp %d", objects >= 3, known, segments);
    extern char __executable_start[];
    ElfW(Ehdr) *program = (void *)__executable_start;
    printf(" entry %d", getauxval(AT_ENTRY) == (unsigned long)__executable_start + program->e_entry);
    pthread_create(&other, 0, thread, &value);
    pthread_join(other, &result);
    printf(" thread %ld %d", (long)result, local);
    /* The heap is behind the program, the loader and libraries are not. */
    printf(" heap %d %d\n", (char *)sbrk(0) > (char *)&objects, getauxval(AT_BASE) > (unsigned long)sbrk(0));
    fflush(stdout);
}

/* Runs a copy of this program with another loader, and returns how it fails. */
static int run(const char *image, long size, long at, const char *loader, int len)
{
    char *copy = malloc(size);
    int fds[2], error = 0;
    memcpy(copy, image, size);
    memset(copy + at, 0, len);
    memcpy(copy + at, loader, strlen(loader));
    if (!strcmp(loader, "unterminated"))
        memset(copy + at, 'x', len);
    int file = open("/copy", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    write(file, copy, size);
    close(file);
    free(copy);
    pipe2(fds, O_CLOEXEC);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = { "copy", "again", 0 };
        execv("/copy", arguments);
        error = errno;
        write(fds[1], &error, sizeof error);
        _exit(1);
    }
    close(fds[1]);
    read(fds[0], &error, sizeof error);
    close(fds[0]);
    waitpid(child, 0, 0);
    return error;
}

static void write_file(const char *path, const char *text, int mode)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    write(file, text, strlen(text));
    close(file);
}

static void loaders(const char *self)
{
    struct stat status;
    int file = open(self, O_RDONLY);
    fstat(file, &status);
    char *image = malloc(status.st_size);
    read(file, image, status.st_size);
    close(file);
    ElfW(Ehdr) *header = (void *)image;
    ElfW(Phdr) *segments = (void *)(image + header->e_phoff);
    while (segments->p_type != PT_INTERP)
        segments++;
    long at = segments->p_offset, len = segments->p_filesz;
    char right[256];
    memcpy(right, image + at, len);
    write_file("/text", "no program, only text that is longer than the header of an ELF file", 0755);
    write_file("/locked", "x", 0644);
    mkdir("/folder", 0755);
    printf("loaders: missing %d", run(image, status.st_size, at, "/none", len));
    printf(" text %d", run(image, status.st_size, at, "/text", len));
    printf(" locked %d", run(image, status.st_size, at, "/locked", len));
    printf(" folder %d", run(image, status.st_size, at, "/folder", len));
    printf(" unterminated %d", run(image, status.st_size, at, "unterminated", len));
    fflush(stdout);
    printf(" right %d\n", run(image, status.st_size, at, right, len));
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        printf(" again %d", getauxval(AT_BASE) != 0);
        return 0;
    }
    loaded();
    loaders(argv[0]);
    return 0;
}
