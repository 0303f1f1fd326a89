//! Unikraft: the address in the operand of a TLBI was not shifted.
//!
//! **Shipped.** `ukarch_tlb_flush_entry` of arm64 put the address itself into the register of
//! `TLBI VAAE1IS`, where bits 43 to 0 are bits 55 to 12 of the address. So the TLBI invalidated
//! another address, and unmapped memory remained accessible. **Fix.** The address is shifted by 12.
//!
//! **Here.** One page is unmapped while a thread on the other CPU uses it. The TLBI of the machine
//! names an ASID (`VAE1IS`).

use crate::corpus::kernel::{page, tlbi_vae1is};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, IsaKind, Rule};

pub(crate) const BUG: Bug = Bug {
    name: "Unikraft #1149",
    link: "https://github.com/unikraft/unikraft/pull/1149",
    what: "the address in TLBI VAAE1IS is not shifted",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_unmap("ukplat_page_unmap", move |cpu| {
        let operand = match version {
            Version::Shipped => page(0).raw(),
            Version::Fixed => page(0).raw() >> 12,
        };
        tlbi_vae1is(cpu, operand);
    })
}
