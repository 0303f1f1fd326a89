//! The advice values of `madvise(2)`: one row says all that distinguishes an advice.
//!
//! A row has the number, the [action](AdviceAction), and the [rules](AdviceRules) of the advice. In
//! this crate, an advice with an action of another one is this row and no more.

use crate::error::MmError;
use crate::space::VmFlags;
use pagewright_types::Access;

/// What an advice does.
///
/// The table in `madvise/mod.rs` says what each does with shared tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdviceAction {
    /// Changes flags of the mapping: takes some away, and adds others.
    SetFlags { without: VmFlags, with: VmFlags },
    /// Discards the pages now.
    Zap,
    /// Lets reclaim discard the pages.
    FreeLazily,
    /// Makes accesses raise `SIGSEGV`.
    InstallGuards,
    /// Undoes `InstallGuards`.
    RemoveGuards,
    /// Reads pages of the file into the cache.
    ReadAhead,
    /// Frees pages of the file.
    PunchHole,
    /// Makes reclaim prefer the pages.
    Deactivate,
    /// Reclaims the pages now.
    PageOut,
    /// Faults the pages in.
    Populate(Access),
}

bitflags::bitflags! {
    /// To which mappings an advice applies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::space) struct AdviceRules: u8 {
        /// Not to locked memory (`VM_LOCKED`).
        const UNLOCKED = 1;
        /// Only to mappings without a file.
        const ANONYMOUS = 1 << 1;
        /// Only to mappings of files, which could be written to.
        const WRITABLE_FILE = 1 << 2;
        /// Not where a seal forbids it: it discards contents, here or in a child (`is_discard`).
        const DISCARDS = 1 << 3;
        /// Also to other processes' memory (`process_madvise_remote_valid`).
        const REMOTE = 1 << 4;
    }
}

/// The flags for the order in which a program accesses its memory.
const ORDER: VmFlags = VmFlags::RAND_READ.union(VmFlags::SEQ_READ);
const NONE: VmFlags = VmFlags::empty();

const fn set_flags(without: VmFlags, with: VmFlags) -> AdviceAction {
    AdviceAction::SetFlags { without, with }
}

macro_rules! advice {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $action:expr $(, $rule:ident)*;)*) => {
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

            /// Returns what it does.
            pub(super) const fn action(self) -> AdviceAction {
                match self {
                    $(Self::$name => $action,)*
                }
            }

            const fn rules(self) -> AdviceRules {
                match self {
                    $(Self::$name => AdviceRules::empty()$(.union(AdviceRules::$rule))*,)*
                }
            }
        }
    };
}

advice! {
    /// Resets `Random` and `Sequential`.
    Normal = 0: set_flags(ORDER, NONE);
    /// The program will access the pages in random order.
    Random = 1: set_flags(ORDER, VmFlags::RAND_READ);
    /// The program will access the pages in order, once.
    Sequential = 2: set_flags(ORDER, VmFlags::SEQ_READ);
    /// The program will access the pages soon.
    WillNeed = 3: AdviceAction::ReadAhead, REMOTE;
    /// Discards the pages: private memory then reads as zeroes, or as its file.
    DontNeed = 4: AdviceAction::Zap, UNLOCKED, DISCARDS;
    /// Allows reclaim to discard private anonymous pages unless they are written again.
    Free = 8: AdviceAction::FreeLazily, UNLOCKED, ANONYMOUS, DISCARDS;
    /// Frees the pages of the file, which then reads as zeroes there.
    Remove = 9: AdviceAction::PunchHole, UNLOCKED, WRITABLE_FILE, DISCARDS;
    /// Fork does not copy the mapping.
    DontFork = 10: set_flags(NONE, VmFlags::DONTCOPY), DISCARDS;
    /// Resets `DontFork`.
    DoFork = 11: set_flags(VmFlags::DONTCOPY, NONE);
    /// Huge pages, where the setting is `madvise`.
    HugePage = 14: set_flags(VmFlags::NOHUGEPAGE, VmFlags::HUGEPAGE);
    /// No huge pages.
    NoHugePage = 15: set_flags(VmFlags::HUGEPAGE, VmFlags::NOHUGEPAGE);
    /// Core dumps omit the mapping.
    DontDump = 16: set_flags(NONE, VmFlags::DONTDUMP);
    /// Resets `DontDump`.
    DoDump = 17: set_flags(VmFlags::DONTDUMP, NONE);
    /// The mapping is empty in a child.
    WipeOnFork = 18: set_flags(NONE, VmFlags::WIPEONFORK), ANONYMOUS, DISCARDS;
    /// Resets `WipeOnFork`.
    KeepOnFork = 19: set_flags(VmFlags::WIPEONFORK, NONE);
    /// Deactivates the pages: the program will not access them soon.
    Cold = 20: AdviceAction::Deactivate, UNLOCKED, REMOTE;
    /// Pages the pages out at once.
    PageOut = 21: AdviceAction::PageOut, UNLOCKED, REMOTE;
    /// Faults pages in for loads.
    PopulateRead = 22: AdviceAction::Populate(Access::Read);
    /// Faults pages in for stores.
    PopulateWrite = 23: AdviceAction::Populate(Access::Write);
    /// Does the same as `DontNeed`, in locked mappings too.
    DontNeedLocked = 24: AdviceAction::Zap, DISCARDS;
    /// Installs guards: an access raises `SIGSEGV` until the guard is removed.
    GuardInstall = 102: AdviceAction::InstallGuards, UNLOCKED, DISCARDS;
    /// Removes guards.
    GuardRemove = 103: AdviceAction::RemoveGuards;
}

impl Advice {
    /// Returns its number.
    pub const fn raw(self) -> u32 {
        self as u32
    }

    /// Returns whether it obeys all of `rules`.
    pub(in crate::space) const fn obeys(self, rules: AdviceRules) -> bool {
        self.rules().contains(rules)
    }
}
