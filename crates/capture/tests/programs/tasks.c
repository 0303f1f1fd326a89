/* Makes memory calls, creates two threads, forks a child that stores to shared pages, and runs
 * another program by posix_spawn. The mincore at the start of main is a mark for the test. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define PAGES 256UL

static char *memory;
static volatile int arrived;
extern char **environ;

static void *store(void *argument)
{
	unsigned long first = (unsigned long)argument;
	for (unsigned long page = first; page < first + PAGES / 2; page++)
		((volatile char *)memory)[page * PAGE] = 1;
	/* Each thread spins until the other one has run. */
	__sync_fetch_and_add(&arrived, 1);
	while (arrived < 2)
		;
	return 0;
}

int main(int argc, char **argv)
{
	unsigned char resident;
	pthread_t threads[2];
	pid_t child;
	int status;

	(void)argc;
	if (argv[1])
		return 0;
	mincore((void *)((unsigned long)&resident & ~(PAGE - 1)), PAGE, &resident);
	memory = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned long i = 0; i < 2; i++)
		pthread_create(&threads[i], 0, store, (void *)(i * PAGES / 2));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], 0);
	madvise(memory, 16 * PAGE, MADV_DONTNEED);
	mprotect(memory, 8 * PAGE, PROT_READ);
	munmap(memory + 250 * PAGE, 2 * PAGE);
	child = fork();
	if (child == 0) {
		store((void *)64UL);
		_exit(0);
	}
	waitpid(child, &status, 0);
	if (posix_spawn(&child, argv[0], 0, 0, (char *[]){ argv[0], "child", 0 }, environ))
		return 1;
	waitpid(child, &status, 0);
	return status == 0 ? 7 : 2;
}
