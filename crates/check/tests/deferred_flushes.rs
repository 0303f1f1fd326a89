//! Kernels that defer flushes, park frames and skip break-before-make.
//!
//! Each correct kernel is clean, and its twin with one flush missing is found by the rule that it
//! breaks, under schedules of each seed (INV-ORACLE-O1, INV-ORACLE-O2).

use crate::raw_tables::{Tables, flush_leaf, leaf, page};
use pagewright_arch::{Effects, on_both};
use pagewright_check::{Aarch64, Check, CheckOutcome, Cpu, Harness, Isa, PageRange, Pfn, Rights, Rule, program};
use pagewright_model::Antecedent;
use pagewright_types::Order;
use pagewright_types::judge::{Fact, LogicalPage};
use std::rc::Rc;

on_both! {
    a_migrated_page_is_read_through_stale_translations_until_something_depends_on_the_flush,
    a_missing_flush_of_a_migrated_page_is_found,
    a_page_that_moves_twice_needs_the_flush_of_both_moves_before_a_store,
    a_parked_frame_that_is_stored_to_is_found,
    an_allocation_that_may_not_wait_takes_no_parked_frame,
}

const SEEDS: u64 = 3;
const PAGE: LogicalPage = LogicalPage::File { file: 1, index: 0 };

/// What a kernel does to a page whose flush it has deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It writes to the file.
    Write,
    /// It truncates the file.
    Truncate,
    /// It maps another page at the address.
    Map,
    /// It unmaps the address.
    Unmap,
}

impl Then {
    /// The count of the windows that it ends.
    fn ends(self) -> Antecedent {
        match self {
            Self::Write => Antecedent::DeferralWritten,
            Self::Truncate => Antecedent::DeferralReplaced,
            Self::Map => Antecedent::DeferralMapped,
            Self::Unmap => Antecedent::DeferralReturned,
        }
    }
}

const EVERYTHING: [Then; 4] = [Then::Write, Then::Truncate, Then::Map, Then::Unmap];

/// The pages of a run: where the file's page was, where it is, and another page.
#[derive(Clone, Copy)]
struct Frames {
    old: Pfn,
    copy: Pfn,
    other: Pfn,
}

/// Runs `kernel` on CPU 0 while CPU 1 reads page 0, which is mapped read-only.
fn run<I: Isa>(seed: u64, kernel: impl Fn(&Cpu<I>, &Tables, Frames) + Copy + 'static) -> CheckOutcome {
    Check::<I>::new().seed(seed).schedules(1500).explore(|harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let [old, copy, other] = [(); 3].map(|()| harness.alloc_frame());
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, old, false));
        harness.cpu(0).publish();
        let frames = Frames { old, copy, other };
        let reads = |cpu: &Cpu<I>| {
            for _ in 0..4 {
                cpu.read(page(0)).ok();
            }
        };
        vec![program(move |cpu| kernel(cpu, &tables, frames)), program(reads)]
    })
}

/// Maps the copy instead of the page, and defers the flush of the old frame.
fn migrate<I: Isa>(cpu: &Cpu<I>, tables: &Tables, Frames { old, copy, .. }: Frames) {
    let (root, range) = (tables.root(), PageRange::page(page(0)));
    cpu.call("migrate", |cpu| {
        cpu.will_reduce(range, Rights::empty());
        cpu.swap(tables.leaf(0), leaf(I::KIND, copy, false));
        cpu.publish();
        cpu.sim().declare(Fact::RightDeferred { root, range, frame: old, copy: Some(copy), page: PAGE });
    });
}

fn migration<I: Isa>(then: Then, flushed: bool, seed: u64) -> CheckOutcome {
    run::<I>(seed, move |cpu, tables, frames| {
        migrate(cpu, tables, frames);
        let flush = || {
            if flushed {
                flush_leaf(cpu);
            }
        };
        let (range, slot) = (PageRange::page(page(0)), tables.leaf(0));
        match then {
            Then::Write => {
                flush();
                cpu.sim().write(frames.copy.base(), &[7]);
            }
            Then::Truncate => {
                flush();
                cpu.sim().declare(Fact::PageReplaced { page: PAGE });
            }
            Then::Map => cpu.call("mmap", |cpu| {
                cpu.will_reduce(range, Rights::empty());
                cpu.swap(slot, 0);
                // This flush covers the new entry on arm64, and the deferred one if it comes first.
                flush();
                cpu.swap(slot, leaf(I::KIND, frames.other, false));
                flush_leaf(cpu);
            }),
            Then::Unmap => cpu.call("munmap", |cpu| {
                cpu.will_reduce(range, Rights::empty());
                cpu.swap(slot, 0);
                flush();
            }),
        }
    })
}

