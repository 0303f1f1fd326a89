//! Two spaces that share a last-level table, and kernels that forget walk caches.
//!
//! The correct kernel is clean. Each wrong one is found by O2, under schedules of at least three
//! seeds (INV-ORACLE-O2).

use pagewright_arch::on_both;
use pagewright_check::{
    Check, CheckOutcome, Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Isa, IsaKind, Level, PageRange,
    Pfn, PhysAddr, Rights, Rule, Tag, VirtAddr, program,
};
use pagewright_model::Antecedent;
use std::rc::Rc;

on_both! {
    a_kernel_that_flushes_walk_caches_shares_and_leaves_tables_without_a_report,
    a_kernel_that_flushes_leaves_only_is_found,
}

const TAG: Tag = Tag::new(1);
const SEEDS: u64 = 3;

/// The address of page `index`; page 0 is read-only, page 1 is writable.
const fn page(index: u64) -> VirtAddr {
    VirtAddr::new((1 << 30) + (index << 12))
}

/// What the shared table spans.
fn span() -> PageRange {
    PageRange::new(page(0), page(Level::ENTRIES as u64))
}

/// What a kernel does to the pointer of the first space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    /// It write-protects the pointer, as fork does before a table is shared.
    Protect,
    /// It clears the pointer; the other space keeps the table.
    Leave,
}

/// What the kernel flushes after the edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    WalkCaches,
    /// The leaves of both pages, which grant no TLB more than stays.
    Leaves,
}

/// The tables of a space whose root is the first of them; the last one may be shared.
struct Tables([Pfn; 4]);

impl Tables {
    fn new<I: Isa>(harness: &Harness<I>, last: Pfn) -> Self {
        let tables = [harness.alloc_frame(), harness.alloc_frame(), harness.alloc_frame(), last];
        for (level, below) in [Level::PGD, Level::PUD, Level::PMD].into_iter().zip(&tables[1..]) {
            let table = tables[Level::PGD.index() - level.index()];
            harness.cpu(0).store(entry(table, level), pointer(I::KIND, *below, true));
        }
        Self(tables)
    }
}

fn entry(table: Pfn, level: Level) -> PhysAddr {
    table.base().add(level.index_of(page(0)) as u64 * 8)
}

/// The word of a pointer to `table` (Intel SDM table 4-19, Arm ARM D8.3.1).
fn pointer(isa: IsaKind, table: Pfn, writable: bool) -> u64 {
    table.base().raw()
        | match (isa, writable) {
            (IsaKind::X86_64, true) => 0b111,
            (IsaKind::X86_64, false) => 0b101,
            (IsaKind::Aarch64, true) => 0b11,
            (IsaKind::Aarch64, false) => 1 << 62 | 0b11,
        }
}

/// The word of a leaf (Intel SDM table 4-20, Arm ARM D8.3.1).
fn leaf(isa: IsaKind, pfn: Pfn, writable: bool) -> u64 {
    pfn.base().raw()
        | match (isa, writable) {
            (IsaKind::X86_64, true) => 1 << 63 | 0b111,
            (IsaKind::X86_64, false) => 1 << 63 | 0b101,
            (IsaKind::Aarch64, true) => 0b11 << 53 | 0b1111 << 8 | 1 << 6 | 0b11,
            (IsaKind::Aarch64, false) => 0b11 << 53 | 0b1111 << 8 | 0b11 << 6 | 0b11,
        }
}

/// Invalidates the pages on this CPU (x86-64) or on all (arm64).
fn invalidate<I: Isa>(cpu: &Cpu<I>, flush: Flush) {
    let scope = match I::KIND {
        IsaKind::X86_64 => InvalidateScope::Local,
        IsaKind::Aarch64 => InvalidateScope::Broadcast,
    };
    for index in 0..2 {
        let last_level = flush == Flush::Leaves;
        let target = InvalidateTarget::Page { tag: TAG, va: page(index), level: Level::PTE, last_level };
        cpu.invalidate(Invalidate { scope, target });
    }
}

/// Flushes the TLBs of all CPUs.
fn flush<I: Isa>(cpu: &Cpu<I>, flush: Flush) {
    match I::KIND {
        IsaKind::Aarch64 => {
            cpu.publish();
            invalidate(cpu, flush);
            cpu.complete();
        }
        // INVLPG drops the walk caches of its tag, too: this kernel forgets the other CPU, which
        // has read no leaf that grants more than stays.
        IsaKind::X86_64 => {
            invalidate(cpu, flush);
            if flush == Flush::WalkCaches {
                cpu.shoot_down(cpu.others(), move |other| invalidate(other, flush));
            }
        }
    }
}

/// CPU 1 reads page 0 while CPU 0 edits the pointer to the table that two spaces share.
fn run<I: Isa>(edit: Edit, flushed: Flush, seed: u64) -> CheckOutcome {
    Check::<I>::new().seed(seed).schedules(1500).explore(|harness| {
        let last = harness.alloc_frame();
        for (index, writable) in [(0, false), (1, true)] {
            let word = leaf(I::KIND, harness.alloc_frame(), writable);
            harness.cpu(0).store(last.base().add(index * 8), word);
        }
        let spaces = [Tables::new(harness, last), Tables::new(harness, last)].map(Rc::new);
        // The other space is loaded once, so the oracle knows it.
        harness.cpu(0).load_root(spaces[1].0[0], Tag::new(2));
        harness.cpus().for_each(|cpu| cpu.load_root(spaces[0].0[0], TAG));
        let owner = Rc::clone(&spaces[0]);
        let edits = move |cpu: &Cpu<I>| {
            let [root, _, above, last] = owner.0;
            cpu.call("edit", |cpu| {
                let (left, word) = match edit {
                    Edit::Protect => (Rights::RX, pointer(I::KIND, last, false)),
                    Edit::Leave => (Rights::empty(), 0),
                };
                cpu.will_reduce_under(root, span(), left);
                cpu.swap(entry(above, Level::PMD), word);
                flush(cpu, flushed);
            });
        };
        let reads = |cpu: &Cpu<I>| {
            for _ in 0..3 {
                cpu.read(page(0)).ok();
            }
        };
        vec![program(edits), program(reads)]
    })
}

fn a_kernel_that_flushes_walk_caches_shares_and_leaves_tables_without_a_report<I: Isa>() {
    for edit in [Edit::Protect, Edit::Leave] {
        let judged = (0..SEEDS).map(|seed| {
            let outcome = run::<I>(edit, Flush::WalkCaches, seed);
            outcome.unwrap_clean();
            let tally = &outcome.search().tally;
            let paths = tally.of(Antecedent::SharedPathReduced);
            assert_eq!(paths, tally.of(Antecedent::PathReduced), "each path leads to the shared table");
            println!("{} {edit:?}, seed {seed}: {paths} shared paths reduced", I::KIND);
            paths
        });
        assert!(judged.sum::<u64>() >= 1000, "the rule could hardly fail");
    }
}

fn a_kernel_that_flushes_leaves_only_is_found<I: Isa>() {
    for seed in 0..SEEDS {
        run::<I>(Edit::Leave, Flush::Leaves, seed).expect_violation(Rule::Rights);
        let protected = run::<I>(Edit::Protect, Flush::Leaves, seed);
        protected.expect_violation(Rule::Rights);
        assert!(protected.to_string().contains("holds a stale path"), "{protected}");
    }
}
