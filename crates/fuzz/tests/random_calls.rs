//! Random programs of every memory call, with good arguments and bad ones, and with allocations
//! that fail: against the reference memory, on both instruction sets (INV-ORACLE-SPEC). With
//! `PAGEWRIGHT_SOAK` ten times as many.

use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_fuzz::random::{Done, calls_program, fast, smallest};

/// Operations of each instruction set, before those of the end.
const OPERATIONS: usize = 500_000;
const SEED: u64 = 1;

/// Calls and answers that must have come about: of each call a success, and every errno that it has
/// where nothing is missing but sense.
const MUST: [(&str, &[&str]); 50] = [
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
    ("pin_user_pages, kept", &["", "EFAULT"]),
    ("pin_user_pages_fast, kept", &["", "EFAULT", "ENOMEM"]),
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

fn run<I: Isa>() {
    let (mut operations, mut number, mut done) = (0, 0, Done::default());
    let wanted = if std::env::var_os("PAGEWRIGHT_SOAK").is_some() { 10 * OPERATIONS } else { OPERATIONS };
    while operations < wanted {
        let program = calls_program(SEED, None, number);
        let ran = fast::run::<I>(&program).expect("a possible machine");
        if !ran.findings.is_empty() {
            let bug = smallest::<I>(&program).expect("the same machine").expect("the same program");
            let (calm, others) = bug.program.steps();
            let steps: Vec<String> = calm.iter().chain(&others).map(ToString::to_string).collect();
            panic!("{} ({}): {}\n{}", bug.program, I::KIND, bug.findings[0], steps.join("\n"));
        }
        number += 1;
        operations += ran.operations;
        done += &ran.done;
    }
    for (call, answers) in MUST {
        for answer in answers {
            assert!(done.calls.contains_key(&(call, *answer)), "{call} never answered {answer:?}: {:?}", done.calls);
        }
    }
    assert!(done.signals.iter().all(|times| *times > 0), "a signal that nobody got: {:?}", done.signals);
    assert!(done.refused * 20 > operations as u64 / 4, "{} of {operations} with a failing allocation", done.refused);
}

#[test]
fn half_a_million_operations_agree_with_the_reference_memory_on_x86_64() {
    run::<X86_64>();
}

#[test]
fn half_a_million_operations_agree_with_the_reference_memory_on_aarch64() {
    run::<Aarch64>();
}
