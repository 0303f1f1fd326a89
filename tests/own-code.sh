#!/bin/sh
# From README.md, "Check your own code", to a failing test in a package of one's own.
#
# Makes a package beside the clone, with the dependency and the test of the README and the
# page-table code of user_crate.rs. The test passes. Without the shootdown it must fail, and name
# the rule, the entry's change and a token.
set -eu
clone=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
began=$(date +%s)
cd "$folder"
cargo new --quiet --lib own-code
cd own-code
printf '\n[dev-dependencies]\npagewright-check = { path = "%s/crates/check" }\n' "$clone" >> Cargo.toml
mkdir tests
test=tests/munmap.rs
cp "$clone/crates/check/tests/user_crate.rs" "$test"
cargo test --quiet --test munmap
grep -v 'cpu.shoot_down(' "$test" > without && mv without "$test"
if cargo test --quiet --test munmap > output 2>&1; then
    echo "own-code.sh: the test passes without its shootdown" >&2
    exit 1
fi
for word in INV-ORACLE-O1 'missing: an invalidation' 'PAGEWRIGHT_REPLAY='; do
    grep -q "$word" output || { cat output; echo "own-code.sh: the output lacks $word" >&2; exit 1; }
done
grep -m 1 -A 5 INV-ORACLE-O1 output
echo "own-code.sh: from the README to a failing test in $(($(date +%s) - began)) s"
