//! The x86-64 shapes.
//!
//! Stores reach walkers in order, a CPU invalidates its own TLBs, and an IPI makes another CPU do
//! so.

use super::stage::{CPU1, Fault, Line, New, Old, Outcomes, SEEDS, Seen, Stage, TAG, exactly, outcomes};
use super::stage::{dirty_bits_survive_an_exchange, outcomes_of_variant, read_after, set, write_after};
use crate::common::CPU0;
use pagewright_arch::{Effects, InvalidateScope, InvalidateTarget, Isa, Pte, X86_64};
use pagewright_sim::explore::{ExploreSettings, Rates, ScheduleStrategy};
use pagewright_types::{Access, CpuMask, Rights};
use std::rc::Rc;

impl Stage<X86_64> {
    fn invlpg(&self) {
        self.flush_page(InvalidateScope::Local, true);
    }

    /// INVPCID of type 1, which invalidates a tag.
    fn invpcid(&self) {
        self.flush(InvalidateScope::Local, InvalidateTarget::Tag(TAG));
    }

    /// Changes the rights of page 0 by a locked instruction, which walkers see at once.
    fn exchange_rights(&self, rights: Rights) {
        self.sim.swap(self.slot, Self::leaf(self.old, rights));
    }
}

/// The only CPU caches the translation, executes `steps`, and reads.
fn read_alone_after(steps: &'static [Line<X86_64>]) -> Outcomes {
    let shape: [Line<X86_64>; 1] = [|on| {
        on.look(CPU0, Access::Read);
        on.execute_variant();
        on.read(CPU0);
    }];
    outcomes_of_variant(&shape, steps)
}

#[test]
fn without_invlpg_the_translation_may_stay() {
    assert_eq!(read_alone_after(&[Stage::exchange]), set(&[&[Old], &[Fault]]));
}

#[test]
fn invlpg_removes_the_translation_and_walks_in_flight() {
    assert_eq!(read_alone_after(&[Stage::unmap, Stage::invlpg]), set(&[&[Fault]]));
}

#[test]
fn invlpg_does_not_reach_other_cpus() {
    assert_eq!(read_after(&[Stage::unmap, Stage::invlpg]), set(&[&[Old], &[Fault]]));
}

/// A PDE cache has the R/W flags of the entries above (SDM vol. 3A §4.10.3.2).
///
/// INVLPG drops it, whatever its address (§4.10.4.1).
#[test]
fn a_write_protected_pointer_may_stay_writable_until_invlpg() {
    let shape: [Line<X86_64>; 1] = [|on| {
        on.look(CPU0, Access::Read);
        on.protect_table();
        on.execute_variant();
        on.write(CPU0);
    }];
    assert_eq!(outcomes_of_variant(&shape, &[]), set(&[&[Old], &[Fault]]));
    assert_eq!(outcomes_of_variant(&shape, &[Stage::invlpg]), set(&[&[Fault]]));
    assert_eq!(write_after::<X86_64>(&[Stage::protect_table, Stage::invlpg]), set(&[&[Old], &[Fault]]));
}

#[test]
fn invlpg_before_the_store_may_leave_the_translation() {
    assert_eq!(read_alone_after(&[Stage::invlpg, Stage::exchange]), set(&[&[Old], &[Fault]]));
}

#[test]
fn a_new_entry_needs_no_invlpg_but_may_be_seen_late() {
    let shape: [Line<X86_64>; 2] = [
        |on| {
            on.unmap();
            on.invlpg();
            on.map();
            on.signal(1);
        },
        |on| {
            on.wait_for(1);
            on.invpcid();
            on.read(CPU1);
        },
    ];
    exactly(&shape, &[&[New], &[Fault]]);
}

#[test]
fn stores_reach_walkers_in_order() {
    // The shape of the same arm64 test: a walker that sees the table sees its earlier stores.
    let shape: [Line<X86_64>; 2] = [
        |on| {
            let table = on.sim.load(on.table_slot);
            on.sim.swap(on.table_slot, Pte::EMPTY);
            on.exchange();
            on.sim.run_on(CPU0, || on.sim.send_ipi(&CpuMask::of(CPU1)));
            on.wait_for(1);
            on.map();
            on.sim.store(on.table_slot, table);
            on.signal(2);
        },
        |on| {
            on.invpcid();
            while on.sim.load(on.slot) != Pte::EMPTY {
                on.sim.relax();
            }
            on.invpcid();
            on.signal(1);
            on.wait_for(2);
            let before = on.walk_reads(CPU1);
            let seen = on.look(CPU1, Access::Read);
            // A fault after more than three reads would mean the link without the entry.
            let saw_link = on.walk_reads(CPU1) - before > 3;
            on.record(if seen == Fault && saw_link { Fault } else { New });
        },
    ];
    let rates = Rates { speculate: 0, evict: 0, ..Rates::default() };
    let settings = ExploreSettings { max_wait: 1000, walks: 0, ..ExploreSettings::default() };
    let outcome = |seed| {
        let stage = Stage::<X86_64>::new(2);
        stage.sim.bind_ipi_handler(Rc::new(|_| {}));
        stage.run(&shape, &ScheduleStrategy::Random { seed, rates }, &settings)
    };
    assert_eq!((0..SEEDS).map(outcome).collect::<Outcomes>(), set(&[&[New]]));
}

