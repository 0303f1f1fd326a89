//! tgoskits: no barrier between the store of the entry and the TLBI.
//!
//! **Shipped.** `flush_tlb` of ax-cpu's aarch64 port executed `TLBI VAAE1IS; DSB SY; ISB` without a
//! barrier before the TLBI. The entry that the caller has just cleared need not be visible to the
//! walker of another CPU when the TLBI arrives there: the walker reads the old entry again and
//! fills the TLB with it. **Fix** (proposed, closed): `DSB ISHST` before the TLBI. The pull request
//! notes that QEMU cannot reproduce the bug reliably. It also fixes a `TLBI VMALLE1` that was not
//! broadcast, which is the bug of [`super::zephyr_98344`].
//!
//! **Here.** Three pages are unmapped one by one while a thread on the other CPU uses them.

use crate::corpus::kernel::{Space, page, pages, reads, tlbi_vae1is};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{Aarch64, Check, CheckOutcome, IsaKind, Rights, Rule, program};

pub(crate) const BUG: Bug = Bug {
    name: "tgoskits #2008",
    link: "https://github.com/rcore-os/tgoskits/pull/2008",
    what: "no DSB ISHST between the cleared entry and the TLBI",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

const PAGES: u64 = 3;

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run(Check::<Aarch64>::new().cpus(2), move |harness| {
        let space = Space::run_everywhere(harness);
        for index in 0..PAGES {
            space.map_new(harness, index, Rights::RW, 1);
        }
        vec![
            program(move |cpu| {
                cpu.call("munmap", |cpu| {
                    for index in 0..PAGES {
                        cpu.will_reduce(pages(index), Rights::empty());
                        space.clear(cpu, index);
                        if version == Version::Fixed {
                            cpu.publish();
                        }
                        tlbi_vae1is(cpu, page(index).raw() >> 12);
                        cpu.complete();
                    }
                });
            }),
            program(|cpu| reads(cpu, PAGES)),
        ]
    })
}
