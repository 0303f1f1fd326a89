//! The smallest check: one CPU unmaps a page and frees its frame while another CPU reads it.
//!
//! The check runs with the flush, which is clean, and without it, which ends with a report.
//!
//! `cargo run -p pagewright-check --example missing_flush`

use pagewright_check::{
    Check, CpuProgram, Harness, InvalidateScope, PageRange, Pfn, PhysAddr, Rights, Rule, Tag, VirtAddr, X86_64, program,
};

const PAGE: VirtAddr = VirtAddr::new(0x40_0000);

/// Maps a new page through four x86-64 tables, and loads them on all CPUs (Intel SDM vol. 3A §4.5).
///
/// It returns the address of the page's entry, and the page.
fn map_page(harness: &Harness<X86_64>) -> (PhysAddr, Pfn) {
    let kernel = harness.cpu(0);
    let tables: Vec<Pfn> = (0..5).map(|_| harness.alloc_frame()).collect();
    let entry = |level: usize| tables[3 - level].base().add((PAGE.raw() >> (12 + 9 * level) & 511) * 8);
    (0..4).for_each(|level| kernel.store(entry(level), tables[4 - level].base().raw() | 0b111));
    harness.cpus().for_each(|cpu| cpu.load_root(tables[0], Tag::new(1)));
    (entry(0), tables[4])
}

/// The programs of both CPUs, with or without the flush.
pub(crate) fn programs(harness: &Harness<X86_64>, flush: bool) -> Vec<CpuProgram<X86_64>> {
    let (entry, page) = map_page(harness);
    let unmaps = program(move |cpu| {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
            cpu.swap(entry, 0);
            if flush {
                cpu.flush_page(PAGE, InvalidateScope::Local);
                cpu.shoot_down(cpu.others(), |cpu| cpu.flush_page(PAGE, InvalidateScope::Local));
            }
            cpu.free_frame(page);
        });
    });
    let reads = program(|cpu| {
        for _ in 0..3 {
            let _ = cpu.read(PAGE);
        }
    });
    vec![unmaps, reads]
}

fn main() {
    let correct = Check::<X86_64>::new().explore(|harness| programs(harness, true));
    println!("With the flush:\n{correct}\n");
    let broken = Check::<X86_64>::new().explore(|harness| programs(harness, false));
    println!("Without:\n{broken}");
    correct.unwrap_clean();
    broken.expect_violation(Rule::Reuse);
}
