//! The records of page-table pages.

use crate::support::{self, Host, one_node, run_on, take};
use pagewright_arch::PendingSequence;
use pagewright_frame::{FrameState, TableKey, TableMarks};
use pagewright_sync::rank;
use pagewright_types::{Level, SpaceId};

#[test]
fn a_record_holds_level_lock_shares_marks_and_origin_of_a_table() {
    let frames = one_node(&Host::new(1), 0, 64);
    for raw in 0..Level::COUNT as u8 {
        let level = Level::new(raw);
        let pfn = frames.new_table(take(&frames, 0), level, SpaceId::new(41));
        let table = frames.table(pfn);
        assert_eq!(frames.state(pfn), FrameState::Table);
        assert_eq!((table.level(), table.shares(), table.live()), (level, 1, 0));
        assert_eq!((table.marks(), table.origin()), (TableMarks::empty(), SpaceId::new(41)));
        table.mark(TableMarks::MAY_PIN);
        assert!(!table.is_locked(), "a mark changed the lock bit");
        assert_eq!(table.adjust_live(512), 512);
        table.adjust_counts([1, 200, 0, 311]);
        assert_eq!((table.adjust_live(-200), table.counts()), (312, [1, 200, 0, 311]));
        table.adjust_counts([0, -199, 5, -1]);
        assert_eq!((table.counts(), table.live()), ([1, 1, 5, 310], 312));
        table.adjust_counts([-1, -1, -5, -310]);
        assert_eq!(table.adjust_live(-312), 0);
        assert_eq!((table.share(), table.share()), (2, 3));
        assert_eq!((table.remove_sharer(), table.remove_sharer()), (2, 1));
        table.set_origin(SpaceId::new(u64::MAX));
        assert_eq!(table.origin(), SpaceId::new(u64::MAX));
        table.mark(TableMarks::all());
        assert_eq!(table.marks(), TableMarks::all());
        table.unmark(TableMarks::all() - TableMarks::GUP_WENT_THROUGH);
        assert_eq!(table.marks(), TableMarks::GUP_WENT_THROUGH);
        assert_eq!((table.level(), table.live()), (level, 0));
        frames.free(support::retire(&frames, pfn));
        // The next table at this frame has none of the old state.
        let again = frames.new_table(take(&frames, 0), Level::PTE, SpaceId::new(1));
        assert_eq!(again, pfn);
        assert_eq!((frames.table(again).marks(), frames.table(again).shares()), (TableMarks::empty(), 1));
        frames.free(support::retire(&frames, again));
    }
}

/// What a table owes, and what edits for all have changed, stand in words of their own.
#[test]
fn keys_counts_and_edits_of_a_table_do_not_affect_each_other() {
    let frames = one_node(&Host::new(1), 0, 64);
    let pfn = frames.new_table(take(&frames, 0), Level::PTE, SpaceId::new(41));
    let table = frames.table(pfn);
    let none = (TableKey::NONE, PendingSequence::new(0));
    assert_eq!((table.pending(), table.lingering(), table.shared_edits()), (none, TableKey::NONE, [0; 4]));
    let counts = [1, 20, 300, 40];
    table.adjust_live(500);
    let edits = [i16::MIN, -1, 2, i16::MAX];
    let (key, lingering) = (TableKey::new(0x1234_5678_9abc), TableKey::new(0xfedc_ba98_7654));
    for step in 0..4 {
        match step {
            0 => table.adjust_counts([1, 20, 300, 40]),
            1 => table.set_shared_edits(edits),
            2 => table.set_pending(key, PendingSequence::new(3)),
            _ => table.set_lingering(lingering),
        }
        let (pending, old) =
            if step < 2 { (none, TableKey::NONE) } else { ((key, PendingSequence::new(3)), lingering) };
        let lingers = if step < 3 { TableKey::NONE } else { old };
        assert_eq!((table.counts(), table.pending(), table.lingering()), (counts, pending, lingers), "step {step}");
        assert_eq!(table.shared_edits(), if step < 1 { [0; 4] } else { edits }, "step {step}");
        assert_eq!((table.shares(), table.live(), table.origin()), (1, 500, SpaceId::new(41)));
    }
    for place in 0..4 {
        let mut one = [0; 4];
        one[place] = -7;
        table.set_shared_edits(one);
        assert_eq!(table.shared_edits(), one);
    }
    table.set_shared_edits([0; 4]);
    table.set_pending(TableKey::NONE, PendingSequence::new(0));
    table.adjust_counts([-1, -20, -300, -40]);
    table.adjust_live(-500);
    frames.free(support::retire(&frames, pfn));
}

