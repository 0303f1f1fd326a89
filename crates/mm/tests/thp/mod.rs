//! Transparent huge pages: which faults map them, and what calls, forks and stores make of them.

mod advice;
mod consumers;
mod cow;
mod deferred;
mod faults;
mod kept;
mod mmap;
mod races;
mod reuse;
mod split;
mod tables;

use pagewright_arch::Isa;
use pagewright_lab::harness::{TestProcess, TestWorld};
use pagewright_types::{PAGE_SIZE, VirtAddr};

/// Bytes of a huge page.
const SPAN: u64 = 2 << 20;
/// Pages of a huge page.
const PAGES: u64 = SPAN / PAGE_SIZE;
/// Aligned to 1 GiB.
const BASE: VirtAddr = VirtAddr::new(8 << 30);

/// Checks all counts, ends the processes, and checks that nothing is left of them.
fn end<I: Isa>(world: &TestWorld<I>, processes: &[&TestProcess<I>]) {
    world.recount(processes);
    TestProcess::end_all_at_rest(processes);
    world.assert_nothing_leaked();
}
