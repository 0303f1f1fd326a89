//! The first store to new memory, without the clearing, by size of the page that it gets.
//!
//! Key type: [`FirstStores`]. The machine has page tables and records and no contents of pages, so
//! clearing takes no time. The sizes take turns in each round.
//!
//! Not guaranteed: the exception, and a TLB miss; they are the same for each fault.

use super::super::parent::{Parent, SpanClock, failed};
use super::super::rounds::in_turns;
use super::super::{Context, EvaluateError, Figures, Grid, Scale, Stats};
use super::process::{Machine, enable, set};
use pagewright_mm::{MapFlags, MmSetting};
use pagewright_types::{Order, PAGE_SIZE, VirtAddr};

/// Bytes to which a sample stores.
const BYTES: u64 = 64 << 20;
/// The orders, the base page first.
pub(super) const ORDERS: [Order; 3] = [Order::ZERO, Order::new(4), Order::PMD];

/// Nanoseconds per page of 4 KiB, by order and round.
pub(super) struct FirstStores(pub(super) [Vec<f64>; ORDERS.len()]);

impl FirstStores {
    /// Measures all orders in turns.
    pub(super) fn measure(context: &Context<'_>) -> Result<Self, EvaluateError> {
        context.show_step("first stores to memory of each size of page");
        let rounds = if context.scale == Scale::Full { 45 } else { 9 };
        let process = Parent::without_contents(2 * BYTES)?;
        Ok(Self(in_turns(rounds, |at| sample(&process, ORDERS[at]))?))
    }

    /// The time per page of an order in multiples of that of base pages, round by round.
    pub(super) fn ratio(&self, order: Order) -> Stats {
        let at = ORDERS.iter().position(|of| *of == order).unwrap_or(0);
        Stats::of_ratios(&self.0[at], &self.0[0])
    }

    pub(super) fn figures(&self) -> Figures {
        let label = |order: &Order| format!("first store, pages of {} bytes", order.bytes());
        Grid::of("First stores without clearing, ns per 4 KiB, measured", ORDERS.iter().zip(&self.0))
            .text("page", |(order, _)| format!("{} KiB", order.bytes() >> 10))
            .measured("ns", "ns_per_4kib", |(_, nanos)| Stats::of((*nanos).clone()))
            .text("× of a 4 KiB page", |(order, _)| self.ratio(**order))
            .figures(|(order, _)| [label(order), format!("{BYTES} bytes")])
    }
}

/// Nanoseconds per page of 4 KiB of stores to memory that gets pages of `order`.
fn sample(process: &Parent<Machine>, order: Order) -> Result<f64, EvaluateError> {
    enable(process, if order == Order::PMD { "always" } else { "never" })?;
    set(process, MmSetting::ThpEnabled64k, if order.raw() == 4 { "always" } else { "never" })?;
    let range = process.map(VirtAddr::ZERO, BYTES, MapFlags::empty())?;
    let clock = SpanClock::Cpu.start();
    for offset in (0..BYTES).step_by(order.bytes() as usize) {
        process.store(&process.space, range.start().add(offset))?;
    }
    let took = clock.elapsed();
    process.mm.munmap(&process.space, range.start(), BYTES).map_err(failed)?;
    Ok(took.as_nanos() as f64 / (BYTES / PAGE_SIZE) as f64)
}
