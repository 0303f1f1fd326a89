//! What the oracle reports.
//!
//! A [`Violation`] is a value: the rule, who, where, and what was held since when. Its `Display`
//! says the same in a few lines that a kernel engineer can follow without knowing the oracle.

use crate::spec::{AccessResult, CallResult};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, MemoryAccess};
use pagewright_types::snapshot::{PageKind, VmstatGauge};
use pagewright_types::{Access, CpuId, Order, PageRange, Pfn, Rights, SpaceId, SwapEntry, Tag, VirtAddr};

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// INV-ORACLE-O1: nobody reaches a frame by what it was before.
    Reuse,
    /// INV-ORACLE-O2: nobody keeps a right that a call took away.
    Rights,
    /// INV-ORACLE-O3: accesses and calls answer as on a machine without any TLB.
    Memory,
    /// INV-ORACLE-O4: at rest every count is what the tables say.
    Counts,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 4] = [Self::Reuse, Self::Rights, Self::Memory, Self::Counts];

    /// Its id in `docs/invariants.md`.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Reuse => "INV-ORACLE-O1",
            Self::Rights => "INV-ORACLE-O2",
            Self::Memory => "INV-ORACLE-O3",
            Self::Counts => "INV-ORACLE-O4",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Who did something, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuStep {
    /// The CPU.
    pub cpu: CpuId,
    /// The oracle's count of what it was told.
    pub step: u64,
}

impl fmt::Display for CpuStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by CPU {} at step {}", self.cpu, self.step)
    }
}

/// How something stale came to matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// It could be used as it stood.
    Immediate,
    /// It was out of use, and became usable when this root was loaded under this tag, or when lazy
    /// mode was left on it.
    Loaded {
        /// The root.
        root: Pfn,
        /// The tag.
        tag: Tag,
    },
    /// A program used it.
    Hit(MemoryAccess),
}

/// A block of frames from one life to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReusedBlock {
    /// First frame.
    pub pfn: Pfn,
    /// How many.
    pub order: Order,
    /// When it was last given back, if that was declared.
    pub freed: Option<CpuStep>,
    /// When it was handed out again.
    pub reused: CpuStep,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// A reused frame could be reached.
    ReusedFrameReachable {
        /// What reaches it.
        held: CachedEntry,
        /// The frames.
        block: ReusedBlock,
        /// How it came to matter.
        exposure: Exposure,
    },
    /// A program stored to a free frame.
    FreeFrameStored {
        /// The store.
        made: MemoryAccess,
        /// When the frame was given back.
        freed: CpuStep,
    },
    /// A right outlived the call that took it.
    RightKept {
        /// What still allows it.
        held: CachedEntry,
        /// The first page for which it does.
        page: VirtAddr,
        /// What the call had left.
        left: Rights,
        /// When the call declared it.
        reduced: CpuStep,
        /// When it returned.
        returned: CpuStep,
        /// How it came to matter.
        exposure: Exposure,
    },
    /// A right was used that a call had taken.
    RightUsed {
        /// The access.
        made: MemoryAccess,
        /// What the call had left.
        left: Rights,
        /// When the call declared it.
        reduced: CpuStep,
        /// When it returned.
        returned: CpuStep,
    },
    /// The entry that takes a right was stored, and walkers can't see it yet.
    Unpublished {
        /// The root.
        root: Pfn,
        /// First such page.
        page: VirtAddr,
        /// What walkers find there.
        rights: Rights,
        /// What the call had left.
        left: Rights,
        /// When the call declared it.
        reduced: CpuStep,
    },
    /// An access or a call did not answer as the reference memory does.
    Memory(SpecMismatch),
    /// A count is wrong.
    Count(CountMismatch),
}

/// An answer that no machine without a TLB could have given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecMismatch {
    /// Of an access.
    Access {
        /// The process.
        space: SpaceId,
        /// The address.
        va: VirtAddr,
        /// What was tried.
        access: Access,
        /// What came of it.
        got: AccessResult,
        /// What could have.
        expected: Vec<AccessResult>,
        /// The last store to the page that the reference memory knows of.
        stored: Option<CpuStep>,
        /// The last call that changed the page.
        changed: Option<(CpuStep, &'static str)>,
    },
    /// Of a call.
    Call {
        /// The process.
        space: SpaceId,
        /// The call.
        call: &'static str,
        /// What it answered.
        got: CallResult,
        /// What it could have answered.
        expected: String,
    },
}

/// A count that the tables contradict.
///
/// `told` is the memory manager's, `counted` the oracle's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountMismatch {
    /// What was counted.
    pub of: CountKind,
    /// What the memory manager says.
    pub claimed: u64,
    /// What the oracle found.
    pub counted: u64,
}

