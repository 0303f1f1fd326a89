#!/bin/sh
# Makes the captures again. Needs valgrind, taskset and the six programs:
#   apt install valgrind util-linux sqlite3 gcc python3 pigz dash coreutils
# PAGEWRIGHT names the program that records; by default the one of this checkout is built. With a name, only that capture is made.
set -eu
cd "$(dirname "$0")"
here=$(pwd)
if [ -z "${PAGEWRIGHT:-}" ]; then
    (cd ../.. && cargo build --release --package pagewright)
    PAGEWRIGHT=$(cd ../.. && pwd)/target/release/pagewright
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp input/* "$work"

# Inputs that are generated: the same bytes on every machine.
awk 'BEGIN { x = 1; for (i = 0; i < 5000; i++) { x = (x * 16807) % 2147483647; print x % 1000003, "line", i } }' > "$work/lines.txt"
awk 'BEGIN { x = 7; for (i = 0; i < 15000; i++) { x = (x * 16807) % 2147483647; printf "%d ", x % 4096 } }' > "$work/numbers.txt"

# A fixed environment: it lies on the stack of every program.
only=${1:-}
on_one_cpu=
capture() {
    name=$1
    shift
    if [ -z "$only" ] || [ "$only" = "$name" ]; then
        echo "$name: $*" >&2
        (cd "$work" && env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp LC_ALL=C.UTF-8 \
            ${on_one_cpu:+taskset -c 0} "$PAGEWRIGHT" record --with valgrind -o "$here/$name.pwt" -- "$@" < /dev/null > /dev/null)
    fi
}

capture sort sort --parallel=1 -n lines.txt
capture sqlite sqlite3 -init work.sql :memory: .quit
capture compile gcc -O0 -c work.c
capture python /usr/bin/python3 -S -E work.py
# Valgrind runs one thread at a time. On several CPUs it is a matter of luck how many of pigz's threads find work, and Linux counts 250 to
# 295 faults; on one the division of labour is the same in both runs.
on_one_cpu=yes
capture pigz pigz -k -f -p 3 -b 32 numbers.txt
on_one_cpu=
capture shell dash work.sh
