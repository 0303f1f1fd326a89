#!/bin/sh
# From README.md, "Check your own code", to a failing test in a package of one's own.
#
# usage: tests/failing-test.sh TEST RULES [DEPENDENCY]
#
# Makes a package beside the clone, with the README's dependency, the file TEST of this repository,
# and DEPENDENCY, a line of Cargo.toml, if TEST is of a published crate. The test passes. Without
# its shootdown it must fail, and name each of RULES, the missing step and a token.
set -eu
clone=$(cd "$(dirname "$0")/.." && pwd)
source=$1 rules=$2 dependency=${3:-}
name=$(basename "$source" .rs)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
began=$(date +%s)
cd "$folder"
cargo new --quiet --lib own-code
cd own-code
printf '%s\n\n[dev-dependencies]\npagewright-check = { path = "%s/crates/check" }\n' "$dependency" "$clone" >> Cargo.toml
mkdir tests
test=tests/$name.rs
cp "$clone/$source" "$test"
cargo test --quiet --test "$name"
grep -v 'cpu.shoot_down(' "$test" > without && mv without "$test"
if cargo test --quiet --test "$name" > output 2>&1; then
    echo "failing-test.sh: $name passes without its shootdown" >&2
    exit 1
fi
for word in $rules 'missing: an invalidation' 'PAGEWRIGHT_REPLAY='; do
    grep -q "$word" output || { cat output; echo "failing-test.sh: the output of $name lacks $word" >&2; exit 1; }
done
grep -m 1 -A 5 INV-ORACLE-O1 output
echo "failing-test.sh: $name, from the README to a failing test in $(($(date +%s) - began)) s"
