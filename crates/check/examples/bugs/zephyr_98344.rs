//! Zephyr: only the TLB of the executing CPU was invalidated.
//!
//! **Shipped.** `invalidate_tlb_all()` of the arm64 port used `TLBI VMALLE1`, which acts only on
//! the CPU that executes it, on SMP systems too. Other CPUs kept stale translations, and many SMP
//! tests failed on Arm's FVP. **Fix** (#97887): the inner-shareable forms, which are broadcast.
//!
//! **Here.** One page is unmapped while a thread on the other CPU uses it.

use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, Invalidate, InvalidateScope, InvalidateTarget, IsaKind, Rule};

pub(crate) const BUG: Bug = Bug {
    name: "Zephyr #98344",
    link: "https://github.com/zephyrproject-rtos/zephyr/issues/98344",
    what: "TLBI VMALLE1 where VMALLE1IS is needed",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_unmap("arch_mem_unmap", move |cpu| {
        let scope = match version {
            Version::Shipped => InvalidateScope::Local,
            Version::Fixed => InvalidateScope::Broadcast,
        };
        cpu.invalidate(Invalidate { scope, target: InvalidateTarget::AllTags });
    })
}
