//! CPUs as coroutines: a program runs on a stack of its own and stops, from however deep, at each
//! [`StopPoint`].
//!
//! A stopped coroutine can go on ([`Go`]), or be left where it is for good: then its stack and what
//! stands on it are leaked, because unwinding a program in the middle of an operation would run the
//! drop code of half-done work. Coroutines whose program ended are kept for the next run, one pool
//! for each host thread.

use super::point::StopPoint;
use generator::{Generator, Gn};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Once;

/// What a CPU runs.
pub type CoroutineBody = Box<dyn FnOnce()>;

/// Stack of a coroutine, in words: 512 KiB, of which the host backs what is touched.
const STACK_WORDS: usize = 64 << 10;

/// What a stopped CPU is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Go {
    /// Do what you were about to do.
    On,
    /// Take an interrupt first, and stop at the same point again.
    Interrupt,
    /// The run is over; only an idle CPU hears this.
    Home,
    /// Do it in this way.
    Way(u32),
}

/// Why a coroutine gave the host thread back.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It has no program.
    Ready,
    /// It stands before this.
    At(StopPoint),
    /// Its program panicked.
    Panicked(String),
}

thread_local! {
    static GO: Cell<Go> = const { Cell::new(Go::On) };
    static HANDLER: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    static POOL: RefCell<Vec<Coroutine>> = const { RefCell::new(Vec::new()) };
    /// Where and why a coroutine of this host thread panicked last.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    /// Whether a coroutine has the host thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Binds what a CPU of this host thread runs for an interrupt, and returns what was bound before.
pub(crate) fn bind_handler(handler: Option<Rc<dyn Fn()>>) -> Option<Rc<dyn Fn()>> {
    HANDLER.replace(handler)
}

/// Whether the caller runs in a coroutine, so that it can stop.
#[inline]
pub(crate) fn inside() -> bool {
    INSIDE.get()
}

/// Stops the CPU that calls, until the scheduler lets it go on.
///
/// Interrupts are taken meanwhile.
///
/// A program that is unwinding is not stopped, except to wait: drop code is no place for surprises.
pub(crate) fn stop_at(point: StopPoint) -> Go {
    if std::thread::panicking() && !point.waits() {
        return Go::On;
    }
    loop {
        give_back(Stop::At(point));
        match GO.get() {
            go @ (Go::On | Go::Home | Go::Way(_)) => return go,
            Go::Interrupt => {
                let handler = HANDLER.with_borrow(|handler| handler.as_ref().map(Rc::clone));
                handler.into_iter().for_each(|handler| handler());
            }
        }
    }
}

/// Waits for a program, or with what became of the last one.
///
/// `None` ends the coroutine.
#[expect(deprecated, reason = "the scoped form can only yield from the outermost function, and CPUs stop deep inside")]
fn wait_for_program(stop: Stop) -> Option<CoroutineBody> {
    generator::yield_::<CoroutineBody, Stop>(stop)
}

#[expect(deprecated, reason = "as above")]
fn give_back(stop: Stop) {
    generator::yield_with(stop);
}

fn body() -> Stop {
    let mut stop = Stop::Ready;
    while let Some(program) = wait_for_program(stop) {
        stop = match catch_unwind(AssertUnwindSafe(program)) {
            Ok(()) => Stop::Ready,
            Err(payload) => Stop::Panicked(message(&*payload)),
        };
    }
    Stop::Ready
}

fn message(payload: &(dyn Any + Send)) -> String {
    PANIC.take().unwrap_or_else(|| match payload.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => (*payload.downcast_ref::<&str>().unwrap_or(&"a panic without a message")).to_owned(),
    })
}

/// A panic inside a coroutine is a result and not noise: it is kept with its place and not printed.
fn keep_panics() {
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
    /// Taken out only when the coroutine is dropped.
    generator: Option<Generator<'static, CoroutineBody, Stop>>,
    /// Whether it waits for a program.
    idle: bool,
}

impl Coroutine {
    /// Starts `program` on a coroutine of the pool or a new one, up to its first stop.
    pub(crate) fn start(program: CoroutineBody) -> (Self, Stop) {
        let mut coroutine = POOL.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            keep_panics();
            let mut generator = Gn::<CoroutineBody>::new_opt(STACK_WORDS, body);
            generator.resume();
            Self { generator: Some(generator), idle: true }
        });
        coroutine.idle = false;
        if let Some(generator) = &mut coroutine.generator {
            generator.set_para(program);
        }
        let stop = coroutine.go(Go::On);
        (coroutine, stop)
    }

    /// Lets it run to its next stop.
    pub(crate) fn go(&mut self, go: Go) -> Stop {
        GO.set(go);
        INSIDE.set(true);
        let stop = self.generator.as_mut().and_then(Generator::resume).unwrap_or(Stop::Ready);
        INSIDE.set(false);
        self.idle = !matches!(stop, Stop::At(_));
        stop
    }

    /// Whether its program has ended.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// Keeps it for another program, if the last one has ended; else leaks it.
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
            // Without a program it returns.
            generator.resume();
        } else {
            std::mem::forget(generator);
        }
    }
}
