//! Page tables with five levels (x86-64 CR4.LA57; Intel SDM vol. 3A §4.5), INV-CHECK-LEVELS.

use crate::raw_tables::{TAG, leaf, pointer};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, InvalidateScope, Isa, IsaKind, Level, PageRange, Pfn, PhysAddr, Rights,
    Rule, VirtAddr, X86_64, program,
};
use std::rc::Rc;

/// A page whose address needs 57 bits, and pages that differ from it in one high bit.
const PAGE: VirtAddr = VirtAddr::new(0x00a5_1234_5678_9000);
const OTHERS: [VirtAddr; 2] = [VirtAddr::new(PAGE.raw() ^ 1 << 48), VirtAddr::new(PAGE.raw() ^ 1 << 55)];

/// A space with five levels of tables, which are made as pages are mapped.
struct Space {
    root: Pfn,
}

impl Space {
    fn load(harness: &Harness<X86_64>) -> Rc<Self> {
        let space = Self { root: harness.alloc_frame() };
        harness.cpus().for_each(|cpu| cpu.load_root(space.root, TAG));
        Rc::new(space)
    }

    /// The address of the entry of `level` for `va`.
    fn entry(&self, cpu: &Cpu<X86_64>, va: VirtAddr, level: Level) -> PhysAddr {
        let (mut table, mut at) = (self.root, Level::PML5);
        loop {
            let entry = table.base().add(at.index_of(va) as u64 * 8);
            let Some(below) = at.down().filter(|_| at > level) else { return entry };
            let word = cpu.load(entry);
            table =
                if word == 0 { cpu.alloc_frame() } else { Pfn::containing(PhysAddr::new(word & 0xf_ffff_ffff_f000)) };
            if word == 0 {
                cpu.store(entry, pointer(IsaKind::X86_64, table, true));
            }
            at = below;
        }
    }

    /// Maps a new page with this value.
    fn map(&self, harness: &Harness<X86_64>, va: VirtAddr, value: u64) -> Pfn {
        let (cpu, frame) = (harness.cpu(0), harness.alloc_frame());
        cpu.store(self.entry(&cpu, va, Level::PTE), leaf(IsaKind::X86_64, frame, true));
        pagewright_arch::Effects::write(harness.sim(), frame.base(), &value.to_le_bytes());
        frame
    }
}

fn check() -> Check<X86_64> {
    Check::<X86_64>::new().five_levels()
}

/// SDM vol. 3A §4.5.1, and vol. 1 §3.3.7.1 for canonical addresses.
#[test]
fn addresses_have_57_bits() {
    let outcome = check().schedules(20).explore(|harness| {
        let space = Space::load(harness);
        let pages = [PAGE, OTHERS[0], OTHERS[1]];
        pages.iter().zip(1..).for_each(|(va, value)| _ = space.map(harness, *va, value));
        assert_eq!(harness.cpu(0).read_cr4() >> 12 & 1, 1);
        let reads = move |cpu: &Cpu<X86_64>| {
            for _ in 0..2 {
                let values = pages.map(|va| cpu.read(va));
                assert_eq!(values, [Ok(1), Ok(2), Ok(3)]);
                // Bit 56 without those above: not canonical.
                assert!(cpu.read(VirtAddr::new(PAGE.raw() | 1 << 56)).is_err());
            }
        };
        vec![program(reads), program(reads)]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
    let outcome = Check::<X86_64>::new().schedules(1).explore(|harness| {
        Space::load(harness);
        vec![program(|cpu| assert!(cpu.read(PAGE).is_err(), "with four levels it is not canonical"))]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

/// SDM vol. 3A table 4-14: bit 7 of a PML5E is reserved.
#[test]
fn a_pml5_entry_maps_no_page() {
    let outcome = check().schedules(1).explore(|harness| {
        let space = Space::load(harness);
        space.map(harness, PAGE, 1);
        let cpu = harness.cpu(0);
        let entry = space.entry(&cpu, PAGE, Level::PML5);
        cpu.store(entry, cpu.load(entry) | 1 << 7);
        vec![program(|cpu| assert!(cpu.read(PAGE).is_err_and(|fault| fault.present)))]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

/// CPU 0 runs `kernel` with the frame of the page that CPU 1 reads.
fn beside_reader(kernel: impl Fn(&Cpu<X86_64>, &Space, Pfn) + Copy + 'static) -> CheckOutcome {
    check().explore(move |harness| {
        let space = Space::load(harness);
        let frame = space.map(harness, PAGE, 1);
        let reads = program(|cpu: &Cpu<X86_64>| (0..3).for_each(|_| _ = cpu.read(PAGE)));
        vec![program(move |cpu| kernel(cpu, &space, frame)), reads]
    })
}

fn flush(cpu: &Cpu<X86_64>, shoots_down: bool) {
    cpu.flush_page(PAGE, InvalidateScope::Local);
    if shoots_down {
        cpu.shoot_down(cpu.others(), |cpu| cpu.flush_page(PAGE, InvalidateScope::Local));
    }
}

#[test]
fn a_missing_shootdown_is_found() {
    let unmap = |shoots_down| {
        beside_reader(move |cpu, space, frame| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
                cpu.swap(space.entry(cpu, PAGE, Level::PTE), 0);
                flush(cpu, shoots_down);
            });
            cpu.free_frame(frame);
        })
    };
    unmap(true).unwrap_clean();
    let outcome = unmap(false);
    outcome.expect_violation(Rule::Rights);
    assert!(outcome.to_string().contains(&PAGE.to_string()), "{outcome}");
}

/// SDM vol. 3A §4.10.3: a paging-structure cache may hold a PML5E, which INVLPG invalidates.
#[test]
fn the_walk_cache_of_a_pml5_entry_is_flushed_before_its_table_is_freed() {
    let free = |flushes| {
        beside_reader(move |cpu, space, _| {
            let entry = space.entry(cpu, PAGE, Level::PML5);
            let table = Pfn::containing(PhysAddr::new(cpu.swap(entry, 0) & 0xf_ffff_ffff_f000));
            if flushes {
                flush(cpu, true);
            }
            cpu.free_frame(table);
        })
    };
    free(true).unwrap_clean();
    let outcome = free(false);
    outcome.expect_violation(Rule::Reuse);
    assert!(outcome.to_string().contains("from a PML5 entry"), "{outcome}");
}

/// The oracle's own walk takes the fifth level, in the upper half, too.
#[test]
fn a_frame_that_a_loaded_root_still_maps_is_found() {
    for va in [PAGE, VirtAddr::new(0xff5a_0000_4000_0000)] {
        let outcome = check().schedules(1).explore(move |harness| {
            let space = Space::load(harness);
            let frame = space.map(harness, va, 1);
            vec![program(move |cpu| cpu.free_frame(frame))]
        });
        outcome.expect_violation(Rule::Reuse);
        let text = outcome.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("still lead to it at va {va}")), "{outcome}");
    }
}

#[test]
#[should_panic(expected = "five levels of page tables are of x86-64 only")]
fn arm64_has_no_five_levels_here() {
    assert_eq!(Aarch64::KIND, IsaKind::Aarch64);
    Check::<Aarch64>::new().five_levels().explore(|_| Vec::new());
}
