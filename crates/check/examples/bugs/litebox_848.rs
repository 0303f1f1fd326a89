//! LiteBox: frames were freed before the TLBs were flushed.
//!
//! **Shipped.** `unmap_pages` of LiteBox's kernel platforms freed the frames before all cores had
//! flushed. In between, another core may allocate such a frame while a third still reads and writes
//! it through its TLB: a use after unmap. **Fix.** The frames are freed after the flush.
//!
//! **Here.** One page, and a thread that uses it: the bug is found when the frame is freed. Left
//! out: ranges, and Hyper-V's flush hypercalls, for which IPIs stand.

use crate::corpus::kernel::{Space, flush_everywhere, pages};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, Cpu, IsaKind, Rights, Rule, X86_64};

pub(crate) const BUG: Bug = Bug {
    name: "LiteBox #848",
    link: "https://github.com/microsoft/litebox/pull/848",
    what: "an unmap frees the frames before other CPUs have flushed",
    isa: IsaKind::X86_64,
    found_by: FoundBy::Rule(Rule::Reuse),
    check,
};

fn unmap_pages(version: Version, space: &Space, cpu: &Cpu<X86_64>) {
    cpu.call("unmap_pages", |cpu| {
        cpu.will_reduce(pages(0), Rights::empty());
        let Some(frame) = space.clear(cpu, 0) else { return };
        match version {
            Version::Shipped => {
                cpu.free_frame(frame);
                flush_everywhere(cpu, 0);
            }
            Version::Fixed => {
                flush_everywhere(cpu, 0);
                cpu.free_frame(frame);
            }
        }
    });
}

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_beside_reader(Rights::RW, |space, _| move |cpu: &Cpu<X86_64>| unmap_pages(version, &space, cpu))
}
