//! Forks that copied page tables, by reason.
//!
//! Key type: [`Fallback`], one fork of a small parent of its own, with the tables that it shared
//! and those that it copied under each reason (`pw_table_copied_…`).
//!
//! Not covered: blocks of 2 MiB, which no program has yet. Their column is there, and is 0.

use super::super::plot::size;
use super::super::{EvaluateError, Figures, Grid};
use super::parent::{Parent, failed};
use pagewright_arch::X86_64;
use pagewright_host::TableMachine;
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MmSetting};
use pagewright_types::{Counter, PAGE_SIZE, PageRange, VirtAddr};

const MIB: u64 = 1 << 20;
/// Bytes of a parent that `auto` takes for small, and of one that it does not.
const SMALL: u64 = MIB / 4;
const LARGE: u64 = 8 * MIB;

/// What the parent has done before its fork; *a page* has others under its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// It has stored to all of its memory.
    Stores,
    /// It has called `prctl(PR_SET_COW_PTE)`.
    Asks,
    /// A page is not for a child (`MADV_DONTFORK`).
    KeepsAPage,
    /// It has locked a page.
    LocksAPage,
    /// A device has pinned a page.
    PinsAPage,
    /// A device had pinned all of its pages.
    PinnedOnce,
}

impl Before {
    fn text(self) -> &'static str {
        match self {
            Self::Stores => "",
            Self::Asks => "prctl(PR_SET_COW_PTE)",
            Self::KeepsAPage => "MADV_DONTFORK of a page",
            Self::LocksAPage => "mlock of a page",
            Self::PinsAPage => "a pinned page",
            Self::PinnedOnce => "all pages pinned and unpinned",
        }
    }

    /// Whether all memory may be shared, and no page is pinned.
    pub(super) fn leaves_all_shareable(self) -> bool {
        matches!(self, Self::Stores | Self::Asks | Self::PinnedOnce)
    }
}

/// The forks: bytes of the parent, `cow_page_tables`, and what the parent has done.
const FORKS: [(u64, &str, Before); 11] = [
    (LARGE, "never", Before::Stores),
    (LARGE, "prctl", Before::Stores),
    (LARGE, "prctl", Before::Asks),
    (SMALL, "auto", Before::Stores),
    (SMALL, "auto", Before::Asks),
    (LARGE, "auto", Before::Stores),
    (LARGE, "always", Before::Stores),
    (LARGE, "always", Before::PinnedOnce),
    (LARGE, "always", Before::KeepsAPage),
    (LARGE, "always", Before::LocksAPage),
    (LARGE, "always", Before::PinsAPage),
];

/// One fork.
pub(super) struct Fallback {
    bytes: u64,
    pub(super) setting: &'static str,
    pub(super) before: Before,
    /// `pw_table_shared`.
    pub(super) shared: u64,
    /// By [`Counter::COPY_REASONS`].
    pub(super) copied: [u64; 6],
}

/// Makes all forks.
pub(super) fn measure() -> Result<Vec<Fallback>, EvaluateError> {
    FORKS.into_iter().map(|(bytes, setting, before)| Fallback::of(bytes, setting, before)).collect()
}

impl Fallback {
    fn of(bytes: u64, setting: &'static str, before: Before) -> Result<Self, EvaluateError> {
        let parent = Parent::<TableMachine<X86_64>>::without_contents(bytes)?;
        parent.set_word(setting)?;
        let range = parent.populate(VirtAddr::ZERO, bytes)?;
        let (mm, space, page) = (&parent.mm, &parent.space, PageRange::page(range.start().add(bytes / 2)));
        let pin = |range| mm.pin_user_pages(space, range, GupFlags::WRITE).map_err(failed);
        let mut pinned = None;
        match before {
            Before::Stores => {}
            Before::Asks => mm.set_cow_page_tables(space).map_err(failed)?,
            Before::KeepsAPage => mm.madvise(space, page.start(), PAGE_SIZE, Advice::DontFork).map_err(failed)?,
            Before::LocksAPage => mm.mlock(space, page.start(), PAGE_SIZE).map_err(failed)?,
            Before::PinsAPage => pinned = Some(pin(page)?),
            Before::PinnedOnce => mm.release_user_pages(pin(range)?, MakeDirty::No),
        }
        let child = mm.fork(space).map_err(failed)?;
        let (shared, copied) =
            (mm.counter(Counter::PwTableShared), Counter::COPY_REASONS.map(|reason| mm.counter(reason)));
        mm.end_space(&child);
        if let Some(pages) = pinned {
            mm.release_user_pages(pages, MakeDirty::No);
        }
        Ok(Self { bytes, setting, before, shared, copied })
    }
}

pub(super) fn figures(all: &[Fallback]) -> Figures {
    let fixed = Grid::of("Tables that forks copied, by reason", all)
        .text("parent", |fork| size(fork.bytes))
        .text(MmSetting::CowPageTables.name(), |fork| fork.setting)
        .text("before the fork", |fork| fork.before.text())
        .counted(Counter::PwTableShared.name(), Counter::PwTableShared.name(), |fork| fork.shared);
    let reasons = Counter::COPY_REASONS
        .iter()
        .enumerate()
        .fold(fixed, |grid, (at, reason)| grid.counted(reason.name(), reason.name(), |fork| fork.copied[at]));
    reasons.figures(|fork| {
        let label = [format!("fork, {}", fork.setting), fork.before.text().to_owned()];
        let label = label.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        [label, format!("a parent of {}", size(fork.bytes))]
    })
}
