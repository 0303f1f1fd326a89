//! The machine and the CPU that run now, for code that has no handle to them.
//!
//! A crate may take its handlers as static methods (`fn flush(va)`), or as values that are
//! `Send + Sync + 'static`. A [`Harness`] is neither: it counts its references without atomics. A
//! type without fields is all of that, and calls [`current`] in its methods.
//!
//! ```text
//!   Check::explore ─▶ attempt: enter ─▶ set-up, programs … current() … ─▶ the guard leaves
//! ```
//!
//! Not guaranteed: anything on other host threads. A machine runs on the thread that called
//! [`crate::Check::explore`], and [`current`] panics elsewhere.

use crate::cpu::Cpu;
use crate::harness::Harness;
use pagewright_arch::{Effects, Isa};
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;

thread_local! {
    /// The machines that run on this host thread, the innermost last.
    static RUNNING: RefCell<Vec<Rc<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Makes a machine the current one of this host thread until it is dropped.
pub(crate) struct Entered(());

impl Entered {
    pub(crate) fn new<I: Isa>(harness: &Harness<I>) -> Self {
        RUNNING.with_borrow_mut(|running| running.push(Rc::new(harness.clone())));
        Self(())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = RUNNING.with_borrow_mut(Vec::pop);
        // The machine is dropped while nothing is borrowed: what it owns may call `current`.
        drop(left);
    }
}

/// The CPU that runs the caller; it dereferences to the machine.
///
/// In the set-up of a check, that is CPU 0.
///
/// # Panics
/// When no check runs on this host thread, or when its machine has another instruction set.
pub fn current<I: Isa>() -> Cpu<I> {
    if RUNNING.with_borrow(Vec::is_empty) {
        panic!("`current` is called outside of a check: no machine runs on this host thread");
    }
    try_current().unwrap_or_else(|| {
        panic!("`current` is called for {}, and the machine of the check has another instruction set", I::KIND)
    })
}

/// As [`current`]; `None` where that would panic.
pub fn try_current<I: Isa>() -> Option<Cpu<I>> {
    let running = RUNNING.with_borrow(|running| running.last().map(Rc::clone))?;
    let harness = running.downcast_ref::<Harness<I>>()?;
    Some(Cpu { harness: harness.clone(), id: harness.sim().cpu() })
}
