//! Zephyr: only the TLB of the executing CPU was invalidated.
//!
//! **Shipped.** `invalidate_tlb_all()` of the arm64 port used `TLBI VMALLE1`, which acts only on
//! the CPU that executes it, on SMP systems too. Other CPUs kept stale translations, and many SMP
//! tests failed on Arm's FVP. **Fix** (#97887): the inner-shareable forms, which are broadcast.
//!
//! **Here.** One page is unmapped while a thread on the other CPU uses it.

use crate::corpus::kernel::{Space, pages, reads};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Invalidate, InvalidateScope, InvalidateTarget, IsaKind, Rights, Rule, program,
};

pub(crate) const BUG: Bug = Bug {
    name: "Zephyr #98344",
    link: "https://github.com/zephyrproject-rtos/zephyr/issues/98344",
    what: "TLBI VMALLE1 where VMALLE1IS is needed",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<Aarch64>::new().cpus(2), move |harness| {
        let space = Space::run_everywhere(harness);
        space.map_new(harness, 0, Rights::RW, 1);
        vec![
            program(move |cpu| {
                cpu.call("arch_mem_unmap", |cpu| {
                    cpu.will_reduce(pages(0), Rights::empty());
                    space.clear(cpu, 0);
                    cpu.publish();
                    let scope = match version {
                        Version::Shipped => InvalidateScope::Local,
                        Version::Fixed => InvalidateScope::Broadcast,
                    };
                    cpu.invalidate(Invalidate { scope, target: InvalidateTarget::AllTags });
                    cpu.complete();
                });
            }),
            program(|cpu| reads(cpu, 1)),
        ]
    })
}
