//! Invalidations remove exactly what the manuals say, walk caches included, on the CPUs that they
//! reach (INV-SIM-INVALIDATE).
//!
//! A test sees a walk cache by what a walk costs: as many reads as there are levels that it did not
//! remember.

mod common;

use common::{Bench, CPU0, page};
use pagewright_arch::{Aarch64, Effects, Invalidate, InvalidateScope, InvalidateTarget, Isa, LeafFlags, Pte, X86_64};
use pagewright_sim::{Cost, MachineEvent};
use pagewright_types::{Access, CpuId, CpuMask, IsaKind, Level, PageRange, Pfn, Rights, Tag, VirtAddr};
use std::cell::RefCell;
use std::rc::Rc;

const CPU1: CpuId = CpuId::new(1);
const FAR: u64 = 600;
const BESIDE_FAR: u64 = 601;

/// Two address spaces on CPU 0 and 1, each with pages 0, 1 and [`FAR`] (under another PTE table)
/// and a global page 2, all of them cached on both CPUs, and [`BESIDE_FAR`], of which only the way
/// to it is. CPU 0 ends under tag 1.
struct Spaces<I: Isa> {
    bench: Bench<I>,
    roots: [Pfn; 2],
}

impl<I: Isa> Spaces<I> {
    fn new() -> Self {
        let bench = Bench::<I>::new();
        let roots = [bench.frame(Level::PTE), bench.frame(Level::PTE)];
        for root in roots {
            for number in [0, 1, FAR, BESIDE_FAR] {
                bench.map(root, Level::PTE, page(number), Rights::RW, LeafFlags::empty());
            }
        }
        // One root alone maps the global page: under the other it is reachable by the TLB only.
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

    /// Table entries read by an access of `cpu` to page `number` under `tag`; 0 for a TLB hit.
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

    /// Whether page 2 is still in CPU 0's TLB: asked under the space that does not map it.
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
    assert_eq!(spaces.reads(CPU0, 1, BESIDE_FAR), 4, "from the root: every walk cache of the tag is gone");
    assert_eq!(spaces.reads(CPU0, 1, 0), 2, "the far page filled those above the PTE table");
    assert_eq!(spaces.reads(CPU0, 1, 1), 0, "the neighbour stays");
    assert_eq!(spaces.reads(CPU0, 2, 0), 0, "so does the other tag");
    assert_eq!(spaces.reads(CPU1, 1, 0), 0, "and the other CPU");
    assert!(spaces.keeps_global());
    spaces.enter(CPU0, 1);
    spaces.invalidate(InvalidateScope::Local, one(1, 2, true));
    assert!(!spaces.keeps_global(), "INVLPG drops a global page under any tag");
}

#[test]
fn invpcid_of_another_tag_spares_globals_and_other_walks() {
    let spaces = Spaces::<X86_64>::new();
    spaces.invalidate(InvalidateScope::Local, one(2, 0, true));
    spaces.invalidate(InvalidateScope::Local, one(2, 2, true));
    assert!(spaces.keeps_global());
    assert_eq!(spaces.reads(CPU0, 2, BESIDE_FAR), 1, "another way is still known");
    assert_eq!(spaces.reads(CPU0, 2, 0), 4, "the walk caches on the way to the page are gone");
    assert_eq!(spaces.reads(CPU0, 1, 0), 0);
    spaces.invalidate(InvalidateScope::Local, one(1, FAR, true));
    assert_eq!(spaces.reads(CPU0, 2, FAR), 0, "the far page stays");
}

#[test]
fn invpcid_of_a_tag_and_of_all_tags_spare_globals() {
    let spaces = Spaces::<X86_64>::new();
    spaces.invalidate(InvalidateScope::Local, InvalidateTarget::Tag(Tag::new(2)));
    assert!(spaces.keeps_global());
    assert_eq!(spaces.reads(CPU0, 1, 0), 0);
    assert_eq!((spaces.reads(CPU0, 2, 0), spaces.reads(CPU0, 2, 1)), (4, 1), "then the walk cache knows the table");
    spaces.invalidate(InvalidateScope::Local, InvalidateTarget::AllTags);
    assert!(spaces.keeps_global());
    assert_eq!((spaces.reads(CPU0, 1, 0), spaces.reads(CPU0, 2, 0)), (4, 4));
    assert_eq!(spaces.reads(CPU1, 1, 0), 0, "local");
}

#[test]
fn vale1is_leaves_walk_caches_and_reaches_every_cpu() {
    let spaces = Spaces::<Aarch64>::new();
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 0, true));
    for cpu in [CPU0, CPU1] {
        assert_eq!(spaces.reads(cpu, 1, 0), 1, "the last level alone");
        assert_eq!(spaces.reads(cpu, 1, 1), 0);
        assert_eq!(spaces.reads(cpu, 2, 0), 0);
    }
    spaces.invalidate(InvalidateScope::Local, one(1, 0, true));
    assert_eq!((spaces.reads(CPU0, 1, 0), spaces.reads(CPU1, 1, 0)), (1, 0), "without IS, this CPU alone");
}

