//! The timer ticks of the CPUs that run a thread, 1,000 in a second of modelled time.
//!
//! A tick tells the memory manager the time, and scans a part of the thread's space if one is due.
//! The engine checks before each item of the capture, so a tick comes after the item during which
//! it was due, as one that waits until interrupts are enabled.
//!
//! Not guaranteed: one tick for each ms. A CPU that waits long has one tick afterwards.

use super::engine::Engine;
use pagewright_arch::Isa;
use pagewright_mm::Space;
use pagewright_sim::{Picos, Sim};
use pagewright_types::CpuId;

/// The time between two ticks of a CPU.
const TICK: Picos = Picos::from_nanos(1_000_000);

impl<I: Isa> Engine<'_, I> {
    /// Runs the tick of `cpu`, which runs `space`, if one is due.
    #[inline]
    pub(super) fn tick(&mut self, cpu: CpuId, space: &Space<Sim<I>>) {
        let now = self.lab.sim().clock(cpu);
        let due = &mut self.next_tick[cpu.index()];
        if now >= *due {
            let ticks = now.raw() / TICK.raw();
            *due = Picos::from_nanos((ticks + 1) * TICK.raw() / 1000);
            self.scan(cpu, space, ticks);
            self.over_time.note(self.lab, cpu);
        }
    }
}
