//! Invalidations remove exactly the entries that the manuals name (INV-SIM-INVALIDATE).
//!
//! The tests observe a walk cache by the reads of a walk: one for each level that is not cached.

use crate::common::{Bench, CPU0, page};
use pagewright_arch::{
    Aarch64, Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, LeafFlags, Pte, X86_64, on_both,
};
use pagewright_sim::{Cost, MachineEvent};
use pagewright_types::{Access, CpuId, CpuMask, IsaKind, Level, PageRange, Pfn, Rights, Tag, VirtAddr};
use std::cell::RefCell;
use std::rc::Rc;

const CPU1: CpuId = CpuId::new(1);
const FAR: u64 = 600;
const BESIDE_FAR: u64 = 601;

/// Two address spaces that CPUs 0 and 1 have cached; CPU 0 has tag 1 loaded.
///
/// Each space has pages 0, 1 and [`FAR`], which is in another last-level table, and [`BESIDE_FAR`],
/// of which only the walk-cache entries are cached. Page 2 is global.
struct Spaces<I: Isa> {
    bench: Bench<I>,
    roots: [Pfn; 2],
}

impl<I: Isa> Spaces<I> {
    fn new() -> Self {
        Self::on(Bench::new())
    }

    fn on(bench: Bench<I>) -> Self {
        let roots = [bench.frame(Level::PTE), bench.frame(Level::PTE)];
        for root in roots {
            for number in [0, 1, FAR, BESIDE_FAR] {
                bench.map(root, Level::PTE, page(number), Rights::RW, LeafFlags::empty());
            }
        }
        // Only one root maps the global page; under the other, only a TLB entry reaches it.
        bench.map(roots[0], Level::PTE, page(2), Rights::RW, LeafFlags::GLOBAL);
        let spaces = Self { bench, roots };
        for cpu in [CPU0, CPU1] {
            spaces.enter(cpu, 1);
            spaces.touch(cpu, 2);
            for tag in [2, 1] {
                spaces.enter(cpu, tag);
                for number in [0, 1, FAR] {
                    spaces.touch(cpu, number);
                }
            }
        }
        spaces
    }

    fn enter(&self, cpu: CpuId, tag: u16) {
        self.bench.switch(cpu, self.roots[usize::from(tag) - 1], tag);
    }

    fn touch(&self, cpu: CpuId, number: u64) {
        self.bench.sim.access(cpu, page(number), Access::Read, 1).expect("mapped");
    }

    /// The number of table entries that an access to page `number` reads; 0 for a TLB hit.
    fn reads(&self, cpu: CpuId, tag: u16, number: u64) -> u64 {
        self.enter(cpu, tag);
        let before = self.bench.sim.count(cpu, MachineEvent::WalkReads);
        self.touch(cpu, number);
        self.bench.sim.count(cpu, MachineEvent::WalkReads) - before
    }

    fn invalidate(&self, scope: InvalidateScope, target: InvalidateTarget) {
        self.bench.sim.run_on(CPU0, || {
            self.bench.sim.invalidate(Invalidate { scope, target });
            self.bench.sim.complete();
        });
    }

    /// Whether a TLB of CPU 0 has page 2.
    ///
    /// It accesses the page under the space that does not map it.
    fn keeps_global(&self) -> bool {
        self.enter(CPU0, 2);
        self.bench.sim.access(CPU0, page(2), Access::Read, 1).is_ok()
    }
}

fn one(tag: u16, number: u64, last_level: bool) -> InvalidateTarget {
    InvalidateTarget::Page { tag: Tag::new(tag), va: page(number), level: Level::PTE, last_level }
}

#[test]
fn invlpg_drops_the_page_and_all_walk_caches_of_the_tag() {
    let spaces = Spaces::<X86_64>::new();
    spaces.invalidate(InvalidateScope::Local, one(1, 0, true));
    assert_eq!(spaces.reads(CPU0, 1, BESIDE_FAR), 4, "the walk caches of the tag were not dropped");
    assert_eq!(
        spaces.reads(CPU0, 1, 0),
        2,
        "the walk to the far page did not fill the walk caches above the last-level table"
    );
    assert_eq!(spaces.reads(CPU0, 1, 1), 0, "the neighbouring page was dropped");
    assert_eq!(spaces.reads(CPU0, 2, 0), 0, "the other tag was dropped");
    assert_eq!(spaces.reads(CPU1, 1, 0), 0, "the other CPU was flushed");
    assert!(spaces.keeps_global());
    spaces.enter(CPU0, 1);
    spaces.invalidate(InvalidateScope::Local, one(1, 2, true));
    assert!(!spaces.keeps_global(), "INVLPG did not drop a global page");
}

