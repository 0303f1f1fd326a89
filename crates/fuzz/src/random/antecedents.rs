//! Antecedents that random programs cannot reach, or reach seldom (`docs/oracle.md`).

use super::program::ProgramNodes;
use pagewright_check::Antecedent;
use pagewright_types::IsaKind;

/// Where an antecedent cannot occur.
#[derive(Clone, Copy)]
enum Scope {
    /// On no machine.
    Nowhere,
    /// On an instruction set.
    Isa(IsaKind),
    /// On one node.
    OneNode,
}

use Scope::{Isa, Nowhere, OneNode};

/// Antecedents that cannot occur, where, and why.
const WITHOUT_MECHANISM: [(Antecedent, Scope, &str); 16] = [
    (Antecedent::PageReleased, Nowhere, "a freed frame may be parked, and is judged when it is allocated"),
    (Antecedent::TableReleased, Nowhere, "a freed frame may be parked, and is judged when it is allocated"),
    (Antecedent::ReusedAtOnce, Nowhere, "no memory call allocates with interrupts disabled"),
    (Antecedent::DeferralWritten, Nowhere, "the kernel writes in few programs, and to pages that do not linger"),
    (Antecedent::DeferralStored, OneNode, "no page moves on one node"),
    (Antecedent::StaleHit, OneNode, "no page moves on one node"),
    (Antecedent::DeferralTaken, OneNode, "only where pages move do translations linger until a frame is allocated"),
    (Antecedent::LargeTaken, OneNode, "only where pages move do translations linger until a frame is allocated"),
    (Antecedent::MovedAgain, OneNode, "no page moves on one node"),
    (Antecedent::SharedMoved, OneNode, "no page moves on one node"),
    (Antecedent::CopyTaken, Nowhere, "a copy is parked under the key of the translations that it covers"),
    (
        Antecedent::KeyTableMoved,
        Nowhere,
        "no program moves a table with a page that lingers; mm/tests/space/remap_races.rs does",
    ),
    (Antecedent::EntryReplaced, Isa(IsaKind::X86_64), "x86-64 requires no break-before-make"),
    (Antecedent::ReplacedSize, Nowhere, "no machine has FEAT_BBM level 2"),
    (Antecedent::ReplacedReadOnly, OneNode, "no page moves on one node"),
    (
        Antecedent::Condemned,
        Isa(IsaKind::Aarch64),
        "no CPU is lazy, and broadcasts reach entries of every tag on every CPU",
    ),
];

/// Antecedents that few schedules have, and how many schedules of all themes must show one.
const SELDOM: [(Antecedent, u64); 15] = [
    (Antecedent::FrameDebt, 10_000),
    (Antecedent::RightDeferred, 2_000),
    (Antecedent::DeferralEnded, 2_000),
    (Antecedent::DeferralReplaced, 10_000),
    (Antecedent::DeferralMapped, 10_000),
    (Antecedent::DeferralReturned, 10_000),
    (Antecedent::KeyTableFreed, 10_000),
    (Antecedent::KeyTableShared, 10_000),
    (Antecedent::InstalledBesideBreak, 10_000),
    (Antecedent::BreakBesideForeign, 10_000),
    (Antecedent::LeaveBesideForeign, 10_000),
    (Antecedent::LargeUnequal, 10_000),
    (Antecedent::LargeApart, 10_000),
    (Antecedent::LargePinned, 10_000),
    (Antecedent::LargePagePinned, 10_000),
];

/// The number of schedules that must show `antecedent`, on each instruction set.
pub fn needs_schedules(antecedent: Antecedent) -> u64 {
    SELDOM.iter().find(|(seldom, _)| *seldom == antecedent).map_or(0, |(_, schedules)| *schedules)
}

/// Why `antecedent` cannot occur on these instruction sets and nodes; `None` if it can.
pub fn without_mechanism(antecedent: Antecedent, isas: &[IsaKind], nodes: &ProgramNodes) -> Option<&'static str> {
    let concerns = |scope: &Scope| match scope {
        Nowhere => true,
        Isa(only) => isas.iter().all(|isa| isa == only),
        OneNode => nodes.nodes.len() < 2,
    };
    let found = WITHOUT_MECHANISM.iter().find(|(without, scope, _)| *without == antecedent && concerns(scope));
    found.map(|(_, _, why)| *why)
}
