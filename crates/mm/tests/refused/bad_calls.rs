//! Calls that must be refused: each returns Linux's errno, and changes nothing (INV-MM-COMMIT).
//!
//! They have a wrong alignment, overlaps, overflows, ranges that are not the caller's, or unknown
//! flags, or are against limits and seals. Everything that can be seen or is counted is as before,
//! on both instruction sets.
//!
//! Not covered: calls that are refused half-way and keep what they had done, as on Linux. Those are
//! in `memory/`.

use super::refusals::Stage;
use super::state::State;
use pagewright_arch::Isa;
use pagewright_arch::on_both;

fn a_call_that_is_refused_says_why_and_changes_nothing<I: Isa>() {
    let stage = Stage::<I>::new();
    let before = State::of(&stage.scene.world);
    for refused in super::refusals::all::<I>() {
        assert_eq!((refused.call)(&stage), Err(refused.errno), "{}", refused.name);
        State::of(&stage.scene.world).assert_like(&before, refused.name);
    }
    stage.scene.world.at_rest(&stage.scene.devices());
    stage.end();
}

on_both! { a_call_that_is_refused_says_why_and_changes_nothing }
