//! Every allocation of every call fails in turn, on both instruction sets (INV-MM-COMMIT).
//!
//! For each step a scene is set up that has something of everything, the step is made while its
//! first allocation is refused, and everything that can be seen or is counted must be as before –
//! or differ as the list of steps says that it may, because it does on Linux. Then the step is made
//! again without a failure, and must come to what it comes to where nothing ever failed. Then its
//! second allocation is refused, and so on until the step gets all that it asks for; and the same
//! again with that allocation and all after it refused.
//!
//! A usual run makes each refusal on one instruction set, a run with `PAGEWRIGHT_SOAK` on both
//! ([`refusals`]).
//!
//! Not covered: failures while other CPUs are at it; random programs have those.

use super::scene::Scene;
use super::state::{State, picture};
use super::steps::Step;
use pagewright_arch::{Aarch64, Isa, X86_64, on_both};
use pagewright_sim::AllocationFailure;
use pagewright_types::IsaKind;

/// What a scene has besides.
#[derive(Clone, Copy, Debug)]
struct Variant {
    /// Mappings beside those of the scene.
    fillers: u64,
    /// The value of the setting `cow_page_tables`.
    shares: &'static str,
    /// Whether a fork shares all tables of the process just before the step.
    shares_all: bool,
}

/// No fillers, and two numbers of fillers that leave a tree without a free node.
///
/// One is the tree of mappings, the other that of mappings of files.
const VARIANTS: [Variant; 3] = [
    Variant { fillers: 0, shares: "never", shares_all: false },
    Variant { fillers: 26, shares: "never", shares_all: false },
    Variant { fillers: 35, shares: "never", shares_all: false },
];

/// The child of the scene shares its tables; the process has broken most of its own, or none.
const SHARING: [Variant; 2] = [
    Variant { fillers: 0, shares: "always", shares_all: false },
    Variant { fillers: 0, shares: "always", shares_all: true },
];

/// The refusals in a scene: of one allocation, and of it and all after it.
///
/// The memory manager allocates in the same places on both instruction sets, so a usual run splits
/// the refusals between them. Without fillers x86-64 makes both, and arm64 the first. With fillers
/// arm64 makes the first, and the second is for the soak. Where tables are shared, each of the four
/// is made on one of them. A soak makes all refusals on both.
fn refusals<I: Isa>(variant: Variant) -> &'static [AllocationFailure] {
    const ONE: &[AllocationFailure] = &[AllocationFailure::One];
    const ALL: &[AllocationFailure] = &[AllocationFailure::All];
    const BOTH: &[AllocationFailure] = &[AllocationFailure::One, AllocationFailure::All];
    if std::env::var_os("PAGEWRIGHT_SOAK").is_some() {
        return BOTH;
    }
    let is_x86_64 = I::KIND == IsaKind::X86_64;
    match variant {
        Variant { shares: "always", shares_all, .. } if shares_all == is_x86_64 => ALL,
        Variant { shares: "always", .. } => ONE,
        Variant { fillers: 0, .. } if is_x86_64 => BOTH,
        Variant { .. } if is_x86_64 => &[],
        Variant { .. } => ONE,
    }
}

fn prepared<I: Isa>(step: &Step<I>, variant: Variant) -> Scene<I> {
    let mut scene = Scene::<I>::new(variant.fillers, variant.shares);
    (step.prepare)(&scene);
    if variant.shares_all {
        scene.share_again();
    }
    scene
}

/// What came of the failures of one step.
#[derive(Default)]
struct Seen {
    failures: u64,
    /// How often the step failed.
    failed: u64,
    /// How often the step failed and had done something.
    partial: u64,
    /// How often it did not fail.
    later: u64,
}

/// All that can be seen, without proportions if fork shares all tables.
///
/// Those depend on which of the sharers have broken a table.
fn state<I: Isa>(scene: &Scene<I>, variant: Variant) -> State {
    let state = State::of(&scene.world);
    if variant.shares_all { state.without_proportions() } else { state }
}