#[test]
fn invpcid_of_another_tag_spares_globals_and_other_walk_caches() {
    let spaces = Spaces::<X86_64>::new();
    spaces.invalidate(InvalidateScope::Local, one(2, 0, true));
    spaces.invalidate(InvalidateScope::Local, one(2, 2, true));
    assert!(spaces.keeps_global());
    assert_eq!(spaces.reads(CPU0, 2, BESIDE_FAR), 1, "the walk caches of another path were dropped");
    assert_eq!(spaces.reads(CPU0, 2, 0), 4, "the walk caches on the path to the page were not dropped");
    assert_eq!(spaces.reads(CPU0, 1, 0), 0);
    spaces.invalidate(InvalidateScope::Local, one(1, FAR, true));
    assert_eq!(spaces.reads(CPU0, 2, FAR), 0, "the far page was dropped under the other tag");
}

#[test]
fn invpcid_of_a_tag_and_of_all_tags_spare_globals() {
    let spaces = Spaces::<X86_64>::new();
    spaces.invalidate(InvalidateScope::Local, InvalidateTarget::Tag(Tag::new(2)));
    assert!(spaces.keeps_global());
    assert_eq!(spaces.reads(CPU0, 1, 0), 0);
    assert_eq!(
        (spaces.reads(CPU0, 2, 0), spaces.reads(CPU0, 2, 1)),
        (4, 1),
        "the second walk did not use the walk cache"
    );
    spaces.invalidate(InvalidateScope::Local, InvalidateTarget::AllTags);
    assert!(spaces.keeps_global());
    assert_eq!((spaces.reads(CPU0, 1, 0), spaces.reads(CPU0, 2, 0)), (4, 4));
    assert_eq!(spaces.reads(CPU1, 1, 0), 0, "the other CPU was flushed");
}

#[test]
fn vale1is_leaves_walk_caches_and_reaches_every_cpu() {
    let spaces = Spaces::<Aarch64>::new();
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 0, true));
    for cpu in [CPU0, CPU1] {
        assert_eq!(spaces.reads(cpu, 1, 0), 1, "the walk read more than the last level");
        assert_eq!(spaces.reads(cpu, 1, 1), 0);
        assert_eq!(spaces.reads(cpu, 2, 0), 0);
    }
    spaces.invalidate(InvalidateScope::Local, one(1, 0, true));
    assert_eq!((spaces.reads(CPU0, 1, 0), spaces.reads(CPU1, 1, 0)), (1, 0), "a TLBI without IS reached the other CPU");
}

#[test]
fn vae1is_drops_the_walk_caches_on_the_way() {
    let spaces = Spaces::<Aarch64>::new();
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 0, false));
    assert_eq!(spaces.reads(CPU1, 1, 0), 4);
    assert!(spaces.keeps_global());
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 2, false));
    assert!(!spaces.keeps_global(), "a global entry did not match the ASID");
}

#[test]
fn a_wrong_level_hint_removes_nothing() {
    let spaces = Spaces::<Aarch64>::new();
    let wrong = InvalidateTarget::Page { tag: Tag::new(1), va: page(0), level: Level::PMD, last_level: true };
    spaces.invalidate(InvalidateScope::Broadcast, wrong);
    assert_eq!(spaces.reads(CPU0, 1, 0), 0);
}

#[test]
fn aside1is_spares_globals_and_vmalle1is_does_not() {
    let spaces = Spaces::<Aarch64>::new();
    spaces.invalidate(InvalidateScope::Broadcast, InvalidateTarget::Tag(Tag::new(1)));
    assert!(spaces.keeps_global());
    assert_eq!((spaces.reads(CPU1, 1, 0), spaces.reads(CPU1, 2, 0)), (4, 0));
    spaces.invalidate(InvalidateScope::Broadcast, InvalidateTarget::AllTags);
    assert!(!spaces.keeps_global());
    assert_eq!((spaces.reads(CPU1, 1, 0), spaces.reads(CPU1, 2, 0)), (4, 4));
}