#[test]
fn vae1is_drops_the_walk_caches_on_the_way() {
    let spaces = Spaces::<Aarch64>::new();
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 0, false));
    assert_eq!(spaces.reads(CPU1, 1, 0), 4);
    assert!(spaces.keeps_global());
    spaces.invalidate(InvalidateScope::Broadcast, one(1, 2, false));
    assert!(!spaces.keeps_global(), "a global entry matches any ASID");
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

/// A machine with FEAT_TLBIRANGE: the default one's profile does not have it.
fn with_ranges() -> Bench<Aarch64> {
    let text = include_str!("../profiles/neoverse-n1.toml").replacen("present = false", "present = true", 1);
    let profile = pagewright_sim::Profile::parse("ranges", &text).expect("a profile");
    Bench::with(|config| config.profile = profile)
}

#[test]
fn a_range_drops_its_pages_and_no_others_however_long_it_is() {
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
fn a_range_on_a_machine_without_ranges_is_undefined() {
    let spaces = Spaces::<Aarch64>::new();
    let range = PageRange::new(page(0), page(4));
    let target = InvalidateTarget::Range { tag: Tag::new(1), range, level: Level::PTE, last_level: true };
    spaces.invalidate(InvalidateScope::Broadcast, target);
}

#[test]
#[should_panic(expected = "1 invalidations not completed")]
fn an_operation_may_not_end_before_its_barrier() {
    let spaces = Spaces::<Aarch64>::new();
    let op = Invalidate { scope: InvalidateScope::Broadcast, target: one(1, 0, true) };
    spaces.bench.sim.run_on(CPU0, || spaces.bench.sim.invalidate(op));
}

fn installing_a_root<I: Isa>() {
    let spaces = Spaces::<I>::new();
    assert_eq!(spaces.reads(CPU0, 2, 0), 0, "kept");
    spaces.bench.sim.run_on(CPU0, || spaces.bench.sim.install_root(spaces.roots[0], Tag::new(1), false));
    assert_eq!(spaces.reads(CPU0, 1, 0), 4, "dropped");
    assert_eq!(spaces.reads(CPU0, 2, 0), 0, "the other tag stays");
    assert!(spaces.keeps_global());
}

#[test]
fn installing_a_root_drops_its_tag_unless_told_to_keep() {
    installing_a_root::<X86_64>();
    installing_a_root::<Aarch64>();
}

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
    assert!(first.is_err_and(|fault| fault.present), "the stale translation refuses");
    bench.sim.access(CPU0, page(0), Access::Write, 1).is_err()
}

#[test]
fn a_fault_drops_the_stale_translation_on_x86_64_and_keeps_it_on_arm64() {
    assert!(!refused_after_upgrade::<X86_64>());
    assert!(refused_after_upgrade::<Aarch64>());
}

