//! Violations: what the oracle reports.
//!
//! A [`Violation`] is a value: the rule that was broken, the CPU, the step, and the evidence. Its
//! `Display` gives one line that names the fault and at most two indented lines that say how it
//! came about.

use crate::count::CountMismatch;
use crate::spec::{AccessResult, CallResult};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use pagewright_types::judge::{CachedEntry, CachedEntryKind, MemoryAccess};
use pagewright_types::{Access, CpuId, Order, PageRange, Pfn, PhysAddr, Rights, SpaceId, Tag, VirtAddr};

/// A rule of the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// INV-ORACLE-O1: no CPU reaches a reused or returned frame by a stale translation.
    Reuse,
    /// INV-ORACLE-O2: no CPU keeps a right that a call has taken away.
    Rights,
    /// INV-ORACLE-O3: accesses and calls have the results of a machine without a TLB.
    Memory,
    /// INV-ORACLE-O4: at rest, every count agrees with the page tables.
    Counts,
}

impl Rule {
    /// All rules, in the order O1 to O4.
    pub const ALL: [Self; 4] = [Self::Reuse, Self::Rights, Self::Memory, Self::Counts];

    /// The rule's id in `docs/invariants.md`.
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

/// The CPU and the step at which something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuStep {
    /// The CPU.
    pub cpu: CpuId,
    /// The number of events that the oracle had received.
    pub step: u64,
}

impl fmt::Display for CpuStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by CPU {} at step {}", self.cpu, self.step)
    }
}

/// How a stale translation could be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposure {
    /// The CPU could use it when the oracle looked.
    Immediate,
    /// It became usable when the CPU loaded this root with this tag, or left lazy mode on it.
    Loaded {
        /// The root.
        root: Pfn,
        /// The tag.
        tag: Tag,
    },
    /// A program's access hit it.
    Hit(MemoryAccess),
}

/// A block of frames that was freed and allocated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReusedBlock {
    /// First frame.
    pub pfn: Pfn,
    /// Size of the block.
    pub order: Order,
    /// When the block was last freed, if that was declared.
    pub freed: Option<CpuStep>,
    /// When it was allocated again.
    pub reused: CpuStep,
}

/// Why a deferred loss of a right had to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeferralEnd {
    /// It must not be deferred at all: the CPU can store.
    Opened,
    /// A program stored to the page or to its copy.
    Stored(MemoryAccess),
    /// The kernel wrote to the page or to its copy.
    Written,
    /// Another page was mapped at the address.
    Mapped,
    /// The page was truncated, or another took its place.
    Replaced,
    /// A call that takes rights there returned.
    Returned(CpuStep),
}

impl fmt::Display for DeferralEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened => f.write_str("the CPU may store to the page, so the loss must not be deferred"),
            Self::Stored(made) => write!(f, "a program stores to the page: {}", DescribeAccess(made)),
            Self::Written => f.write_str("the kernel writes to the page or to its copy"),
            Self::Mapped => f.write_str("another page is mapped at the address, or a copy that differs"),
            Self::Replaced => f.write_str("the page is truncated, or another takes its place"),
            Self::Returned(returned) => write!(f, "a call that takes rights there returns {returned}"),
        }
    }
}

