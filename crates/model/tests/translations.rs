//! O1 and O2 on histories made by hand.
//!
//! Each violation is reported, and the same history without its mistake is not.

use crate::support::{CPU0, CPU1, FRAME, LAST, Machine, ROOT, TAG, VA, broken};
use pagewright_model::{Antecedent, Exposure, Oracle, Rule, ViolationKind};
use pagewright_types::judge::{CachedEntryKind, CachedEntryState, Judge};
use pagewright_types::{Access, CpuId, IsaKind, Level, Pfn, Rights, Tag};

const NONE: Rights = Rights::empty();

/// INV-ORACLE-O1.
#[test]
fn a_reused_page_that_is_cached_is_reported() {
    let history = |flushed: bool| {
        broken(|machine, oracle| {
            machine.unmap_used(oracle, flushed);
            machine.freed(oracle, FRAME);
            assert_eq!(oracle.found(), 0, "a free frame may be cached");
            machine.reused(oracle, FRAME);
            assert_eq!(oracle.tally().of(Antecedent::FrameReused), 1);
        })
    };
    assert_eq!(history(false), [Rule::Reuse]);
    assert_eq!(history(true), []);
}

#[test]
fn a_cached_block_reaches_every_frame_in_it() {
    let history = |pfn: u32, level: Level| {
        broken(|machine, oracle| {
            let kind = CachedEntryKind::Translation { pfn: Pfn::new(pfn), rights: Rights::READ };
            machine.remember(kind, level, CachedEntryState::Usable);
            machine.reused(oracle, FRAME);
        })
    };
    assert_eq!(history(0x1200, Level::PMD), [Rule::Reuse]);
    assert_eq!(history(0x1400, Level::PMD), []);
    assert_eq!(history(FRAME.raw() + 1, Level::PTE), []);
}

#[test]
fn a_reused_table_is_reported_if_a_walk_could_read_it() {
    let history = |kind: CachedEntryKind, state: CachedEntryState| {
        broken(|machine, oracle| {
            machine.remember(kind, Level::PMD, state);
            machine.freed(oracle, FRAME);
            machine.reused(oracle, FRAME);
        })
    };
    assert_eq!(
        history(CachedEntryKind::Table { table: FRAME, allows: Rights::all() }, CachedEntryState::Usable),
        [Rule::Reuse]
    );
    assert_eq!(
        history(CachedEntryKind::Walk { table: FRAME, allows: Rights::all() }, CachedEntryState::Usable),
        [Rule::Reuse]
    );
    assert_eq!(
        history(CachedEntryKind::Table { table: FRAME, allows: Rights::all() }, CachedEntryState::Condemned),
        []
    );
    assert_eq!(
        history(CachedEntryKind::Walk { table: FRAME.add(1), allows: Rights::all() }, CachedEntryState::Usable),
        []
    );
}

#[test]
fn a_condemned_entry_is_reported_when_its_tag_is_loaded() {
    let history = |kind: CachedEntryKind, flushed: bool, tag: Tag| {
        broken(|machine, oracle| {
            machine.remember(kind, Level::PTE, CachedEntryState::Condemned);
            machine.reused(oracle, FRAME);
            assert_eq!(oracle.tally().of(Antecedent::Condemned), 1);
            if flushed {
                machine.flush();
            }
            oracle.loaded(machine, CPU0, ROOT, TAG);
            assert_eq!(oracle.found(), 0, "another CPU loaded the tag");
            oracle.loaded(machine, CPU1, ROOT, tag);
            oracle.loaded(machine, CPU1, ROOT, tag);
        })
    };
    let page = CachedEntryKind::Translation { pfn: FRAME, rights: Rights::READ };
    for kind in [page, CachedEntryKind::Table { table: FRAME, allows: Rights::all() }] {
        assert_eq!(history(kind, false, TAG), [Rule::Reuse]);
        assert_eq!(history(kind, true, TAG), []);
        assert_eq!(history(kind, false, Tag::new(4)), []);
    }
}

#[test]
fn a_condemned_translation_that_the_tables_grant_again_is_not_reported() {
    let history = |mapped: Rights| {
        broken(|machine, oracle| {
            machine.fill(Rights::RW, CachedEntryState::Condemned);
            machine.reused(oracle, FRAME);
            // The same frame is mapped at the same address again.
            machine.map(VA, FRAME, mapped);
            oracle.loaded(machine, CPU1, ROOT, TAG);
        })
    };
    assert_eq!(history(Rights::RW), []);
    assert_eq!(history(Rights::READ), [Rule::Reuse]);
}

