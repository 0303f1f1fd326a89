//! Each store to a page table through a pointer is a scheduling point (INV-TRAP-STORE).

use crate::{drawn, users_code};
use pagewright_check::{
    Aarch64, ActReduction, Check, CheckFinding, CheckOutcome, Cpu, Harness, Isa, IsaKind, Level, PageRange, Pfn,
    Rights, Rule, Tag, VirtAddr, X86_64, program,
};
use pagewright_trap::map_memory;
use std::arch::asm;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const VA: VirtAddr = VirtAddr::new(1 << 30);

/// The tables of one space, as foreign code sees them.
#[derive(Clone, Copy)]
struct Space {
    leaf: *mut u64,
    page: u64,
    frame: Pfn,
}

impl Space {
    /// Makes tables by pointers, and loads them on all CPUs.
    fn load<I: Isa>(harness: &Harness<I>) -> Self {
        let tables = [(); 4].map(|()| harness.alloc_frame());
        let frame = harness.alloc_frame();
        let table = |pfn: Pfn| harness.host_address(pfn).cast::<u64>();
        let (pointer, leaf) = match I::KIND {
            IsaKind::X86_64 => (0b111, 0b111),
            // nG, AF, inner shareable, AP[1]; PXN and UXN.
            IsaKind::Aarch64 => (0b11, 0b11 << 53 | 0b1111 << 8 | 1 << 6 | 0b11),
        };
        for (level, pair) in [Level::PGD, Level::PUD, Level::PMD].into_iter().zip(tables.windows(2)) {
            // SAFETY: the pointer is to a word of a frame of the machine.
            unsafe { table(pair[0]).wrapping_add(level.index_of(VA)).write_volatile(pair[1].base().raw() | pointer) };
        }
        let space = Self { leaf: table(tables[3]), page: frame.base().raw() | leaf, frame };
        // SAFETY: as above.
        unsafe { space.leaf.write_volatile(space.page) };
        harness.cpus().for_each(|cpu| cpu.load_root(tables[0], Tag::new(1)));
        space
    }

    #[inline(never)]
    fn store(self, entry: u64) {
        // SAFETY: the pointer is to a word of a frame of the machine.
        unsafe { self.leaf.write_volatile(entry) };
    }
}

/// The line of the store of [`Space::store`].
const STORE: u32 = line!() - 5;

/// CPU 0 clears an entry and writes it again, without a call in between; CPU 1 reads the page.
fn blink(check: Check<X86_64>) -> CheckOutcome {
    check.schedules(300).explore(|harness| {
        let space = Space::load(harness);
        let blinks = program(move |_: &Cpu<X86_64>| {
            space.store(0);
            space.store(space.page);
        });
        let reads = program(|cpu: &Cpu<X86_64>| {
            if cpu.read(VA).is_err() {
                cpu.report("the page was gone");
            }
        });
        vec![blinks, reads]
    })
}

#[test]
fn other_cpus_run_between_two_stores_only_if_stores_trap() {
    let seen = blink(Check::new().trap_pointer_stores(map_memory));
    assert!(matches!(seen.finding(), Some(CheckFinding::Reported(_))), "{seen}");
    let store = drawn(&seen, "clears entry 0x4[0] by pointer (was 0x5007)");
    assert!(store.contains(&users_code("stores", STORE)), "{store} in {seen}");
    let unseen = blink(Check::new());
    assert!(unseen.finding().is_none(), "{unseen}");
}

/// Stores a word to the entries from `at` on, each in another way; the lines are counted.
#[inline(never)]
fn stores_in_many_ways(at: *mut u64) {
    let one = std::hint::black_box(1);
    let by_core: unsafe fn(*mut u64, u64) = ptr::write_volatile;
    // SAFETY: the pointer is to words of a frame of the machine.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "each of them is a case")]
    unsafe {
        ptr::write_volatile(at.add(0), 0x9000);
        ptr::write(at.add(1), 0x9000);
        (*at.add(2).cast::<AtomicU64>()).store(0x9000, Ordering::Release);
        (*at.add(3).cast::<AtomicU64>()).fetch_or(0x9000, Ordering::SeqCst);
        std::hint::black_box(by_core)(at.add(4), 0x9000);
        ptr::copy_nonoverlapping(&raw const WORD, at.add(5), one);
        (0..1).map(|index| at.add(6 + index)).for_each(|at| at.write_unaligned(0x9000));
    }
}