/// The evidence of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// O1: a CPU could reach a reused frame through a stale translation.
    ReusedFrameReachable {
        /// The stale translation, walk-cache entry or walk.
        held: CachedEntry,
        /// The frames.
        block: ReusedBlock,
        /// How it could be used.
        exposure: Exposure,
    },
    /// O1: a CPU can reach a frame that is given back with no flush owed.
    ReleasedFrameReachable {
        /// The stale translation, walk-cache entry or walk.
        held: CachedEntry,
        /// The frame.
        pfn: Pfn,
    },
    /// O1: the tables of a loaded root lead to a frame that is given back.
    ReleasedFrameMapped {
        /// The frame.
        pfn: Pfn,
        /// A CPU that has loaded the root.
        cpu: CpuId,
        /// The root.
        root: Pfn,
        /// The first address that leads to the frame.
        va: VirtAddr,
    },
    /// O1: a program stored to a free frame.
    FreeFrameStored {
        /// The store.
        made: MemoryAccess,
        /// When the frame was freed.
        freed: CpuStep,
    },
    /// O1: the kernel wrote to a free frame.
    FreeFrameWritten {
        /// The frame.
        pfn: Pfn,
        /// When it was freed.
        freed: CpuStep,
    },
    /// O1: a frame that was freed while a CPU could reach it changed before its next allocation.
    ParkedFrameChanged {
        /// The frame.
        pfn: Pfn,
        /// When it was freed, if that was declared.
        freed: Option<CpuStep>,
    },
    /// O2: a translation whose loss was deferred is still there when it must not be.
    DeferredTooLong {
        /// The translation, or what leads to one that allows stores.
        held: CachedEntry,
        /// First frame of the page.
        frame: Pfn,
        /// First frame of its copy, if there is one.
        copy: Option<Pfn>,
        /// When the loss was deferred.
        opened: CpuStep,
        /// What required that it is gone.
        end: DeferralEnd,
    },
    /// O2: a valid entry replaced another that a CPU still holds (arm64).
    BreakMissing {
        /// What the CPU holds.
        held: CachedEntry,
        /// The first page of which the two translations differ.
        page: VirtAddr,
        /// The frame or table that the CPU holds.
        from: Pfn,
        /// The frame or table that the tables have.
        to: Pfn,
    },
    /// O2: a translation outlived the call that reduced its rights.
    RightKept {
        /// The stale translation.
        held: CachedEntry,
        /// The first page for which it grants too much.
        page: VirtAddr,
        /// The rights that the call left.
        left: Rights,
        /// When the call declared the reduction.
        reduced: CpuStep,
        /// When the call returned.
        returned: CpuStep,
        /// How the translation could be used.
        exposure: Exposure,
    },
    /// O2: a program used a right that a call had taken away.
    RightUsed {
        /// The access.
        made: MemoryAccess,
        /// The rights that the call left.
        left: Rights,
        /// When the call declared the reduction.
        reduced: CpuStep,
        /// When the call returned.
        returned: CpuStep,
    },
    /// O2: a call returned before page-table walkers could see the entry that it stored.
    Unpublished {
        /// The root table.
        root: Pfn,
        /// The first such page.
        page: VirtAddr,
        /// The rights that walkers still find.
        rights: Rights,
        /// The rights that the call left.
        left: Rights,
        /// When the call declared the reduction.
        reduced: CpuStep,
    },
    /// O3: the result of an access or a call is not one of the reference memory's.
    Memory(SpecMismatch),
    /// O4: an entry of a shared table was changed for one of its sharers (D9).
    SharedTableStored {
        /// The table.
        table: Pfn,
        /// The entry.
        at: PhysAddr,
        /// Its word before.
        old: u64,
        /// Its word.
        new: u64,
        /// When the table was shared.
        since: CpuStep,
    },
    /// O4: a count is wrong.
    Count(CountMismatch),
}