#[test]
fn a_hit_on_a_condemned_translation_is_reported() {
    let history = |frame: Pfn, cached: bool, mapped: bool| {
        broken(|machine, oracle| {
            machine.fill(Rights::READ, CachedEntryState::Condemned);
            machine.reused(oracle, FRAME);
            if mapped {
                machine.map(VA, FRAME, Rights::READ);
            }
            machine.access(oracle, frame, Access::Read, cached);
            machine.access(oracle, frame, Access::Read, cached);
        })
    };
    assert_eq!(history(FRAME, true, false), [Rule::Reuse]);
    assert_eq!(history(FRAME, false, false), [], "the access took a walk");
    assert_eq!(history(FRAME.add(1), true, false), [], "the access hit another entry");
    assert_eq!(history(FRAME, true, true), [], "the tables grant it");
}

#[test]
fn a_free_frame_may_be_read_but_not_written() {
    let history = |access: Access| {
        broken(|machine, oracle| {
            machine.freed(oracle, FRAME);
            machine.hit(oracle, access);
        })
    };
    assert_eq!(history(Access::Read), []);
    assert_eq!(history(Access::Write), [Rule::Reuse]);
}

/// INV-ORACLE-O2.
#[test]
fn a_translation_that_outlives_the_call_is_reported() {
    let history = |held: Rights, left: Rights, flushed: bool| {
        broken(|machine, oracle| {
            machine.map(VA, FRAME, held);
            machine.fill(held, CachedEntryState::Usable);
            machine.reduced(oracle, CPU0, left);
            machine.map(VA, FRAME, left);
            assert_eq!(oracle.found(), 0, "the call has not returned");
            if flushed {
                machine.flush();
            }
            machine.returned(oracle, CPU1);
            assert_eq!(oracle.found(), 0, "a call of another CPU returned");
            machine.returned(oracle, CPU0);
            machine.returned(oracle, CPU0);
            assert_eq!(oracle.tally().of(Antecedent::RightReduced), 1);
        })
    };
    assert_eq!(history(Rights::RW, Rights::READ, false), [Rule::Rights]);
    assert_eq!(history(Rights::RW, NONE, false), [Rule::Rights]);
    assert_eq!(history(Rights::RW, Rights::READ, true), []);
    assert_eq!(history(Rights::READ, Rights::READ, false), []);
}

