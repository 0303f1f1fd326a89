//! arm64: DSB ISHST shows walkers what was stored, TLBI names what is to be forgotten, DSB ISH
//! waits until it is.

use super::common::{CPU0, page};
use super::stage::{CPU1, Fault, Line, New, Old, Outcomes, Seen, Stage, exactly, outcomes, outcomes_of_variant, set};
use super::stage::{TAG, dirty_bits_survive_an_exchange};
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

    fn tlbi_vae1is(&self) {
        self.flush_page(InvalidateScope::Broadcast, false);
    }

    fn tlbi_aside1is(&self) {
        self.flush(InvalidateScope::Broadcast, InvalidateTarget::Tag(TAG));
    }

    fn tlbi_vmalle1is(&self) {
        self.flush(InvalidateScope::Broadcast, InvalidateTarget::AllTags);
    }

    /// Nothing is mapped at page 0, and nobody remembers otherwise.
    fn unmap_and_flush(&self) {
        self.unmap();
        self.dsb_ishst();
        self.tlbi_vale1is();
        self.dsb_ish();
    }
}

/// CPU 1 has the translation; CPU 0 unmaps it as `how` says; then CPU 1 reads.
fn unmapped(how: Line<Aarch64>) -> Outcomes {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.awaits(1);
            on.variant.get().expect("a variant")(on);
            on.reaches(2);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.reaches(1);
            on.awaits(2);
            on.read(CPU1);
        },
    ];
    outcomes_of_variant(&shape, how)
}

#[test]
fn unmap_publish_tlbi_dsb_leaves_nothing() {
    let seen = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        on.tlbi_vale1is();
        on.dsb_ish();
    });
    assert_eq!(seen, set(&[&[Fault]]));
}

#[test]
fn the_whole_tag_does_as_well() {
    let tag = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        on.tlbi_aside1is();
        on.dsb_ish();
    });
    assert_eq!(tag, set(&[&[Fault]]));
}

#[test]
fn without_publish_a_walk_brings_the_old_entry_back() {
    let seen = unmapped(|on| {
        on.unmap();
        on.tlbi_vale1is();
        on.dsb_ish();
    });
    assert_eq!(seen, set(&[&[Old], &[Fault]]));
}

#[test]
fn an_exchange_needs_publish_as_a_store_does() {
    let late = unmapped(|on| {
        on.exchange();
        on.tlbi_vale1is();
        on.dsb_ish();
    });
    let published = unmapped(|on| {
        on.exchange();
        on.dsb_ishst();
        on.tlbi_vale1is();
        on.dsb_ish();
    });
    assert_eq!((late, published), (set(&[&[Old], &[Fault]]), set(&[&[Fault]])));
}

#[test]
fn an_exchange_never_loses_a_dirty_bit() {
    dirty_bits_survive_an_exchange::<Aarch64>();
}

#[test]
fn without_dsb_nothing_is_promised() {
    let seen = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        on.tlbi_vale1is();
    });
    assert_eq!(seen, set(&[&[Old], &[Fault]]));
}

#[test]
fn without_tlbi_the_translation_may_stay() {
    let seen = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        on.dsb_ish();
    });
    assert_eq!(seen, set(&[&[Old], &[Fault]]));
}

#[test]
fn a_local_tlbi_reaches_nobody_else() {
    let seen = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        on.tlbi_vale1();
    });
    assert_eq!(seen, set(&[&[Old], &[Fault]]));
}

#[test]
fn a_tlbi_before_the_store_is_for_nothing() {
    let seen = unmapped(|on| {
        on.tlbi_vale1is();
        on.dsb_ish();
        on.unmap();
        on.dsb_ishst();
    });
    assert_eq!(seen, set(&[&[Old], &[Fault]]));
}

