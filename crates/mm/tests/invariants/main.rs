//! What the memory manager promises, on the simulated machine and both instruction sets: random
//! programs against a model of pages, with allocations that fail, and each promise that a program
//! alone would not put to the test.
//!
//! The model keeps, for each process, what each page shows and allows. It knows nothing of tables,
//! folios or TLBs. Beside it, after each step, everything that is counted is counted again from the
//! tables.
//!
//! Not covered: anything that needs two CPUs at once. An operation is atomic here.

mod model;
mod promises;

use model::Step;
use pagewright_arch::{Aarch64, Isa, X86_64};
use proptest::prelude::*;

fn run<I: Isa>(steps: &[Step]) {
    let mut world = model::World::<I>::new();
    for step in steps {
        world.step(*step);
    }
    world.end();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn programs_see_what_the_model_sees_on_x86_64(steps in proptest::collection::vec(model::step(), 1..120)) {
        run::<X86_64>(&steps);
    }

    #[test]
    fn programs_see_what_the_model_sees_on_aarch64(steps in proptest::collection::vec(model::step(), 1..120)) {
        run::<Aarch64>(&steps);
    }
}