#[test]
fn the_tables_may_grant_again_what_a_call_took() {
    let history = |frame: Pfn, rights: Rights| {
        broken(|machine, oracle| {
            machine.reduced(oracle, CPU0, NONE);
            machine.map(VA, frame, rights);
            machine.fill(Rights::RW, CachedEntryState::Usable);
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(FRAME, Rights::RW), []);
    assert_eq!(history(FRAME, Rights::READ), [Rule::Rights]);
    assert_eq!(history(FRAME.add(1), Rights::RW), [Rule::Rights], "the tables grant another frame");
}

#[test]
fn a_call_in_flight_on_another_cpu_excuses_until_it_returns() {
    let found = broken(|machine, oracle| {
        machine.map(VA, FRAME, Rights::RW);
        machine.reduced(oracle, CPU0, NONE);
        machine.fill(Rights::RW, CachedEntryState::Usable);
        machine.reduced(oracle, CPU1, NONE);
        machine.map(VA, FRAME, NONE);
        machine.returned(oracle, CPU0);
        assert_eq!(oracle.found(), 0);
        machine.returned(oracle, CPU1);
    });
    assert_eq!(found, [Rule::Rights]);
}

#[test]
fn only_translations_of_the_space_and_the_range_are_judged() {
    let history = |root: Pfn, va: u64| {
        broken(|machine, oracle| {
            machine.fill(Rights::RW, CachedEntryState::Usable);
            machine.cached[0].root = root;
            machine.cached[0].va = pagewright_types::VirtAddr::new(va);
            machine.reduced(oracle, CPU0, NONE);
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(ROOT, VA.raw()), [Rule::Rights]);
    assert_eq!(history(Pfn::new(0x99), VA.raw()), []);
    assert_eq!(history(ROOT, VA.raw() + 0x1000), []);
}

#[test]
fn a_condemned_right_is_reported_when_used_or_loaded() {
    let history = |load: bool, access: Access, flushed: bool| {
        broken(|machine, oracle| {
            machine.fill(Rights::RW, CachedEntryState::Condemned);
            machine.reduced(oracle, CPU0, Rights::READ);
            machine.map(VA, FRAME, Rights::READ);
            machine.returned(oracle, CPU0);
            assert_eq!(oracle.found(), 0);
            if flushed {
                machine.flush();
            }
            if load {
                oracle.loaded(machine, CPU1, ROOT, TAG);
            } else {
                machine.hit(oracle, access);
            }
        })
    };
    assert_eq!(history(true, Access::Read, false), [Rule::Rights]);
    assert_eq!(history(true, Access::Read, true), []);
    assert_eq!(history(false, Access::Write, false), [Rule::Rights]);
    assert_eq!(history(false, Access::Read, false), [], "the call left the right to read");
}

#[test]
fn a_stale_translation_is_reported_when_another_space_gets_its_tag() {
    let found = broken(|machine, oracle| {
        machine.fill(Rights::RW, CachedEntryState::Condemned);
        machine.map(VA, FRAME, NONE);
        machine.reduced(oracle, CPU0, NONE);
        machine.returned(oracle, CPU0);
        oracle.loaded(machine, CPU1, Pfn::new(0x99), TAG);
    });
    assert_eq!(found, [Rule::Rights]);
}

#[test]
fn a_walk_in_flight_at_the_return_is_judged_by_the_translation_it_fills() {
    let history = |walking: bool, mapped: Rights, access: Access| {
        broken(|machine, oracle| {
            if walking {
                machine.remember(
                    CachedEntryKind::Walk { table: LAST, allows: Rights::all() },
                    Level::PTE,
                    CachedEntryState::Usable,
                );
            }
            machine.reduced(oracle, CPU0, Rights::READ);
            machine.returned(oracle, CPU0);
            machine.flush();
            machine.map(VA, FRAME, mapped);
            machine.hit(oracle, access);
            machine.hit(oracle, access);
        })
    };
    assert_eq!(history(true, Rights::READ, Access::Write), [Rule::Rights]);
    assert_eq!(history(true, Rights::READ, Access::Read), []);
    assert_eq!(history(true, Rights::RW, Access::Write), []);
    assert_eq!(history(false, Rights::READ, Access::Write), [], "no walk was in flight");
}

#[test]
fn a_call_must_publish_its_store_before_it_returns() {
    let history = |published: bool, left: Rights, by: CpuId| {
        broken(|machine, oracle| {
            machine.storing = by;
            machine.map(VA, FRAME, Rights::RW);
            machine.reduced(oracle, CPU0, Rights::READ);
            machine.map_late(VA, FRAME, left);
            if published {
                machine.map(VA, FRAME, left);
            }
            machine.returned(oracle, CPU0);
        })
    };
    assert_eq!(history(false, Rights::READ, CPU0), [Rule::Rights]);
    assert_eq!(history(true, Rights::READ, CPU0), []);
    assert_eq!(history(false, Rights::RW, CPU0), [], "the tables grant the right again");
    assert_eq!(history(false, Rights::READ, CPU1), [], "another call's store, in flight still");
}

#[test]
fn a_report_names_the_cpu_the_translation_and_the_steps() {
    let (mut machine, mut oracle) = (Machine::new(IsaKind::X86_64), Oracle::new(IsaKind::X86_64));
    machine.fill(Rights::RW, CachedEntryState::Usable);
    machine.freed(&mut oracle, FRAME);
    machine.reused(&mut oracle, FRAME);
    machine.reduced(&mut oracle, CPU0, Rights::READ);
    machine.returned(&mut oracle, CPU0);
    let [reused, kept] = oracle.violations() else { panic!("expected two reports") };
    assert_eq!(
        reused.to_string(),
        "INV-ORACLE-O1 at step 2, on CPU 0: CPU 1 can reach a reused frame through a stale translation: \
         rw- to frame 0x1234 at va 0x7000 (tag 3, root 0x10)\n\
         \x20 frame 0x1234 was freed by CPU 0 at step 1 and allocated again by CPU 0 at step 2"
    );
    assert_eq!(
        kept.to_string(),
        "INV-ORACLE-O2 at step 4, on CPU 0: CPU 1 holds a stale translation: \
         rw- to frame 0x1234 at va 0x7000 (tag 3, root 0x10)\n\
         \x20 CPU 0 reduced the rights to r-- at step 3, and its call returned at step 4"
    );
    assert!(matches!(&kept.kind, ViolationKind::RightKept { exposure: Exposure::Immediate, left: Rights::READ, .. }));
    let vacuous: Vec<Antecedent> = oracle.tally().vacuous().collect();
    assert!(vacuous.contains(&Antecedent::Condemned) && !vacuous.contains(&Antecedent::RightHeld));
}

#[test]
fn pruning_forgets_condemned_entries_that_are_gone_and_keeps_the_others() {
    let found = broken(|machine, oracle| {
        for index in 0..2000u32 {
            let kind = CachedEntryKind::Translation { pfn: Pfn::new(0x4000 + index), rights: Rights::READ };
            machine.remember(kind, Level::PTE, CachedEntryState::Condemned);
            if let Some(last) = machine.cached.last_mut() {
                last.va = pagewright_types::VirtAddr::new(u64::from(index) << 12);
            }
            if index > 0 {
                machine.cached.remove(0);
            }
            machine.reused(oracle, Pfn::new(0x4000 + index));
        }
        oracle.loaded(machine, CPU1, ROOT, TAG);
    });
    assert_eq!(found, [Rule::Reuse]);
}