#[test]
fn an_exchange_never_loses_a_dirty_bit() {
    dirty_bits_survive_an_exchange::<X86_64>();
}

#[test]
fn a_plain_store_can_lose_a_dirty_bit() {
    let shape: [Line<X86_64>; 2] = [
        |on| {
            let read = on.sim.load(on.slot);
            on.unmap();
            let dirty = X86_64::touched(read, true) == read;
            on.record(if dirty { New } else { Old });
        },
        |on| on.write(CPU1),
    ];
    let lost = |run: &Vec<Seen>| run.iter().filter(|seen| **seen == Old).count() == 2;
    assert!(outcomes(&shape).iter().any(lost), "no dirty bit was lost by a plain store");
}

#[test]
fn a_compare_exchange_sees_the_bits_that_walkers_set() {
    let shape: [Line<X86_64>; 2] = [
        |on| {
            let read = on.sim.load(on.slot);
            let weaker = Stage::<X86_64>::leaf(on.old, Rights::READ);
            let done = on.sim.compare_exchange(on.slot, read, weaker);
            on.record(match done {
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
    let kept = read_alone_after(&[Stage::exchange, |on| on.sim.install_root(on.root, TAG, true)]);
    let dropped = read_alone_after(&[Stage::exchange, |on| on.sim.install_root(on.root, TAG, false)]);
    assert_eq!((kept, dropped), (set(&[&[Old], &[Fault]]), set(&[&[Fault]])));
}

#[test]
fn an_ipi_may_be_late_and_is_not_taken_with_interrupts_disabled() {
    let shape: [Line<X86_64>; 2] = [
        |on| on.sim.send_ipi(&CpuMask::of(CPU1)),
        |on| {
            let is_interrupted = || on.step.get() == 1;
            on.sim.without_interrupts(|| {
                let before = is_interrupted();
                on.sim.load(on.slot);
                assert_eq!(is_interrupted(), before, "interrupted with interrupts disabled");
            });
            on.record(if is_interrupted() { New } else { Old });
        },
    ];
    let outcome = |seed| {
        let stage = Stage::<X86_64>::new(2);
        let interrupted = Rc::downgrade(&stage);
        stage.sim.bind_ipi_handler(Rc::new(move |cpu| {
            assert_eq!(cpu, CPU1);
            interrupted.upgrade().into_iter().for_each(|stage| stage.signal(1));
        }));
        let found =
            stage.run(&shape, &ScheduleStrategy::Random { seed, rates: Rates::default() }, &ExploreSettings::default());
        assert_eq!(stage.step.get(), 1, "the IPI was not taken by the end of the run");
        found
    };
    assert_eq!((0..SEEDS).map(outcome).collect::<Outcomes>(), set(&[&[Old], &[New]]));
}

#[test]
fn two_entries_are_seen_in_order() {
    let shape: [Line<X86_64>; 2] = [
        |on| {
            on.exchange();
            on.signal(1);
            on.wait_for(2);
            on.map();
            on.map_next();
        },
        |on| {
            on.wait_for(1);
            on.invpcid();
            on.signal(2);
            on.read_next(CPU1);
            on.read(CPU1);
        },
    ];
    let seen = outcomes(&shape);
    assert!(!seen.contains(&vec![New, Fault]), "{seen:?}");
    assert!(seen.contains(&vec![New, New]) && seen.contains(&vec![Fault, Fault]), "{seen:?}");
}

#[test]
fn a_removed_right_may_stay_until_it_is_flushed() {
    let kept: [Line<X86_64>; 1] = [|on| {
        on.look(CPU0, Access::Write);
        on.exchange_rights(Rights::READ);
        on.write(CPU0);
    }];
    let flushed: [Line<X86_64>; 1] = [|on| {
        on.look(CPU0, Access::Write);
        on.protect(Rights::READ);
        on.invlpg();
        on.write(CPU0);
    }];
    exactly(&kept, &[&[Old], &[Fault]]);
    exactly(&flushed, &[&[Fault]]);
}

#[test]
fn an_added_right_may_be_refused_until_it_is_flushed() {
    let shape: [Line<X86_64>; 1] = [|on| {
        on.exchange_rights(Rights::READ);
        on.invlpg();
        on.look(CPU0, Access::Read);
        on.exchange_rights(Rights::RW);
        on.write(CPU0);
        on.invlpg();
        on.write(CPU0);
    }];
    exactly(&shape, &[&[Fault, Old], &[Old, Old]]);
}
