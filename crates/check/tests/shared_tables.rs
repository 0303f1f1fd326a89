//! Two spaces that share a last-level table, and kernels that forget walk caches.
//!
//! Page 0 is read-only, page 1 is writable.
//!
//! The correct kernel is clean. Each wrong one is found by O2, under schedules of at least three
//! seeds (INV-ORACLE-O2).

use crate::raw_tables::{TAG, Tables, entry, invalidate, leaf, page, pointer};
use pagewright_arch::{Effects, on_both};
use pagewright_check::{Check, CheckOutcome, Cpu, Isa, IsaKind, Level, PageRange, Rights, Rule, program};
use pagewright_model::Antecedent;
use pagewright_types::judge::Fact;
use std::rc::Rc;

on_both! {
    a_kernel_that_flushes_walk_caches_shares_and_leaves_tables_without_a_report,
    a_kernel_that_flushes_leaves_only_is_found,
}

const SEEDS: u64 = 3;

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

/// Invalidates both pages on this CPU (x86-64) or issues the broadcasts (arm64).
fn invalidate_both<I: Isa>(cpu: &Cpu<I>, flush: Flush) {
    (0..2).for_each(|index| invalidate(cpu, index, flush == Flush::Leaves));
}

/// Flushes the TLBs of all CPUs.
fn flush<I: Isa>(cpu: &Cpu<I>, flush: Flush) {
    match I::KIND {
        IsaKind::Aarch64 => {
            cpu.publish();
            invalidate_both(cpu, flush);
            cpu.complete();
        }
        // INVLPG drops the walk caches of its tag, too: this kernel forgets the other CPU, which
        // has read no leaf that grants more than stays.
        IsaKind::X86_64 => {
            invalidate_both(cpu, flush);
            if flush == Flush::WalkCaches {
                cpu.shoot_down(cpu.others(), move |other| invalidate_both(other, flush));
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
        let fact = Fact::TableShared { table: last, level: Level::PTE, shared: true };
        harness.cpu(0).sim().declare(fact);
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
