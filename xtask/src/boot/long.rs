//! `cargo xtask boot long`: programs that take minutes, of Debian and of this repository.
//!
//! They run as those of [`super::cases`], on the same machines and under `--check`. stress-ng
//! prints nothing with `--quiet`, so its exit status tells whether its stressors found what they
//! expected.
//!
//! Not guaranteed: that Debian's packages can be downloaded. Without them the boots fail to start.

use super::cases::{Case, Program, Swap, c, shell};
use std::time::Duration;

/// The time that a boot may spend.
const ALLOWED: Duration = Duration::from_secs(7200);
/// tar, find, sort and awk over the files of a tree that ash makes.
const TOOLS: &str = "mkdir -p /tmp/t; cd /tmp/t; i=0; while [ $i -lt 200 ]; do mkdir -p d$((i % 7)); \
                     seq $i $((i * 3)) > d$((i % 7))/f$i; i=$((i + 1)); done; tar cf /tmp/t.tar .; mkdir /tmp/u; \
                     tar xf /tmp/t.tar -C /tmp/u; diff -r /tmp/t /tmp/u; find /tmp/u -type f | sort | tail -3; \
                     find . -name 'f1*' | xargs cat | sort -n | awk '{ s += $1; n[$1 % 10]++ } END { print s, n[0], n[9] }'; \
                     find . -type f | wc -l; sed -n 's/^1\\(.*\\)9$/\\1/p' d3/f199 | head -2; rm -rf /tmp/t /tmp/u /tmp/t.tar";

const fn stress(name: &'static str, words: &'static [&'static str]) -> Case {
    Case {
        program: Program::Debian("stress-ng", "usr/bin/stress-ng"),
        arguments: words,
        memory: "512M",
        set: &[],
        allowed: ALLOWED,
        on_linux: false,
        ..c(name, "", 0)
    }
}

/// A program of Debian whose output is compared with Linux's.
const fn debian(package: &'static str, path: &'static str, arguments: &'static [&'static str]) -> Case {
    Case {
        program: Program::Debian(package, path),
        arguments,
        memory: "512M",
        memory_on_linux: "512M",
        set: &[],
        allowed: ALLOWED,
        ..c(package, "", 0)
    }
}

/// A hash, a sort, and children whose status is their work's.
const PERL: &str = "my %h; $h{($_ * 7919) % 10007} .= $_ for 1 .. 50000; my $sum = 0; \
                    for my $n (1 .. 4) { my $pid = fork; exit keys(%h) % 7 + $n if !$pid; waitpid $pid, 0; \
                    $sum += $? >> 8 } print scalar(keys %h), \" $sum \", length $h{5}, \"\\n\"; \
                    print join(' ', (sort { $a <=> $b } keys %h)[0 .. 4]), \"\\n\"";
/// Code that is compiled while it runs.
const LUAJIT: &str = "local t = {} for i = 1, 300000 do t[i] = (i * 48271) % 2147483647 end table.sort(t) \
                      local s = 0 for i = 1, #t, 1000 do s = s + t[i] % 97 end print(#t, s, (jit.status()))";
/// Strings, their collection, and a coroutine.
const LUA: &str = "local t = {} for i = 1, 200 do t[i] = string.rep(tostring(i), 1000) end collectgarbage() \
                   local c = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(#t[i * 60]) end end) \
                   print(#table.concat(t), c(), c(), c())";
const GAWK: &str = "BEGIN { for (i = 0; i < 50000; i++) a[i % 997] += i; n = asorti(a, b); print n, a[996], b[1] }";
/// Substitutions, a pipeline and a background job; all of them fork without exec.
const BASH: &str = "f() { local s=0 i; for ((i = 0; i < 5000; i++)); do ((s += i * $1 % 7)); done; echo $s; }; \
                    for n in 1 2 3; do x[n]=$(f $n); done; echo ${x[*]}; f 4 | { read r; echo piped $r; }; \
                    (exit 3) & wait $!; echo $?";
const DUKTAPE: &str = "var a = []; for (var i = 0; i < 50000; i++) a.push((i * 7919) % 10007); \
                       a.sort(function (x, y) { return x - y; }); \
                       print(a.length, a[100], JSON.stringify({ last: a[49999] }));";
/// PHP's allocator aligns chunks of 2 MiB by unmapping what is too much.
const PHP: &str = "$a = []; for ($i = 0; $i < 100000; $i++) $a[$i % 9973][] = $i; ksort($a); \
                   echo count($a), ' ', count($a[5]), ' ', memory_get_peak_usage(true) >> 21, \"\\n\";";

/// The programs, the longest first.
pub(crate) const CASES: [Case; 23] = [
    Case {
        arguments: &["1", "1000000"],
        swap: Swap::On("64M"),
        allowed: ALLOWED,
        on_linux: false,
        ..c("random", "random.c", 0)
    },
    stress("stress-vm", &["--quiet", "--vm", "1", "--vm-bytes", "64M", "-t", "5"]),
    stress("stress-mmap", &["--quiet", "--mmap", "1", "--mmap-bytes", "64M", "-t", "5"]),
    stress("stress-fork", &["--quiet", "--fork", "2", "-t", "5"]),
    stress("stress-brk", &["--quiet", "--brk", "1", "-t", "5"]),
    stress("stress-mremap", &["--quiet", "--mremap", "1", "-t", "5"]),
    stress("stress-mlock", &["--quiet", "--mlock", "1", "-t", "5"]),
    stress("stress-madvise", &["--quiet", "--madvise", "1", "-t", "5"]),
    stress("stress-pthread", &["--quiet", "--pthread", "1", "-t", "5"]),
    // 256 MiB of shared memory, and a private copy of it.
    Case { memory: "1G", ..stress("stress-shm", &["--quiet", "--shm", "1", "-t", "5"]) },
    stress("stress-shm-sysv", &["--quiet", "--shm-sysv", "1", "-t", "5"]),
    debian("php8.2-cli", "usr/bin/php8.2", &["-n", "-r", PHP]),
    debian("perl-base", "usr/bin/perl", &["-e", PERL]),
    debian("luajit", "usr/bin/luajit", &["-e", LUAJIT]),
    debian("lua5.4", "usr/bin/lua5.4", &["-e", LUA]),
    debian(
        "jq",
        "usr/bin/jq",
        &["-n", "-c", "-M", "[range(20000) | {id: ., s: tostring}] | group_by(.id % 7) | map(length)"],
    ),
    debian("gawk", "usr/bin/gawk", &[GAWK]),
    debian("bash", "bin/bash", &["-c", BASH]),
    debian("duktape", "usr/bin/duk", &["-e", DUKTAPE]),
    debian("openssl", "usr/bin/openssl", &["passwd", "-6", "-salt", "pagewright", "word"]),
    debian("dc", "usr/bin/dc", &["-e", "2 4000 ^ 3 2000 ^ % p"]),
    Case { arguments: &["1000"], allowed: ALLOWED, ..c("forks", "forks.c", 0) },
    Case { allowed: ALLOWED, ..shell("tools", &["sh", "-c", TOOLS], 0, true) },
];
