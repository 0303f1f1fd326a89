//! What a finding does not need of its programs is left out (INV-CHECK-CUT).

use crate::raw_tables::{Tables, flush_leaf, leaf, page};
use pagewright_arch::on_both;
use pagewright_check::{
    Check, CheckFinding, CheckOutcome, Cpu, CpuId, CpuProgram, Harness, Isa, IsaKind, PageRange, ProgramPart,
    ReplayToken, Rights, Rule, X86_64, operations, program,
};
use std::cell::Cell;
use std::rc::Rc;

on_both! {
    only_the_programs_and_operations_that_are_needed_remain,
}

fn left_out(outcome: &CheckOutcome) -> Vec<ProgramPart> {
    let found = outcome.search().failing.as_ref().unwrap_or_else(|| panic!("{outcome}"));
    let mut parts = found.attempt.report.schedule.left_out.clone();
    parts.sort_unstable();
    parts
}

fn operation(cpu: u16, number: u32) -> ProgramPart {
    ProgramPart::Operation(CpuId::new(cpu), number)
}

fn reads<I: Isa>(index: u64) -> CpuProgram<I> {
    program(move |cpu: &Cpu<I>| _ = cpu.read(page(index)))
}

/// CPU 0 unmaps page 0 and then, without a flush, page 1; CPU 1 reads both, CPU 2 reads page 0.
fn unmaps<I: Isa>(harness: &Harness<I>) -> Vec<CpuProgram<I>> {
    let tables = Rc::new(Tables::run_everywhere(harness));
    for index in 0..2 {
        harness.cpu(0).store(tables.leaf(index), leaf(I::KIND, harness.alloc_frame(), false));
    }
    let unmap = |index: u64, flush: fn(&Cpu<I>)| {
        let tables = Rc::clone(&tables);
        program(move |cpu: &Cpu<I>| {
            cpu.call("munmap", |cpu| {
                cpu.will_reduce(PageRange::page(page(index)), Rights::empty());
                cpu.swap(tables.leaf(index), 0);
                cpu.publish();
                flush(cpu);
            });
        })
    };
    let kernel = [unmap(0, flush_leaf), reads(0), unmap(1, |_| {}), reads(1)];
    vec![operations(kernel), operations([reads(0), reads(1), reads(0), reads(1)]), reads(0)]
}

fn only_the_programs_and_operations_that_are_needed_remain<I: Isa>() {
    let check = Check::<I>::new().cpus(3);
    let outcome = check.explore(unmaps);
    let found = outcome.expect_violation(Rule::Rights);
    let parts = left_out(&outcome);
    // One read of page 1 on CPU 1, before or after the unmap, is needed, and the second unmap.
    assert!(parts.contains(&ProgramPart::Program(CpuId::new(2))), "{outcome}");
    for needless in [operation(0, 1), operation(0, 2), operation(0, 4), operation(1, 1), operation(1, 3)] {
        assert!(parts.contains(&needless), "{needless:?}\n{outcome}");
    }
    assert!(!parts.contains(&operation(0, 3)), "{outcome}");
    let text = outcome.to_string();
    assert!(text.contains("the program of CPU 2") && text.contains("operation 1 of CPU 0"), "{text}");
    assert!(!text.contains("CPU 2 │") && !text.contains("0x40000000-"), "{text}");
    // The token says it, too.
    let token: ReplayToken = found.shrunk.to_string().parse().expect("a token");
    assert_eq!(token, found.shrunk);
    let again = check.replay(&token, unmaps).expect("the same machine");
    assert_eq!(again.expect_violation(Rule::Rights).attempt.report.log, found.attempt.report.log);
    assert_eq!(left_out(&again), parts);
}

/// CPU 1 finds an old value because CPU 0 comes late; without CPU 0 it would, too.
#[test]
fn a_program_that_a_panic_or_a_report_may_wait_for_is_kept() {
    let run = |fails: fn(&Cpu<X86_64>)| {
        Check::<X86_64>::new().explore(move |_| {
            let value = Rc::new(Cell::new(0));
            let writer = Rc::clone(&value);
            let writes = program(move |cpu: &Cpu<X86_64>| {
                cpu.relax();
                writer.set(1);
            });
            let checks = program(move |cpu: &Cpu<X86_64>| {
                cpu.publish();
                if value.get() == 0 {
                    fails(cpu);
                }
            });
            vec![writes, checks]
        })
    };
    let panics = run(|_| panic!("the value is old"));
    assert!(matches!(panics.finding(), Some(CheckFinding::Panicked { .. })), "{panics}");
    assert_eq!(left_out(&panics), []);
    let reports = run(|cpu| cpu.report("the value is old"));
    assert!(matches!(reports.finding(), Some(CheckFinding::Reported(_))), "{reports}");
    assert_eq!(left_out(&reports), []);
}

/// The second assertion would fail in place of the first, without the operation between them.
#[test]
fn another_panic_does_not_stand_for_the_first() {
    let outcome = Check::<X86_64>::new().explore(|harness| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        harness.cpu(0).store(tables.leaf(0), leaf(IsaKind::X86_64, harness.alloc_frame(), false));
        let done = Rc::new(Cell::new(0));
        let adds = |amount: u32| {
            let done = Rc::clone(&done);
            program(move |_: &Cpu<X86_64>| done.set(done.get() + amount))
        };
        let work = operations([adds(1), adds(2), adds(4)]);
        vec![program(move |cpu| {
            work(cpu);
            assert!(done.get() & 2 != 0, "the second operation is missing");
            assert!(done.get() & 1 == 0, "the first operation is there");
        })]
    });
    assert!(matches!(outcome.finding(), Some(CheckFinding::Panicked { message, .. }) if message.ends_with("there")));
    assert_eq!(left_out(&outcome), [operation(0, 3)], "{outcome}");
}
