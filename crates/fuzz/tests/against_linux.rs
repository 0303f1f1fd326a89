//! The same programs here and on the Linux underneath.
//!
//! Needs x86-64 Linux and ptrace(2); the soak has the number of operations in its environment.

use pagewright_fuzz::against::{Compared, compare, report, still_differs};
use pagewright_syscall::KnownDifference;

/// What every run has to have called.
const CALLS: [&str; 28] = [
    "/proc/self/maps",
    "/proc/self/pagemap",
    "/proc/self/smaps",
    "brk",
    "exit",
    "fallocate",
    "fcntl(F_ADD_SEALS)",
    "fork",
    "ftruncate",
    "madvise(MADV_GUARD_INSTALL)",
    "madvise(MADV_REMOVE)",
    "mincore",
    "mlock2",
    "mlockall",
    "mmap",
    "mprotect",
    "mremap",
    "mseal",
    "msync",
    "munlock",
    "munmap",
    "prlimit64",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "pwrite",
    "read of a pipe",
    "vmsplice",
];

fn operations() -> u64 {
    std::env::var("PAGEWRIGHT_AGAINST_LINUX").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

fn compared(seed: u64, operations: u64) -> Compared {
    let compared = compare(seed, operations).expect("a Linux that lets itself be traced");
    if let Some(found) = &compared.found {
        panic!("{}", report::found(found));
    }
    compared
}

#[test]
fn programs_see_the_same() {
    let compared = compared(1, operations());
    println!("{}", report::compared(&compared));
    assert!(compared.operations >= operations());
    // Few, or it is ours that answers now so and now otherwise.
    assert!(compared.not_again <= 2 + compared.programs / 100, "{} did not show again", compared.not_again);
    for name in CALLS {
        assert!(compared.calls.keys().any(|(call, _)| *call == name), "{name} was never called");
    }
    for errno in ["EPERM", "EBADF", "EAGAIN", "ENOMEM", "EACCES", "EFAULT", "EBUSY", "EEXIST", "EINVAL", "EOVERFLOW"] {
        assert!(compared.calls.keys().any(|(_, answer)| *answer == errno), "nothing was answered with {errno}");
    }
    assert!(compared.accesses.iter().all(|times| *times > 0) && compared.signals.len() == 3, "{compared:?}");
}

#[test]
fn what_is_meant_to_differ_still_does() {
    for difference in KnownDifference::ALL {
        // Linux has other work, too, and may answer otherwise meanwhile.
        let seen = (0..3).find_map(|_| still_differs(*difference).expect("a Linux that lets itself be traced"));
        let (linux, ours) = seen.unwrap_or_else(|| panic!("{}: both are the same", difference.name()));
        println!("{}\n  Linux: {linux}\n  ours:  {ours}", difference.name());
    }
}
