//! Mappings of the kernel, global and not, are judged in the range that a check names.

use crate::raw_tables::{leaf, pointer};
use pagewright_check::{
    Aarch64, Check, CheckOutcome, Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Isa, IsaKind, Level,
    PageRange, Pfn, PhysAddr, Rights, Rule, Tag, VirtAddr, X86_64, program,
};
use std::rc::Rc;

/// The page of the kernel that the programs use.
const PAGE: VirtAddr = VirtAddr::new(0xffff_ff00_4000_0000);

fn kernel_range() -> PageRange {
    PageRange::new(VirtAddr::new(0xffff_ff00_0000_0000), VirtAddr::new(0xffff_ff80_0000_0000))
}

fn entry(table: Pfn, level: Level) -> PhysAddr {
    table.base().add(level.index_of(PAGE) as u64 * 8)
}

/// A page that only the kernel may use (Intel SDM table 4-20, Arm ARM D8.3.1).
fn kernel_leaf(isa: IsaKind, frame: Pfn, global: bool) -> u64 {
    let (user, global_bit, is_set) = match isa {
        IsaKind::X86_64 => (1 << 2, 1 << 8, global),
        // nG.
        IsaKind::Aarch64 => (1 << 6, 1 << 11, !global),
    };
    let word = leaf(isa, frame, true) & !user & !global_bit;
    if is_set { word | global_bit } else { word }
}

/// The kernel's tables, and one space for each CPU, under a tag of its own.
struct Kernel {
    tables: [Pfn; 4],
    frame: Pfn,
}

impl Kernel {
    fn boot<I: Isa>(harness: &Harness<I>, global: bool, load: impl Fn(&Cpu<I>, Pfn)) -> Rc<Self> {
        let tables = [(); 4].map(|()| harness.alloc_frame());
        let frame = harness.alloc_frame();
        for (level, pair) in [Level::PGD, Level::PUD, Level::PMD].into_iter().zip(tables.windows(2)) {
            harness.cpu(0).store(entry(pair[0], level), pointer(I::KIND, pair[1], true));
        }
        harness.cpu(0).store(entry(tables[3], Level::PTE), kernel_leaf(I::KIND, frame, global));
        harness.cpus().for_each(|cpu| load(&cpu, tables[0]));
        Rc::new(Self { tables, frame })
    }
}

/// Each CPU has a space of its own; on x86-64 its root has the kernel's entry, too.
trait Loads: Isa {
    fn load(cpu: &Cpu<Self>, kernel: Pfn);
}

impl Loads for Aarch64 {
    fn load(cpu: &Cpu<Self>, kernel: Pfn) {
        cpu.load_root(cpu.alloc_frame(), Tag::new(1 + cpu.id().raw()));
        cpu.load_kernel_root(kernel);
    }
}

impl Loads for X86_64 {
    fn load(cpu: &Cpu<Self>, kernel: Pfn) {
        let root = cpu.alloc_frame();
        cpu.store(entry(root, Level::PGD), cpu.load(entry(kernel, Level::PGD)));
        cpu.load_root(root, Tag::new(1 + cpu.id().raw()));
    }
}

/// What is freed after the page is unmapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Frees {
    Page,
    /// Its table, too, which is unhooked before the flush.
    Table,
}

/// CPU 0 unmaps a page of the kernel and flushes by `flush`, while CPU 1 uses it.
fn vunmap<I: Loads>(
    check: Check<I>,
    global: bool,
    frees: Frees,
    flush: impl Fn(&Cpu<I>) + Copy + 'static,
) -> CheckOutcome {
    check.kernel_range(kernel_range()).schedules(500).explore(move |harness: &Harness<I>| {
        let kernel = Kernel::boot(harness, global, I::load);
        let unmaps = program(move |cpu: &Cpu<I>| {
            cpu.call("vunmap", |cpu| {
                cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
                cpu.swap(entry(kernel.tables[3], Level::PTE), 0);
                if frees == Frees::Table {
                    cpu.swap(entry(kernel.tables[2], Level::PMD), 0);
                }
                cpu.publish();
                flush(cpu);
            });
            cpu.free_frame(kernel.frame);
            if frees == Frees::Table {
                cpu.free_frame(kernel.tables[3]);
            }
        });
        vec![unmaps, program(|cpu| (0..3).for_each(|_| _ = cpu.write(PAGE, 1)))]
    })
}

fn everywhere(cpu: &Cpu<Aarch64>, target: InvalidateTarget) {
    cpu.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
    cpu.complete();
}

fn of_all_tags(last_level: bool) -> InvalidateTarget {
    InvalidateTarget::PageOfAllTags { va: PAGE, level: Level::PTE, last_level }
}

fn of_own_tag() -> InvalidateTarget {
    InvalidateTarget::Page { tag: Tag::new(1), va: PAGE, level: Level::PTE, last_level: false }
}

