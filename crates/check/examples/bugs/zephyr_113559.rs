//! Zephyr: an ASID was reused while TLBs still had the translations of its old domain.
//!
//! **Shipped.** `arch_mem_domain_deinit()` of the arm64 port freed the tables of a domain and
//! invalidated nothing. ASIDs are reused after 255 domains. The new domain could then use the
//! translations that a CPU still cached under its ASID, with the rights of the old domain. **Fix**
//! (#113562): the end of a domain invalidates all TLBs, by broadcast.
//!
//! **Here.** Two domains with one ASID, the second created after the first has ended; 255 domains
//! in between would add nothing. The frame of the first domain's page is reallocated to the second.

use crate::corpus::kernel::{Space, TAG, page, reads};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Invalidate, InvalidateScope, InvalidateTarget, IsaKind, Rights, Rule, Tag,
    program,
};
use std::cell::Cell;
use std::rc::Rc;

pub(crate) const BUG: Bug = Bug {
    name: "Zephyr #113559",
    link: "https://github.com/zephyrproject-rtos/zephyr/issues/113559",
    what: "an ASID is reused while TLBs still hold its old translations",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Reuse),
    check,
};

/// How far the domains have come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    FirstRuns,
    FirstLeft,
    SecondMade,
}

fn deinit(version: Version, first: &Space, cpu: &Cpu<Aarch64>) {
    let frame = first.clear(cpu, 0);
    if version == Version::Fixed {
        cpu.publish();
        cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target: InvalidateTarget::AllTags });
        cpu.complete();
    }
    frame.into_iter().for_each(|frame| cpu.free_frame(frame));
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<Aarch64>::new().cpus(2), move |harness| {
        let (first, kernel, second) = (Space::new(harness), Space::new(harness), Space::new(harness));
        first.map_new(harness, 0, Rights::RW, 1);
        harness.cpu(0).load_root(kernel.root(), Tag::new(0));
        harness.cpu(1).load_root(first.root(), TAG);
        let stage = Rc::new(Cell::new(Stage::FirstRuns));
        let (there, next) = (Rc::clone(&stage), second.root());
        vec![
            program(move |cpu| {
                while stage.get() != Stage::FirstLeft {
                    cpu.relax();
                }
                deinit(version, &first, cpu);
                second.map(cpu, 1, cpu.alloc_frame(), Rights::RW);
                cpu.publish();
                stage.set(Stage::SecondMade);
            }),
            program(move |cpu| {
                reads(cpu, 1);
                cpu.load_root(kernel.root(), Tag::new(0));
                there.set(Stage::FirstLeft);
                while there.get() != Stage::SecondMade {
                    cpu.relax();
                }
                cpu.load_root(next, TAG);
                cpu.read(page(1)).ok();
            }),
        ]
    })
}
