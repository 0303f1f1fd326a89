//! Threads of the host as CPUs, for machines that run there.
//!
//! [`HostLocks`] is the [`Backend`]; [`run_as`] makes a thread a CPU. Two per-thread values are all
//! its state, so machines in one process share it. For tests, [`line_reports`] returns the lines
//! that code reports.
//!
//! Not guaranteed: that only one thread at a time runs as a CPU.

extern crate std;

use crate::{Backend, LineRef, LineUse, RankSet};
use core::cell::{Cell, RefCell};
use pagewright_types::CpuId;
use std::vec::Vec;

std::thread_local! {
    static CPU: Cell<CpuId> = const { Cell::new(CpuId::new(0)) };
    static HELD: Cell<RankSet> = const { Cell::new(RankSet::EMPTY) };
}

/// Locks that spin and yield the CPU of the host.
#[derive(Debug)]
pub struct HostLocks;

impl Backend for HostLocks {
    type Line = ();

    fn pause() {
        std::thread::yield_now();
    }

    fn cpu() -> CpuId {
        CPU.get()
    }

    fn held() -> RankSet {
        HELD.get()
    }

    fn set_held(held: RankSet) {
        HELD.set(held);
    }
}

/// Defines the methods of [`Effects`](pagewright_arch::Effects) for CPUs that are threads.
///
/// Invoked in an implementation of the trait, in a crate that depends on `pagewright-types`.
#[macro_export]
macro_rules! cpus_are_threads {
    () => {
        fn cpu(&self) -> ::pagewright_types::CpuId {
            <$crate::host::HostLocks as $crate::Backend>::cpu()
        }

        fn relax(&self) {
            ::std::thread::yield_now();
        }
    };
}

/// Defines the methods of [`Backend`] but `pause`, for CPUs that are threads.
///
/// Invoked in an implementation of the trait, in a crate that depends on `pagewright-types`.
#[macro_export]
macro_rules! locks_of_threads {
    () => {
        fn cpu() -> ::pagewright_types::CpuId {
            <$crate::host::HostLocks as $crate::Backend>::cpu()
        }

        fn held() -> $crate::RankSet {
            <$crate::host::HostLocks as $crate::Backend>::held()
        }

        fn set_held(held: $crate::RankSet) {
            <$crate::host::HostLocks as $crate::Backend>::set_held(held);
        }
    };
}

/// Makes the calling thread a CPU of the machine that it works on; before, it is CPU 0.
pub fn run_as(cpu: CpuId) {
    CPU.set(cpu);
}

/// Runs `body` as another CPU, which holds no lock, and returns to this one.
pub fn on_cpu<T>(cpu: CpuId, body: impl FnOnce() -> T) -> T {
    let (me, held) = (CPU.replace(cpu), HELD.replace(RankSet::EMPTY));
    let result = body();
    CPU.set(me);
    HELD.set(held);
    result
}

/// A report of a line: what it holds, its number, and how it was used.
///
/// The number is that of the word, or the frame of the record.
pub type LineReport = (&'static str, u64, LineUse);

std::thread_local! {
    /// The reports of the thread, while [`line_reports`] keeps them.
    static REPORTS: RefCell<Option<Vec<LineReport>>> = const { RefCell::new(None) };
}

/// Keeps a report for [`line_reports`], but for those of locks; a [`Backend::line`] calls it.
pub fn keep_report(line: LineRef<'_, ()>, name: &'static str, used: LineUse) {
    let number = match line {
        LineRef::Lock(()) => return,
        LineRef::Record(pfn) => u64::from(pfn.raw()),
        LineRef::Word(number) => number,
    };
    REPORTS.with_borrow_mut(|reports| reports.iter_mut().for_each(|all| all.push((name, number, used))));
}

/// The lines that `body` reports on this thread, each once, sorted; none of a call in itself.
pub fn line_reports(body: impl FnOnce()) -> Vec<LineReport> {
    REPORTS.set(Some(Vec::new()));
    body();
    let mut reports = REPORTS.take().unwrap_or_default();
    reports.sort_by_key(|(name, number, used)| (*name, *number, *used == LineUse::Store));
    reports.dedup();
    reports
}
