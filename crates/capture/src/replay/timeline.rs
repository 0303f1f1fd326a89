//! What happens over modelled time, in slots of equal width.
//!
//! Key types: [`Timeline`], a row; [`CpuLog`], the rows of each CPU. A CPU is looked at after each
//! fault, call, tick and round of background reclaim, so an event is at the end of the operation in
//! which it was counted.

use super::report::CpuTimeline;
use pagewright_arch::Isa;
use pagewright_lab::Lab;
use pagewright_types::{Counter, CpuId};

/// Number of slots of a row.
const SLOTS: usize = 32;
/// The width of a slot at first, in nanoseconds of modelled time; it doubles as time passes.
const FIRST_SLOT_NS: u64 = 1000;

/// A row; if time passes the last slot, the width of all slots doubles.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    slot_ns: u64,
    slots: [u64; SLOTS],
}

impl Timeline {
    pub(super) const fn new() -> Self {
        Self { slot_ns: FIRST_SLOT_NS, slots: [0; SLOTS] }
    }

    /// Adds events at a time.
    pub(super) fn add(&mut self, at_ns: u64, events: u64) {
        while at_ns / self.slot_ns >= SLOTS as u64 {
            self.double();
        }
        self.slots[(at_ns / self.slot_ns) as usize] += events;
    }

    fn double(&mut self) {
        self.slot_ns *= 2;
        for slot in 0..SLOTS {
            let pair = self.slots.get(2 * slot..2 * slot + 2);
            self.slots[slot] = pair.map_or(0, |pair| pair.iter().sum());
        }
    }

    /// The width of a slot.
    pub(super) fn slot_ns(&self) -> u64 {
        self.slot_ns
    }

    /// The slots up to the last one with an event.
    pub(super) fn used(&self) -> &[u64] {
        let used = self.slots.iter().rposition(|events| *events > 0).map_or(0, |last| last + 1);
        &self.slots[..used]
    }
}

/// The counters whose events are noted for each CPU, in the order of the fields of [`CpuTimeline`].
const COUNTED: [Counter; 4] =
    [Counter::PgFault, Counter::NrTlbRemoteFlush, Counter::NrTlbRemoteFlushReceived, Counter::PgMigrateSuccess];

/// The rows of a CPU, and its counters when it was last looked at.
#[derive(Clone)]
struct CpuRows {
    rows: [Timeline; COUNTED.len()],
    seen: [u64; COUNTED.len()],
}

/// The rows of all CPUs.
pub(super) struct CpuLog {
    cpus: Vec<CpuRows>,
}

impl CpuLog {
    pub(super) fn new(cpus: u16) -> Self {
        let none = CpuRows { rows: [const { Timeline::new() }; COUNTED.len()], seen: [0; COUNTED.len()] };
        Self { cpus: vec![none; usize::from(cpus)] }
    }

    /// Notes what `cpu` has counted since the last time, and what others did for its flushes.
    #[cold]
    pub(super) fn note<I: Isa>(&mut self, lab: &Lab<I>, cpu: CpuId) {
        let flushes = |log: &Self| log.cpus[cpu.index()].seen[1];
        let before = flushes(self);
        self.note_one(lab, cpu);
        if flushes(self) != before {
            (0..self.cpus.len() as u16).for_each(|other| self.note_one(lab, CpuId::new(other)));
        }
    }

    fn note_one<I: Isa>(&mut self, lab: &Lab<I>, cpu: CpuId) {
        let (counters, now) = (lab.mm().tlb().frames().counters(), lab.sim().clock(cpu).raw() / 1000);
        let CpuRows { rows, seen } = &mut self.cpus[cpu.index()];
        for ((row, seen), counter) in rows.iter_mut().zip(seen).zip(COUNTED) {
            let count = counters.of(cpu, counter);
            if count > *seen {
                row.add(now, count - *seen);
                *seen = count;
            }
        }
    }

    /// The rows, all with the slots of the widest.
    pub(super) fn report(mut self) -> CpuTimeline {
        let all = || self.cpus.iter().flat_map(|cpu| &cpu.rows);
        let slot_ns = all().map(Timeline::slot_ns).max().unwrap_or(FIRST_SLOT_NS);
        for row in self.cpus.iter_mut().flat_map(|cpu| &mut cpu.rows) {
            while row.slot_ns < slot_ns {
                row.double();
            }
        }
        let of = |kind: usize| self.cpus.iter().map(|cpu| cpu.rows[kind].used().to_vec()).collect();
        CpuTimeline { slot_ns, faults: of(0), shootdowns: of(1), ipis: of(2), migrated: of(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_every_event_as_its_slots_grow() {
        let mut timeline = Timeline::new();
        timeline.add(0, 1);
        timeline.add(31_999, 2);
        assert_eq!(timeline.used().len(), SLOTS);
        timeline.add(64_000, 4);
        let used = timeline.used();
        assert_eq!((timeline.slot_ns(), used.iter().sum::<u64>()), (4000, 7));
        assert_eq!((used[0], used[7], used[16]), (1, 2, 4));
        assert_eq!(used.len(), 17, "slots after the last event are not reported");
    }

    #[test]
    fn all_rows_of_a_report_have_slots_of_one_width() {
        let mut log = CpuLog::new(2);
        log.cpus[0].rows[0].add(31_000, 3);
        log.cpus[1].rows[3].add(100_000, 5);
        let report = log.report();
        assert_eq!(report.slot_ns, 4000);
        assert_eq!((&report.faults[0][7], report.faults[0].len()), (&3, 8));
        assert_eq!((&report.migrated[1][25], &report.migrated[0]), (&5, &Vec::new()));
    }
}