/// The line of the first store above, and the number of them.
const FIRST: u32 = line!() - 11;
const WAYS: u32 = 7;
static WORD: u64 = 0x9000;

/// INV-CHECK-USER: `core` and `memcpy` of the C library are not named, inlined or not.
#[test]
fn a_store_by_a_pointer_is_named_by_the_line_of_the_user_that_makes_it() {
    let check = Check::<X86_64>::new().trap_pointer_stores(map_memory).schedules(1);
    let outcome = check.explore(|harness| {
        let space = Space::load(harness);
        vec![program(move |cpu: &Cpu<X86_64>| {
            stores_in_many_ways(space.leaf.wrapping_add(8));
            cpu.report("done");
        })]
    });
    for way in 0..WAYS {
        let store = drawn(&outcome, &format!("stores 0x9000 to entry 0x4[{}] by pointer (was 0x0)", way + 8));
        assert!(store.contains(&users_code("stores", FIRST + way)), "{store} in {outcome}");
    }
}

#[test]
fn a_trapped_store_waits_in_the_store_buffer_of_an_arm64_cpu() {
    let unmap = |publishes: bool| {
        let check = Check::<Aarch64>::new().delay_pointer_stores().trap_pointer_stores(map_memory).schedules(300);
        check.explore(move |harness| {
            let space = Space::load(harness);
            let unmaps = program(move |cpu: &Cpu<Aarch64>| {
                cpu.call("munmap", |cpu| {
                    cpu.will_reduce(PageRange::page(VA), Rights::empty());
                    space.store(0);
                    if publishes {
                        cpu.publish();
                    }
                    cpu.flush_page(VA, pagewright_check::InvalidateScope::Broadcast);
                    cpu.relax();
                    cpu.complete();
                });
                cpu.free_frame(space.frame);
            });
            vec![unmaps, program(|cpu: &Cpu<Aarch64>| (0..3).for_each(|_| _ = cpu.read(VA)))]
        })
    };
    let clean = unmap(true);
    clean.unwrap_clean();
    let text = clean.to_string();
    assert!(
        text.contains("stores through pointers, each a scheduling point") && !text.contains("NOT judged"),
        "{text}"
    );
    let outcome = unmap(false);
    outcome.expect_violation(Rule::Rights);
}

