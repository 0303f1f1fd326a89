//! Each line of a drawing names the source line of the call that makes it (INV-CHECK-LINES).

use crate::raw_tables::{TAG, Tables, entry, leaf, page};
use pagewright_arch::on_both;
use pagewright_check::{
    Aarch64, Check, CheckFinding, CheckOutcome, Cpu, Harness, Invalidate, InvalidateScope, InvalidateTarget, Isa,
    IsaKind, Level, PageRange, Rights, X86_64, current, program,
};
use std::cell::Cell;
use std::rc::Rc;

on_both! {
    each_step_names_the_line_of_its_call,
}

/// The lines of the program below, in the order of its calls; the first is that of its `call`.
const FIRST: u32 = line!() + 7;

/// Unmaps page 0 and flushes nothing elsewhere.
fn unmap<I: Isa>(cpu: &Cpu<I>, tables: &Tables) {
    let frame = cpu.alloc_frame();
    cpu.free_frame(frame);
    // The lines from here on are counted.
    cpu.call("munmap", |cpu| {
        cpu.will_reduce(PageRange::page(page(0)), Rights::empty());
        cpu.swap(tables.leaf(0), 0);
        cpu.note("is about to flush");
        cpu.invalidate(Invalidate { scope: InvalidateScope::Local, target: InvalidateTarget::Tag(TAG) });
        current::<I>().complete();
    });
}

fn missing_shootdown<I: Isa>() -> CheckOutcome {
    Check::<I>::new().explore(|harness: &Harness<I>| {
        let tables = Rc::new(Tables::run_everywhere(harness));
        harness.cpu(0).store(tables.leaf(0), leaf(I::KIND, harness.alloc_frame(), false));
        let reads = program(|cpu: &Cpu<I>| (0..3).for_each(|_| _ = cpu.read(page(0))));
        vec![program(move |cpu| unmap(cpu, &tables)), reads]
    })
}

/// The rows of the drawing, each with the rows below that continue it joined to it.
fn drawn(text: &str, column: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for row in text.lines().skip_while(|row| !row.starts_with("step")).skip(1) {
        let Some(cell) = row.get(8..).and_then(|row| row.split(" │").nth(column)) else { continue };
        let cell = cell.trim();
        if row[..8.min(row.len())].trim().is_empty() && !lines.is_empty() {
            lines.last_mut().into_iter().for_each(|line| line.push_str(&format!(" {cell}")));
        } else {
            lines.push(cell.to_owned());
        }
    }
    lines
}

fn each_step_names_the_line_of_its_call<I: Isa>() {
    let outcome = missing_shootdown::<I>();
    let text = outcome.to_string().replace('►', " ");
    let joined = drawn(&text, 0).join("\n");
    let expected = [
        ("calls munmap", 0),
        ("will remove all rights to 0x40000000-0x40001000", 1),
        ("clears entry 0x1[0] (atomic exchange)", 2),
        ("is about to flush", 3),
        (if I::KIND == IsaKind::X86_64 { "flushes all of tag 1" } else { "flushes all of tag 1 on this CPU only" }, 4),
        ("returns", 0),
    ];
    for (what, line) in expected {
        let with_line = format!("{what} [source_lines.rs:{}]", FIRST + line);
        assert!(joined.contains(&with_line), "{with_line} in\n{joined}\n{outcome}");
    }
    let path = format!("crates/check/tests/source_lines.rs:{}", FIRST + 2);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("({path}), which changes its entry")), "{path} in {outcome}");
}

