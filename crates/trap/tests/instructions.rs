//! Each instruction acts on the machine, and the code goes on behind it (INV-TRAP-RESUME).

use crate::{drawn, users_code};
use pagewright_check::{Check, CheckFinding, CheckOutcome, Cpu, X86_64, current, program};
use std::arch::asm;
use std::cell::Cell;
use std::rc::Rc;

/// Runs `body` on CPU 0 in one schedule.
fn on_cpu_0(body: impl Fn(&Cpu<X86_64>) + Copy + 'static) -> CheckOutcome {
    pagewright_trap::route();
    Check::<X86_64>::new().schedules(1).explore(move |harness| {
        let root = harness.alloc_frame();
        harness.cpus().for_each(|cpu| cpu.load_root(root, pagewright_check::Tag::new(1)));
        vec![program(move |cpu| body(cpu))]
    })
}

#[test]
fn mov_cr3_and_cr4_read_what_was_written() {
    let outcome = on_cpu_0(|cpu| {
        let (cr3, cr4): (u64, u64);
        // SAFETY: the instructions are executed on the simulated machine.
        unsafe { asm!("mov {}, cr3", "mov {}, cr4", out(reg) cr3, out(reg) cr4) };
        assert_eq!((cr3, cr4), (cpu.read_cr3(), cpu.read_cr4()));
        assert_eq!(cr3 & 0xfff, 1);
        // SAFETY: as above.
        unsafe { asm!("mov cr3, {}", in(reg) cr3 + 1) };
        assert_eq!(cpu.read_cr3(), cr3 + 1);
        // SAFETY: as above.
        unsafe { asm!("mov cr4, {}", in(reg) cr4 ^ 1 << 7) };
        assert_eq!(cpu.read_cr4(), cr4 ^ 1 << 7);
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

#[test]
fn registers_flags_vectors_and_the_red_zone_survive_while_other_cpus_run() {
    pagewright_trap::route();
    let outcome = Check::<X86_64>::new().schedules(200).explore(|harness| {
        let root = harness.alloc_frame();
        harness.cpus().for_each(|cpu| cpu.load_root(root, pagewright_check::Tag::new(1)));
        let body = |seed: u64| {
            program::<X86_64>(move |_| {
                for round in 0..4 {
                    let value = seed * 1000 + round;
                    let (mut general, mut vector, mut below, carry): (u64, u64, u64, u8);
                    // SAFETY: the instruction is executed on the simulated machine; the 8 bytes at
                    // RSP − 64 are in the red zone of this block, which calls nothing.
                    unsafe {
                        asm!(
                            "sub rsp, 128",
                            "mov r11, {value}",
                            "movq xmm5, {value}",
                            "mov [rsp - 64], {value}",
                            "stc",
                            "invlpg [{value}]",
                            "setc {carry}",
                            "mov {general}, r11",
                            "movq {vector}, xmm5",
                            "mov {below}, [rsp - 64]",
                            "add rsp, 128",
                            value = in(reg) value,
                            general = out(reg) general,
                            vector = out(reg) vector,
                            below = out(reg) below,
                            carry = out(reg_byte) carry,
                            out("r11") _,
                            out("xmm5") _,
                        );
                    }
                    assert_eq!((general, vector, below, carry), (value, value, value, 1));
                }
            })
        };
        vec![body(1), body(2)]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
    assert!(outcome.search().distinct > 20, "{outcome}");
}

#[test]
fn cli_delays_an_interrupt_until_sti() {
    pagewright_trap::route();
    let outcome = Check::<X86_64>::new().schedules(300).explore(|_| {
        let closed = Rc::new(Cell::new(false));
        let there = Rc::clone(&closed);
        vec![
            program(move |cpu| {
                for _ in 0..3 {
                    let closed = Rc::clone(&there);
                    cpu.shoot_down(cpu.others(), move |_| assert!(!closed.get(), "taken while interrupts are off"));
                }
            }),
            program(move |cpu| {
                for _ in 0..3 {
                    // SAFETY: the instruction is executed on the simulated machine.
                    unsafe { asm!("cli") };
                    closed.set(true);
                    cpu.note("works");
                    cpu.read(pagewright_check::VirtAddr::new(0x1000)).ok();
                    closed.set(false);
                    // SAFETY: as above.
                    unsafe { asm!("sti", "hlt") };
                }
            }),
        ]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

#[test]
fn an_instruction_that_the_machine_refuses_is_a_finding() {
    let outcome = on_cpu_0(|_| {
        let descriptor = [0_u64; 2];
        // SAFETY: the instruction is executed on the simulated machine, which reads `descriptor`.
        unsafe { asm!("invpcid {}, [{}]", in(reg) 9_u64, in(reg) &raw const descriptor) };
        current::<X86_64>().relax();
    });
    let text = outcome.to_string();
    assert!(matches!(outcome.finding(), Some(CheckFinding::Reported(what)) if what.contains("type 9")), "{text}");
}

#[inline(never)]
fn invalidates_a_page() {
    // SAFETY: the instruction is executed on the simulated machine.
    unsafe { asm!("invlpg [{}]", in(reg) 0x1000_u64) };
    x86_64::instructions::tlb::flush(x86_64::VirtAddr::new(0x2000));
}

/// The line of the first invalidation above; the other one is executed by a wrapper.
const FIRST: u32 = line!() - 5;

/// INV-CHECK-LINES, INV-CHECK-USER.
#[test]
fn the_drawing_names_the_line_of_the_user_that_executes_the_instruction() {
    let outcome = on_cpu_0(|cpu| {
        invalidates_a_page();
        cpu.report("done");
    });
    for (page, line) in [("flushes 0x1000", FIRST), ("flushes 0x2000", FIRST + 1)] {
        let flush = drawn(&outcome, page);
        assert!(flush.contains(&users_code("instructions", line)), "{flush} in {outcome}");
    }
}
