//! Litmus tests of the machine that explores: an outcome that the architecture allows is reached, one that it forbids is not.
//!
//! Each test is a shape: a few lines for each CPU, and what CPU 1 (or whoever reads) found. It runs under many seeds, random and PCT, and
//! the set of outcomes seen must be exactly the set that the manual allows (INV-SIM-LITMUS). The table of shapes is `docs/litmus.md`.

mod common;

use common::{Bench, CPU0, page};
use pagewright_arch::{Aarch64, Effects, Invalidate, Isa, Leaf, LeafFlags, Pte, Reach, Slot, Target, X86_64};
use pagewright_sim::Sim;
use pagewright_sim::explore::{self, Outcome, Program, Rates, Settings, Strategy};
use pagewright_types::{Access, CpuId, CpuMask, Level, Pfn, Rights, Tag};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

const CPU1: CpuId = CpuId::new(1);
const SEEDS: u64 = 1000;

/// What an access found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    /// The frame mapped at first.
    Old,
    /// The frame mapped later.
    New,
    Fault,
}
use Seen::{Fault, New, Old};

/// One run's machine: page 0 mapped to `old` by `slot`, under tag 1 on all CPUs; a flag that programs may set and read, coherent at once.
struct Stage<I: Isa> {
    sim: Sim<I>,
    root: Pfn,
    slot: Slot,
    table_slot: Slot,
    old: Pfn,
    new: Pfn,
    flag: Cell<bool>,
    found: RefCell<Vec<Seen>>,
}

impl<I: Isa> Stage<I> {
    fn new(cpus: u16) -> Rc<Self> {
        let bench = Bench::<I>::with(|config| {
            config.cpus = cpus;
            config.nodes[0].bytes = 1 << 20;
        });
        let root = bench.frame(Level::PTE);
        let old = bench.map(root, Level::PTE, page(0), Rights::RW, LeafFlags::empty());
        let new = bench.frame(Level::PTE);
        let slot = bench.slot(root, Level::PTE, page(0));
        let table_slot = bench.slot(root, Level::PMD, page(0));
        (0..cpus).for_each(|cpu| bench.switch(CpuId::new(cpu), root, 1));
        let (flag, found) = (Cell::new(false), RefCell::new(Vec::new()));
        Rc::new(Self { sim: bench.sim, root, slot, table_slot, old, new, flag, found })
    }

    fn leaf(pfn: Pfn, rights: Rights) -> Pte {
        I::leaf(Level::PTE, Leaf { pfn, rights, flags: LeafFlags::USER })
    }

    fn look(&self, cpu: CpuId, access: Access) -> Seen {
        match self.sim.access(cpu, page(0), access, 1) {
            Ok(found) if found.pfn == self.old => Old,
            Ok(found) if found.pfn == self.new => New,
            Ok(found) => panic!("a frame that nobody mapped: {}", found.pfn),
            Err(_) => Fault,
        }
    }

    fn read(&self, cpu: CpuId) {
        let seen = self.look(cpu, Access::Read);
        self.found.borrow_mut().push(seen);
    }

    fn page(last_level: bool) -> Target {
        Target::Page { tag: Tag::new(1), va: page(0), level: Level::PTE, last_level }
    }

    fn flush(&self, reach: Reach, target: Target) {
        self.sim.invalidate(Invalidate { reach, target });
    }

    /// The entry of the next page, where nothing is mapped at first.
    fn next_slot(&self) -> Slot {
        Slot { index: self.slot.index + 1, ..self.slot }
    }

    fn read_next(&self, cpu: CpuId) {
        let seen = self.sim.access(cpu, page(1), Access::Read, 1);
        self.found.borrow_mut().push(if seen.is_ok() { New } else { Fault });
    }

    fn store_by(&self, cpu: CpuId) {
        let seen = self.look(cpu, Access::Write);
        self.found.borrow_mut().push(seen);
    }

    /// Sets the flag; a plain coherent store.
    fn signal(&self) {
        self.flag.set(true);
    }

    /// Waits for the flag.
    fn await_signal(&self) {
        while !self.flag.get() {
            self.sim.relax();
        }
    }
}

type Line<I> = fn(&Stage<I>);

