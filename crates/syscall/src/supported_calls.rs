//! The table of memory calls and their flags.

use crate::support::{CallSupport, FlagSupport, Support};
use pagewright_types::Errno;

const fn full(name: &'static str, value: u32) -> FlagSupport {
    FlagSupport { name, value, support: Support::Full }
}

const fn partial(name: &'static str, value: u32, missing: &'static str) -> FlagSupport {
    FlagSupport { name, value, support: Support::Partial(missing) }
}

const fn invalid(name: &'static str, value: u32, reason: &'static str) -> FlagSupport {
    FlagSupport { name, value, support: Support::Refused(Errno::EINVAL, reason) }
}

const fn call(name: &'static str, flags: &'static [FlagSupport]) -> CallSupport {
    CallSupport { name, support: Support::Full, flags }
}

const fn partial_call(name: &'static str, missing: &'static str, flags: &'static [FlagSupport]) -> CallSupport {
    CallSupport { name, support: Support::Partial(missing), flags }
}

const fn missing_call(name: &'static str, reason: &'static str) -> CallSupport {
    CallSupport { name, support: Support::Refused(Errno::ENOSYS, reason), flags: &[] }
}

const IGNORED: &str = "ignored, as in Linux";
const NO_COLLAPSE: &str = "huge pages are mapped by faults only";
const NO_HUGETLBFS: &str = "no hugetlbfs, as in Linux without CONFIG_HUGETLBFS";
const NO_KSM: &str = "no merging of equal pages";
const NO_FAILURE: &str = "no memory failure";
const NO_SUCH_POLICY: &str = "only MPOL_DEFAULT, MPOL_PREFERRED and MPOL_BIND";
const NICE: &str = "the caller needs CAP_SYS_NICE, as in Linux";
const NO_SYSV: &str =
    "the embedder has the segments, which are files (SHM_LOCK: FileObject::set_unevictable); our kernel does";
const NO_KEYS: &str = "no protection keys";

/// Protection of `mmap` and `mprotect`.
const PROT: [FlagSupport; 6] = [
    full("PROT_READ", 0x1),
    full("PROT_WRITE", 0x2),
    full("PROT_EXEC", 0x4),
    partial("PROT_SEM", 0x8, IGNORED),
    full("PROT_GROWSDOWN", 0x100_0000),
    partial(
        "PROT_GROWSUP",
        0x200_0000,
        "ignored by mmap, EINVAL from mprotect: no stack grows up on these instruction sets",
    ),
];

/// Flags of `mbind`.
const BIND: [FlagSupport; 3] =
    [full("MPOL_MF_STRICT", 0x1), full("MPOL_MF_MOVE", 0x2), partial("MPOL_MF_MOVE_ALL", 0x4, NICE)];

/// Modes of `set_mempolicy` and `mbind`, and their flags.
const POLICY: [FlagSupport; 10] = [
    full("MPOL_DEFAULT", 0),
    full("MPOL_PREFERRED", 1),
    full("MPOL_BIND", 2),
    invalid("MPOL_INTERLEAVE", 3, NO_SUCH_POLICY),
    invalid("MPOL_LOCAL", 4, "MPOL_PREFERRED without nodes is the same"),
    invalid("MPOL_PREFERRED_MANY", 5, NO_SUCH_POLICY),
    invalid("MPOL_WEIGHTED_INTERLEAVE", 6, NO_SUCH_POLICY),
    full("MPOL_F_NUMA_BALANCING", 0x2000),
    full("MPOL_F_RELATIVE_NODES", 0x4000),
    full("MPOL_F_STATIC_NODES", 0x8000),
];

/// Flags of `get_mempolicy`.
const POLICY_QUERY: [FlagSupport; 3] =
    [full("MPOL_F_NODE", 0x1), full("MPOL_F_ADDR", 0x2), full("MPOL_F_MEMS_ALLOWED", 0x4)];