fn a_migrated_page_is_read_through_stale_translations_until_something_depends_on_the_flush<I: Isa>() {
    let (mut deferred, mut ended, mut stale) = (0, 0, 0);
    for then in EVERYTHING {
        let (mut so, by) = (0, then.ends());
        for seed in 0..SEEDS {
            let outcome = migration::<I>(then, true, seed);
            outcome.unwrap_clean();
            deferred += outcome.search().tally.of(Antecedent::RightDeferred);
            ended += outcome.search().tally.of(Antecedent::DeferralEnded);
            stale += outcome.search().tally.of(Antecedent::StaleHit);
            so += outcome.search().tally.of(by);
        }
        assert!(so >= 1000, "{then:?}: {by:?} could hardly fail: {so}");
    }
    println!("{}: {deferred} rights deferred while a CPU held the page, {ended} events that needed the flush", I::KIND);
    assert!(deferred >= 1000 && ended >= 1000, "the rule could hardly fail: {deferred}, {ended}");
    println!("{}: {stale} hits on what the page left", I::KIND);
    assert!(stale >= 1000, "hardly a program read the old frame: {stale}");
}

fn a_missing_flush_of_a_migrated_page_is_found<I: Isa>() {
    for then in EVERYTHING {
        for seed in 0..SEEDS {
            migration::<I>(then, false, seed).expect_violation(Rule::Rights);
        }
    }
}

/// Moves the page twice, flushes or not, and stores to the second copy.
fn two_migrations<I: Isa>(flushed: bool, seed: u64) -> CheckOutcome {
    run::<I>(seed, move |cpu, tables, frames| {
        migrate(cpu, tables, frames);
        // The program reads the page before it moves again.
        cpu.relax();
        let (root, range) = (tables.root(), PageRange::page(page(0)));
        cpu.call("migrate", |cpu| {
            cpu.will_reduce(range, Rights::empty());
            let copy = Some(frames.other);
            cpu.sim().declare(Fact::RightDeferred { root, range, frame: frames.copy, copy, page: PAGE });
            cpu.swap(tables.leaf(0), leaf(I::KIND, frames.other, false));
            cpu.publish();
        });
        if flushed {
            flush_leaf(cpu);
        }
        cpu.sim().write(frames.other.base(), &[7]);
    })
}

fn a_page_that_moves_twice_needs_the_flush_of_both_moves_before_a_store<I: Isa>() {
    let mut again = 0;
    for seed in 0..SEEDS {
        let outcome = two_migrations::<I>(true, seed);
        outcome.unwrap_clean();
        again += outcome.search().tally.of(Antecedent::MovedAgain);
        two_migrations::<I>(false, seed).expect_violation(Rule::Rights);
    }
    println!("{}: {again} pages moved again while a CPU held their first frame", I::KIND);
    assert!(again >= 1000, "the rule could hardly fail: {again}");
}

/// A kernel stores a new entry over a live one, as x86-64 permits.
fn replacement(flushed: bool, seed: u64) -> CheckOutcome {
    run::<Aarch64>(seed, move |cpu, tables, frames| {
        cpu.sim().write(frames.other.base(), &[9]);
        cpu.call("copy-on-write", |cpu| {
            cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
            if flushed {
                cpu.swap(tables.leaf(0), 0);
                flush_leaf(cpu);
            }
            cpu.swap(tables.leaf(0), leaf(Aarch64::KIND, frames.other, true));
            flush_leaf(cpu);
        });
    })
}

