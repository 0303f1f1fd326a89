//! A check that could not fail is no evidence, and does not pass as clean (INV-CHECK-EVIDENCE).

use crate::raw_tables::{Tables, leaf, page};
use pagewright_check::{
    Check, CheckOutcome, Cpu, CpuProgram, Harness, InvalidateScope, IsaKind, PageRange, Pfn, Rights, Rule, Vacuity,
    X86_64, program,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// U/S of a leaf: user mode may access the page (Intel SDM table 4-20).
const US: u64 = 1 << 2;

/// Two pages, of user mode or of the kernel; both CPUs run their space.
#[derive(Clone)]
struct Space {
    tables: Rc<Tables>,
    frames: [Pfn; 2],
}

impl Space {
    fn new(harness: &Harness<X86_64>, user: bool) -> Self {
        let tables = Rc::new(Tables::run_everywhere(harness));
        let frames = [harness.alloc_frame(), harness.alloc_frame()];
        for (index, frame) in frames.into_iter().enumerate() {
            let word = leaf(IsaKind::X86_64, frame, true);
            harness.cpu(0).store(tables.leaf(index as u64), if user { word } else { word & !US });
        }
        Self { tables, frames }
    }

    /// Clears the entry of page 0, and flushes it everywhere if `flushes` says so.
    fn clear(&self, cpu: &Cpu<X86_64>, flushes: bool) {
        cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
        cpu.swap(self.tables.leaf(0), 0);
        if flushes {
            flush(cpu);
        }
    }

    fn unmap(&self, cpu: &Cpu<X86_64>, flushes: bool) {
        cpu.call("munmap", |cpu| self.clear(cpu, flushes));
    }
}

fn flush(cpu: &Cpu<X86_64>) {
    cpu.flush_all(InvalidateScope::Local);
    cpu.shoot_down(cpu.others(), |cpu| cpu.flush_all(InvalidateScope::Local));
}

fn reads(index: u64) -> CpuProgram<X86_64> {
    program(move |cpu: &Cpu<X86_64>| (0..3).for_each(|_| _ = cpu.read(page(index))))
}

/// Asserts that an outcome without findings is refused because of `vacuity`, and says what to do.
#[track_caller]
fn assert_vacuous(outcome: &CheckOutcome, vacuity: Vacuity) {
    let text = outcome.to_string();
    let verdict = if vacuity == Vacuity::Incomplete { "clean so far, NOT COMPLETE" } else { "NO EVIDENCE" };
    assert!(outcome.finding().is_none() && text.starts_with(verdict), "{text}");
    assert_eq!(outcome.vacuity(), Some(vacuity), "{text}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text).contains(&words(&vacuity.to_string())), "{vacuity}: {text}");
    assert!(catch_unwind(AssertUnwindSafe(|| outcome.unwrap_clean())).is_err());
}

#[test]
fn a_program_without_a_flush_whose_accesses_all_fault_is_not_clean() {
    let unmap = |user: bool| {
        Check::<X86_64>::new().schedules(200).explore(move |harness| {
            let space = Space::new(harness, user);
            vec![program(move |cpu| space.unmap(cpu, false)), reads(0)]
        })
    };
    assert_vacuous(&unmap(false), Vacuity::NoAccess);
    unmap(true).expect_violation(Rule::Rights);
}

/// The rule on frames judges the table, and can say nothing about translations of pages.
#[test]
fn a_table_that_only_faulting_walks_have_read_is_no_evidence_when_it_is_freed() {
    let free = |user: bool| {
        Check::<X86_64>::new().schedules(200).explore(move |harness| {
            let space = Space::new(harness, user);
            let frees = move |cpu: &Cpu<X86_64>| {
                let [.., above, last] = space.tables.0;
                cpu.store(crate::raw_tables::entry(above, pagewright_check::Level::PMD), 0);
                flush(cpu);
                cpu.free_frame(last);
            };
            vec![program(frees), reads(0)]
        })
    };
    assert_vacuous(&free(false), Vacuity::NoAccess);
    free(true).unwrap_clean();
}

#[test]
fn a_right_that_only_its_caller_had_cached_is_evidence_on_a_single_cpu_only() {
    let unmap = |cpus: u16, reads: bool, flushes: bool| {
        Check::<X86_64>::new().cpus(cpus).schedules(20).explore(move |harness| {
            let space = Space::new(harness, true);
            vec![program(move |cpu: &Cpu<X86_64>| {
                assert!(!reads || cpu.read(page(0)).is_ok());
                assert!(cpu.read(page(1)).is_ok());
                space.unmap(cpu, flushes);
            })]
        })
    };
    assert_vacuous(&unmap(2, true, true), Vacuity::NothingCached);
    assert_vacuous(&unmap(1, false, true), Vacuity::NothingCached);
    unmap(1, true, true).unwrap_clean();
    unmap(1, true, false).expect_violation(Rule::Rights);
}

#[test]
fn a_right_that_another_cpu_had_cached_is_evidence_once_its_call_returns() {
    let unmap = |in_call: bool| {
        Check::<X86_64>::new().schedules(200).explore(move |harness| {
            let space = Space::new(harness, true);
            let unmaps = move |cpu: &Cpu<X86_64>| if in_call { space.unmap(cpu, true) } else { space.clear(cpu, true) };
            vec![program(unmaps), reads(0)]
        })
    };
    assert_vacuous(&unmap(false), Vacuity::NoReturn);
    unmap(true).unwrap_clean();
}

/// A program that takes nothing away has nothing to flush.
#[test]
fn accesses_alone_are_no_evidence_and_a_free_of_a_frame_that_was_used_is() {
    let free = |used: u64| {
        Check::<X86_64>::new().schedules(200).explore(move |harness| {
            let space = Space::new(harness, true);
            let frees = move |cpu: &Cpu<X86_64>| {
                cpu.swap(space.tables.leaf(0), 0);
                flush(cpu);
                cpu.free_frame(space.frames[0]);
            };
            vec![program(frees), reads(used)]
        })
    };
    assert_vacuous(&free(1), Vacuity::NothingJudged);
    free(0).unwrap_clean();
}

#[test]
fn a_search_that_ran_nothing_or_not_all_of_its_schedules_is_not_clean() {
    let unmap = |check: Check<X86_64>| {
        check.memory("128K").explore(|harness| {
            let space = Space::new(harness, true);
            vec![program(move |cpu| space.unmap(cpu, true)), reads(0)]
        })
    };
    assert_vacuous(&unmap(Check::new().schedules(0)), Vacuity::NoSchedule);
    let cut_off = unmap(Check::new().exhaustive(1, 0).schedules(3));
    assert_vacuous(&cut_off, Vacuity::Incomplete);
    unmap(Check::new().exhaustive(1, 0)).unwrap_clean();
}