/// Flags of `mmap`.
const MAP: [FlagSupport; 22] = [
    full("MAP_SHARED", 0x1),
    full("MAP_PRIVATE", 0x2),
    full("MAP_SHARED_VALIDATE", 0x3),
    invalid("MAP_DROPPABLE", 0x8, "only MADV_FREE lets reclaim drop pages unwritten"),
    full("MAP_FIXED", 0x10),
    full("MAP_ANONYMOUS", 0x20),
    partial("MAP_32BIT", 0x40, "ignored on arm64, as in Linux"),
    partial("MAP_ABOVE4G", 0x80, "ignored on arm64, as in Linux"),
    full("MAP_GROWSDOWN", 0x100),
    partial("MAP_DENYWRITE", 0x800, IGNORED),
    partial("MAP_EXECUTABLE", 0x1000, IGNORED),
    full("MAP_LOCKED", 0x2000),
    full("MAP_NORESERVE", 0x4000),
    full("MAP_POPULATE", 0x8000),
    full("MAP_NONBLOCK", 0x1_0000),
    full("MAP_STACK", 0x2_0000),
    FlagSupport {
        name: "MAP_HUGETLB",
        value: 0x4_0000,
        support: Support::Refused(Errno::ENOMEM, "no pool of huge pages, as in Linux with an empty one"),
    },
    partial("MAP_SYNC", 0x8_0000, "no effect, and EOPNOTSUPP with MAP_SHARED_VALIDATE: no file is persistent memory"),
    full("MAP_FIXED_NOREPLACE", 0x10_0000),
    partial("MAP_UNINITIALIZED", 0x400_0000, "ignored, as in Linux with an MMU"),
    partial("MAP_HUGE_2MB", 21 << 26, "ignored without MAP_HUGETLB, as in Linux"),
    partial("MAP_HUGE_1GB", 30 << 26, "ignored without MAP_HUGETLB, as in Linux"),
];

/// Advice of `madvise` and `process_madvise`.
const ADVICE: [FlagSupport; 29] = [
    full("MADV_NORMAL", 0),
    full("MADV_RANDOM", 1),
    full("MADV_SEQUENTIAL", 2),
    full("MADV_WILLNEED", 3),
    full("MADV_DONTNEED", 4),
    full("MADV_FREE", 8),
    full("MADV_REMOVE", 9),
    full("MADV_DONTFORK", 10),
    full("MADV_DOFORK", 11),
    invalid("MADV_MERGEABLE", 12, NO_KSM),
    invalid("MADV_UNMERGEABLE", 13, NO_KSM),
    full("MADV_HUGEPAGE", 14),
    full("MADV_NOHUGEPAGE", 15),
    full("MADV_DONTDUMP", 16),
    full("MADV_DODUMP", 17),
    full("MADV_WIPEONFORK", 18),
    full("MADV_KEEPONFORK", 19),
    full("MADV_COLD", 20),
    full("MADV_PAGEOUT", 21),
    full("MADV_POPULATE_READ", 22),
    full("MADV_POPULATE_WRITE", 23),
    full("MADV_DONTNEED_LOCKED", 24),
    invalid("MADV_COLLAPSE", 25, NO_COLLAPSE),
    invalid("MADV_HWPOISON", 100, NO_FAILURE),
    invalid("MADV_SOFT_OFFLINE", 101, NO_FAILURE),
    full("MADV_GUARD_INSTALL", 102),
    full("MADV_GUARD_REMOVE", 103),
    invalid("unknown advice", 5, "Linux has no advice with this number"),
    invalid("unknown advice, a large number", 1 << 20, "Linux has no advice with this number"),
];

/// Limits of `setrlimit`.
const LIMITS: [FlagSupport; 6] = [
    full("RLIMIT_DATA", 2),
    full("RLIMIT_STACK", 3),
    invalid("RLIMIT_RSS", 5, "Linux accepts the limit and never enforces it"),
    invalid("RLIMIT_NPROC", 6, "outside the memory manager"),
    full("RLIMIT_MEMLOCK", 8),
    full("RLIMIT_AS", 9),
];