#[test]
fn vector_locked_and_unaligned_stores_are_made_whole_and_registers_survive() {
    let check = Check::<X86_64>::new().trap_pointer_stores(map_memory).schedules(50);
    let outcome = check.explore(|harness| {
        let space = Space::load(harness);
        let stores = program(move |cpu: &Cpu<X86_64>| {
            let entries = space.leaf.wrapping_add(8);
            let (old, carry, kept): (u64, u8, u64);
            // SAFETY: the words are in a frame of the machine; the red zone is this block's own.
            unsafe {
                asm!(
                    "sub rsp, 128",
                    "mov qword ptr [rsp - 64], 77",
                    "mov {word}, 0x1000",
                    "movq xmm3, {word}",
                    "punpcklqdq xmm3, xmm3",
                    "movups [{entries}], xmm3",
                    "mov {word}, 0x3000",
                    "xchg [{entries} + 16], {word}",
                    "mov dword ptr [{entries} + 28], 5",
                    "stc",
                    "lock bts qword ptr [{entries}], 1",
                    "mov qword ptr [{entries} + 40], 9",
                    "setc {carry}",
                    "mov {kept}, [rsp - 64]",
                    "add rsp, 128",
                    entries = in(reg) entries,
                    word = out(reg) old,
                    carry = out(reg_byte) carry,
                    kept = out(reg) kept,
                    out("xmm3") _,
                )
            };
            // SAFETY: as above.
            let words = [0, 1, 2, 3, 5].map(|index| unsafe { entries.wrapping_add(index).read_volatile() });
            assert_eq!(words, [0x1002, 0x1000, 0x3000, 5 << 32, 9]);
            assert_eq!((old, carry, kept), (0, 0, 77));
            cpu.note("stored");
        });
        vec![stores, program(|cpu: &Cpu<X86_64>| (0..3).for_each(|_| _ = cpu.read(VA)))]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

#[test]
fn a_cpu_that_spins_on_a_lock_of_foreign_code_waits() {
    let contended = Rc::new(Cell::new(0));
    let spun = Rc::clone(&contended);
    let check = Check::<X86_64>::new().trap_pointer_stores(map_memory).schedules(20);
    let outcome = check.explore(move |harness| {
        let space = Space::load(harness);
        let lock = Rc::new(AtomicBool::new(false));
        let body = |index: usize| {
            let (lock, spun) = (Rc::clone(&lock), Rc::clone(&spun));
            program(move |_: &Cpu<X86_64>| {
                while lock.swap(true, Ordering::Acquire) {
                    spun.set(spun.get() + 1);
                    std::hint::spin_loop();
                }
                // SAFETY: the words are in a frame of the machine.
                unsafe { space.leaf.wrapping_add(index).write_volatile(space.page) };
                lock.store(false, Ordering::Release);
            })
        };
        vec![body(1), body(2)]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
    assert!(contended.get() > 0, "no CPU has waited");
}

#[test]
fn a_token_of_trapped_stores_is_not_that_of_the_machine_without() {
    let token = |check: Check<X86_64>| {
        let outcome = check.schedules(300).explore(|_| vec![program(|cpu: &Cpu<X86_64>| cpu.report("found"))]);
        outcome.search().failing.as_ref().map(|failing| failing.token.fingerprint)
    };
    assert_ne!(token(Check::new()), token(Check::new().trap_pointer_stores(map_memory)));
}

/// What CPU 1 reads in all schedules while CPU 0 clears an entry and writes it again.
fn seen_in_all_schedules(reduction: ActReduction) -> BTreeSet<String> {
    let (seen, all) = (Rc::new(RefCell::new(String::new())), RefCell::new(BTreeSet::new()));
    let check = Check::<X86_64>::new().memory("128K").trap_pointer_stores(map_memory).exhaustive(1, 0);
    let setup = |harness: &Harness<X86_64>| {
        let (space, seen) = (Space::load(harness), Rc::clone(&seen));
        let blinks = program(move |_: &Cpu<X86_64>| {
            space.store(0);
            space.store(space.page);
        });
        let reads = program(move |cpu: &Cpu<X86_64>| *seen.borrow_mut() = format!("{:?}", cpu.read(VA)));
        vec![blinks, reads]
    };
    let done = check.enumerate(reduction, setup, &mut |run| {
        all.borrow_mut().insert(format!("{:?} {}", run.findings, seen.borrow()));
        ControlFlow::Continue(())
    });
    assert!(done.complete);
    all.into_inner()
}

/// INV-CHECK-REDUCED, INV-CHECK-MERGED.
#[test]
fn an_exhaustive_search_stops_at_each_trapped_store() {
    let plain = seen_in_all_schedules(ActReduction::Plain);
    assert_eq!(plain.len(), 2, "CPU 1 reads the page or faults: {plain:?}");
    assert_eq!(seen_in_all_schedules(ActReduction::Merging), plain);
}

/// A forked process would share the second mapping, and memory that was mapped twice before.
#[test]
fn a_check_whose_stores_trap_and_those_after_it_run_in_one_process() {
    for check in [Check::<X86_64>::new().trap_pointer_stores(map_memory), Check::new()] {
        let runs = Rc::new(Cell::new(0));
        let outcome = check.schedules(40).processes(2).explore(|harness| {
            runs.set(runs.get() + 1);
            Space::load(harness);
            vec![program(|cpu: &Cpu<X86_64>| _ = cpu.read(VA))]
        });
        assert!(outcome.finding().is_none(), "{outcome}");
        assert_eq!(runs.get(), 40);
    }
}
