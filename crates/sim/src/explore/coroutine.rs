//! CPUs as coroutines: a program has its own stack and stops at each [`StopPoint`].
//!
//! A program may stop at any call depth. A stopped coroutine is either resumed ([`Resume`]) or
//! abandoned. An abandoned coroutine leaks its stack and the values on it, because unwinding would
//! run the destructors of half-done operations. A coroutine whose program has ended is kept for the
//! next run; each host thread has a pool.

use super::point::StopPoint;
use generator::{Generator, Gn};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

/// The program of one CPU in a run.
pub type CoroutineBody = Box<dyn FnOnce()>;

/// The stack of a coroutine, in words: 512 KiB.
///
/// The host backs only the pages that are touched.
const STACK_WORDS: usize = 64 << 10;

/// How a stopped CPU goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// It passes its stop point.
    Proceed,
    /// It takes an interrupt, and stops at the same point again.
    TakeInterrupt,
    /// It ends, because the run is over; only an idle CPU is resumed so.
    Finish,
    /// It passes [`StopPoint::Choose`] with this choice.
    Choice(u32),
}

/// Why a coroutine is suspended.
#[derive(Debug)]
pub(crate) enum Suspension {
    /// It has no program.
    Ready,
    /// It is stopped before this point.
    At(StopPoint),
    /// Its program panicked.
    Panicked(String),
}

thread_local! {
    static RESUME: Cell<Resume> = const { Cell::new(Resume::Proceed) };
    static HANDLER: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    static POOL: RefCell<Vec<Coroutine>> = const { RefCell::new(Vec::new()) };
    /// The location and the message of the last panic in a coroutine of this host thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// The stops of all coroutines on this host thread.
    static STOPS: Cell<u64> = const { Cell::new(0) };
    /// Whether a coroutine runs on this host thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Binds the interrupt handler of the CPUs on this host thread; returns the previous one.
pub(crate) fn bind_handler(handler: Option<Rc<dyn Fn()>>) -> Option<Rc<dyn Fn()>> {
    HANDLER.replace(handler)
}

/// Whether the caller runs in a coroutine, and so can stop.
#[inline]
pub(crate) fn inside() -> bool {
    INSIDE.get()
}

/// The number of stops on this host thread so far, if the caller runs in a coroutine.
///
/// It may be called by a signal handler.
pub fn stops_so_far() -> Option<u64> {
    INSIDE.get().then(|| STOPS.get())
}

/// Stops the calling CPU before `point` until the scheduler resumes it.
///
/// The CPU takes interrupts while it is stopped. A program that unwinds from a panic stops only at
/// points that wait, so that no other CPU runs in the middle of its destructors.
pub(crate) fn stop_at(point: StopPoint) -> Resume {
    if std::thread::panicking() && !point.waits() {
        return Resume::Proceed;
    }
    loop {
        suspend(Suspension::At(point));
        match RESUME.get() {
            resume @ (Resume::Proceed | Resume::Finish | Resume::Choice(_)) => return resume,
            Resume::TakeInterrupt => {
                let handler = HANDLER.with_borrow(|handler| handler.as_ref().map(Rc::clone));
                handler.into_iter().for_each(|handler| handler());
            }
        }
    }
}

/// Suspends the coroutine until it is given a program; `None` ends it.
#[expect(deprecated, reason = "the scoped form can only yield from the outermost function, and CPUs stop deep inside")]
fn wait_for_program(stop: Suspension) -> Option<CoroutineBody> {
    generator::yield_::<CoroutineBody, Suspension>(stop)
}

#[expect(deprecated, reason = "as above")]
fn suspend(stop: Suspension) {
    STOPS.set(STOPS.get() + 1);
    generator::yield_with(stop);
}

fn body() -> Suspension {
    let mut stop = Suspension::Ready;
    while let Some(program) = wait_for_program(stop) {
        stop = match catch_unwind(AssertUnwindSafe(program)) {
            Ok(()) => Suspension::Ready,
            Err(payload) => Suspension::Panicked(message(&*payload)),
        };
    }
    Suspension::Ready
}

fn message(payload: &(dyn Any + Send)) -> String {
    PANIC.take().unwrap_or_else(|| match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => (*payload.downcast_ref::<&str>().unwrap_or(&"a panic without a message")).to_owned(),
    })
}

/// Installs a panic hook that records panics in coroutines.
///
/// A panic in a coroutine is a result of the run, so it is not printed.
fn record_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if inside() {
                PANIC.set(Some(info.to_string()));
            } else {
                others(info);
            }
        }));
    });
}

/// One coroutine.
pub(crate) struct Coroutine {
    /// `None` only while the coroutine is dropped.
    generator: Option<Generator<'static, CoroutineBody, Suspension>>,
    /// Whether it has no program.
    idle: bool,
}

impl Coroutine {
    /// Starts `program` on a pooled or a new coroutine, and runs it to its first stop.
    pub(crate) fn start(program: CoroutineBody) -> (Self, Suspension) {
        let mut coroutine = POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            record_panics();
            let mut generator = Gn::<CoroutineBody>::new_opt(STACK_WORDS, body);
            generator.resume();
            Self { generator: Some(generator), idle: true }
        });
        coroutine.idle = false;
        if let Some(generator) = &mut coroutine.generator {
            generator.set_para(program);
        }
        let stop = coroutine.resume(Resume::Proceed);
        (coroutine, stop)
    }

    /// Runs it to its next stop.
    pub(crate) fn resume(&mut self, resume: Resume) -> Suspension {
        RESUME.set(resume);
        INSIDE.set(true);
        let stop = self.generator.as_mut().and_then(Generator::resume).unwrap_or(Suspension::Ready);
        INSIDE.set(false);
        self.idle = !matches!(stop, Suspension::At(_));
        stop
    }

    /// Whether its program has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Returns it to the pool if its program has ended; otherwise leaks it.
    pub(crate) fn retire(self) {
        if self.idle {
            POOL.with_borrow_mut(|pool| pool.push(self));
        }
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        let Some(mut generator) = self.generator.take() else { return };
        if self.idle {
            // Resumed without a program, the coroutine returns.
            generator.resume();
        } else {
            std::mem::forget(generator);
        }
    }
}
