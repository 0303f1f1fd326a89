//! What a program can say about its memory.

use crate::error::MmError;
use crate::space::VmFlags;

macro_rules! advice {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// Advice about memory: `MADV_*` with Linux's numbers
        /// (`include/uapi/asm-generic/mman-common.h`), the same on both instruction sets. What a
        /// kernel without KSM, transparent huge pages and memory failure refuses is not here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Advice {
            $($(#[$doc])* $name = $number,)*
        }

        impl Advice {
            /// All of it, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The advice with number `raw`.
            ///
            /// # Errors
            /// [`MmError::BadAdvice`].
            pub const fn from_raw(raw: u32) -> Result<Self, MmError> {
                match raw {
                    $($number => Ok(Self::$name),)*
                    _ => Err(MmError::BadAdvice { advice: raw }),
                }
            }
        }
    };
}

advice! {
    /// Nothing special.
    Normal = 0,
    /// Pages will be touched in no order.
    Random = 1,
    /// Pages will be touched in order, once.
    Sequential = 2,
    /// Pages will be touched soon.
    WillNeed = 3,
    /// Pages are not needed: private memory reads as zeroes, or as its file, afterwards.
    DontNeed = 4,
    /// The contents of private anonymous pages are not needed unless they are written again.
    Free = 8,
    /// The pages of the file are not needed, and neither is what they hold.
    Remove = 9,
    /// A child doesn't get the mapping.
    DontFork = 10,
    /// A child gets it.
    DoFork = 11,
    /// Not in a core dump.
    DontDump = 16,
    /// In a core dump.
    DoDump = 17,
    /// A child gets it empty.
    WipeOnFork = 18,
    /// A child gets what is in it.
    KeepOnFork = 19,
    /// Pages won't be touched for a while.
    Cold = 20,
    /// The same, and their memory is wanted now.
    PageOut = 21,
    /// Fault pages in as for loads.
    PopulateRead = 22,
    /// Fault pages in as for stores.
    PopulateWrite = 23,
    /// As `DontNeed`, of locked memory, too.
    DontNeedLocked = 24,
    /// An access is a mistake of the program: `SIGSEGV`, until the guard is removed.
    GuardInstall = 102,
    /// The opposite.
    GuardRemove = 103,
}

impl Advice {
    /// Its number.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// Whether it throws contents away, here or in a child, which a seal may forbid (`is_discard`).
    pub(in crate::space) const fn discards(self) -> bool {
        match self {
            Self::DontNeed
            | Self::Free
            | Self::Remove
            | Self::DontFork
            | Self::WipeOnFork
            | Self::DontNeedLocked
            | Self::GuardInstall => true,
            Self::Normal
            | Self::Random
            | Self::Sequential
            | Self::WillNeed
            | Self::DoFork
            | Self::DontDump
            | Self::DoDump
            | Self::KeepOnFork
            | Self::Cold
            | Self::PageOut
            | Self::PopulateRead
            | Self::PopulateWrite
            | Self::GuardRemove => false,
        }
    }

    /// Whether one process may give it about the memory of another
    /// (`process_madvise_remote_valid`).
    pub(in crate::space) const fn is_for_others(self) -> bool {
        matches!(self, Self::WillNeed | Self::Cold | Self::PageOut)
    }

    /// The flags of a mapping that is advised so; `None` where the advice is not about the mapping.
    pub(in crate::space) fn flags(self, flags: VmFlags) -> Option<VmFlags> {
        let order = VmFlags::RAND_READ | VmFlags::SEQ_READ;
        Some(match self {
            Self::Normal => flags - order,
            Self::Random => (flags - order) | VmFlags::RAND_READ,
            Self::Sequential => (flags - order) | VmFlags::SEQ_READ,
            Self::DontFork => flags | VmFlags::DONTCOPY,
            Self::DoFork => flags - VmFlags::DONTCOPY,
            Self::DontDump => flags | VmFlags::DONTDUMP,
            Self::DoDump => flags - VmFlags::DONTDUMP,
            Self::WipeOnFork => flags | VmFlags::WIPEONFORK,
            Self::KeepOnFork => flags - VmFlags::WIPEONFORK,
            Self::WillNeed
            | Self::DontNeed
            | Self::Free
            | Self::Remove
            | Self::Cold
            | Self::PageOut
            | Self::PopulateRead
            | Self::PopulateWrite
            | Self::DontNeedLocked
            | Self::GuardInstall
            | Self::GuardRemove => return None,
        })
    }
}
