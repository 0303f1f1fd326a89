//! Shapes of deferred flushes.
//!
//! A flush may be deferred past a call, past the freeing of a frame, and past an allocation that
//! may not wait. *Old* is the page that has left its address. A read that reaches it is harmless
//! while its contents stay; once its frame has a new owner, or the page was stored to elsewhere, it
//! is not. So these shapes say until when the machine may show it, and that no store reaches it.

use super::stage::{
    CPU1, Fault, Line, New, Old, Outcomes, SEEDS, Stage, exactly, outcomes_of_variant, read_after, set,
};
use crate::common::page;
use pagewright_arch::{Aarch64, Effects, InvalidateScope, InvalidateTarget, Isa, X86_64, on_both};
use pagewright_sim::explore::{ExploreSettings, Rates, ScheduleStrategy};
use pagewright_types::{Access, CpuMask, IsaKind, Level, Rights, Tag};
use std::rc::Rc;

on_both! {
    a_read_only_translation_that_stays_lets_no_store_through,
    a_page_that_moves_read_only_is_reached_at_both_places_until_the_flush,
}

/// CPU 0's part of a flush of page 0 on all CPUs: all of it on arm64.
fn flush_everywhere<I: Isa>(on: &Stage<I>) {
    match I::KIND {
        IsaKind::X86_64 => on.flush_page(InvalidateScope::Local, true),
        IsaKind::Aarch64 => {
            on.sim.publish();
            on.flush_page(InvalidateScope::Broadcast, true);
            on.sim.complete();
        }
    }
}

/// CPU 1's part, after that of CPU 0.
fn flush_here<I: Isa>(on: &Stage<I>) {
    if I::KIND == IsaKind::X86_64 {
        on.flush_page(InvalidateScope::Local, true);
    }
}

/// Makes page 0 read-only on all CPUs, as a page must be whose flush is deferred.
fn downgrade<I: Isa>(on: &Stage<I>) {
    on.protect(Rights::READ);
    flush_everywhere(on);
    on.signal(1);
    on.wait_for(2);
}

/// Waits for [`downgrade`], and caches the translation that is left.
fn cache<I: Isa>(on: &Stage<I>) {
    on.wait_for(1);
    flush_here(on);
    on.look(CPU1, Access::Read);
    on.signal(2);
}

/// INV-SIM-LITMUS, as are all shapes.
fn a_read_only_translation_that_stays_lets_no_store_through<I: Isa>() {
    let shape: [Line<I>; 2] = [
        |on| {
            downgrade(on);
            on.exchange();
            on.sim.publish();
            on.signal(3);
        },
        |on| {
            cache(on);
            on.wait_for(3);
            on.read(CPU1);
            on.write(CPU1);
        },
    ];
    exactly(&shape, &[&[Old, Fault], &[Fault, Fault]]);
}

/// Migration that keeps read-only translations of the old frame.
fn a_page_that_moves_read_only_is_reached_at_both_places_until_the_flush<I: Isa>() {
    let shape: [Line<I>; 2] = [
        |on| {
            downgrade(on);
            on.map_read_only();
            on.sim.publish();
            on.signal(3);
            on.wait_for(4);
            flush_everywhere(on);
            on.signal(5);
        },
        |on| {
            cache(on);
            on.wait_for(3);
            on.read(CPU1);
            on.write(CPU1);
            on.signal(4);
            on.wait_for(5);
            flush_here(on);
            on.read(CPU1);
        },
    ];
    exactly(&shape, &[&[Old, Fault, New], &[New, Fault, New]]);
}

fn tlbi(on: &Stage<Aarch64>) {
    on.flush_page(InvalidateScope::Broadcast, true);
}

fn tlbi_of_another_tag(on: &Stage<Aarch64>) {
    let target = InvalidateTarget::Page { tag: Tag::new(2), va: page(0), level: Level::PTE, last_level: true };
    on.flush(InvalidateScope::Broadcast, target);
}

fn publish(on: &Stage<Aarch64>) {
    on.sim.publish();
}

fn complete(on: &Stage<Aarch64>) {
    on.sim.complete();
}

