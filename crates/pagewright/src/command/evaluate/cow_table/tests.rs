//! What a fork touches and what a child's tables take, in small.
//!
//! No test looks at a time.

use super::fork_time::{ForkCounts, ForkTimes};
use super::memory::{self, TableMemory};
use super::parent::ForkMode;
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_types::PAGE_SIZE;

const MIB: u64 = 1 << 20;

fn of(memory: &[TableMemory], mode: ForkMode) -> &TableMemory {
    memory.iter().find(|memory| memory.mode == mode).expect("both ways are measured")
}

fn a_child_owns_its_root_then_eight_tables<I: Isa>() {
    let bytes = 64 * MIB;
    let measured = memory::measure::<I>(bytes).expect("memory");
    let (classic, shared) = (of(&measured, ForkMode::Classic), of(&measured, ForkMode::Shared));
    let private =
        |memory: &TableMemory| memory.moments.iter().map(|moment| moment.private / PAGE_SIZE).collect::<Vec<_>>();
    assert_eq!(private(shared), [1, 4, 5, 8], "the root, then three tables, one more and three more");
    let whole = classic.moments[0].private;
    assert!(whole >= bytes / PAGE_SIZE / 512 * PAGE_SIZE, "a classic child has all tables: {whole}");
    assert_eq!(private(classic), [whole / PAGE_SIZE; 4]);
    for (classic, shared) in classic.moments.iter().zip(&shared.moments) {
        assert_eq!((classic.shared, classic.proportional), (0, whole));
        assert_eq!((shared.rss, shared.vm_pte), (classic.rss, classic.vm_pte), "as after a classic fork");
        assert_eq!(shared.private + shared.shared, whole);
        assert_eq!(classic.total, 2 * whole);
        assert_eq!(shared.total, whole + shared.private, "parent and child have the rest in common");
    }
}

#[test]
fn a_child_owns_its_root_then_eight_tables_on_both_instruction_sets() {
    a_child_owns_its_root_then_eight_tables::<X86_64>();
    a_child_owns_its_root_then_eight_tables::<Aarch64>();
}

#[test]
fn a_fork_with_shared_tables_touches_the_same_whatever_the_size() {
    let [small, large] = [MIB, 256 * MIB].map(|bytes| ForkTimes::measure(bytes, 1, 1, false).expect("memory"));
    let shared = *small.counts_of(ForkMode::Shared);
    assert_eq!(shared, *large.counts_of(ForkMode::Shared));
    assert_eq!(
        (shared.tables_shared, shared.entries_copied, shared.records),
        (1, 0, 2),
        "the child's root, and the table below the parent's"
    );
    assert!(shared.entry_accesses > 0);
    for times in [&small, &large] {
        let pages = times.bytes / PAGE_SIZE;
        let classic = times.counts_of(ForkMode::Classic);
        assert_eq!((classic.tables_shared, classic.entries_copied), (0, pages));
        assert!(
            classic.entry_accesses >= 3 * pages,
            "each page's entry is loaded, write-protected and stored: {classic:?}"
        );
        assert!(classic.records >= pages, "each page gets a reference and a mapping: {classic:?}");
    }
}

#[test]
fn mappings_change_neither_what_is_shared_nor_what_is_copied() {
    let pages = 64 * MIB / PAGE_SIZE;
    for mappings in [10, 1000] {
        let times = ForkTimes::measure(64 * MIB, mappings, 1, false).expect("memory");
        let ForkCounts { tables_shared, entries_copied, .. } = times.counts_of(ForkMode::Shared);
        assert_eq!((*tables_shared, *entries_copied), (1, 0));
        assert_eq!(times.counts_of(ForkMode::Classic).entries_copied, pages);
    }
}