#[test]
fn a_dsb_on_another_cpu_completes_nothing() {
    let shape: [Line<Aarch64>; 3] = [
        |on| {
            on.awaits(1);
            on.unmap();
            on.dsb_ishst();
            on.tlbi_vale1is();
            on.reaches(2);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.reaches(1);
            on.awaits(3);
            on.read(CPU1);
        },
        |on| {
            on.awaits(2);
            on.dsb_ish();
            on.reaches(3);
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
        // A walk that read the old entry may fill after another has faulted, but not past the DSB,
        // and so not after the new one.
        assert!(run.windows(2).all(|pair| pair[0] != New || pair[1] == New), "the new one went away: {run:?}");
    }
    let broken = seen.iter().any(|run| run.contains(&Fault) && run.ends_with(&[New]));
    assert!(broken && seen.contains(&vec![Old, Old, Old]), "{seen:?}");
}

#[test]
fn without_break_either_translation_may_answer_again_and_again() {
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
    assert!(seen.iter().any(back), "the old one comes back after the new one: {seen:?}");
    assert!(!seen.iter().flatten().any(|seen| *seen == Fault));
}

#[test]
fn break_before_make_ends_a_conflict() {
    let seen = unmapped(|on| {
        on.map();
        on.dsb_ishst();
        on.unmap();
        on.dsb_ishst();
        on.tlbi_vale1is();
        on.dsb_ish();
    });
    assert_eq!(seen, set(&[&[Fault]]));
}

#[test]
fn mapping_what_was_not_mapped_needs_no_tlbi() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.unmap_and_flush();
            // A fault is not cached (Arm ARM D8.16.1).
            on.look(CPU0, Access::Read);
            on.map();
            on.dsb_ishst();
            on.reaches(1);
        },
        |on| {
            on.look(CPU1, Access::Read);
            on.awaits(1);
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
            on.reaches(1);
        },
        |on| {
            on.awaits(1);
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
            on.unmap();
            on.dsb_ishst();
            on.tlbi_vae1is();
            on.dsb_ish();
            on.map();
            on.sim.store(on.table_slot, table);
            on.reaches(1);
        },
        |on| {
            on.awaits(1);
            // Whether the walker saw the hook shows in what it remembers of the way.
            let seen = on.look(CPU1, Access::Read);
            let before = on.walk_reads(CPU1);
            on.look(CPU1, Access::Read);
            let reads = on.walk_reads(CPU1) - before;
            on.finds(if seen == Fault && reads == 1 { Fault } else { New });
        },
    ];
    assert!(outcomes(&shape).contains(&vec![Fault]), "the table's hook is seen before its entry");
}

#[test]
fn a_leaf_only_tlbi_leaves_the_way_to_a_freed_table() {
    let leaf_only = unmapped(|on| {
        on.sim.store(on.table_slot, Pte::EMPTY);
        on.dsb_ishst();
        on.tlbi_vale1is();
        on.dsb_ish();
    });
    let whole = unmapped(|on| {
        on.sim.store(on.table_slot, Pte::EMPTY);
        on.dsb_ishst();
        on.tlbi_vae1is();
        on.dsb_ish();
    });
    assert_eq!(leaf_only, set(&[&[Old], &[Fault]]), "walked on from the walk cache");
    assert_eq!(whole, set(&[&[Fault]]));
}

#[test]
fn every_tag_does_as_well_and_another_tag_does_not() {
    let every = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        on.tlbi_vmalle1is();
        on.dsb_ish();
    });
    let another = unmapped(|on| {
        on.unmap();
        on.dsb_ishst();
        let target = InvalidateTarget::Page { tag: Tag::new(2), va: page(0), level: Level::PTE, last_level: true };
        on.flush(InvalidateScope::Broadcast, target);
        on.dsb_ish();
    });
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
fn two_entries_are_seen_in_order_if_published_in_between() {
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
fn a_right_that_is_taken_stays_until_it_is_flushed() {
    let writes: Line<Aarch64> = |on| {
        on.look(CPU1, Access::Write);
        on.awaits(1);
        on.write(CPU1);
    };
    let kept: [Line<Aarch64>; 2] = [
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.reaches(1);
        },
        writes,
    ];
    let flushed: [Line<Aarch64>; 2] = [
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.tlbi_vale1is();
            on.dsb_ish();
            on.reaches(1);
        },
        writes,
    ];
    exactly(&kept, &[&[Old], &[Fault]]);
    exactly(&flushed, &[&[Fault]]);
}

#[test]
fn a_right_that_is_given_may_be_refused_until_it_is_flushed() {
    let shape: [Line<Aarch64>; 2] = [
        |on| {
            on.awaits(1);
            on.protect(Rights::RW);
            on.dsb_ishst();
            on.reaches(2);
        },
        |on| {
            on.protect(Rights::READ);
            on.dsb_ishst();
            on.tlbi_vale1();
            on.look(CPU1, Access::Read);
            on.reaches(1);
            on.awaits(2);
            on.write(CPU1);
            on.write(CPU1);
            on.tlbi_vale1();
            on.write(CPU1);
        },
    ];
    let seen = outcomes(&shape);
    assert!(seen.iter().all(|run| run.ends_with(&[Old])), "refused after a flush of its own: {seen:?}");
    assert!(seen.contains(&vec![Fault, Fault, Old]) && seen.contains(&vec![Old, Old, Old]), "{seen:?}");
}