/// A result that no machine without a TLB could give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecMismatch {
    /// The result of an access.
    Access {
        /// The process.
        space: SpaceId,
        /// The address.
        va: VirtAddr,
        /// Load, store or fetch.
        access: Access,
        /// The result.
        got: AccessResult,
        /// Every result that was possible.
        expected: Vec<AccessResult>,
        /// The last store to the page that the reference memory received.
        stored: Option<CpuStep>,
        /// The last call that changed the page.
        changed: Option<(CpuStep, &'static str)>,
    },
    /// The result of a call.
    Call {
        /// The process.
        space: SpaceId,
        /// The name of the call.
        call: &'static str,
        /// The result.
        got: CallResult,
        /// The possible results, in words.
        expected: String,
    },
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The CPU whose action revealed the violation.
    pub cpu: CpuId,
    /// The step at which it was found.
    pub step: u64,
    /// The evidence.
    pub kind: ViolationKind,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at step {}, on CPU {}: ", self.rule, self.step, self.cpu)?;
        match &self.kind {
            ViolationKind::ReusedFrameReachable { held, block, exposure } => {
                let how = reach(held, "a reused frame", "a reused page table");
                write!(f, "CPU {} {how}: {}", held.cpu, DescribeCached(held, None))?;
                write_block(f, block)?;
                exposure.explain(f)
            }
            ViolationKind::ReleasedFrameReachable { held, pfn } => write_reachable(f, held, *pfn),
            ViolationKind::ReleasedFrameMapped { pfn, cpu, root, va } => write_mapped(f, *pfn, (*cpu, *root), *va),
            ViolationKind::FreeFrameStored { made, freed } => {
                write!(f, "{}\n  the frame was freed {freed} and has not been allocated since", DescribeAccess(made))
            }
            ViolationKind::FreeFrameWritten { pfn, freed } => {
                write!(f, "the kernel writes to frame {pfn}\n  it was freed {freed} and has not been allocated since")
            }
            ViolationKind::ParkedFrameChanged { pfn, freed } => {
                write!(f, "frame {pfn} changed while it was free and reachable")?;
                freed.iter().try_for_each(|freed| write!(f, "\n  it was freed {freed}"))
            }
            ViolationKind::DeferredTooLong { held, frame, copy, opened, end } => {
                write!(f, "CPU {} holds what was deferred: {}", held.cpu, DescribeCached(held, None))?;
                write!(f, "\n  the loss of the right to frame {frame}")?;
                copy.iter().try_for_each(|copy| write!(f, ", copied to {copy},"))?;
                write!(f, " was deferred {opened}\n  {end}")
            }
            ViolationKind::BreakMissing { held, page, from, to } => {
                write!(f, "va {page} leads to {to} in the tables, and CPU {} holds {from}", held.cpu)?;
                write!(f, ": {}", DescribeCached(held, None))?;
                f.write_str("\n  the entry was replaced without break-before-make")
            }
            ViolationKind::SharedTableStored { table, at, old, new, since } => {
                write!(f, "the entry at {at} of the shared table {table} changes from {old:#x} to {new:#x}")?;
                write!(
                    f,
                    "\n  it has been shared since step {}, and no edit for all sharers is in progress",
                    since.step
                )
            }
            ViolationKind::RightKept { held, page, left, reduced, returned, exposure } => {
                let what = match held.kind {
                    CachedEntryKind::Translation { .. } => "translation",
                    CachedEntryKind::Table { .. } | CachedEntryKind::Walk { .. } => "path",
                };
                write!(f, "CPU {} holds a stale {what}: {}", held.cpu, DescribeCached(held, Some(*page)))?;
                write!(f, "\n  {}", DescribeReduction { left: *left, reduced: *reduced, returned: *returned })?;
                exposure.explain(f)
            }
            ViolationKind::RightUsed { made, left, reduced, returned } => {
                let reduction = DescribeReduction { left: *left, reduced: *reduced, returned: *returned };
                write!(f, "{}\n  {reduction}; the page tables do not grant it", DescribeAccess(made))
            }
            ViolationKind::Unpublished { root, page, rights, left, reduced } => {
                write!(f, "page-table walkers still find {rights} at va {page} (root {root})")?;
                write!(f, "\n  CPU {} reduced the rights to {left} at step {}", reduced.cpu, reduced.step)?;
                f.write_str(", and its call returns before walkers can see the store")
            }
            ViolationKind::Memory(mismatch) => mismatch.fmt(f),
            ViolationKind::Count(mismatch) => mismatch.fmt(f),
        }
    }
}

fn write_reachable(f: &mut fmt::Formatter<'_>, held: &CachedEntry, pfn: Pfn) -> fmt::Result {
    let (cpu, how) = (held.cpu, reach(held, "it", "it"));
    write!(f, "frame {pfn} is freed, and CPU {cpu} {how}: {}", DescribeCached(held, None))?;
    write!(f, "\n  any CPU may allocate it from here on, and no flush has removed what CPU {cpu} holds")
}