/// Only a DSB of the CPU that issued a TLBI completes it, and then it completes all of them.
///
/// A DSB ISHST waits for stores alone.
#[test]
fn a_dsb_of_the_issuer_settles_a_parked_frame_whatever_it_is_for() {
    let unflushed = set(&[&[Old], &[Fault]]);
    assert_eq!(read_after(&[Stage::unmap, publish, tlbi, tlbi_of_another_tag, complete]), set(&[&[Fault]]));
    assert_eq!(read_after(&[Stage::unmap, publish, tlbi, tlbi_of_another_tag, publish]), unflushed);
    assert_eq!(read_after(&[Stage::unmap, publish, complete, tlbi]), unflushed, "the DSB is too early");
}

/// A DSB waits for the CPUs' TLBs and not for their programs, so it completes there, too.
#[test]
fn a_dsb_with_interrupts_disabled_settles_and_a_section_without_one_does_not() {
    let pays = read_after::<Aarch64>(&[Stage::unmap, publish, tlbi, |on| on.sim.without_interrupts(|| complete(on))]);
    let waits = read_after::<Aarch64>(&[Stage::unmap, publish, tlbi, |on| on.sim.without_interrupts(|| publish(on))]);
    assert_eq!((pays, waits), (set(&[&[Fault]]), set(&[&[Old], &[Fault]])));
}

/// CPU 1 caches the translation; CPU 0 clears the entry; CPU 1 executes `steps` and reads.
fn read_after_own(steps: &'static [Line<X86_64>]) -> Outcomes {
    let shape: [Line<X86_64>; 2] = [
        |on| {
            on.wait_for(1);
            on.exchange();
            on.signal(2);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.signal(1);
            on.wait_for(2);
            on.execute_variant();
            on.read(CPU1);
        },
    ];
    outcomes_of_variant(&shape, steps)
}

/// A clock of the ledger is of full flushes: of all tags, not of one space or one page.
#[test]
fn a_flush_of_all_tags_settles_a_parked_frame_and_one_of_another_space_does_not() {
    let all = read_after_own(&[|on| on.flush(InvalidateScope::Local, InvalidateTarget::AllTags)]);
    let other = read_after_own(&[|on| on.flush(InvalidateScope::Local, InvalidateTarget::Tag(Tag::new(2)))]);
    assert_eq!((all, other), (set(&[&[Fault]]), set(&[&[Old], &[Fault]])));
}

/// CPU 0 takes the frame with interrupts disabled, after the acknowledgement or without it.
fn taken_without_waiting(acknowledged: bool) -> Outcomes {
    let takes_late: Line<X86_64> = |on| {
        on.wait_for(1);
        on.exchange();
        on.sim.send_ipi(&CpuMask::of(CPU1));
        on.wait_for(2);
        on.sim.without_interrupts(|| on.signal(3));
    };
    let takes_early: Line<X86_64> = |on| {
        on.wait_for(1);
        on.exchange();
        on.sim.send_ipi(&CpuMask::of(CPU1));
        on.sim.without_interrupts(|| on.signal(3));
    };
    let reads: Line<X86_64> = |on| {
        on.look(CPU1, Access::Read);
        on.signal(1);
        on.wait_for(3);
        on.read(CPU1);
    };
    let lines = [if acknowledged { takes_late } else { takes_early }, reads];
    let settings = ExploreSettings { max_wait: 1000, ..ExploreSettings::default() };
    let outcome = |seed| {
        let stage = Stage::<X86_64>::new(2);
        let interrupted = Rc::downgrade(&stage);
        stage.sim.bind_ipi_handler(Rc::new(move |_| {
            if let Some(stage) = interrupted.upgrade() {
                flush_here(&stage);
                stage.signal(stage.step.get().max(2));
            }
        }));
        let strategy = ScheduleStrategy::Random { seed, rates: Rates::default() };
        stage.run(&lines, &strategy, &settings)
    };
    (0..SEEDS).map(outcome).collect()
}

/// The reserve of settled frames is for this: a CPU that must not wait takes no other.
#[test]
fn a_frame_taken_without_waiting_is_reached_unless_its_flush_was_acknowledged_before() {
    assert_eq!(taken_without_waiting(true), set(&[&[Fault]]));
    assert_eq!(taken_without_waiting(false), set(&[&[Old], &[Fault]]));
}
