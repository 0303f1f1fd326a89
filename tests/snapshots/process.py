"""A process with memory of a known shape that forks when it is told to.

usage: process.py SHAPE

It prints READY. For each line of input it forks, prints the CPU time of the fork in nanoseconds, ends
the child, and stores to its memory again, so that every page is its own before the next fork.
`cargo xtask snapshots` runs it.
"""

import ctypes
import mmap
import os
import signal
import sys
import time

PAGE = 4096
MIB = 1 << 20
# Python's own fork also runs handlers. PyDLL keeps the interpreter's lock.
LIBC = ctypes.PyDLL(None)


def anonymous(size, advice=None):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if advice is not None:
        memory.madvise(advice)
    return memory


def touch(memory, step=PAGE):
    for offset in range(0, len(memory), step):
        memory[offset] = 1


def strings(count):
    """Objects on the heap; a loop over them stores to the reference count of each."""
    kept = [str(index) for index in range(1_000_000, 1_000_000 + count)]

    def store():
        for position, string in enumerate(kept):
            kept[position] = string

    return store


def dense(size):
    memory = anonymous(size)
    return lambda: touch(memory)


def mappings():
    """Many mappings of 64 pages, a page in each 2 MiB of others, and many of a file."""
    cut = anonymous(512 * MIB)
    for offset in range(0, len(cut), 128 * PAGE):
        cut.madvise(mmap.MADV_DONTDUMP, offset, 64 * PAGE)
    # Parts, each of which Linux's overcommit heuristic permits.
    sparse = [anonymous(512 * MIB) for _ in range(8)]
    with open(sys.executable, "rb") as program:
        files = [mmap.mmap(program.fileno(), PAGE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) for _ in range(500)]

    def store():
        assert files
        touch(cut)
        for part in sparse:
            touch(part, 2 * MIB)

    return store


def huge():
    """Huge pages, and as much memory in base pages."""
    large, small = anonymous(512 * MIB, mmap.MADV_HUGEPAGE), anonymous(512 * MIB, mmap.MADV_NOHUGEPAGE)

    def store():
        touch(large)
        touch(small)

    return store


SHAPES = {
    "strings-20M": lambda: strings(170_000),
    "strings-500M": lambda: strings(7_500_000),
    "mappings": mappings,
    "huge": huge,
    "dense-4G": lambda: dense(4096 * MIB),
}


def main():
    store = SHAPES[sys.argv[1]]()
    store()
    print("READY", flush=True)
    for _ in sys.stdin:
        start = time.thread_time_ns()
        child = LIBC.fork()
        if child == 0:
            while True:
                LIBC.pause()
        elapsed = time.thread_time_ns() - start
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        store()
        print(elapsed, flush=True)


main()
