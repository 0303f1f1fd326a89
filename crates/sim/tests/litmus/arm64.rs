//! The arm64 shapes.
//!
//! DSB ISHST makes stores visible to walkers, a TLBI names the entries to invalidate, and DSB ISH
//! waits until they are invalidated.

use super::stage::{CPU1, Fault, Line, New, Old, Outcomes, Seen, Stage, exactly, outcomes, read_after, set};
use super::stage::{TAG, dirty_bits_survive_an_exchange, write_after};
use crate::common::{CPU0, page};
use pagewright_arch::{Aarch64, Effects, InvalidateScope, InvalidateTarget, Pte};
use pagewright_types::{Access, Level, Rights, Tag};

impl Stage<Aarch64> {
    fn dsb_ishst(&self) {
        self.sim.publish();
    }

    fn dsb_ish(&self) {
        self.sim.complete();
    }

    fn tlbi_vale1(&self) {
        self.flush_page(InvalidateScope::Local, true);
    }

    fn tlbi_vale1is(&self) {
        self.flush_page(InvalidateScope::Broadcast, true);
    }

    fn tlbi_vale1is_of_another_tag(&self) {
        let target = InvalidateTarget::Page { tag: Tag::new(2), va: page(0), level: Level::PTE, last_level: true };
        self.flush(InvalidateScope::Broadcast, target);
    }

    fn tlbi_vae1is(&self) {
        self.flush_page(InvalidateScope::Broadcast, false);
    }

    fn tlbi_aside1is(&self) {
        self.flush(InvalidateScope::Broadcast, InvalidateTarget::Tag(TAG));
    }

    fn tlbi_vmalle1is(&self) {
        self.flush(InvalidateScope::Broadcast, InvalidateTarget::AllTags);
    }

    /// Unlinks the last-level table by a plain store.
    fn unlink_table(&self) {
        self.sim.store(self.table_slot, Pte::EMPTY);
    }

    /// Unmaps page 0 and invalidates it on all CPUs.
    fn unmap_and_flush(&self) {
        self.unmap();
        self.dsb_ishst();
        self.tlbi_vale1is();
        self.dsb_ish();
    }
}

/// Defines tests of what another CPU may read after steps of CPU 0.
macro_rules! read_after_tests {
    ($($(#[$about:meta])* $test:ident: $($step:ident),+ => $([$($seen:ident),+]),+;)+) => {
        $(#[test]
        $(#[$about])*
        fn $test() {
            assert_eq!(read_after(&[$(Stage::$step),+]), set(&[$(&[$($seen),+]),+]));
        })+
    };
}

read_after_tests! {
    unmap_publish_tlbi_dsb_leaves_nothing:
        unmap, dsb_ishst, tlbi_vale1is, dsb_ish => [Fault];
    tlbi_of_the_tag_leaves_nothing:
        unmap, dsb_ishst, tlbi_aside1is, dsb_ish => [Fault];
    without_publish_a_walk_may_refill_the_old_entry:
        unmap, tlbi_vale1is, dsb_ish => [Old], [Fault];
    without_dsb_the_invalidation_may_be_incomplete:
        unmap, dsb_ishst, tlbi_vale1is => [Old], [Fault];
    without_tlbi_the_translation_may_stay:
        unmap, dsb_ishst, dsb_ish => [Old], [Fault];
    a_local_tlbi_reaches_no_other_cpu:
        unmap, dsb_ishst, tlbi_vale1 => [Old], [Fault];
    a_tlbi_before_the_store_may_leave_the_translation:
        tlbi_vale1is, dsb_ish, unmap, dsb_ishst => [Old], [Fault];
    break_before_make_ends_a_conflict:
        map, dsb_ishst, unmap, dsb_ishst, tlbi_vale1is, dsb_ish => [Fault];
}

#[test]
fn an_exchange_needs_publish_as_a_store_does() {
    let late = read_after(&[Stage::exchange, Stage::tlbi_vale1is, Stage::dsb_ish]);
    let published = read_after(&[Stage::exchange, Stage::dsb_ishst, Stage::tlbi_vale1is, Stage::dsb_ish]);
    assert_eq!((late, published), (set(&[&[Old], &[Fault]]), set(&[&[Fault]])));
}

#[test]
fn an_exchange_never_loses_a_dirty_bit() {
    dirty_bits_survive_an_exchange::<Aarch64>();
}

#[test]
fn a_dsb_on_another_cpu_completes_nothing() {
    let shape: [Line<Aarch64>; 3] = [
        |on| {
            on.wait_for(1);
            on.unmap();
            on.dsb_ishst();
            on.tlbi_vale1is();
            on.signal(2);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.signal(1);
            on.wait_for(3);
            on.read(CPU1);
        },
        |on| {
            on.wait_for(2);
            on.dsb_ish();
            on.signal(3);
        },
    ];
    exactly(&shape, &[&[Old], &[Fault]]);
}

#[test]
fn break_before_make_shows_the_old_or_a_fault_then_only_the_new() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.unmap_and_flush();
            on.map();
            on.dsb_ishst();
        },
        |on| {
            on.read(CPU1);
            on.read(CPU1);
            on.read(CPU1);
        },
    ];
    let seen = outcomes(&shape);
    for run in &seen {
        // A walk that read the old entry may fill after another walk has faulted, but not after the
        // DSB, and so not after an access has used the new entry.
        assert!(run.windows(2).all(|pair| pair[0] != New || pair[1] == New), "old after new: {run:?}");
    }
    let broken = seen.iter().any(|run| run.contains(&Fault) && run.ends_with(&[New]));
    assert!(broken && seen.contains(&vec![Old, Old, Old]), "{seen:?}");
}

