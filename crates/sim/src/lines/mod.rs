//! The price of cache lines that CPUs share, and of waiting for a held lock.
//!
//! A line that another CPU stored to last has to come from that CPU: a transfer. A CPU that
//! acquires a lock whose hold contains the CPU's clock waits for the end of the hold. The locks of
//! `sync` and the owners of shared words report each access ([`pagewright_sync::Backend::line`]);
//! this module advances the clock of the CPU and counts by name.
//!
//! Key types: [`SimLine`], what each lock keeps; [`LineCosts`], the counts of one name.
//!
//! ```text
//!   lock, shared word ── Backend::line ─▶ Lines::price ─▶ LineHistory (gap, transfer) ─▶ clock, LineCosts
//! ```
//!
//! **INV-SIM-LINES** One CPU alone pays nothing for cache lines, and the same seed gives the same
//! prices: a line is known by its lock, its frame or the number of its object, and not by an
//! address of the host.
//!
//! The transfer takes [`Cost::LineNear`] within a cluster of the profile, else [`Cost::LineFar`].
//! A memmap record that is no table has one last writer and no queue, because there are millions.
//!
//! Not guaranteed: explored schedules pay nothing, because their clocks do not matter. Lines that
//! are not reported, false sharing, and the interconnect's own limits have no price.

mod history;

use crate::core::Core;
use crate::cost::Cost;
use crate::profile::Profile;
use crate::time::Picos;
use history::{LineHistory, LinePrice};
use pagewright_sync::{LineRef, LineState, LineUse};
use pagewright_types::{CpuId, Pfn};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

/// What a lock of the simulated machine keeps about its line.
#[derive(Debug)]
pub struct SimLine(Mutex<LineHistory>);

impl LineState for SimLine {
    const NEW: Self = Self(Mutex::new(LineHistory::NEW));
}

/// What the lines of one name have cost all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCosts {
    /// The rank of the locks, or what the words count.
    pub name: &'static str,
    /// The accesses that were reported; an acquisition and its release are one.
    pub uses: u64,
    /// The accesses for which the line came from another CPU.
    pub transfers: u64,
    /// The time of these transfers.
    pub transfer_time: Picos,
    /// The accesses that waited for a hold or a transfer of another CPU.
    pub waits: u64,
    /// The time of these waits.
    pub wait_time: Picos,
}

impl LineCosts {
    /// The costs since `before`, which has an earlier state of all lines.
    #[must_use]
    pub fn since(&self, before: &[Self]) -> Self {
        let Some(before) = before.iter().find(|costs| costs.name == self.name) else { return *self };
        Self {
            name: self.name,
            uses: self.uses - before.uses,
            transfers: self.transfers - before.transfers,
            transfer_time: self.transfer_time - before.transfer_time,
            waits: self.waits - before.waits,
            wait_time: self.wait_time - before.wait_time,
        }
    }
}

/// The last writer of a memmap record and its readers since, in one word each; 0 is none.
type RecordLine = [u64; 2];

/// The lines of one machine.
pub(crate) struct Lines {
    cores: Rc<[Core]>,
    near: Cell<Picos>,
    far: Cell<Picos>,
    cluster: u16,
    frames: usize,
    /// By frame number; empty until the first is used.
    records: RefCell<Vec<RecordLine>>,
    tables: RefCell<HashMap<Pfn, LineHistory>>,
    words: RefCell<HashMap<(&'static str, u64), LineHistory>>,
    costs: RefCell<Vec<LineCosts>>,
}

thread_local! {
    /// The machine whose lines are priced on this host thread.
    static LINES: RefCell<Option<Rc<Lines>>> = const { RefCell::new(None) };
}

/// Makes `next` the lines that are priced on this host thread, and returns those before.
pub(crate) fn switch(next: Option<Rc<Lines>>) -> Option<Rc<Lines>> {
    LINES.replace(next)
}

/// Prices an access of `cpu`, if the machine that runs prices lines.
pub(crate) fn report(cpu: CpuId, line: LineRef<'_, SimLine>, name: &'static str, used: LineUse) {
    LINES.with_borrow(|lines| {
        if let Some(lines) = lines {
            lines.price(cpu, line, name, used);
        }
    });
}

impl Lines {
    pub(crate) fn new(cores: Rc<[Core]>, profile: &Profile, frames: usize) -> Self {
        Self {
            cores,
            near: Cell::new(profile.cost(Cost::LineNear)),
            far: Cell::new(profile.cost(Cost::LineFar)),
            cluster: profile.cluster(),
            frames,
            records: RefCell::default(),
            tables: RefCell::default(),
            words: RefCell::default(),
            costs: RefCell::default(),
        }
    }