/// All outcomes of a shape: the sequence of what was read, over many schedules.
fn outcomes<I: Isa>(lines: &[Line<I>]) -> BTreeSet<Vec<Seen>> {
    let mut all = BTreeSet::new();
    for seed in 0..SEEDS {
        let rates = Rates { speculate: 150, walk: 400, evict: 300, ..Rates::default() };
        let strategy = match seed % 2 {
            0 => Strategy::Random { seed, rates },
            _ => Strategy::Pct { seed, depth: 3, length: 40, rates },
        };
        let stage = Stage::<I>::new(lines.len().max(2) as u16);
        let program = |line: &Line<I>| -> Program {
            let (stage, line) = (Rc::clone(&stage), *line);
            Box::new(move || line(&stage))
        };
        let settings = Settings { max_wait: 1000, ..Settings::default() };
        let programs = lines.iter().map(program).collect();
        let report = explore::run(&stage.sim, &settings, programs, &mut *strategy.chooser());
        assert_eq!(report.outcome, Outcome::Completed, "seed {seed}");
        all.insert(stage.found.borrow().clone());
    }
    all
}

fn exactly<I: Isa>(lines: &[Line<I>], wanted: &[&[Seen]]) {
    let wanted: BTreeSet<Vec<Seen>> = wanted.iter().map(|outcome| outcome.to_vec()).collect();
    assert_eq!(outcomes(lines), wanted);
}

/// CPU 0 takes the entry away while CPU 1 stores through it. Either the store faults or the entry that was taken says dirty.
fn dirty_bits_survive_an_exchange<I: Isa>() {
    let shape: [Line<I>; 2] = [
        |on| {
            let taken = on.sim.swap(on.slot, Pte::EMPTY);
            let dirty = I::touched(taken, true) == taken;
            on.found.borrow_mut().push(if dirty { New } else { Fault });
        },
        |on| {
            let seen = on.look(CPU1, Access::Write);
            on.found.borrow_mut().push(seen);
        },
    ];
    // New: taken dirty; Old: the store was made. A fault of CPU 1 and a clean entry are both Fault.
    let seen = outcomes(&shape);
    let lost = |run: &Vec<Seen>| run.contains(&Old) && !run.contains(&New);
    assert!(!seen.iter().any(lost), "stored, and clean: {seen:?}");
    assert!(seen.contains(&vec![Fault, Fault]) && seen.len() >= 2, "both orders happen: {seen:?}");
}

mod arm64 {
    use super::*;

    type On = Stage<Aarch64>;

    /// CPU 1 has the translation; CPU 0 unmaps it as `how` says and signals; then CPU 1 reads.
    fn unmapped(how: Line<Aarch64>) -> BTreeSet<Vec<Seen>> {
        thread_local!(static HOW: Cell<Option<Line<Aarch64>>> = const { Cell::new(None) });
        HOW.set(Some(how));
        outcomes::<Aarch64>(&[
            |on| {
                on.await_ready();
                HOW.get().expect("set above")(on);
                on.signal();
            },
            |on| {
                on.look(CPU1, Access::Read);
                on.ready();
                on.await_signal();
                on.read(CPU1);
            },
        ])
    }

    impl Stage<Aarch64> {
        /// Nothing is mapped, and nobody remembers otherwise.
        fn unmap_at_rest(&self) {
            self.sim.store(self.slot, Pte::EMPTY);
            self.sim.publish();
            self.flush(Reach::Broadcast, Self::page(true));
            self.sim.complete();
        }

        fn ready(&self) {
            self.found.borrow_mut().push(Old);
        }

        fn await_ready(&self) {
            while self.found.borrow().is_empty() {
                self.sim.relax();
            }
        }
    }

    fn set(outcomes: &[&[Seen]]) -> BTreeSet<Vec<Seen>> {
        outcomes.iter().map(|outcome| outcome.to_vec()).collect()
    }

