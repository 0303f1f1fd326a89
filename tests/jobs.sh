#!/bin/sh
# Records, replays and compares four jobs, and prints how long each took.
#
# usage: tests/jobs.sh [FOLDER]
#
# The jobs are programs of Debian: perl, gzip, make -j2 with gcc, and jq. Their minor faults stand
# beside those that `perf stat` counts, and a difference of more than 5 % is a failure. Captures and
# pages stay in FOLDER, if there is one.
# Needs a release build, QEMU's user mode, perf, jq, gcc and make.
set -eu
clone=$(cd "$(dirname "$0")/.." && pwd)
pagewright=$clone/target/release/pagewright
if [ $# -gt 0 ]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
cd "$folder"

# Text without chance, so that each run records the same.
perl -e '$s = 1; for (1 .. 250_000) { $s = ($s * 1103515245 + 12345) & 0x7fffffff; print "word", $s % 20011, " " }' > text
cat > words.pl <<'PERL'
my %count;
open my $text, '<', 'text' or die;
$count{$_}++ for map { split } <$text>;
print join(' ', (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 9]), "\n";
PERL
perl -e 'print "[", join(",", map { qq({"id":$_,"name":"name$_","tags":["@{[$_ % 7]}","@{[$_ % 11]}"]}) } 1 .. 40_000), "]"' > in.json
mkdir -p make
for i in 1 2 3 4; do
    printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(int n) { char text[32]; return sprintf(text, "%%d", n) + atoi(text); }\n' $i > make/f$i.c
done
printf 'int f1(int), f2(int), f3(int), f4(int);\nint main(void) { return f1(1) + f2(2) + f3(3) + f4(4) == 0; }\n' > make/main.c
printf 'prog: main.o f1.o f2.o f3.o f4.o\n\tgcc -o $@ $^\n%%.o: %%.c\n\tgcc -O2 -c $< -o $@\n' > make/Makefile

printf '%-6s %14s %10s %10s %10s %8s %8s %8s\n' job accesses 'record s' 'replay s' 'compare s' perf replay '%'
job() {
    name=$1
    shift
    faults=$(perf stat -x, -e minor-faults "$@" 2>&1 > output | sed -n 's/,,minor-faults.*//p')
    started=$(date +%s)
    "$pagewright" record -o "$name.pwt" -- "$@" > "$name.record" 2>&1
    recorded=$(date +%s)
    "$pagewright" replay "$name.pwt" --json "$name.json" --html "$name.html" > "$name.replay" 2>&1
    replayed=$(date +%s)
    "$pagewright" replay "$name.pwt" --compare cow_page_tables=never,always > "$name.compare" 2>&1
    compared=$(date +%s)
    "$pagewright" info "$name.pwt" --json "$name.info" > /dev/null
    accesses=$(jq '.contents | .fetches + .loads + .stores' "$name.info")
    counted=$(jq .runs[0].counters.pgfault "$name.json")
    printf '%-6s %14s %10d %10d %10d %8d %8d %8.1f\n' "$name" "$accesses" $((recorded - started)) \
        $((replayed - recorded)) $((compared - replayed)) "$faults" "$counted" \
        "$(jq -n "100 * ($counted - $faults) / $faults")"
    if [ "$(jq -n "($counted - $faults) / $faults | fabs > 0.05")" = true ]; then failed=$name; fi
}
failed=
job perl perl words.pl
job gzip gzip -c text
# `record` runs a program twice: `-B` makes all each time.
job make make -C make -B -j2
job jq jq 'map(select(.id % 3 == 0) | .name) | length' in.json
if [ -n "$failed" ]; then
    echo "jobs.sh: $failed: the minor faults differ by more than 5 %" >&2
    exit 1
fi
