//! Code without a handle finds the machine and the CPU that run it.

use pagewright_check::{Aarch64, Check, CpuId, Isa, X86_64, current, program};

/// A handler as crates require it.
trait Handler: Send + Sync + 'static {
    fn cpu() -> CpuId;
}

struct Handles;

impl Handler for Handles {
    fn cpu() -> CpuId {
        current::<X86_64>().id()
    }
}

fn calls<H: Handler>(expected: u16) {
    assert_eq!(H::cpu(), CpuId::new(expected));
}

#[test]
fn a_static_handler_runs_on_the_cpu_that_calls_it() {
    let outcome = Check::<X86_64>::new().schedules(50).explore(|harness| {
        calls::<Handles>(0);
        let frame = harness.alloc_frame();
        vec![
            program(move |cpu| {
                calls::<Handles>(0);
                current::<X86_64>().free_frame(frame);
                cpu.shoot_down(cpu.others(), |_| calls::<Handles>(1));
                calls::<Handles>(0);
            }),
            program(|cpu| {
                calls::<Handles>(1);
                cpu.relax();
                calls::<Handles>(1);
            }),
        ]
    });
    assert!(outcome.finding().is_none(), "{outcome}");
}

#[test]
fn the_inner_of_two_machines_is_the_current_one() {
    let outcome = Check::<X86_64>::new().schedules(1).explore(|_| {
        let inner = Check::<Aarch64>::new().cpus(3).schedules(2).explore(|harness| {
            assert_eq!(current::<Aarch64>().cpus().count(), 3);
            assert_eq!(current::<Aarch64>().phys_offset(), harness.phys_offset());
            Vec::new()
        });
        assert!(inner.finding().is_none());
        assert_eq!(current::<X86_64>().cpus().count(), 2);
        Vec::new()
    });
    assert!(outcome.finding().is_none());
}

#[test]
fn outside_of_a_check_and_for_another_instruction_set_it_panics() {
    let panics =
        |call: fn()| *std::panic::catch_unwind(call).expect_err("a panic").downcast::<String>().expect("a text");
    let outside = std::panic::catch_unwind(|| current::<X86_64>().id()).expect_err("a panic");
    assert!(outside.downcast_ref::<&str>().is_some_and(|text| text.contains("outside of a check")));
    let other = panics(|| {
        Check::<X86_64>::new().schedules(1).explore(|_| {
            current::<Aarch64>();
            Vec::new()
        });
    });
    assert!(other.contains("current` is called for arm64") && other.contains(&Aarch64::KIND.to_string()), "{other}");
    let left = std::panic::catch_unwind(|| current::<X86_64>().id());
    assert!(left.is_err(), "the machine has left, although its set-up panicked");
}