#[test]
fn without_break_either_translation_may_be_used_repeatedly() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.map();
            on.dsb_ishst();
        },
        |on| {
            for _ in 0..4 {
                on.read(CPU1);
            }
        },
    ];
    let seen = outcomes(&shape);
    let back = |run: &Vec<Seen>| run.windows(2).any(|pair| pair == [New, Old]);
    assert!(seen.iter().any(back), "the old translation is never used after the new one: {seen:?}");
    assert!(seen.iter().flatten().any(|seen| *seen == Fault), "no access takes a TLB Conflict abort: {seen:?}");
}

/// Arm ARM D8.16.1: an access may use an amalgamation of the two.
#[test]
fn without_break_a_store_may_reach_the_old_frame_with_the_rights_of_the_new_entry() {
    let prepare: Line<Aarch64> = |on| {
        on.protect(Rights::READ);
        on.dsb_ishst();
        on.tlbi_vale1is();
        on.dsb_ish();
        on.signal(1);
    };
    let stores: Line<Aarch64> = |on| {
        on.wait_for(1);
        on.look(CPU1, Access::Read);
        on.signal(2);
        on.wait_for(3);
        // The walk for the store keeps the old translation beside the new one.
        on.look(CPU1, Access::Write);
        on.write(CPU1);
    };
    let made: [Line<Aarch64>; 3] = [
        |on| {
            on.wait_for(2);
            on.map();
            on.dsb_ishst();
            on.signal(3);
        },
        stores,
        prepare,
    ];
    let broken: [Line<Aarch64>; 3] = [
        |on| {
            on.wait_for(2);
            on.unmap_and_flush();
            on.map();
            on.dsb_ishst();
            on.signal(3);
        },
        stores,
        prepare,
    ];
    let (made, broken) = (outcomes(&made), outcomes(&broken));
    assert!(made.contains(&vec![Old]), "the old page was never writable: {made:?}");
    assert_eq!(broken, set(&[&[New]]));
}

/// The manual requires no break-before-make if both are read-only with equal contents.
#[test]
fn two_read_only_translations_conflict_without_an_abort() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.tlbi_vale1is();
            on.dsb_ish();
            on.signal(1);
            on.map_read_only();
            on.dsb_ishst();
        },
        |on| {
            on.wait_for(1);
            for _ in 0..4 {
                on.read(CPU1);
            }
        },
    ];
    let seen = outcomes(&shape);
    let back = |run: &Vec<Seen>| run.windows(2).any(|pair| pair == [New, Old]);
    assert!(seen.iter().any(back), "the old translation is never used after the new one: {seen:?}");
    assert!(!seen.iter().flatten().any(|seen| *seen == Fault), "{seen:?}");
}

#[test]
fn mapping_an_empty_entry_needs_no_tlbi() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.unmap_and_flush();
            // A fault is not cached (Arm ARM D8.16.1).
            on.look(CPU0, Access::Read);
            on.map();
            on.dsb_ishst();
            on.signal(1);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.wait_for(1);
            on.read(CPU1);
        },
    ];
    exactly(&shape, &[&[New]]);
}

#[test]
fn a_new_entry_may_be_seen_late_without_publish() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.unmap_and_flush();
            on.map();
            on.signal(1);
        },
        |on| {
            on.wait_for(1);
            on.read(CPU1);
        },
    ];
    exactly(&shape, &[&[New], &[Fault]]);
}

#[test]
fn two_stores_without_publish_reach_walkers_in_any_order() {
    // CPU 0 stores the entry in a table and then links the table; a walker may see the link first.
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            let table = on.sim.load(on.table_slot);
            on.sim.store(on.table_slot, Pte::EMPTY);
            on.unmap();
            on.dsb_ishst();
            on.tlbi_vae1is();
            on.dsb_ish();
            on.map();
            on.sim.store(on.table_slot, table);
            on.signal(1);
        },
        |on| {
            on.wait_for(1);
            // If the walker saw the link, its walk cache has the table, and the next walk is short.
            let seen = on.look(CPU1, Access::Read);
            let before = on.walk_reads(CPU1);
            on.look(CPU1, Access::Read);
            let reads = on.walk_reads(CPU1) - before;
            on.record(if seen == Fault && reads == 1 { Fault } else { New });
        },
    ];
    assert!(outcomes(&shape).contains(&vec![Fault]), "the link of the table is never seen before its entry");
}