fn write_mapped(f: &mut fmt::Formatter<'_>, pfn: Pfn, (cpu, root): (CpuId, Pfn), va: VirtAddr) -> fmt::Result {
    if pfn == root {
        return write!(f, "frame {pfn} is freed, and CPU {cpu} has loaded it as its root");
    }
    write!(f, "frame {pfn} is freed, and the tables still lead to it at va {va} (root {root})")?;
    write!(f, "\n  CPU {cpu} has loaded the root")
}

/// How a CPU reaches `page`, or `table`.
fn reach(held: &CachedEntry, page: &str, table: &str) -> String {
    match held.kind {
        CachedEntryKind::Translation { .. } => format!("can reach {page} through a stale translation"),
        CachedEntryKind::Table { .. } => format!("has {table} in its walk cache"),
        CachedEntryKind::Walk { .. } => format!("is about to read {table} in a walk"),
    }
}

fn write_block(f: &mut fmt::Formatter<'_>, block: &ReusedBlock) -> fmt::Result {
    write!(f, "\n  frame {}", block.pfn)?;
    if block.order > Order::ZERO {
        write!(f, " (order {})", block.order)?;
    }
    match block.freed {
        Some(freed) => write!(f, " was freed {freed} and allocated again {}", block.reused),
        None => write!(f, " was allocated again {}; it was never declared free", block.reused),
    }
}

impl Exposure {
    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate => Ok(()),
            Self::Loaded { root, tag } => {
                write!(f, "\n  it became usable when root {root} was loaded with tag {tag} without an invalidation")
            }
            Self::Hit(made) => write!(f, "\n  it was used: {}", DescribeAccess(made)),
        }
    }
}

/// A cached thing in words, at its first page or at the given one.
struct DescribeCached<'a>(&'a CachedEntry, Option<VirtAddr>);

impl fmt::Display for DescribeCached<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0;
        let va = self.1.unwrap_or(held.va);
        match held.kind {
            CachedEntryKind::Translation { pfn, rights } => {
                write!(f, "{rights} to frame {} at va {va}", crate::walk::frame_under(pfn, held.level, va))?;
            }
            CachedEntryKind::Table { table, allows } => {
                write!(f, "{allows} through table {table}, from a {} entry for va {va}", held.level)?;
            }
            CachedEntryKind::Walk { table, allows } => {
                write!(f, "{allows} through table {table}, by a walk in flight for va {va}")?;
            }
        }
        let global = if held.global { ", global" } else { "" };
        write!(f, " (tag {}, root {}{global})", held.tag, held.root)
    }
}

/// A reduction of rights in words.
struct DescribeReduction {
    left: Rights,
    reduced: CpuStep,
    returned: CpuStep,
}

impl fmt::Display for DescribeReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left, reduced, returned } = self;
        write!(
            f,
            "CPU {} reduced the rights to {left} at step {}, and its call returned at step {}",
            reduced.cpu, reduced.step, returned.step
        )
    }
}

/// An access in words.
struct DescribeAccess<'a>(&'a MemoryAccess);

impl fmt::Display for DescribeAccess<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryAccess { cpu, root, va, access, at, cached } = *self.0;
        let by = if cached { "its TLB" } else { "a walk" };
        write!(f, "CPU {cpu}: {access} at va {va} (root {root}) reached frame {} by {by}", Pfn::containing(at))
    }
}

impl fmt::Display for SpecMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access { space, va, access, got, expected, stored, changed } => {
                write!(f, "{access} at va {va} of space {space}: got {got}; expected ")?;
                for (index, one) in expected.iter().enumerate() {
                    let or = if index > 0 { " or " } else { "" };
                    write!(f, "{or}{one}")?;
                }
                if let Some(stored) = stored {
                    write!(f, "\n  the page was last stored to {stored}")?;
                }
                if let Some((changed, call)) = changed {
                    write!(f, "\n  the page was last changed by {call}, {changed}")?;
                }
                Ok(())
            }
            Self::Call { space, call, got, expected } => {
                write!(f, "{call} of space {space}: got {got}; expected {expected}")
            }
        }
    }
}

/// A declared reduction of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reduction {
    pub(crate) root: Pfn,
    pub(crate) range: PageRange,
    pub(crate) left: Rights,
    pub(crate) by: CpuStep,
}