#[test]
fn vaae1is_drops_a_page_of_every_tag_and_the_global_one() {
    let page_of_all =
        |number, last_level| InvalidateTarget::PageOfAllTags { va: page(number), level: Level::PTE, last_level };
    let spaces = Spaces::<Aarch64>::new();
    spaces.invalidate(InvalidateScope::Broadcast, page_of_all(0, true));
    assert!(spaces.keeps_global());
    for cpu in [CPU0, CPU1] {
        assert_eq!((spaces.reads(cpu, 1, 0), spaces.reads(cpu, 2, 0)), (1, 1), "not both tags, or walk caches, too");
        assert_eq!((spaces.reads(cpu, 1, 1), spaces.reads(cpu, 1, FAR)), (0, 0));
    }
    spaces.invalidate(InvalidateScope::Broadcast, page_of_all(0, false));
    assert_eq!((spaces.reads(CPU1, 1, 0), spaces.reads(CPU1, 2, 0)), (4, 4));
    spaces.invalidate(InvalidateScope::Broadcast, page_of_all(2, true));
    assert!(!spaces.keeps_global());
}

#[test]
fn a_change_of_cr4_pge_drops_globals_too() {
    let spaces = Spaces::<X86_64>::new();
    spaces.invalidate(InvalidateScope::Local, InvalidateTarget::Everything);
    assert!(!spaces.keeps_global());
    assert_eq!((spaces.reads(CPU0, 1, 0), spaces.reads(CPU0, 2, 0)), (4, 4));
    assert_eq!(spaces.reads(CPU1, 1, 0), 0, "the other CPU was flushed");
}

/// What INVLPGB of `target` leaves on CPU 1, as for [`Spaces::reads`], and whether globals.
fn after_invlpgb(target: InvalidateTarget) -> ([u64; 4], bool) {
    let spaces = Spaces::on(Bench::<X86_64>::with(|config| config.invlpgb = true));
    spaces.invalidate(InvalidateScope::Broadcast, target);
    let reads = [(1, 0), (1, 1), (2, 0), (1, FAR)].map(|(tag, number)| spaces.reads(CPU1, tag, number));
    (reads, spaces.keeps_global())
}

#[test]
fn invlpgb_reaches_every_cpu_and_drops_what_it_names() {
    let range = PageRange::new(page(0), page(2));
    let of_range = InvalidateTarget::Range { tag: Tag::new(1), range, level: Level::PTE, last_level: true };
    assert_eq!(after_invlpgb(one(1, 0, true)), ([1, 0, 0, 0], true));
    assert_eq!(after_invlpgb(one(1, 0, false)), ([4, 0, 0, 0], true));
    assert_eq!(after_invlpgb(of_range), ([1, 1, 0, 0], true));
    assert_eq!(after_invlpgb(InvalidateTarget::Tag(Tag::new(1))), ([4, 1, 0, 2], true));
    assert!(!after_invlpgb(InvalidateTarget::Everything).1);
}

#[test]
#[should_panic(expected = "no broadcast invalidation on this x86-64 machine")]
fn a_broadcast_without_invlpgb_panics() {
    Spaces::<X86_64>::new().invalidate(InvalidateScope::Broadcast, one(1, 0, true));
}

/// Makes a machine with FEAT_TLBIRANGE, which the default profile does not have.
fn with_ranges() -> Bench<Aarch64> {
    let text = include_str!("../profiles/neoverse-n1.toml").replacen("present = false", "present = true", 1);
    let profile = pagewright_sim::Profile::parse("ranges", &text).expect("a profile");
    Bench::with(|config| config.profile = profile)
}

#[test]
fn a_range_of_any_length_drops_exactly_its_pages() {
    for (start, end) in [(3, 9), (3, 4), (5, 5), (10, 500)] {
        let bench = with_ranges();
        let root = bench.frame(Level::PTE);
        bench.switch(CPU1, root, 1);
        let pages = [2, 3, 8, 9, 499, 500];
        for number in pages {
            bench.map(root, Level::PTE, page(number), Rights::RW, LeafFlags::empty());
            bench.sim.access(CPU1, page(number), Access::Read, 1).expect("mapped");
            bench.put(root, Level::PTE, page(number), Pte::EMPTY);
        }
        bench.sim.run_on(CPU0, || {
            let range = PageRange::new(page(start), page(end));
            let target = InvalidateTarget::Range { tag: Tag::new(1), range, level: Level::PTE, last_level: true };
            bench.sim.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
            bench.sim.complete();
        });
        for number in pages {
            let stale = bench.sim.access(CPU1, page(number), Access::Read, 1).is_ok();
            assert_eq!(stale, !(start..end).contains(&number), "page {number} of {start}..{end}");
        }
    }
}

