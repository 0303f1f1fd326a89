//! The history of one cache line, in modelled time.
//!
//! A *span* is the time during which one CPU has the line to itself: the transfer to it, and the
//! hold of the lock in it. Spans are ordered by modelled time and not by the order in which the
//! host executes operations, because an operation is executed whole although others overlap with
//! it. So a CPU waits for the spans that contain its own clock, and for no later one.
//!
//! Key type: [`LineHistory`].
//!
//! Protocol: a store or an acquisition begins in the first gap that is long enough for the transfer
//! and for a hold as long as the last one. A writer of a reader-writer lock also waits for readers.
//!
//! Not guaranteed: more than the latest [`SHARED_SPANS`] spans; a CPU whose clock is before all of
//! them finds the line free.

use crate::time::Picos;
use pagewright_types::{CpuId, CpuMask};
use std::collections::VecDeque;

/// The spans that a line keeps if several CPUs use it.
///
/// More than 64 CPUs that each use a line some times in one operation.
const SHARED_SPANS: usize = 512;
/// The spans that a line keeps while one CPU uses it.
const PRIVATE_SPANS: usize = 8;

/// What an access to a line cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct LinePrice {
    /// The time that the CPU waited for holds and transfers of other CPUs.
    pub(super) wait: Picos,
    /// The time in which the line came from another CPU, or was taken from readers.
    pub(super) transfer: Picos,
}

/// Time in which one CPU has the line to itself.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Picos,
    end: Picos,
    cpu: CpuId,
}

/// The history of one line.
#[derive(Debug)]
pub(super) struct LineHistory {
    /// In the order of their starts.
    spans: VecDeque<Span>,
    /// CPUs that have loaded from the line since the last span began.
    readers: CpuMask,
    /// The holds of readers of a reader-writer lock.
    shared_holds: VecDeque<(Picos, Picos)>,
    /// When the present hold began.
    held_since: Picos,
    /// How long the last exclusive hold took, without the transfer.
    last_hold: Picos,
    /// Whether more than one CPU has used the line.
    is_shared: bool,
}

/// Returns the time in which a line comes from the first CPU to the second.
pub(super) trait TransferTime: Fn(CpuId, CpuId) -> Picos {}
impl<T: Fn(CpuId, CpuId) -> Picos> TransferTime for T {}

impl LineHistory {
    pub(super) const NEW: Self = Self {
        spans: VecDeque::new(),
        readers: CpuMask::EMPTY,
        shared_holds: VecDeque::new(),
        held_since: Picos::ZERO,
        last_hold: Picos::ZERO,
        is_shared: false,
    };

    /// The number of spans that begin at `now` or before.
    fn begun(&self, now: Picos) -> usize {
        match self.spans.back() {
            Some(last) if last.start <= now => self.spans.len(),
            Some(_) | None => self.spans.partition_point(|span| span.start <= now),
        }
    }

    /// `cpu` loads from the line.
    pub(super) fn load(&mut self, cpu: CpuId, now: Picos, time: &impl TransferTime) -> LinePrice {
        let begun = self.begun(now);
        let Some(span) = begun.checked_sub(1).map(|last| self.spans[last]) else {
            self.insert(0, Span { start: now, end: now, cpu });
            return LinePrice::default();
        };
        let is_last = begun == self.spans.len();
        if span.cpu == cpu || is_last && self.readers.contains(cpu) {
            return LinePrice::default();
        }
        if is_last {
            self.readers.insert(cpu);
        }
        self.is_shared = true;
        LinePrice { wait: span.end.since(now), transfer: time(span.cpu, cpu) }
    }

    /// `cpu` stores to the line.
    pub(super) fn store(&mut self, cpu: CpuId, now: Picos, time: &impl TransferTime) -> LinePrice {
        let (at, start, transfer) = self.gap(cpu, now, Picos::ZERO, time);
        if transfer > Picos::ZERO || self.spans.is_empty() {
            self.insert(at, Span { start, end: start + transfer, cpu });
        }
        LinePrice { wait: start.since(now), transfer }
    }

