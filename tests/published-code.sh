#!/bin/sh
# From README.md, "Check your own code", to a failing test of a published crate, as it is.
#
# Makes a package beside the clone, with hyperlight-common of crates.io, the README's dependency and
# the test hyperlight.rs. The crate leaves flushes to its caller, which is in the test. The test
# passes. Without the caller's shootdown it must fail, and name the rule, the missing step and a
# token.
set -eu
clone=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
began=$(date +%s)
cd "$folder"
cargo new --quiet --lib published-code
cd published-code
cat >> Cargo.toml << END
hyperlight-common = "=0.18.0"

[dev-dependencies]
pagewright-check = { path = "$clone/crates/check" }
END
mkdir tests
test=tests/hyperlight.rs
cp "$clone/tests/published/hyperlight.rs" "$test"
cargo test --quiet --test hyperlight
grep -v 'cpu.shoot_down(' "$test" > without && mv without "$test"
if cargo test --quiet --test hyperlight > output 2>&1; then
    echo "published-code.sh: the test passes without its shootdown" >&2
    exit 1
fi
for word in INV-ORACLE-O1 INV-ORACLE-O2 'missing: an invalidation' 'PAGEWRIGHT_REPLAY='; do
    grep -q "$word" output || { cat output; echo "published-code.sh: the output lacks $word" >&2; exit 1; }
done
grep -m 1 -A 5 INV-ORACLE-O1 output
echo "published-code.sh: from the README to a failing test in $(($(date +%s) - began)) s"
