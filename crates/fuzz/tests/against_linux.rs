//! The same programs here and on the host's Linux.
//!
//! Needs x86-64 Linux and ptrace(2). The soak sets the number of operations by
//! `PAGEWRIGHT_AGAINST_LINUX`.

use pagewright_fuzz::against::{HugePrograms, LinuxComparison, compare, report, still_differs};
use pagewright_syscall::KnownDifference;

/// The calls that every run must make.
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

fn compared(seed: u64, operations: u64) -> LinuxComparison {
    let compared = compare(seed, operations, HugePrograms::Some, &mut |_| {}).expect("a Linux that allows ptrace");
    if let Some(difference) = &compared.difference {
        panic!("{}", report::difference(difference));
    }
    compared
}

#[test]
fn programs_observe_the_same_results() {
    let compared = compared(1, operations());
    println!("{}", report::comparison(&compared));
    assert!(compared.operations >= operations());
    // More of these would mean that our side is not deterministic.
    assert!(
        compared.not_reproduced <= 2 + compared.programs / 100,
        "{} differences did not show again",
        compared.not_reproduced
    );
    for name in CALLS {
        assert!(compared.calls.keys().any(|(call, _)| *call == name), "{name} was never called");
    }
    for errno in ["EPERM", "EBADF", "EAGAIN", "ENOMEM", "EACCES", "EFAULT", "EBUSY", "EEXIST", "EINVAL", "EOVERFLOW"] {
        assert!(compared.calls.keys().any(|(_, returned)| *returned == errno), "no call returned {errno}");
    }
    assert!(compared.accesses.iter().all(|times| *times > 0) && compared.signals.len() == 3, "{compared:?}");
}

#[test]
fn every_known_difference_still_exists() {
    for difference in KnownDifference::ALL {
        // Other work of Linux may hide the difference once.
        let observed = (0..3).find_map(|_| still_differs(*difference).expect("a Linux that allows ptrace"));
        let (linux, ours) = observed.unwrap_or_else(|| panic!("{}: no difference", difference.name()));
        println!("{}\n  Linux: {linux}\n  ours:  {ours}", difference.name());
    }
}
