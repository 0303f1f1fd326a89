//! The advice values of `madvise(2)`.

use crate::error::MmError;
use crate::space::VmFlags;

macro_rules! advice {
    ($($(#[$doc:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// Advice about memory: `MADV_*` with Linux's numbers.
        ///
        /// The numbers (`include/uapi/asm-generic/mman-common.h`) are the same on both instruction
        /// sets. `MADV_COLLAPSE` is absent, and so is advice that Linux refuses when it is built
        /// without KSM and memory-failure handling.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Advice {
            $($(#[$doc])* $name = $number,)*
        }

        impl Advice {
            /// All advice, ordered by number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the advice with number `raw`.
            ///
            /// # Errors
            /// [`MmError::BadAdvice`] if there is none.
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
    /// Resets `Random` and `Sequential`.
    Normal = 0,
    /// The program will access the pages in random order.
    Random = 1,
    /// The program will access the pages in order, once.
    Sequential = 2,
    /// The program will access the pages soon.
    WillNeed = 3,
    /// Discards the pages: private memory then reads as zeroes, or as its file.
    DontNeed = 4,
    /// Allows reclaim to discard private anonymous pages unless they are written again.
    Free = 8,
    /// Frees the pages of the file, which then reads as zeroes there.
    Remove = 9,
    /// Fork does not copy the mapping.
    DontFork = 10,
    /// Resets `DontFork`.
    DoFork = 11,
    /// Huge pages, where the setting is `madvise`.
    HugePage = 14,
    /// No huge pages.
    NoHugePage = 15,
    /// Core dumps omit the mapping.
    DontDump = 16,
    /// Resets `DontDump`.
    DoDump = 17,
    /// The mapping is empty in a child.
    WipeOnFork = 18,
    /// Resets `WipeOnFork`.
    KeepOnFork = 19,
    /// Deactivates the pages: the program will not access them soon.
    Cold = 20,
    /// Pages the pages out at once.
    PageOut = 21,
    /// Faults pages in for loads.
    PopulateRead = 22,
    /// Faults pages in for stores.
    PopulateWrite = 23,
    /// Does the same as `DontNeed`, in locked mappings too.
    DontNeedLocked = 24,
    /// Installs guards: an access raises `SIGSEGV` until the guard is removed.
    GuardInstall = 102,
    /// Removes guards.
    GuardRemove = 103,
}

impl Advice {
    /// Returns its number.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// Returns whether it discards contents, here or in a child (`is_discard`).
    ///
    /// A seal can forbid such advice.
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
            | Self::HugePage
            | Self::NoHugePage
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

    /// Returns whether it applies to other processes' memory (`process_madvise_remote_valid`).
    pub(in crate::space) const fn is_allowed_remotely(self) -> bool {
        matches!(self, Self::WillNeed | Self::Cold | Self::PageOut)
    }

    /// Returns the flags of a mapping after the advice; `None` if the advice sets no flags.
    pub(in crate::space) fn flags(self, flags: VmFlags) -> Option<VmFlags> {
        let order = VmFlags::RAND_READ | VmFlags::SEQ_READ;
        Some(match self {
            Self::Normal => flags - order,
            Self::Random => (flags - order) | VmFlags::RAND_READ,
            Self::Sequential => (flags - order) | VmFlags::SEQ_READ,
            Self::DontFork => flags | VmFlags::DONTCOPY,
            Self::DoFork => flags - VmFlags::DONTCOPY,
            Self::HugePage => (flags - VmFlags::NOHUGEPAGE) | VmFlags::HUGEPAGE,
            Self::NoHugePage => (flags - VmFlags::HUGEPAGE) | VmFlags::NOHUGEPAGE,
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