    /// `cpu` acquires the lock in the line, and no other CPU has it until it is released.
    pub(super) fn acquire(&mut self, cpu: CpuId, now: Picos, time: &impl TransferTime) -> LinePrice {
        let mut from = now;
        let (at, start, transfer) = loop {
            let (at, start, transfer) = self.gap(cpu, from, self.last_hold, time);
            match self
                .shared_holds
                .iter()
                .filter(|(begin, end)| *begin <= start && start < *end)
                .map(|hold| hold.1)
                .max()
            {
                Some(end) => from = end,
                None => break (at, start, transfer),
            }
        };
        self.insert(at, Span { start, end: start + transfer, cpu });
        self.held_since = start;
        LinePrice { wait: start.since(now), transfer }
    }

    /// `cpu` releases the lock.
    pub(super) fn release(&mut self, cpu: CpuId, now: Picos) {
        let since = self.held_since;
        let Some(at) = self.spans.iter().rposition(|span| span.start == since && span.cpu == cpu) else { return };
        self.last_hold = now.since(self.spans[at].end);
        self.spans[at].end = now;
        // A hold without time says nothing that the span before it does not say.
        if now == since && at.checked_sub(1).is_some_and(|before| self.spans[before].cpu == cpu) {
            self.spans.remove(at);
        }
    }

    /// `cpu` acquires the lock in the line as a reader.
    pub(super) fn acquire_shared(&mut self, cpu: CpuId, now: Picos, time: &impl TransferTime) -> LinePrice {
        let price = self.store(cpu, now, time);
        self.held_since = now + price.wait + price.transfer;
        price
    }

    /// `cpu` gives up its part in the lock.
    pub(super) fn release_shared(&mut self, cpu: CpuId, now: Picos, time: &impl TransferTime) -> LinePrice {
        let price = self.store(cpu, now, time);
        let end = now + price.wait + price.transfer;
        if end > self.held_since {
            self.shared_holds.push_back((self.held_since, end));
            if self.shared_holds.len() > self.kept() {
                self.shared_holds.pop_front();
            }
        }
        price
    }

    /// The first gap from `now` on that has room for a transfer to `cpu` and for `hold`.
    ///
    /// Returns its place among the spans, when it begins for `cpu`, and the time of the transfer.
    fn gap(&self, cpu: CpuId, now: Picos, hold: Picos, time: &impl TransferTime) -> (usize, Picos, Picos) {
        let mut at = self.begun(now);
        let mut start = now;
        loop {
            let before = at.checked_sub(1).map(|last| self.spans[last]);
            start = start.max(before.map_or(Picos::ZERO, |span| span.end));
            let is_last = at == self.spans.len();
            let transfer = match before {
                None => Picos::ZERO,
                Some(span) if span.cpu != cpu => time(span.cpu, cpu),
                Some(_) if is_last => self.readers.iter().map(|reader| time(reader, cpu)).max().unwrap_or_default(),
                Some(_) => Picos::ZERO,
            };
            if is_last || self.spans[at].start >= start + transfer + hold {
                return (at, start, transfer);
            }
            at += 1;
        }
    }

    fn insert(&mut self, at: usize, span: Span) {
        self.is_shared |= at.checked_sub(1).is_some_and(|before| self.spans[before].cpu != span.cpu);
        if at == self.spans.len() {
            self.readers = CpuMask::EMPTY;
            self.spans.push_back(span);
        } else {
            self.spans.insert(at, span);
        }
        if self.spans.len() > self.kept() {
            self.spans.pop_front();
        }
    }