#[test]
fn code_goes_on_at_its_own_line_after_an_interrupt() {
    const FIRST: u32 = line!();
    let outcome = Check::<X86_64>::new().explore(|harness| {
        let tables = Tables::run_everywhere(harness);
        harness.cpu(0).store(tables.leaf(0), leaf(IsaKind::X86_64, harness.alloc_frame(), false));
        let flushed = Rc::new(Cell::new(false));
        let (flag, others) = (Rc::clone(&flushed), harness.cpu(0).others());
        let flush = move |cpu: &Cpu<X86_64>| {
            cpu.flush_all(InvalidateScope::Local);
            flag.set(true);
        };
        let reads = program(move |cpu: &Cpu<X86_64>| {
            let before = flushed.get();
            assert!(cpu.read(page(0)).is_ok());
            if !before && flushed.get() {
                cpu.report("the IPI is taken in the middle of the read");
            }
        });
        vec![program(move |cpu| cpu.shoot_down(others, flush)), reads]
    });
    assert!(matches!(outcome.finding(), Some(CheckFinding::Reported(_))), "{outcome}");
    let lines = drawn(&outcome.to_string().replace('►', " "), 1);
    let at = |what: &str| lines.iter().position(|line| line.starts_with(what));
    let (flush, read) = (at("flushes"), at("reads"));
    assert!(flush.is_some() && flush < read, "{outcome}");
    for (what, line) in [(flush, FIRST + 7), (read, FIRST + 12)] {
        let line = format!("[source_lines.rs:{line}]");
        assert!(what.is_some_and(|at| lines[at].contains(&line)), "{line} in\n{outcome}");
    }
}

#[test]
fn an_access_that_is_interrupted_in_its_walk_is_drawn_once() {
    /// The accessed bit, which a walk sets in each entry that it reads.
    const A: u64 = 1 << 5;
    let outcome = Check::<X86_64>::new().explore(|harness| {
        let tables = Tables::run_everywhere(harness);
        harness.cpu(0).store(tables.leaf(0), leaf(IsaKind::X86_64, harness.alloc_frame(), false));
        let (begun, others) = (Rc::new(Cell::new(false)), harness.cpu(0).others());
        let (flag, root, last) = (Rc::clone(&begun), entry(tables.root(), Level::PGD), tables.leaf(0));
        let flush = move |cpu: &Cpu<X86_64>| {
            flag.set(cpu.load(root) & A != 0 && cpu.load(last) & A == 0);
            cpu.flush_all(InvalidateScope::Local);
        };
        let reads = program(move |cpu: &Cpu<X86_64>| {
            assert!(cpu.read(page(0)).is_ok());
            if begun.get() {
                cpu.report("the IPI is taken in the middle of the walk");
            }
        });
        vec![program(move |cpu| cpu.shoot_down(others, flush)), reads]
    });
    assert!(matches!(outcome.finding(), Some(CheckFinding::Reported(_))), "{outcome}");
    let lines = drawn(&outcome.to_string().replace('►', " "), 1);
    let reads: Vec<&String> = lines.iter().filter(|line| line.starts_with("reads")).collect();
    assert!(matches!(reads[..], [read] if !read.contains("page fault")), "{reads:?}\n{outcome}");
}

/// Whether this program has debug information, with which a frame is named by its line.
fn has_lines() -> bool {
    std::backtrace::Backtrace::force_capture().to_string().contains("source_lines.rs:")
}

#[inline(never)]
fn passes_methods_as_values(cpu: &Cpu<Aarch64>) {
    [cpu].into_iter().for_each(Cpu::publish);
    let complete: fn(&Cpu<Aarch64>) = Cpu::complete;
    std::hint::black_box(complete)(cpu);
}

/// The line of the first call above.
const FIRST_VALUE: u32 = line!() - 6;

/// INV-CHECK-USER: `core` calls the method then, or a shim that has the method's own line.
#[test]
fn a_method_that_is_passed_as_a_value_is_named_by_the_code_that_passes_it() {
    let outcome = Check::<Aarch64>::new().schedules(1).explore(|_| {
        vec![program(|cpu: &Cpu<Aarch64>| {
            passes_methods_as_values(cpu);
            cpu.report("done");
        })]
    });
    let joined = drawn(&outcome.to_string().replace('►', " "), 0).join("\n");
    for (what, line) in [("dsb ishst", FIRST_VALUE), ("dsb ish:", FIRST_VALUE + 2)] {
        let (_, step) = joined.split_once(what).unwrap_or_else(|| panic!("{what} in {outcome}"));
        let step = step.lines().next().unwrap_or_default();
        let name = if has_lines() { format!("source_lines.rs:{line}]") } else { "source_lines::".to_owned() };
        assert!(step.contains(&name), "{name} in\n{step}\n{outcome}");
    }
}
