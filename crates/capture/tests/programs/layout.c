/* Maps, unmaps and remaps memory in a fixed pseudo-random order. The first argument is a file of at
 * least 6 MiB; with a second one, prints each address that the kernel chose. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define HUGE_PAGE (2UL << 20)
#define LIVE 24
#define STEPS 400

static struct { char *at; unsigned long len; } live[LIVE];
static char *chosen[STEPS];
static unsigned long state = 42;

static unsigned long draw(unsigned long limit)
{
	state = state * 6364136223846793005UL + 1442695040888963407UL;
	return (state >> 33) % limit;
}

/* Mostly small lengths, some of whole huge pages, some just above. */
static unsigned long length(void)
{
	switch (draw(8)) {
	case 0: return HUGE_PAGE * (1 + draw(3));
	case 1: return HUGE_PAGE * (1 + draw(2)) + PAGE * (1 + draw(100));
	default: return PAGE * (1 + draw(64));
	}
}

int main(int argc, char **argv)
{
	int steps = 0, file = argc > 1 ? open(argv[1], O_RDONLY) : -1;

	if (file < 0)
		return 1;
	while (steps < STEPS) {
		int index = draw(LIVE);
		unsigned long len = length();
		char *at;

		if (!live[index].at && draw(4) == 0)
			at = mmap(0, len = HUGE_PAGE + PAGE * (1 + draw(700)), PROT_READ, MAP_PRIVATE, file, PAGE * draw(40));
		else if (!live[index].at)
			/* Neighbours with different rights do not merge. */
			at = mmap(0, len, draw(2) ? PROT_READ : PROT_READ | PROT_WRITE,
				  (draw(4) ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS, -1, 0);
		else if (draw(3) == 0) {
			munmap(live[index].at, live[index].len);
			live[index].at = 0;
			continue;
		} else if (live[index].len > HUGE_PAGE) {
			/* A part goes, and the rest is smaller. */
			munmap(live[index].at + PAGE, live[index].len - PAGE);
			live[index].len = PAGE;
			continue;
		} else
			at = mremap(live[index].at, live[index].len, len, MREMAP_MAYMOVE);
		if (at == MAP_FAILED)
			return 2;
		live[index].at = at;
		live[index].len = len;
		chosen[steps++] = at;
	}
	for (int step = 0; argc > 2 && step < STEPS; step++)
		printf("%lu\n", (unsigned long)chosen[step]);
	return 0;
}
