//! Random programs of every memory call agree with the reference memory (INV-ORACLE-SPEC).
//!
//! One program in 16 is checked after each operation: INV-MM-COMMIT, INV-MM-UNMAPPED,
//! INV-MM-REDUCED, INV-FORK-FLUSHED. The programs have valid and invalid arguments, and allocations
//! fail, on both instruction sets. With `PAGEWRIGHT_SOAK` there are forty times as many.

use pagewright_arch::{Isa, on_both};
use pagewright_fuzz::random::{OperationCounts, calls_program, fast_mode, smallest};

/// Operations on each instruction set, without the final checks.
const OPERATIONS: usize = 125_000;
const SEED: u64 = 1;

/// The results that must occur for each call: success (empty), and errnos of invalid arguments.
const REQUIRED: [(&str, &[&str]); 50] = [
    ("mmap", &["", "EINVAL", "ENOMEM", "EEXIST", "EACCES", "EAGAIN", "EPERM"]),
    ("munmap", &["", "EINVAL", "EPERM"]),
    ("mprotect", &["", "EINVAL", "ENOMEM", "EACCES", "EPERM"]),
    ("brk", &[""]),
    ("fork", &["", "ENOMEM"]),
    ("exit", &[""]),
    ("mremap", &["", "EINVAL", "ENOMEM", "EFAULT", "EAGAIN", "EPERM"]),
    ("mlock2", &["", "EINVAL", "ENOMEM", "EPERM"]),
    ("munlock", &["", "ENOMEM"]),
    ("mlockall", &["", "EINVAL", "ENOMEM", "EPERM"]),
    ("munlockall", &[""]),
    ("msync", &["", "EINVAL", "ENOMEM", "EBUSY"]),
    ("mincore", &["", "EINVAL", "ENOMEM"]),
    ("mseal", &["", "EINVAL", "ENOMEM"]),
    ("setrlimit", &[""]),
    ("process_madvise", &["", "EINVAL", "ENOMEM", "EFAULT"]),
    ("madvise(unknown)", &["EINVAL"]),
    ("madvise(MADV_NORMAL)", &["", "ENOMEM"]),
    ("madvise(MADV_RANDOM)", &["", "ENOMEM"]),
    ("madvise(MADV_SEQUENTIAL)", &["", "ENOMEM"]),
    ("madvise(MADV_WILLNEED)", &["", "ENOMEM"]),
    ("madvise(MADV_DONTNEED)", &["", "ENOMEM", "EINVAL"]),
    ("madvise(MADV_FREE)", &["", "ENOMEM", "EINVAL"]),
    ("madvise(MADV_REMOVE)", &["", "ENOMEM", "EINVAL", "EACCES", "EOPNOTSUPP"]),
    ("madvise(MADV_DONTFORK)", &["", "ENOMEM"]),
    ("madvise(MADV_DOFORK)", &["", "ENOMEM"]),
    ("madvise(MADV_DONTDUMP)", &["", "ENOMEM"]),
    ("madvise(MADV_WIPEONFORK)", &["", "ENOMEM", "EINVAL"]),
    ("madvise(MADV_KEEPONFORK)", &["", "ENOMEM"]),
    ("madvise(MADV_COLD)", &["", "ENOMEM", "EINVAL"]),
    ("madvise(MADV_POPULATE_READ)", &["", "ENOMEM", "EINVAL", "EFAULT"]),
    ("madvise(MADV_POPULATE_WRITE)", &["", "ENOMEM", "EINVAL", "EFAULT"]),
    ("madvise(MADV_DONTNEED_LOCKED)", &["", "ENOMEM"]),
    ("madvise(MADV_GUARD_INSTALL)", &["", "ENOMEM", "EINVAL"]),
    ("madvise(MADV_GUARD_REMOVE)", &["", "ENOMEM"]),
    ("pin_user_pages", &["", "EFAULT"]),
    ("ftruncate", &["", "EPERM"]),
    ("pin_user_pages, held", &["", "EFAULT"]),
    ("pin_user_pages_fast, held", &["", "EFAULT", "ENOMEM"]),
    ("device access", &[""]),
    ("unpin_user_pages", &[""]),
    ("process_vm_readv", &["", "EFAULT"]),
    ("process_vm_writev", &["", "EFAULT"]),
    ("clear_refs", &[""]),
    ("pagemap", &[""]),
    ("fallocate", &["", "EINVAL", "EOPNOTSUPP", "EPERM"]),
    ("fcntl(F_ADD_SEALS)", &["", "EINVAL", "EPERM", "EBUSY"]),
    ("fcntl(F_GET_SEALS)", &["", "EINVAL"]),
    ("pread", &[""]),
    ("pwrite", &["", "EPERM"]),
];

fn random_operations_agree_with_the_reference_memory<I: Isa>() {
    let (mut operations, mut number, mut counts) = (0, 0, OperationCounts::default());
    let wanted = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 40 * OPERATIONS } else { OPERATIONS };
    while operations < wanted {
        let program = calls_program(SEED, None, number);
        let ran = fast_mode::run::<I>(&program).expect("a possible machine");
        if !ran.findings.is_empty() {
            let bug = smallest::<I>(&program).expect("the same machine").expect("the same program");
            let (setup, body) = bug.program.steps();
            let steps: Vec<String> = setup.iter().chain(&body).map(ToString::to_string).collect();
            panic!("{} ({}): {}\n{}", bug.program, I::KIND, bug.findings[0], steps.join("\n"));
        }
        number += 1;
        operations += ran.operations;
        counts += &ran.counts;
    }
    for (call, results) in REQUIRED {
        for result in results {
            assert!(
                counts.calls.contains_key(&(call, *result)),
                "{call} never returned {result:?}: {:?}",
                counts.calls
            );
        }
    }
    assert!(counts.signals.iter().all(|times| *times > 0), "a signal never occurred: {:?}", counts.signals);
    assert!(counts.pins.iter().all(|times| *times > 10), "unshared, taken fast, dropped: {:?}", counts.pins);
    assert!(
        counts.checked_steps * 25 > operations as u64,
        "{} steps checked in {operations} operations",
        counts.checked_steps
    );
    assert!(
        counts.refused * 20 > operations as u64 / 4,
        "{} allocations failed in {operations} operations",
        counts.refused
    );
}

on_both! { random_operations_agree_with_the_reference_memory }