/// What a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountKind {
    /// References of a folio (D1).
    Refs(Pfn),
    /// Mappings of a folio and its pages (D2).
    Mapcount(Pfn),
    /// Entries that map one page of a folio by itself (D2).
    PageMapcount(Pfn),
    /// Entries that map the whole folio (D2).
    EntireMapcount(Pfn),
    /// Pages of a folio with an entry of their own (D2).
    PagesMapped(Pfn),
    /// References in the record of a page inside a folio (D3).
    TailRefs(Pfn),
    /// A leaf maps a frame that is in no folio; 1 where it should be 0.
    Unowned(Pfn),
    /// Mappings of a writable anonymous page (D6).
    WritableMappings(Pfn),
    /// Mappings of an exclusive page (D7).
    ExclusiveMappings(Pfn),
    /// Leaves of a pinned anonymous page that are not exclusive (D7).
    PinnedShared(Pfn),
    /// Entries that point to a table (D9).
    Shares(Pfn),
    /// Level of a table.
    TableLevel(Pfn),
    /// Words that the manual forbids, in this table.
    Malformed(Pfn),
    /// Bytes of tables that a space reaches (D12).
    TableBytes(SpaceId),
    /// A level of the machine (D12).
    Gauge(VmstatGauge),
    /// Resident pages of a space (D16).
    Rss(SpaceId, PageKind),
    /// Entries of a space that stand for pages in swap (D16).
    Swapped(SpaceId),
    /// Entries that name a slot of a swap device (D17).
    Slot(SwapEntry),
    /// The same, of a page that was one space's alone (D7).
    ExclusiveSlot(SwapEntry),
    /// Places of a folio on the list by use that its flags name (D22).
    Listed(Pfn),
    /// Places of a folio on other lists (D22).
    ListedElsewhere(Pfn),
    /// Proportional sets of all spaces, in 4096ths of a byte (D18).
    Pss,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule that it breaks.
    pub rule: Rule,
    /// Who was running when it was found.
    pub cpu: CpuId,
    /// When it was found.
    pub step: u64,
    /// What was found.
    pub kind: ViolationKind,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at step {}, on CPU {}: ", self.rule, self.step, self.cpu)?;
        match &self.kind {
            ViolationKind::ReusedFrameReachable { held, block, exposure } => {
                write!(f, "{} a reused frame: {}", subject(held), Holding(held, None))?;
                write_block(f, block)?;
                exposure.explain(f)
            }
            ViolationKind::FreeFrameStored { made, freed } => {
                write!(f, "{}\n  the frame was freed {freed} and is nobody's now", Doing(made))
            }
            ViolationKind::RightKept { held, page, left, reduced, returned, exposure } => {
                let what = "keeps a right that was taken";
                write!(f, "CPU {} {what}: {}", held.cpu, Holding(held, Some(*page)))?;
                write!(f, "\n  {}", Taking { left: *left, reduced: *reduced, returned: *returned })?;
                exposure.explain(f)
            }
            ViolationKind::RightUsed { made, left, reduced, returned } => {
                let taking = Taking { left: *left, reduced: *reduced, returned: *returned };
                write!(f, "{}\n  {taking}; the tables don't allow it", Doing(made))
            }
            ViolationKind::Unpublished { root, page, rights, left, reduced } => {
                write!(f, "walkers still find {rights} at va {page} (root {root})\n  CPU {} left {left}", reduced.cpu)?;
                write!(
                    f,
                    " by a call declared at step {}, which returns before walkers can see its store",
                    reduced.step
                )
            }
            ViolationKind::Memory(misread) => misread.fmt(f),
            ViolationKind::Count(count) => count.fmt(f),
        }
    }
}

fn subject(held: &CachedEntry) -> String {
    match held.kind {
        CachedEntryKind::Translation { .. } => format!("CPU {} can still reach", held.cpu),
        CachedEntryKind::Table { .. } => format!("CPU {} still walks through", held.cpu),
        CachedEntryKind::Walk { .. } => format!("a walk under way on CPU {} is about to read", held.cpu),
    }
}

fn write_block(f: &mut fmt::Formatter<'_>, block: &ReusedBlock) -> fmt::Result {
    write!(f, "\n  frame {}", block.pfn)?;
    if block.order > Order::ZERO {
        write!(f, " (order {})", block.order)?;
    }
    match block.freed {
        Some(freed) => write!(f, " was freed {freed}, reused {}", block.reused),
        None => write!(f, " was reused {}; nobody declared it free", block.reused),
    }
}

impl Exposure {
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate => Ok(()),
            Self::Loaded { root, tag } => {
                write!(
                    f,
                    "\n  it was out of use, and became usable when tag {tag} was loaded with root {root} and nothing was invalidated"
                )
            }
            Self::Hit(made) => write!(f, "\n  it was used: {}", Doing(made)),
        }
    }
}