#[test]
#[should_panic(expected = "no FEAT_TLBIRANGE")]
fn a_range_tlbi_without_feat_tlbirange_panics() {
    let spaces = Spaces::<Aarch64>::new();
    let range = PageRange::new(page(0), page(4));
    let target = InvalidateTarget::Range { tag: Tag::new(1), range, level: Level::PTE, last_level: true };
    spaces.invalidate(InvalidateScope::Broadcast, target);
}

#[test]
#[should_panic(expected = "1 incomplete invalidations")]
fn an_operation_that_ends_before_its_barrier_panics() {
    let spaces = Spaces::<Aarch64>::new();
    let op = Invalidate { scope: InvalidateScope::Broadcast, target: one(1, 0, true) };
    spaces.bench.sim.run_on(CPU0, || spaces.bench.sim.invalidate(op));
}

fn installing_a_root_drops_its_tag_unless_kept<I: Isa>() {
    let spaces = Spaces::<I>::new();
    assert_eq!(spaces.reads(CPU0, 2, 0), 0, "a switch that keeps the tag dropped it");
    spaces.bench.sim.run_on(CPU0, || spaces.bench.sim.install_root(spaces.roots[0], Tag::new(1), false));
    assert_eq!(spaces.reads(CPU0, 1, 0), 4, "a switch that drops the tag kept it");
    assert_eq!(spaces.reads(CPU0, 2, 0), 0, "the other tag was dropped");
    assert!(spaces.keeps_global());
}

on_both! { installing_a_root_drops_its_tag_unless_kept }

#[test]
fn without_tags_every_switch_flushes() {
    let bench = Bench::<X86_64>::with(|config| config.tagged = false);
    let root = bench.frame(Level::PTE);
    bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    for _ in 0..2 {
        bench.switch(CPU0, root, 7);
        bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
    }
    assert_eq!(bench.sim.total(MachineEvent::PageWalks), 2);
    assert_eq!(bench.sim.caps().tags, 1);
}

fn refused_after_upgrade<I: Isa>() -> bool {
    let bench = Bench::<I>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::READ, LeafFlags::empty());
    bench.sim.access(CPU0, page(0), Access::Read, 1).expect("readable");
    bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    let first = bench.sim.access(CPU0, page(0), Access::Write, 1);
    assert!(first.is_err_and(|fault| fault.present), "the stale translation allowed the write");
    bench.sim.access(CPU0, page(0), Access::Write, 1).is_err()
}

#[test]
fn a_fault_drops_the_stale_translation_on_x86_64_and_keeps_it_on_arm64() {
    assert!(!refused_after_upgrade::<X86_64>());
    assert!(refused_after_upgrade::<Aarch64>());
}

#[test]
fn a_last_level_tlbi_leaves_the_walk_cache_entry_of_a_freed_table() {
    let bench = Bench::<Aarch64>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    let beside = bench.map(root, Level::PTE, page(1), Rights::RW, LeafFlags::empty());
    bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
    // The table is unlinked, and only its leaves are invalidated: a bug that the other form of the
    // TLBI avoids.
    bench.put(root, Level::PMD, page(0), Pte::EMPTY);
    bench.sim.run_on(CPU0, || {
        bench.sim.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target: one(1, 0, true) });
        bench.sim.complete();
    });
    let walked = bench.sim.access(CPU0, page(1), Access::Read, 1).expect("the walk cache has the table");
    assert_eq!(walked.pfn, beside);
}

