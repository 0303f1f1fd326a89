#!/bin/sh
# Makes the inputs of the programs that `cargo xtask programs` records, in the working directory:
# the same bytes on every machine.
set -eu
awk 'BEGIN { x = 1; for (i = 0; i < 400; i++) { x = (x * 16807) % 2147483647; print x % 1000003, "line", i, x } }' > lines.txt
awk 'BEGIN { x = 7; for (i = 0; i < 2500; i++) { x = (x * 16807) % 2147483647; printf "%d ", x % 4096 } }' > numbers.txt
xz -k -f numbers.txt
cat > work.c <<'X'
#include <stdio.h>
struct node { struct node *left, *right; int key; };
static int depth(struct node *n) { if (!n) return 0; int l = depth(n->left), r = depth(n->right); return 1 + (l > r ? l : r); }
static struct node pool[1000];
static int used;
static struct node *insert(struct node *n, int key) {
	if (!n) { n = &pool[used++]; n->key = key; return n; }
	if (key < n->key) n->left = insert(n->left, key); else n->right = insert(n->right, key);
	return n;
}
int main(void) { struct node *root = 0; unsigned x = 1; for (int i = 0; i < 300; i++) root = insert(root, (x = x * 1103515245 + 12345) >> 8); printf("%d\n", depth(root)); return 0; }
X
cat > work.py <<'X'
import json, re
rows = [{"n": i, "s": str(i * 7919 % 10007), "l": list(range(i % 17))} for i in range(200)]
text = json.dumps(rows)
back = json.loads(text)
big = []
for r in back:
    big.extend(r["l"])
# A list of more than 128 KiB: realloc grows it by mremap.
for i in range(60000):
    big.append(i)
words = {}
for w in re.findall(r"\d+", text):
    words[w] = words.get(w, 0) + 1
print(len(text), len(big), len(words))
X
cat > work.pl <<'X'
my %count; my @rows;
open my $f, '<', 'lines.txt' or die;
while (<$f>) { my @w = split; $count{$w[0] % 997} .= $w[3]; push @rows, [@w]; }
my $text = join ',', map { $_->[0] } sort { $a->[0] <=> $b->[0] } @rows;
print length($text), " ", scalar(keys %count), "\n";
X
cat > work.lua <<'X'
local t = {}
for i = 1, 800 do t[i] = { i, tostring(i * 7919 % 10007) } end
table.sort(t, function(a, b) return a[2] < b[2] end)
local s = {}
for i = 1, #t, 7 do s[#s + 1] = t[i][2] end
print(#table.concat(s, ","))
X
cat > work.rb <<'X'
rows = (0...300).map { |i| { n: i, s: (i * 7919 % 10007).to_s } }
puts rows.sort_by { |r| r[:s] }.map { |r| r[:s] }.join(",").size
X
cat > work.tcl <<'X'
set rows {}
for {set i 0} {$i < 1500} {incr i} { lappend rows [list $i [expr {$i * 7919 % 10007}]] }
puts [string length [lsort -integer -index 1 $rows]]
X
cat > work.php <<'X'
<?php $rows = []; for ($i = 0; $i < 600; $i++) $rows[] = ["n" => $i, "s" => (string)($i * 7919 % 10007)];
usort($rows, fn($a, $b) => $a["s"] <=> $b["s"]); echo strlen(json_encode($rows)), "\n";
X
cat > work.sql <<'X'
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c INT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 500) INSERT INTO t SELECT i, 'row ' || i, i*7919%10007 FROM n;
CREATE INDEX x ON t(c);
SELECT count(*), sum(c) FROM t WHERE c BETWEEN 100 AND 5000;
SELECT c % 10, count(*) FROM t GROUP BY 1 ORDER BY 2;
X
cat > work.awk <<'X'
{ n[$1 % 500] = n[$1 % 500] $4 }
END { print length(n) }
X
cat > Makefile <<'X'
all: a.o b.o
%.o: %.c
	gcc -O1 -c $<
X
cp work.c a.c; cp work.c b.c
cat > work.sh <<'X'
for i in 1 2 3 4; do (head -100 lines.txt | sort -n | tail -1) & done; wait
n=0; while [ $n -lt 50 ]; do n=$((n + 1)); done; echo $n
X
cat > work.m4 <<'X'
define(`loop', `ifelse($1, 0, `', `eval($1 * 7919 % 10007) loop(decr($1))')')
loop(60)
X
rm -rf repo; mkdir repo; cd repo; git init -q .; git config user.email a@b; git config user.name a
for i in 1 2 3 4 5; do head -$((i * 50)) ../lines.txt > f$i; git add f$i; git commit -q -m $i; done
X=1
