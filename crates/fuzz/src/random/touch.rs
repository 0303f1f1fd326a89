//! Accesses: as a processor makes them, and each told to the reference memory at the moment at
//! which it reaches memory.

use super::generate::below;
use super::world::{Process, World};
use pagewright_arch::Isa;
use pagewright_check::CheckFinding;
use pagewright_mm::FaultError;
use pagewright_model::spec::FaultSignal;
use pagewright_types::{Access, CpuId, PAGE_SIZE, Pfn, VirtAddr};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};

/// How often one access may fault.
///
/// Another CPU can take the page away in between, but programs are short.
const TRIES: u32 = 64;

/// Signals that a program gets while it roams before it stays with what it could reach.
const MOST_SIGNALS: u32 = 24;

fn signal(error: &FaultError) -> FaultSignal {
    match error {
        FaultError::NotMapped { .. } | FaultError::Guarded { .. } => FaultSignal::NotMapped,
        FaultError::NotAllowed { .. } => FaultSignal::NotAllowed,
        FaultError::PastEnd { .. } | FaultError::Device { .. } => FaultSignal::PastEnd,
        FaultError::OutOfMemory(_) => FaultSignal::NoMemory,
    }
}

impl<I: Isa> World<I> {
    /// Accesses the cell at `va` as `process`, which `cpu` runs.
    ///
    /// Returns whether it got no signal.
    #[inline]
    pub(super) fn access(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access) -> bool {
        match self.sim().access(cpu, va, access, 1) {
            Ok(found) => {
                self.reach(cpu, process, va, access, found.pfn);
                true
            }
            Err(_) => self.fault(cpu, process, va, access),
        }
    }

    /// The first try faulted: serve it, try again.
    #[cold]
    fn fault(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access) -> bool {
        for _ in 0..TRIES {
            let served = self.serve(cpu, process, va, access);
            if let Err(signal) = served {
                self.done.borrow_mut().signalled(signal);
                self.bench.note(cpu, format_args!("{access} {va}: {signal}"));
                return false;
            }
            if let Ok(found) = self.sim().access(cpu, va, access, 1) {
                self.reach(cpu, process, va, access, found.pfn);
                return true;
            }
        }
        let what = format!("CPU {cpu}: {access} {va} still faults after {TRIES} faults were served");
        self.bench.report(CheckFinding::Reported(what));
        false
    }

    /// Serves one fault.
    fn serve(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access) -> Result<(), FaultSignal> {
        let refused = self.sim().refused_allocations();
        let fault = self.is_told.then(|| self.spec.borrow_mut().fault_begins(process.id(), va, access));
        let served = self.lab.on(cpu, |mm| mm.fault(&process.space, va, access));
        let served = served.map(drop).map_err(|error| signal(&error));
        if let Some(fault) = fault {
            let mut spec = self.spec.borrow_mut();
            spec.set_memory_may_fail(self.sim().refused_allocations() > refused);
            let verdict = spec.fault_ends(self.cpu_step(cpu), fault, served);
            drop(spec);
            self.judge(verdict);
        }
        served
    }

    /// The access reaches memory in this frame.
    #[inline]
    pub(super) fn reach(&self, cpu: CpuId, process: &Process<I>, va: VirtAddr, access: Access, pfn: Pfn) {
        let cell = &self.sim().ram()[((pfn.base().raw() + va.page_offset()) / 8) as usize];
        let (did, id) = (self.cpu_step(cpu), process.id());
        if !self.is_told {
            if access == Access::Write {
                cell.store(self.fresh_value(), Ordering::Relaxed);
            }
            return self.done.borrow_mut().accessed(access);
        }
        let verdict = match access {
            Access::Read => self.spec.borrow_mut().load(did, id, va, cell.load(Ordering::Relaxed)),
            Access::Write => self.store(cell, |value| self.spec.borrow_mut().store(did, id, va, value)),
            Access::Exec => self.spec.borrow_mut().fetch(did, id, va),
        };
        self.done.borrow_mut().accessed(access);
        self.judge(verdict);
    }

    #[inline]
    fn store<T>(&self, cell: &AtomicU64, tell: impl FnOnce(u64) -> T) -> T {
        let value = self.fresh_value();
        cell.store(value, Ordering::Relaxed);
        tell(value)
    }

    /// Accesses here and there.
    ///
    /// What gets a signal is left alone from then on; a program that got many stays with what it
    /// could reach.
    pub(super) fn roam(&self, cpu: CpuId, (start, pages): (VirtAddr, u64), times: u32, seed: u64) {
        let Some(process) = self.enter(cpu) else { return };
        let mut random = Pcg64::seed_from_u64(seed);
        let pages = pages.min(128);
        let (mut refused, mut signals) = ([0u128; 3], 0);
        let mut reached: Vec<(u64, Access)> = Vec::new();
        for _ in 0..times {
            let bits = random.next_u64();
            let (page, access) = if signals < MOST_SIGNALS {
                (below(&mut random, pages), kind(bits))
            } else if reached.is_empty() {
                return;
            } else {
                reached[below(&mut random, reached.len() as u64) as usize]
            };
            if refused[access as usize] >> page & 1 == 1 {
                continue;
            }
            if !self.access(cpu, &process, start.add(page * PAGE_SIZE + (bits & 511) * 8), access) {
                refused[access as usize] |= 1 << page;
                signals += 1;
            } else if signals < MOST_SIGNALS {
                reached.push((page, access));
            }
        }
    }
}

/// Loads mostly, stores nearly as often, seldom a fetch.
fn kind(bits: u64) -> Access {
    match bits >> 32 & 31 {
        0..17 => Access::Read,
        17..31 => Access::Write,
        _ => Access::Exec,
    }
}