#[test]
fn an_ipi_runs_the_handler_on_each_target_and_relax_waits() {
    let spaces = Rc::new(Spaces::<X86_64>::new());
    let sim = &spaces.bench.sim;
    let ran = Rc::new(RefCell::new(Vec::new()));
    sim.bind_ipi_handler(Rc::new({
        let (sim, ran) = (sim.clone(), Rc::clone(&ran));
        move |cpu| {
            assert_eq!(sim.cpu(), cpu);
            assert!(!sim.may_wait(), "a handler must not wait");
            sim.invalidate(Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::Tag(Tag::new(1)) });
            ran.borrow_mut().push(cpu);
        }
    }));
    let cost = |cost| sim.profile().cost(cost);
    let clocks = [CPU0, CPU1].map(|cpu| sim.clock(cpu));
    let targets: CpuMask = [1, 3].map(CpuId::new).into_iter().collect();
    let sent = sim.run_on(CPU0, || {
        sim.send_ipi(&targets);
        assert!(sim.may_wait());
        let sent = sim.clock(CPU0);
        sim.relax();
        sent
    });
    assert_eq!(*ran.borrow(), targets.iter().collect::<Vec<_>>());
    assert_eq!(sent.since(clocks[0]), cost(Cost::IpiSend) + cost(Cost::IpiSendEach) * 2);
    let handled = cost(Cost::IpiHandler) + cost(Cost::FlushAll);
    assert_eq!(sim.clock(CPU1).since(clocks[1]), handled, "the time of the handler, stolen from the target");
    let waited = cost(Cost::IpiDelivery) + handled + cost(Cost::IpiAck);
    assert_eq!(sim.clock(CPU0).since(sent), waited, "both targets acknowledge in parallel");
    assert_eq!((sim.total(MachineEvent::IpisSent), sim.total(MachineEvent::IpisReceived)), (2, 2));
    let all = sim.clock(CPU0).since(clocks[0]).raw();
    assert_eq!(
        (sim.total(MachineEvent::FlushWaits), sim.total(MachineEvent::FlushWaitTime)),
        (1, all),
        "one wait for both"
    );
    assert_eq!(spaces.reads(CPU1, 1, 0), 4);
    sim.unbind_ipi_handler();
}

#[test]
fn acknowledgements_are_waited_for_at_the_end_of_the_operation() {
    let sim = Bench::<X86_64>::new().sim;
    sim.bind_ipi_handler(Rc::new(|_| {}));
    let sent = sim.run_on(CPU0, || {
        sim.send_ipi(&CpuMask::of(CPU1));
        sim.clock(CPU0)
    });
    let waited = [Cost::IpiDelivery, Cost::IpiHandler, Cost::IpiAck].map(|cost| sim.profile().cost(cost).raw());
    assert_eq!(sim.clock(CPU0).since(sent).raw(), waited.iter().sum());
}

#[test]
#[should_panic(expected = "waits for other CPUs with interrupts disabled")]
fn waiting_with_interrupts_disabled_panics() {
    let sim = Bench::<X86_64>::new().sim;
    sim.run_on(CPU0, || {
        sim.without_interrupts(|| {
            assert!(!sim.may_wait());
            sim.relax();
        });
    });
}

#[test]
#[should_panic(expected = "deadlock in fast mode")]
fn relax_with_nothing_to_wait_for_is_a_deadlock() {
    let bench = Bench::<X86_64>::new();
    bench.sim.run_on(CPU0, || {
        for _ in 0..2000 {
            bench.sim.relax();
        }
    });
}

#[test]
fn the_wait_of_a_dsb_grows_with_the_number_of_cpus() {
    let wait = |cpus| {
        let bench = Bench::<Aarch64>::with(|config| config.cpus = cpus);
        bench.sim.run_on(CPU0, || {
            bench.sim.invalidate(Invalidate {
                scope: InvalidateScope::Broadcast,
                target: InvalidateTarget::Tag(Tag::new(1)),
            });
            let issued = bench.sim.clock(CPU0);
            bench.sim.complete();
            let waited = bench.sim.clock(CPU0).since(issued);
            // A second DSB has nothing to wait for.
            bench.sim.complete();
            assert_eq!(
                (bench.sim.total(MachineEvent::FlushWaits), bench.sim.total(MachineEvent::FlushWaitTime)),
                (1, waited.raw())
            );
            waited
        })
    };
    let each = Bench::<Aarch64>::new().sim.profile().cost(Cost::DsbWaitEach);
    assert_eq!(wait(64).since(wait(4)), each * 60);
}

/// INV-SIM-TLBI-QUEUE.
#[test]
fn a_dsb_costs_more_the_more_tlbis_are_outstanding() {
    let bench = Bench::<Aarch64>::new();
    let sim = &bench.sim;
    let cost = |cost| sim.profile().cost(cost);
    let issue = || {
        let target = InvalidateTarget::Tag(Tag::new(1));
        sim.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target });
    };
    let waited = |tlbis: u32| {
        sim.run_on(CPU0, || {
            (0..tlbis).for_each(|_| issue());
            let issued = sim.clock(CPU0);
            sim.complete();
            sim.clock(CPU0).since(issued)
        })
    };
    // The first TLBI begins to complete when it is issued, and each later one after the one before.
    let queued = |tlbis: u64| cost(Cost::TlbiComplete) * tlbis - cost(Cost::Tlbi) * (tlbis - 1);
    assert!(cost(Cost::TlbiComplete) > cost(Cost::Tlbi), "otherwise nothing queues");
    assert_eq!(waited(32).since(waited(1)), queued(32) - queued(1));
    // Work between the last TLBI and the DSB hides what completes meanwhile.
    sim.run_on(CPU0, || {
        (0..32).for_each(|_| issue());
        sim.charge(CPU0, Cost::SwapOut, 1);
        let before = sim.clock(CPU0);
        sim.complete();
        let others = u64::from(sim.config().cpus) - 1;
        assert_eq!(sim.clock(CPU0).since(before), cost(Cost::DsbWait) + cost(Cost::DsbWaitEach) * others);
    });
}