/// Every memory call of Linux, with its flags.
pub const LINUX_CALLS: &[CallSupport] = &[
    call("mmap", &MAP),
    call("mmap and mprotect: protection", &PROT),
    call("munmap", &[]),
    call("mprotect", &[]),
    call("brk", &[]),
    call(
        "mremap",
        &[
            full("MREMAP_MAYMOVE", 1),
            full("MREMAP_FIXED", 2),
            full("MREMAP_DONTUNMAP", 4),
            invalid("unknown flag", 8, ""),
        ],
    ),
    call("madvise", &ADVICE),
    partial_call("process_madvise", "the embedder looks up the process and checks permission", &[]),
    call("mlock", &[]),
    call("mlock2", &[full("MLOCK_ONFAULT", 1), invalid("unknown flag", 2, "")]),
    call("munlock", &[]),
    call(
        "mlockall",
        &[full("MCL_CURRENT", 1), full("MCL_FUTURE", 2), full("MCL_ONFAULT", 4), invalid("unknown flag", 8, "")],
    ),
    call("munlockall", &[]),
    call("msync", &[full("MS_ASYNC", 1), full("MS_INVALIDATE", 2), full("MS_SYNC", 4), invalid("unknown flag", 8, "")]),
    call("mincore", &[]),
    call("mseal", &[invalid("any flag", 1, "Linux has no flags either")]),
    call(
        "memfd_create",
        &[
            full("MFD_CLOEXEC", 0x1),
            full("MFD_ALLOW_SEALING", 0x2),
            FlagSupport { name: "MFD_HUGETLB", value: 0x4, support: Support::Refused(Errno::ENOSYS, NO_HUGETLBFS) },
            full("MFD_NOEXEC_SEAL", 0x8),
            full("MFD_EXEC", 0x10),
            invalid("MFD_HUGE_2MB", 21 << 26, "only with MFD_HUGETLB"),
            invalid("unknown flag", 0x20, ""),
        ],
    ),
    call(
        "fcntl(F_ADD_SEALS, F_GET_SEALS)",
        &[
            full("F_SEAL_SEAL", 0x1),
            full("F_SEAL_SHRINK", 0x2),
            full("F_SEAL_GROW", 0x4),
            partial(
                "F_SEAL_WRITE",
                0x8,
                "EBUSY at once while a page is referenced or pinned; Linux retries briefly first",
            ),
            full("F_SEAL_FUTURE_WRITE", 0x10),
            full("F_SEAL_EXEC", 0x20),
            invalid("unknown seal", 0x40, ""),
        ],
    ),
    call("ftruncate", &[]),
    call(
        "fallocate",
        &[
            full("FALLOC_FL_KEEP_SIZE", 0x1),
            full("FALLOC_FL_PUNCH_HOLE", 0x2),
            FlagSupport { name: "FALLOC_FL_COLLAPSE_RANGE", value: 0x8, support: NOT_BY_TMPFS },
            FlagSupport { name: "FALLOC_FL_ZERO_RANGE", value: 0x10, support: NOT_BY_TMPFS },
            FlagSupport { name: "FALLOC_FL_INSERT_RANGE", value: 0x20, support: NOT_BY_TMPFS },
            FlagSupport { name: "FALLOC_FL_UNSHARE_RANGE", value: 0x40, support: NOT_BY_TMPFS },
        ],
    ),
    partial_call("getrlimit, setrlimit, prlimit64", "memory limits of the caller's own process", &LIMITS),
    partial_call("fork, vfork, clone", "the address space only; the embedder has the rest of the process", &[]),
    partial_call(
        "process_vm_readv, process_vm_writev",
        "the embedder checks permission",
        &[invalid("any flag", 1, "Linux has no flags either")],
    ),
    call("migrate_pages", &[]),
    call("move_pages", &MOVE),
    partial_call("futex", "the key of the word; the embedder has the queues", &[]),
    partial_call("swapon, swapoff", "the embedder looks up the device and reads its header", &[]),
    missing_call("remap_file_pages", "Linux emulates it with mmap, and so can the embedder; our kernel does"),
    missing_call("pkey_alloc, pkey_free, pkey_mprotect", NO_KEYS),
    partial_call("mbind", "the policy of shared memory belongs to the mapping, not to the object", &BIND),
    partial_call("get_mempolicy", "MPOL_PREFERRED without nodes is not reported as MPOL_LOCAL", &POLICY_QUERY),
    partial_call("set_mempolicy", "page tables come from the node of the CPU", &POLICY),
    missing_call("set_mempolicy_home_node", "no policy with a home node"),
    missing_call("shmget, shmat, shmdt, shmctl", NO_SYSV),
    missing_call("userfaultfd", "no faults served in user space yet"),
    missing_call("memfd_secret", "the kernel has no direct map to remove pages from"),
    missing_call("map_shadow_stack", "no shadow stacks"),
    missing_call("process_mrelease", "the embedder ends processes; our kernel serves it by MADV_DONTNEED"),
    missing_call("cachestat", "no page-cache statistics per file"),
    missing_call("readahead, fadvise64", "no read-ahead except fault-around"),
    missing_call("membarrier", "it orders memory accesses and maps nothing; it belongs to the scheduler"),
];

/// Flags of `move_pages`.
const MOVE: [FlagSupport; 2] = [full("MPOL_MF_MOVE", 0x2), partial("MPOL_MF_MOVE_ALL", 0x4, NICE)];

/// A mode of `fallocate` that tmpfs does not support.
const NOT_BY_TMPFS: Support = Support::Refused(Errno::EOPNOTSUPP, "tmpfs of Linux does not support it either");