/// What is held, in words; with the page in question, if that is not simply its first.
struct Holding<'a>(&'a CachedEntry, Option<VirtAddr>);

impl fmt::Display for Holding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0;
        let va = self.1.unwrap_or(held.va);
        match held.kind {
            CachedEntryKind::Translation { pfn, rights } => {
                write!(f, "{rights} of frame {} through va {va}", crate::walk::frame_under(pfn, held.level, va))?;
            }
            CachedEntryKind::Table { table } => {
                write!(f, "table {table}, by a remembered {} entry for va {va}", held.level)?
            }
            CachedEntryKind::Walk { table } => write!(f, "table {table}, for va {va}")?,
        }
        let global = if held.global { ", global" } else { "" };
        write!(f, " (tag {}, root {}{global})", held.tag, held.root)
    }
}

/// A call that took a right, in words.
struct Taking {
    left: Rights,
    reduced: CpuStep,
    returned: CpuStep,
}

impl fmt::Display for Taking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left, reduced, returned } = self;
        write!(
            f,
            "CPU {} took it at step {}, left {left}, and returned at step {}",
            reduced.cpu, reduced.step, returned.step
        )
    }
}

/// An access, in words.
struct Doing<'a>(&'a MemoryAccess);

impl fmt::Display for Doing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryAccess { cpu, root, va, access, at, cached } = *self.0;
        let by = if cached { "by its TLB" } else { "by a walk" };
        write!(f, "CPU {cpu}: {access} at va {va} (root {root}) led {by} to frame {}", Pfn::containing(at))
    }
}

impl fmt::Display for SpecMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access { space, va, access, got, expected, stored, changed } => {
                write!(f, "{access} at va {va} of space {space} gave {got}; without a TLB it gives ")?;
                for (index, one) in expected.iter().enumerate() {
                    let or = if index > 0 { " or " } else { "" };
                    write!(f, "{or}{one}")?;
                }
                if let Some(by) = stored {
                    write!(f, "\n  the page was last stored to {by}")?;
                }
                if let Some((by, call)) = changed {
                    write!(f, "\n  the page was last changed by {call}, {by}")?;
                }
                Ok(())
            }
            Self::Call { space, call, got, expected } => {
                write!(f, "{call} of space {space} answered {got}; expected {expected}")
            }
        }
    }
}

impl fmt::Display for CountMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the memory manager says {}, the tables say {}", self.of, self.claimed, self.counted)
    }
}

impl fmt::Display for CountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refs(pfn) => write!(f, "references of the folio at {pfn}"),
            Self::Mapcount(pfn) => write!(f, "mappings of the folio at {pfn}"),
            Self::PageMapcount(pfn) => write!(f, "mappings of the page at {pfn}"),
            Self::EntireMapcount(pfn) => write!(f, "mappings of all of the folio at {pfn}"),
            Self::PagesMapped(pfn) => write!(f, "mapped pages of the folio at {pfn}"),
            Self::TailRefs(pfn) => write!(f, "references of the page at {pfn}, which is inside a folio"),
            Self::Unowned(pfn) => write!(f, "folios at {pfn}, which a leaf maps"),
            Self::WritableMappings(pfn) => {
                write!(f, "mappings of the anonymous page at {pfn}, which one of them can write")
            }
            Self::ExclusiveMappings(pfn) => {
                write!(f, "mappings of the page at {pfn}, which one of them has for itself")
            }
            Self::PinnedShared(pfn) => {
                write!(f, "mappings of the pinned page at {pfn} that don't have it for themselves")
            }
            Self::Shares(pfn) => write!(f, "entries that point to the table at {pfn}"),
            Self::TableLevel(pfn) => write!(f, "level of the table at {pfn}"),
            Self::Malformed(pfn) => write!(f, "malformed entries in the table at {pfn}"),
            Self::TableBytes(id) => write!(f, "bytes of page tables of space {id}"),
            Self::Gauge(gauge) => f.write_str(gauge.name()),
            Self::Rss(id, kind) => write!(f, "resident {kind} pages of space {id}"),
            Self::Swapped(id) => write!(f, "pages of space {id} in swap"),
            Self::Slot(entry) => write!(f, "entries that name {entry}"),
            Self::ExclusiveSlot(entry) => write!(f, "entries that name {entry}, which one of them has for itself"),
            Self::Listed(pfn) => write!(f, "places of the folio at {pfn} on the list that its flags name"),
            Self::ListedElsewhere(pfn) => write!(f, "places of the folio at {pfn} on other lists"),
            Self::Pss => f.write_str("4096ths of a byte in all proportional sets"),
        }
    }
}

/// A reduction of rights, from its declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) root: Pfn,
    pub(crate) range: PageRange,
    pub(crate) left: Rights,
    pub(crate) by: CpuStep,
}
