//! Zephyr: the address in the operand of a TLBI was shifted too far.
//!
//! **Shipped.** `invalidate_tlb_page()` shifted the address by the page shift before it put it into
//! the register of `TLBI VAE1IS`. The field holds bits 55 to 12 of the address for every granule,
//! so with 16K or 64K pages the TLBI invalidated another address, and a page that was paged out
//! remained accessible. **Fix** (#115712): shift by 12.
//!
//! **Here.** One page is paged out while a thread on the other CPU uses it. The machine has 4K
//! pages only, so the program keeps the shift by 14 of a kernel built for 16K pages.

use crate::corpus::kernel::{page, tlbi_vae1is};
use crate::corpus::{Bug, FoundBy, RunMode, Version};
use pagewright_check::{CheckOutcome, IsaKind, Rule};

pub(crate) const BUG: Bug = Bug {
    name: "Zephyr #115708",
    link: "https://github.com/zephyrproject-rtos/zephyr/issues/115708",
    what: "with 16K and 64K pages the address in TLBI VAE1IS is shifted too far",
    isa: IsaKind::Aarch64,
    found_by: FoundBy::Rule(Rule::Rights),
    check,
};

fn check(version: Version, mode: &RunMode<'_>) -> CheckOutcome {
    mode.run_unmap("arch_mem_page_out", move |cpu| {
        let shift = match version {
            Version::Shipped => 14,
            Version::Fixed => 12,
        };
        tlbi_vae1is(cpu, page(0).raw() >> shift);
    })
}