#[test]
fn dropped_entries_are_counted_on_their_cpu() {
    for isa in IsaKind::ALL {
        let lost = match isa {
            IsaKind::X86_64 => lost_to_a_page_flush::<X86_64>(),
            IsaKind::Aarch64 => lost_to_a_page_flush::<Aarch64>(),
        };
        assert_eq!(lost, 2, "{isa}: one entry in each level of TLB");
    }
}

fn lost_to_a_page_flush<I: Isa>() -> u64 {
    let spaces = Spaces::<I>::new();
    spaces.invalidate(InvalidateScope::Local, one(1, 0, true));
    assert_eq!(spaces.bench.sim.count(CPU1, MachineEvent::EntriesLost), 0);
    assert_eq!(spaces.bench.sim.count(CPU0, MachineEvent::StlbFlushes), 1);
    spaces.bench.sim.count(CPU0, MachineEvent::EntriesLost)
}

#[test]
fn the_upper_half_faults_on_arm64() {
    let spaces = Spaces::<Aarch64>::new();
    let kernel = VirtAddr::new(page(0).raw() | 0xffff << 48);
    assert!(spaces.bench.sim.access(CPU0, kernel, Access::Read, 1).is_err(), "TTBR1_EL1 has no tables here");
}

/// An offline CPU is out of reach, and comes online with the contents of its TLBs.
#[test]
fn nothing_reaches_an_offline_cpu() {
    let spaces = Spaces::<Aarch64>::new();
    spaces.bench.sim.unplug(CPU1);
    assert_eq!(spaces.bench.sim.online().count(), 3);
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 0, true));
    spaces.bench.sim.plug(CPU1);
    assert_eq!((spaces.reads(CPU0, 1, 0), spaces.reads(CPU1, 1, 0)), (1, 0));
    let spaces = Spaces::<X86_64>::new();
    let taken = Rc::new(RefCell::new(Vec::new()));
    let takes = Rc::clone(&taken);
    spaces.bench.sim.bind_ipi_handler(Rc::new(move |cpu| takes.borrow_mut().push(cpu)));
    let both: CpuMask = [CPU1, CpuId::new(2)].into_iter().collect();
    spaces.bench.sim.unplug(CPU1);
    spaces.bench.sim.run_on(CPU0, || spaces.bench.sim.send_ipi(&both));
    assert_eq!(*taken.borrow(), [CpuId::new(2)]);
}

/// INVLPG and a TLBI of the installed tag do not flush the tag of user mode.
#[test]
fn with_isolation_programs_run_under_their_own_tag() {
    fn spared<I: Isa>(scope: InvalidateScope, user: u16) {
        let bench = Bench::<I>::with(|config| config.isolated = true);
        let root = bench.frame(Level::PTE);
        bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
        bench.switch(CPU0, root, 2);
        assert_eq!(bench.sim.caps().user_tag(Tag::new(2)), Some(Tag::new(user)));
        let reads_after = |tag: u16| {
            bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
            bench.sim.run_on(CPU0, || {
                bench.sim.invalidate(Invalidate { scope, target: one(tag, 0, true) });
                bench.sim.complete();
            });
            let before = bench.sim.count(CPU0, MachineEvent::WalkReads);
            bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
            bench.sim.count(CPU0, MachineEvent::WalkReads) - before
        };
        assert_eq!(reads_after(2), 0);
        assert!(reads_after(user) > 0);
        bench.sim.run_on(CPU0, || bench.sim.install_root(root, Tag::new(2), false));
        let before = bench.sim.count(CPU0, MachineEvent::WalkReads);
        bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
        assert!(bench.sim.count(CPU0, MachineEvent::WalkReads) > before, "the user tag was not flushed with the root");
    }
    spared::<X86_64>(InvalidateScope::Local, 1 << 11 | 2);
    spared::<Aarch64>(InvalidateScope::Broadcast, 3);
}
