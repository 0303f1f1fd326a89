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

/// The programs, the longest first.
pub(crate) const CASES: [Case; 13] = [
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
    Case { arguments: &["1000"], allowed: ALLOWED, ..c("forks", "forks.c", 0) },
    Case { allowed: ALLOWED, ..shell("tools", &["sh", "-c", TOOLS], 0, true) },
];
