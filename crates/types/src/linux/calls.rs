//! The table of calls.

use super::{Call, Flag, Status};
use crate::Errno;

const fn yes(name: &'static str, value: u32) -> Flag {
    Flag { name, value, status: Status::Supported }
}

const fn partly(name: &'static str, value: u32, missing: &'static str) -> Flag {
    Flag { name, value, status: Status::Partial(missing) }
}

const fn no(name: &'static str, value: u32, why: &'static str) -> Flag {
    Flag { name, value, status: Status::Refused(Errno::EINVAL, why) }
}

const fn call(name: &'static str, flags: &'static [Flag]) -> Call {
    Call { name, status: Status::Supported, flags }
}

const fn part(name: &'static str, missing: &'static str, flags: &'static [Flag]) -> Call {
    Call { name, status: Status::Partial(missing), flags }
}

const fn none(name: &'static str, why: &'static str) -> Call {
    Call { name, status: Status::Refused(Errno::ENOSYS, why), flags: &[] }
}

const IGNORED: &str = "ignored, as Linux does";
const NO_HUGE: &str = "no huge pages yet";
const NO_KSM: &str = "no merging of equal pages";
const NO_FAILURE: &str = "no memory failure";
const NO_NUMA: &str = "no memory policies";
const NO_SYSV: &str = "no System V shared memory";
const NO_KEYS: &str = "no protection keys";

/// Protection of `mmap` and `mprotect`.
const PROT: [Flag; 6] = [
    yes("PROT_READ", 0x1),
    yes("PROT_WRITE", 0x2),
    yes("PROT_EXEC", 0x4),
    partly("PROT_SEM", 0x8, IGNORED),
    yes("PROT_GROWSDOWN", 0x100_0000),
    partly(
        "PROT_GROWSUP",
        0x200_0000,
        "ignored by mmap, EINVAL of mprotect: no stack grows up on these instruction sets",
    ),
];

/// Flags of `mmap`.
const MAP: [Flag; 22] = [
    yes("MAP_SHARED", 0x1),
    yes("MAP_PRIVATE", 0x2),
    yes("MAP_SHARED_VALIDATE", 0x3),
    no("MAP_DROPPABLE", 0x8, "nothing that reclaim drops without a word but MADV_FREE"),
    yes("MAP_FIXED", 0x10),
    yes("MAP_ANONYMOUS", 0x20),
    partly("MAP_32BIT", 0x40, "on arm64 ignored, as Linux does"),
    partly("MAP_ABOVE4G", 0x80, "on arm64 ignored, as Linux does"),
    yes("MAP_GROWSDOWN", 0x100),
    partly("MAP_DENYWRITE", 0x800, IGNORED),
    partly("MAP_EXECUTABLE", 0x1000, IGNORED),
    yes("MAP_LOCKED", 0x2000),
    yes("MAP_NORESERVE", 0x4000),
    yes("MAP_POPULATE", 0x8000),
    yes("MAP_NONBLOCK", 0x1_0000),
    yes("MAP_STACK", 0x2_0000),
    no("MAP_HUGETLB", 0x4_0000, NO_HUGE),
    partly("MAP_SYNC", 0x8_0000, "no effect, but EOPNOTSUPP with MAP_SHARED_VALIDATE: no file is persistent memory"),
    yes("MAP_FIXED_NOREPLACE", 0x10_0000),
    partly("MAP_UNINITIALIZED", 0x400_0000, "ignored, as Linux does where there is an MMU"),
    partly("MAP_HUGE_2MB", 21 << 26, "without MAP_HUGETLB ignored, as Linux does"),
    partly("MAP_HUGE_1GB", 30 << 26, "without MAP_HUGETLB ignored, as Linux does"),
];

/// Advice of `madvise` and `process_madvise`.
const ADVICE: [Flag; 29] = [
    yes("MADV_NORMAL", 0),
    yes("MADV_RANDOM", 1),
    yes("MADV_SEQUENTIAL", 2),
    yes("MADV_WILLNEED", 3),
    yes("MADV_DONTNEED", 4),
    yes("MADV_FREE", 8),
    yes("MADV_REMOVE", 9),
    yes("MADV_DONTFORK", 10),
    yes("MADV_DOFORK", 11),
    no("MADV_MERGEABLE", 12, NO_KSM),
    no("MADV_UNMERGEABLE", 13, NO_KSM),
    no("MADV_HUGEPAGE", 14, NO_HUGE),
    no("MADV_NOHUGEPAGE", 15, NO_HUGE),
    yes("MADV_DONTDUMP", 16),
    yes("MADV_DODUMP", 17),
    yes("MADV_WIPEONFORK", 18),
    yes("MADV_KEEPONFORK", 19),
    yes("MADV_COLD", 20),
    yes("MADV_PAGEOUT", 21),
    yes("MADV_POPULATE_READ", 22),
    yes("MADV_POPULATE_WRITE", 23),
    yes("MADV_DONTNEED_LOCKED", 24),
    no("MADV_COLLAPSE", 25, NO_HUGE),
    no("MADV_HWPOISON", 100, NO_FAILURE),
    no("MADV_SOFT_OFFLINE", 101, NO_FAILURE),
    yes("MADV_GUARD_INSTALL", 102),
    yes("MADV_GUARD_REMOVE", 103),
    no("unknown advice", 5, "Linux knows none of that number"),
    no("unknown advice, far off", 1 << 20, "Linux knows none of that number"),
];

