//! Who wants rest: the judge of the counts, and nobody else.
//!
//! Not guaranteed: order among several; each waits for its turn and rests meanwhile.

use super::{RESTING, WANTED, is_wanted, rest};
use core::sync::atomic::Ordering;
use pagewright_arch::Effects;
use pagewright_hal::Machine;
use spin::Mutex;

/// Whose turn it is.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `body` while all other CPUs rest.
///
/// The caller holds no lock.
pub(crate) fn of_others<T>(body: impl FnOnce() -> T) -> T {
    let turn = loop {
        match TURN.try_lock() {
            Some(turn) => break turn,
            None if is_wanted() => rest(),
            None => Machine.relax(),
        }
    };
    WANTED.store(true, Ordering::Release);
    poke_others();
    let others = Machine.online().count() - 1;
    while RESTING.load(Ordering::Acquire) < others {
        Machine.relax();
    }
    let result = body();
    WANTED.store(false, Ordering::Release);
    poke_others();
    while RESTING.load(Ordering::Acquire) > 0 {
        Machine.relax();
    }
    drop(turn);
    result
}

/// They leave user mode, or wake up.
fn poke_others() {
    let me = Machine.cpu();
    Machine.online().iter().filter(|cpu| *cpu != me).for_each(pagewright_hal::kick);
}