/// What a TLBI of the last level, and one of all levels, leave after an edit of a table's pointer.
fn assert_last_level_is_not_enough(last_level: &Outcomes, whole: &Outcomes) {
    assert_eq!(*last_level, set(&[&[Old], &[Fault]]), "a walk may start at the walk cache");
    assert_eq!(*whole, set(&[&[Fault]]));
}

#[test]
fn a_last_level_tlbi_may_leave_the_walk_cache_entry_of_a_freed_table() {
    let last_level = read_after(&[Stage::unlink_table, Stage::dsb_ishst, Stage::tlbi_vale1is, Stage::dsb_ish]);
    let whole = read_after(&[Stage::unlink_table, Stage::dsb_ishst, Stage::tlbi_vae1is, Stage::dsb_ish]);
    assert_last_level_is_not_enough(&last_level, &whole);
}

/// Arm ARM D8.4.5: APTable limits the leaves below; D8.16: it may be cached with the pointer.
#[test]
fn a_last_level_tlbi_may_leave_the_rights_of_a_write_protected_pointer() {
    let last_level = write_after(&[Stage::protect_table, Stage::dsb_ishst, Stage::tlbi_vale1is, Stage::dsb_ish]);
    let whole = write_after(&[Stage::protect_table, Stage::dsb_ishst, Stage::tlbi_vae1is, Stage::dsb_ish]);
    assert_last_level_is_not_enough(&last_level, &whole);
}

#[test]
fn tlbi_of_all_tags_leaves_nothing_and_of_another_tag_may_leave_it() {
    let every = read_after(&[Stage::unmap, Stage::dsb_ishst, Stage::tlbi_vmalle1is, Stage::dsb_ish]);
    let another = read_after(&[Stage::unmap, Stage::dsb_ishst, Stage::tlbi_vale1is_of_another_tag, Stage::dsb_ish]);
    assert_eq!((every, another), (set(&[&[Fault]]), set(&[&[Old], &[Fault]])));
}

#[test]
fn a_cpu_may_miss_its_own_entry_until_it_publishes() {
    let late: [Line<Aarch64>; 1] = [|on| {
        on.map_next();
        on.read_next(CPU0);
    }];
    let published: [Line<Aarch64>; 1] = [|on| {
        on.map_next();
        on.dsb_ishst();
        on.read_next(CPU0);
    }];
    exactly(&late, &[&[New], &[Fault]]);
    exactly(&published, &[&[New]]);
}

#[test]
fn two_entries_are_seen_in_order_if_published_between() {
    let reads: Line<Aarch64> = |on| {
        on.read_next(CPU1);
        on.read(CPU1);
    };
    let late: [Line<Aarch64>; 2] = [
        |on| {
            on.unmap_and_flush();
            on.map();
            on.map_next();
        },
        reads,
    ];
    let published: [Line<Aarch64>; 2] = [
        |on| {
            on.unmap_and_flush();
            on.map();
            on.dsb_ishst();
            on.map_next();
            on.dsb_ishst();
        },
        reads,
    ];
    let (late, published) = (outcomes(&late), outcomes(&published));
    let torn = vec![New, Fault];
    assert!(late.contains(&torn), "{late:?}");
    assert!(!published.contains(&torn) && published.contains(&vec![New, New]), "{published:?}");
}

#[test]
fn a_removed_right_may_stay_until_it_is_flushed() {
    let writes: Line<Aarch64> = |on| {
        on.look(CPU1, Access::Write);
        on.wait_for(1);
        on.write(CPU1);
    };
    let kept: [Line<Aarch64>; 2] = [
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.signal(1);
        },
        writes,
    ];
    let flushed: [Line<Aarch64>; 2] = [
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.tlbi_vale1is();
            on.dsb_ish();
            on.signal(1);
        },
        writes,
    ];
    exactly(&kept, &[&[Old], &[Fault]]);
    exactly(&flushed, &[&[Fault]]);
}

#[test]
fn an_added_right_may_be_refused_until_it_is_flushed() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.wait_for(1);
            on.protect(Rights::RW);
            on.dsb_ishst();
            on.signal(2);
        },
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.tlbi_vale1();
            on.look(CPU1, Access::Read);
            on.signal(1);
            on.wait_for(2);
            on.write(CPU1);
            on.write(CPU1);
            on.tlbi_vale1();
            on.write(CPU1);
        },
    ];
    let seen = outcomes(&shape);
    assert!(seen.iter().all(|run| run.ends_with(&[Old])), "refused after a local flush: {seen:?}");
    assert!(seen.contains(&vec![Fault, Fault, Old]) && seen.contains(&vec![Old, Old, Old]), "{seen:?}");
}