/// INV-CHECK-KERNEL.
#[test]
fn an_asid_flush_leaves_a_global_page_of_the_kernel() {
    let check = Check::<Aarch64>::new;
    vunmap(check(), true, Frees::Page, |cpu| everywhere(cpu, of_all_tags(true))).unwrap_clean();
    vunmap(check(), true, Frees::Page, |cpu| everywhere(cpu, of_own_tag())).unwrap_clean();
    let by_asid = |cpu: &Cpu<Aarch64>| (1..3).for_each(|tag| everywhere(cpu, InvalidateTarget::Tag(Tag::new(tag))));
    vunmap(check(), true, Frees::Page, by_asid).expect_violation(Rule::Rights);
}

/// The bug of phoenix-rtos-kernel #829.
///
/// Pages of the kernel were not global, and were invalidated by address and the ASID of one CPU.
#[test]
fn a_page_of_the_kernel_that_is_not_global_stays_under_other_asids() {
    let check = Check::<Aarch64>::new;
    vunmap(check(), false, Frees::Page, |cpu| everywhere(cpu, of_own_tag())).expect_violation(Rule::Rights);
    vunmap(check(), false, Frees::Page, |cpu| everywhere(cpu, of_all_tags(true))).unwrap_clean();
}

/// Linux has `__flush_tlb_kernel_pgtable` (VAAE1IS) beside `flush_tlb_kernel_range` (VAALE1IS).
#[test]
fn walk_caches_to_a_table_of_the_kernel_are_kept_under_each_asid() {
    let check = Check::<Aarch64>::new;
    vunmap(check(), true, Frees::Table, |cpu| everywhere(cpu, of_all_tags(false))).unwrap_clean();
    vunmap(check(), true, Frees::Table, |cpu| everywhere(cpu, of_all_tags(true))).expect_violation(Rule::Reuse);
    vunmap(check(), true, Frees::Table, |cpu| everywhere(cpu, of_own_tag())).expect_violation(Rule::Reuse);
}

#[test]
fn x86_64_drops_a_global_page_of_the_kernel_by_invlpg_and_cr4_and_not_by_cr3() {
    let on_all = |cpu: &Cpu<X86_64>, flush: fn(&Cpu<X86_64>)| {
        flush(cpu);
        cpu.shoot_down(cpu.others(), flush);
    };
    let check = Check::<X86_64>::new;
    const LOCAL: InvalidateScope = InvalidateScope::Local;
    vunmap(check(), true, Frees::Page, move |cpu| on_all(cpu, |cpu| cpu.flush_page(PAGE, LOCAL))).unwrap_clean();
    vunmap(check(), true, Frees::Page, move |cpu| on_all(cpu, |cpu| cpu.write_cr4(cpu.read_cr4() ^ 1 << 7)))
        .unwrap_clean();
    let by_cr3 = vunmap(check(), true, Frees::Page, move |cpu| on_all(cpu, |cpu| cpu.write_cr3(cpu.read_cr3())));
    by_cr3.expect_violation(Rule::Rights);
}

#[test]
fn a_lazy_cpu_uses_the_kernels_pages() {
    let check = Check::<Aarch64>::new().kernel_range(kernel_range()).schedules(1);
    let outcome = check.explore(|harness| {
        let kernel = Kernel::boot(harness, true, Aarch64::load);
        harness.cpu(1).read(PAGE).expect("it is mapped");
        harness.cpu(1).set_lazy(true);
        vec![program(move |cpu: &Cpu<Aarch64>| {
            cpu.call("vunmap", |cpu| {
                cpu.will_reduce(PageRange::page(PAGE), Rights::empty());
                cpu.swap(entry(kernel.tables[3], Level::PTE), 0);
                cpu.publish();
            });
        })]
    });
    outcome.expect_violation(Rule::Rights);
}

#[test]
fn the_halves_do_not_share_translations() {
    let check = Check::<Aarch64>::new().kernel_range(kernel_range()).cpus(1).schedules(50);
    let outcome = check.explore(|harness| {
        Kernel::boot(harness, true, Aarch64::load);
        vec![program(|cpu: &Cpu<Aarch64>| {
            cpu.write(PAGE, 7).expect("the kernel's page is mapped");
            assert_eq!(cpu.read(PAGE), Ok(7));
            let below = VirtAddr::new(PAGE.raw() << 16 >> 16);
            assert!(cpu.read(below).is_err_and(|fault| !fault.present), "the lower half is empty");
        })]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

#[test]
fn a_direct_map_outside_of_the_range_is_not_judged() {
    let elsewhere = PageRange::new(VirtAddr::new(0xffff_8000_0000_0000), VirtAddr::new(0xffff_8080_0000_0000));
    for (range, rule) in [(kernel_range(), Some(Rule::Reuse)), (elsewhere, None)] {
        let outcome = Check::<X86_64>::new().kernel_range(range).schedules(10).explore(|harness| {
            let kernel = Kernel::boot(harness, true, X86_64::load);
            vec![program(move |cpu: &Cpu<X86_64>| cpu.free_frame(kernel.frame))]
        });
        assert_eq!(outcome.finding().map(|finding| finding.rule()), rule.map(Some), "{outcome}");
    }
}

#[test]
fn a_range_that_user_mode_uses_is_refused() {
    let lower = PageRange::new(VirtAddr::ZERO, VirtAddr::new(1 << 39));
    let refused = std::panic::catch_unwind(|| Check::<X86_64>::new().kernel_range(lower).explore(|_| Vec::new()));
    assert!(refused.is_err());
}