/// Makes the allocations of a step fail in one scene.
fn fail_each<I: Isa>(step: &Step<I>, variant: Variant, refusal: AllocationFailure, seen: &mut Seen) {
    let name = step.name;
    // `before` is the same for each depth, because a machine repeats (INV-SIM-REPLAY).
    let (before, expected) = {
        let scene = prepared(step, variant);
        let before = state(&scene, variant);
        assert_eq!((step.call)(&scene), Ok(()), "{name}: without a failure");
        let expected = picture(&scene);
        scene.end(name);
        (before, expected)
    };
    for depth in 0.. {
        let scene = prepared(step, variant);
        let sim = scene.world.lab.sim();
        let refused = sim.refused_allocations();
        sim.fail_allocation_after(depth, refusal);
        let answer = (step.call)(&scene);
        sim.permit_allocations();
        if sim.refused_allocations() == refused {
            assert_eq!(answer, Ok(()), "{name}: nothing was refused");
            return scene.end(name);
        }
        let what = format!("{name}, {variant:?}, allocation {depth} and {refusal:?}");
        seen.failures += 1;
        scene.world.at_rest(&scene.devices());
        if let Err(errno) = answer {
            seen.failed += 1;
            assert!(step.errnos.contains(&errno), "{what}: {errno}");
            let now = state(&scene, variant);
            seen.partial += u64::from(now != before);
            if !(step.part || step.part_of_shared && variant.shares_all) {
                now.assert_like(&before, &what);
            }
            if !step.once {
                assert_eq!((step.call)(&scene), Ok(()), "{what}: once more");
            }
        } else {
            assert!(step.later, "{what}: it has what it was refused");
            seen.later += 1;
        }
        if !step.once {
            assert_eq!(picture(&scene), expected, "{what}");
        }
        scene.end(&what);
    }
}

/// Makes the allocations of a step fail in each scene, one of them and all from one on.
fn fail_in<I: Isa>(step: &Step<I>, variants: &[Variant], seen: &mut Seen) {
    for variant in variants {
        for refusal in refusals::<I>(*variant) {
            fail_each(step, *variant, *refusal, seen);
        }
    }
}

#[test]
fn every_allocation_fails_in_turn() {
    let mut total = 0;
    for (step, on_arm64) in super::steps::all::<X86_64>().into_iter().zip(super::steps::all::<Aarch64>()) {
        let mut seen = Seen::default();
        fail_in(&step, &VARIANTS, &mut seen);
        fail_in(&on_arm64, &VARIANTS, &mut seen);
        let Seen { failures, partial, later, .. } = seen;
        println!("{failures:5} failures  {partial:4} partial  {later:4} later  {}", step.name);
        let is = (failures > 0, partial > 0, later > 0);
        assert_eq!(is, (step.allocates, step.part, step.later), "{}: fails, leaves part, does it later", step.name);
        total += failures;
    }
    println!("{total:5} failures in all");
}

/// INV-SHARE-ATOMIC, where a step breaks tables.
///
/// Steps that allocate nothing in a space of its own may have to break one, too.
fn every_allocation_of_a_sharer_fails_in_turn<I: Isa>() {
    let mut total = 0;
    for step in super::steps::all::<I>() {
        let mut seen = Seen::default();
        fail_in(&step, &SHARING, &mut seen);
        let Seen { failures, failed, partial, later } = seen;
        println!(
            "{:8} {failures:5} failures {failed:5} failed {partial:4} partial  {later:4} later  {}",
            I::KIND.to_string(),
            step.name
        );
        // What allocates may do so only where mappings are many, or tables missing.
        assert!(failures == 0 || step.allocates || step.breaks, "{}: needs memory", step.name);
        let must_fail = step.breaks || step.name.starts_with("fork");
        assert!(failed > 0 || !must_fail, "{}: never fails", step.name);
        total += failures;
    }
    println!("{:8} {total:5} failures in all", I::KIND.to_string());
    assert!(total > 750, "{total} failures");
}

on_both! { every_allocation_of_a_sharer_fails_in_turn }
