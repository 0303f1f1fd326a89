//! What a check without findings must have met to be evidence (INV-CHECK-EVIDENCE).
//!
//! A rule whose antecedent never held could not fail. So the tally of antecedents decides
//! ([`pagewright_model::Tally`]): if programs reduce rights, a CPU must have cached one of them;
//! if they do not, a frame that they used must have been freed, or an entry replaced.
//!
//! **INV-CHECK-EVIDENCE** A check passes as clean only if its search could have had a finding: a
//! program accessed memory, and a CPU that could keep it had cached a right that a call took, or a
//! frame that was in use was freed, or a live entry was replaced; an exhaustive search is complete.
//! Otherwise a program without a flush passes.
//!
//! Not guaranteed: that each reduction and each frame was judged. The text of an outcome has the
//! numbers.

use crate::search::Search;
use pagewright_model::Antecedent;
use std::fmt;

/// Why a check without findings is no evidence; its `Display` says what to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacuity {
    /// No schedule was run.
    NoSchedule,
    /// An exhaustive search did not try all schedules within its bounds.
    Incomplete,
    /// No access of a program succeeded, so none used a translation.
    NoAccess,
    /// Rights that CPUs had cached were reduced, and no call returned.
    NoReturn,
    /// Calls reduced rights, and no CPU had cached one of them.
    NothingCached,
    /// No call reduced a right, no frame that was used was freed, and no entry was replaced.
    NothingJudged,
}

impl Vacuity {
    /// The first reason why `search`, on a machine of `cpus`, is no evidence.
    pub(crate) fn of(search: &Search, cpus: u16) -> Option<Self> {
        let met = |antecedents: &[Antecedent]| antecedents.iter().any(|what| search.tally.of(*what) > 0);
        // The flush of the caller's own TLB is all that a single CPU can forget.
        let held = match cpus {
            1 => met(&[Antecedent::RightHeldLocally]),
            _ => met(&[Antecedent::RightHeld, Antecedent::PathReduced]),
        };
        let reduced = met(&[Antecedent::RightReduced]);
        let judged =
            [Antecedent::FrameReused, Antecedent::PageReleased, Antecedent::TableReleased, Antecedent::EntryReplaced];
        if search.schedules == 0 {
            Some(Self::NoSchedule)
        } else if search.exhaustive.is_some_and(|(_, done)| !done.complete) {
            Some(Self::Incomplete)
        } else if !met(&[Antecedent::Accessed]) {
            Some(Self::NoAccess)
        } else if held && !reduced {
            Some(Self::NoReturn)
        } else if reduced && !held {
            Some(Self::NothingCached)
        } else if !reduced && !met(&judged) {
            Some(Self::NothingJudged)
        } else {
            None
        }
    }
}

impl fmt::Display for Vacuity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "no schedule was run: let `Check::schedules` allow some",
            Self::Incomplete => {
                "schedules within the bounds are left: raise `Check::schedules`, or lower the bounds of \
                 `Check::exhaustive`"
            }
            Self::NoAccess => {
                "no access of a program succeeded: let programs access pages that are mapped for user mode, or declare \
                 a `Check::kernel_range`"
            }
            Self::NoReturn => "no call that reduces rights returned: declare them within `Cpu::call`",
            Self::NothingCached => {
                "no CPU had cached a right that a call took: let another CPU run the space and access the page before \
                 the call, more often or in more schedules"
            }
            Self::NothingJudged => {
                "no right was reduced, and no frame that a program had used was freed: declare both, with \
                 `Cpu::will_reduce` and `Harness::free_frame`"
            }
        })
    }
}