#[test]
fn table_locks_nest_parent_before_child() {
    let frames = one_node(&Host::new(1), 0, 64);
    let tables = [Level::PGD, Level::PUD, Level::PMD, Level::PTE]
        .map(|level| frames.new_table(take(&frames, 0), level, SpaceId::new(1)));
    let [pgd, pud, pmd, pte] = tables.map(|pfn| frames.table(pfn));
    {
        let _pgd = pgd.lock::<rank::TableUpperRank>();
        let _pud = pud.lock::<rank::TableUpperRank>();
        let _pmd = pmd.lock::<rank::TableUpperRank>();
        let _pte = pte.lock::<rank::TableRank>();
        assert!([&pgd, &pud, &pmd, &pte].iter().all(|table| table.is_locked()));
        pmd.mark(TableMarks::MAY_PIN);
        assert!(pmd.is_locked(), "a mark changed the lock bit");
    }
    assert!([&pgd, &pud, &pmd, &pte].iter().all(|table| !table.is_locked()));
    assert_eq!(pmd.marks(), TableMarks::MAY_PIN);
}

#[test]
fn live_counts_under_the_lock_lose_no_update() {
    let frames = one_node(&Host::new(4), 0, 64);
    let pfn = frames.new_table(take(&frames, 0), Level::PTE, SpaceId::new(1));
    std::thread::scope(|scope| {
        for cpu in 0..4 {
            let frames = &frames;
            scope.spawn(move || {
                run_on(cpu);
                let table = frames.table(pfn);
                for round in 0..2_000u32 {
                    let _guard = table.lock::<rank::TableRank>();
                    assert!(table.adjust_live(if round % 2 == 0 { 1 } else { -1 }) <= 4);
                }
            });
        }
    });
    assert_eq!(frames.table(pfn).live(), 0);
    frames.free(support::retire(&frames, pfn));
}

#[cfg(debug_assertions)]
mod in_debug_builds {
    use super::*;
    use pagewright_frame::FrameAllocator;
    use pagewright_types::Pfn;

    fn machine_with_table(level: Level) -> (FrameAllocator<Host>, Pfn) {
        let frames = one_node(&Host::new(1), 0, 64);
        let pfn = frames.new_table(take(&frames, 0), level, SpaceId::new(1));
        (frames, pfn)
    }

    #[test]
    #[should_panic(expected = "INV-FRAME-TABLE")]
    fn retiring_a_table_with_a_live_entry_panics() {
        let (frames, pfn) = machine_with_table(Level::PTE);
        frames.table(pfn).adjust_live(1);
        let _ = support::retire(&frames, pfn).into_raw();
    }

    #[test]
    #[should_panic(expected = "INV-FRAME-TABLE")]
    fn retiring_a_shared_table_panics() {
        let (frames, pfn) = machine_with_table(Level::PTE);
        frames.table(pfn).share();
        let _ = support::retire(&frames, pfn).into_raw();
    }

    #[test]
    #[should_panic(expected = "INV-LOCK-ORDER")]
    fn locking_a_table_under_the_wrong_rank_panics() {
        let (frames, pfn) = machine_with_table(Level::PMD);
        let _guard = frames.table(pfn).lock::<rank::TableRank>();
    }

    #[test]
    #[should_panic(expected = "INV-LOCK-ORDER")]
    fn trying_to_lock_a_table_under_the_wrong_rank_panics() {
        let (frames, pfn) = machine_with_table(Level::PTE);
        let _guard = frames.table(pfn).try_lock::<rank::TableUpperRank>();
    }

    #[test]
    fn a_table_is_locked_unless_it_is_locked() {
        for level in [Level::PTE, Level::PMD, Level::PGD] {
            let (frames, pfn) = machine_with_table(level);
            let table = frames.table(pfn);
            if level == Level::PTE {
                let guard = table.try_lock::<rank::TableRank>();
                assert!(guard.is_some() && table.is_locked() && table.try_lock::<rank::TableRank>().is_none());
            } else {
                let guard = table.try_lock::<rank::TableUpperRank>();
                assert!(guard.is_some() && table.is_locked() && table.try_lock::<rank::TableUpperRank>().is_none());
            }
            assert!(!table.is_locked());
            frames.free(support::retire(&frames, pfn));
        }
    }
}