    fn kept(&self) -> usize {
        if self.is_shared { SHARED_SPANS } else { PRIVATE_SPANS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: u64 = 50;

    fn ns(raw: u64) -> Picos {
        Picos::new(raw)
    }

    fn cpu(raw: u16) -> CpuId {
        CpuId::new(raw)
    }

    fn time(from: CpuId, to: CpuId) -> Picos {
        if from == to { Picos::ZERO } else { ns(T) }
    }

    fn price(wait: u64, transfer: u64) -> LinePrice {
        LinePrice { wait: ns(wait), transfer: ns(transfer) }
    }

    /// Acquires at `now` and holds for `hold`; returns the price.
    fn hold(line: &mut LineHistory, on: u16, now: u64, hold: u64) -> LinePrice {
        let price = line.acquire(cpu(on), ns(now), &time);
        line.release(cpu(on), ns(now) + price.wait + price.transfer + ns(hold));
        price
    }

    /// INV-SIM-LINES.
    #[test]
    fn one_cpu_alone_never_pays() {
        let mut line = LineHistory::NEW;
        for now in 0..100 {
            assert_eq!(hold(&mut line, 3, now * 10, now % 7), price(0, 0));
            assert_eq!(line.store(cpu(3), ns(now * 10 + 8), &time), price(0, 0));
            assert_eq!(line.load(cpu(3), ns(now * 10 + 9), &time), price(0, 0));
        }
        assert!(line.spans.len() <= PRIVATE_SPANS);
    }

    #[test]
    fn a_line_moves_from_the_cpu_that_wrote_it_last() {
        let mut line = LineHistory::NEW;
        assert_eq!(line.store(cpu(0), ns(10), &time), price(0, 0));
        assert_eq!(line.store(cpu(1), ns(20), &time), price(0, T));
        assert_eq!(line.store(cpu(1), ns(100), &time), price(0, 0));
        assert_eq!(line.store(cpu(0), ns(200), &time), price(0, T));
    }

    #[test]
    fn readers_pay_once_and_the_next_store_takes_the_line_from_them() {
        let mut line = LineHistory::NEW;
        line.store(cpu(0), ns(10), &time);
        assert_eq!(line.load(cpu(1), ns(20), &time), price(0, T));
        assert_eq!(line.load(cpu(1), ns(90), &time), price(0, 0));
        assert_eq!(line.load(cpu(2), ns(90), &time), price(0, T), "a second reader");
        assert_eq!(line.store(cpu(0), ns(300), &time), price(0, T), "the writer invalidates their copies");
        assert_eq!(line.store(cpu(0), ns(400), &time), price(0, 0));
        assert_eq!(line.load(cpu(1), ns(500), &time), price(0, T));
    }

    #[test]
    fn a_lock_that_is_held_delays_and_then_moves() {
        let mut line = LineHistory::NEW;
        assert_eq!(hold(&mut line, 0, 0, 100), price(0, 0));
        assert_eq!(hold(&mut line, 1, 30, 100), price(70, T));
        // 100 to 250 are taken now.
        assert_eq!(hold(&mut line, 2, 40, 100), price(210, T));
        assert_eq!(hold(&mut line, 2, 1000, 100), price(0, 0));
    }

    #[test]
    fn a_hold_later_in_modelled_time_delays_no_earlier_one() {
        let mut line = LineHistory::NEW;
        hold(&mut line, 0, 0, 10);
        hold(&mut line, 0, 5000, 10);
        assert_eq!(hold(&mut line, 1, 100, 10), price(0, T));
    }

    #[test]
    fn a_hold_does_not_begin_in_a_gap_that_is_too_short() {
        let mut line = LineHistory::NEW;
        hold(&mut line, 0, 0, 100);
        hold(&mut line, 0, 200, 100);
        assert_eq!(hold(&mut line, 1, 120, 10), price(180, T), "100 and a transfer do not fit before 200");
    }

    #[test]
    fn transfers_of_one_line_follow_one_another() {
        let mut line = LineHistory::NEW;
        line.store(cpu(0), ns(0), &time);
        for other in 1..10 {
            let before = u64::from(other - 1) * T;
            assert_eq!(line.store(cpu(other), ns(10), &time), price(before, T));
        }
    }

    #[test]
    fn a_writer_waits_for_readers_and_readers_wait_for_a_writer() {
        let mut line = LineHistory::NEW;
        line.acquire_shared(cpu(0), ns(0), &time);
        line.release_shared(cpu(0), ns(1000), &time);
        let joined = line.acquire_shared(cpu(1), ns(100), &time);
        assert_eq!(joined, price(0, T), "readers do not exclude each other");
        line.release_shared(cpu(1), ns(800), &time);
        let written = line.acquire(cpu(2), ns(300), &time);
        assert!(written.wait >= ns(700), "{written:?}");
        line.release(cpu(2), ns(300) + written.wait + written.transfer + ns(500));
        assert!(line.acquire_shared(cpu(3), ns(1100), &time).wait > ns(0));
    }
}