#[test]
fn a_missing_break_before_make_is_found_although_the_flush_comes_before_the_return() {
    let mut replaced = 0;
    for seed in 0..SEEDS {
        let outcome = replacement(true, seed);
        outcome.unwrap_clean();
        replaced += outcome.search().tally.of(Antecedent::EntryReplaced);
        let outcome = replacement(false, seed);
        outcome.expect_violation(Rule::Rights);
        assert!(outcome.to_string().contains("without break-before-make"), "{outcome}");
    }
    println!("arm64: {replaced} entries replaced where a walk had found another translation");
    assert!(replaced >= 1000, "{replaced}");
}

/// What stores to a frame that the kernel has freed before its flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreToFree {
    Nothing,
    Kernel,
    /// A device, or a pointer of the kernel that it should not have.
    Unseen,
}

/// Unmaps page 0, parks its frame, and frees and allocates it after the flush.
fn park<I: Isa>(store: StoreToFree, seed: u64) -> CheckOutcome {
    run::<I>(seed, move |cpu, tables, frames| {
        cpu.call("munmap", |cpu| {
            cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
            cpu.swap(tables.leaf(0), 0);
            cpu.park_frame(frames.old);
            match store {
                StoreToFree::Nothing => {}
                StoreToFree::Kernel => cpu.sim().write(frames.old.base(), &[5]),
                StoreToFree::Unseen => {
                    let word = &cpu.ram()[frames.old.index() * 512];
                    word.store(5, std::sync::atomic::Ordering::Release);
                }
            }
            flush_leaf(cpu);
            cpu.free_frame(frames.old);
            assert_eq!(cpu.alloc_frame(), frames.old);
        });
    })
}

fn a_parked_frame_that_is_stored_to_is_found<I: Isa>() {
    let mut parked = 0;
    for seed in 0..SEEDS {
        let outcome = park::<I>(StoreToFree::Nothing, seed);
        outcome.unwrap_clean();
        parked += outcome.search().tally.of(Antecedent::Parked);
        for (store, text) in
            [(StoreToFree::Kernel, "writes to frame"), (StoreToFree::Unseen, "changed while it was free")]
        {
            let outcome = park::<I>(store, seed);
            outcome.expect_violation(Rule::Reuse);
            assert!(outcome.to_string().contains(text), "{outcome}");
        }
    }
    println!("{}: {parked} parked frames were compared when they were taken", I::KIND);
    assert!(parked >= 1000, "{parked}");
}

/// An allocation with interrupts disabled, which must not wait for a flush.
///
/// The allocator has a parked frame and, as a reserve, a frame whose flush is complete.
fn allocation<I: Isa>(from_reserve: bool, seed: u64) -> CheckOutcome {
    run::<I>(seed, move |cpu, tables, frames| {
        let unmap = |cpu: &Cpu<I>, frame: Pfn| {
            cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
            cpu.swap(tables.leaf(0), 0);
            cpu.publish();
            cpu.sim().declare(Fact::FrameFreed { pfn: frame, order: Order::ZERO });
        };
        cpu.call("munmap", |cpu| {
            unmap(cpu, frames.old);
            flush_leaf(cpu);
        });
        cpu.swap(tables.leaf(0), leaf(I::KIND, frames.other, false));
        cpu.publish();
        // The program reads the page before the next call.
        cpu.relax();
        cpu.call("munmap", |cpu| {
            unmap(cpu, frames.other);
            cpu.without_interrupts(|cpu| {
                let pfn = if from_reserve { frames.old } else { frames.other };
                cpu.sim().declare(Fact::FrameReused { pfn, order: Order::ZERO });
            });
            flush_leaf(cpu);
        });
    })
}

fn an_allocation_that_may_not_wait_takes_no_parked_frame<I: Isa>() {
    let mut taken = 0;
    for seed in 0..SEEDS {
        let outcome = allocation::<I>(true, seed);
        outcome.unwrap_clean();
        taken += outcome.search().tally.of(Antecedent::ReusedAtOnce);
        allocation::<I>(false, seed).expect_violation(Rule::Reuse);
    }
    println!("{}: {taken} frames that a program had accessed were taken without waiting", I::KIND);
    assert!(taken >= 1000, "{taken}");
}