    fn transfer(&self, from: CpuId, to: CpuId) -> Picos {
        match (from == to, from.raw() / self.cluster == to.raw() / self.cluster) {
            (true, _) => Picos::ZERO,
            (false, true) => self.near.get(),
            (false, false) => self.far.get(),
        }
    }

    fn price(&self, cpu: CpuId, line: LineRef<'_, SimLine>, name: &'static str, used: LineUse) {
        let core = &self.cores[cpu.index()];
        let price = match (line, used) {
            (LineRef::Lock(line), _) => {
                let mut history = line.0.lock().unwrap_or_else(PoisonError::into_inner);
                self.price_history(&mut history, cpu, core.clock(), used)
            }
            (LineRef::Record(pfn), LineUse::Load | LineUse::Store) => self.price_record(cpu, pfn, used),
            (LineRef::Record(pfn), _) => {
                let mut tables = self.tables.borrow_mut();
                let history = tables.entry(pfn).or_insert(LineHistory::NEW);
                self.price_history(history, cpu, core.clock(), used)
            }
            (LineRef::Word(number), _) => {
                let mut words = self.words.borrow_mut();
                let history = words.entry((name, number)).or_insert(LineHistory::NEW);
                self.price_history(history, cpu, core.clock(), used)
            }
        };
        core.spend(price.wait + price.transfer);
        self.count(name, used, price);
    }

    fn price_history(&self, history: &mut LineHistory, cpu: CpuId, now: Picos, used: LineUse) -> LinePrice {
        let time = |from, to| self.transfer(from, to);
        match used {
            LineUse::Load => history.load(cpu, now, &time),
            LineUse::Store => history.store(cpu, now, &time),
            LineUse::Acquire => history.acquire(cpu, now, &time),
            LineUse::AcquireShared => history.acquire_shared(cpu, now, &time),
            LineUse::ReleaseShared => history.release_shared(cpu, now, &time),
            LineUse::Release => {
                history.release(cpu, now);
                LinePrice::default()
            }
        }
    }

    fn price_record(&self, cpu: CpuId, pfn: Pfn, used: LineUse) -> LinePrice {
        let mut records = self.records.borrow_mut();
        if records.is_empty() {
            records.resize(self.frames, RecordLine::default());
        }
        let Some([writer, readers]) = records.get_mut(pfn.raw() as usize) else { return LinePrice::default() };
        let (me, bit) = (u64::from(cpu.raw()) + 1, 1 << (cpu.raw() % 64));
        let from_writer = || match *writer {
            0 => Picos::ZERO,
            writer => self.transfer(CpuId::new((writer - 1) as u16), cpu),
        };
        let transfer = match used {
            LineUse::Load if *writer == me || *readers & bit != 0 => Picos::ZERO,
            LineUse::Load => {
                *readers |= bit;
                from_writer()
            }
            _ if *writer == me && *readers == 0 => Picos::ZERO,
            _ if *writer == me => self.far_or_near(*readers),
            _ => from_writer(),
        };
        if used == LineUse::Store {
            (*writer, *readers) = (me, 0);
        }
        LinePrice { wait: Picos::ZERO, transfer }
    }

    /// The time to invalidate the copies of readers, of which only the sum is known.
    fn far_or_near(&self, readers: u64) -> Picos {
        if readers.count_ones() > u32::from(self.cluster) { self.far.get() } else { self.near.get() }
    }

    fn count(&self, name: &'static str, used: LineUse, price: LinePrice) {
        let mut all = self.costs.borrow_mut();
        // Nearly every name is found by its address, which costs less than its text.
        let same = |costs: &LineCosts| core::ptr::eq(costs.name, name);
        let at = all.iter().position(same).or_else(|| all.iter().position(|costs| costs.name == name));
        let at = at.unwrap_or_else(|| {
            let (transfer_time, wait_time) = (Picos::ZERO, Picos::ZERO);
            all.push(LineCosts { name, uses: 0, transfers: 0, transfer_time, waits: 0, wait_time });
            all.len() - 1
        });
        let costs = &mut all[at];
        costs.uses += u64::from(!matches!(used, LineUse::Release | LineUse::ReleaseShared));
        costs.transfers += u64::from(price.transfer > Picos::ZERO);
        costs.transfer_time += price.transfer;
        costs.waits += u64::from(price.wait > Picos::ZERO);
        costs.wait_time += price.wait;
    }

    /// The costs of each name, in the order of the names.
    pub(crate) fn costs(&self) -> Vec<LineCosts> {
        let mut all = self.costs.borrow().clone();
        all.sort_by_key(|costs| costs.name);
        all
    }
}
