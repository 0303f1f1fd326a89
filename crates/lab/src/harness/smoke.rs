//! A short program that uses every part of the memory manager, compiled for both instruction sets.
//!
//! [`smoke_test`] is the only function of this crate without a type parameter. So the memory
//! manager on the simulated machine is compiled here once. At optimisation levels 0 and 1, rustc
//! shares generic code between crates, and the test binaries link this code instead of compiling it
//! again.
//!
//! Not guaranteed: that a test binary compiles none of it. It compiles inline functions and those
//! that take its own closures.

use super::test_device::GupCall;
use super::test_process::{TestProcess, at};
use super::test_world::{CPU, OTHER, TestWorld};
use crate::LabCaller;
use pagewright_arch::{Aarch64, Isa, X86_64};
use pagewright_mm::gup::{GupFlags, MakeDirty};
use pagewright_mm::{Advice, MapFlags};
use pagewright_syscall::LinuxCall;
use pagewright_types::{PAGE_SIZE, Rights};

/// Runs the program on both instruction sets, under the oracle.
///
/// # Panics
/// If a value or a count is wrong.
pub fn smoke_test() {
    use_every_part::<X86_64>();
    use_every_part::<Aarch64>();
}

fn use_every_part<I: Isa>() {
    let world = TestWorld::<I>::new(2);
    let swap = world.swap_to(64);
    let file = world.shmem(4);
    let process = TestProcess::new(&world);
    let anon = process.anon(8);
    let shared = process.map(4, Rights::RW, MapFlags::SHARED, Some(&file));
    for page in 0..4 {
        process.write(CPU, at(anon, page), page);
        process.write(CPU, at(shared, page), page);
    }
    let child = process.fork();
    child.write(OTHER, anon, 9);
    let device = process.take(CPU, at(anon, 1), 1, GupCall::Pin(GupFlags::empty())).expect("a mapped page");
    device.release(MakeDirty::No);
    process.advise(at(anon, 2), 2, Advice::PageOut);
    assert_eq!((process.read(CPU, at(anon, 2)), child.read(OTHER, anon)), (2, 9));
    let caller = LabCaller::new(world.lab.mm(), &process.space);
    let call = |call, arguments| world.on(CPU, |_| caller.call(call, arguments));
    assert_eq!(call(LinuxCall::Munmap, [anon.raw(), PAGE_SIZE, 0, 0, 0, 0]), Ok(0));
    world.recount(&[&process, &child]);
    child.end();
    process.end();
    drop((swap, file));
    world.at_rest(&[]);
}
