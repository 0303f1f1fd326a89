//! The test that `README.md` shows to users, with page-table code for it to check.

use pagewright_check::{
    Check, Cpu, Harness, InvalidateScope, PageRange, Pfn, PhysAddr, Rights, Tag, VirtAddr, X86_64, program,
};

const PAGE: VirtAddr = VirtAddr::new(0x40_0000);

/// The page-table code under test: an address space with one page.
struct AddressSpace {
    /// Address of the page's last-level entry.
    entry: PhysAddr,
    page: Pfn,
}

impl AddressSpace {
    /// Maps a page by x86-64 tables (Intel SDM vol. 3A §4.5) and loads them on all CPUs.
    fn with_page(harness: &Harness<X86_64>, va: VirtAddr) -> Self {
        let kernel = harness.cpu(0);
        let tables: Vec<Pfn> = (0..5).map(|_| harness.alloc_frame()).collect();
        let entry = |level: usize| tables[3 - level].base().add((va.raw() >> (12 + 9 * level) & 511) * 8);
        (0..4).for_each(|level| kernel.store(entry(level), tables[4 - level].base().raw() | 0b111));
        harness.cpus().for_each(|cpu| cpu.load_root(tables[0], Tag::new(1)));
        Self { entry: entry(0), page: tables[4] }
    }

    fn munmap(&self, cpu: &Cpu<X86_64>, va: VirtAddr) {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(PageRange::page(va), Rights::empty());
            cpu.swap(self.entry, 0);
            cpu.flush_page(va, InvalidateScope::Local);
            cpu.shoot_down(cpu.others(), move |cpu| cpu.flush_page(va, InvalidateScope::Local));
            cpu.free_frame(self.page);
        });
    }
}

#[test]
fn munmap_flushes_every_cpu() {
    let outcome = Check::<X86_64>::new().explore(|harness| {
        let space = AddressSpace::with_page(harness, PAGE); // your page-table code
        vec![program(move |cpu| space.munmap(cpu, PAGE)), program(|cpu| _ = cpu.read(PAGE))]
    });
    outcome.unwrap_clean();
}