#[test]
fn a_freed_table_is_still_walked_from_the_walk_cache() {
    let bench = Bench::<Aarch64>::new();
    let root = bench.frame(Level::PTE);
    bench.switch(CPU0, root, 1);
    bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
    let beside = bench.map(root, Level::PTE, page(1), Rights::RW, LeafFlags::empty());
    bench.sim.access(CPU0, page(0), Access::Read, 1).expect("mapped");
    // The table goes, and only its leaves are invalidated: the mistake that a non-leaf invalidation
    // is there for.
    bench.put(root, Level::PMD, page(0), Pte::EMPTY);
    bench.sim.run_on(CPU0, || {
        bench.sim.invalidate(Invalidate { scope: InvalidateScope::Broadcast, target: one(1, 0, true) });
        bench.sim.complete();
    });
    let walked = bench.sim.access(CPU0, page(1), Access::Read, 1).expect("by the walk cache");
    assert_eq!(walked.pfn, beside);
}

#[test]
fn a_kick_runs_the_handler_on_each_target_and_the_sender_waits_in_relax() {
    let spaces = Rc::new(Spaces::<X86_64>::new());
    let sim = &spaces.bench.sim;
    let ran = Rc::new(RefCell::new(Vec::new()));
    sim.bind_ipi_handler(Rc::new({
        let (sim, ran) = (sim.clone(), Rc::clone(&ran));
        move |cpu| {
            assert_eq!(sim.cpu(), cpu);
            assert!(!sim.may_wait(), "a handler may not wait");
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
    assert_eq!(sim.clock(CPU1).since(clocks[1]), handled, "stolen from the target");
    let waited = cost(Cost::IpiDelivery) + handled + cost(Cost::IpiAck);
    assert_eq!(sim.clock(CPU0).since(sent), waited, "both answer at once");
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
fn answers_that_nobody_waited_for_are_waited_for_at_the_end() {
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
#[should_panic(expected = "waits for others with interrupts closed")]
fn waiting_with_interrupts_closed_is_a_deadlock() {
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
fn waiting_for_nobody_is_a_deadlock() {
    let bench = Bench::<X86_64>::new();
    bench.sim.run_on(CPU0, || {
        for _ in 0..2000 {
            bench.sim.relax();
        }
    });
}

#[test]
fn the_wait_of_a_barrier_grows_with_the_machine() {
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
            // With nothing outstanding there is nothing to wait for.
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

#[test]
fn entries_lost_are_counted_where_they_were() {
    for isa in IsaKind::ALL {
        let lost = match isa {
            IsaKind::X86_64 => lost_to_a_page_flush::<X86_64>(),
            IsaKind::Aarch64 => lost_to_a_page_flush::<Aarch64>(),
        };
        assert_eq!(lost, 2, "{isa}: one in each level of TLB");
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
fn the_upper_half_is_no_address_on_arm64() {
    let spaces = Spaces::<Aarch64>::new();
    let kernel = VirtAddr::new(page(0).raw() | 0xffff << 48);
    assert!(spaces.bench.sim.access(CPU0, kernel, Access::Read, 1).is_err(), "TTBR1_EL1 has no tables here");
}

/// A CPU that has gone is out of reach, and comes back with what it had.
#[test]
fn nothing_reaches_a_cpu_that_has_gone() {
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

/// Where user mode has a tag of its own, INVLPG and a TLBI of the tag that is installed spare what
/// programs use.
#[test]
fn with_isolation_programs_run_under_a_tag_of_their_own() {
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
        assert!(bench.sim.count(CPU0, MachineEvent::WalkReads) > before, "both tags go with the root");
    }
    spared::<X86_64>(InvalidateScope::Local, 1 << 11 | 2);
    spared::<Aarch64>(InvalidateScope::Broadcast, 3);
}