/// Limits of `setrlimit`.
const LIMITS: [Flag; 6] = [
    yes("RLIMIT_DATA", 2),
    yes("RLIMIT_STACK", 3),
    no("RLIMIT_RSS", 5, "Linux takes it and looks at it nowhere"),
    no("RLIMIT_NPROC", 6, "no business of a memory manager"),
    yes("RLIMIT_MEMLOCK", 8),
    yes("RLIMIT_AS", 9),
];

/// Every memory call of Linux.
pub const CALLS: &[Call] = &[
    call("mmap", &MAP),
    call("mmap and mprotect: protection", &PROT),
    call("munmap", &[]),
    call("mprotect", &[]),
    call("brk", &[]),
    call(
        "mremap",
        &[yes("MREMAP_MAYMOVE", 1), yes("MREMAP_FIXED", 2), yes("MREMAP_DONTUNMAP", 4), no("unknown flag", 8, "")],
    ),
    call("madvise", &ADVICE),
    part("process_madvise", "the caller finds the process and asks whether it may", &[]),
    call("mlock", &[]),
    call("mlock2", &[yes("MLOCK_ONFAULT", 1), no("unknown flag", 2, "")]),
    call("munlock", &[]),
    call("mlockall", &[yes("MCL_CURRENT", 1), yes("MCL_FUTURE", 2), yes("MCL_ONFAULT", 4), no("unknown flag", 8, "")]),
    call("munlockall", &[]),
    call("msync", &[yes("MS_ASYNC", 1), yes("MS_INVALIDATE", 2), yes("MS_SYNC", 4), no("unknown flag", 8, "")]),
    call("mincore", &[]),
    call("mseal", &[no("any flag", 1, "Linux has none either")]),
    call(
        "memfd_create",
        &[
            yes("MFD_CLOEXEC", 0x1),
            yes("MFD_ALLOW_SEALING", 0x2),
            Flag { name: "MFD_HUGETLB", value: 0x4, status: Status::Refused(Errno::ENOSYS, NO_HUGE) },
            yes("MFD_NOEXEC_SEAL", 0x8),
            yes("MFD_EXEC", 0x10),
            no("MFD_HUGE_2MB", 21 << 26, "only with MFD_HUGETLB"),
            no("unknown flag", 0x20, ""),
        ],
    ),
    call(
        "fcntl(F_ADD_SEALS, F_GET_SEALS)",
        &[
            yes("F_SEAL_SEAL", 0x1),
            yes("F_SEAL_SHRINK", 0x2),
            yes("F_SEAL_GROW", 0x4),
            partly("F_SEAL_WRITE", 0x8, "EBUSY at once while somebody has a page; Linux waits for a moment first"),
            yes("F_SEAL_FUTURE_WRITE", 0x10),
            yes("F_SEAL_EXEC", 0x20),
            no("unknown seal", 0x40, ""),
        ],
    ),
    call("ftruncate", &[]),
    call(
        "fallocate",
        &[
            yes("FALLOC_FL_KEEP_SIZE", 0x1),
            yes("FALLOC_FL_PUNCH_HOLE", 0x2),
            Flag { name: "FALLOC_FL_COLLAPSE_RANGE", value: 0x8, status: NOT_BY_TMPFS },
            Flag { name: "FALLOC_FL_ZERO_RANGE", value: 0x10, status: NOT_BY_TMPFS },
            Flag { name: "FALLOC_FL_INSERT_RANGE", value: 0x20, status: NOT_BY_TMPFS },
            Flag { name: "FALLOC_FL_UNSHARE_RANGE", value: 0x40, status: NOT_BY_TMPFS },
        ],
    ),
    part("setrlimit, prlimit64", "of those that are about memory, and of the caller's own process", &LIMITS),
    part("fork, vfork, clone", "the address space; everything else of a process is the caller's", &[]),
    part(
        "process_vm_readv, process_vm_writev",
        "who may reach whom is for the caller",
        &[no("any flag", 1, "Linux has none either")],
    ),
    part("futex", "which word is meant; waiting is the caller's", &[]),
    part("swapon, swapoff", "the caller finds the device, reads its header and looks at the flags", &[]),
    none("remap_file_pages", "Linux emulates it by mmap, which a program can do itself"),
    none("pkey_alloc, pkey_free, pkey_mprotect", NO_KEYS),
    none("mbind, get_mempolicy, set_mempolicy, set_mempolicy_home_node", NO_NUMA),
    none("migrate_pages, move_pages", "no migration yet"),
    none("shmget, shmat, shmdt, shmctl", NO_SYSV),
    none("userfaultfd", "no faults for others to serve yet"),
    none("memfd_secret", "the kernel has no map of its own to take pages from"),
    none("map_shadow_stack", "no shadow stacks"),
    none("process_mrelease", "nobody is killed for want of memory yet"),
    none("cachestat", "no statistics of files"),
    none("readahead, fadvise64", "no read-ahead beside fault-around"),
    none("membarrier", "it orders memory and changes none; the kernel's scheduler would know"),
];

/// What a file of tmpfs does not do.
const NOT_BY_TMPFS: Status = Status::Refused(Errno::EOPNOTSUPP, "Linux's tmpfs has it neither");