    #[test]
    fn unmap_publish_tlbi_dsb_leaves_nothing() {
        let seen = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Broadcast, On::page(true));
            on.sim.complete();
        });
        assert_eq!(seen, set(&[&[Old, Fault]]));
    }

    #[test]
    fn the_whole_tag_does_as_well() {
        let tag = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Broadcast, Target::Tag(Tag::new(1)));
            on.sim.complete();
        });
        assert_eq!(tag, set(&[&[Old, Fault]]));
    }

    #[test]
    fn without_publish_a_walk_brings_the_old_entry_back() {
        let seen = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.flush(Reach::Broadcast, On::page(true));
            on.sim.complete();
        });
        assert_eq!(seen, set(&[&[Old, Old], &[Old, Fault]]));
    }

    #[test]
    fn an_exchange_needs_publish_as_a_store_does() {
        let late = unmapped(|on| {
            on.sim.swap(on.slot, Pte::EMPTY);
            on.flush(Reach::Broadcast, On::page(true));
            on.sim.complete();
        });
        let published = unmapped(|on| {
            on.sim.swap(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Broadcast, On::page(true));
            on.sim.complete();
        });
        assert_eq!((late, published), (set(&[&[Old, Old], &[Old, Fault]]), set(&[&[Old, Fault]])));
    }

    #[test]
    fn an_exchange_never_loses_a_dirty_bit() {
        super::dirty_bits_survive_an_exchange::<Aarch64>();
    }

    #[test]
    fn without_dsb_nothing_is_promised() {
        let seen = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Broadcast, On::page(true));
        });
        assert_eq!(seen, set(&[&[Old, Old], &[Old, Fault]]));
    }

    #[test]
    fn without_tlbi_the_translation_may_stay() {
        let seen = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.sim.complete();
        });
        assert_eq!(seen, set(&[&[Old, Old], &[Old, Fault]]));
    }

    #[test]
    fn a_local_tlbi_reaches_nobody_else() {
        let seen = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Local, On::page(true));
        });
        assert_eq!(seen, set(&[&[Old, Old], &[Old, Fault]]));
    }

    #[test]
    fn a_tlbi_before_the_store_is_for_nothing() {
        let seen = unmapped(|on| {
            on.flush(Reach::Broadcast, On::page(true));
            on.sim.complete();
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
        });
        assert_eq!(seen, set(&[&[Old, Old], &[Old, Fault]]));
    }

    #[test]
    fn a_dsb_on_another_cpu_completes_nothing() {
        let shape: [Line<Aarch64>; 3] = [
            |on| {
                on.await_ready();
                on.sim.store(on.slot, Pte::EMPTY);
                on.sim.publish();
                on.flush(Reach::Broadcast, On::page(true));
                on.signal();
            },
            |on| {
                on.look(CPU1, Access::Read);
                on.ready();
                while on.found.borrow().len() < 2 {
                    on.sim.relax();
                }
                on.read(CPU1);
            },
            |on| {
                on.await_signal();
                on.sim.complete();
                on.found.borrow_mut().push(Old);
            },
        ];
        exactly(&shape, &[&[Old, Old, Old], &[Old, Old, Fault]]);
    }

    #[test]
    fn break_before_make_shows_the_old_or_a_fault_then_only_the_new() {
        let shape: [Line<Aarch64>; 2] = [
            |on| {
                on.sim.store(on.slot, Pte::EMPTY);
                on.sim.publish();
                on.flush(Reach::Broadcast, On::page(true));
                on.sim.complete();
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.publish();
            },
            |on| {
                on.read(CPU1);
                on.read(CPU1);
                on.read(CPU1);
            },
        ];
        let seen = outcomes(&shape);
        for run in &seen {
            // A walk that read the old entry may fill after another has faulted, but not past the DSB, and so not after the new one.
            assert!(run.windows(2).all(|pair| pair[0] != New || pair[1] == New), "the new one went away: {run:?}");
        }
        let broken = seen.iter().any(|run| run.contains(&Fault) && run.ends_with(&[New]));
        assert!(broken && seen.contains(&vec![Old, Old, Old]), "{seen:?}");
    }

    #[test]
    fn without_break_either_translation_may_answer_again_and_again() {
        let shape: [Line<Aarch64>; 2] = [
            |on| {
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.publish();
            },
            |on| {
                for _ in 0..4 {
                    on.read(CPU1);
                }
            },
        ];
        let seen = outcomes(&shape);
        let back = |run: &Vec<Seen>| run.windows(2).any(|pair| pair == [New, Old]);
        assert!(seen.iter().any(back), "the old one comes back after the new one: {seen:?}");
        assert!(!seen.iter().flatten().any(|seen| *seen == Fault));
    }

    #[test]
    fn break_before_make_ends_a_conflict() {
        let seen = unmapped(|on| {
            on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
            on.sim.publish();
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Broadcast, On::page(true));
            on.sim.complete();
        });
        assert_eq!(seen, set(&[&[Old, Fault]]));
    }

    #[test]
    fn mapping_what_was_not_mapped_needs_no_tlbi() {
        let shape: [Line<Aarch64>; 2] = [
            |on| {
                on.sim.store(on.slot, Pte::EMPTY);
                on.sim.publish();
                on.flush(Reach::Broadcast, On::page(true));
                on.sim.complete();
                // A fault is not cached (Arm ARM D8.16.1).
                on.look(CPU0, Access::Read);
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.publish();
                on.signal();
            },
            |on| {
                on.look(CPU1, Access::Read);
                on.await_signal();
                on.read(CPU1);
            },
        ];
        exactly(&shape, &[&[New]]);
    }

    #[test]
    fn a_new_entry_may_be_seen_late_without_publish() {
        let shape: [Line<Aarch64>; 2] = [
            |on| {
                on.sim.store(on.slot, Pte::EMPTY);
                on.sim.publish();
                on.flush(Reach::Broadcast, On::page(true));
                on.sim.complete();
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.signal();
            },
            |on| {
                on.await_signal();
                on.read(CPU1);
            },
        ];
        exactly(&shape, &[&[New], &[Fault]]);
    }

    #[test]
    fn two_stores_without_publish_reach_walkers_in_any_order() {
        // CPU 0 fills a table's entry and then hooks the table; the walker may see the hook first.
        let shape: [Line<Aarch64>; 2] = [
            |on| {
                let table = on.sim.load(on.table_slot);
                on.sim.store(on.table_slot, Pte::EMPTY);
                on.sim.store(on.slot, Pte::EMPTY);
                on.sim.publish();
                on.flush(Reach::Broadcast, On::page(false));
                on.sim.complete();
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.store(on.table_slot, table);
                on.signal();
            },
            |on| {
                on.await_signal();
                // Whether the walker saw the hook shows in what it remembers of the way.
                let seen = on.look(CPU1, Access::Read);
                let before = on.sim.count(CPU1, pagewright_sim::Event::WalkReads);
                on.look(CPU1, Access::Read);
                let reads = on.sim.count(CPU1, pagewright_sim::Event::WalkReads) - before;
                on.found.borrow_mut().push(if seen == Fault && reads == 1 { Fault } else { New });
            },
        ];
        assert!(outcomes(&shape).contains(&vec![Fault]), "the table's hook is seen before its entry");
    }

    #[test]
    fn a_leaf_only_tlbi_leaves_the_way_to_a_freed_table() {
        let unhook = |last_level| -> Line<Aarch64> {
            if last_level {
                |on| {
                    on.sim.store(on.table_slot, Pte::EMPTY);
                    on.sim.publish();
                    on.flush(Reach::Broadcast, On::page(true));
                    on.sim.complete();
                }
            } else {
                |on| {
                    on.sim.store(on.table_slot, Pte::EMPTY);
                    on.sim.publish();
                    on.flush(Reach::Broadcast, On::page(false));
                    on.sim.complete();
                }
            }
        };
        assert_eq!(unmapped(unhook(true)), set(&[&[Old, Old], &[Old, Fault]]), "walked on from the walk cache");
        assert_eq!(unmapped(unhook(false)), set(&[&[Old, Fault]]));
    }

    #[test]
    fn every_tag_does_as_well_and_another_tag_does_not() {
        let every = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            on.flush(Reach::Broadcast, Target::AllTags);
            on.sim.complete();
        });
        let another = unmapped(|on| {
            on.sim.store(on.slot, Pte::EMPTY);
            on.sim.publish();
            let target = Target::Page { tag: Tag::new(2), va: page(0), level: Level::PTE, last_level: true };
            on.flush(Reach::Broadcast, target);
            on.sim.complete();
        });
        assert_eq!((every, another), (set(&[&[Old, Fault]]), set(&[&[Old, Old], &[Old, Fault]])));
    }

    #[test]
    fn a_cpu_may_miss_its_own_entry_until_it_publishes() {
        let late: [Line<Aarch64>; 1] = [|on| {
            on.sim.store(on.next_slot(), On::leaf(on.new, Rights::RW));
            on.read_next(CPU0);
        }];
        let published: [Line<Aarch64>; 1] = [|on| {
            on.sim.store(on.next_slot(), On::leaf(on.new, Rights::RW));
            on.sim.publish();
            on.read_next(CPU0);
        }];
        exactly(&late, &[&[New], &[Fault]]);
        exactly(&published, &[&[New]]);
    }

    #[test]
    fn two_entries_are_seen_in_order_if_published_in_between() {
        let reads: Line<Aarch64> = |on| {
            on.read_next(CPU1);
            on.read(CPU1);
        };
        let late: [Line<Aarch64>; 2] = [
            |on| {
                on.unmap_at_rest();
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.store(on.next_slot(), On::leaf(on.new, Rights::RW));
            },
            reads,
        ];
        let published: [Line<Aarch64>; 2] = [
            |on| {
                on.unmap_at_rest();
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.publish();
                on.sim.store(on.next_slot(), On::leaf(on.new, Rights::RW));
                on.sim.publish();
            },
            reads,
        ];
        let (late, published) = (outcomes(&late), outcomes(&published));
        let torn = vec![New, Fault];
        assert!(late.contains(&torn), "{late:?}");
        assert!(!published.contains(&torn) && published.contains(&vec![New, New]), "{published:?}");
    }

    #[test]
    fn a_right_that_is_taken_stays_until_it_is_flushed() {
        let lowered = |flushed: bool| -> BTreeSet<Vec<Seen>> {
            let lowers: Line<Aarch64> = if flushed {
                |on| {
                    on.sim.store(on.slot, On::leaf(on.old, Rights::READ));
                    on.sim.publish();
                    on.flush(Reach::Broadcast, On::page(true));
                    on.sim.complete();
                    on.signal();
                }
            } else {
                |on| {
                    on.sim.store(on.slot, On::leaf(on.old, Rights::READ));
                    on.sim.publish();
                    on.signal();
                }
            };
            outcomes(&[lowers, |on| {
                on.look(CPU1, Access::Write);
                on.await_signal();
                on.store_by(CPU1);
            }])
        };
        assert_eq!((lowered(true), lowered(false)), (set(&[&[Fault]]), set(&[&[Old], &[Fault]])));
    }

    #[test]
    fn a_right_that_is_given_may_be_refused_until_it_is_flushed() {
        let shape: [Line<Aarch64>; 2] = [
            |on| {
                on.await_ready();
                on.sim.store(on.slot, On::leaf(on.old, Rights::RW));
                on.sim.publish();
                on.signal();
            },
            |on| {
                on.sim.store(on.slot, On::leaf(on.old, Rights::READ));
                on.sim.publish();
                on.flush(Reach::Local, On::page(true));
                on.look(CPU1, Access::Read);
                on.ready();
                on.await_signal();
                on.store_by(CPU1);
                on.store_by(CPU1);
                on.flush(Reach::Local, On::page(true));
                on.store_by(CPU1);
            },
        ];
        let seen = outcomes(&shape);
        assert!(seen.iter().all(|run| run.ends_with(&[Old])), "refused after a flush of its own: {seen:?}");
        let kept = vec![Old, Fault, Fault, Old];
        assert!(seen.contains(&kept) && seen.contains(&vec![Old, Old, Old, Old]), "{seen:?}");
    }
}

