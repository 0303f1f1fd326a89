//! The memory calls by number, on both instruction sets.
//!
//! Sources: `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h` of
//! Linux 6.18.

use pagewright_types::IsaKind;

/// Numbers of calls are less than this.
const NUMBERS: usize = 512;

type Index = [Option<LinuxCall>; NUMBERS];

macro_rules! number {
    (-) => {
        None
    };
    ($number:literal) => {
        Some($number)
    };
}

macro_rules! memory_calls {
    ($($call:ident $name:literal $x86_64:tt $aarch64:tt;)*) => {
        /// A memory call of Linux.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum LinuxCall {
            $(#[doc = concat!("`", $name, "`.")] $call,)*
        }

        impl LinuxCall {
            /// Every call.
            pub const ALL: &'static [Self] = &[$(Self::$call),*];

            /// Linux's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$call => $name,)*
                }
            }

            /// The number on `isa`; `None` if that instruction set has no such call.
            pub const fn number(self, isa: IsaKind) -> Option<u64> {
                let (x86_64, aarch64) = match self {
                    $(Self::$call => (number!($x86_64), number!($aarch64)),)*
                };
                match isa {
                    IsaKind::X86_64 => x86_64,
                    IsaKind::Aarch64 => aarch64,
                }
            }
        }
    };
}

// Call, name, number on x86-64, number on arm64.
memory_calls! {
    Mmap "mmap" 9 222;
    Munmap "munmap" 11 215;
    Mprotect "mprotect" 10 226;
    Brk "brk" 12 214;
    Mremap "mremap" 25 216;
    Madvise "madvise" 28 233;
    ProcessMadvise "process_madvise" 440 440;
    Mlock "mlock" 149 228;
    Mlock2 "mlock2" 325 284;
    Munlock "munlock" 150 229;
    Mlockall "mlockall" 151 230;
    Munlockall "munlockall" 152 231;
    Msync "msync" 26 227;
    Mincore "mincore" 27 232;
    Mseal "mseal" 462 462;
    MemfdCreate "memfd_create" 319 279;
    Fcntl "fcntl" 72 25;
    Ftruncate "ftruncate" 77 46;
    Fallocate "fallocate" 285 47;
    Getrlimit "getrlimit" 97 163;
    Setrlimit "setrlimit" 160 164;
    Prlimit64 "prlimit64" 302 261;
    Fork "fork" 57 -;
    Vfork "vfork" 58 -;
    Clone "clone" 56 220;
    ProcessVmReadv "process_vm_readv" 310 270;
    ProcessVmWritev "process_vm_writev" 311 271;
    Futex "futex" 202 98;
    Swapon "swapon" 167 224;
    Swapoff "swapoff" 168 225;
    RemapFilePages "remap_file_pages" 216 234;
    PkeyAlloc "pkey_alloc" 330 289;
    PkeyFree "pkey_free" 331 290;
    PkeyMprotect "pkey_mprotect" 329 288;
    Mbind "mbind" 237 235;
    GetMempolicy "get_mempolicy" 239 236;
    SetMempolicy "set_mempolicy" 238 237;
    SetMempolicyHomeNode "set_mempolicy_home_node" 450 450;
    MigratePages "migrate_pages" 256 238;
    MovePages "move_pages" 279 239;
    Shmget "shmget" 29 194;
    Shmat "shmat" 30 196;
    Shmdt "shmdt" 67 197;
    Shmctl "shmctl" 31 195;
    Userfaultfd "userfaultfd" 323 282;
    MemfdSecret "memfd_secret" 447 447;
    MapShadowStack "map_shadow_stack" 453 453;
    ProcessMrelease "process_mrelease" 448 448;
    Cachestat "cachestat" 451 451;
    Readahead "readahead" 187 213;
    Fadvise64 "fadvise64" 221 223;
    Membarrier "membarrier" 324 283;
}

static X86_64: Index = index(IsaKind::X86_64);
static AARCH64: Index = index(IsaKind::Aarch64);

const fn index(isa: IsaKind) -> Index {
    let mut index = [None; NUMBERS];
    let mut at = 0;
    while at < LinuxCall::ALL.len() {
        let call = LinuxCall::ALL[at];
        if let Some(number) = call.number(isa) {
            index[number as usize] = Some(call);
        }
        at += 1;
    }
    index
}

impl LinuxCall {
    /// The call with this number on `isa`, if it is a memory call.
    pub fn from_number(isa: IsaKind, number: u64) -> Option<Self> {
        let index = match isa {
            IsaKind::X86_64 => &X86_64,
            IsaKind::Aarch64 => &AARCH64,
        };
        index.get(usize::try_from(number).ok()?).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Support;
    use crate::{LINUX_CALLS, call_support};
    use pagewright_types::Errno;
    use std::vec::Vec;
    use syscalls::{aarch64, x86_64};

    #[test]
    fn numbers_are_those_of_linux() {
        for call in LinuxCall::ALL {
            let known = call.name().parse::<x86_64::Sysno>().ok().map(|call| call.id() as u64);
            assert_eq!(call.number(IsaKind::X86_64), known, "{} on x86-64", call.name());
            let known = call.name().parse::<aarch64::Sysno>().ok().map(|call| call.id() as u64);
            assert_eq!(call.number(IsaKind::Aarch64), known, "{} on arm64", call.name());
        }
    }

    #[test]
    fn a_number_leads_back_to_its_call() {
        for isa in IsaKind::ALL {
            for call in LinuxCall::ALL {
                if let Some(number) = call.number(isa) {
                    assert_eq!(LinuxCall::from_number(isa, number), Some(*call), "{} on {isa}", call.name());
                }
            }
            for other in [63, NUMBERS as u64, 1 << 32, u64::MAX] {
                assert_eq!(LinuxCall::from_number(isa, other), None);
            }
        }
    }

    /// The names of a row: several are separated by commas, and arguments are in parentheses.
    fn names(row: &'static str) -> impl Iterator<Item = &'static str> {
        let calls = if row.contains(':') { "" } else { row.split('(').next().unwrap_or(row) };
        calls.split(", ").filter(|name| !name.is_empty())
    }

    #[test]
    fn the_table_of_support_has_the_same_calls() {
        let rows: Vec<&str> = LINUX_CALLS.iter().flat_map(|row| names(row.name)).collect();
        for call in LinuxCall::ALL {
            assert!(rows.contains(&call.name()), "{} has no row", call.name());
        }
        for name in rows {
            assert!(LinuxCall::ALL.iter().any(|call| call.name() == name), "{name} has no number");
        }
    }

    #[test]
    fn exactly_the_calls_that_are_not_supported_are_refused_with_enosys() {
        for row in LINUX_CALLS {
            let missing = matches!(row.support, Support::Refused(Errno::ENOSYS, _));
            for name in names(row.name) {
                let call = LinuxCall::ALL.iter().find(|call| call.name() == name).expect("tested above");
                let refused = call.decode(IsaKind::Aarch64, [0; 6]).err() == Some(Errno::ENOSYS);
                assert_eq!(refused, missing, "{name}");
            }
        }
        assert!(call_support("membarrier").is_some());
    }
}