mod x86_64 {
    use super::*;

    type On = Stage<X86_64>;

    #[test]
    fn without_invlpg_the_translation_may_stay() {
        let shape: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Read);
            on.sim.swap(on.slot, Pte::EMPTY);
            on.read(CPU0);
        }];
        exactly(&shape, &[&[Old], &[Fault]]);
    }

    #[test]
    fn invlpg_removes_it_and_what_was_in_flight() {
        let shape: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Read);
            on.sim.store(on.slot, Pte::EMPTY);
            on.flush(Reach::Local, On::page(true));
            on.read(CPU0);
        }];
        exactly(&shape, &[&[Fault]]);
    }

    #[test]
    fn invlpg_removes_nothing_elsewhere() {
        let shape: [Line<X86_64>; 2] = [
            |on| {
                on.await_signal();
                on.sim.store(on.slot, Pte::EMPTY);
                on.flush(Reach::Local, On::page(true));
                on.found.borrow_mut().push(Old);
            },
            |on| {
                on.look(CPU1, Access::Read);
                on.signal();
                while on.found.borrow().is_empty() {
                    on.sim.relax();
                }
                on.read(CPU1);
            },
        ];
        exactly(&shape, &[&[Old, Old], &[Old, Fault]]);
    }

    #[test]
    fn invlpg_before_the_store_is_for_nothing() {
        let shape: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Read);
            on.flush(Reach::Local, On::page(true));
            on.sim.swap(on.slot, Pte::EMPTY);
            on.read(CPU0);
        }];
        exactly(&shape, &[&[Old], &[Fault]]);
    }

    #[test]
    fn a_new_entry_needs_no_invlpg_but_may_be_seen_late() {
        let shape: [Line<X86_64>; 2] = [
            |on| {
                on.sim.store(on.slot, Pte::EMPTY);
                on.flush(Reach::Local, On::page(true));
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.signal();
            },
            |on| {
                on.await_signal();
                on.sim.invalidate(Invalidate { reach: Reach::Local, target: Target::Tag(Tag::new(1)) });
                on.read(CPU1);
            },
        ];
        exactly(&shape, &[&[New], &[Fault]]);
    }

    #[test]
    fn stores_reach_walkers_in_order() {
        // The mirror of the arm64 shape: who sees the table sees what was stored in it before.
        let shape: [Line<X86_64>; 2] = [
            |on| {
                let table = on.sim.load(on.table_slot);
                on.sim.swap(on.table_slot, Pte::EMPTY);
                on.sim.swap(on.slot, Pte::EMPTY);
                on.sim.run_on(CPU0, || on.sim.kick(&CpuMask::of(CPU1)));
                on.await_signal();
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.store(on.table_slot, table);
                on.found.borrow_mut().push(Old);
            },
            |on| {
                on.flush(Reach::Local, Target::Tag(Tag::new(1)));
                while on.sim.load(on.slot) != Pte::EMPTY {
                    on.sim.relax();
                }
                on.flush(Reach::Local, Target::Tag(Tag::new(1)));
                on.signal();
                while on.found.borrow().is_empty() {
                    on.sim.relax();
                }
                let reads = |on: &On| on.sim.count(CPU1, pagewright_sim::Event::WalkReads);
                let before = reads(on);
                let seen = on.look(CPU1, Access::Read);
                // A fault after more than three reads would be the hook without the entry.
                let hook_seen = reads(on) - before > 3;
                on.found.borrow_mut().push(if seen == Fault && hook_seen { Fault } else { New });
            },
        ];
        let rebound = |shape: &[Line<X86_64>]| {
            let mut all = BTreeSet::new();
            for seed in 0..SEEDS {
                let stage = Stage::<X86_64>::new(2);
                stage.sim.bind_ipi_handler(Rc::new(|_| {}));
                let programs = shape.iter().map(|line| {
                    let (stage, line) = (Rc::clone(&stage), *line);
                    Box::new(move || line(&stage)) as Program
                });
                let rates = Rates { speculate: 0, evict: 0, ..Rates::default() };
                let mut chooser = Strategy::Random { seed, rates }.chooser();
                let settings = Settings { max_wait: 1000, walks: 0, ..Settings::default() };
                let report = explore::run(&stage.sim, &settings, programs.collect(), &mut *chooser);
                assert_eq!(report.outcome, Outcome::Completed, "seed {seed}");
                all.insert(stage.found.borrow().clone());
            }
            all
        };
        assert_eq!(rebound(&shape), BTreeSet::from([vec![Old, New]]));
    }

    #[test]
    fn an_exchange_never_loses_a_dirty_bit() {
        super::dirty_bits_survive_an_exchange::<X86_64>();
    }

    #[test]
    fn a_plain_store_can_lose_a_dirty_bit() {
        let shape: [Line<X86_64>; 2] = [
            |on| {
                let read = on.sim.load(on.slot);
                on.sim.store(on.slot, Pte::EMPTY);
                let dirty = X86_64::touched(read, true) == read;
                on.found.borrow_mut().push(if dirty { New } else { Old });
            },
            |on| {
                let seen = on.look(CPU1, Access::Write);
                on.found.borrow_mut().push(seen);
            },
        ];
        let lost = |run: &Vec<Seen>| run.iter().filter(|seen| **seen == Old).count() == 2;
        assert!(outcomes(&shape).iter().any(lost), "the mistake that an exchange avoids");
    }

    #[test]
    fn a_compare_and_exchange_sees_the_walkers_bits() {
        let shape: [Line<X86_64>; 2] = [
            |on| {
                let read = on.sim.load(on.slot);
                let weaker = On::leaf(on.old, Rights::READ);
                let done = on.sim.compare_exchange(on.slot, read, weaker);
                on.found.borrow_mut().push(match done {
                    Ok(()) => New,
                    Err(_) => Fault,
                });
            },
            |on| {
                on.look(CPU1, Access::Write);
            },
        ];
        exactly(&shape, &[&[New], &[Fault]]);
    }

    #[test]
    fn mov_cr3_drops_the_tag_or_keeps_it() {
        let kept: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Read);
            on.sim.swap(on.slot, Pte::EMPTY);
            on.sim.install_root(on.root, Tag::new(1), true);
            on.read(CPU0);
        }];
        let dropped: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Read);
            on.sim.swap(on.slot, Pte::EMPTY);
            on.sim.install_root(on.root, Tag::new(1), false);
            on.read(CPU0);
        }];
        exactly(&kept, &[&[Old], &[Fault]]);
        exactly(&dropped, &[&[Fault]]);
    }

    #[test]
    fn an_interrupt_comes_late_and_not_into_a_closed_section() {
        let handled: [Line<X86_64>; 2] = [
            |on| on.sim.kick(&CpuMask::of(CPU1)),
            |on| {
                on.sim.without_interrupts(|| {
                    let before = on.flag.get();
                    on.sim.load(on.slot);
                    assert_eq!(on.flag.get(), before, "interrupted in a closed section");
                });
                on.found.borrow_mut().push(if on.flag.get() { New } else { Old });
            },
        ];
        let mut all = BTreeSet::new();
        for seed in 0..SEEDS {
            let stage = Stage::<X86_64>::new(2);
            let interrupted = Rc::downgrade(&stage);
            stage.sim.bind_ipi_handler(Rc::new(move |cpu| {
                assert_eq!(cpu, CPU1);
                interrupted.upgrade().into_iter().for_each(|stage| stage.signal());
            }));
            let programs = handled.iter().map(|line| {
                let (stage, line) = (Rc::clone(&stage), *line);
                Box::new(move || line(&stage)) as Program
            });
            let mut chooser = Strategy::Random { seed, rates: Rates::default() }.chooser();
            let report = explore::run(&stage.sim, &Settings::default(), programs.collect(), &mut *chooser);
            assert_eq!(report.outcome, Outcome::Completed);
            assert!(stage.flag.get(), "every interrupt is taken in the end");
            all.insert(stage.found.borrow().clone());
        }
        assert_eq!(all, BTreeSet::from([vec![Old], vec![New]]));
    }

    #[test]
    fn two_entries_are_seen_in_order() {
        let shape: [Line<X86_64>; 2] = [
            |on| {
                on.sim.swap(on.slot, Pte::EMPTY);
                on.signal();
                while on.flag.get() {
                    on.sim.relax();
                }
                on.sim.store(on.slot, On::leaf(on.new, Rights::RW));
                on.sim.store(on.next_slot(), On::leaf(on.new, Rights::RW));
            },
            |on| {
                on.await_signal();
                on.flush(Reach::Local, Target::Tag(Tag::new(1)));
                on.flag.set(false);
                on.read_next(CPU1);
                on.read(CPU1);
            },
        ];
        let seen = outcomes(&shape);
        assert!(!seen.contains(&vec![New, Fault]), "{seen:?}");
        assert!(seen.contains(&vec![New, New]) && seen.contains(&vec![Fault, Fault]), "{seen:?}");
    }

    #[test]
    fn a_right_that_is_taken_stays_until_it_is_flushed() {
        let kept: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Write);
            on.sim.swap(on.slot, On::leaf(on.old, Rights::READ));
            on.store_by(CPU0);
        }];
        let flushed: [Line<X86_64>; 1] = [|on| {
            on.look(CPU0, Access::Write);
            on.sim.store(on.slot, On::leaf(on.old, Rights::READ));
            on.flush(Reach::Local, On::page(true));
            on.store_by(CPU0);
        }];
        exactly(&kept, &[&[Old], &[Fault]]);
        exactly(&flushed, &[&[Fault]]);
    }

    #[test]
    fn a_right_that_is_given_may_be_refused_until_it_is_flushed() {
        let shape: [Line<X86_64>; 1] = [|on| {
            on.sim.swap(on.slot, On::leaf(on.old, Rights::READ));
            on.flush(Reach::Local, On::page(true));
            on.look(CPU0, Access::Read);
            on.sim.swap(on.slot, On::leaf(on.old, Rights::RW));
            on.store_by(CPU0);
            on.flush(Reach::Local, On::page(true));
            on.store_by(CPU0);
        }];
        exactly(&shape, &[&[Fault, Old], &[Old, Old]]);
    }
}
